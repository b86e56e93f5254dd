package compare

import (
	"fmt"
	"math"
	"slices"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// Limits of the verdicts.
const (
	minLaunches     = 3    // launches of each side that are evidence by themselves
	minWithProfile  = 2    // … with a noise profile
	minProfile      = 3    // launches that make a noise profile
	groupedShare    = 0.05 // launches of one side that lie further apart fall into groups …
	groupedSDs      = 6    // … unless the profile's launches do so too
	slowedShare     = 0.1  // readings in which heat held a GPU back that make a cell not comparable
	promptShare     = 0.01 // prompts that differ more in length are other prompts
	withinBlocks    = 6    // parts of a window, 5 s each in 30 s, whose spread is the floor of a cell's noise
	speculativeRate = 1.05 // tokens an event from which a cell counts as speculative where noise is assumed
)

// A trial is one metric of one diff while it is judged.
type trial struct {
	d *Diff
	m *MetricDiff
	*estimate
	at       []int // index in m.Cells of each cell that is compared
	small    bool  // too few cells to split off the whole run
	evidence bool
	runAdj   float64
	adj      []float64
}

// judge compares every metric of every diff and gives the verdicts. Tests
// of the gating metrics of all sides are corrected together, those about
// whole runs apart from those about cells; each other metric on its own.
func (r *Report) judge() {
	var gating []*trial
	others := map[Metric][]*trial{}
	for i := range r.Diffs {
		d := &r.Diffs[i]
		for j := range d.Metrics {
			m := &d.Metrics[j]
			t := r.Settings.try(d, m)
			switch {
			case t == nil:
			case m.Gates:
				gating = append(gating, t)
			default:
				others[m.Metric] = append(others[m.Metric], t)
			}
		}
	}
	correct(gating)
	for _, m := range Metrics() {
		correct(others[m])
	}
	for _, t := range gating {
		t.verdicts(&r.Settings)
	}
	for _, m := range Metrics() {
		for _, t := range others[m] {
			t.verdicts(&r.Settings)
		}
	}
}

// correct adjusts the p-values of trials as two families, whole runs and
// cells, in which a metric weighs what the table says.
func correct(trials []*trial) {
	var runs, cells []float64
	var runShares, cellShares []float64
	for _, t := range trials {
		share := metricTable[t.m.Metric].share
		if !t.small {
			runs, runShares = append(runs, t.whole.p(t.run)), append(runShares, share)
		}
		for c := range t.at {
			cells, cellShares = append(cells, t.cellP(c)), append(cellShares, share)
		}
	}
	runs, cells = adjust(runs, runShares), adjust(cells, cellShares)
	for _, t := range trials {
		if !t.small {
			t.runAdj, runs = runs[0], runs[1:]
		}
		t.adj, cells = cells[:len(t.at)], cells[len(t.at):]
	}
}

// cellP is the p-value of a cell: of its change against the run's, or of all
// its change where there is no such thing.
func (t *trial) cellP(c int) float64 {
	if t.small {
		return t.total[c].p(t.cells[c])
	}
	return t.offset[c].p(t.cells[c] - t.run)
}

// try computes everything of a metric but what the other tests decide. It
// returns nil when there is nothing to test.
func (o *Options) try(d *Diff, m *MetricDiff) *trial {
	if !d.Comparable && !d.Descriptive {
		m.State, m.Why = NotJudged, "the sides are not comparable"
		for i := range m.Cells {
			c := &m.Cells[i]
			c.Verdict = NotComparable
			onlyIn(c)
		}
		return nil
	}
	t := &trial{d: d, m: m, at: m.comparable(d, o.Allow)}
	m.Compared = len(t.at)
	if len(t.at) == 0 {
		m.State, m.Why = NothingCompared, "no cell has "+m.Metric.Label()+" on every launch of both sides"
		return nil
	}
	a, b := m.logs(t.at)
	t.estimate = newEstimate(a, b)
	t.small = len(t.at) < minSplit
	profile := t.estimateNoise(o.Noise, a, b)

	least := min(t.ka, t.kb)
	t.evidence = least >= minLaunches || !t.small && least >= minWithProfile && profile >= minProfile
	switch {
	case !d.Comparable:
		m.State, m.Why = NotJudged, "the sides are not comparable; changes are described only"
	case !t.evidence:
		m.State, m.Why = ThinEvidence, thin(t.ka, t.kb, t.small, m.Noise.ProfileLaunches)
	}
	t.describe(o)
	return t
}

// thin says what evidence is missing.
func thin(ka, kb int, small bool, profile int) string {
	have := fmt.Sprintf("%s of A and %d of B", launchCount(ka), kb)
	switch {
	case small:
		return fmt.Sprintf("%s: with fewer than %d cells it takes %d of each", have, minSplit, minLaunches)
	case profile >= minProfile:
		return fmt.Sprintf("%s: with a noise profile it takes %d of each", have, minWithProfile)
	}
	return fmt.Sprintf("%s without a noise profile: it takes %d of each, or %d with a profile of %d launches", have, minLaunches, minWithProfile, minProfile)
}

// onlyIn gives the verdict of a cell that one side did not plan.
func onlyIn(c *CellDiff) bool {
	switch {
	case c.A.Planned == 0:
		c.Verdict = OnlyInB
	case c.B.Planned == 0:
		c.Verdict = OnlyInA
	default:
		return false
	}
	return true
}

// comparable gives the verdicts of cells that can't be compared, and returns
// the indices of the others.
func (m *MetricDiff) comparable(d *Diff, allow []Allowance) []int {
	memory := slices.ContainsFunc(d.Flags, func(f FlagDifference) bool { return f.Memory })
	var at []int
	for i := range m.Cells {
		c := &m.Cells[i]
		refuse := func(format string, args ...any) { c.Verdict, c.Reason = NotComparable, fmt.Sprintf(format, args...) }
		switch slowed, prompts := c.slowed(), c.promptsDiffer(); {
		case onlyIn(c):
		case c.A.Planned < c.A.Launches || c.B.Planned < c.B.Launches:
			refuse("planned by %d of %d launches of A and %d of %d of B", c.A.Planned, c.A.Launches, c.B.Planned, c.B.Launches)
		case c.A.Valid < c.A.Launches || c.B.Valid < c.B.Launches:
			s := statusChange(c, memory)
			c.Verdict, c.Reason = s.Verdict, s.Text
		case !c.A.compared() && !c.B.compared():
			refuse("not measured on every launch of either side")
		case !c.A.compared():
			refuse("not measured on every launch of A")
		case !c.B.compared():
			refuse("not measured on every launch of B")
		case slowed != "" && !slices.Contains(allow, AllowTelemetry):
			refuse("%s", slowed)
		case prompts != "":
			refuse("%s", prompts)
		case !c.A.positive() && !c.B.positive() && slices.Max(c.A.Values) == 0 && slices.Max(c.B.Values) == 0:
			c.Verdict, c.Reason = NoChange, "0 on both sides"
		case !c.A.positive() || !c.B.positive():
			refuse("a change from or to 0 has no percentage")
		default:
			at = append(at, i)
		}
	}
	return at
}

// A launched is the cell of one launch.
type launched struct {
	side string
	run  *ingest.Run
	cell *ingest.Cell
}

// slowed says on which launch heat or a power brake held a GPU back while
// the cell was measured, "" on none.
func (c *CellDiff) slowed() string {
	for _, l := range c.launches {
		for _, g := range l.cell.GPUs {
			if g.SlowedShare.Known() && g.SlowedShare.Value > slowedShare {
				return fmt.Sprintf("heat or a power brake held GPU %d back in %.0f %% of the readings on side %s (%q)", g.Index, 100*g.SlowedShare.Value, l.side, l.run.ID)
			}
		}
	}
	return ""
}

// promptsDiffer says that the prompts of a cell were of other lengths on one
// launch than on another, "" if not, or where the lengths are not known.
func (c *CellDiff) promptsDiffer() string {
	short, long := int32(math.MaxInt32), int32(0)
	for _, l := range c.launches {
		if n := l.cell.PromptTokens; n > 0 {
			short, long = min(short, n), max(long, n)
		}
	}
	if long > 0 && float64(long-short) > promptShare*float64(long) {
		return fmt.Sprintf("prompts of %d tokens on one launch and of %d on another", short, long)
	}
	return ""
}

// speculative reports whether a cell got several tokens in one event.
func (c *CellDiff) speculative() bool {
	return slices.ContainsFunc(c.launches, func(l launched) bool { return l.cell.Figures.TokensPerEvent.Value > speculativeRate })
}

// logs returns the logarithms of the compared cells, signed so that more is
// better.
func (m *MetricDiff) logs(at []int) (a, b logs) {
	side := func(values func(*CellDiff) []float64) logs {
		y := make(logs, len(values(&m.Cells[at[0]])))
		for r := range y {
			y[r] = make([]float64, len(at))
			for i, c := range at {
				y[r][i] = m.Metric.sign() * math.Log(values(&m.Cells[c])[r])
			}
		}
		return y
	}
	return side(func(c *CellDiff) []float64 { return c.A.Values }), side(func(c *CellDiff) []float64 { return c.B.Values })
}

// estimateNoise decides what the intervals rest on, and returns how many
// launches of a profile take part.
func (t *trial) estimateNoise(p *Profile, a, b logs) int {
	m := t.m
	launch, cells := variance{}, make([]variance, len(t.at))
	use := [2]bool{true, true}
	var pm *ProfileMetric
	if p != nil {
		if m.Noise.Unused = p.unfit(t.d); m.Noise.Unused == "" {
			use = [2]bool{!p.has(t.d.A.Runs), !p.has(t.d.B.Runs)}
			pm, m.Noise.Unused = p.metric(t, use)
		}
	}
	if pm != nil {
		launch = variance{pm.LaunchSD * pm.LaunchSD, float64(pm.DF)}
		for i, c := range t.at {
			cells[i] = pm.cell(m.Cells[c].ContextTokens, m.Cells[c].Concurrency)
		}
		m.Noise.ProfileLaunches, m.Noise.profileLaunchSD = pm.DF+1, pm.LaunchSD
	}
	own := 0
	for g := range use {
		if use[g] {
			own += t.own[g].df
		}
	}
	if t.small && min(t.ka, t.kb) >= minLaunches {
		t.welch(a, b)
		m.Noise.Source, m.Noise.ProfileLaunches = FromLaunches, 0
		return 0
	}
	switch {
	case own == 0 && pm == nil:
		m.Noise.Source = Assumed
		t.with(t.assumed())
	case own == 0:
		m.Noise.Source = FromProfile
		t.with(t.pooled(use, launch, cells, t.floor()))
	case pm == nil:
		m.Noise.Source = FromLaunches
		t.with(t.pooled(use, launch, cells, t.floor()))
	default:
		m.Noise.Source = FromBoth
		t.with(t.pooled(use, launch, cells, t.floor()))
	}
	n := &t.estimate.noise
	m.Noise.LaunchSD, m.Noise.CellSD = math.Sqrt(n.launch.value), math.Sqrt(n.common)
	if !math.IsInf(n.launch.df, 1) {
		m.Noise.DF = n.launch.df
	}
	return m.Noise.ProfileLaunches
}

// assumed is the noise of a launch where nothing at all is known about it.
func (t *trial) assumed() noise {
	known := func(sd float64) variance { return variance{sd * sd, math.Inf(1)} }
	scale := metricTable[t.m.Metric].scale
	n := noise{launch: known(0.01 * scale)}
	var all []float64
	for _, i := range t.at {
		c := &t.m.Cells[i]
		sd := 0.01
		if t.m.Metric.Phase() == runlog.PhaseDecode && c.speculative() {
			switch {
			case c.Concurrency <= 4:
				sd = 0.12
			case c.Concurrency <= 8:
				sd = 0.03
			default:
				sd = 0.02
			}
		}
		n.cells = append(n.cells, known(sd*scale))
		all = append(all, sd*sd*scale*scale)
	}
	n.common = middle(all)
	return n
}

// floor is the variance of each cell's mean within one window, from the
// differences of neighbouring parts of it, so that a slow trend that every
// launch has does not count; the mean over the launches, 0 where it is not
// known.
func (t *trial) floor() []float64 {
	out := make([]float64, len(t.at))
	if t.m.Metric != Decode {
		return out
	}
	for i, at := range t.at {
		var all []float64
		for _, l := range t.m.Cells[at].launches {
			if v, ok := withinVariance(l.cell); ok {
				all = append(all, v)
			}
		}
		if len(all) > 0 {
			out[i] = mean(all)
		}
	}
	return out
}

func withinVariance(c *ingest.Cell) (float64, bool) {
	blocks := windowBlocks(c)
	if len(blocks) == 0 {
		return 0, false
	}
	at := mean(blocks)
	if at <= 0 {
		return 0, false
	}
	ss := 0.0
	for i := 1; i < len(blocks); i++ {
		d := (blocks[i] - blocks[i-1]) / at
		ss += d * d
	}
	return ss / (2 * (withinBlocks - 1)) / withinBlocks, true
}

// windowBlocks are the rates of a window in equal parts; nil where they are
// not known.
func windowBlocks(c *ingest.Cell) []float64 {
	if c.Timeline == nil || len(c.Timeline.TokPerS) < withinBlocks {
		return nil
	}
	each := len(c.Timeline.TokPerS) / withinBlocks
	var blocks []float64
	for i := range withinBlocks {
		blocks = append(blocks, mean(c.Timeline.TokPerS[i*each:(i+1)*each]))
	}
	return blocks
}

// Essence returns a copy of a run with nothing but what Compare and
// NewProfile look at, which is small. They find in it what they find in the
// run.
func Essence(r *ingest.Run) *ingest.Run {
	out := &ingest.Run{ID: r.ID, Manifest: r.Manifest}
	take := func(c *ingest.Cell) ingest.Cell {
		f := &c.Figures
		e := ingest.Cell{Cell: c.Cell, Status: c.Status, Figures: ingest.Figures{
			TotalTokPerS: f.TotalTokPerS, PrefillTokPerS: f.PrefillTokPerS, TTFTUs: f.TTFTUs, PerRequestTokPerS: f.PerRequestTokPerS,
			BetweenTokensUs: f.BetweenTokensUs, TokensPerEvent: f.TokensPerEvent,
		}}
		if blocks := windowBlocks(c); blocks != nil {
			e.Timeline = &ingest.Timeline{TokPerS: blocks}
		}
		for _, g := range c.GPUs {
			e.GPUs = append(e.GPUs, ingest.GPUState{Index: g.Index, SlowedShare: g.SlowedShare})
		}
		return e
	}
	for i := range r.Prefill {
		out.Prefill = append(out.Prefill, take(&r.Prefill[i]))
	}
	for i := range r.Decode {
		out.Decode = append(out.Decode, take(&r.Decode[i]))
	}
	return out
}

// describe fills in changes and intervals.
func (t *trial) describe(o *Options) {
	m := t.m
	for i, at := range t.at {
		c := &m.Cells[at]
		total := change(m.Metric, t.cells[i], t.total[i].margin())
		c.Change = &total
		c.SD, c.DF = math.Sqrt(t.total[i].value), finite(t.total[i].df)
		c.Effect = math.Expm1(o.Effect.bound(m.Metric, math.Sqrt(c.A.Value.Value*c.B.Value.Value)))
		if !t.small {
			against := change(m.Metric, t.cells[i]-t.run, t.offset[i].margin())
			c.Against = &against
		}
	}
	if t.small {
		return
	}
	r := &RunDiff{Change: change(m.Metric, t.run, t.whole.margin()), Cells: len(t.at)}
	r.SD, r.DF = math.Sqrt(t.whole.value), finite(t.whole.df)
	limit := math.Log1p(groupedShare)
	if m.Noise.ProfileLaunches > 0 {
		limit = max(limit, groupedSDs*m.Noise.profileLaunchSD)
	}
	for g, shares := range []*[]float64{&r.LaunchesA, &r.LaunchesB} {
		effects := t.own[g].effects
		for _, e := range effects {
			*shares = append(*shares, math.Expm1(m.Metric.sign()*e))
		}
		r.Grouped = r.Grouped || slices.Max(effects)-slices.Min(effects) > limit
	}
	m.Run = r
}

func finite(df float64) float64 {
	if math.IsInf(df, 0) {
		return 0
	}
	return df
}

// verdicts gives the words, once every test is corrected.
func (t *trial) verdicts(o *Options) {
	m := t.m
	if m.State == NotJudged {
		for _, at := range t.at {
			m.Cells[at].Verdict = NotComparable
		}
		if m.Run != nil {
			m.Run.Verdict = NotComparable
		}
		return
	}
	ran := Unclear
	if m.Run != nil {
		t.runVerdict(o)
		ran = m.Run.Verdict
	}
	for i, at := range t.at {
		t.cellVerdict(i, &m.Cells[at], ran, o)
	}
}

func (t *trial) runVerdict(o *Options) {
	r := t.m.Run
	bound := math.Log1p(o.Effect.Run)
	r.P, r.Adjusted = t.whole.p(t.run), t.runAdj
	ordered := t.d.sequential() && !slices.Contains(o.Allow, AllowOrder)
	switch {
	case r.Grouped:
		r.Reason = "launches of one side fall into groups, so nothing can be said about the whole run"
	case t.runAdj <= o.Q && math.Abs(t.run) >= bound:
		r.Verdict = directed(t.run, t.evidence && !ordered)
		switch {
		case !t.evidence:
			r.Reason = t.m.Why
		case ordered:
			r.Reason = "the sides were measured one after the other (" + t.d.Order + "): it may be a drift of the machine"
		}
	case t.evidence && t.whole.within(t.run, bound):
		r.Verdict = NoChange
	default:
		r.RunsNeeded, r.Reason = t.runs(variance{}, bound), t.m.Why
	}
}

func (t *trial) cellVerdict(i int, c *CellDiff, ran Verdict, o *Options) {
	bound := math.Log1p(c.Effect)
	at := t.cells[i]
	c.P, c.Adjusted = t.cellP(i), t.adj[i]
	off := at
	if !t.small {
		off -= t.run
	}
	deviates := c.Adjusted <= o.Q && math.Abs(off) >= bound
	moved := ran == Worse || ran == Better
	switch {
	case deviates && math.Abs(at) >= bound && at*off > 0:
		if c.Verdict = directed(at, t.evidence); !t.evidence {
			c.Reason = t.m.Why
		}
	case moved && deviates && math.Abs(at) < bound:
		c.Verdict = Held
	case moved && deviates:
		c.Verdict, c.Reason = MovedWithRun, "by less than the run"
	case moved:
		c.Verdict = MovedWithRun
	case t.evidence && t.total[i].within(at, bound):
		c.Verdict = NoChange
	default:
		c.RunsNeeded, c.Reason = t.runs(t.cellNoise(i), bound), t.m.Why
	}
}

// cellNoise is the variance of a cell in one launch beside the launch's own.
func (t *trial) cellNoise(i int) variance {
	if n := t.estimate.noise.cells; n != nil {
		return n[i]
	}
	return variance{}
}

// runs returns the launches that would settle a change, at least as many as
// count as evidence.
func (t *trial) runs(cell variance, bound float64) int {
	n := &t.estimate.noise
	if n.cells == nil { // taken one by one
		return 0
	}
	prior := func(v variance) variance { // what would be known without the launches at hand
		switch {
		case math.IsInf(v.df, 1) && t.m.Noise.Source == Assumed:
			return variance{v.value, 0}
		case math.IsInf(v.df, 1):
			return v
		}
		return variance{v.value, max(0, v.df-float64(t.ka+t.kb-2))}
	}
	launch := n.launch
	if cell.value == 0 {
		launch.value += math.Pi / 2 * n.common / float64(len(t.at))
		cell.df = math.Inf(1)
	}
	k := runsNeeded(prior(launch), prior(cell), bound)
	if k == 0 {
		return 0
	}
	if t.m.Noise.ProfileLaunches >= minProfile && !t.small {
		return max(k, minWithProfile)
	}
	return max(k, minLaunches)
}
