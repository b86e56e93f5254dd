// Package figure is one measured figure of a measuring program: how it is
// compared with a peer and with a target, how it is kept (JSON, a line each)
// and shown (a table, and Markdown for docs/performance.md).
//
// It must not measure anything and must not know what is measured: a program
// that measures hands its repetitions over, and this package takes medians.
package figure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// A Figure is one measured number with everything that is needed to believe
// it: how much it varied, what it stands beside, and how to get it again.
type Figure struct {
	Topic string  `json:"topic"` // what it is about, such as "log size": figures of one topic stand together
	Name  string  `json:"name"`
	Value float64 `json:"value"` // the median of the repetitions
	Unit  string  `json:"unit"`  // "" for a plain number

	Min     float64 `json:"min"` // of the repetitions
	Max     float64 `json:"max"`
	Samples int     `json:"samples"` // how many repetitions there were

	Peer  *Peer   `json:"peer,omitempty"`   // what it is compared with, measured in the same run
	Goal  *Target `json:"target,omitempty"` // absent: nothing was aimed at
	Met   *bool   `json:"met,omitempty"`    // whether it was; absent without a target
	Notes string  `json:"notes,omitempty"`  // one sentence, where the name does not say enough

	Command    string  `json:"command"`     // gives the figure again, in the repository's root
	LoadBefore float64 `json:"load_before"` // load average of a minute before the measurement; −1 unknown
}

// A Peer is what a figure is compared with.
type Peer struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // the median of its repetitions, in the figure's unit
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`

	// Ratio is the median over the repetitions of ours ÷ the peer's, or
	// where Better is set of the peer's ÷ ours: how many times better ours is.
	// Repetitions are paired: the i-th of both ran one after the other.
	Ratio    float64 `json:"ratio"`
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`
	Better   bool    `json:"better,omitempty"`
}

// A Target is what a figure should reach.
type Target struct {
	Sign    string  `json:"sign"` // "≤" or "≥"
	Limit   float64 `json:"limit"`
	OfRatio bool    `json:"of_ratio,omitempty"` // the ratio to the peer should; else the value
}

// Of returns the figure of some repetitions, of which there must be at least
// one.
func Of(topic, name, unit string, repetitions ...float64) Figure {
	return Figure{
		Topic: topic, Name: name, Unit: unit, LoadBefore: -1,
		Value: Median(repetitions), Min: slices.Min(repetitions), Max: slices.Max(repetitions), Samples: len(repetitions),
	}
}

// Against sets the peer. ours and theirs are repetitions in pairs.
func (f Figure) Against(peer string, ours, theirs []float64) Figure {
	return f.against(peer, ours, theirs, false)
}

// Beating is Against with the ratio the other way about: how many times
// less than the peer ours is.
func (f Figure) Beating(peer string, ours, theirs []float64) Figure {
	return f.against(peer, ours, theirs, true)
}

func (f Figure) against(peer string, ours, theirs []float64, better bool) Figure {
	ratios := make([]float64, min(len(ours), len(theirs)))
	for i := range ratios {
		if ratios[i] = ours[i] / theirs[i]; better {
			ratios[i] = 1 / ratios[i]
		}
	}
	f.Peer = &Peer{
		Name: peer, Value: Median(theirs), Min: slices.Min(theirs), Max: slices.Max(theirs), Better: better,
		Ratio: Median(ratios), RatioMin: slices.Min(ratios), RatioMax: slices.Max(ratios),
	}
	return f
}

// AtMost and AtLeast set a target of the value, RatioAtMost and RatioAtLeast
// one of the ratio to the peer.
func (f Figure) AtMost(limit float64) Figure { return f.goal(Target{Sign: "≤", Limit: limit}) }

// AtLeast: see AtMost.
func (f Figure) AtLeast(limit float64) Figure { return f.goal(Target{Sign: "≥", Limit: limit}) }

// RatioAtMost: see AtMost.
func (f Figure) RatioAtMost(limit float64) Figure {
	return f.goal(Target{Sign: "≤", Limit: limit, OfRatio: true})
}

// RatioAtLeast: see AtMost.
func (f Figure) RatioAtLeast(limit float64) Figure {
	return f.goal(Target{Sign: "≥", Limit: limit, OfRatio: true})
}

func (f Figure) goal(t Target) Figure {
	v := f.Value
	if t.OfRatio {
		if v = math.NaN(); f.Peer != nil { // NaN meets nothing
			v = f.Peer.Ratio
		}
	}
	met := t.Sign == "≤" && v <= t.Limit || t.Sign == "≥" && v >= t.Limit
	f.Goal, f.Met = &t, &met
	return f
}

// Note sets the sentence that stands with the figure.
func (f Figure) Note(format string, args ...any) Figure {
	f.Notes = fmt.Sprintf(format, args...)
	return f
}

// Median returns the middle value, or the mean of the two middle ones; NaN
// of nothing. It does not change xs.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// A line is one line of a report: the machine, once, or a figure.
type line struct {
	Machine *Machine `json:"machine,omitempty"`
	Figure  *Figure  `json:"figure,omitempty"`
}

// A Report is what a measuring program found out.
type Report struct {
	Machine Machine
	Figures []Figure
}

// A Writer writes a report as JSON, a line as soon as there is a figure.
type Writer struct {
	w       io.Writer
	command string
	load    float64
}

// NewWriter begins a report on w with the machine. command gives the figures
// again: "make bench-runlog".
func NewWriter(w io.Writer, command string) (*Writer, error) {
	m := ThisMachine()
	fw := &Writer{w: w, command: command, load: LoadAverage()}
	return fw, fw.line(line{Machine: &m})
}

// Begin is called before a measurement: the figures that follow tell how
// busy the machine was then.
func (w *Writer) Begin() { w.load = LoadAverage() }

// Write writes figures, with the command and the load filled in.
func (w *Writer) Write(figures ...Figure) error {
	for _, f := range figures {
		if f.Command == "" {
			f.Command = w.command
		}
		f.LoadBefore = w.load
		if err := w.line(line{Figure: &f}); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) line(l line) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("write figure: %w", err)
	}
	if _, err := w.w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write figure: %w", err)
	}
	return nil
}

// Read reads what a Writer wrote; several reports one after the other are
// one, of the last machine.
func Read(r io.Reader) (*Report, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	rep := new(Report)
	for n := 1; ; n++ {
		var l line
		switch err := d.Decode(&l); {
		case err == io.EOF:
			return rep, nil
		case err != nil:
			return nil, fmt.Errorf("read figures: line %d: %w", n, err)
		case l.Machine != nil:
			rep.Machine = *l.Machine
		case l.Figure != nil:
			rep.Figures = append(rep.Figures, *l.Figure)
		default:
			return nil, fmt.Errorf("read figures: line %d: got neither a machine nor a figure", n)
		}
	}
}
