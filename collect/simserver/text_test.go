package simserver

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// produce runs a generator over n tokens, step tokens at a time.
func produce(p textPlan, n, step int, looping bool) (reasoning, content string, ids []int32) {
	g := newGenerator(p)
	g.looping = looping
	var r, c []byte
	for n > 0 {
		k := min(step, n)
		g.next(k)
		n -= k
		r, c, ids = append(r, g.reasoning...), append(c, g.content...), append(ids, g.ids...)
	}
	return string(r), string(c), ids
}

// longestRepeat returns the longest suffix of s that repeats with a period
// of at most maxPeriod characters, in at least four cycles, over all ends
// that are a multiple of 2048. It is the loop rule without its lower bound.
func longestRepeat(s string, maxPeriod int) int {
	r := []rune(s)
	longest := 0
	for end := 2048; end <= len(r); end += 2048 {
		// The prefix function of the reversed text: a border of length b in
		// the first n characters is a period of n - b.
		n := min(end, 4*maxPeriod)
		fail := make([]int, n)
		for i := 1; i < n; i++ {
			k := fail[i-1]
			for k > 0 && r[end-1-i] != r[end-1-k] {
				k = fail[k-1]
			}
			if r[end-1-i] == r[end-1-k] {
				k++
			}
			fail[i] = k
			if period := i + 1 - k; period <= maxPeriod && (i+1)/period >= 4 {
				longest = max(longest, i+1)
			}
		}
	}
	return longest
}

func TestTextDoesNotRepeat(t *testing.T) {
	for seed := range uint64(4) {
		_, text, _ := produce(textPlan{key: seed, nonASCII: 0.05}, 30000, 1, false)
		if n := utf8.RuneCountInString(text); n < 60000 {
			t.Fatalf("seed %d: got %d characters from 30000 tokens, want a natural ratio", seed, n)
		}
		if got := longestRepeat(text, 32768); got > 64 {
			t.Errorf("seed %d: %d characters repeat in four cycles, want at most a few", seed, got)
		}
	}
}

func TestLoopRepeats(t *testing.T) {
	p := textPlan{key: 3, after: 300, period: 48}
	_, text, ids := produce(p, 3000, 3, true)
	for i := 300; i < len(ids); i++ {
		if ids[i] != ids[i-48] {
			t.Fatalf("token %d is %d, want that of a period before, %d", i, ids[i], ids[i-48])
		}
	}
	if got := longestRepeat(text, 32768); got < 4096 {
		t.Errorf("%d characters repeat, want at least 4096", got)
	}
	_, _, straight := produce(p, 3000, 3, false)
	for i := range 300 {
		if ids[i] != straight[i] {
			t.Fatalf("token %d differs before the repetition begins", i)
		}
	}
}

func TestTextIsTheSameInAnyStepSize(t *testing.T) {
	p := textPlan{key: 9, nonASCII: 0.3, empty: 0.1, thinking: 40, end: 333}
	r1, c1, ids1 := produce(p, 1000, 1, false)
	r7, c7, ids7 := produce(p, 1000, 7, false)
	if r1 != r7 || c1 != c7 || fmt.Sprint(ids1) != fmt.Sprint(ids7) {
		t.Error("text or tokens depend on how many are made at once")
	}
	other := p
	other.key++
	if _, c, _ := produce(other, 1000, 1, false); c == c1 {
		t.Error("two seeds give one text")
	}
}

func TestReasoningThenAnswer(t *testing.T) {
	g := newGenerator(textPlan{key: 1, thinking: 10})
	g.next(10)
	if len(g.reasoning) == 0 || len(g.content) != 0 || g.thought != 10 {
		t.Errorf("first 10 tokens: %q thought, %q said, %d counted; want thought only", g.reasoning, g.content, g.thought)
	}
	g.next(1)
	if len(g.reasoning)+len(g.content) != 0 || g.ids[0] != tokenThinkEnd {
		t.Errorf("token 11: got %q, %q, id %d; want the end of thinking without text", g.reasoning, g.content, g.ids[0])
	}
	g.next(5)
	if len(g.reasoning) != 0 || len(g.content) == 0 || g.thought != 10 {
		t.Errorf("tokens after thinking: %q thought, %q said, %d counted; want an answer", g.reasoning, g.content, g.thought)
	}
}

func TestCharactersAreHeldUntilWhole(t *testing.T) {
	p := textPlan{key: 5, nonASCII: 1}
	g := newGenerator(p)
	empty, foreign := 0, 0
	for range 2000 {
		g.next(1)
		if !utf8.Valid(g.content) {
			t.Fatalf("token %d: text %q is not UTF-8", g.n, g.content)
		}
		if len(g.content) == 0 {
			empty++
		}
		if r, n := utf8.DecodeRune(g.content); n > 1 && r != utf8.RuneError {
			foreign++
		}
	}
	if empty == 0 || foreign == 0 {
		t.Errorf("got %d tokens without text and %d with a whole character, want some of both", empty, foreign)
	}

	p.split = true
	_, cut, _ := produce(p, 2000, 1, false)
	_, whole, _ := produce(textPlan{key: 5, nonASCII: 1}, 2000, 1, false)
	if !strings.HasPrefix(cut, whole) {
		t.Error("cut characters do not add up to the text")
	}
	g, broken := newGenerator(p), 0
	for range 2000 {
		if g.next(1); !utf8.Valid(g.content) {
			broken++
		}
	}
	if broken == 0 {
		t.Error("with split, every chunk is UTF-8; want some that are not")
	}
}

func TestEndOfAnswerIsAToken(t *testing.T) {
	_, _, ids := produce(textPlan{key: 2, end: 50}, 120, 1, false)
	for i, id := range ids {
		if want := (i+1)%50 == 0; (id == tokenEOS) != want {
			t.Errorf("token %d: got id %d, want EOS to be %v", i, id, want)
		}
	}
}

func TestTokenizer(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int
	}{
		{"", 0},
		{"a", 1},
		{"word", 1},
		{"words", 2},
		{" word", 1},
		{"  word", 2},
		{"one two", 2},
		{"1234", 4},
		{"é", 2},
		{"🙂", 4},
		{"\n\n", 2},
		{"Hello, world!", 6},
		{"\xff\x00", 2},
		{" ", 1},
	} {
		ids := appendTokens(nil, tt.text)
		if len(ids) != tt.want {
			t.Errorf("%q: got %d tokens %v, want %d", tt.text, len(ids), ids, tt.want)
		}
	}
}

func FuzzTokenizerIsReversible(f *testing.F) {
	for _, s := range []string{"", "The narrow harbour.", "é🙂\xff", "  Zz zzzzz", strings.Repeat("a", 100)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got []byte
		for _, id := range appendTokens(nil, text) {
			if id < 0 || id >= tokenLimit || id >= 256 && id < tokenPieces {
				t.Fatalf("%q: id %d is outside the vocabulary", text, id)
			}
			got = appendTokenText(got, id)
		}
		if !bytes.Equal(got, text) {
			t.Fatalf("got %q back, want %q", got, text)
		}
	})
}

func TestGeneratedTokensAreThoseOfTheirText(t *testing.T) {
	_, text, ids := produce(textPlan{key: 4, nonASCII: 0.1}, 5000, 1, false)
	again := appendTokens(nil, text)
	// The last character may be incomplete.
	n := len(again)
	if n < len(ids)-4 || fmt.Sprint(again) != fmt.Sprint(ids[:n]) {
		t.Errorf("tokenizing the text gives %d other tokens than the %d it was made of", n, len(ids))
	}
}
