package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

// A launchSpec is a run log with exact events, of a server whose speed is
// known: what differs between launches is drawn from a seeded generator.
type launchSpec struct {
	minutes  int                      // start, after the first of all launches
	commit   string                   // "": 73a5831127a9
	noise    float64                  // standard deviation of a launch and, likewise, of a cell; 0: 0.2 %
	contexts []int32                  // nil: 8K, 32K, 128K
	prefill  []int32                  // nil: the first context
	levels   []int32                  // concurrency; nil: 1, 2
	speed    func(runlog.Key) float64 // factor; nil: 1 for all cells
	change   func(*runlog.Manifest)   // before it is written; nil: nothing
}

// writeLaunch writes a run and returns its directory.
func writeLaunch(t testing.TB, root string, s launchSpec) string {
	t.Helper()
	if s.commit == "" {
		s.commit = "73a5831127a9"
	}
	if s.noise == 0 {
		s.noise = 0.002
	}
	if s.contexts == nil {
		s.contexts = []int32{8192, 32768, 131072}
	}
	if s.prefill == nil {
		s.prefill = s.contexts[:1]
	}
	if s.levels == nil {
		s.levels = []int32{1, 2}
	}
	fact := func(v string) *runlog.Fact { return &runlog.Fact{Value: v, Source: runlog.FromServer} }
	const windowUs = 6_000_000
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix", Version: "1"}, ArrivalClock: runlog.ArrivalKernel, Finished: true,
		StartedAt: time.Date(2026, 11, 29, 23, 30, 0, 0, time.UTC).Add(time.Duration(s.minutes) * time.Minute),
		Engine: runlog.Engine{
			Name: fact("vllm"), Version: fact("0.30.1"), Commit: fact(s.commit), Backend: fact("cuda"), Quantization: fact("BF16"),
			LaunchCommand: &runlog.Command{Args: []string{"vllm", "serve", "org/tiny"}, Source: runlog.FromProcess},
		},
		Model:    runlog.Model{Repository: "org/tiny", ServedName: "tiny", Revision: "main", WeightsDigest: "sha256:aa", MaxModelLenTokens: 262144},
		Hardware: runlog.Hardware{Type: "Discrete GPU", GPUs: []runlog.GPU{{Name: "NVIDIA H200", VRAMBytes: 141 << 30, Driver: "580.95", PowerLimitW: 700}}, OS: "linux"},
		Server:   runlog.Server{Address: "loopback", Metrics: "available"},
		Plan: runlog.Plan{
			ContextsTokens: s.contexts, Concurrency: s.levels, PrefillContextsTokens: s.prefill, DurationUs: windowUs, MaxOutputTokens: 4096, PrefillRepeats: 1,
			Seed: 1, Salt: fmt.Sprintf("%032x", s.minutes), PromptSet: "p1", Sampling: runlog.Sampling{Temperature: 1, TopP: 1, IgnoreEOS: true},
			DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "token ids", PromptCounting: "exact", Text: "none",
		},
		Capacity: runlog.Capacity{KVCacheTokens: 4 << 20, Engines: 1, MaxNumSeqs: 256},
	}
	dir, err := runlog.Create(root, fmt.Sprintf("%s-%04d", s.commit, s.minutes))
	if err != nil {
		t.Fatal(err)
	}
	g := rand.New(rand.NewPCG(uint64(s.minutes), 5))
	launch := 1 + s.noise*g.NormFloat64()
	at := int64(1_000_000) // where the next cell begins
	for _, k := range m.Plan.Keys() {
		speed := launch * (1 + s.noise*g.NormFloat64())
		if s.speed != nil {
			speed *= s.speed(k)
		}
		c := runlog.Cell{Phase: k.Phase, ContextTokens: k.ContextTokens, Concurrency: k.Concurrency, Outcome: runlog.OutcomeRecorded, PromptTokens: k.ContextTokens}
		load := 1 + float64(k.ContextTokens)/65536 + float64(k.Concurrency)/8
		step, first := 10_000*load/speed, 200_000*load/speed
		events := &runlog.Events{Key: k}
		var end int64
		if k.Phase == runlog.PhasePrefill {
			end = prefillRequest(events, at, int64(first*10))
		} else {
			open := at + int64(first) + 100_000
			end = open + windowUs
			c.WindowOpenUs, c.WindowCloseUs = &open, &end
			for stream := range k.Concurrency {
				decodeRequest(events, stream, at, first, step, end)
			}
		}
		if c.FileInfo, err = runlog.WriteEvents(dir, events); err != nil {
			t.Fatal(err)
		}
		m.Cells = append(m.Cells, c)
		at = end + 1_000_000
	}
	if s.change != nil {
		s.change(m)
	}
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

// appendRow adds the next row of a request.
func appendRow(ev *runlog.Events, stream int32, seq *int32, kind runlog.Kind, tUs int64, change func(*runlog.Event)) {
	e := runlog.NewEvent(kind, tUs)
	e.Stream, e.Seq = stream, *seq
	*seq++
	switch kind {
	case runlog.KindHeaders:
		e.Status = 200
	case runlog.KindChunk:
		e.Tokens, e.Channel = 1, runlog.ChannelContent
	}
	if change != nil {
		change(&e)
	}
	ev.Append(e)
}

// prefillRequest is one request for one token.
func prefillRequest(ev *runlog.Events, at, ttft int64) (end int64) {
	seq := int32(0)
	appendRow(ev, 0, &seq, runlog.KindSent, at, nil)
	appendRow(ev, 0, &seq, runlog.KindHeaders, at+1000, nil)
	appendRow(ev, 0, &seq, runlog.KindChunk, at+ttft, func(e *runlog.Event) { e.FinishReason = "length" })
	appendRow(ev, 0, &seq, runlog.KindUsage, at+ttft, func(e *runlog.Event) {
		e.PromptTokens, e.CachedTokens, e.CompletionTokens = ev.Key.ContextTokens, 0, 1
	})
	appendRow(ev, 0, &seq, runlog.KindDone, at+ttft, nil)
	return at + ttft
}

// decodeRequest is one request that is stopped at the end of the window.
func decodeRequest(ev *runlog.Events, stream int32, at int64, first, step float64, end int64) {
	seq := int32(0)
	appendRow(ev, stream, &seq, runlog.KindSent, at, nil)
	appendRow(ev, stream, &seq, runlog.KindHeaders, at+1000, nil)
	for i := 0; ; i++ {
		t := at + int64(first+float64(i)*step)
		if t >= end {
			break
		}
		appendRow(ev, stream, &seq, runlog.KindChunk, t, nil)
	}
	appendRow(ev, stream, &seq, runlog.KindCancelled, end, nil)
}

// launchSides writes n launches of A and of B, in turn, below root, and
// returns their directories: root/a and root/b. b changes those of B.
func launchSides(t testing.TB, root string, n int, b func(*launchSpec)) (sideA, sideB string) {
	t.Helper()
	sideA, sideB = filepath.Join(root, "a"), filepath.Join(root, "b")
	for i := range n {
		writeLaunch(t, sideA, launchSpec{minutes: 20 * i})
		s := launchSpec{minutes: 20*i + 10, commit: "9f2c41e07b55"}
		if b != nil {
			b(&s)
		}
		writeLaunch(t, sideB, s)
	}
	return sideA, sideB
}

// slower makes one decode cell slower, or faster.
func slower(context, concurrency int32, by float64) func(*launchSpec) {
	return func(s *launchSpec) {
		s.speed = func(k runlog.Key) float64 {
			if k.Phase == runlog.PhaseDecode && k.ContextTokens == context && k.Concurrency == concurrency {
				return by
			}
			return 1
		}
	}
}
