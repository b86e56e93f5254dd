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
	Before    int     // index of the last point before it
	Last      int     // index of the last point that has the new level
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
	minOwnNoise = 8 // points from which a history says how noisy it is itself
)

// FindSteps looks for steps of at least effect (a share) in a series, points
// in the order of commits, at 1 % of false findings for a series: binary
// segmentation by the largest standardised difference of means. sd is the
// standard deviation of one launch, of a noise profile (Profile.SD); 0 means
// that there is none. One point alone never splits a series.
func FindSteps(points []Point, sd, effect float64) History {
	if sd <= 0 {
		return findSteps(points, ownNoise(points), true, 1, effect)
	}
	return findSteps(points, sd, false, 1, effect)
}

// ownNoise is the standard deviation of a launch as the differences of
// neighbours show it; 0 where there are too few.
func ownNoise(points []Point) float64 {
	if len(points) < minOwnNoise {
		return 0
	}
	var steps []float64
	for i := 1; i < len(points); i++ {
		scale := math.Sqrt(points[i-1].variance(1) + points[i].variance(1))
		steps = append(steps, math.Abs(points[i].Log-points[i-1].Log)/scale*math.Sqrt2)
	}
	return math.Sqrt(max(leastVariance, math.Pow(middle(steps)/0.954, 2))) // the median of |difference of two| is 0.954 sd
}

// findSteps is FindSteps for one of a family of series, which share the 1 %.
func findSteps(points []Point, sd float64, estimated bool, family int, effect float64) History {
	h := History{SD: sd, Estimated: estimated}
	switch {
	case estimated && len(points) < minOwnNoise:
		h.Why = fmt.Sprintf("%d points without a noise profile: it takes %d to estimate their noise", len(points), minOwnNoise)
		return h
	case len(points) < 2:
		h.Why = "a single point"
		return h
	}
	// The tail of the largest difference falls like that of a normal variable.
	u := criticalZ(len(points), h.Estimated)
	critical := math.Sqrt(u*u + 2*math.Log(float64(family)))
	all := running(points, sd)
	h.split(all, 0, len(points), critical, math.Log1p(effect))
	slices.SortFunc(h.Steps, func(a, b Step) int { return a.At - b.At })
	h.last(all, critical, math.Log1p(effect))
	place(h.Steps, len(points))
	return h
}

// place says of each step of n points between which it lies, and how far its
// level goes.
func place(steps []Step, n int) {
	for i := range steps {
		steps[i].Before, steps[i].Last = steps[i].At-1, n-1
		if i > 0 {
			steps[i-1].Last = steps[i].At - 1
		}
	}
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

// A stretch is a part of a history: its level is the mean of its points, each
// weighing what it is worth.
type stretch struct{ sum, weight float64 }

func (t stretch) level() (at, v float64) { return t.sum / t.weight, 1 / t.weight }

func (t stretch) without(u stretch) stretch { return stretch{t.sum - u.sum, t.weight - u.weight} }

// running returns for each number of points the stretch that they are.
// Levels are held against the first point, so that sums stay exact.
func running(points []Point, sd float64) []stretch {
	all := make([]stretch, len(points)+1)
	for i, p := range points {
		w := 1 / p.variance(sd)
		all[i+1] = stretch{all[i].sum + w*(p.Log-points[0].Log), all[i].weight + w}
	}
	return all
}

// between compares the levels of two stretches.
func between(before, after stretch) (difference, z float64) {
	a, va := before.level()
	b, vb := after.level()
	return b - a, math.Abs(b-a) / math.Sqrt(va+vb)
}

func (h *History) split(all []stretch, from, to int, critical, effect float64) {
	best, at := 0.0, -1
	for i := from + 2; i <= to-2; i++ {
		if d, z := between(all[i].without(all[from]), all[to].without(all[i])); z > best && math.Abs(d) >= effect && rests(all, from, i, to, d) {
			best, at = z, i
		}
	}
	if at < 0 || best <= critical {
		return
	}
	h.Steps = append(h.Steps, h.step(all, from, at, to, critical, true))
	h.split(all, from, at, critical, effect)
	h.split(all, at, to, critical, effect)
}

// rests reports whether a difference rests on more than one point: without
// any single one of them at least half of it remains. A spike and its
// neighbour have another mean than the rest, and are no new level.
func rests(all []stretch, from, at, to int, difference float64) bool {
	for i := from; i < to; i++ {
		before, after := all[at].without(all[from]), all[to].without(all[at])
		if point := all[i+1].without(all[i]); i < at {
			before = before.without(point)
		} else {
			after = after.without(point)
		}
		if d, _ := between(before, after); d/difference < 0.5 {
			return false
		}
	}
	return true
}

func (h *History) step(all []stretch, from, at, to int, critical float64, confirmed bool) Step {
	a, va := all[at].without(all[from]).level()
	b, vb := all[to].without(all[at]).level()
	d, margin := b-a, variance{va + vb, math.Inf(1)}.margin()
	return Step{At: at, Confirmed: confirmed, Share: math.Expm1(d), Low: math.Expm1(d - margin), High: math.Expm1(d + margin),
		Z: math.Abs(d) / math.Sqrt(va+vb), Critical: critical}
}

// last adds the newest point where it alone is beyond the stretch before it.
func (h *History) last(all []stretch, critical, effect float64) {
	n, from := len(all)-1, 0
	if k := len(h.Steps); k > 0 {
		from = h.Steps[k-1].At
	}
	if n-from < 3 {
		return
	}
	if d, z := between(all[n-1].without(all[from]), all[n].without(all[n-1])); z > critical && math.Abs(d) >= effect {
		h.Steps = append(h.Steps, h.step(all, from, n-1, n, critical, false))
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
