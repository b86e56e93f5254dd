package made

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"speedmatrix/ingest/runlog"
)

// A Cell says what to make up for one cell.
type Cell struct {
	Key       runlog.Key
	TTFTUs    float64
	StepUs    float64 // between two engine steps
	Tokens    float64 // in one event, on average; more than 1 is speculation
	RampUs    float64 // before the window opens
	WindowUs  float64
	MaxTokens int32 // of a request
	Seed      uint64
	StartUs   int64
	NotSent   bool // it would not fit into the KV cache
}

// Events makes up the events of a decode cell.
func (c Cell) Events(text *Text) *runlog.Events {
	r := rand.New(rand.NewPCG(c.Seed, 17))
	steps := []float64{0}
	for t, end := 0.0, c.RampUs+c.WindowUs; t < end; {
		step := c.StepUs * (1 + 0.012*r.NormFloat64())
		if r.IntN(900) == 0 {
			step += c.StepUs * 8 * r.Float64() // another request's prefill
		}
		t += max(step, c.StepUs/4)
		steps = append(steps, t)
	}
	ev := new(runlog.Events)
	ev.Key = c.Key
	at := r.IntN(1 << 20) // in the text
	skip := int(c.TTFTUs/c.StepUs) + 1
	for stream := range c.Key.Concurrency {
		request, seq, total := int32(0), int32(0), int32(0)
		last := float64(0)
		add := func(kind runlog.Kind, t float64) *runlog.Event {
			e := runlog.NewEvent(kind, c.StartUs+int64(max(t, last)))
			e.Stream, e.Request, e.Seq = stream, request, seq
			e.SameRead = kind != runlog.KindSent && seq > 1 && t <= last
			last = max(t, last)
			seq++
			return &e
		}
		for step := 0; step < len(steps); step++ {
			t := steps[step] + 3.5*float64(stream) + 3*r.ExpFloat64() + 22*r.ExpFloat64()
			if r.IntN(100) == 0 {
				t += 250 * r.ExpFloat64()
			}
			if seq == 0 { // the request is sent, and its first token comes some steps later
				ev.Append(*add(runlog.KindSent, t))
				step = min(step+skip, len(steps)-1)
				t += steps[step] - steps[max(0, step-skip)]
				headers := add(runlog.KindHeaders, t-60)
				headers.Status = 200
				ev.Append(*headers)
				role := add(runlog.KindChunk, t)
				role.HasText, role.Tokens, role.CompletionTokens, role.PromptTokens = true, 0, 0, c.Key.ContextTokens
				ev.Append(*role)
			}
			n := int32(1)
			for c.Tokens > 1 && n < 8 && r.Float64() > 1/c.Tokens {
				n++
			}
			n = min(n, c.MaxTokens-total)
			total += n
			e := add(runlog.KindChunk, t)
			e.Tokens, e.CompletionTokens, e.PromptTokens = n, total, c.Key.ContextTokens
			e.Channel, e.HasText, e.Text = runlog.ChannelContent, true, string(text.piece(at, int(n)))
			at += int(n)
			if total == c.MaxTokens {
				e.FinishReason = "length"
			}
			ev.Append(*e)
			if total == c.MaxTokens {
				usage := add(runlog.KindUsage, last)
				usage.Tokens, usage.CompletionTokens, usage.PromptTokens, usage.CachedTokens = 0, total, c.Key.ContextTokens, 0
				ev.Append(*usage)
				ev.Append(*add(runlog.KindDone, last))
				request, seq, total = request+1, 0, 0
				at += r.IntN(1 << 12)
			}
		}
		if seq > 0 {
			ev.Append(*add(runlog.KindCancelled, steps[len(steps)-1]+2000))
		}
	}
	return ev
}

// prefill makes up one sample of a prefill cell.
func (c Cell) prefill() *runlog.Events {
	ev := &runlog.Events{Key: c.Key}
	for i, kind := range []runlog.Kind{runlog.KindSent, runlog.KindHeaders, runlog.KindChunk, runlog.KindUsage, runlog.KindDone} {
		t := c.StartUs
		if i > 0 {
			t += int64(c.TTFTUs)
		}
		e := runlog.NewEvent(kind, t)
		e.Seq = int32(i)
		switch kind {
		case runlog.KindHeaders:
			e.Status = 200
		case runlog.KindChunk:
			e.Tokens, e.Channel, e.HasText, e.Text = 1, runlog.ChannelContent, true, "The"
		case runlog.KindUsage:
			e.Tokens, e.PromptTokens, e.CachedTokens, e.CompletionTokens = 0, c.Key.ContextTokens, 0, 1
		}
		ev.Append(e)
	}
	return ev
}

// Reference returns the cells of the reference run without speculation, of
// which a table of the renderer's tests says what was measured, in a
// repository at root.
func Reference(root string) ([]Cell, error) {
	f, err := os.Open(filepath.Join(root, "render", "testdata", "plain.tsv"))
	if err != nil {
		return nil, fmt.Errorf("read the reference cells: %w", err)
	}
	defer f.Close()
	var cells []Cell
	for s := bufio.NewScanner(f); s.Scan(); {
		col := strings.Split(s.Text(), "\t")
		if len(col) < 12 || strings.HasPrefix(col[0], "#") {
			continue
		}
		number := func(i int) float64 { v, _ := strconv.ParseFloat(col[i], 64); return v } // "-" is 0
		c := Cell{
			Key:    runlog.Key{Phase: runlog.Phase(col[0]), ContextTokens: int32(number(1)), Concurrency: int32(number(2))},
			TTFTUs: 1e3 * number(6), StepUs: 1e3 * number(7), Tokens: 1, MaxTokens: 4096,
			RampUs: 2e6, WindowUs: 1e6 * number(11), Seed: uint64(len(cells)), StartUs: int64(len(cells)) * 60e6,
			NotSent: col[3] == "Over capacity",
		}
		c.RampUs += c.TTFTUs
		cells = append(cells, c)
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("%s: no cells", f.Name())
	}
	return cells, nil
}

// Large returns cells of 512 streams and five minutes, about three million
// events each.
func Large(cells int) []Cell {
	list := make([]Cell, cells)
	for i := range list {
		list[i] = Cell{
			Key:    runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: int32(i+1) * 4096, Concurrency: 512},
			TTFTUs: 2e6, StepUs: 51_000, Tokens: 1, MaxTokens: 4096, RampUs: 6e6, WindowUs: 300e6,
			Seed: uint64(100 + i), StartUs: int64(i) * 400e6,
		}
	}
	return list
}

// Write makes a run up in the directory root/name and returns how many
// events it has.
func Write(root, name string, cells []Cell, text *Text) (events int, err error) {
	dir, err := runlog.Create(root, name)
	if err != nil {
		return 0, err
	}
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix", Version: "made up"},
		StartedAt: time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC), ArrivalClock: runlog.ArrivalKernel, Finished: true,
		Plan: runlog.Plan{
			PrefillRepeats: 1, PromptSet: "made up", Text: "full",
			Sampling:   runlog.Sampling{TopP: 1, IgnoreEOS: true},
			DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage",
		},
		Capacity: runlog.Capacity{KVCacheTokens: 12_000_000, Source: "kv_cache_size_tokens", Engines: 1},
	}
	var samples []runlog.Sample
	for _, c := range cells {
		planned := runlog.Cell{
			Phase: c.Key.Phase, ContextTokens: c.Key.ContextTokens, Concurrency: c.Key.Concurrency,
			Outcome: runlog.OutcomeRecorded, PromptTokens: c.Key.ContextTokens,
		}
		plan(&m.Plan, c)
		if c.NotSent {
			planned.Outcome = runlog.OutcomeOverCapacity
			m.Cells = append(m.Cells, planned)
			continue
		}
		var ev *runlog.Events
		if c.Key.Phase == runlog.PhasePrefill {
			ev = c.prefill()
		} else {
			ev = c.Events(text)
			open, shut := c.StartUs+int64(c.RampUs), c.StartUs+int64(c.RampUs+c.WindowUs)
			planned.WindowOpenUs, planned.WindowCloseUs = &open, &shut
			planned.Ready = &runlog.Ready{By: "metrics and streams", WaitedUs: int64(c.RampUs)}
			samples = append(samples, c.samples()...)
		}
		if planned.FileInfo, err = runlog.WriteEvents(dir, ev); err != nil {
			return 0, err
		}
		events += ev.Len()
		m.Cells = append(m.Cells, planned)
	}
	telemetry, err := runlog.WriteTelemetry(dir, samples)
	if err != nil {
		return 0, err
	}
	m.Telemetry = &telemetry
	return events, runlog.WriteManifest(dir, m)
}

// samples makes up what the server and the collector say each second.
func (c Cell) samples() (list []runlog.Sample) {
	for t := c.StartUs; t < c.StartUs+int64(c.RampUs+c.WindowUs); t += 1e6 {
		for _, s := range []runlog.Sample{
			{Source: runlog.SourceServer, Name: runlog.MetricRequestsRunning, Value: float64(c.Key.Concurrency)},
			{Source: runlog.SourceServer, Name: runlog.MetricRequestsWaiting},
			{Source: runlog.SourceServer, Name: runlog.MetricPreemptions},
			{Source: runlog.SourceClient, Name: runlog.MetricChunks, Value: float64(t) / c.StepUs * float64(c.Key.Concurrency)},
			{Source: runlog.SourceClient, Name: runlog.MetricLateSharedChunks},
			{Source: runlog.SourceGPU, Name: runlog.MetricPowerW, Value: 412.5},
		} {
			s.TUs = t
			list = append(list, s)
		}
	}
	return list
}

// plan adds a cell to what was planned.
func plan(p *runlog.Plan, c Cell) {
	add := func(list *[]int32, v int32) {
		for _, w := range *list {
			if w == v {
				return
			}
		}
		*list = append(*list, v)
	}
	p.MaxOutputTokens = max(p.MaxOutputTokens, c.MaxTokens)
	if c.Key.Phase == runlog.PhasePrefill {
		add(&p.PrefillContextsTokens, c.Key.ContextTokens)
		return
	}
	p.DurationUs = max(p.DurationUs, int64(c.WindowUs))
	add(&p.ContextsTokens, c.Key.ContextTokens)
	add(&p.Concurrency, c.Key.Concurrency)
}
