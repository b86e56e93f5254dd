package render

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"sync"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/chart"
	"speedmatrix/render/internal/echart"
	"speedmatrix/render/internal/format"
)

// This file draws: from a run to the figures of package chart. Only Valid
// measurements are drawn.

// A drawing is a chart with its caption. Its numbers are in the tables of
// the same page.
type drawing struct {
	ID, Title, Sub string
	File           string // name of its own file, where it has one
	SVG            template.HTML
	Alt, Desc      string                 // for who does not see it: what it is; what it shows
	option         func() ([]byte, error) // the same for ECharts; nil where there is none
}

func newDrawing(h chart.Head, sub string, svg []byte) []drawing {
	if svg == nil {
		return nil
	}
	// Package chart escapes all text and writes nothing else that is foreign.
	return []drawing{{h.ID, h.Title, sub, h.ID + ".svg", template.HTML(svg), h.Title + ". " + sub, h.Desc, nil}}
}

func newLines(l chart.Lines, sub string) []drawing {
	return live(newDrawing(l.Head, sub, l.SVG()), func() ([]byte, error) { return echart.Lines(l) })
}

// live gives a drawing an option that ECharts can draw it from.
func live(list []drawing, option func() ([]byte, error)) []drawing {
	for i := range list {
		list[i].option = option
	}
	return list
}

// file returns the drawing as a file of its own, which follows the theme by itself.
func (d drawing) file() []byte { return chart.File([]byte(d.SVG), chartStyle()) }

// chartStyle returns the style of a drawing that is a file, made once.
var chartStyle = sync.OnceValue(func() string { return string(newAsset("", "", "colours.css", "chart.css").data) })

// runDrawings returns the drawings of a run's page; none where nothing was
// measured.
func runDrawings(run *ingest.Run, labels map[int32]string) []drawing {
	return slices.Concat(
		perRequestDrawing(run, labels), totalDrawing(run, labels), ttftDrawing(run, labels),
		sizingDrawing(run, labels), gapsDrawing(run, labels), prefillDrawing(run, labels),
	)
}

// validByContext returns the Valid decode cells of each planned context. A
// context without any keeps its place, so that it keeps its colour and its
// mark in every drawing.
func validByContext(run *ingest.Run) (contexts []int32, cells map[int32][]*ingest.Cell) {
	decode := phaseCells(run, runlog.PhaseDecode)
	cells = map[int32][]*ingest.Cell{}
	for _, c := range decode {
		if c.Status == ingest.Valid {
			cells[c.ContextTokens] = append(cells[c.ContextTokens], c)
		}
	}
	return distinct(decode, contextOf), cells
}

// contextLines returns a line for each planned context, broken where a
// measurement is not Valid; the text of a point is its number of requests. A
// measurement that is not Valid is a point of its line without a place.
func contextLines(run *ingest.Run, labels map[int32]string, point func(c *ingest.Cell) (x, y float64, text string)) []chart.Series {
	var list []chart.Series
	missing := false // since the last point of this context
	for _, c := range phaseCells(run, runlog.PhaseDecode) {
		label := labels[c.ContextTokens]
		if len(list) == 0 || list[len(list)-1].Label != label {
			list = append(list, chart.Series{Label: label})
		}
		s := &list[len(list)-1]
		p := chart.Point{X: float64(c.Concurrency), Y: math.NaN(), Title: label + " context, " + atOnce(c.Concurrency), Status: c.Status.String()}
		x, y, text := point(c)
		if c.Status != ingest.Valid || math.IsNaN(x) || math.IsNaN(y) {
			s.Points = append(s.Points, p)
			missing = true
			continue
		}
		p.X, p.Y, p.Title, p.Text, p.Value, p.Apart = x, y, p.Title+": "+text, plain(c.Concurrency), text, missing
		s.Points = append(s.Points, p)
		missing = false
	}
	return list
}

// keepTexts leaves the numbers of requests at the points of one line only.
func keepTexts(list []chart.Series, of int) {
	for i := range list {
		for j := range list[i].Points {
			if i != of {
				list[i].Points[j].Text = ""
			}
		}
	}
}

// ends says where each line begins and ends, in words.
func ends(list []chart.Series) string {
	var sentences []string
	for _, s := range list {
		points := placed(s)
		switch n := len(points); {
		case n == 1:
			sentences = append(sentences, points[0].Title+".")
		case n > 1:
			last := points[n-1].Title
			sentences = append(sentences, points[0].Title+"; "+strings.TrimPrefix(last, s.Label+" context, ")+".")
		}
	}
	return strings.Join(sentences, " ")
}

// placed returns the points of a line that have a place.
func placed(s chart.Series) []chart.Point {
	return slices.DeleteFunc(slices.Clone(s.Points), func(p chart.Point) bool { return math.IsNaN(p.Y) })
}

func concurrencyAxis(run *ingest.Run) chart.Axis {
	a := chart.Axis{Name: "requests at once", Log: true}
	for _, n := range distinct(phaseCells(run, runlog.PhaseDecode), concurrencyOf) {
		a.Ticks = append(a.Ticks, chart.Tick{Value: float64(n), Label: plain(n)})
		a.Titles = append(a.Titles, atOnce(n))
	}
	return a
}

// byConcurrency draws one figure of every Valid cell over the concurrency.
func byConcurrency(run *ingest.Run, labels map[int32]string, id, title, sub string, y chart.Axis, figure func(*ingest.Cell) ingest.Stat, text func(float64) string) []drawing {
	l := chart.Lines{
		X: concurrencyAxis(run), Y: y,
		Series: contextLines(run, labels, func(c *ingest.Cell) (float64, float64, string) {
			v := value(figure(c))
			return float64(c.Concurrency), v, text(v)
		}),
	}
	keepTexts(l.Series, -1)
	l.Head = chart.Head{ID: id, Title: title, Desc: "A line for each context length. " + ends(l.Series)}
	return newLines(l, sub)
}

func tokPerS(v float64) string { return format.TokPerS(v) + " tok/s" }

func perRequestDrawing(run *ingest.Run, labels map[int32]string) []drawing {
	return byConcurrency(run, labels, "chart-per-request", "Speed of one request", "How fast one reader gets tokens, with more requests beside it.",
		chart.Axis{Name: "tok/s per request"}, func(c *ingest.Cell) ingest.Stat { return c.Figures.PerRequestTokPerS }, tokPerS)
}

func totalDrawing(run *ingest.Run, labels map[int32]string) []drawing {
	return byConcurrency(run, labels, "chart-total", "Speed of the server", "What all requests together get. Flat: the server is full.",
		chart.Axis{Name: "total tok/s", Log: true}, func(c *ingest.Cell) ingest.Stat { return c.Figures.TotalTokPerS }, tokPerS)
}

func ttftDrawing(run *ingest.Run, labels map[int32]string) []drawing {
	return byConcurrency(run, labels, "chart-ttft", "Time to first token", "With the prompt in the server's cache, so mostly without prefill.",
		chart.Axis{Name: "TTFT", Log: true, Unit: chart.Micros}, func(c *ingest.Cell) ingest.Stat { return c.Figures.TTFTUs }, format.Millis)
}

// sizingDrawing is the picture by which a server is sized: what one user
// gets against what the server gives in all.
func sizingDrawing(run *ingest.Run, labels map[int32]string) []drawing {
	l := chart.Lines{
		X: chart.Axis{Name: "tok/s per request", Log: true}, Y: chart.Axis{Name: "total tok/s", Log: true}, Right: true,
		Series: contextLines(run, labels, func(c *ingest.Cell) (float64, float64, string) {
			x, y := value(c.Figures.PerRequestTokPerS), value(c.Figures.TotalTokPerS)
			return x, y, format.TokPerS(x) + " per request, " + format.TokPerS(y) + " in all"
		}),
	}
	longest := -1
	for i, x := range l.Series {
		if longest < 0 || len(placed(x)) > len(placed(l.Series[longest])) {
			longest = i
		}
	}
	keepTexts(l.Series, longest)
	l.Head = chart.Head{ID: "chart-sizing", Title: "One request against all",
		Desc: "A line for each context length; its points are numbers of requests at once. " + ends(l.Series)}
	return newLines(l, "Choose the speed that a reader needs, and read how much the server then gives in all. Numbers are requests at once.")
}

func prefillDrawing(run *ingest.Run, labels map[int32]string) []drawing {
	l := chart.Lines{X: chart.Axis{Name: "context", Log: true}, Y: chart.Axis{Name: "prompt tok/s"}}
	var s chart.Series
	cells := phaseCells(run, runlog.PhasePrefill)
	for _, t := range distinct(cells, contextOf) {
		l.X.Ticks = append(l.X.Ticks, chart.Tick{Value: float64(t), Label: labels[t]})
		l.X.Titles = append(l.X.Titles, labels[t]+" context")
	}
	missing := false
	for _, c := range cells {
		v, where := value(c.Figures.PrefillTokPerS), labels[c.ContextTokens]+" context"
		if c.Status != ingest.Valid || math.IsNaN(v) {
			s.Points = append(s.Points, chart.Point{X: float64(c.ContextTokens), Y: math.NaN(), Title: where, Status: c.Status.String()})
			missing = true
			continue
		}
		text := format.TokPerSWhole(v) + " tok/s"
		s.Points = append(s.Points, chart.Point{X: float64(c.ContextTokens), Y: v, Text: format.TokPerSWhole(v), Apart: missing,
			Title: where + ": " + text, Value: text, Status: c.Status.String()})
		missing = false
	}
	l.Series = []chart.Series{s}
	l.Head = chart.Head{ID: "chart-prefill", Title: "Prefill speed", Desc: "One line over the context length. " + ends(l.Series)}
	return newLines(l, "How fast a prompt is read that no cache holds.")
}

func gapsDrawing(run *ingest.Run, labels map[int32]string) []drawing {
	b := chart.Boxes{X: "requests at once", Y: chart.Axis{Name: "gap between events", Log: true, Unit: chart.Micros}}
	contexts, cells := validByContext(run)
	for _, t := range contexts {
		b.Series = append(b.Series, labels[t])
	}
	var medians []string
	for _, n := range distinct(phaseCells(run, runlog.PhaseDecode), concurrencyOf) {
		g := chart.Group{Label: plain(n)}
		for i, t := range contexts {
			for _, c := range cells[t] {
				if p := c.Spread.GapUs; c.Concurrency == n && p.P50.Known() {
					text := fmt.Sprintf("half of the gaps lie in %s … %s, median %s, p99 %s",
						format.Millis1(value(p.P25)), format.Millis1(value(p.P75)), format.Millis1(value(p.P50)), format.Millis1(value(p.P99)))
					g.Boxes = append(g.Boxes, chart.Box{Series: i, P5: visibleGap(p.P5), P25: visibleGap(p.P25), P50: visibleGap(p.P50),
						P75: visibleGap(p.P75), P95: visibleGap(p.P95), P99: visibleGap(p.P99),
						Title: labels[t] + " context, " + atOnce(n) + ": " + text, Value: text, Status: c.Status.String()})
					if i == 0 {
						medians = append(medians, atOnce(n)+" "+format.Millis1(value(p.P50)))
					}
				}
			}
		}
		b.Groups = append(b.Groups, g)
	}
	desc := "Boxes for each number of requests at once and context length."
	if len(medians) > 0 {
		desc += " Medians at " + b.Series[0] + " context: " + strings.Join(medians, ", ") + "."
	}
	b.Head = chart.Head{ID: "chart-gaps", Title: "Gaps between events", Desc: desc}
	return live(newDrawing(b.Head, "Boxes hold half of the gaps, with the median; whiskers reach from p5 to p95, × is p99. Contexts stand from left to right.", b.SVG()),
		func() ([]byte, error) { return echart.Boxes(b) })
}

// visibleGap returns a gap in microseconds for a logarithmic axis: events
// that one read completed have a gap of 0, which is drawn as 10 µs.
func visibleGap(s ingest.Stat) float64 { return max(value(s), 10) }

// streamsDrawing draws the streams of a cell over time.
func streamsDrawing(c *ingest.Cell, id, name string) []drawing {
	t := c.Timeline
	if c.Status != ingest.Valid || t == nil || c.WindowOpenUs == nil || c.WindowCloseUs == nil {
		return nil
	}
	seconds := func(us int64) float64 { return float64(us-*c.WindowOpenUs) / 1e6 }
	length := seconds(*c.WindowCloseUs)
	h := chart.Head{ID: id + "-streams", Title: "Streams of " + name}
	waited, stalled := share(t.Streams[ingest.Waiting][:], c.Concurrency), share(t.Streams[ingest.Stalled][:], c.Concurrency)
	h.Desc = fmt.Sprintf("In the window, streams waited for a first token %s of the time and stalled %s of it.", waited, stalled)
	if t.Spans != nil {
		s := chart.Streams{Head: h, From: seconds(t.FromUs), To: seconds(t.ToUs), Close: length, Rows: int(c.Concurrency)}
		for _, b := range t.Spans {
			s.Bars = append(s.Bars, chart.Bar{Row: int(b.Stream), State: drawnState(b.State), From: seconds(b.FromUs), To: seconds(b.ToUs)})
		}
		sub, limit := "Thick: tokens arrive; thin: waiting for the first one", format.Millis(float64(t.StallUs))
		switch stalled := slices.ContainsFunc(t.Spans, func(b ingest.Span) bool { return b.State == ingest.Stalled }); {
		case stalled:
			sub += "; half-thick: no token for more than " + limit
		case t.StallUs > 0:
			sub += ". No pause was longer than " + limit
		}
		return captioned("Streams", newDrawing(h, sub+".", s.SVG()))
	}
	s := chart.Stack{Head: h, Length: length, Total: float64(c.Concurrency)}
	for _, l := range []struct {
		label string
		state ingest.StreamState
	}{{"tokens", ingest.Delivering}, {"stalled", ingest.Stalled}, {"waiting", ingest.Waiting}} {
		s.Layers = append(s.Layers, chart.Layer{Label: l.label, State: drawnState(l.state), Values: t.Streams[l.state][:]})
	}
	sub := "How many streams are waiting for their first token, or receive tokens"
	if t.StallUs > 0 {
		sub += ", or have had none for more than " + format.Millis(float64(t.StallUs))
	}
	return captioned("Streams", newDrawing(h, sub+".", s.SVG()))
}

func share(streams []float64, of int32) string {
	sum := 0.0
	for _, v := range streams {
		sum += v
	}
	return format.One(100*sum/float64(len(streams))/float64(of)) + " %"
}

func drawnState(s ingest.StreamState) chart.State {
	switch s {
	case ingest.Waiting:
		return chart.Waits
	case ingest.Stalled:
		return chart.Stalls
	}
	return chart.Delivers
}

// ratesDrawing draws the rate of a cell over its window.
func ratesDrawing(c *ingest.Cell, id, name string) []drawing {
	t := c.Timeline
	if c.Status != ingest.Valid || t == nil || t.TokPerS == nil || c.WindowOpenUs == nil {
		return nil
	}
	total := value(c.Figures.TotalTokPerS)
	s := chart.Steps{
		Y: chart.Axis{Name: "total tok/s"}, Length: value(c.Figures.WindowUs) / 1e6, Values: t.TokPerS, Mean: total,
		Text: "whole window " + format.TokPerS(total),
	}
	s.To = s.Length
	if t.Spans != nil { // the axis of the streams above it
		s.From = float64(t.FromUs-*c.WindowOpenUs) / 1e6
	}
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, v := range t.TokPerS {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	s.Head = chart.Head{ID: id + "-rate", Title: "tok/s over the window of " + name,
		Desc: fmt.Sprintf("%d equal parts of the window have between %s and %s; the whole has %s.", len(t.TokPerS), format.TokPerS(lowest), format.TokPerS(highest), tokPerS(total))}
	return captioned("Speed over the window", newDrawing(s.Head, fmt.Sprintf("%d equal parts, %s to %s tok/s.", len(t.TokPerS), format.TokPerS(lowest), format.TokPerS(highest)), s.SVG()))
}

// captioned gives a drawing another title for those who see it.
func captioned(title string, list []drawing) []drawing {
	for i := range list {
		list[i].Title = title
	}
	return list
}

// A gapRow is the percentiles of the gaps of one Valid decode cell.
type gapRow struct{ Context, Concurrency, N, P5, P25, P50, P75, P95, P99 string }

func gapRows(run *ingest.Run, labels map[int32]string) []gapRow {
	var rows []gapRow
	for _, c := range phaseCells(run, runlog.PhaseDecode) {
		p := c.Spread.GapUs
		if c.Status != ingest.Valid || !p.P50.Known() {
			continue
		}
		f := func(s ingest.Stat) string { return format.Millis1(value(s)) }
		rows = append(rows, gapRow{labels[c.ContextTokens], plain(c.Concurrency), format.Int(int64(p.P50.N)), f(p.P5), f(p.P25), f(p.P50), f(p.P75), f(p.P95), f(p.P99)})
	}
	return rows
}
