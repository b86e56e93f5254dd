package compare

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// plain is a run of one launch, begun minutes after the first, in which
// nothing is wrong: every cell Valid, with the figures of a machine that
// slows down with context and concurrency.
func plain(minutes int, contexts, concurrency, prefill []int32) *ingest.Run {
	fact := func(v string) *runlog.Fact { return &runlog.Fact{Value: v, Source: runlog.FromServer} }
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix", Version: "1"}, ArrivalClock: runlog.ArrivalKernel, Finished: true,
		StartedAt: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute),
		Engine: runlog.Engine{
			Name: fact("vllm"), Version: fact("0.30.1"), Commit: fact("73a5831127a9"), Build: fact("cuda-13.2"), Backend: fact("cuda"), Quantization: fact("BF16"),
			LaunchCommand: &runlog.Command{Args: []string{"vllm", "serve", "org/tiny"}, Source: runlog.FromProcess},
		},
		Model: runlog.Model{Repository: "org/tiny", Revision: "main", WeightsDigest: "sha256:aa", MaxModelLenTokens: 40_960},
		Hardware: runlog.Hardware{
			Type: "Discrete GPU", GPUs: []runlog.GPU{{Name: "H200", VRAMBytes: 141 << 30, Driver: "580.95", PowerLimitW: 700}},
			CPU: "Xeon", MemoryBytes: 1 << 37, OS: "linux", Kernel: "6.8",
		},
		Server: runlog.Server{Address: "loopback", Metrics: "available"},
		Plan: runlog.Plan{
			ContextsTokens: contexts, Concurrency: concurrency, PrefillContextsTokens: prefill, DurationUs: 30_000_000, MaxOutputTokens: 4096,
			PrefillRepeats: 1, Seed: 1, Salt: fmt.Sprint("salt ", minutes), PromptSet: "p1", Sampling: runlog.Sampling{Temperature: 1, TopP: 1, IgnoreEOS: true},
			DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage", PromptCounting: "exact", Text: "full",
		},
		Capacity: runlog.Capacity{KVCacheTokens: 500_000, Engines: 1, MaxNumSeqs: 256},
		Warmup:   &runlog.Warmup{ContextTokens: 131072},
	}
	r := &ingest.Run{ID: fmt.Sprintf("run-%04d", minutes), Manifest: m}
	for _, k := range m.Plan.Keys() {
		c := ingest.Cell{Cell: runlog.Cell{Phase: k.Phase, ContextTokens: k.ContextTokens, Concurrency: k.Concurrency, Outcome: runlog.OutcomeRecorded, PromptTokens: k.ContextTokens}}
		load := float64(k.ContextTokens)/8192 + float64(k.Concurrency)/16
		if k.Phase == runlog.PhasePrefill {
			c.Figures.PrefillTokPerS = ingest.Stat{Value: 16_000 / load, N: 1}
			r.Prefill = append(r.Prefill, c)
		} else {
			each := 200 / (1 + load)
			c.Figures.TotalTokPerS = ingest.Stat{Value: each * float64(k.Concurrency), N: 1000}
			c.Figures.PerRequestTokPerS = ingest.Stat{Value: each, N: int(k.Concurrency)}
			c.Figures.BetweenTokensUs = ingest.Stat{Value: 1e6 / each, N: int(k.Concurrency)}
			c.Figures.TTFTUs = ingest.Stat{Value: 200_000 * load, N: int(k.Concurrency)}
			c.Figures.TokensPerEvent = ingest.Stat{Value: 1, N: 1000}
			r.Decode = append(r.Decode, c)
		}
		m.Cells = append(m.Cells, c.Cell)
	}
	return r
}

// matrix is the plan of most tests, of the size of a real one: 40 decode
// cells and 7 prefill cells.
func matrix(minutes int) *ingest.Run {
	return plain(minutes, []int32{8192, 16384, 32768, 65536, 131072}, []int32{1, 2, 4, 8, 16, 32, 64, 128},
		[]int32{8192, 16384, 32768, 65536, 131072, 196608, 257024})
}

// figures calls yield with every figure that is compared, by cell.
func figures(r *ingest.Run, yield func(m Metric, c *ingest.Cell, s *ingest.Stat)) {
	for i := range r.Decode {
		c := &r.Decode[i]
		yield(Decode, c, &c.Figures.TotalTokPerS)
		yield(TTFT, c, &c.Figures.TTFTUs)
		yield(PerRequest, c, &c.Figures.PerRequestTokPerS)
		yield(BetweenTokens, c, &c.Figures.BetweenTokensUs)
	}
	for i := range r.Prefill {
		c := &r.Prefill[i]
		yield(Prefill, c, &c.Figures.PrefillTokPerS)
	}
}

// noisy changes every figure by a little.
func noisy(r *ingest.Run, seed uint64, share float64) *ingest.Run {
	g := rand.New(rand.NewPCG(seed, 7))
	launch := 1 + share*g.NormFloat64()
	figures(r, func(_ Metric, _ *ingest.Cell, s *ingest.Stat) { s.Value *= launch * (1 + share*g.NormFloat64()) })
	return r
}

// launches are n runs with noise of 0.2 %, begun minutes after the first and
// then every step minutes.
func launches(n, minutes, step int, change func(*ingest.Run)) Side {
	var s Side
	for i := range n {
		r := noisy(matrix(minutes+i*step), uint64(minutes+i*step), 0.002)
		if change != nil {
			change(r)
		}
		s.Runs = append(s.Runs, r)
	}
	return s
}

// pair is an A/A pair of n interleaved launches each, the second of which
// may be changed.
func pair(n int, change func(*ingest.Run)) (a, b Side) {
	return launches(n, 0, 20, nil), launches(n, 10, 20, func(r *ingest.Run) {
		r.Manifest.Engine.Commit = &runlog.Fact{Value: "9f2c41e07b55", Source: runlog.FromServer}
		if change != nil {
			change(r)
		}
	})
}

// scale multiplies a metric of one cell, or of all where context is 0.
func scale(m Metric, context, concurrency int32, by float64) func(*ingest.Run) {
	return func(r *ingest.Run) {
		figures(r, func(of Metric, c *ingest.Cell, s *ingest.Stat) {
			if of == m && (context == 0 || c.ContextTokens == context && c.Concurrency == concurrency) {
				s.Value *= by
			}
		})
	}
}

func mustCompare(t testing.TB, a, b Side, change func(*Options)) *Report {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	r, err := Compare(a, []Side{b}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cellOf returns a cell of the only diff of a report.
func cellOf(t testing.TB, r *Report, m Metric, context, concurrency int32) *CellDiff {
	t.Helper()
	for i := range r.Diffs[0].Metrics[m].Cells {
		if c := &r.Diffs[0].Metrics[m].Cells[i]; c.ContextTokens == context && c.Concurrency == concurrency {
			return c
		}
	}
	t.Fatalf("no %v cell %d × %d", m, context, concurrency)
	return nil
}
