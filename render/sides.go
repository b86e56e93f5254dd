package render

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
)

// A side is the launches of one build of the engine in a series.
type side struct {
	Slug string
	Runs []*summary // by start
	Diff *siteDiff  // with the side before; nil of the first
}

func (s *side) first() *summary { return s.Runs[0] }

// sidesOf groups the runs of a series by build, in the order of versions,
// then of first launches. Runs of which neither commit nor version is known
// are each a side.
func sidesOf(runs []*summary) []*side {
	runs = slices.SortedFunc(slices.Values(runs), byVersion)
	var sides []*side
	for _, r := range runs {
		i := slices.IndexFunc(sides, func(s *side) bool { return sameBuild(s.first(), r) })
		if i < 0 {
			i, sides = len(sides), append(sides, &side{})
		}
		sides[i].Runs = append(sides[i].Runs, r)
	}
	// The build that was measured first gets the plain slug.
	taken := map[string]bool{}
	for _, s := range slices.SortedFunc(slices.Values(sides), func(a, b *side) int {
		return cmp.Or(a.first().Started.Compare(b.first().Started), cmp.Compare(a.first().ID, b.first().ID))
	}) {
		r := s.first()
		text := cmp.Or(r.Commit, r.shortVersion(), r.ID)
		s.Slug = runlog.Slug(text, maxSlug)
		for name := fmt.Appendf(nil, "%q %q %q", r.Commit, r.Version, r.Build); taken[s.Slug]; name = append(name, r.ID...) {
			sum := sha256.Sum256(name)
			s.Slug = runlog.Slug(text, maxSlug) + "-" + hex.EncodeToString(sum[:3])
		}
		taken[s.Slug] = true
	}
	return sides
}

// sameBuild reports whether two runs are known to be of one build: 9 digits
// and 12 can be one commit.
func sameBuild(a, b *summary) bool {
	n := min(len(a.Commit), len(b.Commit))
	commit := a.Commit == b.Commit || n >= 7 && a.Commit[:n] == b.Commit[:n]
	return commit && a.Version == b.Version && a.Build == b.Build && a.Commit+a.Version != ""
}

// A siteDiff is the comparison of a side with the one before it in its
// series.
type siteDiff struct {
	Path  string // folder in the site, ending in a slash; "" where there is no page
	Brief diffBrief
	a, b  *side
	noise *compare.Profile
	up    string // folder of the series

	computed bool
}

// A diffBrief is what other pages say of a comparison.
type diffBrief struct {
	Against  string // label of the side before
	Coverage brief  // comes before any speed; its text is "" where there is none to speak of
	Speed    brief
}

// A brief is a verdict in a word or a few.
type brief struct {
	Text string
	Tone tone
}

// Class is the verdict's class in the style sheet; "" none.
func (b brief) Class() string { return string(b.Tone) }

// A keptDiff is what the cache keeps of a comparison.
type keptDiff struct {
	Brief diffBrief
	Files []document
}

// compare compares each side of every series with the one before it and
// writes their pages into f. It returns the folders of those that were
// computed.
func (s *site) compare(ctx context.Context, c *cache, f *folder, sources []source) (computed []string, err error) {
	of := make(map[string]source, len(sources))
	for _, x := range sources {
		of[x.id] = x
	}
	noise := map[string]*compare.Profile{}
	for _, p := range s.options.Noise {
		if key := p.Setting(); noise[key] == nil {
			noise[key] = p
		}
	}
	var all []*siteDiff
	for _, list := range s.series {
		list.noise = noise[list.newest().Setting]
		for i := 1; i < len(list.Sides); i++ {
			a, b := list.Sides[i-1], list.Sides[i]
			b.Diff = &siteDiff{
				Path: "diff/" + strings.TrimPrefix(list.Path, "series/") + a.Slug + ".." + b.Slug + "/",
				a:    a, b: b, noise: noise[b.first().Setting], up: list.Path,
			}
			all = append(all, b.Diff)
		}
	}
	err = inParallel(ctx, all, func(d *siteDiff) error {
		name, err := c.diffName(d)
		if err != nil {
			return err
		}
		if name != "" {
			c.use(name)
		}
		if p, ok := f.takeOver(d.Path, name); ok {
			if err := json.Unmarshal(p.Note, &d.Brief); err == nil {
				if len(p.Files) == 0 {
					d.Path = ""
				}
				return nil
			}
		}
		kept, anew, err := s.diffPages(c, d, name, of)
		if err != nil {
			return err
		}
		d.computed = anew
		d.Brief = kept.Brief
		for _, file := range kept.Files {
			if err := f.write(d.Path+file.Name, file.Data); err != nil {
				return err
			}
		}
		note, err := json.Marshal(d.Brief)
		if err != nil {
			return fmt.Errorf("keep comparison %q: %w", d.Path, err)
		}
		f.wrote(d.Path, name, note)
		if len(kept.Files) == 0 {
			d.Path = ""
		}
		return nil
	})
	for _, d := range all {
		if d.Path != "" {
			s.diffs = append(s.diffs, d.Path)
		}
		if d.computed {
			computed = append(computed, d.Path)
		}
	}
	slices.Sort(computed)
	return computed, err
}

// diffPages takes the pages of a comparison from the cache, or computes them
// anew. There are none where the same launch is on both sides.
func (s *site) diffPages(c *cache, d *siteDiff, name string, of map[string]source) (k *keptDiff, anew bool, err error) {
	if name != "" {
		if b, err := readKept(filepath.Join(c.dir, name)); err == nil {
			k := &keptDiff{}
			if err := gob.NewDecoder(bytes.NewReader(b)).Decode(k); err == nil {
				return k, false, nil
			}
		}
	}
	if k, err = s.newDiff(c, d, of); err != nil || name == "" {
		return k, true, err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(k); err != nil {
		return nil, false, fmt.Errorf("keep comparison %q: %w", d.Path, err)
	}
	return k, true, writeKept(filepath.Join(c.dir, name), b.Bytes())
}

// diffName hashes everything that a comparison's pages depend on. It is ""
// where nothing is kept.
func (c *cache) diffName(d *siteDiff) (string, error) {
	if c.temporary {
		return "", nil
	}
	h := sha256.New()
	part := func(text string) { fmt.Fprintf(h, "%d %s\n", len(text), text) }
	part("speedmatrix-diff-cache/1")
	part(c.options.Version)
	part(d.Path)
	for _, side := range []*side{d.a, d.b} {
		part("side")
		for _, r := range side.Runs {
			name := c.named(r.ID)
			if name == "" {
				return "", nil
			}
			part(r.ID + " " + name)
		}
	}
	if d.noise != nil {
		b, err := d.noise.Encode()
		if err != nil {
			return "", err
		}
		part(string(b))
	}
	return hex.EncodeToString(h.Sum(nil)) + ".diff", nil
}

// newDiff compares two sides.
func (s *site) newDiff(c *cache, d *siteDiff, of map[string]source) (*keptDiff, error) {
	var sides [2]compare.Side
	for i, side := range []*side{d.a, d.b} {
		for _, r := range side.Runs {
			run, err := c.launch(of[r.ID])
			if err != nil {
				return nil, err
			}
			sides[i].Runs = append(sides[i].Runs, run)
		}
	}
	o := compare.DefaultOptions()
	o.Noise = d.noise
	report, err := compare.Compare(sides[0], sides[1:], o)
	if errors.Is(err, compare.ErrSameLaunch) {
		return &keptDiff{Brief: diffBrief{Against: sideLabel(d.a.first()), Speed: brief{Text: "not compared: the same launch is there twice"}}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("compare %q with %q: %w", d.b.first().ID, d.a.first().ID, err)
	}
	return s.render(d, Comparison{Report: report, Gate: compare.DefaultGate()})
}

// sideLabel is what a comparison calls a side.
func sideLabel(r *summary) string {
	return cmp.Or(r.Commit[:min(len(r.Commit), 12)], r.Version, r.ID)
}

// render makes the pages of a comparison.
func (s *site) render(d *siteDiff, c Comparison) (*keptDiff, error) {
	root := strings.Repeat("../", strings.Count(d.Path, "/"))
	runs := func(id string) string { return root + escapePath(runsFolder+"/"+id+"/") }
	v := newDiffView(c, runs)
	frame := s.newPage(d.Path, v.Heading, "")
	frame.JSON = "index.json"
	around, err := html("around", struct {
		Nav    []navItem
		Around []aroundItem
	}{frame.Nav, []aroundItem{
		{"Run before", runs(d.a.Runs[len(d.a.Runs)-1].ID) + "index.html", "prev"},
		{"Run after", runs(d.b.Runs[len(d.b.Runs)-1].ID) + "index.html", ""},
		{"History", root + d.up + "index.html", ""},
	}})
	if err != nil {
		return nil, err
	}
	frame.Around = htmlText(around)
	page, err := diffHTML(v, frame)
	if err != nil {
		return nil, err
	}
	v.Data = true
	md, err := diffMarkdownFits(v)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(newDiffData(c)) // one line: a site has many
	if err != nil {
		return nil, err
	}
	cells, err := DiffCSV(c)
	if err != nil {
		return nil, err
	}
	return &keptDiff{
		Brief: briefOf(c.Report),
		Files: []document{{"index.html", page}, {"index.md", md}, {"index.json", append(data, '\n')}, {"cells.csv", cells}},
	}, nil
}

// valuesOf returns the figures of a metric that all launches of a side have.
func (s *side) valuesOf(m compare.Metric) map[runlog.Key][]float64 {
	out := map[runlog.Key][]float64{}
	for _, r := range s.Runs {
		for i := range r.Cells {
			c := &r.Cells[i]
			v := c.figureOf(m)
			if v == nil || !(*v > 0) {
				continue
			}
			k := runlog.Key{Phase: m.Phase(), ContextTokens: c.Context, Concurrency: c.Concurrency}
			out[k] = append(out[k], *v)
		}
	}
	for k, values := range out {
		if len(values) < len(s.Runs) {
			delete(out, k)
		}
	}
	return out
}

// figureOf returns a metric of a measurement; nil where it has none.
func (c *summaryCell) figureOf(m compare.Metric) *float64 {
	switch {
	case c.Slug != ingest.Valid.Slug() || c.Prefill != (m.Phase() == runlog.PhasePrefill):
		return nil
	case m == compare.TTFT:
		return c.TTFTUs
	}
	return c.Total
}
