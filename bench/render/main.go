// Command render measures the way from run directories to a site: one run of
// the size of the reference pages, and what of it is ingest; 1,000 runs of
// the size of the demo in full and with one changed; and how time and memory
// grow from 100 small runs to 10,000. The program itself is measured, built
// by make build, each time as a fresh process.
//
// The peer of a site is cp -r of the same files: less than writing them once
// nothing can do that writes all.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"speedmatrix/bench/figure"
	"speedmatrix/bench/made"
	"speedmatrix/bench/process"
	"speedmatrix/bench/runtree"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench/render:", err)
		os.Exit(1)
	}
}

// run measures, or is the process that reads a run and does nothing with it.
func run(args []string) error {
	if len(args) == 2 && args[0] == "ingest" {
		return load(args[1])
	}
	if len(args) != 0 {
		return fmt.Errorf("got %q, want no arguments", args)
	}
	out, err := figure.NewWriter(os.Stdout, "make bench-render")
	if err != nil {
		return err
	}
	// Beside the repository, not in a directory for temporary files: those may
	// lie in memory.
	work, err := os.MkdirTemp("out", "render-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	text, err := made.ReadText()
	if err != nil {
		return err
	}
	program, err := filepath.Abs("../speedmatrix")
	if err != nil {
		return err
	}
	b := &bench{out: out, work: work, text: text, program: program}
	for _, measure := range []func() error{b.reference, b.thousand, b.growth} {
		if err := measure(); err != nil {
			return err
		}
	}
	return nil
}

// A bench measures into out.
type bench struct {
	out           *figure.Writer
	work, program string
	text          *made.Text
}

// A series collects repetitions.
type series struct{ wallMs, cpuMs, peakMiB []float64 }

func (s *series) add(u process.Usage, peak int64) {
	s.wallMs = append(s.wallMs, u.Wall.Seconds()*1e3)
	s.cpuMs = append(s.cpuMs, u.CPU.Seconds()*1e3)
	s.peakMiB = append(s.peakMiB, float64(peak)/(1<<20))
}

// render renders the runs below results into site, and adds what it took.
func (b *bench) render(s *series, results, site string, more ...string) error {
	u, peak, err := watched(b.program, append([]string{"render", results, "-o", site}, more...)...)
	if err != nil {
		return err
	}
	s.add(u, peak)
	return nil
}

// reference measures one run of the size of the reference pages.
func (b *bench) reference() error {
	cells, err := made.Reference("..")
	if err != nil {
		return err
	}
	results := filepath.Join(b.work, "reference")
	events, err := made.Write(results, "run", cells, b.text)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	like, err := runtree.Like(filepath.Join(results, "run"))
	if err != nil {
		return err
	}
	const more = 8
	several := filepath.Join(b.work, "reference-several")
	if err := like.Write(several, 0, 1+more); err != nil {
		return err
	}
	b.out.Begin()
	var all, all9, read, read9 series
	var beyond, page []float64
	for range 5 {
		site := filepath.Join(b.work, "reference-site")
		for _, r := range []struct {
			to   *series
			runs string
		}{{&all, results}, {&all9, several}} {
			if err := b.render(r.to, r.runs, site, "--cache", ""); err != nil {
				return err
			}
			if err := os.RemoveAll(site); err != nil {
				return err
			}
		}
		for _, r := range []struct {
			to   *series
			runs string
		}{{&read, results}, {&read9, several}} {
			u, peak, err := watched(self, "ingest", r.runs)
			if err != nil {
				return err
			}
			r.to.add(u, peak)
		}
		i := len(all.cpuMs) - 1
		beyond = append(beyond, all.cpuMs[i]-read.cpuMs[i])
		page = append(page, ((all9.cpuMs[i]-all.cpuMs[i])-(read9.cpuMs[i]-read.cpuMs[i]))/more)
	}
	const topic = "render, one reference run"
	return b.out.Write(
		figure.Of(topic, "raw to pages, wall", "ms", all.wallMs...).Note("%s events in %d measurements; the whole site of one run, with its raw files", figure.Number(float64(events)), len(cells)),
		figure.Of(topic, "raw to pages, CPU", "ms", all.cpuMs...).Against("ingest alone", all.cpuMs, read.cpuMs),
		figure.Of(topic, "CPU beyond ingest, of a site of one run", "ms", beyond...).Note("the program's start, the documents and scripts that every site has, pages, drawings, copies of raw files"),
		figure.Of(topic, "CPU beyond ingest, of one run more", "ms", page...).AtMost(50).Note("an eighth of what a site of nine runs takes more than one of a single run, less what loading them takes more: pages, drawings, copies of raw files"),
		figure.Of(topic, "peak resident memory", "MiB", all.peakMiB...).Against("ingest alone", all.peakMiB, read.peakMiB),
	)
}

// load loads all runs of a directory, one after the other.
func load(results string) error {
	runs, err := os.ReadDir(results)
	for i := 0; i < len(runs) && err == nil; i++ {
		_, err = ingest.Load(filepath.Join(results, runs[i].Name()))
	}
	return err
}

// demo returns the cells of a run of the size of the demo.
func demo() []made.Cell {
	var cells []made.Cell
	add := func(phase runlog.Phase, context, concurrency int32, ttftUs float64) {
		c := made.Cell{
			Key:    runlog.Key{Phase: phase, ContextTokens: context, Concurrency: concurrency},
			TTFTUs: ttftUs, StepUs: 10_000, Tokens: 3.4, MaxTokens: 2048, RampUs: 0.5e6 + ttftUs, WindowUs: 2.5e6,
			Seed: uint64(len(cells)), StartUs: int64(len(cells)) * 10e6,
		}
		cells = append(cells, c)
	}
	contexts := []int32{2048, 8192, 32768}
	for _, t := range contexts {
		add(runlog.PhasePrefill, t, 1, float64(t)*1e6/60_000)
	}
	for _, t := range contexts {
		for _, n := range []int32{1, 2, 4, 8} {
			add(runlog.PhaseDecode, t, n, 40_000)
		}
	}
	return cells
}

// tree makes a tree of runs out of one of the size of the demo.
func (b *bench) tree() (*runtree.Tree, error) {
	if _, err := os.Stat(filepath.Join(b.work, "one", "demo")); err != nil {
		if _, err := made.Write(filepath.Join(b.work, "one"), "demo", demo(), b.text); err != nil {
			return nil, err
		}
	}
	return runtree.Like(filepath.Join(b.work, "one", "demo"))
}

// thousand measures a site of 1,000 runs of the size of the demo.
func (b *bench) thousand() error {
	const n = 1000
	t, err := b.tree()
	if err != nil {
		return err
	}
	results, site := filepath.Join(b.work, "1000"), filepath.Join(b.work, "site")
	if err := t.Write(results, 0, n); err != nil {
		return err
	}
	b.out.Begin()
	var cold, copies series
	for range 3 {
		for _, dir := range []string{site, filepath.Join(b.work, ".site.cache")} {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		if err := b.render(&cold, results, site); err != nil {
			return err
		}
		if err := b.copy(&copies, site); err != nil {
			return err
		}
	}
	const topic = "render, 1,000 runs of the size of the demo"
	each := make([]float64, len(cold.cpuMs))
	for i, ms := range cold.cpuMs {
		each[i] = ms / n
	}
	if err := b.out.Write(
		figure.Of(topic, "all computed, wall", "ms", cold.wallMs...).Against("cp -r of the site", cold.wallMs, copies.wallMs),
		figure.Of(topic, "all computed, CPU a run", "ms", each...),
		figure.Of(topic, "all computed, peak resident memory", "MiB", cold.peakMiB...),
	); err != nil {
		return err
	}
	b.out.Begin()
	var changed series
	copies = series{}
	for i := range 5 {
		if err := b.change(t, results, i); err != nil {
			return err
		}
		if err := b.render(&changed, results, site); err != nil {
			return err
		}
		if err := b.copy(&copies, site); err != nil {
			return err
		}
	}
	return b.out.Write(
		figure.Of(topic, "one changed, wall", "ms", changed.wallMs...).AtMost(2000),
		figure.Of(topic, "one changed, wall", "ms", changed.wallMs...).Beating("cp -r of the site", changed.wallMs, copies.wallMs),
		figure.Of(topic, "one changed, CPU", "ms", changed.cpuMs...),
		figure.Of(topic, "one changed, peak resident memory", "MiB", changed.peakMiB...),
	)
}

// change gives a run another commit than it had, and so other pages, to
// itself and to those around it.
func (b *bench) change(t *runtree.Tree, results string, times int) error {
	dir := filepath.Join(results, runtree.Name(7))
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		return err
	}
	m.Engine.Commit.Value = fmt.Sprintf("%012x%028x", 0xfedc00000000+times, times)
	return runlog.WriteManifest(dir, m)
}

// copy copies a site with cp -r, and adds what it took.
func (b *bench) copy(s *series, site string) error {
	to := filepath.Join(b.work, "copy")
	u, peak, err := watched("cp", "-r", site, to)
	if err != nil {
		return err
	}
	s.add(u, peak)
	return os.RemoveAll(to)
}

// growth measures sites of up to 10,000 small runs.
func (b *bench) growth() error {
	const topic = "render, growth"
	t, err := b.tree()
	if err != nil {
		return err
	}
	small := t.Small()
	results, site := filepath.Join(b.work, "small"), filepath.Join(b.work, "small-site")
	var figures []figure.Figure
	var cold, changed, peaks []float64
	sizes := []int{100, 1_000, 10_000}
	have := 0
	b.out.Begin()
	for _, n := range sizes {
		if err := small.Write(results, have, n); err != nil {
			return err
		}
		have = n
		for _, dir := range []string{site, filepath.Join(b.work, ".small-site.cache")} {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		var all, one series
		if err := b.render(&all, results, site); err != nil {
			return err
		}
		if err := b.render(&one, results, site); err != nil { // now nothing of it is new any more
			return err
		}
		one = series{}
		for i := range 3 {
			if err := b.change(small, results, n+i); err != nil {
				return err
			}
			if err := b.render(&one, results, site); err != nil {
				return err
			}
		}
		size := figure.Number(float64(n)) + " small runs, "
		each := figure.Median(one.cpuMs) / float64(n)
		cold, changed, peaks = append(cold, all.cpuMs[0]/float64(n)), append(changed, each), append(peaks, all.peakMiB[0])
		figures = append(figures,
			figure.Of(topic, size+"all computed, CPU a run", "ms", cold[len(cold)-1]),
			figure.Of(topic, size+"all computed, peak memory", "MiB", peaks[len(peaks)-1]),
			figure.Of(topic, size+"one changed, wall", "ms", one.wallMs...),
			figure.Of(topic, size+"one changed, CPU a run", "ms", each),
			figure.Of(topic, size+"one changed, peak memory", "MiB", one.peakMiB...),
		)
	}
	last := len(sizes) - 1
	kib := (peaks[last] - peaks[last-1]) * 1024 / float64(sizes[last]-sizes[last-1])
	return b.out.Write(append(figures,
		figure.Of(topic, "CPU a run, ten times the runs", "×", cold[last]/cold[last-1]).AtMost(1.2).Note("all computed; a run of one prefill and one decode measurement"),
		figure.Of(topic, "CPU a run where one changed, ten times the runs", "×", changed[last]/changed[last-1]).AtMost(1.2),
		figure.Of(topic, "memory of one run more", "KiB", kib).AtMost(64).Note("what the lists and histories know of it"),
	)...)
}
