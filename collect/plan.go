package collect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// A PlanRequest is what the person asked for; what is nil or zero is
// decided by the server's facts (docs/method.md, "The default plan").
type PlanRequest struct {
	ContextsTokens        []int32
	Concurrency           []int32
	PrefillContextsTokens []int32
	Duration              time.Duration
	MaxOutputTokens       int32
	PrefillRepeats        int32
	Seed                  int64    // 0: 1
	Temperature           *float64 // nil: 1
	SamplingSeeds         bool     // every request gets a seed of its own
	Text                  string   // stream.TextFull, TextHash or TextNone; "": full
}

// A PlanError is a plan that the server's facts rule out before anything is
// sent, or one that makes no sense.
type PlanError struct {
	Msg    string
	Remedy string
}

func (e *PlanError) Error() string { return e.Msg }

// Hint says how to get a plan that fits.
func (e *PlanError) Hint() string { return e.Remedy }

func defaultConcurrency() []int32 { return []int32{1, 2, 4, 8, 16, 32, 64, 128} }

// newPlan decides the plan. It fills in everything that does not need the
// server's answers: token counting, ignore_eos and the prompts come later.
func newPlan(r PlanRequest, maxModelLen int32) (runlog.Plan, error) {
	temperature := 1.0
	if r.Temperature != nil {
		temperature = *r.Temperature
	}
	p := runlog.Plan{
		MaxOutputTokens: r.MaxOutputTokens,
		Concurrency:     sorted(r.Concurrency),
		DurationUs:      cmp.Or(r.Duration, 30*time.Second).Microseconds(),
		PrefillRepeats:  cmp.Or(r.PrefillRepeats, 1),
		Seed:            cmp.Or(r.Seed, 1),
		Sampling:        runlog.Sampling{Temperature: temperature, TopP: 1, IgnoreEOS: true, Seeded: r.SamplingSeeds},
		DecodeTest:      "fixed duration",
		PrefillMode:     "measured during decode warm-up",
		Text:            cmp.Or(r.Text, stream.TextFull),
	}
	if p.MaxOutputTokens == 0 {
		p.MaxOutputTokens = server.DefaultMaxOutput(maxModelLen)
	}
	if len(p.Concurrency) == 0 {
		p.Concurrency = defaultConcurrency()
	}
	if maxModelLen > 0 && p.MaxOutputTokens >= maxModelLen {
		return p, &PlanError{
			fmt.Sprintf("max output %d does not fit the server's context of %d tokens", p.MaxOutputTokens, maxModelLen),
			fmt.Sprintf("--max-output %d would leave room for prompts", server.DefaultMaxOutput(maxModelLen)),
		}
	}
	contexts, prefill := server.DefaultPlan(maxModelLen, p.MaxOutputTokens)
	if r.ContextsTokens != nil {
		contexts = sorted(r.ContextsTokens)
		if r.PrefillContextsTokens == nil {
			prefill = contexts
		}
	}
	if r.PrefillContextsTokens != nil {
		prefill = sorted(r.PrefillContextsTokens)
	}
	if len(contexts) == 0 && len(prefill) == 0 {
		return p, &PlanError{"the server does not say how long a context it takes", "name the contexts to measure, such as --contexts 8K,32K"}
	}
	for _, c := range contexts {
		if maxModelLen > 0 && int64(c)+int64(p.MaxOutputTokens) > int64(maxModelLen) {
			return p, &PlanError{
				fmt.Sprintf("context %d with up to %d output tokens does not fit the server's context of %d tokens", c, p.MaxOutputTokens, maxModelLen),
				fmt.Sprintf("leave it out, or use --max-output %d or less", max(1, maxModelLen-c)),
			}
		}
	}
	for _, c := range prefill {
		if maxModelLen > 0 && c > maxModelLen {
			return p, &PlanError{
				fmt.Sprintf("prefill context %d is longer than the server's context of %d tokens", c, maxModelLen),
				"leave it out of --prefill-contexts",
			}
		}
	}
	p.ContextsTokens, p.PrefillContextsTokens = contexts, prefill
	p.Order = order(p)
	return p, nil
}

// order returns the cells' names in the order in which they run: context
// after context, the prefill measurement first, because it needs a prompt
// that the server has not seen.
func order(p runlog.Plan) []string {
	var names []string
	for _, context := range sorted(slices.Concat(p.ContextsTokens, p.PrefillContextsTokens)) {
		if slices.Contains(p.PrefillContextsTokens, context) {
			names = append(names, runlog.Key{Phase: runlog.PhasePrefill, ContextTokens: context, Concurrency: 1}.Name())
		}
		if slices.Contains(p.ContextsTokens, context) {
			for _, c := range p.Concurrency {
				names = append(names, runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: context, Concurrency: c}.Name())
			}
		}
	}
	return names
}

// planCells returns the cells of a plan in the order of the manifest. Those
// that the server's capacity rules out are over capacity from the start.
func planCells(p runlog.Plan, capacity runlog.Capacity) []runlog.Cell {
	var cells []runlog.Cell
	for _, context := range p.PrefillContextsTokens {
		cells = append(cells, runlog.Cell{Phase: runlog.PhasePrefill, ContextTokens: context, Concurrency: 1, Outcome: runlog.OutcomePending})
	}
	for _, context := range p.ContextsTokens {
		for _, c := range p.Concurrency {
			cell := runlog.Cell{Phase: runlog.PhaseDecode, ContextTokens: context, Concurrency: c, Outcome: runlog.OutcomePending}
			if over, reason := server.OverCapacity(capacity, c, context, p.MaxOutputTokens); over {
				cell.Outcome, cell.Reason = runlog.OutcomeOverCapacity, reason
			}
			cells = append(cells, cell)
		}
	}
	return cells
}

// sorted returns the distinct values in ascending order.
func sorted(v []int32) []int32 {
	s := slices.Clone(v)
	slices.Sort(s)
	return slices.Compact(s)
}
