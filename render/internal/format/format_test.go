package format_test

import (
	"math"
	"os"
	"testing"

	"speedmatrix/render/internal/format"
)

func below(v float64) float64 { return math.Nextafter(v, math.Inf(-1)) }
func above(v float64) float64 { return math.Nextafter(v, math.Inf(1)) }

func TestNumberFormats(t *testing.T) {
	negativeZero := math.Copysign(0, -1)
	for _, c := range []struct {
		rule string
		f    func(float64) string
		v    float64
		want string
	}{
		{"table: one decimal", format.TokPerS, 220.6, "220.6"},
		{"table: a zero decimal stays", format.TokPerS, 1330, "1,330.0"},
		{"table: prefill under 10,000", format.TokPerS, 8627, "8,627.0"},
		{"table: zero was measured", format.TokPerS, 0, "0.0"},
		{"table: just under 10,000 keeps its form", format.TokPerS, below(10_000), "10,000.0"},
		{"table: 10,000", format.TokPerS, 10_000, "10K"},
		{"table: just over 10,000", format.TokPerS, above(10_000), "10K"},
		{"table: thousands", format.TokPerS, 16_157.4, "16.2K"},
		{"table: zero decimal of thousands dropped", format.TokPerS, 55_000, "55K"},
		{"table: tie of thousands to even, down", format.TokPerS, 16_250, "16.2K"},
		{"table: just over that tie", format.TokPerS, above(16_250), "16.3K"},
		{"table: tie of thousands to even, up", format.TokPerS, 16_350, "16.4K"},
		{"table: just under that tie", format.TokPerS, below(16_350), "16.3K"},
		{"table: just under a million keeps its form", format.TokPerS, below(1_000_000), "1,000K"},
		{"table: a million", format.TokPerS, 1_000_000, "1M"},
		{"table: millions", format.TokPerS, 1_234_567, "1.2M"},
		{"table: thousands of millions", format.TokPerS, 1_234_560_000, "1,234.6M"},
		{"table: not a tie, 0.05 is above it", format.TokPerS, 0.05, "0.1"},
		{"table: not a tie, 0.35 is below it", format.TokPerS, 0.35, "0.3"},
		{"table: tie to even, down", format.TokPerS, 0.25, "0.2"},
		{"table: just over the tie", format.TokPerS, above(0.25), "0.3"},
		{"table: tie to even, up", format.TokPerS, 0.75, "0.8"},
		{"table: just under the tie", format.TokPerS, below(0.75), "0.7"},
		{"table: no negative zero", format.TokPerS, -0.01, "0.0"},
		{"table: negative zero itself", format.TokPerS, negativeZero, "0.0"},
		{"table: smallest number", format.TokPerS, math.SmallestNonzeroFloat64, "0.0"},
		{"table: NaN", format.TokPerS, math.NaN(), "—"},
		{"table: infinity", format.TokPerS, math.Inf(1), "—"},
		{"table: minus infinity", format.TokPerS, math.Inf(-1), "—"},

		{"card: whole with commas", format.TokPerSWhole, 8627.2, "8,627"},
		{"card: tie to even, down", format.TokPerSWhole, 8626.5, "8,626"},
		{"card: just over the tie", format.TokPerSWhole, above(8626.5), "8,627"},
		{"card: tie to even, up", format.TokPerSWhole, 8627.5, "8,628"},
		{"card: just under 10,000 keeps its form", format.TokPerSWhole, below(10_000), "10,000"},
		{"card: thousands", format.TokPerSWhole, 57_512, "57.5K"},
		{"card: zero decimal dropped", format.TokPerSWhole, 13_999, "14K"},
		{"card: NaN", format.TokPerSWhole, math.NaN(), "—"},

		{"TTFT: whole milliseconds", format.Millis, 39_000, "39 ms"},
		{"TTFT: commas", format.Millis, 10_414_000, "10,414 ms"},
		{"TTFT: tie to even, down", format.Millis, 38_500, "38 ms"},
		{"TTFT: just over the tie", format.Millis, above(38_500), "39 ms"},
		{"TTFT: tie to even, up", format.Millis, 39_500, "40 ms"},
		{"TTFT: just under the tie, where dividing would reach it", format.Millis, below(39_500), "39 ms"},
		{"TTFT: unknown", format.Millis, math.NaN(), "—"},

		{"between tokens: one decimal", format.Millis1, 4_500, "4.5 ms"},
		{"between tokens: tie to even, down", format.Millis1, 4_450, "4.4 ms"},
		{"between tokens: tie to even, up", format.Millis1, 4_550, "4.6 ms"},
		{"between tokens: just under the tie", format.Millis1, below(4_550), "4.5 ms"},
		{"between tokens: infinity", format.Millis1, math.Inf(1), "—"},

		{"measured for", format.Seconds1, 30_000_000, "30.0 s"},
		{"measured for: tie to even", format.Seconds1, 32_450_000, "32.4 s"},
		{"active", format.One, 15.4, "15.4"},
		{"active: none", format.One, 0, "0.0"},
		{"tokens per event", format.Two, 3.405, "3.40"},
		{"output tokens", format.Whole, 203_607, "203,607"},
		{"output tokens: none", format.Whole, 0, "0"},
		{"output tokens: unknown", format.Whole, math.NaN(), "—"},
		{"output tokens: beyond int64", format.Whole, 1e21, "1,000,000,000,000,000,000,000"},
	} {
		if got := c.f(c.v); got != c.want {
			t.Errorf("%s: %v gives %q, want %q", c.rule, c.v, got, c.want)
		}
	}
}

func TestIntegerFormats(t *testing.T) {
	for _, c := range []struct{ rule, got, want string }{
		{"GiB: what the driver says of 96 GB", format.GiB(97_887 << 20), "96"},
		{"GiB: whole", format.GiB(80 << 30), "80"},
		{"GiB: tie to even", format.GiB(5 << 29), "2"},
		{"int: under a thousand", format.Int(999), "999"},
		{"int: thousand", format.Int(1000), "1,000"},
		{"int: negative", format.Int(-123456), "-123,456"},
		{"duration: whole", format.Duration(30_000_000), "30 s"},
		{"duration: part", format.Duration(2_500_000), "2.5 s"},
		{"duration: ends in zeros", format.Duration(100_000_000), "100 s"},
		{"duration: one microsecond", format.Duration(1), "0.000001 s"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", c.rule, c.got, c.want)
		}
	}
}

func TestContextLabels(t *testing.T) {
	for _, c := range []struct {
		tokens int32
		want   string
	}{
		{0, "0"}, {1, "1"}, {1023, "1023"}, {1024, "1K"}, {2047, "1K"}, {2048, "2K"}, {8192, "8K"},
		{125_952, "123K"}, {257_024, "251K"}, {262_144, "256K"}, {1_048_576, "1024K"}, {math.MaxInt32, "2097151K"},
	} {
		if got := format.Context(c.tokens); got != c.want {
			t.Errorf("Context(%d) = %q, want %q", c.tokens, got, c.want)
		}
	}
	labels := format.Contexts([]int32{8192, 8200, 16384, 8192, 16384, 500})
	for tokens, want := range map[int32]string{8192: "8192", 8200: "8200", 16384: "16K", 500: "500"} {
		if labels[tokens] != want {
			t.Errorf("label of %d is %q, want %q", tokens, labels[tokens], want)
		}
	}
}

func TestFormatsDoNotDependOnTheLocale(t *testing.T) {
	for _, locale := range []string{"pl_PL.UTF-8", "de_DE.UTF-8", "ar_EG.UTF-8", "C"} {
		for _, name := range []string{"LC_ALL", "LANG", "LC_NUMERIC"} {
			t.Setenv(name, locale)
		}
		if got := format.TokPerS(6091.1) + format.Seconds1(15e6); got != "6,091.115.0 s" {
			t.Errorf("%s=%s: got %q", "LC_ALL", os.Getenv("LC_ALL"), got)
		}
	}
}

// Whatever the value, a format is a number of the right shape or a dash.
func FuzzFormats(f *testing.F) {
	for _, v := range []float64{0, 0.05, 9_999.95, 1e6, -1, math.MaxFloat64, math.NaN(), math.Inf(1)} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		for _, s := range []string{format.TokPerS(v), format.TokPerSWhole(v), format.Millis(v), format.Millis1(v), format.Whole(v), format.Two(v)} {
			if s == format.Unknown {
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					t.Errorf("%v is a number and gives %q", v, s)
				}
				continue
			}
			if s[0] == '-' && v >= 0 || s[0] == '.' || s[0] == ',' {
				t.Errorf("%v gives %q", v, s)
			}
		}
	})
}
