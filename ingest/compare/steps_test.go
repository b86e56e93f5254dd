package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// history makes points of noise 1 % with levels as given, in percent.
func history(seed uint64, levels ...float64) []Point {
	g := rand.New(rand.NewPCG(seed, 1))
	var points []Point
	for _, l := range levels {
		points = append(points, Point{Log: math.Log1p(l/100) + 0.01*g.NormFloat64(), Launches: 1})
	}
	return points
}

func repeat(levels ...float64) (out []float64) { // value, times, value, times, …
	for i := 0; i < len(levels); i += 2 {
		out = append(out, slices.Repeat(levels[i:i+1], int(levels[i+1]))...)
	}
	return out
}

func TestFindSteps(t *testing.T) {
	type step struct {
		at        int
		confirmed bool
	}
	for _, tt := range []struct {
		name   string
		points []Point
		sd     float64
		want   []step
		why    string
	}{
		{"a level", history(1, repeat(0, 20)...), 0.01, nil, ""},
		{"a step down", history(1, repeat(0, 10, -8, 10)...), 0.01, []step{{10, true}}, ""},
		{"two steps", history(1, repeat(0, 10, -8, 10, 4, 6)...), 0.01, []step{{10, true}, {20, true}}, ""},
		{"a step, and its noise from the history", history(1, repeat(0, 10, -15, 10)...), 0, []step{{10, true}}, ""},
		{"the last point alone", history(1, repeat(0, 10, -10, 1)...), 0.01, []step{{10, false}}, ""},
		{"the last two points", history(1, repeat(0, 10, -10, 2)...), 0.01, []step{{10, true}}, ""},
		{"a single spike is no step", history(1, repeat(0, 8, -15, 1, 0, 8)...), 0.01, nil, ""},
		{"less than matters", history(1, repeat(0, 30, -1, 30)...), 0.001, nil, ""},
		{"too short a history", history(1, repeat(0, 3, -10, 4)...), 0, nil, "7 points without a noise profile: it takes 8"},
		{"one point", history(1, 0), 0.01, nil, "a single point"},
		{"none", nil, 0.01, nil, "a single point"},
		{"no noise at all", make([]Point, 12), 0, nil, ""},
	} {
		h := FindSteps(tt.points, tt.sd, 0.02)
		var got []step
		for _, s := range h.Steps {
			got = append(got, step{s.At, s.Confirmed})
			if !(s.Low <= s.Share && s.Share <= s.High) || s.Z <= s.Critical {
				t.Errorf("%s: %+v", tt.name, s)
			}
		}
		if !slices.Equal(got, tt.want) || !strings.HasPrefix(h.Why, tt.why) || (h.Why == "") != (tt.why == "") || h.Estimated != (tt.sd == 0) {
			t.Errorf("%s: got %+v, %q, want %+v, %q", tt.name, got, h.Why, tt.want, tt.why)
		}
	}
	// Several launches of a commit weigh more: the same figures are then a step.
	points := history(3, repeat(0, 4, -2.5, 4)...)
	if h := FindSteps(points, 0.015, 0.02); len(h.Steps) != 0 {
		t.Errorf("of one launch each: got %+v, want no step", h.Steps)
	}
	for i := range points {
		points[i].Launches = 5
	}
	if h := FindSteps(points, 0.015, 0.02); len(h.Steps) != 1 {
		t.Errorf("of five launches each: got %+v, want a step", h.Steps)
	}
}

// What the critical values promise: at most about 1 % of series of one level
// have a step, with a known noise and with one from the history.
func TestFalseSteps(t *testing.T) {
	const n = 1000
	for _, length := range []int{5, 8, 20, 60} {
		for _, sd := range []float64{0.01, 0} {
			if sd == 0 && length < minOwnNoise {
				continue
			}
			found := 0
			for seed := range uint64(n) {
				h := FindSteps(history(seed, repeat(0, float64(length))...), sd, 0)
				if slices.ContainsFunc(h.Steps, func(s Step) bool { return s.Confirmed }) {
					found++
				}
			}
			if found > 20 { // the 99.9th percentile at a true rate of 1 %
				t.Errorf("%d points, noise %v: steps in %d of %d series of one level, want about 1 %%", length, sd, found, n)
			}
		}
	}
}

func TestCriticalZ(t *testing.T) {
	for _, tt := range []struct {
		n         int
		estimated bool
		want      float64
	}{{8, false, 3.04}, {12, false, 3.16}, {50, false, 3.46}, {100, false, 3.57}, {2, false, 2.87}, {8, true, 5.8}, {10, true, 5.6}, {16, true, 4.95}, {20, true, 4.5}, {99, true, 4.5}} {
		if got := criticalZ(tt.n, tt.estimated); math.Abs(got-tt.want) > 0.006 {
			t.Errorf("criticalZ(%d, %v) = %.3f, want %v", tt.n, tt.estimated, got, tt.want)
		}
	}
}

func TestInterleave(t *testing.T) {
	for _, tt := range []struct {
		sides, runs int
		want        []int
	}{{2, 3, []int{0, 1, 1, 0, 0, 1}}, {2, 1, []int{0, 1}}, {3, 2, []int{0, 1, 2, 2, 1, 0}}, {2, 0, nil}} {
		if got := Interleave(tt.sides, tt.runs); !slices.Equal(got, tt.want) {
			t.Errorf("Interleave(%d, %d) = %v, want %v", tt.sides, tt.runs, got, tt.want)
		}
	}
}
