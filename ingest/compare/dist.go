package compare

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// A df of infinity stands for a spread that is taken as known.

// tTail returns the two-sided tail of Student's t: P(|T| ≥ |t|).
func tTail(t, df float64) float64 {
	switch {
	case math.IsNaN(t) || df <= 0:
		return 1
	case math.IsInf(t, 0):
		return 0
	case math.IsInf(df, 1):
		return math.Erfc(math.Abs(t) / math.Sqrt2)
	}
	return mathext.RegIncBeta(df/2, 0.5, df/(df+t*t))
}

// tQuantile returns the value below which Student's t lies with probability
// p, 0 < p < 1. It begins at the first terms of the expansion around the
// normal quantile, which lies before t's. Beyond the middle the tail is
// convex, so that Newton's method then comes from the left and never steps
// too far.
func tQuantile(p, df float64) float64 {
	if p < 0.5 {
		return -tQuantile(1-p, df)
	}
	z := math.Sqrt2 * math.Erfinv(2*p-1)
	if math.IsInf(df, 1) {
		return z
	}
	t := z
	if df > 2 {
		t += (z*z*z+z)/(4*df) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*df*df)
	}
	a, _ := math.Lgamma((df + 1) / 2)
	b, _ := math.Lgamma(df / 2)
	peak := math.Exp(a-b) / math.Sqrt(df*math.Pi)
	for range 100 {
		step := (tTail(t, df)/2 - (1 - p)) / (peak * math.Pow(1+t*t/df, -(df+1)/2))
		t = max(z, t+step)
		if math.Abs(step) < 1e-7*t { // the next one would be the square of that
			break
		}
	}
	return t
}

// fTail returns P(F ≥ f) for Fisher's F with d1 and d2 degrees of freedom.
func fTail(f, d1, d2 float64) float64 {
	if !(f > 0) {
		return 1
	}
	return mathext.RegIncBeta(d2/2, d1/2, d2/(d2+d1*f))
}

// normalTail returns P(Z ≥ z).
func normalTail(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// trigamma is the derivative of the digamma function, x > 0.
func trigamma(x float64) float64 { return mathext.Zeta(2, x) }

// trigammaInverse returns the x > 0 whose trigamma is y > 0: Newton's
// method on 1/trigamma, which is convex and nearly linear, so that it
// converges from below without a step too far.
func trigammaInverse(y float64) float64 {
	switch {
	case y > 1e7:
		return 1 / math.Sqrt(y)
	case y < 1e-6:
		return 1 / y
	}
	x := 0.5 + 1/y
	for range 50 {
		tri := trigamma(x)
		step := tri * (1 - tri/y) / (-2 * mathext.Zeta(3, x)) // the derivative of trigamma is −2 ζ(3, x)
		x += step
		if math.Abs(step) < 1e-12*x {
			break
		}
	}
	return x
}

// binomialTail returns P(X ≤ k) for n throws of a fair coin.
func binomialTail(k, n int) float64 {
	if k >= n {
		return 1
	}
	return mathext.RegIncBeta(float64(n-k), float64(k+1), 0.5)
}

// mcNemar returns the two-sided exact p-value of lost against gained: how
// often chance alone would be as one-sided. It is 1 when there are none.
func mcNemar(lost, gained int) float64 {
	if lost+gained == 0 {
		return 1
	}
	return min(1, 2*binomialTail(min(lost, gained), lost+gained))
}

// adjust returns the p-values of Benjamini and Hochberg: a finding counts at
// the false discovery rate q when its adjusted p-value is at most q. Each
// test has a share of the false findings, in proportion to weights; these
// must have been decided before (Genovese, Roeder and Wasserman 2006).
func adjust(ps, weights []float64) []float64 {
	order := make([]int, len(ps))
	out := make([]float64, len(ps))
	even := mean(weights)
	for i, p := range ps {
		order[i] = i
		out[i] = p * even / weights[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(out[a], out[b]) })
	least := 1.0
	for rank := len(ps); rank > 0; rank-- {
		i := order[rank-1]
		least = min(least, out[i]*float64(len(ps))/float64(rank))
		out[i] = least
	}
	return out
}

// middle returns the median of xs, 0 of none. It does not change xs.
func middle(xs []float64) float64 {
	n := len(xs)
	if n == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	return (s[(n-1)/2] + s[n/2]) / 2
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
