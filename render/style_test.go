package render_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"speedmatrix/templates"
)

var property = regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`)

// style returns the style sheet as it was written.
func style(t *testing.T) string {
	t.Helper()
	var css string
	for _, name := range []string{"colours.css", "style.css", "chart.css", "diff.css"} {
		b, err := templates.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		css += string(b)
	}
	return css
}

var roots = regexp.MustCompile(`(?s)(@media [^{]*\{\s*)?:root \{(.*?)\}`)

// themes reads the colours of each theme from the style sheet.
func themes(t *testing.T) map[string]map[string]string {
	t.Helper()
	light, dark, print := map[string]string{}, map[string]string{}, map[string]string{}
	blocks := map[string]int{}
	for _, m := range roots.FindAllStringSubmatch(style(t), -1) {
		media := strings.TrimRight(m[1], "{ \n")
		theme, ok := map[string]map[string]string{"": light, "@media screen and (prefers-color-scheme: dark)": dark, "@media print": print}[media]
		if !ok {
			t.Fatalf("style sheet: colours for %q", media)
		}
		blocks[media]++
		for _, c := range property.FindAllStringSubmatch(m[2], -1) {
			theme[c[1]] = c[2]
		}
	}
	if len(blocks) != 3 {
		t.Fatalf("style sheet: colours for %v, want for light, dark and print", blocks)
	}
	over := func(base, colours map[string]string) map[string]string {
		c := maps.Clone(base)
		maps.Copy(c, colours)
		return c
	}
	// On paper the dark theme does not apply.
	return map[string]map[string]string{"light": light, "dark": over(light, dark), "print": over(light, print)}
}

// luminance is WCAG's relative luminance of "#rrggbb".
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil {
		t.Fatalf("colour %q: %v", colour, err)
	}
	sum := 0.0
	for i, weight := range []float64{0.0722, 0.7152, 0.2126} {
		c := float64(n>>(8*i)&255) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestTextHasEnoughContrast(t *testing.T) {
	pairs := [][2]string{
		{"ink", "page"}, {"ink", "card"}, {"ink", "code"}, {"soft", "page"}, {"soft", "card"}, {"soft", "code"},
		{"stall", "card"}, {"link", "page"}, {"link", "card"}, {"link", "code"}, {"off-ink", "off"}, {"off-ink", "hatch"}, {"off-ink", "page"}, {"off-ink", "code"},
	}
	for i := range 6 { // names of lines
		pairs = append(pairs, [2]string{fmt.Sprint("c", i), "card"})
	}
	for i := range 10 {
		pairs = append(pairs, [2]string{fmt.Sprint("t", i), fmt.Sprint("s", i)})
	}
	for theme, colours := range themes(t) {
		for _, p := range [][2]string{{"c0", "page"}, {"soft", "page"}, {"stall", "page"}} { // bars of a timeline on its window
			if c := contrast(t, colours[p[0]], colours[p[1]]); c < 3 {
				t.Errorf("%s: bars in --%s on --%s have a contrast of %.2f, want 3", theme, p[0], p[1], c)
			}
		}
		for _, p := range pairs {
			text, ground := colours[p[0]], colours[p[1]]
			if text == "" || ground == "" {
				t.Errorf("%s: --%s is %q, --%s is %q", theme, p[0], text, p[1], ground)
				continue
			}
			if c := contrast(t, text, ground); c < 4.5 {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f, want 4.5", theme, p[0], p[1], c)
			}
		}
		if c := contrast(t, colours["focus"], colours["page"]); theme != "print" && c < 3 {
			t.Errorf("%s: the focus ring has a contrast of %.2f, want 3", theme, c)
		}
	}
}

func TestSpeedColoursGoOneWay(t *testing.T) {
	for theme, colours := range themes(t) {
		for i := 1; i < 10; i++ {
			a, b := luminance(t, colours[fmt.Sprint("s", i-1)]), luminance(t, colours[fmt.Sprint("s", i)])
			if dark := strings.Contains(theme, "dark"); (b > a) != dark {
				t.Errorf("%s: --s%d has a luminance of %.3f after %.3f", theme, i, b, a)
			}
		}
	}
}

// served returns the style sheet of a site.
func served(t *testing.T) string {
	t.Helper()
	out := site(t, madeUpRun(t))
	sheets, err := filepath.Glob(filepath.Join(out, "*.css"))
	if err != nil || len(sheets) != 1 {
		t.Fatalf("style sheets %q (%v), want one", sheets, err)
	}
	return read(t, sheets[0])
}

// The page's policy lets nothing in from elsewhere; the style sheet must not ask.
//
// One sheet is for all pages, so that a reader waits for it once. It is what
// a page of each kind needs (a matrix, charts, lists, comparisons, both
// themes, paper), and 12 KB, 4 KB compressed, was what the first pages
// needed, which had no charts and no comparisons. Cut into a sheet for each
// kind of page it is no smaller on the first page seen, and larger on every
// other.
func TestStyleSheetLoadsNothing(t *testing.T) {
	css := served(t)
	for _, bad := range []string{"url(", "@import", "@font-face", "http"} {
		if strings.Contains(css, bad) {
			t.Errorf("the style sheet has %q", bad)
		}
	}
	t.Logf("style sheet: %d bytes, %d compressed", len(css), zipped(css))
	if len(css) > 18<<10 || zipped(css) > 5<<10+512 {
		t.Errorf("the style sheet has %d bytes, %d compressed, want 18 KiB and 5.5 KiB at most", len(css), zipped(css))
	}
}

// What a site serves differs from what was written in comments and in spaces
// beside punctuation only.
func TestServedSheetIsTheWrittenOne(t *testing.T) {
	bare := func(css string) string {
		css = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(css, "")
		parts := strings.Split(css, `"`)
		for i := 0; i < len(parts); i += 2 {
			parts[i] = regexp.MustCompile(`\s*([{};:,])\s*`).ReplaceAllString(parts[i], "$1")
			parts[i] = strings.ReplaceAll(regexp.MustCompile(`\s+`).ReplaceAllString(parts[i], " "), ";}", "}")
		}
		return strings.TrimSpace(strings.Join(parts, `"`))
	}
	got, want := served(t), style(t)
	if bare(got) != bare(want) {
		t.Errorf("served\n%s\nof\n%s", got, want)
	}
	for _, r := range []string{`.scroll :is(`, `tr > :first-child`, `"\\\a    "`, ` .top + .top{`} {
		if !strings.Contains(got, r) {
			t.Errorf("the sheet that is served lacks %s, whose spaces mean something", r)
		}
	}
	if strings.Count(got, "{") != strings.Count(want, "{") || len(got) > len(want)*9/10 {
		t.Errorf("%d rules of %d, %d bytes of %d", strings.Count(got, "{"), strings.Count(want, "{"), len(got), len(want))
	}
}
