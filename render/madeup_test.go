package render_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// madeUpRun is everything that the reference runs are not: one context, two
// GPUs, contexts whose labels are equal, few facts, every status, figures
// that are not there or not finite, an interruption, notes.
func madeUpRun(t *testing.T) render.Input {
	t.Helper()
	stat := func(v float64) ingest.Stat { return ingest.Stat{Value: v, N: 3} }
	valid := ingest.Figures{
		TotalTokPerS: stat(12345.678), OutputTokens: stat(370370), WindowUs: stat(30_000_000), PerRequestTokPerS: stat(9_999.95),
		TTFTUs: stat(38_500), BetweenTokensUs: stat(4_450), ActiveRequests: stat(0.96), CompletedRequests: stat(0),
		GapP90Us: stat(5_000), GapP99Us: stat(7_250), GapMaxUs: stat(1_234_567), TokensPerEvent: stat(3.405),
		FirstHalfTokPerS: stat(12_000), SecondHalfTokPerS: stat(12_691.4), SlowestTokPerS: stat(9_000), FastestTokPerS: stat(math.Inf(1)),
	}
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix"}, StartedAt: time.Date(2026, 2, 28, 23, 59, 59, 0, time.UTC),
		Engine:   runlog.Engine{Commit: fact("abc"), LaunchCommand: &runlog.Command{Args: []string{"serve", "a b"}}, Environment: &runlog.Environment{Variables: map[string]string{"VLLM_B": "1", "A": "x y"}}},
		Model:    runlog.Model{ServedName: "tiny"},
		Hardware: runlog.Hardware{GPUs: []runlog.GPU{{Name: "NVIDIA H200", VRAMBytes: 143_771 << 20}, {Name: "NVIDIA H200", VRAMBytes: 143_771 << 20}}},
		Plan:     runlog.Plan{DurationUs: 2_500_000, DecodeTest: "fixed duration"},
	}
	run := &ingest.Run{ID: "made up", Manifest: m, Notes: []string{"server metrics were not available (404 Not Found)"}}
	add := func(list *[]ingest.Cell, phase runlog.Phase, context, concurrency int32, s ingest.Status, f ingest.Figures, change func(*ingest.Cell)) {
		c := ingest.Cell{Cell: runlog.Cell{Phase: phase, ContextTokens: context, Concurrency: concurrency}, Status: s, Figures: f}
		if s != ingest.Valid {
			c.Evidence = []ingest.Evidence{{Status: s, Text: "because of " + s.Slug(), Stream: -1, Request: -1, TUs: -1}}
		}
		if change != nil {
			change(&c)
		}
		*list = append(*list, c)
		m.Cells = append(m.Cells, c.Cell)
	}
	add(&run.Prefill, runlog.PhasePrefill, 8200, 1, ingest.Valid, ingest.Figures{PrefillTokPerS: stat(1_234_567), TTFTUs: stat(6_642), CompletedRequests: stat(3)}, nil)
	add(&run.Prefill, runlog.PhasePrefill, 8192, 1, ingest.Cached, ingest.Figures{PrefillTokPerS: stat(99_999)}, nil)
	add(&run.Prefill, runlog.PhasePrefill, 500, 1, ingest.Valid, ingest.Figures{PrefillTokPerS: stat(math.NaN())}, nil)
	for i, s := range []ingest.Status{ingest.Valid, ingest.UnderFilled, ingest.Looped, ingest.ClientLimited, ingest.NotRun, ingest.Failed, ingest.OverCapacity} {
		add(&run.Decode, runlog.PhaseDecode, 8192, int32(1)<<(6-i), s, valid, func(c *ingest.Cell) {
			switch s {
			case ingest.Failed:
				c.Launch = ingest.Counts{Launched: 5, Failed: 2, Cancelled: 3}
				c.Evidence = []ingest.Evidence{
					{Status: s, Text: `"connection reset"`, Stream: 1, Request: 0, TUs: 12_345_678},
					{Status: s, Text: `"another"`, Stream: 0, Request: 0, TUs: 13_000_000},
					{Status: ingest.UnderFilled, Text: "x", Stream: -1, Request: -1, TUs: -1},
				}
			case ingest.Valid:
				c.Notes = []string{"warm-up timed out", "not steady"}
			}
		})
	}
	dir := filepath.Join(t.TempDir(), run.ID)
	writeFile(t, filepath.Join(dir, runlog.ManifestFile), "{}\n")
	notes := "# About\n\nTwo *launches* were thrown away.\n"
	writeFile(t, filepath.Join(dir, runlog.NotesFile), notes)
	return render.Input{Run: run, Dir: dir, Notes: []byte(notes)}
}

func TestMadeUpRun(t *testing.T) {
	in := madeUpRun(t)
	out := site(t, in)
	page, md := read(t, out, "runs", in.Run.ID, "index.html"), read(t, out, "runs", in.Run.ID, "index.md")
	golden(t, "madeup.html", page)
	golden(t, "madeup.md", md)
	golden(t, "madeup.json", read(t, out, "runs", in.Run.ID, "index.json"))
	golden(t, "madeup.csv", read(t, out, "runs", in.Run.ID, "cells.csv"))
	golden(t, "index.html", read(t, out, "index.html"))
	golden(t, "index.md", read(t, out, "index.md"))

	got := mainSections(t, page)
	if diff := cmp.Diff(got, mainSections(t, markdownToHTML(t, md)), cmp.AllowUnexported(document{})); diff != "" {
		t.Errorf("the HTML page and its Markdown twin differ (-HTML +Markdown):\n%s", diff)
	}
	want := strings.Split(strings.TrimSpace(`
Speed test matrix
tiny on 2 × H200 140GB
1 context (8192) × 7 concurrency levels (1–64) · prefill at 500, 8192, 8200
Hardware
GPU
2 × H200
VRAM
2 × 140 GB
Engine
Commit
abc
Run
Served model
tiny
Benchmark tool
speedmatrix
Decode test
Fixed duration
Time per measurement
2.5 s
Launch command
env A='x y' VLLM_B=1 serve 'a b'
Prefill
prompt tok/s by context length
500 context
—
— TTFT
8192 context
Cached
8200 context
1.2M
7 ms TTFT
Sustained decode
total tok/s · rows are context length, columns are simultaneous requests
| Context | 1 | 2 | 4 | 8 | 16 | 32 | 64 |
| 8192 | Over capacity | Failed | Not run | Client limited | Looped | Under-filled | 12.3K38 ms TTFT |
Looped: the model kept repeating the same text, so the benchmark discarded this measurement. Over capacity: not run because this many requests at this context would exceed the server's KV cache. Not run: the benchmark was stopped before it reached this measurement. Failed: the server did not answer every request of this measurement. Client limited: the benchmark itself could not keep up, so this says nothing about the server. Under-filled: the server did not run this many requests at once, so fewer were measured. Cached: part of the prompt was already in the server's cache, so this is not a prefill speed.
TTFT is measured after the benchmark warms the server's prompt cache, so it mostly excludes prefill.
All measurements
Latencies are medians. Total tok/s is output across all simultaneous requests.
| Phase | Context | Requests at once | Status | Total tok/s | Per request tok/s | TTFT | Time between tokens | Average active requests | Completed requests | Output tokens | Measured for |
| Prefill | 500 | 1 | Valid | — | — | — | — | — | — | — | — |
| Prefill | 8192 | 1 | Cached | — | — | — | — | — | — | — | — |
| Prefill | 8200 | 1 | Valid | 1.2M | — | 7 ms | — | — | 3 | — | — |
| Sustained decode | 8192 | 1 | Over capacity | — | — | — | — | — | — | — | — |
| Sustained decode | 8192 | 2 | Failed | — | — | — | — | — | — | — | — |
| Sustained decode | 8192 | 4 | Not run | — | — | — | — | — | — | — | — |
| Sustained decode | 8192 | 8 | Client limited | — | — | — | — | — | — | — | — |
| Sustained decode | 8192 | 16 | Looped | — | — | — | — | — | 0 | 0 | — |
| Sustained decode | 8192 | 32 | Under-filled | — | — | — | — | — | — | — | — |
| Sustained decode | 8192 | 64 | Valid | 12.3K | 10,000.0 | 38 ms | 4.4 ms | 1.0 | 0 | 370,370 | 30.0 s |
`), "\n")
	legend := want[slices.IndexFunc(want, func(s string) bool { return strings.HasPrefix(s, "Looped: ") })]
	want = append(want, legend)
	if diff := cmp.Diff(want, got.lines); diff != "" {
		t.Errorf("the page (-want +got):\n%s", diff)
	}
	for _, s := range []string{"NaN", "Inf", ">-0"} {
		if strings.Contains(page, s) {
			t.Errorf("the page has %q", s)
		}
	}
}

// Without any planned cell there is still an honest page.
func TestRunWithoutCells(t *testing.T) {
	in := madeUpRun(t)
	in.Run = &ingest.Run{ID: "empty", Manifest: &runlog.Manifest{Finished: true}}
	out := site(t, in)
	page := read(t, out, "runs/empty/index.html")
	if got, want := mainSections(t, page).lines, []string{"Speed test matrix", "Unknown model"}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := read(t, out, "runs/empty/cells.csv"); strings.Count(got, "\n") != 1 {
		t.Errorf("cells.csv has %q, want the header only", got)
	}
}

func TestHeadings(t *testing.T) {
	gpu := func(name string, gib int64) runlog.GPU { return runlog.GPU{Name: name, VRAMBytes: gib << 30} }
	for _, c := range []struct {
		rule     string
		model    runlog.Model
		hardware runlog.Hardware
		want     string
	}{
		{"vendor left out, last part of the repository", runlog.Model{Repository: "org/m", ServedName: "s"}, runlog.Hardware{GPUs: []runlog.GPU{gpu("NVIDIA L4", 24)}}, "m on L4 24GB"},
		{"a name that only begins like the vendor's", runlog.Model{Repository: "m"}, runlog.Hardware{GPUs: []runlog.GPU{gpu("NVIDIAX 1", 24)}}, "m on NVIDIAX 1 24GB"},
		{"memory unknown", runlog.Model{Repository: "m/"}, runlog.Hardware{GPUs: []runlog.GPU{gpu("AMD MI300X", 0)}}, "m on AMD MI300X"},
		{"different GPUs", runlog.Model{Repository: "m"}, runlog.Hardware{GPUs: []runlog.GPU{gpu("A", 1), gpu("B", 2), gpu("A", 1)}}, "m on 2 × A 1GB + B 2GB"},
		{"no GPU", runlog.Model{Repository: "m"}, runlog.Hardware{CPU: "EPYC 9654"}, "m on EPYC 9654"},
		{"no hardware known", runlog.Model{ServedName: "s"}, runlog.Hardware{}, "s"},
		{"nothing known", runlog.Model{}, runlog.Hardware{}, "Unknown model"},
	} {
		in := madeUpRun(t)
		in.Run.Manifest.Model, in.Run.Manifest.Hardware = c.model, c.hardware
		if got := mainSections(t, read(t, site(t, in), "runs", in.Run.ID, "index.html")).lines[1]; got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}
