package simserver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A lab drives an engine with a clock of its own.
type lab struct {
	t     *testing.T
	e     *engine
	now   time.Time
	steps []time.Duration
	made  map[string][]emission
}

func newLab(t *testing.T, cfg Config) *lab {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return &lab{t: t, e: newEngine(cfg.withDefaults(), 0), now: time.Unix(1000, 0), made: map[string][]emission{}}
}

// add queues a request for out tokens over a prompt that is the same for the
// same text.
func (l *lab) add(name, text string, prompt, out int) *sequence {
	ids := make([]int32, prompt)
	for i := range ids {
		ids[i] = int32(hashString(uint64(i), text) % tokenLimit)
	}
	hashes, all := blockHashes(ids, l.e.cfg.BlockSize, 0)
	s := &sequence{
		prompt: prompt, hashes: hashes, max: out, every: l.e.cfg.StreamInterval, arrived: l.now,
		accept: rand.New(rand.NewPCG(all, 1)),
		sink:   func(em emission) { l.made[name] = append(l.made[name], em) },
	}
	l.e.add(s)
	return s
}

// step runs one step and reports whether there was one.
func (l *lab) step() bool {
	l.t.Helper()
	d, ok := l.e.begin(l.now)
	if !ok {
		return false
	}
	l.steps = append(l.steps, d)
	l.now = l.now.Add(d)
	l.e.end(l.now)
	l.check()
	return true
}

// drain runs steps until there is nothing to do.
func (l *lab) drain() {
	l.t.Helper()
	for range 100000 {
		if !l.step() {
			return
		}
	}
	l.t.Fatal("the engine does not come to an end")
}

// check holds what must be true after each step.
func (l *lab) check() {
	l.t.Helper()
	p := l.e.pool
	if len(l.e.running) > l.e.cfg.MaxNumSeqs {
		l.t.Fatalf("%d requests run, want at most %d", len(l.e.running), l.e.cfg.MaxNumSeqs)
	}
	if len(p.blocks) > 1000 {
		return // too slow to look at each block
	}
	refs := map[int32]int32{}
	for _, s := range l.e.running {
		for _, b := range s.held {
			refs[b]++
		}
		if need := (s.computed + l.e.cfg.BlockSize - 1) / l.e.cfg.BlockSize; len(s.held) < need {
			l.t.Fatalf("a request with %d computed tokens holds %d blocks, want %d", s.computed, len(s.held), need)
		}
	}
	for i := 1; i < len(p.blocks); i++ {
		if p.blocks[i].refs != refs[int32(i)] {
			l.t.Fatalf("block %d has %d references, want %d", i, p.blocks[i].refs, refs[int32(i)])
		}
	}
	if p.used() != len(refs) {
		l.t.Fatalf("%d blocks are used, want %d", p.used(), len(refs))
	}
}

func (l *lab) tokens(name string) int {
	n := 0
	for _, em := range l.made[name] {
		n += em.tokens
	}
	return n
}

func near(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= 1e-6*float64(want)+1
}

func TestStepTimes(t *testing.T) {
	cfg := Config{PrefillSpeed: 10000, PrefillHalf: 10000, StepBase: 5 * time.Millisecond,
		StepPerSeq: time.Millisecond, StepPerKToken: 2 * time.Millisecond, MaxBatchedTokens: 8000}
	l := newLab(t, cfg)
	l.add("a", "a", 10000, 3)
	l.drain()
	// 8000 tokens at 10000/s, slowed by half of 8000/10000; then 2000 at
	// positions 8000 to 10000; then two decode steps over 10000 and 10001.
	want := []time.Duration{
		6*time.Millisecond + 1120*time.Millisecond,
		6*time.Millisecond + 380*time.Millisecond,
		6*time.Millisecond + 20*time.Millisecond,
		6*time.Millisecond + 20002*time.Microsecond,
	}
	if len(l.steps) != len(want) {
		t.Fatalf("got steps %v, want %v", l.steps, want)
	}
	for i := range want {
		if !near(l.steps[i], want[i]) {
			t.Errorf("step %d: got %v, want %v", i, l.steps[i], want[i])
		}
	}
	if got := l.made["a"]; len(got) != 3 || got[2].finish != finishLength {
		t.Errorf("got emissions %v, want three, the last with length", got)
	}

	cfg.Speed = 4
	fast := newLab(t, cfg)
	fast.add("a", "a", 10000, 3)
	fast.drain()
	for i := range want {
		if !near(fast.steps[i], want[i]/4) {
			t.Errorf("at four times the speed, step %d: got %v, want %v", i, fast.steps[i], want[i]/4)
		}
	}
}

func TestDecodeTimeGrowsWithBatchAndContext(t *testing.T) {
	cost := func(n, context int) time.Duration {
		l := newLab(t, Config{MaxBatchedTokens: 1 << 20})
		for i := range n {
			l.add(fmt.Sprint(i), fmt.Sprint(i), context, 3)
		}
		l.drain()
		return l.steps[len(l.steps)-1]
	}
	if a, b := cost(1, 100), cost(8, 100); b <= a {
		t.Errorf("8 requests take %v a step, one %v; want longer", b, a)
	}
	if a, b := cost(4, 100), cost(4, 10000); b <= a {
		t.Errorf("a context of 10000 takes %v a step, 100 %v; want longer", b, a)
	}
}

func TestSlotsAreFilledInOrder(t *testing.T) {
	l := newLab(t, Config{MaxNumSeqs: 2})
	for _, name := range []string{"a", "b", "c", "d"} {
		l.add(name, name, 10, 5)
	}
	l.step()
	if r, w := len(l.e.running), len(l.e.waiting); r != 2 || w != 2 {
		t.Errorf("got %d running and %d waiting, want 2 and 2", r, w)
	}
	if g := l.e.stats.gauges; g.running != 2 || g.waiting != 2 {
		t.Errorf("gauges say %d running and %d waiting, want 2 and 2", g.running, g.waiting)
	}
	if len(l.made["c"]) != 0 {
		t.Error("the third request was served before a slot was free")
	}
	l.drain()
	for _, name := range []string{"a", "b", "c", "d"} {
		if l.tokens(name) != 5 {
			t.Errorf("request %s got %d tokens, want 5", name, l.tokens(name))
		}
	}
	if got := l.e.stats.success[1]; got != 4 {
		t.Errorf("%v requests ended with length, want 4", got)
	}
}

func TestPrefixCache(t *testing.T) {
	l := newLab(t, Config{BlockSize: 16})
	l.add("cold", "x", 1600, 1)
	l.drain()
	cold := l.steps[0]
	first := l.add("warm", "x", 1600, 1)
	l.drain()
	// The last block is computed again, because one token must be.
	if first.cached != 1584 {
		t.Errorf("%d tokens were cached, want 1584", first.cached)
	}
	if warm := l.steps[1]; warm > cold/4 {
		t.Errorf("a cached prompt took %v, a new one %v; want far less", warm, cold)
	}
	if s := l.add("other", "y", 1600, 1); true {
		l.drain()
		if s.cached != 0 {
			t.Errorf("another prompt found %d tokens in the cache, want 0", s.cached)
		}
	}
	if q, h := l.e.stats.prefixQueries, l.e.stats.prefixHits; q != 4800 || h != 1584 {
		t.Errorf("counted %v queries and %v hits, want 4800 and 1584", q, h)
	}
	if p, c := l.e.stats.promptTokens, l.e.stats.cachedTokens; p != 4800 || c != 1584 {
		t.Errorf("counted %v prompt and %v cached tokens, want 4800 and 1584", p, c)
	}

	l = newLab(t, Config{NoPrefixCache: true})
	l.add("a", "x", 1600, 1)
	l.drain()
	if s := l.add("b", "x", 1600, 1); true {
		l.drain()
		if s.cached != 0 {
			t.Errorf("without a prefix cache %d tokens were cached", s.cached)
		}
	}
}

func TestRequestsAtOnceShareAPrefix(t *testing.T) {
	l := newLab(t, Config{BlockSize: 16})
	for i := range 8 {
		l.add(fmt.Sprint(i), "same", 3200, 10)
	}
	l.drain()
	if used, all := l.e.stats.cachedTokens, l.e.stats.promptTokens; used != 7*(3200-16) || all != 8*3200 {
		t.Errorf("%v of %v prompt tokens were cached, want %d of %d", used, all, 7*(3200-16), 8*3200)
	}
}

func TestPreemption(t *testing.T) {
	l := newLab(t, Config{BlockSize: 16, KVCacheTokens: 16 * 65}) // 64 usable blocks
	for i := range 4 {
		l.add(fmt.Sprint(i), fmt.Sprint(i), 200, 200) // 25 blocks each at the end
	}
	l.drain()
	if l.e.stats.preemptions == 0 {
		t.Error("no preemption, though the blocks cannot hold all requests")
	}
	for i := range 4 {
		if n := l.tokens(fmt.Sprint(i)); n != 200 {
			t.Errorf("request %d got %d tokens, want 200", i, n)
		}
	}
	if got := l.e.stats.generationTokens; got != 800 {
		t.Errorf("counted %v generated tokens, want 800", got)
	}
	if l.e.pool.used() != 0 {
		t.Errorf("%d blocks are held at the end, want none", l.e.pool.used())
	}
}

func TestLargestRequestFits(t *testing.T) {
	cfg := Config{BlockSize: 16, KVCacheTokens: 16 * 9, DraftTokens: 5}
	l := newLab(t, cfg)
	n := cfg.withDefaults().MaxModelLen
	l.add("a", "a", n-1, 100)
	l.add("b", "b", 1, n)
	l.drain()
	if l.tokens("a") != 1 || l.tokens("b") != n-1 {
		t.Errorf("got %d and %d tokens, want 1 and %d: the model's length ends both", l.tokens("a"), l.tokens("b"), n-1)
	}
}

func TestAbortedRequestLingers(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(20) {
		l := newLab(t, Config{Seed: seed})
		s := l.add("a", "a", 10, 1000)
		l.add("queued", "b", 10, 1000)
		for range 5 {
			l.step()
		}
		emitted := len(l.made["a"])
		l.e.abort(s)
		steps := 0
		for l.step(); !s.gone; l.step() {
			steps++
		}
		seen[steps+1] = true
		if len(l.made["a"]) != emitted {
			t.Errorf("seed %d: an aborted request still got output", seed)
		}
		l.e.abort(l.e.running[0])
		l.drain()
		st := &l.e.stats
		if st.success != [len(finishReasons)]float64{} || st.e2e.sum != 0 {
			t.Errorf("seed %d: aborted requests are counted as finished: %v", seed, st.success)
		}
		if st.generationTokens < 10 {
			t.Errorf("seed %d: %v tokens counted, want those of aborted requests too", seed, st.generationTokens)
		}
		if l.e.stats.gauges != (gauges{}) {
			t.Errorf("seed %d: gauges are %+v at the end, want zero", seed, l.e.stats.gauges)
		}
	}
	if !seen[1] || !seen[2] || len(seen) != 2 {
		t.Errorf("aborted requests ran %v more steps, want 1 and 2", seen)
	}
}

func TestAbortedWhileWaiting(t *testing.T) {
	l := newLab(t, Config{MaxNumSeqs: 1})
	l.add("a", "a", 10, 50)
	s := l.add("b", "b", 10, 50)
	l.step()
	l.e.abort(s)
	l.step()
	if len(l.e.waiting) != 0 {
		t.Error("an aborted request is still queued after the next step")
	}
	l.drain()
	if len(l.made["b"]) != 0 {
		t.Error("an aborted request was served")
	}
}

func TestSpeculationMean(t *testing.T) {
	for _, tt := range []struct {
		k    int
		mean float64
	}{{1, 1.7}, {3, 2.4}, {5, 1}, {4, 5}, {7, 4.5}} {
		l := newLab(t, Config{DraftTokens: tt.k, AcceptedMean: tt.mean})
		l.add("a", "a", 100, 20000)
		l.drain()
		steps := len(l.made["a"]) - 1 // the first comes from the prefill
		if got := float64(l.tokens("a")-1) / float64(steps); math.Abs(got-tt.mean) > 0.05 {
			t.Errorf("%d drafts: got %.3f tokens a step, want %.1f", tt.k, got, tt.mean)
		}
		st := &l.e.stats
		sum := 0.0
		for i, v := range st.acceptedPerPos {
			sum += v
			if i > 0 && v > st.acceptedPerPos[i-1] {
				t.Errorf("%d drafts: position %d was accepted more often than the one before", tt.k, i)
			}
		}
		if want := float64(l.tokens("a")-1) - st.drafts; math.Abs(sum-want) > 0 {
			t.Errorf("%d drafts: %v accepted, want %v", tt.k, sum, want)
		}
		if st.draftTokens != st.drafts*float64(tt.k) {
			t.Errorf("%d drafts: %v drafted in %v steps", tt.k, st.draftTokens, st.drafts)
		}
	}
}

func TestStreamInterval(t *testing.T) {
	l := newLab(t, Config{StreamInterval: 10})
	l.add("a", "a", 100, 37)
	l.drain()
	var got []int
	for _, em := range l.made["a"] {
		got = append(got, em.tokens)
	}
	if want := "[1 10 10 10 6]"; fmt.Sprint(got) != want {
		t.Errorf("got chunks of %v tokens, want %s", got, want)
	}
}

func TestEndOfAnswer(t *testing.T) {
	l := newLab(t, Config{DraftTokens: 4})
	l.add("a", "a", 10, 100).end = 33
	l.add("b", "b", 10, 20).end = 33
	l.drain()
	if last := l.made["a"][len(l.made["a"])-1]; l.tokens("a") != 33 || last.finish != finishStop {
		t.Errorf("got %d tokens and %v, want 33 and stop", l.tokens("a"), last.finish)
	}
	if last := l.made["b"][len(l.made["b"])-1]; l.tokens("b") != 20 || last.finish != finishLength {
		t.Errorf("got %d tokens and %v, want 20 and length", l.tokens("b"), last.finish)
	}
}

func TestLoopConditions(t *testing.T) {
	for _, tt := range []struct {
		name      string
		loop      Loop
		requests  int
		prompt    int
		wantLoops bool
	}{
		{"off", Loop{}, 1, 100, false},
		{"always", Loop{After: 60}, 1, 100, true},
		{"batch too small", Loop{After: 60, MinBatch: 3}, 2, 100, false},
		{"batch large enough", Loop{After: 60, MinBatch: 3}, 3, 100, true},
		{"other context", Loop{After: 60, Context: 6400}, 1, 100, false},
		{"that context", Loop{After: 60, Context: 6400}, 1, 6350, true},
	} {
		l := newLab(t, Config{Loop: tt.loop, DraftTokens: 3})
		for i := range tt.requests {
			l.add(fmt.Sprint(i), "x", tt.prompt, 100)
		}
		l.drain()
		made := l.made["0"]
		if made[0].looping {
			t.Errorf("%s: the output repeats from its first token", tt.name)
		}
		if got := made[len(made)-1].looping; got != tt.wantLoops {
			t.Errorf("%s: looping is %v at the end, want %v", tt.name, got, tt.wantLoops)
		}
	}
}

func TestPlannedRandomnessIsSeeded(t *testing.T) {
	run := func(seed uint64) string {
		l := newLab(t, Config{Seed: seed, Jitter: 0.1, StallShare: 0.05, CompileTime: time.Second, DraftTokens: 3})
		for i := range 5 {
			l.add(fmt.Sprint(i), fmt.Sprint(i), 100*i+50, 80)
		}
		l.drain()
		return fmt.Sprint(l.steps, l.made["0"], l.made["4"])
	}
	if a, b := run(7), run(7); a != b {
		t.Error("two runs with one seed differ")
	}
	if run(7) == run(8) {
		t.Error("two seeds give one run")
	}
}

func TestCompileAndStalls(t *testing.T) {
	l := newLab(t, Config{CompileTime: 3 * time.Second, StallShare: 0.1, StallTime: time.Second})
	l.add("a", "a", 10, 1000)
	l.drain()
	if l.steps[0] < 3*time.Second {
		t.Errorf("the first step took %v, want compilation in it", l.steps[0])
	}
	stalls := 0
	for _, d := range l.steps[1:] {
		if d > time.Second {
			stalls++
		}
	}
	if stalls < 60 || stalls > 140 {
		t.Errorf("%d of 999 steps stalled, want about 100", stalls)
	}
}

func TestMetricsLag(t *testing.T) {
	l := newLab(t, Config{MetricsLag: true})
	l.add("a", "a", 10, 3)
	l.step()
	if l.e.stats.gauges.running != 0 {
		t.Error("the gauge moved within the step, want one step later")
	}
	l.step()
	if l.e.stats.gauges.running != 1 {
		t.Error("the gauge did not move one step later")
	}
	l.drain()
	if l.e.stats.gauges.running != 0 {
		t.Error("the gauge did not come back after the last step")
	}
}

// TestEngineUnderPressure runs random loads with preemption, speculation and
// aborts; lab.check holds the block accounting after each step.
func TestEngineUnderPressure(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := newLab(t, Config{Seed: seed, BlockSize: 4, KVCacheTokens: 4 * 120, MaxNumSeqs: 1 + rng.IntN(12),
			MaxBatchedTokens: 16 + rng.IntN(200), DraftTokens: rng.IntN(4), StreamInterval: 1 + rng.IntN(3)})
		want := map[string]int{}
		for i := range 40 {
			name := fmt.Sprint(i)
			prompt, out := 1+rng.IntN(200), 1+rng.IntN(200)
			s := l.add(name, fmt.Sprint(rng.IntN(5)), prompt, out)
			if rng.IntN(4) == 0 {
				l.e.abort(s)
			} else {
				want[name] = out
			}
			for range rng.IntN(10) {
				l.step()
			}
		}
		l.drain()
		for name, n := range want {
			if l.tokens(name) != n {
				t.Errorf("seed %d, request %s: got %d tokens, want %d", seed, name, l.tokens(name), n)
			}
		}
		if l.e.pool.used() != 0 {
			t.Errorf("seed %d: %d blocks are held at the end", seed, l.e.pool.used())
		}
	}
}

func BenchmarkEngineStep(b *testing.B) {
	e := newEngine(Config{}.withDefaults(), 0)
	now := time.Unix(0, 0)
	for range 256 {
		e.add(&sequence{prompt: 1000, max: 1 << 30, every: 1, arrived: now, sink: func(emission) {}})
	}
	n := 0
	for b.Loop() {
		d, ok := e.begin(now)
		if !ok {
			b.Fatal("nothing to do")
		}
		now = now.Add(d)
		e.end(now)
		n += len(e.plan)
		if e.running[0].out > 900 {
			for _, s := range e.running {
				s.out, s.computed = 1, s.prompt
			}
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
