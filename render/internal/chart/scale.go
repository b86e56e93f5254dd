package chart

import (
	"math"
	"strconv"
	"strings"
)

// A Unit says how the ticks of an axis are written.
type Unit uint8

const (
	Number  Unit = iota // 500, 20K, 1.5M
	Micros              // 500 µs, 20 ms, 1 s
	Seconds             // 0, 5, 10
)

// An Axis is one direction of a plot.
type Axis struct {
	Name string // with the unit where ticks do not have it
	Log  bool   // else linear, from 0
	Unit Unit

	// Ticks are the values that the axis has, ascending, such as planned
	// contexts; nil: from the data, 1-2-5.
	Ticks []Tick

	// Titles say in words what each of Ticks is; nil: label and name do.
	Titles []string
}

// Shows reports whether the axis has a place for a value.
func (a Axis) Shows(v float64) bool { return drawable(v, a.Log) }

// Range returns the ends of the axis over values that it shows, at least
// one, and its ticks.
func (a Axis) Range(values []float64) (lo, hi float64, ticks []Tick) {
	s, ticks := a.scaleOf(values, 0, 1)
	return s.lo, s.hi, ticks
}

// A Tick is a place on an axis.
type Tick struct {
	Value float64
	Label string
}

// A scale maps values to lengths.
type scale struct {
	lo, hi   float64 // values
	from, to float64 // lengths
	log      bool
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		lo, hi, v = log2(lo), log2(hi), log2(v)
	}
	if hi == lo {
		return (s.from + s.to) / 2
	}
	// The conversion keeps compilers from fusing: every machine rounds alike.
	return s.from + float64((v-lo)/(hi-lo)*(s.to-s.from))
}

// log2 is the binary logarithm to 24 places, from operations that every
// machine does alike, which math.Log2 does not promise.
func log2(x float64) float64 {
	f, e := math.Frexp(x)
	m, r, bit := 2*f, float64(e-1), 0.5
	for range 24 {
		if m *= m; m >= 2 {
			m /= 2
			r += bit
		}
		bit /= 2
	}
	return r
}

func drawable(v float64, log bool) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!log || v > 0)
}

// scaleOf returns the scale of an axis over values, and its ticks. Values
// that can't be drawn must be left out before.
func (a Axis) scaleOf(values []float64, from, to float64) (scale, []Tick) {
	if len(a.Ticks) > 0 {
		s := scale{a.Ticks[0].Value, a.Ticks[len(a.Ticks)-1].Value, from, to, a.Log && a.Ticks[0].Value > 0}
		return s, a.Ticks
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		lo, hi = min(lo, v), max(hi, v)
	}
	var at []float64
	if a.Log {
		lo, hi, at = logTicks(lo, hi)
	} else {
		lo, hi, at = linearTicks(min(lo, 0), hi, 5)
	}
	ticks := make([]Tick, len(at))
	for i, v := range at {
		ticks[i] = Tick{v, a.Unit.format(v)}
	}
	return scale{lo, hi, from, to, a.Log}, ticks
}

// steps125 are the steps of a decade.
var steps125 = [...]float64{1, 2, 5}

// step125 returns 1, 2 or 5 times a power of ten by its number.
func step125(i int) float64 {
	d := int(math.Floor(float64(i) / 3))
	if d < 0 { // divided: 0.2 is 2/10, not 2 × 0.1
		return steps125[i-3*d] / math.Pow10(-d)
	}
	return steps125[i-3*d] * math.Pow10(d)
}

// below returns the number of the greatest step that is at most v, v > 0.
func below(v float64) int {
	i := 3 * (int(math.Floor(log2(v)/3.3219281)) - 1)
	for step125(i+1) <= v {
		i++
	}
	return i
}

const maxLogTicks = 12

// logTicks returns a range of whole steps around lo … hi, and the ticks in
// it, or only the powers of ten where these are too many.
func logTicks(lo, hi float64) (from, to float64, ticks []float64) {
	a, b := below(lo), below(hi)
	if step125(b) < hi {
		b++
	}
	if a == b {
		a, b = a-1, b+1
	}
	for i := a; i <= b; i++ {
		if b-a < maxLogTicks || (i%3+3)%3 == 0 {
			ticks = append(ticks, step125(i))
		}
	}
	return step125(a), step125(b), ticks
}

// linearTicks returns lo … hi widened at its end to a whole step, and about
// n ticks in it.
func linearTicks(lo, hi float64, n int) (from, to float64, ticks []float64) {
	if !(hi > lo) {
		hi = lo + 1
	}
	i := below((hi - lo) / float64(n))
	for (hi-lo)/step125(i) > float64(n) {
		i++
	}
	step := step125(i)
	first, last := math.Ceil(lo/step), math.Ceil(hi/step)
	for k := first + 0; k <= last; k++ { // no "−0"
		v := k * step
		if step < 1 { // divided, as in step125
			v = k / math.Round(1/step)
		}
		ticks = append(ticks, v)
	}
	return lo, float64(last * step), ticks
}

// format writes a tick: at most as many digits as a step of 1-2-5 has.
func (u Unit) format(v float64) string {
	short := func(v float64, suffixes ...string) string {
		i := 0
		for ; math.Abs(v) >= 1000 && i < len(suffixes)-1; i++ {
			v /= 1000
		}
		return strings.Replace(strconv.FormatFloat(v, 'g', 6, 64), "-", "−", 1) + suffixes[i]
	}
	switch u {
	case Micros:
		return short(v, " µs", " ms", " s")
	case Seconds:
		return short(v, "")
	}
	return short(v, "", "K", "M", "G")
}
