package ingest

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest/runlog"
)

func TestStatus(t *testing.T) {
	const open, close = 1_000_000, 31_000_000
	// A healthy cell of two streams, 10 ms between tokens.
	recorded := func() *tape {
		tp := newTape(runlog.PhaseDecode, 8192, 2)
		for s := range int32(2) {
			tp.steady(s, 0, 0, 100_000, 10_000, 3200, runlog.KindCancelled, 32_000_000)
		}
		return tp
	}
	client := func(name string, tUs int64, v float64) runlog.Sample {
		return runlog.Sample{TUs: tUs, Source: runlog.SourceClient, Name: name, Value: v}
	}
	for _, tt := range []struct {
		name   string
		change func(x *recording)
		want   Status
		all    string // every status with evidence
		text   string // of the first evidence
		note   string // part of a note; "" none wanted
	}{
		{name: "nothing wrong is Valid", change: func(x *recording) {}, want: Valid},
		{name: "pending without events was not reached", change: func(x *recording) { x.ev, x.c.Outcome = nil, runlog.OutcomePending },
			want: NotRun, all: "Not run", text: "the run ended before this measurement"},
		{name: "pending with events was interrupted", change: func(x *recording) { x.c.Outcome = runlog.OutcomePending },
			want: NotRun, all: "Not run", text: "interrupted before its end; what had been recorded is kept"},
		{name: "recorded without a window", change: func(x *recording) { x.c.WindowOpenUs = nil },
			want: NotRun, all: "Not run", text: "its window never opened"},
		{name: "recorded without events", change: func(x *recording) { x.ev = nil },
			want: NotRun, all: "Not run", text: "recorded, but there are no events"},
		{name: "over capacity that the facts confirm", change: func(x *recording) {
			x.ev, x.c.Outcome, x.m.Capacity.KVCacheTokens = nil, runlog.OutcomeOverCapacity, 20_000
		}, want: OverCapacity, all: "Over capacity", text: "2 × (8,192 context + 4,096 output) tokens, more than the 20,000 tokens of the KV cache"},
		{name: "over capacity that the facts do not confirm", change: func(x *recording) {
			x.ev, x.c.Outcome, x.m.Capacity.KVCacheTokens = nil, runlog.OutcomeOverCapacity, 30_000
		}, want: NotRun, all: "Not run", text: "not sent as over capacity, but the recorded facts do not confirm it: 2 × (8,192 context + 4,096 output) tokens, at most the 30,000 tokens of the KV cache",
			note: "do not confirm"},
		{name: "the collector could not measure it", change: func(x *recording) {
			x.ev, x.c.Outcome, x.c.Reason = nil, runlog.OutcomeFailed, "server busy"
		}, want: Failed, all: "Failed", text: `it could not be measured: "server busy"`},
		{name: "no token in the window", change: func(x *recording) {
			o, c := int64(40_000_000), int64(50_000_000)
			x.c.WindowOpenUs, x.c.WindowCloseUs, x.tel = &o, &c, healthy(2, o, c)
		}, want: Failed, all: "Failed", text: "no token arrived in the window"},
		{name: "an aborted request", change: func(x *recording) {
			x.ev.Kind[len(x.ev.Kind)-1] = runlog.KindDone
			x.ev.FinishReason[len(x.ev.Kind)-2] = "abort"
			x.m.Plan.MaxOutputTokens = 3200
		}, want: Failed, all: "Failed", text: `request failed: the server aborted it (finish reason "abort")`, note: `"abort" 1`},
		{name: "a request that ends after the window still fails the cell", change: func(x *recording) {
			x.ev.Kind[len(x.ev.Kind)-1], x.ev.Error[len(x.ev.Kind)-1] = runlog.KindError, "connection reset"
			x.m.Plan.MaxOutputTokens = 3200
		}, want: Failed, all: "Failed", text: `request failed: "connection reset"`, note: "TTFT is the median of only 1 of 2 requests"},
		{name: "cancelled before the first token is no failure", change: func(x *recording) {
			tp := tape{*x.ev}
			tp.add(1, 1, runlog.NewEvent(runlog.KindSent, 32_000_000))
			tp.add(1, 1, runlog.NewEvent(runlog.KindCancelled, 32_000_001))
			x.ev = &tp.ev
		}, want: Valid},
		{name: "a timer 5 ms late", change: func(x *recording) {
			x.tel = append(x.tel, client(runlog.MetricTimerLatenessP99, 9_500_000, 5001))
		}, want: ClientLimited, all: "Client limited", text: "the benchmark's timers were up to 5,001 µs late (p99 of a second), more than the 1,000 µs a tenth of the time between tokens"},
		{name: "a timer late by a tenth of the time between tokens", change: func(x *recording) {
			x.tel = append(x.tel, client(runlog.MetricTimerLatenessP99, 9_500_000, 1000.5))
		}, want: ClientLimited, all: "Client limited", text: "the benchmark's timers were up to 1000.5 µs late (p99 of a second), more than the 1,000 µs a tenth of the time between tokens"},
		{name: "a timer late outside the window", change: func(x *recording) {
			x.tel = append(x.tel, client(runlog.MetricTimerLatenessP99, open-1, 9e6), client(runlog.MetricTimerLatenessP99, close+1, 9e6))
		}, want: Valid},
		{name: "kernel clock: late timers do not matter, late shared chunks at 5 % do not yet", change: func(x *recording) {
			x.m.ArrivalClock = runlog.ArrivalKernel
			x.tel = append(x.tel, client(runlog.MetricTimerLatenessP99, 9_500_000, 9e6),
				client(runlog.MetricChunks, open-5, 100), client(runlog.MetricChunks, close+5, 1100),
				client(runlog.MetricLateSharedChunks, open-5, 50), client(runlog.MetricLateSharedChunks, close+5, 100))
		}, want: Valid},
		{name: "kernel clock: over 5 % late shared chunks", change: func(x *recording) {
			x.m.ArrivalClock = runlog.ArrivalKernel
			x.tel = append(x.tel, client(runlog.MetricChunks, open, 100), client(runlog.MetricChunks, close, 1100),
				client(runlog.MetricLateSharedChunks, open, 50), client(runlog.MetricLateSharedChunks, close, 101))
		}, want: ClientLimited, all: "Client limited", text: "51 of 1,000 chunks were read so late that they share a time with an older one"},
		{name: "kernel clock without its counters is not judged", change: func(x *recording) { x.m.ArrivalClock = runlog.ArrivalKernel },
			want: Valid, note: noteNoLateness},
		{name: "no telemetry is not judged, and said", change: func(x *recording) { x.tel = nil },
			want: Valid, note: noteNoGauges},
		{name: "one request alone can't be under-filled", change: func(x *recording) {
			x.c.Concurrency = 1
			for i, s := range x.tel {
				if s.Name == runlog.MetricRequestsRunning {
					x.tel[i].Value = 0
				}
			}
		}, want: Valid},
		{name: "waiting in a tenth of the samples is allowed", change: waiting(3), want: Valid},
		{name: "waiting in more than a tenth is not", change: waiting(4), want: UnderFilled, all: "Under-filled",
			text: "requests were waiting in 4 of 31 samples, up to 1 of them"},
		{name: "texts that were not kept are not judged", change: func(x *recording) { x.m.Plan.Text = "none" }, want: Valid, note: noteNoText},
		{name: "hashed texts are not judged", change: func(x *recording) { x.m.Plan.Text = "hash" }, want: Valid, note: noteHashed},
		{name: "a window that opened at the time limit", change: func(x *recording) { x.c.Ready = &runlog.Ready{By: "timeout", TimedOut: true} },
			want: Valid, note: "warm-up timed out"},
		{name: "the first status wins, the others keep their evidence", change: func(x *recording) {
			x.ev.Kind[len(x.ev.Kind)-1], x.ev.Error[len(x.ev.Kind)-1] = runlog.KindError, "reset"
			waiting(9)(x)
			x.tel = append(x.tel, client(runlog.MetricTimerLatenessP99, 9_500_000, 9000))
		}, want: Failed, all: "Failed, Client limited, Under-filled", text: `request failed: "reset", ended early 3,200 of 4,096 tokens`,
			note: "1 of the 1 requests that ended by themselves ended early"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tp := recorded()
			x := recording{manifest(), tp.planned(open, close), &tp.ev, healthy(2, open, close)}
			tt.change(&x)
			c := x.fold()
			if c.Status != tt.want || statuses(c) != tt.all {
				t.Fatalf("status %s, evidence for %q, want %s, %q; evidence %v", c.Status, statuses(c), tt.want, tt.all, c.Evidence)
			}
			if tt.text != "" && c.Evidence[0].Text != tt.text {
				t.Errorf("evidence %q, want %q", c.Evidence[0].Text, tt.text)
			}
			if all := strings.Join(c.Notes, "\n"); !strings.Contains(all, tt.note) || tt.note == "" && all != "" {
				t.Errorf("notes %q, want %q", c.Notes, tt.note)
			}
		})
	}
}

// recording is everything that one cell is folded from.
type recording struct {
	m   *runlog.Manifest
	c   runlog.Cell
	ev  *runlog.Events
	tel []runlog.Sample
}

func (x *recording) fold() Cell { return Fold(x.m, x.c, x.ev, x.tel) }

// waiting makes a request wait in the first n scrapes.
func waiting(n int) func(*recording) {
	return func(x *recording) {
		left := n
		for i := range x.tel {
			if x.tel[i].Name == runlog.MetricRequestsWaiting && left > 0 {
				x.tel[i].Value = 1
				left--
			}
		}
	}
}

// randomRecording makes a plausible cell with requests of every kind.
func randomRecording(rnd *rand.Rand) *recording {
	streams := int32(1 + rnd.IntN(5))
	tp := newTape(runlog.PhaseDecode, 64, streams)
	for s := range streams {
		at := int64(rnd.IntN(1000))
		requests := int32(rnd.IntN(4))
		for q := range requests {
			tp.add(s, q, runlog.NewEvent(runlog.KindSent, at))
			total := int32(0)
			plain := rnd.IntN(4) == 0 // only a final usage
			for range rnd.IntN(30) {
				at += int64(rnd.IntN(3000))
				e := runlog.NewEvent(runlog.KindChunk, at)
				n := int32(rnd.IntN(4))
				total += n
				e.HasText = true
				if n > 0 || rnd.IntN(3) == 0 {
					e.Text, e.Channel = "word ", []runlog.Channel{runlog.ChannelReasoning, runlog.ChannelContent, runlog.ChannelMixed}[rnd.IntN(3)]
				}
				if !plain {
					e.Tokens, e.CompletionTokens = n, total
				}
				tp.add(s, q, e)
			}
			at += int64(rnd.IntN(500))
			end := []runlog.Kind{runlog.KindDone, runlog.KindDone, runlog.KindDone, runlog.KindError, runlog.KindCancelled, runlog.KindCancelled, 0}[rnd.IntN(7)]
			if end == 0 && q < requests-1 { // a stream goes on only after an end
				end = runlog.KindCancelled
			}
			if end == runlog.KindDone {
				u := runlog.NewEvent(runlog.KindUsage, at)
				u.PromptTokens, u.CompletionTokens, u.Tokens = 64, total, 0
				tp.add(s, q, u)
			}
			if end != 0 {
				tp.add(s, q, runlog.NewEvent(end, at))
			}
		}
	}
	x := &recording{m: manifest(), ev: &tp.ev}
	x.m.Plan.MaxOutputTokens, x.m.Plan.Sampling.IgnoreEOS = 40, rnd.IntN(2) == 0
	open := int64(rnd.IntN(20_000))
	x.c = tp.planned(open, open+1+int64(rnd.IntN(20_000)))
	x.tel = healthy(int(streams), open, *x.c.WindowCloseUs)
	return x
}

// rows returns all rows, one slice for each request, in file order.
func rows(ev *runlog.Events) [][]runlog.Event {
	var out [][]runlog.Event
	for i := range ev.Len() {
		e := ev.Row(i)
		if n := len(out); n == 0 || out[n-1][0].Stream != e.Stream || out[n-1][0].Request != e.Request {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], e)
	}
	return out
}

func TestFoldInvariants(t *testing.T) {
	const n = 500
	seen := map[string]int{}
	for i := range uint64(n) {
		rnd := rand.New(rand.NewPCG(i, 1))
		x := randomRecording(rnd)
		if err := x.ev.Check(); err != nil {
			t.Fatalf("recording %d: %v", i, err)
		}
		c := x.fold()

		l := c.Launch
		if l.Launched != l.Completed+l.Failed+l.Cancelled+l.Unfinished || l.Launched != len(c.Requests) {
			t.Fatalf("recording %d: %+v does not add up over %d requests", i, l, len(c.Requests))
		}
		if c.Status == Valid != (len(c.Evidence) == 0) {
			t.Fatalf("recording %d: %s with evidence %v", i, c.Status, c.Evidence)
		}
		if !slices.IsSortedFunc(c.Evidence, func(a, b Evidence) int { return int(a.Status) - int(b.Status) }) {
			t.Fatalf("recording %d: evidence %v is not in order of precedence", i, c.Evidence)
		}
		sum, whole := int64(0), true
		for _, r := range c.Requests {
			sum += max(r.WindowTokens, 0)
			whole = whole && r.WindowTokens >= 0
			if r.Failed && r.Reason == "" {
				t.Fatalf("recording %d: failed without a reason: %+v", i, r)
			}
		}
		g := c.Figures
		if g.OutputTokens.Known() && (!whole || float64(sum) != g.OutputTokens.Value) {
			t.Fatalf("recording %d: requests have %d tokens in the window (all known: %v), the cell %v", i, sum, whole, g.OutputTokens)
		}
		if g.ActiveRequests.Value > float64(c.Concurrency) {
			t.Fatalf("recording %d: %v active of %d", i, g.ActiveRequests, c.Concurrency)
		}
		for name, known := range map[string]bool{"total": g.TotalTokPerS.Known(), "between": g.BetweenTokensUs.Known(), "unfinished": l.Unfinished > 0, "failed": l.Failed > 0, "valid": c.Status == Valid} {
			if known {
				seen[name]++
			}
		}

		// Times have no zero.
		shifted := *x
		shift := func(t *int64) *int64 { v := *t + 77_777; return &v }
		ev := *x.ev
		ev.TUs = slices.Clone(ev.TUs)
		for k := range ev.TUs {
			ev.TUs[k] += 77_777
		}
		shifted.ev = &ev
		shifted.c.WindowOpenUs, shifted.c.WindowCloseUs = shift(x.c.WindowOpenUs), shift(x.c.WindowCloseUs)
		shifted.tel = healthy(int(c.Concurrency), *shifted.c.WindowOpenUs, *shifted.c.WindowCloseUs)
		if got := shifted.fold(); !reflect.DeepEqual(got.Figures, g) || got.Status != c.Status || !reflect.DeepEqual(got.Launch, l) {
			t.Fatalf("recording %d shifted: %s", i, cmp.Diff(g, got.Figures))
		}

		// It does not matter which stream a request ran in.
		requests := rows(x.ev)
		rnd.Shuffle(len(requests), func(a, b int) { requests[a], requests[b] = requests[b], requests[a] })
		permuted := *x
		permuted.ev = &runlog.Events{Key: x.ev.Key}
		for k, rs := range requests {
			for _, e := range rs {
				e.Stream, e.Request = 0, int32(k)
				permuted.ev.Append(e)
			}
		}
		if got := permuted.fold(); !reflect.DeepEqual(got.Figures, g) || got.Status != c.Status || !reflect.DeepEqual(got.Launch, l) {
			t.Fatalf("recording %d permuted: %s", i, cmp.Diff(g, got.Figures))
		}

		// Events that arrive together can be told as one, or as several.
		split := *x
		split.ev = &runlog.Events{Key: x.ev.Key}
		for _, rs := range requests {
			seq := int32(0)
			for _, e := range rs {
				if e.Kind == runlog.KindChunk && e.Tokens > 1 {
					first := e
					first.Tokens, first.CompletionTokens, first.Seq = 1, e.CompletionTokens-e.Tokens+1, seq
					split.ev.Append(first)
					e.Tokens, e.SameRead = e.Tokens-1, true
					seq++
				}
				e.Seq = seq
				split.ev.Append(e)
				seq++
			}
		}
		got := split.fold().Figures
		if got.TotalTokPerS.Value != g.TotalTokPerS.Value || got.OutputTokens.Value != g.OutputTokens.Value || got.TTFTUs != g.TTFTUs || got.ActiveRequests != g.ActiveRequests {
			t.Fatalf("recording %d split: %s", i, cmp.Diff(g, got))
		}
	}
	for _, name := range []string{"total", "between", "unfinished", "failed", "valid"} {
		if seen[name] < n/50 {
			t.Errorf("only %d of %d recordings had %q: the properties are hardly tried", seen[name], n, name)
		}
	}
}

func TestFinalUsageOnly(t *testing.T) {
	fold := func(window ...int64) Cell {
		m := manifest()
		m.Plan.Sampling.IgnoreEOS = false
		tp := newTape(runlog.PhaseDecode, 8, 1)
		tp.script(t, 0, 0, 0, "100 C \"ab\"\n200 C \"cd\"\n300 C \"ef\"\n301 USAGE 8 7\n302 DONE")
		return Fold(m, tp.planned(window...), &tp.ev, nil)
	}
	c := fold(50_000, 1_050_000)
	stat(t, "tok/s of a request that lies in the window", c.Figures.TotalTokPerS, 7, 3)
	c = fold(50_000, 450_000)
	stat(t, "tok/s of a request on both sides of the middle", c.Figures.TotalTokPerS, 17.5, 3)
	stat(t, "tok/s of a half that can't be told", c.Figures.FirstHalfTokPerS, 0, 0)
	c = fold(100_000, 1_100_000)
	stat(t, "tok/s of a request that the window cuts", c.Figures.TotalTokPerS, 0, 0)
	if !hasNote(c, "tok/s unknown") || c.Requests[0].WindowTokens != -1 {
		t.Errorf("notes %q, %d tokens in the window, want it said and −1", c.Notes, c.Requests[0].WindowTokens)
	}
	c = fold(400_000, 1_400_000)
	if c.Requests[0].WindowTokens != 0 {
		t.Errorf("%d tokens after its end, want 0", c.Requests[0].WindowTokens)
	}
}

func TestChunkCountingShowsNoRates(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.script(t, 0, 0, 0, "100 C \"a\"\n200 C \"b\"\n300 C \"c\"\n302 DONE")
	m := manifest()
	m.Plan.TokenCounting = "chunks"
	g := Fold(m, tp.planned(0, 1_000_000), &tp.ev, nil).Figures
	stat(t, "TTFT", g.TTFTUs, 100_000, 1)
	stat(t, "largest gap", g.GapMaxUs, 100_000, 2)
	for name, s := range map[string]Stat{"total": g.TotalTokPerS, "output": g.OutputTokens, "per request": g.PerRequestTokPerS, "between": g.BetweenTokensUs, "per event": g.TokensPerEvent} {
		stat(t, name, s, 0, 0)
	}
}

func TestWindowIsOpenBelowAndClosedAbove(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.steady(0, 0, 0, 1000, 1000, 10, runlog.KindDone, 10_000)
	m := manifest()
	m.Plan.Sampling.IgnoreEOS = false
	c := Fold(m, tp.planned(2000, 10_000), &tp.ev, nil)
	stat(t, "output tokens of (2000, 10000]", c.Figures.OutputTokens, 8, 8)
	stat(t, "completed at the close", c.Figures.CompletedRequests, 1, 1)
	stat(t, "first half", c.Figures.FirstHalfTokPerS, 1000, 8)
	stat(t, "largest gap, begun before the window", c.Figures.GapMaxUs, 1000, 8)
	c = Fold(m, tp.planned(2000, 9_999), &tp.ev, nil)
	stat(t, "completed after the close", c.Figures.CompletedRequests, 0, 1)
}

// TestEveryFigureHasAName: a figure that Named forgets would be missing from
// every data file.
func TestEveryFigureHasAName(t *testing.T) {
	var f Figures
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(reflect.ValueOf(Stat{float64(i), 1}))
	}
	named := f.Named()
	if len(named) != v.NumField() {
		t.Fatalf("got %d names, want %d", len(named), v.NumField())
	}
	seen := map[string]bool{}
	for i, n := range named {
		if n.Value != float64(i) || seen[n.Name] {
			t.Errorf("name %d is %q for figure %v: out of order, or twice", i, n.Name, n.Value)
		}
		seen[n.Name] = true
	}
}

func TestLongestGap(t *testing.T) {
	_, r := one(t, "100 CU \"a\" 1\n160 CU \"b\" 2\n180 CU \"c\" 3\n181 DONE")
	if r.LongestGapUs != 60_000 || r.LongestGapAt != 161_000 {
		t.Errorf("longest gap %d ending at %d, want 60000 at 161000", r.LongestGapUs, r.LongestGapAt)
	}
}

// TestAHalfWithoutTokensIsZero: a stall is measured, not unknown.
func TestAHalfWithoutTokensIsZero(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.steady(0, 0, 0, 1000, 1000, 10, runlog.KindCancelled, 100_000)
	c := Fold(manifest(), tp.planned(0, 100_000), &tp.ev, nil)
	stat(t, "first half", c.Figures.FirstHalfTokPerS, 200, 10)
	stat(t, "second half", c.Figures.SecondHalfTokPerS, 0, 10)
	if !hasNote(c, "not steady: 200.0 tok/s in the first half of the window, 0.0 in the second") {
		t.Errorf("notes %q", c.Notes)
	}
}

// tapeForBenchmarks is a cell of 16 streams and 100,000 events with text.
func tapeForBenchmarks() recording {
	tp := newTape(runlog.PhaseDecode, 8192, 16)
	for s := range int32(16) {
		for q := range int32(2) {
			at := int64(q) * 15_000_000
			tp.steady(s, q, at, at+50_000, 4700, 3125, runlog.KindDone, at+14_900_000)
		}
	}
	return recording{manifest(), tp.planned(1_000_000, 29_000_000), &tp.ev, healthy(16, 0, 30_000_000)}
}

func BenchmarkFold(b *testing.B) {
	x := tapeForBenchmarks()
	b.ReportAllocs()
	for b.Loop() {
		x.fold()
	}
	perEvent(b, x.ev.Len())
}

// BenchmarkLoad reads and folds a run of eight such cells.
func BenchmarkLoad(b *testing.B) {
	x := tapeForBenchmarks()
	m, _, _ := sampleRun(b)
	p := &m.Plan
	p.ContextsTokens, p.Concurrency, p.PrefillContextsTokens, m.Cells = nil, []int32{x.c.Concurrency}, nil, nil
	cells := map[runlog.Key]*runlog.Events{}
	for i := range int32(8) {
		c, ev := x.c, *x.ev
		c.ContextTokens = 1024 * (i + 1)
		ev.Key = c.Key()
		cells[ev.Key] = &ev
		p.ContextsTokens, m.Cells = append(p.ContextsTokens, c.ContextTokens), append(m.Cells, c)
	}
	dir := write(b, m, cells, x.tel)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(dir); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, 8*x.ev.Len())
}

func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}
