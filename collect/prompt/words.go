package prompt

import (
	"math/bits"
	"math/rand/v2"
	"strings"
)

// Word lists of the text. A change of any of them, of their order or of the
// sentence patterns changes every prompt: it needs a new Version.
const (
	nouns = `harbour window teacher garden engine letter bridge river captain market
		village kitchen winter summer morning evening doctor painter farmer sailor
		ladder barrel candle basket blanket bottle button carpet ceiling chimney
		cottage island valley forest meadow mountain desert orchard stable workshop
		library museum theatre station platform carriage wagon bicycle lantern mirror
		hammer needle anchor compass telescope clock calendar ledger map picture
		story poem song rumour question answer promise secret debt wage
		storm cloud shadow silence echo whisper accident journey errand holiday
		neighbour cousin uncle widow apprentice clerk judge soldier miller baker
		horse goat sparrow heron otter badger salmon beetle oak willow
		road tunnel fence gate cellar roof tower wall well pond`
	adjectives = `old quiet narrow broken golden distant heavy patient careful sudden
		empty crowded muddy polished crooked gentle stubborn curious familiar foreign
		northern southern wooden copper silver grey green crimson pale dark
		early late slow quick honest clever lonely cheerful weary proud
		shallow deep steep smooth rough damp dry frozen warm bright`
	verbs = `carried painted repaired followed counted measured forgot remembered opened closed
		crossed watched borrowed returned copied answered explained ignored visited avoided
		built moved lifted dropped traded mended sold bought described admired
		guarded searched emptied filled covered cleaned warmed found lost kept`
	adverbs = `slowly quietly often rarely suddenly carefully gladly nearly always never
		afterwards meanwhile alone together twice again early patiently by chance in secret`
	places = `behind the mill|near the old quay|across the square|under the stairs|beyond the hills|
		beside the canal|above the bakery|along the coast road|outside the town|at the edge of the wood|
		in the upper room|on the far bank|between two fences|by the lighthouse|inside the chapel`
	times = `After the flood|Before sunrise|In the third year|During the long frost|On market day|
		When the bells rang|Towards the end of autumn|One Tuesday|That same week|Many years later|
		At low tide|Without any warning|As usual|For a whole month|Just before the harvest`
	joints = `because|although|while|until|so that|and yet|as soon as|since`
	preps  = `of|with|without|from|for|beside|against|under`
)

// text is English-like prose that grows at its end. Its first n words are
// the same however far it has grown.
type text struct {
	rng   *rand.PCG
	lists map[byte][]string
	buf   []byte
	ends  []int // ends[i] is the length in bytes of the first i+1 words
}

// patterns are sentences: d for a determiner, a for an adjective, n, v, b
// (adverb), p (place), t (time), j (joint), r (preposition), "," a comma.
func patterns() []string {
	return []string{
		"danvdn", "dnvdanp", "t,dnvdn", "danrdnvdn", "dnbvdan", "t,danbvdnp",
		"dnvdnjdnvdan", "danvdn,jdnbvdn", "pdnvdan", "dnrdanvdnp", "dnvdnrdn,jdanvdnp",
	}
}

func newText(seed int64) *text {
	return &text{
		// PCG is a specified generator: its values are the same for ever.
		rng: rand.NewPCG(uint64(seed), 0x7370656564),
		lists: map[byte][]string{
			'n': strings.Fields(nouns), 'a': strings.Fields(adjectives), 'v': strings.Fields(verbs),
			'b': strings.Fields(strings.ReplaceAll(strings.ReplaceAll(adverbs, "by chance", "by_chance"), "in secret", "in_secret")),
			'p': phrases(places), 't': phrases(times), 'j': phrases(joints), 'r': phrases(preps),
			'd': strings.Fields("the the the a one this that every her his their our"),
		},
	}
}

func phrases(s string) []string {
	list := strings.Split(s, "|")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// words returns the first n words.
func (t *text) words(n int) []byte {
	for len(t.ends) < n {
		t.paragraph()
	}
	if n <= 0 {
		return nil
	}
	return t.buf[:t.ends[n-1]]
}

func (t *text) below(n int) int {
	high, _ := bits.Mul64(t.rng.Uint64(), uint64(n))
	return int(high)
}

func (t *text) paragraph() {
	all := patterns()
	for i, n := 0, 3+t.below(5); i < n; i++ {
		start := " "
		if i == 0 {
			start = "\n\n"
		}
		t.sentence(all[t.below(len(all))], start)
	}
}

func (t *text) sentence(pattern, start string) {
	before, first := start, true
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == ',' {
			t.buf = append(t.buf, ',')
			t.ends[len(t.ends)-1]++
			continue
		}
		list := t.lists[pattern[i]]
		for word := range strings.FieldsSeq(strings.ReplaceAll(list[t.below(len(list))], "_", " ")) {
			if first {
				word = strings.ToUpper(word[:1]) + word[1:]
			}
			t.buf = append(append(t.buf, before...), word...)
			t.ends = append(t.ends, len(t.buf))
			before, first = " ", false
		}
	}
	t.buf = append(t.buf, '.')
	t.ends[len(t.ends)-1]++
}
