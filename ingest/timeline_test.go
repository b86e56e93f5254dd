package ingest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"speedmatrix/ingest/runlog"
)

// spans writes a timeline's spans as "stream:state from-to" in milliseconds.
func spans(tl *Timeline) []string {
	var out []string
	for _, s := range tl.Spans {
		out = append(out, fmt.Sprintf("%d:%s %d-%d", s.Stream, [...]string{"waits", "delivers", "stalls"}[s.State], s.FromUs/1000, s.ToUs/1000))
	}
	return out
}

func TestTimelineSpans(t *testing.T) {
	const open, close = 1_000_000, 4_000_000
	tp := newTape(runlog.PhaseDecode, 8192, 2)
	tp.script(t, 0, 0, 100_000, `0 200
100 C "a"
1000 C "b"
1010 C "c"
1020 C "d"
2500 C "e"
2600 DONE`)
	tp.script(t, 0, 1, 2_800_000, `0 200
100 C "a"
110 C "b"
2000 CANCEL`)
	tp.script(t, 1, 0, 3_500_000, `0 200`)
	for _, tt := range []struct {
		rule        string
		concurrency int32
		want        []string
	}{
		{"waiting, tokens, stalls, cut at the lead-in and the close; an unfinished request as far as it was seen", 2, []string{
			"0:delivers 400-1120", "0:stalls 1120-2600", "0:delivers 2600-2700", "0:waits 2800-2900", "0:delivers 2900-2910", "0:stalls 2910-4000"}},
		{"more streams than a drawing shows", 33, nil},
	} {
		c := tp.planned(open, close)
		c.Concurrency = tt.concurrency
		// Median gap 10 ms: ten of them are the least stall, 100 ms. The gap of
		// 900 ms ends at 1,100 ms and would be one too.
		got := Fold(manifest(), c, &tp.ev, nil).Timeline
		if tt.want != nil {
			tt.want[0] = "0:stalls 400-1100"
			tt.want = slices.Insert(tt.want, 1, "0:delivers 1100-1120")
		}
		if s := spans(got); !slices.Equal(s, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.rule, s, tt.want)
		}
		if got.StallUs != 100_000 || got.FromUs != 400_000 || got.ToUs != close {
			t.Errorf("%s: stalls over %d µs, drawn %d … %d; want 100000, 400000 … %d", tt.rule, got.StallUs, got.FromUs, got.ToUs, close)
		}
		// Bin 16 is 2.6 … 2.7 s, bin 18 is 2.8 … 2.9 s.
		for _, b := range []struct {
			state StreamState
			bin   int
			want  float64
		}{{Delivering, 16, 1}, {Delivering, 17, 0}, {Waiting, 18, 1}, {Stalled, 18, 0}, {Delivering, 19, 0.1}, {Stalled, 19, 0.9}, {Stalled, 29, 1}} {
			if v := got.Streams[b.state][b.bin]; math.Abs(v-b.want) > 1e-9 {
				t.Errorf("%s: %v streams in state %d in bin %d, want %v", tt.rule, v, b.state, b.bin, b.want)
			}
		}
	}
}

// The parts of the window must add up to it.
func TestTimelineRatesAddUp(t *testing.T) {
	const open, close = 1_000_000, 31_000_007 // not a multiple of the bins
	tp := newTape(runlog.PhaseDecode, 8192, 2)
	for s := range int32(2) {
		tp.steady(s, 0, 0, 100_000, 14_026, 2300, runlog.KindCancelled, 32_000_000)
	}
	c := Fold(manifest(), tp.planned(open, close), &tp.ev, healthy(2, open, close))
	if len(c.Timeline.TokPerS) != TimelineBins {
		t.Fatalf("got %d bins, want %d", len(c.Timeline.TokPerS), TimelineBins)
	}
	sum := 0.0
	for i, v := range c.Timeline.TokPerS {
		sum += v
		if math.Abs(v-2/0.014026) > 4 {
			t.Errorf("bin %d has %.1f tok/s, want about %.1f", i, v, 2/0.014026)
		}
	}
	if got, want := sum/TimelineBins, c.Figures.TotalTokPerS.Value; math.Abs(got-want) > 1e-6*want {
		t.Errorf("the bins' mean is %v tok/s, the window's rate %v", got, want)
	}
	for i, v := range c.Timeline.Streams[Delivering] {
		if v != 2 {
			t.Errorf("bin %d: %v streams delivering, want 2", i, v)
		}
	}
	if k := c.Checks; !k.HalvesDiffer.Known() || k.HalvesDiffer.Value > 0.01 || !k.SumDiffers.Known() || k.SumDiffers.Value > 0.01 || k.TimerLatenessUs.Value != 90 {
		t.Errorf("checks of a steady cell: %+v", k)
	}
}

func TestTimelineIsBounded(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 4)
	for s := range int32(4) {
		for r := range int32(300) {
			at := 1000 + int64(r)*100_000
			tp.steady(s, r, at, at+20_000, 10_000, 5, runlog.KindDone, at+61_000)
		}
	}
	tl := Fold(manifest(), tp.planned(0, 30_000_000), &tp.ev, nil).Timeline
	if len(tl.Spans) != 0 {
		t.Errorf("got %d spans, want none: they would be too many", len(tl.Spans))
	}
	// Each stream waits 20 of 100 ms and delivers 41.
	for i := range TimelineBins {
		if w, d := tl.Streams[Waiting][i], tl.Streams[Delivering][i]; math.Abs(w-0.8) > 0.01 || math.Abs(d-1.64) > 0.01 {
			t.Errorf("bin %d: %.3f wait and %.3f deliver, want 0.8 and 1.64", i, w, d)
		}
	}
}

func TestTimelineOfUnknownCountsHasNoRates(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1)
	for i, kind := range []runlog.Kind{runlog.KindSent, runlog.KindChunk, runlog.KindChunk} {
		e := runlog.NewEvent(kind, int64(i)*10_000)
		if kind == runlog.KindChunk {
			e.HasText, e.Text, e.Channel = true, "two words", runlog.ChannelContent
		}
		tp.add(0, 0, e)
	}
	c := Fold(manifest(), tp.planned(0, 1_000_000), &tp.ev, nil)
	if c.Timeline == nil || c.Timeline.TokPerS != nil {
		t.Errorf("got %+v, want a timeline without rates", c.Timeline)
	}
	if c := Fold(manifest(), tp.planned(), &tp.ev, nil); c.Timeline != nil {
		t.Error("a cell without a window has a timeline")
	}
	if c := Fold(manifest(), tp.planned(0, 1), nil, nil); c.Timeline != nil {
		t.Error("a cell without events has a timeline")
	}
}

// The server's counter is held against what arrived between the same samples.
func TestServersCountAgainstTheClients(t *testing.T) {
	const open, close = 1_000_000, 11_000_000
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.steady(0, 0, 0, 100_000, 10_000, 1200, runlog.KindCancelled, 12_200_000)
	counter := func(tUs int64, v float64) runlog.Sample {
		return runlog.Sample{TUs: tUs, Source: runlog.SourceServer, Name: runlog.MetricGenerationTokens, Value: v}
	}
	for _, tt := range []struct {
		rule           string
		samples        []runlog.Sample
		server, client float64 // 0: unknown
	}{
		{"samples outside the window do not count", []runlog.Sample{counter(500_000, 7), counter(2_000_000, 100), counter(7_000_000, 600), counter(10_000_000, 905), counter(12_000_000, 2000)}, 805, 800},
		{"one sample tells no growth", []runlog.Sample{counter(2_000_000, 100)}, 0, 0},
		{"a counter that went down tells nothing", []runlog.Sample{counter(2_000_000, 100), counter(7_000_000, 50), counter(10_000_000, 905)}, 0, 0},
		{"no counter", nil, 0, 0},
	} {
		k := Fold(manifest(), tp.planned(open, close), &tp.ev, tt.samples).Checks
		if k.ServerTokens.Value != tt.server || k.ClientTokens.Value != tt.client || k.ServerTokens.Known() != (tt.server > 0) {
			t.Errorf("%s: got %+v and %+v, want %v and %v", tt.rule, k.ServerTokens, k.ClientTokens, tt.server, tt.client)
		}
	}
}

func TestSpread(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 5)
	for s := range int32(5) { // TTFT 10, 20, … 50 ms
		tp.steady(s, 0, 0, 10_000*int64(s+1), 1000*int64(s+1), 101, runlog.KindCancelled, 900_000)
	}
	sp := Fold(manifest(), tp.planned(0, 1_000_000), &tp.ev, nil).Spread
	stat(t, "p50 of TTFT", sp.TTFTUs.P50, 30_000, 5)
	stat(t, "p90 of TTFT", sp.TTFTUs.P90, 46_000, 5)
	stat(t, "greatest TTFT", sp.TTFTUs.Max, 50_000, 5)
	stat(t, "p25 of the time between tokens", sp.BetweenTokensUs.P25, 2000, 5)
	stat(t, "p50 of gaps", sp.GapUs.P50, 3000, 500)
	stat(t, "p5 of gaps", sp.GapUs.P5, 1000, 500)
}

func TestTTFTFalls(t *testing.T) {
	cell := func(context, concurrency int32, ttft float64, s Status) Cell {
		return Cell{Cell: runlog.Cell{ContextTokens: context, Concurrency: concurrency}, Status: s, Figures: Figures{TTFTUs: known(ttft, 3)}}
	}
	got := TTFTFalls([]Cell{
		cell(8, 1, 100, Valid), cell(8, 2, 91, Valid), cell(8, 4, 50, Looped), cell(8, 8, 80, Valid), cell(8, 16, 200, Valid),
		cell(16, 1, 10, Valid), cell(16, 2, 9, Valid),
	})
	want := []Fall{{8, 2, 8, 91, 80, 3, 3}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v: only falls of more than a tenth between neighbouring Valid cells of one context", got, want)
	}
}
