package runlog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// words are the pieces of generated text; some are not ASCII, one is empty.
var words = []string{" the", " server", "s", ",", " écrit", " 日本語", "\n", "", " 🙂", " a", " of", " tokens", "\"", "<b>", " and"}

// randomEvents returns events that keep every rule, with every kind of row
// and every column's null and not null, the same for the same seed.
func randomEvents(seed uint64, key Key, requests int) *Events {
	r := rand.New(rand.NewPCG(seed, 1))
	ev := &Events{Key: key}
	for i := range requests {
		stream := int32(i * int(key.Concurrency) / requests)
		request := int32(i - (int(stream)*requests+int(key.Concurrency)-1)/int(key.Concurrency))
		t := r.Int64N(1e9)
		seq := int32(0)
		add := func(e Event) {
			e.Stream, e.Request, e.Seq = stream, request, seq
			if seq > 1 && r.IntN(8) == 0 {
				e.SameRead = true
			} else {
				t += r.Int64N(20_000)
			}
			e.TUs = t
			ev.Append(e)
			seq++
		}
		add(NewEvent(KindSent, 0))
		if r.IntN(20) == 0 {
			continue // never finished
		}
		headers := NewEvent(KindHeaders, 0)
		headers.Status = 200
		add(headers)
		total := int32(0)
		for c := range r.IntN(30) {
			e := NewEvent(KindChunk, 0)
			if e.HasText = r.IntN(10) > 0; e.HasText {
				e.Text = words[r.IntN(len(words))]
				e.Channel = Channel(1 + r.IntN(4))
			}
			if r.IntN(5) > 0 {
				e.Tokens = int32(r.IntN(4))
				total += e.Tokens
				e.CompletionTokens = total
				e.PromptTokens = key.ContextTokens
			}
			if c == 29 || r.IntN(30) == 0 {
				e.FinishReason = []string{"stop", "length"}[r.IntN(2)]
			}
			add(e)
		}
		switch r.IntN(4) {
		case 0:
			usage := NewEvent(KindUsage, 0)
			usage.PromptTokens, usage.CachedTokens, usage.CompletionTokens, usage.Tokens = 8192, int32(r.IntN(9000)), total, 0
			add(usage)
			add(NewEvent(KindDone, 0))
		case 1:
			e := NewEvent(KindError, 0)
			e.Status, e.Error = 500+int32(r.IntN(4)), "engine stopped: "+words[r.IntN(len(words))]
			add(e)
		case 2:
			add(NewEvent(KindCancelled, 0))
		}
	}
	return ev
}

// decodeKey is the key of most tests.
var decodeKey = Key{PhaseDecode, 8192, 4}

// smallEvents returns about 150 rows.
func smallEvents() *Events { return randomEvents(7, decodeKey, 10) }

// cellEvents returns events such as a decode cell has: chunks with running
// usage, engine steps shared by all streams, text of words, 2,048 chunks a
// request. A chunk has one token, or under speculation up to most.
func cellEvents(seed uint64, rows, most int) *Events {
	const streams, perRequest = 16, 2048
	r := rand.New(rand.NewPCG(seed, 2))
	ev := &Events{Key: Key{PhaseDecode, 8192, streams}}
	vocabulary := make([]string, 4000)
	for i := range vocabulary {
		var b strings.Builder
		if r.IntN(4) > 0 {
			b.WriteByte(' ')
		}
		for range 1 + r.IntN(6) {
			b.WriteByte("etaoinshrdlucmfwypvbgkjqxz"[min(25, int(r.ExpFloat64()*6))])
		}
		vocabulary[i] = b.String()
	}
	perStream := rows / streams
	steps := make([]float64, perStream+1) // instants of the engine's steps, shared by all streams
	for i := 1; i < len(steps); i++ {
		steps[i] = steps[i-1] + 12_000*(1+0.012*r.NormFloat64())
	}
	for stream := range int32(streams) {
		request, seq, total := int32(0), int32(0), int32(0)
		t := int64(0)
		for i := range perStream {
			switch {
			case seq == 0:
				e := NewEvent(KindSent, int64(steps[i]))
				e.Stream, e.Request = stream, request
				ev.Append(e)
			case seq == 1:
				e := NewEvent(KindHeaders, int64(steps[i]))
				e.Stream, e.Request, e.Seq, e.Status = stream, request, seq, 200
				ev.Append(e)
			default:
				tokens := 1
				for tokens < most && r.IntN(3) > 0 {
					tokens++
				}
				total += int32(tokens)
				e := NewEvent(KindChunk, max(t, int64(steps[i]+3.5*float64(stream)+22*r.ExpFloat64())))
				e.Stream, e.Request, e.Seq = stream, request, seq
				e.Tokens, e.CompletionTokens, e.PromptTokens = int32(tokens), total, 8192
				e.Channel, e.HasText = ChannelContent, true
				for range tokens {
					e.Text += vocabulary[min(len(vocabulary)-1, int(8*(1/(1-r.Float64())-1)))] // Zipf
				}
				ev.Append(e)
			}
			t = ev.TUs[ev.Len()-1]
			if seq++; seq == perRequest {
				request, seq, total = request+1, 0, 0
			}
		}
	}
	return ev
}

// someSamples returns samples that keep every rule, in file order.
func someSamples() []Sample {
	var samples []Sample
	for _, series := range []struct {
		source Source
		name   string
		index  int32
	}{
		{SourceClient, MetricCPURatio, 0}, {SourceGPU, MetricPowerW, 0}, {SourceGPU, MetricPowerW, 1},
		{SourceServer, MetricKVCacheUsage, 0}, {SourceServer, MetricRequestsRunning, 0},
	} {
		for s := range 20 {
			samples = append(samples, Sample{TUs: int64(s) * 1_000_003, Source: series.source, Name: series.name,
				Index: series.index, Value: float64(s*s) / 7})
		}
	}
	return samples
}

// someManifest returns a manifest in which nearly every key stands. Its
// files are those of writeRun.
func someManifest() *Manifest {
	fact := func(v string) *Fact { return &Fact{Value: v, Source: FromServer} }
	us := func(n int64) *int64 { return &n }
	yes := true
	sum := strings.Repeat("0123456789abcdef", 4)
	file := func(k Key) FileInfo { return FileInfo{File: k.File(), Rows: 3, Bytes: 4000, SHA256: sum} }
	m := &Manifest{
		Format:    Format,
		Tool:      Tool{Name: "speedmatrix", Version: "0.1.0"},
		StartedAt: time.Date(2026, 11, 29, 10, 15, 0, 123456000, time.UTC), ArrivalClock: ArrivalKernel,
		ResumedUs: []int64{90_000_000, 120_000_000},
		Launch:    Launch{Group: "night", Index: 1, Order: 2, Restarted: &yes},
		Engine: Engine{
			Name: fact("vllm"), Version: fact("0.30.1rc1.dev452+g73a583112"), Commit: fact("73a5831127a9e0f7d8c1"),
			LaunchCommand: &Command{Args: []string{"vllm", "serve", "--api-key", "<redacted>"}, Source: FromProcess},
			Environment:   &Environment{Variables: map[string]string{"VLLM_USE_V1": "1", "CUDA_VISIBLE_DEVICES": "0"}, Source: FromProcess},
		},
		Model:    Model{Repository: "google/gemma-4-E2B-it", Revision: "main", ServedName: "gemma", MaxModelLenTokens: 131072},
		Hardware: Hardware{Type: "Discrete GPU", GPUs: []GPU{{Name: "NVIDIA RTX PRO 6000", VRAMBytes: 96 << 30, PowerLimitW: 600}}, OS: "linux"},
		Server:   Server{Address: "loopback", Metrics: "available"},
		Plan: Plan{
			ContextsTokens: []int32{8192, 16384}, Concurrency: []int32{1, 2}, PrefillContextsTokens: []int32{8192},
			DurationUs: 30e6, MaxOutputTokens: 4096, PrefillRepeats: 1,
			Order: []string{"decode-8192-c1", "prefill-8192"}, Seed: 1, Salt: "5f3c", PromptSet: "a1b2",
			Sampling:   Sampling{Temperature: 0, TopP: 1, IgnoreEOS: true},
			DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage", Text: "full",
		},
		Capacity:  Capacity{KVCacheTokens: 500_000, Source: "kv_cache_size_tokens", Engines: 1, Raw: map[string]string{"block_size": "16", "a<b": "&"}},
		Warmup:    &Warmup{ContextTokens: 16384, FileInfo: FileInfo{File: "cells/warmup.parquet", Rows: 2, Bytes: 3900, SHA256: sum}},
		Telemetry: &Telemetry{FileInfo{File: TelemetryFile, Rows: 100, Bytes: 2000, SHA256: sum}},
		Cells: []Cell{
			{Phase: PhasePrefill, ContextTokens: 8192, Concurrency: 1, Outcome: OutcomeRecorded, FileInfo: file(Key{PhasePrefill, 8192, 1}), PromptTokens: 8192},
			{Phase: PhaseDecode, ContextTokens: 8192, Concurrency: 1, Outcome: OutcomeRecorded, FileInfo: file(Key{PhaseDecode, 8192, 1}),
				PromptTokens: 8192, WindowOpenUs: us(5_000_000), WindowCloseUs: us(35_000_000),
				Ready: &Ready{By: "metrics and streams", WaitedUs: 3_100_000}, Notes: []string{"prompt is <short> & \"odd\" 日本語"}},
			{Phase: PhaseDecode, ContextTokens: 8192, Concurrency: 2, Outcome: OutcomeFailed, Reason: "server busy"},
			{Phase: PhaseDecode, ContextTokens: 16384, Concurrency: 1, Outcome: OutcomePending},
			{Phase: PhaseDecode, ContextTokens: 16384, Concurrency: 2, Outcome: OutcomeOverCapacity},
		},
	}
	return m
}

// copyManifest returns a deep copy.
func copyManifest(t testing.TB, m *Manifest) *Manifest {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	c := new(Manifest)
	if err := json.Unmarshal(data, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// newRun makes an empty run directory.
func newRun(t testing.TB) string {
	t.Helper()
	dir, err := Create(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// tree lists the files below dir, with their sizes.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			fmt.Fprintf(&b, "%s %d\n", filepath.ToSlash(rel), info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
