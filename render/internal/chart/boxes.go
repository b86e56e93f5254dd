package chart

import (
	"slices"
	"strings"
)

// Boxes are percentiles of several series in groups side by side.
type Boxes struct {
	Head
	X      string // name of what the groups differ in
	Y      Axis
	Series []string // names, in the order of the boxes of a group
	Groups []Group
}

// A Group is a place on the x axis.
type Group struct {
	Label string
	Boxes []Box
}

// A Box spans P25 … P75, with its median and whiskers to P5 and P95; P99 is
// a mark of its own. Title, Value and Status are those of a Point.
type Box struct {
	Series                      int
	P5, P25, P50, P75, P95, P99 float64
	Title, Value, Status        string
}

const boxHeight = 330.0

// Shows reports whether a box has all its numbers and a series.
func (b Boxes) Shows(x Box) bool {
	for _, v := range []float64{x.P5, x.P25, x.P50, x.P75, x.P95, x.P99} {
		if !b.Y.Shows(v) {
			return false
		}
	}
	return x.Series >= 0 && x.Series < len(b.Series)
}

// SVG returns the drawing, nil when there is no box to draw. A box of which
// one number can't be drawn is left out.
func (b Boxes) SVG() []byte {
	var ys []float64
	var drawn []int // series that have a box; only they take room
	for _, g := range b.Groups {
		for _, x := range g.Boxes {
			if b.Shows(x) {
				ys = append(ys, x.P5, x.P99)
				drawn = append(drawn, x.Series)
			}
		}
	}
	slices.Sort(drawn)
	drawn = slices.Compact(drawn)
	if len(ys) == 0 {
		return nil
	}
	const right = width - 8
	c := &canvas{}
	keyLines := c.key(b.Series, drawn, right)
	bottom := lineBottom
	y, ticks := b.Y.scaleOf(ys, bottom, top+6)
	c.grid(left, right, y, ticks, b.Y.Name)
	room := (right - left) / float64(len(b.Groups))
	var groupTicks []Tick
	for i, g := range b.Groups {
		groupTicks = append(groupTicks, Tick{float64(i), g.Label})
	}
	c.below(bottom, left, right, scale{0, float64(len(b.Groups) - 1), left + room/2, right - room/2, false}, groupTicks, b.X)
	step := min(float64(room*0.86/float64(len(drawn))), 22)
	w := float64(step * 0.72)
	for i, g := range b.Groups {
		for _, x := range g.Boxes {
			if !b.Shows(x) {
				continue
			}
			place := float64(slices.Index(drawn, x.Series)) - float64(len(drawn)-1)/2
			middle := left + float64(room*(float64(i)+0.5)) + float64(step*place)
			l, r := n(middle-w/2), n(middle+w/2)
			at := func(v float64) string { return n(y.at(v)) }
			m := n(middle)
			c.WriteString(`<g class="s ` + colour(x.Series, len(b.Series)) + `">`)
			if x.Title != "" {
				c.WriteString("<title>" + escape(x.Title) + "</title>")
			}
			c.WriteString(`<path class="w" d="M` + m + " " + at(x.P5) + "V" + at(x.P25) + "M" + m + " " + at(x.P75) + "V" + at(x.P95) + `"/>`)
			c.WriteString(`<path class="b" d="M` + l + " " + at(x.P25) + "H" + r + "V" + at(x.P75) + "H" + l + `z"/>`)
			c.WriteString(`<path class="d" d="M` + l + " " + at(x.P50) + "H" + r + `"/>`)
			c.WriteString(`<path class="w" d="M` + n(middle-2) + " " + n(y.at(x.P99)-2) + "l4 4m0-4l-4 4" + `"/></g>`)
		}
	}
	return b.svg(boxHeight+float64(float64(keyLines-1)*18), c)
}

// key names the series that are drawn, in the order of the boxes, under the
// plot, and returns how many lines that took. A single series has no name.
func (c *canvas) key(series []string, drawn []int, right float64) int {
	if len(series) < 2 {
		return 0
	}
	x, y, lines := left, boxHeight-8, 1
	for _, i := range drawn {
		s := series[i]
		w := textWidth(s) + 24
		if x+w > right && x > left {
			x, y, lines = left, y+18, lines+1
		}
		c.WriteString(`<g class="` + colour(i, len(series)) + `"><path class="b" d="M` + n(x) + " " + n(y-9) + `h8v9h-8z"/>`)
		c.text(x+12, y, "start", "n", strings.TrimSpace(s))
		c.WriteString("</g>")
		x += w
	}
	return lines
}
