package chart

import "math"

// A Trend is a history in equal steps from left to right: a mark for each
// point, the level of each stretch of it, and lines where something happened.
// Its axis spans −1 to +1 at least, so that noise does not look like mountains.
type Trend struct {
	Head
	X, Y   string       // names of the axes, with units
	Points []TrendPoint // in their order
	Levels []Level
	Marks  []Mark
}

// A TrendPoint is one point; NaN leaves its place empty.
type TrendPoint struct {
	Y     float64
	Label string // under the axis, where there is room; may be empty
	Title string // shown when it is pointed at; may be empty
}

// A Level is the mean of the points From to To, both included, and how far
// points lie from it by noise alone.
type Level struct {
	From, To int
	Y, Half  float64 // Half is 0 where the noise is not known
}

// A Mark is a vertical line before a point.
type Mark struct {
	Before int    // index of the point after the line
	Text   string // at its head
	Tone   Tone
	Faint  bool // something else changed, no step
}

const (
	trendHeads = 3 // rows in which the heads of marks stand
	trendRow   = lineH
)

// SVG returns the drawing, nil when there are fewer than two points to draw.
func (t Trend) SVG() []byte {
	lo, hi, known := -1.0, 1.0, 0
	see := func(v float64) { lo, hi = min(lo, v), max(hi, v) }
	for _, p := range t.Points {
		if drawable(p.Y, false) {
			see(p.Y)
			known++
		}
	}
	if known < 2 {
		return nil
	}
	for _, l := range t.Levels {
		if drawable(l.Y, false) && drawable(l.Half, false) {
			see(l.Y - l.Half)
			see(l.Y + l.Half)
		}
	}
	heads := 0.0
	if len(t.Marks) > 0 {
		heads = trendHeads * trendRow
	}
	right, bottom := width-12.0, lineBottom+heads
	lo, hi, at := linearTicks(lo, hi, 5)
	ticks := make([]Tick, len(at))
	for i, v := range at {
		ticks[i] = Tick{v, Number.format(v)}
		if v > 0 {
			ticks[i].Label = "+" + ticks[i].Label
		}
	}
	y := scale{lo, hi, bottom, top + heads + 6, false}
	x := scale{-0.5, float64(len(t.Points)) - 0.5, left + 6, right - 16, false}
	c := &canvas{}
	c.grid(left, right, y, ticks, t.Y)
	var labels []Tick
	for i, p := range t.Points {
		if p.Label != "" {
			labels = append(labels, Tick{float64(i), p.Label})
		}
	}
	c.below(bottom, left, right, x, labels, t.X)
	for _, l := range t.Levels {
		from, to := x.at(float64(l.From)-0.4), x.at(float64(l.To)+0.4)
		if !drawable(l.Y, false) || !drawable(l.Half, false) || l.To < l.From {
			continue
		}
		if l.Half > 0 {
			c.WriteString(`<path class="ar k0" d="M` + n(from) + " " + n(y.at(l.Y+l.Half)) + "H" + n(to) + "V" + n(y.at(l.Y-l.Half)) + "H" + n(from) + `z"/>`)
		}
		c.WriteString(`<path class="mean" d="M` + n(from) + " " + n(y.at(l.Y)) + "H" + n(to) + `"/>`)
	}
	t.marks(c, x, top+heads+6, bottom, right)
	c.WriteString(`<g class="k0">`)
	for i, p := range t.Points {
		if drawable(p.Y, false) {
			c.marker(0, x.at(float64(i)), y.at(p.Y), p.Title)
		}
	}
	c.WriteString("</g>")
	return t.svg(bottom+46, c)
}

// marks draws vertical lines with their texts, which stand in rows so that
// neighbours do not cover each other; one without room has none.
func (t Trend) marks(c *canvas, x scale, from, bottom, right float64) {
	var room placer
	for _, m := range t.Marks {
		at := x.at(float64(m.Before) - 0.5)
		class := "k0"
		switch m.Tone {
		case Bad:
			class = "k5"
		case Good:
			class = "k2"
		}
		line := "l"
		if m.Faint {
			line = "c"
		}
		c.WriteString(`<g class="` + class + `"><path class="` + line + `" d="M` + n(at) + " " + n(from-4) + "V" + n(bottom) + `"/>`)
		w := textWidth(m.Text) + 6
		middle := math.Max(left+w/2, math.Min(at, right-w/2))
		for row := range trendHeads {
			if base := from - 8 - float64(trendRow*float64(row)); m.Text != "" && room.free(middle, base, w) {
				c.text(middle, base, "middle", "n", m.Text)
				break
			}
		}
		c.WriteString("</g>")
	}
}
