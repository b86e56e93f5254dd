package main_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/simserver"
)

// A setting is everything that is drawn for one run of TestGroundTruth. What
// the server does to a request is drawn with it.
type setting struct {
	seed  uint64
	Theme string

	sim        simserver.Config
	Base       []string // fault items that hold for every request
	Act        string   // the fault that only some requests meet
	ByHeader   bool     // … told in their header; else by Config.Fault
	Every      int      // of Config.Fault
	HitStreams float64  // share of the streams' requests that meet Act, by header
	HitScouts  float64  // … of the scouts

	NoTokenIDs bool // the server does not know return_token_ids
	NoCapacity bool // its metrics do not tell the size of the KV cache
	Warmed     bool // another client sends each prompt first

	Plan       collect.PlanRequest
	MaxNumSeqs int32 // as told to the collector
	Idle       time.Duration
	ReadyLimit time.Duration
	grace      time.Duration // between the engine's death and that of its HTTP server

	warm bool // the warm-up has come
}

func (s *setting) String() string {
	c := s.sim
	c.Truth = nil
	return fmt.Sprintf("%+v\nsimulator %+v", *s, c)
}

// header returns the fault header of a request.
func (s *setting) header(rng *rand.Rand, tr *truthRequest) string {
	if !s.ByHeader {
		return ""
	}
	items, hit := slices.Clone(s.Base), rng.Float64() // one number for each request, whatever it is
	switch {
	case tr.seed == requestSeed(s.Plan.Seed, 0, 0, 0, 0): // a probe, or the calibration of prompts
	case tr.maxTokens == 1:
		if hit < s.HitScouts {
			items = append(items, s.Act)
		}
	case !s.warm:
		s.warm = true
	case hit < s.HitStreams:
		items = append(items, s.Act)
	}
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ",")
}

// requestSeed is the sampling seed that the collector gives a request, the
// same for the same place in the plan. By it requests are told apart here.
func requestSeed(seed int64, context, concurrency int32, stream, request int) int64 {
	h := uint64(seed)*0x9E3779B97F4A7C15 + uint64(context)<<40 + uint64(concurrency)<<28 + uint64(stream)<<14 + uint64(request)
	h ^= h >> 31
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 29
	return int64(h & 0x7fffffff)
}

// drawSetting returns the setting of a seed.
func drawSetting(seed uint64) setting {
	r := rand.New(rand.NewPCG(seed, 1))
	chance := func(p float64) bool { return r.Float64() < p }
	between := func(lo, hi int) int { return lo + r.IntN(hi-lo+1) }
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	ms := func(lo, hi int) time.Duration { return time.Duration(between(lo*1000, hi*1000)) * time.Microsecond }

	s := setting{seed: seed, Idle: 5 * time.Second, ReadyLimit: 2500 * time.Millisecond, grace: ms(50, 800), ByHeader: chance(0.5)}
	s.Theme = one("plain", "plain", "usage", "usage", "usage of some", "break", "break", "break", "break", "hang", "stall",
		"refuse", "too much", "early", "early", "die", "loop", "loop", "over", "over", "pressure", "starved", "cached", "blind")

	c := simserver.Config{
		Seed: seed, MaxModelLen: 4096, KVCacheTokens: 64 << 10, PrefillSpeed: 60000,
		StepBase: ms(2, 6), Jitter: 0.3 * r.Float64(), CachedTokens: chance(0.5), MetricsLag: chance(0.3),
		UsageByDefault: chance(0.2), StrictLength: chance(0.2), NoCacheSize: chance(0.2), MergeDeltas: chance(0.3),
	}
	if chance(0.2) {
		c.Frontend = simserver.Rust
	}
	if chance(0.3) {
		c.StallShare, c.StallTime = 0.03, ms(10, 60)
	}
	if chance(0.4) {
		c.DraftTokens = between(1, 6)
	}
	if chance(0.3) {
		c.StreamInterval = between(2, 12)
	}
	if chance(0.3) {
		c.ReasoningTokens, c.ReasoningField = between(1, 40), simserver.ReasoningField(r.IntN(3))
	}
	if chance(0.4) {
		c.NonASCII = 0.4
		if chance(0.5) {
			s.Base = append(s.Base, "split-utf8")
		}
	}
	if chance(0.3) {
		c.EmptyTokens = 0.3 * r.Float64()
	}
	if chance(0.25) {
		c.Engines = between(2, 3)
	}
	if chance(0.2) {
		c.Metrics = simserver.MetricsMode(between(1, 2))
	}
	if chance(0.15) {
		c.NoTokenizeRoute = true
	}
	for _, item := range []string{"crlf", "no-space", "keep-alive=4ms", fmt.Sprintf("dribble=%d", between(60, 400))} {
		if chance(0.12) {
			s.Base = append(s.Base, item)
		}
	}

	contexts := []int32{int32(between(220, 1200))}
	if chance(0.35) {
		contexts = append(contexts, contexts[0]+int32(between(50, 500)))
	}
	concurrency := []int32{int32(between(1, 8))}
	if chance(0.5) {
		concurrency = append(concurrency, int32(between(1, 8)))
	}
	s.Plan = collect.PlanRequest{
		ContextsTokens: contexts, Concurrency: concurrency, Duration: ms(150, 400), MaxOutputTokens: int32(between(15, 400)),
		PrefillRepeats: int32(between(1, 3)), Seed: int64(between(1, 1000)), SamplingSeeds: true,
	}
	if chance(0.1) {
		s.Plan.Text = one("hash", "none")
	}
	largest := int(slices.Max(contexts) + s.Plan.MaxOutputTokens)

	after := between(0, 25)
	s.HitStreams, s.HitScouts, s.Every = 0.1+0.4*r.Float64(), 0, between(4, 12)
	if chance(0.3) {
		s.HitScouts = 0.3
	}
	switch s.Theme {
	case "usage":
		usage := one("none", "final", "deltas", "chunks", "wrong")
		s.Base = append(s.Base, "usage="+usage)
		s.NoTokenIDs = chance(0.5)
		c.NoTokenizeRoute = c.NoTokenizeRoute && usage != "none"
	case "usage of some":
		s.Act = "usage=" + one("none", "final", "deltas", "chunks", "wrong")
	case "break":
		s.Act = fmt.Sprintf("%s-after=%d", one("error", "empty-error", "truncate", "close", "reset", "abort"), after)
	case "hang":
		s.Act = one(fmt.Sprintf("hang-after=%d", after), "hang-before")
		s.Idle = ms(350, 600)
	case "stall":
		s.Idle = ms(350, 500)
		s.Act = fmt.Sprintf("stall=%d:%v", after, one("40ms", "100ms", "900ms"))
	case "refuse":
		s.Act = one("close-before", "reset-before", "status="+one("400", "429", "500", "503")+",body="+one("object", "flat", "string", "html", "empty"))
	case "too much":
		s.Act = "ignore-max-tokens"
		c.MaxModelLen, s.Plan.MaxOutputTokens = largest+between(5, 200), int32(between(10, 60))
	case "early":
		c.AnswerTokens = between(5, 80)
		switch r.IntN(3) {
		case 0:
			s.Base = append(s.Base, "reject-ignore-eos")
		case 1:
			s.Base = append(s.Base, "ignore-ignore-eos")
		case 2:
			s.Act, s.Every = "ignore-ignore-eos", between(2, 4)
		}
	case "die":
		s.Act, s.HitStreams, s.Every = fmt.Sprintf("die-after=%d", after), 0.1, between(8, 40)
	case "loop":
		c.Loop.Period = between(5, 48)
		c.Loop.After, c.Loop.MinBatch = c.Loop.Period+between(0, 60), []int{0, 0, 2, 3}[r.IntN(4)]
		if chance(0.3) {
			c.Loop.Context = int(contexts[0])
		}
		c.StepBase, c.DraftTokens, c.StreamInterval = ms(1, 2), between(5, 8), between(4, 24)
		c.MaxModelLen, s.Plan.MaxOutputTokens, s.Plan.Duration = 8192, int32(between(1000, 2600)), ms(400, 700)
		for i := range s.Plan.Concurrency {
			s.Plan.Concurrency[i] = min(4, s.Plan.Concurrency[i])
		}
	case "over":
		c.MaxModelLen = (largest + 15) / 16 * 16
		c.KVCacheTokens = max(c.MaxModelLen+16, between(1, 6)*largest+between(0, 300))
		if chance(0.3) {
			c.MaxNumSeqs = between(1, 4)
			s.MaxNumSeqs = int32(c.MaxNumSeqs)
		}
	case "pressure":
		s.NoCapacity = true
		s.Plan.MaxOutputTokens = int32(between(150, 400))
		largest = int(slices.Max(contexts) + s.Plan.MaxOutputTokens)
		c.MaxModelLen = (largest + 15) / 16 * 16
		c.KVCacheTokens = c.MaxModelLen + 16 + between(0, 2)*int(s.Plan.MaxOutputTokens)
		s.Plan.Concurrency = []int32{int32(between(3, 8))}
	case "starved":
		s.Plan.Concurrency = append(s.Plan.Concurrency, 8)
		c.MaxNumSeqs = between(1, 4)
		s.ReadyLimit = time.Second
	case "cached":
		s.Warmed = true
	case "blind":
		c.Metrics = simserver.MetricsMode(between(int(simserver.MetricsNone), int(simserver.MetricsHTML)))
	}
	if !s.ByHeader || s.Act == "" && len(s.Base) > 0 && chance(0.5) {
		s.ByHeader = false
		items := slices.Clone(s.Base)
		if s.Act != "" {
			items = append(items, s.Act, fmt.Sprintf("every=%d", s.Every))
		}
		var err error
		if c.Fault, err = simserver.ParseFault(strings.Join(items, ",")); err != nil {
			panic(err)
		}
	}
	s.sim = c
	return s
}
