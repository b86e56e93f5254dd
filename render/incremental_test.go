package render_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// After every kind of change a build that takes over what it can gives the
// bytes of one that computes all, takes over what has not changed, and
// computes no more than it must.
func TestTakingOverChangesNothing(t *testing.T) {
	work := t.TempDir()
	root, out := filepath.Join(work, "results"), filepath.Join(work, "site")
	var dirs []string
	for i := range 13 { // every tenth run is of one series
		dirs = append(dirs, launchAt(i).write(t, root))
	}
	o := render.Options{Cache: filepath.Join(work, "cache"), Version: "a", BaseURL: "https://example.org/"}
	dirs, late := dirs[:12], dirs[12]
	page := filepath.Join(out, "runs", "run-0003", "index.html")
	buildSite(t, dirs, out, o)
	for _, c := range []struct {
		rule     string
		change   func()
		computed []string // "?" is any run
		fresh    []string // beginnings of names of files that must not be the old ones
		kept     []string // and of those that must
	}{
		{"nothing", func() {}, nil, nil, []string{""}},
		{"the other order", func() { slices.Reverse(dirs) }, nil, nil, []string{""}},
		{"a run more", func() { dirs = append(dirs, late) }, []string{"run-0012"},
			[]string{"runs/run-0012/", "runs/run-0002/index.html", "index.html", "data/runs.json"}, []string{"runs/run-0003/", "runs/run-0004/", "style.", "method/"}},
		{"a run less", func() { dirs = slices.DeleteFunc(dirs, func(d string) bool { return d == late }) }, nil,
			[]string{"runs/run-0002/index.html"}, []string{"runs/run-0003/", "runs/run-0001/"}},
		{"a run of other speed", func() {
			l := launchAt(5)
			l.faster = 1.5
			must(t, os.RemoveAll(filepath.Join(root, l.id())))
			l.write(t, root)
		}, []string{"run-0005"}, []string{"runs/run-0005/index.html", "index.html"}, []string{"runs/run-0003/", "runs/run-0001/"}},
		{"a run of another series", func() {
			l := launchAt(0)
			l.model = "some/other-model"
			must(t, os.RemoveAll(filepath.Join(root, l.id())))
			l.write(t, root)
		}, []string{"run-0000"}, []string{"runs/run-0010/index.html"}, []string{"runs/run-0003/"}},
		{"notes", func() { writeFile(t, filepath.Join(root, "run-0008", runlog.NotesFile), "# New\n") }, []string{"run-0008"},
			[]string{"runs/run-0008/index.html"}, []string{"runs/run-0003/", "index.html"}},
		{"a page of the site was changed by hand", func() { writeFile(t, page, read(t, page)+" ") }, nil, []string{"runs/run-0003/index.html"}, []string{"runs/run-0004/"}},
		{"a page of the site was taken away", func() { must(t, os.Remove(page)) }, nil, []string{"runs/run-0003/index.html"}, []string{"runs/run-0004/"}},
		{"a raw file of the site was damaged", func() {
			damage(t, filepath.Join(out, "runs", "run-0004", "raw", "cells", "decode-2048-c1.parquet"))
		}, nil, []string{"runs/run-0004/raw/cells/decode-2048-c1.parquet"}, []string{"runs/run-0003/"}},
		{"a page of a comparison was changed", func() {
			pages, err := filepath.Glob(filepath.Join(out, "diff", "*", "*", "*", "*", "index.html"))
			if err != nil || len(pages) == 0 {
				t.Fatalf("no comparisons (%v)", err)
			}
			damage(t, pages[0])
		}, nil, nil, []string{"runs/"}},
		{"the style sheet of the site was changed", func() {
			sheets, err := filepath.Glob(filepath.Join(out, "style.*.css"))
			if err != nil || len(sheets) != 1 {
				t.Fatalf("style sheets %q (%v)", sheets, err)
			}
			damage(t, sheets[0])
		}, nil, []string{"style."}, []string{"runs/run-"}},
		{"a stranger's file in the site", func() { writeFile(t, filepath.Join(out, "runs", "run-0003", "x"), "x") }, nil, nil, []string{"runs/"}},
		{"a damaged record", func() { damage(t, filepath.Join(o.Cache, "site.record")) }, nil, []string{"runs/run-0003/raw"}, []string{"index.html"}},
		{"a damaged archive", func() {
			archives, err := filepath.Glob(filepath.Join(o.Cache, "*.zip"))
			must(t, err)
			damage(t, archives[0])
		}, nil, nil, []string{""}},
		{"the site is gone", func() { must(t, os.RemoveAll(out)) }, []string{"?"}, // whose archive is damaged
			[]string{""}, nil},
		{"a redirect in a run's folder", func() {
			o.Slugs = []byte(`{"format": "speedmatrix-slugs/1", "redirects": {"runs/run-0003/old/": "steps/"}}`)
		}, nil, nil, []string{"runs/run-0003/index.html"}},
		{"and none", func() { o.Slugs = nil }, nil, nil, []string{"runs/run-0003/index.html"}},
		{"another address", func() { o.BaseURL = "https://example.org/there/" }, nil, []string{"sitemap.xml", "404.html"}, []string{"runs/run-0003/"}},
		{"raw files elsewhere", func() { o.RawURL = "https://example.org/raw/" }, all(dirs), []string{"runs/run-0003/index.html"}, []string{"method/"}},
		{"another program", func() { o.Version = "b" }, all(dirs), nil, []string{"method/"}},
		{"a cache of another program, in which nothing is known", func() { must(t, os.RemoveAll(o.Cache)) }, all(dirs), nil, []string{"runs/run-0003/index.html"}},
	} {
		before := inodes(t, out)
		c.change()
		got := buildSite(t, dirs, out, o).Computed
		if slices.Sort(c.computed); len(got) != len(c.computed) || !slices.Equal(got, c.computed) && !slices.Equal(c.computed, []string{"?"}) {
			t.Errorf("%s: %q were computed, want %q", c.rule, got, c.computed)
		}
		after := inodes(t, out)
		for name, i := range after {
			was, there := before[name]
			old := there && os.SameFile(was, i) && was.ModTime().Equal(i.ModTime()) // the number of a file that is gone may be given again
			begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
			if old && slices.ContainsFunc(c.fresh, begins) {
				t.Errorf("%s: %s is still the old file", c.rule, name)
			}
			if !old && slices.ContainsFunc(c.kept, begins) {
				t.Errorf("%s: %s was written again", c.rule, name)
			}
		}
		cold := filepath.Join(work, "cold")
		plain := o
		plain.Cache = ""
		buildSite(t, dirs, cold, plain)
		if diff := cmp.Diff(sums(t, cold), sums(t, out)); diff != "" {
			t.Errorf("%s: another site than one that is computed in full:\n%s", c.rule, diff)
		}
	}
	if got := names(t, work); !slices.Equal(got, []string{"cache", "cold", "equal", "results", "site"}) {
		t.Errorf("left behind: %q", got)
	}
}

func all(dirs []string) (ids []string) {
	for _, d := range dirs {
		ids = append(ids, filepath.Base(d))
	}
	return ids
}

// inodes returns what tells the files below dir from others.
func inodes(t *testing.T, dir string) map[string]os.FileInfo {
	t.Helper()
	files := map[string]os.FileInfo{}
	for name := range maps.Keys(tree(t, dir)) {
		i, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		must(t, err)
		files[name] = i
	}
	return files
}

// A build that fails late, when much is linked already, leaves the site as it
// was, and the next one gives what a full one gives.
func TestFailureWhileTakingOver(t *testing.T) {
	work := t.TempDir()
	root, out := filepath.Join(work, "results"), filepath.Join(work, "site")
	dirs := []string{launchAt(0).write(t, root), launchAt(10).write(t, root)}
	o := render.Options{Cache: filepath.Join(work, "cache"), Version: "a"}
	buildSite(t, dirs, out, o)
	before, was := sums(t, out), inodes(t, out)

	more := append(slices.Clone(dirs), launchAt(20).write(t, root))
	bad := o
	bad.Slugs = []byte(`{"format": "speedmatrix-slugs/1", "redirects": {"a/": "nowhere/"}}`)
	damage(t, filepath.Join(launchAt(30).write(t, root), "cells", "decode-2048-c1.parquet"))
	for _, c := range []struct {
		rule string
		dirs []string
		o    render.Options
		want string
	}{
		{"a redirect to nowhere, which is found when all runs are there", more, bad, "nowhere/"},
		{"a damaged run", append(slices.Clone(more), filepath.Join(root, launchAt(30).id())), o, "decode-2048-c1.parquet"},
	} {
		if _, err := render.Build(t.Context(), c.dirs, out, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.rule, err, c.want)
		}
		if diff := cmp.Diff(before, sums(t, out)); diff != "" {
			t.Errorf("%s changed the site:\n%s", c.rule, diff)
		}
		for name, i := range inodes(t, out) {
			if !os.SameFile(was[name], i) {
				t.Errorf("%s: %s is another file", c.rule, name)
			}
		}
	}
	buildSite(t, more, out, o)
	cold := filepath.Join(work, "cold")
	buildSite(t, more, cold, render.Options{})
	if diff := cmp.Diff(sums(t, cold), sums(t, out)); diff != "" {
		t.Errorf("after failures another site than one that is computed in full:\n%s", diff)
	}
	if got := names(t, work); !slices.Equal(got, []string{"cache", "cold", "equal", "results", "site"}) {
		t.Errorf("left behind: %q", got)
	}
}
