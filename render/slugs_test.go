package render

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

func TestVersionsAreInOrder(t *testing.T) {
	want := []string{ // ascending; PEP 440 has the rules
		"main", "", // no versions: in the order of their start
		"0.9.2.dev26+gcdfd6871a", "0.9.2a1", "0.9.2b3", "0.9.2rc1.dev5", "0.9.2rc1", "0.9.2rc2", "0.9.2", "0.9.2+cu130", "0.9.2.post1.dev3", "0.9.2.post1",
		"0.10.0", "v0.21.1rc1.dev452+g73a583112", "0.21.1rc1.dev1000", "99999999999999999999.0",
	}
	var runs []*summary
	for i, v := range want {
		runs = append(runs, &summary{Version: v, Started: time.Unix(int64(i), 0)})
	}
	slices.Reverse(runs)
	slices.SortFunc(runs, byVersion)
	for i, r := range runs {
		if r.Version != want[i] {
			t.Errorf("place %d has version %q, want %q", i, r.Version, want[i])
		}
	}
}

func TestWhatMakesASeries(t *testing.T) {
	command := func(args ...string) *runlog.Command { return &runlog.Command{Args: args} }
	base := func() *runlog.Manifest {
		return &runlog.Manifest{
			Model:    runlog.Model{Repository: "org/a"},
			Engine:   runlog.Engine{Name: &runlog.Fact{Value: "vllm"}, Version: &runlog.Fact{Value: "1"}, LaunchCommand: command("vllm", "serve", "org/a", "--port", "8000", "--max-model-len=4096", "-tp", "2")},
			Hardware: runlog.Hardware{GPUs: []runlog.GPU{{Name: "NVIDIA H200", VRAMBytes: 1 << 37, Driver: "580"}}},
			Plan:     runlog.Plan{DurationUs: 30e6, MaxOutputTokens: 4096},
		}
	}
	series, _ := seriesOf(base())
	for _, c := range []struct {
		rule   string
		change func(*runlog.Manifest)
		same   bool
	}{
		{"the same", func(*runlog.Manifest) {}, true},
		{"another version", func(m *runlog.Manifest) { m.Engine.Version = &runlog.Fact{Value: "2"} }, true},
		{"another commit", func(m *runlog.Manifest) { m.Engine.Commit = &runlog.Fact{Value: "f00"} }, true},
		{"another driver", func(m *runlog.Manifest) { m.Hardware.GPUs[0].Driver = "590" }, true},
		{"another tool", func(m *runlog.Manifest) { m.Tool.Version = "2" }, true},
		{"flags in another order and spelling, another port, program and key", func(m *runlog.Manifest) {
			m.Engine.LaunchCommand = command("/opt/env_2/bin/python", "-m", "vllm.entrypoints.openai.api_server", "-tp", "2", "--max_model_len", "4096", "--host", "0.0.0.0", "--api-key", "<redacted>")
		}, true},
		{"another flag", func(m *runlog.Manifest) {
			m.Engine.LaunchCommand.Args = append(m.Engine.LaunchCommand.Args, "--enforce-eager")
		}, false},
		{"another value", func(m *runlog.Manifest) { m.Engine.LaunchCommand.Args[7] = "4" }, false},
		{"no launch command", func(m *runlog.Manifest) { m.Engine.LaunchCommand = nil }, false},
		{"another model", func(m *runlog.Manifest) { m.Model.Repository = "org/b" }, false},
		{"another revision", func(m *runlog.Manifest) { m.Model.Revision = "v2" }, false},
		{"another GPU", func(m *runlog.Manifest) { m.Hardware.GPUs[0].Name = "NVIDIA H100" }, false},
		{"another power limit", func(m *runlog.Manifest) { m.Hardware.GPUs[0].PowerLimitW = 450 }, false},
		{"another engine", func(m *runlog.Manifest) { m.Engine.Name = &runlog.Fact{Value: "sglang"} }, false},
		{"another quantization", func(m *runlog.Manifest) { m.Engine.Quantization = &runlog.Fact{Value: "FP8"} }, false},
		{"another window", func(m *runlog.Manifest) { m.Plan.DurationUs = 10e6 }, false},
		{"another output", func(m *runlog.Manifest) { m.Plan.MaxOutputTokens = 512 }, false},
		{"another way of counting", func(m *runlog.Manifest) { m.Plan.TokenCounting = "chunks" }, false},
		{"another sampling", func(m *runlog.Manifest) { m.Plan.Sampling.Temperature = 1 }, false},
	} {
		m := base()
		c.change(m)
		if got, _ := seriesOf(m); (got == series) != c.same {
			t.Errorf("%s: the same series: %v, want %v", c.rule, got == series, c.same)
		}
	}
}

func TestSparklines(t *testing.T) {
	none := math.NaN()
	for _, c := range []struct {
		rule   string
		values []float64
		path   string // "" for no drawing
		dots   string
	}{
		{"no value", nil, "", ""},
		{"one value", []float64{5}, "", ""},
		{"one known value", []float64{none, 5}, "", ""},
		{"up by half", []float64{100, 150}, "M4 24h0L116 4", "M4 24h0M116 4h0"},
		{"up by a twentieth: the height spans a tenth", []float64{95, 100}, "M4 14h0L116 4", "M4 14h0M116 4h0"},
		{"equal", []float64{7, 7, 7}, "M4 4h0L60 4L116 4", "M4 4h0M60 4h0M116 4h0"},
		{"a gap", []float64{100, none, 150}, "M4 24h0M116 4h0", "M4 24h0M116 4h0"},
		{"zero was measured", []float64{0, 0}, "M4 14h0L116 14", "M4 14h0M116 14h0"},
	} {
		s := newSparkline("x", c.values)
		switch {
		case s == nil:
			if c.path != "" {
				t.Errorf("%s: no drawing, want %q", c.rule, c.path)
			}
		case s.Path != c.path || s.Dots != c.dots:
			t.Errorf("%s: line %q and dots %q, want %q and %q", c.rule, s.Path, s.Dots, c.path, c.dots)
		}
	}
	long := make([]float64, 100)
	for i := range long {
		long[i] = float64(100 + i)
	}
	if s := newSparkline("x", long); s.Dots != "" || s.Title != "x: between 140.0 and 199.0 tok/s" {
		t.Errorf("of many values: dots %q, title %q, want none, and the newest 60", s.Dots, s.Title)
	}
}

// A summary that comes from the cache is the one that went in.
func TestSummarySurvivesJSON(t *testing.T) {
	third, none := 1.0/3, (*float64)(nil)
	s := summary{
		ID: "a b", Started: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC), Finished: true, Model: "<m>", Counts: []string{"1 Valid"},
		Statuses: map[string]int{"valid": 1}, Settings: []fact{{Name: "n", Value: "v", Code: true}}, Raw: []string{"run.json"},
		Cells: []summaryCell{{Prefill: true, Context: 8192, Concurrency: 1, Status: "Valid", Slug: "valid", Total: &third, TTFTUs: none}},
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got summary
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("got %+v (%v), want %+v", got, err, s)
	}
}
