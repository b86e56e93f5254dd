package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"speedmatrix/collect"
	"speedmatrix/collect/host"
	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"

	"github.com/spf13/pflag"
)

const collectHelp = `Usage: speedmatrix collect --url URL [flags]

Measures the server over a matrix of context lengths and concurrency levels
and writes a run directory below results/. Every streamed event is kept.

What to measure (defaults fit the server's own limits):
      --contexts LIST          context lengths in tokens, such as 8K,32K
      --concurrency LIST       simultaneous requests (default 1,2,4,8,16,32,64,128)
      --duration D             length of a decode window (default 30s)
      --max-output N           output tokens of a decode request (default 4K)
      --prefill-contexts LIST  prefill only, in addition to or instead of the contexts
      --prefill-repeats N      prefill samples per context (default 1)
      --temperature T          sampling temperature (default 1)
      --seed N                 of the prompts' text (default 1)
      --sampling-seeds         a seed for every request; slows vLLM's sampler down
      --text MODE              what to keep of the output: full, hash, none (default full)
      --plan FILE              the flags of this group from a JSON file {"contexts": "8K,32K", …}

The server:
      --url URL                base URL, such as http://localhost:8000
      --model NAME             served name (default the first served)
      --api-key-file FILE      key; or set SPEEDMATRIX_API_KEY. It is written nowhere
      --header "NAME: VALUE"   further header of every request; may be given again
      --kv-cache-tokens N      where the server does not say it
      --max-num-seqs N         the server's own limit, where it can't be seen
      --idle-timeout D         an answer silent for so long has failed (default 10m)

Facts for the page, where they can't be read from the server or its process:
      --launch-command CMD     how the server was started; secrets are removed
      --engine NAME  --engine-version V  --commit HEX  --build B  --backend B
      --engine-repository R  --quantization Q
      --model-repository R  --revision R  --weights-digest D
      --hardware-type T  --gpu NAME  --gpus N  --vram SIZE  --cpu NAME  --os OS

The run:
  -o, --out DIR                directory of runs (default results)
      --name NAME              of the run directory (default from model, GPU, commit, time)
      --resume DIR             go on with an interrupted run
      --launches N             measure N times, with the server started anew in
                               between: speedmatrix diff wants 3 (default 1)
      --restart-command CMD    what starts it anew, such as "docker restart vllm";
                               without it you are asked to. It is run without a shell

Ctrl-C stops after writing what is measured; a second one stops at once.

Examples:
  speedmatrix collect --url http://localhost:8000
  speedmatrix collect --url http://localhost:8000 --contexts 8K,32K --concurrency 1,8
  speedmatrix collect --url http://localhost:8000 --resume results/<run>
`

// planFlags are the flags that a plan file may set.
var planFlags = []string{"contexts", "concurrency", "duration", "max-output", "prefill-contexts", "prefill-repeats", "temperature", "seed", "sampling-seeds", "text"}

// repeatedCollect parses the command line of collect, its repetition too.
func repeatedCollect(e *env, args []string) (collect.Config, repetition, error) {
	again := repetition{}
	cfg := collect.Config{
		Random:  rand.Reader,
		Machine: host.System(),
		Tool:    tool(),
	}
	var (
		contexts, concurrency, prefill tokensFlag
		maxOutput, maxNumSeqs          tokenFlag
		kvTokens                       tokenFlag
		vram                           bytesFlag
		planFile, keyFile, rawURL      string
		launch, restart                string
		headers                        []string
		temperature                    float64
		repeats                        int32
		f                              = &cfg.Facts
	)
	fs := newFlags(e, "collect", collectHelp)
	fs.Var(&contexts, "contexts", "")
	fs.Var(&concurrency, "concurrency", "")
	fs.DurationVar(&cfg.Plan.Duration, "duration", 0, "")
	fs.Var(&maxOutput, "max-output", "")
	fs.Var(&prefill, "prefill-contexts", "")
	fs.Int32Var(&repeats, "prefill-repeats", 0, "")
	fs.Float64Var(&temperature, "temperature", 1, "")
	fs.Int64Var(&cfg.Plan.Seed, "seed", 0, "")
	fs.BoolVar(&cfg.Plan.SamplingSeeds, "sampling-seeds", false, "")
	fs.StringVar(&cfg.Plan.Text, "text", "", "")
	fs.StringVar(&planFile, "plan", "", "")
	fs.StringVar(&rawURL, "url", "", "")
	fs.StringVar(&cfg.Model, "model", "", "")
	fs.StringVar(&keyFile, "api-key-file", "", "")
	fs.StringArrayVar(&headers, "header", nil, "")
	fs.Var(&kvTokens, "kv-cache-tokens", "")
	fs.Var(&maxNumSeqs, "max-num-seqs", "")
	fs.DurationVar(&cfg.Idle, "idle-timeout", 10*time.Minute, "")
	fs.StringVar(&launch, "launch-command", "", "")
	fs.StringVar(&f.Engine, "engine", "", "")
	fs.StringVar(&f.Version, "engine-version", "", "")
	fs.StringVar(&f.Commit, "commit", "", "")
	fs.StringVar(&f.Build, "build", "", "")
	fs.StringVar(&f.Backend, "backend", "", "")
	fs.StringVar(&f.EngineRepository, "engine-repository", "", "")
	fs.StringVar(&f.Quantization, "quantization", "", "")
	fs.StringVar(&f.ModelRepository, "model-repository", "", "")
	fs.StringVar(&f.Revision, "revision", "", "")
	fs.StringVar(&f.WeightsDigest, "weights-digest", "", "")
	fs.StringVar(&f.HardwareType, "hardware-type", "", "")
	fs.StringVar(&f.GPU, "gpu", "", "")
	fs.IntVar(&f.GPUs, "gpus", 0, "")
	fs.Var(&vram, "vram", "")
	fs.StringVar(&f.CPU, "cpu", "", "")
	fs.StringVar(&f.OS, "os", "", "")
	fs.StringVarP(&cfg.Root, "out", "o", "results", "")
	fs.StringVar(&cfg.Name, "name", "", "")
	fs.StringVar(&cfg.Resume, "resume", "", "")
	fs.IntVar(&again.launches, "launches", 1, "")
	fs.StringVar(&restart, "restart-command", "", "")
	if err := parseFlags(fs, args); err != nil {
		return cfg, again, err
	}
	if fs.NArg() > 0 {
		return cfg, again, usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0)), "the server is given by --url"}
	}
	if planFile != "" {
		if err := applyPlanFile(fs, planFile); err != nil {
			return cfg, again, err
		}
	}
	if rawURL == "" {
		return cfg, again, usageError{"no server given", "speedmatrix collect --url http://localhost:8000; speedmatrix demo needs none"}
	}
	var err error
	if cfg.URL, err = server.ParseURL(rawURL); err != nil {
		return cfg, again, usageError{err.Error(), "such as --url http://localhost:8000"}
	}
	cfg.Plan.ContextsTokens, cfg.Plan.Concurrency, cfg.Plan.PrefillContextsTokens = contexts, concurrency, prefill
	cfg.Plan.MaxOutputTokens, cfg.Plan.PrefillRepeats = int32(maxOutput), repeats
	if fs.Changed("temperature") {
		cfg.Plan.Temperature = &temperature
	}
	cfg.MaxNumSeqs, cfg.KVCacheTokens, f.VRAMBytes = int32(maxNumSeqs), int64(kvTokens), int64(vram)
	f.LaunchCommand = splitCommand(launch)
	again.restart = splitCommand(restart)
	if err := cmp.Or(checkCollect(fs, cfg), again.check(cfg, restart)); err != nil {
		return cfg, again, err
	}
	if cfg.Key, err = apiKey(keyFile, os.Getenv); err != nil {
		return cfg, again, err
	}
	if cfg.Header, err = parseHeaders(headers); err != nil {
		return cfg, again, err
	}
	return cfg, again, nil
}

// checkCollect refuses values that make no sense before anything is sent.
func checkCollect(fs *pflag.FlagSet, cfg collect.Config) error {
	p := cfg.Plan
	for _, bad := range []struct {
		is        bool
		msg, hint string
	}{
		{fs.Changed("duration") && p.Duration < 100*time.Millisecond, fmt.Sprintf("--duration is %v, want at least 100ms", p.Duration), "30s is usual"},
		{p.Duration > 24*time.Hour, fmt.Sprintf("--duration is %v, want at most 24h", p.Duration), ""},
		{slices.ContainsFunc(p.Concurrency, func(c int32) bool { return c > 4096 }), "--concurrency above 4096", "one machine can't drive so many streams honestly"},
		{fs.Changed("prefill-repeats") && (p.PrefillRepeats < 1 || p.PrefillRepeats > 1000), fmt.Sprintf("--prefill-repeats is %d, want 1 to 1000", p.PrefillRepeats), ""},
		{!slices.Contains([]string{"", stream.TextFull, stream.TextHash, stream.TextNone}, p.Text), fmt.Sprintf("--text is %q, want full, hash or none", p.Text), ""},
		{p.Temperature != nil && !(*p.Temperature >= 0 && *p.Temperature <= 2), "--temperature is outside 0 to 2", ""},
		{cfg.Idle < time.Second, fmt.Sprintf("--idle-timeout is %v, want at least 1s", cfg.Idle), ""},
		{cfg.Resume != "" && cfg.Name != "", "--resume and --name exclude each other", "a resumed run keeps its name"},
		{cfg.Name != "" && !isPlainName(cfg.Name), fmt.Sprintf("--name is %q, want a plain name of at most %d bytes", cfg.Name, maxName), "the directory of runs is given by --out"},
		{cfg.Facts.GPUs < 0, "--gpus is negative", ""},
	} {
		if bad.is {
			return usageError{bad.msg, bad.hint}
		}
	}
	return nil
}

// maxName is as long as the names that runs make for themselves.
const maxName = 134

// reservedName is what Windows takes for a device, whatever follows a dot.
var reservedName = regexp.MustCompile(`(?i)^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)`)

// isPlainName reports whether every file system can have a directory of
// this name.
func isPlainName(s string) bool {
	return len(s) <= maxName && utf8.ValidString(s) && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, `<>:"/\|?*`) &&
		strings.TrimRight(s, ". ") == s && !strings.ContainsFunc(s, unicode.IsControl) && !reservedName.MatchString(s)
}

// applyPlanFile sets the flags that a plan file names and the command line
// does not.
func applyPlanFile(fs *pflag.FlagSet, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var plan map[string]any
	if err := dec.Decode(&plan); err != nil {
		return fmt.Errorf("read plan %s: %w", path, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("read plan %s: there is something after the JSON object", path)
	}
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		v := plan[name]
		if !slices.Contains(planFlags, name) {
			return usageError{fmt.Sprintf("plan %s: unknown key %q", path, name), "keys are " + strings.Join(planFlags, ", ")}
		}
		if fs.Changed(name) {
			continue
		}
		if list, ok := v.([]any); ok {
			var parts []string
			for _, x := range list {
				parts = append(parts, fmt.Sprint(x))
			}
			v = strings.Join(parts, ",")
		}
		if err := fs.Set(name, fmt.Sprint(v)); err != nil {
			return usageError{fmt.Sprintf("plan %s: %s: %v", path, name, err), ""}
		}
	}
	return nil
}

// apiKey reads the key from a file, else from the environment.
func apiKey(file string, getenv func(string) string) (string, error) {
	if file == "" {
		return strings.TrimSpace(getenv("SPEEDMATRIX_API_KEY")), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read API key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", hintedError{fmt.Errorf("%s does not hold one line with a key", file), "the file holds the key and nothing else"}
	}
	return key, nil
}

func parseHeaders(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(l, "\r\n") {
			return nil, usageError{"--header without a name and a colon", `such as --header "X-Team: bench"`}
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

// splitCommand splits a command line as a shell would, as far as quotes and
// backslashes go. Nothing is expanded.
func splitCommand(s string) []string {
	var args []string
	var arg strings.Builder
	var quote rune
	in, escaped := false, false
	for _, c := range s {
		switch {
		case escaped:
			escaped = false
			if c != '\n' {
				arg.WriteRune(c)
				in = true
			}
		case c == '\\' && quote != '\'':
			escaped = true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				arg.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				args = append(args, arg.String())
				arg.Reset()
				in = false
			}
		default:
			arg.WriteRune(c)
			in = true
		}
	}
	if in {
		args = append(args, arg.String())
	}
	return args
}

func tool() runlog.Tool {
	v, commit := version()
	return runlog.Tool{Name: "speedmatrix", Version: v, Commit: commit}
}

func runCollect(e *env, args []string) error {
	cfg, again, err := repeatedCollect(e, args)
	if err != nil {
		return err
	}
	if again.launches > 1 {
		return again.run(e, cfg)
	}
	dir, err := measure(e, cfg)
	if err == nil {
		fmt.Fprintf(e.stderr, "see it with: speedmatrix render %s -o site\n", dir)
	}
	if dir != "" {
		fmt.Fprintln(e.stdout, dir)
	}
	return err
}

// measure runs a collection with its progress on stderr, and says how it
// ended. The directory is "" when nothing was written.
func measure(e *env, cfg collect.Config) (dir string, err error) {
	p := startProgress(e.stderr)
	cfg.Progress = p.update
	dir, err = collect.Run(e.ctx, cfg)
	m := p.close()
	var uerr *url.Error
	switch {
	case errors.Is(err, collect.ErrInterrupted):
		if dir == "" {
			fmt.Fprintln(e.stderr, "interrupted before anything was measured; nothing was written")
		} else {
			fmt.Fprintf(e.stderr, "interrupted: %s are in %s; go on with --resume %s\n", tally(m), dir, dir)
		}
		return dir, errInterrupted
	case err != nil && dir != "":
		return dir, hintedError{err, fmt.Sprintf("%s are in %s; go on with --resume %s", tally(m), dir, dir)}
	case errors.As(err, &uerr):
		return dir, uerr.Err
	case err != nil:
		return dir, err
	}
	fmt.Fprintln(e.stderr, tally(m))
	return dir, nil
}

// tally counts outcomes in words: "38 of 46 measurements, 2 failed, 6 over capacity".
func tally(m *runlog.Manifest) string {
	if m == nil {
		return "no measurements"
	}
	n := map[runlog.Outcome]int{}
	for i := range m.Cells {
		n[m.Cells[i].Outcome]++
	}
	s := fmt.Sprintf("%d of %d measurements", n[runlog.OutcomeRecorded], len(m.Cells))
	if f := n[runlog.OutcomeFailed]; f > 0 {
		s += fmt.Sprintf(", %d failed", f)
	}
	if o := n[runlog.OutcomeOverCapacity]; o > 0 {
		s += fmt.Sprintf(", %d over capacity", o)
	}
	return s
}
