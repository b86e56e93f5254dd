// Package echart turns the figures of package chart into options of Apache
// ECharts, as JSON, for readers who want to point at them: the same numbers,
// colours, marks and labels. It is the one home of go-echarts.
//
// It uses only the options of go-echarts, never what that writes for pages:
// inline scripts with unescaped names. What the types lack is added to the
// JSON. Where ECharts wants a function or a colour, the option has a word
// that the script of the page knows:
//
//   - a colour "@name" is the custom property --name of the page;
//   - an axis has labels for its ticks;
//   - a series has a place for its name beside the plot, 0 at the top of it,
//     1 at its bottom, and the start of a line that leads there;
//   - an item is its numbers, then in words where that is, what was found
//     there, and the status. A number that is null has no place;
//   - a series of type custom is of boxes: its group, and six percentiles.
//
// It must not know what is measured: no run, no cell.
package echart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"

	"speedmatrix/render/internal/chart"
)

// Text sizes in pixels: a character of a name beside its line, and what
// stands around the plot.
const (
	textPx                  = 13
	charPx                  = 9
	namePx                  = 16
	leftPx, topPx, bottomPx = 56, 38, 52
)

// An object is a part of an option.
type object = map[string]any

// Lines returns the option of lines, nil when there is no point to draw.
// Each series is one line of the JSON.
func Lines(l chart.Lines) ([]byte, error) {
	shows := func(p chart.Point) bool { return l.X.Shows(p.X) && l.Y.Shows(p.Y) }
	var xs, ys []float64
	longest, texts := 0, false
	for _, s := range l.Series {
		for _, p := range s.Points {
			if shows(p) {
				xs, ys, texts = append(xs, p.X), append(ys, p.Y), texts || p.Text != ""
				longest = max(longest, len([]rune(s.Label)))
			}
		}
	}
	if len(xs) == 0 {
		return nil, nil
	}
	c := charts.NewLine()
	trigger := "axis" // all lines at one place of the axis
	if l.X.Ticks == nil {
		trigger = "item"
	}
	right := 16
	if longest > 0 {
		right = namePx + charPx*longest
	}
	c.SetGlobalOptions(globals(l.Head, trigger, right)...)
	xAxis := newAxis(l.X, xs, true)
	yAxis := newAxis(l.Y, ys, false)
	c.SetGlobalOptions(charts.WithXAxisOpts(xAxis.x()), charts.WithYAxisOpts(yAxis.y()))
	var more []object // of each series: what the types lack, and the data, which need no detour
	names := l.Names()
	for i, s := range l.Series {
		colour := "@c" + strconv.Itoa(chart.Colour(i, len(l.Series)))
		c.AddSeries(s.Label, nil,
			charts.WithLineStyleOpts(opts.LineStyle{Color: colour, Width: 2}),
			charts.WithItemStyleOpts(opts.ItemStyle{Color: colour, BorderColor: "@card", BorderWidth: 1}),
			charts.WithEmphasisOpts(opts.Emphasis{Focus: "series"}),
			charts.WithLineChartOpts(opts.LineChart{Symbol: "path://M0 0" + chart.Marker(i), SymbolSize: 10, ShowSymbol: opts.Bool(true), SymbolKeepAspect: opts.Bool(true)}),
		)
		faint := object{"opacity": 0.3} // beside the one that is pointed at
		m := object{"data": items(l.X, s.Points, shows), "blur": object{"lineStyle": faint, "itemStyle": faint, "label": faint, "endLabel": faint}}
		if !math.IsNaN(names[i]) {
			m["nameAt"] = math.Round(1000*names[i]) / 1000
			end := placedEnd(l, s.Points)
			m["markLine"] = object{"silent": true, "symbol": "none", "label": object{"show": false}, "lineStyle": object{"color": colour, "width": 1, "type": []int{1, 3}},
				"emphasis": object{"disabled": true}, "data": [][]object{{{"coord": []float64{number(end.X), number(end.Y)}}}}}
			m["endLabel"] = object{"show": true, "formatter": "{a}", "color": colour, "fontWeight": 600, "fontSize": textPx}
		}
		if texts {
			position := "top"
			if l.Right {
				position = "right"
			}
			m["label"] = object{"show": true, "formatter": "{b}", "position": position, "color": "@soft", "fontSize": textPx - 1}
		}
		more = append(more, m)
	}
	c.Validate()
	return marshal(c.JSON(), xAxis, yAxis, more)
}

// items returns the points of a line, the leftmost first, because the name of
// a line stands at its end. Points without a place break it. On an axis of
// given places a point is there, for its line has a name; else its title says
// where it is.
func items(x chart.Axis, points []chart.Point, shows func(chart.Point) bool) []opts.LineData {
	var list []opts.LineData
	for i, p := range points {
		item := []any{nil, nil, p.Title, "", p.Status}
		if shows(p) {
			item = []any{number(p.X), number(p.Y), whereOf(p.Title, p.Value), p.Value, p.Status}
		} else if !math.IsNaN(p.X) && !math.IsInf(p.X, 0) {
			item[0] = number(p.X)
		}
		at := slices.IndexFunc(x.Ticks, func(t chart.Tick) bool { return t.Value == p.X })
		if at >= 0 && at < len(x.Titles) {
			item[2] = x.Titles[at]
		}
		if p.Apart && i > 0 && shows(points[i-1]) {
			list = append(list, opts.LineData{Value: []any{nil, nil}})
		}
		list = append(list, opts.LineData{Name: p.Text, Value: item})
	}
	first := slices.IndexFunc(points, shows)
	if last := lastIndex(points, shows); first >= 0 && points[first].X > points[last].X {
		slices.Reverse(list)
	}
	return list
}

func lastIndex(points []chart.Point, ok func(chart.Point) bool) int {
	i := len(points) - 1
	for i >= 0 && !ok(points[i]) {
		i--
	}
	return i
}

// placedEnd returns the point of a line that lies farthest to the right.
func placedEnd(l chart.Lines, points []chart.Point) (end chart.Point) {
	end.X = math.Inf(-1)
	for _, p := range points {
		if p.X > end.X && l.X.Shows(p.X) && l.Y.Shows(p.Y) {
			end = p
		}
	}
	return end
}

// whereOf returns a title without the value at its end.
func whereOf(title, value string) string {
	if value == "" {
		return title
	}
	return strings.TrimSuffix(title, ": "+value)
}

// Boxes returns the option of boxes, nil when there is no box to draw.
func Boxes(b chart.Boxes) ([]byte, error) {
	var ys []float64
	data := make([][]opts.CustomData, len(b.Series))
	groups := chart.Axis{Name: b.X}
	for i := range data {
		data[i] = []opts.CustomData{} // not null
	}
	for i, g := range b.Groups {
		groups.Ticks = append(groups.Ticks, chart.Tick{Value: float64(i), Label: g.Label})
		for _, x := range g.Boxes {
			if b.Shows(x) {
				ys = append(ys, x.P5, x.P99)
				data[x.Series] = append(data[x.Series], opts.CustomData{Value: []any{i, number(x.P5), number(x.P25), number(x.P50), number(x.P75),
					number(x.P95), number(x.P99), whereOf(x.Title, x.Value), x.Value, x.Status}})
			}
		}
	}
	if len(ys) == 0 {
		return nil, nil
	}
	c := charts.NewCustom()
	c.SetGlobalOptions(globals(b.Head, "item", 16)...)
	xAxis := newAxis(groups, nil, true)
	xAxis.lo, xAxis.hi = -0.5, float64(len(b.Groups))-0.5
	yAxis := newAxis(b.Y, ys, false)
	c.SetGlobalOptions(charts.WithXAxisOpts(xAxis.x()), charts.WithYAxisOpts(yAxis.y()))
	var more []object
	for i, name := range b.Series {
		c.AddSeries(name, nil,
			charts.WithItemStyleOpts(opts.ItemStyle{Color: "@c" + strconv.Itoa(chart.Colour(i, len(b.Series)))}),
			charts.WithEmphasisOpts(opts.Emphasis{Focus: "series"}),
			charts.WithEncodeOpts(opts.Encode{X: 0, Y: []int{1, 2, 3, 4, 5, 6}}),
		)
		more = append(more, object{"data": data[i], "clip": true})
	}
	c.Validate()
	return marshal(c.JSON(), xAxis, yAxis, more)
}

// globals are the options that all figures share.
func globals(h chart.Head, trigger string, right int) []charts.GlobalOpts {
	px := strconv.Itoa
	return []charts.GlobalOpts{
		charts.WithInitializationOpts(opts.Initialization{ChartID: h.ID}),
		charts.WithAnimation(false),
		charts.WithLegendOpts(opts.Legend{Show: opts.Bool(false)}), // names stand beside the lines
		charts.WithTooltipOpts(opts.Tooltip{Trigger: trigger, BackgroundColor: "@card", BorderColor: "@rule",
			AxisPointer: &opts.AxisPointer{Type: "line", Snap: opts.Bool(true)}}),
		charts.WithGridOpts(opts.Grid{Left: px(leftPx), Right: px(right), Top: px(topPx), Bottom: px(bottomPx)}),
		func(c *charts.BaseConfiguration) {
			c.Aria = &opts.Aria{Enabled: opts.Bool(true), Label: &opts.AriaLabel{Enabled: opts.Bool(true), Description: h.Title + ". " + h.Desc}}
		},
	}
}

// An axis is a direction of a plot, laid out as package chart does.
type axis struct {
	chart.Axis
	lo, hi     float64
	ticks      []chart.Tick
	horizontal bool
}

func newAxis(a chart.Axis, values []float64, horizontal bool) axis {
	lo, hi, ticks := a.Range(values)
	if lo == hi && !a.Log {
		lo, hi = lo-1, hi+1
	}
	if horizontal && a.Log { // marks stay clear of the ends
		lo, hi = lo/1.08, hi*1.08
	}
	return axis{a, lo, hi, ticks, horizontal}
}

func (a axis) kind() string {
	if a.Log {
		return "log"
	}
	return "value"
}

func (a axis) x() opts.XAxis {
	return opts.XAxis{Type: a.kind(), Name: a.Name, NameLocation: "middle", NameGap: 30, Min: number(a.lo), Max: number(a.hi),
		AxisLine: line("@rule"), AxisLabel: &opts.AxisLabel{Color: "@soft", FontSize: textPx, HideOverlap: opts.Bool(true)}, SplitLine: &opts.SplitLine{Show: opts.Bool(false)},
		AxisTick: &opts.AxisTick{LineStyle: &opts.LineStyle{Color: "@rule"}}}
}

func (a axis) y() opts.YAxis {
	return opts.YAxis{Type: a.kind(), Name: a.Name, NameGap: 16, Min: number(a.lo), Max: number(a.hi),
		AxisLine: &opts.AxisLine{Show: opts.Bool(false), OnZero: opts.Bool(false)}, AxisLabel: &opts.AxisLabel{Color: "@soft", FontSize: textPx},
		SplitLine: &opts.SplitLine{LineStyle: &opts.LineStyle{Color: "@line"}}}
}

func line(colour string) *opts.AxisLine {
	return &opts.AxisLine{OnZero: opts.Bool(false), LineStyle: &opts.LineStyle{Color: colour}}
}

// complete adds what the types lack: ticks and their texts.
func (a axis) complete(o object) {
	var values []float64
	var labels []string
	for _, t := range a.ticks {
		values, labels = append(values, number(t.Value)), append(labels, t.Label)
	}
	merge(o, "axisLabel", object{"customValues": values})
	merge(o, "axisTick", object{"customValues": values, "show": a.horizontal})
	o["labels"] = labels
	o["nameMoveOverlap"] = false
	style := object{"color": "@soft", "fontSize": textPx}
	if !a.horizontal {
		style["align"] = "left"
		style["padding"] = []int{0, 0, 0, 2 - leftPx}
	}
	o["nameTextStyle"] = style
}

func merge(o object, key string, more object) {
	inner, ok := o[key].(object)
	if !ok {
		inner = object{}
		o[key] = inner
	}
	for k, v := range more {
		inner[k] = v
	}
}

// number rounds to six digits, which is finer than any screen, so that the
// last bits of a quotient are in no page.
func number(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return v // none that was written by the line above
	}
	return r
}

// marshal completes what go-echarts made, and writes it: a member a line,
// and a series a line. The default escaping of JSON keeps foreign text
// inside the element of the page that holds it.
func marshal(typed map[string]any, x, y axis, more []object) ([]byte, error) {
	b, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("write options of a chart: %w", err)
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, fmt.Errorf("write options of a chart: %w", err)
	}
	for _, empty := range []string{"title", "toolbox", "color"} {
		delete(o, empty)
	}
	for key, a := range map[string]axis{"xAxis": x, "yAxis": y} {
		if list, ok := o[key].([]any); ok && len(list) == 1 {
			if first, ok := list[0].(object); ok {
				a.complete(first)
			}
		}
	}
	if list, ok := o["grid"].([]any); ok && len(list) == 1 {
		if first, ok := list[0].(object); ok {
			first["outerBoundsMode"] = "none" // what stands around the plot has its room
		}
	}
	merge(o, "tooltip", object{"padding": []int{8, 12}})
	list, _ := o["series"].([]any)
	if len(list) != len(more) {
		return nil, fmt.Errorf("write options of a chart: %d series, want %d", len(list), len(more))
	}
	for i := range list {
		if s, ok := list[i].(object); ok {
			for k, v := range more[i] {
				s[k] = v
			}
		}
	}
	return lines(o)
}

// lines writes an object with a line for each member, and for each element
// of its series.
func lines(o object) ([]byte, error) {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		parts := []any{o[k]}
		open, shut := "", ""
		if list, ok := o[k].([]any); ok && k == "series" {
			parts, open, shut = list, "[", "\n]"
		}
		fmt.Fprintf(&b, "\n%q:%s", k, open)
		for j, p := range parts {
			if j > 0 {
				b.WriteByte(',')
			}
			if open != "" {
				b.WriteByte('\n')
			}
			text, err := json.Marshal(p)
			if err != nil {
				return nil, fmt.Errorf("write options of a chart: %w", err)
			}
			b.Write(text)
		}
		b.WriteString(shut)
	}
	b.WriteString("\n}")
	return b.Bytes(), nil
}
