// Package prose renders notes that somebody wrote in Markdown, for a page of
// ours or for its Markdown twin. It is the only importer of goldmark.
//
// Nothing in the notes can run, load anything, clash with the page's own
// names or reach beyond the place that they are given. It must not know
// whose notes they are.
package prose

import (
	"bytes"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"speedmatrix/render/internal/mdtext"
)

// idPrefix keeps the ids of notes apart from those of the page.
const idPrefix = "note-"

// headingShift makes a first-level heading of the notes a third-level one:
// they stand under a second-level heading of the page.
const headingShift = 2

// HTML renders notes for a page. Raw HTML is left out, images are replaced by
// their text, links lead only to other sites or within the notes.
func HTML(notes []byte) (template.HTML, error) {
	md := goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)),
			extension.Strikethrough,
			extension.Linkify,
			extension.NewFootnote(extension.WithFootnoteIDPrefix(idPrefix)),
		),
		goldmark.WithParserOptions(
			parser.WithAutoHeadingID(),
			parser.WithASTTransformers(util.Prioritized(tame{}, 1000)),
		),
	)
	var b bytes.Buffer
	if err := md.Convert(visible(notes), &b); err != nil {
		return "", fmt.Errorf("render notes: %w", err)
	}
	return template.HTML(b.String()), nil
}

// visible drops what goldmark would pass on and HTML can't hold.
func visible(notes []byte) []byte {
	lines := strings.Split(strings.ToValidUTF8(string(notes), "\uFFFD"), "\n")
	for i, l := range lines {
		indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]
		end := l[len(strings.TrimRight(l, " ")):]
		if len(indent) == len(l) {
			end = ""
		}
		lines[i] = indent + mdtext.Clean(l) + end
	}
	return []byte(strings.Join(lines, "\n"))
}

// tame is an AST transformer.
type tame struct{}

func (tame) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	var images, links []ast.Node
	ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			n.Level = min(n.Level+headingShift, 6)
			if id, ok := n.AttributeString("id"); ok {
				if id, ok := id.([]byte); ok {
					n.SetAttributeString("id", append([]byte(idPrefix), id...))
				}
			}
		case *extast.TableCell:
			align(n)
		case *ast.Image:
			images = append(images, n)
		case *ast.Link:
			if rest, ok := bytes.CutPrefix(n.Destination, []byte("#")); ok {
				n.Destination = append([]byte("#"+idPrefix), rest...)
			} else if !leadsOut(string(n.Destination)) {
				links = append(links, n)
			}
		case *ast.AutoLink:
			if n.AutoLinkType == ast.AutoLinkURL && !leadsOut(string(n.URL(source))) {
				links = append(links, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range images {
		replaceByText(n, source)
	}
	for _, n := range links {
		replaceByText(n, source)
	}
}

// leadsOut reports whether a link goes to another site. A relative one would
// lead from the run's directory, which the page is not in.
func leadsOut(destination string) bool {
	u, err := url.Parse(destination)
	return err == nil && (u.Scheme == "mailto" || (u.Scheme == "https" || u.Scheme == "http") && u.Host != "")
}

// replaceByText puts a node's own content in its place.
func replaceByText(n ast.Node, source []byte) {
	parent := n.Parent()
	if a, ok := n.(*ast.AutoLink); ok {
		parent.ReplaceChild(parent, n, ast.NewString(a.Label(source)))
		return
	}
	for c := n.FirstChild(); c != nil; {
		next := c.NextSibling()
		parent.InsertBefore(parent, n, c)
		c = next
	}
	parent.RemoveChild(parent, n)
}

// Markdown returns notes as a block quotation for a Markdown document. Raw
// HTML, images and links that could run something are escaped, so that they
// are seen as written and do nothing.
func Markdown(notes []byte) string {
	source := visible(notes)
	const rounds = 8 // what was inside an escaped link may become one
	for range rounds {
		places := dangers(source)
		if len(places) == 0 {
			return mdtext.Quote(string(source))
		}
		var b bytes.Buffer
		last := 0
		for _, p := range places {
			b.Write(source[last:p])
			b.WriteByte('\\')
			last = p
		}
		b.Write(source[last:])
		source = b.Bytes()
	}
	return mdtext.Quote(mdtext.Fence("", string(source)))
}

// relative are the links that may lead to a file beside the notes, or to a
// place in them.
var relative = regexp.MustCompile(`^[A-Za-z0-9_./#-]+$`)

// dangers returns where to put a backslash in notes, ascending.
func dangers(source []byte) []int {
	var places []int
	escape := func(from, to int, c byte) {
		for i := max(0, from); i < to; i++ {
			if source[i] == c {
				places = append(places, i)
				if c == '[' {
					return
				}
			}
		}
	}
	mark := func(segments *text.Segments) {
		for i := range segments.Len() {
			escape(segments.At(i).Start, segments.At(i).Stop, '<')
		}
	}
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote)).Parser().Parse(text.NewReader(source))
	ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.HTMLBlock:
			mark(n.Lines())
			if n.HasClosure() {
				escape(n.ClosureLine.Start, n.ClosureLine.Stop, '<')
			}
		case *ast.RawHTML:
			mark(n.Segments)
		case *ast.Image:
			escape(n.Pos(), len(source), '[')
		case *ast.Link:
			if d := string(n.Destination); !leadsOut(d) && !relative.MatchString(d) {
				escape(n.Pos(), len(source), '[')
			}
		case *ast.AutoLink:
			if n.AutoLinkType == ast.AutoLinkURL && !leadsOut(string(n.URL(source))) {
				escape(n.Pos(), n.Pos()+1, '<')
			}
		}
		return ast.WalkContinue, nil
	})
	slices.Sort(places)
	return slices.Compact(places)
}
