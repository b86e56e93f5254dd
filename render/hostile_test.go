package render_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// hostile texts, and how a reader sees each.
var hostile = []struct{ text, seen string }{
	{`<img src=x onerror=alert(1)>&"'`, `<img src=x onerror=alert(1)>&"'`},
	{`</td><script>1</script>`, `</td><script>1</script>`},
	{`</script><b>x</b><!--`, `</script><b>x</b><!--`},
	{`{{.}} ${7*7}`, `{{.}} ${7*7}`},
	{"INT4|INT8", "INT4|INT8"},
	{"`a|b` ```", "`a|b` ```"},
	{"two\nlines\r\nthree", "two lines  three"},
	{"a\u2028b\u2029c", `a\u2028b\u2029c`},
	{"a\x00b", `a\u0000b`},
	{"a\u202eb\u2066c\u200fd", `a\u202eb\u2066c\u200fd`},
	{"a\xffb", "a\uFFFDb"},
	{"=1+1", "=1+1"},
	{"javascript:alert(1)", "javascript:alert(1)"},
	{"[x](javascript:alert(1)) ![x](http://h/p)", "[x](javascript:alert(1)) ![x](http://h/p)"},
	{"# <!-- *a* _b_ ~~c~~ \\", "# <!-- *a* _b_ ~~c~~ \\"},
}

// hostileRun returns a run in which every foreign string is s, with its
// directory.
func hostileRun(t *testing.T, s string) render.Input {
	t.Helper()
	m := &runlog.Manifest{
		Engine: runlog.Engine{
			Name: &runlog.Fact{}, Version: &runlog.Fact{}, Commit: &runlog.Fact{}, Build: &runlog.Fact{}, Backend: &runlog.Fact{},
			Repository: &runlog.Fact{}, Quantization: &runlog.Fact{},
			LaunchCommand: &runlog.Command{Args: []string{"", ""}}, Environment: &runlog.Environment{Variables: map[string]string{"A": s, s: "b"}},
		},
		Hardware: runlog.Hardware{GPUs: []runlog.GPU{{VRAMBytes: 1 << 35, PowerLimitW: 600}}},
		Capacity: runlog.Capacity{KVCacheTokens: 1, Engines: 2, Raw: map[string]string{s: s}},
	}
	fill(reflect.ValueOf(m).Elem(), s)
	m.StartedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1}
	m.Cells = []runlog.Cell{{Phase: key.Phase, ContextTokens: 8192, Concurrency: 1, Reason: s, Notes: []string{s}}}
	cell := ingest.Cell{
		Cell: m.Cells[0], Status: ingest.Failed, Notes: []string{s}, Launch: ingest.Counts{Launched: 2, Failed: 1, FinishReasons: map[string]int{s: 1}},
		Evidence: []ingest.Evidence{{Status: ingest.Failed, Text: s, Stream: 0, Request: 1, TUs: 2}},
		Requests: []ingest.Request{{Reason: s, Loop: &ingest.Loop{Channel: s, PeriodStart: s}}},
	}
	dir := filepath.Join(t.TempDir(), "hostile")
	writeFile(t, filepath.Join(dir, runlog.ManifestFile), "{}\n")
	writeFile(t, filepath.Join(dir, runlog.NotesFile), s)
	return render.Input{Run: &ingest.Run{ID: "hostile", Manifest: m, Decode: []ingest.Cell{cell}, Notes: []string{s}}, Dir: dir, Notes: []byte(s)}
}

// fill sets every string below v.
func fill(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), s)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), s)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() && f.Type() != reflect.TypeFor[time.Time]() {
				fill(f, s)
			}
		}
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// site renders inputs into a fresh directory.
func site(t *testing.T, inputs ...render.Input) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "site")
	if _, err := render.Site(inputs, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestForeignTextIsShownAsItIsAndDoesNothing(t *testing.T) {
	for i, h := range hostile {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			out := site(t, hostileRun(t, h.text))
			for _, page := range []string{"index.html", "runs/hostile/index.html"} {
				root := parse(t, read(t, out, page))
				checkElements(t, page, root)
				checkSeen(t, page, root, h.seen)
			}
			for _, page := range []string{"index.md", "runs/hostile/index.md"} {
				root := parseMarkdown(t, read(t, out, page))
				checkElements(t, page, root)
				checkSeen(t, page, root, h.seen)
				checkRows(t, page, root, read(t, out, page))
			}
		})
	}
}

// parseMarkdown reads Markdown with raw HTML on: what our escapes let through
// would be elements.
func parseMarkdown(t *testing.T, s string) *html.Node {
	t.Helper()
	var b bytes.Buffer
	md := goldmark.New(goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.Linkify), goldmark.WithRendererOptions(gmhtml.WithUnsafe()))
	if err := md.Convert([]byte(s), &b); err != nil {
		t.Fatal(err)
	}
	return parse(t, b.String())
}

func parse(t *testing.T, s string) *html.Node {
	t.Helper()
	n, err := html.Parse(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ours are the elements that pages may have; notes may add some harmless ones.
var ours = strings.Fields("html head meta title link body a nav main header p h1 h2 h3 h4 h5 h6 div section dl dt dd code pre ul ol li " +
	"table caption thead tbody tr th td span b small br strong em del hr blockquote article svg path g text desc figure figcaption details summary i")

func checkElements(t *testing.T, page string, root *html.Node) {
	t.Helper()
	for n := range root.Descendants() {
		if n.Type == html.CommentNode && n.Data != " raw HTML omitted " {
			t.Errorf("%s: comment %q", page, n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(ours, n.Data) {
			t.Errorf("%s: element %q", page, n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
				t.Errorf("%s: attribute %s=%q of %s", page, a.Key, a.Val, n.Data)
			}
			if scheme, _, ok := strings.Cut(a.Val, ":"); a.Key == "href" && ok && scheme != "https" && scheme != "http" {
				t.Errorf("%s: link to %q", page, a.Val)
			}
		}
	}
}

// checkSeen wants the text in the places where a page has foreign text.
func checkSeen(t *testing.T, page string, root *html.Node, seen string) {
	t.Helper()
	counts := map[string]int{}
	for n := range root.Descendants() {
		// A sentence begins with a capital letter whatever the text.
		if n.Type == html.ElementNode && strings.Contains(strings.ToLower(collapse(text(n))), strings.ToLower(collapse(seen))) {
			counts[n.Data]++
		}
	}
	want := []string{"table"}
	if strings.HasPrefix(page, "runs/") {
		want = []string{"h1", "td", "li", "p"}
	}
	if strings.HasSuffix(page, ".html") && strings.HasPrefix(page, "runs/") {
		want = append(want, "title", "dd")
	}
	for _, element := range want {
		// The h1 has only the last path part of the model's name.
		if counts[element] == 0 && !(strings.Contains(seen, "/") && (element == "h1" || element == "title")) {
			t.Errorf("%s: no %s shows %q", page, element, seen)
		}
	}
}

func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// checkRows wants every row of a table to have the cells that it is written
// with: no foreign pipe or line break may begin another.
func checkRows(t *testing.T, page string, root *html.Node, source string) {
	t.Helper()
	rows := 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "table" {
			continue
		}
		columns := 0
		for r := range n.Descendants() {
			if r.Type != html.ElementNode || r.Data != "tr" {
				continue
			}
			rows++
			cells := 0
			for c := range r.ChildNodes() {
				if c.Type == html.ElementNode {
					cells++
				}
			}
			if columns == 0 {
				columns = cells
			}
			if cells != columns {
				t.Errorf("%s: a row of %d cells in a table of %d columns", page, cells, columns)
			}
		}
	}
	// One line each, and one more per table for the alignment.
	written := 0
	for line := range strings.Lines(source) {
		if strings.HasPrefix(line, "| ") {
			written++
		}
	}
	if rows != written {
		t.Errorf("%s: %d rows, written as %d lines", page, rows, written)
	}
}

func TestDataFilesKeepForeignTextExactly(t *testing.T) {
	for _, h := range hostile {
		out := site(t, hostileRun(t, h.text))
		valid := strings.ToValidUTF8(h.text, "\uFFFD")
		var d struct {
			Model    struct{ Repository string }
			Notes    []string
			Decode   []struct{ Evidence []struct{ Text string } }
			Hardware struct{ GPUs []struct{ Name string } }
		}
		source := read(t, out, "runs/hostile/index.json")
		if err := json.Unmarshal([]byte(source), &d); err != nil {
			t.Fatalf("%q: %v", h.text, err)
		}
		for _, got := range []string{d.Model.Repository, d.Notes[0], d.Decode[0].Evidence[0].Text, d.Hardware.GPUs[0].Name} {
			if got != valid {
				t.Errorf("index.json has %q, want %q", got, valid)
			}
		}
		if strings.ContainsAny(source, "<>\u2028\x00") {
			t.Errorf("index.json of %q has a character that could end a script block", h.text)
		}

		rows, err := csv.NewReader(strings.NewReader(read(t, out, "runs/hostile/cells.csv"))).ReadAll()
		if err != nil {
			t.Fatalf("%q: %v", h.text, err)
		}
		want := strings.ReplaceAll(valid, "\r\n", "\n") // as the reader gives it
		if strings.HasPrefix(want, "=") {
			want = "'" + want
		}
		if len(rows) != 2 || rows[1][1] != want {
			t.Errorf("cells.csv: got %q, want the model %q in one row", rows, want)
		}
	}
}

func TestSpreadsheetsTakeNoForeignTextForAFormula(t *testing.T) {
	for _, s := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"} {
		rows, err := csv.NewReader(strings.NewReader(read(t, site(t, hostileRun(t, s)), "runs/hostile/cells.csv"))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range rows[1] {
			if v != "" && strings.ContainsRune("=+-@\t\r\n", rune(v[0])) {
				t.Errorf("column %s of a run with %q is %q", rows[0][i], s, v)
			}
		}
	}
}

func TestFilesOutsideTheRunAreRefused(t *testing.T) {
	in := hostileRun(t, "x")
	writeFile(t, filepath.Join(filepath.Dir(in.Dir), "secret"), "s")
	for _, name := range []string{"../secret", "/etc/hostname", "cells/../../secret"} {
		in.Run.Manifest.Cells[0].File = name
		out := filepath.Join(t.TempDir(), "site")
		if _, err := render.Site([]render.Input{in}, out); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v, want an error that names it", name, err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q: a site was written all the same", name)
		}
	}
}
