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

	"github.com/spf13/pflag"

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
  --strict-length          refuse a request that is longer, as 0.28 did;
                           else its output is cut

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
  --usage-by-default       stream_options asks for usage, as before 2026-03

Faults, for all requests or in one request's X-Sim-Fault header, separated
by commas:
  --fault LIST
%s

Examples:
  speedmatrix simulate --speed 4 --max-num-seqs 8
  speedmatrix simulate --reasoning 200 --speculate 3:2.4 --metrics old
  speedmatrix simulate --fault error-after=20,every=3 --truth truth.jsonl
  curl -N localhost:8000/v1/chat/completions \
    -H 'Content-Type: application/json' -H 'X-Sim-Fault: close-after=5' \
    -d '{"stream":true,"messages":[{"role":"user","content":"Hello"}]}'
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

// simulateOptions is a command line: what the flags set directly, and the
// words that check turns into the rest of config.
type simulateOptions struct {
	config        simserver.Config
	listen, truth string

	frontend, field, metrics, keyFile, stalls, speculate, fault string
	kvCache, maxModelLen, prefillHalf, loopContext              tokenFlag
}

// parseSimulate turns arguments into a configuration.
func parseSimulate(e *env, args []string) (*simulateOptions, error) {
	o := &simulateOptions{}
	fs := o.flags(e)
	if err := parseFlags(fs, args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0)), "speedmatrix simulate takes flags only"}
	}
	return o, o.check()
}

func (o *simulateOptions) flags(e *env) *pflag.FlagSet {
	c := &o.config
	fs := newFlags(e, "simulate", fmt.Sprintf(simulateHelp, "    "+strings.ReplaceAll(simserver.FaultSyntax, "\n", "\n    ")))
	fs.StringVar(&o.listen, "listen", "127.0.0.1:8000", "")
	fs.StringVar(&c.Model, "model", "simulated", "")
	fs.StringVar(&o.frontend, "frontend", "python", "")
	fs.StringVar(&o.keyFile, "api-key-file", "", "")
	fs.Uint64Var(&c.Seed, "seed", 1, "")
	fs.StringVar(&o.truth, "truth", "", "")
	fs.IntVar(&c.Engines, "engines", 1, "")
	fs.IntVar(&c.MaxNumSeqs, "max-num-seqs", 256, "")
	fs.Var(&o.kvCache, "kv-cache-tokens", "")
	fs.IntVar(&c.BlockSize, "block-size", 16, "")
	fs.Var(&o.maxModelLen, "max-model-len", "")
	fs.BoolVar(&c.StrictLength, "strict-length", false, "")
	fs.Float64Var(&c.Speed, "speed", 1, "")
	fs.Float64Var(&c.PrefillSpeed, "prefill-speed", 40000, "")
	fs.Var(&o.prefillHalf, "prefill-half", "")
	fs.DurationVar(&c.StepBase, "decode-base", 4*time.Millisecond, "")
	fs.DurationVar(&c.StepPerSeq, "decode-per-seq", 25*time.Microsecond, "")
	fs.DurationVar(&c.StepPerKToken, "decode-per-ktoken", 8*time.Microsecond, "")
	fs.Float64Var(&c.Jitter, "jitter", 0.02, "")
	fs.StringVar(&o.stalls, "stalls", "0", "")
	fs.DurationVar(&c.CompileTime, "compile", 0, "")
	fs.StringVar(&o.speculate, "speculate", "0", "")
	fs.IntVar(&c.StreamInterval, "stream-interval", 1, "")
	fs.BoolVar(&c.MergeDeltas, "merge-deltas", false, "")
	fs.IntVar(&c.ReasoningTokens, "reasoning", 0, "")
	fs.StringVar(&o.field, "reasoning-field", "reasoning", "")
	fs.BoolVar(&c.ToolCalls, "tool-calls", false, "")
	fs.IntVar(&c.AnswerTokens, "answer-tokens", 400, "")
	fs.Float64Var(&c.NonASCII, "non-ascii", 0.01, "")
	fs.Float64Var(&c.EmptyTokens, "empty-tokens", 0, "")
	fs.IntVar(&c.Loop.After, "loop-after", 0, "")
	fs.IntVar(&c.Loop.Period, "loop-period", 48, "")
	fs.IntVar(&c.Loop.MinBatch, "loop-min-batch", 0, "")
	fs.Var(&o.loopContext, "loop-context", "")
	fs.StringVar(&o.metrics, "metrics", "new", "")
	fs.BoolVar(&c.MetricsLag, "metrics-lag", false, "")
	fs.BoolVar(&c.NoCacheSize, "no-cache-size", false, "")
	fs.BoolVar(&c.NoTokenizeRoute, "no-tokenize", false, "")
	fs.BoolVar(&c.CachedTokens, "cached-tokens", false, "")
	fs.BoolVar(&c.UsageByDefault, "usage-by-default", false, "")
	fs.StringVar(&o.fault, "fault", "none", "")
	return fs
}

// check completes the configuration from the flags' words.
func (o *simulateOptions) check() error {
	c := &o.config
	c.KVCacheTokens, c.MaxModelLen = int(o.kvCache), int(o.maxModelLen)
	c.PrefillHalf, c.Loop.Context = int(o.prefillHalf), int(o.loopContext)
	if err := choose("--frontend", o.frontend, &c.Frontend, map[string]simserver.Frontend{
		"python": simserver.Python, "rust": simserver.Rust}); err != nil {
		return err
	}
	if err := choose("--reasoning-field", o.field, &c.ReasoningField, map[string]simserver.ReasoningField{
		"reasoning": simserver.Reasoning, "reasoning_content": simserver.ReasoningContent, "both": simserver.ReasoningBoth}); err != nil {
		return err
	}
	if err := choose("--metrics", o.metrics, &c.Metrics, map[string]simserver.MetricsMode{
		"new": simserver.MetricsNew, "old": simserver.MetricsOld, "both": simserver.MetricsBoth, "none": simserver.MetricsNone,
		"empty": simserver.MetricsEmpty, "html": simserver.MetricsHTML, "hang": simserver.MetricsHang}); err != nil {
		return err
	}
	var err error
	if c.Fault, err = simserver.ParseFault(o.fault); err != nil {
		return usageError{"--fault: " + err.Error(), "speedmatrix simulate --help lists the faults"}
	}
	drafts, mean, given := strings.Cut(o.speculate, ":")
	if c.DraftTokens, err = strconv.Atoi(drafts); err == nil && given {
		c.AcceptedMean, err = strconv.ParseFloat(mean, 64)
	}
	if err != nil {
		return usageError{fmt.Sprintf("--speculate: got %q, want drafts and a mean, such as 3:2.4", o.speculate), ""}
	}
	share, d, given := strings.Cut(o.stalls, ":")
	if c.StallShare, err = strconv.ParseFloat(share, 64); err == nil && given {
		c.StallTime, err = time.ParseDuration(d)
	}
	if err != nil {
		return usageError{fmt.Sprintf("--stalls: got %q, want a share and a duration, such as 0.001:60ms", o.stalls), ""}
	}
	if o.keyFile != "" {
		c.APIKey, err = readSecret(o.keyFile)
	}
	return err
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
