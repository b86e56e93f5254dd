package mdtext_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"golang.org/x/net/html"

	"speedmatrix/render/internal/mdtext"
)

// hostile texts, and what a reader must see of them.
var hostile = []struct{ text, seen string }{
	{`<img src=x onerror=alert(1)>&"'`, `<img src=x onerror=alert(1)>&"'`},
	{`</td><script>1</script>`, `</td><script>1</script>`},
	{`{{.}} ${7*7} $x$`, `{{.}} ${7*7} $x$`},
	{"a|b", "a|b"}, {"`a|b`", "`a|b`"}, {`a\|b`, `a\|b`}, {`a\\|b`, `a\\|b`}, {`\`, `\`}, {"``", "``"},
	{"a\nb\r\nc", "a b  c"}, {"a\u2028b", `a\u2028b`}, {"a\x00b", `a\u0000b`}, {"a\u202eb\u2066c", `a\u202eb\u2066c`}, {"a\xffb", "a\uFFFDb"},
	{"**a** _b_ __c__ ~~d~~ *e", "**a** _b_ __c__ ~~d~~ *e"}, {"[x](javascript:alert(1))", "[x](javascript:alert(1))"}, {"![x](http://h/p.png)", "![x](http://h/p.png)"},
	{"# a", "# a"}, {"a #", "a #"}, {"- a", "- a"}, {"+ a", "+ a"}, {"1. a", "1. a"}, {"12) a", "12) a"}, {"1.", "1."}, {"a_b_c _d_e_ f__g", "a_b_c _d_e_ f__g"}, {"> a", "> a"}, {"=== ", "==="}, {"---", "---"}, {"&amp; &#65;", "&amp; &#65;"},
	{"<https://x.y>", "<https://x.y>"}, {"0.30.1rc1.dev452+g73a583112", "0.30.1rc1.dev452+g73a583112"}, {"[^1]: x", "[^1]: x"}, {"$'a'", "$'a'"},
}

func render(t *testing.T, source string) *html.Node {
	t.Helper()
	var b bytes.Buffer
	if err := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Footnote)).Convert([]byte(source), &b); err != nil {
		t.Fatal(err)
	}
	n, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// seen returns the elements and the text of a document's body.
func seen(n *html.Node) (elements []string, text string) {
	for d := range n.Descendants() {
		switch d.Type {
		case html.ElementNode:
			elements = append(elements, d.Data)
		case html.TextNode:
			text += d.Data
		}
	}
	return elements, strings.TrimSpace(text)
}

func TestEscapedTextIsSeenAsItIs(t *testing.T) {
	for _, h := range hostile {
		for _, c := range []struct{ place, source, elements string }{
			{"paragraph", mdtext.Inline(h.text) + "\n", "html head body p"},
			{"heading", "# " + mdtext.Inline(h.text) + "\n", "html head body h1"},
			{"list item", "- " + mdtext.Inline(h.text) + "\n", "html head body ul li"},
		} {
			elements, text := seen(render(t, c.source))
			if text != h.seen || strings.Join(elements, " ") != c.elements {
				t.Errorf("%s of %q, written as %q: %v %q, want %s %q", c.place, h.text, c.source, elements, text, c.elements, h.seen)
			}
		}
		source := "| a | b |\n|---|---|\n| " + mdtext.Cell(h.text) + " | x |\n"
		elements, text := seen(render(t, source))
		if want := "html head body table thead tr th th tbody tr td td"; strings.Join(elements, " ") != want {
			t.Errorf("cell of %q, written as %q: elements %v, want %s", h.text, source, elements, want)
		}
		if fields := strings.Split(text, "\n"); fields[len(fields)-2] != h.seen && !strings.Contains(text, h.seen) {
			t.Errorf("cell of %q, written as %q: %q, want %q", h.text, source, text, h.seen)
		}
	}
}

// Names and numbers read as they are in the source too.
func TestOrdinaryTextIsNotEscaped(t *testing.T) {
	for _, s := range []string{"0.30.1rc1.dev452+g73a583112", "2.5 s", "INT4+INT8", "poolside_v1", "RTX PRO 6000 (96GB)", "gemma-4-E2B-it", "8K · 16K"} {
		if got := mdtext.Inline(s); got != s {
			t.Errorf("Inline(%q) = %q", s, got)
		}
		if got := mdtext.Cell(s); got != s {
			t.Errorf("Cell(%q) = %q", s, got)
		}
	}
}

func TestFenceIsLongerThanAnyRunOfBackticks(t *testing.T) {
	for _, s := range []string{"", "a", "```", "a ````` b", "````\n```\n", "| tee log"} {
		elements, text := seen(render(t, mdtext.Fence("sh", s)+"\n\nafter\n"))
		if strings.Join(elements, " ") != "html head body pre code p" || !strings.Contains(text, strings.TrimSpace(s)) {
			t.Errorf("%q gives %v %q", s, elements, text)
		}
	}
}

func TestQuoteEndsWhatTheTextLeavesOpen(t *testing.T) {
	n := render(t, mdtext.Quote("# Title\r\n\r\n```\nnever closed")+"\n\n## After\n")
	elements, _ := seen(n)
	if got, want := strings.Join(elements, " "), "html head body blockquote h1 pre code h2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzCellStaysInItsCell(f *testing.F) {
	for _, h := range hostile {
		f.Add(h.text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		elements, _ := seen(render(t, "| a | b |\n|---|---|\n| "+mdtext.Cell(s)+" | x |\n\nafter\n"))
		if got, want := strings.Join(elements, " "), "html head body table thead tr th th tbody tr td td p"; got != want {
			t.Errorf("%q, written as %q: %s", s, mdtext.Cell(s), got)
		}
	})
}
