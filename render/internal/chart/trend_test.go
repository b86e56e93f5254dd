package chart

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

func TestTrend(t *testing.T) {
	nan := math.NaN()
	point := func(y float64) TrendPoint { return TrendPoint{Y: y, Label: "73a5831", Title: "<73a5831>"} }
	for _, tt := range []struct {
		rule   string
		trend  Trend
		dots   int // -1: no drawing
		levels int
		bands  int
		lines  int
		texts  []string
	}{
		{"nothing", Trend{}, -1, 0, 0, 0, nil},
		{"one point", Trend{Points: []TrendPoint{point(0)}}, -1, 0, 0, 0, nil},
		{"a point that is not known has a place and no mark", Trend{Points: []TrendPoint{point(0), point(nan), point(2)}}, 2, 0, 0, 0, nil},
		{"no number", Trend{Points: []TrendPoint{point(math.Inf(1)), point(1), point(2)}}, 2, 0, 0, 0, nil},
		{"a level with its band, one without", Trend{
			Points: []TrendPoint{point(0), point(1), point(-5), point(-6)},
			Levels: []Level{{0, 1, 0.5, 2}, {2, 3, -5.5, 0}, {2, 3, nan, 1}},
			Marks:  []Mark{{Before: 2, Text: "−5.9 %", Tone: Bad}, {Before: 3, Text: "driver", Faint: true}},
		}, 4, 2, 1, 2, []string{"−5.9 %", "driver"}},
		{"marks without room have no text", Trend{
			Points: []TrendPoint{point(0), point(1)},
			Marks:  []Mark{{Before: 1, Text: "one of them"}, {Before: 1, Text: "two of them"}, {Before: 1, Text: "three of them"}, {Before: 1, Text: "four of them"}},
		}, 2, 0, 0, 4, []string{"one of them", "two of them", "three of them"}},
	} {
		svg := string(tt.trend.SVG())
		if (svg == "") != (tt.dots < 0) {
			t.Errorf("%s: a drawing: %v", tt.rule, svg != "")
			continue
		}
		if svg == "" {
			continue
		}
		for what, n := range map[string][2]int{
			"marks": {strings.Count(svg, `class="m"`), tt.dots}, "levels": {strings.Count(svg, `class="mean"`), tt.levels},
			"bands": {strings.Count(svg, `class="ar k0"`), tt.bands}, "lines": {strings.Count(svg, `class="l"`) + strings.Count(svg, `class="c"`), tt.lines},
		} {
			if n[0] != n[1] {
				t.Errorf("%s: %d %s, want %d", tt.rule, n[0], what, n[1])
			}
		}
		for _, text := range tt.texts {
			if !strings.Contains(svg, ">"+text+"</text>") {
				t.Errorf("%s: no text %q", tt.rule, text)
			}
		}
		if strings.Contains(svg, "four of them") || strings.Contains(svg, "NaN") || strings.Contains(svg, "<73") {
			t.Errorf("%s: it has what it must not have: %s", tt.rule, svg)
		}
		d := xml.NewDecoder(bytes.NewReader([]byte(svg)))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", tt.rule, err)
				break
			}
		}
	}
}
