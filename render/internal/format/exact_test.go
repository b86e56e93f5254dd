package format_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"speedmatrix/render/internal/format"
)

// exact is the rule itself: v / scale as a fraction, rounded to the given
// number of decimals, ties to even.
func exact(v float64, scale int64, decimals int) string {
	r := new(big.Rat).SetFloat64(v)
	r.Quo(r, new(big.Rat).SetInt64(scale))
	ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil))
	r.Mul(r, ten)
	floor := new(big.Int).Div(r.Num(), r.Denom()) // towards minus infinity: the denominator is positive
	rest := new(big.Rat).Sub(r, new(big.Rat).SetInt(floor))
	switch rest.Cmp(big.NewRat(1, 2)) {
	case 1:
		floor.Add(floor, big.NewInt(1))
	case 0:
		floor.Add(floor, big.NewInt(int64(floor.Bit(0))))
	}
	return new(big.Rat).Quo(new(big.Rat).SetInt(floor), ten).FloatString(decimals)
}

func withoutCommas(s string) string { return strings.ReplaceAll(s, ",", "") }

// The quick arithmetic must give what the fraction gives, above all on ties
// and one ulp beside them, for small and for huge numbers.
func TestNumbersAreRoundedExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var values []float64
	for _, v := range []float64{0, 0.5, 1, 49, 50, 150, 250, 499, 500, 1500, 2500, 50_000, 150_000, 1 << 52, 1 << 53, 1<<53 + 2, 1e15, 1e18, 1e22, 1e300} {
		values = append(values, v, below(v), above(v), -v, -below(v), -above(v))
	}
	for range 3_000 {
		v := math.Exp(random.Float64()*70 - 10)
		values = append(values, v, -v, math.Round(v), math.Round(v)+0.5, math.Round(v/50)*50, below(math.Round(v/50)*50), above(math.Round(v/50)*50), math.Round(v*4)/4)
	}
	for _, v := range values {
		for _, f := range []struct {
			name     string
			f        func(float64) string
			scale    int64
			decimals int
			suffix   string
		}{
			{"Millis", format.Millis, 1_000, 0, " ms"}, {"Millis1", format.Millis1, 1_000, 1, " ms"}, {"Seconds1", format.Seconds1, 1_000_000, 1, " s"},
			{"One", format.One, 1, 1, ""}, {"Two", format.Two, 1, 2, ""}, {"Whole", format.Whole, 1, 0, ""},
		} {
			got, want := withoutCommas(f.f(v)), exact(v, f.scale, f.decimals)+f.suffix
			if strings.Trim(want, "-0. ms") == "" {
				want = strings.TrimPrefix(want, "-")
			}
			if got != want {
				t.Fatalf("%s(%v) = %q, want %q", f.name, v, got, want)
			}
		}
	}
}

func BenchmarkNumbers(b *testing.B) {
	for b.Loop() {
		format.Millis(38_512.25)
		format.Millis1(4_450.5)
		format.TokPerS(12_345.678)
		format.TokPerS(220.6)
	}
}
