package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"

	"speedmatrix/render/internal/format"
)

// A Layer lets readers make the charts of a run's page interactive: a small
// script of ours that every run page loads, and Apache ECharts, which that
// loads when it is asked to. The drawings stay what they are.
type Layer struct {
	script, echarts asset
	licences        []document
	sum             string // of all files
}

// echartsFolder of a site holds ECharts and its licences.
const echartsFolder = "echarts/"

// layerPolicy lets scripts run that are files of the site, and nothing else
// than a page without scripts lets in.
const layerPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"

// NewLayer returns the layer that uses ECharts as its npm packages have it:
// echarts/dist/echarts.min.js, and what its licences demand beside it. It is
// an error when one of the files is not there.
func NewLayer(npm fs.FS) (*Layer, error) {
	read := func(name string) ([]byte, error) {
		b, err := fs.ReadFile(npm, name)
		if err == nil && len(b) == 0 {
			err = fmt.Errorf("%s is empty", name)
		}
		if err != nil {
			return nil, fmt.Errorf("read ECharts: %w", err)
		}
		return b, nil
	}
	l := &Layer{script: hashed("site", ".js", light(newAsset("", "", "site.js").data))}
	b, err := read("echarts/dist/echarts.min.js")
	if err != nil {
		return nil, err
	}
	l.echarts = hashed(echartsFolder+"echarts", ".min.js", b)
	for _, f := range []struct{ from, to string }{
		{"echarts/LICENSE", "LICENSE"}, {"echarts/NOTICE", "NOTICE"},
		{"echarts/licenses/LICENSE-d3", "licenses/LICENSE-d3"}, {"zrender/LICENSE", "licenses/LICENSE-zrender"}, // parts of it
	} {
		if b, err = read(f.from); err != nil {
			return nil, err
		}
		l.licences = append(l.licences, document{path.Join(echartsFolder, f.to), b})
	}
	h := sha256.New()
	for _, d := range l.files() {
		fmt.Fprintf(h, "%s %d\n", d.Name, len(d.Data))
		h.Write(d.Data)
	}
	l.sum = hex.EncodeToString(h.Sum(nil))
	return l, nil
}

// light takes from a script of ours what only its readers need: lines that
// are comments, and indents.
func light(script []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(script) {
		if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
			b.Write(append(line, '\n'))
		}
	}
	return b.Bytes()
}

// hashed returns an asset whose name has a hash of its content.
func hashed(stem, extension string, data []byte) asset {
	sum := sha256.Sum256(data)
	return asset{stem + "." + hex.EncodeToString(sum[:6]) + extension, data}
}

// files are those that the layer adds to a site; none where it is nil.
func (l *Layer) files() []document {
	if l == nil {
		return nil
	}
	return append([]document{{l.script.name, l.script.data}, {l.echarts.name, l.echarts.data}}, l.licences...)
}

// id stands for everything of the layer that a run's files depend on; "" is
// that of none.
func (l *Layer) id() string {
	if l == nil {
		return ""
	}
	return l.sum
}

// A layerView is what a page with the layer has besides.
type layerView struct {
	Script, ECharts string      // paths from the site's root
	Megabytes       string      // what ECharts weighs
	Options         template.JS // JSON: of each drawing, by its id
}

// view returns the layer for a page with the given drawings; nil where there
// is no layer, or no drawing.
func (l *Layer) view(list []drawing) (*layerView, error) {
	if l == nil || len(list) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, d := range list {
		option, err := d.option()
		if err != nil {
			return nil, err
		}
		id, err := json.Marshal(d.ID)
		if err != nil {
			return nil, fmt.Errorf("write options of a chart: %w", err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n%s:%s", id, option)
	}
	b.WriteString("\n}")
	// JSON whose text is escaped so that it can't end its element.
	return &layerView{l.script.name, l.echarts.name, format.One(float64(len(l.echarts.data)) / 1e6), template.JS(b.String())}, nil
}
