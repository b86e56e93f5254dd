package render

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// runDir makes what looks like a run directory to those who do not read it.
func runDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"run.json", "cells/a.parquet", "README.md"} {
		put(t, filepath.Join(dir, filepath.FromSlash(name)), name)
	}
	return dir
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A run's mark changes with whatever happens to one of its files, and is not
// trusted right after that.
func TestMark(t *testing.T) {
	dir := runDir(t)
	later := time.Now().Add(time.Hour)
	was, err := mark(dir, later)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := identityOf(info(t, filepath.Join(dir, "run.json"))); !ok {
		if was != "" {
			t.Errorf("the system tells nothing of files, and the mark is %q", was)
		}
		return
	}
	if was == "" {
		t.Fatal("no mark of files that nothing happened to for an hour")
	}
	file := filepath.Join(dir, "cells", "a.parquet")
	then := info(t, file).ModTime()
	if m, err := mark(dir, then.Add(time.Second)); err != nil || m != "" {
		t.Errorf("a second after a file was written: got mark %q (%v), want none", m, err)
	}
	for _, c := range []struct {
		rule   string
		change func() error
		same   bool
	}{
		{"nothing", func() error { return nil }, true},
		{"what is made of the run", func() error { return os.WriteFile(filepath.Join(dir, "README.md"), nil, 0o644) }, true},
		{"other content of the same size, with the time set back", func() error {
			if err := os.WriteFile(file, []byte("cells/b.parquet"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(file, then, then)
		}, false},
		{"another file with all that can be set alike", func() error {
			other := file + ".other"
			if err := os.WriteFile(other, []byte("cells/b.parquet"), 0o644); err != nil {
				return err
			}
			if err := os.Chtimes(other, then, then); err != nil {
				return err
			}
			return os.Rename(other, file)
		}, false},
		{"a file more", func() error { return os.WriteFile(filepath.Join(dir, "telemetry.parquet"), nil, 0o644) }, false},
		{"notes", func() error { return os.WriteFile(filepath.Join(dir, "notes.md"), nil, 0o644) }, false},
		{"a file less", func() error { return os.Remove(file) }, false},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		now, err := mark(dir, later)
		if err != nil {
			t.Fatal(err)
		}
		if (now == was) != c.same {
			t.Errorf("%s: the mark is the same: %t, want %t", c.rule, now == was, c.same)
		}
		was = now
	}
}

func info(t *testing.T, file string) os.FileInfo {
	t.Helper()
	i, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// Where a run's mark is as it was, nothing of the run is read: what is in the
// record counts, though what lies there is no run at all.
func TestRunWithTheSameMarkIsNotRead(t *testing.T) {
	dir, kept := runDir(t), t.TempDir()
	s := source{id: "r", dir: dir, open: func() (Input, error) { return Input{}, errors.New("read") }}
	if _, ok := identityOf(info(t, filepath.Join(dir, "run.json"))); !ok {
		c, err := openCache(Options{Cache: kept, Version: "v"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.summary(s); err == nil {
			t.Error("the system tells nothing of files, and the run was not read")
		}
		return
	}
	later := time.Now().Add(time.Hour)
	m, err := mark(dir, later)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *cache {
		c, err := openCache(Options{Cache: kept, Version: "v"}, "")
		if err != nil {
			t.Fatal(err)
		}
		c.now = later
		c.earlier.Runs = map[string]readRun{"r": {Mark: m, Name: "known.zip"}}
		c.earlier.Parts = map[string]part{"runs/r/": {Key: "k", Note: []byte(`{"ID": "r", "Model": "from the record"}`)}}
		return c
	}
	if got, computed, err := open().summary(s); err != nil || computed || got.Model != "from the record" {
		t.Errorf("got %q, computed %t, error %v, want what the record has", got.Model, computed, err)
	}
	put(t, filepath.Join(dir, "cells", "a.parquet"), "cells/b.parquet")
	if got, _, err := open().summary(s); err == nil {
		t.Errorf("a file was written and the record still counts: got %q", got.Model)
	}
}

// Links to files of the earlier site are never written into.
func TestWritingNeverChangesTheEarlierSite(t *testing.T) {
	old, dir := t.TempDir(), t.TempDir()
	put(t, filepath.Join(old, "a"), "old")
	f := newFolder(dir, old, nil)
	for _, content := range []string{"old", "new", "old"} {
		if err := f.write("a", []byte(content)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ file, want string }{{filepath.Join(dir, "a"), content}, {filepath.Join(old, "a"), "old"}} {
			if b, err := os.ReadFile(c.file); err != nil || string(b) != c.want {
				t.Errorf("after %q was written %s holds %q (%v), want %q", content, c.file, b, err, c.want)
			}
		}
	}
}

// Replacing a site never reaches through a link in it.
func TestReplaceKeepsWhatALinkLeadsTo(t *testing.T) {
	root := t.TempDir()
	kept := filepath.Join(root, "results", "run1", "run.json")
	for _, dir := range []string{filepath.Dir(kept), filepath.Join(root, "site"), filepath.Join(root, "new")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(kept, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "results"), filepath.Join(root, "site", "runs")); err != nil {
		t.Fatal(err)
	}
	if err := replace(filepath.Join(root, "site"), filepath.Join(root, "new")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what a link in the old site led to: %v, want it untouched", err)
	}
	if _, err := os.Lstat(filepath.Join(root, "site", "runs")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old site's link: %v, want it gone", err)
	}
}
