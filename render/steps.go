package render

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/chart"
	"speedmatrix/render/internal/format"
)

// stepMetrics are the metrics whose histories are searched for steps.
var stepMetrics = [...]compare.Metric{compare.Decode, compare.Prefill, compare.TTFT}

// An epoch is a part of a series in which nothing changed but the engine. No
// step is looked for across its ends.
type epoch struct {
	From, To int    // sides; To is not included
	Changed  string // what was another before, or changed between launches of its first side; "" of a first one that is all of one kind
	None     string // why no step could be found; "" where one could
	Trends   [len(stepMetrics)]compare.Trend
}

// changed names what changed from before (nil: nothing is) to the first run
// of a side, and then from each run to the next.
func (s *side) changed(before *summary) (list []string) {
	for _, r := range s.Runs {
		for _, part := range strings.Split(changes(before, r), "; ") {
			if part != "" && !slices.Contains(list, part) {
				list = append(list, part)
			}
		}
		before = r
	}
	return list
}

// epochsOf divides a series where the driver or the tool changed, and looks
// for steps in each part. A side whose launches differ in them is a part of its
// own: its mean is of neither.
func epochsOf(list *series) []epoch {
	var out []epoch
	var before *summary
	var within []string // what changed between launches of the side before
	for i, s := range list.Sides {
		changed := s.changed(before)
		if len(changed) == 0 {
			for _, part := range within {
				changed = append(changed, part+" during the commit before")
			}
		}
		if i == 0 || len(changed) > 0 {
			out = append(out, epoch{From: i, Changed: strings.Join(changed, "; ")})
		}
		out[len(out)-1].To = i + 1
		before, within = s.Runs[len(s.Runs)-1], s.changed(nil)
	}
	effects := compare.DefaultOptions().Effect
	for i := range out {
		e := &out[i]
		var none []string
		for j, m := range stepMetrics {
			var commits []compare.Commit
			for _, s := range list.Sides[e.From:e.To] {
				commits = append(commits, compare.Commit{Launches: len(s.Runs), Values: s.valuesOf(m)})
			}
			e.Trends[j] = compare.FindTrend(m, commits, list.noise, effects)
			if len(e.Trends[j].Cells) > 0 {
				none = append(none, whyNone(&e.Trends[j], commits))
			}
		}
		switch {
		case len(none) == 0:
			e.None = "no measurement is Valid on every launch of a commit"
		case !slices.Contains(none, ""):
			e.None = none[0]
		}
	}
	return out
}

// A foundStep is a step in the history of a series.
type foundStep struct {
	compare.Step
	series                *series
	before, after         *side // the nearest that have a figure; not always neighbours
	metric                compare.Metric
	whole                 bool
	context, concurrency  int32    // of a cell
	againstRun            bool     // it is the change against the whole run's
	firstAfter, lastAfter *summary // lastAfter has a figure too
}

// findSteps looks for the steps of every series.
func (s *site) findSteps(ctx context.Context) error {
	return inParallel(ctx, s.series, func(list *series) error {
		list.epochs = epochsOf(list)
		for _, e := range list.epochs {
			for j, m := range stepMetrics {
				t := &e.Trends[j]
				add := func(h *compare.History, whole bool, context, concurrency int32) {
					for _, step := range h.Steps {
						after, last := list.Sides[e.From+step.At], list.Sides[e.From+step.Last].Runs
						list.steps = append(list.steps, foundStep{
							Step: step, series: list, before: list.Sides[e.From+step.Before], after: after, metric: m,
							whole: whole, context: context, concurrency: concurrency, againstRun: !whole && t.IndexCells > 0,
							firstAfter: after.first(), lastAfter: last[len(last)-1],
						})
					}
				}
				add(&t.Whole, true, 0, 0)
				for k := range t.Cells {
					c := &t.Cells[k]
					add(&c.History, false, c.ContextTokens, c.Concurrency)
				}
			}
		}
		slices.SortStableFunc(list.steps, newestStep)
		return nil
	})
}

// newestStep orders steps by the first run after them, the newest first,
// then those of whole runs first.
func newestStep(a, b foundStep) int {
	whole := func(s foundStep) int {
		if s.whole {
			return 0
		}
		return 1
	}
	return cmp.Or(b.firstAfter.Started.Compare(a.firstAfter.Started), cmp.Compare(a.series.Path, b.series.Path), cmp.Compare(whole(a), whole(b)),
		cmp.Compare(a.metric, b.metric), cmp.Compare(a.context, b.context), cmp.Compare(a.concurrency, b.concurrency), cmp.Compare(a.At, b.At))
}

// stepAt returns the step of a measurement's rate that begins with a run; nil:
// there is none.
func (s *series) stepAt(r *summary, p cellPlace) *foundStep {
	for i := range s.steps {
		f := &s.steps[i]
		if f.firstAfter == r && !f.whole && (f.metric == compare.Prefill) == p.prefill && f.metric != compare.TTFT && f.context == p.context && f.concurrency == p.concurrency {
			return f
		}
	}
	return nil
}

// share is the change with its natural sign: of a time, more is longer.
func (s *foundStep) share() compare.Change {
	if !s.metric.IsTime() {
		return compare.Change{Share: s.Share, Low: s.Low, High: s.High}
	}
	inverse := func(x float64) float64 { return 1/(1+x) - 1 }
	return compare.Change{Share: inverse(s.Share), Low: inverse(s.High), High: inverse(s.Low)}
}

// worse reports whether the step is one to a slower engine.
func (s *foundStep) worse() bool { return s.Share < 0 }

// A stepRow is a step in a table.
type stepRow struct {
	Series, SeriesURL string // on the page of all steps
	What, Where       string
	Change, Of        string // Of is what it is measured against, often ""
	Verdict, Sure     string // Sure is how sure it is, "" quite
	Tone              tone
	Before, After     string // labels of the commits between which it lies
	BeforeURL         string // of the last run before, a folder
	AfterURL          string // of the first run after
	BeforeDate        string
	AfterDate         string
	LastURL, LastDate string // the last run that has the new level
	DiffURL           string // of their comparison, a folder; "" where the commits are not neighbours, or have no page
}

// Class is the verdict's class in the style sheet.
func (r stepRow) Class() string { return string(r.Tone) }

func (s *site) stepRow(f *foundStep, root string) stepRow {
	before, after := f.before.Runs[len(f.before.Runs)-1], f.firstAfter
	change := f.share()
	r := stepRow{
		Series: s.seriesName(f.series), SeriesURL: root + f.series.Path,
		What: f.metric.Label(), Where: "whole run", Change: changeText(&change),
		Before: sideLabel(before), After: sideLabel(after),
		BeforeURL: root + escapePath(runPath(before)), AfterURL: root + escapePath(runPath(after)),
		BeforeDate: before.Started.Format(time.DateOnly), AfterDate: after.Started.Format(time.DateOnly),
		LastURL: root + escapePath(runPath(f.lastAfter)), LastDate: f.lastAfter.Started.Format(time.DateOnly),
		Tone: goodTone,
	}
	r.Verdict = "faster"
	if f.worse() {
		r.Verdict, r.Tone = "slower", worseTone
	}
	if !f.Confirmed {
		r.Sure = "unconfirmed: the next commit will tell"
	}
	if !f.whole {
		r.Where = f.series.labels[f.context]
		if f.metric != compare.Prefill {
			r.Where += " × " + plain(f.concurrency)
		}
		if f.againstRun {
			r.Of = "against the whole run"
		}
	}
	if d := f.after.Diff; d != nil && d.a == f.before && d.Path != "" {
		r.DiffURL = root + d.Path
	}
	return r
}

// seriesName names a series on a page of several.
func (s *site) seriesName(list *series) string {
	r := list.newest()
	return s.names[r.ModelID] + " on " + r.Hardware + ", " + cmp.Or(join(" · ", r.Quantization, r.EngineName), "unknown engine")
}

// A stepsView lists the steps of all series.
type stepsView struct {
	sitePage
	Rows  []stepRow
	Left  int      // older steps that are in the feed's data only
	None  string   // where there is no step
	Quiet []string // why some series have none
}

// maxSteps is the most that a table of steps has.
const maxSteps = 200

const stepsLead = "Where the speed of an engine changed from one commit to the next, and stayed so. One point alone is no step: it is marked as unconfirmed until the next commit."

// addSteps adds the list of all steps, and a feed of them.
func (s *site) addSteps() error {
	var all []foundStep
	short := 0
	for _, list := range s.series {
		all = append(all, list.steps...)
		if e := list.epochs[len(list.epochs)-1]; len(list.steps) == 0 && e.None != "" {
			short++
		}
	}
	slices.SortStableFunc(all, newestStep)
	v := stepsView{sitePage: s.newPage("steps/", "Steps", stepsLead)}
	v.JSON = ""
	for i := range all[:min(len(all), maxSteps)] {
		v.Rows = append(v.Rows, s.stepRow(&all[i], v.Root))
	}
	v.Left = len(all) - len(v.Rows)
	if len(all) == 0 {
		v.None = fmt.Sprintf("No step was found in %d series.", len(s.series))
	}
	if short > 0 {
		v.Quiet = append(v.Quiet, fmt.Sprintf("%d of %d series are too short to tell: %s", short, len(s.series), neededForSteps))
	}
	if err := s.add("steps/", "steps", v); err != nil {
		return err
	}
	s.files = append(s.files, document{"steps.xml", s.feed(all)})
	return nil
}

const neededForSteps = "it takes 8 commits to learn from a history how noisy it is, or a noise profile (three launches of one commit) and 4 commits."

// whyNone says why no step could be found in a metric, "" where one could: of
// whole runs, or of any cell.
func whyNone(t *compare.Trend, commits []compare.Commit) string {
	const least = 3 // points: two, and one that is unconfirmed
	if t.IndexCells > 0 {
		if t.Whole.Why == "" && len(commits) >= least {
			return ""
		}
		return cmp.Or(t.Whole.Why, plural(len(commits), "commit"))
	}
	why, most := "", 0
	for i := range t.Cells {
		c := &t.Cells[i]
		n := 0
		for _, commit := range commits {
			if commit.Values[runlog.Key{Phase: t.Metric.Phase(), ContextTokens: c.ContextTokens, Concurrency: c.Concurrency}] != nil {
				n++
			}
		}
		if c.Why == "" && n >= least {
			return ""
		}
		if n > most {
			most, why = n, cmp.Or(c.Why, "results on "+plural(n, "commit"))
		}
	}
	return why
}

// hasStep reports whether a step lies in a part of a series.
func (e *epoch) hasStep() bool {
	return slices.ContainsFunc(e.Trends[:], func(t compare.Trend) bool {
		return len(t.Whole.Steps) > 0 || slices.ContainsFunc(t.Cells, func(c compare.CellTrend) bool { return len(c.Steps) > 0 })
	})
}

// feed is the list of steps as an Atom feed. Its dates are those of runs, so
// that it changes with them only.
func (s *site) feed(all []foundStep) []byte {
	base := s.options.BaseURL
	if base != "" {
		base = strings.TrimSuffix(base, "/") + "/"
	}
	updated := time.Unix(0, 0).UTC()
	for _, r := range s.runs {
		if r.Started.After(updated) {
			updated = r.Started
		}
	}
	var b strings.Builder
	element := func(name, text string) { b.WriteString("<" + name + ">" + escapeXML(text) + "</" + name + ">\n") }
	b.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n")
	element("title", "Steps in speed")
	element("id", cmp.Or(base, "urn:speedmatrix:")+"steps.xml")
	element("updated", updated.Format(time.RFC3339))
	b.WriteString("<author><name>speedmatrix</name></author>\n<link href=\"" + escapeXML(base+"steps/index.html") + "\"/>\n")
	for i := range all[:min(len(all), maxSteps)] {
		f := &all[i]
		r := s.stepRow(f, base)
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %v %v %d %d %s %s", f.firstAfter.Series, f.metric, f.whole, f.context, f.concurrency, r.Before, r.After))
		b.WriteString("<entry>\n")
		element("title", join(" ", fmt.Sprintf("%s: %s, %s: %s", join(", ", r.Verdict, r.Sure), r.What, r.Where, r.Change), r.Of))
		element("id", "urn:speedmatrix:step:"+hex.EncodeToString(sum[:16]))
		element("updated", f.firstAfter.Started.Format(time.RFC3339))
		b.WriteString("<link href=\"" + escapeXML(cmp.Or(r.DiffURL, r.SeriesURL)+"index.html") + "\"/>\n")
		element("summary", fmt.Sprintf("%s. Between %s (%s) and %s (%s).", r.Series, r.Before, r.BeforeDate, r.After, r.AfterDate))
		b.WriteString("</entry>\n")
	}
	b.WriteString("</feed>\n")
	return []byte(b.String())
}

// A levelView is the history of whole runs.
type levelView struct {
	Figures []drawing
	Rows    []levelRow // newest first
	Heads   []string   // of the columns of metrics
	Notes   []string   // sentences
}

// A levelRow is one commit.
type levelRow struct {
	Version, Commit, Date, URL string // of its newest run
	Launches                   int
	Values                     []string // by metric: against the first commit under its conditions
	Changed                    string   // that conditions are others from here on
}

// newLevels returns nil where a series has one commit only.
func (s *site) newLevels(list *series, root string) *levelView {
	if len(list.Sides) < 2 {
		return nil
	}
	v := &levelView{}
	for j, m := range stepMetrics {
		d := list.trendFigure(j)
		v.Figures = append(v.Figures, d...)
		if len(d) > 0 {
			v.Heads = append(v.Heads, metricTitle(m))
		}
	}
	rows := make([]levelRow, len(list.Sides))
	for _, e := range list.epochs {
		for i := e.From; i < e.To; i++ {
			side := list.Sides[i]
			r := side.Runs[len(side.Runs)-1]
			row := levelRow{Version: cmp.Or(r.shortVersion(), format.Unknown), Commit: cmp.Or(r.Commit, format.Unknown), Date: r.Started.Format(time.DateOnly), URL: root + escapePath(runPath(r)), Launches: len(side.Runs)}
			if i == e.From {
				row.Changed = e.Changed
			}
			for j := range stepMetrics {
				if !list.hasIndex(j) {
					continue
				}
				text := format.Unknown
				if t := &e.Trends[j]; t.IndexCells > 0 {
					text = percent(indexShare(t, i-e.From)) + " %"
				}
				row.Values = append(row.Values, text)
			}
			rows[i] = row
		}
	}
	rows = rows[max(0, len(rows)-historyRows):]
	slices.Reverse(rows)
	v.Rows = rows
	v.Notes = list.levelNotes()
	return v
}

// hasIndex reports whether any part of a series has a history of whole runs
// in a metric.
func (s *series) hasIndex(metric int) bool {
	return slices.ContainsFunc(s.epochs, func(e epoch) bool { return e.Trends[metric].IndexCells > 0 && e.To-e.From > 1 })
}

// indexShare is how much a commit differs from the first of its part of the
// history, with its natural sign.
func indexShare(t *compare.Trend, i int) float64 {
	d := t.Index[i] - t.Index[0]
	if t.Metric.IsTime() {
		d = -d
	}
	return math.Expm1(d)
}

// levelNotes says in words what the history rests on and why it has no steps.
func (s *series) levelNotes() []string {
	e := &s.epochs[len(s.epochs)-1]
	n := e.To - e.From
	var notes []string
	if why := e.None; why != "" && !e.hasStep() {
		since := ""
		if len(s.epochs) > 1 { // older parts may have steps
			since = " after the change of " + shortChange(e.Changed)
		}
		notes = append(notes, "No step can be told yet"+since+": "+why+". In all "+strings.TrimSuffix(neededForSteps, ".")+".")
	} else if len(s.steps) == 0 {
		notes = append(notes, "No step was found over "+plural(n, "commit")+".")
	}
	switch t := &e.Trends[0]; {
	case t.IndexCells > 0 && t.Whole.Estimated && t.Whole.SD > 0:
		notes = append(notes, fmt.Sprintf("How noisy it is comes from the differences of neighbouring commits: a launch differs by %s %% in total tok/s.", format.Two(100*t.Whole.SD)))
	case t.IndexCells > 0 && t.Whole.SD > 0:
		notes = append(notes, fmt.Sprintf("How noisy it is comes from a profile of %d launches: one differs by %s %% in total tok/s. Bands are two of these on either side.", len(s.noise.Launches), format.Two(100*t.Whole.SD)))
	case n > 1 && t.IndexCells == 0:
		notes = append(notes, "Fewer than five measurements have results on every commit, so each is looked at on its own.")
	}
	if len(s.epochs) > 1 {
		notes = append(notes, "Where something beside the engine changed, the history begins anew: nothing is compared across such a line.")
	}
	return notes
}

// trendFigure draws the history of whole runs in a metric.
func (s *series) trendFigure(metric int) []drawing {
	if !s.hasIndex(metric) {
		return nil
	}
	m := stepMetrics[metric]
	from := max(0, len(s.Sides)-historyRows)
	t := chart.Trend{Head: chart.Head{ID: "whole-" + m.String(), Title: metricTitle(m) + " of the whole run"}, X: "commit, in the order of versions", Y: "% against the first"}
	natural := 1.0
	if m.IsTime() {
		natural = -1
	}
	for _, e := range s.epochs {
		tr := &e.Trends[metric]
		for i := max(e.From, from); i < e.To; i++ {
			r := s.Sides[i].first()
			p := chart.TrendPoint{Y: math.NaN(), Label: r.Commit[:min(len(r.Commit), 7)]}
			if tr.IndexCells > 0 {
				p.Y = 100 * indexShare(tr, i-e.From)
				p.Title = sideLabel(r) + ", " + launchCount(len(s.Sides[i].Runs)) + ": " + percent(p.Y/100) + " %"
			}
			t.Points = append(t.Points, p)
		}
		if e.From > from {
			t.Marks = append(t.Marks, chart.Mark{Before: e.From - from, Text: shortChange(e.Changed), Faint: true})
		}
		if tr.IndexCells == 0 {
			continue
		}
		ends := []int{0}
		for _, step := range tr.Whole.Steps {
			ends = append(ends, step.At)
			if at := e.From + step.At; at > from {
				f := foundStep{Step: step, metric: m}
				mark := chart.Mark{Before: at - from, Text: percent(f.share().Share) + " %", Tone: chart.Good}
				if f.worse() {
					mark.Tone = chart.Bad
				}
				if !step.Confirmed {
					mark.Text += "?"
				}
				t.Marks = append(t.Marks, mark)
			}
		}
		ends = append(ends, e.To-e.From)
		for i := 1; i < len(ends); i++ {
			first, last := max(e.From+ends[i-1], from), e.From+ends[i]-1
			if last-first < 1 {
				continue
			}
			sum, weight := 0.0, 0.0
			for k := first; k <= last; k++ {
				w := float64(len(s.Sides[k].Runs))
				sum, weight = sum+w*(tr.Index[k-e.From]-tr.Index[0]), weight+w
			}
			level := chart.Level{From: first - from, To: last - from, Y: 100 * math.Expm1(natural*sum/weight)}
			if s.noise != nil && !tr.Whole.Estimated {
				level.Half = 200 * tr.Whole.SD
			}
			t.Levels = append(t.Levels, level)
		}
	}
	t.Desc = fmt.Sprintf("%s, oldest to newest; the numbers are in the table below.", plural(len(t.Points), "commit"))
	sub := "Median change of all measurements; dashed is the level between steps."
	return newDrawing(t.Head, sub, t.SVG())
}

// shortChange names what changed in a word or two: "driver", "driver, tool".
func shortChange(changed string) string {
	var names []string
	for _, part := range strings.Split(changed, "; ") {
		name, _, _ := strings.Cut(part, " ")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// SeriesSteps are the steps without the name of the series.
func (v historyView) SeriesSteps() []stepRow {
	rows := slices.Clone(v.Steps)
	for i := range rows {
		rows[i].Series = ""
	}
	return rows
}
