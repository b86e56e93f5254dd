package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "write the golden files anew")

func lines() Lines {
	return Lines{
		Head:   Head{"x", "Title", "Description."},
		X:      Axis{Name: "requests", Log: true, Ticks: []Tick{{1, "1"}, {2, "2"}, {4, "4"}}},
		Y:      Axis{Name: "tok/s", Log: true},
		Series: []Series{{"8K", []Point{{X: 1, Y: 100, Title: "one"}, {X: 2, Y: 180, Text: "t"}, {X: 4, Y: 300, Apart: true}}}, {"16K", []Point{{X: 1, Y: 90}}}},
	}
}

func boxes() Boxes {
	return Boxes{
		Head: Head{"b", "Gaps", "Boxes."}, X: "requests", Y: Axis{Name: "gap", Log: true, Unit: Micros}, Series: []string{"8K", "16K"},
		Groups: []Group{{"1", []Box{{0, 4000, 5000, 6000, 7000, 9000, 20000, "first", "", ""}, {1, 8000, 9000, 10000, 11000, 12000, 50000, "", "", ""}}}, {"2", nil}},
	}
}

func streams() Streams {
	return Streams{Head: Head{"s", "Streams", "Bars."}, From: -6, To: 30, Close: 30, Rows: 2,
		Bars: []Bar{{0, Waits, -6, 0.1}, {0, Delivers, 0.1, 30}, {1, Delivers, -6, 10}, {1, Stalls, 10, 10.001}}}
}

func steps() Steps {
	return Steps{Head: Head{"r", "Rate", "Steps."}, Y: Axis{Name: "tok/s"}, From: -1, To: 4, Length: 4, Values: []float64{10, 20, 0, 40}, Mean: 17.5, Text: "17.5"}
}

func stack() Stack {
	return Stack{Head: Head{"k", "Streams", "Layers."}, Length: 2, Total: 64,
		Layers: []Layer{{"tokens", Delivers, []float64{64, 60}}, {"stalled", Stalls, []float64{0, 0}}, {"waiting", Waits, []float64{0, 4}}}}
}

func all() map[string][]byte {
	return map[string][]byte{
		"lines": lines().SVG(), "boxes": boxes().SVG(), "streams": streams().SVG(), "steps": steps().SVG(), "stack": stack().SVG(),
	}
}

// A series without a box is not in the key and takes no room; the others keep
// their colours, which are those of all drawings of a page.
func TestKeyOfBoxesNamesWhatIsDrawn(t *testing.T) {
	b := boxes()
	b.Series = []string{"4K", "8K", "16K", "32K"}
	b.Groups[0].Boxes[0].Series, b.Groups[0].Boxes[1].Series = 1, 2
	got := string(b.SVG())
	for name, want := range map[string]bool{"4K": false, "8K": true, "16K": true, "32K": false} {
		if strings.Contains(got, ">"+name+"</text>") != want {
			t.Errorf("%s is in the key: %v, want %v", name, !want, want)
		}
	}
	for i := range b.Series {
		class := `class="s ` + colour(i, len(b.Series)) + `"`
		if want := i == 1 || i == 2; strings.Contains(got, class) != want {
			t.Errorf("a box has %s: %v, want %v", class, !want, want)
		}
	}
	path := func(svg string) []string { return regexp.MustCompile(`class="b" d="M[0-9.]+`).FindAllString(svg, 2) }
	if want := path(string(boxes().SVG())); !slices.Equal(path(got), want) {
		t.Errorf("boxes stand at %q, want %q as without the series that have none", path(got), want)
	}
	b.Groups[0].Boxes = b.Groups[0].Boxes[1:]
	if got := string(b.SVG()); !strings.Contains(got, ">16K</text>") {
		t.Error("the only series of several that is drawn has no name")
	}
}

func TestGolden(t *testing.T) {
	for name, got := range all() {
		path := filepath.Join("testdata", name+".svg")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs; go test ./render/internal/chart -update writes it anew\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestDrawingsAreXMLWithATitleAndNoNumberThatIsNone(t *testing.T) {
	for name, svg := range all() {
		for what, b := range map[string][]byte{"inline": svg, "file": File(svg, "path{fill:none}")} {
			d := xml.NewDecoder(bytes.NewReader(b))
			first := ""
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s, %s: %v", name, what, err)
				}
				if e, ok := token.(xml.StartElement); ok {
					first += e.Name.Local + " "
				}
			}
			want := map[string]string{"inline": "svg title desc ", "file": "svg style title desc "}[what]
			if !strings.HasPrefix(first, want) {
				t.Errorf("%s, %s begins with %.40q, want %q", name, what, first, want)
			}
			for _, bad := range []string{"NaN", "Inf", "-0 ", "style=", "e+", "e-0"} {
				if bytes.Contains(b, []byte(bad)) {
					t.Errorf("%s, %s has %q: %s", name, what, bad, b)
				}
			}
		}
	}
	if File([]byte("<p>"), "") != nil {
		t.Error("what is no drawing became a file")
	}
}

func TestNothingToDraw(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for rule, svg := range map[string][]byte{
		"no series":                    Lines{}.SVG(),
		"no point that an axis shows":  Lines{Y: Axis{Log: true}, Series: []Series{{"a", []Point{{X: 1, Y: 0}, {X: 1, Y: nan}, {X: inf, Y: 2}}}}}.SVG(),
		"no box":                       Boxes{Series: []string{"a"}, Groups: []Group{{"1", nil}}}.SVG(),
		"a box with an unknown number": Boxes{Series: []string{"a"}, Groups: []Group{{"1", []Box{{0, 1, 2, nan, 4, 5, 6, "", "", ""}}}}}.SVG(),
		"a box of no series":           Boxes{Series: []string{"a"}, Groups: []Group{{"1", []Box{{1, 1, 2, 3, 4, 5, 6, "", "", ""}}}}}.SVG(),
		"no bars":                      Streams{Rows: 1, To: 1}.SVG(),
		"no time":                      Streams{Rows: 1, Bars: []Bar{{}}}.SVG(),
		"no values":                    Steps{Length: 1, To: 1}.SVG(),
		"an unknown value":             Steps{Length: 1, To: 1, Values: []float64{nan}}.SVG(),
		"no streams":                   Stack{Length: 1, Layers: []Layer{{"a", Waits, []float64{1}}}}.SVG(),
		"layers that do not fit":       Stack{Length: 1, Total: 1, Layers: []Layer{{"a", Waits, []float64{1}}, {"b", Stalls, nil}}}.SVG(),
	} {
		if svg != nil {
			t.Errorf("%s: got %s, want nothing", rule, svg)
		}
	}
}

func TestPointsThatCannotBeDrawnAreLeftOut(t *testing.T) {
	l := lines()
	want := l.SVG()
	l.Series[0].Points = append(l.Series[0].Points, Point{X: 2, Y: math.NaN()}, Point{X: 2, Y: -1}, Point{X: math.Inf(1), Y: 5})
	if got := l.SVG(); !bytes.Equal(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// One measured point is a mark, and a missing one breaks the line.
func TestLinesJoinOnlyNeighbours(t *testing.T) {
	svg := string(lines().SVG())
	if got := strings.Count(svg, `class="m"`); got != 4 {
		t.Errorf("%d marks, want 4", got)
	}
	if got := strings.Count(svg, `class="l"`); got != 1 {
		t.Errorf("%d lines, want 1: a single point has none", got)
	}
	_, line, _ := strings.Cut(svg, `class="l" d="`)
	line, _, _ = strings.Cut(line, `"`)
	if strings.Count(line, "M") != 2 || strings.Count(line, "L") != 1 {
		t.Errorf("line %q, want it broken before its third point", line)
	}
}

func TestForeignTextIsText(t *testing.T) {
	const evil = "</text></svg><script>alert(1)</script>\"'&\x00\u202e\ufffe\xff"
	l := lines()
	l.Head = Head{"x", evil, evil}
	l.X.Name, l.Y.Name, l.Series[0].Label, l.X.Ticks[1].Label = evil, evil, evil, evil
	l.Series[0].Points[0].Title, l.Series[0].Points[0].Text = evil, evil
	b := boxes()
	b.Head, b.X, b.Series, b.Groups[0].Label, b.Groups[0].Boxes[0].Title = Head{"y", evil, evil}, evil, []string{evil, evil}, evil, evil
	s := steps()
	s.Head, s.Text = Head{"z", evil, evil}, evil
	k := stack()
	k.Layers[0].Label = evil
	for _, svg := range [][]byte{l.SVG(), b.SVG(), s.SVG(), k.SVG()} {
		d := xml.NewDecoder(bytes.NewReader(File(svg, "")))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("not XML: %v in %s", err, svg)
			}
		}
		root, err := html.Parse(bytes.NewReader(svg))
		if err != nil {
			t.Fatal(err)
		}
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && !slices.Contains([]string{"html", "head", "body", "svg", "title", "desc", "g", "path", "text"}, n.Data) {
				t.Errorf("element %q in %s", n.Data, svg)
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		axis   Axis
		values []float64
		want   string
	}{
		{"whole steps around the values", Axis{Log: true}, []float64{86.7, 9005}, "50 100 200 500 1K 2K 5K 10K"},
		{"values on steps stay at the ends", Axis{Log: true}, []float64{100, 1000}, "100 200 500 1K"},
		{"one value has steps on both sides", Axis{Log: true}, []float64{20}, "10 20 50"},
		{"small ones", Axis{Log: true}, []float64{0.03, 0.4}, "0.02 0.05 0.1 0.2 0.5"},
		{"many decades have powers of ten", Axis{Log: true}, []float64{2, 3e6}, "10 100 1K 10K 100K 1M"},
		{"microseconds", Axis{Log: true, Unit: Micros}, []float64{600, 2e6}, "500 µs 1 ms 2 ms 5 ms 10 ms 20 ms 50 ms 100 ms 200 ms 500 ms 1 s 2 s"},
		{"from zero", Axis{}, []float64{40, 167.7}, "0 50 100 150 200"},
		{"from zero, small", Axis{}, []float64{0.3}, "0 0.1 0.2 0.3"},
		{"nothing but zero", Axis{}, []float64{0}, "0 0.2 0.4 0.6 0.8 1"},
		{"thousands", Axis{}, []float64{40_400}, "0 10K 20K 30K 40K 50K"},
	} {
		s, ticks := tt.axis.scaleOf(tt.values, 0, 100)
		var got []string
		for i, tick := range ticks {
			got = append(got, tick.Label)
			if at := s.at(tick.Value); at < 0 || at > 100 || i > 0 && at <= s.at(ticks[i-1].Value) {
				t.Errorf("%s: tick %s at %v", tt.rule, tick.Label, at)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", tt.rule, strings.Join(got, " "), tt.want)
		}
		for _, v := range tt.values {
			if at := s.at(v); at < 0 || at > 100 {
				t.Errorf("%s: value %v lies at %v, outside the plot", tt.rule, v, at)
			}
		}
	}
}

func TestLog2(t *testing.T) {
	for _, x := range []float64{1, 2, 3, 0.1, 8192, 125952, 1e-6, 1e9, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		if got, want := log2(x), math.Log2(x); math.Abs(got-want) > 1e-6 {
			t.Errorf("log2(%v) = %v, want about %v", x, got, want)
		}
	}
	if log2(8192) != 13 || log2(0.25) != -2 {
		t.Error("powers of two are not exact")
	}
}

func TestApart(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		ys, want []float64
	}{
		{"far ones stay", []float64{10, 40, 90}, []float64{10, 40, 90}},
		{"near ones part around their middle", []float64{50, 52}, []float64{46, 56}},
		{"pushed into the range", []float64{0, 1, 99, 100}, []float64{0, 10, 90, 100}},
		{"three in a corner", []float64{100, 100, 100}, []float64{80, 90, 100}},
		{"none", nil, nil},
	} {
		if got := apart(tt.ys, 10, 0, 100); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v became %v, want %v", tt.rule, tt.ys, got, tt.want)
		}
	}
	crowd := make([]float64, 30)
	got := apart(crowd, 10, 0, 100)
	for i, y := range got {
		if y < 0 || y > 100 || i > 0 && y <= got[i-1] {
			t.Fatalf("more names than there is room for: %v", got)
		}
	}
}

// Labels of an axis never lie on each other, whatever their number.
func TestTickLabelsDoNotTouch(t *testing.T) {
	l := lines()
	l.X.Ticks = []Tick{{8192, "8K"}, {16384, "16K"}, {32768, "32K"}, {65536, "64K"}, {125952, "123K"}, {131072, "128K"}}
	l.Series = []Series{{"", []Point{{X: 8192, Y: 1, Text: "one"}, {X: 125952, Y: 1, Text: "9,534"}, {X: 131072, Y: 1, Text: "9,188"}}}}
	svg := string(l.SVG())
	if strings.Contains(svg, ">123K<") || !strings.Contains(svg, ">128K<") || !strings.Contains(svg, ">64K<") {
		t.Errorf("123K must give way to 128K: %s", svg)
	}
	_, after, _ := strings.Cut(svg, ">9,534<")
	if !strings.Contains(after, ">9,188<") {
		t.Errorf("the second of two neighbours stands elsewhere, not nowhere: %s", svg)
	}
}

func TestSeriesDifferInShapeAndColour(t *testing.T) {
	for n := 2; n <= colours; n++ {
		seen := map[string]bool{}
		for i := range n {
			seen[colour(i, n)] = true
		}
		if len(seen) != n || !seen["k0"] || !seen["k5"] {
			t.Errorf("%d series have the colours %v", n, seen)
		}
	}
	seen := map[string]bool{}
	for i := range shapes {
		var c canvas
		c.marker(i, 0, 0, "")
		seen[c.String()] = true
	}
	if len(seen) != shapes {
		t.Errorf("%d shapes, want %d", len(seen), shapes)
	}
	// The states of a stream differ in height.
	heights := map[string]bool{}
	for s := range states {
		svg := string(Streams{To: 10, Close: 10, Rows: 1, Bars: []Bar{{0, s, 0, 10}}}.SVG())
		_, bar, ok := strings.Cut(svg, `class="`+stateClasses[s]+`" d="`)
		if !ok {
			t.Fatalf("state %d is not drawn: %s", s, svg)
		}
		_, bar, _ = strings.Cut(bar, "v")
		bar, _, _ = strings.Cut(bar, "H")
		heights[bar] = true
	}
	if len(heights) != int(states) {
		t.Errorf("heights of the states are %v, want %d different", heights, states)
	}
}
