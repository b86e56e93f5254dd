package ingest

import (
	"math"
	"slices"
)

// known returns a figure with n values behind it.
func known(value float64, n int) Stat { return Stat{Value: value, N: n} }

// median returns the middle value, or the mean of the two middle ones, and
// how many there are. It does not change xs.
func median(xs []float64) Stat {
	n := len(xs)
	if n == 0 {
		return Stat{}
	}
	s := slices.Clone(xs)
	slices.Sort(s)
	if n%2 == 1 {
		return known(s[n/2], n)
	}
	return known((s[n/2-1]+s[n/2])/2, n)
}

// sortGaps sorts times, none negative, by their digits: a cell has hundreds of
// thousands, and comparing them takes as long as everything else. It returns
// the memory that it used, for the next call.
func sortGaps(xs, memory []int64) []int64 {
	const digit = 11 // bits
	if len(xs) < 1<<digit {
		slices.Sort(xs)
		return memory
	}
	if cap(memory) < len(xs) {
		memory = make([]int64, len(xs))
	}
	from, to := xs, memory[:len(xs)]
	for shift, highest := 0, slices.Max(xs); highest>>shift > 0; shift += digit {
		var ends [1 << digit]int // of the values with each digit
		for _, x := range from {
			ends[x>>shift&(1<<digit-1)]++
		}
		sum := 0
		for d, n := range ends {
			ends[d] = sum
			sum += n
		}
		for _, x := range from {
			end := &ends[x>>shift&(1<<digit-1)]
			to[*end] = x
			*end++
		}
		from, to = to, from
	}
	if &from[0] != &xs[0] {
		copy(xs, from)
	}
	return memory
}

// percentile returns the p-th quantile, 0 ≤ p ≤ 1, of ascending values by
// linear interpolation between the two nearest ranks: position p·(n−1).
// At p = 0.5 it equals the median. DuckDB calls it quantile_cont.
func percentile[T int64 | float64](ascending []T, p float64) Stat {
	n := len(ascending)
	if n == 0 {
		return Stat{}
	}
	pos := p * float64(n-1)
	lo := int(math.Floor(pos))
	if lo >= n-1 {
		return known(float64(ascending[n-1]), n)
	}
	a, b := float64(ascending[lo]), float64(ascending[lo+1])
	return known(a+(b-a)*(pos-float64(lo)), n)
}

// perSecond returns tokens over a time in microseconds as tokens per second.
func perSecond(tokens, us int64) float64 { return float64(tokens) * 1e6 / float64(us) }
