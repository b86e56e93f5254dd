package ingest

import "speedmatrix/ingest/runlog"

// Method is the version of the definitions that this package computes by.
// docs/method.md describes them. A change of any number's meaning takes a
// new version, and runs are compared only under one version.
const Method = "method/1"

// A Run is a run directory with everything computed that can be computed
// from it.
type Run struct {
	ID       string // name of the run directory
	Manifest *runlog.Manifest

	Prefill []Cell // one per planned prefill context, ascending
	Decode  []Cell // every planned decode cell, ascending context, then concurrency

	Warmup *Cell // the hidden warm-up's requests; nil when there was none; never on a page as a result

	Notes []string // what a reader of the whole run must know, such as "server metrics were not available (404 Not Found)"
}

// A Cell is one planned measurement: its status with the evidence, and its
// figures. Figures are computed whatever the status is, as evidence; only
// those of Valid cells are results that a page may show or compare.
type Cell struct {
	runlog.Cell // what was planned and recorded

	Status   Status
	Evidence []Evidence // why Status is what it is, and every other status that also applied, in precedence order; never empty unless Valid

	Figures  Figures
	Spread   Spread    // how far the values behind the medians lie apart
	Timeline *Timeline // of a decode cell with events and a window; else nil
	Checks   Checks    // whether the figures can be believed
	Launch   Counts    // what became of the requests

	GPUs []GPUState // by index; none where no GPU was watched

	Requests []Request // ascending stream, request
	Notes    []string  // collector's notes and what ingest noticed, such as "warm-up timed out", "not steady: …", "preempted 37 times"
}

// Evidence is one reason for one status: what happened, to which request, when.
type Evidence struct {
	Status  Status
	Text    string // one sentence without a final period, foreign text quoted
	Stream  int32  // −1 when it is about no single request
	Request int32
	TUs     int64 // −1 when it is about no single instant
}

// A Stat is a figure with the number of values behind it. N is 0 where
// nothing was measured; Value is then 0 and must not be used.
type Stat struct {
	Value float64
	N     int
}

// Known reports whether there is a value.
func (s Stat) Known() bool { return s.N > 0 }

// Figures are the numbers of one cell, in base units. Times are
// microseconds, rates are tokens per second.
type Figures struct {
	PrefillTokPerS Stat // prefill only: median over the samples of prompt tokens / TTFT
	PromptTokens   Stat // median of usage.prompt_tokens over the requests that report it

	TotalTokPerS      Stat // decode: tokens in the window / window; N is the number of token events
	OutputTokens      Stat // decode: tokens in the window; N as above
	WindowUs          Stat // decode: close − open, N is 1
	PerRequestTokPerS Stat // decode: median over requests
	TTFTUs            Stat // median over requests (prefill: over samples)
	BetweenTokensUs   Stat // decode: median over requests
	ActiveRequests    Stat // decode: time average over the window; N is the number of requests that were ever active in it
	CompletedRequests Stat // requests that ended by themselves inside the window (prefill: samples measured); N is the number of requests

	// Shown in addition.
	GapP50Us, GapP90Us, GapP99Us, GapMaxUs Stat // gaps between neighbouring token events of a request, in the window, over all requests that did not fail
	FirstAnswerUs                          Stat // time to first answer token of requests that reasoned first; median
	ColdTTFTUs                             Stat // TTFT of the scouts that measured this context's prefill, where that cell is Valid
	TokensPerEvent                         Stat // tokens / token events in the window; N is the number of events: above 1 under speculation or a stream interval
	FirstHalfTokPerS, SecondHalfTokPerS    Stat // the window's two halves; N is the number of token events of the whole window
	SlowestTokPerS, FastestTokPerS         Stat // the slowest and the fastest request by per-request tok/s
	LoopFreeTokPerS                        Stat // Looped only: rate of the window before the first loop began; evidence, never a result
	CachedShare                            Stat // cached prompt tokens / prompt tokens, 0 … 1; where the server says it
}

// A NamedStat is a figure with the name under which data files carry it.
// The name says the unit.
type NamedStat struct {
	Name string
	Stat
}

// Named lists every figure in the order of its declaration.
func (f *Figures) Named() []NamedStat {
	return []NamedStat{
		{"prefill_tok_per_s", f.PrefillTokPerS},
		{"prompt_tokens", f.PromptTokens},
		{"total_tok_per_s", f.TotalTokPerS},
		{"output_tokens", f.OutputTokens},
		{"measured_for_us", f.WindowUs},
		{"per_request_tok_per_s", f.PerRequestTokPerS},
		{"ttft_us", f.TTFTUs},
		{"time_between_tokens_us", f.BetweenTokensUs},
		{"average_active_requests", f.ActiveRequests},
		{"completed_requests", f.CompletedRequests},
		{"gap_p50_us", f.GapP50Us},
		{"gap_p90_us", f.GapP90Us},
		{"gap_p99_us", f.GapP99Us},
		{"gap_max_us", f.GapMaxUs},
		{"first_answer_us", f.FirstAnswerUs},
		{"cold_ttft_us", f.ColdTTFTUs},
		{"tokens_per_event", f.TokensPerEvent},
		{"first_half_tok_per_s", f.FirstHalfTokPerS},
		{"second_half_tok_per_s", f.SecondHalfTokPerS},
		{"slowest_request_tok_per_s", f.SlowestTokPerS},
		{"fastest_request_tok_per_s", f.FastestTokPerS},
		{"loop_free_tok_per_s", f.LoopFreeTokPerS},
		{"cached_share_of_prompt_tokens", f.CachedShare},
	}
}

// Counts says what became of a cell's requests. Launched = Completed +
// Failed + Cancelled + Unfinished always holds.
type Counts struct {
	Launched   int // requests sent
	Completed  int // ended by themselves with [DONE], no error and at least one token
	Failed     int // ended in an error, or without a token
	Cancelled  int // ended by the collector at the end of the window, or sent again on a new connection
	Unfinished int // no ending row: the run was interrupted

	// FinishReasons counts finish_reason as sent, over all requests that had one.
	FinishReasons map[string]int

	// HTTPErrors counts the failed requests that were answered with an HTTP
	// status of 300 or more, by status.
	HTTPErrors map[int32]int
}

// A Request is one request of a cell, folded from its events.
type Request struct {
	Stream, Request int32
	FirstRow, Rows  int // its rows in the cell's event file

	SentUs    int64 // last byte of the request written
	HeadersUs int64 // −1: no headers
	FirstUs   int64 // first event with tokens or text; −1: none
	LastUs    int64 // last event with tokens or text; −1: none
	EndUs     int64 // ending row; −1: never finished

	End          runlog.Kind // KindDone, KindError, KindCancelled, or 0: never finished
	Failed       bool        // takes no part in any median
	Reason       string      // why it failed; foreign text, redacted by the collector
	Status       int32       // HTTP status; runlog.Unknown
	FinishReason string

	Tokens       int64 // all output tokens; −1: unknown
	FirstTokens  int64 // tokens of its first token event; −1: unknown
	PromptTokens int32 // runlog.Unknown
	CachedTokens int32 // runlog.Unknown
	TokenEvents  int   // events with tokens or text

	WindowTokens int64 // of Tokens, those that arrived in the window; −1: unknown, or no window
	WindowEvents int   // of TokenEvents, those that arrived in the window
	ActiveUs     int64 // time between its first token and its end that lies in the window
	LongestGapUs int64 // longest gap between its token events that ended in the window; −1: none
	LongestGapAt int64 // instant at which that gap ended; −1: none

	EndedEarly bool   // ended by itself with fewer tokens than asked for, although the server was to ignore the end-of-text token
	Note       string // what is odd about its token counts; "" nothing

	FirstAnswerUs int64 // first content event after reasoning; −1: no reasoning came first, or no answer

	TTFTUs            Stat // N is 1 where measured
	BetweenTokensUs   Stat
	PerRequestTokPerS Stat

	Loop *Loop // the first confirmed exact repetition; nil: none
}

// A Loop is an exact repetition in one channel of one request.
type Loop struct {
	Channel     string // "reasoning", "content", "tool"
	Start       int    // first repeating code point of the channel's text
	Period      int    // code points
	Cycles      int    // whole cycles
	Length      int    // repeating code points
	TUs         int64  // when the loop's first repeated code point arrived
	PeriodStart string // first code points of the period, at most 80, for evidence in index.json only
}
