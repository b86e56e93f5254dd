package chart

import (
	"cmp"
	"math"
	"slices"
)

// Lines are series over one axis, each a line with a mark at every point and
// its name at its end.
type Lines struct {
	Head
	X, Y   Axis
	Series []Series
	Right  bool // texts of points stand to their right, not above
}

// A Series is drawn in the order of its points. Points that the axes can't
// show are left out; a series of one point is a mark.
type Series struct {
	Label  string
	Points []Point
}

// A Point has a place; Title is shown when it is pointed at, Text beside it
// where there is room. Both may be empty. Apart keeps the line from joining
// it to the point before: something between them is missing.
//
// Value is the end of Title that says what was found there, and Status a word
// on it, for drawings that show them by themselves. A point without a place
// has a status only.
type Point struct {
	X, Y          float64
	Title, Text   string
	Value, Status string
	Apart         bool
}

const (
	lineHeight = 300.0
	lineBottom = 254.0 // of the plot: tick labels and the name of the x axis stand below
)

// SVG returns the drawing, nil when there is no point to draw.
func (l Lines) SVG() []byte {
	series, xs, ys := l.placed()
	if len(xs) == 0 {
		return nil
	}
	longest := 0.0
	for _, s := range series {
		if len(s.Points) > 0 {
			longest = max(longest, textWidth(s.Label))
		}
	}
	right := width - 12.0
	if longest > 0 {
		right -= min(longest, 120) + 10
	}
	c := &canvas{}
	x, xTicks := l.X.scaleOf(xs, left+12, right-8)
	y, yTicks := l.Y.scaleOf(ys, lineBottom, top+6)
	c.grid(left, right, y, yTicks, l.Y.Name)
	c.below(lineBottom, left, right, x, xTicks, l.X.Name)

	names := namesOf(series, x, y)
	texts := &placer{}
	for _, s := range series { // what stands beside a point keeps clear of all marks
		for _, p := range s.Points {
			texts.taken = append(texts.taken, [4]float64{x.at(p.X) - 4, y.at(p.Y) - 4, x.at(p.X) + 4, y.at(p.Y) + 4})
		}
	}
	for i, s := range series {
		if len(s.Points) == 0 {
			continue
		}
		c.WriteString(`<g class="s ` + colour(i, len(series)) + `">`)
		if e, ok := names[i]; ok {
			c.WriteString(`<path class="c" d="M` + n(e.x+7) + " " + n(e.y) + "L" + n(max(e.x+7, right-2)) + " " + n(e.name) + `"/>`)
			c.text(right+4, e.name+4, "start", "n", s.Label)
		}
		if len(s.Points) > 1 {
			c.WriteString(`<path class="l" d="M`)
			for j, p := range s.Points {
				if j > 0 {
					if p.Apart {
						c.WriteByte('M')
					} else {
						c.WriteByte('L')
					}
				}
				c.WriteString(n(x.at(p.X)) + " " + n(y.at(p.Y)))
			}
			c.WriteString(`"/>`)
		}
		for _, p := range s.Points {
			px, py := x.at(p.X), y.at(p.Y)
			c.marker(i, px, py, p.Title)
			if p.Text == "" {
				continue
			}
			w, places := textWidth(p.Text), [2][2]float64{{0, -9}, {0, 20}}
			if l.Right {
				places = [2][2]float64{{10 + w/2, -2}, {10 + w/2, 10}}
			}
			for _, d := range places {
				if tx, ty := px+d[0], py+d[1]; texts.free(tx, ty, w) {
					if l.Right {
						c.text(tx-w/2, ty, "start", "", p.Text)
					} else {
						c.text(tx, ty, "middle", "", p.Text)
					}
					break
				}
			}
		}
		c.WriteString("</g>")
	}
	return l.svg(lineHeight, c)
}

// placed returns the series without the points that the axes can't show, and
// all values. An empty one stays: the others keep their colours.
func (l Lines) placed() (series []Series, xs, ys []float64) {
	for _, s := range l.Series {
		s.Points = slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return !l.X.Shows(p.X) || !l.Y.Shows(p.Y) })
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
		series = append(series, s)
	}
	return series, xs, ys
}

// An end is where a series ends at its right, and the height of its name.
type end struct{ x, y, name float64 }

// namesOf returns the ends of the series that have a name and points. Names
// stand in a column, each beside its series' end.
func namesOf(series []Series, x, y scale) map[int]end {
	ends := map[int]end{}
	var order []int
	for i, s := range series {
		if len(s.Points) > 0 && s.Label != "" {
			p := slices.MaxFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
			ends[i] = end{x: x.at(p.X), y: y.at(p.Y)}
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ends[a].y, ends[b].y) })
	var heights []float64
	for _, i := range order {
		heights = append(heights, ends[i].y)
	}
	for j, name := range apart(heights, lineH, top, lineBottom) {
		e := ends[order[j]]
		e.name = name
		ends[order[j]] = e
	}
	return ends
}

// Names returns how high the name of each series stands beside the plot: 0
// is its top, 1 its bottom, NaN a series that has no name or no points.
func (l Lines) Names() []float64 {
	series, xs, ys := l.placed()
	heights := make([]float64, len(series))
	var names map[int]end
	if len(xs) > 0 {
		x, _ := l.X.scaleOf(xs, left, width)
		y, _ := l.Y.scaleOf(ys, lineBottom, top+6)
		names = namesOf(series, x, y)
	}
	for i := range heights {
		heights[i] = math.NaN()
		if e, ok := names[i]; ok {
			heights[i] = (e.name - top - 6) / (lineBottom - top - 6)
		}
	}
	return heights
}

// grid draws the ticks of the y axis across the plot, and its name above it.
func (c *canvas) grid(left, right float64, y scale, ticks []Tick, name string) {
	c.WriteString(`<path class="g" d="`)
	for _, t := range ticks {
		c.WriteString("M" + n(left) + " " + n(y.at(t.Value)) + "H" + n(right))
	}
	c.WriteString(`"/>`)
	for _, t := range ticks {
		c.text(left-6, y.at(t.Value)+4, "end", "", t.Label)
	}
	c.text(2, 14, "start", "", name)
}

// below draws the x axis under the plot. Labels that would touch an earlier
// one are left out, but the first and the last stay.
func (c *canvas) below(bottom, left, right float64, x scale, ticks []Tick, name string) {
	c.WriteString(`<path class="a" d="M` + n(left) + " " + n(bottom) + "H" + n(right))
	for _, t := range ticks {
		c.WriteString("M" + n(x.at(t.Value)) + " " + n(bottom) + "v5")
	}
	c.WriteString(`"/>`)
	texts, kept := &placer{}, map[int]bool{}
	order := []int{0, len(ticks) - 1}
	for i := 1; i < len(ticks)-1; i++ {
		order = append(order, i)
	}
	for _, i := range order {
		if i >= 0 && !kept[i] {
			kept[i] = texts.free(x.at(ticks[i].Value), 0, textWidth(ticks[i].Label)+4)
		}
	}
	for i, t := range ticks {
		if kept[i] {
			c.text(x.at(t.Value), bottom+19, "middle", "", t.Label)
		}
	}
	c.text((left+right)/2, bottom+39, "middle", "", name)
}
