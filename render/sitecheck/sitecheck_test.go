package sitecheck

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'">`

// good is a site without a fault. Tests add one each.
func good() map[string]string {
	return map[string]string{
		"index.html":          policy + `<h1 id="top">x</h1><a href="runs/a/index.html#d-8K-1">a</a><a href="https://example.org/gone">out</a><link href="s.css"><a href="runs/">all</a>`,
		"runs/index.html":     policy + `<a href="../index.html#top">up</a>`,
		"runs/a/index.html":   policy + `<p id="d-8K-1" aria-labelledby="d-8K-1"></p><a href="#d-8K-1">here</a><a href="raw/run.json">raw</a><a href="index.md">md</a><svg><a xlink:href="x"></a></svg>`,
		"runs/a/index.md":     "[raw](raw/run.json) `[not](a link)`\n\n```sh\n[nor](this)\n```\n\\[escaped\\](so is this)\n",
		"runs/a/raw/run.json": "{}",
		"runs/old/index.html": policy + `<meta http-equiv="refresh" content="0; url=../a/index.html"><a href="../a/index.html">moved</a>`,
		"404.html":            policy + `<a href="/base/index.html">first page</a>`,
		"s.css":               "a{}",
	}
}

func check(t *testing.T, files map[string]string) *Report {
	t.Helper()
	site := fstest.MapFS{}
	for name, content := range files {
		site[name] = &fstest.MapFile{Data: []byte(content)}
	}
	r, err := Check(site)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAGoodSiteHasNoProblem(t *testing.T) {
	r := check(t, good())
	if len(r.Problems) > 0 || len(r.Warnings) > 0 {
		t.Errorf("problems %q, warnings %q", r.Problems, r.Warnings)
	}
	if r.Pages != 5 || r.Links != 9 || r.Files != 8 || r.Bytes == 0 {
		t.Errorf("%d pages, %d links, %d files, %d bytes, want 5, 9, 8 and some", r.Pages, r.Links, r.Files, r.Bytes)
	}
	var kinds []string
	for _, w := range r.Weights {
		kinds = append(kinds, w.Kind)
		if w.FileRaw == 0 || w.FileZip == 0 || w.File == "" {
			t.Errorf("weight %+v", w)
		}
	}
	if want := []string{"first page", "list of runs", "run page", "other page", "style sheet"}; !slices.Equal(kinds, want) {
		t.Errorf("weights of %q, want %q", kinds, want)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		rule, file, add string
		want            string
	}{
		{"a link to nothing", "index.html", `<a href="gone.html">x</a>`, `index.html: link "gone.html" leads nowhere`},
		{"a link to a folder without a page", "index.html", `<a href="runs/a/raw/">x</a>`, `index.html: link "runs/a/raw/" leads nowhere`},
		{"a link out of the site", "index.html", `<a href="../x.html">x</a>`, `index.html: link "../x.html" leads nowhere`},
		{"an anchor that is not there", "index.html", `<a href="runs/a/index.html#d-8K-2">x</a>`, `index.html: link "runs/a/index.html#d-8K-2" leads to no place on that page`},
		{"an anchor on the page itself", "index.html", `<a href="#gone">x</a>`, `index.html: link "#gone" leads to no place on that page`},
		{"a link from the host's root", "index.html", `<a href="/index.html">x</a>`, `index.html: link "/index.html" begins at the host's root: it must be relative`},
		{"an image that is not there", "runs/a/index.html", `<img src="x.svg">`, `runs/a/index.html: link "x.svg" leads nowhere`},
		{"a script link", "index.html", `<a href="javascript:alert(1)">x</a>`, `index.html: link "javascript:alert(1)" runs a script`},
		{"an id twice", "runs/a/index.html", `<b id="d-8K-1">`, `runs/a/index.html: id "d-8K-1" is there twice`},
		{"a label of nothing", "index.html", `<section aria-labelledby="gone">`, `index.html: a label refers to id "gone", which is not there`},
		{"a style from elsewhere", "index.html", `<link rel="stylesheet" href="https://example.org/s.css">`, `index.html: loads "https://example.org/s.css" from elsewhere`},
		{"a script from elsewhere", "index.html", `<script src="//example.org/s.js"></script>`, `index.html: loads "//example.org/s.js" from elsewhere`},
		{"an inline script", "index.html", `<script>alert(1)</script>`, `index.html: inline script, which the page's policy blocks`},
		{"an inline style", "index.html", `<style>a{}</style>`, `index.html: inline style, which the page's policy blocks`},
		{"a style attribute", "index.html", `<b style="color:red">`, `index.html: attribute style, which the page's policy blocks`},
		{"a handler", "index.html", `<b onclick="x()">`, `index.html: attribute onclick, which the page's policy blocks`},
		{"an image from elsewhere", "index.html", `<img src="https://example.org/x.png">`, `index.html: loads "https://example.org/x.png" from elsewhere`},
		{"a frame from elsewhere", "index.html", `<iframe src="//example.org/x"></iframe>`, `index.html: loads "//example.org/x" from elsewhere`},
		{"other ways to load", "index.html", `<object data="s.css"></object>`, `index.html: attribute data, which no page of this program has`},
		{"a form", "index.html", `<form action="https://example.org/">`, `index.html: attribute action, which no page of this program has`},
		{"an orphan", "lost/index.html", policy + `<a href="../index.html">x</a>`, `lost/index.html: no link leads to this page`},
		{"Markdown that leads nowhere", "runs/a/index.md", `see [it](gone.md)`, `runs/a/index.md: link "gone.md" leads nowhere`},
		{"a page without a policy", "404.html", "", ""},
		{"a heavy page", "index.html", strings.Repeat(" ", 256<<10), "index.html: 262376 bytes, "},
		{"a heavy style sheet", "s.css", strings.Repeat("a", 24<<10), "s.css: 24579 bytes, "},
	} {
		files := good()
		files[c.file] += c.add
		if c.want == "" {
			files[c.file] = "<p>x</p>"
			c.want = "404.html: no Content-Security-Policy"
		}
		r := check(t, files)
		if len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], c.want) {
			t.Errorf("%s: problems %q, want one: %s", c.rule, r.Problems, c.want)
		}
	}
}

// scripted is a site whose page runs the site's script, which may load ECharts.
func scripted() map[string]string {
	files := good()
	files["index.html"] = strings.Replace(files["index.html"], "default-src 'none';", "default-src 'none'; script-src 'self';", 1) +
		`<script defer src="site.0123456789ab.js" data-echarts="echarts/echarts.0123456789ab.min.js"></script>`
	files["site.0123456789ab.js"], files["echarts/echarts.0123456789ab.min.js"] = "1", "2"
	for _, l := range licences {
		files[l] = "You may."
	}
	return files
}

func TestScripts(t *testing.T) {
	for _, c := range []struct {
		rule   string
		change func(files map[string]string)
		want   string // the start of the only problem; "" none
	}{
		{"the site's own", func(map[string]string) {}, ""},
		{"an own one that is not there", func(f map[string]string) { delete(f, "site.0123456789ab.js") }, `index.html: link "site.0123456789ab.js" leads nowhere`},
		{"a file of another name", func(f map[string]string) { f["runs/a/x.js"] = "1" }, "runs/a/x.js: a script that no site of this program has"},
		{"one that a policy blocks", func(f map[string]string) {
			f["404.html"] += `<script src="site.0123456789ab.js"></script>`
		}, "404.html: a script, which the page's policy blocks"},
		{"ECharts at once", func(f map[string]string) {
			f["index.html"] += `<script src="echarts/echarts.0123456789ab.min.js"></script>`
		}, `index.html: runs "echarts/echarts.0123456789ab.min.js", which is no script of this site`},
		{"another for ECharts", func(f map[string]string) {
			f["index.html"] += `<script src="site.0123456789ab.js" data-echarts="https://example.org/echarts.js"></script>`
		}, `index.html: would load "https://example.org/echarts.js", which is not this site's ECharts`},
		{"ECharts that is not there", func(f map[string]string) { delete(f, "echarts/echarts.0123456789ab.min.js") }, `index.html: would load "echarts/echarts.0123456789ab.min.js"`},
		{"ECharts without a licence", func(f map[string]string) { delete(f, "echarts/NOTICE") }, "echarts/echarts.0123456789ab.min.js: echarts/NOTICE is not beside it"},
		{"too much of ours", func(f map[string]string) { f["site.0123456789ab.js"] = strings.Repeat("1", 4<<10+1) }, "site.0123456789ab.js: 4097 bytes, "},
		{"data that is none", func(f map[string]string) { f["index.html"] += `<script type="application/json">{"a":</script>` }, `index.html: data that is not JSON`},
	} {
		files := scripted()
		c.change(files)
		r := check(t, files)
		if c.want == "" && len(r.Problems) > 0 || c.want != "" && (len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], c.want)) {
			t.Errorf("%s: problems %q, want %q", c.rule, r.Problems, c.want)
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, p := range []string{"", "img-src *", "default-src 'self'; script-src 'self';", "default-src 'none' *;"} {
		files := good()
		files["404.html"] = `<meta http-equiv="Content-Security-Policy" content="` + p + `">`
		r := check(t, files)
		if len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], "404.html: ") || !strings.Contains(r.Problems[0], "olicy") {
			t.Errorf("policy %q: problems %q, want one about it", p, r.Problems)
		}
	}
}

func TestDataBlocksAreNoScripts(t *testing.T) {
	files := good()
	files["index.html"] += `<script type="application/json">{"a":1}</script>`
	if r := check(t, files); len(r.Problems) > 0 {
		t.Errorf("problems %q", r.Problems)
	}
}

func TestWhatIsNoSite(t *testing.T) {
	if _, err := Check(fstest.MapFS{"x.html": &fstest.MapFile{}}); err == nil || !strings.Contains(err.Error(), "no index.html") {
		t.Errorf("got %v", err)
	}
}

func TestProblemsAreSorted(t *testing.T) {
	files := good()
	files["index.html"] += `<a href="z">z</a><a href="a">a</a>`
	files["404.html"] = "x"
	want := []string{"404.html: no Content-Security-Policy", `index.html: link "a" leads nowhere`, `index.html: link "z" leads nowhere`}
	if diff := cmp.Diff(want, check(t, files).Problems); diff != "" {
		t.Error(diff)
	}
}
