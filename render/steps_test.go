package render

import (
	"context"
	"encoding/xml"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/sitecheck"
)

// A historyRun is a launch in a made-up history.
type historyRun struct {
	minutes int    // after the first
	number  int    // of the version
	commit  string // "": made of number
	driver  string
	factor  func(k runlog.Key) float64 // nil: 1
	change  func(*ingest.Run)          // nil: nothing
}

var historyKeys = (&runlog.Plan{ContextsTokens: []int32{8192, 32768}, Concurrency: []int32{1, 4, 16, 64}, PrefillContextsTokens: []int32{8192, 32768}}).Keys()

// run is the launch as it would be loaded, with noise of 0.3 % of a launch
// and, likewise, of a cell.
func (h historyRun) run() *ingest.Run {
	known := func(v string) *runlog.Fact { return &runlog.Fact{Value: v, Source: runlog.FromServer} }
	commit := h.commit
	if commit == "" {
		commit = fmt.Sprintf("%012x", 0x73a5831127a9+h.number)
	}
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix", Version: "1"}, Finished: true,
		StartedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(h.minutes) * time.Minute),
		Engine:    runlog.Engine{Name: known("vllm"), Version: known(fmt.Sprintf("0.31.0rc1.dev%d", h.number)), Commit: known(commit), LaunchCommand: &runlog.Command{Args: []string{"vllm", "serve", "org/tiny"}}},
		Model:     runlog.Model{Repository: "org/tiny", WeightsDigest: "sha256:aa"},
		Hardware:  runlog.Hardware{Type: "Discrete GPU", GPUs: []runlog.GPU{{Name: "NVIDIA H200", VRAMBytes: 141 << 30, PowerLimitW: 700, Driver: h.driver}}},
		Plan:      runlog.Plan{DurationUs: 30_000_000, MaxOutputTokens: 4096, PromptSet: "p", Salt: fmt.Sprint("salt ", h.minutes)},
	}
	r := &ingest.Run{ID: fmt.Sprintf("launch-%06d", h.minutes), Manifest: m}
	g := rand.New(rand.NewPCG(uint64(h.minutes), 9))
	launch := 1 + 0.003*g.NormFloat64()
	for _, k := range historyKeys {
		f := launch * (1 + 0.003*g.NormFloat64())
		if h.factor != nil {
			f *= h.factor(k)
		}
		stat := func(v float64) ingest.Stat { return ingest.Stat{Value: v, N: 10} }
		c := ingest.Cell{Cell: runlog.Cell{Phase: k.Phase, ContextTokens: k.ContextTokens, Concurrency: k.Concurrency, PromptTokens: k.ContextTokens}}
		if k.Phase == runlog.PhasePrefill {
			c.Figures = ingest.Figures{PrefillTokPerS: stat(9000 * f), TTFTUs: stat(1e6 / f)}
			r.Prefill = append(r.Prefill, c)
		} else {
			c.Figures = ingest.Figures{TotalTokPerS: stat(80 * float64(k.Concurrency) * f), PerRequestTokPerS: stat(80 * f), TTFTUs: stat(300_000 / f), BetweenTokensUs: stat(12_500 / f)}
			r.Decode = append(r.Decode, c)
		}
	}
	if h.change != nil {
		h.change(r)
	}
	return r
}

// sourcesOfHistory are runs that lie in directories of their own.
func sourcesOfHistory(t *testing.T, list []historyRun) (sources []source) {
	t.Helper()
	root := t.TempDir()
	for _, h := range list {
		r := h.run()
		dir := filepath.Join(root, r.ID)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, runlog.ManifestFile), fmt.Appendf(nil, "{%q}\n", r.ID), 0o644); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source{id: r.ID, dir: dir, open: func() (Input, error) { return Input{Run: h.run(), Dir: dir}, nil }})
	}
	return sources
}

// historySite builds a site, which must be whole, and returns its files.
func historySite(t *testing.T, sources []source, o Options) (files map[string]string, result Result) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "site")
	result, err := build(context.Background(), sources, out, o)
	if err != nil {
		t.Fatal(err)
	}
	report, err := sitecheck.Check(os.DirFS(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	files = map[string]string{}
	err = fs.WalkDir(os.DirFS(out), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(out, filepath.FromSlash(name)))
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, result
}

// steppedHistory is 14 commits of two launches each: another driver from 4
// on, everything 7 % slower from 8 on, one cell by 15 % more from 10 on, and
// the last commit 6 % faster.
func steppedHistory() (list []historyRun) {
	for c := range 14 {
		h := historyRun{number: 100 + c, driver: "580.95"}
		if c >= 4 {
			h.driver = "585.10"
		}
		h.factor = func(k runlog.Key) float64 {
			f := 1.0
			if c >= 8 {
				f *= 0.93
			}
			if c >= 10 && k.Phase == runlog.PhaseDecode && k.ContextTokens == 32768 && k.Concurrency == 16 {
				f *= 0.85
			}
			if c == 13 {
				f *= 1.06
			}
			return f
		}
		for l := range 2 {
			h.minutes = c*1440 + 60*l
			list = append(list, h)
		}
	}
	return list
}

// profileOfHistory is a noise profile for the runs of a history.
func profileOfHistory(t *testing.T) *compare.Profile {
	t.Helper()
	var runs []*ingest.Run
	for i := range 5 {
		runs = append(runs, historyRun{minutes: -10_000 + i, number: 1, driver: "580.95"}.run())
	}
	p, err := compare.NewProfile(runs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	historyAt = "series/tiny/h200-141gb/vllm/"
	diffsAt   = "diff/tiny/h200-141gb/vllm/"
)

var tags = regexp.MustCompile(`(?s)<svg.*?</svg>|<[^>]+>`)

// wordsOf is the text of a page, in one line, without drawings.
func wordsOf(html string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(html, " ")), " ")
}

// stepsOf is the part of a history's words that is about steps.
func stepsOf(page string) string {
	_, page, _ = strings.Cut(page, " What is equal ")
	page, _, _ = strings.Cut(page, " Newest version first.")
	return page
}

func TestStepsOfASite(t *testing.T) {
	sources := sourcesOfHistory(t, steppedHistory())
	o := Options{BaseURL: "https://example.org/speeds/", Noise: []*compare.Profile{profileOfHistory(t)}}
	files, _ := historySite(t, sources, o)
	page := wordsOf(files[historyAt+"index.html"])
	for _, want := range []string{
		"] total tok/s whole run 73a583112814 → 73a583112815", // of numbers 107 and 108
		"] against the whole run total tok/s 32K × 16 73a583112816 → 73a583112817", "unconfirmed: the next commit will tell", "driver 580.95 → 585.10",
		"How noisy it is comes from a profile of 5 launches", "the history begins anew", "Since the version before", "1,012.4 −15.0 % 4,747.8",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the history does not say %q: %.2000s", want, stepsOf(page))
		}
	}
	if svg := files[historyAt+"index.html"]; strings.Count(svg, `<path class="c"`) != 2 || !strings.Contains(svg, `class="ar k0"`) || !strings.Contains(svg, `class="n">driver</text>`) {
		t.Error("the drawings lack the line of the new driver, or bands of noise")
	}
	// Each step leads to the comparison of the two commits.
	link := diffsAt + "73a583112814..73a583112815/index.html"
	if files[link] == "" || !strings.Contains(files["steps/index.html"], `href="../`+link+`"`) {
		t.Errorf("the steps do not lead to %s", link)
	}
	var dates []string
	for _, m := range regexp.MustCompile(`(?m)^\| \[([0-9-]+)\]`).FindAllStringSubmatch(files["steps/index.md"], -1) {
		dates = append(dates, m[1])
	}
	if !slices.IsSortedFunc(dates, func(a, b string) int { return strings.Compare(b, a) }) || len(dates) < 4 || dates[0] != "2026-03-14" || dates[len(dates)-1] != "2026-03-09" {
		t.Errorf("steps of %q, want the newest first, of commits 13 to 8", dates)
	}
	var feed struct {
		Updated string `xml:"updated"`
		Entries []struct {
			ID      string `xml:"id"`
			Title   string `xml:"title"`
			Updated string `xml:"updated"`
			Link    struct {
				Href string `xml:"href,attr"`
			} `xml:"link"`
		} `xml:"entry"`
	}
	if err := xml.Unmarshal([]byte(files["steps.xml"]), &feed); err != nil {
		t.Fatal(err)
	}
	if feed.Updated != "2026-03-14T13:00:00Z" || len(feed.Entries) != len(dates) {
		t.Errorf("the feed is of %s and has %d entries, want the newest run's time and %d", feed.Updated, len(feed.Entries), len(dates))
	}
	ids := map[string]bool{}
	for i, e := range feed.Entries {
		path, ok := strings.CutPrefix(e.Link.Href, o.BaseURL)
		if ids[e.ID] || !strings.HasPrefix(e.Updated, dates[i]) || !ok || files[path] == "" {
			t.Errorf("entry %+v: want an id of its own, the date %s, and a link that leads somewhere", e, dates[i])
		}
		ids[e.ID] = true
	}
	if !strings.Contains(files["sitemap.xml"], "https://example.org/speeds/"+diffsAt+"73a583112814..73a583112815/") || !strings.Contains(files["sitemap.xml"], "/steps/") {
		t.Error("the sitemap lacks a comparison, or the steps")
	}
	slices.Reverse(sources)
	if again, _ := historySite(t, sources, o); len(again) != len(files) {
		t.Errorf("%d files the second time, want %d", len(again), len(files))
	} else {
		for name := range files {
			if again[name] != files[name] {
				t.Errorf("%s: another file when the runs are given in another order", name)
			}
		}
	}
}

// A history that is too short to know its noise says so, and what would help.
func TestShortHistory(t *testing.T) {
	list := steppedHistory()[:6]
	files, _ := historySite(t, sourcesOfHistory(t, list), Options{})
	page := wordsOf(files[historyAt+"index.html"])
	for _, want := range []string{"No step can be told yet: 3 points without a noise profile: it takes 8", "three launches of one commit"} {
		if !strings.Contains(page, want) {
			t.Errorf("the history does not say %q: %.2000s", want, page)
		}
	}
	if steps := wordsOf(files["steps/index.html"]); !strings.Contains(steps, "No step was found in 1 series.") || !strings.Contains(steps, "1 of 1 series are too short to tell") {
		t.Errorf("the steps say %q", steps)
	}
}

// A series whose newest part is short, but which has a step in an older one,
// is not among those that are too short to tell.
func TestShortPartAfterAStep(t *testing.T) {
	var list []historyRun
	for i := range 10 {
		h := historyRun{minutes: 1440 * i, number: 100 + i, driver: "580", factor: func(runlog.Key) float64 {
			if i >= 4 {
				return 0.8
			}
			return 1 + 0.001*float64(i%3)
		}}
		if i >= 8 {
			h.driver = "590"
		}
		list = append(list, h)
	}
	files, _ := historySite(t, sourcesOfHistory(t, list), Options{})
	if steps := wordsOf(files["steps/index.html"]); !strings.Contains(steps, "slower") || strings.Contains(steps, "too short to tell") {
		t.Errorf("the steps say %q", steps)
	}
	if page := wordsOf(files[historyAt+"index.html"]); !strings.Contains(page, "No step can be told yet after the change of driver: 2 points") {
		t.Errorf("the history says %q", stepsOf(page))
	}
}

// Commits of a series that were measured in turn are two sides of three
// launches each; the page of their comparison is linked from the runs, the
// history and the first page, and says what diff would say.
func TestComparisonsOfASite(t *testing.T) {
	var list []historyRun
	for i, number := range []int{100, 101, 101, 100, 100, 101} {
		h := historyRun{minutes: 30 * i, number: 7, commit: fmt.Sprintf("%012x", number), driver: "580"}
		h.factor = func(k runlog.Key) float64 {
			if number == 101 && k.Concurrency == 16 {
				return 0.9
			}
			return 1
		}
		if number == 101 {
			h.change = func(r *ingest.Run) {
				r.Decode[7].Status = ingest.OverCapacity
				r.Decode[7].Evidence = []ingest.Evidence{{Status: ingest.OverCapacity, Text: "too large", Stream: -1, Request: -1, TUs: -1}}
			}
		}
		list = append(list, h)
	}
	sources := sourcesOfHistory(t, list)
	files, result := historySite(t, sources, Options{})
	at := diffsAt + "000000000064..000000000065/"
	if !slices.Equal(result.Compared, []string{at}) {
		t.Fatalf("compared %q, want %q", result.Compared, at)
	}
	for name, want := range map[string]string{
		"index.html":                           `<a href="` + at + `index.html"><span class="worse">1 lost</span>, <span class="worse">slower</span></a>`,
		"data/runs.json":                       `"url": "` + at + `index.html"`,
		"index.md":                             "[1 lost, slower](" + at + "index.md)",
		historyAt + "index.html":               `<a href="../../../../` + at + `index.html"><span class="worse">1 lost</span>, <span class="worse">slower</span></a>`,
		historyAt + "index.md":                 "[with the version before](../../../../" + at + "index.md)",
		"runs/launch-000030/index.html":        `<a href="../../` + at + `index.html">Compared with the version before</a>`,
		at + "index.html":                      `<a href="../../../../../runs/launch-000090/index.html">launch-000090</a>`,
		at + "index.md":                        "[launch-000090](../../../../../runs/launch-000090/index.md)",
		at + "cells.csv":                       "000000000064,000000000065,cell,8192,16,decode,true,",
		"method/comparing/index.html":          "Comparing launches",
		"method/comparing/validation/index.md": "How reliable",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q", name, want)
		}
	}
	if strings.Contains(files["runs/launch-000000/index.html"], "Compared with") {
		t.Error("a run of the first commit is compared with something")
	}

	var sides [2]compare.Side
	for _, h := range list {
		i := 0
		if h.commit == "000000000065" {
			i = 1
		}
		sides[i].Runs = append(sides[i].Runs, h.run())
	}
	report, err := compare.Compare(sides[0], sides[1:], compare.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	c := Comparison{report, compare.DefaultGate()}
	alone, err := DiffHTML(c)
	if err != nil {
		t.Fatal(err)
	}
	content := func(page string) string {
		_, page, _ = strings.Cut(page, `<main id="content">`)
		page, _, _ = strings.Cut(page, `<section aria-labelledby="data">`)
		return wordsOf(page)
	}
	if got, want := content(files[at+"index.html"]), content(string(alone)); !strings.HasPrefix(want, got) || len(got) < 1000 {
		t.Errorf("the page of the site says\n%s\nand that of diff\n%s", got, want)
	}
	csv, err := DiffCSV(c)
	if err != nil || files[at+"cells.csv"] != string(csv) {
		t.Errorf("cells.csv is not that of diff (%v)", err)
	}
}

// A launch that is there under two names is compared with nothing, and does
// not keep the site from being built.
func TestCopiedRunInASite(t *testing.T) {
	same := func(r *ingest.Run) {
		r.Manifest.StartedAt, r.Manifest.Plan.Salt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), "x"
	}
	files, _ := historySite(t, sourcesOfHistory(t, []historyRun{{minutes: 0, number: 1, change: same}, {minutes: 60, number: 2, change: same}}), Options{})
	if page := wordsOf(files["index.html"]); !strings.Contains(page, "not compared: the same launch is there twice against 73a5831127aa") {
		t.Errorf("the first page says %s", page)
	}
	for name := range files {
		if strings.HasPrefix(name, "diff/") {
			t.Errorf("there is %s", name)
		}
	}
}

func TestSidesOfASeries(t *testing.T) {
	at := func(minutes int) time.Time { return time.Date(2026, 3, 1, 0, minutes, 0, 0, time.UTC) }
	runs := []*summary{
		{ID: "e", Started: at(5), Version: "0.31.0rc1.dev9", Commit: "aaaaaaaaa"},
		{ID: "d", Started: at(4), Version: "0.31.0rc1.dev10", Commit: "bbbbbbbbbbbb"},
		{ID: "c", Started: at(3), Version: "0.31.0rc1.dev9", Commit: "aaaaaaaaaaaa"},
		{ID: "b", Started: at(6), Version: "0.31.0rc1.dev10", Commit: "bbbbbbbbbbbb", Build: "debug"},
		{ID: "a 1", Started: at(1)},
		{ID: "a 2", Started: at(2)},
		{ID: "f", Started: at(7), Version: "../<x>"},
	}
	var got []string
	for _, s := range sidesOf(runs) {
		text := s.Slug + ":"
		for _, r := range s.Runs {
			text += " " + r.ID
		}
		got = append(got, text)
	}
	want := []string{"a-1: a 1", "a-2: a 2", "x: f", "aaaaaaaaaaaa: c e", "bbbbbbbbbbbb: d", "bbbbbbbbbbbb-284c9e: b"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is kept of a comparison is used until a side or the profile changes,
// or the file is damaged; what is kept of a run is made anew when it is gone.
func TestComparisonsAreKept(t *testing.T) {
	sources := sourcesOfHistory(t, steppedHistory()[:6])
	o := Options{Cache: filepath.Join(t.TempDir(), "cache"), Version: "v"}
	first, result := historySite(t, sources, o)
	all := result.Compared
	if len(all) != 2 || len(result.Computed) != 6 {
		t.Fatalf("compared %q, computed %q: want 2 and 6", result.Compared, result.Computed)
	}
	each := func(pattern string, do func(file string) error) {
		t.Helper()
		kept, err := filepath.Glob(filepath.Join(o.Cache, pattern))
		if err != nil || len(kept) == 0 {
			t.Fatalf("no %s (%v)", pattern, err)
		}
		for _, file := range kept {
			if err := do(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(file string) error {
		b, err := os.ReadFile(file)
		if err == nil {
			b[len(b)/2] ^= 1
			err = os.WriteFile(file, b, 0o644)
		}
		return err
	}
	for _, tt := range []struct {
		rule   string
		change func()
		want   []string
	}{
		{"nothing changed", func() {}, nil},
		{"damaged comparisons", func() { each("*.diff", flip) }, all},
		{"comparisons and what they look at are gone", func() { each("*.diff", os.Remove); each("*.launch", os.Remove) }, all},
		{"… and damaged", func() { each("*.diff", os.Remove); each("*.launch", flip) }, all},
		{"a profile", func() { o.Noise = []*compare.Profile{profileOfHistory(t)} }, all},
		{"the same profile", func() {}, nil},
		{"none again", func() { o.Noise = nil }, all},
		{"a launch of the last commit is taken away", func() { sources = sources[:5] }, all[1:]},
	} {
		tt.change()
		files, result := historySite(t, sources, o)
		if !slices.Equal(result.Compared, tt.want) {
			t.Errorf("%s: compared %q, want %q", tt.rule, result.Compared, tt.want)
		}
		if o.Noise == nil && len(sources) == 6 {
			for name := range first {
				if files[name] != first[name] {
					t.Errorf("%s: %s is another", tt.rule, name)
				}
			}
		}
	}
	if kept, _ := filepath.Glob(filepath.Join(o.Cache, "*")); len(kept) != 5+5+2+1 {
		t.Errorf("%d files are kept, want those of 5 runs and 2 comparisons, and the record", len(kept))
	}
}

func TestShareOfAStep(t *testing.T) {
	slower := foundStep{Step: compare.Step{Share: -0.2, Low: -0.36, High: 0}, metric: compare.TTFT}
	if got := slower.share(); math.Abs(got.Share-0.25) > 1e-12 || got.Low != 0 || math.Abs(got.High-0.5625) > 1e-12 || !slower.worse() {
		t.Errorf("a TTFT of 0.8 times the speed: %+v, want 25 %% longer, from 0 to 56.25 %%", got)
	}
}

// Foreign names are text in the feed and on the pages.
func TestStepsOfHostileNames(t *testing.T) {
	const evil = "org/<img src=x>]]>&\x01\u202e\"'|`"
	list := steppedHistory()
	for i := range list {
		list[i].change = func(r *ingest.Run) {
			r.Manifest.Model.Repository = evil
			r.Manifest.Engine.Version.Value += "+<b>"
			r.Manifest.Engine.Quantization = &runlog.Fact{Value: evil, Source: runlog.FromFlag}
		}
	}
	files, _ := historySite(t, sourcesOfHistory(t, list), Options{})
	if n := strings.Count(files["steps.xml"], "<entry>"); n == 0 {
		t.Error("no entry in the feed")
	}
	if err := xml.Unmarshal([]byte(files["steps.xml"]), new(struct{})); err != nil {
		t.Error(err)
	}
	for name, content := range files {
		if strings.HasSuffix(name, ".html") || strings.HasSuffix(name, ".xml") {
			if strings.Contains(content, "<img") || strings.ContainsAny(content, "\x01\u202e") {
				t.Errorf("%s: foreign text is more than text", name)
			}
		}
	}
}

// A series of commits whose only cells are those given: figures by commit, 0
// for one that is Looped. Each commit has launches of the drivers given.
func historyOfCells(figures map[place][]float64, drivers ...string) *series {
	list := &series{}
	for i, of := range drivers {
		s := &side{}
		for _, driver := range strings.Fields(of) {
			r := &summary{ID: fmt.Sprint(i, driver, len(s.Runs)), Driver: driver, Commit: fmt.Sprintf("%012d", i), Started: time.Date(2026, 3, 1, i, len(s.Runs), 0, 0, time.UTC)}
			for at, values := range figures {
				c := summaryCell{Context: at.context, Concurrency: at.concurrency, Slug: ingest.Looped.Slug()}
				if v := values[i]; v > 0 {
					c.Slug, c.Total = ingest.Valid.Slug(), &v
				}
				r.Cells = append(r.Cells, c)
			}
			s.Runs = append(s.Runs, r)
		}
		if i > 0 {
			s.Diff = &siteDiff{Path: fmt.Sprintf("diff/%d..%d/", i-1, i), a: list.Sides[i-1], b: s}
		}
		list.Sides = append(list.Sides, s)
		list.Runs = append(list.Runs, s.Runs...)
	}
	return list
}

// levels are n figures of from, then of to from commit at on, with a little
// noise; none on the commits left out.
func levels(n, at int, from, to float64, out ...int) (list []float64) {
	for i := range n {
		v := from
		if i >= at {
			v = to
		}
		if v *= 1 + 0.001*float64(i%3); slices.Contains(out, i) {
			v = 0
		}
		list = append(list, v)
	}
	return list
}

// A step of a cell lies between commits that have a figure of it, and lasts
// to one; it leads to their comparison only where they are neighbours.
func TestStepOfACellWithGaps(t *testing.T) {
	cell := place{2048, 1}
	for _, tt := range []struct {
		out                 []int
		before, after, last int
		diff                string
	}{
		{[]int{8, 9, 19}, 7, 10, 18, ""},
		{nil, 9, 10, 19, "diff/9..10/"},
	} {
		list := historyOfCells(map[place][]float64{cell: levels(20, 10, 100, 80, tt.out...)}, strings.Split(strings.Repeat("A,", 19)+"A", ",")...)
		s := &site{series: []*series{list}}
		if err := s.findSteps(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(list.steps) != 1 {
			t.Fatalf("without commits %d: %d steps, want 1", tt.out, len(list.steps))
		}
		f := &list.steps[0]
		of := func(run *summary) int { return run.Started.Hour() }
		if b, a, l := of(f.before.first()), of(f.firstAfter), of(f.lastAfter); b != tt.before || a != tt.after || l != tt.last {
			t.Errorf("without commits %d: between %d and %d, last %d; want %d and %d, last %d", tt.out, b, a, l, tt.before, tt.after, tt.last)
		}
		if got := s.stepRow(f, "").DiffURL; got != tt.diff {
			t.Errorf("without commits %d: leads to %q, want %q", tt.out, got, tt.diff)
		}
	}
}

// A history begins anew where launches changed, also within a commit, and
// after a commit of two kinds.
func TestEpochs(t *testing.T) {
	for _, tt := range []struct {
		drivers []string
		want    []string
	}{
		{[]string{"A A", "A", "A"}, []string{"0-3 "}},
		{[]string{"A", "B", "B"}, []string{"0-1 ", "1-3 driver A → B"}},
		{[]string{"A A A", "A B B", "B B B", "B"}, []string{"0-1 ", "1-2 driver A → B", "2-4 driver A → B during the commit before"}},
		{[]string{"A B", "A", "A"}, []string{"0-1 driver A → B", "1-3 driver B → A"}},
		{[]string{"A", "A B A", "A"}, []string{"0-1 ", "1-2 driver A → B; driver B → A", "2-3 driver A → B during the commit before; driver B → A during the commit before"}},
	} {
		var got []string
		for _, e := range epochsOf(historyOfCells(nil, tt.drivers...)) {
			got = append(got, fmt.Sprintf("%d-%d %s", e.From, e.To, e.Changed))
			if c := e.Changed; c != "" && shortChange(c) != "driver" {
				t.Errorf("%q in short: %q, want driver", c, shortChange(c))
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: parts %q, want %q", tt.drivers, got, tt.want)
		}
	}
}

// Whether steps can be told is a matter of all cells, not of the first.
func TestNoStepCanBeTold(t *testing.T) {
	first := place{2048, 1}
	few := levels(20, 20, 100, 100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	for _, tt := range []struct {
		rule  string
		other []float64
		want  string // beginning of the first sentence
	}{
		{"others have a step", levels(20, 10, 100, 80), "Fewer than five"},
		{"others have none", levels(20, 20, 100, 100), "No step was found over 20 commits."},
		{"others are too few as well, but more", levels(20, 20, 100, 100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14), "No step can be told yet: 5 points without"},
		{"there are none", make([]float64, 20), "No step can be told yet: 3 points without"},
	} {
		figures := map[place][]float64{first: few}
		for c := range int32(3) {
			figures[place{4096, 1 + c}] = tt.other
		}
		list := historyOfCells(figures, strings.Split(strings.Repeat("A,", 19)+"A", ",")...)
		if err := (&site{series: []*series{list}}).findSteps(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := list.levelNotes(); len(got) == 0 || !strings.HasPrefix(got[0], tt.want) {
			t.Errorf("%s: %q, want first %q", tt.rule, got, tt.want)
		}
	}
}
