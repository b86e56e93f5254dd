package runlog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFileBytes     = 1 << 30 // of a Parquet file; the largest cells have a few megabytes
	maxManifestBytes = 16 << 20
	maxRunDepth      = 6 // directories between the root of a search and a run
)

// ReadEvents reads the event file of key in the run directory dir. Where
// want has a checksum, the file must have it and the size and number of
// rows beside it. The file is checked from its frame to the rules of its
// rows (Events.Check) before anything is returned; what breaks the format
// is a *FormatError, what can't be read an error that wraps the file
// system's (fs.ErrNotExist).
func ReadEvents(dir string, key Key, want FileInfo) (*Events, error) {
	var r Reader
	ev, err := r.Events(dir, key, want)
	if err != nil {
		return nil, err
	}
	own := *ev // without the reader, which holds the file and more
	return &own, nil
}

// Events is ReadEvents; what it returns is valid until the next call.
func (r *Reader) Events(dir string, key Key, want FileInfo) (*Events, error) {
	if want.File != "" && want.File != key.File() {
		return nil, &FormatError{Path: pathIn(dir, ManifestFile), Row: -1,
			Msg: fmt.Sprintf("file: got %q, want %q", clip(want.File), key.File())}
	}
	data, err := readData(dir, key.File(), want, r.data)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	r.data = data
	ev, damage := r.decode(data, key)
	if damage == nil {
		damage = want.checkRows(ev.Len())
	}
	if damage != nil {
		return nil, fmt.Errorf("read events: %w", damage.in(pathIn(dir, key.File())))
	}
	return ev, nil
}

// ReadTelemetry reads the telemetry file in the run directory dir, as
// ReadEvents does. The samples are sorted by source, name, index and time.
func ReadTelemetry(dir string, want FileInfo) ([]Sample, error) {
	data, err := readData(dir, TelemetryFile, want, nil)
	if err != nil {
		return nil, fmt.Errorf("read telemetry: %w", err)
	}
	samples, damage := decodeSamples(data)
	if damage == nil {
		damage = want.checkRows(len(samples))
	}
	if damage != nil {
		return nil, fmt.Errorf("read telemetry: %w", damage.in(pathIn(dir, TelemetryFile)))
	}
	return samples, nil
}

// ReadManifest reads and checks run.json in the run directory dir. What
// breaks the format is a *FormatError that names the key. Keys that are not
// known are ignored: later versions of the tool may add some.
func ReadManifest(dir string) (*Manifest, error) {
	data, err := readFile(dir, ManifestFile, maxManifestBytes, nil)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	m, damage := decodeManifest(data)
	if damage != nil {
		return nil, fmt.Errorf("read manifest: %w", damage.in(pathIn(dir, ManifestFile)))
	}
	return m, nil
}

// FindRuns returns all run directories at or below root, at most six levels
// down, sorted. Directories whose name begins with a dot and symbolic links
// below root are passed over. A directory that can't be read is an error.
func FindRuns(root string) ([]string, error) {
	var runs []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == ManifestFile && entry.Type().IsRegular():
			runs = append(runs, filepath.Join(root, filepath.Dir(filepath.FromSlash(name))))
		case entry.IsDir() && name != "." && (entry.Name()[0] == '.' || strings.Count(name, "/") >= maxRunDepth):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find runs: %w", err)
	}
	slices.Sort(runs)
	return runs, nil
}

// checkRows holds a number of rows against the manifest's.
func (want FileInfo) checkRows(rows int) *damage {
	if want.SHA256 != "" && int64(rows) != want.Rows {
		return damagef("got %d rows, want %d as in %s", rows, want.Rows, ManifestFile)
	}
	return nil
}

// readData reads a file of a run and, where want has a checksum, holds it
// against that. It uses the memory of into where that is enough.
func readData(dir, file string, want FileInfo, into []byte) ([]byte, error) {
	data, err := readFile(dir, file, maxFileBytes, into)
	if err != nil || want.SHA256 == "" {
		return data, err
	}
	if int64(len(data)) != want.Bytes {
		return nil, damagef("got %d bytes, want %d as in %s", len(data), want.Bytes, ManifestFile).in(pathIn(dir, file))
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != want.SHA256 {
		return nil, damagef("got SHA-256 %s, want %s as in %s", got, clip(want.SHA256), ManifestFile).in(pathIn(dir, file))
	}
	return data, nil
}

// readFile reads a regular file inside dir; links that lead out of it, pipes
// and devices are refused. It uses the memory of into where that is enough.
func readFile(dir, file string, most int64, into []byte) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	whole := func(err error) error { // with the whole path, not only the part inside dir
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return &fs.PathError{Op: "open", Path: pathIn(dir, file), Err: err}
	}
	// Before opening: the open of a pipe waits for a writer.
	info, err := root.Stat(file)
	if err != nil {
		return nil, whole(err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, damagef("not a regular file").in(pathIn(dir, file))
	case info.Size() > most:
		return nil, damagef("got %d bytes, want %d at most", info.Size(), most).in(pathIn(dir, file))
	}
	f, err := root.Open(file)
	if err != nil {
		return nil, whole(err)
	}
	defer f.Close()
	data := sized(into, int(info.Size()))
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("%s: %w", pathIn(dir, file), err)
	}
	return data, nil
}

// pathIn returns the path of a run's file as a user would type it.
func pathIn(dir, file string) string { return filepath.Join(dir, filepath.FromSlash(file)) }
