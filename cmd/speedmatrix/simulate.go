package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"speedmatrix/collect/simserver"
)

const simulateHelp = `Usage: speedmatrix simulate [flags]

A stand-in for a vLLM server with a known ground truth: the same bytes, a
scheduler with slots, KV blocks, a prefix cache and preemption, /metrics, and
faults on demand. No model and no GPU. With one --seed the text, the tokens
of each chunk and the planned step times are always the same.

Server:
  --listen ADDR            address; port 0 takes a free one (127.0.0.1:8000)
  --model NAME             served model name ("simulated")
  --frontend python|rust   which of vLLM's HTTP servers is imitated (python)
  --api-key-file FILE      want this bearer token below /v1
  --seed N                 of everything random (1)
  --truth FILE             write what was really sent, and when, as JSON lines

Capacity, per engine:
  --engines N              data-parallel engines (1)
  --max-num-seqs N         requests that run at once (256)
  --kv-cache-tokens N      KV cache; K and M are understood (512K)
  --block-size N           tokens per KV block (16)
  --max-model-len N        prompt and output (128K, or what the cache holds)

Speed:
  --speed X                make everything X times as fast (1)
  --prefill-speed N        prompt tokens/s at context 0 (40000) …
  --prefill-half N         … halved at this context (64K)
  --decode-base D          a decode step takes D (4ms) …
  --decode-per-seq D       … and D for each running request (25us) …
  --decode-per-ktoken D    … and D for each 1000 tokens of context (8us)
  --jitter X               relative deviation of step times (0.02)
  --stalls X[:D]           share of steps that take D longer (0:60ms)
  --compile D              the first step of all takes D longer (0s)

Output:
  --speculate K[:MEAN]     draft K tokens a step, MEAN come out (off)
  --stream-interval N      tokens per chunk after the first (1)
  --merge-deltas           merge chunks that a slow reader leaves lying
  --reasoning N            the first N tokens of a chat answer are thinking (0)
  --reasoning-field F      reasoning, reasoning_content or both (reasoning)
  --tool-calls             answer requests that have tools with a call
  --answer-tokens N        mean length of an answer without ignore_eos (400)
  --non-ascii X            share of words with multi-token characters (0.01)
  --empty-tokens X         share of tokens without text (0)
  --loop-after N           the output repeats itself after N tokens (off) …
  --loop-period N          … every N tokens (48) …
  --loop-min-batch N       … where at least N requests run …
  --loop-context N         … or only for prompts of about N tokens

/metrics and usage:
  --metrics M              new, old, both, none, empty, html or hang (new)
  --metrics-lag            gauges are one step behind
  --no-cache-size          leave kv_cache_size_tokens out
  --no-tokenize            no /tokenize, as behind a proxy
  --cached-tokens          prompt_tokens_details in usage

Faults, for all requests or in one request's X-Sim-Fault header, separated
by commas:
  --fault LIST
%s

Examples:
  speedmatrix simulate --speed 4 --max-num-seqs 8
  speedmatrix simulate --reasoning 200 --speculate 3:2.4 --metrics old
  speedmatrix simulate --fault error-after=20,every=3 --truth truth.jsonl
  curl -N localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \
    -H 'X-Sim-Fault: close-after=5' -d '{"model":"simulated","stream":true,
    "max_tokens":30,"messages":[{"role":"user","content":"Hello"}]}'
`

// runSimulate serves until it is told to stop.
func runSimulate(e *env, args []string) (err error) {
	o, err := parseSimulate(e, args)
	if err != nil {
		return err
	}
	if o.truth != "" {
		f, err := os.Create(o.truth)
		if err != nil {
			return fmt.Errorf("open truth file: %w", err)
		}
		log := simserver.NewTruthLog(f, time.Now())
		o.config.Truth = log.Record
		defer func() { err = errors.Join(err, log.Flush(), f.Close()) }()
	}
	srv, err := simserver.New(o.config)
	if err != nil {
		return usageError{strings.TrimPrefix(err.Error(), "simserver: "), ""}
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return hintedError{fmt.Errorf("listen: %w", err), "--listen 127.0.0.1:0 takes a free port"}
	}
	fmt.Fprintf(e.stderr, "speedmatrix simulate: %s listens on http://%s, a simulation\n", strconv.Quote(srv.Config().Model), l.Addr())
	return srv.Serve(e.ctx, l)
}

// simulateOptions is a checked command line.
type simulateOptions struct {
	config        simserver.Config
	listen, truth string
}

// parseSimulate turns flags into a configuration.
func parseSimulate(e *env, args []string) (*simulateOptions, error) {
	o := &simulateOptions{}
	c := &o.config
	help := fmt.Sprintf(simulateHelp, "    "+strings.ReplaceAll(simserver.FaultSyntax, "\n", "\n    "))
	fs := newFlags(e, "simulate", help)
	fs.StringVar(&o.listen, "listen", "127.0.0.1:8000", "")
	fs.StringVar(&c.Model, "model", "simulated", "")
	frontend := fs.String("frontend", "python", "")
	keyFile := fs.String("api-key-file", "", "")
	fs.Uint64Var(&c.Seed, "seed", 1, "")
	fs.StringVar(&o.truth, "truth", "", "")
	fs.IntVar(&c.Engines, "engines", 1, "")
	fs.IntVar(&c.MaxNumSeqs, "max-num-seqs", 256, "")
	fs.Var((*tokenCount)(&c.KVCacheTokens), "kv-cache-tokens", "")
	fs.IntVar(&c.BlockSize, "block-size", 16, "")
	fs.Var((*tokenCount)(&c.MaxModelLen), "max-model-len", "")
	fs.Float64Var(&c.Speed, "speed", 1, "")
	fs.Float64Var(&c.PrefillSpeed, "prefill-speed", 40000, "")
	fs.Var((*tokenCount)(&c.PrefillHalf), "prefill-half", "")
	fs.DurationVar(&c.StepBase, "decode-base", 4*time.Millisecond, "")
	fs.DurationVar(&c.StepPerSeq, "decode-per-seq", 25*time.Microsecond, "")
	fs.DurationVar(&c.StepPerKToken, "decode-per-ktoken", 8*time.Microsecond, "")
	fs.Float64Var(&c.Jitter, "jitter", 0.02, "")
	stalls := fs.String("stalls", "", "")
	fs.DurationVar(&c.CompileTime, "compile", 0, "")
	speculate := fs.String("speculate", "", "")
	fs.IntVar(&c.StreamInterval, "stream-interval", 1, "")
	fs.BoolVar(&c.MergeDeltas, "merge-deltas", false, "")
	fs.IntVar(&c.ReasoningTokens, "reasoning", 0, "")
	field := fs.String("reasoning-field", "reasoning", "")
	fs.BoolVar(&c.ToolCalls, "tool-calls", false, "")
	fs.IntVar(&c.AnswerTokens, "answer-tokens", 400, "")
	fs.Float64Var(&c.NonASCII, "non-ascii", 0.01, "")
	fs.Float64Var(&c.EmptyTokens, "empty-tokens", 0, "")
	fs.IntVar(&c.Loop.After, "loop-after", 0, "")
	fs.IntVar(&c.Loop.Period, "loop-period", 48, "")
	fs.IntVar(&c.Loop.MinBatch, "loop-min-batch", 0, "")
	fs.Var((*tokenCount)(&c.Loop.Context), "loop-context", "")
	metrics := fs.String("metrics", "new", "")
	fs.BoolVar(&c.MetricsLag, "metrics-lag", false, "")
	fs.BoolVar(&c.NoCacheSize, "no-cache-size", false, "")
	fs.BoolVar(&c.NoTokenizeRoute, "no-tokenize", false, "")
	fs.BoolVar(&c.CachedTokens, "cached-tokens", false, "")
	fault := fs.String("fault", "", "")
	if err := parseFlags(fs, args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0)), "speedmatrix simulate takes flags only"}
	}
	if err := choose("--frontend", *frontend, &c.Frontend, map[string]simserver.Frontend{
		"python": simserver.Python, "rust": simserver.Rust}); err != nil {
		return nil, err
	}
	if err := choose("--reasoning-field", *field, &c.ReasoningField, map[string]simserver.ReasoningField{
		"reasoning": simserver.Reasoning, "reasoning_content": simserver.ReasoningContent, "both": simserver.ReasoningBoth}); err != nil {
		return nil, err
	}
	if err := choose("--metrics", *metrics, &c.Metrics, map[string]simserver.MetricsMode{
		"new": simserver.MetricsNew, "old": simserver.MetricsOld, "both": simserver.MetricsBoth, "none": simserver.MetricsNone,
		"empty": simserver.MetricsEmpty, "html": simserver.MetricsHTML, "hang": simserver.MetricsHang}); err != nil {
		return nil, err
	}
	var err error
	if c.Fault, err = simserver.ParseFault(*fault); err != nil {
		return nil, usageError{err.Error(), "speedmatrix simulate --help lists the faults"}
	}
	if *speculate != "" {
		k, mean, given := strings.Cut(*speculate, ":")
		if c.DraftTokens, err = strconv.Atoi(k); err == nil && given {
			c.AcceptedMean, err = strconv.ParseFloat(mean, 64)
		}
		if err != nil {
			return nil, usageError{fmt.Sprintf("--speculate: got %q, want drafts and a mean, such as 3:2.4", *speculate), ""}
		}
	}
	if *stalls != "" {
		share, d, given := strings.Cut(*stalls, ":")
		if c.StallShare, err = strconv.ParseFloat(share, 64); err == nil && given {
			c.StallTime, err = time.ParseDuration(d)
		}
		if err != nil {
			return nil, usageError{fmt.Sprintf("--stalls: got %q, want a share and a duration, such as 0.001:60ms", *stalls), ""}
		}
	}
	if *keyFile != "" {
		if c.APIKey, err = readSecret(*keyFile); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// choose sets *dst to the value that a word stands for.
func choose[T any](flag, word string, dst *T, values map[string]T) error {
	v, ok := values[word]
	if !ok {
		return usageError{fmt.Sprintf("%s: unknown value %q", flag, word), "speedmatrix simulate --help lists the values"}
	}
	*dst = v
	return nil
}

// A tokenCount is a flag that counts tokens: 8192, 8K or 1M, where K is
// 1024.
type tokenCount int

func (t *tokenCount) String() string { return strconv.Itoa(int(*t)) }
func (t *tokenCount) Type() string   { return "tokens" }

func (t *tokenCount) Set(s string) error {
	scale := 1
	switch {
	case strings.HasSuffix(s, "K"), strings.HasSuffix(s, "k"):
		scale = 1 << 10
	case strings.HasSuffix(s, "M"), strings.HasSuffix(s, "m"):
		scale = 1 << 20
	}
	digits := s
	if scale > 1 {
		digits = s[:len(s)-1]
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > (1<<31-1)/scale {
		return errors.New("want a number of tokens, such as 8192 or 8K")
	}
	*t = tokenCount(n * scale)
	return nil
}

// readSecret returns the first line of a file.
func readSecret(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("open key file: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Scan()
	if key := strings.TrimSpace(sc.Text()); key != "" && sc.Err() == nil {
		return key, nil
	}
	return "", fmt.Errorf("key file %q holds no key", name)
}
