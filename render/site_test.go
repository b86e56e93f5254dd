package render_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// tree reads all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files[name] = read(t, dir, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func openRun(t *testing.T, dir string) render.Input {
	t.Helper()
	in, err := render.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// threeRuns returns two reference runs and the made-up one.
func threeRuns(t *testing.T) []render.Input {
	t.Helper()
	list := []render.Input{madeUpRun(t)}
	for _, r := range references {
		list = append(list, openRun(t, r.shared(t)))
	}
	return list
}

func TestSameRunsGiveTheSameBytes(t *testing.T) {
	inputs := threeRuns(t)[:2]
	first := tree(t, site(t, inputs...))

	zone := time.Local
	defer func() { time.Local = zone }()
	for _, offset := range []int{-11 * 3600, 14 * 3600} {
		time.Local = time.FixedZone("elsewhere", offset)
		t.Setenv("LC_ALL", "ar_EG.UTF-8")
		t.Setenv("LANG", "pl_PL.UTF-8")
		slices.Reverse(inputs)
		for _, in := range inputs {
			in.Run.Manifest.StartedAt = in.Run.Manifest.StartedAt.Local()
			slices.Reverse(in.Run.Prefill)
			slices.Reverse(in.Run.Decode)
			slices.Reverse(in.Run.Manifest.Cells)
		}
		if diff := cmp.Diff(first, tree(t, site(t, inputs...))); diff != "" {
			t.Errorf("another order, zone and locale give another site:\n%s", diff)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	out := site(t, threeRuns(t)...)
	files := tree(t, out)
	ids := map[string]map[string]bool{}
	pages := map[string]*html.Node{}
	for name, content := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		pages[name], ids[name] = parse(t, content), map[string]bool{}
		for n := range pages[name].Descendants() {
			if id := attribute(n, "id"); id != "" {
				if ids[name][id] {
					t.Errorf("%s: id %q twice", name, id)
				}
				ids[name][id] = true
			}
		}
	}
	links := 0
	for name, root := range pages {
		for n := range root.Descendants() {
			for _, label := range strings.Fields(attribute(n, "aria-labelledby")) {
				if !ids[name][label] {
					t.Errorf("%s: aria-labelledby %q leads nowhere", name, label)
				}
			}
			href := attribute(n, "href")
			if href == "" {
				continue
			}
			links++
			u, err := url.Parse(href)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.Host == "github.com" {
				continue
			}
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			if _, ok := files[target]; u.IsAbs() || !ok || strings.HasPrefix(u.Path, "/") {
				t.Errorf("%s: link %q leads nowhere", name, href)
			}
			if u.Fragment != "" && !ids[target][u.Fragment] {
				t.Errorf("%s: link %q leads to no place", name, href)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were looked at", links)
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func TestPagesAreAccessibleAndSelfContained(t *testing.T) {
	out := site(t, threeRuns(t)...)
	for name, content := range tree(t, out) {
		if path.Ext(name) != ".html" {
			continue
		}
		root := parse(t, content)
		checkElements(t, name, root)
		counts := map[string]int{}
		tables := map[*html.Node]bool{}
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if n.Namespace == "" { // a drawing's title is another
				counts[n.Data]++
			}
			switch n.Data {
			case "html":
				if attribute(n, "lang") != "en" {
					t.Errorf("%s: no lang", name)
				}
			case "th":
				if attribute(n, "scope") == "" && attribute(n.Parent.Parent.Parent.Parent, "class") != "prose" {
					t.Errorf("%s: a th without scope", name)
				}
			case "table":
				tables[n] = true
				if p := n.Parent; p.Data != "section" && (attribute(p, "role") != "group" || attribute(p, "tabindex") != "0" || attribute(p, "aria-labelledby") == "") {
					t.Errorf("%s: a table that a keyboard can't scroll", name)
				}
			case "caption":
				if text(n) == "" {
					t.Errorf("%s: an empty caption", name)
				}
			case "meta":
				if attribute(n, "http-equiv") == "Content-Security-Policy" {
					counts["policy"]++
					if got, want := attribute(n, "content"), "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"; got != want {
						t.Errorf("%s: policy %q, want %q", name, got, want)
					}
				}
				if attribute(n, "name") == "description" && attribute(n, "content") != "" {
					counts["description"]++
				}
			case "link":
				if u, err := url.Parse(attribute(n, "href")); err != nil || u.IsAbs() || u.Host != "" {
					t.Errorf("%s: loads %q", name, attribute(n, "href"))
				}
			}
		}
		for _, one := range []string{"h1", "title", "main", "policy", "description"} {
			if counts[one] != 1 {
				t.Errorf("%s: %d of %s, want one", name, counts[one], one)
			}
		}
		if counts["caption"] != len(tables) {
			t.Errorf("%s: %d captions of %d tables", name, counts["caption"], len(tables))
		}
		if strings.Contains(content, out) || strings.Contains(content, os.TempDir()) {
			t.Errorf("%s: holds a path of this machine", name)
		}
	}
}

func TestRawFilesAreCopiedAsTheyAre(t *testing.T) {
	dir := references[0].small(t)
	writeFile(t, filepath.Join(dir, runlog.NotesFile), "# Hello\n")
	writeFile(t, filepath.Join(dir, "private.txt"), "not a file of the run")
	in := openRun(t, dir)
	out := filepath.Join(site(t, in), "runs", in.Run.ID)
	raw := tree(t, filepath.Join(out, "raw"))
	want := tree(t, dir)
	delete(want, "private.txt")
	if diff := cmp.Diff(want, raw); diff != "" {
		t.Errorf("raw files (-run +site):\n%s", diff)
	}
	var d struct {
		Files []struct {
			File, SHA256 string
			Rows, Bytes  int64
		}
	}
	if err := json.Unmarshal([]byte(read(t, out, "index.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Files) != len(raw)-2 { // run.json and notes.md have no entry
		t.Errorf("index.json lists %d files of %d", len(d.Files), len(raw))
	}
	for _, f := range d.Files {
		sum := sha256.Sum256([]byte(raw[f.File]))
		if hex.EncodeToString(sum[:]) != f.SHA256 || int64(len(raw[f.File])) != f.Bytes || f.Rows <= 0 {
			t.Errorf("index.json says %+v of a file of %d bytes", f, len(raw[f.File]))
		}
	}
	if page := read(t, out, "index.html"); !strings.Contains(page, `<h3 id="note-hello">Hello</h3>`) {
		t.Error("the notes are not on the page")
	}
}

// The page, index.json and cells.csv must say the same.
func TestDataFilesHaveTheNumbersOfThePage(t *testing.T) {
	in := openRun(t, references[0].shared(t))
	out := filepath.Join(site(t, in), "runs", in.Run.ID)
	type figure struct{ Value *float64 }
	type cell struct {
		Phase         string
		ContextTokens int32 `json:"context_tokens"`
		Concurrency   int32
		Status        string
		Figures       map[string]figure
		Discarded     map[string]figure `json:"discarded_figures"`
		Loops         []struct {
			Period int `json:"period_code_points"`
		}
		Evidence []struct{ Text string }
	}
	var d struct {
		Format, Method  string
		RunID           string `json:"run_id"`
		Prefill, Decode []cell
	}
	decoder := json.NewDecoder(strings.NewReader(read(t, out, "index.json")))
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Format != render.DataFormat || d.Method != "method/1" || d.RunID != in.Run.ID {
		t.Errorf("index.json is %q by %q of %q", d.Format, d.Method, d.RunID)
	}
	rows, err := csv.NewReader(strings.NewReader(read(t, out, "cells.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	targets := readTargets(t, references[0].name+".tsv")
	cells := slices.Concat(d.Prefill, d.Decode)
	if len(rows) != len(targets)+1 || len(cells) != len(targets) {
		t.Fatalf("%d rows and %d cells, want %d", len(rows)-1, len(cells), len(targets))
	}
	column := func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
	for i, k := range targets {
		c := cells[i]
		if c.Phase != string(k.key.Phase) || c.ContextTokens != k.key.ContextTokens || c.Concurrency != k.key.Concurrency || c.Status != k.status.Slug() || column(i+1, "status") != c.Status {
			t.Errorf("cell %d of index.json is %+v, want %s", i, c, k.key.Name())
		}
		total := "total_tok_per_s"
		if k.key.Phase == runlog.PhasePrefill {
			total = "prefill_tok_per_s"
		}
		for _, f := range []struct {
			json, csv string
			want      float64 // in the units of the data files
			half      float64 // of the last printed decimal
		}{
			{total, "total_tok_per_s", k.total, 50.001},
			{"per_request_tok_per_s", "per_request_tok_per_s", k.perRequest, 0.05001},
			{"ttft_us", "ttft_us", k.ttftMs * 1000, 500},
			{"time_between_tokens_us", "time_between_tokens_us", k.betweenMs * 1000, 50.001},
			{"average_active_requests", "average_active_requests", k.active, 0.05001},
			{"completed_requests", "completed_requests", k.completed, 0},
			{"output_tokens", "output_tokens", k.outputTokens, 0},
			{"measured_for_us", "measured_for_us", k.measuredS * 1e6, 50_001},
		} {
			inCSV, got := column(i+1, f.csv), c.Figures[f.json].Value
			if c.Status != "valid" {
				got = nil
			}
			switch {
			case math.IsNaN(f.want) && (got != nil || inCSV != ""):
				t.Errorf("%s: %s is %v in index.json, %q in cells.csv, want null and empty", k.key.Name(), f.json, got, inCSV)
			case c.Status == "looped" && f.want == 0 && inCSV != "0":
				t.Errorf("%s: %s is %q in cells.csv, want 0 as on the page", k.key.Name(), f.csv, inCSV)
			case c.Status == "valid" && !math.IsNaN(f.want):
				v, err := strconv.ParseFloat(inCSV, 64)
				if got == nil || err != nil || v != *got || math.Abs(v-f.want) > f.half {
					t.Errorf("%s: %s is %v in index.json, %q in cells.csv, want about %v", k.key.Name(), f.json, got, inCSV, f.want)
				}
			}
		}
		switch c.Status {
		case "valid":
			if c.Discarded != nil || len(c.Evidence) > 0 {
				t.Errorf("%s is Valid and has %d discarded figures, %d pieces of evidence", k.key.Name(), len(c.Discarded), len(c.Evidence))
			}
		default:
			if c.Figures != nil || len(c.Evidence) == 0 {
				t.Errorf("%s is not Valid and has figures %v, evidence %v", k.key.Name(), c.Figures, c.Evidence)
			}
		}
		if (c.Status == "looped") != (len(c.Loops) > 0) {
			t.Errorf("%s is %s with %d loops", k.key.Name(), c.Status, len(c.Loops))
		}
	}
}

func TestMarkdownForTheRunDirectoryLinksToItsFiles(t *testing.T) {
	dir := references[0].shared(t)
	var b bytes.Buffer
	if err := render.Markdown(&b, openRun(t, dir)); err != nil {
		t.Fatal(err)
	}
	links := 0
	for n := range parse(t, markdownToHTML(t, b.String())).Descendants() {
		href := attribute(n, "href")
		if href == "" || strings.HasPrefix(href, "https://github.com/") {
			continue
		}
		links++
		if _, err := os.Stat(filepath.Join(dir, href)); err != nil {
			t.Errorf("link %q leads nowhere", href)
		}
	}
	if links < 20 {
		t.Errorf("only %d links to files", links)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("|\n")) || bytes.Contains(b.Bytes(), []byte("\n\n\n")) || bytes.Contains(b.Bytes(), []byte(" \n")) {
		t.Error("the file has spaces at a line's end, two empty lines in a row, or no single line break at its end")
	}
}

func TestWhereASiteMayBeWritten(t *testing.T) {
	in := madeUpRun(t)
	inputs := []render.Input{in}
	parent := t.TempDir()
	must := func(out string) {
		t.Helper()
		index, err := render.Site(inputs, out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(index); err != nil {
			t.Error(err)
		}
	}
	must(filepath.Join(parent, "new", "deep"))

	empty := filepath.Join(parent, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	must(empty)

	// An earlier site is replaced as a whole.
	writeFile(t, filepath.Join(empty, "runs", "old", "index.html"), "old")
	must(empty)
	if _, err := os.Stat(filepath.Join(empty, "runs", "old")); err == nil {
		t.Error("a page of the earlier site is still there")
	}

	// A link to an earlier site stays one.
	link := filepath.Join(parent, "link")
	if err := os.Symlink(empty, link); err != nil {
		t.Fatal(err)
	}
	must(link)
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is now %v (%v)", info.Mode(), err)
	}

	foreign := filepath.Join(parent, "foreign")
	writeFile(t, filepath.Join(foreign, "precious"), "x")
	if _, err := render.Site(inputs, foreign); err == nil || !strings.Contains(err.Error(), "not a site made by speedmatrix") {
		t.Errorf("a directory with other files: got %v", err)
	}
	file := filepath.Join(parent, "file")
	writeFile(t, file, "x")
	if _, err := render.Site(inputs, file); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file: got %v", err)
	}
	if diff := cmp.Diff([]string{"empty", "file", "foreign", "link", "new"}, names(t, parent)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestAFailureLeavesTheOldSite(t *testing.T) {
	good := madeUpRun(t)
	parent := t.TempDir()
	out := filepath.Join(parent, "site")
	if _, err := render.Site([]render.Input{good}, out); err != nil {
		t.Fatal(err)
	}
	before := tree(t, out)
	gone := madeUpRun(t)
	run := *gone.Run
	run.ID = "other"
	gone.Run = &run
	gone.Dir = filepath.Join(parent, "nowhere")
	for _, c := range []struct {
		rule   string
		inputs []render.Input
		want   string
	}{
		{"two runs of one name", []render.Input{good, madeUpRun(t)}, `two runs are named "made up"`},
		{"a file that went away", []render.Input{good, gone}, "nowhere"},
	} {
		if _, err := render.Site(c.inputs, out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.rule, err, c.want)
		}
		if diff := cmp.Diff(before, tree(t, out)); diff != "" {
			t.Errorf("%s changed the old site:\n%s", c.rule, diff)
		}
	}
	if got := names(t, parent); !slices.Equal(got, []string{"site"}) {
		t.Errorf("left behind: %q", got)
	}
}

func TestDamagedRunIsAnErrorThatNamesTheFile(t *testing.T) {
	dir := references[0].small(t)
	file := filepath.Join(dir, "cells", "decode-8192-c1.parquet")
	data := []byte(read(t, file))
	data[len(data)/2] ^= 1
	writeFile(t, file, string(data))
	if _, err := render.Open(dir); err == nil || !strings.Contains(err.Error(), "decode-8192-c1.parquet") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestNotesAreBounded(t *testing.T) {
	dir := references[0].small(t)
	writeFile(t, filepath.Join(dir, runlog.NotesFile), strings.Repeat("x", 1<<20+1))
	if _, err := render.Open(dir); err == nil || !strings.Contains(err.Error(), "notes.md: more than 1048576 bytes") {
		t.Errorf("got %v, want an error about the size of notes.md", err)
	}
}
