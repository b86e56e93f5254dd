package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
)

// Options say how a site is built. The zero value builds it without a cache,
// for any address.
type Options struct {
	// Cache is a directory that keeps what was computed of each run; "" is
	// none. It must be for one site only: what that site does not use any
	// more is taken out of it. With and without it the site is the same.
	Cache string

	// Version names the program that builds the site, so exactly that two
	// programs of one version write the same bytes. It must not be empty
	// where there is a cache.
	Version string

	// BaseURL is the address at which the site will be, such as
	// "https://example.org/speeds/"; "" when not known. Only sitemap.xml and
	// the page for addresses that do not exist need it: all links are relative.
	BaseURL string

	// RawURL is the address of the directory that holds the run directories.
	// Where it is not empty, raw files stay out of the site and links to
	// them lead there.
	RawURL string

	// Layer makes charts interactive; nil: they are drawings only.
	Layer *Layer

	// Slugs are the addresses that were given before (slugs.json), which
	// never move; empty when there are none.
	Slugs []byte

	// Noise are the noise profiles that comparisons of neighbouring commits
	// may use. Of two for one setting the first counts.
	Noise []*compare.Profile
}

// A Result says what a build did.
type Result struct {
	Index    string   // path of the first page
	Runs     int      // in the site
	Computed []string // ids of the runs that were computed, not found in the cache; ascending
	Compared []string // folders of the comparisons that were computed, not found in the cache; ascending
	Slugs    []byte   // slugs.json with every address of the site
}

// Build writes a static site of run directories to the directory out. The
// site is built beside out and then takes its place: out may be missing,
// empty or an earlier site, and is left as it was when anything goes wrong,
// or when ctx ends. The order of dirs does not matter; two of one name are
// an error.
func Build(ctx context.Context, dirs []string, out string, o Options) (Result, error) {
	return build(ctx, sourcesOf(dirs), out, o)
}

// Check builds the site of run directories and compares it with out instead
// of replacing it. It computes everything in full and uses no cache. It
// returns the files that Build would change, add or take away, ascending,
// relative to out and with forward slashes.
func Check(ctx context.Context, dirs []string, out string, o Options) (changed []string, err error) {
	dir, clean, err := beside(out)
	if err != nil {
		return nil, err
	}
	defer clean()
	o.Cache = "" // what an earlier build kept proves nothing
	if _, err := writeSite(ctx, sourcesOf(dirs), dir, "", o); err != nil {
		return nil, err
	}
	return differences(dir, out)
}

// A source is a run that may have to be loaded.
type source struct {
	id, dir string
	open    func() (Input, error)
}

func sourcesOf(dirs []string) []source {
	var sources []source
	for _, dir := range dirs {
		id := filepath.Base(dir)
		if abs, err := filepath.Abs(dir); err == nil {
			id = filepath.Base(abs) // of "."
		}
		sources = append(sources, source{id: id, dir: dir, open: func() (Input, error) { return Open(dir) }})
	}
	return sources
}

// distinctNames refuses two runs of one name. File systems that take upper
// for lower case would mix up their pages.
func distinctNames(sources []source) error {
	dirs := map[string]string{}
	for _, s := range sources {
		key := strings.ToLower(s.id)
		if earlier, ok := dirs[key]; ok {
			return fmt.Errorf("two runs are named %q: %q and %q", s.id, earlier, s.dir)
		}
		dirs[key] = s.dir
	}
	return nil
}

func build(ctx context.Context, sources []source, out string, o Options) (Result, error) {
	out = filepath.Clean(out)
	if err := mayReplace(out); err != nil {
		return Result{}, err
	}
	dir, clean, err := beside(out)
	if err != nil {
		return Result{}, err
	}
	defer clean() // gone already when all went well
	result, err := writeSite(ctx, sources, dir, out, o)
	if err != nil {
		return Result{}, err
	}
	if err := replace(out, dir); err != nil {
		return Result{}, fmt.Errorf("write site: %w", err)
	}
	result.Index = filepath.Join(out, "index.html")
	return result, nil
}

// beside makes a directory on the file system of out; clean takes it away.
func beside(out string) (dir string, clean func(), err error) {
	parent := filepath.Dir(filepath.Clean(out))
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", nil, fmt.Errorf("write site: %w", err)
	}
	dir, err = os.MkdirTemp(parent, ".speedmatrix-site-*")
	if err != nil {
		return "", nil, fmt.Errorf("write site: %w", err)
	}
	clean = func() { os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil {
		clean()
		return "", nil, fmt.Errorf("write site: %w", err)
	}
	return dir, clean, nil
}

// differences compares two directories.
func differences(a, b string) ([]string, error) {
	names := map[string]bool{}
	for _, dir := range []string{a, b} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(dir, path)
			names[filepath.ToSlash(name)] = true
			return err
		})
		if err != nil && !(dir == b && errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("compare sites: %w", err)
		}
	}
	var changed []string
	for name := range names {
		x, err := os.ReadFile(filepath.Join(a, filepath.FromSlash(name)))
		y, err2 := os.ReadFile(filepath.Join(b, filepath.FromSlash(name)))
		for _, err := range []error{err, err2} {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("compare sites: %w", err)
			}
		}
		if err != nil || err2 != nil || !slices.Equal(x, y) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

// A document is one file of a site.
type document struct {
	Name string // relative, with forward slashes
	Data []byte
}

// A runPage is everything that is made of one run.
type runPage struct {
	Summary summary
	Files   []document // in the run's folder of a site, beside its raw files
	Twin    []document // in the run's own directory: its page as Markdown, and what that shows
}

// newRunPage computes the files of one run. The place of its navigation is
// left open: what leads there depends on the other runs.
func newRunPage(in Input, o Options) (*runPage, error) {
	style, icon := assets()
	raw := rawFolder + "/"
	if o.RawURL != "" {
		raw = strings.TrimSuffix(o.RawURL, "/") + "/" + escapePath(in.Run.ID) + "/"
	}
	v, err := newRunView(in, raw, true)
	if err != nil {
		return nil, err
	}
	v.Root, v.Stylesheet, v.Icon, v.Around = "../../", style.name, icon.name, aroundPlace
	if v.Layer, err = o.Layer.view(v.Charts); err != nil {
		return nil, err
	}
	if v.Layer != nil {
		v.Policy = layerPolicy
	}
	p := &runPage{Summary: newSummary(in)}
	add := func(name string, data []byte, failed error) {
		p.Files = append(p.Files, document{name, data})
		err = cmp.Or(err, failed)
	}
	page, failed := html("run.html.tmpl", v)
	add("index.html", page, failed)
	page, failed = markdown("run.md.tmpl", v)
	add("index.md", page, failed)
	beside, failed := besidePage(in.Run, v, raw)
	err = cmp.Or(err, failed)
	p.Files = append(p.Files, beside...)
	page, failed = indexJSON(in.Run)
	add("index.json", page, failed)
	page, failed = cellsCSV(in.Run)
	add("cells.csv", page, failed)
	if err != nil {
		return nil, err
	}
	v.moveTo(in, "", false) // done with the site's page
	p.Twin, err = twinOf(v)
	return p, err
}

// A runEntry is a run on its way into a site.
type runEntry struct {
	source
	summary  summary
	computed bool
}

// writeSite writes a whole site into the empty directory dir. What it can it
// takes over from the earlier site old; "" is none.
func writeSite(ctx context.Context, sources []source, dir, old string, o Options) (Result, error) {
	if err := distinctNames(sources); err != nil {
		return Result{}, fmt.Errorf("write site: %w", err)
	}
	c, err := openCache(o, dir+".cache")
	if err != nil {
		return Result{}, err
	}
	defer c.close()
	entries := make([]*runEntry, len(sources))
	for i, s := range sources {
		entries[i] = &runEntry{source: s}
	}
	err = inParallel(ctx, entries, func(e *runEntry) (err error) {
		e.summary, e.computed, err = c.summary(e.source)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	runs := make([]*summary, len(entries))
	for i, e := range entries {
		runs[i] = &e.summary
	}
	s, err := newSite(runs, o)
	if err != nil {
		return Result{}, err
	}
	f := newFolder(dir, old, c.earlier.Parts)
	result := Result{Runs: len(sources)}
	if result.Compared, err = s.compare(ctx, c, f, sources); err != nil {
		return Result{}, err
	}
	around, err := s.around()
	if err != nil {
		return Result{}, err
	}
	err = inParallel(ctx, entries, func(e *runEntry) error { return c.writeRun(f, e, around[e.id]) })
	if err != nil {
		return Result{}, err
	}
	for _, e := range entries {
		if e.computed {
			result.Computed = append(result.Computed, e.id)
		}
	}
	slices.Sort(result.Computed)
	if err := s.findSteps(ctx); err != nil {
		return Result{}, err
	}
	if err := s.pages(); err != nil {
		return Result{}, err
	}
	var parts map[string]part
	if !c.temporary {
		// Before the other files: a redirect may lie in the folder of a run,
		// and is no part of it.
		if parts, err = f.stamped(ctx); err != nil {
			return Result{}, err
		}
	}
	for _, d := range s.files {
		if err := f.write(d.Name, d.Data); err != nil {
			return Result{}, err
		}
		if d.Name == slugsPath {
			result.Slugs = d.Data
		}
	}
	if err := c.keep(parts); err != nil {
		return Result{}, err
	}
	return result, c.prune()
}

// A Twin is a file that belongs into a run's own directory: its page as
// Markdown, or a drawing on it.
type Twin struct {
	Run  string // name of the run directory
	Name string // of the file
	Data []byte
}

// Twins computes, or takes from the cache, the files that make run
// directories readable where they lie, and hands them to write, run by run in
// the order of dirs. It returns slugs.json for the directory that holds them.
// It writes nothing but the cache, out of which it takes nothing.
func Twins(ctx context.Context, dirs []string, o Options, write func(Twin) error) (slugsJSON []byte, err error) {
	temporary := ""
	if o.Cache == "" {
		if temporary, err = os.MkdirTemp("", "speedmatrix-pages-*"); err != nil {
			return nil, fmt.Errorf("render Markdown: %w", err)
		}
	}
	c, err := openCache(o, temporary)
	if err != nil {
		return nil, err
	}
	defer c.close()
	given, err := readSlugs(o.Slugs)
	if err != nil {
		return nil, err
	}
	sources := sourcesOf(dirs)
	if err := distinctNames(sources); err != nil {
		return nil, fmt.Errorf("render Markdown: %w", err)
	}
	runs := make([]*summary, len(sources))
	at := make(map[string]int, len(sources))
	for i, s := range sources {
		at[s.dir] = i
	}
	err = inParallel(ctx, sources, func(s source) error {
		r, _, err := c.summary(s)
		runs[at[s.dir]] = &r
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		p, _, err := c.page(s)
		if err != nil {
			return nil, err
		}
		for _, d := range p.Twin {
			if err := write(Twin{s.id, d.Name, d.Data}); err != nil {
				return nil, err
			}
		}
	}
	given.assign(runs)
	return given.json()
}

// maxAtOnce is how many runs are worked on at once, at most: each loads its
// cells in parallel itself, and all of them are in memory.
const maxAtOnce = 4

// inParallel calls do for every source, on several processors, and returns the
// error of the first of them, by their order, that has one.
func inParallel[T any](ctx context.Context, sources []T, do func(T) error) error {
	errs := make([]error, len(sources))
	next := make(chan int)
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range min(runtime.GOMAXPROCS(0), maxAtOnce, len(sources)) {
		workers.Go(func() {
			for i := range next {
				if errs[i] = do(sources[i]); errs[i] != nil {
					stop()
				}
			}
		})
	}
	for i := range sources {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// rawFiles lists the files of a run that a site holds or leads to.
func rawFiles(in Input) []string {
	names := []string{runlog.ManifestFile}
	for _, l := range logFiles(in.Run.Manifest) {
		names = append(names, l.File)
	}
	if len(in.Notes) > 0 {
		names = append(names, runlog.NotesFile)
	}
	return names
}
