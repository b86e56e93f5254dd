package ingest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"
)

// The cases of public bug reports whose figures come out of one request.
func TestCaseRequest(t *testing.T) {
	type want struct {
		ttftMs    float64 // NaN: not measured
		answerMs  float64
		betweenMs float64
		gapP50Ms  float64
		gapMaxMs  float64
		tokens    int64
		events    int
		note      string
	}
	none := math.NaN()
	for _, tt := range []struct {
		name, script string
		want         want
	}{
		{"BR001 the role chunk is no token", "6 ROLE\n214 C \"Hi\"\n234 C \"!\"\n235 FIN stop\n235 USAGE 9 2\n236 DONE",
			want{214, none, 20, 20, 20, 2, 2, ""}},
		{"BR003 the role chunk of a chunked prefill is no gap", "900 ROLE\n2200 C \"a\"\n2220 C \"b\"\n2240 C \"c\"\n2241 FIN length\n2241 USAGE 5000 3\n2241 DONE",
			want{2200, none, 20, 20, 20, 3, 3, ""}},
		{"BR004 reasoning starts TTFT, the answer has its own figure", "120 R \"Okay\"\n140 R \" so\"\n900 C \"\\n\"\n920 C \"42\"\n921 FIN stop\n921 USAGE 10 4\n921 DONE",
			want{120, 900, 800.0 / 3, 20, 760, 4, 4, ""}},
		{"BR006 reasoning beside a null answer", "70 R \"x\"\n90 R \"y\"\n110 C \"z\"\n111 FIN stop\n111 USAGE 5 3\n111 DONE",
			want{70, 110, 20, 20, 20, 3, 3, ""}},
		{"BR008 no token is no TTFT", "20 ROLE\n30 FIN stop\n30 USAGE 7 0\n30 DONE",
			want{none, none, none, none, none, 0, 0, ""}},
		{"BR013 packed tokens: gaps are raw, the rest is per token", "100 CU \"a\" 1\n160 CU \" call text\" 4\n180 CU \"b\" 5\n181 FIN stop\n181 USAGE 5 5\n181 DONE",
			want{100, none, 20, 40, 60, 5, 3, ""}},
		{"BR015 TTFT is not among the gaps", "500 C \"a\"\n520 C \"b\"\n540 C \"c\"\n541 FIN stop\n541 USAGE 5 3\n541 DONE",
			want{500, none, 20, 20, 20, 3, 3, ""}},
		{"BR016 a running usage that does not run", "100 CU \"a\" 1\n120 CU \"b\" 1\n140 CU \"c\" 1\n141 FIN stop\n141 USAGE 4 3\n141 DONE",
			want{100, none, 20, 20, 20, 3, 3, noteRunningUsage}},
		{"BR016 … over fewer events than tokens", "100 CU \"a\" 1\n120 CU \"b\" 1\n140 CU \"c\" 1\n141 FIN stop\n141 USAGE 4 5\n141 DONE",
			want{100, none, none, 20, 20, 5, 3, noteRunningUsage}},
		{"BR018 tokens come from usage, never from max_tokens", spaced("C \"x\"", 24, 50, 5) + "165 FIN stop\n165 USAGE 8 24\n165 DONE",
			want{50, none, 5, 5, 5, 24, 24, ""}},
		{"BR021 a stall shows in the gaps", spaced("C \"x\"", 10, 100, 10) + spaced("C \"x\"", 11, 1190, 10) + "1300 USAGE 3 21\n1300 DONE",
			want{100, none, 59.5, 10, 1000, 21, 21, ""}},
		{"BR023 tokens, not characters", spaced("C \"abcdefghijkl\"", 10, 20, 20) + "200 FIN length\n200 USAGE 3 10\n200 DONE",
			want{20, none, 20, 20, 20, 10, 10, ""}},
		{"BR025 the prefill is in no time between tokens", "1000 CU \"a\" 1\n1020 CU \"bc\" 3\n1040 CU \"de\" 5\n1060 CU \"fg\" 7\n1080 CU \"hi\" 9\n1100 CU \"jk\" 11\n1101 FIN stop\n1101 USAGE 40000 11\n1101 DONE",
			want{1000, none, 10, 20, 20, 11, 6, ""}},
		{"BR049 a late usage chunk is not the last token", "50 C \"a\"\n70 C \"b\"\n71 FIN stop\n400 USAGE 5 2\n401 DONE",
			want{50, none, 20, 20, 20, 2, 2, ""}},
		{"BR057 the end marker alone is no output", "40 DONE",
			want{none, none, none, none, none, 0, 0, ""}},
		{"BR110 one token has no rate", "40 CU \"a\" 1\n41 DONE",
			want{40, none, none, none, none, 1, 1, ""}},
		{"BR110 tokens at one instant have no rate", "40 CU \"a\" 1\n40 CU \"b\" 2\n40 CU \"c\" 9\n41 DONE",
			want{40, none, none, 0, 0, 9, 3, ""}},
		{"a chunk without text that carries tokens counts", "40 EMPTY 1\n50 EMPTY 1\n60 EMPTY 2\n61 DONE",
			want{40, none, 20.0 / 3, 10, 10, 4, 3, ""}},
		{"the first event's own tokens took no time between tokens", "100 CU \"abc\" 3\n200 CU \"d\" 4\n201 DONE",
			want{100, none, 100, 100, 100, 4, 2, ""}},
		{"only a final usage, fewer events than tokens: per-event counts unknown", "100 C \"ab\"\n200 C \"c\"\n201 USAGE 9 5\n201 DONE",
			want{100, none, none, 100, 100, 5, 2, ""}},
		{"events and final usage that disagree are said, the usage wins", "100 CU \"a\" 1\n200 CU \"b\" 2\n300 CU \"c\" 3\n301 USAGE 9 5\n301 DONE",
			want{100, none, 50, 100, 100, 5, 3, noteUsageDiffers}},
		{"a mixed chunk after reasoning is the answer", "10 R \"a\"\n20 MIX \"b\"\n30 C \"c\"\n31 USAGE 2 3\n31 DONE",
			want{10, 20, 10, 10, 10, 3, 3, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, r := one(t, tt.script)
			g := c.Figures
			ms := func(s Stat) float64 {
				if !s.Known() {
					return math.NaN()
				}
				return s.Value / 1000
			}
			for _, v := range []struct {
				name      string
				got, want float64
			}{
				{"TTFT", ms(r.TTFTUs), tt.want.ttftMs},
				{"time to first answer", ms(g.FirstAnswerUs), tt.want.answerMs},
				{"time between tokens", ms(r.BetweenTokensUs), tt.want.betweenMs},
			} {
				if v.got != v.want && !(math.IsNaN(v.got) && math.IsNaN(v.want)) {
					t.Errorf("%s = %v ms, want %v", v.name, v.got, v.want)
				}
			}
			if !r.Failed { // failed requests take part in no gap figure
				for _, v := range []struct {
					name      string
					got, want float64
				}{{"median gap", ms(g.GapP50Us), tt.want.gapP50Ms}, {"largest gap", ms(g.GapMaxUs), tt.want.gapMaxMs}} {
					if v.got != v.want && !(math.IsNaN(v.got) && math.IsNaN(v.want)) {
						t.Errorf("%s = %v ms, want %v", v.name, v.got, v.want)
					}
				}
			}
			if r.Tokens != tt.want.tokens || r.TokenEvents != tt.want.events || r.Note != tt.want.note {
				t.Errorf("got %d tokens in %d events, note %q, want %d in %d, %q",
					r.Tokens, r.TokenEvents, r.Note, tt.want.tokens, tt.want.events, tt.want.note)
			}
		})
	}
}

// spaced repeats an event n times from time on, stepMs apart.
func spaced(event string, n int, fromMs, stepMs int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d %s\n", fromMs+i*stepMs, event)
	}
	return b.String()
}

func stat(t *testing.T, name string, got Stat, value float64, n int) {
	t.Helper()
	if want := (Stat{value, n}); got != want {
		t.Errorf("%s = %v, want %v", name, got, want)
	}
}

func TestCase_BR003_PrefillRate(t *testing.T) {
	tp := newTape(runlog.PhasePrefill, 5000, 1)
	tp.script(t, 0, 0, 77, "900 ROLE\n2200 C \"a\"\n2241 USAGE 5000 1\n2241 DONE")
	c := Fold(manifest(), tp.planned(), &tp.ev, nil)
	stat(t, "prefill tok/s", c.Figures.PrefillTokPerS, 5000/2.2, 1)
	stat(t, "completed", c.Figures.CompletedRequests, 1, 1)
}

func TestCase_BR008_NoOutputKeepsPromptTokens(t *testing.T) {
	c, r := one(t, "20 ROLE\n30 FIN stop\n30 USAGE 7 0\n30 DONE")
	if !r.Failed || r.PromptTokens != 7 || c.Status != Failed || c.Launch.Failed != 1 || c.Launch.Completed != 0 {
		t.Errorf("failed %v, prompt tokens %d, cell %s, %+v; want a failed request that keeps 7 prompt tokens", r.Failed, r.PromptTokens, c.Status, c.Launch)
	}
	stat(t, "TTFT", c.Figures.TTFTUs, 0, 0)
}

func TestCase_BR010_MediansOverRealSamplesOnly(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 3)
	tp.script(t, 0, 0, 0, "5 ROLE\n6 DONE")
	tp.script(t, 1, 0, 0, "5 ROLE\n6 DONE")
	tp.script(t, 2, 0, 0, "5 ROLE\n80 C \"a\"\n100 C \"b\"\n101 FIN stop\n101 USAGE 3 2\n101 DONE")
	c := Fold(manifest(), tp.planned(0, 1_000_000), &tp.ev, nil)
	stat(t, "TTFT", c.Figures.TTFTUs, 80_000, 1)
	if c.Launch.Failed != 2 || c.Status != Failed {
		t.Errorf("got %d failed, status %s, want 2, Failed", c.Launch.Failed, c.Status)
	}
}

func TestCase_BR026_CutOffTokensCount(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 2)
	for s := range int32(2) {
		tp.steady(s, 0, -50_000+100_000, 150_000, 50_000, 220, runlog.KindCancelled, 11_200_000)
	}
	c := Fold(manifest(), tp.planned(1_000_000, 11_000_000), &tp.ev, healthy(2, 1_000_000, 11_000_000))
	stat(t, "total tok/s", c.Figures.TotalTokPerS, 40, 400)
	stat(t, "output tokens", c.Figures.OutputTokens, 400, 400)
	stat(t, "completed", c.Figures.CompletedRequests, 0, 2)
	stat(t, "active", c.Figures.ActiveRequests, 2, 2)
	if c.Status != Valid || c.Launch.Cancelled != 2 || c.Launch.Failed != 0 {
		t.Errorf("status %s %v, %+v, want Valid with 2 cancelled", c.Status, c.Evidence, c.Launch)
	}
}

func TestCase_BR027_SteadyWindowAgainstWholeRun(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 4)
	for s := range int32(4) {
		at := int64(s) * 1_000_000
		tp.steady(s, 0, at, at+1, 100_000, 100, runlog.KindDone, at+10_000_001)
	}
	c := Fold(manifest(), tp.planned(3_000_000, 10_000_000), &tp.ev, nil)
	stat(t, "steady tok/s", c.Figures.TotalTokPerS, 40, 280)
	stat(t, "steady active", c.Figures.ActiveRequests, 4-1.0/7_000_000, 4)
	c = Fold(manifest(), tp.planned(0, 13_000_000), &tp.ev, nil)
	stat(t, "whole tok/s", c.Figures.TotalTokPerS, 400.0/13, 400)
	if got := c.Figures.ActiveRequests.Value; math.Abs(got-3.077) > 0.001 {
		t.Errorf("whole active = %v, want 3.08", got)
	}
}

func TestCase_BR031_LatencyOfSuccessesOnly(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 100)
	for s := range int32(100) {
		if s%3 == 1 || s == 98 {
			tp.script(t, s, 0, 0, "0.5 ERR \"internal\" 500")
		} else {
			tp.script(t, s, 0, 0, "750 CU \"a\" 1\n760 DONE")
		}
	}
	m := manifest()
	m.Plan.Sampling.IgnoreEOS = false
	c := Fold(m, tp.planned(0, 1_000_000), &tp.ev, nil)
	stat(t, "TTFT", c.Figures.TTFTUs, 750_000, 66)
	if c.Launch.Failed != 34 || c.Launch.Completed != 66 {
		t.Errorf("%+v, want 34 failed, 66 completed", c.Launch)
	}
	if n := len(c.Evidence); n != maxEvidence+1 || c.Evidence[n-1].Text != "… and 14 more" {
		t.Errorf("evidence %v, want %d failed requests and how many more", c.Evidence, maxEvidence)
	}
}

func TestCase_BR035_FullBatchRate(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 32)
	for s := range int32(32) {
		n := 1000
		if s == 31 {
			n = 4000
		}
		tp.steady(s, 0, 0, 1, 10_000, n, runlog.KindDone, 1+int64(n)*10_000)
	}
	m := manifest()
	m.Plan.Sampling.IgnoreEOS = false // the answers have the lengths that they have
	c := Fold(m, tp.planned(0, 10_000_000), &tp.ev, nil)
	stat(t, "full-batch tok/s", c.Figures.TotalTokPerS, 3200, 32_000)
	if c.Status != Valid {
		t.Errorf("full batch: %s %v, want Valid", c.Status, c.Evidence)
	}
	c = Fold(m, tp.planned(0, 40_000_000), &tp.ev, nil)
	stat(t, "end-to-end tok/s", c.Figures.TotalTokPerS, 875, 35_000)
	if got := c.Figures.ActiveRequests.Value; math.Abs(got-8.75) > 1e-4 {
		t.Errorf("end-to-end active = %v, want 8.75", got)
	}
	if want := "the benchmark itself had only 8.8 of 32 requests in progress on average"; c.Status != UnderFilled || c.Evidence[0].Text != want {
		t.Errorf("end-to-end: %s %v, want Under-filled, %q", c.Status, c.Evidence, want)
	}
	if !hasNote(c, "not steady") {
		t.Errorf("notes %q, want one that says it is not steady", c.Notes)
	}
}

func hasNote(c Cell, part string) bool {
	return strings.Contains(strings.Join(c.Notes, "\n"), part)
}

func TestCase_BR036_CompletedIsACountOfRows(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 4)
	for s := range int32(3) {
		tp.script(t, s, 0, 0, "10 CU \"a\" 1\n20 DONE")
	}
	tp.script(t, 3, 0, 0, "1 ERR \"\" 500")
	c := Fold(manifest(), tp.planned(0, 1_000_000), &tp.ev, nil)
	stat(t, "completed", c.Figures.CompletedRequests, 3, 4)
	if c.Launch.Failed != 1 || c.Requests[3].Reason != "HTTP status 500" {
		t.Errorf("%d failed, reason %q, want 1, HTTP status 500", c.Launch.Failed, c.Requests[3].Reason)
	}
}

func TestCase_BR051_ErrorEventAfter200(t *testing.T) {
	c, r := one(t, "1 200\n100 CU \"a\" 1\n120 CU \"b\" 2\n140 ERR \"error event: engine failure\" 200")
	if !r.Failed || r.Tokens != 2 || c.Launch.Failed != 1 || c.Status != Failed {
		t.Errorf("failed %v with %d tokens, %+v, %s; want a failed request that keeps 2 tokens", r.Failed, r.Tokens, c.Launch, c.Status)
	}
	stat(t, "completed", c.Figures.CompletedRequests, 0, 1)
	if want := `request failed: "error event: engine failure"`; c.Evidence[0].Text != want || c.Evidence[0].TUs != 141_000 {
		t.Errorf("evidence %+v, want %q at 141000", c.Evidence[0], want)
	}
}

func TestCase_BR053_EarlyEnds(t *testing.T) {
	m := manifest()
	m.Plan.MaxOutputTokens = 1024
	early := func(n int, how string) Cell {
		tp := newTape(runlog.PhaseDecode, 8, 4)
		for s := range int32(4) {
			tokens := 1024
			if int(s) < n {
				tokens = 10
			}
			tp.steady(s, 0, 0, 50_000, 1000, tokens, 0, 0)
			end := runlog.NewEvent(runlog.KindDone, 3_000_000)
			if how != "" {
				end = runlog.NewEvent(runlog.KindError, 3_000_000)
				end.Error = how
			}
			tp.add(s, 0, end)
		}
		return Fold(m, tp.planned(0, 3_100_000), &tp.ev, nil)
	}
	c := early(2, "")
	if c.Status != Valid || !hasNote(c, "2 of the 4 requests that ended by themselves ended early, before the 1,024 tokens asked for") {
		t.Errorf("half end early: %s, %q, want Valid and the share", c.Status, c.Notes)
	}
	c = early(3, "")
	if c.Status != Failed || !c.Requests[0].EndedEarly || c.Requests[3].EndedEarly {
		t.Errorf("most end early: %s %v, want Failed", c.Status, c.Evidence)
	}
	c = early(4, "truncated stream")
	if want := `request failed: "truncated stream", ended early 10 of 1,024 tokens`; c.Status != Failed || c.Evidence[0].Text != want {
		t.Errorf("truncated: %s %v, want %q", c.Status, c.Evidence, want)
	}
	stat(t, "output tokens", c.Figures.OutputTokens, 40, 40)
}

func TestCase_BR019_MoreTokensThanAskedFor(t *testing.T) {
	m := manifest()
	m.Plan.MaxOutputTokens = 8
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.steady(0, 0, 0, 1, 1, 8, 0, 0)
	e := runlog.NewEvent(runlog.KindUsage, 100)
	e.CompletionTokens, e.PromptTokens, e.Tokens = 16, 4, 0
	tp.add(0, 0, e)
	tp.add(0, 0, runlog.NewEvent(runlog.KindDone, 101))
	c := Fold(m, tp.planned(0, 1000), &tp.ev, nil)
	if c.Status != Failed || c.Requests[0].Reason != "16 tokens, more than the 8 asked for" {
		t.Errorf("%s, %q, want Failed because of 16 tokens", c.Status, c.Requests[0].Reason)
	}
}

func TestCase_BR059_ResendIsNoFailure(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.script(t, 0, 0, 0, "3 CANCEL")
	tp.script(t, 0, 1, 5000, "40 CU \"a\" 1\n50 CU \"b\" 2\n51 CANCEL")
	c := Fold(manifest(), tp.planned(0, 100_000), &tp.ev, nil)
	stat(t, "TTFT", c.Figures.TTFTUs, 40_000, 1)
	if c.Status != Valid || c.Launch.Failed != 0 || c.Launch.Cancelled != 2 {
		t.Errorf("%s %v, %+v, want Valid, nothing failed", c.Status, c.Evidence, c.Launch)
	}
}

func TestCase_BR068_EveryRequestIsAccountedFor(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 100)
	for s := range int32(100) {
		if s == 20 || s == 50 || s == 80 {
			tp.script(t, s, 0, int64(s), "2 ERR \"connection closed\" 0")
			tp.ev.Status[tp.ev.Len()-1] = runlog.Unknown
		} else {
			tp.script(t, s, 0, int64(s), "2 CU \"a\" 1\n3 DONE")
		}
	}
	c := Fold(manifest(), tp.planned(0, 1_000_000), &tp.ev, nil)
	if l := c.Launch; l.Launched != 100 || l.Completed != 97 || l.Failed != 3 || l.Cancelled != 0 {
		t.Errorf("%+v, want 100 = 97 + 3 + 0", l)
	}
}

func TestCase_BR070_BR072_Capacity(t *testing.T) {
	for _, tt := range []struct {
		name        string
		capacity    runlog.Capacity
		context, c  int32
		out         int32
		over        bool
		text        string
		outputWords string
	}{
		{name: "BR070 16 × 32K fits into 1,082,654 tokens", capacity: runlog.Capacity{KVCacheTokens: 1_082_654, Engines: 1}, context: 32768, c: 16, out: 1,
			text: "16 × (32,768 context + 1 output) tokens, at most the 1,082,654 tokens of the KV cache"},
		{name: "BR072 one request", capacity: runlog.Capacity{KVCacheTokens: 1_000_000, Engines: 2}, context: 400_000, c: 1, out: 1,
			text: "1 × (400,000 context + 1 output) tokens, at most the 500,000 tokens of one of 2 engines"},
		{name: "BR072 two requests, one in each engine", capacity: runlog.Capacity{KVCacheTokens: 1_000_000, Engines: 2}, context: 400_000, c: 2, out: 1,
			text: "1 × (400,000 context + 1 output) tokens, at most the 500,000 tokens of one of 2 engines"},
		{name: "BR072 three requests: two in one engine", capacity: runlog.Capacity{KVCacheTokens: 1_000_000, Engines: 2}, context: 400_000, c: 3, out: 1, over: true,
			text: "2 × (400,000 context + 1 output) tokens, more than the 500,000 tokens of one of 2 engines"},
		{name: "exactly full fits", capacity: runlog.Capacity{KVCacheTokens: 8192}, context: 4000, c: 2, out: 96,
			text: "2 × (4,000 context + 96 output) tokens, at most the 8,192 tokens of the KV cache"},
		{name: "one token over does not", capacity: runlog.Capacity{KVCacheTokens: 8191}, context: 4000, c: 2, out: 96, over: true,
			text: "2 × (4,000 context + 96 output) tokens, more than the 8,191 tokens of the KV cache"},
		{name: "too many sequences", capacity: runlog.Capacity{MaxNumSeqs: 64}, context: 8, c: 65, out: 1, over: true,
			text: "65 requests at once, more than the server's limit of 64 (max_num_seqs)"},
		{name: "BR082 an unknown capacity confirms nothing", context: 8, c: 1 << 30, out: 1, text: "the size of the KV cache is not known"},
		{name: "hostile sizes do not overflow", capacity: runlog.Capacity{KVCacheTokens: math.MaxInt64, Engines: 1}, context: math.MaxInt32, c: math.MaxInt32, out: math.MaxInt32,
			text: "2,147,483,647 × (2,147,483,647 context + 2,147,483,647 output) tokens, at most the 9,223,372,036,854,775,807 tokens of the KV cache"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest()
			m.Capacity, m.Plan.MaxOutputTokens = tt.capacity, tt.out
			cell := runlog.Cell{Phase: runlog.PhaseDecode, ContextTokens: tt.context, Concurrency: tt.c, Outcome: runlog.OutcomeOverCapacity}
			text, over := exceeds(m, &cell)
			if text != tt.text || over != tt.over {
				t.Errorf("exceeds = %q, %v, want %q, %v", text, over, tt.text, tt.over)
			}
			want := NotRun
			if tt.over {
				want = OverCapacity
			}
			c := Fold(m, cell, nil, nil)
			if c.Status != want || !strings.Contains(c.Evidence[0].Text, tt.text) {
				t.Errorf("status %s %v, want %s", c.Status, c.Evidence, want)
			}
		})
	}
}

func TestCase_BR077_PrefillByTheServersCount(t *testing.T) {
	tp := newTape(runlog.PhasePrefill, 10000, 1)
	tp.script(t, 0, 0, 0, "500 C \"a\"\n501 USAGE 5828 1\n501 DONE")
	c := Fold(manifest(), tp.planned(), &tp.ev, nil)
	stat(t, "prefill tok/s", c.Figures.PrefillTokPerS, 11656, 1)
	stat(t, "prompt tokens", c.Figures.PromptTokens, 5828, 1)
	if !hasNote(c, "prompts had 5,828 tokens, not the 10,000 planned") {
		t.Errorf("notes %q, want the true size", c.Notes)
	}
}

func counter(name string, index int32, tUs int64, v float64) runlog.Sample {
	return runlog.Sample{TUs: tUs, Source: runlog.SourceServer, Name: name, Index: index, Value: v}
}

func TestCase_BR078_Preemptions(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 2)
	for s := range int32(2) {
		tp.steady(s, 0, 0, 10, 10_000, 400, runlog.KindCancelled, 4_100_000)
	}
	fold := func(samples ...runlog.Sample) Cell {
		return Fold(manifest(), tp.planned(1_000_000, 4_000_000), &tp.ev, append(samples, healthy(2, 1_000_000, 4_000_000)...))
	}
	c := fold(counter(runlog.MetricPreemptions, 0, 900_000, 3), counter(runlog.MetricPreemptions, 0, 2_000_000, 30),
		counter(runlog.MetricPreemptions, 0, 4_000_000, 40), counter(runlog.MetricPreemptions, 0, 5_000_000, 99))
	want := "the server preempted requests 37 times (its counter went from 3 to 40)"
	if c.Status != UnderFilled || c.Evidence[0].Text != want || !hasNote(c, "preempted 37 times") {
		t.Errorf("%s %v %q, want Under-filled, %q", c.Status, c.Evidence, c.Notes, want)
	}
	c = fold(counter(runlog.MetricPreemptions, 0, 900_000, 3), counter(runlog.MetricPreemptions, 0, 4_100_000, 3))
	if c.Status != Valid {
		t.Errorf("no growth: %s %v, want Valid", c.Status, c.Evidence)
	}
	c = fold(counter(runlog.MetricPreemptions, 0, 900_000, 3), counter(runlog.MetricPreemptions, 0, 2_000_000, 1), counter(runlog.MetricPreemptions, 0, 4_100_000, 8))
	if c.Status != Valid {
		t.Errorf("a counter that went down: %s %v, want it unknown", c.Status, c.Evidence)
	}
}

func TestCase_BR079_FewerSlotsThanRequests(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1024)
	for s := range int32(1024) {
		if s < 614 {
			tp.steady(s, 0, 0, 10, 1_000_000, 4, runlog.KindCancelled, 4_100_000)
		} else {
			tp.script(t, s, 0, 0, "4100 CANCEL")
		}
	}
	var tel []runlog.Sample
	for t := int64(1_000_000); t <= 4_000_000; t += 1_000_000 {
		tel = append(tel, counter(runlog.MetricRequestsRunning, 0, t, 300), counter(runlog.MetricRequestsRunning, 1, t, 314),
			counter(runlog.MetricRequestsWaiting, 0, t, 410))
	}
	c := Fold(manifest(), tp.planned(1_000_000, 4_000_000), &tp.ev, tel)
	stat(t, "active", c.Figures.ActiveRequests, 614, 614)
	if c.Status != UnderFilled || c.Evidence[0].Text != "614 of 1,024 requests were running on average (4 samples)" ||
		c.Evidence[1].Text != "requests were waiting in 4 of 4 samples, up to 410 of them" {
		t.Errorf("%s %v, want Under-filled with both gauges", c.Status, c.Evidence)
	}
	if !hasNote(c, "TTFT is the median of only 614 of 1,024 requests") {
		t.Errorf("notes %q, want how few TTFT samples there are", c.Notes)
	}
}

func TestCase_BR095_LoopHasNoSpeed(t *testing.T) {
	looped := func(n int) Cell {
		tp := newTape(runlog.PhaseDecode, 8, 1)
		tp.add(0, 0, runlog.NewEvent(runlog.KindSent, 0))
		for i := range 100 + n {
			e := runlog.NewEvent(runlog.KindChunk, int64(i+1)*10_000)
			e.Tokens, e.HasText, e.Channel, e.Text = 1, true, runlog.ChannelReasoning, "ab-"
			if i < 100 {
				e.Text = fmt.Sprintf("%d, ", i*i)
			}
			tp.add(0, 0, e)
		}
		tp.add(0, 0, runlog.NewEvent(runlog.KindCancelled, 30_000_000))
		return Fold(manifest(), tp.planned(5_000, 20_005_000), &tp.ev, nil)
	}
	c := looped(1400)
	if c.Status != Looped || len(c.Evidence) != 1 {
		t.Fatalf("%s %v, want Looped", c.Status, c.Evidence)
	}
	want := Loop{
		Channel: "reasoning", Start: utf8.RuneCountInString(loopPrefix()),
		Period: 3, Cycles: 1400, Length: 4200, TUs: 1_010_000, PeriodStart: "ab-",
	}
	if got := *c.Requests[0].Loop; got != want {
		t.Errorf("loop %+v, want %+v", got, want)
	}
	if c.Evidence[0].TUs != 1_010_000 || c.Evidence[0].Stream != 0 {
		t.Errorf("evidence %+v, want stream 0 at 1010000", c.Evidence[0])
	}
	// Up to the loop's first event: 101 tokens in 1.005 s.
	stat(t, "loop-free tok/s", c.Figures.LoopFreeTokPerS, 101/1.005, 101)
	// The case's own 900 tokens are 2,700 characters: short, but 900 cycles.
	if c := looped(900); c.Status != Looped || c.Requests[0].Loop.Cycles != 900 {
		t.Errorf("900 times \"ab-\": %s %v, want Looped", c.Status, c.Evidence)
	}
	if c := looped(341); c.Status != Valid {
		t.Errorf("1,023 characters: %s, want Valid", c.Status)
	}
}

func loopPrefix() string {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "%d, ", i*i)
	}
	return b.String()
}

func TestCase_BR099_NoFigureUsesTheWantedLength(t *testing.T) {
	m := manifest()
	m.Plan.MaxOutputTokens = 10_000
	tp := newTape(runlog.PhaseDecode, 8, 1)
	for q := range int32(3) {
		at := int64(q) * 10_000_000
		tp.steady(0, q, at, at+1000, 10_000, 801, runlog.KindDone, at+9_000_000)
	}
	c := Fold(m, tp.planned(0, 30_000_000), &tp.ev, nil)
	stat(t, "output tokens", c.Figures.OutputTokens, 2403, 2403)
	stat(t, "total tok/s", c.Figures.TotalTokPerS, 80.1, 2403)
	stat(t, "completed", c.Figures.CompletedRequests, 3, 3)
	stat(t, "time between tokens", c.Figures.BetweenTokensUs, 10_000, 3)
	if c.Status != Failed {
		t.Errorf("%s, want Failed: all ended early although the end was to be ignored", c.Status)
	}
}

func TestCase_BR100_ShortAnswersRefill(t *testing.T) {
	m := manifest()
	m.Plan.Sampling.IgnoreEOS = false // the server refused it
	tp := newTape(runlog.PhaseDecode, 8, 4)
	for s := range int32(4) {
		for q := range int32(100) {
			at := int64(q) * 320_000
			tp.steady(s, q, at, at+20_000, 20_000, 15, runlog.KindDone, at+301_000)
		}
	}
	c := Fold(m, tp.planned(1_000_000, 31_000_000), &tp.ev, nil)
	stat(t, "TTFT", c.Figures.TTFTUs, 20_000, 400)
	completed := 0
	for _, r := range c.Requests {
		if r.EndUs > 1_000_000 && r.EndUs <= 31_000_000 {
			completed++
		}
	}
	stat(t, "completed", c.Figures.CompletedRequests, float64(completed), 400)
	if c.Status != Valid || c.Launch.Completed != 400 || completed == 400 || completed < 370 {
		t.Errorf("%s, %+v, %d in the window, want Valid, all 400, fewer", c.Status, c.Launch, completed)
	}
}

func TestCase_BR101_BR102_CachedPrefill(t *testing.T) {
	const hits, queries = runlog.MetricPrefixCacheHits, runlog.MetricPrefixCacheQueries
	at := func(name string, engine int32, before, after float64) []runlog.Sample {
		return []runlog.Sample{counter(name, engine, 0, before), counter(name, engine, 2_000_000, after)}
	}
	for _, tt := range []struct {
		name   string
		prompt int
		cached string // USAGE or CACHED
		tel    [][]runlog.Sample
		want   Status
		note   bool // it could not be judged
	}{
		{"BR101 hits as long as the prompt", 8192, "", [][]runlog.Sample{at(hits, 0, 5, 8197)}, Cached, false},
		{"BR102 1.0 % over two engines", 10_000, "", [][]runlog.Sample{at(queries, 0, 0, 5000), at(queries, 1, 0, 5000), at(hits, 0, 0, 100), at(hits, 1, 0, 0)}, Cached, false},
		{"BR102 counters that went down are unknown", 800, "", [][]runlog.Sample{at(queries, 0, 1000, 200), at(hits, 0, 900, 10)}, Valid, true},
		{"BR102 missing counters are unknown", 800, "", nil, Valid, true},
		{"no sample after the end is unknown", 800, "", [][]runlog.Sample{{counter(hits, 0, 0, 0), counter(hits, 0, 1_100_000, 800)}}, Valid, true},
		{"a template's share is allowed", 800, "", [][]runlog.Sample{at(hits, 0, 100, 164)}, Valid, false},
		{"more than a template's share is not", 800, "", [][]runlog.Sample{at(hits, 0, 100, 165)}, Cached, false},
		{"hits of other requests say nothing", 800, "", [][]runlog.Sample{at(hits, 0, 0, 8000), at(queries, 0, 0, 8800)}, Valid, true},
		{"the server's word about the request", 8192, "CACHED 8192 82", nil, Cached, false},
		{"under 1 % is not cached", 8192, "CACHED 8192 81", nil, Valid, false},
		{"the server's word wins over the counters", 8192, "CACHED 8192 0", [][]runlog.Sample{at(hits, 0, 0, 8000)}, Valid, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			usage := tt.cached
			if usage == "" {
				usage = fmt.Sprintf("USAGE %d 1", tt.prompt)
			}
			tp := newTape(runlog.PhasePrefill, int32(tt.prompt), 1)
			tp.script(t, 0, 0, 1_000_000, "200 C \"a\"\n201 "+usage+"\n201 DONE")
			var tel []runlog.Sample
			for _, s := range tt.tel {
				tel = append(tel, s...)
			}
			c := Fold(manifest(), tp.planned(), &tp.ev, tel)
			if c.Status != tt.want || hasNote(c, noteNoCache) != tt.note {
				t.Errorf("%s %v, notes %q, want %s, not judged: %v", c.Status, c.Evidence, c.Notes, tt.want, tt.note)
			}
			if cold := c.Figures.ColdTTFTUs; cold.Known() != (tt.want == Valid) {
				t.Errorf("cold TTFT %v of a %s scout", cold, c.Status)
			}
		})
	}
}

func TestCase_BR106_FallingClock(t *testing.T) {
	tp := newTape(runlog.PhaseDecode, 8, 1)
	tp.steady(0, 0, 0, 10, 10_000, 400, runlog.KindCancelled, 4_100_000)
	fold := func(mhz ...float64) Cell {
		tel := []runlog.Sample{{TUs: 500_000, Source: runlog.SourceGPU, Name: runlog.MetricSMClockMHz, Value: 3000}}
		for i, v := range mhz {
			tel = append(tel, runlog.Sample{TUs: 1_000_000 + int64(i)*500_000, Source: runlog.SourceGPU, Name: runlog.MetricSMClockMHz, Value: v})
		}
		return Fold(manifest(), tp.planned(1_000_000, 4_000_000), &tp.ev, tel)
	}
	if c := fold(1950, 1950, 1400, 1100, 1200); !hasNote(c, "SM clock of GPU 0 fell 1,950 → 1,100 MHz") || c.Status != Valid {
		t.Errorf("%s, notes %q, want Valid and the fall", c.Status, c.Notes)
	}
	if c := fold(1100, 1950, 1755, 1950); hasNote(c, "SM clock") {
		t.Errorf("notes %q, want none for exactly 10 %%", c.Notes)
	}
}

func TestCase_BR117_Percentiles(t *testing.T) {
	for _, tt := range []struct {
		xs   []float64
		want Stat
	}{{nil, Stat{}}, {[]float64{7}, Stat{7, 1}}, {[]float64{7, 9}, Stat{8, 2}}, {[]float64{9, 7, 8}, Stat{8, 3}}} {
		if got := median(tt.xs); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.xs, got, tt.want)
		}
		var ints []int64
		for _, x := range tt.xs {
			ints = append(ints, int64(x))
		}
		if len(ints) == 3 {
			ints = []int64{7, 8, 9}
		}
		if got := percentile(ints, 0.5); got != tt.want {
			t.Errorf("percentile(%v, 0.5) = %v, want %v", ints, got, tt.want)
		}
	}
	if got := percentile([]int64{10, 20, 30, 40, 50}, 0.9); got != (Stat{46, 5}) {
		t.Errorf("percentile 90 of 10 … 50 = %v, want 46 by linear interpolation", got)
	}
	if got := percentile([]int64{10, 20}, 1); got != (Stat{20, 2}) {
		t.Errorf("percentile 100 = %v, want the largest", got)
	}
}
