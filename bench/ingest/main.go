// Command ingest measures the way from event files to all figures of a run,
// statuses and loops included: against DuckDB, which computes the same
// figures from the same files by the queries of docs/sql.md, on one core and
// on two; how much of it is validation; and how it grows with the run and
// with the text. Every repetition is a fresh process. It fails when DuckDB
// comes to other figures. It must not compute figures itself.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"speedmatrix/bench/figure"
	"speedmatrix/bench/made"
	"speedmatrix/bench/process"
)

const repetitions = 5

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench/ingest:", err)
		os.Exit(1)
	}
}

// run measures, or is one of the processes that are measured.
func run(args []string) error {
	if len(args) == 3 {
		child, ok := children()[args[0]]
		cores, err := strconv.Atoi(args[2])
		if !ok || err != nil {
			return fmt.Errorf("got %q, want no arguments", args)
		}
		done, err := child(args[1], cores)
		if err != nil {
			return err
		}
		done.PeakBytes = process.PeakBytes()
		return json.NewEncoder(os.Stdout).Encode(done)
	}
	out, err := figure.NewWriter(os.Stdout, "make bench-ingest")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bench-ingest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	text, err := made.ReadText()
	if err != nil {
		return err
	}
	b := &bench{out: out, work: work, text: text}
	for _, measure := range []func() error{b.reference, b.validation, b.loops, b.growth} {
		if err := measure(); err != nil {
			return err
		}
	}
	return nil
}

// A bench measures into out.
type bench struct {
	out  *figure.Writer
	work string
	text *made.Text
}

// children are the processes that are measured: what they do with a
// directory on some cores.
func children() map[string]func(dir string, cores int) (result, error) {
	return map[string]func(string, int) (result, error){
		"ingest": ingestRun, "duckdb": duckdbAll, "duckdb-gaps": duckdbGaps, "profile": profileRead,
	}
}

// A result is what such a process says.
type result struct {
	PeakBytes int64
	Figures   map[string]float64 `json:",omitempty"` // "decode-8192-c16 gap_p50_us"
	Cells     map[string]int     `json:",omitempty"` // by status
	Shares    map[string]float64 `json:",omitempty"` // of processor time
}

// child runs one of the children in a process of its own.
func (b *bench) child(cores int, name, dir string) (process.Usage, result, error) {
	self, err := os.Executable()
	if err != nil {
		return process.Usage{}, result{}, err
	}
	use, data, err := process.Run(cores, self, name, dir, strconv.Itoa(cores))
	if err != nil {
		return use, result{}, err
	}
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		return use, r, fmt.Errorf("read what %s says: %w", name, err)
	}
	return use, r, nil
}

// A series collects repetitions of one child.
type series struct{ wallMs, cpuMs, peakMiB []float64 }

func (s *series) add(u process.Usage, r result) {
	s.wallMs = append(s.wallMs, u.Wall.Seconds()*1e3)
	s.cpuMs = append(s.cpuMs, u.CPU.Seconds()*1e3)
	s.peakMiB = append(s.peakMiB, float64(r.PeakBytes)/(1<<20))
}

// reference measures a run of the size of the reference pages against DuckDB.
func (b *bench) reference() error {
	cells, err := made.Reference("..")
	if err != nil {
		return err
	}
	results := filepath.Join(b.work, "results")
	events, err := made.Write(results, "reference", cells, b.text)
	if err != nil {
		return err
	}
	dir := filepath.Join(results, "reference")
	n := float64(events)
	for cores := 1; cores <= 2; cores++ {
		b.out.Begin()
		var ours, all, gaps series
		for range repetitions {
			use, mine, err := b.child(cores, "ingest", dir)
			if err != nil {
				return err
			}
			ours.add(use, mine)
			use, theirs, err := b.child(cores, "duckdb", b.work)
			if err != nil {
				return err
			}
			all.add(use, theirs)
			if err := same(mine.Figures, theirs.Figures); err != nil {
				return err
			}
			if use, theirs, err = b.child(cores, "duckdb-gaps", b.work); err != nil {
				return err
			}
			gaps.add(use, theirs)
		}
		topic := fmt.Sprintf("ingest, reference run on %d core", cores)
		if cores > 1 {
			topic += "s"
		}
		wall := figure.Of(topic, "files to all figures, wall", "ms", ours.wallMs...)
		target := wall.Note("%s events, a fresh process each", figure.Number(n))
		if cores == 2 {
			target = target.AtMost(300)
		}
		rate := make([]float64, len(ours.wallMs))
		for i, ms := range ours.wallMs {
			rate[i] = n / ms / 1e3
		}
		peak := figure.Of(topic, "peak resident memory", "MiB", ours.peakMiB...)
		cpu := figure.Of(topic, "files to all figures, CPU", "ms", ours.cpuMs...)
		if err := b.out.Write(
			target,
			figure.Of(topic, "rate", "million events/s", rate...),
			wall.Beating("DuckDB, all queries of docs/sql.md", ours.wallMs, all.wallMs).RatioAtLeast(5),
			wall.Beating("DuckDB, window query alone", ours.wallMs, gaps.wallMs).RatioAtLeast(5).
				Note("the query decode gaps with what it stands on; ours is everything, loops and statuses included"),
			cpu.Beating("DuckDB, window query alone", ours.cpuMs, gaps.cpuMs),
			peak.Beating("DuckDB, all queries of docs/sql.md", ours.peakMiB, all.peakMiB).RatioAtLeast(3),
			peak.Beating("DuckDB, window query alone", ours.peakMiB, gaps.peakMiB).RatioAtLeast(3),
		); err != nil {
			return err
		}
	}
	_, mine, err := b.child(2, "ingest", dir)
	if err != nil {
		return err
	}
	return b.out.Write(figure.Of("ingest, reference run on 2 cores", "figures equal to DuckDB's", "", float64(len(mine.Figures))).
		Note("all of them, in every cell and every repetition; cells by status: %v", mine.Cells))
}

// same reports the first figure that differs, or that only one side has.
func same(ours, theirs map[string]float64) error {
	if len(ours) == 0 || len(ours) != len(theirs) {
		return fmt.Errorf("we have %d figures and DuckDB %d, want the same and more than none", len(ours), len(theirs))
	}
	for name, v := range ours {
		if w, ok := theirs[name]; !ok || math.Abs(v-w) > 1e-9*max(math.Abs(v), math.Abs(w)) {
			return fmt.Errorf("%s: we have %v and DuckDB %v", name, v, w)
		}
	}
	return nil
}

// validation measures which part of a read is holding the bytes against the
// format before anything decodes them.
func (b *bench) validation() error {
	b.out.Begin()
	_, r, err := b.child(1, "profile", filepath.Join(b.work, "results", "reference"))
	if err != nil {
		return err
	}
	const topic = "ingest, parts of the read"
	return b.out.Write(
		figure.Of(topic, "validation of the bytes", "%", 100*r.Shares["validation"]).AtMost(15).
			Note("share of processor time of reading the event files: checksums of files and pages, walks over headers, frames and deltas; runs are checked while they are decoded"),
		figure.Of(topic, "rules of the rows", "%", 100*r.Shares["rules"]).Note("order, enumerations, ranges, UTF-8 in every row"),
		figure.Of(topic, "decompression", "%", 100*r.Shares["zstd"]),
	)
}

// growth measures runs of three to thirty million events.
func (b *bench) growth() error {
	const topic = "ingest, growth"
	results := filepath.Join(b.work, "large")
	var each, peaks []float64
	var figures []figure.Figure
	b.out.Begin()
	for _, cells := range []int{1, 3, 10} {
		name := fmt.Sprintf("cells-%d", cells)
		events, err := made.Write(results, name, made.Large(cells), b.text)
		if err != nil {
			return err
		}
		use, r, err := b.child(1, "ingest", filepath.Join(results, name))
		if err != nil {
			return err
		}
		both, two, err := b.child(2, "ingest", filepath.Join(results, name))
		if err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(results, name)); err != nil {
			return err
		}
		millions := float64(events) / 1e6
		each = append(each, use.CPU.Seconds()*1e3/millions)
		peaks = append(peaks, float64(r.PeakBytes)/(1<<20))
		size := fmt.Sprintf("%.0f million events", millions)
		figures = append(figures,
			figure.Of(topic, size+", CPU on 1 core", "ms per million", each[len(each)-1]),
			figure.Of(topic, size+", wall on 2 cores", "ms", both.Wall.Seconds()*1e3),
			figure.Of(topic, size+", peak on 1 core", "MiB", peaks[len(peaks)-1]),
			figure.Of(topic, size+", peak on 2 cores", "MiB", float64(two.PeakBytes)/(1<<20)),
		)
	}
	last := len(each) - 1
	return b.out.Write(append(figures,
		figure.Of(topic, "CPU an event, ten times the cells", "×", each[last]/each[0]).AtMost(1.2),
		figure.Of(topic, "peak memory, ten times the cells", "×", peaks[last]/peaks[0]).AtMost(1.2).
			Note("cells of 512 streams and five minutes, three million events each: memory is that of the largest cell"),
	)...)
}
