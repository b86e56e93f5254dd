package render_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"speedmatrix/templates"
)

var property = regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`)

// themes reads the colours of each theme from the style sheet.
func themes(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := templates.FS.ReadFile("style.css")
	if err != nil {
		t.Fatal(err)
	}
	css := string(b)
	colours := func(css string, base map[string]string) map[string]string {
		_, rest, ok := strings.Cut(css, ":root {")
		block, _, ok2 := strings.Cut(rest, "}")
		if !ok || !ok2 {
			t.Fatal("style.css: no :root block")
		}
		c := maps.Clone(base)
		for _, m := range property.FindAllStringSubmatch(block, -1) {
			c[m[1]] = m[2]
		}
		return c
	}
	_, dark, ok := strings.Cut(css, "@media (prefers-color-scheme: dark)")
	_, print, ok2 := strings.Cut(css, "@media print")
	if !ok || !ok2 {
		t.Fatal("style.css: no dark theme, or no print")
	}
	light := colours(css, map[string]string{})
	night := colours(dark, light)
	return map[string]map[string]string{
		"light": light, "dark": night,
		"print from light": colours(print, light), "print from dark": colours(print, night),
	}
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
		{"link", "page"}, {"link", "card"}, {"link", "code"}, {"off-ink", "off"}, {"off-ink", "hatch"}, {"off-ink", "page"}, {"off-ink", "code"},
	}
	for i := range 10 {
		pairs = append(pairs, [2]string{fmt.Sprint("t", i), fmt.Sprint("s", i)})
	}
	for theme, colours := range themes(t) {
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
		if c := contrast(t, colours["focus"], colours["page"]); theme != "print from light" && theme != "print from dark" && c < 3 {
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

// The page's policy lets nothing in from elsewhere; the style sheet must not ask.
func TestStyleSheetLoadsNothing(t *testing.T) {
	b, err := templates.FS.ReadFile("style.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"url(", "@import", "@font-face", "http"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("style.css has %q", bad)
		}
	}
	if len(b) > 12<<10 {
		t.Errorf("style.css has %d bytes, want 12 KiB at most", len(b))
	}
}
