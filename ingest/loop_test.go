package ingest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
)

// slowLoop finds the first loop by trying every period at every start.
func slowLoop(text []rune, lim loopLimits) (repetition, bool) {
	for start := range text {
		for p := 1; p <= lim.maxPeriod && start+p < len(text); p++ {
			if start > 0 && text[start-1] == text[start-1+p] {
				continue // began earlier
			}
			end := start + p
			for end < len(text) && text[end] == text[end-p] {
				end++
			}
			blank := strings.TrimFunc(string(text[start:start+p]), unicode.IsSpace) == ""
			if end-start >= lim.need(p) && !blank {
				return repetition{start, end - start, p}, true
			}
		}
	}
	return repetition{}, false
}

func checkLoop(t *testing.T, text []rune, lim loopLimits) (found bool) {
	t.Helper()
	var f loopFinder
	got, ok := findLoop(&f, text, lim)
	want, wantOK := slowLoop(text, lim)
	if got != want || ok != wantOK {
		t.Fatalf("findLoop(%q, %+v) = %+v, %v, want %+v, %v", string(text), lim, got, ok, want, wantOK)
	}
	if b := []byte(string(text)); len(b) == len(text) {
		if as, asOK := findLoop(&f, b, lim); as != got || asOK != ok {
			t.Fatalf("findLoop(%q, %+v) = %+v, %v of bytes, want %+v, %v as of code points", b, lim, as, asOK, got, ok)
		}
	}
	return ok
}

// randomText is short random text over a small alphabet with blanks, into
// which a few repetitions, some of them flawed, have been put.
func randomText(rnd *rand.Rand, lim loopLimits) []rune {
	letters := []rune("ab \n世")[:2+rnd.IntN(4)]
	random := func(n int) []rune {
		out := make([]rune, n)
		for i := range out {
			out[i] = letters[rnd.IntN(len(letters))]
		}
		return out
	}
	var text []rune
	for range 1 + rnd.IntN(4) {
		text = append(text, random(rnd.IntN(2*lim.minLength))...)
		period := random(1 + rnd.IntN(lim.maxPeriod+2))
		from := len(text)
		for range lim.minCycles - 1 + rnd.IntN(3) {
			text = append(text, period...)
		}
		text = append(text, period[:rnd.IntN(len(period)+1)]...)
		if rnd.IntN(3) == 0 {
			text[from+rnd.IntN(len(text)-from)] = letters[rnd.IntN(len(letters))]
		}
	}
	return text
}

func TestLoopMatchesBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	found, n := 0, 4000
	for range n {
		lim := loopLimits{maxPeriod: 1 + rnd.IntN(20), minCycles: 2 + rnd.IntN(3), minLength: 1 + rnd.IntN(40)}
		if checkLoop(t, randomText(rnd, lim), lim) {
			found++
		}
	}
	if found < n/10 || found > n*9/10 {
		t.Errorf("%d of %d texts had a loop: the test no longer tries both", found, n)
	}
}

func FuzzLoop(f *testing.F) {
	f.Add("abababababab", uint8(4), uint8(4), uint8(8))
	f.Add("xx   \n   \n   \n   \n yy", uint8(5), uint8(3), uint8(9))
	f.Add(fibonacci(60), uint8(30), uint8(3), uint8(10))
	f.Add(strings.Repeat("世界,", 20), uint8(3), uint8(4), uint8(60))
	f.Fuzz(func(t *testing.T, s string, maxPeriod, minCycles, minLength uint8) {
		if len(s) > 400 {
			s = s[:400]
		}
		checkLoop(t, []rune(s), loopLimits{
			maxPeriod: 1 + int(maxPeriod)%64, minCycles: 2 + int(minCycles)%4, minLength: 1 + int(minLength),
		})
	})
}

func fibonacci(n int) string {
	a, b := "a", "ab"
	for len(b) < n {
		a, b = b, b+a
	}
	return b[:n]
}

// prose makes text that does not repeat itself.
func prose(n int, seed uint64) string {
	rnd := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%s ", strings.Repeat(string(rune('a'+rnd.IntN(26))), 1+rnd.IntN(3))+fmt.Sprint(rnd.IntN(1000)))
	}
	return b.String()[:n]
}

func TestLoopLimits(t *testing.T) {
	lim := longLoop
	long := prose(longLoop.maxPeriod+1, 1)
	tail := prose(5000, 2)
	for _, tt := range []struct {
		name string
		text string
		want repetition // zero: none
	}{
		{"4,096 characters are a loop", strings.Repeat("ab-x", 1024), repetition{0, 4096, 4}},
		{"4,095 characters are none", strings.Repeat("ab-x", 1024)[:4095], repetition{}},
		{"one token 1,366 times", "." + strings.Repeat("ab-", 1366), repetition{1, 4098, 3}},
		{"four whole cycles of the longest period", strings.Repeat(long[:longLoop.maxPeriod], 4), repetition{0, 4 * longLoop.maxPeriod, longLoop.maxPeriod}},
		{"a period one longer is not looked for", strings.Repeat(long, 4), repetition{}},
		{"three and nearly four cycles are none", strings.Repeat(tail, 4)[:len(tail)*4-1], repetition{}},
		{"a loop that the model left again", long[:999] + "!" + strings.Repeat(tail, 5) + "?" + long, repetition{1000, 25000, 5000}},
		{"white space alone is none", long + strings.Repeat(" \n", 9000) + tail, repetition{}},
		{"mostly white space is one", strings.Repeat(strings.Repeat(" ", 99)+".", 50), repetition{0, 5000, 100}},
		{"code points count, not bytes", strings.Repeat("世", 4095), repetition{}},
		{"a one-character loop has period 1", long[:100] + strings.Repeat("a", 5000), repetition{100, 5000, 1}},
		{"a loop after a long text", prose(2_000_000, 5) + "!" + strings.Repeat(tail, 4), repetition{2_000_001, 20_000, 5000}},
		{"a Fibonacci word never repeats four times", fibonacci(100000), repetition{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f loopFinder
			got, ok := findLoop(&f, []rune(tt.text), lim)
			if got != tt.want || ok != (tt.want != repetition{}) {
				t.Errorf("findLoop = %+v, %v, want %+v", got, ok, tt.want)
			}
		})
	}
}

// Time a character must not depend on how many there are.
func BenchmarkLoopGrowth(b *testing.B) {
	const most = 10_000_000
	text := []byte(prose(most, 1))
	for n := 10_000; n <= most; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var f loopFinder
			for b.Loop() {
				if found := firstLoop(&f, text[:n]); found.length > 0 {
					b.Fatalf("found %+v, want none", found)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/char")
		})
	}
}

func BenchmarkLoop(b *testing.B) {
	lim := longLoop
	const n = 100_000
	twice := prose(30000, 3)
	for _, bb := range []struct{ name, text string }{
		{"prose", prose(n, 1)},
		{"one-letter", strings.Repeat("a", n)},
		{"blank", strings.Repeat(" ", n)},
		{"fibonacci", fibonacci(n)},
		{"three-cycles-of-30000", strings.Repeat(twice, 4)[:n]},
		{"loop-at-the-end", prose(n-5000, 1) + strings.Repeat("again and again. ", 400)[:5000]},
	} {
		b.Run(bb.name, func(b *testing.B) {
			text := []rune(bb.text)
			var f loopFinder
			for b.Loop() {
				findLoop(&f, text, lim)
			}
			b.ReportMetric(float64(len(text))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mchars/s")
		})
	}
}
