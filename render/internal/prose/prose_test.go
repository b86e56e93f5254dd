package prose_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"speedmatrix/render/internal/prose"
)

func TestHTML(t *testing.T) {
	for _, c := range []struct{ rule, notes, want string }{
		{"headings stand under the page's own, ids apart", "# Matrix\n", `<h3 id="note-matrix">Matrix</h3>`},
		{"no heading below the sixth", "##### Deep\n", `<h6 id="note-deep">Deep</h6>`},
		{"links within the notes", "[up](#matrix)\n", `<p><a href="#note-matrix">up</a></p>`},
		{"links to other sites", "[x](https://example.org/a?b=1)\n", `<p><a href="https://example.org/a?b=1">x</a></p>`},
		{"a relative link keeps its text", "see [the *log*](run.json).\n", `<p>see the <em>log</em>.</p>`},
		{"a dangerous link keeps its text", "[x](javascript:alert(1)) [y](javascript&colon;alert(1)) [z](data:text/html,x)\n", `<p>x y z</p>`},
		{"a dangerous bare link keeps its text", "<javascript:alert(1)>\n", `<p>javascript:alert(1)</p>`},
		{"a far image is replaced by its text", "![a **far** image](https://example.org/p.png) x\n", `<p>a <strong>far</strong> image x</p>`},
		{"an image in a link", "[![alt](https://example.org/p.png)](https://example.org/)\n", `<p><a href="https://example.org/">alt</a></p>`},
		{"an embedded image too", "![dot](data:image/png;base64,AAAA)\n", `<p>dot</p>`},
		{"raw HTML is left out", "<script>alert(1)</script>\n\na<b onclick=x>b</b>\n", "<!-- raw HTML omitted -->\n<p>a<!-- raw HTML omitted -->b<!-- raw HTML omitted --></p>"},
		{"table alignment without style", "| a | b |\n|---|--:|\n| 1 | 2 |\n", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th class=\"end\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td class=\"end\">2</td>\n</tr>\n</tbody>\n</table>"},
		{"control characters are seen", "a\x00b \u202ec\n", `<p>a\u0000b \u202ec</p>`},
		{"code keeps its indentation", "    a\n      b\n", "<pre><code>a\n  b\n</code></pre>"},
		{"hard line break", "a  \nb\n", "<p>a<br>\nb</p>"},
		{"nothing", "", ""},
	} {
		got, err := prose.HTML([]byte(c.notes))
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		}
		if s := strings.TrimSpace(string(got)); s != c.want {
			t.Errorf("%s: %q gives\n%s\nwant\n%s", c.rule, c.notes, s, c.want)
		}
	}
}

func TestFootnotesHaveIdsOfTheirOwn(t *testing.T) {
	got, err := prose.HTML([]byte("a[^1]\n\n[^1]: b\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`id="note-fn:1"`, `href="#note-fn:1"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if strings.Contains(string(got), "style=") {
		t.Errorf("%s has a style, which the page's policy forbids", got)
	}
}

func TestMarkdown(t *testing.T) {
	for _, c := range []struct{ rule, notes, want string }{
		{"quoted", "# A\n\nb\n", "> # A\n>\n> b"},
		{"raw HTML is escaped", "<div>\n<b>x</b>\n</div>\n\na <i>b</i>\n", "> \\<div>\n> \\<b>x\\</b>\n> \\</div>\n>\n> a \\<i>b\\</i>"},
		{"code is left alone", "`<i>`\n\n```\n<b>\n```\n", "> `<i>`\n>\n> ```\n> <b>\n> ```"},
		{"a comment that is never closed", "<!-- x\n\ny\n", "> \\<!-- x\n>\n> y"},
		{"a link is left alone", "<https://example.org>\n", "> <https://example.org>"},
		{"a link beside the notes is left alone", "[log](run.json)\n", "> [log](run.json)"},
		{"a dangerous link is escaped", "[x](javascript:alert(1)) [y](javascript&colon;a)\n", `> \[x](javascript:alert(1)) \[y](javascript&colon;a)`},
		{"a dangerous bare link is escaped", "<javascript:alert(1)>\n", `> \<javascript:alert(1)>`},
		{"a dangerous link by reference is escaped", "[x]\n\n[x]: javascript:a\n", "> \\[x]\n>\n> [x]: javascript:a"},
		{"an image is escaped", "![x](http://h/p.png)\n", `> !\[x](http://h/p.png)`},
		{"what an escaped link held", "[a [b](javascript:y) ](javascript:x)\n", `> \[a \[b](javascript:y) ](javascript:x)`},
		{"nothing", " \n", ""},
	} {
		if got := prose.Markdown([]byte(c.notes)); got != c.want {
			t.Errorf("%s: %q gives\n%s\nwant\n%s", c.rule, c.notes, got, c.want)
		}
	}
}

// Whatever the notes, neither form has an element that the notes wrote.
func FuzzNotes(f *testing.F) {
	for _, s := range []string{"<script>x</script>", "a <b>", "<!-- ", "<![CDATA[", "> <p>\n\n- <p>", "[a](javascript:b)", "![x](http://h)", "<?php", "a\n===\n<x", "|a|\n|-|\n|<b>|"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := prose.HTML([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"<script", "<img", "<iframe", " style=", "javascript:\""} {
			if strings.Contains(strings.ToLower(string(got)), bad) && !strings.Contains(string(got), "<code") {
				t.Errorf("%q gives %q", s, got)
			}
		}
		var b bytes.Buffer
		if err := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote)).Convert([]byte(prose.Markdown([]byte(s))), &b); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"<!-- raw HTML omitted -->", "<img", "href=\"\"", "javascript:\""} {
			if strings.Contains(b.String(), bad) {
				t.Errorf("%q, written as %q, gives %q", s, prose.Markdown([]byte(s)), b.String())
			}
		}
	})
}
