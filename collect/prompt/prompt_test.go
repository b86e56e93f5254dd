package prompt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// counters are tokenizers of several kinds, each with the tokens of a chat
// template on top.
func counters() map[string]func(string) int {
	return map[string]func(string) int{
		"words":             func(s string) int { return 5 + len(strings.Fields(s)) },
		"words and marks":   func(s string) int { return 12 + len(strings.FieldsFunc(s, unicode.IsSpace)) + strings.Count(s, ".") },
		"bytes":             func(s string) int { return 9 + len(s) },
		"four characters":   func(s string) int { return (len(s) + 3) / 4 },
		"BPE":               func(s string) int { return 17 + merges(s, 800, 1) },
		"BPE of few merges": func(s string) int { return 3 + merges(s, 60, 2) },
		"BPE across words":  func(s string) int { return 30 + spanning(s) },
	}
}

// merges counts the tokens of a greedy longest match over a vocabulary of
// random pieces of the word lists, inside words with the space before them.
func merges(s string, size, seed int) int {
	vocabulary := vocabularies(size, seed)
	n := 0
	for len(s) > 0 {
		k := min(len(s), 8)
		for ; k > 1 && !vocabulary[s[:k]]; k-- {
		}
		s = s[k:]
		n++
	}
	return n
}

func vocabularies(size, seed int) map[string]bool {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	words := strings.Fields(nouns + adjectives + verbs + " the a and so then but now or yet")
	v := make(map[string]bool)
	for range size {
		w := " " + words[rng.IntN(len(words))]
		from := rng.IntN(len(w))
		v[w[from:min(len(w), from+2+rng.IntN(6))]] = true
	}
	return v
}

// spanning counts words, but some neighbours merge into one token and long
// words fall into several: adding a word adds 0 to 3 tokens.
func spanning(s string) int {
	n, before := 0, ""
	for w := range strings.FieldsSeq(s) {
		switch {
		case before == "the" || before == "and" || len(w) < 3 && len(before) < 3:
			before = "" // merged with the word before
			continue
		case len(w) > 9:
			n += 3
		case len(w) > 6:
			n += 2
		default:
			n++
		}
		before = w
	}
	return n
}

func counter(f func(string) int, calls *int) Counter {
	return func(_ context.Context, s string) (int, error) {
		*calls++
		return f(s), nil
	}
}

func TestBuildIsExact(t *testing.T) {
	for name, f := range counters() {
		for _, target := range []int{600, 1024, 2048, 8191, 8192, 16384, 125952} {
			t.Run(fmt.Sprintf("%s to %d", name, target), func(t *testing.T) {
				calls := 0
				spec := Spec{Seed: 7, Salt: "s", Context: int32(target)}
				p, err := Build(t.Context(), counter(f, &calls), spec, target)
				if err != nil {
					t.Fatal(err)
				}
				if p.Tokens != target || f(p.Content) != target || p.Note != "" {
					t.Errorf("%d tokens (really %d, note %q), want %d", p.Tokens, f(p.Content), p.Note, target)
				}
				if calls > 24 {
					t.Errorf("%d counts, want at most 24", calls)
				}
				t.Logf("%d counts", calls)
			})
		}
	}
}

func TestBuildManyLengths(t *testing.T) {
	for name, f := range counters() {
		calls, most := 0, 0
		for target := 700; target < 1100; target++ {
			before := calls
			p, err := Build(t.Context(), counter(f, &calls), Spec{Seed: int64(target)}, target)
			if err != nil || p.Tokens != target {
				t.Fatalf("%s to %d: %d tokens, note %q, error %v", name, target, p.Tokens, p.Note, err)
			}
			most = max(most, calls-before)
		}
		t.Logf("%s: %.1f counts on average, at most %d", name, float64(calls)/400, most)
	}
}

func TestBuildSaysWhatItCanNot(t *testing.T) {
	words := func(s string) int { return len(strings.Fields(s)) }
	for _, tt := range []struct {
		name      string
		f         func(string) int
		target    int
		tokens    int
		note, err string
	}{
		{"only even numbers occur", func(s string) int { return words(s) / 2 * 2 }, 1001, 1000, "the prompt has 1000 tokens instead of 1001: the server's tokenizer does not give the exact number", ""},
		{"only multiples of 64 occur, too far off", func(s string) int { return words(s) / 64 * 64 }, 1000, 0, "", "build prompt of 1000 tokens: after 64 counts the nearest that is not longer has 960 tokens"},
		{"shorter than the template", func(s string) int { return 100 + words(s) }, 90, 0, "", "build prompt of 90 tokens: the shortest prompt has 108 tokens"},
		{"shorter than the long task", words, 40, 40, "", ""},
		{"as short as can be", words, 9, 9, "", ""},
		{"a count that does not grow", func(string) int { return 12 }, 100000, 0, "", "build prompt of 100000 tokens: the count stays at 12 tokens when 74977 words are added"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			p, err := Build(t.Context(), counter(tt.f, &calls), Spec{}, tt.target)
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			}
			if p.Tokens != tt.tokens || p.Note != tt.note || gotErr != tt.err {
				t.Errorf("got %d tokens, note %q, error %q\nwant %d, %q, %q", p.Tokens, p.Note, gotErr, tt.tokens, tt.note, tt.err)
			}
			if calls > maxCounts {
				t.Errorf("%d counts, want at most %d", calls, maxCounts)
			}
		})
	}
}

func TestBuildPassesOnTheError(t *testing.T) {
	down := errors.New("down")
	_, err := Build(t.Context(), func(context.Context, string) (int, error) { return 0, down }, Spec{}, 1000)
	if !errors.Is(err, down) {
		t.Errorf("got %v, want the counter's error", err)
	}
}

func TestPromptsAreNeverServedFromACache(t *testing.T) {
	seen := make(map[string]string)
	for _, salt := range []string{"a", "b"} {
		for _, context := range []int32{8192, 16384} {
			for sample := range 3 {
				s := Draft(Spec{Seed: 1, Salt: salt, Context: context, Sample: sample}, 100)
				name := fmt.Sprint(salt, context, sample)
				if other, ok := seen[s[:8]]; ok {
					t.Errorf("%s and %s begin with the same %q", name, other, s[:8])
				}
				seen[s[:8]] = name
			}
		}
	}
}

func TestPromptsAreRebuilt(t *testing.T) {
	f := counters()["BPE"]
	calls := 0
	spec := Spec{Seed: 3, Salt: "0123", Context: 4096}
	a, err1 := Build(t.Context(), counter(f, &calls), spec, 4096)
	b, err2 := Build(t.Context(), counter(f, &calls), spec, 4096)
	if err1 != nil || err2 != nil || a != b {
		t.Errorf("the same spec gave two prompts (errors %v, %v)", err1, err2)
	}
	// The text of a version is frozen: a change needs a new Version.
	sum := sha256.Sum256([]byte(Draft(Spec{Seed: 42, Salt: "00ff", Context: 8192, Sample: 1}, 5000)))
	if got, want := hex.EncodeToString(sum[:8]), "69a733a36cafcab0"; got != want {
		t.Errorf("the text of %s changed: hash %s, want %s", Version, got, want)
	}
}

func TestTextIsVaried(t *testing.T) {
	lines := make(map[string]int)
	for s := range strings.SplitSeq(string(newText(5).words(50000)), ".") {
		lines[strings.TrimSpace(s)]++
	}
	if most := slices.Max(slices.Collect(maps.Values(lines))); most > 3 {
		t.Errorf("one sentence occurs %d times in 50,000 words, want hardly any twice", most)
	}
}

func TestSetID(t *testing.T) {
	a := SetID(Version, 1, []int32{8192, 16384})
	if len(a) != 16 || a != SetID(Version, 1, []int32{8192, 16384}) {
		t.Errorf("SetID = %q, want 16 digits, always the same", a)
	}
	for _, b := range []string{SetID("prompt/0", 1, []int32{8192, 16384}), SetID(Version, 2, []int32{8192, 16384}), SetID(Version, 1, []int32{8192})} {
		if a == b {
			t.Errorf("SetID %q for two different sets", a)
		}
	}
}

func TestNewSalt(t *testing.T) {
	if s, err := NewSalt(strings.NewReader("0123456789abcdef")); err != nil || s != "30313233343536373839616263646566" {
		t.Errorf("NewSalt = %q, %v", s, err)
	}
	if _, err := NewSalt(strings.NewReader("short")); err == nil {
		t.Error("NewSalt of too little randomness: no error")
	}
}

func TestEstimator(t *testing.T) {
	for name, f := range counters() {
		t.Run(name, func(t *testing.T) {
			asked := make(map[string]bool)
			e := NewEstimator(func(_ context.Context, s string) (int, error) {
				if asked[s[:16]] {
					t.Errorf("the nonce %q was sent twice", s[:16])
				}
				asked[s[:16]] = true
				return f(s), nil
			})
			for _, target := range []int{300, 1024, 2048, 8192, 16384, 32768, 131072} {
				p, err := e.Build(t.Context(), Spec{Seed: 11, Salt: "s", Context: int32(target)}, target)
				if err != nil {
					t.Fatal(err)
				}
				if off := float64(f(p.Content)-target) / float64(target); off < -2*tolerance || off > 2*tolerance || target > 1024 && (off < -tolerance || off > tolerance) {
					t.Errorf("asked for %d tokens, got %d: %.2f %% off", target, f(p.Content), 100*off)
				}
				if asked[p.Content[:16]] {
					t.Errorf("the prompt of %d tokens was sent while estimating: it would be cached", target)
				}
			}
			t.Logf("%d observations", len(asked))
		})
	}
}

// Two prompts of nearly one length differ by what their nonces take.
func TestEstimatorWhenNoncesTakeDifferentNumbersOfTokens(t *testing.T) {
	for seed := range int64(60) {
		count := func(s string) int { return len(s)/4 + int(fnvOf(s[:16], seed)%9) }
		e := NewEstimator(func(_ context.Context, s string) (int, error) { return count(s), nil })
		for _, target := range []int{310, 387, 420, 1000} {
			p, err := e.Build(t.Context(), Spec{Seed: seed, Salt: "s", Context: int32(target)}, target)
			if err != nil {
				t.Errorf("seed %d, %d tokens: %v", seed, target, err)
			} else if off := count(p.Content) - target; off < -20 || off > 20 {
				t.Errorf("seed %d: asked for %d tokens, got %d", seed, target, count(p.Content))
			}
		}
	}
}

func fnvOf(s string, seed int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s, seed)
	return h.Sum64()
}

func TestEstimatorOnAShortServer(t *testing.T) {
	full := errors.New("maximum context length is 2048 tokens")
	e := NewEstimator(func(_ context.Context, s string) (int, error) {
		if n := len(strings.Fields(s)) + 6; n < 2048 {
			return n, nil
		}
		return 0, full
	})
	p, err := e.Build(t.Context(), Spec{}, 2000)
	if n := len(strings.Fields(p.Content)) + 6; err != nil || n < 1990 || n > 2010 {
		t.Errorf("got %d tokens, error %v, want 2000", n, err)
	}
	if _, err := NewEstimator(func(context.Context, string) (int, error) { return 0, full }).Build(t.Context(), Spec{}, 2000); !errors.Is(err, full) {
		t.Errorf("a server that refuses everything: got %v, want its error", err)
	}
}

func TestCalibrateRefuses(t *testing.T) {
	for name, seen := range map[string][]Observation{
		"nothing":                {},
		"one length":             {{100, 20}, {100, 21}},
		"no growth":              {{100, 20}, {200, 20}},
		"a fall":                 {{100, 20}, {200, 40}, {300, 30}},
		"negative token numbers": {{100, -20}, {200, 40}},
	} {
		if c, err := Calibrate(seen); err == nil {
			t.Errorf("%s: got %v, want an error", name, c)
		}
	}
	c, err := Calibrate([]Observation{{300, 70}, {100, 20}, {200, 40}})
	if err != nil {
		t.Fatal(err)
	}
	for chars, want := range map[int]int{100: 20, 150: 30, 250: 55, 300: 70, 400: 95, 0: 0, 60: 10} {
		if got := c.Tokens(chars); got != want {
			t.Errorf("Tokens(%d) = %d, want %d", chars, got, want)
		}
	}
}

func FuzzBuild(f *testing.F) {
	f.Add(int64(1), "salt", 700, uint8(3))
	f.Add(int64(-5), "", 0, uint8(0))
	f.Add(int64(9), "x", 5000, uint8(250))
	f.Fuzz(func(t *testing.T, seed int64, salt string, target int, odd uint8) {
		if target > 20000 {
			t.Skip("long prompts only take longer")
		}
		// A tokenizer with a whim: some lengths cost or save tokens.
		count := func(_ context.Context, s string) (int, error) {
			return len(s)/(1+int(odd)%5) + len(s)*int(odd)%7, nil
		}
		p, err := Build(t.Context(), count, Spec{Seed: seed, Salt: salt}, target)
		if err != nil {
			return
		}
		n, _ := count(t.Context(), p.Content)
		if n != p.Tokens || n > target || float64(target-n) > tolerance*float64(target) || (n == target) != (p.Note == "") {
			t.Errorf("%d tokens (counted %d), note %q, want %d or at most 0.5 %% less", p.Tokens, n, p.Note, target)
		}
	})
}

func BenchmarkBuild256K(b *testing.B) {
	f := func(_ context.Context, s string) (int, error) { return len(s) / 4, nil }
	for b.Loop() {
		if _, err := Build(b.Context(), f, Spec{}, 262144); err != nil {
			b.Fatal(err)
		}
	}
}
