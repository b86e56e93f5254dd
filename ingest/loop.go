package ingest

import "unicode"

// loopLimits say what counts as a loop, in code points.
type loopLimits struct {
	maxPeriod int // longest period that is looked for
	minCycles int // whole cycles, at least 2
	minLength int // repeating code points
}

// longLoop and shortLoop are the limits of method/1. A period of a few
// characters that comes hundreds of times is a loop before it is 4,096
// characters long; from 16 characters on the second rule would find nothing
// that the first does not.
var (
	longLoop  = loopLimits{maxPeriod: 32768, minCycles: 4, minLength: 4096}
	shortLoop = loopLimits{maxPeriod: 16, minCycles: 256, minLength: 1024}
)

// need returns how many code points a loop of period p must have.
func (l loopLimits) need(p int) int { return max(l.minLength, l.minCycles*p) }

// A repetition is a stretch of a text that repeats itself exactly and can
// be extended neither way: text[i] == text[i+period] for all i with start ≤
// i and i+period < start+length.
type repetition struct{ start, length, period int }

// A loopFinder finds loops. It holds scratch space only.
type loopFinder struct{ z []int32 }

// findLoop returns the first loop of text: the smallest start, then the
// smallest period, among all maximal repetitions within the limits whose
// period is not all white space.
//
// It takes O(n log maxPeriod) time whatever the text is, and O(n) for text
// that does not repeat whole passages. Note: looking only at the end of the
// text, as streaming detectors do, would miss a loop that the model left
// again, and comparing every pair of positions is quadratic for "aaaa…".
//
// A text of one byte for each code point may come as bytes.
func findLoop[T rune | byte](f *loopFinder, text []T, lim loopLimits) (repetition, bool) {
	if len(text) < lim.need(1) || !mayRepeat(text, lim) {
		return repetition{}, false
	}
	best := repetition{start: len(text)}
	// Periods are looked for in ranges (lo, hi], each with its own spacing
	// of anchors: so close that every loop covers an anchor and a whole
	// period behind it, so wide that the work for all anchors is O(n).
	lo, hi := 0, min(max(1, lim.minLength/lim.minCycles), lim.maxPeriod)
	step := max(1, lim.minLength-hi)
	for {
		scanLoops(f, text, lim, lo, hi, step, &best)
		if hi == lim.maxPeriod {
			break
		}
		lo, hi = hi, min(2*hi, lim.maxPeriod)
		step = (lim.minCycles - 1) * lo
	}
	if best.start == len(text) {
		return repetition{}, false
	}
	end := best.start + best.period
	for end < len(text) && text[end] == text[end-best.period] {
		end++
	}
	best.length = end - best.start
	return best, true
}

// scanLoops looks for loops with a period in (lo, hi] at anchors 0, step, 2·step,
// … and lowers best. Every loop is found at the first anchor that it covers,
// where its start is known exactly.
func scanLoops[T rune | byte](f *loopFinder, text []T, lim loopLimits, lo, hi, step int, best *repetition) {
	n := len(text)
	for a := 0; a+lo+1 < n && best.start > a-step; a += step {
		// How far text[a:] agrees with text[a+p:], for all p at once.
		ahead := zed(f, text[a:min(n, a+lim.need(hi))])
		last := min(hi, len(ahead)-1)
		promising := false
		for p := lo + 1; p <= last && !promising; p++ {
			promising = p+int(ahead[p])+step > lim.need(p)
		}
		if !promising {
			continue
		}
		forward := append([]int32(nil), ahead[:last+1]...)
		// How far text[:a] agrees with text[:a+p] from the right, up to the
		// anchor before: a repetition that reaches it was seen there.
		back := min(a, step)
		mirror := make([]T, 0, 2*back+last)
		for i := a - 1; i >= a-back; i-- {
			mirror = append(mirror, text[i])
		}
		for i := a + last - 1; i >= a-back; i-- {
			mirror = append(mirror, text[i])
		}
		behind := zed(f, mirror)
		ink := a // first code point from the anchor on that is not white space
		for ink < a+last && unicode.IsSpace(rune(text[ink])) {
			ink++
		}
		for p := lo + 1; p <= last; p++ {
			b := 0
			if back > 0 {
				b = min(back, int(behind[back+last-p]))
			}
			switch {
			case b == step: // seen at the anchor before
			case p+int(forward[p])+b < lim.need(p):
			case ink >= a+p: // the period is all white space
			case a-b < best.start, a-b == best.start && p < best.period:
				*best = repetition{start: a - b, period: p}
			}
		}
	}
}

// zed returns the Z array of s: z[i] is the length of the longest common
// prefix of s and s[i:], for i > 0. It is valid until the next call.
func zed[T rune | byte](f *loopFinder, s []T) []int32 {
	if cap(f.z) < len(s) {
		f.z = make([]int32, len(s))
	}
	z := f.z[:len(s)]
	if len(z) > 0 {
		z[0] = int32(len(s))
	}
	l, r := 0, 0
	for i := 1; i < len(s); i++ {
		k := 0
		if i < r {
			k = min(r-i, int(z[i-l]))
		}
		if i+k >= r {
			for i+k < len(s) && s[k] == s[i+k] {
				k++
			}
			l, r = i, i+k
		}
		z[i] = int32(k)
	}
	return z
}

// mayRepeat reports whether text may hold a loop. It may report true for
// nothing, but never false for a loop; nearly all texts need no closer look.
func mayRepeat[T rune | byte](text []T, lim loopLimits) bool {
	if lim.maxPeriod <= shortLoop.maxPeriod {
		return repeatsNearby(text, lim)
	}
	return repeatsBlock(text, lim)
}

// repeatsNearby is mayRepeat for short periods: so long a loop covers one of
// a few anchors, and from there agrees with itself a period later.
func repeatsNearby[T rune | byte](text []T, lim loopLimits) bool {
	spare := lim.minLength - lim.maxPeriod
	step := max(1, spare/2)
	agree := max(0, spare-step+1)
	for a := 0; a < len(text); a += step {
		for p := 1; p <= lim.maxPeriod && a+p+agree <= len(text); p++ {
			n := 0
			for n < agree && text[a+n] == text[a+p+n] {
				n++
			}
			if n == agree {
				return true
			}
		}
	}
	return false
}

const (
	hashBase   = 0x9E3779B97F4A7C15 // of the rolling hash: the golden ratio's digits
	mostBlocks = 1 << 10            // that repeatsBlock remembers
)

// hashClass returns one of 65,536 classes of a hash.
func hashClass(h uint64) uint64 { return (h * hashBase) >> 48 }

// forget leaves only the blocks that begin at from or later. Without it a
// long text would have a block in every class.
func forget(latest map[uint64]int, seen []uint64, from int) {
	clear(seen)
	for h, at := range latest {
		if at < from {
			delete(latest, h)
			continue
		}
		class := hashClass(h)
		seen[class>>6] |= 1 << (class & 63)
	}
}

// repeatsBlock is mayRepeat for any periods. A loop is so long that it holds
// one of the blocks that begin at multiples of their length, and the same
// block again a period later. It compares by a rolling hash.
func repeatsBlock[T rune | byte](text []T, lim loopLimits) bool {
	block := (lim.minLength - (lim.minLength+lim.minCycles-1)/lim.minCycles) / 2
	if block < 1 {
		return true
	}
	if len(text) < 2*block {
		return false // not one block twice, as a loop has it
	}
	const base = hashBase
	drop := uint64(1) // base to the power of block
	for range block {
		drop *= base
	}
	var seen [1 << 10]uint64       // a bit per class of hashes: nearly all positions end here
	latest := make(map[uint64]int) // hash -> start of the latest block that has it
	var h uint64
	for _, c := range text[:block-1] {
		h = h*base + uint64(c) + 1
	}
	untilBlock := 0 // positions to the next multiple of block
	leaving := uint64(0)
	for start, c := range text[block-1:] {
		h = h*base + uint64(c) + 1 - leaving*drop
		leaving = uint64(text[start]) + 1
		class := hashClass(h)
		if seen[class>>6]&(1<<(class&63)) != 0 {
			if at, ok := latest[h]; ok && start-at <= lim.maxPeriod {
				return true
			}
		}
		if untilBlock == 0 {
			untilBlock = block
			if len(latest) == mostBlocks {
				forget(latest, seen[:], start-lim.maxPeriod)
			}
			seen[class>>6] |= 1 << (class & 63)
			latest[h] = start
		}
		untilBlock--
	}
	return false
}
