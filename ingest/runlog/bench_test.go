package runlog

import (
	"bytes"
	"testing"
)

const benchRows = 100_000

func BenchmarkEncodeEvents(b *testing.B) {
	ev := cellEvents(1, benchRows, 1)
	var data bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		data.Reset()
		if err := encodeEvents(&data, ev); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, ev.Len())
	b.ReportMetric(float64(data.Len())/float64(ev.Len()), "B/event")
}

// Several tokens an event: the bytes are more, those of a token fewer.
func BenchmarkEncodeSpeculative(b *testing.B) {
	ev := cellEvents(1, benchRows, 5)
	tokens := 0
	for _, n := range ev.Tokens {
		tokens += max(0, int(n))
	}
	var data bytes.Buffer
	for b.Loop() {
		data.Reset()
		if err := encodeEvents(&data, ev); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, ev.Len())
	b.ReportMetric(float64(data.Len())/float64(ev.Len()), "B/event")
	b.ReportMetric(float64(data.Len())/float64(tokens), "B/token")
}

// What the collector waits for between two cells.
func BenchmarkWriteEvents(b *testing.B) {
	ev := cellEvents(1, benchRows, 1)
	dir := newRun(b)
	for b.Loop() {
		if _, err := WriteEvents(dir, ev); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, ev.Len())
}

func BenchmarkReadEvents(b *testing.B) {
	ev := cellEvents(1, benchRows, 1)
	dir := newRun(b)
	info, err := WriteEvents(dir, ev)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadEvents(dir, ev.Key, info); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, ev.Len())
}

// Cells of a run, one after the other in the same memory.
func BenchmarkReader(b *testing.B) {
	ev := cellEvents(1, benchRows, 1)
	dir := newRun(b)
	info, err := WriteEvents(dir, ev)
	if err != nil {
		b.Fatal(err)
	}
	var r Reader
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Events(dir, ev.Key, info); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, ev.Len())
}

// What Check costs of a read.
func BenchmarkCheck(b *testing.B) {
	ev := cellEvents(1, benchRows, 1)
	for b.Loop() {
		if err := ev.Check(); err != nil {
			b.Fatal(err)
		}
	}
	perEvent(b, ev.Len())
}

func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}
