package render_test

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"golang.org/x/net/html"

	"speedmatrix/ingest/runlog"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A reference is a page of another generator that ours must equal in
// content, order, words and number formats. The figures are in testdata; the
// page itself is compared with where it is present.
type reference struct {
	name     string // of targets and golden files
	document string
	manifest func([]target) runlog.Manifest
}

var references = []reference{
	{"speculation", "000_8d3965db8c0f03c6.txt", func(targets []target) runlog.Manifest {
		m := referenceManifest(targets)
		m.Engine.Quantization = fact("INT4+INT8")
		m.Engine.LaunchCommand = &runlog.Command{Source: runlog.FromFlag, Args: []string{
			"env", "MAX_JOBS=2", "FLASHINFER_NVCC_THREADS=1", "TORCHINDUCTOR_COMPILE_THREADS=1",
			"$HOME/env_rtxpro6k-poolside-vllm-73a5831127a9/bin/vllm", "serve", "poolside/Laguna-XS-2.1-INT4", "--served-model-name", "poolside",
			"--trust-remote-code", "--tensor-parallel-size", "1", "--reasoning-parser", "poolside_v1", "--enable-auto-tool-choice",
			"--tool-call-parser", "poolside_v1", "--max-model-len", "262144", "--gpu-memory-utilization", "0.80", "--host", "0.0.0.0",
			"--port", "8000", "--api-key", "<redacted>", "--default-chat-template-kwargs", `{"enable_thinking":true}`,
			"--attention-backend", "FLASHINFER", "--moe-backend", "marlin", "--speculative-config",
			`{"model":"poolside/Laguna-XS-2.1-DFlash-INT4","num_speculative_tokens":15,"method":"dflash"}`,
		}}
		m.Model.Repository, m.Model.ServedName, m.Model.MaxModelLenTokens = "poolside/Laguna-XS-2.1-INT4", "poolside", 262_144
		m.Capacity = runlog.Capacity{KVCacheTokens: 1_400_000, Source: "kv_cache_size_tokens label", Engines: 1}
		return m
	}},
	{"plain", "003_1b44bfbd8dea3652.txt", func(targets []target) runlog.Manifest {
		m := referenceManifest(targets)
		m.Engine.Quantization = fact("BF16")
		m.Engine.LaunchCommand = &runlog.Command{Source: runlog.FromFlag, Args: []string{
			"env", "MAX_JOBS=2", "FLASHINFER_NVCC_THREADS=1", "TORCHINDUCTOR_COMPILE_THREADS=1",
			"$HOME/env_rtxpro6k-redhatai-vllm-73a5831127a9d2b8/bin/vllm", "serve", "RedHatAI/gemma-4-E2B-it", "--served-model-name", "gemma",
			"--trust-remote-code", "--tensor-parallel-size", "1", "--reasoning-parser", "gemma4", "--enable-auto-tool-choice",
			"--tool-call-parser", "gemma4", "--max-model-len", "131072", "--gpu-memory-utilization", "0.83", "--host", "0.0.0.0",
			"--port", "8000", "--api-key", "<redacted>", "--async-scheduling",
		}}
		m.Model.Repository, m.Model.ServedName, m.Model.MaxModelLenTokens = "RedHatAI/gemma-4-E2B-it", "gemma", 131_072
		m.Capacity = runlog.Capacity{KVCacheTokens: 9_000_000, Source: "kv_cache_size_tokens label", Engines: 1}
		return m
	}},
}

// runs holds the reference runs that were written already: tests that change
// nothing in them share one copy.
var runs struct {
	sync.Mutex
	parent  string
	written map[string]bool
}

func TestMain(m *testing.M) {
	parent, err := os.MkdirTemp("", "render")
	if err != nil {
		panic(err)
	}
	runs.parent, runs.written = parent, map[string]bool{}
	status := m.Run()
	os.RemoveAll(parent)
	os.Exit(status)
}

// shared returns the directory of the reference's run, which must not be changed.
func (r reference) shared(t *testing.T) string {
	t.Helper()
	runs.Lock()
	defer runs.Unlock()
	dir := filepath.Join(runs.parent, r.name)
	if !runs.written[r.name] {
		targets := readTargets(t, r.name+".tsv")
		writeRun(t, dir, r.manifest(targets), targets)
		runs.written[r.name] = true
	}
	return dir
}

// small writes the first measurements of the reference's run, for a test to change.
func (r reference) small(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), r.name)
	targets := readTargets(t, r.name+".tsv")[:8]
	writeRun(t, dir, r.manifest(targets), targets)
	return dir
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// referenceDir returns where the reference documents are, "" when they are
// not on this machine.
func referenceDir() string {
	for _, dir := range []string{os.Getenv("SPEEDMATRIX_REFERENCE"), filepath.Join("..", "..", "shared", "reference")} {
		if _, err := os.Stat(filepath.Join(dir, references[0].document)); err == nil && dir != "" {
			return dir
		}
	}
	return ""
}

func TestReferencePages(t *testing.T) {
	documents := referenceDir()
	for _, r := range references {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			run := filepath.Join(site(t, openRun(t, r.shared(t))), "runs", r.name)
			pageHTML, pageMD := read(t, run, "index.html"), read(t, run, "index.md")
			golden(t, r.name+".html", pageHTML)
			golden(t, r.name+".md", pageMD)
			fromHTML, fromMD := mainSections(t, pageHTML), mainSections(t, markdownToHTML(t, pageMD))
			if diff := cmp.Diff(fromHTML, fromMD, cmp.AllowUnexported(document{})); diff != "" {
				t.Errorf("the HTML page and its Markdown twin differ (-HTML +Markdown):\n%s", diff)
			}
			// The figures that the page was made to print.
			checkTargets(t, readTargets(t, r.name+".tsv"), fromHTML.tables[len(fromHTML.tables)-1])
			if documents == "" {
				t.Log("the reference documents are not on this machine: compared with the golden files and the figures only")
				return
			}
			want := referenceText(read(t, documents, r.document))
			compareTables(t, want.tables, fromHTML.tables)
			compareLines(t, want.lines, fromHTML.lines)
		})
	}
}

// checkTargets holds the rows of the table of all measurements against the
// figures that they were made to have.
func checkTargets(t *testing.T, targets []target, rows [][]string) {
	t.Helper()
	if len(rows) != len(targets)+1 {
		t.Fatalf("got %d rows, want %d", len(rows), len(targets)+1)
	}
	for i, k := range targets {
		row := rows[i+1]
		if row[3] != k.status.String() {
			t.Errorf("%s: status %q, want %q", k.key.Name(), row[3], k.status)
		}
		for j, want := range []float64{k.total, k.perRequest, k.ttftMs, k.betweenMs, k.active, k.completed, k.outputTokens, k.measuredS} {
			cell := row[4+j]
			if math.IsNaN(want) {
				if cell != "—" {
					t.Errorf("%s: %s is %q, want a dash", k.key.Name(), rows[0][4+j], cell)
				}
				continue
			}
			scale := 1.0
			digits := strings.NewReplacer(",", "", " ms", "", " s", "").Replace(cell)
			if thousands, ok := strings.CutSuffix(digits, "K"); ok {
				digits, scale = thousands, 1000
			}
			if got, err := strconv.ParseFloat(digits, 64); err != nil || math.Abs(got*scale-want) > 1e-6 {
				t.Errorf("%s: %s is %q, want %v", k.key.Name(), rows[0][4+j], cell, want)
			}
		}
	}
}

var assetHash = regexp.MustCompile(`(style|icon)\.[0-9a-f]{12}\.(css|svg)`)

// golden compares with testdata/golden/name, or writes it anew.
// fileBytes is the size and the checksum of an event file, in HTML or Markdown.
var fileBytes = regexp.MustCompile(`[0-9,]+(</td><td><code>| \| )[0-9a-f]{64}`)

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	got = assetHash.ReplaceAllString(got, "$1.HASH.$2")       // the style may change without the pages
	got = fileBytes.ReplaceAllString(got, "BYTES${1}SHA-256") // and so may the way in which event files are written
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(read(t, path), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test ./render -update writes it anew:\n%s", path, diff)
	}
}

// A document is the text of a page: its lines in order, with tables as one
// line per row, and the tables by cells.
type document struct {
	lines  []string
	tables [][][]string
}

// referenceText reads a reference document.
func referenceText(s string) document {
	var d document
	inTable := false
	for line := range strings.Lines(strings.TrimSpace(s)) {
		line = strings.TrimSuffix(line, "\n")
		before, row, ok := strings.Cut(line, "| ")
		if !ok || !strings.HasSuffix(line, "|") && !strings.HasPrefix(line, "|") {
			if !strings.HasPrefix(line, "|---") {
				inTable = false
				d.lines = append(d.lines, strings.TrimPrefix(line, "- "))
			}
			continue
		}
		if before != "" { // "…requests| Context | 1 |": the line before a table ran into it
			d.lines = append(d.lines, before)
		}
		if !inTable {
			d.tables = append(d.tables, nil)
			inTable = true
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(row), " |"), " | ")
		d.tables[len(d.tables)-1] = append(d.tables[len(d.tables)-1], cells)
		d.lines = append(d.lines, "| "+strings.Join(cells, " | ")+" |")
	}
	return d
}

// mainSections reads the sections of a page that the reference pages have:
// all up to the heading of the first one that they do not have.
func mainSections(t *testing.T, page string) document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	start := root
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == "main" {
			start = n
		}
	}
	var d document
	var open []string // text of the line that is being read
	flush := func() {
		if s := strings.TrimSpace(strings.Join(open, "")); s != "" {
			d.lines = append(d.lines, s)
		}
		open = nil
	}
	var walk func(n *html.Node) bool // false: the end of the main sections
	walk = func(n *html.Node) bool {
		switch {
		case n.Type == html.TextNode:
			open = append(open, strings.ReplaceAll(n.Data, "\n", ""))
			return true
		case n.Type == html.ElementNode && n.Data == "h2" && text(n) == "Charts":
			return false
		case n.Type == html.ElementNode && n.Data == "tr":
			flush()
			var cells []string
			for c := range n.ChildNodes() {
				if c.Type == html.ElementNode {
					cells = append(cells, text(c))
				}
			}
			d.lines = append(d.lines, "| "+strings.Join(cells, " | ")+" |")
			d.tables[len(d.tables)-1] = append(d.tables[len(d.tables)-1], cells)
			return true
		case n.Type == html.ElementNode && n.Data == "table":
			d.tables = append(d.tables, nil)
		}
		block := n.Type == html.ElementNode && blocks[n.Data]
		if block {
			flush()
		}
		for c := range n.ChildNodes() {
			if !walk(c) {
				return false
			}
		}
		if block {
			flush()
		}
		return true
	}
	walk(start)
	flush()
	return d
}

var blocks = map[string]bool{
	"h1": true, "h2": true, "p": true, "li": true, "dt": true, "dd": true, "pre": true, "caption": true, "br": true, "div": true, "ul": true, "table": true,
}

// text returns the text of a node.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// factItem is a fact of the Markdown twin, "<strong>Name</strong>: value".
var factItem = regexp.MustCompile(`<li><strong>([^<]*)</strong>: `)

// markdownToHTML renders the twin as GitHub would, and brings its facts into
// the form of the page: the name and the value on lines of their own.
func markdownToHTML(t *testing.T, md string) string {
	t.Helper()
	var b bytes.Buffer
	if err := markdownReader.Convert([]byte(md), &b); err != nil {
		t.Fatal(err)
	}
	s := strings.ReplaceAll(b.String(), "<!-- raw HTML omitted -->", "<br>") // the twin's only HTML
	return factItem.ReplaceAllString(s, "<li>$1<br>")
}

var markdownReader = goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote))

func compareTables(t *testing.T, want, got [][][]string) {
	t.Helper()
	if len(want) != 2 || len(got) != 2 {
		t.Fatalf("got %d tables, want %d, which should be 2", len(got), len(want))
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Errorf("table %d: got %d rows, want %d", i, len(got[i]), len(want[i]))
		}
		for r := range min(len(got[i]), len(want[i])) {
			if diff := cmp.Diff(want[i][r], got[i][r]); diff != "" {
				t.Errorf("table %d, row %d (-reference +ours):\n%s", i, r, diff)
			}
		}
	}
}

// compareLines compares every line. The reference lost line breaks where
// headings or cells sat side by side, so one of its lines may be several of
// ours in a row, and must then be exactly these.
func compareLines(t *testing.T, want, got []string) {
	t.Helper()
	i := 0
	for _, line := range want {
		joined, from := "", i
		for i < len(got) && joined != line && strings.HasPrefix(line, joined+got[i]) {
			joined += got[i]
			i++
		}
		if joined != line {
			next := "the end of the page"
			if i < len(got) {
				next = got[i]
			}
			t.Fatalf("line %q of the reference: got %q, then %q", line, got[from:i], next)
		}
	}
	if i < len(got) {
		t.Errorf("the page goes on after the reference's end: %q", got[i:])
	}
}
