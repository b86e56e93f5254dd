package main_test

import (
	"fmt"
	"math"
	"slices"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A tokenCount counts the tokens of some of the events of a cell.
type tokenCount struct {
	tokens  int64
	events  int
	unknown bool
}

// count counts the token events of all requests that in holds for. Where a
// request has a total but no counts per event, its tokens count if all its
// events are meant.
func (c *comparer) count(m *matched, in func(event) bool) (sum tokenCount) {
	for _, r := range m.requests {
		events, tokens := 0, int64(0)
		for k, e := range r.events[:r.arrived] {
			if in(e) {
				events++
				tokens += c.tokens(r, r.verdict, k)
			}
		}
		sum.events += events
		switch {
		case events == 0, r.counted:
			sum.tokens += tokens
		case r.total >= 0 && events == r.arrived:
			sum.tokens += r.total
		default:
			sum.unknown = true
		}
	}
	return sum
}

// rate compares tokens per second over a stretch of a window; of is how many
// events the figure is said to be of.
func (c *comparer) rate(what string, got ingest.Stat, n tokenCount, us float64, of int) {
	if n.unknown || us <= 0 {
		of = 0
	}
	c.figure(what, got, exactly(float64(n.tokens)*1e6/us), of)
}

// figures compares the figures of a cell.
func (c *comparer) figures(m *matched, cold map[int32]ingest.Stat) {
	g := &m.cell.Figures
	var ttft, between, rate, answer, prompts, prefill, gaps []span
	var cached, cachedOf float64
	cachedN := 0
	win, hasWin := c.window(m.cell)
	for _, r := range m.requests {
		if r.failed {
			continue
		}
		// The requests themselves are compared one by one; what the server
		// does not know of them is taken from there.
		if r.arrived > 0 {
			sent := span{float64(r.SentUs) - 1, float64(r.SentUs) + 1}
			ttft = append(ttft, r.events[0].t.minus(sent))
			if r.PromptTokens > 0 {
				prefill = append(prefill, r.events[0].t.minus(sent).under(float64(r.truth.prompt)*1e6))
			}
			if r.FirstAnswerUs >= 0 {
				answer = append(answer, exactly(float64(r.FirstAnswerUs-r.SentUs)))
			}
		}
		if r.known {
			between, rate = append(between, r.between), append(rate, r.rate)
		}
		if r.PromptTokens != runlog.Unknown {
			prompts = append(prompts, exactly(float64(r.truth.prompt)))
			if r.CachedTokens != runlog.Unknown {
				cached, cachedOf = cached+float64(r.truth.cached), cachedOf+float64(r.truth.prompt)
				cachedN++
			}
		}
		for k, e := range r.events[:r.arrived] {
			if k > 0 && hasWin && win.has(e.t, e.at) {
				gap := e.t.minus(r.events[k-1].t)
				gaps = append(gaps, span{max(0, gap.lo-1), gap.hi + 1}) // both ends are whole microseconds
			}
		}
	}
	over := func(what string, got ingest.Stat, xs []span, f func([]float64) float64) {
		if len(xs) == 0 {
			c.figure(what, got, span{}, 0)
			return
		}
		c.figure(what, got, spread(xs, f), len(xs))
	}
	percentiles := func(what string, got ingest.Percentiles, xs []span) {
		for _, p := range []struct {
			p   float64
			got ingest.Stat
		}{{0.05, got.P5}, {0.25, got.P25}, {0.5, got.P50}, {0.75, got.P75}, {0.9, got.P90}, {0.95, got.P95}, {0.99, got.P99}, {1, got.Max}} {
			over(fmt.Sprintf("%s, quantile %v", what, p.p), p.got, xs, quantile(p.p))
		}
	}
	median, least, most := quantile(0.5), quantile(0), quantile(1)
	over("TTFT", g.TTFTUs, ttft, median)
	percentiles("TTFT", m.cell.Spread.TTFTUs, ttft)
	percentiles("time between tokens", m.cell.Spread.BetweenTokensUs, between)
	percentiles("per request tok/s", m.cell.Spread.PerRequestTokPerS, rate)
	percentiles("gaps", m.cell.Spread.GapUs, gaps)
	over("first answer", g.FirstAnswerUs, answer, median)
	over("prompt tokens", g.PromptTokens, prompts, median)
	c.figure("cached share", g.CachedShare, exactly(cached/max(1, cachedOf)), cachedN)

	if m.cell.Phase == runlog.PhasePrefill {
		between, rate = nil, nil
	}
	none := func(what string, got ingest.Stat) { c.figure(what, got, span{}, 0) }
	if m.cell.Phase == runlog.PhasePrefill {
		over("prefill tok/s", g.PrefillTokPerS, prefill, median)
		c.figure("samples", g.CompletedRequests, exactly(float64(len(prefill))), len(m.requests))
		for _, s := range g.Named() {
			switch s.Name {
			case "prefill_tok_per_s", "prompt_tokens", "ttft_us", "completed_requests", "first_answer_us", "cold_ttft_us", "cached_share_of_prompt_tokens":
			default:
				none(s.Name, s.Stat)
			}
		}
		want := ingest.Stat{}
		if m.cell.Status == ingest.Valid {
			want = g.TTFTUs
		}
		equal(c, "cold TTFT", g.ColdTTFTUs, want)
		cold[m.cell.ContextTokens] = want
		return
	}
	none("prefill tok/s", g.PrefillTokPerS)
	equal(c, "cold TTFT", g.ColdTTFTUs, cold[m.cell.ContextTokens])
	over("time between tokens", g.BetweenTokensUs, between, median)
	over("per request tok/s", g.PerRequestTokPerS, rate, median)
	over("slowest", g.SlowestTokPerS, rate, least)
	over("fastest", g.FastestTokPerS, rate, most)
	over("gap p50", g.GapP50Us, gaps, quantile(0.5))
	over("gap p90", g.GapP90Us, gaps, quantile(0.9))
	over("gap p99", g.GapP99Us, gaps, quantile(0.99))
	over("gap max", g.GapMaxUs, gaps, most)
	if !hasWin || m.ev == nil {
		for _, s := range []ingest.Stat{g.WindowUs, g.TotalTokPerS, g.OutputTokens, g.TokensPerEvent, g.FirstHalfTokPerS,
			g.SecondHalfTokPerS, g.ActiveRequests, g.CompletedRequests, g.LoopFreeTokPerS} {
			none("a figure of a window that never was", s)
		}
		return
	}

	length, middle := win.close-win.open, win.open+math.Floor((win.close-win.open)/2)
	in := func(open, close float64) func(event) bool {
		w := window{open, close}
		return func(e event) bool { return w.has(e.t, e.at) }
	}
	all := c.count(m, in(win.open, win.close))
	c.figure("measured for", g.WindowUs, exactly(length), 1)
	c.rate("tok/s", g.TotalTokPerS, all, length, all.events)
	n := all.events
	if all.unknown {
		n = 0
	}
	c.figure("output tokens", g.OutputTokens, exactly(float64(all.tokens)), n)
	c.figure("tokens per event", g.TokensPerEvent, exactly(float64(all.tokens)/max(1, float64(all.events))), n)
	c.rate("first half", g.FirstHalfTokPerS, c.count(m, in(win.open, middle)), middle-win.open, n)
	c.rate("second half", g.SecondHalfTokPerS, c.count(m, in(middle, win.close)), win.close-middle, n)

	var active span
	ever, completed := 0, 0
	for _, r := range m.requests {
		if r.arrived > 0 {
			from, to := r.events[0].t, exactly(win.close)
			if r.end != runlog.KindCancelled {
				to = span{min(win.close, r.ended.lo), min(win.close, r.ended.hi)}
			}
			part := span{max(0, to.lo-max(win.open, from.hi)-1), max(0, to.hi-max(win.open, from.lo)+1)}
			if r.ActiveUs > 0 && part.hi > 0 || part.lo > 1 {
				ever++
				active = span{active.lo + part.lo, active.hi + part.hi}
			}
		}
		if r.end == runlog.KindDone && !r.failed && win.has(r.ended, r.EndUs) {
			completed++
		}
	}
	c.figure("active requests", g.ActiveRequests, active.times(1/length), ever)
	c.figure("completed requests", g.CompletedRequests, exactly(float64(completed)), len(m.requests))
	c.loopFree(m, in)
	c.timeline(m, all)
	c.checks(m, win, all)
}

// timeline compares the rates in the parts of the window, and that streams
// were in them as long as requests were active.
func (c *comparer) timeline(m *matched, all tokenCount) {
	t := m.cell.Timeline
	if t == nil {
		c.errorf("no timeline")
		return
	}
	win, _ := c.window(m.cell)
	length := win.close - win.open
	known := all.events > 0
	parts := make([]float64, ingest.TimelineBins)
	for _, r := range m.requests {
		for k, e := range r.events[:r.arrived] {
			if !win.has(e.t, e.at) {
				continue
			}
			known = known && r.counted
			parts[int((float64(e.at)-win.open-1)/length*ingest.TimelineBins)] += float64(c.tokens(r, r.verdict, k))
		}
	}
	if known != (t.TokPerS != nil) {
		c.errorf("rates of the timeline known: %v, want %v", !known, known)
	}
	for i := range t.TokPerS {
		n := 1
		if !known {
			n = 0
		}
		c.figure(fmt.Sprintf("tok/s in part %d", i), ingest.Stat{Value: t.TokPerS[i], N: 1}, exactly(parts[i]*1e6/(length/ingest.TimelineBins)), n)
	}
	sum := 0.0
	for i := range ingest.TimelineBins {
		sum += (t.Streams[ingest.Delivering][i] + t.Streams[ingest.Stalled][i]) / ingest.TimelineBins
	}
	if active := m.cell.Figures.ActiveRequests.Value; math.Abs(sum-active) > 0.001*float64(m.cell.Concurrency) {
		c.errorf("the timeline has %v streams delivering or stalled, but %v requests were active", sum, active)
	}
}

// checks compares the figures beside the results.
func (c *comparer) checks(m *matched, win window, all tokenCount) {
	k, g := &m.cell.Checks, &m.cell.Figures
	c.figure("overrun", k.OverrunUs, exactly(win.close-win.open-float64(c.m.Plan.DurationUs)), 1)
	differ, n := 0.0, 0
	if total := g.TotalTokPerS.Value; total > 0 {
		differ, n = math.Abs(g.FirstHalfTokPerS.Value-g.SecondHalfTokPerS.Value)/total, all.events
	}
	c.figure("halves differ", k.HalvesDiffer, exactly(differ), n)
	differ, n = 0, 0
	if total := g.TotalTokPerS.Value; total > 0 && g.PerRequestTokPerS.Known() && g.ActiveRequests.Known() {
		differ, n = math.Abs(g.PerRequestTokPerS.Value*g.ActiveRequests.Value-total)/total, g.PerRequestTokPerS.N
	}
	c.figure("sum differs", k.SumDiffers, exactly(differ), n)

	counts := inside(c.readings(runlog.SourceServer, runlog.MetricGenerationTokens), win)
	arrived, events, known := 0.0, 0, len(counts) > 1
	for _, r := range m.requests {
		for i, e := range r.events[:r.arrived] {
			if win.has(e.t, e.at) {
				known = known && r.counted
			}
			if known && counts[0].t < float64(e.at) && float64(e.at) <= counts[len(counts)-1].t {
				arrived += float64(c.tokens(r, r.verdict, i))
				events++
			}
		}
	}
	if !known {
		c.figure("the server's count", k.ServerTokens, span{}, 0)
		c.figure("the client's count", k.ClientTokens, span{}, 0)
		return
	}
	c.figure("the server's count", k.ServerTokens, exactly(counts[len(counts)-1].v-counts[0].v), len(counts))
	c.figure("the client's count", k.ClientTokens, exactly(arrived), max(1, events))
}

// loopFree compares the rate before the first loop began.
func (c *comparer) loopFree(m *matched, in func(open, close float64) func(event) bool) {
	win, _ := c.window(m.cell)
	begin := math.Inf(1)
	for _, r := range m.requests {
		if r.Loop != nil {
			begin = min(begin, float64(r.Loop.TUs))
		}
	}
	got := m.cell.Figures.LoopFreeTokPerS
	if end := min(begin, win.close); m.cell.Status == ingest.Looped && end > win.open {
		n := c.count(m, func(e event) bool { return float64(e.at) > win.open && float64(e.at) <= end })
		c.rate("tok/s before the loop", got, n, end-win.open, n.events)
		return
	}
	c.figure("tok/s before the loop", got, span{}, 0)
}

// cell compares what is said of a cell as a whole.
func (c *comparer) cell(m *matched, cold map[int32]ingest.Stat) {
	c.where = m.cell.Key().Name()
	for _, s := range m.cell.Figures.Named() {
		if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || s.N < 0 || s.N == 0 && s.Value != 0 {
			c.errorf("%s = %+v", s.Name, s.Stat)
		}
	}
	want := ingest.Counts{Launched: len(m.requests), FinishReasons: map[string]int{}}
	for _, r := range m.requests {
		switch {
		case r.failed:
			want.Failed++
		case r.end == runlog.KindDone:
			want.Completed++
		default:
			want.Cancelled++
		}
		if r.FinishReason != "" {
			want.FinishReasons[r.FinishReason]++
		}
	}
	got := m.cell.Launch
	equal(c, "launched", got.Launched, want.Launched)
	equal(c, "completed", got.Completed, want.Completed)
	equal(c, "failed", got.Failed, want.Failed)
	equal(c, "cancelled", got.Cancelled, want.Cancelled)
	equal(c, "unfinished", got.Unfinished, 0)
	equal(c, "kinds of finish reasons", len(got.FinishReasons), len(want.FinishReasons))
	for reason, n := range want.FinishReasons {
		equal(c, "finished by "+reason, got.FinishReasons[reason], n)
	}
	c.figures(m, cold)
	c.status(m)
}

// status compares the status of a cell, and the set of those that apply.
func (c *comparer) status(m *matched) {
	if c.sum.statuses == nil {
		c.sum.statuses = map[string]int{}
	}
	c.sum.statuses[m.cell.Status.String()]++
	want := c.statuses(m)
	var got []ingest.Status
	for _, e := range m.cell.Evidence {
		if !slices.Contains(got, e.Status) {
			got = append(got, e.Status)
		}
	}
	if !slices.Equal(got, want) {
		c.errorf("statuses %v, want %v\nevidence %+v", got, want, m.cell.Evidence)
	}
	first := ingest.Valid
	if len(want) > 0 {
		first = want[0]
	}
	equal(c, "status", m.cell.Status, first)
}

// statuses lists the statuses that apply to a cell, in their order.
func (c *comparer) statuses(m *matched) (all []ingest.Status) {
	cell := m.cell
	decode := cell.Phase == runlog.PhaseDecode
	win, hasWin := c.window(cell)
	over, unsure := c.tooLarge(cell)
	if unsure {
		over = cell.Outcome == runlog.OutcomeOverCapacity
	}
	equal(c, "not sent", cell.Outcome == runlog.OutcomeOverCapacity, over)
	if over {
		if len(m.requests) > 0 || m.scout != nil {
			c.errorf("over capacity, but requests were sent")
		}
		return []ingest.Status{ingest.OverCapacity}
	}
	if cell.Outcome == runlog.OutcomePending {
		if !c.srv.died || len(m.requests) > 0 {
			c.errorf("not run though the server lived, or with requests")
		}
		return []ingest.Status{ingest.NotRun}
	}

	// Failed.
	ended, early, broken, alive := 0, 0, 0, false
	arrived := false
	for _, r := range m.requests {
		if r.end == runlog.KindDone || r.end == runlog.KindError {
			ended++
		}
		if r.early {
			early++
		}
		if r.failed {
			broken++
		}
		alive = alive || r.end == runlog.KindCancelled && !r.again
		for _, e := range r.events[:r.arrived] {
			arrived = arrived || !decode || hasWin && win.has(e.t, e.at)
		}
	}
	scoutFailed := decode && m.scout != nil && !slices.Contains([]string{"stop", "length", "abort"}, m.scout.end)
	failed := broken > 0 || 2*early > ended || scoutFailed
	if cell.Outcome == runlog.OutcomeFailed {
		if !scoutFailed && !c.srv.died && (hasWin || alive || broken == 0) {
			c.errorf("could not be measured (%s) though nothing was wrong with the server", cell.Reason)
		}
		failed = true
	} else {
		if scoutFailed || decode && !hasWin {
			c.errorf("recorded, but its scout failed (%v) or it has no window", scoutFailed)
		}
		failed = failed || !arrived
	}
	if failed {
		all = append(all, ingest.Failed)
	}
	for _, r := range m.requests {
		if r.Loop != nil {
			all = append(all, ingest.Looped)
			break
		}
	}
	if len(m.requests) > 0 && hasWin {
		if c.clientLimited(win, cell.Figures.BetweenTokensUs) {
			all = append(all, ingest.ClientLimited)
		}
		if c.underFilled(m, win) {
			all = append(all, ingest.UnderFilled)
		}
	}
	if cell.Phase == runlog.PhasePrefill && c.cached(m) {
		all = append(all, ingest.Cached)
	}
	return all
}

// tooLarge reports whether the server's own figures rule a cell out. They
// are rounded by up to a block.
func (c *comparer) tooLarge(cell *ingest.Cell) (over, unsure bool) {
	cfg := c.srv.sim.Config()
	if seqs := int(c.set.MaxNumSeqs); seqs > 0 {
		engines := cfg.Engines
		if int(cell.Concurrency) > seqs*engines {
			return true, false
		}
	}
	if c.set.NoCapacity || cfg.Metrics > 2 {
		return false, false // the server does not tell
	}
	if cell.Phase == runlog.PhasePrefill {
		return false, false // a context that the model takes fits
	}
	each := (int(cell.Concurrency) + cfg.Engines - 1) / cfg.Engines
	need := each * int(cell.ContextTokens+c.m.Plan.MaxOutputTokens)
	blocks := cfg.KVCacheTokens / cfg.BlockSize
	most, least := blocks*cfg.BlockSize, (blocks-1)*cfg.BlockSize
	return need > most, need > least && need <= most
}
