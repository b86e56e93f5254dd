package prompt

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Version names the generator: word lists, sentence patterns, frame and
// nonce. Prompts of one version, seed and salt are the same for ever.
const Version = "prompt/1"

// The task is last, so that its answer is long whatever the text was.
const (
	longTask = "The passages above are background only. Now write a long, continuous chronicle of a small coastal town over one hundred years. " +
		"Describe its people, trades, buildings, weather, journeys and quarrels in full sentences, give every decade several chapters of its own, " +
		"never summarise, never repeat an earlier sentence, and do not stop before the hundredth year."
	briefTask = "Write a very long story."
)

// A Spec says which prompt is meant.
type Spec struct {
	Seed    int64  // of the text; the same text for the same seed
	Salt    string // new for every run, see NewSalt
	Context int32  // planned context in tokens
	Sample  int    // tells prompts of one context apart: each has its own nonce
}

// A Prompt is the content of the one user message of a chat request.
type Prompt struct {
	Content string
	Tokens  int    // as counted, after the chat template
	Note    string // "" where Tokens is the target; else what stands in the way, in words
}

// A Counter returns how many tokens a chat request has whose only message
// is a user message with this content, chat template included.
type Counter func(ctx context.Context, content string) (int, error)

// NewSalt reads a salt of 128 bits from r, which must be a source of
// randomness, and returns it as 32 hexadecimal digits.
func NewSalt(r io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return "", fmt.Errorf("read random salt: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// SetID returns the identity of a prompt set, 16 hexadecimal digits. Two
// runs with the same identity measured the same texts; the nonces differ,
// as they must. The order of contexts counts: give them ascending.
func SetID(version string, seed int64, contexts []int32) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", version, seed, contexts))
	return hex.EncodeToString(sum[:8])
}

// nonce returns 16 letters and digits that stand at the very beginning of
// the prompt, so that not even the first block of a prefix cache is shared.
func (s Spec) nonce() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%d", Version, s.Salt, s.Seed, s.Context, s.Sample))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// A draft is a prompt that can be made longer and shorter.
type draft struct {
	nonce, task string
	text        *text
}

func (d *draft) content(words int, filler string) string {
	body := d.text.words(words)
	var b strings.Builder
	b.Grow(len(d.nonce) + len(body) + len(filler) + len(d.task) + 16)
	b.WriteString(d.nonce)
	b.WriteString(": reading notes.")
	b.Write(body)
	b.WriteString(filler)
	b.WriteString("\n\n")
	b.WriteString(d.task)
	return b.String()
}

// Draft returns the content with the given number of words of text, of no
// particular length in tokens: what Calibrate's observations are made with.
func Draft(spec Spec, words int) string {
	d := draft{nonce: spec.nonce(), task: longTask, text: newText(spec.Seed)}
	return d.content(words, "")
}

// Limits of the search. A count of a long prompt takes a server a second.
const (
	maxCounts = 64
	maxFiller = 48    // tokens at most that are left to fillers
	tolerance = 0.005 // share of the target that a prompt may be short
)

// errGiveUp ends the search: no more counts.
var errGiveUp = errors.New("too many counts")

// Build returns the prompt of the given length in tokens. It cuts the text
// at a word and fills up with single short words; for a tokenizer of any
// usual kind some ten counts find the exact length. Where none can be found
// the prompt is the longest found that is not too long and at most 0.5 %
// short, with a Note; it is an error if there is none. A prompt is never
// longer than the target, because the server might refuse it.
func Build(ctx context.Context, count Counter, spec Spec, target int) (Prompt, error) {
	s := &search{ctx: ctx, count: count, target: target}
	s.draft = draft{nonce: spec.nonce(), task: longTask, text: newText(spec.Seed)}
	err := s.run()
	switch {
	case err != nil && !errors.Is(err, errGiveUp):
		return Prompt{}, fmt.Errorf("build prompt of %d tokens: %w", target, err)
	case s.best.Content == "" || float64(target-s.best.Tokens) > tolerance*float64(target):
		return Prompt{}, fmt.Errorf("build prompt of %d tokens: after %d counts the nearest that is not longer has %d tokens", target, s.counts, s.best.Tokens)
	case s.best.Tokens < target:
		s.best.Note = fmt.Sprintf("the prompt has %d tokens instead of %d: the server's tokenizer does not give the exact number", s.best.Tokens, target)
	}
	return s.best, nil
}

type search struct {
	ctx    context.Context
	count  Counter
	target int
	draft  draft
	counts int
	best   Prompt // longest so far that is not longer than the target
}

// short returns how many tokens the content lacks; negative when it has too
// many. Zero ends the search for every caller.
func (s *search) short(words int, filler string) (int, error) {
	if s.counts == maxCounts {
		return 0, errGiveUp
	}
	s.counts++
	content := s.draft.content(words, filler)
	n, err := s.count(s.ctx, content)
	if err != nil {
		return 0, fmt.Errorf("count tokens: %w", err)
	}
	if n <= s.target && (s.best.Content == "" || n > s.best.Tokens) {
		s.best = Prompt{Content: content, Tokens: n}
	}
	return s.target - n, nil
}

func (s *search) run() error {
	base, err := s.short(0, "")
	if err == nil && base < 0 {
		s.draft.task = briefTask
		if base, err = s.short(0, ""); err == nil && base < 0 {
			return fmt.Errorf("the shortest prompt has %d tokens", s.target-base)
		}
	}
	if err != nil || base == 0 {
		return err
	}
	words, short, err := s.coarse(base)
	for drop := 1; err == nil && short != 0; drop++ {
		if short > 0 {
			if short, err = s.fill(words, short); err != nil || short == 0 {
				break
			}
		}
		// No filler fits behind this word; try behind an earlier one.
		if words -= drop; words < 0 {
			break
		}
		short, err = s.short(words, "")
	}
	return err
}

// coarse finds a number of words that leaves 0 to maxFiller tokens, coming
// from below: base is what the prompt without text lacks.
func (s *search) coarse(base int) (words, short int, err error) {
	words = min(4000, max(1, base/8))
	if short, err = s.short(words, ""); err != nil {
		return 0, 0, err
	}
	rate := 1.3 // tokens per word, where the first words do not tell
	if gain := float64(base - short); gain > 0 {
		rate = gain / float64(words)
	}
	for first := true; short < 0 || short > maxFiller; first = false {
		// The number of tokens of the words to add is a sum of many that
		// vary: aim below by what that makes likely.
		left := math.Abs(float64(short))
		slack := 3*math.Sqrt(left) + 6
		if first {
			slack += left / 64 // the rate itself is a first guess
		}
		step := int((float64(short) - slack) / rate)
		if step == 0 {
			step = 1
			if short < 0 {
				step = -1
			}
		}
		next := max(0, words+step)
		if next == words {
			return words, short, nil
		}
		before := short
		if short, err = s.short(next, ""); err != nil {
			return 0, 0, err
		}
		r := float64(before-short) / float64(next-words)
		if r > 0 {
			rate = r
		} else if next-words >= 1000 {
			return 0, 0, fmt.Errorf("the count stays at %d tokens when %d words are added", s.target-short, next-words)
		}
		words = next
	}
	return words, short, nil
}

// fillers are pieces that add one token each with most tokenizers: short
// words for those that work on words, and letters and marks for those that
// work on bytes or on a few characters. Neighbours differ, so that they
// don't merge.
func fillers() [][]string {
	return [][]string{
		{" and", " so", " then", " but", " now", " or", " yet"},
		{" a", " I", " x", " b", " z", " c"},
		{"x", "q", "j", "z", "v"},
		{",", ";", ".", "!", "?"},
	}
}

// fill adds fillers behind the given words, which lack short tokens, until
// nothing is lacking; it returns what still is.
func (s *search) fill(words, short int) (int, error) {
	filler := ""
	for _, pieces := range fillers() {
		used := 0
		n, none, many := short, 0, math.MaxInt // none add nothing, many too much
		for short > 0 && none < n && n < many {
			longer := filler
			for i := range n {
				longer += pieces[(used+i)%len(pieces)]
			}
			now, err := s.short(words, longer)
			if err != nil || now == 0 {
				return now, err
			}
			switch gain := short - now; {
			case now < 0:
				many = n
				n = min(n-1, pieceCount(short, gain, n))
			case gain <= 0: // merged with what stands before; a few more may not
				none = n
				if n *= 2; n > 16 {
					n = none
				}
			default:
				filler, used, short = longer, used+n, now
				n, none, many = pieceCount(short, gain, n), 0, math.MaxInt
			}
		}
	}
	return short, nil
}

// pieceCount returns how many pieces add short tokens, at least 1, when n
// of them added gain.
func pieceCount(short, gain, n int) int {
	return max(1, min(4*maxFiller, short*n/gain))
}
