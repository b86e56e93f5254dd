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
	right := width - 12.0
	x := scale{-0.5, float64(len(t.Points)) - 0.5, left + 6, right - 16, false}
	texts := t.heads(x, right)
	heads := 0.0
	for _, h := range texts {
		heads = max(heads, float64(trendRow*float64(h.row+1)))
	}
	bottom := lineBottom + heads
	lo, hi, at := linearTicks(lo, hi, 5)
	ticks := make([]Tick, len(at))
	for i, v := range at {
		ticks[i] = Tick{v, Number.format(v)}
		if v > 0 {
			ticks[i].Label = "+" + ticks[i].Label
		}
	}
	y := scale{lo, hi, bottom, top + heads + 6, false}
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
	t.marks(c, x, texts, top+heads+6, bottom)
	c.WriteString(`<g class="k0">`)
	for i, p := range t.Points {
		if drawable(p.Y, false) {
			c.marker(0, x.at(float64(i)), y.at(p.Y), p.Title)
		}
	}
	c.WriteString("</g>")
	return t.svg(bottom+46, c)
}

// A head is the place of a mark's text; row is −1 where it has none.
type head struct {
	x   float64
	row int
}

// heads places the texts of marks in rows, so that neighbours do not cover
// each other; one without room has none.
func (t Trend) heads(x scale, right float64) []head {
	var room placer
	out := make([]head, len(t.Marks))
	for i, m := range t.Marks {
		w := textWidth(m.Text) + 6
		out[i] = head{math.Max(left+w/2, math.Min(x.at(float64(m.Before)-0.5), right-w/2)), -1}
		for row := 0; m.Text != "" && row < trendHeads && out[i].row < 0; row++ {
			if room.free(out[i].x, float64(trendRow*float64(row)), w) {
				out[i].row = row
			}
		}
	}
	return out
}

// marks draws vertical lines with their texts.
func (t Trend) marks(c *canvas, x scale, texts []head, from, bottom float64) {
	for i, m := range t.Marks {
		at := n(x.at(float64(m.Before) - 0.5))
		class, line := "k0", "l"
		switch m.Tone {
		case Bad:
			class = "k5"
		case Good:
			class = "k2"
		}
		if m.Faint {
			line = "c"
		}
		c.WriteString(`<g class="` + class + `"><path class="` + line + `" d="M` + at + " " + n(from-4) + "V" + n(bottom) + `"/>`)
		if h := texts[i]; h.row >= 0 {
			c.text(h.x, from-8-float64(trendRow*float64(h.row)), "middle", "n", m.Text)
		}
		c.WriteString("</g>")
	}
}
