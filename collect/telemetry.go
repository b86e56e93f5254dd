package collect

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"speedmatrix/collect/host"
	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// A sampler takes telemetry over the whole run: the server's metrics, the
// machine, and how late the collector itself is. Its methods may be called
// by several goroutines.
type sampler struct {
	start    time.Time
	server   *server.Client
	machine  *host.Sampler
	lateness *stream.Lateness
	timer    stream.Histogram
	reading  sync.Mutex  // of the server's metrics: one at a time, see alone
	kernel   atomic.Bool // arrival times come from the kernel

	mu       sync.Mutex
	samples  []runlog.Sample
	metrics  bool      // the server has metrics
	failures int       // of reading them, one after the other
	silent   time.Time // they are not asked for again before this instant
}

func (s *sampler) us() int64 { return time.Since(s.start).Microseconds() }

// run samples each interval until ctx is done.
func (s *sampler) run(ctx context.Context, interval time.Duration) {
	go s.watchTimer(ctx)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.sampleClient()
		if s.hasMetrics() {
			s.sampleServer(ctx)
		}
	}
}

// watchTimer measures how late a timer of this process fires: what the
// scheduler and the garbage collector do to every goroutine of it.
func (s *sampler) watchTimer(ctx context.Context) {
	const period = 5 * time.Millisecond
	for ctx.Err() == nil {
		before := time.Now()
		time.Sleep(period)
		s.timer.Add(time.Since(before) - period)
	}
}

// hasMetrics reports whether it is worth asking for the server's metrics.
func (s *sampler) hasMetrics() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics && time.Now().After(s.silent)
}

// sampleServer reads the server's metrics now. nil means that they could
// not be read this time.
func (s *sampler) sampleServer(ctx context.Context) *server.Metrics {
	release := s.alone()
	defer release()
	return s.read(ctx)
}

// alone waits for a reading in progress and lets none begin until release is
// called. What is read before a request is sent must not be overlapped by a
// reading whose counters may have the request already, or not.
func (s *sampler) alone() (release func()) {
	s.reading.Lock()
	return sync.OnceFunc(s.reading.Unlock)
}

// read is sampleServer for who is alone.
func (s *sampler) read(ctx context.Context) *server.Metrics {
	if !s.hasMetrics() {
		return nil
	}
	asked, t := time.Now(), s.us()
	m, err := s.server.Metrics(ctx)
	s.answered(err, time.Since(asked))
	if err != nil {
		return nil
	}
	// The server looked at its counters at this instant or a little later,
	// so a sample from after an event has all of it.
	s.add(m.Samples(t))
	return m
}

// answered takes note of a reading that took a while. A page that has
// stopped answering costs its time limit each time it is asked for, so it is
// left alone for six times as long, then for twice that, and so on.
func (s *sampler) answered(err error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.failures = 0
		return
	}
	s.silent = time.Now().Add(max(time.Second, 6*took) << min(s.failures, 5))
	s.failures++
}

func (s *sampler) sampleClient() {
	t := s.us()
	rows := s.machine.Sample(t)
	row := func(name string, value float64) {
		rows = append(rows, runlog.Sample{TUs: t, Source: runlog.SourceClient, Name: name, Value: value})
	}
	if p99, maximum, n := s.timer.Take(); n > 0 {
		row(runlog.MetricTimerLatenessP99, us(p99))
		row(runlog.MetricTimerLatenessMax, us(maximum))
	}
	if p99, maximum, n := s.lateness.Reads(); n > 0 && s.kernel.Load() {
		row(runlog.MetricReadLatenessP99, us(p99))
		row(runlog.MetricReadLatenessMax, us(maximum))
	}
	all, late := s.lateness.Chunks()
	row(runlog.MetricChunks, float64(all))
	if s.kernel.Load() {
		row(runlog.MetricLateSharedChunks, float64(late))
	}
	s.add(rows)
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (s *sampler) add(rows []runlog.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, rows...)
}

// sorted returns everything sampled so far, in the order of time.
func (s *sampler) sorted() []runlog.Sample {
	s.mu.Lock()
	rows := slices.Clone(s.samples)
	s.mu.Unlock()
	slices.SortStableFunc(rows, func(a, b runlog.Sample) int {
		switch {
		case a.TUs < b.TUs:
			return -1
		case a.TUs > b.TUs:
			return 1
		}
		return 0
	})
	return rows
}
