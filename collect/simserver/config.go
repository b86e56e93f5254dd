package simserver

import (
	"fmt"
	"math"
	"time"
)

// A Frontend is one of vLLM's two HTTP implementations.
type Frontend int

const (
	Python Frontend = iota // FastAPI and uvicorn, what nearly everybody runs: keys without a value are null
	Rust                   // the experimental one: such keys are left out, errors have string codes
)

// A ReasoningField says under which key thinking is sent.
type ReasoningField int

const (
	Reasoning        ReasoningField = iota // "reasoning": vLLM 0.16 and newer
	ReasoningContent                       // "reasoning_content": up to 0.11.0
	ReasoningBoth                          // both in every delta: 0.11.1 to 0.15
)

// A MetricsMode says what GET /metrics answers.
type MetricsMode int

const (
	MetricsNew   MetricsMode = iota // the names of vLLM 0.16 and newer
	MetricsOld                      // gpu_cache_usage_perc, gpu_prefix_cache_*, time_per_output_token_seconds
	MetricsBoth                     // every name that ever was
	MetricsNone                     // 404
	MetricsEmpty                    // 200 and no body
	MetricsHTML                     // 200 and a web page, as a proxy sends
	MetricsHang                     // no answer until the client gives up
)

// Loop makes the output repeat itself, as a degenerate model does.
type Loop struct {
	// After is the number of output tokens before the repetition; 0 means
	// that the output never repeats.
	After int
	// Period is the number of tokens that are repeated; 0 means 48.
	Period int
	// MinBatch restricts the repetition to requests that share the engine
	// with at least this many running ones, themselves included, when they
	// reach After. 0 means always.
	MinBatch int
	// Context restricts the repetition to prompts of this many tokens, give
	// or take 1/64 of it. 0 means any.
	Context int
}

// Config is the ground truth of a Server. The zero value is a small model on
// a fast GPU without any oddity: no jitter, no speculation, plain ASCII
// text. Where a field's comment names a default, 0 means the default.
type Config struct {
	Seed     uint64   // of all content and of all planned randomness
	Model    string   // served name; "" means "simulated"
	Version  string   // of the vLLM that is imitated; "" means "0.32.0"
	Frontend Frontend // which HTTP implementation is imitated
	APIKey   string   // wanted as a bearer token below /v1; "" means open

	MaxModelLen      int  // tokens, prompt and output; default 131072 or what the KV cache holds
	Engines          int  // data-parallel engines, each with its own slots and KV cache; default 1
	MaxNumSeqs       int  // running requests per engine; default 256
	MaxBatchedTokens int  // tokens computed in one step; default 8192
	BlockSize        int  // tokens per KV block; default 16
	KVCacheTokens    int  // per engine, in whole blocks, one of which is never used; default 524288
	NoPrefixCache    bool // every prompt is computed as a whole

	// Speed divides every planned duration; default 1.
	Speed float64
	// PrefillSpeed is in prompt tokens per second at context 0; default
	// 40000. It has fallen to a half at PrefillHalf tokens of context;
	// default 65536.
	PrefillSpeed float64
	PrefillHalf  int
	// A decode step takes StepBase (default 4 ms) + StepPerSeq (default
	// 25 µs) for each running request + StepPerKToken (default 8 µs) for
	// each 1000 tokens of their contexts.
	StepBase, StepPerSeq, StepPerKToken time.Duration
	Jitter                              float64       // relative standard deviation of a step's time, 0 to 1
	StallShare                          float64       // share of steps that take StallTime longer, 0 to 1
	StallTime                           time.Duration // default 60 ms
	CompileTime                         time.Duration // what the first step of the server's life takes longer

	DraftTokens    int     // proposed per step by speculative decoding; 0 means none
	AcceptedMean   float64 // mean tokens per step, 1 to DraftTokens+1; default 1 + 0.6·DraftTokens
	StreamInterval int     // tokens per chunk after the first; default 1
	MergeDeltas    bool    // chunks that a slow reader has not taken are merged, as vLLM does; else they stay apart

	ReasoningTokens int            // the first tokens of each chat answer are thinking; 0 means no reasoning parser
	ReasoningField  ReasoningField // where thinking is sent
	ToolCalls       bool           // a chat request with tools is answered with a tool call
	NonASCII        float64        // share of words with characters of several tokens, 0 to 1
	EmptyTokens     float64        // share of tokens without text, 0 to 1
	AnswerTokens    int            // mean length of an answer that may end by itself; 0 means that none ever does
	Loop            Loop           // repetition

	Metrics         MetricsMode // what /metrics answers
	MetricsLag      bool        // gauges are one step behind
	NoCacheSize     bool        // cache_config_info lacks kv_cache_size_tokens, as before June 2026
	CachedTokens    bool        // usage has prompt_tokens_details, as with --enable-prompt-tokens-details
	UsageByDefault  bool        // stream_options without include_usage means true, as before March 2026
	StrictLength    bool        // prompt and max_tokens together must fit the model, as in 0.28; 0.32 cuts max_tokens
	NoTokenizeRoute bool        // /tokenize and /detokenize are 404, as behind a proxy

	IdleTimeout time.Duration // Serve closes idle connections after it; default 5 s; negative means never
	DeathGrace  time.Duration // Serve refuses connections this long after the engine's death; default 5 s

	Fault Fault            // for requests without an X-Sim-Fault header
	Truth func(TruthEvent) // told what really happened; called from many goroutines, one at a time; nil means nobody
}

func orInt(p *int, def int) {
	if *p == 0 {
		*p = def
	}
}

func orDuration(p *time.Duration, def time.Duration) {
	if *p == 0 {
		*p = def
	}
}

func orFloat(p *float64, def float64) {
	if *p == 0 {
		*p = def
	}
}

// blocks is the number of KV blocks of one engine, as vLLM reports it: one
// of them, the null block, is never used.
func (c Config) blocks() int { return c.KVCacheTokens / c.BlockSize }

// usableTokens is what the KV cache of one engine holds.
func (c Config) usableTokens() int { return (c.blocks() - 1) * c.BlockSize }

// withDefaults returns the configuration with every default filled in.
func (c Config) withDefaults() Config {
	if c.Model == "" {
		c.Model = "simulated"
	}
	if c.Version == "" {
		c.Version = "0.32.0"
	}
	orInt(&c.Engines, 1)
	orInt(&c.MaxNumSeqs, 256)
	orInt(&c.MaxBatchedTokens, 8192)
	orInt(&c.BlockSize, 16)
	orInt(&c.KVCacheTokens, 524288)
	if c.BlockSize > 0 {
		orInt(&c.MaxModelLen, min(131072, c.usableTokens()))
	}
	orFloat(&c.Speed, 1)
	orFloat(&c.PrefillSpeed, 40000)
	orInt(&c.PrefillHalf, 65536)
	orDuration(&c.StepBase, 4*time.Millisecond)
	orDuration(&c.StepPerSeq, 25*time.Microsecond)
	orDuration(&c.StepPerKToken, 8*time.Microsecond)
	orDuration(&c.StallTime, 60*time.Millisecond)
	orFloat(&c.AcceptedMean, 1+0.6*float64(c.DraftTokens))
	orInt(&c.StreamInterval, 1)
	orInt(&c.Loop.Period, 48)
	orDuration(&c.IdleTimeout, 5*time.Second)
	orDuration(&c.DeathGrace, 5*time.Second)
	return c
}

// Validate reports the first field that is out of range, by name. The zero
// Config is valid.
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, f := range []struct {
		name     string
		v        float64
		min, max float64
	}{
		{"Engines", float64(c.Engines), 1, 1024},
		{"MaxNumSeqs", float64(c.MaxNumSeqs), 1, 1 << 20},
		{"MaxBatchedTokens", float64(c.MaxBatchedTokens), 1, 1 << 24},
		{"BlockSize", float64(c.BlockSize), 1, 1 << 16},
		{"KVCacheTokens", float64(c.KVCacheTokens), 1, 1 << 30},
		{"MaxModelLen", float64(c.MaxModelLen), 2, 1 << 24},
		{"Speed", c.Speed, 1e-6, 1e6},
		{"PrefillSpeed", c.PrefillSpeed, 1e-3, 1e12},
		{"PrefillHalf", float64(c.PrefillHalf), 1, 1 << 40},
		{"StepBase", c.StepBase.Seconds(), 0, 3600},
		{"StepPerSeq", c.StepPerSeq.Seconds(), 0, 3600},
		{"StepPerKToken", c.StepPerKToken.Seconds(), 0, 3600},
		{"Jitter", c.Jitter, 0, 1},
		{"StallShare", c.StallShare, 0, 1},
		{"StallTime", c.StallTime.Seconds(), 0, 3600},
		{"CompileTime", c.CompileTime.Seconds(), 0, 3600},
		{"DraftTokens", float64(c.DraftTokens), 0, 64},
		{"AcceptedMean", c.AcceptedMean, 1, float64(c.DraftTokens + 1)},
		{"StreamInterval", float64(c.StreamInterval), 1, 1 << 20},
		{"ReasoningTokens", float64(c.ReasoningTokens), 0, 1 << 24},
		{"NonASCII", c.NonASCII, 0, 1},
		{"EmptyTokens", c.EmptyTokens, 0, 1},
		{"AnswerTokens", float64(c.AnswerTokens), 0, 1 << 24},
		{"Loop.After", float64(c.Loop.After), 0, 1 << 24},
		{"Loop.Period", float64(c.Loop.Period), 1, 1 << 16},
		{"Loop.MinBatch", float64(c.Loop.MinBatch), 0, 1 << 20},
		{"Loop.Context", float64(c.Loop.Context), 0, 1 << 24},
	} {
		if math.IsNaN(f.v) || f.v < f.min || f.v > f.max {
			return fmt.Errorf("simserver: %s is %v, want %v to %v", f.name, f.v, f.min, f.max)
		}
	}
	if c.Loop.After > 0 && c.Loop.After < c.Loop.Period {
		return fmt.Errorf("simserver: Loop.After is %d, want at least Loop.Period, %d", c.Loop.After, c.Loop.Period)
	}
	if c.Frontend != Python && c.Frontend != Rust {
		return fmt.Errorf("simserver: Frontend is %d, want Python or Rust", c.Frontend)
	}
	if fit := c.usableTokens(); c.MaxModelLen > fit {
		// vLLM refuses to start as well: one request must always fit.
		return fmt.Errorf("simserver: MaxModelLen is %d, want at most what the KV cache holds, %d tokens", c.MaxModelLen, fit)
	}
	return c.Fault.validate()
}
