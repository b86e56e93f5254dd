// Command runlog measures event files: their bytes by column against JSONL
// compressed with zstd and against what an ideal compressor could reach, and
// what writing one costs. It must not know how an event file is made: it
// writes with package runlog and looks at the footer.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/parquet-go/parquet-go"

	"speedmatrix/bench/figure"
	"speedmatrix/bench/made"
	"speedmatrix/bench/process"
	"speedmatrix/ingest/runlog"
)

const repetitions = 7

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/runlog:", err)
		os.Exit(1)
	}
}

func run() error {
	out, err := figure.NewWriter(os.Stdout, "make bench-runlog")
	if err != nil {
		return err
	}
	text, err := made.ReadText()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bench-runlog-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, s := range []stream{
		{name: "plain", tokens: 1, stepUs: 8_900, streams: 32, most: limits{
			jsonl3: 0.27, jsonl19: 0.38, ideal: 1.5, event: 3.5, time: 1.20, text: 1.9, rest: 0.08}},
		{name: "speculative", tokens: 2.86, stepUs: 16_000, streams: 64, most: limits{
			jsonl3: 0.40, ideal: 1.6, token: 2.6, time: 1.40, text: 1.9, rest: 0.6}},
	} {
		if err := s.measure(out, text, work); err != nil {
			return fmt.Errorf("%s stream: %w", s.name, err)
		}
	}
	return nil
}

// A stream is a kind of event stream with its targets.
type stream struct {
	name    string
	tokens  float64 // in one event
	stepUs  float64
	streams int32
	most    limits
}

// limits are targets of sizes; 0 is none.
type limits struct{ jsonl3, jsonl19, ideal, event, token, time, text, rest float64 }

func (s stream) measure(out *figure.Writer, text *made.Text, work string) error {
	ev := made.Cell{
		Key:    runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 16384, Concurrency: s.streams},
		TTFTUs: 449e3, StepUs: s.stepUs, Tokens: s.tokens, MaxTokens: 4096, RampUs: 3e6, WindowUs: 30e6, Seed: 3,
	}.Events(text)
	dir, err := runlog.Create(work, s.name)
	if err != nil {
		return err
	}
	out.Begin()
	info, err := runlog.WriteEvents(dir, ev)
	if err != nil {
		return err
	}
	lines := appendJSONL(nil, ev)
	if err := s.sizes(out, dir, ev, info, lines); err != nil {
		return err
	}
	return s.writing(out, dir, ev)
}

// sizes measures bytes.
func (s stream) sizes(out *figure.Writer, dir string, ev *runlog.Events, info runlog.FileInfo, lines []byte) error {
	n := float64(ev.Len())
	tokens := 0.0
	for _, t := range ev.Tokens {
		tokens += max(0, float64(t))
	}
	perEvent := func(bytes int64) float64 { return float64(bytes) / n }
	columns, err := columnBytes(filepath.Join(dir, filepath.FromSlash(info.File)))
	if err != nil {
		return err
	}
	ideal := idealOf(ev)
	file := perEvent(info.Bytes)
	topic := "log size, " + s.name
	one := func(name string, v float64) figure.Figure { return figure.Of(topic, name, "B/event", v) }
	against := func(f figure.Figure, peer string, v, most float64) figure.Figure {
		if f = f.Against(peer, []float64{f.Value}, []float64{v}); most > 0 {
			f = f.RatioAtMost(most)
		}
		return f
	}
	whole := one("file", file).Note("%s events, %s tokens, %s raw bytes of JSONL an event",
		figure.Number(n), figure.Number(tokens), figure.Number(float64(len(lines))/n))
	if s.most.event > 0 {
		whole = whole.AtMost(s.most.event)
	}
	figures := []figure.Figure{whole}
	perToken := figure.Of(topic, "file, by tokens", "B/token", float64(info.Bytes)/tokens)
	if s.most.token > 0 {
		perToken = perToken.AtMost(s.most.token)
	}
	figures = append(figures, perToken)
	for _, level := range []struct {
		flag string
		most float64
	}{{"-3", s.most.jsonl3}, {"-19", s.most.jsonl19}} {
		_, packed, err := process.Filter(bytes.NewReader(lines), "zstd", "-q", "-c", "--single-thread", level.flag)
		if err != nil {
			return err
		}
		figures = append(figures, against(one("file against JSONL, zstd "+level.flag, file), "JSONL, zstd "+level.flag, perEvent(int64(len(packed))), level.most))
	}
	figures = append(figures,
		against(one("file against the ideal", file), "ideal", ideal.all()/n, s.most.ideal).
			Note("order-0 entropy of the gaps between a request's events, of the chunks' lengths and of their tokens, and a mixed model of orders 1 to 6 for the text"),
		against(one("column t_us", perEvent(columns["t_us"])), "entropy of gaps", ideal.gaps/n, s.most.time).
			Note("32 deltas in a row have the width of the widest, as every reader of DELTA_BINARY_PACKED expects"),
		against(one("column text", perEvent(columns["text"])), "ideal text and lengths", (ideal.text+ideal.lengths)/n, s.most.text),
	)
	rest := int64(0)
	for name, size := range columns {
		if name != "t_us" && name != "text" {
			rest += size
		}
	}
	figures = append(figures, one("all other columns", perEvent(rest)).AtMost(s.most.rest).
		Note("completion_tokens, the server's own running total, is %s of it", figure.Number(perEvent(columns["completion_tokens"]))))
	for _, name := range []string{"completion_tokens", "tokens", "seq", "same_read", "stream", "request"} {
		figures = append(figures, one("column "+name, perEvent(columns[name])))
	}
	return out.Write(figures...)
}

// columnBytes reads the sizes of the columns of a file, headers of pages
// included, from its footer.
func columnBytes(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			sizes[c.MetaData.PathInSchema[0]] += c.MetaData.TotalCompressedSize
		}
	}
	return sizes, nil
}

// writing measures what it costs to write the events, in turns with JSONL.
func (s stream) writing(out *figure.Writer, dir string, ev *runlog.Events) error {
	topic := "log writing, " + s.name
	n := float64(ev.Len())
	file := filepath.Join(dir, "events.jsonl.zst")
	var ours, theirs, wall, allocs []float64
	out.Begin()
	for i := range repetitions + 1 { // the first is not counted: it warms caches and pools up
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		cpu, err := process.CPU(func() error { _, err := runlog.WriteEvents(dir, ev); return err })
		if err != nil {
			return err
		}
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		runtime.GC()
		peer, err := process.CPU(func() error { return writeJSONL(file, ev) })
		if err != nil {
			return err
		}
		if i > 0 {
			ours = append(ours, float64(cpu.Nanoseconds())/n)
			theirs = append(theirs, float64(peer.Nanoseconds())/n)
			wall = append(wall, float64(took.Nanoseconds())/n)
			allocs = append(allocs, float64(after.Mallocs-before.Mallocs)/n)
		}
	}
	heap, err := process.PeakHeap(func() error { _, err := runlog.WriteEvents(dir, ev); return err })
	if err != nil {
		return err
	}
	return out.Write(
		figure.Of(topic, "CPU to write a cell", "ns/event", ours...).Against("JSONL, zstd -3", ours, theirs).RatioAtMost(0.45).
			Note("checked, encoded, read back and compared, hashed, synced; JSONL is appended by hand, compressed by the same library and written, no more"),
		figure.Of(topic, "wall time to write a cell", "ns/event", wall...),
		figure.Of(topic, "allocations", "/event", allocs...).AtMost(0.01),
		figure.Of(topic, "heap beside the events", "MiB", float64(heap)/(1<<20)).AtMost(64).
			Note("%s events", figure.Number(n)),
	)
}
