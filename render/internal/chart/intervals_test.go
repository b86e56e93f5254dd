package chart

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestIntervals(t *testing.T) {
	v := Intervals{Head: Head{ID: "i", Title: "t", Desc: "d"}, X: "change in %", Bound: 2, Rows: []Interval{
		{"1", -6, -4, -2, Bad, "slower"}, {"2", 1, 2, 3, Good, ""}, {"<3>", -1, 0, 1, Neutral, "<b>"}, {"4", math.NaN(), 0, 1, Neutral, "no number"}, {"5", 0, 0, math.Inf(1), Neutral, "no end"},
	}}
	got := string(v.SVG())
	for _, want := range []string{">−", ">+", ">0<", "&lt;3&gt;", "&lt;b&gt;", `class="k5"`, `class="k2"`, `class="k0"`, `class="win"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	for _, ban := range []string{"NaN", "Inf", "no number", "no end"} {
		if strings.Contains(got, ban) {
			t.Errorf("%q in %s", ban, got)
		}
	}
	if n := strings.Count(got, `class="m"`); n != 3 {
		t.Errorf("%d marks, want 3", n)
	}
	if !bytes.Equal(v.SVG(), v.SVG()) {
		t.Error("not the same twice")
	}
	v.Rows = v.Rows[3:]
	if svg := v.SVG(); svg != nil {
		t.Errorf("nothing to draw, and got %s", svg)
	}
	v.Rows, v.Bound = []Interval{{"1", 0, 0, 0, Neutral, ""}}, 0
	if svg := string(v.SVG()); strings.Contains(svg, "NaN") || svg == "" {
		t.Errorf("no change at all: %q", svg)
	}
}
