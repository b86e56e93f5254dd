package render

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

const (
	runsFolder = "runs" // of a site
	rawFolder  = "raw"  // of a run in a site: the files of its run directory

	// ReadmeFile is the Markdown page of a run in its own directory.
	ReadmeFile = "README.md"

	// SiteMarker is in every site that this package wrote, so that it never
	// replaces a directory that it did not make.
	SiteMarker = ".speedmatrix-site"
	markerText = "Made by speedmatrix render, which replaces this directory as a whole.\n"

	maxNotesBytes = 1 << 20
)

// An Input is a run and what lies beside its figures.
type Input struct {
	Run   *ingest.Run
	Dir   string // the run directory
	Notes []byte // of notes.md; empty when there is none
}

// Open loads a run directory. Every file of the run is read and checked, so
// that a run is never shown without a part of it.
func Open(dir string) (Input, error) {
	run, err := ingest.Load(dir)
	if err != nil {
		return Input{}, err
	}
	notes, err := readNotes(dir)
	if err != nil {
		return Input{}, err
	}
	return Input{Run: run, Dir: dir, Notes: notes}, nil
}

func readNotes(dir string) ([]byte, error) {
	f, err := openIn(dir, runlog.NotesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	defer f.Close()
	notes, err := io.ReadAll(io.LimitReader(f, maxNotesBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	if len(notes) > maxNotesBytes {
		return nil, fmt.Errorf("read notes: %s: more than %d bytes", filepath.Join(dir, runlog.NotesFile), maxNotesBytes)
	}
	return notes, nil
}

// openIn opens a regular file below dir; links that lead out of it are refused.
func openIn(dir, file string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return openRegular(root, file)
}

func openRegular(root *os.Root, file string) (*os.File, error) {
	info, err := root.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", filepath.Join(root.Name(), file))
	}
	return root.Open(file)
}

// Site writes a static site of runs to the directory out and returns the
// path of its first page, as Build does for run directories. Everything is
// computed anew.
func Site(inputs []Input, out string) (index string, err error) {
	var sources []source
	for _, in := range inputs {
		sources = append(sources, source{id: in.Run.ID, dir: in.Dir, open: func() (Input, error) { return in, nil }})
	}
	result, err := build(context.Background(), sources, out, Options{})
	return result.Index, err
}

// mayReplace refuses a directory that holds anything but a site of ours.
func mayReplace(out string) error {
	info, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("write site: %q is not a directory", out)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	ours := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == SiteMarker })
	if len(entries) > 0 && !ours {
		return fmt.Errorf("write site: %q holds files that are not a site made by speedmatrix", out)
	}
	return nil
}

// replace puts the directory build in the place of out, and puts an earlier
// out back when that fails. A link to a directory stays a link.
func replace(out, build string) error {
	if target, err := filepath.EvalSymlinks(out); err == nil {
		out = target
	}
	old := build + ".old"
	switch err := os.Rename(out, old); {
	case errors.Is(err, fs.ErrNotExist):
		return os.Rename(build, out)
	case err != nil:
		return err
	}
	if err := os.Rename(build, out); err != nil {
		return errors.Join(err, os.Rename(old, out))
	}
	return removeSite(old)
}

// removeSite takes a site away, its runs on all processors: most of its files
// are theirs.
func removeSite(dir string) error {
	runs := filepath.Join(dir, runsFolder)
	if i, err := os.Lstat(runs); err != nil || !i.IsDir() {
		return os.RemoveAll(dir) // a link goes, and what it leads to stays
	}
	entries, err := os.ReadDir(runs)
	if err != nil {
		return err
	}
	err = inParallel(context.Background(), entries, func(e fs.DirEntry) error {
		return os.RemoveAll(filepath.Join(runs, e.Name()))
	})
	return errors.Join(err, os.RemoveAll(dir))
}

// notLocal refuses file names of a manifest that lead out of the run.
func notLocal(name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("write site: file %q is not inside its run", name)
	}
	return nil
}

func copyFile(path string, root *os.Root, name string) error {
	from, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
