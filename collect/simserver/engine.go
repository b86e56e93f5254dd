package simserver

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A finish says why an output ended.
type finish uint8

const (
	finishNone finish = iota // it goes on
	finishStop
	finishLength
	finishAbort
)

func (f finish) String() string {
	return [...]string{"", "stop", "length", "abort"}[f]
}

// A sequence is one output in the engine's hands. The engine only counts;
// the text is made by whoever reads the outbox.
type sequence struct {
	prompt  int      // tokens
	hashes  []uint64 // of the prompt's whole blocks
	max     int      // output tokens at which it ends with "length"
	end     int      // output tokens at which it ends with "stop"; 0 means never
	every   int      // tokens per emission after the first, at least 1
	arrived time.Time
	accept  *rand.Rand // decides how many drafts are accepted
	sink    func(emission)

	held      []int32 // KV blocks
	computed  int     // tokens whose KV is there
	out       int     // tokens sampled
	unsent    int     // of these, not emitted yet
	cached    int     // prompt tokens found in the cache at admission
	looping   bool
	preempted int
	linger    int // steps that it still runs after its client has gone; 0 means the client is there
	gone      bool

	scheduled, first, last time.Time // first step began, first and latest token
}

// An emission is what one step, or several with a stream interval, adds to
// an output.
type emission struct {
	tokens  int
	cached  int  // prompt tokens that came from the cache
	looping bool // the output repeats from Loop.After on
	finish  finish
}

// An engine is vLLM's scheduler and model runner as a state machine without
// a clock: begin plans a step and says how long it takes, end carries it
// out. Nothing in it is safe for concurrent use.
type engine struct {
	cfg     Config
	pool    *blockPool
	rng     *rand.Rand // step times
	accept  float64    // probability that the next draft is accepted
	waiting []*sequence
	running []*sequence
	plan    []planned // of the step in progress
	steps   int
	stats   stats
}

type planned struct {
	seq   *sequence
	chunk int // tokens computed
}

func newEngine(cfg Config, index int) *engine {
	e := &engine{
		cfg:    cfg,
		pool:   newBlockPool(cfg.blocks() - 1),
		rng:    rand.New(rand.NewPCG(cfg.Seed, mix(0x656e67, uint64(index)))),
		accept: acceptance(cfg.DraftTokens, cfg.AcceptedMean),
	}
	e.stats = newStats(cfg)
	return e
}

// acceptance returns the probability p for which a draft of k tokens, each
// accepted with p after all before it were, gives mean tokens a step.
func acceptance(k int, mean float64) float64 {
	lo, hi := 0.0, 1.0
	for range 60 {
		p, sum := (lo+hi)/2, 1.0
		for i := 1; i <= k; i++ {
			sum += math.Pow(p, float64(i))
		}
		if sum < mean {
			lo = p
		} else {
			hi = p
		}
	}
	return hi
}

// add queues a sequence.
func (e *engine) add(s *sequence) { e.waiting = append(e.waiting, s) }

// abort tells that a sequence's client has gone. It leaves the queue with
// the next step; if it runs, one or two steps later.
func (e *engine) abort(s *sequence) {
	if s.linger == 0 {
		s.linger = 1 + e.rng.IntN(2)
	}
}

// begin plans the next step and returns its duration; false if there is
// nothing to do.
func (e *engine) begin(now time.Time) (time.Duration, bool) {
	e.plan = e.plan[:0]
	e.waiting = slices.DeleteFunc(e.waiting, func(s *sequence) bool { return s.linger > 0 })
	budget, preempted := e.cfg.MaxBatchedTokens, false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		chunk := min(s.prompt+s.out-s.computed, budget)
		for !e.reserve(s, chunk) {
			// The youngest request gives its blocks up and starts again.
			victim := e.running[len(e.running)-1]
			e.preempt(victim)
			preempted = true
			if victim == s {
				chunk = 0
				break
			}
		}
		if chunk == 0 {
			break
		}
		e.plan = append(e.plan, planned{s, chunk})
		budget -= chunk
	}
	for !preempted && budget > 0 && len(e.waiting) > 0 && len(e.running) < e.cfg.MaxNumSeqs {
		s := e.waiting[0]
		chunk, ok := e.admit(s, budget, now)
		if !ok {
			break
		}
		e.waiting = e.waiting[1:]
		e.running = append(e.running, s)
		e.plan = append(e.plan, planned{s, chunk})
		budget -= chunk
	}
	if len(e.plan) == 0 {
		e.publish() // vLLM runs an empty step here
		return 0, false
	}
	return e.duration(), true
}

// reserve finds blocks for the next chunk of s and the drafts behind it.
func (e *engine) reserve(s *sequence, chunk int) bool {
	want := min(s.computed+chunk+e.cfg.DraftTokens, e.cfg.MaxModelLen)
	held, ok := e.pool.grow(s.held, (want+e.cfg.BlockSize-1)/e.cfg.BlockSize)
	s.held = held
	if ok && !e.cfg.NoPrefixCache {
		for i := s.computed / e.cfg.BlockSize; i < min((s.computed+chunk)/e.cfg.BlockSize, len(s.hashes)); i++ {
			e.pool.know(s.held[i], s.hashes[i])
		}
	}
	return ok
}

// admit takes the blocks for the first chunk of a waiting sequence.
func (e *engine) admit(s *sequence, budget int, now time.Time) (chunk int, ok bool) {
	if !e.cfg.NoPrefixCache {
		// At least one token must be computed, or there is nothing to sample from.
		n := e.pool.cached(s.hashes, (s.prompt+s.out-1)/e.cfg.BlockSize)
		s.held = e.pool.share(s.held, s.hashes[:n])
		s.computed = n * e.cfg.BlockSize
	}
	chunk = min(s.prompt+s.out-s.computed, budget)
	if !e.reserve(s, chunk) {
		e.pool.release(s.held)
		s.held, s.computed = s.held[:0], 0
		return 0, false
	}
	if s.scheduled.IsZero() {
		s.scheduled, s.cached = now, s.computed
		e.stats.prefixQueries += float64(s.prompt)
		e.stats.prefixHits += float64(s.cached)
	}
	return chunk, true
}

func (e *engine) preempt(s *sequence) {
	e.pool.release(s.held)
	s.held, s.computed = s.held[:0], 0
	e.running = e.running[:len(e.running)-1]
	e.waiting = append([]*sequence{s}, e.waiting...)
	s.preempted++
	e.stats.preemptions++
}

// duration is how long the planned step takes.
func (e *engine) duration() time.Duration {
	c := &e.cfg
	context := 0.0
	d := float64(c.StepBase) + float64(c.StepPerSeq)*float64(len(e.plan))
	for _, p := range e.plan {
		if p.seq.out > 0 && p.chunk == 1 {
			context += float64(p.seq.computed)
			continue
		}
		// The integral of 1/speed over the chunk's positions.
		n, at := float64(p.chunk), float64(p.seq.computed)
		d += n / c.PrefillSpeed * (1 + (at+n/2)/float64(c.PrefillHalf)) * float64(time.Second)
	}
	d += float64(c.StepPerKToken) * context / 1000
	if c.Jitter > 0 {
		d *= max(0.2, 1+c.Jitter*e.rng.NormFloat64())
	}
	if c.StallShare > 0 && e.rng.Float64() < c.StallShare {
		d += float64(c.StallTime)
	}
	if e.steps == 0 {
		d += float64(c.CompileTime)
	}
	e.steps++
	return time.Duration(d / c.Speed)
}

// end carries out the planned step and hands what it made to the sinks.
func (e *engine) end(now time.Time) {
	computed := 0
	for _, p := range e.plan {
		s := p.seq
		computed += p.chunk
		s.computed += p.chunk
		if s.computed < s.prompt+s.out {
			continue // the rest of a long prompt follows
		}
		e.sample(s, now)
	}
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		if s.linger > 0 {
			if s.linger--; s.linger == 0 {
				s.gone = true
			}
		}
		if s.gone {
			e.pool.release(s.held)
			s.held = nil
		}
		return s.gone
	})
	e.stats.iterationTokens.observe(float64(computed))
	e.publish()
}

// sample gives s its next tokens: one after a prefill, with speculation up
// to DraftTokens+1 after a decode step.
func (e *engine) sample(s *sequence, now time.Time) {
	n := 1
	if e.cfg.DraftTokens > 0 && s.out > 0 {
		for n <= e.cfg.DraftTokens && s.accept.Float64() < e.accept {
			n++
		}
		e.stats.drafts++
		e.stats.draftTokens += float64(e.cfg.DraftTokens)
	}
	left, f := s.max-s.out, finishLength
	if room := e.cfg.MaxModelLen - s.prompt - s.out; room < left {
		left = room
	}
	if s.end > 0 && s.end-s.out <= left {
		left, f = s.end-s.out, finishStop
	}
	if n = min(n, left); n < left {
		f = finishNone
	}
	for i := range n - 1 {
		e.stats.acceptedPerPos[i]++
	}
	if l := &e.cfg.Loop; l.After > 0 && s.out <= l.After && s.out+n > l.After {
		near := s.prompt - l.Context
		s.looping = len(e.running) >= l.MinBatch && (l.Context == 0 || max(near, -near) <= l.Context/64)
	}
	first := s.out == 0
	s.out += n
	s.unsent += n
	s.computed += n - 1
	e.stats.tokens(s, n, first, now)
	if first {
		s.first = now
	}
	s.last = now
	if f != finishNone {
		s.gone = true
		if s.linger == 0 {
			e.stats.finished(s, f, now)
		}
	}
	if first || f != finishNone || s.unsent >= s.every {
		if s.linger == 0 {
			s.sink(emission{tokens: s.unsent, cached: s.cached, looping: s.looping, finish: f})
		}
		s.unsent = 0
	}
}

// publish makes the gauges what they are now, or with MetricsLag what they
// were at the last step.
func (e *engine) publish() {
	now := gauges{running: len(e.running), waiting: len(e.waiting), usedBlocks: e.pool.used()}
	if e.cfg.MetricsLag && len(e.plan) > 0 {
		e.stats.gauges, e.stats.next = e.stats.next, now
		return
	}
	e.stats.gauges, e.stats.next = now, now
}
