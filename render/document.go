package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	htmltemplate "html/template"
	"io"
	"regexp"
	"strings"
	"sync"
	texttemplate "text/template"

	"speedmatrix/render/internal/mdtext"
	"speedmatrix/templates"
)

var htmlPages = htmltemplate.Must(htmltemplate.New("").Funcs(htmltemplate.FuncMap{"caption": caption}).ParseFS(templates.FS, "*.html.tmpl"))

// text/template escapes nothing: inline, cell and fence do, each for its place.
var markdownPages = texttemplate.Must(texttemplate.New("").Funcs(texttemplate.FuncMap{
	"inline": mdtext.Inline,
	"cell":   mdtext.Cell,
	"fence":  mdtext.Fence,

	"caption": caption,
	"words":   func(parts []string) string { return strings.Join(parts, " ") },
}).ParseFS(templates.FS, "*.md.tmpl"))

// caption makes a table of runs for a template that has several.
func caption(text string, rows []runRow) listView { return listView{Caption: text, Rows: rows} }

// An asset is a file that every page of a site shares.
type asset struct {
	name string // holds a hash of the content, so that it can be kept for ever
	data []byte
}

// newAsset returns the given files one after the other as one.
func newAsset(stem, extension string, files ...string) asset {
	var data []byte
	for _, f := range files {
		b, err := templates.FS.ReadFile(f)
		if err != nil {
			panic(err) // embedded
		}
		data = append(data, b...)
	}
	sum := sha256.Sum256(data)
	return asset{stem + "." + hex.EncodeToString(sum[:6]) + extension, data}
}

// assets returns the style sheet and the icon, which are made once.
var assets = sync.OnceValues(func() (style, icon asset) {
	style = hashed("style", ".css", lightSheet(newAsset("", "", "colours.css", "style.css", "chart.css", "diff.css").data))
	return style, newAsset("icon", ".svg", "icon.svg")
})

var (
	comments = regexp.MustCompile(`(?s)/\*.*?\*/`)
	spaces   = regexp.MustCompile(`\s+`)
	tight    = strings.NewReplacer(" { ", "{", " }", "}", "; ", ";", "} ", "}", ", ", ",", ": ", ":", "{ ", "{")
)

// lightSheet takes from a style sheet of ours what only its readers need:
// comments, line breaks, and spaces that mean nothing. Strings stay as they are.
func lightSheet(css []byte) []byte {
	parts := strings.Split(comments.ReplaceAllString(string(css), ""), `"`)
	for i := 0; i < len(parts); i += 2 { // between strings
		parts[i] = strings.ReplaceAll(tight.Replace(spaces.ReplaceAllString(parts[i], " ")), ";}", "}")
	}
	return []byte(strings.TrimSpace(strings.Join(parts, `"`)) + "\n")
}

// Markdown writes the page of one run as Markdown, for a file in the run's
// own directory (README.md): its links lead to the run's files from there.
func Markdown(w io.Writer, in Input) error {
	files, err := twin(in)
	if err != nil {
		return err
	}
	_, err = w.Write(files[0].Data)
	return err
}

// TwinsOf returns the files that belong into the directory of one run.
func TwinsOf(in Input) ([]Twin, error) {
	files, err := twin(in)
	if err != nil {
		return nil, err
	}
	var list []Twin
	for _, d := range files {
		list = append(list, Twin{in.Run.ID, d.Name, d.Data})
	}
	return list, nil
}

// twin returns the files that belong beside a run's data: its page as
// Markdown first.
func twin(in Input) ([]document, error) {
	v, err := newRunView(in, "", false)
	if err != nil {
		return nil, err
	}
	return twinOf(v)
}

func twinOf(v *runView) ([]document, error) {
	v.Pictures = true
	b, err := markdown("run.md.tmpl", v)
	if err != nil {
		return nil, err
	}
	return append([]document{{ReadmeFile, b}}, chartFiles(v)...), nil
}

// chartFiles returns each drawing of a run as a file.
func chartFiles(v *runView) []document {
	var files []document
	for _, d := range v.Charts {
		files = append(files, document{d.File, d.file()})
	}
	return files
}

func markdown(name string, view any) ([]byte, error) {
	var b bytes.Buffer
	if err := markdownPages.ExecuteTemplate(&b, name, view); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return append(bytes.TrimSpace(b.Bytes()), '\n'), nil
}

func html(name string, view any) ([]byte, error) {
	var b bytes.Buffer
	if err := htmlPages.ExecuteTemplate(&b, name, view); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return b.Bytes(), nil
}
