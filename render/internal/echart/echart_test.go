package echart

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"speedmatrix/render/internal/chart"
)

var update = flag.Bool("update", false, "write the golden files anew")

func figureLines() chart.Lines {
	nan := math.NaN()
	return chart.Lines{
		Head: chart.Head{ID: "chart-x", Title: "Speed", Desc: "Lines."},
		X: chart.Axis{Name: "requests at once", Log: true, Titles: []string{"1 request", "2 requests at once", "4 requests at once"},
			Ticks: []chart.Tick{{Value: 1, Label: "1"}, {Value: 2, Label: "2"}, {Value: 4, Label: "4"}}},
		Y: chart.Axis{Name: "tok/s", Log: true},
		Series: []chart.Series{
			{Label: "8K", Points: []chart.Point{
				{X: 1, Y: 100, Title: "8K context, 1 request: 100.0 tok/s", Value: "100.0 tok/s", Status: "Valid"},
				{X: 2, Y: nan, Title: "8K context, 2 requests at once", Status: "Looped"},
				{X: 4, Y: 1000.0 / 3, Title: "8K context, 4 requests at once: 333.3 tok/s", Value: "333.3 tok/s", Status: "Valid", Apart: true}}},
			{Label: "16K", Points: []chart.Point{{X: 1, Y: 90, Title: "alone", Status: "Valid"}}},
		},
	}
}

func figureBoxes() chart.Boxes {
	return chart.Boxes{
		Head: chart.Head{ID: "chart-b", Title: "Gaps", Desc: "Boxes."}, X: "requests at once", Y: chart.Axis{Name: "gap", Log: true, Unit: chart.Micros}, Series: []string{"8K", "16K"},
		Groups: []chart.Group{
			{Label: "1", Boxes: []chart.Box{{Series: 0, P5: 4000, P25: 5000, P50: 6000, P75: 7000, P95: 9000, P99: 20000, Title: "8K: half", Value: "half", Status: "Valid"}}},
			{Label: "2", Boxes: []chart.Box{{Series: 1, P5: 8000, P25: 9000, P50: 10000, P75: 11000, P95: 12000, P99: math.NaN()}}},
		},
	}
}

// An option is what the tests read of one.
type option struct {
	XAxis, YAxis []struct {
		Type, Name string
		Min, Max   float64
		Labels     []string
		AxisLabel  struct{ CustomValues []float64 }
	}
	Tooltip struct{ Trigger string }
	Aria    struct {
		Enabled bool
		Label   struct{ Description string }
	}
	Series []struct {
		Name, Type, Symbol string
		ItemStyle          struct{ Color string }
		Data               []struct {
			Name  string
			Value []any
		}
	}
}

func read(t *testing.T, b []byte, err error) option {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var o option
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return o
}

func TestGolden(t *testing.T) {
	for name, draw := range map[string]func() ([]byte, error){
		"lines": func() ([]byte, error) { return Lines(figureLines()) },
		"boxes": func() ([]byte, error) { return Boxes(figureBoxes()) },
	} {
		got, err := draw()
		if err != nil {
			t.Fatal(err)
		}
		again, err := draw()
		if err != nil || !bytes.Equal(got, again) {
			t.Errorf("%s: not the same twice (%v)", name, err)
		}
		path := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs; go test ./render/internal/echart -update writes it anew\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestPointsOfALine(t *testing.T) {
	b, err := Lines(figureLines())
	o := read(t, b, err)
	var got []any
	for _, d := range o.Series[0].Data {
		got = append(got, d.Value)
	}
	want := []any{
		[]any{1.0, 100.0, "1 request", "100.0 tok/s", "Valid"},
		[]any{2.0, nil, "2 requests at once", "", "Looped"}, // breaks the line, and says why
		[]any{4.0, 333.333, "4 requests at once", "333.3 tok/s", "Valid"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if o.Aria.Label.Description != "Speed. Lines." || !o.Aria.Enabled || o.Tooltip.Trigger != "axis" {
		t.Errorf("described as %+v, shown by %q", o.Aria, o.Tooltip.Trigger)
	}
	if x, y := o.XAxis[0], o.YAxis[0]; x.Type != "log" || x.Min >= 1 || x.Max <= 4 || strings.Join(x.Labels, " ") != "1 2 4" ||
		y.Min != 50 || y.Max != 500 || strings.Join(y.Labels, " ") != "50 100 200 500" || fmt.Sprint(y.AxisLabel.CustomValues) != "[50 100 200 500]" {
		t.Errorf("axes %+v %+v, want those of the drawing", x, y)
	}
	for i, want := range []string{"@c0", "@c5"} {
		if s := o.Series[i]; s.ItemStyle.Color != want || s.Symbol != "path://M0 0"+chart.Marker(i) {
			t.Errorf("series %d has the colour %q and the mark %q, want those of the drawing", i, s.ItemStyle.Color, s.Symbol)
		}
	}
}

// What lies at no place that the axis names has a title of its own.
func TestItemsOfAnAxisWithoutPlaces(t *testing.T) {
	l := figureLines()
	l.X.Ticks, l.X.Titles = nil, nil
	b, err := Lines(l)
	o := read(t, b, err)
	if got := o.Series[0].Data[0].Value[2]; got != "8K context, 1 request" || o.Tooltip.Trigger != "item" {
		t.Errorf("the first point is at %q, shown by %q", got, o.Tooltip.Trigger)
	}
}

// Where no point stands for what is missing, a line still has to break.
func TestLinesBreakAndRunToTheRight(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		points []chart.Point
		want   string
	}{
		{"joined", []chart.Point{{X: 1, Y: 1}, {X: 2, Y: 2}}, "[1 1][2 2]"},
		{"apart", []chart.Point{{X: 1, Y: 1}, {X: 2, Y: 2, Apart: true}}, "[1 1][<nil> <nil>][2 2]"},
		{"from right to left", []chart.Point{{X: 3, Y: 1}, {X: 2, Y: 2, Apart: true}, {X: 1, Y: 3}}, "[1 3][2 2][<nil> <nil>][3 1]"},
		{"no place at all", []chart.Point{{X: 1, Y: 1}, {X: math.Inf(1), Y: 2}, {X: 3, Y: 3, Apart: true}}, "[1 1][<nil> <nil>][3 3]"},
	} {
		b, err := Lines(chart.Lines{Series: []chart.Series{{Points: tt.points}}})
		got := ""
		for _, d := range read(t, b, err).Series[0].Data {
			got += fmt.Sprint(d.Value[:2])
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.rule, got, tt.want)
		}
	}
}

func TestBoxesOfAGroup(t *testing.T) {
	b, err := Boxes(figureBoxes())
	o := read(t, b, err)
	if len(o.Series) != 2 || len(o.Series[1].Data) != 0 || o.Series[1].Name != "16K" {
		t.Fatalf("series %+v, want two, the second without the box that has no p99", o.Series)
	}
	if got, want := o.Series[0].Data[0].Value, []any{0.0, 4000.0, 5000.0, 6000.0, 7000.0, 9000.0, 20000.0, "8K", "half", "Valid"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if x := o.XAxis[0]; x.Min != -0.5 || x.Max != 1.5 || strings.Join(x.Labels, " ") != "1 2" || strings.Join(o.YAxis[0].Labels, " ") != "2 ms 5 ms 10 ms 20 ms" {
		t.Errorf("axes %+v %+v", x, o.YAxis[0])
	}
}

func TestNothingToDraw(t *testing.T) {
	for rule, draw := range map[string]func() ([]byte, error){
		"no series": func() ([]byte, error) { return Lines(chart.Lines{}) },
		"no place": func() ([]byte, error) {
			return Lines(chart.Lines{Y: chart.Axis{Log: true}, Series: []chart.Series{{Label: "a", Points: []chart.Point{{X: 1}}}}})
		},
		"no box": func() ([]byte, error) { return Boxes(chart.Boxes{Series: []string{"a"}}) },
	} {
		if b, err := draw(); b != nil || err != nil {
			t.Errorf("%s: got %s (%v), want nothing", rule, b, err)
		}
	}
}

// A single place of an axis has room around it.
func TestOneValueHasARange(t *testing.T) {
	l := figureLines()
	l.X.Ticks, l.X.Titles = l.X.Ticks[:1], l.X.Titles[:1]
	for _, log := range []bool{true, false} {
		l.X.Log = log
		b, err := Lines(l)
		if x := read(t, b, err).XAxis[0]; x.Min >= 1 || x.Max <= 1 {
			t.Errorf("logarithmic %v: an axis from %v to %v for the value 1", log, x.Min, x.Max)
		}
	}
}

// What a name may hold stays text of the element that holds the option.
func TestForeignTextStaysInItsElement(t *testing.T) {
	const evil = "</script><script>alert(1)</script><!--\u2028&\"'{b}\x00\xff"
	l, x := figureLines(), figureBoxes()
	l.Head = chart.Head{ID: evil, Title: evil, Desc: evil}
	l.X.Name, l.Y.Name, l.X.Titles[0], l.X.Ticks[0].Label = evil, evil, evil, evil
	p := &l.Series[0].Points[0]
	l.Series[0].Label, p.Title, p.Text, p.Value, p.Status = evil, evil, evil, evil, evil
	x.Head, x.X, x.Y.Name, x.Series[0], x.Groups[0].Label = l.Head, evil, evil, evil, evil
	x.Groups[0].Boxes[0].Title, x.Groups[0].Boxes[0].Value = evil, evil
	for name, draw := range map[string]func() ([]byte, error){
		"lines": func() ([]byte, error) { return Lines(l) },
		"boxes": func() ([]byte, error) { return Boxes(x) },
	} {
		b, err := draw()
		if o := read(t, b, err); o.Series[0].Name != strings.ToValidUTF8(evil, "\ufffd") {
			t.Errorf("%s: the name became %q", name, o.Series[0].Name)
		}
		root, err := html.Parse(strings.NewReader(`<script type="application/json">` + string(b) + `</script><p>after`))
		if err != nil {
			t.Fatal(err)
		}
		scripts, text := 0, ""
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data == "script" {
				scripts++
			}
			if n.Type == html.TextNode && n.Parent.Data != "script" {
				text += n.Data
			}
		}
		if scripts != 1 || text != "after" {
			t.Errorf("%s: %d scripts, and %q outside them", name, scripts, text)
		}
	}
}

func TestASeriesIsALine(t *testing.T) {
	l := figureLines()
	before, err := Lines(l)
	if err != nil {
		t.Fatal(err)
	}
	l.Series[1].Points[0].Y = 91
	after, err := Lines(l)
	if err != nil {
		t.Fatal(err)
	}
	a, b := strings.Split(string(before), "\n"), strings.Split(string(after), "\n")
	if len(a) != len(b) {
		t.Fatalf("%d lines became %d", len(a), len(b))
	}
	changed := 0
	for i := range a {
		if a[i] != b[i] {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("one number changed %d lines, want 1", changed)
	}
}
