package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/server"
	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// every is a script of n one-token events, stepMs apart.
func every(n int, fromMs, stepMs float64, event string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%g %s\n", fromMs+float64(i)*stepMs, event)
	}
	return b.String()
}

// contentEvent is a script's raw line that writes one content chunk whose
// text is given as it stands in the JSON.
func contentEvent(text string) string {
	return `data: {"choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`
}

// counts asserts what a request delivered.
func (c *caseRun) counts(t *testing.T, request int, tokens int64, events int, prompt int32) {
	t.Helper()
	r := &c.Requests[request]
	if r.Tokens != tokens || r.TokenEvents != events || r.PromptTokens != prompt {
		t.Errorf("request %d: %d tokens in %d token events of a prompt of %d, want %d, %d, %d",
			request, r.Tokens, r.TokenEvents, r.PromptTokens, tokens, events, prompt)
	}
}

// completed asserts that every request of the cell ended by itself and that
// nothing was noted about its counts.
func (c *caseRun) completed(t *testing.T) {
	t.Helper()
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Failed || r.End != runlog.KindDone || r.Note != "" {
			t.Errorf("request %d: ended %v, failed %v %q, note %q, want done", i, r.End, r.Failed, r.Reason, r.Note)
		}
	}
	if c.Status != ingest.Valid || c.Launch.Completed != len(c.Requests) {
		t.Errorf("status %v, %+v, evidence %v, want Valid with all completed", c.Status, c.Launch, c.Evidence)
	}
}

// The role chunk is stored and starts nothing.
func TestCase_BR001(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "6 ROLE\n214 C \"Hi\"\n234 C \"!\"\n235 FIN stop\n235 USAGE 9 2\n236 DONE")
	c.completed(t)
	c.took(t, "TTFT", c.Requests[0].TTFTUs, 0, sent, 1, 214)
	c.took(t, "TTFT of the cell", c.Figures.TTFTUs, 0, sent, 1, 214)
	c.gaps(t, 0, 1, 2)
	c.took(t, "time between tokens", c.Requests[0].BetweenTokensUs, 0, 1, 2, 20)
	c.counts(t, 0, 2, 2, 9)
	if got, want := c.kinds(0), "sent headers chunk chunk chunk chunk usage done"; got != want {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// The role chunk leaves after the first slice of a prefill; the rest of the
// prefill belongs to TTFT, and to the prefill rate.
func TestCase_BR003(t *testing.T) {
	t.Parallel()
	c := playCase(t, caseSetup{Phase: runlog.PhasePrefill, Context: 5000, MaxOutput: 3, Streams: [][]string{{
		"900 ROLE\n2200 C \"a\"\n2220 C \"b\"\n2240 C \"c\"\n2241 FIN length\n2241 USAGE 5000 3\n2241 DONE"}}})
	c.completed(t)
	r := &c.Requests[0]
	c.took(t, "TTFT", r.TTFTUs, 0, sent, 1, 2200)
	c.gaps(t, 0, 1, 2, 3)
	c.counts(t, 0, 3, 3, 5000)
	want := 5000 / (r.TTFTUs.Value / 1e6)
	if got := c.Figures.PrefillTokPerS; got.N != 1 || math.Abs(got.Value-want) > 1e-9*want || got.Value > 2274 {
		t.Errorf("prefill = %v tok/s, want %v, never more than the 2,273 of the script", got, want)
	}
}

// Thinking starts TTFT; the answer has a figure of its own.
func TestCase_BR004(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "120 R \"Okay\"\n140 R \" so\"\n900 C \"\\n\"\n920 C \"42\"\n921 FIN stop\n921 USAGE 10 4\n921 DONE")
	c.completed(t)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 120)
	c.took(t, "time to first answer", c.Figures.FirstAnswerUs, 0, sent, 2, 900)
	c.gaps(t, 0, 0, 1, 2, 3)
	c.took(t, "longest gap", c.Figures.GapMaxUs, 0, 1, 2, 760)
	c.counts(t, 0, 4, 4, 10)
	if got, want := c.text(0), "Okay so\n42"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

// content: null beside a reasoning text hides nothing.
func TestCase_BR006(t *testing.T) {
	t.Parallel()
	c := playScripts(t, `70 W data: {"choices":[{"index":0,"delta":{"reasoning_content":"x","content":null},"finish_reason":null}]}\n\n
90 W data: {"choices":[{"index":0,"delta":{"reasoning_content":"y","content":null},"finish_reason":null}]}\n\n
110 C "z"
111 FIN stop
111 USAGE 5 3
111 DONE`)
	c.completed(t)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 70)
	c.gaps(t, 0, 0, 1, 2)
	c.counts(t, 0, 3, 3, 5)
	if got := c.text(0); got != "xyz" {
		t.Errorf("text %q, want xyz", got)
	}
}

// No token at all: no crash, no figure, but the prompt's length.
func TestCase_BR008(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "20 ROLE\n30 FIN stop\n30 USAGE 7 0\n30 DONE")
	r := &c.Requests[0]
	c.counts(t, 0, 0, 0, 7)
	if !r.Failed || r.Reason != "no output: the stream ended without a token" || c.Status != ingest.Failed {
		t.Errorf("failed %v %q, status %v, want a request without output", r.Failed, r.Reason, c.Status)
	}
	for _, f := range c.Figures.Named() {
		switch f.Name {
		case "measured_for_us", "completed_requests", "total_tok_per_s", "output_tokens", "first_half_tok_per_s", "second_half_tok_per_s":
		default:
			c.unknown(t, f.Name, f.Stat)
		}
	}
	if got := c.Figures.CompletedRequests; got != (ingest.Stat{Value: 0, N: 1}) {
		t.Errorf("completed requests = %v, want 0 of 1", got)
	}
	page := c.page(t)
	if want := "| Sustained decode | 8K | 1 | Failed |" + strings.Repeat(" — |", 8); !strings.Contains(page, want) {
		t.Errorf("the page has no row %q:\n%s", want, page)
	}
	for _, wrong := range []string{" 0 ms", " 0.0 ms", "NaN", "Inf"} {
		if strings.Contains(page, wrong) {
			t.Errorf("the page says %q:\n%s", wrong, page)
		}
	}
}

// Requests without output take no part in a median and are counted.
func TestCase_BR010(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "5 ROLE\n6 DONE", "5 ROLE\n6 DONE", "5 ROLE\n80 C \"a\"\n100 C \"b\"\n101 FIN stop\n101 USAGE 3 2\n101 DONE")
	if got := c.Figures.TTFTUs; got.N != 1 {
		t.Errorf("TTFT is the median of %d values, want 1", got.N)
	}
	c.took(t, "TTFT", c.Figures.TTFTUs, 2, sent, 1, 80)
	if c.Launch.Launched != 3 || c.Launch.Failed != 2 || c.Launch.Completed != 1 || c.Status != ingest.Failed {
		t.Errorf("status %v, %+v, want Failed with 2 failed and 1 completed", c.Status, c.Launch)
	}
	for i := range 2 {
		c.unknown(t, "TTFT of a request without output", c.Requests[i].TTFTUs)
	}
	if page := c.page(t); !strings.Contains(page, "no output") || !strings.Contains(page, "2 of 3 requests failed") {
		t.Errorf("the page does not say that 2 of 3 requests failed without output:\n%s", page)
	}
}

// Every spelling of the thinking field starts TTFT; the same text under two
// names is one event.
func TestCase_BR011(t *testing.T) {
	t.Parallel()
	c := playScripts(t, `60 W data: {"choices":[{"index":0,"delta":{"reasoning":"a","reasoning_content":"a","content":""},"finish_reason":null}]}\n\n
80 W data: {"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"text","text":"b"}]},"finish_reason":null}]}\n\n
100 C "c"
101 FIN stop
101 USAGE 5 3
101 DONE`)
	c.completed(t)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 60)
	c.gaps(t, 0, 0, 1, 2)
	c.counts(t, 0, 3, 3, 5)
	if got := c.text(0); got != "abc" {
		t.Errorf("text %q, want abc", got)
	}
}

// Several tokens in a chunk: gaps are between events, and are called so; the
// time between tokens is per token.
func TestCase_BR013(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "100 CU \"a\" 1\n160 CU \" call text\" 4\n180 CU \"b\" 5\n181 FIN stop\n181 USAGE 5 5\n181 DONE")
	c.completed(t)
	c.gaps(t, 0, 0, 1, 2)
	c.is(t, "longest gap", c.Figures.GapMaxUs, float64(max(c.wrote(0, 1)-c.wrote(0, 0), c.wrote(0, 2)-c.wrote(0, 1))))
	c.is(t, "time between tokens", c.Figures.BetweenTokensUs, float64(c.wrote(0, 2)-c.wrote(0, 0))/4)
	c.counts(t, 0, 5, 3, 5)
	page := c.page(t)
	for _, want := range []string{"Time between tokens", "Gaps are between neighbouring events of one request"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TTFT is not among the gaps.
func TestCase_BR015(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "500 C \"a\"\n520 C \"b\"\n540 C \"c\"\n541 FIN stop\n541 USAGE 5 3\n541 DONE")
	c.completed(t)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 500)
	c.gaps(t, 0, 0, 1, 2)
	longest := max(c.wrote(0, 1)-c.wrote(0, 0), c.wrote(0, 2)-c.wrote(0, 1))
	c.is(t, "longest gap", c.Figures.GapMaxUs, float64(longest))
	if got := c.Figures.GapMaxUs.N; got != 2 {
		t.Errorf("%d gaps, want 2", got)
	}
}

// A running usage that stands still counts nothing; the final usage does.
func TestCase_BR016(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "100 CU \"a\" 1\n120 CU \"b\" 1\n140 CU \"c\" 1\n141 FIN stop\n141 USAGE 4 3\n141 DONE")
	r := &c.Requests[0]
	c.counts(t, 0, 3, 3, 4)
	if r.Note != "running usage not usable" || r.Failed {
		t.Errorf("note %q, failed %v, want a completed request whose running usage is not usable", r.Note, r.Failed)
	}
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 100)
	c.gaps(t, 0, 0, 1, 2)
	// Three events with text and three tokens: one each.
	c.is(t, "time between tokens", c.Figures.BetweenTokensUs, float64(c.wrote(0, 2)-c.wrote(0, 0))/2)
	for _, f := range c.Figures.Named() {
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
			t.Errorf("%s = %v", f.Name, f.Value)
		}
	}
}

// usageOnRequest answers chat completions with n tokens, one each 5 ms, and
// sends usage only to those who ask for it. Everything else next answers.
func usageOnRequest(t *testing.T, n int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			next.ServeHTTP(w, r)
			return
		}
		var body struct {
			MaxTokens int `json:"max_tokens"`
			Options   struct {
				Usage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("request body: %v", err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		n := min(n, body.MaxTokens)
		wait := 50 * time.Millisecond
		for range n {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(wait):
			}
			wait = 5 * time.Millisecond
			io.WriteString(w, contentEvent("x")+"\n\n")
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
		if body.Options.Usage {
			fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":%d}}\n\n", n)
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
}

// The collector asks for usage, and never takes max_tokens for a length.
func TestCase_BR018(t *testing.T) {
	t.Parallel()
	sim, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 4096, Metrics: simserver.MetricsNone})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(usageOnRequest(t, 24, sim))
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	u, err := server.ParseURL(ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := collect.Run(context.Background(), collect.Config{
		URL: u, Root: t.TempDir(), Random: rand.Reader, Idle: 20 * time.Second,
		ReadyHold: 50 * time.Millisecond, DrainHold: 50 * time.Millisecond,
		Tool:    runlog.Tool{Name: "speedmatrix"},
		Machine: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
		Plan:    collect.PlanRequest{ContextsTokens: []int32{256}, Concurrency: []int32{1}, Duration: 2 * time.Second, MaxOutputTokens: 512},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, c, err := ingest.LoadCell(dir, runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 256, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	if m.Plan.MaxOutputTokens != 512 || m.Plan.TokenCounting != "final usage" {
		t.Errorf("max_tokens %d, counting %q, want 512 and the final usage", m.Plan.MaxOutputTokens, m.Plan.TokenCounting)
	}
	done := 0
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.End != runlog.KindDone {
			continue
		}
		done++
		if r.Tokens != 24 || r.Failed {
			t.Errorf("request %d: %d tokens, failed %v %q, want 24", i, r.Tokens, r.Failed, r.Reason)
		}
		if want := float64(r.LastUs-r.FirstUs) / 23; r.BetweenTokensUs != (ingest.Stat{Value: want, N: 1}) || want < 4500 {
			t.Errorf("request %d: time between tokens %v µs, want %v, about 5 ms at least", i, r.BetweenTokensUs, want)
		}
	}
	if done == 0 {
		t.Errorf("no request completed: %+v", c.Launch)
	}
}

// The server's count stands; without one nothing is counted; more than was
// asked for is a fault.
func TestCase_BR019(t *testing.T) {
	t.Parallel()
	words := every(8, 20, 5, `C "word "`)
	play := func(end, counting string) *caseRun {
		return playCase(t, caseSetup{MaxOutput: 8, IgnoreEOS: true, Counting: counting, Streams: [][]string{{words + end}}})
	}
	c := play("56 FIN length\n56 USAGE 4 8\n56 DONE", "final usage")
	c.completed(t)
	c.counts(t, 0, 8, 8, 4)

	c = play("56 FIN length\n56 DONE", "chunks")
	c.counts(t, 0, -1, 8, runlog.Unknown)
	c.unknown(t, "tok/s of a server that does not count", c.Figures.TotalTokPerS)
	c.unknown(t, "time between tokens of a server that does not count", c.Figures.BetweenTokensUs)
	if got, want := c.text(0), strings.Repeat("word ", 8); got != want {
		t.Errorf("text %q, want %q", got, want)
	}

	c = play("56 FIN length\n56 USAGE 4 16\n56 DONE", "final usage")
	if r := &c.Requests[0]; !r.Failed || r.Reason != "16 tokens, more than the 8 asked for" || c.Status != ingest.Failed {
		t.Errorf("failed %v %q, status %v, want the count to be a fault", r.Failed, r.Reason, c.Status)
	}
}

// A stall is in the gaps; the mean alone would hide it.
func TestCase_BR021(t *testing.T) {
	t.Parallel()
	c := playScripts(t, every(10, 100, 10, `C "x"`)+every(11, 1190, 10, `C "x"`)+"1300 FIN stop\n1300 USAGE 3 21\n1300 DONE")
	c.completed(t)
	writes := make([]int, 21)
	gaps := make([]float64, 20)
	for i := range writes {
		writes[i] = i
		if i > 0 {
			gaps[i-1] = float64(c.wrote(0, i) - c.wrote(0, i-1))
		}
	}
	c.gaps(t, 0, writes...)
	c.took(t, "longest gap", c.Figures.GapMaxUs, 0, 9, 10, 1000)
	slices.Sort(gaps)
	c.is(t, "median gap", c.Figures.GapP50Us, (gaps[9]+gaps[10])/2)
	c.is(t, "time between tokens", c.Figures.BetweenTokensUs, float64(c.wrote(0, 20)-c.wrote(0, 0))/20)
	if got := c.Figures.GapP50Us; got.N != 20 || got.Value > c.Figures.GapMaxUs.Value/4 {
		t.Errorf("median gap = %v µs of %d, want one of 20 that is nothing like the stall", got.Value, got.N)
	}
	if got := c.Requests[0].LongestGapAt; got != c.tokenTimes(0)[10] {
		t.Errorf("the longest gap ended at %d µs, want at token 11", got)
	}
	if page := c.page(t); !strings.Contains(page, "Longest gap") {
		t.Error("the page has no tail figure of the gaps")
	}
}

// Tokens, not characters.
func TestCase_BR023(t *testing.T) {
	t.Parallel()
	c := playScripts(t, every(10, 20, 20, `C "abcdefghijkl"`)+"201 FIN length\n201 USAGE 3 10\n201 DONE")
	c.completed(t)
	c.counts(t, 0, 10, 10, 3)
	if got := c.Figures.OutputTokens; got.Value != 10 {
		t.Errorf("output tokens of the cell = %v, want 10", got.Value)
	}

	// Without usage there is no count, and no estimate either.
	c = playCase(t, caseSetup{Counting: "chunks", Streams: [][]string{{every(10, 20, 20, `C "abcdefghijkl"`) + "201 FIN length\n201 DONE"}}})
	c.counts(t, 0, -1, 10, runlog.Unknown)
	c.unknown(t, "output tokens", c.Figures.OutputTokens)
	c.unknown(t, "per request tok/s", c.Figures.PerRequestTokPerS)
}

// The prefill is in no time between tokens, and packed tokens are several.
func TestCase_BR025(t *testing.T) {
	t.Parallel()
	c := playScripts(t, `1000 CU "a" 1
1020 CU "bc" 3
1040 CU "de" 5
1060 CU "fg" 7
1080 CU "hi" 9
1100 CU "jk" 11
1101 FIN stop
1101 USAGE 40000 11
1101 DONE`)
	c.completed(t)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 1000)
	c.counts(t, 0, 11, 6, 40000)
	c.is(t, "time between tokens", c.Figures.BetweenTokensUs, float64(c.wrote(0, 5)-c.wrote(0, 0))/10)
	if got := c.Requests[0].FirstTokens; got != 1 {
		t.Errorf("the first event had %d tokens, want 1", got)
	}
}

// Events glued into one write share its time; one that is spread over three
// has that of the last.
func TestCase_BR037(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "100 W "+contentEvent("a")+`\n\n`+contentEvent("b")+`\n\ndata: {"cho
120 W ices":[{"index":0,"delta":{"content":"c"},"finish_reason":null}]}
140 W \n\ndata: [DONE]\n\n`)
	c.counts(t, 0, -1, 3, runlog.Unknown)
	if got := c.text(0); got != "abc" {
		t.Errorf("text %q, want abc", got)
	}
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 100)
	c.gaps(t, 0, 0, 0, 2)
	row := c.Requests[0].FirstRow + 2 // behind sent and headers
	if ev := c.Events; ev.SameRead[row] || !ev.SameRead[row+1] || ev.TUs[row] != ev.TUs[row+1] || ev.SameRead[row+2] {
		t.Errorf("same read %v, times %v, want only b to share the read of a", ev.SameRead[row:row+3], ev.TUs[row:row+3])
	}
}

// Blanks survive, wherever the bytes are cut.
func TestCase_BR038(t *testing.T) {
	t.Parallel()
	c := playScripts(t, `100 W data:
101 W  {"choices":[{"index":0,"delta":{"content":"x
102 W  y"},"finish_reason":null}]}\n\n
103 W data: [DONE]\n\n`)
	c.counts(t, 0, -1, 1, runlog.Unknown)
	if got := c.text(0); got != "x y" {
		t.Errorf("text %q, want %q", got, "x y")
	}
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 2, 102)
	if r := &c.Requests[0]; r.Failed || r.End != runlog.KindDone {
		t.Errorf("ended %v, failed %v %q", r.End, r.Failed, r.Reason)
	}

	wire := contentEvent("x y") + "\n\ndata: [DONE]\n\n"
	var cuts []string
	for i := 1; i < len(wire); i++ {
		cuts = append(cuts, "0 W "+escaped(wire[:i])+"\n1 W "+escaped(wire[i:]))
	}
	// The times are not looked at: of two writes so close together a busy
	// client may see but one read.
	c = record(t, caseSetup{Streams: [][]string{cuts}})
	for i := range c.Requests {
		if got, kinds := c.text(i), c.kinds(i); got != "x y" || kinds != "sent headers chunk done" {
			t.Errorf("cut at %d: text %q, rows %q", i+1, got, kinds)
		}
	}
	if len(c.Requests) != len(cuts) {
		t.Errorf("%d requests, want %d", len(c.Requests), len(cuts))
	}
}

// escaped writes bytes for a W line.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// The blank behind "data:" is optional.
func TestCase_BR039(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "50 W "+strings.Replace(contentEvent("a"), "data: ", "data:", 1)+`\n\n
70 W `+contentEvent("b")+`\n\n
71 W data:[DONE]\n\n`)
	c.counts(t, 0, -1, 2, runlog.Unknown)
	c.gaps(t, 0, 0, 1)
	if got, kinds := c.text(0), c.kinds(0); got != "ab" || kinds != "sent headers chunk chunk done" {
		t.Errorf("text %q, rows %q", got, kinds)
	}
}

// Comments are nothing, not even between the lines of an event.
func TestCase_BR040(t *testing.T) {
	t.Parallel()
	c := playScripts(t, `50 W :\n\n
60 W `+contentEvent("a")+`\n\n
70 W :\n
75 W :\n\n
80 W `+contentEvent("b")+`\n\n
81 W data: [DONE]\n\n`)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 1, 60)
	c.gaps(t, 0, 1, 4)
	if got, kinds := c.text(0), c.kinds(0); got != "ab" || kinds != "sent headers chunk chunk done" {
		t.Errorf("text %q, rows %q", got, kinds)
	}
	// JSON may be spread over data lines; a comment between them is no part of it.
	c = playScripts(t, `10 W data: {"choices":[{"delta":\n: ping\ndata: {"content":"c"}}]}\n:\n\n
20 W data: [DONE]\n\n`)
	if got, kinds := c.text(0), c.kinds(0); got != "c" || kinds != "sent headers chunk done" {
		t.Errorf("with a comment between data lines: text %q, rows %q", got, kinds)
	}
}

// A line of 200 KiB is one event.
func TestCase_BR042(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 204800)
	c := playScripts(t, "50 C \"a\"\n60 C \""+big+"\"\n80 C \"b\"\n81 FIN stop\n81 USAGE 3 3\n81 DONE")
	c.counts(t, 0, 3, 3, 3)
	c.gaps(t, 0, 0, 1, 2)
	if got := c.text(0); got != "a"+big+"b" {
		t.Errorf("text of %d bytes, want a, 204,800 times x, b", len(got))
	}
	if r := &c.Requests[0]; r.Failed || r.End != runlog.KindDone {
		t.Errorf("ended %v, failed %v %q", r.End, r.Failed, r.Reason)
	}
}

// A character that straddles two writes is one character.
func TestCase_BR044(t *testing.T) {
	t.Parallel()
	c := playScripts(t, `50 W data: {"choices":[{"index":0,"delta":{"content":"\xE4
60 W \xB8\xAD"},"finish_reason":null}]}\n\n
61 W data: [DONE]\n\n`)
	c.counts(t, 0, -1, 1, runlog.Unknown)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 1, 60)
	if r := &c.Requests[0]; c.text(0) != "中" || r.Failed || r.End != runlog.KindDone {
		t.Errorf("text %q, ended %v, failed %v %q, want U+4E2D and done", c.text(0), r.End, r.Failed, r.Reason)
	}
}

// CR LF ends lines too, and events when they end.
func TestCase_BR048(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "50 W "+contentEvent("a")+`\r\n\r\n
70 W `+contentEvent("b")+`\r\n\r\n
71 W data: [DONE]\r\n\r\n`)
	c.took(t, "TTFT", c.Figures.TTFTUs, 0, sent, 0, 50)
	c.gaps(t, 0, 0, 1)
	if got, kinds := c.text(0), c.kinds(0); got != "ab" || kinds != "sent headers chunk chunk done" {
		t.Errorf("text %q, rows %q", got, kinds)
	}
}

// The usage chunk has no choices and is no token, however late it comes.
func TestCase_BR049(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "50 C \"a\"\n70 C \"b\"\n71 FIN stop\n400 USAGE 5 2\n401 DONE")
	c.completed(t)
	c.counts(t, 0, 2, 2, 5)
	r := &c.Requests[0]
	c.took(t, "last token", ingest.Stat{Value: float64(r.LastUs - r.SentUs), N: 1}, 0, sent, 1, 70)
	c.took(t, "time between tokens", r.BetweenTokensUs, 0, 0, 1, 20)
	c.took(t, "end", ingest.Stat{Value: float64(r.EndUs - r.SentUs), N: 1}, 0, sent, 4, 401)
}

// Where the server says how many tokens there were is its own affair.
func TestUsageWhereverItStands(t *testing.T) {
	t.Parallel()
	text := "5 C \"a\"\n6 C \"b\"\n"
	finish := func(usage string) string {
		return `7 W data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":` + usage + `}\n\n` + "\n"
	}
	for _, tt := range []struct {
		name, script string
		tokens       int64
		prompt       int32
	}{
		{"behind the finish", text + "7 FIN stop\n8 USAGE 5 2\n9 DONE", 2, 5},
		{"ahead of the finish", text + "7 USAGE 5 2\n8 FIN stop\n9 DONE", 2, 5},
		{"on the finish", text + finish(`{"prompt_tokens":5,"completion_tokens":2}`) + "9 DONE", 2, 5},
		{"on the finish, fewer events than tokens", text + finish(`{"prompt_tokens":5,"completion_tokens":7}`) + "9 DONE", 7, 5},
		{"on the finish and behind it", text + finish(`{"prompt_tokens":5,"completion_tokens":2}`) + "8 USAGE 5 2\n9 DONE", 2, 5},
		{"twice", text + "7 FIN stop\n8 USAGE 5 2\n8 USAGE 5 2\n9 DONE", 2, 5},
		{"twice, the last one right", text + "7 FIN stop\n8 USAGE 5 1\n8 USAGE 5 2\n9 DONE", 2, 5},
		{"null everywhere", text + finish("null") + "9 DONE", -1, runlog.Unknown},
		{"without numbers", text + finish("{}") + "9 DONE", -1, runlog.Unknown},
		{"of another type", text + finish("[1]") + "9 DONE", -1, runlog.Unknown},
		{"numbers that are no counts", text + finish(`{"prompt_tokens":-1,"completion_tokens":2.5}`) + "9 DONE", -1, runlog.Unknown},
		{"numbers beyond any count", text + finish(`{"prompt_tokens":1e300,"completion_tokens":99999999999999999999}`) + "9 DONE", -1, runlog.Unknown},
		{"of the prompt only, ahead of the text", "4 USAGE 5 0\n" + text + "7 FIN stop\n9 DONE", -1, 5},
		{"ahead of all text", "4 USAGE 5 2\n" + text + "7 FIN stop\n9 DONE", -1, 5},
		{"on a chunk of its own after each event", "4 C \"a\"\n5 USAGE 5 1\n6 C \"b\"\n7 USAGE 5 2\n8 FIN stop\n9 DONE", 2, 5},
		{"on some events", "4 CU \"a\" 1\n5 C \"b\"\n6 CU \"c\" 4\n8 FIN stop\n9 DONE", 4, runlog.Unknown},
		{"on all events but the last", "4 CU \"a\" 1\n5 CU \"b\" 2\n6 C \"c\"\n8 FIN stop\n9 DONE", -1, runlog.Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := record(t, caseSetup{Streams: [][]string{{tt.script}}})
			r := &c.Requests[0]
			if r.Tokens != tt.tokens || r.PromptTokens != tt.prompt || r.Failed || r.Note != "" {
				t.Errorf("%d tokens of a prompt of %d, failed %v %q, note %q, want %d, %d", r.Tokens, r.PromptTokens, r.Failed, r.Reason, r.Note, tt.tokens, tt.prompt)
			}
			if want := strings.Count(tt.script, " C "+`"`) + strings.Count(tt.script, " CU "); r.TokenEvents != want {
				t.Errorf("%d token events, want %d", r.TokenEvents, want)
			}
			if got := c.tokenTimes(0); r.LastUs != got[len(got)-1] {
				t.Errorf("last token at %d µs, want %d", r.LastUs, got[len(got)-1])
			}
		})
	}
}

// Whatever carries the first output starts TTFT, and nothing before it does.
func TestFirstTokenInEveryShape(t *testing.T) {
	t.Parallel()
	choice := func(delta string) string {
		return `{"choices":[{"index":0,"delta":{` + delta + `},"finish_reason":null}]}`
	}
	for _, tt := range []struct{ name, first, text string }{
		{"content", choice(`"content":"a"`), "a"},
		{"a blank", choice(`"content":" "`), " "},
		{"role and content in one", choice(`"role":"assistant","content":"a"`), "a"},
		{"reasoning", choice(`"reasoning":"a"`), "a"},
		{"reasoning_content", choice(`"reasoning_content":"a"`), "a"},
		{"reasoning_details", choice(`"reasoning_details":[{"type":"reasoning.text","text":"a"}]`), "a"},
		{"all spellings at once", choice(`"reasoning":"a","reasoning_content":"a","reasoning_details":[{"text":"a"}]`), "a"},
		{"reasoning beside an empty answer", choice(`"content":"","reasoning":"a"`), "a"},
		{"a refusal", choice(`"refusal":"a"`), "a"},
		{"the name of a tool", choice(`"tool_calls":[{"index":0,"function":{"name":"a","arguments":""}}]`), "a"},
		{"text of a text completion", `{"choices":[{"index":0,"text":"a","finish_reason":null}]}`, "a"},
		{"a second choice", `{"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"content":"a"}}]}`, "a"},
		{"a token id without text", `{"choices":[{"index":0,"delta":{"content":""},"token_ids":[2]}]}`, ""},
		{"a growing usage without text", `{"choices":[{"index":0,"delta":{"content":""}}],"usage":{"completion_tokens":1}}`, ""},
		{"the finish chunk", `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"}]}`, "a"},
		{"half a character", choice(`"content":"\xE4"`), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := playScripts(t, `5 ROLE
10 W data: `+choice(`"content":null,"reasoning":null,"tool_calls":[]`)+`\n\n
15 W data: `+choice(`"content":"","reasoning":""`)+`\n\n
20 W : ping\n\n
25 W data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":0}}\n\n
60 W data: `+tt.first+`\n\n
100 FIN stop
101 DONE`)
			r := &c.Requests[0]
			c.took(t, "TTFT", r.TTFTUs, 0, sent, 5, 60)
			if r.TokenEvents != 1 || r.FirstUs != r.LastUs || r.Failed {
				t.Errorf("%d token events from %d to %d µs, failed %v %q, want one", r.TokenEvents, r.FirstUs, r.LastUs, r.Failed, r.Reason)
			}
			if got := strings.TrimSuffix(c.text(0), "\uFFFD"); got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			c.unknown(t, "time between tokens of one event", r.BetweenTokensUs)
			c.unknown(t, "gaps of one event", c.Figures.GapMaxUs)
		})
	}
}

// A running usage in every state of repair.
func TestRunningUsageOfEveryKind(t *testing.T) {
	t.Parallel()
	const unusable, differs = "running usage not usable", "its events and its final usage disagree about the number of tokens"
	for _, tt := range []struct {
		name, script string
		tokens       int64
		each         bool // the tokens of each event are known
		note         string
	}{
		{"one each", "1 CU \"a\" 1\n2 CU \"b\" 2\n3 USAGE 4 2", 2, true, ""},
		{"packed", "1 CU \"a\" 3\n2 CU \"b\" 9\n3 USAGE 4 9", 9, true, ""},
		{"without a final one", "1 CU \"a\" 1\n2 CU \"b\" 4", 4, true, ""},
		{"text whose tokens were counted with the event before", "1 CU \"a\" 2\n2 CU \"b\" 2\n3 CU \"c\" 3\n4 USAGE 4 3", 3, true, ""},
		{"never grows", "1 CU \"a\" 1\n2 CU \"b\" 1\n3 CU \"c\" 1\n4 CU \"d\" 1\n5 USAGE 4 6", 6, false, unusable},
		{"never grows, without a final one", "1 CU \"a\" 1\n2 CU \"b\" 1\n3 CU \"c\" 1\n4 CU \"d\" 1", -1, false, unusable},
		{"always 0", "1 CU \"a\" 0\n2 CU \"b\" 0\n3 USAGE 4 5", 5, false, unusable},
		{"goes down", "1 CU \"a\" 2\n2 CU \"b\" 4\n3 CU \"c\" 3\n4 USAGE 4 5", 5, false, unusable},
		{"goes down, without a final one", "1 CU \"a\" 2\n2 CU \"b\" 4\n3 CU \"c\" 3", -1, false, unusable},
		{"begins anew", "1 CU \"a\" 1\n2 CU \"b\" 2\n3 CU \"c\" 1\n4 USAGE 4 3", 3, true, unusable},
		{"less than the final one", "1 CU \"a\" 1\n2 CU \"b\" 2\n3 USAGE 4 5", 5, true, differs},
		{"two choices, each counting for itself", `1 W data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}\n\n
1 W data: {"choices":[{"index":1,"delta":{"content":"b"}}],"usage":{"completion_tokens":1}}\n\n
2 W data: {"choices":[{"index":0,"delta":{"content":"c"}}],"usage":{"completion_tokens":3}}\n\n
2 W data: {"choices":[{"index":1,"delta":{"content":"d"}}],"usage":{"completion_tokens":3}}\n\n
3 USAGE 4 6`, 6, false, unusable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := record(t, caseSetup{Streams: [][]string{{tt.script + "\n9 FIN stop\n9 DONE"}}})
			r := &c.Requests[0]
			if r.Tokens != tt.tokens || r.FirstTokens >= 0 != tt.each || r.Note != tt.note || r.Failed {
				t.Errorf("%d tokens, %d in the first event, note %q, failed %v; want %d, known %v, %q", r.Tokens, r.FirstTokens, r.Note, r.Failed, tt.tokens, tt.each, tt.note)
			}
			if known := c.Figures.TotalTokPerS.Known(); known != (tt.tokens >= 0) {
				t.Errorf("total tok/s known: %v, want %v", known, tt.tokens >= 0)
			}
			for _, f := range c.Figures.Named() {
				if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
					t.Errorf("%s = %v", f.Name, f.Value)
				}
			}
		})
	}
}
