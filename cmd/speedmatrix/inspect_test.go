package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// inspectRun writes a run with one prefill cell, a decode cell of three
// requests that anyone can compute by hand, and one that was not reached.
func inspectRun(t *testing.T) (dir string) {
	t.Helper()
	dir, err := runlog.Create(t.TempDir(), "tiny-run")
	if err != nil {
		t.Fatal(err)
	}
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix"}, ArrivalClock: runlog.ArrivalUser,
		StartedAt: time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC),
		Server:    runlog.Server{Metrics: "404 Not Found\x1b[2J"},
		Plan: runlog.Plan{
			ContextsTokens: []int32{8192}, Concurrency: []int32{1, 2}, PrefillContextsTokens: []int32{8192},
			DurationUs: 1_000_000, MaxOutputTokens: 4096, PromptSet: "p1", DecodeTest: "fixed duration",
			PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage", Text: "full",
			Sampling: runlog.Sampling{TopP: 1},
		},
	}
	open, shut := int64(10_000_000), int64(11_000_000)
	m.Cells = []runlog.Cell{
		{Phase: runlog.PhasePrefill, ContextTokens: 8192, Concurrency: 1, Outcome: runlog.OutcomeRecorded},
		{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1, Outcome: runlog.OutcomePending},
		{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 2, Outcome: runlog.OutcomeRecorded, WindowOpenUs: &open, WindowCloseUs: &shut},
	}
	for _, i := range []int{0, 2} {
		ev := &runlog.Events{Key: m.Cells[i].Key()}
		add := func(stream int32, kind runlog.Kind, tUs int64, tokens int32) {
			e := runlog.NewEvent(kind, tUs)
			e.Stream = stream
			if n := ev.Len(); n > 0 && ev.Stream[n-1] == stream {
				e.Request, e.Seq = ev.Request[n-1], ev.Seq[n-1]+1
				if kind == runlog.KindSent {
					e.Request, e.Seq = e.Request+1, 0
				}
			}
			if kind == runlog.KindChunk {
				e.Tokens, e.PromptTokens, e.HasText, e.Text, e.Channel = tokens, 8192, true, fmt.Sprint(tUs), runlog.ChannelContent
			}
			ev.Append(e)
		}
		if i == 0 {
			add(0, runlog.KindSent, 1_000_000, 0)
			add(0, runlog.KindChunk, 1_500_000, 1)
			add(0, runlog.KindDone, 1_500_100, 0)
		} else {
			add(0, runlog.KindSent, 9_900_000, 0)
			for t := int64(9_950_000); t <= 11_000_000; t += 50_000 { // 21 tokens after the open
				add(0, runlog.KindChunk, t, 1)
			}
			add(0, runlog.KindCancelled, 11_000_500, 0)
			add(1, runlog.KindSent, 9_900_000, 0)
			add(1, runlog.KindChunk, 10_000_000, 1)
			add(1, runlog.KindChunk, 10_500_000, 4)
			add(1, runlog.KindDone, 10_600_000, 0)
			add(1, runlog.KindSent, 10_600_000, 0) // and gets nothing any more
			add(1, runlog.KindCancelled, 11_000_500, 0)
		}
		if m.Cells[i].FileInfo, err = runlog.WriteEvents(dir, ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inspect runs the command and returns what it wrote.
func inspect(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if got := run(context.Background(), append([]string{"inspect"}, args...), &out, &errOut); got != status {
		t.Fatalf("inspect %q: exit status %d, want %d; stderr: %s", args, got, status, &errOut)
	}
	if (status == exitDone) != (errOut.Len() == 0) || status != exitDone && out.Len() > 0 {
		t.Fatalf("inspect %q: stdout %q, stderr %q; want data there or an error here", args, &out, &errOut)
	}
	return out.String(), errOut.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	var got []string
	for _, l := range strings.Split(text, "\n") {
		got = append(got, strings.Join(strings.Fields(l), " "))
	}
	for _, want := range lines {
		if !slices.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
}

func TestInspectOverview(t *testing.T) {
	out, _ := inspect(t, exitDone, inspectRun(t))
	wantLines(t, out,
		"tiny-run",
		"format runlog/1 · "+ingest.Method+" · not finished",
		"note the run was stopped before its end: 1 of 3 measurements are missing",
		`note server metrics were not available (404 Not Found\x1b[2J)`,
		"8K:1 Not run — — — — — — — 0 0",
		"8K:1: Not run: the run ended before this measurement",
	)
	rows := 0
	for _, l := range strings.Split(out, "\n") {
		f := strings.Fields(l)
		switch {
		case len(f) > 3 && f[0] == "prefill:8K" && f[1] == "Valid" && f[2] == "16384.0":
			rows++
		case len(f) > 3 && f[0] == "8K:2" && f[1] == "Valid" && f[2] == "24.0":
			rows++
		}
	}
	if rows != 2 {
		t.Errorf("want a row each for prefill:8K at 16384.0 and 8K:2 at 24.0 tok/s in\n%s", out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("the log's control characters reach the terminal: %q", out)
	}
}

func TestInspectCellShowsTheArithmetic(t *testing.T) {
	dir := inspectRun(t)
	out, _ := inspect(t, exitDone, dir, "--cell", "8k:2")
	wantLines(t, out,
		"status: Valid",
		"requests: 3 launched = 1 completed + 0 failed + 2 cancelled + 0 unfinished",
		"stream 0 request 0: first token 9.950000 s − sent 9.900000 s → 50.000 ms",
		"median of 2 = mean of 50.000 ms of stream 0 request 0 and 100.000 ms of stream 1 request 0 = 75.000 ms",
		"p90 95.000 ms, p99 99.500 ms, greatest 100.000 ms",   // TTFT
		"p90 117.500 ms, p99 124.250 ms, greatest 125.000 ms", // time between tokens
		"p90 18.8, p99 19.9, greatest 20.0",                   // per request tok/s
		"stream 0 request 0: first 9.950000 s (1 token), last 11.000000 s, n=22 → 50.000 ms",
		"stream 1 request 0: first 10.000000 s (1 token), last 10.500000 s, n=5 → 125.000 ms",
		"window: from 10.000000 s (not in it) to 11.000000 s (in it)",
		"stream 0 request 0: 20 of 22 tokens in 20 of 22 token events",
		"stream 1 request 0: 4 of 5 tokens in 1 of 2 token events",
		"total tok/s = 24 tokens / 1.000000 s = 24.0",
		"average active requests = 1.600000 s / 1.000000 s = 1.600",
		"stream 1 request 0 at 10.600000 s",
		"completed requests = 1",
		"the longest: stream 1 request 0, 500.000 ms up to 10.500000 s",
		"cold TTFT (of the scouts that measured this context's prefill) = 500.000 ms",
	)
	for _, name := range []string{"prefill:8192", "prefill-8192", "prefill:8K"} {
		out, _ = inspect(t, exitDone, dir, "--cell", name)
		wantLines(t, out, "stream 0 request 0: 8,192 prompt tokens / 0.500000 s → 16384.0")
	}
	out, _ = inspect(t, exitDone, dir, "--cell", "decode-8192-c1")
	wantLines(t, out, "status: Not run", "requests: 0 launched = 0 completed + 0 failed + 0 cancelled + 0 unfinished")
}

func TestInspectJSON(t *testing.T) {
	dir := inspectRun(t)
	out, _ := inspect(t, exitDone, dir, "--json")
	type figures map[string]*struct {
		Value float64
		N     int
	}
	var r struct {
		RunID  string `json:"run_id"`
		Decode []struct {
			Name, Status string
			Figures      figures
			Discarded    figures `json:"discarded_figures"`
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, out)
	}
	if r.RunID != "tiny-run" || len(r.Decode) != 2 || r.Decode[0].Status != "not-run" || r.Decode[0].Figures != nil {
		t.Fatalf("got %+v, want run tiny-run with a first decode cell that has no figures", r)
	}
	f := r.Decode[1].Figures
	if v := f["total_tok_per_s"]; v == nil || v.Value != 24 || v.N != 21 {
		t.Errorf("total_tok_per_s = %+v, want 24 over 21 events", v)
	}
	if v, ok := f["first_answer_us"]; !ok || v != nil {
		t.Errorf("first_answer_us = %v, %v, want null", v, ok)
	}

	out, _ = inspect(t, exitDone, dir, "--cell", "8K:2", "--json")
	var c struct {
		Requests []struct {
			SentUs       int64   `json:"sent_us"`
			HeadersUs    *int64  `json:"headers_us"`
			OutputTokens int64   `json:"output_tokens"`
			Between      float64 `json:"time_between_tokens_us"`
		}
	}
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, out)
	}
	if q := c.Requests; len(q) != 3 || q[1].SentUs != 9_900_000 || q[1].HeadersUs != nil || q[1].OutputTokens != 5 || q[1].Between != 125_000 {
		t.Errorf("requests %+v, want the second sent at 9900000 with 5 tokens, 125000 µs between them, no headers", q)
	}
}

func TestInspectErrors(t *testing.T) {
	dir := inspectRun(t)
	for _, tt := range []struct {
		name   string
		status int
		args   []string
		want   []string
	}{
		{"no run given", exitUsage, nil, []string{"got 0 runs, want one"}},
		{"two runs given", exitUsage, []string{"a", "b"}, []string{"got 2 runs, want one"}},
		{"a path that is not there", exitFailed, []string{filepath.Join(dir, "nosuch")}, []string{"nosuch", "run.json", "hint: RUN is a directory with a run.json"}},
		{"a directory of runs", exitFailed, []string{filepath.Dir(dir)}, []string{"run.json", "hint: there are runs below it: " + dir}},
		{"a cell that was not planned", exitFailed, []string{dir, "--cell", "8K:64"}, []string{"the run has no cell decode-8192-c64", "hint: it has prefill:8K 8K:1 8K:2"}},
		{"no cell", exitUsage, []string{dir, "--cell", ""}, []string{`--cell: got ""`}},
		{"a cell without a concurrency", exitUsage, []string{dir, "--cell", "32K"}, []string{`--cell: got "32K", want CONTEXT:CONCURRENCY`}},
		{"a concurrency of 0", exitUsage, []string{dir, "--cell", "32K:0"}, []string{`--cell: got "32K:0"`}},
		{"a context that is none", exitUsage, []string{dir, "--cell", "-1:1"}, []string{`--cell: got "-1:1"`}},
		{"a context beyond all bounds", exitUsage, []string{dir, "--cell", "9999999K:1"}, []string{`--cell: got "9999999K:1"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, stderr := inspect(t, tt.status, tt.args...)
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr %q, want %q in it", stderr, want)
				}
			}
		})
	}
}

func TestInspectHelpFitsAScreen(t *testing.T) {
	out, _ := inspect(t, exitDone, "--help")
	if out != inspectHelp || strings.Count(out, "\n") > 24 {
		t.Errorf("help has %d lines, want the text itself, 24 at most", strings.Count(out, "\n"))
	}
}
