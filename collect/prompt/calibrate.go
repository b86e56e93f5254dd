package prompt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"unicode/utf8"
)

// An Observation is what a server without /tokenize told about one prompt:
// the length of its content in code points, and usage.prompt_tokens.
type Observation struct {
	Chars  int
	Tokens int
}

// Observe pairs a content with the server's count of it.
func Observe(content string, promptTokens int) Observation {
	return Observation{Chars: utf8.RuneCountInString(content), Tokens: promptTokens}
}

// A Calibration estimates token counts from lengths. The text of a seed is
// the same for all contexts, so between two observations the estimate is
// nearly exact; beyond the longest it goes on at the average rate.
type Calibration struct {
	points []Observation // by ascending length, no length twice
}

// Calibrate makes a calibration of observations of prompts of one seed, in
// any order; of several of one length the last counts. It needs two lengths,
// and more characters must have had more tokens.
func Calibrate(observations []Observation) (Calibration, error) {
	var points []Observation
	for _, o := range observations {
		if i := slices.IndexFunc(points, func(p Observation) bool { return p.Chars == o.Chars }); i >= 0 {
			points[i] = o
		} else {
			points = append(points, o)
		}
	}
	slices.SortFunc(points, func(a, b Observation) int { return cmp.Compare(a.Chars, b.Chars) })
	if len(points) < 2 {
		return Calibration{}, errors.New("calibrate token counts: need observations of two lengths")
	}
	for i, p := range points {
		if p.Chars < 0 || p.Tokens < 0 || i > 0 && p.Tokens <= points[i-1].Tokens {
			return Calibration{}, errors.New("calibrate token counts: longer prompts did not have more tokens")
		}
	}
	return Calibration{points: points}, nil
}

// Tokens returns the estimate for a content of the given length.
func (c Calibration) Tokens(chars int) int {
	last := len(c.points) - 1
	a, b := c.points[0], c.points[last] // beyond the ends: the average rate
	from := a
	if chars > b.Chars {
		from = b
	}
	for i := 1; i <= last; i++ {
		if chars >= c.points[i-1].Chars && chars <= c.points[i].Chars {
			a, b = c.points[i-1], c.points[i]
			from = a
			break
		}
	}
	rate := float64(b.Tokens-a.Tokens) / float64(b.Chars-a.Chars)
	return max(0, int(math.Round(float64(from.Tokens)+rate*float64(chars-from.Chars))))
}

// Build returns the prompt whose estimated length is the longest that is not
// more than target. Its Tokens are the estimate.
func (c Calibration) Build(spec Spec, target int) (Prompt, error) {
	d := draft{nonce: spec.nonce(), task: longTask, text: newText(spec.Seed)}
	if c.Tokens(len(d.content(0, ""))) > target {
		d.task = briefTask
	}
	// All of a draft is ASCII: its bytes are its code points.
	fixed := len(d.content(0, ""))
	if least := c.Tokens(fixed); least > target {
		return Prompt{}, fmt.Errorf("build prompt of %d tokens: the shortest prompt has about %d", target, least)
	}
	fits := func(words int) bool { return c.Tokens(fixed+len(d.text.words(words))) <= target }
	high := 1
	for fits(high) {
		high *= 2
	}
	words := sort.Search(high, func(n int) bool { return !fits(n) }) - 1
	content := d.content(words, "")
	return Prompt{Content: content, Tokens: c.Tokens(len(content))}, nil
}

// An Estimator builds prompts for a server without /tokenize. It asks for
// the length of a few drafts, and of a twin of each short prompt; what it
// was told serves all later prompts. It is not for concurrent use.
type Estimator struct {
	observe Counter
	seen    []Observation
	drafted int // words of the longest draft; 0 before the first
	twins   int // nonces used
}

// NewEstimator returns an estimator that learns from observe, which sends a
// chat request with the content for one token of output and returns its
// usage.prompt_tokens. The contents have nonces of their own, so that no
// prompt of the run gets into the server's cache by it.
func NewEstimator(observe Counter) *Estimator { return &Estimator{observe: observe} }

const (
	firstDraft = 150   // words
	lastDraft  = 20000 // words: longer prompts are told by the rate
	maxTwin    = 16384 // tokens: a longer twin would cost more than it tells
	twinSample = -1 << 20
)

// Build returns the prompt of the given length in tokens by estimate, for
// which a twin of up to 16,384 tokens was within 0.5 % by the server's own
// count. Where none was, the prompt has a Note. The count that the server
// then reports for the prompt itself belongs into the run log.
func (e *Estimator) Build(ctx context.Context, spec Spec, target int) (Prompt, error) {
	twin := spec
	twin.Sample = twinSample - e.twins
	for len(e.seen) < 2 || e.seen[len(e.seen)-1].Tokens < target && e.drafted < lastDraft {
		words := max(firstDraft, e.drafted*3/2)
		content := Draft(twin, words)
		twin.Sample, e.twins = twin.Sample-1, e.twins+1
		n, err := e.observe(ctx, content)
		if err != nil {
			if len(e.seen) >= 2 && ctx.Err() == nil {
				e.drafted = lastDraft // the server takes no longer ones
				break
			}
			return Prompt{}, fmt.Errorf("observe prompt tokens: %w", err)
		}
		e.seen, e.drafted = append(e.seen, Observe(content, n)), words
	}
	for try := 0; ; try++ {
		c, err := Calibrate(e.seen)
		if err != nil {
			return Prompt{}, err
		}
		p, err := c.Build(spec, target)
		if err != nil || target > maxTwin {
			return p, err
		}
		twin.Sample, e.twins = twin.Sample-1, e.twins+1
		mirror, err := c.Build(twin, target)
		if err != nil {
			return Prompt{}, err
		}
		n, err := e.observe(ctx, mirror.Content)
		if err != nil {
			return Prompt{}, fmt.Errorf("observe prompt tokens: %w", err)
		}
		if off := math.Abs(float64(n - target)); off <= tolerance*float64(target) || try == 3 {
			if off > tolerance*float64(target) {
				p.Note = fmt.Sprintf("a prompt like this one has %d tokens instead of %d", n, target)
			}
			p.Tokens = n
			return p, nil
		}
		e.learn(Observe(mirror.Content, n))
	}
}

// learn adds an observation of a twin. Its nonce may take a few tokens more
// or less than another's, so that of two prompts of nearly one length the
// longer may have had fewer tokens; then the newer one, which is nearer to
// what is looked for, replaces the older.
func (e *Estimator) learn(o Observation) {
	e.seen = slices.DeleteFunc(e.seen, func(p Observation) bool {
		return cmp.Compare(p.Chars, o.Chars) != cmp.Compare(p.Tokens, o.Tokens)
	})
	e.seen = append(e.seen, o)
}
