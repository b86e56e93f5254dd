package ingest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest/runlog"
)

// sampleRun is a small run as the collector would record it.
func sampleRun(t testing.TB) (*runlog.Manifest, map[runlog.Key]*runlog.Events, []runlog.Sample) {
	t.Helper()
	m := manifest()
	m.Format, m.Tool.Name = runlog.Format, "speedmatrix"
	m.StartedAt = time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC)
	m.Finished = false
	m.Capacity.KVCacheTokens = 40_000
	p := &m.Plan
	p.ContextsTokens, p.Concurrency, p.PrefillContextsTokens = []int32{8192, 16384}, []int32{1, 2}, []int32{8192, 16384}
	p.DurationUs, p.PromptSet, p.DecodeTest, p.PrefillMode = 2_000_000, "p1", "fixed duration", "measured during decode warm-up"
	p.Sampling.TopP, p.Order = 1, []string{}

	cells := map[runlog.Key]*runlog.Events{}
	warm := newTape(runlog.PhaseWarmup, 16384, 1)
	warm.script(t, 0, 0, 0, "1700 C \"a\"\n1701 USAGE 16384 1\n1701 DONE")
	cells[warm.ev.Key] = &warm.ev
	for i, key := range p.Keys() {
		cell := runlog.Cell{Phase: key.Phase, ContextTokens: key.ContextTokens, Concurrency: key.Concurrency, Outcome: runlog.OutcomeRecorded}
		tp := newTape(key.Phase, key.ContextTokens, key.Concurrency)
		at := int64(i+1) * 10_000_000
		switch {
		case key.Phase == runlog.PhasePrefill:
			tp.script(t, 0, 0, at, fmt.Sprintf("200 C \"a\"\n201 USAGE %d 1\n201 DONE", key.ContextTokens))
		case key.ContextTokens == 16384 && key.Concurrency == 1:
			cell.Outcome = runlog.OutcomePending
		case key.ContextTokens == 16384:
			cell.Outcome, cell.Reason = runlog.OutcomeOverCapacity, "too long"
		default:
			for s := range key.Concurrency {
				tp.steady(s, 0, at, at+50_000, 10_000, 300, runlog.KindCancelled, at+3_100_000)
			}
			open, shut := at+1_000_000, at+3_000_000
			cell.WindowOpenUs, cell.WindowCloseUs = &open, &shut
		}
		if cell.Outcome == runlog.OutcomeRecorded {
			cells[key] = &tp.ev
		}
		m.Cells = append(m.Cells, cell)
	}
	slices.Reverse(m.Cells[:2]) // Build puts them in order
	return m, cells, nil
}

// write stores a run and fills in the manifest's file entries.
func write(t testing.TB, m *runlog.Manifest, cells map[runlog.Key]*runlog.Events, samples []runlog.Sample) (dir string) {
	t.Helper()
	dir, err := runlog.Create(t.TempDir(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	for key, ev := range cells {
		info, err := runlog.WriteEvents(dir, ev)
		if err != nil {
			t.Fatal(err)
		}
		if key.Phase == runlog.PhaseWarmup {
			m.Warmup = &runlog.Warmup{ContextTokens: key.ContextTokens, FileInfo: info}
		}
		for i := range m.Cells {
			if m.Cells[i].Key() == key {
				m.Cells[i].FileInfo = info
			}
		}
	}
	if samples != nil {
		tel, err := runlog.WriteTelemetry(dir, samples)
		if err != nil {
			t.Fatal(err)
		}
		m.Telemetry = &tel
	}
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBuildComposesARun(t *testing.T) {
	r := Build(sampleRunNamed(t, "run-1"))
	var got []string
	for _, c := range slices.Concat(r.Prefill, r.Decode) {
		key := c.Key()
		got = append(got, key.Name()+" "+c.Status.String())
	}
	want := []string{"prefill-8192 Valid", "prefill-16384 Valid", "decode-8192-c1 Valid", "decode-8192-c2 Valid", "decode-16384-c1 Not run", "decode-16384-c2 Over capacity"}
	if !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
	stat(t, "BR029 warm-up TTFT", r.Warmup.Figures.TTFTUs, 1_700_000, 1)
	stat(t, "BR029 prefill TTFT", r.Prefill[0].Figures.TTFTUs, 200_000, 1)
	stat(t, "cold TTFT of a decode cell", r.Decode[1].Figures.ColdTTFTUs, 200_000, 1)
	wantNotes := []string{
		"the run was stopped before its end: 1 of 6 measurements are missing",
		noteNoGauges, noteNoLateness, noteNoCache,
	}
	if !slices.Equal(r.Notes, wantNotes) {
		t.Errorf("notes %q, want %q", r.Notes, wantNotes)
	}
	for _, c := range slices.Concat(r.Prefill, r.Decode) {
		if len(c.Notes) > 0 {
			t.Errorf("%s: notes %q, want them said once for the run", c.File, c.Notes)
		}
	}
}

func sampleRunNamed(t testing.TB, id string) (string, *runlog.Manifest, map[runlog.Key]*runlog.Events, []runlog.Sample) {
	m, cells, tel := sampleRun(t)
	return id, m, cells, tel
}

func TestANoteOfOneCellStaysThere(t *testing.T) {
	m, cells, _ := sampleRun(t)
	var tel []runlog.Sample
	for _, c := range m.Cells {
		if c.WindowOpenUs != nil && c.Concurrency == 1 {
			tel = healthy(1, *c.WindowOpenUs, *c.WindowCloseUs)
		}
	}
	r := Build("x", m, cells, tel)
	if slices.Contains(r.Notes, noteNoLateness) || !hasNote(r.Decode[1], noteNoLateness) || hasNote(r.Decode[0], noteNoLateness) {
		t.Errorf("run %q, cells %q and %q, want the note in the cell that lacks the samples", r.Notes, r.Decode[0].Notes, r.Decode[1].Notes)
	}
	if !slices.Contains(r.Notes, noteNoGauges) {
		t.Errorf("run %q, want the note that concerns every cell with more than one request", r.Notes)
	}
}

func TestRunNotes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(m *runlog.Manifest)
		want   string
	}{
		{"BR085 no metrics", func(m *runlog.Manifest) { m.Server.Metrics = "404 Not Found" }, "server metrics were not available (404 Not Found)"},
		{"BR082 no capacity", func(m *runlog.Manifest) { m.Capacity = runlog.Capacity{} }, "the size of the server's KV cache was not known, so no measurement was left out because of it"},
		{"chunks", func(m *runlog.Manifest) { m.Plan.TokenCounting = "chunks" }, "the server did not report token counts, so tok/s and the time between tokens are unknown"},
		{"final usage", func(m *runlog.Manifest) { m.Plan.TokenCounting = "final usage" }, "the server reported token counts only at the end of a request, so requests that were cut off have none"},
		{"texts not kept", func(m *runlog.Manifest) { m.Plan.Text = "none" }, noteNoText},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, cells, tel := sampleRun(t)
			if r := Build("x", m, cells, tel); slices.Contains(r.Notes, tt.want) {
				t.Fatalf("notes %q already without the cause", r.Notes)
			}
			m, cells, tel = sampleRun(t)
			tt.change(m)
			if r := Build("x", m, cells, tel); !slices.Contains(r.Notes, tt.want) {
				t.Errorf("notes %q, want %q", r.Notes, tt.want)
			}
		})
	}
}

func TestLoadIsBuildOfTheFiles(t *testing.T) {
	m, cells, _ := sampleRun(t)
	slices.Reverse(m.Cells[:2])
	tel := healthy(2, 0, 60_000_000)
	dir := write(t, m, cells, tel)
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := Build("run-1", m, cells, tel)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Load differs from Build:\n%s", d)
	}
	key := runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 2}
	_, c, err := LoadCell(dir, key)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Decode[1].Figures, c.Figures); d != "" {
		t.Errorf("LoadCell differs from Build:\n%s", d)
	}
	key.Concurrency = 3
	if _, _, err := LoadCell(dir, key); !errors.Is(err, ErrNoCell) || !strings.Contains(err.Error(), "decode-8192-c3") {
		t.Errorf("LoadCell of an unknown cell: %v, want ErrNoCell with its name", err)
	}
}

func TestLoadRefusesADamagedRun(t *testing.T) {
	for _, file := range []string{"run.json", "telemetry.parquet", "cells/warmup.parquet", "cells/prefill-8192.parquet", "cells/decode-8192-c2.parquet"} {
		m, cells, _ := sampleRun(t)
		slices.Reverse(m.Cells[:2])
		dir := write(t, m, cells, healthy(2, 0, 60_000_000))
		path := filepath.Join(dir, filepath.FromSlash(file))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 0x55
		if file == "run.json" {
			data = data[:len(data)/2]
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s damaged: error %v, want one that names it", file, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s missing: error %v, want one that names it", file, err)
		}
	}
}
