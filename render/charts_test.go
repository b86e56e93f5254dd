package render_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// zipped returns the size of s as it travels.
func zipped(s string) int {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	w.Write([]byte(s))
	w.Close()
	return b.Len()
}

// The pages of a run of the reference's size, with all drawings, stay light.
// The first design allowed the run page 60 KB, 12 KB compressed; that was a
// page without drawings, of which there are six now, 8 KB of 19 compressed,
// whose values a reader can point at. Checksums, 2 KB that nothing
// compresses, requests and percentiles are what a doubter needs, and stand
// behind the tables. The measurements one by one are a page of their own.
func TestRunPagesAreLight(t *testing.T) {
	for _, r := range references {
		out := filepath.Join(site(t, openRun(t, r.shared(t))), "runs", r.name)
		for _, p := range []struct {
			file        string
			raw, packed int // KiB
		}{{"index.html", 116, 21}, {"cells.html", 380, 36}} {
			s := read(t, out, p.file)
			t.Logf("%s of %s: %.1f KiB, %.1f compressed", p.file, r.name, float64(len(s))/1024, float64(zipped(s))/1024)
			if len(s) > p.raw<<10 || zipped(s) > p.packed<<10 {
				t.Errorf("%s of %s: %d bytes, %d compressed, want %d KiB and %d KiB at most", p.file, r.name, len(s), zipped(s), p.raw, p.packed)
			}
		}
	}
}

// elements returns the elements of a name below n.
func elements(n *html.Node, name string) []*html.Node {
	var list []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == name {
			list = append(list, d)
		}
	}
	return list
}

func TestDrawingsSayWhatTheyShow(t *testing.T) {
	out := filepath.Join(site(t, openRun(t, references[1].shared(t))), "runs", references[1].name)
	for file, want := range map[string]int{"index.html": 6, "cells.html": 2 * 39} { // 39 Valid decode measurements
		drawings := 0
		for _, svg := range elements(parse(t, read(t, out, file)), "svg") {
			if attribute(svg, "role") != "img" {
				continue
			}
			drawings++
			names := strings.Fields(attribute(svg, "aria-labelledby"))
			first, second := svg.FirstChild, svg.FirstChild.NextSibling
			if len(names) != 2 || first.Data != "title" || attribute(first, "id") != names[0] || text(first) == "" ||
				second.Data != "desc" || attribute(second, "id") != names[1] || text(second) == "" {
				t.Errorf("%s: drawing %q has no title and description of its own", file, attribute(svg, "aria-labelledby"))
			}
		}
		if drawings != want {
			t.Errorf("%s has %d drawings, want %d", file, drawings, want)
		}
	}
}

// Every drawing of the page is a file as well, for Markdown: XML that stands
// alone, loads nothing and runs nothing.
func TestDrawingsAreFiles(t *testing.T) {
	out := filepath.Join(site(t, openRun(t, references[0].shared(t))), "runs", references[0].name)
	files := 0
	for name, content := range tree(t, out) {
		if path.Ext(name) != ".svg" {
			continue
		}
		files++
		if !strings.Contains(read(t, out, "index.md"), "]("+name+")") {
			t.Errorf("index.md does not show %s", name)
		}
		d := xml.NewDecoder(strings.NewReader(content))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if !slices.Contains([]string{"svg", "style", "title", "desc", "g", "path", "text"}, e.Name.Local) || e.Name.Space != "http://www.w3.org/2000/svg" {
				t.Errorf("%s: element %v", name, e.Name)
			}
			for _, a := range e.Attr {
				if a.Name.Local == "style" || a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("%s: attribute %s of %s", name, a.Name.Local, e.Name.Local)
				}
			}
		}
		if !strings.Contains(content, "prefers-color-scheme: dark") {
			t.Errorf("%s does not follow the theme", name)
		}
	}
	if files != 6 {
		t.Errorf("got %d drawings, want 6", files)
	}
}

func TestNothingMeasuredIsNotDrawn(t *testing.T) {
	in := madeUpRun(t)
	run := *in.Run
	run.Prefill, run.Decode = slices.Clone(run.Prefill), slices.Clone(run.Decode)
	for _, cells := range [][]ingest.Cell{run.Prefill, run.Decode} {
		for i := range cells {
			cells[i].Status = ingest.NotRun
		}
	}
	in.Run = &run
	out := filepath.Join(site(t, in), "runs", run.ID)
	for _, file := range []string{"index.html", "cells.html"} {
		page := read(t, out, file)
		if strings.Contains(page, "<svg") {
			t.Errorf("%s has a drawing", file)
		}
		if file == "index.html" && !strings.Contains(page, "No chart: no measurement is Valid.") {
			t.Error("the page does not say why it has no chart")
		}
	}
}

// A line does not cross a measurement that is not Valid.
func TestPrefillLineBreaks(t *testing.T) {
	in := madeUpRun(t)
	stat := func(v float64) ingest.Figures { return ingest.Figures{PrefillTokPerS: ingest.Stat{Value: v, N: 3}} }
	for _, tt := range []struct {
		middle ingest.Status
		joined int
	}{{ingest.Valid, 2}, {ingest.Cached, 0}} {
		run := *in.Run
		run.Prefill = nil
		for i, s := range []ingest.Status{ingest.Valid, tt.middle, ingest.Valid} {
			run.Prefill = append(run.Prefill, ingest.Cell{
				Cell: runlog.Cell{Phase: runlog.PhasePrefill, ContextTokens: 1024 << i, Concurrency: 1}, Status: s, Figures: stat(1000),
			})
		}
		in.Run = &run
		drawing := read(t, site(t, in), "runs", run.ID, "chart-prefill.svg")
		_, line, found := strings.Cut(drawing, `class="l" d="`)
		line, _, _ = strings.Cut(line, `"`)
		if got := strings.Count(line, "L"); !found || got != tt.joined {
			t.Errorf("the middle one of three is %s: line %q joins %d pairs, want %d", tt.middle, line, got, tt.joined)
		}
	}
}

// Each number leads to its evidence: the part of the page of measurements
// has the file, its checksum, and the command that computes it again.
func TestCellsLeadToTheirEvidence(t *testing.T) {
	in := openRun(t, references[0].shared(t))
	out := filepath.Join(site(t, in), "runs", references[0].name)
	cells := parse(t, read(t, out, "cells.html"))
	parts := map[string]*html.Node{}
	for _, s := range elements(cells, "section") {
		parts[attribute(s, "id")] = s
	}
	links := 0
	for _, a := range elements(parse(t, read(t, out, "index.html")), "a") {
		id, ok := strings.CutPrefix(attribute(a, "href"), "cells.html#")
		if !ok {
			continue
		}
		links++
		if parts[id] == nil {
			t.Errorf("%q leads nowhere", attribute(a, "href"))
		}
	}
	if planned := len(in.Run.Manifest.Cells); links != planned || len(parts) != planned {
		t.Errorf("%d links to %d parts, want %d of each", links, len(parts), planned)
	}
	for _, c := range in.Run.Decode {
		if c.ContextTokens != 8192 || c.File == "" {
			continue
		}
		n := strconv.Itoa(int(c.Concurrency))
		part := text(parts["d-8K-"+n])
		for _, want := range []string{c.SHA256, "inspect results/speculation --cell 8K:" + n, c.File, c.Status.String()} {
			if !strings.Contains(part, want) {
				t.Errorf("the part of 8K × %d has no %q", c.Concurrency, want)
			}
		}
	}
}

// The list of requests is cut, and says so.
func TestRequestListIsBounded(t *testing.T) {
	in := openRun(t, references[1].shared(t))
	out := filepath.Join(site(t, in), "runs", references[1].name)
	for _, s := range elements(parse(t, read(t, out, "cells.html")), "section") {
		if attribute(s, "id") != "d-8K-128" {
			continue
		}
		rows := len(elements(elements(s, "details")[0], "tr")) - 1
		if rows != 32 || !strings.Contains(text(s), "96 more are in the event file.") || !strings.Contains(text(s), "128 requests") {
			t.Errorf("%d rows of 128 requests, want 32 and a word about the other 96", rows)
		}
		return
	}
	t.Error("no part of 8K × 128")
}

// Foreign text on the page of measurements, and in drawings, is text.
func TestForeignTextInMeasurements(t *testing.T) {
	for _, h := range hostile {
		in := hostileRun(t, h.text)
		c := &in.Run.Decode[0]
		c.Requests = []ingest.Request{
			{Failed: true, Reason: h.text, End: runlog.KindError, FirstUs: -1, Tokens: -1, WindowTokens: -1, LongestGapUs: -1},
			{End: runlog.KindDone, FinishReason: h.text, FirstUs: 1, Tokens: 3, WindowTokens: 3, LongestGapUs: 2},
		}
		out := filepath.Join(site(t, in), "runs", in.Run.ID)
		for page, root := range map[string]*html.Node{
			"cells.html": parse(t, read(t, out, "cells.html")),
			"cells.md":   parseMarkdown(t, read(t, out, "cells.md")),
		} {
			checkElements(t, page, root)
			seen := 0
			for _, td := range elements(root, "td") {
				if strings.Contains(collapse(text(td)), collapse(h.seen)) {
					seen++
				}
			}
			if seen != 2 {
				t.Errorf("%s: %q is seen in %d rows of requests, want 2", page, h.text, seen)
			}
		}
	}
}

// The Markdown twin of the page of measurements has the same parts, tables
// and commands.
func TestTwinOfMeasurements(t *testing.T) {
	in := openRun(t, references[0].shared(t))
	out := filepath.Join(site(t, in), "runs", references[0].name)
	page, twin := parse(t, read(t, out, "cells.html")), parseMarkdown(t, read(t, out, "cells.md"))
	for _, kind := range []string{"h1", "h2", "summary", "code", "th td"} {
		texts := func(root *html.Node) (list []string) {
			for n := range root.Descendants() {
				if n.Type == html.ElementNode && slices.Contains(strings.Fields(kind), n.Data) {
					list = append(list, collapse(text(n)))
				}
			}
			return list
		}
		want := texts(page)
		if len(want) == 0 {
			t.Errorf("the page has no %s", kind)
		}
		if diff := cmp.Diff(want, texts(twin)); diff != "" {
			t.Errorf("%s (-page +twin):\n%s", kind, diff)
		}
	}
	for _, c := range in.Run.Decode {
		if at := "](raw/" + c.File + ")"; c.File != "" && !strings.Contains(read(t, out, "cells.md"), at) {
			t.Errorf("the twin has no link %s", at)
		}
	}
}

// Requests of a prefill have no window that their instants could count from.
func TestInstantsOfRequestsCountFromWhatIsThere(t *testing.T) {
	out := filepath.Join(site(t, openRun(t, references[0].shared(t))), "runs", references[0].name)
	for _, s := range elements(parse(t, read(t, out, "cells.html")), "section") {
		requests := elements(s, "details")
		if len(requests) == 0 {
			continue
		}
		want := "seconds since the window opened"
		if strings.HasPrefix(attribute(s, "id"), "prefill-") {
			want = "seconds since the run began"
		}
		if got := text(elements(requests[0], "caption")[0]); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", attribute(s, "id"), got, want)
		}
	}
}

// What is copied from the launch command is the command, on one line.
func TestLaunchCommandIsOneLineThatWrapsAtFlags(t *testing.T) {
	out := filepath.Join(site(t, openRun(t, references[1].shared(t))), "runs", references[1].name)
	code := elements(parse(t, read(t, out, "index.html")), "code")
	var command *html.Node
	for _, c := range code {
		if strings.HasPrefix(text(c), "env ") {
			command = c
		}
	}
	if command == nil {
		t.Fatal("no launch command")
	}
	if s := text(command); strings.Contains(s, "\n") || !strings.Contains(read(t, out, "index.md"), "\n"+s+"\n") {
		t.Errorf("the command of the page is %q, which is not that of its Markdown twin", s)
	}
	for _, span := range elements(command, "span") {
		if !strings.HasPrefix(text(span), "-") {
			t.Errorf("a line begins with %q, want a flag", text(span))
		}
	}
	if n := len(elements(command, "span")); n != 12 {
		t.Errorf("%d flags, want 12", n)
	}
}

// Every check says what was found and what it means, and those that are off
// are marked.
func TestTrustBox(t *testing.T) {
	in := openRun(t, references[1].shared(t))
	c := &in.Run.Decode[2]
	c.Checks.ServerTokens, c.Checks.ClientTokens = ingest.Stat{Value: 1000, N: 30}, ingest.Stat{Value: 970, N: 900}
	c.Checks.LateChunkShare = ingest.Stat{Value: 0.0123, N: 9000}
	c.Figures.TTFTUs.Value /= 2
	c.Figures.CachedShare = ingest.Stat{Value: 0.987, N: 4}
	out := filepath.Join(site(t, in), "runs", references[1].name)
	var got []string
	for _, dl := range elements(parse(t, read(t, out, "index.html")), "dl") {
		if attribute(dl, "class") != "checks" {
			continue
		}
		for _, div := range elements(dl, "div") {
			dt, dd, means := elements(div, "dt")[0], elements(div, "dd")[0], elements(div, "small")
			if len(means) != 1 || text(means[0]) == "" {
				t.Errorf("%s does not say what it means", text(dt))
			}
			if look := attribute(div, "class") == "look"; look != strings.Contains(text(dt), "worth a look") {
				t.Errorf("%s is marked by its class or its words only", text(dt))
			}
			got = append(got, text(dt)+": "+strings.TrimSuffix(text(dd), text(means[0])))
		}
	}
	want := []string{
		"Valid measurements: 45 of 46",
		"Launches of the server: 1",
		"Requests behind the medians: 1 (64K, 1 request) to 128 (8K, 128 requests at once)",
		"Halves of a window worth a look: differ by 8.7 % at most (16K, 16 requests at once)",
		"Total against the sum of requests: differ by 6.9 % at most (8K, 32 requests at once)",
		"TTFT under load worth a look: falls in 1 place; most at 8K context, from 2 to 4 at once: 50 ms to 40 ms",
		"Length of the windows: up to 3.4 s longer than planned (8K, 128 requests at once)",
		"The benchmark's own lag: 1.2 % of the events at most were read late and share a time (8K, 4 requests at once)",
		"Prompts from the server's cache: decode 98.7 % at least, prefill 0.0 % at most",
		"Tokens by the server's own count worth a look: the benchmark's is off by 3.0 % at most (8K, 4 requests at once; 1 measurement compared)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the trust box (-want +got):\n%s", diff)
	}
}

// The percentiles of the page are in index.json as well, unrounded.
func TestPercentilesAreInIndexJSON(t *testing.T) {
	in := openRun(t, references[1].shared(t))
	var d struct {
		Decode []struct {
			Concurrency   int32
			ContextTokens int32 `json:"context_tokens"`
			Status        string
			Percentiles   map[string]map[string]struct {
				Value *float64
				N     int
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, site(t, in), "runs", references[1].name, "index.json")), &d); err != nil {
		t.Fatal(err)
	}
	for i, c := range d.Decode {
		want := &in.Run.Decode[i]
		if c.Status != "valid" {
			if c.Percentiles != nil {
				t.Errorf("cell %d is %s and has percentiles", i, c.Status)
			}
			continue
		}
		for name, p := range map[string]ingest.Percentiles{"ttft_us": want.Spread.TTFTUs, "gap_us": want.Spread.GapUs} {
			for which, s := range map[string]ingest.Stat{"p5": p.P5, "p50": p.P50, "p99": p.P99, "max": p.Max} {
				if got := c.Percentiles[name][which]; got.Value == nil || *got.Value != s.Value || got.N != s.N {
					t.Errorf("%s × %d: %s of %s is %+v, want %+v", want.Key().Name(), c.Concurrency, which, name, got, s)
				}
			}
		}
		if f := want.Figures; f.GapP99Us != want.Spread.GapUs.P99 || f.TTFTUs != want.Spread.TTFTUs.P50 {
			t.Errorf("%s: the figures are %+v and %+v, the percentiles %+v and %+v", want.Key().Name(), f.GapP99Us, f.TTFTUs, want.Spread.GapUs.P99, want.Spread.TTFTUs.P50)
		}
	}
}
