package render_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"speedmatrix/render"
	"speedmatrix/render/sitecheck"
)

// siteOf renders the first n runs of the made-up history.
func siteOf(t *testing.T, n int, o render.Options) (out string, dirs []string) {
	t.Helper()
	dirs = fewRuns(t, n)
	out = filepath.Join(t.TempDir(), "site")
	buildSite(t, dirs, out, o)
	return out, dirs
}

func checkedSite(t *testing.T, out string) *sitecheck.Report {
	t.Helper()
	r, err := sitecheck.Check(os.DirFS(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Error(p)
	}
	return r
}

// Every link leads somewhere, every page can be reached and is light enough,
// of real pages and of made-up ones.
func TestSiteIsWhole(t *testing.T) {
	many, _ := siteOf(t, 45, render.Options{BaseURL: "https://example.org/speeds/"})
	for _, out := range []string{many, site(t, threeRuns(t)...)} {
		r := checkedSite(t, out)
		if r.Links < 300 || r.Pages < 15 {
			t.Errorf("only %d links on %d pages were looked at", r.Links, r.Pages)
		}
		for _, w := range r.Weights {
			t.Logf("%-30s %4d, heaviest %7d of %7d bytes, %6d of %6d gzipped: %s", w.Kind, w.Files, w.FileRaw, w.Raw, w.FileZip, w.Zipped, w.File)
		}
	}
}

// Relative links are all there is, so the site works wherever it lies.
func TestSiteWorksAtAnyAddress(t *testing.T) {
	out, _ := siteOf(t, 3, render.Options{})
	for name, content := range tree(t, out) {
		if filepath.Ext(name) != ".html" {
			continue
		}
		for n := range parse(t, content).Descendants() {
			for _, key := range []string{"href", "src"} {
				if link := attribute(n, key); strings.HasPrefix(link, "/") || strings.HasSuffix(link, "/") && !strings.Contains(link, "://") {
					t.Errorf("%s: link %q needs a server", name, link)
				}
			}
		}
	}
}

func TestIndexHasTheNewestRunOfEachModelAndHardware(t *testing.T) {
	out, _ := siteOf(t, 25, render.Options{})
	page := read(t, out, "index.html")
	// Runs 15 … 24 are the last of the ten pairs of five models and two kinds of hardware.
	for i := range 25 {
		if listed, want := strings.Contains(page, fmt.Sprintf(`"runs/run-%04d/index.html"`, i)), i >= 15; listed != want {
			t.Errorf("run %d is on the first page: %v, want %v", i, listed, want)
		}
	}
	for _, want := range []string{
		`<td class="counts"><span>13 Valid</span>, <span>1 Looped</span>, <span>1 Over capacity</span><small>3 contexts × 4 levels</small></td>`,
		`<small>2K context, 8 requests at once</small>`, `<small>2K context, 40 ms TTFT</small>`,
		`<a href="runs/run-0024/index.html#d-2K-8">`, `<a href="runs/run-0024/index.html#d-2K-1">`,
		`<small>0.21.1rc1.dev402</small>`, // its commit stands below
		`>google/gemma-4-E2B-it</a>`, `>other/gemma-4-E2B-it</a>`, `>Laguna-M.1</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the first page lacks %s", want)
		}
	}
}

// A measurement that a table leads to must be there, on the run's page.
func TestDataOfAllRuns(t *testing.T) {
	out, _ := siteOf(t, 12, render.Options{})
	d := jsonOf[struct {
		Format string
		Runs   []struct {
			ID                 string `json:"run_id"`
			URL, Data, History string
			Measurements       map[string]int
			Best               struct {
				Rate float64 `json:"total_tok_per_s"`
			}
		}
	}](t, read(t, out, "data", "runs.json"))
	if d.Format != render.RunsFormat || len(d.Runs) != 12 {
		t.Fatalf("%d runs of %q", len(d.Runs), d.Format)
	}
	for _, r := range d.Runs {
		for _, link := range []string{r.URL, r.Data, r.History} {
			if _, err := os.Stat(filepath.Join(out, filepath.FromSlash(link))); err != nil {
				t.Errorf("%s: %v", r.ID, err)
			}
		}
		if r.Best.Rate <= 0 || r.Measurements["valid"] < 10 {
			t.Errorf("%+v", r)
		}
	}
}

// diffLines returns the lines that git would show as taken away and added.
func diffLines(t *testing.T, before, after string) (gone, added []string) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a"), before)
	writeFile(t, filepath.Join(dir, "b"), after)
	command := exec.Command("git", "diff", "--no-index", "--no-color", "--unified=0", "a", "b")
	command.Dir = dir
	b, err := command.Output()
	if len(b) == 0 && err != nil {
		t.Fatalf("git diff: %v", err)
	}
	_, hunks, _ := strings.Cut(string(b), "@@")
	for l := range strings.Lines(hunks) {
		switch l = strings.TrimSuffix(l, "\n"); {
		case strings.HasPrefix(l, "-"):
			gone = append(gone, l[1:])
		case strings.HasPrefix(l, "+"):
			added = append(added, l[1:])
		}
	}
	return gone, added
}

// shape replaces every digit, so that lines that differ in numbers are equal.
func shape(line string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '0'
		}
		return r
	}, line)
}

// A diff of the pages of two runs of one series shows the lines whose numbers
// changed, and their names' and commits': no other, and none moves.
func TestDiffOfTwoPagesShowsWhatChanged(t *testing.T) {
	root := filepath.Join(t.TempDir(), "results")
	a, b := launchAt(31), launchAt(31)
	b.i, b.faster, b.version = 52, 1.25, "0.21.1rc1.dev405+gffffffff1" // 52 has the statuses of 31
	read := func(l launch) string {
		return string(twins(t, []string{l.write(t, root)}, render.Options{})[0].Data)
	}
	before, after := read(a), read(b)
	gone, added := diffLines(t, before, after)
	if len(gone) != len(added) || len(gone) < 20 {
		t.Fatalf("%d lines went, %d came, want as many, and some:\n%s\n%s", len(gone), len(added), strings.Join(gone, "\n"), strings.Join(added, "\n"))
	}
	hashes := func(l string) bool { // of files and of commits
		return strings.HasPrefix(l, "| [cells/") || strings.Contains(l, "**Commit**") || strings.Contains(l, "**Version**") || strings.HasPrefix(l, "vllm · ") ||
			strings.Contains(l, "run-0") || strings.Contains(l, "**Started**") || strings.Contains(l, "--port")
	}
	for i := range gone {
		// Digits may become more or fewer: 999.9 and 1,000.0.
		x, y := strings.NewReplacer("0", "", ",", "").Replace(shape(gone[i])), strings.NewReplacer("0", "", ",", "").Replace(shape(added[i]))
		if x != y && !hashes(gone[i]) {
			t.Errorf("a line changed in more than numbers:\n- %s\n+ %s", gone[i], added[i])
		}
	}
}

// A run that is added to a history adds lines to its Markdown and to that of
// the list of all runs, and changes none.
func TestHistoriesOnlyGrow(t *testing.T) {
	dirs := fewRuns(t, 31)
	parent := t.TempDir()
	series := "series/gemma-4-e2b-it/rtx-pro-6000-blackwell-server-edition-96gb/bf16-vllm/index.md"
	pages := []string{series, "runs/index.md"}
	var before []string
	for i, n := range []int{11, 21, 31} { // every tenth run is of this series
		out := filepath.Join(parent, fmt.Sprint(n))
		buildSite(t, dirs[:n], out, render.Options{})
		for k, page := range pages {
			now := read(t, out, filepath.FromSlash(page))
			if i == 0 {
				before = append(before, now)
				continue
			}
			gone, added := diffLines(t, before[k], now)
			if len(gone) > 0 || len(added) == 0 {
				t.Errorf("%s with %d runs: went %q, came %d lines", page, n, gone, len(added))
			}
			before[k] = now
		}
	}
	if n := strings.Count(before[0], "](../../../../runs/run-0030/index.md)"); n != 16 {
		t.Errorf("the newest run stands %d times in its history, want once in the list and once for each of 15 measurements", n)
	}
}

func TestHistoryPage(t *testing.T) {
	out, _ := siteOf(t, 61, render.Options{})
	dir := filepath.Join(out, "series", "gemma-4-e2b-it", "rtx-pro-6000-blackwell-server-edition-96gb", "bf16-vllm")
	root := parse(t, read(t, dir, "index.html"))
	ids := map[string]bool{}
	sparks := 0
	for n := range root.Descendants() {
		if id := attribute(n, "id"); id != "" {
			ids[id] = true
		}
		if n.Type == html.ElementNode && n.Data == "svg" && attribute(n, "class") == "spark" {
			sparks++
		}
	}
	for _, want := range []string{"settings", "runs", "level", "whole-decode-t", "prefill", "prefill-2K", "decode-32K", "d-2K-1", "d-8K-8", "d-32K-4"} {
		if !ids[want] {
			t.Errorf("no place %q", want)
		}
	}
	if sparks != 14 { // 15 measurements, of which one is always over capacity
		t.Errorf("%d lines, want 14", sparks)
	}
	page := text(root)
	if newest, oldest := strings.Index(page, "2025-11-23"), strings.Index(page, "2025-11-01"); newest < 0 || newest > oldest {
		t.Errorf("the newest run stands at %d, the oldest at %d", newest, oldest)
	}
	if !strings.Contains(page, "driver 580.10 → 581.10") {
		t.Error("the new driver is not marked")
	}
	if lines := strings.Count(read(t, dir, "cells.csv"), "\n"); lines != 1+7*15 {
		t.Errorf("cells.csv has %d lines, want a head and 15 for each of 7 runs", lines)
	}
}

func TestManyRunsAreListedByYear(t *testing.T) {
	in := madeUpRun(t)
	var inputs []render.Input
	for i := range 260 {
		one := in
		run, m := *in.Run, *in.Run.Manifest
		// Names as long as a collector's.
		run.ID, run.Manifest = fmt.Sprintf("model-%03d--rtx-pro-6000-blackwell-server-edition--vllm-73a5831127a9--run-%03d", i%200, i), &m
		m.Model.Repository = fmt.Sprintf("owner/model-%03d", i%200)
		m.Engine.Name, m.Engine.Version, m.Engine.Commit, m.Engine.Repository = fact("vllm"), fact("0.30.1"), fact(commitOf(i)), fact("github.com/vllm-project/vllm")
		m.StartedAt = m.StartedAt.Add(time.Duration(i) * 31 * time.Hour) // from the end of February: 237 in the first year
		one.Run = &run
		inputs = append(inputs, one)
	}
	out := site(t, inputs...)
	for _, w := range checkedSite(t, out).Weights {
		t.Logf("%-30s %4d, heaviest %7d of %7d bytes, %6d of %6d gzipped: %s", w.Kind, w.Files, w.FileRaw, w.Raw, w.FileZip, w.Zipped, w.File)
	}
	for name, want := range map[string]int{"years/2026": 200, "years/2026-2": 37, "years/2027": 23, "runs": 200} {
		page := read(t, out, filepath.FromSlash(name), "index.html")
		if n := strings.Count(page, `<tr><th scope="row">`); n != want {
			t.Errorf("%s has %d runs, want %d", name, n, want)
		}
	}
	if page := read(t, out, "runs", "index.html"); !strings.Contains(page, "run-259/") || strings.Contains(page, "run-059/") || !strings.Contains(page, `<a href="../years/2026-2/index.html">2026, part 2</a>`) {
		t.Error("the list of all runs has not the newest, or does not lead to the years")
	}
	if n := strings.Count(read(t, out, "index.html"), `<tr><th scope="row">`); n != 200 {
		t.Errorf("the first page has %d rows, want 200", n)
	}
}

func TestAddressesForHostsAndSearch(t *testing.T) {
	out, dirs := siteOf(t, 2, render.Options{})
	if got := names(t, out); slices.Contains(got, "sitemap.xml") || !slices.Contains(got, ".nojekyll") || !slices.Contains(got, "404.html") {
		t.Errorf("without an address: %q", got)
	}
	buildSite(t, dirs, out, render.Options{BaseURL: "https://example.org/speeds"})
	if got, want := read(t, out, "robots.txt"), "User-agent: *\nAllow: /\nSitemap: https://example.org/speeds/sitemap.xml\n"; got != want {
		t.Errorf("robots.txt is %q, want %q", got, want)
	}
	var sitemap struct {
		URL []struct {
			Loc     string `xml:"loc"`
			LastMod string `xml:"lastmod"`
		} `xml:"url"`
	}
	if err := xml.Unmarshal([]byte(read(t, out, "sitemap.xml")), &sitemap); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, u := range sitemap.URL {
		file, ok := strings.CutPrefix(u.Loc, "https://example.org/speeds/")
		if _, err := os.Stat(filepath.Join(out, filepath.FromSlash(file), "index.html")); !ok || err != nil || u.LastMod != "" || found[file] {
			t.Errorf("sitemap.xml has %+v (%v)", u, err)
		}
		found[file] = true
	}
	for _, want := range []string{"", "runs/run-0001/", "method/", "models/qwen3-0.6b/"} {
		if !found[want] {
			t.Errorf("sitemap.xml lacks %q", want)
		}
	}
	// The page for what does not exist appears at any depth.
	for n := range parse(t, read(t, out, "404.html")).Descendants() {
		if link := attribute(n, "href"); link != "" && !strings.HasPrefix(link, "/speeds/") && !strings.HasPrefix(link, "#") {
			t.Errorf("404.html: link %q", link)
		}
	}
}

func TestRawFilesMayStayElsewhere(t *testing.T) {
	out, _ := siteOf(t, 1, render.Options{RawURL: "https://example.org/o/results/"})
	page := read(t, out, "runs", "run-0000", "index.html")
	if !strings.Contains(page, `href="https://example.org/o/results/run-0000/cells/decode-2048-c1.parquet"`) || strings.Contains(page, `"raw/`) {
		t.Error("the page does not lead to the raw files elsewhere")
	}
	if _, err := os.Stat(filepath.Join(out, "runs", "run-0000", "raw")); err == nil {
		t.Error("raw files are in the site all the same")
	}
	checkedSite(t, out)
}

func TestAddressesNeverMove(t *testing.T) {
	dirs := fewRuns(t, 5) // the fifth has another owner's model of the name of the first's
	parent := t.TempDir()
	first := buildSite(t, dirs[4:], filepath.Join(parent, "a"), render.Options{})
	if !strings.Contains(string(first.Slugs), `"other/gemma-4-E2B-it": "gemma-4-e2b-it"`) {
		t.Fatalf("addresses %s", first.Slugs)
	}
	// Alone, the run that started first would have the plain name.
	second := buildSite(t, dirs, filepath.Join(parent, "b"), render.Options{Slugs: first.Slugs})
	type given struct{ Models, Hardware, Series, Redirects map[string]string }
	slugs := jsonOf[given](t, string(second.Slugs))
	if got := slugs.Models["other/gemma-4-E2B-it"]; got != "gemma-4-e2b-it" {
		t.Errorf("the address moved to %q", got)
	}
	if got := slugs.Models["google/gemma-4-E2B-it"]; !strings.HasPrefix(got, "gemma-4-e2b-it-") || len(got) != len("gemma-4-e2b-it-")+6 {
		t.Errorf("the second model of a name is at %q, want six hexadecimal digits behind it", got)
	}
	for _, path := range slugs.Series {
		if _, err := os.Stat(filepath.Join(parent, "b", "series", filepath.FromSlash(path), "index.html")); err != nil {
			t.Error(err)
		}
	}
	third := buildSite(t, dirs, filepath.Join(parent, "b"), render.Options{Slugs: second.Slugs})
	if string(third.Slugs) != string(second.Slugs) || string(third.Slugs) != read(t, parent, "b", "data", "slugs.json") {
		t.Error("the same runs give other addresses")
	}
}

func TestRedirects(t *testing.T) {
	dirs := fewRuns(t, 1)
	out := filepath.Join(t.TempDir(), "site")
	slugs := func(redirects string) []byte {
		return []byte(`{"format": "speedmatrix-slugs/1", "models": {"google/gemma-4-E2B-it": "gemma"}, "redirects": {` + redirects + `}}`)
	}
	buildSite(t, dirs, out, render.Options{BaseURL: "https://example.org/", Slugs: slugs(`"models/gemma-4-e2b-it/": "models/gemma/", "runs/old/": "runs/run-0000/"`)})
	checkedSite(t, out)
	page := read(t, out, "models", "gemma-4-e2b-it", "index.html")
	for _, want := range []string{`content="0; url=../../models/gemma/index.html"`, `<link rel="canonical" href="../../models/gemma/index.html">`, `<a href="../../models/gemma/index.html">`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the old address lacks %s:\n%s", want, page)
		}
	}
	if strings.Contains(read(t, out, "sitemap.xml"), "gemma-4-e2b-it/<") {
		t.Error("sitemap.xml has a page that has moved")
	}
	for _, c := range []struct{ rule, redirects, want string }{
		{"to nothing", `"a/": "b/"`, `redirect from "a/" to "b/"`},
		{"from a page", `"models/gemma/": "runs/run-0000/"`, "where no page is"},
		{"out of the site", `"../a/": "models/gemma/"`, "want folders"},
		{"no folder", `"a": "models/gemma/"`, "want folders"},
	} {
		if _, err := render.Build(context.Background(), dirs, out, render.Options{Slugs: slugs(c.redirects)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.rule, err, c.want)
		}
	}
}

func TestDamagedAddresses(t *testing.T) {
	dirs := fewRuns(t, 1)
	for _, c := range []struct{ rule, slugs, want string }{
		{"no JSON", `{`, "unexpected EOF"},
		{"another format", `{"format": "slugs/2"}`, `format "slugs/2", want "speedmatrix-slugs/1"`},
		{"an unknown key", `{"format": "speedmatrix-slugs/1", "x": 1}`, "unknown field"},
		{"a path for a slug", `{"format": "speedmatrix-slugs/1", "models": {"a": "../x"}}`, `models of "a" is "../x"`},
		{"upper case", `{"format": "speedmatrix-slugs/1", "models": {"a": "X"}}`, `models of "a" is "X"`},
		{"one slug for two", `{"format": "speedmatrix-slugs/1", "hardware": {"a": "x", "b": "x"}}`, `hardware of "a" and of "b" are both "x"`},
		{"a series without its model", `{"format": "speedmatrix-slugs/1", "series": {"a": "x"}}`, `series of "a" is "x", want 3`},
	} {
		if _, err := render.Build(context.Background(), dirs, filepath.Join(t.TempDir(), "site"), render.Options{Slugs: []byte(c.slugs)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.rule, err, c.want)
		}
	}
}

// The method page is docs/method.md, with its tables as tables.
func TestMethodPage(t *testing.T) {
	out, _ := siteOf(t, 1, render.Options{})
	root := parse(t, read(t, out, "method", "index.html"))
	source := read(t, "..", "docs", "method.md")
	if got, want := read(t, out, "method", "index.md"), strings.NewReplacer("](sql.md", "](sql/index.md", "](diff.md", "](comparing/index.md").Replace(source); got != want {
		t.Error("index.md is not docs/method.md")
	}
	headings := 0
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (n.Data == "h2" || n.Data == "h3") {
			headings++
		}
	}
	if want := strings.Count(source, "\n## ") + strings.Count(source, "\n### "); headings != want {
		t.Errorf("%d headings, want %d", headings, want)
	}
}
