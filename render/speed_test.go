package render

import (
	"math"
	"testing"
)

func TestSpeedSteps(t *testing.T) {
	for _, c := range []struct {
		rule   string
		speeds []float64
		v      float64
		want   int
	}{
		{"slowest", []float64{1, 512}, 1, 0},
		{"fastest", []float64{1, 512}, 512, 9},
		{"on a limit", []float64{1, 512}, 2, 1},
		{"one ulp under that limit", []float64{1, 512}, math.Nextafter(2, 0), 0},
		{"in the middle", []float64{1, 512}, 16, 4},
		{"a single speed is the fastest", []float64{7}, 7, 9},
		{"small differences keep near colours", []float64{100, 101}, 100, 8},
		{"huge", []float64{1e-300, 1e300}, 1e300, 9},
		{"zero was measured", []float64{0, 10}, 0, 0},
		{"all zero", []float64{0}, 0, 0},
		{"unknown", []float64{math.NaN(), 10}, math.NaN(), 0},
	} {
		if got := newSpeedScale(c.speeds).step(c.v); got != c.want {
			t.Errorf("%s: %v among %v has colour %d, want %d", c.rule, c.v, c.speeds, got, c.want)
		}
	}
}
