package chart

import (
	"math"
)

// Intervals are estimates with their intervals, a row each, over one linear
// axis that has 0 in its middle: changes.
type Intervals struct {
	Head
	X     string  // name of the axis, with its unit
	Bound float64 // what lies between −Bound and Bound is shaded as too small to matter; 0: nothing is
	Rows  []Interval
}

// An Interval is one row.
type Interval struct {
	Label         string
	Low, At, High float64
	Tone          Tone
	Title         string
}

// A Tone sets rows apart, in shape as in colour.
type Tone uint8

const (
	Neutral Tone = iota // a circle
	Bad                 // a triangle that points down
	Good                // a triangle that points up
)

const intervalRow = 22.0

// SVG returns the drawing, nil when there is no row to draw. A row of which
// one number can't be drawn is left out.
func (v Intervals) SVG() []byte {
	var rows []Interval
	most, labels := v.Bound, 0.0
	for _, r := range v.Rows {
		if drawable(r.Low, false) && drawable(r.At, false) && drawable(r.High, false) {
			rows = append(rows, r)
			most, labels = max(most, math.Abs(r.Low), math.Abs(r.High)), max(labels, textWidth(r.Label))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	from, right := max(24, labels+10), width-12.0
	_, most, ticks := linearTicks(0, most, 3)
	x := scale{-most, most, from, right, false}
	bottom := 8 + float64(intervalRow*float64(len(rows)))
	c := &canvas{}
	if v.Bound > 0 {
		l := x.at(-v.Bound)
		c.WriteString(`<path class="win" d="M` + n(l) + " 4H" + n(x.at(v.Bound)) + "V" + n(bottom) + "H" + n(l) + `z"/>`)
	}
	var below []Tick
	for i := len(ticks) - 1; i > 0; i-- {
		below = append(below, Tick{-ticks[i], Number.format(-ticks[i])})
	}
	for i, t := range ticks {
		label := Number.format(t)
		if i > 0 {
			label = "+" + label
		}
		below = append(below, Tick{t, label})
	}
	c.WriteString(`<path class="g" d="`)
	for _, t := range below {
		if t.Value != 0 {
			c.WriteString("M" + n(x.at(t.Value)) + " 4V" + n(bottom))
		}
	}
	c.WriteString(`"/><path class="a" d="M` + n(x.at(0)) + " 4V" + n(bottom) + `"/>`)
	c.below(bottom, from, right, x, below, v.X)
	for i, r := range rows {
		y := 8 + float64(intervalRow*(float64(i)+0.5))
		c.text(from-6, y+4, "end", "", r.Label)
		class, shape := "k0", 0
		switch r.Tone {
		case Bad:
			class, shape = "k5", 4
		case Good:
			class, shape = "k2", 2
		}
		c.WriteString(`<g class="` + class + `"><path class="l" d="M` + n(x.at(r.Low)) + " " + n(y) + "H" + n(x.at(r.High)) + `"/>`)
		c.marker(shape, x.at(r.At), y, r.Title)
		c.WriteString("</g>")
	}
	return v.svg(bottom+46, c)
}
