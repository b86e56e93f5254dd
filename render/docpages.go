package render

import (
	"encoding/xml"
	"html/template"
	"net/url"
	"strings"

	"speedmatrix/docs"
	"speedmatrix/render/internal/prose"
)

// A docView is a document of ours as a page.
type docView struct {
	sitePage
	Body template.HTML
	Text string // the document as it was written
}

// addDocs adds what stands behind all numbers: the method, and the figures
// as SQL. The method is that of the program, which computed every page.
func (s *site) addDocs() error {
	for _, d := range []struct {
		at, lead string
		source   []byte
		links    map[string]string
	}{
		{"method/", "Every figure and every status of these pages is computed by these rules.", docs.Method, map[string]string{"sql.md": "sql/index.html", "diff.md": "comparing/index.html"}},
		{"method/comparing/", "What is said about two commits, and how sure that is.", docs.Comparing, map[string]string{
			"method.md": "../index.html", "diff-ci.md": "ci/index.html", "diff-validation.md": "validation/index.html",
		}},
		{"method/comparing/validation/", "How often comparisons say what is not so, and how often they miss what is.", docs.Validation, nil},
		{"method/comparing/ci/", "A comparison as a check of a pull request.", docs.CI, map[string]string{"diff.md": "../index.html"}},
		{"method/sql/", "The event files of a run answer questions of your own.", docs.SQL, map[string]string{"method.md": "../index.html"}},
	} {
		heading, body, err := prose.Document(d.source, d.links)
		if err != nil {
			return err
		}
		v := docView{sitePage: s.newPage(d.at, heading, d.lead), Body: body, Text: string(d.source)}
		v.JSON = ""
		b, err := html("doc.html.tmpl", v)
		if err != nil {
			return err
		}
		text := v.Text
		for from, to := range d.links {
			text = strings.ReplaceAll(text, "]("+from, "]("+strings.TrimSuffix(to, "html")+"md")
		}
		s.files = append(s.files, document{d.at + "index.html", b}, document{d.at + "index.md", []byte(text)})
	}
	return nil
}

// basePath returns the path of a site's address, ending in a slash; "" where
// the address is not known.
func basePath(address string) string {
	u, err := url.Parse(address)
	if address == "" || err != nil {
		return ""
	}
	return strings.TrimSuffix(u.EscapedPath(), "/") + "/"
}

func escapeXML(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s))
	return b.String()
}
