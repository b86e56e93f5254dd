package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

const renderHelp = `Usage: speedmatrix render [DIR…] [-o SITE]

Turns runs into a static site: the newest runs, lists, models, hardware,
histories, and for each run its page, its figures and its raw files.
DIR is a run or a directory that holds runs; the default is results.

  -o, --output SITE   directory to write (default site). It is replaced as a
                      whole, if it is empty or was written by this command
      --check         write nothing, compute everything, without the cache;
                      exit 1 with the names of the files that would change
      --markdown-into ROOT  write each run's page as ROOT/<run>/README.md, beside
                      its data; a site only if -o is given as well
      --base-url URL  where the site will be: for sitemap.xml and 404.html
      --raw-url URL   where DIR can be read: raw files stay out of the site
      --cache DIR     keeps what was computed (default .SITE.cache; "" none)

Any run that can't be read ends the command, and the site stays as it was.

Examples:
  speedmatrix render results -o site
  speedmatrix render results --markdown-into results --check
`

func runRender(e *env, args []string) error {
	fs := newFlags(e, "render", renderHelp)
	output := fs.StringP("output", "o", "site", "")
	check := fs.Bool("check", false, "")
	markdownInto := fs.String("markdown-into", "", "")
	baseURL := fs.String("base-url", "", "")
	rawURL := fs.String("raw-url", "", "")
	cache := fs.String("cache", "", "")
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
	for flag, address := range map[string]string{"--base-url": *baseURL, "--raw-url": *rawURL} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "") {
			return usageError{fmt.Sprintf("%s %q is not a web address", flag, address), flag + " https://example.org/speeds/"}
		}
	}
	if !fs.Changed("cache") {
		*cache = filepath.Join(filepath.Dir(filepath.Clean(*output)), "."+filepath.Base(filepath.Clean(*output))+".cache")
	}
	dirs, err := findRuns(roots, *output)
	if err != nil {
		return err
	}
	options := render.Options{Cache: *cache, BaseURL: *baseURL, RawURL: *rawURL}
	if options.Cache != "" {
		if options.Version = programVersion(); options.Version == "" {
			options.Cache = "" // nothing could be trusted
		}
	}
	if options.Slugs, err = readSlugs(roots); err != nil {
		return err
	}
	if options.Layer, err = chartLayer(); err != nil {
		return err
	}
	if options.Noise, err = readProfiles(roots); err != nil {
		return err
	}
	var changed []string
	if *markdownInto != "" {
		if changed, err = writeTwins(e, dirs, *markdownInto, options, *check); err != nil {
			return interruptedOr(err)
		}
	}
	site := *markdownInto == "" || fs.Changed("output")
	if site && *check {
		differs, err := render.Check(e.ctx, dirs, *output, options)
		if err != nil {
			return interruptedOr(err)
		}
		for _, name := range differs {
			changed = append(changed, filepath.Join(*output, filepath.FromSlash(name)))
		}
	}
	if *check {
		for _, path := range changed {
			fmt.Fprintln(e.stdout, path)
		}
		if len(changed) > 0 {
			return hintedError{fmt.Errorf("%s would change", counted(len(changed), "file")), "run the same command without --check, and commit what it writes"}
		}
		return nil
	}
	if !site {
		return nil
	}
	result, err := render.Build(e.ctx, dirs, *output, options)
	if err != nil {
		return interruptedOr(fmt.Errorf("%w; nothing was written", err))
	}
	fmt.Fprintf(e.stderr, "speedmatrix render: %s rendered, %d of them computed anew\n", counted(result.Runs, "run"), len(result.Computed))
	_, err = fmt.Fprintln(e.stdout, result.Index)
	return err
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// interruptedOr returns err, or that the command was interrupted.
func interruptedOr(err error) error {
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

// programVersion names this program exactly, by its own bytes: templates and
// code are in them. It is "" when they can't be read.
func programVersion() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// readSlugs reads the addresses that were given before, from the first of
// roots that has such a file.
func readSlugs(roots []string) ([]byte, error) {
	for _, root := range roots {
		data, err := os.ReadFile(filepath.Join(root, render.SlugsFile))
		if err == nil {
			return data, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read addresses: %w", err)
		}
	}
	return nil, nil
}

// readProfiles reads the noise profiles that lie beside the runs, where diff
// looks for them too.
func readProfiles(roots []string) ([]*compare.Profile, error) {
	var profiles []*compare.Profile
	for _, root := range roots {
		files, err := filepath.Glob(filepath.Join(root, noiseFolder, "*.json"))
		if err != nil {
			return nil, fmt.Errorf("read noise profiles: %w", err)
		}
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read noise profile: %w", err)
			}
			p, err := compare.DecodeProfile(b)
			if err != nil {
				return nil, hintedError{fmt.Errorf("%s: %w", path, err), "speedmatrix noise makes profiles"}
			}
			profiles = append(profiles, p)
		}
	}
	return profiles, nil
}

// writeTwins writes the page of each run beside its data below root, and the
// addresses of the site. It returns the paths of the files that changed, and
// prints them; with check it writes and prints nothing.
func writeTwins(e *env, dirs []string, root string, o render.Options, check bool) ([]string, error) {
	if check {
		o.Cache = "" // what an earlier build kept proves nothing
	}
	var changed []string
	write := func(path string, data []byte) error {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			return nil
		}
		changed = append(changed, path)
		if check {
			return nil
		}
		if err := os.WriteFile(path+".partial", data, 0o666); err != nil {
			return fmt.Errorf("write Markdown: %w", err)
		}
		if err := os.Rename(path+".partial", path); err != nil {
			return fmt.Errorf("write Markdown: %w", err)
		}
		_, err := fmt.Fprintln(e.stdout, path)
		return err
	}
	slugs, err := render.Twins(e.ctx, dirs, o, func(f render.Twin) error {
		dir := filepath.Join(root, f.Run)
		if _, err := os.Stat(filepath.Join(dir, runlog.ManifestFile)); err != nil {
			return hintedError{fmt.Errorf("write Markdown: %q is no run directory", dir), "the root is the directory that holds the runs, such as --markdown-into results"}
		}
		return write(filepath.Join(dir, f.Name), f.Data)
	})
	if err != nil {
		return nil, err
	}
	return changed, write(filepath.Join(root, render.SlugsFile), slugs)
}

// findRuns returns the run directories at or below roots, each once. Copies
// of runs inside the site that is about to be replaced are none; output is ""
// where there is no such site.
func findRuns(roots []string, output string) ([]string, error) {
	site := ""
	if output != "" {
		var err error
		if site, err = realPath(output); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
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
