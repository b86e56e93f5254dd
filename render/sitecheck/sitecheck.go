// Package sitecheck looks for what is broken in a built site: links and
// anchors that lead nowhere, ids that are there twice, pages that nothing
// leads to, what a page's policy would block, scripts that are not the
// site's own, and weight. It is the only
// importer of golang.org/x/net/html outside tests.
//
// It must not know how the site was made: it sees what a browser would see.
package sitecheck

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// A Budget is the most that a file may weigh.
type Budget struct {
	Kind        string
	match       *regexp.Regexp // of the path
	Raw, Zipped int            // bytes, as it is and gzipped
}

// budgets holds one budget for each kind of file; the first that matches a
// path counts. What a reader waits for is the gzipped size. The lists are
// as large as 200 rows with the longest names and every status are: links to
// runs, commits and measurements repeat, and nearly vanish when zipped.
var budgets = []Budget{
	{"first page", regexp.MustCompile(`^index\.html$`), 256 << 10, 20 << 10},
	{"list of runs", regexp.MustCompile(`^(runs|years/[^/]+)/index\.html$`), 288 << 10, 25 << 10},
	{"run page", regexp.MustCompile(`^runs/[^/]+/index\.html$`), 240 << 10, 48 << 10},
	{"page of a run's measurements", regexp.MustCompile(`^runs/.+\.html$`), 1 << 20, 256 << 10},
	{"comparison", regexp.MustCompile(`^diff/.+\.html$`), 320 << 10, 30 << 10},
	{"history", regexp.MustCompile(`^series/.+\.html$`), 150 << 10, 30 << 10},
	{"other page", regexp.MustCompile(`\.html$`), 256 << 10, 30 << 10},
	{"style sheet", regexp.MustCompile(`\.css$`), 24 << 10, 6 << 10},
	{"script", regexp.MustCompile(`^[^/]+\.js$`), 4 << 10, 2 << 10},
	{"script that is loaded on demand", regexp.MustCompile(`\.js$`), 1200 << 10, 400 << 10},
}

// Scripts that a site may have: what a page runs, and what that may load,
// which is ECharts and never without its licences.
var (
	ownScript     = regexp.MustCompile(`^site\.[0-9a-f]{12}\.js$`)
	echartsScript = regexp.MustCompile(`^echarts/echarts\.[0-9a-f]{12}\.min\.js$`)
	licences      = []string{"echarts/LICENSE", "echarts/NOTICE", "echarts/licenses/LICENSE-d3", "echarts/licenses/LICENSE-zrender"}
)

// Limits of a whole site. Hosts of static pages take a gigabyte.
const (
	WarnBytes = 500 << 20
	FailBytes = 900 << 20
)

// A Weight is the heaviest file of a kind.
type Weight struct {
	Budget
	Files            int // of the kind
	File             string
	FileRaw, FileZip int // bytes of the file
}

// A Report is what was found.
type Report struct {
	Problems []string // each names a file; sorted. None is a good site
	Warnings []string
	Weights  []Weight // by kind, of kinds that the site has
	Pages    int      // HTML pages
	Links    int      // links within the site that were followed
	Files    int
	Bytes    int64 // of all files
}

// A page is what links can lead to and come from.
type page struct {
	ids    map[string]bool
	links  []string
	runs   []string // scripts
	loads  []string // what they may load
	moved  bool     // it only leads to another page
	labels []string
}

// Check looks at a whole site. An error is one of reading it.
func Check(site fs.FS) (*Report, error) {
	r := &Report{}
	pages := map[string]*page{}
	files := map[string]bool{}
	texts := map[string][]byte{} // Markdown
	heaviest := make([]Weight, len(budgets))
	err := fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[name] = true
		r.Files++
		r.Bytes += info.Size()
		kind := slices.IndexFunc(budgets, func(b Budget) bool { return b.match.MatchString(name) })
		markdown := path.Ext(name) == ".md"
		if kind < 0 && !markdown {
			return nil
		}
		content, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		if markdown {
			texts[name] = content
			return nil
		}
		weigh(r, &heaviest[kind], budgets[kind], name, content)
		if path.Ext(name) == ".html" {
			pages[name] = r.read(name, content)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("check site: %w", err)
	}
	if pages["index.html"] == nil {
		return nil, fmt.Errorf("check site: no index.html: this is no site")
	}
	r.Pages = len(pages)
	for _, w := range heaviest {
		if w.Files > 0 {
			r.Weights = append(r.Weights, w)
		}
	}
	for name, p := range pages {
		r.follow(name, p, files, pages)
	}
	for name, text := range texts {
		r.followMarkdown(name, text, files)
	}
	r.orphans(pages)
	for name := range files {
		if path.Ext(name) != ".js" {
			continue
		}
		switch {
		case echartsScript.MatchString(name):
			for _, l := range licences {
				if !files[l] {
					r.problem(name, "%s is not beside it, which its licence demands", l)
				}
			}
		case !ownScript.MatchString(name):
			r.problem(name, "a script that no site of this program has")
		}
	}
	switch {
	case r.Bytes > FailBytes:
		r.problem(".", "the site has %d MB, the most is %d", r.Bytes>>20, FailBytes>>20)
	case r.Bytes > WarnBytes:
		r.Warnings = append(r.Warnings, fmt.Sprintf("the site has %d MB; from %d it does not fit a host", r.Bytes>>20, FailBytes>>20))
	}
	slices.Sort(r.Problems)
	return r, nil
}

func (r *Report) problem(name, format string, args ...any) {
	r.Problems = append(r.Problems, name+": "+fmt.Sprintf(format, args...))
}

func weigh(r *Report, w *Weight, b Budget, name string, content []byte) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(content) // to memory: no error
	z.Close()
	w.Budget = b
	w.Files++
	if zipped.Len() > w.FileZip || zipped.Len() == w.FileZip && name < w.File {
		w.File, w.FileRaw, w.FileZip = name, len(content), zipped.Len()
	}
	if len(content) > b.Raw || zipped.Len() > b.Zipped {
		r.problem(name, "%d bytes, %d gzipped; the most for a %s is %d and %d", len(content), zipped.Len(), b.Kind, b.Raw, b.Zipped)
	}
}

// read reads the tags of a page.
func (r *Report) read(name string, content []byte) *page {
	p := &page{ids: map[string]bool{}}
	policy, data := "", false
	for z := html.NewTokenizer(bytes.NewReader(content)); ; {
		switch z.Next() {
		case html.ErrorToken:
			if policy == "" {
				r.problem(name, "no Content-Security-Policy")
			} else if !strings.HasPrefix(policy, "default-src 'none';") {
				r.problem(name, "a policy that does not begin with default-src 'none': %q", policy)
			} else if len(p.runs) > 0 && !strings.Contains(policy, "script-src 'self';") {
				r.problem(name, "a script, which the page's policy blocks")
			}
			return p
		case html.TextToken:
			if text := z.Text(); data && !json.Valid(text) {
				r.problem(name, "data that is not JSON: %.40q", text)
			}
			data = false
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			equiv, content := "", ""
			for _, a := range t.Attr {
				switch key := strings.ToLower(a.Key); {
				case key == "id":
					if p.ids[a.Val] {
						r.problem(name, "id %q is there twice", a.Val)
					}
					p.ids[a.Val] = true
				case key == "href" && t.Data != "link":
					p.links = append(p.links, a.Val)
				case key == "src":
					p.links = append(p.links, a.Val)
					if external(a.Val) && t.Data != "script" && !strings.HasPrefix(a.Val, "data:image/") {
						r.problem(name, "loads %q from elsewhere", a.Val)
					}
				case key == "srcset", key == "poster", key == "data", key == "background", key == "action", key == "formaction":
					r.problem(name, "attribute %s, which no page of this program has", key)
				case key == "href":
					p.links = append(p.links, a.Val)
					if external(a.Val) {
						r.problem(name, "loads %q from elsewhere", a.Val)
					}
				case key == "style", strings.HasPrefix(key, "on"):
					r.problem(name, "attribute %s, which the page's policy blocks", key)
				case key == "aria-labelledby", key == "aria-describedby", key == "for", key == "headers":
					p.labels = append(p.labels, strings.Fields(a.Val)...)
				case key == "http-equiv":
					equiv = strings.ToLower(a.Val)
				case key == "content":
					content = a.Val
				case key == "data-echarts":
					p.loads = append(p.loads, a.Val)
				}
			}
			switch {
			case t.Data == "style", t.Data == "script" && !hasSource(t):
				r.problem(name, "inline %s, which the page's policy blocks", t.Data)
			case t.Data == "script" && external(source(t)):
				r.problem(name, "loads %q from elsewhere", source(t))
			case t.Data == "script" && source(t) != "":
				p.runs = append(p.runs, source(t))
			case t.Data == "script":
				data = true
			case equiv == "content-security-policy":
				policy = content
			case equiv == "refresh":
				p.moved = true
			}
		}
	}
}

func source(t html.Token) string {
	for _, a := range t.Attr {
		if a.Key == "src" {
			return a.Val
		}
	}
	return ""
}

// hasSource reports whether a script is a file, or data that nothing runs.
func hasSource(t html.Token) bool {
	if source(t) != "" {
		return true
	}
	for _, a := range t.Attr {
		if a.Key == "type" && a.Val == "application/json" {
			return true
		}
	}
	return false
}

func external(link string) bool {
	u, err := url.Parse(link)
	return err != nil || u.IsAbs() || u.Host != ""
}

// notFound is the page for addresses that do not exist. Its links are the
// only ones that begin with a slash: it appears at any depth.
const notFound = "404.html"

// follow checks the links of a page and leaves in p.links those to pages.
func (r *Report) follow(name string, p *page, files map[string]bool, pages map[string]*page) {
	for _, id := range p.labels {
		if !p.ids[id] {
			r.problem(name, "a label refers to id %q, which is not there", id)
		}
	}
	for _, s := range p.runs {
		if !ownScript.MatchString(path.Join(path.Dir(name), s)) {
			r.problem(name, "runs %q, which is no script of this site", s)
		}
	}
	for _, s := range p.loads {
		if target := path.Join(path.Dir(name), s); !echartsScript.MatchString(target) || !files[target] {
			r.problem(name, "would load %q, which is not this site's ECharts", s)
		}
	}
	links := p.links
	p.links = nil
	for _, link := range links {
		u, err := url.Parse(link)
		switch {
		case err != nil:
			r.problem(name, "link %q: %v", link, err)
			continue
		case u.Scheme == "data":
			continue
		case u.Scheme == "javascript":
			r.problem(name, "link %q runs a script", link)
			continue
		case u.IsAbs() || u.Host != "":
			continue // to another site
		case strings.HasPrefix(u.Path, "/"):
			if name != notFound {
				r.problem(name, "link %q begins at the host's root: it must be relative", link)
			}
			continue
		}
		r.Links++
		target := name
		if u.Path != "" {
			target = path.Join(path.Dir(name), u.Path)
			if strings.HasSuffix(u.Path, "/") {
				target = path.Join(target, "index.html")
			}
		}
		if !files[target] {
			r.problem(name, "link %q leads nowhere", link)
			continue
		}
		p.links = append(p.links, target)
		if to := pages[target]; to != nil && u.Fragment != "" && !to.ids[u.Fragment] {
			r.problem(name, "link %q leads to no place on that page", link)
		}
	}
}

// Links of Markdown, outside code.
var (
	fenced       = regexp.MustCompile("(?ms)^ {0,3}(```+|~~~+).*?^ {0,3}(```+|~~~+) *$")
	spans        = regexp.MustCompile("`[^`\n]*`")
	markdownLink = regexp.MustCompile(`[^\\]\]\(([^()\s]+)\)`)
)

func (r *Report) followMarkdown(name string, text []byte, files map[string]bool) {
	text = spans.ReplaceAll(fenced.ReplaceAll(text, nil), nil)
	for _, m := range markdownLink.FindAllSubmatch(text, -1) {
		link := string(m[1])
		u, err := url.Parse(link)
		if err != nil || u.IsAbs() || u.Host != "" || u.Path == "" {
			continue
		}
		r.Links++
		if target := path.Join(path.Dir(name), u.Path); !files[target] {
			r.problem(name, "link %q leads nowhere", link)
		}
	}
}

// orphans reports pages to which no chain of links leads from the first.
func (r *Report) orphans(pages map[string]*page) {
	seen := map[string]bool{"index.html": true}
	for next := []string{"index.html"}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		for _, to := range pages[at].links {
			if pages[to] != nil && !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	for name, p := range pages {
		if !seen[name] && !p.moved && name != notFound {
			r.problem(name, "no link leads to this page")
		}
	}
}
