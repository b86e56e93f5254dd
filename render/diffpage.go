package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"sort"
	"unicode/utf8"

	"speedmatrix/ingest/compare"
	"speedmatrix/render/internal/chart"
	"speedmatrix/render/internal/format"
)

// maxDiffMarkdown is the most that a comment on a pull request should have:
// GitHub takes 65,536 characters, and the rest is for whoever posts it.
const maxDiffMarkdown = 60_000

// intervals draws the changes of a metric that decides, a figure for each
// context, and one for all of prefill.
func (d *differ) intervals(m *compare.MetricDiff) []drawing {
	if !m.Gates {
		return nil
	}
	type group struct {
		name string
		rows []chart.Interval
	}
	var groups []group
	seen := map[int32]int{}
	for i := range m.Cells {
		c := &m.Cells[i]
		if c.Change == nil {
			continue
		}
		place, label := c.ContextTokens, plain(c.Concurrency)
		name := d.labels[c.ContextTokens] + " context, by requests at once"
		if m.Metric == compare.Prefill {
			place, label, name = 0, d.labels[c.ContextTokens], "by context"
		}
		at, ok := seen[place]
		if !ok {
			at = len(groups)
			seen[place], groups = at, append(groups, group{name: name})
		}
		tone := chart.Neutral
		switch toneOf(c.Verdict) {
		case worseTone:
			tone = chart.Bad
		case goodTone:
			tone = chart.Good
		}
		groups[at].rows = append(groups[at].rows, chart.Interval{
			Label: label, Low: 100 * c.Change.Low, At: 100 * c.Change.Share, High: 100 * c.Change.High, Tone: tone,
			Title: label + ": " + changeText(c.Change) + ", " + c.Verdict.String(),
		})
	}
	var out []drawing
	for i, g := range groups {
		h := chart.Head{
			ID: fmt.Sprintf("side%d-%s-%d", d.number, m.Metric, i), Title: metricTitle(m.Metric) + ", " + g.name,
			Desc: fmt.Sprintf("%d changes with their 95 %% intervals; the numbers are in the table.", len(g.rows)),
		}
		svg := chart.Intervals{Head: h, X: "change in %", Bound: 100 * m.Effect, Rows: g.rows}.SVG()
		out = append(out, newDrawing(h, "Change with its 95 % interval; changes in the shaded band are too small to count.", svg)...)
	}
	return out
}

// DiffMarkdown returns a comparison as Markdown that fits into a comment on
// a pull request. Where it would not, rows at the end of its full tables are
// left out and counted.
func DiffMarkdown(c Comparison) ([]byte, error) { return diffMarkdownFits(newDiffView(c, nil)) }

func diffMarkdownFits(v *diffView) ([]byte, error) {
	all, most := 0, 0
	for i := range v.Sides {
		most = max(most, len(v.Sides[i].Changed))
		for _, m := range v.Sides[i].Metrics {
			all += len(m.Rows)
		}
	}
	b, err := diffMarkdown(v, all, most)
	if err != nil || utf8.RuneCount(b) <= maxDiffMarkdown {
		return b, err
	}
	// The number of rows that fit, then, where not even the rest does, that
	// of changed cells.
	fits := func(rows, changed int) bool {
		b, err = diffMarkdown(v, rows, changed)
		return err == nil && utf8.RuneCount(b) <= maxDiffMarkdown
	}
	rows, changed := sort.Search(all, func(n int) bool { return !fits(n+1, most) }), most
	if rows == 0 {
		changed = sort.Search(most, func(n int) bool { return !fits(0, n+1) })
	}
	return diffMarkdown(v, rows, changed)
}

// A diffMarkdownView is a view of which the full tables have a number of
// rows at most, and each list of changes too.
type diffMarkdownView struct {
	*diffView
	Sides []diffMarkdownSide
}

type diffMarkdownSide struct {
	diffSide
	LeftOut        int // rows of the full tables
	ChangedLeftOut int
}

func diffMarkdown(v *diffView, rows, changed int) ([]byte, error) {
	m := diffMarkdownView{diffView: v}
	for _, s := range v.Sides {
		x := diffMarkdownSide{diffSide: s}
		if n := len(s.Changed) - changed; n > 0 {
			x.Changed, x.ChangedLeftOut = s.Changed[:changed], n
		}
		x.Metrics = slices.Clone(s.Metrics)
		for i := range x.Metrics {
			all := x.Metrics[i].Rows
			keep := min(rows, len(all))
			x.Metrics[i].Rows, x.LeftOut = all[:keep], x.LeftOut+len(all)-keep
			rows -= keep
		}
		m.Sides = append(m.Sides, x)
	}
	return markdown("diff.md.tmpl", m)
}

// A diffPage is the HTML page of a comparison.
type diffPage struct {
	sitePage
	*diffView
	Heading string
}

// DiffHTML returns a comparison as one HTML file in the look of the site. It
// loads nothing: the style sheet is in it, and nothing else is allowed.
func DiffHTML(c Comparison) ([]byte, error) {
	style, _ := assets()
	css := bytes.TrimSpace(style.data)
	sum := sha256.Sum256(css)
	return diffHTML(newDiffView(c, nil), sitePage{page: page{
		Style:  template.CSS(css), // our own, embedded
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'",
	}})
}

// diffHTML puts a comparison into the frame of a page.
func diffHTML(v *diffView, frame sitePage) ([]byte, error) {
	frame.Eyebrow = "Comparison of speed"
	frame.Title = v.Heading + ": " + v.Sides[0].Heading
	if v.Several {
		frame.Title = v.Heading + ": " + plural(len(v.Sides), "comparison")
	}
	for _, l := range v.Opening {
		if l.Name == "speed" {
			frame.Description = l.Text
		}
	}
	v.Data = frame.Style == ""
	return html("diff.html.tmpl", diffPage{frame, v, v.Heading})
}

// htmlText marks the output of a template of ours as such.
func htmlText(b []byte) template.HTML { return template.HTML(b) }

// Class is the verdict's class in the style sheet; "" none.
func (r diffRow) Class() string { return string(r.Tone) }

// Unknown is what stands where nothing was computed.
func (r diffRow) Unknown() bool { return r.Change == format.Unknown }
