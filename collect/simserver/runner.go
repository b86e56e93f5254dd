package simserver

import (
	"sync"
	"time"
)

// A runner gives an engine its clock. Its goroutine lives only while there
// is work.
type runner struct {
	mu   sync.Mutex
	e    *engine
	busy bool
	dead <-chan struct{}
}

// submit hands sequences to the engine.
func (r *runner) submit(seqs ...*sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range seqs {
		r.e.add(s)
	}
	if !r.busy {
		r.busy = true
		go r.loop()
	}
}

// abort tells the engine that a client has gone.
func (r *runner) abort(seqs ...*sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range seqs {
		if !s.gone {
			r.e.abort(s)
		}
	}
}

func (r *runner) stats() stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.e.stats.clone()
}

// load is what vLLM's balancer compares.
func (r *runner) load() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return 4*len(r.e.waiting) + len(r.e.running)
}

// maxBehind is how far the engine may run late before it gives up catching
// up, so that a machine that was away does not see a burst of old steps.
const maxBehind = 20 * time.Millisecond

// loop runs steps until there is nothing to do. Each step ends at an instant
// counted from the end of the one before, so that late wake-ups do not add
// up.
func (r *runner) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	at := time.Now()
	for {
		now := time.Now()
		if now.Sub(at) > maxBehind {
			at = now
		}
		r.mu.Lock()
		d, ok := r.e.begin(now)
		if !ok {
			r.busy = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		at = at.Add(d)
		if wait := time.Until(at); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-r.dead:
				return // busy for ever: a dead engine takes requests and does nothing
			}
		}
		r.mu.Lock()
		r.e.end(time.Now())
		r.mu.Unlock()
	}
}
