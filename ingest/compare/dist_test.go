package compare

import (
	"math"
	"slices"
	"testing"
)

func near(got, want, tolerance float64) bool {
	return math.Abs(got-want) <= tolerance*max(1, math.Abs(want))
}

// Printed tables of Student's t.
func TestTQuantile(t *testing.T) {
	for _, tt := range []struct{ p, df, want float64 }{
		{0.975, 5, 2.5706}, {0.975, 1, 12.7062}, {0.995, 1, 63.6567}, {0.95, 10, 1.8125}, {0.9, 3, 1.6377},
		{0.975, 30, 2.0423}, {0.9995, 2, 31.5991}, {0.975, math.Inf(1), 1.95996}, {0.95, math.Inf(1), 1.64485},
		{0.025, 5, -2.5706}, {0.5, 7, 0},
	} {
		if got := tQuantile(tt.p, tt.df); !near(got, tt.want, 1e-4) {
			t.Errorf("tQuantile(%v, %v) = %.5f, want %v", tt.p, tt.df, got, tt.want)
		}
	}
	for _, df := range []float64{0.3, 1, 2.5, 8, 77.7, 1e4, math.Inf(1)} {
		for _, p := range []float64{0.55, 0.8, 0.975, 0.9999} {
			if got := tTail(tQuantile(p, df), df) / 2; !near(got, 1-p, 1e-9) {
				t.Errorf("the tail at the %v quantile of %v df is %v", p, df, got)
			}
		}
	}
}

func TestTails(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"t = 2.571 with 5 df", tTail(2.5706, 5), 0.05},
		{"t is two-sided", tTail(-2.5706, 5), 0.05},
		{"t = 0", tTail(0, 5), 1},
		{"t of nothing", tTail(math.NaN(), 5), 1},
		{"t without degrees of freedom", tTail(9, 0), 1},
		{"t without end", tTail(math.Inf(1), 5), 0},
		{"F(2, 4) = 6.944", fTail(6.9443, 2, 4), 0.05},
		{"F(5, 10) = 3.326", fTail(3.3258, 5, 10), 0.05},
		{"F = 0", fTail(0, 2, 4), 1},
		{"z = 2.326", normalTail(2.32635), 0.01},
		{"0 of 6 heads", binomialTail(0, 6), 1.0 / 64},
		{"2 of 5 heads or fewer", binomialTail(2, 5), 0.5},
		{"all heads", binomialTail(5, 5), 1},
		{"9 lost, 0 gained", mcNemar(9, 0), 2.0 / 512},
		{"5 lost, 0 gained is no proof", mcNemar(5, 0), 0.0625},
		{"6 lost, 0 gained is", mcNemar(6, 0), 0.03125},
		{"as many lost as gained", mcNemar(3, 3), 1},
		{"none", mcNemar(0, 0), 1},
	} {
		if !near(tt.got, tt.want, 2e-4) {
			t.Errorf("%s: got %.5f, want %.5f", tt.name, tt.got, tt.want)
		}
	}
}

func TestTrigamma(t *testing.T) {
	if got, want := trigamma(1), math.Pi*math.Pi/6; !near(got, want, 1e-12) {
		t.Errorf("trigamma(1) = %v, want π²/6 = %v", got, want)
	}
	if got, want := trigamma(0.5), math.Pi*math.Pi/2; !near(got, want, 1e-12) {
		t.Errorf("trigamma(½) = %v, want π²/2 = %v", got, want)
	}
	for _, x := range []float64{1e-5, 0.01, 0.5, 1, 2, 17.3, 1e3, 1e7} {
		if got := trigammaInverse(trigamma(x)); math.Abs(got-x) > 1e-6*x {
			t.Errorf("trigammaInverse(trigamma(%v)) = %v", x, got)
		}
	}
}

// The example of Benjamini and Hochberg (1995), section 3: of 15 p-values
// the first four are findings at q = 5 %.
func TestAdjust(t *testing.T) {
	ps := []float64{.0001, .0004, .0019, .0095, .0201, .0278, .0298, .0344, .0459, .3240, .4262, .5719, .6528, .7590, 1}
	even := slices.Repeat([]float64{1}, len(ps))
	got := adjust(ps, even)
	for i, p := range got {
		if found := p <= 0.05; found != (i < 4) {
			t.Errorf("p = %v is adjusted to %v: a finding %v, want %v", ps[i], p, found, i < 4)
		}
	}
	for i, want := range map[int]float64{0: .0015, 1: .003, 3: .035625, 4: .0603, 14: 1} {
		if !near(got[i], want, 1e-9) {
			t.Errorf("p = %v is adjusted to %v, want %v", ps[i], got[i], want)
		}
	}

	// The order in which they come changes nothing.
	turned := slices.Clone(ps)
	slices.Reverse(turned)
	back := adjust(turned, even)
	slices.Reverse(back)
	if !slices.Equal(got, back) {
		t.Errorf("reversed: got %v, want %v", back, got)
	}

	// Three times the weight of the other takes ¾ of the false findings: mean
	// weight 2, so p·2/3·2 and p·2/1·2 before the step up.
	if got := adjust([]float64{0.03, 0.9}, []float64{3, 1}); !near(got[0], 0.04, 1e-12) || got[1] != 1 {
		t.Errorf("weights 3 and 1: got %v, want 0.04 and 1", got)
	}
	if got := adjust(nil, nil); len(got) != 0 {
		t.Errorf("nothing adjusted: got %v", got)
	}
}

func TestMiddle(t *testing.T) {
	xs := []float64{9, 7, 8}
	for _, tt := range []struct {
		xs   []float64
		want float64
	}{{nil, 0}, {xs[:1], 9}, {xs[:2], 8}, {xs, 8}} {
		if got := middle(tt.xs); got != tt.want {
			t.Errorf("middle(%v) = %v, want %v", tt.xs, got, tt.want)
		}
	}
	if !slices.Equal(xs, []float64{9, 7, 8}) {
		t.Errorf("middle changed its argument to %v", xs)
	}
}
