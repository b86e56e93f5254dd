package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// An Outcome says what a rule of comparability found.
type Outcome uint8

const (
	Same   Outcome = iota // equal on all launches, or not known on any and of no consequence
	Note                  // different, as it may be
	Warn                  // a reason for doubt; the verdicts stand
	Refuse                // not comparable
)

// String returns "same", "noted", "warning" or "not comparable".
func (o Outcome) String() string {
	return [...]string{Same: "same", Note: "noted", Warn: "warning", Refuse: "not comparable"}[o]
}

// A Finding is what one rule of comparability found about a base and a side.
type Finding struct {
	Field   string // what was compared, such as "gpu" or "launch flags"
	Outcome Outcome
	A, B    string // what the launches say; several values of one side are joined by " | "; "" not known
	Allowed bool   // it would be refused, but was declared as intended
	Text    string // one sentence without a final period; "" when Same
}

// An Allowance declares a difference as intended.
type Allowance string

// The allowances.
const (
	AllowLaunch    Allowance = "launch"    // launch flags: verdicts are about commit and flags together
	AllowEngine    Allowance = "engine"    // another engine
	AllowWindow    Allowance = "window"    // windows of another length, up to twice as long
	AllowHardware  Allowance = "hardware"  // other hardware: changes are described, nothing is judged
	AllowTelemetry Allowance = "telemetry" // cells in which heat held a GPU back
	AllowOrder     Allowance = "order"     // sides measured one after the other
	AllowDriver    Allowance = "driver"    // another driver or system; noted in any case
	AllowTool      Allowance = "tool"      // another version of the benchmark; noted in any case
)

// Allowances lists every allowance.
func Allowances() []Allowance {
	return []Allowance{AllowLaunch, AllowEngine, AllowWindow, AllowHardware, AllowTelemetry, AllowOrder, AllowDriver, AllowTool}
}

// A rule compares one field over all launches of both sides.
type rule struct {
	field   string
	value   func(*runlog.Manifest) string // "" when not known
	differ  Outcome                       // different values are known
	half    Outcome                       // known on one side only
	neither Outcome                       // known on neither
	allow   Allowance                     // what turns Refuse into Warn; "" nothing
	key     bool                          // a noise profile is good for one value only
	hint    string                        // added to the text of a finding

	find func(a, b []*ingest.Run) Finding // instead of all that: a comparison of another kind
}

// rules is the table of comparability, in the order of the report.
func rules() []rule {
	plan := func(field string, value func(*runlog.Plan) string) rule {
		return rule{field: field, value: func(m *runlog.Manifest) string { return value(&m.Plan) }, differ: Refuse, key: true}
	}
	window := plan("window", func(p *runlog.Plan) string { return seconds(p.DurationUs) })
	window.allow = AllowWindow
	return []rule{
		{field: "method", value: func(*runlog.Manifest) string { return ingest.Method }, differ: Refuse, key: true},
		{field: "model", value: func(m *runlog.Manifest) string { return m.Model.Repository }, differ: Refuse, half: Warn, neither: Warn, key: true},
		{field: "revision", find: revisions},
		{field: "quantization", value: func(m *runlog.Manifest) string { return fact(m.Engine.Quantization) }, differ: Refuse, half: Warn, key: true},

		{field: "hardware type", value: func(m *runlog.Manifest) string { return m.Hardware.Type }, differ: Refuse, half: Warn, allow: AllowHardware},
		{field: "gpu", value: gpus, differ: Refuse, half: Refuse, allow: AllowHardware, key: true},
		{field: "vram", value: vram, differ: Refuse, half: Warn, allow: AllowHardware},
		{field: "power limit", value: powerLimits, differ: Refuse, half: Warn, allow: AllowHardware, key: true},
		{field: "cpu that serves", value: servingCPU, differ: Refuse, half: Warn, allow: AllowHardware, key: true},
		{field: "backend", value: func(m *runlog.Manifest) string { return fact(m.Engine.Backend) }, differ: Refuse, half: Warn, allow: AllowHardware},

		plan("max output tokens", func(p *runlog.Plan) string { return strconv.Itoa(int(p.MaxOutputTokens)) }),
		plan("decode test", func(p *runlog.Plan) string { return p.DecodeTest }),
		plan("prefill mode", func(p *runlog.Plan) string { return p.PrefillMode }),
		plan("sampling", sampling),
		plan("token counting", counting),
		window,
		{field: "prompts", find: promptSets},
		{field: "contexts and concurrency", find: contexts},
		{field: "cache warm-up", value: warmUp, differ: Refuse},

		{field: "engine", value: func(m *runlog.Manifest) string { return fact(m.Engine.Name) }, differ: Refuse, half: Warn, neither: Warn, allow: AllowEngine, key: true},
		{field: "engine version", value: func(m *runlog.Manifest) string { return fact(m.Engine.Version) }, differ: Note, half: Note},
		{field: "engine build", value: func(m *runlog.Manifest) string { return fact(m.Engine.Build) }, differ: Note, half: Note},
		{field: "launch flags", value: flagText, differ: Refuse, half: Warn, neither: Note, allow: AllowLaunch, key: true},
		{field: "longest context", value: number(func(m *runlog.Manifest) int64 { return int64(m.Model.MaxModelLenTokens) }), differ: Warn},
		{field: "kv cache tokens", value: number(func(m *runlog.Manifest) int64 { return m.Capacity.KVCacheTokens }), differ: Note},

		{field: "driver", value: drivers, differ: Note, half: Note, allow: AllowDriver},
		{field: "system", value: func(m *runlog.Manifest) string { return strings.TrimSpace(m.Hardware.OS + " " + m.Hardware.Kernel) }, differ: Note, half: Note, allow: AllowDriver},
		{field: "cpu", value: func(m *runlog.Manifest) string { return m.Hardware.CPU }, differ: Note, half: Note},
		{field: "benchmark", value: func(m *runlog.Manifest) string {
			return strings.TrimSpace(m.Tool.Name + " " + m.Tool.Version + " " + m.Tool.Commit)
		}, differ: Note, allow: AllowTool},
		{field: "arrival clock", value: func(m *runlog.Manifest) string { return string(m.ArrivalClock) }, differ: Warn, hint: "TTFT may differ by that alone"},
		{field: "address", value: func(m *runlog.Manifest) string { return m.Server.Address }, differ: Warn, hint: "the network is in every TTFT"},
		{field: "text kept", value: func(m *runlog.Manifest) string { return m.Plan.Text }, differ: Warn, hint: "loops are only found in full text"},
		{field: "prefill samples", value: func(m *runlog.Manifest) string { return strconv.Itoa(int(m.Plan.PrefillRepeats)) }, differ: Note},
		{field: "prompt counting", value: func(m *runlog.Manifest) string { return m.Plan.PromptCounting }, differ: Note},
		{field: "order of cells", value: func(m *runlog.Manifest) string { return strings.Join(m.Plan.Order, " ") }, differ: Note},
		{field: "finished", find: finished},
	}
}

// Helpers of the table. All return "" for what is not known.

func fact(f *runlog.Fact) string {
	if f == nil {
		return ""
	}
	return f.Value
}

func number(value func(*runlog.Manifest) int64) func(*runlog.Manifest) string {
	return func(m *runlog.Manifest) string {
		if n := value(m); n > 0 {
			return strconv.FormatInt(n, 10)
		}
		return ""
	}
}

func seconds(us int64) string { return strconv.FormatFloat(float64(us)/1e6, 'f', -1, 64) + " s" }

// eachGPU joins what is said of every GPU, equal ones counted, "" when one
// of them does not say.
func eachGPU(m *runlog.Manifest, value func(*runlog.GPU) string) string {
	count := map[string]int{}
	var names []string
	for i := range m.Hardware.GPUs {
		v := value(&m.Hardware.GPUs[i])
		if v == "" {
			return ""
		}
		if count[v]++; count[v] == 1 {
			names = append(names, v)
		}
	}
	slices.Sort(names)
	for i, v := range names {
		names[i] = fmt.Sprintf("%d × %s", count[v], v)
	}
	return strings.Join(names, ", ")
}

func gpus(m *runlog.Manifest) string { return eachGPU(m, func(g *runlog.GPU) string { return g.Name }) }

func drivers(m *runlog.Manifest) string {
	return eachGPU(m, func(g *runlog.GPU) string { return g.Driver })
}

// vram is in whole gibibytes: drivers report a few MiB more or less.
func vram(m *runlog.Manifest) string {
	return eachGPU(m, func(g *runlog.GPU) string {
		if g.VRAMBytes == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f GiB", float64(g.VRAMBytes)/(1<<30))
	})
}

func powerLimits(m *runlog.Manifest) string {
	return eachGPU(m, func(g *runlog.GPU) string {
		if g.PowerLimitW == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f W", g.PowerLimitW)
	})
}

// servingCPU is the processor where no GPU serves.
func servingCPU(m *runlog.Manifest) string {
	if len(m.Hardware.GPUs) > 0 || m.Hardware.Type != "CPU" {
		return ""
	}
	return m.Hardware.CPU
}

func sampling(p *runlog.Plan) string {
	s := p.Sampling
	return fmt.Sprintf("temperature %v, top-p %v, end-of-text ignored %v, seeds %v", s.Temperature, s.TopP, s.IgnoreEOS, s.Seeded)
}

// counting is what can be counted, not how: running usage and token ids both
// count the tokens of each event.
func counting(p *runlog.Plan) string {
	switch p.TokenCounting {
	case "continuous usage", "token ids":
		return "tokens of each event"
	}
	return p.TokenCounting
}

func warmUp(m *runlog.Manifest) string {
	if m.Warmup == nil {
		return "none"
	}
	return "one request at the largest context"
}

// said are the distinct values of one side, in the order of its launches.
func said(runs []*ingest.Run, value func(*runlog.Manifest) string) []string {
	var out []string
	for _, r := range runs {
		if v := value(r.Manifest); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// check applies a rule to a base and a side.
func (r *rule) check(a, b []*ingest.Run, allow []Allowance) Finding {
	if r.find != nil {
		return r.find(a, b)
	}
	va, vb := said(a, r.value), said(b, r.value)
	f := Finding{Field: r.field, A: strings.Join(va, " | "), B: strings.Join(vb, " | ")}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(va, vb))))
	known := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "" })
	switch {
	case len(known) > 1:
		f.Outcome = r.differ
		f.Text = fmt.Sprintf("different %s: %s and %s", r.field, quoted(va), quoted(vb))
		if len(va) > 1 || len(vb) > 1 {
			f.Text = fmt.Sprintf("different %s between launches of one side: %s against %s", r.field, quoted(va), quoted(vb))
		}
	case len(known) == 1 && len(all) > 1:
		f.Outcome = r.half
		f.Text = fmt.Sprintf("%s is not known of every launch: %s and %s, so it could not be compared", r.field, quoted(va), quoted(vb))
	case len(known) == 0:
		f.Outcome = r.neither
		f.Text = r.field + " is not known on either side, so it could not be compared"
	}
	if f.Outcome == Same {
		f.Text = ""
		return f
	}
	if r.hint != "" {
		f.Text += "; " + r.hint
	}
	if r.allow != "" && slices.Contains(allow, r.allow) {
		f.Allowed = true
		if f.Outcome == Refuse {
			f.Outcome = Warn
		}
	}
	return f
}

// quoted writes values for a sentence.
func quoted(values []string) string {
	var parts []string
	for _, v := range values {
		if v == "" {
			parts = append(parts, "not known")
		} else {
			parts = append(parts, strconv.Quote(v))
		}
	}
	return strings.Join(parts, " | ")
}

// A scope says how much of a comparison can be done.
type scope uint8

const (
	judge    scope = iota // changes and verdicts
	describe              // changes without verdicts
	refuse                // values side by side
)

// comparability applies every rule of the whole, before any arithmetic.
func comparability(a, b []*ingest.Run, allow []Allowance) (found []Finding, s scope, diff []FlagDifference) {
	for _, r := range rules() {
		f := r.check(a, b, allow)
		if r.field == "window" && f.Allowed && !windowsClose(a, b) {
			f.Outcome, f.Allowed = Refuse, false
			f.Text += "; one is more than twice as long as the other"
		}
		if r.field == "launch flags" {
			if diff = flagsAgainst(a[0], b); len(diff) > 0 && f.Outcome != Same {
				f.Text = "different launch flags: " + flagSentence(diff)
				if f.Allowed {
					f.Text = "every change is one of the commit and of launch flags together: " + flagSentence(diff)
				}
			}
		}
		if r.allow == AllowHardware && f.Allowed && f.Outcome == Warn && r.refusable(a, b) {
			s = max(s, describe)
		}
		found = append(found, f)
	}
	for _, f := range found {
		if f.Outcome == Refuse {
			s = refuse
		}
	}
	return found, s, diff
}

// refusable reports whether the rule refuses the sides when nothing is allowed.
func (r *rule) refusable(a, b []*ingest.Run) bool { return r.check(a, b, nil).Outcome == Refuse }

func windowsClose(a, b []*ingest.Run) bool {
	short, long := int64(math.MaxInt64), int64(0)
	for _, r := range slices.Concat(a, b) {
		short, long = min(short, r.Manifest.Plan.DurationUs), max(long, r.Manifest.Plan.DurationUs)
	}
	return short > 0 && long <= 2*short
}

// revisions compares the weights: by digest where every launch has one, else
// by revision. A branch is no pin.
func revisions(a, b []*ingest.Run) Finding {
	all := slices.Concat(a, b)
	digest := rule{field: "revision", value: func(m *runlog.Manifest) string { return m.Model.WeightsDigest }, differ: Refuse}
	if d := digest.check(a, b, nil); d.Outcome == Refuse || !slices.ContainsFunc(all, func(r *ingest.Run) bool { return r.Manifest.Model.WeightsDigest == "" }) {
		return d
	}
	named := rule{field: "revision", value: func(m *runlog.Manifest) string { return m.Model.Revision }, differ: Refuse, half: Warn, neither: Warn}
	f := named.check(a, b, nil)
	if f.Outcome != Refuse && !(f.Outcome == Same && commitLike(f.A)) {
		f.Outcome = Warn
		f.Text = fmt.Sprintf("the model's revision is not pinned (%s and %s, no digest of the weights), so the weights may differ", quoted(said(a, named.value)), quoted(said(b, named.value)))
	}
	return f
}

// commitLike reports whether a revision names one commit.
func commitLike(s string) bool {
	return len(s) >= 12 && strings.Trim(s, "0123456789abcdef") == ""
}

// promptSets compares what was asked. A set's identity covers all its
// contexts, so that sets of other contexts only show by their seed that
// they can be the same where they meet.
func promptSets(a, b []*ingest.Run) Finding {
	set := rule{field: "prompts", value: func(m *runlog.Manifest) string { return m.Plan.PromptSet }, differ: Refuse}
	f := set.check(a, b, nil)
	same := func(value func(*runlog.Plan) string) bool {
		one := rule{value: func(m *runlog.Manifest) string { return value(&m.Plan) }, differ: Refuse}
		return one.check(a, b, nil).Outcome == Same
	}
	if f.Outcome == Refuse && !same(allContexts) && same(func(p *runlog.Plan) string { return strconv.FormatInt(p.Seed, 10) }) {
		f.Outcome = Warn
		f.Text = "the prompt sets are of different contexts, so that only their seed says that the shared contexts had the same prompts"
	}
	return f
}

func allContexts(p *runlog.Plan) string {
	all := slices.Concat(p.ContextsTokens, p.PrefillContextsTokens)
	slices.Sort(all)
	return fmt.Sprint(slices.Compact(all))
}

// contexts notes plans that have cells of their own.
func contexts(a, b []*ingest.Run) Finding {
	cells := rule{field: "contexts and concurrency", differ: Note, hint: "cells of one side only are not compared", value: func(m *runlog.Manifest) string {
		return fmt.Sprintf("%v × %v, prefill %v", m.Plan.ContextsTokens, m.Plan.Concurrency, m.Plan.PrefillContextsTokens)
	}}
	return cells.check(a, b, nil)
}

// finished warns of runs that were stopped.
func finished(a, b []*ingest.Run) Finding {
	f := Finding{Field: "finished"}
	var open []string
	for _, r := range slices.Concat(a, b) {
		if !r.Manifest.Finished {
			open = append(open, r.ID)
		}
	}
	if len(open) > 0 {
		f.Outcome, f.Text = Warn, "not finished: "+quoted(open)
	}
	return f
}
