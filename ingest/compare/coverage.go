package compare

import (
	"fmt"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// Coverage says which cells have results on both sides. It comes before any
// speed: a faster page of fewer cells is no improvement.
type Coverage struct {
	Prefill, Decode PhaseCoverage

	// Changes are the cells whose status differs, prefill first, ascending
	// context, then concurrency. Empty when the sides are not comparable.
	Changes []StatusChange

	Lost, Gained int     // cells that stopped or started to be Valid on every launch, of those that every launch planned
	P            float64 // how often chance alone would be as one-sided as Lost against Gained (McNemar, exact, two-sided)

	LoopsBegun, LoopsEnded int     // cells in which a request began to loop, or ceased to
	LoopsP                 float64 // as P
}

// PhaseCoverage counts the cells of one phase.
type PhaseCoverage struct {
	PlannedA, PlannedB int
	ValidA, ValidB     int // Valid on every launch of the side
	Both               int // … of both sides
	OnlyA, OnlyB       int // planned by one side only
}

// A Class says what kind of status change it is, for the gate.
type Class string

// The classes.
const (
	ClassCapacity Class = "capacity" // the KV cache or the server's limit decides
	ClassError    Class = "error"    // failed, or not reached
	ClassStatus   Class = "status"   // loops, cached prompts, a busy client, …
)

// A StatusChange is a cell whose status is not the same on both sides.
type StatusChange struct {
	Phase                      runlog.Phase
	ContextTokens, Concurrency int32
	A, B                       CellSide // without values
	Verdict                    Verdict  // Lost, Gained, Changed, or NotComparable where launch flags that decide it differ
	Class                      Class
	Text                       string // "lost: over capacity", "gained: from looped", "valid on 2 of 3 launches → 3 of 3"
}

// coverage counts, and lists the changes.
func coverage(d *Diff) Coverage {
	var c Coverage
	memory := false
	for _, f := range d.Flags {
		memory = memory || f.Memory
	}
	for i := range d.Metrics {
		m := &d.Metrics[i]
		phase := &c.Decode
		switch m.Metric {
		case Prefill:
			phase = &c.Prefill
		case Decode:
		default:
			continue
		}
		for j := range m.Cells {
			phase.add(&m.Cells[j])
		}
	}
	if !d.Comparable {
		return c
	}
	for _, metric := range []Metric{Prefill, Decode} {
		for i := range d.Metrics[metric].Cells {
			cell := &d.Metrics[metric].Cells[i]
			if cell.A.Planned < cell.A.Launches || cell.B.Planned < cell.B.Launches {
				continue
			}
			a, b := cell.A.Status, cell.B.Status
			switch {
			case a == ingest.Valid && b != ingest.Valid:
				c.Lost++
			case a != ingest.Valid && b == ingest.Valid:
				c.Gained++
			}
			switch {
			case a != ingest.Looped && b == ingest.Looped:
				c.LoopsBegun++
			case a == ingest.Looped && b != ingest.Looped:
				c.LoopsEnded++
			}
			if s := statusChange(cell, memory); s.Verdict != SameStatus {
				s.Phase = metric.Phase()
				c.Changes = append(c.Changes, s)
			}
		}
	}
	c.P, c.LoopsP = mcNemar(c.Lost, c.Gained), mcNemar(c.LoopsBegun, c.LoopsEnded)
	return c
}

func (p *PhaseCoverage) add(c *CellDiff) {
	planned, valid := [2]bool{c.A.Planned > 0, c.B.Planned > 0}, [2]bool{c.A.Valid == c.A.Launches, c.B.Valid == c.B.Launches}
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	count(&p.PlannedA, planned[0])
	count(&p.PlannedB, planned[1])
	count(&p.ValidA, valid[0])
	count(&p.ValidB, valid[1])
	count(&p.Both, valid[0] && valid[1])
	count(&p.OnlyA, planned[0] && !planned[1])
	count(&p.OnlyB, !planned[0] && planned[1])
}

// statusChange names what became of a cell that both sides planned. Its
// verdict is SameStatus when the statuses are equal, however often.
func statusChange(c *CellDiff, memory bool) StatusChange {
	a, b := c.A.Status, c.B.Status
	s := StatusChange{ContextTokens: c.ContextTokens, Concurrency: c.Concurrency, A: c.A, B: c.B, Class: ClassStatus}
	s.A.Values, s.A.Value, s.B.Values, s.B.Value = nil, ingest.Stat{}, nil, ingest.Stat{}
	broken := func(x ingest.Status) bool { return x == ingest.Failed || x == ingest.NotRun }
	switch {
	case a == b:
		s.Verdict = SameStatus
		return s
	case broken(b) && a != ingest.OverCapacity || broken(a) && b != ingest.OverCapacity:
		s.Class = ClassError
		s.Verdict = Changed
		if broken(a) != broken(b) {
			s.Verdict = lostOrGained(broken(b))
		}
	case a == ingest.OverCapacity || b == ingest.OverCapacity:
		s.Class = ClassCapacity
		s.Verdict = Changed
		if !broken(a) && !broken(b) {
			s.Verdict = lostOrGained(b == ingest.OverCapacity)
		}
		if memory {
			s.Verdict = NotComparable
		}
	case a == ingest.Valid || b == ingest.Valid:
		s.Verdict = lostOrGained(a == ingest.Valid)
	default:
		s.Verdict = Changed
	}
	switch s.Verdict {
	case Lost:
		s.Text = "lost: " + lower(b)
	case Gained:
		s.Text = "gained: from " + lower(a)
	case NotComparable:
		s.Text = "not comparable: launch flags that decide the capacity differ"
	default:
		s.Text = "changed"
	}
	if share := func(x *CellSide) bool { return x.Valid > 0 && x.Valid < x.Launches }; share(&c.A) || share(&c.B) {
		s.Text += fmt.Sprintf(" (valid on %d of %d launches → %d of %d)", c.A.Valid, c.A.Launches, c.B.Valid, c.B.Launches)
	}
	return s
}

func lostOrGained(lost bool) Verdict {
	if lost {
		return Lost
	}
	return Gained
}

// lower is a status inside a sentence.
func lower(s ingest.Status) string {
	word := []byte(s.String())
	word[0] |= 'a' - 'A'
	return string(word)
}
