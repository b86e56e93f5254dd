package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// moduleRoot is the top of the module, seen from this package.
const moduleRoot = "../.."

// A policy says what the packages at dir and below may import, except those
// that have a row of their own.
type policy struct {
	dir  string   // below the module's root
	ours []string // packages of this module
	libs []string // outside libraries whose one home this is, by prefix
}

// policies is the statement of policy of the module. The collector's side
// and the renderer's meet in ingest/runlog and nowhere else; an outside
// library has one home, so that changing it touches one package.
func policies() []policy {
	return []policy{
		{dir: "cmd/speedmatrix",
			ours: []string{"collect", "collect/host", "collect/server", "collect/simserver", "collect/stream", "ingest", "ingest/compare", "ingest/runlog", "render", "render/sitecheck", "templates/echarts"},
			libs: []string{"github.com/spf13/pflag", "golang.org/x/term"}},

		{dir: "collect", ours: []string{"collect/host", "collect/prompt", "collect/server", "collect/stream", "ingest/runlog"}},
		{dir: "collect/host", ours: []string{"ingest/runlog"}, libs: []string{"golang.org/x/sys"}},
		{dir: "collect/prompt"},
		{dir: "collect/server", ours: []string{"ingest/runlog"}, libs: []string{"github.com/prometheus/common", "github.com/prometheus/client_model"}},
		{dir: "collect/simserver"}, // it knows what a vLLM server does, and nothing of who measures it
		{dir: "collect/stream", ours: []string{"ingest/runlog"}, libs: []string{"golang.org/x/sys"}},
		{dir: "collect/stream/streamtest"},

		{dir: "ingest", ours: []string{"ingest/runlog"}},
		{dir: "ingest/compare", ours: []string{"ingest", "ingest/runlog"}, libs: []string{"gonum.org/v1/gonum/mathext"}},
		{dir: "ingest/compare", ours: []string{"ingest", "ingest/runlog"}, libs: []string{"gonum.org/v1/gonum/mathext"}},
		{dir: "ingest/runlog", libs: []string{"github.com/parquet-go/parquet-go", "github.com/klauspost/compress/zstd"}},

		{dir: "docs"},
		{dir: "render", ours: []string{"docs", "ingest", "ingest/compare", "ingest/runlog", "templates", "render/internal/chart", "render/internal/echart", "render/internal/format", "render/internal/mdtext", "render/internal/prose", "render/internal/shell"}},
		{dir: "render/sitecheck", libs: []string{"golang.org/x/net/html"}},
		{dir: "render/internal"},
		{dir: "render/internal/echart", ours: []string{"render/internal/chart"}, libs: []string{"github.com/go-echarts/go-echarts"}},
		{dir: "render/internal/prose", ours: []string{"render/internal/mdtext"}, libs: []string{"github.com/yuin/goldmark"}},

		{dir: "templates"},
		{dir: "templates/echarts"},
	}
}

// severalHomes are libraries that more than one package may use: the door to
// the system, which is no choice that anyone would take back.
var severalHomes = []string{"golang.org/x/sys"}

// testLibs may be imported by the tests of any package: what compares, and
// independent readers of what we write.
var testLibs = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal/testscript",
	"golang.org/x/net/html", "github.com/yuin/goldmark", "github.com/prometheus/",
	"github.com/parquet-go/parquet-go", // files of other writers
}

// testOurs are packages that tests of a tree need besides: a server to talk
// to, the far end of the path to judge what came out.
func testOurs(dir string) []string {
	switch top, _, _ := strings.Cut(dir, "/"); top {
	case "cmd":
		return []string{"collect/", "ingest/", "render/", "templates/"}
	case "collect":
		return []string{"collect/"}
	case "ingest":
		return []string{"collect/"} // cases go the whole path, from a server's bytes to a status
	case "render":
		return []string{"render/", "ingest/", "templates/"}
	}
	return nil
}

// impure is what the trees that compute may not import: they know no network,
// no other process, no chance. For the clock see
// TestOnlyTheCommandPrintsAndExits: package time has dates too.
var impure = []string{"net", "net/http", "os/exec", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog"}

func computes(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	return top == "ingest" || top == "render"
}

// policyOf returns the row of a package: its own, or its nearest parent's.
func policyOf(dir string) (policy, bool) {
	for at := dir; at != "."; at = path.Dir(at) {
		for _, p := range policies() {
			if p.dir == at {
				return p, true
			}
		}
	}
	return policy{}, false
}

// violation says why the package at dir may not import imp, "" when it may.
func violation(dir, imp string, test bool) string {
	p, ok := policyOf(dir)
	if !ok {
		return fmt.Sprintf("%s has no policy, nor has a tree above it", dir)
	}
	under := func(roots []string, s string) bool {
		return slices.ContainsFunc(roots, func(r string) bool {
			return s == strings.TrimSuffix(r, "/") || strings.HasPrefix(s, strings.TrimSuffix(r, "/")+"/")
		})
	}
	allowed := true
	ours, isOurs := strings.CutPrefix(imp, "speedmatrix/")
	first, _, _ := strings.Cut(imp, "/")
	switch {
	case isOurs:
		allowed = slices.Contains(p.ours, ours) || test && (ours == dir || under(testOurs(dir), ours))
		imp = ours
	case strings.Contains(first, "."):
		allowed = under(p.libs, imp) || test && under(testLibs, imp)
	case test:
	case p.dir == "templates", p.dir == "docs":
		allowed = imp == "embed"
	case computes(dir):
		allowed = !slices.Contains(impure, imp)
	}
	if allowed {
		return ""
	}
	return fmt.Sprintf("%s imports %s, which its policy does not allow", dir, imp)
}

// A sourceFile is a Go file of the module, for whatever system it is.
type sourceFile struct {
	dir, name string
	*ast.File
}

func (f *sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// sources parses every Go file of the module. Modules inside it are others.
func sources(t *testing.T) (*token.FileSet, []sourceFile) {
	t.Helper()
	set := token.NewFileSet()
	var files []sourceFile
	err := filepath.WalkDir(moduleRoot, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(moduleRoot, file)
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(file, "go.mod"))
			if rel != "." && (nested == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, sourceFile{filepath.ToSlash(filepath.Dir(rel)), filepath.Base(rel), parsed})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found %d Go files below %s, want the module's", len(files), moduleRoot)
	}
	return set, files
}

func TestImportsFollowThePolicy(t *testing.T) {
	set, files := sources(t)
	homes := map[string][]string{}
	for i := range files {
		f := &files[i]
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if why := violation(f.dir, imp, f.isTest()); why != "" {
				t.Errorf("%v: %s", set.Position(spec.Pos()), why)
			}
			if p, _ := policyOf(f.dir); !f.isTest() {
				for _, lib := range p.libs {
					if (imp == lib || strings.HasPrefix(imp, lib+"/")) && !slices.Contains(homes[lib], f.dir) {
						homes[lib] = append(homes[lib], f.dir)
					}
				}
			}
		}
	}
	for lib, dirs := range homes {
		if len(dirs) != 1 && !slices.Contains(severalHomes, lib) {
			t.Errorf("%s is at home in %q, want one package", lib, dirs)
		}
	}
}

// A policy that allows everything would pass as well.
func TestThePolicyForbids(t *testing.T) {
	for _, tt := range []struct {
		dir, imp string
		test     bool
		want     bool // allowed
	}{
		{"collect", "speedmatrix/render", false, false},
		{"collect", "speedmatrix/ingest", false, false},
		{"collect", "speedmatrix/ingest/runlog", false, true},
		{"collect/stream", "speedmatrix/collect", false, false},
		{"collect/simserver", "speedmatrix/collect/stream", false, false},
		{"render", "speedmatrix/collect", false, false},
		{"render", "speedmatrix/collect/simserver", true, false},
		{"collect", "speedmatrix/render", true, false},
		{"ingest", "speedmatrix/render/internal/format", false, false},
		{"ingest/runlog", "speedmatrix/ingest", false, false},
		{"ingest/runlog", "github.com/parquet-go/parquet-go/format", false, true},
		{"ingest", "github.com/parquet-go/parquet-go", false, false},
		{"ingest", "github.com/parquet-go/parquet-gone", false, false},
		{"collect", "github.com/google/go-cmp/cmp", false, false},
		{"collect", "github.com/google/go-cmp/cmp", true, true},
		{"ingest", "net/http", false, false},
		{"render/internal/format", "math/rand/v2", false, false},
		{"collect/prompt", "math/rand/v2", false, true},
		{"templates", "embed", false, true},
		{"templates", "strings", false, false},
		// A package without a row takes its nearest parent's.
		{"render/internal/new", "strings", false, true},
		{"render/internal/new", "speedmatrix/ingest", false, false},
		{"collect/new", "speedmatrix/ingest/runlog", false, true},
		// A tree with none has nothing.
		{"util", "strings", false, false},
		{"cmd/other", "strings", false, false},
	} {
		if why := violation(tt.dir, tt.imp, tt.test); (why == "") != tt.want {
			t.Errorf("violation(%s, %s, test %v) = %q, want allowed %v", tt.dir, tt.imp, tt.test, why, tt.want)
		}
	}
}

// Every row is about something that is there.
func TestThePolicyIsNotOutOfDate(t *testing.T) {
	_, files := sources(t)
	for _, p := range policies() {
		if !slices.ContainsFunc(files, func(f sourceFile) bool { return f.dir == p.dir || strings.HasPrefix(f.dir, p.dir+"/") }) {
			t.Errorf("%s has a policy and no Go file", p.dir)
		}
		for _, ours := range p.ours {
			if !slices.ContainsFunc(files, func(f sourceFile) bool { return f.dir == ours }) {
				t.Errorf("%s may import %s, which is not there", p.dir, ours)
			}
		}
	}
}

// Only this command prints and exits; what computes knows no clock.
func TestOnlyTheCommandPrintsAndExits(t *testing.T) {
	set, files := sources(t)
	speaks := []string{"os.Exit", "os.Stdout", "os.Stderr", "fmt.Print", "fmt.Printf", "fmt.Println", "log.Fatal", "log.Fatalf", "log.Print", "log.Printf", "log.Println"}
	ticks := []string{"time.Now", "time.Since", "time.Until", "time.After", "time.Sleep", "time.NewTimer", "time.NewTicker", "time.Local"}
	for i := range files {
		f := &files[i]
		if f.isTest() || f.dir == "cmd/speedmatrix" {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			name := ""
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					name = x.Name + "." + n.Sel.Name
				}
			case *ast.CallExpr:
				if x, ok := n.Fun.(*ast.Ident); ok && (x.Name == "println" || x.Name == "print") {
					t.Errorf("%v: %s is for debugging", set.Position(n.Pos()), x.Name)
				}
			}
			if slices.Contains(speaks, name) || computes(f.dir) && slices.Contains(ticks, name) {
				t.Errorf("%v: %s uses %s", set.Position(n.Pos()), f.dir, name)
			}
			return true
		})
	}
}

// What a package does and what it must not know stands in one place.
func TestEveryPackageSaysWhatItMustNot(t *testing.T) {
	_, files := sources(t)
	docs := map[string][]string{} // names of the files that have one, by package
	for i := range files {
		f := &files[i]
		if f.isTest() {
			continue
		}
		if _, ok := docs[f.dir]; !ok {
			docs[f.dir] = nil
		}
		if f.Doc == nil {
			continue
		}
		docs[f.dir] = append(docs[f.dir], f.name)
		text := strings.Join(strings.Fields(f.Doc.Text()), " ")
		want := "Package " + f.Name.Name + " "
		if f.Name.Name == "main" {
			want = "Command " + path.Base(f.dir) + " "
		}
		if !strings.HasPrefix(text, want) {
			t.Errorf("%s/%s: the doc comment begins with %.40q, want %q", f.dir, f.name, text, want)
		}
		if !regexp.MustCompile(`\bmust not\b`).MatchString(text) {
			t.Errorf("%s/%s: the doc comment does not say what the package must not do or know", f.dir, f.name)
		}
	}
	for dir, names := range docs {
		if len(names) != 1 {
			t.Errorf("%s: files with a doc comment %q, want one", dir, names)
		}
	}
}
