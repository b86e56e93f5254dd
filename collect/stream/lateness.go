package stream

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// lateShare is how late a read must be for a shared read to be the
// collector's own doing: a server that writes two events at once makes them
// arrive together, and then the read follows within microseconds.
const lateShare = 250 * time.Microsecond

// Lateness collects how late the collector itself is, over all clients of a
// run. It is safe for concurrent use and costs a few atomic adds a read.
type Lateness struct {
	chunks     atomic.Int64
	lateShared atomic.Int64
	hist       Histogram
}

// note takes one read: how late it was, how many events it completed, and
// how many events of the request came before these.
func (l *Lateness) note(late time.Duration, events, before int) {
	if events == 0 {
		return
	}
	l.chunks.Add(int64(events))
	if late <= 0 {
		return
	}
	l.hist.Add(late)
	// The first two events of a chat stream, role and first token, are
	// written together, and so may be the last ones; only a read with a
	// second event of the middle tells of another engine step.
	if shared := events - max(1, 2-before); shared > 0 && late > lateShare {
		l.lateShared.Add(int64(shared))
	}
}

// Chunks returns the number of events received, and how many of them were
// completed by a late read together with an older one of another step.
func (l *Lateness) Chunks() (all, lateShared int64) {
	return l.chunks.Load(), l.lateShared.Load()
}

// Reads returns the distribution of how late reads were since the last call.
func (l *Lateness) Reads() (p99, max time.Duration, n int64) { return l.hist.Take() }

// A Histogram counts durations in buckets an eighth of an octave wide, so
// that a quantile is at most 9 % too high. It is safe for concurrent use;
// the zero value is empty.
type Histogram struct {
	buckets [8 * 48]atomic.Uint32
	max     atomic.Int64
}

// Add counts one duration; negative ones count as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucket(d)].Add(1)
	for {
		m := h.max.Load()
		if int64(d) <= m || h.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

// Take returns the upper bound of the 99th percentile (nearest rank), the
// maximum and the number of durations, and empties the histogram.
func (h *Histogram) Take() (p99, maximum time.Duration, n int64) {
	var counts [len(h.buckets)]int64
	for i := range h.buckets {
		counts[i] = int64(h.buckets[i].Swap(0))
		n += counts[i]
	}
	maximum = time.Duration(h.max.Swap(0))
	if n == 0 {
		return 0, 0, 0
	}
	rank := (n*99 + 99) / 100
	for i, c := range counts {
		if rank -= c; rank <= 0 {
			return min(upper(i), maximum), maximum, n
		}
	}
	return maximum, maximum, n
}

func bucket(d time.Duration) int {
	v := uint64(d)
	if v < 8 {
		return int(v)
	}
	octave := bits.Len64(v) - 1
	i := (octave-2)*8 + int(v>>(octave-3))&7
	return min(i, 8*48-1)
}

func upper(i int) time.Duration {
	if i < 8 {
		return time.Duration(i)
	}
	octave := i/8 + 2
	return time.Duration((uint64(8+i%8)+1)<<(octave-3)) - 1
}
