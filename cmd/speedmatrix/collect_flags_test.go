package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// collectConfig parses the command line of collect, but for its repetition.
func collectConfig(e *env, args []string) (collect.Config, error) {
	cfg, _, err := repeatedCollect(e, args)
	return cfg, err
}

// parseCollect parses a command line that must be right.
func parseCollect(t *testing.T, args ...string) collect.Config {
	t.Helper()
	e, _ := quietEnv(t)
	cfg, err := collectConfig(e, args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return cfg
}

func TestCollectFlags(t *testing.T) {
	t.Setenv("SPEEDMATRIX_API_KEY", "")
	const url = "http://localhost:8000"
	zero := 0.0
	for _, tt := range []struct {
		rule string
		args []string
		want func(*collect.Config)
	}{
		{"without flags the server decides", nil, func(*collect.Config) {}},
		{"lists of tokens", []string{"--contexts", "8K,32768, 1M", "--concurrency", "1,8", "--prefill-contexts", "128k"}, func(c *collect.Config) {
			c.Plan.ContextsTokens, c.Plan.Concurrency, c.Plan.PrefillContextsTokens = []int32{8192, 32768, 1 << 20}, []int32{1, 8}, []int32{131072}
		}},
		{"a list given again replaces the first", []string{"--contexts", "8K", "--contexts", "16K"}, func(c *collect.Config) {
			c.Plan.ContextsTokens = []int32{16384}
		}},
		{"the rest of the plan", []string{"--duration", "1m30s", "--max-output", "2K", "--prefill-repeats", "3", "--seed", "9", "--sampling-seeds", "--text", "hash"}, func(c *collect.Config) {
			c.Plan.Duration, c.Plan.MaxOutputTokens, c.Plan.PrefillRepeats, c.Plan.Seed, c.Plan.SamplingSeeds, c.Plan.Text = 90*time.Second, 2048, 3, 9, true, "hash"
		}},
		{"temperature 0 is not the default", []string{"--temperature", "0"}, func(c *collect.Config) { c.Plan.Temperature = &zero }},
		{"what the server does not say", []string{"--model", "m", "--kv-cache-tokens", "2M", "--max-num-seqs", "64", "--idle-timeout", "30s"}, func(c *collect.Config) {
			c.Model, c.KVCacheTokens, c.MaxNumSeqs, c.Idle = "m", 2<<20, 64, 30*time.Second
		}},
		{"headers", []string{"--header", "X-Team:  bench ", "--header", "X-Team: two", "--header", "x-empty:"}, func(c *collect.Config) {
			c.Header = http.Header{"X-Team": {"bench", "two"}, "X-Empty": {""}}
		}},
		{"facts of the engine", []string{"--engine", "vllm", "--engine-version", "0.32.0", "--commit", "73a5831127a9", "--build", "b", "--backend", "CUDA", "--engine-repository", "r", "--quantization", "FP8"}, func(c *collect.Config) {
			c.Facts = collect.Facts{Engine: "vllm", Version: "0.32.0", Commit: "73a5831127a9", Build: "b", Backend: "CUDA", EngineRepository: "r", Quantization: "FP8"}
		}},
		{"facts of the model and the machine", []string{"--model-repository", "org/m", "--revision", "v", "--weights-digest", "d", "--hardware-type", "Discrete GPU", "--gpu", "RTX", "--gpus", "2", "--vram", "96GiB", "--cpu", "c", "--os", "o"}, func(c *collect.Config) {
			c.Facts = collect.Facts{ModelRepository: "org/m", Revision: "v", WeightsDigest: "d", HardwareType: "Discrete GPU", GPU: "RTX", GPUs: 2, VRAMBytes: 96 << 30, CPU: "c", OS: "o"}
		}},
		{"the launch command is split as a shell would", []string{"--launch-command", `vllm serve 'a b' --x="y z" \'`}, func(c *collect.Config) {
			c.Facts.LaunchCommand = []string{"vllm", "serve", "a b", "--x=y z", "'"}
		}},
		{"where the run goes", []string{"-o", "r", "--name", "n"}, func(c *collect.Config) { c.Root, c.Name = "r", "n" }},
		{"a run that is gone on with", []string{"--resume", "r/n"}, func(c *collect.Config) { c.Resume = "r/n" }},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got := parseCollect(t, append([]string{"--url", url}, tt.args...)...)
			want := collect.Config{Root: "results", Idle: 10 * time.Minute, Header: http.Header{}}
			tt.want(&want)
			if got.URL.String() != url || got.Machine == nil || got.Random == nil || got.Tool.Name != "speedmatrix" {
				t.Errorf("URL %v, machine, random or tool missing: %+v", got.URL, got)
			}
			ignore := cmpopts.IgnoreFields(collect.Config{}, "URL", "Machine", "Random", "Tool", "Progress")
			if diff := cmp.Diff(want, got, ignore, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%q (-want +got):\n%s", tt.args, diff)
			}
		})
	}
}

func TestCollectRefusesWrongUse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string // in the message
	}{
		{[]string{"--contexts", "0"}, `"0" is not a number of tokens`},
		{[]string{"--contexts", ""}, `"" is not a number of tokens`},
		{[]string{"--contexts", "8K,"}, `"" is not a number of tokens`},
		{[]string{"--contexts", "-8K"}, `"-8K" is not a number of tokens`},
		{[]string{"--contexts", "2048M"}, `"2048M" is not a number of tokens`},
		{[]string{"--contexts", "8 K"}, `"8 K" is not a number of tokens`},
		{[]string{"--concurrency", "5000"}, "--concurrency above 4096"},
		{[]string{"--duration", "25h"}, "want at most 24h"},
		{[]string{"--duration", "0s"}, "want at least 100ms"},
		{[]string{"--prefill-repeats", "0"}, "want 1 to 1000"},
		{[]string{"--temperature", "NaN"}, "--temperature is outside 0 to 2"},
		{[]string{"--temperature", "-0.1"}, "--temperature is outside 0 to 2"},
		{[]string{"--text", "some"}, `--text is "some", want full, hash or none`},
		{[]string{"--kv-cache-tokens", "-1"}, "--kv-cache-tokens"},
		{[]string{"--idle-timeout", "0s"}, "want at least 1s"},
		{[]string{"--gpus", "-1"}, "--gpus is negative"},
		{[]string{"--vram", "lots"}, `"lots" is not a size`},
		{[]string{"--vram", "9999999999T"}, "is not a size"},
		{[]string{"--header", "no colon"}, "--header without a name and a colon"},
		{[]string{"--header", ": no name"}, "--header without a name and a colon"},
		{[]string{"--header", "X-A: b\r\nX-C: d"}, "--header without a name and a colon"},
		{[]string{"--name", "a/b"}, `--name is "a/b"`},
		{[]string{"--name", ".."}, `--name is ".."`},
		{[]string{"--name", `a\b`}, "--name is "},
		{[]string{"--name", "a", "--resume", "b"}, "exclude each other"},
	} {
		e, out := quietEnv(t)
		_, err := collectConfig(e, append([]string{"--url", "http://localhost:8000"}, tt.args...))
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want wrong use with %q", tt.args, err, tt.want)
		}
		if out.Len() > 0 {
			t.Errorf("%q: stdout %q", tt.args, out)
		}
	}
}

func TestCollectHelpHasEveryFlag(t *testing.T) {
	// Every flag that the help names must be one, and the other way round.
	named := map[string]bool{}
	for _, word := range strings.Fields(collectHelp) {
		if name, ok := strings.CutPrefix(word, "--"); ok {
			named[strings.TrimRight(name, ";,.")] = true
		}
	}
	if len(named) < 30 {
		t.Fatalf("the help names %d flags, want all of them", len(named))
	}
	e, _ := quietEnv(t)
	for name := range named {
		_, err := collectConfig(e, []string{"--" + name})
		if err != nil && strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("the help names --%s: %v", name, err)
		}
	}
	for _, name := range planFlags {
		if !named[name] {
			t.Errorf("a plan may have %q, which is not in the help", name)
		}
	}
	source, err := os.ReadFile("collect.go")
	if err != nil {
		t.Fatal(err)
	}
	defined := 0
	for _, line := range strings.Split(string(source), "\n") {
		if !strings.HasPrefix(line, "\tfs.") || !strings.Contains(line, "Var") {
			continue
		}
		defined++
		if name := strings.Split(line, `"`)[1]; !named[name] {
			t.Errorf("--%s is not in the help", name)
		}
	}
	if defined < 30 {
		t.Errorf("found %d flags in the source, want all of them", defined)
	}
}

func TestPlanFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"contexts": ["8K", 16384], "concurrency": 4, "duration": "10s", "max-output": "1K", "prefill-contexts": "8K,64K",
		"prefill-repeats": 2, "temperature": 0.5, "seed": 12345678901234, "sampling-seeds": true, "text": "none"}`)
	half := 0.5
	want := collect.PlanRequest{
		ContextsTokens: []int32{8192, 16384}, Concurrency: []int32{4}, PrefillContextsTokens: []int32{8192, 65536}, Duration: 10 * time.Second,
		MaxOutputTokens: 1024, PrefillRepeats: 2, Seed: 12345678901234, Temperature: &half, SamplingSeeds: true, Text: "none",
	}
	got := parseCollect(t, "--url", "http://localhost:8000", "--plan", path)
	if diff := cmp.Diff(want, got.Plan); diff != "" {
		t.Errorf("every key (-want +got):\n%s", diff)
	}
	want.Concurrency, want.Text = []int32{1, 2}, "full"
	got = parseCollect(t, "--concurrency", "1,2", "--url", "http://localhost:8000", "--plan", path, "--text", "full")
	if diff := cmp.Diff(want, got.Plan); diff != "" {
		t.Errorf("the command line wins, before and after --plan (-want +got):\n%s", diff)
	}
	var keys []string
	for _, k := range planFlags {
		keys = append(keys, `"`+k+`"`)
	}
	b, _ := os.ReadFile(path)
	for _, k := range keys {
		if !strings.Contains(string(b), k) {
			t.Errorf("a plan may have %s, and the plan of this test has not", k)
		}
	}

	for _, tt := range []struct{ rule, text, want string }{
		{"a key that is a flag and not of the plan", `{"url": "http://x"}`, `unknown key "url"`},
		{"of two wrong keys always the same", `{"b": 1, "a": 1, "c": 1}`, `unknown key "a"`},
		{"null", `{"contexts": null}`, "contexts: "},
		{"an object", `{"duration": {"s": 30}}`, "duration: "},
		{"a list in a list", `{"contexts": [[8192]]}`, "contexts: "},
		{"a fraction", `{"contexts": 8192.5}`, `"8192.5" is not a number of tokens`},
		{"a value that the flag's check refuses", `{"text": "some"}`, `--text is "some"`},
	} {
		write(tt.text)
		e, _ := quietEnv(t)
		_, err := collectConfig(e, []string{"--url", "http://localhost:8000", "--plan", path})
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want wrong use with %q", tt.rule, err, tt.want)
		}
	}
}

func TestAPIKey(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := func(value string) func(string) string {
		return func(name string) string {
			if name != "SPEEDMATRIX_API_KEY" {
				t.Errorf("asked for %q", name)
			}
			return value
		}
	}
	for _, tt := range []struct {
		rule, file, env string
		want            string
		fails           bool
	}{
		{"neither", "", "", "", false},
		{"the environment", "", " sk-env\n", "sk-env", false},
		{"the file wins", file("key", "sk-file\n"), "sk-env", "sk-file", false},
		{"Windows line ends", file("crlf", "sk-file\r\n"), "", "sk-file", false},
		{"an empty file is no key", file("empty", " \n"), "sk-env", "", true},
		{"two lines are no key", file("two", "sk-a\nsk-b\n"), "", "", true},
		{"no file", filepath.Join(dir, "none"), "sk-env", "", true},
	} {
		got, err := apiKey(tt.file, env(tt.env))
		if got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: apiKey = %q, %v; want %q, error %v", tt.rule, got, err, tt.want, tt.fails)
		}
		if err != nil && strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: the error holds a key: %v", tt.rule, err)
		}
	}
}

func TestSplitCommand(t *testing.T) {
	for _, tt := range []struct {
		rule, in string
		want     []string
	}{
		{"nothing", "  \n", nil},
		{"spaces, tabs and newlines", " a  b\tc\nd ", []string{"a", "b", "c", "d"}},
		{"single quotes keep everything", `'a "b" \c'`, []string{`a "b" \c`}},
		{"double quotes keep spaces", `"a b"c`, []string{"a bc"}},
		{"empty arguments count", `a "" ''`, []string{"a", "", ""}},
		{"a backslash takes the next as it is", `a\ b \"`, []string{"a b", `"`}},
		{"lines that go on", "vllm serve m \\\n  --port 1", []string{"vllm", "serve", "m", "--port", "1"}},
		{"nothing is expanded", `$HOME *.py ~`, []string{"$HOME", "*.py", "~"}},
		{"JSON as people write it", `--x '{"a": 1}'`, []string{"--x", `{"a": 1}`}},
		{"a quote that is never closed", `a "b c`, []string{"a", "b c"}},
	} {
		if got := splitCommand(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%s: splitCommand(%q) = %q, want %q", tt.rule, tt.in, got, tt.want)
		}
	}
}
