package runlog

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	maxCells     = 10_000 // in a manifest
	minFileBytes = 12     // of a Parquet file
)

// Check reports the first thing in m that breaks a rule of the format as a
// *FormatError whose path is run.json, or nil. The writer and the reader
// both apply it.
//
// Beside enumerations and ranges it holds that the cells are exactly those
// of the plan, in its order, and that a cell has the file, the window and
// the reason that its outcome calls for.
func (m *Manifest) Check() error {
	if d := m.check(); d != nil {
		return d.in(ManifestFile)
	}
	return nil
}

func (m *Manifest) check() *damage {
	_, offset := m.StartedAt.Zone()
	switch {
	case m.Format != Format:
		return damagef("format: got %q, want %q", clip(m.Format), Format)
	case m.Tool.Name == "":
		return damagef("tool.name: missing")
	case m.StartedAt.IsZero() || m.StartedAt.Year() < 1970 || m.StartedAt.Year() > 9999:
		return damagef("started_at: got year %d, want 1970 to 9999", m.StartedAt.Year())
	case offset != 0:
		return damagef("started_at: got %s, want UTC", m.StartedAt.Format(time.RFC3339))
	case m.ArrivalClock != ArrivalKernel && m.ArrivalClock != ArrivalUser:
		return damagef("arrival_clock: got %q, want %s", clip(string(m.ArrivalClock)), oneOf(ArrivalKernel, ArrivalUser))
	}
	for i, t := range m.ResumedUs {
		switch {
		case t < 0 || t > MaxTimeUs:
			return damagef("resumed_us[%d]: got %d, want 0 to %d", i, t, int64(MaxTimeUs))
		case i > 0 && t < m.ResumedUs[i-1]:
			return damagef("resumed_us[%d]: got %d after %d, want ascending", i, t, m.ResumedUs[i-1])
		}
	}
	for _, check := range []func() *damage{m.checkFacts, m.checkPlan, m.checkCells, m.checkFiles} {
		if d := check(); d != nil {
			return d
		}
	}
	return nil
}

// checkFacts checks what is known of the launch, the engine, the model and
// the machine.
func (m *Manifest) checkFacts() *damage {
	e := &m.Engine
	for _, f := range []struct {
		key  string
		fact *Fact
	}{
		{"name", e.Name}, {"version", e.Version}, {"commit", e.Commit}, {"build", e.Build},
		{"backend", e.Backend}, {"repository", e.Repository}, {"quantization", e.Quantization},
	} {
		if f.fact == nil {
			continue
		}
		if f.fact.Value == "" {
			return damagef("engine.%s.value: got \"\", want no key where it is not known", f.key)
		}
		if d := checkSource("engine."+f.key, f.fact.Source); d != nil {
			return d
		}
	}
	if c := e.LaunchCommand; c != nil {
		if len(c.Args) == 0 {
			return damagef("engine.launch_command.args: got none, want no key where it is not known")
		}
		if d := checkSource("engine.launch_command", c.Source); d != nil {
			return d
		}
	}
	if v := e.Environment; v != nil {
		if v.Variables == nil {
			return damagef("engine.environment.variables: missing")
		}
		if d := checkSource("engine.environment", v.Source); d != nil {
			return d
		}
	}
	for i, g := range m.Hardware.GPUs {
		switch at := fmt.Sprintf("hardware.gpus[%d]", i); {
		case g.Name == "":
			return damagef("%s.name: missing", at)
		case !(g.PowerLimitW >= 0) || math.IsInf(g.PowerLimitW, 0):
			return damagef("%s.power_limit_w: got %v, want 0 or more", at, g.PowerLimitW)
		case g.VRAMBytes < 0:
			return damagef("%s.vram_bytes: got %d, want 0 or more", at, g.VRAMBytes)
		}
	}
	switch m.Server.Address {
	case "", "loopback", "private", "public":
	default:
		return damagef("server.address: got %q, want %s", clip(m.Server.Address), oneOf("loopback", "private", "public"))
	}
	return notNegative([]number{
		{"launch.index", int64(m.Launch.Index)}, {"launch.order", int64(m.Launch.Order)},
		{"model.max_model_len_tokens", int64(m.Model.MaxModelLenTokens)},
		{"hardware.memory_bytes", m.Hardware.MemoryBytes},
		{"capacity.kv_cache_tokens", m.Capacity.KVCacheTokens}, {"capacity.engines", int64(m.Capacity.Engines)},
		{"capacity.max_num_seqs", int64(m.Capacity.MaxNumSeqs)},
	})
}

type number struct {
	key   string
	value int64
}

func notNegative(numbers []number) *damage {
	for _, n := range numbers {
		if n.value < 0 {
			return damagef("%s: got %d, want 0 or more", n.key, n.value)
		}
	}
	return nil
}

func checkSource(at string, s FactSource) *damage {
	switch s {
	case FromServer, FromProcess, FromFlag:
		return nil
	}
	return damagef("%s.source: got %q, want %s", at, clip(string(s)), oneOf(FromServer, FromProcess, FromFlag))
}

// checkPlan checks the plan in itself.
func (m *Manifest) checkPlan() *damage {
	p := &m.Plan
	for _, list := range []struct {
		key    string
		values []int32
		least  int32
	}{
		{"contexts_tokens", p.ContextsTokens, 0}, {"concurrency", p.Concurrency, 1},
		{"prefill_contexts_tokens", p.PrefillContextsTokens, 0},
	} {
		for i, v := range list.values {
			switch {
			case v < list.least:
				return damagef("plan.%s[%d]: got %d, want %d or more", list.key, i, v, list.least)
			case i > 0 && v <= list.values[i-1]:
				return damagef("plan.%s[%d]: got %d after %d, want ascending", list.key, i, v, list.values[i-1])
			}
		}
	}
	for _, word := range []struct{ key, value string }{
		{"prompt_set", p.PromptSet}, {"decode_test", p.DecodeTest},
		{"prefill_mode", p.PrefillMode}, {"token_counting", p.TokenCounting},
	} {
		if word.value == "" {
			return damagef("plan.%s: got \"\", want a word", word.key)
		}
	}
	switch p.Text {
	case "full", "hash", "none":
	default:
		return damagef("plan.text: got %q, want %s", clip(p.Text), oneOf("full", "hash", "none"))
	}
	switch t, top := p.Sampling.Temperature, p.Sampling.TopP; {
	case !(t >= 0) || math.IsInf(t, 0):
		return damagef("plan.sampling.temperature: got %v, want 0 or more", t)
	case !(top > 0 && top <= 1):
		return damagef("plan.sampling.top_p: got %v, want more than 0, 1 at most", top)
	}
	if len(p.ContextsTokens)*len(p.Concurrency) > 0 {
		switch {
		case p.DurationUs <= 0 || p.DurationUs > MaxTimeUs:
			return damagef("plan.duration_us: got %d, want 1 to %d", p.DurationUs, int64(MaxTimeUs))
		case p.MaxOutputTokens <= 0:
			return damagef("plan.max_output_tokens: got %d, want 1 or more", p.MaxOutputTokens)
		}
	}
	return notNegative([]number{
		{"plan.duration_us", p.DurationUs}, {"plan.max_output_tokens", int64(p.MaxOutputTokens)},
		{"plan.prefill_repeats", int64(p.PrefillRepeats)},
	})
}

// Keys returns the cells of the plan in the order in which they stand in
// Manifest.Cells: prefill by context, then decode by context and, within
// one, by concurrency.
func (p *Plan) Keys() []Key {
	keys := make([]Key, 0, len(p.PrefillContextsTokens)+len(p.ContextsTokens)*len(p.Concurrency))
	for _, context := range p.PrefillContextsTokens {
		keys = append(keys, Key{PhasePrefill, context, 1})
	}
	for _, context := range p.ContextsTokens {
		for _, concurrency := range p.Concurrency {
			keys = append(keys, Key{PhaseDecode, context, concurrency})
		}
	}
	return keys
}

// checkCells holds the cells against the plan and each against its outcome.
func (m *Manifest) checkCells() *damage {
	if n := len(m.Plan.PrefillContextsTokens) + len(m.Plan.ContextsTokens)*len(m.Plan.Concurrency); n > maxCells {
		return damagef("plan: got %d cells, want %d at most", n, maxCells)
	}
	planned := m.Plan.Keys()
	for i := range m.Cells {
		c, at := &m.Cells[i], fmt.Sprintf("cells[%d]", i)
		if d := c.Key().check(); d != nil {
			return damagef("%s.%s", at, d.msg)
		}
		if j := slices.IndexFunc(m.Cells[:i], func(o Cell) bool { return o.Key() == c.Key() }); j >= 0 {
			return damagef("%s: got %s a second time, after cells[%d]", at, c.Key().Name(), j)
		}
		if i >= len(planned) {
			return damagef("%s: got %s, want no more than the %d cells of the plan", at, c.Key().Name(), len(planned))
		}
		if c.Key() != planned[i] {
			return damagef("%s: got %s, want %s as in the plan", at, c.Key().Name(), planned[i].Name())
		}
		if d := c.check(at, m.Finished); d != nil {
			return d
		}
	}
	if len(m.Cells) < len(planned) {
		return damagef("cells: got %d, want %d: %s is missing", len(m.Cells), len(planned), planned[len(m.Cells)].Name())
	}
	run := map[string]bool{}
	for i, name := range m.Plan.Order {
		known := name == string(PhaseWarmup) || slices.ContainsFunc(planned, func(k Key) bool { return k.Name() == name })
		if !known || run[name] {
			return damagef("plan.order[%d]: got %q, want the name of a planned cell, once", i, clip(name))
		}
		run[name] = true
	}
	return nil
}

// check holds a cell against its outcome.
func (c *Cell) check(at string, finished bool) *damage {
	switch c.Outcome {
	case OutcomeRecorded:
		if c.File == "" {
			return damagef("%s.file: missing in a cell that is recorded", at)
		}
		if c.Rows == 0 {
			return damagef("%s.rows: missing in a cell that is recorded", at)
		}
		if c.Phase == PhaseDecode && c.WindowOpenUs == nil {
			return damagef("%s.window_open_us: missing in a cell that is recorded", at)
		}
	case OutcomeFailed:
		if c.Reason == "" {
			return damagef("%s.reason: missing in a cell that failed", at)
		}
	case OutcomeOverCapacity, OutcomePending:
		if c.File != "" {
			return damagef("%s.file: got %q in a cell that is %s, want no file", at, clip(c.File), c.Outcome)
		}
		if finished && c.Outcome == OutcomePending {
			return damagef("%s.outcome: got pending in a run that is finished", at)
		}
	default:
		return damagef("%s.outcome: got %q, want %s", at, clip(string(c.Outcome)),
			oneOf(OutcomeRecorded, OutcomeOverCapacity, OutcomeFailed, OutcomePending))
	}
	if d := c.FileInfo.check(at, c.Key().File()); d != nil {
		return d
	}
	if c.PromptTokens < 0 {
		return damagef("%s.prompt_tokens: got %d, want 0 or more", at, c.PromptTokens)
	}
	switch open, shut := c.WindowOpenUs, c.WindowCloseUs; {
	case open == nil && shut == nil:
	case c.Phase != PhaseDecode:
		return damagef("%s.window_open_us: got a window in phase %s, want one only in decode", at, c.Phase)
	case open == nil || shut == nil:
		return damagef("%s: got one end of the window, want window_open_us and window_close_us, or neither", at)
	case *open < 0 || *shut <= *open || *shut > MaxTimeUs:
		return damagef("%s: got a window from %d to %d, want 0 or more and an end after the beginning", at, *open, *shut)
	}
	switch r := c.Ready; {
	case r == nil:
	case c.Phase != PhaseDecode:
		return damagef("%s.ready: got it in phase %s, want it only in decode", at, c.Phase)
	case r.By == "":
		return damagef("%s.ready.by: got \"\", want a word", at)
	case r.WaitedUs < 0 || r.WaitedUs > MaxTimeUs:
		return damagef("%s.ready.waited_us: got %d, want 0 to %d", at, r.WaitedUs, int64(MaxTimeUs))
	}
	return nil
}

// checkFiles checks the entries of the files that belong to no cell.
func (m *Manifest) checkFiles() *damage {
	if w := m.Warmup; w != nil {
		if w.File == "" {
			return damagef("warmup.file: missing")
		}
		if w.ContextTokens < 1 {
			return damagef("warmup.context_tokens: got %d, want 1 or more", w.ContextTokens)
		}
		if d := w.check("warmup", Key{Phase: PhaseWarmup}.File()); d != nil {
			return d
		}
	}
	if t := m.Telemetry; t != nil {
		if t.File == "" {
			return damagef("telemetry.file: missing")
		}
		return t.check("telemetry", TelemetryFile)
	}
	return nil
}

// check holds an entry against the one path that it can have.
func (f *FileInfo) check(at, file string) *damage {
	if f.File == "" {
		if *f != (FileInfo{}) {
			return damagef("%s.file: missing beside its rows, bytes or sha256", at)
		}
		return nil
	}
	sum, err := hex.DecodeString(f.SHA256)
	switch {
	case f.File != file:
		return damagef("%s.file: got %q, want %q", at, clip(f.File), file)
	case f.Rows < 0 || f.Rows > MaxRows:
		return damagef("%s.rows: got %d, want 0 to %d", at, f.Rows, MaxRows)
	case f.Bytes < minFileBytes || f.Bytes > maxFileBytes:
		return damagef("%s.bytes: got %d, want %d to %d", at, f.Bytes, minFileBytes, maxFileBytes)
	case err != nil || len(sum) != 32 || hex.EncodeToString(sum) != f.SHA256:
		return damagef("%s.sha256: got %q, want 64 hexadecimal digits in lower case", at, clip(f.SHA256))
	}
	return nil
}
