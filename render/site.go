package render

import (
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

	// markerFile is in every site that this package wrote, so that it never
	// replaces a directory that it did not make.
	markerFile = ".speedmatrix-site"
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
	info, err := root.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", filepath.Join(dir, file))
	}
	return root.Open(file)
}

// Site writes a static site of runs to the directory out and returns the
// path of its first page. The site is built beside out and then takes its
// place: out may be missing, empty or an earlier site, and is left as it was
// when anything goes wrong. The order of inputs does not matter; two of the
// same name are an error.
func Site(inputs []Input, out string) (index string, err error) {
	out = filepath.Clean(out)
	if err := mayReplace(out); err != nil {
		return "", err
	}
	parent := filepath.Dir(out)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	build, err := os.MkdirTemp(parent, ".speedmatrix-site-*")
	if err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	defer os.RemoveAll(build) // gone already when all went well
	if err := os.Chmod(build, 0o755); err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	if err := writeSite(inputs, build); err != nil {
		return "", err
	}
	if err := replace(out, build); err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	return filepath.Join(out, "index.html"), nil
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
	ours := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == markerFile })
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
	return os.RemoveAll(old)
}

// A folder writes files below one directory. It keeps the first error and
// does nothing after it.
type folder struct {
	dir string
	err error
}

// write writes one file, unless making its data failed with err.
func (f *folder) write(name string, data []byte, err error) {
	f.do(name, err, func(path string) error { return os.WriteFile(path, data, 0o644) })
}

func (f *folder) do(name string, err error, write func(path string) error) {
	if f.err != nil {
		return
	}
	if f.err = err; f.err != nil {
		return
	}
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.err = fmt.Errorf("write site: %w", err)
		return
	}
	if err := write(path); err != nil {
		f.err = fmt.Errorf("write site: %w", err)
	}
}

func writeSite(inputs []Input, dir string) error {
	var runs []*ingest.Run
	dirs := map[string]string{}
	for _, in := range inputs {
		if earlier, ok := dirs[in.Run.ID]; ok {
			return fmt.Errorf("write site: two runs are named %q: %q and %q", in.Run.ID, earlier, in.Dir)
		}
		dirs[in.Run.ID] = in.Dir
		runs = append(runs, in.Run)
	}
	style, icon := assets()
	f := &folder{dir: dir}
	f.write(markerFile, []byte(markerText), nil)
	f.write(".nojekyll", nil, nil)
	f.write(style.name, style.data, nil)
	f.write(icon.name, icon.data, nil)

	v := newIndexView(runs)
	v.Stylesheet, v.Icon = style.name, icon.name
	b, err := html("index.html.tmpl", v)
	f.write("index.html", b, err)
	b, err = markdown("index.md.tmpl", v)
	f.write("index.md", b, err)
	for _, in := range inputs {
		writeRun(f, in, style.name, icon.name)
	}
	return f.err
}

func writeRun(f *folder, in Input, style, icon string) {
	base := runsFolder + "/" + in.Run.ID + "/"
	v, err := newRunView(in, rawFolder+"/", true)
	if err != nil {
		f.do(base, err, nil)
		return
	}
	v.Root, v.Stylesheet, v.Icon = "../../", style, icon
	b, err := html("run.html.tmpl", v)
	f.write(base+"index.html", b, err)
	b, err = markdown("run.md.tmpl", v)
	f.write(base+"index.md", b, err)
	b, err = indexJSON(in.Run)
	f.write(base+"index.json", b, err)
	b, err = cellsCSV(in.Run)
	f.write(base+"cells.csv", b, err)

	names := []string{runlog.ManifestFile}
	for _, l := range logFiles(in.Run.Manifest) {
		names = append(names, l.File)
	}
	if len(in.Notes) > 0 {
		names = append(names, runlog.NotesFile)
	}
	for _, name := range names {
		f.do(base+rawFolder+"/"+name, notLocal(name), func(path string) error { return copyFile(path, in.Dir, name) })
	}
}

// notLocal refuses file names of a manifest that lead out of the run.
func notLocal(name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("write site: file %q is not inside its run", name)
	}
	return nil
}

func copyFile(path, dir, name string) error {
	from, err := openIn(dir, filepath.FromSlash(name))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
