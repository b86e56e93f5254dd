// Package chart draws figures as static SVG: pure functions from plain data
// to bytes that are the same on every machine.
//
// A drawing has no colour, no font size and no script of its own: its
// classes are those of the page's style sheet, so that it follows the theme,
// prints, and grows its text where it is small. It must not know what is
// measured: no run, no cell.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Units of a drawing, which the page scales to its width. Text is laid out
// for the largest size that the style sheet gives it.
const (
	width   = 440
	charW   = 9.0  // of one character, at most, about
	lineH   = 16.0 // of one line of text
	left    = 62.0 // of the plot: tick labels stand before it
	top     = 30.0 // the name of the y axis stands above it
	colours = 6    // classes k0 … k5
	shapes  = 6
)

// A Head is what a drawing says to those who do not see it.
type Head struct {
	ID    string // unique on its page; letters, digits, dashes
	Title string // what is drawn, in a few words
	Desc  string // what is to be seen, in sentences
}

// A canvas takes the elements of one drawing.
type canvas struct{ bytes.Buffer }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// text writes a line of text; anchor is "start", "middle" or "end", and class may be empty.
func (c *canvas) text(x, y float64, anchor, class, s string) {
	c.WriteString(`<text x="` + n(x) + `" y="` + n(y) + `"`)
	if anchor != "start" {
		c.WriteString(` text-anchor="` + anchor + `"`)
	}
	if class != "" {
		c.WriteString(` class="` + class + `"`)
	}
	c.WriteString(">" + escape(s) + "</text>")
}

// svg puts what was drawn into its element.
func (h Head) svg(height float64, drawn *canvas) []byte {
	var b bytes.Buffer
	id := escape(h.ID)
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>`,
		width, n(height), id, id, id, escape(h.Title), id, escape(h.Desc))
	b.Write(drawn.Bytes())
	b.WriteString("</svg>")
	return b.Bytes()
}

// File makes a drawing a file of its own, with the given style sheet, which
// must not hold foreign text.
func File(svg []byte, css string) []byte {
	rest, ok := bytes.CutPrefix(svg, []byte("<svg "))
	head, body, ok2 := bytes.Cut(rest, []byte(">"))
	if !ok || !ok2 {
		return nil
	}
	return bytes.Join([][]byte{[]byte(`<svg xmlns="http://www.w3.org/2000/svg" `), head, []byte("><style>"), []byte(css), []byte("</style>"), body, []byte("\n")}, nil)
}

// n writes a length with one decimal at most.
func n(v float64) string {
	v = math.Round(v*10) / 10
	if v == 0 {
		return "0" // not "-0"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// escape makes foreign text fit for text and attributes of an SVG, inside
// HTML and on its own. XML has no way to write most control characters.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || r == 0xfffe || r == 0xffff {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return html.EscapeString(s)
}

func textWidth(s string) float64 { return charW * float64(len([]rune(s))) }

// Colour returns the colour of series i of n, 0 … 5: those that are used lie
// as far apart as can be.
func Colour(i, n int) int {
	if n < 2 {
		return 0
	}
	return (i*(colours-1) + (n-1)/2) / (n - 1)
}

// colour returns the class of that colour.
func colour(i, n int) string { return "k" + strconv.Itoa(Colour(i, n)) }

// Marker returns the shape of the points of series i, as a path around 0 0:
// series differ in shape, not only in colour.
func Marker(i int) string {
	return [shapes]string{
		"m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", // circle
		"m-4 -4h8v8h-8z",
		"m0 -5l5 9h-10z",
		"m0 -5.5l5.5 5.5-5.5 5.5-5.5-5.5z",
		"m0 5l5-9h-10z",
		"m-5 0l2.5-4.5h5l2.5 4.5-2.5 4.5h-5z",
	}[i%shapes]
}

// marker draws the shape of series i around a point.
func (c *canvas) marker(i int, x, y float64, title string) {
	c.WriteString(`<path class="m" d="M` + n(x) + " " + n(y) + Marker(i) + `"`)
	if title == "" {
		c.WriteString("/>")
		return
	}
	c.WriteString("><title>" + escape(title) + "</title></path>")
}

// A placer keeps texts from lying on each other.
type placer struct{ taken [][4]float64 }

// free takes the place of a text of the given width around x, if nothing is there.
func (p *placer) free(x, y, w float64) bool {
	r := [4]float64{x - w/2, y - lineH, x + w/2, y}
	for _, o := range p.taken {
		if r[0] < o[2] && o[0] < r[2] && r[1] < o[3] && o[1] < r[3] {
			return false
		}
	}
	p.taken = append(p.taken, r)
	return true
}

// apart returns places near ys, which must ascend, that are gap apart and
// between lo and hi, or as far apart as there is room.
func apart(ys []float64, gap, lo, hi float64) []float64 {
	if len(ys) == 0 {
		return nil
	}
	gap = min(gap, (hi-lo)/float64(len(ys)))
	// Neighbours that are too close become one block around their mean.
	type block struct {
		sum float64 // of y − gap × place in the list
		n   int
	}
	var blocks []block
	for i, y := range ys {
		blocks = append(blocks, block{y - float64(gap*float64(i)), 1})
		for len(blocks) > 1 {
			a, b := blocks[len(blocks)-2], blocks[len(blocks)-1]
			if a.sum/float64(a.n) <= b.sum/float64(b.n) {
				break
			}
			blocks = append(blocks[:len(blocks)-2], block{a.sum + b.sum, a.n + b.n})
		}
	}
	var out []float64
	for _, b := range blocks {
		for range b.n {
			// Moved into the range last, so that the order stays.
			i := float64(len(out))
			y := b.sum/float64(b.n) + float64(gap*i)
			out = append(out, min(max(y, lo+float64(gap*i)), hi-float64(gap*float64(len(ys)-1-len(out)))))
		}
	}
	return out
}
