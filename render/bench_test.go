package render_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// One run of the reference's size, from figures to all its files.
func BenchmarkRunPage(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "run")
	targets := readTargets(b, references[0].name+".tsv")
	writeRun(b, dir, references[0].manifest(targets), targets)
	in, err := render.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := render.RunPage(in); err != nil || n < 100_000 {
			b.Fatalf("%d bytes (%v), want those of a whole page", n, err)
		}
	}
}

// All pages about several runs: lists, models, hardware, histories.
func BenchmarkPagesOfManyRuns(b *testing.B) {
	in, err := render.Open(launchAt(0).write(b, filepath.Join(b.TempDir(), "results")))
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pages := render.PagesOf(in, n)
			b.ReportAllocs()
			for b.Loop() {
				if files, err := pages(); err != nil || files < 50 {
					b.Fatalf("%d files (%v), want those of a site", files, err)
				}
			}
		})
	}
}

// A site of which one run has changed since it was built.
func BenchmarkOneRunChanged(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			work := b.TempDir()
			var dirs []string
			for i := range n {
				dirs = append(dirs, launchAt(i).write(b, filepath.Join(work, "results")))
			}
			build := func(computed int) {
				r, err := render.Build(context.Background(), dirs, filepath.Join(work, "site"), render.Options{Cache: filepath.Join(work, "cache"), Version: "x"})
				if err != nil || len(r.Computed) != computed {
					b.Fatalf("%d runs were computed (%v), want %d", len(r.Computed), err, computed)
				}
			}
			build(n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				m, err := runlog.ReadManifest(dirs[7])
				if err != nil {
					b.Fatal(err)
				}
				m.Engine.Commit = fact(fmt.Sprintf("%040x", i+1))
				if err := runlog.WriteManifest(dirs[7], m); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				build(1)
			}
		})
	}
}
