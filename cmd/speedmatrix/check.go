package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"speedmatrix/collect/host"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
	"speedmatrix/render/sitecheck"
)

const checkHelp = `Usage: speedmatrix check [DIR…]

Looks for what should not be published. DIR is a directory of runs, a run, or
a site; the default is results.

Of each run: every file is there, has its checksum and keeps to the format;
nothing else lies beside them; no text looks like a secret or a person's
directory; the page beside the data (README.md) is up to date where there is
one; and, as a warning, what was planned and not measured.
Of a site: every link and anchor leads somewhere, no id is there twice, every
page can be reached, nothing is loaded from elsewhere, no script runs but the
site's own, no page is too heavy.

  -h, --help          this text

Problems go to stdout, one a line, with the file in front; the exit status is
then 1. Warnings go to stderr and change no status.

Examples:
  speedmatrix check results
  speedmatrix check site
`

func runCheck(e *env, args []string) error {
	fs := newFlags(e, "check", checkHelp)
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	dirs := fs.Args()
	if len(dirs) == 0 {
		dirs = []string{"results"}
	}
	problems := 0
	for _, dir := range dirs {
		check := checkResults
		if _, err := os.Stat(filepath.Join(dir, render.SiteMarker)); err == nil {
			check = checkSite
		}
		n, err := check(e, dir)
		if err != nil {
			return err
		}
		problems += n
	}
	if problems > 0 {
		return fmt.Errorf("%s found", counted(problems, "problem"))
	}
	return nil
}

// checkSite checks a built site and says what it weighs.
func checkSite(e *env, dir string) (problems int, err error) {
	r, err := sitecheck.Check(os.DirFS(dir))
	if err != nil {
		return 0, err
	}
	for _, p := range r.Problems {
		fmt.Fprintln(e.stdout, filepath.Join(dir, p))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(e.stderr, "speedmatrix check: warning: %s\n", w)
	}
	for _, w := range r.Weights {
		fmt.Fprintf(e.stderr, "speedmatrix check: %-30s %4d, heaviest %4d of %4d KB, %3d of %3d gzipped: %s\n",
			w.Kind, w.Files, kb(w.FileRaw), kb(w.Raw), kb(w.FileZip), kb(w.Zipped), w.File)
	}
	fmt.Fprintf(e.stderr, "speedmatrix check: %s: %d pages, %d links within the site, %d files, %.1f MB\n", dir, r.Pages, r.Links, r.Files, float64(r.Bytes)/(1<<20))
	return len(r.Problems), nil
}

func kb(bytes int) int { return (bytes + 1023) / 1024 }

// checkResults checks all runs at or below a directory.
func checkResults(e *env, root string) (problems int, err error) {
	dirs, err := findRuns([]string{root}, "")
	if err != nil {
		return 0, err
	}
	report := func(path, problem string) {
		problems++
		fmt.Fprintf(e.stdout, "%s: %s\n", path, problem)
	}
	warn := func(path, text string) { fmt.Fprintf(e.stderr, "speedmatrix check: warning: %s: %s\n", path, text) }
	for _, dir := range dirs {
		if e.ctx.Err() != nil {
			return problems, errInterrupted
		}
		checkRun(dir, report, warn)
	}
	slugs, err := readSlugs([]string{root})
	if err != nil {
		return problems, err
	}
	if slugs != nil {
		now, err := render.Twins(e.ctx, nil, render.Options{Slugs: slugs}, nil)
		switch {
		case errors.Is(err, context.Canceled):
			return problems, errInterrupted
		case err != nil:
			report(filepath.Join(root, render.SlugsFile), err.Error())
		case !bytes.Equal(now, slugs):
			report(filepath.Join(root, render.SlugsFile), "not as speedmatrix writes it")
		}
	}
	fmt.Fprintf(e.stderr, "speedmatrix check: %s: %s checked\n", root, counted(len(dirs), "run"))
	return problems, nil
}

func checkRun(dir string, report, warn func(path, text string)) {
	in, err := render.Open(dir)
	if err != nil {
		report(dir, err.Error())
		return
	}
	m := in.Run.Manifest
	for _, s := range secrets(in) {
		report(dir, s)
	}
	for _, s := range strays(dir, m) {
		report(dir, s)
	}
	pending := 0
	for _, c := range m.Cells {
		if c.Outcome == runlog.OutcomePending {
			pending++
		}
	}
	if pending > 0 {
		warn(dir, fmt.Sprintf("%d of %d planned measurements were not made", pending, len(m.Cells)))
	} else if !m.Finished {
		warn(dir, "the run was interrupted")
	}
	if _, err := os.Stat(filepath.Join(dir, render.ReadmeFile)); errors.Is(err, fs.ErrNotExist) {
		return // nobody asked for a page there
	}
	files, err := render.TwinsOf(in)
	if err != nil {
		report(dir, err.Error())
		return
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, f.Data) {
			report(path, "not up to date: speedmatrix render --markdown-into writes it")
		}
	}
}

// strays lists what lies in a run directory and is not of the run.
func strays(dir string, m *runlog.Manifest) []string {
	known := map[string]bool{runlog.ManifestFile: true, runlog.NotesFile: true, runlog.TelemetryFile: true, render.ReadmeFile: true}
	if m.Warmup != nil {
		known[m.Warmup.File] = true
	}
	for _, c := range m.Cells {
		known[c.File] = true
	}
	var list []string
	fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		drawing, _ := filepath.Match("chart-*.svg", name)
		switch {
		case err != nil:
			list = append(list, err.Error())
		case !d.IsDir() && !known[name] && !drawing:
			list = append(list, fmt.Sprintf("%q is no file of the run", name))
		}
		return nil
	})
	return list
}

// secrets lists the texts of a run that the collector would not have written
// as they are: what looks like a key, a token or a person's directory.
func secrets(in render.Input) []string {
	var list []string
	found := func(where string) {
		if s := where + ": looks like a secret or a person's directory"; !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	m := *in.Run.Manifest
	if c := m.Engine.LaunchCommand; c != nil && !slices.Equal(host.RedactArgs(c.Args), c.Args) {
		found("launch command in " + runlog.ManifestFile)
	}
	if v := m.Engine.Environment; v != nil && !maps.Equal(host.RedactEnv(v.Variables), v.Variables) {
		found("environment in " + runlog.ManifestFile)
	}
	// These two have rules of their own; checksums are no words.
	m.Engine.LaunchCommand, m.Engine.Environment = nil, nil
	data, err := json.Marshal(m)
	var value any
	if err = errors.Join(err, json.Unmarshal(data, &value)); err != nil {
		return append(list, err.Error())
	}
	texts("", value, func(path, text string) {
		if !strings.HasSuffix(path, ".sha256") && !strings.HasSuffix(path, ".salt") && host.RedactText(text) != text {
			found(strings.TrimPrefix(path, ".") + " in " + runlog.ManifestFile)
		}
	})
	for i, line := range strings.Split(string(in.Notes), "\n") {
		if host.RedactText(line) != strings.ToValidUTF8(line, "\ufffd") {
			found(fmt.Sprintf("line %d of %s", i+1, runlog.NotesFile))
		}
	}
	for _, cells := range [][]ingest.Cell{in.Run.Prefill, in.Run.Decode} {
		for i := range cells {
			for _, r := range cells[i].Requests {
				if host.RedactText(r.Reason) != r.Reason {
					found("an error in " + cells[i].File)
				}
			}
		}
	}
	return list
}

// texts calls f with every string of a JSON value and the path to it.
func texts(path string, value any, f func(path, text string)) {
	switch v := value.(type) {
	case string:
		f(path, v)
	case []any:
		for i, x := range v {
			texts(fmt.Sprintf("%s[%d]", path, i), x, f)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			texts(path+"."+key, v[key], f)
		}
	}
}
