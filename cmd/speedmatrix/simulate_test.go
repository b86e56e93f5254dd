package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"speedmatrix/collect/simserver"
)

func quietEnv(t *testing.T) (*env, *bytes.Buffer) {
	var out bytes.Buffer
	return &env{ctx: t.Context(), stdout: &out, stderr: io.Discard}, &out
}

func TestSimulateHelpHasEveryFlag(t *testing.T) {
	e, out := quietEnv(t)
	if err := runSimulate(e, []string{"--help"}); !errors.Is(err, pflag.ErrHelp) {
		t.Fatalf("--help: got %v", err)
	}
	help := out.String()
	(&simulateOptions{}).flags(e).VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(help, "\n  --"+f.Name+" ") {
			t.Errorf("--%s is not in the help", f.Name)
		}
	})
	for i, line := range strings.Split(help, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("line %d of the help has %d characters, want at most 80: %s", i+1, n, line)
		}
	}
	if strings.Contains(help, "%!") {
		t.Error("the help is formatted badly")
	}
}

func TestSimulateFlags(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("  sk-1 \nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// What the command sets where no flag is given.
	base := simserver.Config{
		Seed: 1, Model: "simulated", Engines: 1, MaxNumSeqs: 256, BlockSize: 16, Speed: 1, PrefillSpeed: 40000,
		StepBase: 4 * time.Millisecond, StepPerSeq: 25 * time.Microsecond, StepPerKToken: 8 * time.Microsecond,
		Jitter: 0.02, StreamInterval: 1, AnswerTokens: 400, NonASCII: 0.01, Loop: simserver.Loop{Period: 48},
	}
	for _, tt := range []struct {
		args string
		want func(*simserver.Config)
	}{
		{"", func(*simserver.Config) {}},
		{"--kv-cache-tokens 64K --max-model-len 32K --prefill-half 1M", func(c *simserver.Config) {
			c.KVCacheTokens, c.MaxModelLen, c.PrefillHalf = 65536, 32768, 1<<20
		}},
		{"--speculate 3", func(c *simserver.Config) { c.DraftTokens = 3 }},
		{"--speculate 3:2.4", func(c *simserver.Config) { c.DraftTokens, c.AcceptedMean = 3, 2.4 }},
		{"--stalls 0.01:1s", func(c *simserver.Config) { c.StallShare, c.StallTime = 0.01, time.Second }},
		{"--frontend rust --metrics old --reasoning 9 --reasoning-field both", func(c *simserver.Config) {
			c.Frontend, c.Metrics, c.ReasoningTokens, c.ReasoningField = simserver.Rust, simserver.MetricsOld, 9, simserver.ReasoningBoth
		}},
		{"--loop-after 100 --loop-min-batch 4 --loop-context 8K", func(c *simserver.Config) {
			c.Loop = simserver.Loop{After: 100, Period: 48, MinBatch: 4, Context: 8192}
		}},
		{"--fault close-after=3,every=2", func(c *simserver.Config) {
			c.Fault = simserver.Fault{Act: simserver.ActClose, After: 3, Every: 2}
		}},
		{"--api-key-file " + key, func(c *simserver.Config) { c.APIKey = "sk-1" }},
	} {
		e, _ := quietEnv(t)
		o, err := parseSimulate(e, strings.Fields(tt.args))
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		want := base
		tt.want(&want)
		if !reflect.DeepEqual(o.config, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", tt.args, o.config, want)
		}
		if err := o.config.Validate(); err != nil {
			t.Errorf("%s: %v", tt.args, err)
		}
	}
}

func TestSimulateRefusesWrongUse(t *testing.T) {
	for args, want := range map[string]string{
		"extra":                   `unexpected argument "extra"`,
		"--frontend go":           `--frontend: unknown value "go"`,
		"--metrics x":             `--metrics: unknown value "x"`,
		"--reasoning-field x":     `--reasoning-field: unknown value "x"`,
		"--speculate a:b":         `--speculate: got "a:b"`,
		"--stalls 1:x":            `--stalls: got "1:x"`,
		"--fault explode":         `--fault: fault "explode" is unknown`,
		"--max-model-len x":       `"x" is not a number of tokens`,
		"--jitter 3":              `Jitter is 3, want 0 to 1`,
		"--max-model-len 1M":      `MaxModelLen is 1048576, want at most what the KV cache holds`,
		"--no-such-flag":          `unknown flag`,
		"--speculate 2:9":         `AcceptedMean is 9, want 1 to 3`,
		"--loop-after 5 --seed 2": `Loop.After is 5`,
	} {
		e, _ := quietEnv(t)
		err := runSimulate(e, append(strings.Fields(args), "--listen", "127.0.0.1:0"))
		var ue usageError
		if !errors.As(err, &ue) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want wrong use with %q", args, err, want)
		}
	}
	e, _ := quietEnv(t)
	for args, want := range map[string]string{
		"--api-key-file /nonexistent": "open key file",
		"--api-key-file /dev/null":    "holds no key",
		"--truth /nonexistent/x":      "open truth file",
		"--listen 256.0.0.1:0":        "listen",
		"--listen 127.0.0.1:0 --seed": "flag needs an argument",
	} {
		if err := runSimulate(e, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// TestSimulateServes starts the command on a free port, uses it, and stops
// it as Ctrl-C does.
func TestSimulateServes(t *testing.T) {
	truth := filepath.Join(t.TempDir(), "truth.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- runSimulate(&env{ctx: ctx, stdout: io.Discard, stderr: w}, []string{"--listen", "127.0.0.1:0", "--speed", "100", "--truth", truth})
		w.Close()
	}()
	said := bufio.NewReader(r)
	line, err := said.ReadString('\n')
	if err != nil {
		t.Fatalf("no line on stderr: %v, %v", err, <-ended)
	}
	var name, url string
	if _, err := fmt.Sscanf(line, "speedmatrix simulate: %q listens on %s", &name, &url); err != nil || name != "simulated" {
		t.Fatalf("got %q on stderr: %v", line, err)
	}
	url = strings.TrimSuffix(url, ",")
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x","max_tokens":3}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got status %d, want 200", resp.StatusCode)
	}
	cancel()
	if rest, _ := io.ReadAll(said); len(rest) > 0 {
		t.Errorf("it went on talking: %q", rest)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v, want nothing", err)
	}
	b, err := os.ReadFile(truth)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b), `{"kind":"start","unix_us":`) || !strings.Contains(string(b), `"kind":"end"`) {
		t.Errorf("the truth file holds %q", b)
	}
}
