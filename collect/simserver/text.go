package simserver

import (
	"math/rand/v2"
	"unicode/utf8"
)

// A textPlan is everything that decides the tokens of one output.
type textPlan struct {
	key      uint64  // of the random stream
	nonASCII float64 // share of foreign words
	empty    float64 // share of tokens without text
	end      int     // the output token that is EOS, counted from 1, and every end-th after it; 0 means none
	thinking int     // tokens of thinking before the answer; 0 means that there is no reasoning parser
	tool     bool    // the answer is a tool call
	after    int     // tokens before repetition can begin; 0 means never
	period   int     // tokens that are repeated
	split    bool    // characters are not held back until they are whole
}

// toolPreamble is how many tokens the beginning of a tool call takes; the
// parser swallows their text.
const toolPreamble = 4

// A generator makes the text of one output, token by token.
type generator struct {
	plan    textPlan
	rng     *rand.Rand
	scratch []byte  // the sentence being written
	queue   []int32 // tokens of it that are still to come
	left    int     // sentences left in the paragraph

	n        int     // tokens made so far
	thought  int     // of these, thinking
	tail     []int32 // the last plan.period tokens, as a ring, kept until they are repeated
	looping  bool    // set by the engine once the output repeats
	held     []byte  // bytes of a character that is not whole yet
	toolText bool    // the tool call's arguments have begun

	// The delta made by the last call of next, valid until the next call.
	reasoning, content []byte
	ids                []int32
	toolHead           bool // the tool call began in this delta
}

func newGenerator(p textPlan) *generator {
	g := &generator{plan: p, rng: rand.New(rand.NewPCG(p.key, 0x73696d))}
	if p.after > 0 {
		g.tail = make([]int32, p.period)
	}
	return g
}

// next makes the next n tokens and leaves their text in g.reasoning and
// g.content, their ids in g.ids.
func (g *generator) next(n int) {
	g.reasoning, g.content, g.ids, g.toolHead = g.reasoning[:0], g.content[:0], g.ids[:0], false
	for range n {
		id := g.token()
		g.ids = append(g.ids, id)
		answer := g.n - g.plan.thinking
		if g.plan.thinking > 0 {
			answer-- // the token that ends thinking
		}
		g.n++
		if g.n <= g.plan.thinking {
			g.thought++
			g.reasoning = g.text(g.reasoning, id)
			continue
		}
		if g.plan.tool && answer >= 0 && answer < toolPreamble {
			g.toolHead = g.toolHead || answer == toolPreamble-1
			continue
		}
		g.content = g.text(g.content, id)
	}
}

// token makes one token id.
func (g *generator) token() int32 {
	i := g.n
	if g.looping && i >= g.plan.after {
		return g.tail[i%g.plan.period]
	}
	var id int32
	switch {
	case g.plan.thinking > 0 && i == g.plan.thinking:
		id = tokenThinkEnd
	case g.plan.end > 0 && (i+1)%g.plan.end == 0:
		id = tokenEOS
	case g.plan.empty > 0 && g.rng.Float64() < g.plan.empty:
		id = tokenPad
	default:
		if len(g.queue) == 0 {
			g.sentence()
		}
		id, g.queue = g.queue[0], g.queue[1:]
	}
	if i < g.plan.after {
		g.tail[i%g.plan.period] = id
	}
	return id
}

// text appends a token's text, holding back a character until its last byte
// has come, as a detokenizer does.
func (g *generator) text(dst []byte, id int32) []byte {
	if g.plan.split {
		return appendTokenText(dst, id)
	}
	if id >= tokenPieces || id < utf8.RuneSelf {
		return appendTokenText(dst, id)
	}
	g.held = appendTokenText(g.held, id)
	if utf8.FullRune(g.held) {
		// A repetition can begin inside a character; then this is U+FFFD.
		r, _ := utf8.DecodeRune(g.held)
		dst = utf8.AppendRune(dst, r)
		g.held = g.held[:0]
	}
	return dst
}

// sentence refills the queue. Each sentence has some sixty bits of choice in
// it, so that no two stretches of text are alike.
func (g *generator) sentence() {
	pick := func(list []string) string { return list[g.rng.IntN(len(list))] }
	b := g.scratch[:0]
	word := func(w string) { b = append(append(b, ' '), w...) }
	phrase := func() {
		word(pick(determiners))
		if g.rng.IntN(3) > 0 {
			word(pick(adjectives))
		}
		if g.plan.nonASCII > 0 && g.rng.Float64() < 3*g.plan.nonASCII {
			word(pick(foreign))
		}
		word(pick(nouns))
	}
	clause := func() {
		phrase()
		if g.rng.IntN(4) == 0 {
			word(pick(adverbs))
		}
		word(pick(verbs))
		phrase()
		if g.rng.IntN(2) == 0 {
			word(pick(prepositions))
			phrase()
		}
	}
	if g.rng.IntN(5) == 0 {
		word(pick(openers))
		b = append(b, ',')
	}
	clause()
	switch g.rng.IntN(6) {
	case 0, 1:
		b = append(b, ',')
		word(pick(connectives))
		clause()
	case 2:
		word("in")
		word(string([]byte{'1', byte('5' + g.rng.IntN(5)), byte('0' + g.rng.IntN(10)), byte('0' + g.rng.IntN(10))}))
	}
	b = append(b, '.')
	if b[1] >= 'a' && b[1] <= 'z' {
		b[1] -= 'a' - 'A'
	}
	if g.left--; g.left < 0 { // a new paragraph
		g.left = 3 + g.rng.IntN(4)
		if g.n > 0 {
			b = append(append([]byte{}, '\n', '\n'), b[1:]...)
		} else {
			b = b[1:]
		}
	}
	g.scratch = b
	g.queue = appendTokens(g.queue[:0], b)
}
