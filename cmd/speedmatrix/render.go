package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

const renderHelp = `Usage: speedmatrix render [DIR…] [-o SITE]

Turns runs into a static site: a list of runs, and for each run its page as
HTML and Markdown, its figures as index.json and cells.csv, and its raw files.
DIR is a run or a directory that holds runs; the default is results.

  -o, --output SITE   directory to write (default site). It is replaced as a
                      whole, if it is empty or was written by this command
      --markdown-into ROOT  write each run's page as ROOT/<run>/README.md, beside
                      its data; a site only if -o is given as well
  -h, --help          this text

Any run that can't be read ends the command, and the site stays as it was.
The path of the site's first page goes to stdout.

Examples:
  speedmatrix render
  speedmatrix render results -o site
  speedmatrix render results --markdown-into results
  speedmatrix render results/gemma--rtx-pro-6000--vllm-73a5831127a9 -o /tmp/page
`

func runRender(e *env, args []string) error {
	fs := newFlags(e, "render", renderHelp)
	output := fs.StringP("output", "o", "site", "")
	markdownInto := fs.String("markdown-into", "", "")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	roots := fs.Args()
	if len(roots) == 0 {
		roots = []string{"results"}
	}
	if *output == "" {
		return usageError{"--output is empty", "-o site writes to the directory site"}
	}
	dirs, err := findRuns(roots, *output)
	if err != nil {
		return err
	}
	var inputs []render.Input
	for _, dir := range dirs {
		if err := e.ctx.Err(); err != nil {
			return errInterrupted
		}
		in, err := render.Open(dir)
		if err != nil {
			return fmt.Errorf("%w; nothing was written", err)
		}
		inputs = append(inputs, in)
	}
	if *markdownInto != "" {
		if err := writeMarkdown(e, inputs, *markdownInto); err != nil {
			return err
		}
		if !fs.Changed("output") {
			return nil
		}
	}
	index, err := render.Site(inputs, *output)
	if err != nil {
		return err
	}
	noun := "runs"
	if len(inputs) == 1 {
		noun = "run"
	}
	fmt.Fprintf(e.stderr, "speedmatrix render: %d %s rendered\n", len(inputs), noun)
	_, err = fmt.Fprintln(e.stdout, index)
	return err
}

// writeMarkdown writes the page of each run beside its data below root, and
// prints the paths of the files that changed.
func writeMarkdown(e *env, inputs []render.Input, root string) error {
	for _, in := range inputs {
		dir := filepath.Join(root, in.Run.ID)
		if _, err := os.Stat(filepath.Join(dir, runlog.ManifestFile)); err != nil {
			return hintedError{fmt.Errorf("write Markdown: %q is no run directory", dir), "the root is the directory that holds the runs, such as --markdown-into results"}
		}
		var page bytes.Buffer
		if err := render.Markdown(&page, in); err != nil {
			return err
		}
		path := filepath.Join(dir, "README.md")
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, page.Bytes()) {
			continue
		}
		if err := os.WriteFile(path+".partial", page.Bytes(), 0o666); err != nil {
			return fmt.Errorf("write Markdown: %w", err)
		}
		if err := os.Rename(path+".partial", path); err != nil {
			return fmt.Errorf("write Markdown: %w", err)
		}
		fmt.Fprintln(e.stdout, path)
	}
	return nil
}

// findRuns returns the run directories at or below roots, each once. Copies
// of runs inside the site that is about to be replaced are none.
func findRuns(roots []string, output string) ([]string, error) {
	site, err := realPath(output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []string
	seen := map[string]bool{}
	for _, root := range roots {
		found, err := runlog.FindRuns(root)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, hintedError{fmt.Errorf("find runs: %q does not exist", root), "speedmatrix collect measures a server into results/, speedmatrix demo needs none"}
		}
		if err != nil {
			return nil, err
		}
		for _, dir := range found {
			real, err := realPath(dir)
			if err != nil {
				return nil, err
			}
			if !seen[real] && !inside(real, site) {
				dirs = append(dirs, dir)
			}
			seen[real] = true
		}
	}
	if len(dirs) == 0 {
		quoted := make([]string, len(roots))
		for i, r := range roots {
			quoted[i] = fmt.Sprintf("%q", r)
		}
		return nil, hintedError{
			fmt.Errorf("find runs: no run in %s", strings.Join(quoted, ", ")),
			"a run is a directory with a run.json; speedmatrix collect makes one, speedmatrix demo needs no server",
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// realPath returns the absolute path of a file without links.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// inside reports whether dir is site or below it; site is "" when there is none.
func inside(dir, site string) bool {
	return site != "" && (dir == site || strings.HasPrefix(dir, site+string(os.PathSeparator)))
}
