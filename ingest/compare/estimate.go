package compare

import "math"

// An estimate is what one metric says of B against A, in logarithms: more is
// better.
type estimate struct {
	ka, kb int
	own    [2]spread // of A and of B
	cells  []float64 // change of each cell
	run    float64   // change of the whole run: their median

	noise  noise
	total  []variance // of each cell's change
	offset []variance // of each cell's change against the run's
	whole  variance   // of the run's change
}

// newEstimate compares two sides that have a value in every cell on every
// launch. It knows no noise yet.
func newEstimate(a, b logs) *estimate {
	e := &estimate{ka: len(a), kb: len(b), own: [2]spread{a.spread(), b.spread()}}
	at, bt := a.means(), b.means()
	for c := range at {
		e.cells = append(e.cells, bt[c]-at[c])
	}
	e.run = middle(e.cells)
	return e
}

// pooled is the noise of a launch from the sides' own spread, where it
// counts, and from what a profile says: variances without degrees of freedom
// where it says nothing. No cell is believed to be steadier between launches
// than within its windows: floor, which may be 0.
func (e *estimate) pooled(use [2]bool, launch variance, cells []variance, floor []float64) noise {
	df, effects := 0.0, 0.0
	rest := make([]float64, len(cells))
	for g, s := range e.own {
		if use[g] {
			df += float64(s.df)
			effects += s.launch
			for c := range rest {
				rest[c] += s.rest[c]
			}
		}
	}
	n := noise{launch: pool(effects, df, launch)}
	all := make([]variance, len(cells))
	for c := range all {
		all[c] = pool(rest[c], df, cells[c])
	}
	n.cells, n.common = shrink(all)
	for c := range n.cells {
		n.cells[c].value = max(n.cells[c].value, floor[c])
	}
	return n
}

// with turns the noise of one launch into that of differences between means
// of launches.
func (e *estimate) with(n noise) {
	e.noise = n
	f := 1/float64(e.ka) + 1/float64(e.kb)
	ofMedian := math.Pi / 2 * n.common / float64(len(e.cells)) // of the median of the cells
	e.whole = variance{f * (n.launch.value + ofMedian), n.launch.df}
	for _, v := range n.cells {
		t := n.launch.plus(v)
		e.total = append(e.total, variance{f * t.value, t.df})
		e.offset = append(e.offset, variance{f * (v.value + ofMedian), v.df})
	}
}

// welch takes each cell on its own, with the noise of either side: for runs
// of too few cells to tell a launch from a cell.
func (e *estimate) welch(a, b logs) {
	at, bt := a.means(), b.means()
	side := func(y logs, means []float64, c int) variance {
		ss := 0.0
		for r := range y {
			ss += (y[r][c] - means[c]) * (y[r][c] - means[c])
		}
		k := float64(len(y))
		return variance{max(ss/(k-1), leastVariance) / k, k - 1}
	}
	for c := range e.cells {
		e.total = append(e.total, side(a, at, c).plus(side(b, bt, c)))
	}
}

// p returns the two-sided p-value of a change with this variance.
func (v variance) p(change float64) float64 {
	if v.value <= 0 {
		return 1
	}
	return tTail(change/math.Sqrt(v.value), v.df)
}

// margin returns half the width of the interval of 95 % confidence.
func (v variance) margin() float64 { return tQuantile(0.975, v.df) * math.Sqrt(v.value) }

// proof is the level of the two one-sided tests by which no change is
// proved. Cells whose noise is drawn towards that of others are at times
// noisier than they are taken for: at 5 % the simulation found up to 5.7 % of
// such verdicts wrong.
const proof = 0.04

// within reports whether a change is proved to be smaller than bound either
// way.
func (v variance) within(change, bound float64) bool {
	room := bound - math.Abs(change)
	return room > 0 && v.p(room)/2 <= proof
}

// maxRunsNeeded bounds what is asked of anyone.
const maxRunsNeeded = 50

// runsNeeded returns how many launches of each side would prove, with a
// power of 80 %, that a change that is none is smaller than bound; 0: more
// than 50. A launch's variance is the sum of parts; each side's own launches
// give what degrees of freedom it has beyond those given.
func runsNeeded(launch, cell variance, bound float64) int {
	total := launch.value + cell.value
	if bound <= 0 || total <= 0 {
		return 0
	}
	normal := (tQuantile(1-proof, math.Inf(1)) + tQuantile(0.9, math.Inf(1))) / bound
	least := math.Ceil(2 * total * normal * normal)
	for k := max(2, least); k <= maxRunsNeeded; k++ {
		own := 2*k - 2
		v := variance{launch.value, launch.df + own}.plus(variance{cell.value, cell.df + own})
		if (tQuantile(1-proof, v.df)+tQuantile(0.9, v.df))*math.Sqrt(2/k*v.value) <= bound {
			return int(k)
		}
	}
	return 0
}
