package ingest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"speedmatrix/ingest/runlog"
)

// A tape makes the events of one cell.
type tape struct{ ev runlog.Events }

func newTape(phase runlog.Phase, context, concurrency int32) *tape {
	return &tape{runlog.Events{Key: runlog.Key{Phase: phase, ContextTokens: context, Concurrency: concurrency}}}
}

// add appends a row and numbers it.
func (tp *tape) add(stream, request int32, e runlog.Event) {
	e.Stream, e.Request = stream, request
	if n := tp.ev.Len(); n > 0 && tp.ev.Stream[n-1] == stream && tp.ev.Request[n-1] == request {
		e.Seq = tp.ev.Seq[n-1] + 1
	}
	tp.ev.Append(e)
}

// script appends one request in the notation of the cases: one line is one
// event, T KIND ARGUMENTS, with T in milliseconds after sentUs. Beside the
// kinds of the cases there are ERR "reason" status, CANCEL, and EMPTY n for
// a chunk without text that carries tokens.
func (tp *tape) script(t testing.TB, stream, request int32, sentUs int64, text string) {
	t.Helper()
	tp.add(stream, request, runlog.NewEvent(runlog.KindSent, sentUs))
	running := int64(0)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		ms, err := strconv.ParseFloat(f[0], 64)
		if err != nil {
			t.Fatalf("script line %q: %v", line, err)
		}
		num := func(i int) int32 {
			n, err := strconv.Atoi(f[i])
			if err != nil {
				t.Fatalf("script line %q: %v", line, err)
			}
			return int32(n)
		}
		quoted := func() string {
			q, err := strconv.QuotedPrefix(line[strings.IndexByte(line, '"'):])
			if err != nil {
				t.Fatalf("script line %q: %v", line, err)
			}
			s, _ := strconv.Unquote(q)
			return s
		}
		e := runlog.NewEvent(runlog.KindChunk, sentUs+int64(ms*1000))
		switch f[1] {
		case "200":
			e.Kind, e.Status = runlog.KindHeaders, 200
		case "ROLE":
			e.HasText, e.Tokens = true, 0
		case "C", "R", "CU", "TOOL", "MIX":
			e.HasText, e.Text = true, quoted()
			e.Channel = map[string]runlog.Channel{"C": runlog.ChannelContent, "CU": runlog.ChannelContent,
				"R": runlog.ChannelReasoning, "TOOL": runlog.ChannelTool, "MIX": runlog.ChannelMixed}[f[1]]
			if e.Text == "" {
				e.Channel = runlog.ChannelNone
			}
			if f[1] == "CU" {
				e.CompletionTokens = num(len(f) - 1)
				e.Tokens = e.CompletionTokens - int32(running)
				running = int64(e.CompletionTokens)
			}
		case "EMPTY":
			e.HasText, e.Tokens = true, num(2)
		case "FIN":
			e.HasText, e.FinishReason = true, f[2]
		case "USAGE":
			e.Kind, e.Tokens = runlog.KindUsage, 0
			e.PromptTokens, e.CompletionTokens = num(2), num(3)
		case "CACHED":
			e.Kind, e.Tokens = runlog.KindUsage, 0
			e.PromptTokens, e.CachedTokens, e.CompletionTokens = num(2), num(3), 1
		case "DONE":
			e.Kind = runlog.KindDone
		case "CANCEL":
			e.Kind = runlog.KindCancelled
		case "ERR":
			e.Kind, e.Error, e.Status = runlog.KindError, quoted(), num(len(f)-1)
		default:
			t.Fatalf("script line %q: unknown kind %q", line, f[1])
		}
		tp.add(stream, request, e)
	}
}

// steady appends one request with n one-token events, the first at firstUs,
// one each gapUs, and an end of the given kind at endUs.
func (tp *tape) steady(stream, request int32, sentUs, firstUs, gapUs int64, n int, end runlog.Kind, endUs int64) {
	tp.add(stream, request, runlog.NewEvent(runlog.KindSent, sentUs))
	for i := range n {
		e := runlog.NewEvent(runlog.KindChunk, firstUs+int64(i)*gapUs)
		e.Tokens, e.CompletionTokens, e.PromptTokens = 1, int32(i+1), tp.ev.Key.ContextTokens
		e.HasText, e.Text, e.Channel = true, fmt.Sprintf("w%d-%d ", stream, i*7919%1000003), runlog.ChannelContent
		tp.add(stream, request, e)
	}
	if end != 0 {
		tp.add(stream, request, runlog.NewEvent(end, endUs))
	}
}

// manifest is a finished run that counted tokens and kept texts.
func manifest() *runlog.Manifest {
	return &runlog.Manifest{
		Finished: true, ArrivalClock: runlog.ArrivalUser,
		Server:   runlog.Server{Metrics: "available"},
		Capacity: runlog.Capacity{KVCacheTokens: 1 << 20, Engines: 1},
		Plan: runlog.Plan{
			MaxOutputTokens: 4096, TokenCounting: "continuous usage", Text: "full",
			Sampling: runlog.Sampling{IgnoreEOS: true},
		},
	}
}

// planned is the recorded cell of a tape; window is [open, close], or empty.
func (tp *tape) planned(window ...int64) runlog.Cell {
	k := tp.ev.Key
	c := runlog.Cell{Phase: k.Phase, ContextTokens: k.ContextTokens, Concurrency: k.Concurrency, Outcome: runlog.OutcomeRecorded}
	if len(window) == 2 {
		c.WindowOpenUs, c.WindowCloseUs = &window[0], &window[1]
	}
	return c
}

// healthy is telemetry by which nothing is wrong with a cell of c requests.
func healthy(c int, open, close int64) []runlog.Sample {
	var out []runlog.Sample
	for t := open; t <= close; t += 1_000_000 {
		out = append(out,
			runlog.Sample{TUs: t, Source: runlog.SourceServer, Name: runlog.MetricRequestsRunning, Value: float64(c)},
			runlog.Sample{TUs: t, Source: runlog.SourceServer, Name: runlog.MetricRequestsWaiting},
			runlog.Sample{TUs: t, Source: runlog.SourceClient, Name: runlog.MetricTimerLatenessP99, Value: 90},
		)
	}
	return out
}

// one folds a decode cell of one request given as a script, in a window
// that covers everything, without asking for a certain length.
func one(t testing.TB, script string) (Cell, Request) {
	t.Helper()
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.script(t, 0, 0, 1000, script)
	m := manifest()
	m.Plan.Sampling.IgnoreEOS = false
	c := Fold(m, tp.planned(0, 60_000_000), &tp.ev, healthy(1, 0, 60_000_000))
	if len(c.Requests) != 1 {
		t.Fatalf("got %d requests, want 1", len(c.Requests))
	}
	return c, c.Requests[0]
}

// statuses returns which statuses have evidence, in order, each once.
func statuses(c Cell) string {
	var out []string
	for _, e := range c.Evidence {
		if w := e.Status.String(); len(out) == 0 || out[len(out)-1] != w {
			out = append(out, w)
		}
	}
	return strings.Join(out, ", ")
}
