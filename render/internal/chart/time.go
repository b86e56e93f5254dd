package chart

// A State of a stream is drawn as a kind of bar: the kinds differ in height
// and colour.
type State uint8

const (
	Waits    State = iota // a thin line
	Delivers              // a thick bar
	Stalls                // a bar between them
	states
)

// stateClasses are the classes of the states.
var stateClasses = [states]string{"st-w", "st-d", "st-s"}

// Streams are bars over time, a row for each stream.
type Streams struct {
	Head
	From, To    float64 // seconds
	Open, Close float64 // the window that counts
	Rows        int
	Bars        []Bar
}

// A Bar is a stretch of time of one row.
type Bar struct {
	Row      int
	State    State
	From, To float64
}

// SVG returns the drawing, nil when there are no bars.
func (s Streams) SVG() []byte {
	if len(s.Bars) == 0 || s.Rows <= 0 || !(s.To > s.From) {
		return nil
	}
	const right = width - 8
	row := min(22, max(7, 240/float64(s.Rows)))
	bottom := top + float64(row*float64(s.Rows))
	c := &canvas{}
	x := scale{s.From, s.To, left, right, false}
	c.text(2, 14, "start", "", "Stream")
	c.WriteString(`<path class="win" d="M` + n(x.at(s.Open)) + " " + n(top-4) + "V" + n(bottom+2) + "H" + n(x.at(s.Close)) + "V" + n(top-4) + `z"/>`)
	texts := &placer{}
	for i := range s.Rows {
		y := top + float64(row*(float64(i)+0.5))
		if texts.free(0, y, 10) {
			c.text(left-8, y+4, "end", "", Number.format(float64(i)))
		}
	}
	var paths [states]canvas
	for _, b := range s.Bars {
		if b.Row < 0 || b.Row >= s.Rows || b.State >= states {
			continue
		}
		from, to := x.at(max(b.From, s.From)), x.at(min(b.To, s.To))
		if to-from < 0.5 {
			to = from + 0.5 // short ones are still seen
		}
		height := float64(row * [states]float64{0.14, 0.66, 0.36}[b.State])
		y := top + float64(row*(float64(b.Row)+0.5))
		paths[b.State].printf("M%s %sh%sv%sH%sz", n(from), n(y-height/2), n(to-from), n(height), n(from))
	}
	for i := range paths {
		if paths[i].Len() > 0 {
			c.printf(`<path class="%s" d="%s"/>`, stateClasses[i], paths[i].Bytes())
		}
	}
	c.seconds(bottom+4, right, x)
	return s.svg(bottom+50, c)
}

// seconds draws an axis of time under the plot.
func (c *canvas) seconds(bottom, right float64, x scale) {
	_, _, at := linearTicks(x.lo, x.hi, 6)
	var ticks []Tick
	for _, v := range at {
		if slack := (x.hi - x.lo) / 50; v <= x.hi+slack { // a window of 29.99 s ends at 30
			ticks = append(ticks, Tick{min(v, x.hi), Seconds.format(v)})
		}
	}
	c.below(bottom, left, right, x, ticks, "seconds since the window opened")
}

// Steps are averages over equal parts of a stretch of time that begins at 0.
type Steps struct {
	Head
	Y        Axis
	From, To float64 // seconds on the axis; 0 … Length is in it
	Length   float64 // seconds
	Values   []float64
	Mean     float64 // a line across; NaN: none
	Text     string  // about that line
}

const (
	stepHeight = 220.0
	stepBottom = 174.0
)

// SVG returns the drawing, nil when there is nothing to draw.
func (s Steps) SVG() []byte {
	for _, v := range s.Values {
		if !drawable(v, false) {
			return nil
		}
	}
	if len(s.Values) == 0 || !(s.Length > 0) || !(s.To > s.From) {
		return nil
	}
	const right = width - 8
	c := &canvas{}
	x := scale{s.From, s.To, left, right, false}
	values := s.Values
	if drawable(s.Mean, false) {
		values = append(values[:len(values):len(values)], s.Mean)
	}
	y, ticks := s.Y.scaleOf(values, stepBottom, top+6)
	c.grid(left, right, y, ticks, s.Y.Name)
	begin := x.at(0)
	c.WriteString(`<g class="k0"><path class="ar" d="M` + n(begin) + " " + n(stepBottom))
	c.steps(s.Values, s.Length, x, y)
	c.WriteString("V" + n(stepBottom) + `z"/><path class="l" d="M` + n(begin) + " " + n(y.at(s.Values[0])))
	c.steps(s.Values, s.Length, x, y)
	c.WriteString(`"/></g>`)
	if drawable(s.Mean, false) {
		c.WriteString(`<path class="mean" d="M` + n(begin) + " " + n(y.at(s.Mean)) + "H" + n(x.at(s.Length)) + `"/>`)
		c.text(right, 14, "end", "", s.Text)
	}
	c.seconds(stepBottom, right, x)
	return s.svg(stepHeight, c)
}

// steps goes to each value, and across its part of the length.
func (c *canvas) steps(values []float64, length float64, x, y scale) {
	for i, v := range values {
		c.WriteString("V" + n(y.at(v)) + "H" + n(x.at(length*float64(i+1)/float64(len(values)))))
	}
}

// A Stack is how many streams were in each state, over equal parts of a
// stretch of time: for more streams than rows can show.
type Stack struct {
	Head
	Length float64 // seconds
	Total  float64 // streams
	Layers []Layer // from the bottom up
}

// A Layer is one state.
type Layer struct {
	Label  string
	State  State
	Values []float64
}

// SVG returns the drawing, nil when there is nothing to draw.
func (s Stack) SVG() []byte {
	if len(s.Layers) == 0 || len(s.Layers[0].Values) == 0 || !(s.Length > 0) || !(s.Total > 0) {
		return nil
	}
	bins := len(s.Layers[0].Values)
	const right = width - 8
	c := &canvas{}
	x := scale{0, s.Length, left, right, false}
	y, ticks := Axis{}.scaleOf([]float64{s.Total}, stepBottom, top+6)
	c.grid(left, right, y, ticks, "Streams")
	under := make([]float64, bins)
	key := float64(right) // its names stand above the plot, from the right
	for j := len(s.Layers) - 1; j >= 0; j-- {
		l := s.Layers[j]
		if len(l.Values) != bins || l.State >= states {
			return nil
		}
		key -= textWidth(l.Label)
		c.text(key, 14, "start", "n", l.Label)
		key -= 14
		c.WriteString(`<path class="` + stateClasses[l.State] + `" d="M` + n(key) + ` 5h9v9h-9z"/>`)
		key -= 10
	}
	for _, l := range s.Layers {
		over, any := make([]float64, bins), false
		for i, v := range l.Values {
			if !drawable(v, false) || v < 0 {
				return nil
			}
			over[i], any = under[i]+v, any || v > 0
		}
		if any {
			c.WriteString(`<path class="` + stateClasses[l.State] + `" d="M` + n(left) + " " + n(y.at(under[0])))
			c.steps(over, s.Length, x, y)
			for i := bins - 1; i >= 0; i-- {
				c.WriteString("V" + n(y.at(under[i])) + "H" + n(x.at(s.Length*float64(i)/float64(bins))))
			}
			c.WriteString(`z"/>`)
		}
		under = over
	}
	c.seconds(stepBottom, right, x)
	return s.svg(stepHeight, c)
}
