package render_test

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"speedmatrix/render"
)

// npm is what a site takes of the packages; what is in them does not matter.
func npm() fstest.MapFS {
	files := fstest.MapFS{}
	for _, name := range []string{"echarts/dist/echarts.min.js", "echarts/LICENSE", "echarts/NOTICE", "echarts/licenses/LICENSE-d3", "zrender/LICENSE"} {
		files[name] = &fstest.MapFile{Data: []byte(name)}
	}
	return files
}

func newLayer(t *testing.T, files fstest.MapFS) *render.Layer {
	t.Helper()
	l, err := render.NewLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ECharts is never published without its licences.
func TestALayerIsWhole(t *testing.T) {
	for name := range npm() {
		for _, damage := range []func(fstest.MapFS){
			func(f fstest.MapFS) { delete(f, name) },
			func(f fstest.MapFS) { f[name] = &fstest.MapFile{} },
		} {
			files := npm()
			damage(files)
			if l, err := render.NewLayer(files); l != nil || err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("without a whole %s: %v, %v, want an error that names it", name, l, err)
			}
		}
	}
}

// scriptsOf returns the script elements of a page, and its policy.
func scriptsOf(t *testing.T, content string) (scripts []*html.Node, policy string) {
	t.Helper()
	root := parse(t, content)
	for _, m := range elements(root, "meta") {
		if attribute(m, "http-equiv") == "Content-Security-Policy" {
			policy = attribute(m, "content")
		}
	}
	return elements(root, "script"), policy
}

func TestTheLayerOfASite(t *testing.T) {
	dirs := fewRuns(t, 2)
	without, with := filepath.Join(t.TempDir(), "site"), filepath.Join(t.TempDir(), "site")
	buildSite(t, dirs, without, render.Options{})
	buildSite(t, dirs, with, render.Options{Layer: newLayer(t, npm())})
	checkedSite(t, with)
	plain, files := tree(t, without), tree(t, with)
	var more []string
	for name, content := range files {
		if old, ok := plain[name]; !ok {
			more = append(more, name)
			if rest, ok := strings.CutPrefix(name, "echarts/"); ok && !strings.HasPrefix(content, "echarts/") && !strings.HasPrefix(content, "zrender/") {
				t.Errorf("%s is %q, want it as the package has it", rest, content)
			}
		} else if isRun := strings.HasPrefix(name, "runs/run-") && path.Base(name) == "index.html"; isRun == (old == content) {
			t.Errorf("%s: with the layer it is another %v, want only pages of runs to differ", name, old != content)
		}
	}
	slices.Sort(more)
	for i, want := range []string{"echarts/LICENSE", "echarts/NOTICE", "echarts/echarts.*.min.js", "echarts/licenses/LICENSE-d3", "echarts/licenses/LICENSE-zrender", "site.*.js"} {
		if i >= len(more) {
			t.Fatalf("the site has besides %q, want %s too", more, want)
		}
		if ok, err := path.Match(want, more[i]); !ok || err != nil {
			t.Errorf("the site has besides %q, want %s", more, want)
		}
	}
	if len(more) != 6 || len(files) != len(plain)+6 {
		t.Errorf("%d files became %d, want 6 more: %q", len(plain), len(files), more)
	}
	for name, content := range plain {
		if strings.HasSuffix(name, ".html") {
			if scripts, policy := scriptsOf(t, content); len(scripts) > 0 || strings.Contains(policy, "script") || strings.Contains(content, "<button") {
				t.Errorf("%s has a script or a button without the layer", name)
			}
		}
	}
}

// The drawings and the charts are of the same numbers as the tables.
func TestTheLayerOfARunPage(t *testing.T) {
	r := references[0]
	out := filepath.Join(t.TempDir(), "site")
	buildSite(t, []string{r.shared(t)}, out, render.Options{Layer: newLayer(t, npm())})
	file := filepath.Join("runs", r.name, "index.html")
	content := read(t, out, file)
	t.Logf("%.1f KiB, %.1f compressed", float64(len(content))/1024, float64(zipped(content))/1024)
	if len(content) > 180<<10 || zipped(content) > 32<<10 {
		t.Errorf("%d bytes, %d compressed, want 180 KiB and 32 KiB at most", len(content), zipped(content))
	}
	scripts, policy := scriptsOf(t, content)
	if want := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'"; policy != want {
		t.Errorf("policy %q, want %q", policy, want)
	}
	if len(scripts) != 2 || attribute(scripts[1], "type") != "application/json" || attribute(scripts[1], "id") != "chart-options" {
		t.Fatalf("%d scripts, want ours and the data", len(scripts))
	}
	for _, key := range []string{"src", "data-echarts"} {
		read(t, out, path.Join(path.Dir(filepath.ToSlash(file)), attribute(scripts[0], key))) // is there
	}
	var options map[string]struct {
		Series []struct {
			Name string
			Data []struct{ Value []any }
		}
	}
	if err := json.Unmarshal([]byte(text(scripts[1])), &options); err != nil {
		t.Fatal(err)
	}
	root := parse(t, content)
	if drawings := elements(root, "figure"); len(options) != len(drawings) || len(drawings) != 6 {
		t.Errorf("%d options of %d drawings, want 6", len(options), len(drawings))
	}
	// What the chart of the server's speed says, against the table.
	said := map[string]string{}
	for _, s := range options["chart-total"].Series {
		for _, d := range s.Data {
			where, value, status := d.Value[2].(string), d.Value[3].(string), d.Value[4].(string)
			if (d.Value[1] == nil) == (status == "Valid") {
				t.Errorf("%s at %s is %s with %v", s.Name, where, status, d.Value[1])
			}
			said[s.Name+" "+strings.Fields(where)[0]] = strings.TrimSuffix(value, " tok/s") + " " + status
		}
	}
	want := map[string]string{}
	for _, row := range elements(root, "tr") {
		cells := slices.Concat(elements(row, "th"), elements(row, "td"))
		if attribute(row, "id") == "" || text(cells[1]) != "Sustained decode" {
			continue
		}
		total, status := text(cells[4]), text(cells[3])
		if status != "Valid" {
			total = ""
		}
		want[text(cells[0])+" "+text(cells[2])] = total + " " + status
	}
	if diff := cmp.Diff(want, said); diff != "" || len(want) < 40 {
		t.Errorf("the chart says (-table +chart):\n%s", diff)
	}
}

// No text of a run leaves the element that holds the data.
func TestForeignTextWithTheLayer(t *testing.T) {
	for i, h := range hostile {
		l := launchAt(i)
		l.model, l.hardware = h.text, h.text
		out := filepath.Join(t.TempDir(), "site")
		buildSite(t, []string{l.write(t, t.TempDir())}, out, render.Options{Layer: newLayer(t, npm())})
		scripts, _ := scriptsOf(t, read(t, out, "runs", l.id(), "index.html"))
		if len(scripts) != 2 || !json.Valid([]byte(text(scripts[1]))) {
			t.Errorf("%q: %d scripts, want ours and data that is JSON", h.text, len(scripts))
		}
	}
}

// The layer is part of what a run's files are computed from.
func TestTheCacheKnowsTheLayer(t *testing.T) {
	dirs, work := fewRuns(t, 2), t.TempDir()
	o := render.Options{Cache: filepath.Join(work, "cache"), Version: "a"}
	out := filepath.Join(work, "site")
	newer := npm()
	newer["echarts/dist/echarts.min.js"] = &fstest.MapFile{Data: []byte("newer")}
	for _, tt := range []struct {
		rule  string
		layer *render.Layer
		want  int // computed
	}{
		{"none", nil, 2}, {"none again", nil, 0}, {"a layer", newLayer(t, npm()), 2}, {"the same", newLayer(t, npm()), 0}, {"a newer ECharts", newLayer(t, newer), 2}, {"none any more", nil, 2},
	} {
		o.Layer = tt.layer
		if got := buildSite(t, dirs, out, o).Computed; len(got) != tt.want {
			t.Errorf("%s: %q were computed, want %d", tt.rule, got, tt.want)
		}
		fresh := filepath.Join(t.TempDir(), "site")
		buildSite(t, dirs, fresh, render.Options{Layer: tt.layer})
		if diff := cmp.Diff(sums(t, fresh), sums(t, out)); diff != "" {
			t.Errorf("%s: the cache gives another site:\n%s", tt.rule, diff)
		}
	}
}

// What lies beside the data is the same for every program.
func TestTwinsHaveNoLayer(t *testing.T) {
	dirs := fewRuns(t, 1)
	plain, with := twins(t, dirs, render.Options{}), twins(t, dirs, render.Options{Layer: newLayer(t, npm())})
	if diff := cmp.Diff(plain, with); diff != "" || len(plain) == 0 {
		t.Errorf("%d files, with the layer others:\n%s", len(plain), diff)
	}
}
