package prose

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Document renders a document of our own as the body of a page: its title,
// which is its first-level heading, apart from the rest. Links to the files
// in links lead where these say; other relative ones become text. Tables can
// be scrolled by keyboard and are named after the heading above them.
func Document(source []byte, links map[string]string) (title string, body template.HTML, err error) {
	frame := &framed{links: links}
	md := goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)),
			extension.Strikethrough,
		),
		goldmark.WithParserOptions(
			parser.WithAutoHeadingID(),
			parser.WithASTTransformers(util.Prioritized(frame, 1000)),
		),
	)
	var b bytes.Buffer
	if err := md.Convert(source, &b); err != nil {
		return "", "", fmt.Errorf("render document: %w", err)
	}
	return frame.title, template.HTML(scrollTables(b.String())), nil
}

// framed is an AST transformer. It takes out the title.
type framed struct {
	links map[string]string
	title string
}

func (f *framed) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	if h, ok := doc.FirstChild().(*ast.Heading); ok && h.Level == 1 {
		f.title = string(h.Lines().Value(source))
		doc.RemoveChild(doc, h)
	}
	var away []ast.Node
	ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Image:
			away = append(away, n)
		case *ast.Link:
			d := string(n.Destination)
			file, fragment, found := strings.Cut(d, "#")
			if at, ok := f.links[file]; ok {
				n.Destination = []byte(at)
				if found {
					n.Destination = []byte(at + "#" + fragment)
				}
			} else if file != "" && !leadsOut(d) {
				away = append(away, n)
			}
		case *extast.TableHeader:
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				c.SetAttributeString("scope", []byte("col"))
			}
		case *extast.TableCell:
			align(n)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range away {
		replaceByText(n, source)
	}
}

// align says by a class how a column stands: the page's policy allows no
// style, and the attribute is obsolete.
func align(n *extast.TableCell) {
	switch n.Alignment {
	case extast.AlignRight:
		n.SetAttributeString("class", []byte("end"))
	case extast.AlignCenter:
		n.SetAttributeString("class", []byte("mid"))
	}
}

var headingOrTable = regexp.MustCompile(`<h[2-6] id="([^"]+)">(.*?)</h[2-6]>|<table>|</table>`)

// scrollTables puts each table into a group that is named after the heading
// above it. Text can't look like a tag here: raw HTML is left out.
func scrollTables(page string) string {
	id, name := "content", ""
	var b strings.Builder
	last := 0
	for _, m := range headingOrTable.FindAllStringSubmatchIndex(page, -1) {
		b.WriteString(page[last:m[0]])
		last = m[1]
		switch found := page[m[0]:m[1]]; found {
		case "<table>":
			b.WriteString(`<div class="scroll" role="group" tabindex="0" aria-labelledby="` + id + `"><table class="text"><caption class="unseen"><span>` + name + `</span></caption>`)
		case "</table>":
			b.WriteString("</table></div>")
		default:
			id, name = page[m[2]:m[3]], page[m[4]:m[5]]
			b.WriteString(found)
		}
	}
	b.WriteString(page[last:])
	return b.String()
}
