package ingest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"speedmatrix/ingest/runlog"
)

// lint notes what a reader of one cell should know and no status says.
func (j *judge) lint() {
	c := j.cell
	g := &c.Figures
	if p, planned := g.PromptTokens, float64(c.ContextTokens); p.Known() && max(p.Value-planned, planned-p.Value) > promptShare*planned {
		j.note("prompts had %s tokens, not the %s planned", decimal(p.Value), decimal(planned))
	}
	if !j.sent || c.Phase != runlog.PhaseDecode {
		return
	}
	if c.Ready != nil && c.Ready.TimedOut {
		j.note("warm-up timed out")
	}
	if c.Launch.Unfinished > 0 && c.Outcome == runlog.OutcomeRecorded {
		j.note("%s requests have no ending", grouped(int64(c.Launch.Unfinished)))
	}
	if a, b, all := g.FirstHalfTokPerS, g.SecondHalfTokPerS, g.TotalTokPerS; a.Known() && b.Known() && all.Known() {
		if d := b.Value - a.Value; max(d, -d) > steadyShare*all.Value {
			j.note("not steady: %.1f tok/s in the first half of the window, %.1f in the second", a.Value, b.Value)
		}
	}
	if total, each, active := g.TotalTokPerS, g.PerRequestTokPerS, g.ActiveRequests; total.Known() && each.Known() && active.Known() {
		if sum := each.Value * active.Value; max(sum-total.Value, total.Value-sum) > sumShare*total.Value {
			j.note("total is %.1f tok/s, but %.1f active requests at %.1f tok/s each would be %.1f", total.Value, active.Value, each.Value, sum)
		}
	}
	if n := g.TTFTUs.N; n > 0 && n < int(c.Concurrency) {
		j.note("TTFT is the median of only %s of %s requests", grouped(int64(n)), grouped(int64(len(c.Requests))))
	}
	if !g.TotalTokPerS.Known() && slices.ContainsFunc(c.Requests, func(r Request) bool { return r.WindowEvents > 0 }) {
		j.note("tok/s unknown: the server did not say how many tokens arrived in the window")
	}
	odd := map[string]int{}
	for i := range c.Requests {
		if n := c.Requests[i].Note; n != "" {
			odd[n]++
		}
	}
	for _, n := range slices.Sorted(maps.Keys(odd)) {
		j.note("%s of %s requests: %s", grouped(int64(odd[n])), grouped(int64(len(c.Requests))), n)
	}
	if reasons := c.Launch.FinishReasons; j.m.Plan.Sampling.IgnoreEOS && len(reasons) > 0 && (len(reasons) > 1 || reasons["length"] == 0) {
		var parts []string
		for _, r := range slices.Sorted(maps.Keys(reasons)) {
			parts = append(parts, fmt.Sprintf("%q %s", r, grouped(int64(reasons[r]))))
		}
		j.note("finish reasons: %s", strings.Join(parts, ", "))
	}
	j.clocks()
	for _, g := range c.GPUs {
		if slowed := int(math.Round(g.SlowedShare.Value * float64(g.SlowedShare.N))); slowed > 0 {
			j.note("GPU %d was slowed down by heat or a power brake in %d of %d samples", g.Index, slowed, g.SlowedShare.N)
		}
	}
}

// clocks notes GPUs whose clock fell inside the window, whatever the cause.
func (j *judge) clocks() {
	if !j.win.ok {
		return
	}
	type fall struct{ high, from, to float64 }
	falls := map[int32]fall{}
	for _, p := range within(j.tel.of(runlog.SourceGPU, runlog.MetricSMClockMHz), j.win.open, j.win.close) {
		f := falls[p.index]
		f.high = max(f.high, p.value)
		if f.high-p.value > f.from-f.to {
			f.from, f.to = f.high, p.value
		}
		falls[p.index] = f
	}
	for _, gpu := range slices.Sorted(maps.Keys(falls)) {
		if f := falls[gpu]; f.from-f.to > clockDropShare*f.from {
			j.note("SM clock of GPU %d fell %s → %s MHz", gpu, decimal(f.from), decimal(f.to))
		}
	}
}

// runNotes says what a reader of the whole run should know.
func runNotes(r *Run) []string {
	m := r.Manifest
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !m.Finished {
		missing := 0
		for i := range m.Cells {
			if m.Cells[i].Outcome == runlog.OutcomePending {
				missing++
			}
		}
		note("the run was stopped before its end: %d of %d measurements are missing", missing, len(m.Cells))
	}
	if s := m.Server.Metrics; s != "" && s != "available" {
		note("server metrics were not available (%s)", s)
	}
	if m.Capacity.KVCacheTokens == 0 {
		note("the size of the server's KV cache was not known, so no measurement was left out because of it")
	}
	switch m.Plan.TokenCounting {
	case countingChunks:
		note("the server did not report token counts, so tok/s and the time between tokens are unknown")
	case "final usage":
		note("the server reported token counts only at the end of a request, so requests that were cut off have none")
	}
	// What every measurement of a phase says of itself is said once.
	for _, n := range []string{noteNoGauges, noteNoLateness, noteNoCache, noteHashed, noteNoText} {
		prefill, decode := hoist(n, r.Prefill), hoist(n, r.Decode)
		if prefill || decode {
			note("%s", n)
		}
	}
	return out
}

// hoist reports whether every recorded cell that could carry the note does,
// and then takes it from them.
func hoist(n string, cells []Cell) bool {
	found := false
	for i := range cells {
		c := &cells[i]
		could := c.Outcome == runlog.OutcomeRecorded && len(c.Requests) > 0 && (n != noteNoGauges || c.Concurrency > 1)
		if has := slices.Contains(c.Notes, n); could && !has {
			return false
		} else if has {
			found = true
		}
	}
	if found {
		for i := range cells {
			cells[i].Notes = slices.DeleteFunc(cells[i].Notes, func(s string) bool { return s == n })
		}
	}
	return found
}
