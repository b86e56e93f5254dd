package browsertest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

// hostile is text that a server, a GPU driver or a person may send.
const hostile = `</script><img src=//elsewhere.example/x onerror=alert(1)>&"'{{.}}`

// endless has no place to break a line.
var endless = strings.Repeat("Unbreakable", 30)

// A facts says what differs between the runs.
type facts struct {
	name, model, commit, gpu, quantization string
	started                                time.Time
	speed                                  float64 // 1 is ordinary
	driver                                 string  // "": 610.1
}

// writeRuns writes runs below root and returns their directories: two of one
// series, with every status in each, one with hostile names, and a history
// (its names begin with "step") in which the sixth commit is slower, and from
// the ninth on another driver is there.
func writeRuns(t *testing.T, root string) []string {
	t.Helper()
	day := func(d int) time.Time { return time.Date(2026, 11, d, 10, 15, 0, 0, time.UTC) }
	var dirs []string
	list := []facts{
		{"older", "example/plain-8b", "1111111111aa", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "BF16", day(1), 1, ""},
		{"newer", "example/plain-8b", "2222222222bb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "BF16", day(9), 1.1, ""},
		{"hostile", hostile + endless, "3333333333cc", hostile + endless, hostile, day(5), 0.5, ""},
	}
	for i := range 10 {
		f := facts{fmt.Sprintf("step-%d", i), "example/stepped-1b", fmt.Sprintf("44444444%02d44", i), "NVIDIA H200", "BF16", day(10 + i), 1 + 0.001*float64(i%4), ""}
		if i >= 5 {
			f.speed *= 0.9
		}
		if i >= 8 {
			f.driver = "620.2"
		}
		list = append(list, f)
	}
	for _, f := range list {
		dir := filepath.Join(root, f.name)
		writeRun(t, dir, f)
		dirs = append(dirs, dir)
	}
	return dirs
}

const (
	second  = int64(1e6)
	spacing = 60 * second // from the beginning of one measurement to the next
	window  = 10 * second
)

// writeRun writes a run with every status in it.
func writeRun(t *testing.T, dir string, f facts) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "cells"), 0o755); err != nil {
		t.Fatal(err)
	}
	said := func(v string) *runlog.Fact { return &runlog.Fact{Value: v, Source: runlog.FromServer} }
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix", Version: "v0"}, StartedAt: f.started,
		ArrivalClock: runlog.ArrivalUser, // not finished: one measurement was not reached
		Engine: runlog.Engine{
			Name: said("vllm"), Version: said("0.32.0.dev" + f.commit[8:10] + "+g" + f.commit), Commit: said(f.commit), Repository: said("github.com/vllm-project/vllm"), Quantization: said(f.quantization),
			LaunchCommand: &runlog.Command{Source: runlog.FromProcess, Args: []string{"vllm", "serve", f.model, "--max-model-len", "131072", "--kv-cache-dtype", "fp8", "--enable-prefix-caching"}},
		},
		Model:    runlog.Model{Repository: f.model, ServedName: f.model},
		Hardware: runlog.Hardware{Type: "Discrete GPU", OS: "linux", CPU: f.gpu, GPUs: []runlog.GPU{{Name: f.gpu, VRAMBytes: 96 << 30, Driver: cmp.Or(f.driver, "610.1")}}},
		Capacity: runlog.Capacity{KVCacheTokens: 400_000, Engines: 1, Source: f.quantization},
		Plan: runlog.Plan{
			ContextsTokens: []int32{8192, 32768, 131072}, Concurrency: []int32{1, 2, 4, 8}, PrefillContextsTokens: []int32{8192, 32768, 131072},
			DurationUs: window, MaxOutputTokens: 4096, PrefillRepeats: 1, PromptSet: "prose", Text: "full", DecodeTest: "fixed duration",
			PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage", Sampling: runlog.Sampling{TopP: 1},
		},
	}
	var samples []runlog.Sample
	at := spacing
	add := func(phase runlog.Phase, context, concurrency int32, kind string) {
		c := runlog.Cell{Phase: phase, ContextTokens: context, Concurrency: concurrency, Outcome: runlog.OutcomeRecorded}
		open, shut := at+10*second, at+10*second+window
		running, lateness := float64(concurrency), 50.0
		var ev *runlog.Events
		switch kind {
		case "over capacity":
			c.Outcome = runlog.OutcomeOverCapacity
		case "not run":
			c.Outcome = runlog.OutcomePending
		case "under-filled":
			running = 1
		case "client limited":
			lateness = 90_000
		}
		switch {
		case c.Outcome != runlog.OutcomeRecorded:
		case phase == runlog.PhasePrefill:
			ev = prefill(c.Key(), at, f.speed, kind)
		default:
			ev = decode(c.Key(), open, f.speed, kind)
			c.WindowOpenUs, c.WindowCloseUs, c.Ready = &open, &shut, &runlog.Ready{By: "streams", WaitedUs: second}
			for s := open; s <= shut; s += second {
				samples = append(samples,
					runlog.Sample{TUs: s, Source: runlog.SourceServer, Name: runlog.MetricRequestsRunning, Value: running},
					runlog.Sample{TUs: s, Source: runlog.SourceServer, Name: runlog.MetricRequestsWaiting},
					runlog.Sample{TUs: s, Source: runlog.SourceClient, Name: runlog.MetricTimerLatenessP99, Value: lateness})
			}
		}
		if ev != nil {
			info, err := runlog.WriteEvents(dir, ev)
			if err != nil {
				t.Fatal(err)
			}
			c.FileInfo = info
		}
		m.Cells = append(m.Cells, c)
		at += spacing
	}
	for i, kind := range []string{"valid", "cached", "valid"} {
		add(runlog.PhasePrefill, m.Plan.PrefillContextsTokens[i], 1, kind)
	}
	for i, row := range [][]string{
		{"valid", "valid", "valid", "under-filled"},
		{"looped", "failed", "client limited", "over capacity"},
		{"valid", "valid", "not run", "over capacity"},
	} {
		for j, kind := range row {
			add(runlog.PhaseDecode, m.Plan.ContextsTokens[i], m.Plan.Concurrency[j], kind)
		}
	}
	tel, err := runlog.WriteTelemetry(dir, samples)
	if err != nil {
		t.Fatal(err)
	}
	m.Telemetry = &tel
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	notes := "# About\n\nThe fan was *loud*. | a | table |\n\n" + strings.ReplaceAll(hostile, "\n", " ") + "\n\n```\n" + endless + "\n```\n"
	if err := os.WriteFile(filepath.Join(dir, runlog.NotesFile), []byte(notes), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A request appends the rows of one request.
type request struct {
	ev              *runlog.Events
	stream, request int32
	seq             int32
}

func (r *request) add(kind runlog.Kind, tUs int64, set func(*runlog.Event)) {
	e := runlog.NewEvent(kind, tUs)
	e.Stream, e.Request, e.Seq = r.stream, r.request, r.seq
	r.seq++
	if kind == runlog.KindHeaders {
		e.Status = 200
	}
	if set != nil {
		set(&e)
	}
	r.ev.Append(e)
}

func (r *request) chunk(tUs int64, tokens int32, text string) {
	r.add(runlog.KindChunk, tUs, func(e *runlog.Event) {
		e.Tokens, e.Channel, e.HasText, e.Text = tokens, runlog.ChannelContent, true, text
	})
}

// prefill is one prompt and its first token.
func prefill(key runlog.Key, at int64, speed float64, kind string) *runlog.Events {
	r := request{ev: &runlog.Events{Key: key}}
	first := at + int64(float64(key.ContextTokens)/speed*50)
	r.add(runlog.KindSent, at, nil)
	r.add(runlog.KindHeaders, at+500, nil)
	r.chunk(first, 1, "x")
	r.add(runlog.KindUsage, first+100, func(e *runlog.Event) {
		e.PromptTokens, e.CachedTokens, e.CompletionTokens = key.ContextTokens, 0, 1
		if kind == "cached" {
			e.CachedTokens = key.ContextTokens / 2
		}
	})
	r.add(runlog.KindDone, first+200, nil)
	return r.ev
}

// decode is streams that begin before the window and are cut off after it.
func decode(key runlog.Key, open int64, speed float64, kind string) *runlog.Events {
	ev := &runlog.Events{Key: key}
	gap := int64(float64(100_000+10_000*key.Concurrency+key.ContextTokens/4) / speed)
	for s := range key.Concurrency {
		r := request{ev: ev, stream: s}
		sent := open - 2*second + int64(s)*1000
		r.add(runlog.KindSent, sent, nil)
		r.add(runlog.KindHeaders, sent+500, nil)
		for n, tUs := 0, sent+30_000+10_000*int64(key.Concurrency); tUs < open+window; n++ {
			text := fmt.Sprintf("%d says %d. ", s, n)
			if kind == "looped" && s == 0 {
				text = strings.Repeat("and so it goes on and on, ", 16)
			}
			r.chunk(tUs, 5, text)
			if kind == "failed" && n == 20 {
				break
			}
			tUs += gap
			if n%17 == 16 {
				tUs += 2 * gap // a stall
			}
		}
		if kind == "failed" && s == 0 {
			r.add(runlog.KindError, open+window-second, func(e *runlog.Event) { e.Error = hostile })
			continue
		}
		r.add(runlog.KindCancelled, open+window, nil)
	}
	return ev
}
