package compare

// A Verdict says in one word what became of a cell, or of a run as a whole.
type Verdict uint8

// The verdicts. docs/diff.md says when each is given.
const (
	Unclear       Verdict = iota // none of the others
	Worse                        // slower, by more than noise and more than matters
	Better                       // faster, likewise
	MovedWithRun                 // the whole run changed, and this cell with it
	Held                         // the whole run changed, this cell did not
	NoChange                     // proved: no change as large as what matters
	SuspectWorse                 // would be Worse with more evidence
	SuspectBetter                // would be Better with more evidence
	Lost                         // Valid on the base and not on the side, or worse in kind
	Gained                       // the reverse
	Changed                      // another status, neither of them better
	SameStatus                   // the same status other than Valid on both
	OnlyInA                      // not planned by the side
	OnlyInB                      // not planned by the base
	NotComparable                // the sides, or this cell, can't be compared
)

var verdictWords = [...]string{
	Unclear: "unclear", Worse: "worse", Better: "better", MovedWithRun: "moved with the run", Held: "held",
	NoChange: "no change", SuspectWorse: "suspect worse", SuspectBetter: "suspect better", Lost: "lost", Gained: "gained",
	Changed: "changed", SameStatus: "same status", OnlyInA: "only in A", OnlyInB: "only in B", NotComparable: "not comparable",
}

// String returns the word, such as "moved with the run".
func (v Verdict) String() string { return verdictWords[v] }

// Verdicts lists every verdict.
func Verdicts() []Verdict {
	var all []Verdict
	for v := range verdictWords {
		all = append(all, Verdict(v))
	}
	return all
}

// directed returns the verdict of a change that is a finding.
func directed(change float64, evidence bool) Verdict {
	switch {
	case change > 0 && evidence:
		return Better
	case change > 0:
		return SuspectBetter
	case evidence:
		return Worse
	}
	return SuspectWorse
}
