package main

// Cases of kind K14: pages. Runs with made-up events are rendered by the
// command, and the pages are read as a browser and GitHub read them.

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest/runlog"
)

// rowOf returns a row of a run's cells.csv by its columns.
func rowOf(t *testing.T, site, run, phase, context, concurrency string) map[string]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(readAll(t, filepath.Join(site, "runs", run, "cells.csv")))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, name := range rows[0] {
			m[name] = row[i]
		}
		if m["phase"] == phase && m["context_tokens"] == context && m["concurrency"] == concurrency {
			return m
		}
	}
	t.Fatalf("cells.csv has no row %s %s %s", phase, context, concurrency)
	return nil
}

// seen returns the text of all elements of a name, a line each.
func seen(t *testing.T, page, element string) string {
	t.Helper()
	var b strings.Builder
	for n := range parseHTML(t, page).Descendants() {
		if n.Type == html.ElementNode && n.Data == element {
			b.WriteString(textOf(n) + "\n")
		}
	}
	return b.String()
}

func parseHTML(t *testing.T, page string) *html.Node {
	t.Helper()
	n, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// attributes returns the values of the attributes of these names in a page.
func attributes(t *testing.T, page string, names ...string) []string {
	t.Helper()
	var list []string
	for n := range parseHTML(t, page).Descendants() {
		for _, a := range n.Attr {
			if slices.Contains(names, a.Key) {
				list = append(list, a.Val)
			}
		}
	}
	return list
}

// collapsed is a text with its white space as a browser shows it.
func collapsed(s string) string { return strings.Join(strings.Fields(s), " ") }

// A foreign holds what others decide of a run's text.
type foreign struct {
	model, gpu, quantization, version, commit, command, reason, note, notes string
}

// ordinary is a foreign without anything odd, of the same shape.
func ordinary() foreign {
	return foreign{"org/plain", "NVIDIA Plain", "INT4", "0.30.1", "abcdef", "vllm serve plain", "it broke", "a remark", "Some *notes*.\n"}
}

// foreignRun writes a run in which these texts stand: a prefill and a decode
// measurement that are Valid, one that failed, one that looped and one over
// capacity. The Valid one has 220.6 tok/s and a TTFT of 39 ms.
func foreignRun(t *testing.T, f foreign) string {
	t.Helper()
	fact := func(s string) *runlog.Fact { return &runlog.Fact{Value: s, Source: runlog.FromFlag} }
	m := planned(prefillKey(8192), decodeKey(8192, 1), decodeKey(8192, 2), decodeKey(8192, 4), decodeKey(8192, 8))
	m.Model = runlog.Model{ServedName: f.model, Repository: f.model}
	m.Engine = runlog.Engine{
		Name: fact("vllm"), Version: fact(f.version), Commit: fact(f.commit), Quantization: fact(f.quantization), Build: fact(f.version),
		LaunchCommand: &runlog.Command{Args: append(splitCommand("vllm serve x"), f.command), Source: runlog.FromFlag},
		Environment:   &runlog.Environment{Variables: map[string]string{"VLLM_X": f.command}, Source: runlog.FromProcess},
	}
	m.Hardware = runlog.Hardware{Type: "Discrete GPU", OS: f.gpu, CPU: f.gpu, GPUs: []runlog.GPU{{Name: f.gpu, VRAMBytes: 96 << 30, Driver: f.version}}}
	m.Capacity = runlog.Capacity{KVCacheTokens: 90_000, Source: f.note, Raw: map[string]string{f.note: f.note}}
	m.Plan.MaxOutputTokens = 8192
	const open, length, tokens = 10_000_000, 30_000_000, 6618
	var even, loop []int64
	for k := range int64(tokens + 1) {
		even = append(even, open+k*length/tokens)
	}
	for k := range int64(1500) {
		loop = append(loop, open+1000+k*10_000)
	}
	repeat := func(int) string { return "ab-" }
	m.Cells[2].Outcome, m.Cells[2].Reason, m.Cells[2].Notes = runlog.OutcomeFailed, f.reason, []string{f.note}
	m.Cells[4].Outcome = runlog.OutcomeOverCapacity
	m.Cells[4].Reason = f.reason
	cells := map[runlog.Key][]taped{
		prefillKey(8192):   {{sent: 1_000_000, events: []int64{1_507_000}, tokens: 1, prompt: 8192, done: 1_507_100}},
		decodeKey(8192, 1): {{sent: open - 39_000, events: even, tokens: 1}},
		decodeKey(8192, 4): {{sent: open, events: loop, tokens: 1, text: repeat}, {sent: open, events: loop, tokens: 1, text: repeat}, {sent: open, events: loop, tokens: 1, text: repeat}, {sent: open, events: loop, tokens: 1, text: repeat}},
	}
	dir := tapeRun(t, m, cells, open, open+length)
	write(t, filepath.Join(dir, runlog.NotesFile), f.notes)
	return dir
}

// asGitHub returns Markdown as HTML by a GFM parser that lets raw HTML
// through: what our escapes do not stop would be elements.
func asGitHub(t *testing.T, markdown string) string {
	t.Helper()
	var b bytes.Buffer
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(gmhtml.WithUnsafe()))
	if err := md.Convert([]byte(markdown), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A pageSet is a rendered site, read: every page, and every Markdown page as
// GitHub shows it.
type pageSet struct {
	files map[string]string // all, by path
	html  map[string]*html.Node
}

func readSite(t *testing.T, site string) pageSet {
	t.Helper()
	s := pageSet{filesBelow(t, site), map[string]*html.Node{}}
	for name, content := range s.files {
		switch path.Ext(name) {
		case ".html":
			s.html[name] = parseHTML(t, content)
		case ".md":
			if !strings.HasSuffix(name, "/"+runlog.NotesFile) { // the person's own
				s.html[name] = parseHTML(t, asGitHub(t, content))
			}
		}
	}
	return s
}

// elements counts the elements of all pages of a kind, by name.
func (s pageSet) elements(ext string) map[string]int {
	n := map[string]int{}
	for name, root := range s.html {
		for e := range root.Descendants() {
			if e.Type == html.ElementNode && strings.HasSuffix(name, ext) {
				n[e.Data]++
			}
		}
	}
	return n
}

// wantHarmless renders a run with foreign texts beside plain, one with
// ordinary ones: no text may have made an element, a comment or an attribute that
// acts, ended a row, or stopped a page; and it is seen as it is.
func wantHarmless(t *testing.T, plain pageSet, f foreign, visible map[string][]string) pageSet {
	t.Helper()
	got := readSite(t, rendered(t, foreignRun(t, f)))
	for _, ext := range []string{".html", ".md"} {
		want := plain.elements(ext)
		for name, n := range got.elements(ext) {
			if n > want[name] {
				t.Errorf("%d elements %q in %s pages, %d with ordinary texts", n, name, ext, want[name])
			}
		}
	}
	for name, root := range got.html {
		for n := range root.Descendants() {
			if n.Type == html.CommentNode && n.Data != " raw HTML omitted " {
				t.Errorf("%s: a comment %q", name, n.Data)
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "srcdoc" || a.Key == "href" && regexp.MustCompile(`(?i)^\s*(?:javascript|data|vbscript):`).MatchString(a.Val) {
					t.Errorf("%s: %s=%q of %s", name, a.Key, a.Val, n.Data)
				}
			}
		}
		wantRectangular(t, name, root)
	}
	for where, texts := range visible {
		ext, element, _ := strings.Cut(where, " ")
		for _, text := range texts {
			found := false
			for name, root := range got.html {
				if !strings.HasSuffix(name, ext) || !strings.Contains(name, "/runs/") {
					continue
				}
				for n := range root.Descendants() {
					found = found || n.Type == html.ElementNode && n.Data == element && strings.Contains(collapsed(textOf(n)), collapsed(text))
				}
			}
			if !found {
				t.Errorf("no %s of a run's %s page shows %q", element, ext, text)
			}
		}
	}
	return got
}

// wantRectangular fails for a table with rows of different lengths.
func wantRectangular(t *testing.T, name string, root *html.Node) {
	t.Helper()
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "table" {
			continue
		}
		first := -1
		for r := range n.Descendants() {
			if r.Type != html.ElementNode || r.Data != "tr" {
				continue
			}
			cells := 0
			for c := range r.ChildNodes() {
				if c.Type != html.ElementNode {
					continue
				}
				cells++
				for _, a := range c.Attr {
					if span, err := strconv.Atoi(a.Val); a.Key == "colspan" && err == nil {
						cells += span - 1
					}
				}
			}
			if first < 0 {
				first = cells
			}
			if cells != first {
				t.Errorf("%s: a row of %d cells in a table of %d columns", name, cells, first)
			}
		}
	}
}

// Pages load nothing from elsewhere, and say so to the browser.
func TestCase_BR140(t *testing.T) {
	t.Parallel()
	site := readSite(t, rendered(t, foreignRun(t, ordinary())))
	pages := 0
	for name, root := range site.html {
		if !strings.HasSuffix(name, ".html") {
			continue
		}
		pages++
		policy := ""
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if n.Data == "base" || n.Data == "iframe" || n.Data == "object" || n.Data == "embed" {
				t.Errorf("%s: has a %s", name, n.Data)
			}
			for _, a := range n.Attr {
				remote := regexp.MustCompile(`(?i)^\s*(?:[a-z][a-z0-9+.-]*:|//)`).MatchString(a.Val)
				switch {
				case (a.Key == "src" || a.Key == "href" && n.Data != "a" || a.Key == "srcset" || a.Key == "poster") && remote && !strings.HasPrefix(a.Val, "data:"):
					t.Errorf("%s: %s loads %q", name, n.Data, a.Val)
				case a.Key == "href" && remote && !strings.HasPrefix(a.Val, "https://"):
					t.Errorf("%s: links to %q", name, a.Val)
				case a.Key == "href" && strings.HasPrefix(a.Val, "/"):
					t.Errorf("%s: links to %q, which is somewhere else when the site is opened as files", name, a.Val)
				}
			}
			if n.Data == "meta" && slices.Contains(n.Attr, html.Attribute{Key: "http-equiv", Val: "Content-Security-Policy"}) {
				for _, a := range n.Attr {
					if a.Key == "content" {
						policy = a.Val
					}
				}
			}
		}
		if !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: policy %q, want one that begins with default-src 'none'", name, policy)
		}
		for _, word := range strings.FieldsFunc(policy, func(r rune) bool { return r == ' ' || r == ';' }) {
			if strings.Contains(word, "//") || word == "*" || word == "http:" || word == "https:" || word == "'unsafe-eval'" {
				t.Errorf("%s: the policy lets %q in", name, word)
			}
		}
	}
	if pages < 2 {
		t.Errorf("only %d pages", pages)
	}
	for name, content := range site.files {
		if ext := path.Ext(name); (ext == ".css" || ext == ".svg" || ext == ".js") && regexp.MustCompile(`(?i)@import|url\(\s*["']?(?:https?:)?//|fetch\(|XMLHttpRequest`).MatchString(content) {
			t.Errorf("%s loads something", name)
		}
	}
}

// The figures are text: no script need run to see them.
func TestCase_BR142(t *testing.T) {
	t.Parallel()
	site := rendered(t, foreignRun(t, ordinary()))
	page, md := pagesOf(t, site, "made-up")
	page = regexp.MustCompile(`(?is)<script\b.*?</script>`).ReplaceAllString(page, "")
	root := parseHTML(t, page)
	for _, want := range []string{"220.6", "39 ms", "Looped", "Over capacity", "6,618", "30.0 s", "16.2K"} {
		if !strings.Contains(textOf(root), want) {
			t.Errorf("the page's text does not have %q", want)
		}
		if !strings.Contains(md, want) {
			t.Errorf("the Markdown page does not have %q", want)
		}
	}
	// The same as in the raw data.
	cell := decodeCell(t, runOf(t, filepath.Join(site, "runs", "made-up", "raw")), 1)
	if g := cell.Figures; g.OutputTokens.Value != 6618 || fmt.Sprintf("%.1f", g.TotalTokPerS.Value) != "220.6" || g.TTFTUs.Value != 39_000 {
		t.Errorf("the site's raw files give %+v", g)
	}
}

// Foreign text is shown as it is, in the title, headings, tables and lists,
// and makes nothing.
func TestCase_BR143(t *testing.T) {
	t.Parallel()
	f, plain := ordinary(), readSite(t, rendered(t, foreignRun(t, ordinary())))
	f.model, f.gpu, f.quantization = `<img src=x onerror=alert(1)>&"'`, `</td><script>1</script>`, `{{.}} ${7*7}`
	wantHarmless(t, plain, f, map[string][]string{
		".html title": {f.model}, ".html h1": {f.model, f.gpu}, ".html dd": {f.model, f.gpu, f.quantization},
		".md h1": {f.model, f.gpu}, ".md li": {f.model, f.gpu, f.quantization},
	})
	for _, other := range []string{`"><svg/onload=alert(1)>`, `<!--`, `]]>`, `<style>*{display:none}</style>`, `</title><b>`, `&lt;b&gt;&amp;#60;`, "`<b>`", `[a](javascript:alert(1))`, `<https://x.example>`, `![a](//x.example/y)`, `a\u202eb`} {
		f.model, f.gpu, f.quantization, f.version, f.commit, f.command, f.reason, f.note = other, other, other, other, other, other, other, other
		wantHarmless(t, plain, f, map[string][]string{".html dd": {other}, ".md li": {other}, ".html td": {other}, ".md td": {other}})
	}
}

// The same through the collector: a server that calls its model so, and
// flags with such values.
func TestCase_BR143_Collected(t *testing.T) {
	t.Parallel()
	const model, gpu, quantization = `<img src=x onerror=alert(1)>&"'`, `</td><script>1</script>`, `{{.}} ${7*7}`
	srv := serveStub(t, simserver.Config{Seed: 1, Model: model, MaxModelLen: 2048, Speed: 8}, nil)
	c := collectRun(t, tinyPlan(t.TempDir(), srv.URL, "--gpu", gpu, "--quantization", quantization)...)
	site := readSite(t, rendered(t, c.dir))
	for name, root := range site.html {
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && (slices.Contains(n.Attr, html.Attribute{Key: "src", Val: "x"}) || n.Data == "script" && textOf(n) == "1") {
				t.Errorf("%s: an element %q", name, n.Data)
			}
		}
	}
	page, md := pagesOf(t, rendered(t, c.dir), filepath.Base(c.dir))
	for _, want := range []string{model, gpu, quantization} {
		if !strings.Contains(seen(t, page, "dd"), want) {
			t.Errorf("the page does not show %q", want)
		}
		if !strings.Contains(seen(t, asGitHub(t, md), "li"), want) {
			t.Errorf("the Markdown page does not show %q", want)
		}
	}
}

// What is embedded in a page can't end its block, nor a line of it.
func TestCase_BR144(t *testing.T) {
	t.Parallel()
	f, plain := ordinary(), readSite(t, rendered(t, foreignRun(t, ordinary())))
	f.reason, f.note, f.version = `</script><b>x</b><!--`, "a\u2028<b>b\u2029c", "nul\x00byte"
	site := wantHarmless(t, plain, f, map[string][]string{
		".html td": {f.reason, `a\u2028<b>b\u2029c`}, ".md td": {f.reason, `a\u2028<b>b\u2029c`}, ".html dd": {`nul\u0000byte`}, ".md li": {`nul\u0000byte`},
	})
	blocks := 0
	for name, root := range site.html {
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data == "script" && slices.Contains(n.Attr, html.Attribute{Key: "type", Val: "application/json"}) {
				blocks++
				oneJSON(t, name+": embedded data", textOf(n))
			}
		}
	}
	t.Logf("%d embedded blocks of data", blocks)
	for name, content := range site.files {
		if strings.HasSuffix(name, "index.json") {
			oneJSON(t, name, content)
			var d struct {
				Decode []struct{ Evidence []struct{ Text string } }
				Engine struct{ Version struct{ Value string } }
			}
			if strings.Contains(name, "/runs/") {
				if err := json.Unmarshal([]byte(content), &d); err != nil || d.Engine.Version.Value != f.version || !strings.Contains(d.Decode[1].Evidence[0].Text, f.reason) {
					t.Errorf("%s: %v, %+v, want the texts as they were", name, err, d)
				}
			}
			if strings.ContainsAny(content, "<\u2028\u2029\x00") {
				t.Errorf("%s has characters that could end a block", name)
			}
		}
	}
	if page := site.files["site/runs/made-up/index.html"]; !strings.Contains(page, "220.6") || strings.ContainsAny(page, "\x00\u2028") {
		t.Error("the page has lost its tables, or shows control characters as they are")
	}
}

// Labels in charts are text too.
func TestCase_BR146(t *testing.T) {
	t.Parallel()
	f, plain := ordinary(), readSite(t, rendered(t, foreignRun(t, ordinary())))
	f.quantization, f.model = `<svg onload=alert(1)>`, `8K</text><script>`
	f.gpu, f.commit = `<desc>x</desc>`, `"/><a href="//x.example">`
	site := wantHarmless(t, plain, f, map[string][]string{".html dd": {f.quantization, f.model, f.gpu}, ".md li": {f.quantization, f.model, f.gpu}})
	drawings := 0
	for name, root := range site.html {
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data == "svg" {
				drawings++
				if strings.HasSuffix(name, ".md") {
					t.Errorf("%s: a drawing in Markdown", name)
				}
			}
		}
	}
	for name, content := range site.files { // drawings that are files of their own
		if strings.HasSuffix(name, ".svg") {
			drawings++
			if strings.Contains(content, "<script") || strings.Contains(content, "onload") || strings.Contains(content, "//x.example") {
				t.Errorf("%s: a label made something", name)
			}
		}
	}
	if drawings == 0 {
		t.Error("no drawing was looked at")
	}
}

// A pipe, a line break or a code span ends no cell of a Markdown table.
func TestCase_BR147(t *testing.T) {
	t.Parallel()
	f, plain := ordinary(), readSite(t, rendered(t, foreignRun(t, ordinary())))
	f.quantization, f.reason, f.command, f.note = "INT4|INT8", "`a|b`", "serve x | tee log", "two\nlines | and \\| more \\"
	f.model, f.gpu, f.commit = "org/a|b", "RTX | 6000", "`|`"
	site := wantHarmless(t, plain, f, map[string][]string{
		".md li": {f.quantization, f.gpu}, ".md td": {f.reason, "two lines | and \\| more \\"}, ".md code": {"tee log"}, ".html td": {f.reason}, ".html code": {"| tee log"},
	})
	for name, content := range site.files {
		if !strings.HasSuffix(name, ".md") || strings.HasSuffix(name, "/"+runlog.NotesFile) {
			continue
		}
		lines, rows := 0, 0
		for line := range strings.Lines(content) {
			if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|-") {
				lines++
			}
		}
		for n := range site.html[name].Descendants() {
			if n.Type == html.ElementNode && n.Data == "tr" {
				rows++
			}
		}
		if rows != lines {
			t.Errorf("%s: %d rows, written as %d lines", name, rows, lines)
		}
	}
}

// Sixty commits of forty-eight measurements: no page grows without end.
func TestCase_BR149(t *testing.T) {
	t.Parallel()
	var keys []runlog.Key
	cells := map[runlog.Key][]taped{}
	const open, shut = 10_000_000, 40_000_000
	for _, context := range []int32{8 << 10, 16 << 10, 32 << 10, 64 << 10, 123 << 10} {
		keys = append(keys, prefillKey(context))
		cells[prefillKey(context)] = []taped{{sent: 1_000_000, events: []int64{2_000_000}, tokens: 1, prompt: context, done: 2_000_100}}
	}
	keys = append(keys, prefillKey(128<<10), prefillKey(130<<10), prefillKey(131<<10))
	for _, context := range []int32{128 << 10, 130 << 10, 131 << 10} {
		cells[prefillKey(context)] = cells[prefillKey(8<<10)]
	}
	for _, context := range []int32{8 << 10, 16 << 10, 32 << 10, 64 << 10, 123 << 10} {
		for _, n := range []int32{1, 2, 4, 8, 16, 32, 64, 128} {
			key := decodeKey(context, n)
			keys = append(keys, key)
			for i := range n {
				r := taped{sent: open - 39_000, tokens: 40}
				for k := range int64(4) {
					r.events = append(r.events, open+k*9_000_000+int64(i)*11+1)
				}
				cells[key] = append(cells[key], r)
			}
		}
	}
	if len(keys) != 48 {
		t.Fatalf("%d measurements, want 48", len(keys))
	}
	m := planned(keys...)
	m.Model.Repository = "org/model"
	m.Hardware = runlog.Hardware{Type: "Discrete GPU", GPUs: []runlog.GPU{{Name: "NVIDIA RTX PRO 6000", VRAMBytes: 96 << 30}}}
	first := tapeRun(t, m, cells, open, shut)
	for _, c := range append(runOf(t, first).Prefill, runOf(t, first).Decode...) {
		if c.Status.Slug() != "valid" {
			t.Fatalf("%s is %s %v, want Valid", c.Cell.Key().Name(), c.Status, c.Evidence)
		}
	}
	root := t.TempDir()
	for i := range 60 {
		m := manifestOf(t, first)
		commit := fmt.Sprintf("%040x", i+0x123456789)
		m.StartedAt = m.StartedAt.AddDate(0, 0, -i)
		m.Engine = runlog.Engine{
			Name: &runlog.Fact{Value: "vllm", Source: runlog.FromServer}, Version: &runlog.Fact{Value: fmt.Sprintf("0.30.1rc1.dev%d", i), Source: runlog.FromServer},
			Commit: &runlog.Fact{Value: commit, Source: runlog.FromFlag}, Quantization: &runlog.Fact{Value: "INT4+INT8", Source: runlog.FromFlag},
		}
		dir, err := runlog.Create(root, runlog.RunName(m))
		if err != nil {
			t.Fatal(err)
		}
		for j := range m.Cells {
			if err := os.Link(filepath.Join(first, m.Cells[j].File), filepath.Join(dir, m.Cells[j].File)); err != nil {
				t.Fatal(err)
			}
		}
		if err := runlog.WriteManifest(dir, m); err != nil {
			t.Fatal(err)
		}
	}
	site := rendered(t, root)
	runs := 0
	for name, content := range filesBelow(t, site) {
		switch ext := path.Ext(name); {
		case name == "site/index.html" && len(content) >= 1<<20, ext == ".html" && len(content) >= 2<<20, ext == ".md" && len(content) >= 2<<20:
			t.Errorf("%s has %d bytes", name, len(content))
		case strings.HasPrefix(name, "site/runs/") && strings.HasSuffix(name, "/index.html"):
			runs++
			if len(content) > 200<<10 { // 40 KB of it are the data of charts that can be made interactive, where ECharts is built in
				t.Errorf("%s has %d bytes", name, len(content))
			}
		}
	}
	if runs < 60 {
		t.Errorf("%d pages of runs, want one of each of 60", runs)
	}
}

// Every text can be read in light, in dark and on paper. The colours
// themselves are held in package render; render/browsertest measures the
// contrast of every text as a browser shows it.
func TestCase_BR151(t *testing.T) {
	t.Parallel()
	site := rendered(t, foreignRun(t, ordinary()))
	var style string
	for name, content := range filesBelow(t, site) {
		if path.Ext(name) == ".css" {
			style += content
		}
	}
	for _, scheme := range []string{"prefers-color-scheme: dark", "@media print"} {
		if !strings.Contains(strings.ReplaceAll(style, " ", ""), strings.ReplaceAll(scheme, " ", "")) {
			t.Errorf("the style sheet has nothing for %s", scheme)
		}
	}
}
