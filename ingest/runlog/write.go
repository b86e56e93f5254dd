package runlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// partial is the suffix of a file that is being written.
const partial = ".partial"

// cellsDir is the directory of the event files in a run directory.
const cellsDir = "cells"

// Create makes the directory root/name with all that a run needs, and root
// where it is missing, and returns its path. A name with a path separator
// in it is refused. If there is anything of that name already, the error
// wraps fs.ErrExist and nothing is changed.
func Create(root, name string) (dir string, err error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\:`) {
		return "", fmt.Errorf("create run: %q is not a name", name)
	}
	if err := os.MkdirAll(root, 0o777); err != nil {
		return "", fmt.Errorf("create run: %w", err)
	}
	dir = filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", fmt.Errorf("create run: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, cellsDir), 0o777); err != nil {
		return "", fmt.Errorf("create run: %w", err)
	}
	return dir, nil
}

// Sweep removes files that an interrupted writer left in a run directory.
// They have never been part of the run.
func Sweep(dir string) error {
	for _, sub := range []string{dir, filepath.Join(dir, cellsDir)} {
		entries, err := os.ReadDir(sub)
		if err != nil {
			return fmt.Errorf("sweep run: %w", err)
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !strings.HasSuffix(entry.Name(), partial) {
				continue
			}
			if err := os.Remove(filepath.Join(sub, entry.Name())); err != nil {
				return fmt.Errorf("sweep run: %w", err)
			}
		}
	}
	return nil
}

// WriteEvents writes the event file of ev.Key into the run directory dir
// and returns what the manifest must say of it. A file that is there
// already is replaced as a whole. Nothing is written when ev breaks a rule
// (a *FormatError; see Events.Check).
func WriteEvents(dir string, ev *Events) (FileInfo, error) {
	file := ev.Key.File()
	if err := ev.Check(); err != nil {
		return FileInfo{}, fmt.Errorf("write events: %w", err)
	}
	var data bytes.Buffer
	if err := encodeEvents(&data, ev); err != nil {
		return FileInfo{}, fmt.Errorf("write %s: %w", file, err)
	}
	// What was measured can't be measured again: read it back before it
	// counts as written.
	back, damage := decodeEvents(data.Bytes(), ev.Key)
	if damage != nil {
		return FileInfo{}, fmt.Errorf("write events: %w", damage.in(file))
	}
	if !ev.equal(back) {
		return FileInfo{}, fmt.Errorf("write %s: it does not read back as it was written", file)
	}
	return writeData(dir, file, int64(ev.Len()), data.Bytes())
}

// WriteTelemetry writes the telemetry file into the run directory dir and
// returns what the manifest must say of it. The samples may come in any
// order; in the file they are sorted by source, name, index and time.
// Nothing is written when one breaks a rule (a *FormatError).
func WriteTelemetry(dir string, samples []Sample) (Telemetry, error) {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, compareSamples)
	if err := checkSamples(samples); err != nil {
		return Telemetry{}, fmt.Errorf("write telemetry: %w", err.in(TelemetryFile))
	}
	var data bytes.Buffer
	if err := encodeSamples(&data, samples); err != nil {
		return Telemetry{}, fmt.Errorf("write %s: %w", TelemetryFile, err)
	}
	back, damage := decodeSamples(data.Bytes())
	if damage != nil {
		return Telemetry{}, fmt.Errorf("write telemetry: %w", damage.in(TelemetryFile))
	}
	if !slices.Equal(samples, back) {
		return Telemetry{}, fmt.Errorf("write %s: it does not read back as it was written", TelemetryFile)
	}
	info, err := writeData(dir, TelemetryFile, int64(len(samples)), data.Bytes())
	return Telemetry{info}, err
}

// WriteManifest writes run.json into the run directory dir, replacing the
// one that is there as a whole. StartedAt is written in UTC. Text that is
// not UTF-8 gets U+FFFD for each bad byte. Nothing is written when m breaks
// a rule (a *FormatError; see Manifest.Check).
func WriteManifest(dir string, m *Manifest) error {
	data, err := encodeManifest(m)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	_, err = writeData(dir, ManifestFile, 0, data)
	return err
}

// equal reports whether two sets of events are the same, row by row.
func (e *Events) equal(o *Events) bool {
	return e.Key == o.Key && slices.Equal(e.Stream, o.Stream) && slices.Equal(e.Request, o.Request) &&
		slices.Equal(e.Seq, o.Seq) && slices.Equal(e.Kind, o.Kind) && slices.Equal(e.TUs, o.TUs) &&
		slices.Equal(e.SameRead, o.SameRead) && slices.Equal(e.Tokens, o.Tokens) &&
		slices.Equal(e.Channel, o.Channel) && slices.Equal(e.HasText, o.HasText) &&
		slices.Equal(e.TextEnd, o.TextEnd) && bytes.Equal(e.Text, o.Text) &&
		slices.Equal(e.FinishReason, o.FinishReason) && slices.Equal(e.PromptTokens, o.PromptTokens) &&
		slices.Equal(e.CachedTokens, o.CachedTokens) && slices.Equal(e.CompletionTokens, o.CompletionTokens) &&
		slices.Equal(e.Status, o.Status) && slices.Equal(e.Error, o.Error)
}

// writeData writes a file of a run and describes it.
func writeData(dir, file string, rows int64, data []byte) (FileInfo, error) {
	path := filepath.Join(dir, filepath.FromSlash(file))
	err := writeFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return FileInfo{}, fmt.Errorf("write %s: %w", file, err)
	}
	sum := sha256.Sum256(data)
	return FileInfo{File: file, Rows: rows, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// writeFile makes the file at path appear with all that write writes, or
// not at all: whatever fails or dies on the way, a file that was there
// before stays as it was.
func writeFile(path string, write func(io.Writer) error) (err error) {
	temp := path + partial
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()       // a second close does nothing
			os.Remove(temp) // if this fails too, Sweep does it
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir survive a power cut. Windows has no such
// call, and some network file systems refuse it.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
