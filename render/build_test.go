package render_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// bigSite is how many runs the site of TestManyRuns has where
// SPEEDMATRIX_SITE_RUNS does not say (make site-1000).
const bigSite = 100

// launch is a run of a made-up history: its place in it decides everything.
type launch struct {
	i        int
	model    string
	hardware string
	version  string
	faster   float64 // than others, as a factor; 0: as others
}

// launchAt spreads runs over models, hardware and versions.
func launchAt(i int) launch {
	models := []string{"google/gemma-4-E2B-it", "Qwen/Qwen3-0.6B", "poolside/Laguna-M.1", "mistralai/Ministral-3B", "other/gemma-4-E2B-it"}
	hardware := []string{"NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA H200"}
	return launch{
		i: i, model: models[i%len(models)], hardware: hardware[i/len(models)%len(hardware)],
		version: fmt.Sprintf("0.21.1rc1.dev%d+g%s", 400+i/10, commitOf(i)[:9]),
	}
}

func commitOf(i int) string {
	return fmt.Sprintf("%012x%028x", 0x73a5831127a9+int64(i/10)*7919e9%(1<<47), i)
}

func (l launch) id() string { return fmt.Sprintf("run-%04d", l.i) }

// write writes the run below root: events of few requests, quick to compute.
func (l launch) write(t testing.TB, root string) string {
	t.Helper()
	dir := filepath.Join(root, l.id())
	if err := os.MkdirAll(filepath.Join(dir, "cells"), 0o755); err != nil {
		t.Fatal(err)
	}
	vram := int64(96 << 30)
	if strings.Contains(l.hardware, "H200") {
		vram = 141 << 30
	}
	m := runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix", Version: "1.0.0"}, Finished: true, ArrivalClock: runlog.ArrivalKernel,
		StartedAt: time.Date(2025, 11, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(l.i) * 9 * time.Hour),
		Model:     runlog.Model{Repository: l.model, ServedName: path.Base(l.model), Revision: "main"},
		Hardware:  runlog.Hardware{Type: "Discrete GPU", OS: "linux", GPUs: []runlog.GPU{{Name: l.hardware, VRAMBytes: vram, Driver: fmt.Sprintf("58%d.10", l.i/60)}}},
		Engine: runlog.Engine{
			Name: fact("vllm"), Version: fact(l.version), Commit: fact(commitOf(l.i)),
			Quantization: fact("BF16"), Repository: fact("github.com/vllm-project/vllm"),
			LaunchCommand: &runlog.Command{Args: []string{"vllm", "serve", l.model, "--port", strconv.Itoa(8000 + l.i), "--max-model-len", "40960"}, Source: runlog.FromProcess},
		},
		Plan: runlog.Plan{
			ContextsTokens: []int32{2048, 8192, 32768}, Concurrency: []int32{1, 2, 4, 8}, PrefillContextsTokens: []int32{2048, 8192, 32768}, PrefillRepeats: 1,
			DurationUs: 30e6, MaxOutputTokens: 4096, PromptSet: "x", Text: "full", Sampling: runlog.Sampling{TopP: 1},
			DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage",
		},
		Capacity: runlog.Capacity{KVCacheTokens: 150_000, Engines: 1},
	}
	// Runs of equal speed have equal events, which are dear to write.
	equal := filepath.Join(filepath.Dir(root), "equal", fmt.Sprint(l.i%7, l.i%3, l.faster))
	if written, err := runlog.ReadManifest(equal); err == nil {
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(equal))); err != nil {
			t.Fatal(err)
		}
		m.Cells, m.Plan = written.Cells, written.Plan
		if err := runlog.WriteManifest(dir, &m); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	var targets []target
	factor := (1 + 0.01*float64(l.i%7)) * max(l.faster, 1)
	for _, k := range m.Plan.Keys() {
		target := target{key: k, status: ingest.Valid, ttftMs: 40}
		switch c := float64(k.Concurrency); {
		case k.Phase == runlog.PhasePrefill:
			target.total = 20_000 * factor
			target.ttftMs = float64(k.ContextTokens) / target.total * 1000
		case k.ContextTokens == 32768 && k.Concurrency == 8:
			target.status = ingest.OverCapacity
		case k.ContextTokens == 8192 && k.Concurrency == 8 && l.i%3 == 0:
			target.status = ingest.Looped
		default:
			target.perRequest = float64(int(900*factor/(1+c/16))) / 10
			target.betweenMs = 1000 / target.perRequest
			target.active, target.measuredS = c, 30
			target.outputTokens = float64(int(target.perRequest*30) * int(c))
			target.total = target.outputTokens / 30
		}
		targets = append(targets, target)
	}
	m.Plan.Order = nil
	for _, k := range m.Plan.Keys() {
		m.Plan.Order = append(m.Plan.Order, k.Name())
	}
	writeRun(t, dir, m, targets)
	if err := os.CopyFS(equal, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func buildSite(t *testing.T, dirs []string, out string, o render.Options) render.Result {
	t.Helper()
	result, err := render.Build(context.Background(), dirs, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func twins(t *testing.T, dirs []string, o render.Options) (files []render.Twin) {
	t.Helper()
	_, err := render.Twins(context.Background(), dirs, o, func(f render.Twin) error {
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A site of many runs: the same bytes twice, with and without a cache and in
// any order; after one run changed only that is computed.
func TestManyRuns(t *testing.T) {
	n := bigSite
	if s := os.Getenv("SPEEDMATRIX_SITE_RUNS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 20 {
			t.Fatalf("SPEEDMATRIX_SITE_RUNS is %q, want a number from 20", s)
		}
	}
	work := t.TempDir()
	root, out := filepath.Join(work, "results"), filepath.Join(work, "site")
	options := render.Options{Cache: filepath.Join(work, "cache"), Version: "test", BaseURL: "https://example.org/speeds/"}
	var dirs []string
	for i := range n {
		dirs = append(dirs, launchAt(i).write(t, root))
	}
	timed := func(what string, dirs []string, out string, o render.Options) render.Result {
		t.Helper()
		began := time.Now()
		result := buildSite(t, dirs, out, o)
		t.Logf("%s: %d runs, %d computed, %.1f s", what, result.Runs, len(result.Computed), time.Since(began).Seconds())
		return result
	}
	if got := timed("first build", dirs, out, options); got.Runs != n || len(got.Computed) != n {
		t.Errorf("the first build computed %d of %d runs, want all of %d", len(got.Computed), got.Runs, n)
	}
	first := sums(t, out)

	slices.Reverse(dirs)
	if got := timed("from the cache", dirs, out, options); len(got.Computed)+len(got.Compared) != 0 {
		t.Errorf("nothing changed and %q and %q were computed", got.Computed, got.Compared)
	}
	if diff := cmp.Diff(first, sums(t, out)); diff != "" {
		t.Errorf("the cache gives another site:\n%s", diff)
	}
	plain := options
	plain.Cache = ""
	timed("without a cache", dirs, out, plain)
	if diff := cmp.Diff(first, sums(t, out)); diff != "" {
		t.Errorf("no cache gives another site:\n%s", diff)
	}

	changed := launchAt(7)
	changed.faster = 1.5
	if err := os.RemoveAll(filepath.Join(root, changed.id())); err != nil {
		t.Fatal(err)
	}
	changed.write(t, root)
	if got := timed("one run changed", dirs, out, options); !slices.Equal(got.Computed, []string{changed.id()}) {
		t.Errorf("one run changed and %q were computed", got.Computed)
	} else if len(got.Compared) == 0 || len(got.Compared) > 2 {
		t.Errorf("one run changed and %q were compared, want its commit with the ones before and after", got.Compared)
	}
	second := sums(t, out)
	for name := range second {
		if theirs := strings.HasPrefix(name, "runs/run-") && !strings.HasPrefix(name, "runs/"+changed.id()+"/"); theirs && first[name] != second[name] {
			t.Errorf("%s changed with another run", name)
		}
	}
	timed("that without a cache", dirs, out, plain)
	if diff := cmp.Diff(second, sums(t, out)); diff != "" {
		t.Errorf("after a change the cache gives another site:\n%s", diff)
	}
	archives, err := filepath.Glob(filepath.Join(options.Cache, "*.zip"))
	if err != nil || len(archives) != n {
		t.Errorf("the cache has %d files of %d runs (%v)", len(archives), n, err)
	}
}

// sums returns a checksum of each file below dir.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := tree(t, dir)
	for name, content := range files {
		files[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	}
	return files
}

func fewRuns(t *testing.T, n int) (dirs []string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "results")
	for i := range n {
		dirs = append(dirs, launchAt(i).write(t, root))
	}
	return dirs
}

// What a run's files are computed from decides whether they are computed again.
func TestWhatTheCacheDependsOn(t *testing.T) {
	dirs := fewRuns(t, 2)
	work := t.TempDir()
	o := render.Options{Cache: filepath.Join(work, "cache"), Version: "a"}
	build := func() []string { return buildSite(t, dirs, filepath.Join(work, "site"), o).Computed }
	build()
	for _, c := range []struct {
		rule   string
		change func()
		want   []string
	}{
		{"nothing", func() {}, nil},
		{"notes", func() { writeFile(t, filepath.Join(dirs[0], runlog.NotesFile), "# New\n") }, []string{"run-0000"}},
		{"the page beside the data", func() { writeFile(t, filepath.Join(dirs[0], render.ReadmeFile), "# New\n") }, nil},
		{"the program", func() { o.Version = "b" }, []string{"run-0000", "run-0001"}},
		{"the address of raw files", func() { o.RawURL = "https://example.org/raw/" }, []string{"run-0000", "run-0001"}},
		{"the site's address", func() { o.BaseURL = "https://example.org/" }, nil},
		{"a damaged archive of a page that is in the site", func() {
			archives, err := filepath.Glob(filepath.Join(o.Cache, "*.zip"))
			if err != nil || len(archives) != 2 {
				t.Fatalf("archives %q (%v), want 2", archives, err)
			}
			for _, a := range archives {
				damage(t, a)
			}
		}, nil},
		{"the site is gone and the archive is damaged", func() { must(t, os.RemoveAll(filepath.Join(work, "site"))) }, []string{"run-0000", "run-0001"}},
		{"the site is gone and the archive is whole again", func() { must(t, os.RemoveAll(filepath.Join(work, "site"))) }, nil},
		{"a damaged record", func() { damage(t, filepath.Join(o.Cache, "site.record")) }, nil},
		{"no record", func() { must(t, os.Remove(filepath.Join(o.Cache, "site.record"))) }, nil},
		{"a file of the run was written again, the same", func() {
			file := filepath.Join(dirs[0], runlog.ManifestFile)
			writeFile(t, file, read(t, file))
		}, nil},
	} {
		c.change()
		if got := build(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q were computed, want %q", c.rule, got, c.want)
		}
	}
	// A cache takes away only what it made itself.
	writeFile(t, filepath.Join(o.Cache, "precious.zip"), "x")
	dirs = dirs[:1]
	build()
	if got := names(t, o.Cache); len(got) != 4 || !slices.Contains(got, "precious.zip") || !slices.Contains(got, "site.record") {
		t.Errorf("the cache holds %q, want an archive, what comparisons look at, the record, and precious.zip", got)
	}
	o.Version = ""
	if _, err := render.Build(context.Background(), dirs, filepath.Join(work, "site"), o); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("a cache without a version: got %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// damage changes a bit in the middle of a file.
func damage(t *testing.T, file string) {
	t.Helper()
	b := []byte(read(t, file))
	b[len(b)/2] ^= 1
	writeFile(t, file, string(b))
}

// A damaged run is an error even where its page is in the cache.
func TestCacheHidesNoDamage(t *testing.T) {
	dirs := fewRuns(t, 1)
	work := t.TempDir()
	o := render.Options{Cache: filepath.Join(work, "cache"), Version: "a"}
	buildSite(t, dirs, filepath.Join(work, "site"), o)
	file := filepath.Join(dirs[0], "cells", "decode-2048-c1.parquet")
	damage(t, file)
	if _, err := render.Build(context.Background(), dirs, filepath.Join(work, "site"), o); err == nil || !strings.Contains(err.Error(), "decode-2048-c1.parquet") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestCheckNamesWhatWouldChange(t *testing.T) {
	dirs := fewRuns(t, 12)
	out := filepath.Join(t.TempDir(), "site")
	check := func(dirs []string) []string {
		t.Helper()
		before := map[string]string{}
		if _, err := os.Stat(out); err == nil {
			before = tree(t, out)
		}
		changed, err := render.Check(context.Background(), dirs, out, render.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(out); err == nil {
			if diff := cmp.Diff(before, tree(t, out)); diff != "" {
				t.Errorf("a check changed the site:\n%s", diff)
			}
		}
		if got := names(t, filepath.Dir(out)); len(got) > 1 {
			t.Errorf("a check left %q", got)
		}
		return changed
	}
	if got := check(dirs[:11]); !slices.Contains(got, "index.html") {
		t.Errorf("without a site %q would change", got)
	}
	buildSite(t, dirs[:11], out, render.Options{})
	if got := check(dirs[:11]); len(got) > 0 {
		t.Errorf("of a site that is up to date %q would change", got)
	}
	page := filepath.Join(out, "runs", "run-0003", "index.html")
	writeFile(t, page, read(t, page)+" ")
	writeFile(t, filepath.Join(out, "stray.html"), "")
	if got, want := check(dirs[:11]), []string{"runs/run-0003/index.html", "stray.html"}; !slices.Equal(got, want) {
		t.Errorf("%q would change, want %q", got, want)
	}
	got := check(dirs)
	for _, name := range []string{"index.html", "runs/index.md", "runs/run-0011/index.html", "models/qwen3-0.6b/index.html", "data/runs.json"} {
		if !slices.Contains(got, name) {
			t.Errorf("a new run would not change %s, only %q", name, got)
		}
	}
}

func TestInterruptedBuildLeavesTheOldSite(t *testing.T) {
	dirs := fewRuns(t, 2)
	out := filepath.Join(t.TempDir(), "site")
	buildSite(t, dirs, out, render.Options{})
	before := tree(t, out)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := render.Build(ctx, dirs[:1], out, render.Options{}); err == nil {
		t.Error("a build whose context has ended has no error")
	}
	if diff := cmp.Diff(before, tree(t, out)); diff != "" {
		t.Errorf("the old site changed:\n%s", diff)
	}
}

func jsonOf[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
