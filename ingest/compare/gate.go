package compare

import (
	"fmt"
	"slices"
)

// Counts are what a gate looks at: verdicts of the gating metrics, whole
// runs and cells, and status changes.
type Counts struct {
	Worse, Better, NoChange, Unclear int
	Suspect                          int // SuspectWorse
	NotComparable                    int
	Lost, Gained                     int // status changes, whatever the metric
	LostCapacity, LostError          int // of Lost, by class
	StatusLost                       int // of Lost, the others

	Sides        int
	Incomparable int // sides that can't be compared as a whole
	Unjudged     int // gating metrics without a verdict to rely on, for another reason than too few launches
	Thin         int // … for that reason, or because Suspect stands for a change that more evidence could confirm
}

func (c *Counts) add(d Counts) {
	c.Worse += d.Worse
	c.Better += d.Better
	c.NoChange += d.NoChange
	c.Unclear += d.Unclear
	c.Suspect += d.Suspect
	c.NotComparable += d.NotComparable
	c.Lost += d.Lost
	c.Gained += d.Gained
	c.LostCapacity += d.LostCapacity
	c.LostError += d.LostError
	c.StatusLost += d.StatusLost
	c.Sides += d.Sides
	c.Incomparable += d.Incomparable
	c.Unjudged += d.Unjudged
	c.Thin += d.Thin
}

// count fills in the counts of a diff.
func (d *Diff) count() {
	c := Counts{Sides: 1}
	if !d.Comparable {
		c.Incomparable++
	}
	verdict := func(v Verdict) {
		switch v {
		case Worse:
			c.Worse++
		case Better:
			c.Better++
		case NoChange:
			c.NoChange++
		case Unclear:
			c.Unclear++
		case SuspectWorse:
			c.Suspect++
		case NotComparable:
			c.NotComparable++
		}
	}
	for i := range d.Metrics {
		m := &d.Metrics[i]
		if !m.Gates {
			continue
		}
		switch m.State {
		case ThinEvidence:
			c.Thin++
		case NothingCompared:
			c.Unjudged++
		}
		if m.Run != nil {
			verdict(m.Run.Verdict)
		}
		for j := range m.Cells {
			verdict(m.Cells[j].Verdict)
		}
	}
	if c.Suspect > 0 && c.Thin == 0 { // withheld because of the order of launches
		c.Thin++
	}
	for _, s := range d.Coverage.Changes {
		switch {
		case s.Verdict == Gained:
			c.Gained++
		case s.Verdict != Lost:
			continue
		case s.Class == ClassCapacity:
			c.LostCapacity++
		case s.Class == ClassError:
			c.LostError++
		default:
			c.StatusLost++
		}
	}
	c.Lost = c.LostCapacity + c.LostError + c.StatusLost
	d.Counts = c
}

// An Event is something that a gate can fail on.
type Event string

// The events.
const (
	OnWorse    Event = "worse"
	OnSuspect  Event = "suspect"
	OnStatus   Event = "status" // lost for another reason than the next two
	OnCapacity Event = "capacity"
	OnError    Event = "error"
)

// Events lists every event.
func Events() []Event { return []Event{OnWorse, OnSuspect, OnStatus, OnCapacity, OnError} }

// A Gate says what a comparison fails on.
type Gate struct {
	FailOn        []Event
	AllowUnjudged bool // too few launches are no reason for status 3
	ExitZero      bool // neither are a failure or anything that could not be judged
}

// DefaultGate fails on slower cells and runs, and on cells lost to capacity
// and errors.
func DefaultGate() Gate { return Gate{FailOn: []Event{OnWorse, OnCapacity, OnError}} }

// The exit statuses of a comparison. 2 is for wrong use and bad input, which
// are errors and no comparison.
const (
	ExitPass     = 0
	ExitFail     = 1
	ExitUnjudged = 3
)

// Status returns the exit status and the word for it: "pass", "fail" or
// "unjudged". What failed is never hidden by what could not be judged, and
// what could not be judged never passes.
func (c *Counts) Status(g Gate) (exit int, word string) {
	on := func(e Event, n int) bool { return n > 0 && slices.Contains(g.FailOn, e) }
	switch {
	case on(OnWorse, c.Worse), on(OnSuspect, c.Suspect), on(OnStatus, c.StatusLost), on(OnCapacity, c.LostCapacity), on(OnError, c.LostError):
		exit, word = ExitFail, "fail"
	case c.Incomparable > 0, c.Unjudged > 0, c.Thin > 0 && !g.AllowUnjudged, c.Sides == 0:
		exit, word = ExitUnjudged, "unjudged"
	default:
		exit, word = ExitPass, "pass"
	}
	if g.ExitZero {
		exit = ExitPass
	}
	return exit, word
}

// Line returns the last line of a text report, for programs to look for.
func (c *Counts) Line(g Gate) string {
	exit, word := c.Status(g)
	return fmt.Sprintf("verdict=%s worse=%d better=%d nochange=%d unclear=%d suspect=%d lost=%d gained=%d notcomparable=%d exit=%d",
		word, c.Worse, c.Better, c.NoChange, c.Unclear, c.Suspect, c.Lost, c.Gained, c.NotComparable, exit)
}
