package compare

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mathext"
)

// Two launches of five cells, by hand: the second is 0.02 above the first in
// every cell, and one cell another 0.04.
func TestSpread(t *testing.T) {
	s := logs{{1, 2, 3, 4, 5}, {1.02, 2.02, 3.02, 4.02, 5.06}}.spread()
	if s.df != 1 || !near(s.effects[0], -0.01, 1e-12) || !near(s.effects[1], 0.01, 1e-12) || !near(s.launch, 2e-4, 1e-12) {
		t.Errorf("launches: got %+v, want effects ∓0.01", s)
	}
	for c, want := range []float64{0, 0, 0, 0, 8e-4} { // the last: ±0.03 less ±0.01
		if !near(s.rest[c], want, 1e-12) {
			t.Errorf("rest of cell %d: got %v, want %v", c, s.rest[c], want)
		}
	}
}

func TestPlus(t *testing.T) {
	for _, tt := range []struct {
		name       string
		a, b, want variance
	}{
		{"Satterthwaite", variance{1, 4}, variance{1, 4}, variance{2, 8}},
		{"the larger decides", variance{9, 3}, variance{1, 3}, variance{10, 100 / (81.0/3 + 1.0/3)}},
		{"one that is known", variance{1, 4}, variance{3, math.Inf(1)}, variance{4, 64}},
		{"both known", variance{1, math.Inf(1)}, variance{3, math.Inf(1)}, variance{4, math.Inf(1)}},
	} {
		if got := tt.a.plus(tt.b); !near(got.value, tt.want.value, 1e-12) || got.df != tt.want.df && !near(got.df, tt.want.df, 1e-12) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestShrink(t *testing.T) {
	// Variances that differ by no more than chance are one: the bias of the
	// mean of logarithms is taken out.
	even := []variance{{2e-4, 4}, {2e-4, 4}, {2e-4, 4}}
	out, common := shrink(even)
	want := 2e-4 * math.Exp(-mathext.Digamma(2)+math.Log(2))
	if !near(common, want, 1e-12) || !math.IsInf(out[1].df, 1) || out[1].value != common {
		t.Errorf("equal variances: got %v and %v, want %v for all, taken as known", out, common, want)
	}
	// Variances far apart keep their distance, and gain degrees of freedom.
	far := []variance{{1e-6, 8}, {1e-2, 8}, {1e-4, 8}, {1e-8, 8}, {1, 8}}
	out, _ = shrink(far)
	for i, v := range out {
		if r := v.value / far[i].value; r < 0.5 || r > 30 || v.df <= 8 || v.df > 10 {
			t.Errorf("a variance of %v becomes %v with %.1f df, want about the same and a little more than 8", far[i].value, v.value, v.df)
		}
	}
	// A cell without launches of its own takes the common one.
	out, common = shrink(append(far, variance{}))
	if out[5].value != common {
		t.Errorf("without degrees of freedom: got %v, want the common variance %v", out[5].value, common)
	}
	// Launches that agree to the last digit do not prove that nothing varies.
	out, common = shrink([]variance{{0, 4}, {0, 4}})
	if common < leastVariance/2 || math.IsNaN(out[0].value) {
		t.Errorf("no variance at all: got %v, want about %v", common, leastVariance)
	}
	if out, common = shrink([]variance{{}, {}}); common != 0 || len(out) != 2 {
		t.Errorf("nothing known: got %v and %v", out, common)
	}
}

// The table "How many launches do I need?" of docs/diff.md: a cell that
// differs by so much between launches, with a profile of 9.
func TestRunsNeeded(t *testing.T) {
	for _, tt := range []struct {
		sd   float64
		want int
	}{{0.003, 2}, {0.005, 2}, {0.01, 6}, {0.015, 12}, {0.02, 20}, {0.12, 0}} {
		if got := runsNeeded(variance{tt.sd * tt.sd, 8}, variance{0, math.Inf(1)}, math.Log1p(0.02)); got != tt.want {
			t.Errorf("a standard deviation of %v: got %d launches, want %d", tt.sd, got, tt.want)
		}
	}
	if got := runsNeeded(variance{1e-4, 8}, variance{}, 0); got != 0 {
		t.Errorf("nothing may change: got %d launches, want none to be enough", got)
	}
}
