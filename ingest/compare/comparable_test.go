package compare

import (
	"slices"
	"strings"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

func findingOf(t testing.TB, r *Report, field string) Finding {
	t.Helper()
	i := slices.IndexFunc(r.Diffs[0].Findings, func(f Finding) bool { return f.Field == field })
	if i < 0 {
		t.Fatalf("no finding about %s", field)
	}
	return r.Diffs[0].Findings[i]
}

func served(args ...string) func(*runlog.Manifest) {
	return func(m *runlog.Manifest) {
		m.Engine.LaunchCommand.Args = append([]string{"vllm", "serve", "org/tiny"}, args...)
	}
}

// One test for each row of the table of comparability: what B has that A has
// not, and what comes of it.
func TestComparability(t *testing.T) {
	fact := func(v string) *runlog.Fact { return &runlog.Fact{Value: v, Source: runlog.FromFlag} }
	tested := map[string]bool{}
	for _, tt := range []struct {
		name   string
		both   func(*runlog.Manifest) // of either side
		b      func(*runlog.Manifest) // of B
		allow  []Allowance
		field  string
		want   Outcome
		judged bool
		text   string // part of it
	}{
		{name: "nothing differs", field: "gpu", want: Same, judged: true},
		{name: "every figure is computed by one method", field: "method", want: Same, judged: true},
		{name: "another model", b: func(m *runlog.Manifest) { m.Model.Repository = "org/other" }, field: "model", want: Refuse, text: `different model: "org/tiny" and "org/other"`},
		{name: "a model that is not known", both: func(m *runlog.Manifest) { m.Model.Repository = "" }, field: "model", want: Warn, judged: true, text: "not known on either side"},
		{name: "other weights", b: func(m *runlog.Manifest) { m.Model.WeightsDigest = "sha256:bb" }, field: "revision", want: Refuse},
		{name: "a branch of the same weights", b: func(m *runlog.Manifest) { m.Model.Revision = "v2" }, field: "revision", want: Same, judged: true},
		{name: "a branch is no pin", both: func(m *runlog.Manifest) { m.Model.WeightsDigest = "" }, field: "revision", want: Warn, judged: true, text: "not pinned"},
		{name: "a commit is", both: func(m *runlog.Manifest) { m.Model.WeightsDigest, m.Model.Revision = "", "0123456789abcdef" }, field: "revision", want: Same, judged: true},
		{name: "another revision", both: func(m *runlog.Manifest) { m.Model.WeightsDigest = "" }, b: func(m *runlog.Manifest) { m.Model.Revision = "dev" }, field: "revision", want: Refuse},
		{name: "a digest on one side only", b: func(m *runlog.Manifest) { m.Model.WeightsDigest = "" }, field: "revision", want: Warn, judged: true},
		{name: "another quantization", b: func(m *runlog.Manifest) { m.Engine.Quantization = fact("FP8") }, field: "quantization", want: Refuse},
		{name: "a quantization that is not known", b: func(m *runlog.Manifest) { m.Engine.Quantization = nil }, field: "quantization", want: Warn, judged: true, text: `"BF16" and not known`},

		{name: "another GPU", b: func(m *runlog.Manifest) { m.Hardware.GPUs[0].Name = "H100" }, field: "gpu", want: Refuse},
		{name: "another GPU, declared, is described", b: func(m *runlog.Manifest) { m.Hardware.GPUs[0].Name = "H100" }, allow: []Allowance{AllowHardware}, field: "gpu", want: Warn},
		{name: "no GPU known on one side", b: func(m *runlog.Manifest) { m.Hardware.GPUs = nil }, field: "gpu", want: Refuse},
		{name: "two GPUs", b: func(m *runlog.Manifest) { m.Hardware.GPUs = append(m.Hardware.GPUs, m.Hardware.GPUs[0]) }, field: "gpu", want: Refuse, text: `"1 × H200" and "2 × H200"`},
		{name: "less VRAM, as of a MIG slice", b: func(m *runlog.Manifest) { m.Hardware.GPUs[0].VRAMBytes /= 2 }, field: "vram", want: Refuse},
		{name: "a MiB less VRAM", b: func(m *runlog.Manifest) { m.Hardware.GPUs[0].VRAMBytes -= 1 << 20 }, field: "vram", want: Same, judged: true},
		{name: "another power limit", b: func(m *runlog.Manifest) { m.Hardware.GPUs[0].PowerLimitW = 500 }, field: "power limit", want: Refuse},
		{name: "another kind of hardware", b: func(m *runlog.Manifest) { m.Hardware.Type = "CPU" }, field: "hardware type", want: Refuse},
		{name: "another backend", b: func(m *runlog.Manifest) { m.Engine.Backend = fact("rocm") }, field: "backend", want: Refuse},
		{name: "another CPU that serves", both: func(m *runlog.Manifest) { m.Hardware.GPUs, m.Hardware.Type = nil, "CPU" }, b: func(m *runlog.Manifest) { m.Hardware.CPU = "Epyc" }, field: "cpu that serves", want: Refuse},
		{name: "another CPU beside a GPU", b: func(m *runlog.Manifest) { m.Hardware.CPU = "Epyc" }, field: "cpu", want: Note, judged: true},

		{name: "another max output", b: func(m *runlog.Manifest) { m.Plan.MaxOutputTokens = 512 }, field: "max output tokens", want: Refuse},
		{name: "another decode test", b: func(m *runlog.Manifest) { m.Plan.DecodeTest = "fixed tokens" }, field: "decode test", want: Refuse, text: `different decode test: "fixed duration" and "fixed tokens"`},
		{name: "another prefill mode", b: func(m *runlog.Manifest) { m.Plan.PrefillMode = "alone" }, field: "prefill mode", want: Refuse},
		{name: "another temperature", b: func(m *runlog.Manifest) { m.Plan.Sampling.Temperature = 0 }, field: "sampling", want: Refuse},
		{name: "seeds", b: func(m *runlog.Manifest) { m.Plan.Sampling.Seeded = true }, field: "sampling", want: Refuse},
		{name: "chunks are no tokens", b: func(m *runlog.Manifest) { m.Plan.TokenCounting = "chunks" }, field: "token counting", want: Refuse},
		{name: "running usage and token ids count alike", b: func(m *runlog.Manifest) { m.Plan.TokenCounting = "token ids" }, field: "token counting", want: Same, judged: true},
		{name: "no warm-up", b: func(m *runlog.Manifest) { m.Warmup = nil }, field: "cache warm-up", want: Refuse},
		{name: "a longer window", b: func(m *runlog.Manifest) { m.Plan.DurationUs = 60_000_000 }, field: "window", want: Refuse},
		{name: "a window twice as long, declared", b: func(m *runlog.Manifest) { m.Plan.DurationUs = 60_000_000 }, allow: []Allowance{AllowWindow}, field: "window", want: Warn, judged: true},
		{name: "a window three times as long, declared", b: func(m *runlog.Manifest) { m.Plan.DurationUs = 90_000_000 }, allow: []Allowance{AllowWindow}, field: "window", want: Refuse, text: "more than twice"},
		{name: "other prompts", b: func(m *runlog.Manifest) { m.Plan.PromptSet = "p2" }, field: "prompts", want: Refuse},
		{name: "other prompts of other contexts, one seed", b: func(m *runlog.Manifest) { m.Plan.PromptSet, m.Plan.PrefillContextsTokens = "p2", []int32{8192} }, field: "prompts", want: Warn, judged: true},
		{name: "other prompts of other contexts and another seed", b: func(m *runlog.Manifest) {
			m.Plan.PromptSet, m.Plan.PrefillContextsTokens, m.Plan.Seed = "p2", []int32{8192}, 2
		}, field: "prompts", want: Refuse},
		{name: "other contexts", b: func(m *runlog.Manifest) { m.Plan.ContextsTokens = []int32{8192} }, field: "contexts and concurrency", want: Note, judged: true},

		{name: "another engine", b: func(m *runlog.Manifest) { m.Engine.Name = fact("sglang") }, field: "engine", want: Refuse},
		{name: "another engine, declared", b: func(m *runlog.Manifest) { m.Engine.Name = fact("sglang") }, allow: []Allowance{AllowEngine}, field: "engine", want: Warn, judged: true},
		{name: "another version is what it is about", b: func(m *runlog.Manifest) { m.Engine.Version = fact("0.31.0") }, field: "engine version", want: Note, judged: true},
		{name: "another build", b: func(m *runlog.Manifest) { m.Engine.Build = fact("cuda-13.3") }, field: "engine build", want: Note, judged: true},
		{name: "another flag", b: served("--max-num-seqs", "64"), field: "launch flags", want: Refuse, text: `different launch flags: --max-num-seqs (`},
		{name: "another flag, declared", b: served("--max-num-seqs", "64"), allow: []Allowance{AllowLaunch}, field: "launch flags", want: Warn, judged: true, text: "of the commit and of launch flags together"},
		{name: "another port is no flag", b: served("--port", "9000", "--api-key", "<redacted>", "--served-model-name", "x", "--host=0.0.0.0"), field: "launch flags", want: Same, judged: true},
		{name: "a command known on one side only", b: func(m *runlog.Manifest) { m.Engine.LaunchCommand = nil }, field: "launch flags", want: Warn, judged: true},
		{name: "commands not known", both: func(m *runlog.Manifest) { m.Engine.LaunchCommand = nil }, field: "launch flags", want: Note, judged: true},
		{name: "another longest context", b: func(m *runlog.Manifest) { m.Model.MaxModelLenTokens = 8192 }, field: "longest context", want: Warn, judged: true},
		{name: "a smaller KV cache", b: func(m *runlog.Manifest) { m.Capacity.KVCacheTokens = 9 }, field: "kv cache tokens", want: Note, judged: true},
		{name: "an unknown KV cache is not one of 0", b: func(m *runlog.Manifest) { m.Capacity.KVCacheTokens = 0 }, field: "kv cache tokens", want: Same, judged: true},

		{name: "another driver", b: func(m *runlog.Manifest) { m.Hardware.GPUs[0].Driver = "580.105" }, field: "driver", want: Note, judged: true},
		{name: "another kernel", b: func(m *runlog.Manifest) { m.Hardware.Kernel = "6.9" }, field: "system", want: Note, judged: true},
		{name: "another version of the benchmark", b: func(m *runlog.Manifest) { m.Tool.Version = "2" }, field: "benchmark", want: Note, judged: true},
		{name: "another arrival clock", b: func(m *runlog.Manifest) { m.ArrivalClock = runlog.ArrivalUser }, field: "arrival clock", want: Warn, judged: true},
		{name: "another network", b: func(m *runlog.Manifest) { m.Server.Address = "public" }, field: "address", want: Warn, judged: true},
		{name: "no text to find loops in", b: func(m *runlog.Manifest) { m.Plan.Text = "none" }, field: "text kept", want: Warn, judged: true},
		{name: "more prefill samples", b: func(m *runlog.Manifest) { m.Plan.PrefillRepeats = 3 }, field: "prefill samples", want: Note, judged: true},
		{name: "calibrated prompts", b: func(m *runlog.Manifest) { m.Plan.PromptCounting = "calibrated" }, field: "prompt counting", want: Note, judged: true},
		{name: "another order of cells", both: func(m *runlog.Manifest) { m.Plan.Order = []string{"x", "y"} }, b: func(m *runlog.Manifest) { m.Plan.Order = []string{"y", "x"} }, field: "order of cells", want: Note, judged: true},
		{name: "a run that was stopped", b: func(m *runlog.Manifest) { m.Finished = false }, field: "finished", want: Warn, judged: true},
	} {
		tested[tt.field] = true
		t.Run(tt.name, func(t *testing.T) {
			apply := func(change func(*runlog.Manifest)) func(*ingest.Run) {
				return func(r *ingest.Run) {
					if tt.both != nil {
						tt.both(r.Manifest)
					}
					if change != nil {
						change(r.Manifest)
					}
				}
			}
			a, b := launches(3, 0, 20, apply(nil)), launches(3, 10, 20, apply(tt.b))
			r := mustCompare(t, a, b, func(o *Options) { o.Allow = tt.allow })
			f := findingOf(t, r, tt.field)
			if f.Outcome != tt.want || !strings.Contains(f.Text, tt.text) || (f.Text == "") != (f.Outcome == Same) {
				t.Errorf("%s: got %v, %q; want %v with %q", tt.field, f.Outcome, f.Text, tt.want, tt.text)
			}
			if f.Allowed != (len(tt.allow) > 0 && f.Outcome == Warn) {
				t.Errorf("%s: got allowed %v", tt.field, f.Allowed)
			}
			d := &r.Diffs[0]
			if d.Comparable != tt.judged {
				t.Errorf("comparable: got %v, want %v; %+v", d.Comparable, tt.judged, d.Findings)
			}
			exit, _ := r.Counts.Status(DefaultGate())
			want := ExitPass
			if !tt.judged {
				want = ExitUnjudged
			}
			if exit != want {
				t.Errorf("exit status: got %d, want %d: %s", exit, want, r.Counts.Line(DefaultGate()))
			}
			for i := range d.Metrics {
				m := &d.Metrics[i]
				for j := range m.Cells {
					c := &m.Cells[j]
					if !tt.judged && c.Verdict != NotComparable {
						t.Fatalf("%v %d × %d: got %v in sides that can't be compared", m.Metric, c.ContextTokens, c.Concurrency, c.Verdict)
					}
					if describes := c.Change != nil; describes != (tt.judged || d.Descriptive) {
						t.Fatalf("%v %d × %d: a change is computed: %v, descriptive %v", m.Metric, c.ContextTokens, c.Concurrency, describes, d.Descriptive)
					}
				}
			}

			// Seen from the other side it is the same.
			if back := findingOf(t, mustCompare(t, b, a, func(o *Options) { o.Allow = tt.allow }), tt.field); back.Outcome != f.Outcome || back.A != f.B || back.B != f.A {
				t.Errorf("the other way round: got %+v, want %+v with A and B swapped", back, f)
			}
		})
	}
	for _, r := range rules() {
		if !tested[r.field] {
			t.Errorf("the row %q of the table has no test", r.field)
		}
	}
}

func TestLaunchesOfOneSideMustAgree(t *testing.T) {
	a, b := pair(3, nil)
	b.Runs[1].Manifest.Plan.MaxOutputTokens = 7
	r := mustCompare(t, a, b, nil)
	if f := findingOf(t, r, "max output tokens"); f.Outcome != Refuse || f.B != "4096 | 7" || !strings.Contains(f.Text, "between launches of one side") {
		t.Errorf("got %+v, want a refusal that names both values", f)
	}
}

func TestFlags(t *testing.T) {
	manifest := func(commit string, env map[string]string, args ...string) *runlog.Manifest {
		m := matrix(0).Manifest
		m.Engine.Commit.Value, m.Engine.Version.Value = commit, "0.30.1rc1.dev452+g"+commit[:9]
		m.Engine.LaunchCommand.Args = args
		if env != nil {
			m.Engine.Environment = &runlog.Environment{Variables: env, Source: runlog.FromProcess}
		}
		return m
	}
	// As on a page, except for the commit.
	page := func(commit string) *runlog.Manifest {
		return manifest(commit, nil, "env", "MAX_JOBS=2", "FLASHINFER_NVCC_THREADS=1", "TORCHINDUCTOR_COMPILE_THREADS=1", "VLLM_CACHE_ROOT=/tmp/env_"+commit+"/cache",
			"/home/x/env_rtxpro6k-vllm-"+commit+"/bin/vllm", "serve", "org/tiny", "--served-model-name", "tiny", "--trust-remote-code", "--tensor-parallel-size", "1",
			"--chat-template", "/home/x/env-"+commit[:9]+"/t.jinja", "--host", "0.0.0.0", "--port", "8000", "--api-key", "<redacted>", "--speculative-config", `{"method": "x", "k": 15}`)
	}
	if diff := flagDifferences(page("73a5831127a9"), page("9f2c41e07b55")); len(diff) != 0 {
		t.Errorf("two commits under one setting: got %+v, want no difference", diff)
	}
	base := page("73a5831127a9")
	for _, tt := range []struct {
		name string
		b    *runlog.Manifest
		want []FlagDifference
	}{
		{"another spelling and order", manifest("73a5831127a9", map[string]string{"VLLM_CACHE_ROOT": "/tmp/env_73a5831127a9/cache", "MAX_JOBS": "9"},
			"python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/tiny", `--speculative_config={"k":15,"method":"x"}`, "-tp", "2", "-tp", "1",
			"--chat_template=/home/x/env-73a5831/t.jinja", "--trust-remote-code"), nil},
		{"less memory, and no template", manifest("73a5831127a9", nil, "env", "VLLM_CACHE_ROOT=/tmp/env_73a5831127a9/cache", "vllm", "serve", "org/tiny", "--trust-remote-code", "--tensor-parallel-size", "1",
			"--gpu-memory-utilization", "0.8", "--speculative-config", `{"method": "x", "k": 15}`),
			[]FlagDifference{
				{Name: "--chat-template", A: "/home/x/env-<commit>/t.jinja", InA: true},
				{Name: "--gpu-memory-utilization", B: "0.8", InB: true, Memory: true},
			}},
		{"an option without a value, a variable, a negative number", manifest("73a5831127a9", map[string]string{"VLLM_USE_V1": "0"}, "env", "VLLM_CACHE_ROOT=/tmp/env_73a5831127a9/cache", "vllm", "serve", "org/tiny",
			"--tensor-parallel-size", "1", "--chat-template", "/home/x/env-73a583112/t.jinja", "--seed", "-1", "--speculative-config", `{"method": "x", "k": 15}`),
			[]FlagDifference{
				{Name: "--seed", B: "-1", InB: true},
				{Name: "--trust-remote-code", InA: true},
				{Name: "VLLM_USE_V1", B: "0", InB: true},
			}},
	} {
		if got := flagDifferences(base, tt.b); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
	unknown := matrix(0).Manifest
	unknown.Engine.LaunchCommand = nil
	if got := flagDifferences(base, unknown); got != nil {
		t.Errorf("a command that is not known: got %+v, want no difference claimed", got)
	}
}

// Beside the whole, single cells can be out of a comparison.
func TestCellsThatCannotBeCompared(t *testing.T) {
	cell := func(r *ingest.Run) *ingest.Cell { return &r.Decode[3] } // 8K × 8
	for _, tt := range []struct {
		name  string
		b     func(*ingest.Cell)
		allow []Allowance
		want  Verdict
		text  string
	}{
		{"heat", func(c *ingest.Cell) { c.GPUs = []ingest.GPUState{{SlowedShare: ingest.Stat{Value: 0.4, N: 30}}} }, nil, NotComparable, "held GPU 0 back in 40 % of the readings on side B"},
		{"heat, declared", func(c *ingest.Cell) { c.GPUs = []ingest.GPUState{{SlowedShare: ingest.Stat{Value: 0.4, N: 30}}} }, []Allowance{AllowTelemetry}, NoChange, ""},
		{"a GPU that no sensor watched", func(c *ingest.Cell) { c.GPUs = []ingest.GPUState{{}} }, nil, NoChange, ""},
		{"longer prompts", func(c *ingest.Cell) { c.PromptTokens = 8300 }, nil, NotComparable, "prompts of 8192 tokens on one launch and of 8300 on another"},
		{"prompts of a token more", func(c *ingest.Cell) { c.PromptTokens = 8193 }, nil, NoChange, ""},
		{"prompts of unknown length", func(c *ingest.Cell) { c.PromptTokens = 0 }, nil, NoChange, ""},
		{"no figure", func(c *ingest.Cell) { c.Figures.TotalTokPerS = ingest.Stat{} }, nil, NotComparable, "not measured on every launch of B"},
	} {
		a, b := pair(3, func(r *ingest.Run) { tt.b(cell(r)) })
		r := mustCompare(t, a, b, func(o *Options) { o.Allow = tt.allow })
		c := cellOf(t, r, Decode, 8192, 8)
		if hot := findingOf(t, r, "heat"); (hot.Outcome == Warn) != (tt.name[:4] == "heat") || hot.Allowed != (tt.allow != nil) {
			t.Errorf("%s: %+v", tt.name, hot)
		}
		if c.Verdict != tt.want || !strings.Contains(c.Reason, tt.text) || (c.Change != nil) != (tt.want == NoChange) {
			t.Errorf("%s: got %v, %q, want %v, %q", tt.name, c.Verdict, c.Reason, tt.want, tt.text)
		}
	}
}
