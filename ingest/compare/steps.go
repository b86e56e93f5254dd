package compare

import (
	"fmt"
	"math"
	"slices"
)

// A Point is one commit in the history of a series.
type Point struct {
	Log      float64 // logarithm of the figure, or of its mean over the launches; more is better
	Launches int     // behind it, 1 or more
}

// A Step is a place in a history where the level changes.
type Step struct {
	At        int     // index of the first point after it
	Confirmed bool    // two or more points lie on either side; else only the last point is beyond, and the next one will tell
	Share     float64 // of the level after it against the one before; low and high are its 95 % interval
	Low, High float64
	Z         float64 // how large it is for the noise; compared with Critical
	Critical  float64
}

// History says where the level of a series changed.
type History struct {
	Steps []Step // ascending

	// SD is the standard deviation of a launch, given, or estimated from
	// differences of neighbouring points where Estimated says so.
	SD        float64
	Estimated bool
	Why       string // why there can be no steps; "" when there could be
}

const (
	minStepPoints = 4 // two on either side
	minOwnNoise   = 8 // points from which a history says how noisy it is itself
)

// FindSteps looks for steps of at least effect (a share) in a series, points
// in the order of commits, at 1 % of false findings for a series: binary
// segmentation by the largest standardised difference of means. sd is the
// standard deviation of one launch, of a noise profile (Profile.SD); 0 means
// that there is none. One point alone never splits a series.
func FindSteps(points []Point, sd, effect float64) History {
	h := History{SD: sd}
	if sd <= 0 {
		h.Estimated = true
		if len(points) < minOwnNoise {
			h.Why = fmt.Sprintf("%d points without a noise profile: it takes %d to estimate their noise", len(points), minOwnNoise)
			return h
		}
		var steps []float64
		for i := 1; i < len(points); i++ {
			scale := math.Sqrt(points[i-1].variance(1) + points[i].variance(1))
			steps = append(steps, math.Abs(points[i].Log-points[i-1].Log)/scale*math.Sqrt2)
		}
		h.SD = math.Sqrt(max(leastVariance, math.Pow(middle(steps)/0.954, 2))) // the median of |difference of two| is 0.954 sd
	}
	if len(points) < 2 {
		h.Why = "a single point"
		return h
	}
	critical := criticalZ(len(points), h.Estimated)
	h.split(points, 0, len(points), critical, math.Log1p(effect))
	slices.SortFunc(h.Steps, func(a, b Step) int { return a.At - b.At })
	h.last(points, critical, math.Log1p(effect))
	return h
}

// criticalZ is what the largest standardised difference of n points exceeds
// in 1 % of series without a step. Where the noise comes from the history
// itself it is larger; between the simulated lengths it is interpolated.
func criticalZ(n int, estimated bool) float64 {
	if !estimated {
		return 2.55 + 0.67*math.Log(math.Log(float64(max(n, 5))))
	}
	table := []struct{ n, z float64 }{{8, 5.8}, {12, 5.4}, {20, 4.5}}
	x := float64(n)
	for i := 1; i < len(table); i++ {
		if a, b := table[i-1], table[i]; x <= b.n {
			return a.z + (max(x, a.n)-a.n)/(b.n-a.n)*(b.z-a.z)
		}
	}
	return table[len(table)-1].z
}

func (p Point) variance(sd float64) float64 { return sd * sd / float64(max(1, p.Launches)) }

// level is the mean of points, each weighing what it is worth.
func level(points []Point, sd float64) (at, v float64) {
	weights := 0.0
	for _, p := range points {
		w := 1 / p.variance(sd)
		at += w * p.Log
		weights += w
	}
	return at / weights, 1 / weights
}

// between compares the levels of two stretches.
func between(before, after []Point, sd float64) (difference, z float64) {
	a, va := level(before, sd)
	b, vb := level(after, sd)
	return b - a, math.Abs(b-a) / math.Sqrt(va+vb)
}

func (h *History) split(points []Point, from, to int, critical, effect float64) {
	best, at := 0.0, -1
	for i := from + 2; i <= to-2; i++ {
		if d, z := between(points[from:i], points[i:to], h.SD); z > best && math.Abs(d) >= effect && h.rests(points[from:i], points[i:to], d) {
			best, at = z, i
		}
	}
	if at < 0 || best <= critical {
		return
	}
	h.Steps = append(h.Steps, h.step(points[from:at], points[at:to], at, critical, true))
	h.split(points, from, at, critical, effect)
	h.split(points, at, to, critical, effect)
}

// rests reports whether a difference rests on more than one point: without
// any single one of them at least half of it remains. A spike and its
// neighbour have another mean than the rest, and are no new level.
func (h *History) rests(before, after []Point, difference float64) bool {
	for i := range len(before) + len(after) {
		b, a := before, after
		if i < len(before) {
			b = slices.Concat(before[:i], before[i+1:])
		} else {
			i -= len(before)
			a = slices.Concat(after[:i], after[i+1:])
		}
		if d, _ := between(b, a, h.SD); d/difference < 0.5 {
			return false
		}
	}
	return true
}

func (h *History) step(before, after []Point, at int, critical float64, confirmed bool) Step {
	a, va := level(before, h.SD)
	b, vb := level(after, h.SD)
	d, margin := b-a, variance{va + vb, math.Inf(1)}.margin()
	return Step{At: at, Confirmed: confirmed, Share: math.Expm1(d), Low: math.Expm1(d - margin), High: math.Expm1(d + margin),
		Z: math.Abs(d) / math.Sqrt(va+vb), Critical: critical}
}

// last adds the newest point where it alone is beyond the stretch before it.
func (h *History) last(points []Point, critical, effect float64) {
	n, from := len(points), 0
	if k := len(h.Steps); k > 0 {
		from = h.Steps[k-1].At
	}
	if n-from < 3 {
		return
	}
	if d, z := between(points[from:n-1], points[n-1:], h.SD); z > critical && math.Abs(d) >= effect {
		h.Steps = append(h.Steps, h.step(points[from:n-1], points[n-1:], n-1, critical, false))
	}
}

// SD returns the standard deviation of one launch in a metric, of the
// logarithm: of the run-wide index (whole), or of one cell against it. It is
// not ok where the profile does not say.
func (p *Profile) SD(m Metric, whole bool, context, concurrency int32) (sd float64, ok bool) {
	i := slices.IndexFunc(p.Metrics, func(pm ProfileMetric) bool { return pm.Metric == m.String() })
	if i < 0 {
		return 0, false
	}
	if whole {
		return p.Metrics[i].LaunchSD, true
	}
	v := p.Metrics[i].cell(context, concurrency)
	return math.Sqrt(v.value), v.df > 0
}

// Interleave returns an order in which to launch sides, given as indices,
// runs times each: forwards and backwards in turn, ABBA, so that a steady
// drift of the machine meets all sides alike.
func Interleave(sides, runs int) []int {
	var out []int
	for r := range runs {
		for s := range sides {
			if r%2 == 1 {
				s = sides - 1 - s
			}
			out = append(out, s)
		}
	}
	return out
}
