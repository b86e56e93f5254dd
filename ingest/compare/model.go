package compare

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// The model of one metric: the logarithm of its figure in launch r of side
// g and cell c is
//
//	y(g,r,c) = mean(g,c) + launch(g,r) + rest(g,r,c)
//
// with one variance of launches and one of the rest for each cell. Speeds
// enter as they are and times with their sign turned, so that more is better
// in all of them.

// logs are the values of one side: logs[launch][cell].
type logs [][]float64

// leastVariance is the smallest variance that is believed, (0.001 %)²: figures
// come from whole microseconds and whole tokens, so that equal ones are no
// proof that nothing varies.
const leastVariance = 1e-10

// minSplit is the fewest cells of which a median says what the run did.
const minSplit = 5

// A spread is what repeated launches of one side say about noise, as sums of
// squares over df degrees of freedom.
type spread struct {
	df      int
	launch  float64   // of the launch effects
	rest    []float64 // of what is left, for each cell
	effects []float64 // the launch effects, for each launch, relative to the side
}

// means returns the mean of each cell over the launches.
func (y logs) means() []float64 {
	out := make([]float64, len(y[0]))
	for c := range out {
		for r := range y {
			out[c] += y[r][c]
		}
		out[c] /= float64(len(y))
	}
	return out
}

// spread splits the residuals of a side into what all cells of a launch
// share, by their median, and the rest.
func (y logs) spread() spread {
	s := spread{df: len(y) - 1, rest: make([]float64, len(y[0])), effects: make([]float64, len(y))}
	at := y.means()
	residuals := make([]float64, len(at))
	for r := range y {
		for c := range at {
			residuals[c] = y[r][c] - at[c]
		}
		e := middle(residuals)
		s.effects[r] = e
		s.launch += e * e
		for c, d := range residuals {
			s.rest[c] += (d - e) * (d - e)
		}
	}
	return s
}

// A variance is an estimate with its degrees of freedom; infinite ones stand
// for a value that was assumed or taken as known.
type variance struct {
	value float64
	df    float64
}

// noise is what is known about the noise of one metric over its cells.
type noise struct {
	launch variance
	cells  []variance // shrunken
	common float64    // the typical variance of a cell: s0²
}

// plus returns the variance of a sum, by Welch and Satterthwaite.
func (v variance) plus(w variance) variance {
	total := v.value + w.value
	d := v.value*v.value/v.df + w.value*w.value/w.df
	if d == 0 { // neither was estimated
		return variance{total, math.Inf(1)}
	}
	return variance{total, total * total / d}
}

// pool adds a sum of squares with df degrees of freedom to an estimate. The
// result has none where neither has any.
func pool(ss, df float64, w variance) variance {
	n := df + w.df
	if n == 0 {
		return variance{}
	}
	return variance{(ss + w.value*w.df) / n, n}
}

// shrink draws the cells' variances towards the one they have in common, by
// as much as they would differ by chance alone (Smyth 2004). Cells without
// degrees of freedom take the common one.
func shrink(cells []variance) (out []variance, common float64) {
	var e, chance []float64
	for _, v := range cells {
		if v.df > 0 {
			half := v.df / 2
			e = append(e, math.Log(max(v.value, leastVariance))-mathext.Digamma(half)+math.Log(half))
			chance = append(chance, trigamma(half))
		}
	}
	if len(e) == 0 {
		return cells, 0
	}
	at, excess := mean(e), 0.0
	if len(e) > 1 {
		for _, x := range e {
			excess += (x - at) * (x - at)
		}
		excess = excess/float64(len(e)-1) - mean(chance)
	}
	prior := variance{math.Exp(at), math.Inf(1)}
	if excess > 0 {
		half := trigammaInverse(excess)
		prior = variance{math.Exp(at + mathext.Digamma(half) - math.Log(half)), 2 * half}
	}
	out = make([]variance, len(cells))
	for i, v := range cells {
		out[i] = prior
		if !math.IsInf(prior.df, 1) {
			out[i] = pool(max(v.value, leastVariance)*v.df, v.df, prior)
		}
	}
	return out, prior.value
}
