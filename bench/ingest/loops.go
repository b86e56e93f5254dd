package main

import (
	"fmt"
	"strings"

	"speedmatrix/bench/figure"
	"speedmatrix/bench/process"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// loops measures what looking for loops takes in texts of ten thousand to
// ten million characters: in the best text, one that does not repeat, and
// in texts made to keep a detector busy. The rest of the fold is taken off,
// as what the same events take in a run that kept no text.
func (b *bench) loops() error {
	const topic = "ingest, looking for loops"
	const most = 10_000_000
	shuffled := b.text.Shuffled(most)
	loop := strings.Repeat(b.text.ASCII(1000), 8)
	kinds := []struct {
		name string
		text func(n int) string
	}{
		{"text", func(n int) string { return shuffled[:n] }},
		{"one letter", func(n int) string { return strings.Repeat("a", n) }},
		{"Fibonacci word", fibonacci},
		{"a loop at the end", func(n int) string { return shuffled[:n-len(loop)] + loop }},
	}
	b.out.Begin()
	var figures []figure.Figure
	for _, k := range kinds {
		var each []float64
		for size := 10_000; size <= most; size *= 10 {
			ns, err := loopTime(k.text(size), max(1, 1_000_000/size))
			if err != nil {
				return err
			}
			each = append(each, ns)
		}
		last := each[len(each)-1]
		figures = append(figures,
			figure.Of(topic, k.name+", 10,000,000 characters", "ns/character", last),
			figure.Of(topic, k.name+", time a character against 100,000", "×", last/each[1]).AtMost(1.5).
				Note("%s ns a character at 10,000, %s at 100,000, %s at 1,000,000; 1 is linear",
					figure.Number(each[0]), figure.Number(each[1]), figure.Number(each[2])),
		)
	}
	return b.out.Write(figures...)
}

// loopTime returns the processor time for each character of a text.
func loopTime(text string, times int) (float64, error) {
	ev := &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, Concurrency: 1}}
	ev.Append(runlog.NewEvent(runlog.KindSent, 0))
	const piece = 1000 // long ones, so that little of the time is the events'
	for i := 0; i < len(text); i += piece {
		e := runlog.NewEvent(runlog.KindChunk, int64(i))
		e.Seq, e.Tokens, e.Channel, e.HasText, e.Text = int32(ev.Len()), 250, runlog.ChannelContent, true, text[i:min(len(text), i+piece)]
		ev.Append(e)
	}
	if err := ev.Check(); err != nil {
		return 0, fmt.Errorf("make text up: %w", err)
	}
	cell := runlog.Cell{Phase: runlog.PhaseDecode, Concurrency: 1, Outcome: runlog.OutcomeRecorded}
	fold := func(kept string) (float64, error) {
		m := &runlog.Manifest{Plan: runlog.Plan{Text: kept, TokenCounting: "continuous usage"}}
		var all []float64
		for range 5 {
			cpu, err := process.CPU(func() error {
				for range times {
					ingest.Fold(m, cell, ev, nil)
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
			all = append(all, float64(cpu.Nanoseconds())/float64(times)/float64(len(text)))
		}
		return figure.Median(all), nil
	}
	with, err := fold("full")
	if err != nil {
		return 0, err
	}
	without, err := fold("none")
	return with - without, err
}

// fibonacci returns the beginning of the Fibonacci word, which repeats
// itself everywhere and is nowhere a loop.
func fibonacci(n int) string {
	a, b := "a", "ab"
	for len(b) < n {
		a, b = b, b+a
	}
	return b[:n]
}
