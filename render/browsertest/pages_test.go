package browsertest

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/render"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// prefix is where the site lies on its server, as project pages do.
const prefix = "/speeds/"

// A page is one file of the site.
type page struct {
	kind string
	file string // relative to the site, with forward slashes
}

// buildSite writes a site of the runs, and a comparison beside it, and
// returns its directory and its pages: of the runs of the history, which are
// all alike, only those of the history itself and of its step.
func buildSite(t *testing.T) (dir string, pages []page) {
	t.Helper()
	runs, dir := writeRuns(t, t.TempDir()), filepath.Join(t.TempDir(), "site")
	if _, err := render.Build(t.Context(), runs, dir, render.Options{BaseURL: "https://example.org" + prefix}); err != nil {
		t.Fatal(err)
	}
	writeComparison(t, runs, filepath.Join(dir, "diff.html"))
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(file) != ".html" {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		rel = filepath.ToSlash(rel)
		if strings.HasPrefix(rel, "runs/step-") || strings.Contains(rel, "44..44") && !strings.Contains(rel, stepCommits) {
			return nil
		}
		pages = append(pages, page{kindOf(rel), rel})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"steps/index.html", "series/stepped-1b/h200-96gb/bf16-vllm/index.html"} {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
		if err != nil || !strings.Contains(string(b), stepCommits) {
			t.Fatalf("%s: no step between %s (%v)", file, stepCommits, err)
		}
	}
	return dir, pages
}

// stepCommits are the commits between which the history has its step.
const stepCommits = "444444440444..444444440544"

// writeComparison compares the two runs of one series.
func writeComparison(t *testing.T, runs []string, file string) {
	t.Helper()
	var sides []compare.Side
	for _, dir := range runs[:2] {
		in, err := render.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		sides = append(sides, compare.Side{Runs: []*ingest.Run{in.Run}})
	}
	report, err := compare.Compare(sides[0], sides[1:], compare.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	b, err := render.DiffHTML(render.Comparison{Report: report, Gate: compare.DefaultGate()})
	if err == nil {
		err = os.WriteFile(file, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kindOf names what a page is for, by its address.
func kindOf(file string) string {
	dir, base := path.Split(file)
	top, rest, _ := strings.Cut(strings.TrimSuffix(dir, "/"), "/")
	switch {
	case base != "index.html":
		return strings.TrimSuffix(base, ".html") // cells, 404, diff
	case top == "":
		return "index"
	case rest == "":
		return top // runs, models, hardware, steps, method
	case strings.Contains(rest, "stepped"):
		return top + " page with a step"
	}
	return top + " page" // of one run, model, GPU, series, topic
}

// serve serves a site below prefix, compressed where the browser takes it.
func serve(t *testing.T, dir string) string {
	t.Helper()
	files := http.StripPrefix(prefix, http.FileServer(http.Dir(dir)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			w = zipped{w, z}
		}
		r.URL.Path = strings.TrimSuffix(r.URL.Path, "index.html") // which a file server only leads away from
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + prefix
}

// zipped is a response that is compressed on its way.
type zipped struct {
	http.ResponseWriter
	to *gzip.Writer
}

func (z zipped) Write(b []byte) (int, error) { return z.to.Write(b) }

func (z zipped) WriteHeader(status int) {
	z.Header().Del("Content-Length")
	z.ResponseWriter.WriteHeader(status)
}

// What a reader gets of every page of a site: from a server below a path, and
// from a disk.
func TestPages(t *testing.T) {
	browser := startBrowser(t)
	dir, pages := buildSite(t)
	origin := serve(t, dir)
	kinds := map[string]bool{}
	for _, p := range pages {
		kinds[p.kind] = true
		t.Run(p.kind+" "+path.Base(path.Dir(p.file)), func(t *testing.T) {
			url := origin + p.file
			tab := newTab(t, browser)
			t.Run("asks only its own server", func(t *testing.T) { tab.on(t).asksOnly(url, origin) })
			t.Run("is whole without scripts", func(t *testing.T) { tab.on(t).isWhole(dir, p) })
			t.Run("prints", func(t *testing.T) { tab.on(t).prints() })
			t.Run("fits a phone", func(t *testing.T) { tab.on(t).fits() })
			t.Run("can be used with a keyboard", func(t *testing.T) { tab.on(t).keyboard() })
			t.Run("from a disk", func(t *testing.T) { tab.on(t).fromDisk(dir, p) })
		})
	}
	for _, want := range []string{"index", "runs", "runs page", "cells", "models", "models page", "hardware", "hardware page", "series page", "series page with a step", "diff page", "steps", "method", "method page", "404", "diff"} {
		if !kinds[want] {
			t.Errorf("no page of kind %s was looked at", want)
		}
	}
}

// on returns the tab for a test inside the one that opened it.
func (p *tab) on(t *testing.T) *tab {
	p.T = t
	return p
}

// asksOnly opens the page, for the checks that follow too, and holds it to a
// few requests to its own server and to silence.
func (p *tab) asksOnly(url, origin string) {
	p.scripts(false)
	p.look("light", 1280, 900)
	p.open(url)
	requests, messages := p.did()
	for _, m := range messages {
		p.Errorf("the browser says: %s", m)
	}
	if len(requests) == 0 || len(requests) > 3 {
		p.Errorf("asked for %q, want the page, its style sheet and its icon at most", requests)
	}
	for _, r := range requests {
		if !strings.HasPrefix(r, origin) && !strings.HasPrefix(r, "data:") {
			p.Errorf("asked for %s, outside %s", r, origin)
		}
	}
}

// A drawn says what a page shows.
type drawn struct {
	Title, Main, Styled bool
	Headings            []string // of all sections
	Hidden              []string // sections, tables and drawings that take no room outside closed details
	Unnamed             []string // drawings without a name
	Charts              int      // with a shape in them
}

const drawnScript = `(() => {
  const room = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const open = e => !e.closest("details:not([open])");
  const named = e => e.outerHTML.slice(0, 60);
  const charts = [...document.querySelectorAll("svg.chart")];
  return {
    Title: document.title.trim() !== "", Main: document.querySelectorAll("main h1").length === 1,
    Styled: getComputedStyle(document.body).marginTop === "0px",
    Headings: [...document.querySelectorAll("section")].map(s => s.querySelector("h2, h3")?.textContent ?? ""),
    Hidden: [...document.querySelectorAll("section, table, svg")].filter(open).filter(e => !room(e)).map(named),
    Unnamed: charts.filter(c => c.getAttribute("role") !== "img" || !c.querySelector("title")?.textContent || !c.querySelector("desc")?.textContent).map(named),
    Charts: charts.filter(c => [...c.querySelectorAll("path, circle, rect")].some(room)).length,
  };
})()`

// isWhole looks at what is there while the page runs no script.
func (p *tab) isWhole(dir string, of page) {
	got := ask[drawn](p, drawnScript)
	if !got.Title || !got.Main || !got.Styled {
		p.Errorf("title %v, one main heading %v, style sheet %v, want all", got.Title, got.Main, got.Styled)
	}
	for _, h := range got.Hidden {
		p.Errorf("takes no room: %s", h)
	}
	for _, h := range got.Unnamed {
		p.Errorf("a drawing without a role, title or description: %s", h)
	}
	source, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(of.file)))
	if err != nil {
		p.Fatal(err)
	}
	if n := strings.Count(string(source), "<section"); n != len(got.Headings) || slices.Contains(got.Headings, "") {
		p.Errorf("%d sections in the file, on the page are %q", n, got.Headings)
	}
	charts, sections := map[string]int{"runs page": 6, "cells": 10}[of.kind], 0
	if of.kind == "runs page" {
		for _, h := range []string{"Hardware", "Engine", "Run", "Launch command", "Prefill", "Sustained decode", "All measurements", "Charts", "Can I trust this?", "Notes", "Raw data"} {
			if !slices.Contains(got.Headings, h) {
				p.Errorf("no section %q: %q", h, got.Headings)
			}
		}
		sections = 11
	}
	if of.kind == "cells" {
		sections = 15
	}
	if got.Charts < charts || len(got.Headings) < sections {
		p.Errorf("%d drawings, %d sections, want %d and %d at least", got.Charts, len(got.Headings), charts, sections)
	}
}

var pdfPage = regexp.MustCompile(`/Type\s*/Page\b`)

func (p *tab) prints() {
	pdf, err := chromedp.Run(p.ctx, chromedp.PrintToPDF(chromedp.PDFPreferCSSPageSize(), chromedp.PDFPrintBackground()))
	if err != nil {
		p.Fatal(err)
	}
	n := len(pdfPage.FindAll(pdf, -1))
	p.Logf("%d pages of paper", n)
	if n == 0 || n > 40 {
		p.Errorf("prints on %d pages of paper", n)
	}
	keep(p, "print.pdf", pdf)
}

// fits holds a page to the width of a phone: only what scrolls by itself may
// be wider.
func (p *tab) fits() {
	p.look("light", 390, 844)
	keepShot(p, "phone")
	const wide = `[document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, pre, svg") && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))].map(String)`
	if got := ask[[]string](p, wide); got[0] != "0" {
		p.Errorf("the page is %s pixels wider than a phone: %q", got[0], got[1:])
	}
}

// A walk is what Tab reached, in order.
type walk struct {
	Want, Got []string
	Unseen    []string // focused without a ring, or outside the window
	Trapped   []string // scroll, and are not reached
}

// prepareScript opens everything, and notes what is focused from now on.
const prepareScript = `(() => {
  document.querySelectorAll("details").forEach(d => d.open = true);
  const can = [...document.querySelectorAll("a[href], summary, button, input, select, [tabindex='0']")];
  const name = e => (can.indexOf(e) + " " + e.outerHTML.slice(0, 70));
  const w = window.walk = {Want: can.map(name), Got: [], Unseen: [], Trapped: []};
  for (const e of document.querySelectorAll("body *")) {
    const o = getComputedStyle(e).overflowX;
    if ((o === "auto" || o === "scroll") && e.scrollWidth > e.clientWidth && !can.includes(e)) w.Trapped.push(name(e));
  }
  document.addEventListener("focusin", ({target: e}) => {
    w.Got.push(name(e));
    const s = getComputedStyle(e), r = e.getBoundingClientRect();
    const ring = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
    if (!ring || r.right <= 0 || r.bottom <= 0 || r.top >= innerHeight || r.left >= innerWidth) w.Unseen.push(name(e));
  });
  return can.length;
})()`

// keyboard presses Tab from the first link to the last, at the width at which
// most regions scroll.
func (p *tab) keyboard() {
	p.scripts(true)
	n := ask[int](p, prepareScript)
	if n == 0 {
		p.Fatal("nothing can be focused")
	}
	p.do(chromedp.KeyEvent(strings.Repeat(kb.Tab, n)))
	got := ask[walk](p, "window.walk")
	if !slices.Equal(got.Got, got.Want) {
		for i := range got.Want {
			if i >= len(got.Got) || got.Got[i] != got.Want[i] {
				p.Errorf("Tab reached %d of %d; after %d of them came %q, want %s", len(got.Got), n, i, got.Got[min(i, len(got.Got)):min(i+1, len(got.Got))], got.Want[i])
				break
			}
		}
	}
	for _, u := range got.Unseen {
		p.Errorf("focused without being seen: %s", u)
	}
	for _, u := range got.Trapped {
		p.Errorf("scrolls, but no key reaches it: %s", u)
	}
}

// fromDisk opens the file itself. The page for addresses that do not exist is
// only ever served, with links from the top of its server.
func (p *tab) fromDisk(dir string, of page) {
	if of.kind == "404" {
		return
	}
	p.scripts(false)
	p.look("light", 1280, 900)
	p.did()
	root := "file://" + filepath.ToSlash(dir) + "/"
	p.open(root + of.file)
	requests, messages := p.did()
	for _, m := range messages {
		p.Errorf("the browser says: %s", m)
	}
	for _, r := range requests {
		if !strings.HasPrefix(r, root) && !strings.HasPrefix(r, "data:") {
			p.Errorf("asked for %s, outside %s", r, root)
		}
	}
	p.isWhole(dir, of)
}

// keep writes what was seen where go test -artifacts keeps it.
func keep(p *tab, name string, data []byte) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.ArtifactDir(), name), data, 0o644); err != nil {
		p.Fatal(err)
	}
}

func keepShot(p *tab, name string) {
	p.Helper()
	if f := flag.Lookup("test.artifacts"); f == nil || f.Value.String() != "true" {
		return // takes its time
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatal(err)
	}
	keep(p, name+".png", png)
}

// axeFile is fetched by "make browser-tools", never committed.
const axeFile = "tools/axe-core/axe.min.js"

// A violation is what axe-core found, as axe names it.
type violation struct {
	ID, Help string
	Nodes    []struct {
		HTML, FailureSummary string
	}
}

func (v violation) String() string {
	s := v.ID + ": " + v.Help
	for _, n := range v.Nodes[:min(3, len(v.Nodes))] {
		s += fmt.Sprintf("\n  %.200s\n  %.300s", n.HTML, n.FailureSummary)
	}
	return s
}

// Every rule of axe-core, its best practices too, in light and in dark.
func TestAxe(t *testing.T) {
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		missing(t, "no axe-core: make browser-tools fetches it")
	}
	browser := startBrowser(t)
	dir, pages := buildSite(t)
	origin := serve(t, dir)
	seen := map[string]bool{}
	for _, p := range pages {
		if seen[p.kind] {
			continue // axe judges how pages are made; what is in them TestPages has
		}
		seen[p.kind] = true
		t.Run(p.kind, func(t *testing.T) { axeOf(t, browser, string(axe), origin+p.file, func(*tab) {}) })
	}
}

// axeOf holds a page to axe-core, after what first does with it.
func axeOf(t *testing.T, browser context.Context, axe, url string, first func(*tab)) {
	p := newTab(t, browser)
	for _, scheme := range []string{"light", "dark"} {
		p.look(scheme, 1280, 900)
		p.open(url)
		first(p)
		ask[bool](p, `document.querySelectorAll("details").forEach(d => d.open = true) ?? true`)
		ask[bool](p, axe+"; true")
		keepShot(p, scheme)
		got := ask[struct {
			Violations []violation
			Passes     int
		}](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => ({Violations: r.violations, Passes: r.passes.length}))`, chromedp.EvalAwaitPromise)
		if got.Passes < 10 {
			t.Errorf("%s: %d rules passed, want axe to have looked", scheme, got.Passes)
		}
		for _, v := range got.Violations {
			t.Errorf("%s: %v", scheme, v)
		}
	}
}

// What the checks above listen for is heard.
func TestBreachesAreHeard(t *testing.T) {
	p := newTab(t, startBrowser(t))
	const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src 'self'">`
	for _, tt := range []struct{ breach, html, request, message string }{
		{"an inline style", policy + `<p style="color: red">x`, "", "security: "},
		{"an inline script", policy + `<script>1</script>`, "", "security: "},
		{"an image from elsewhere that is let in", `<img src="http://elsewhere.invalid/x.png">`, "http://elsewhere.invalid/x.png", "network: "},
		{"an image from elsewhere that is kept out", policy + `<img src="http://elsewhere.invalid/x.png">`, "", "security: "},
		{"a script that fails", `<script>throw new Error("no")</script>`, "", "exception: "},
		{"a script that talks", `<script>console.warn("x")</script>`, "", "console: warning"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,">`, tt.html)
		}))
		p.did()
		p.open(server.URL)
		requests, messages := p.did()
		server.Close()
		if tt.request != "" && !slices.Contains(requests, tt.request) {
			t.Errorf("%s: heard of the requests %q, want %s", tt.breach, requests, tt.request)
		}
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, tt.message) }) {
			t.Errorf("%s: heard %q, want %q", tt.breach, messages, tt.message)
		}
	}
}
