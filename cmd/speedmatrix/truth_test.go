package main_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/server"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

var (
	truthRuns = flag.Int("truth-runs", 8, "random `runs` of TestGroundTruth")
	truthSeed = flag.Uint64("truth-seed", 170, "`seed` of its first run; each next run has the next one")
)

// TestGroundTruth measures simulated servers that keep record of what they
// really did, and compares every figure and every status that is computed
// from the run directory with that record.
//
// What is compared with what: the server's record says between which two
// instants each event was handed to the network, so each time of the run log
// must lie between them, and each figure between the least and the greatest
// value that such times allow. Counts, tokens and statuses must be exact. An
// event that was written so close to an edge of a window that it may have
// arrived on either side counts where the run log has it.
func TestGroundTruth(t *testing.T) {
	var sum tally
	for i := range *truthRuns {
		set := drawSetting(*truthSeed + uint64(i))
		t.Run(fmt.Sprintf("seed %d", set.seed), func(t *testing.T) {
			truthRun(t, set, &sum)
			if t.Failed() {
				t.Logf("to repeat: go test ./cmd/speedmatrix -run TestGroundTruth -truth-runs=1 -truth-seed=%d\nsetting %v", set.seed, &set)
			}
		})
	}
	t.Log(sum.String())
	// One request more or less may wait for a processor; half of them do not,
	// or else timers wait as well.
	if len(sum.sent) > 20 {
		median := func(xs []float64) float64 { return spread(values(xs), quantile(0.5)).hi }
		if off, late := median(sum.sent), median(sum.timers); math.Abs(off) > max(1000, late) {
			t.Errorf("half of all requests are said to be sent %v µs or more after the server had them, and timers are %v µs late", off, late)
		}
	}
	if sum.refused*2 > sum.runs && sum.runs > 1 || sum.refused < sum.runs && (sum.cells == 0 || sum.requests == 0) {
		t.Errorf("nothing was compared: %v", &sum)
	}
}

// A tally says how much was compared.
type tally struct {
	runs, refused, cells, requests, events, figures, unknown int
	statuses                                                 map[string]int
	delay, excess, sent, timers                              []float64 // µs
}

func (s *tally) String() string {
	quantiles := func(xs []float64) string {
		slices.Sort(xs)
		if len(xs) == 0 {
			return "–"
		}
		at := func(p float64) float64 { return xs[int(p*float64(len(xs)-1))] }
		return fmt.Sprintf("min %.0f, p50 %.0f, p99 %.0f, p99.9 %.0f, p99.99 %.0f, max %.0f", at(0), at(0.5), at(0.99), at(0.999), at(0.9999), at(1))
	}
	return fmt.Sprintf("%d runs (%d ended before they began), %d cells, %d requests, %d token events, %d figures known and %d unknown, as they must be\nstatuses %v\n"+
		"arrival − write began, µs: %s\narrival − write ended, µs: %s\nsent − received by the server, µs: %s",
		s.runs, s.refused, s.cells, s.requests, s.events, s.figures, s.unknown, s.statuses,
		quantiles(s.delay), quantiles(s.excess), quantiles(s.sent))
}

func truthRun(t *testing.T, set setting, sum *tally) {
	srv, err := startTruthServer(set)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.close()
	u, err := server.ParseURL(srv.url)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	dir, runErr := collect.Run(ctx, collect.Config{
		URL: u, Root: root, Random: rand.Reader, Plan: set.Plan, MaxNumSeqs: set.MaxNumSeqs,
		Idle: set.Idle, ReadyHold: 60 * time.Millisecond, ReadyLimit: set.ReadyLimit, DrainHold: 50 * time.Millisecond,
		Tool:    runlog.Tool{Name: "speedmatrix", Version: "test"},
		Machine: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
	})
	srv.close()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	sum.runs++
	if dir == "" {
		sum.refused++
		left, _ := os.ReadDir(root)
		if runErr == nil || len(left) > 0 || !srv.brokeEarly() {
			t.Errorf("Run = %v, left behind %v, early requests broken: %v", runErr, left, srv.brokeEarly())
		}
		return
	}
	if (runErr != nil) != srv.died {
		t.Errorf("Run = %v, the engine died: %v", runErr, srv.died)
	}
	run, err := ingest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparer{t: t, set: &set, srv: srv, m: run.Manifest, sum: sum}
	// The start of the run on the monotonic clock: both clocks are read at once.
	c.start = began.Add(run.Manifest.StartedAt.Sub(began.Round(0)))
	if c.tel, err = runlog.ReadTelemetry(dir, run.Manifest.Telemetry.FileInfo); err != nil {
		t.Fatal(err)
	}
	c.read = func(cell *ingest.Cell) *runlog.Events {
		if cell.File == "" {
			return nil
		}
		ev, err := runlog.ReadEvents(dir, cell.Key(), cell.FileInfo)
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	c.compare(run)
}

// brokeEarly reports whether a request went wrong without which there is no
// run. On a busy machine the server itself may be silent for too long.
func (s *truthServer) brokeEarly() bool {
	for _, r := range s.requests {
		at := r.got
		silent := func(until time.Time) bool {
			from := at
			at = until
			return until.Sub(from) > s.set.Idle*95/100
		}
		for _, w := range r.writes {
			if silent(w.after) {
				return true
			}
		}
		if r.accepted.IsZero() || r.end != "stop" && r.end != "length" && r.end != "disconnect" || silent(r.ended) {
			return true
		}
	}
	return false
}

// A span is what is known of a value: it lies between lo and hi.
type span struct{ lo, hi float64 }

func exactly(v float64) span { return span{v, v} }

func (a span) minus(b span) span { return span{a.lo - b.hi, a.hi - b.lo} }

// over returns n / a for n ≥ 0; a below 1 µs can't be told from 1 µs.
func (a span) under(n float64) span { return span{n / max(1, a.hi), n / max(1, a.lo)} }

func (a span) times(f float64) span { return span{a.lo * f, a.hi * f} }

// spread returns f of all the low values and of all the high ones; f must
// not fall when a value rises.
func spread(xs []span, f func([]float64) float64) span {
	var lo, hi []float64
	for _, x := range xs {
		lo, hi = append(lo, x.lo), append(hi, x.hi)
	}
	slices.Sort(lo)
	slices.Sort(hi)
	return span{f(lo), f(hi)}
}

// quantile is of ascending values, between the two nearest ranks.
func quantile(p float64) func([]float64) float64 {
	return func(xs []float64) float64 {
		at := p * float64(len(xs)-1)
		i := int(at)
		if i+1 >= len(xs) {
			return xs[len(xs)-1]
		}
		return xs[i]*(1-(at-float64(i))) + xs[i+1]*(at-float64(i))
	}
}

// A comparer compares one run with the server's record.
type comparer struct {
	t     *testing.T
	set   *setting
	srv   *truthServer
	m     *runlog.Manifest
	tel   []runlog.Sample
	start time.Time
	read  func(*ingest.Cell) *runlog.Events
	sum   *tally

	slack float64 // µs by which an arrival may come after its write ended
	late  float64 // µs by which this process is late at what the kernel does not stamp
	where string  // for messages
}

func (c *comparer) us(t time.Time) float64 { return float64(t.Sub(c.start).Nanoseconds()) / 1e3 }

func (c *comparer) errorf(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%s: %s", c.where, fmt.Sprintf(format, args...))
}

// equal compares what must be exact.
func equal[T comparable](c *comparer, what string, got, want T) {
	c.t.Helper()
	if got != want {
		c.errorf("%s = %v, want %v", what, got, want)
	}
}

// figure compares a figure of n values; of none it must be unknown.
func (c *comparer) figure(what string, got ingest.Stat, want span, n int) {
	c.t.Helper()
	if n == 0 {
		c.sum.unknown++
		if got != (ingest.Stat{}) {
			c.errorf("%s = %v of %d values, want unknown", what, got.Value, got.N)
		}
		return
	}
	c.sum.figures++
	const rounding = 1e-9
	low, high := want.lo-rounding*math.Abs(want.lo), want.hi+rounding*math.Abs(want.hi)
	if got.N != n || !(got.Value >= low && got.Value <= high) {
		c.errorf("%s = %v of %d values, want %v to %v of %d", what, got.Value, got.N, want.lo, want.hi, n)
	}
}

// compare goes through the run in the order in which it was measured.
func (c *comparer) compare(run *ingest.Run) {
	cells := map[string]*ingest.Cell{}
	for _, list := range [][]ingest.Cell{run.Prefill, run.Decode} {
		for i := range list {
			cells[list[i].Key().Name()] = &list[i]
		}
	}
	equal(c, "number of cells", len(cells), len(c.m.Plan.Order))
	var all []*matched
	if run.Warmup == nil {
		c.t.Fatal("no warm-up")
	}
	order := []*ingest.Cell{run.Warmup}
	for _, name := range c.m.Plan.Order {
		order = append(order, cells[name])
	}
	for _, cell := range order {
		c.where = cell.Key().Name()
		all = append(all, c.match(cell))
	}
	for _, r := range c.srv.requests {
		if !r.used && r.seed != requestSeed(c.m.Plan.Seed, 0, 0, 0, 0) {
			c.errorf("the server got request %s (seed %d, max_tokens %d) that no cell has: %+v", r.id, r.seed, r.maxTokens, r)
		}
	}
	c.delays(all)
	cold := map[int32]ingest.Stat{}
	for _, m := range all {
		c.where = m.cell.Key().Name()
		c.requests(m)
		if m.cell.Phase != runlog.PhaseWarmup {
			c.cell(m, cold)
		}
	}
	c.where = "telemetry"
	c.telemetry()
	c.sum.cells += len(all) - 1
}

// A matched cell is a cell with what the server knows of its requests.
type matched struct {
	cell     *ingest.Cell
	ev       *runlog.Events
	scout    *truthRequest // of a decode cell; nil: none was sent
	requests []*request
}

// A request is a recorded request beside the server's record of it.
type request struct {
	*ingest.Request
	truth *truthRequest // nil: it never reached the server
	again bool          // it repeats the one before, which was lost on a kept connection
	kept  bool          // it was sent on a connection that had carried one before

	verdict
	events  []event // all that the server wrote
	arrived int     // of these, recorded
}

// An event is a token event: what the server wrote and where it is recorded.
type event struct {
	tokens             int64 // −1: nothing said how many
	reasoning, content string
	wrote              span  // µs: when it was handed to the network
	write              int   // which write of the request that was
	lost               bool  // … while the client left
	t                  span  // µs: when it may have arrived
	at                 int64 // … and when it is said to have arrived
	row                int
}

// take returns the first request with the seed and max_tokens that is not
// matched yet; nil if there is none.
func (s *truthServer) take(seed int64, maxTokens int) *truthRequest {
	for _, r := range s.requests {
		if !r.used && r.seed == seed && r.maxTokens == maxTokens {
			r.used = true
			return r
		}
	}
	return nil
}

// match finds the server's record of each request of a cell.
func (c *comparer) match(cell *ingest.Cell) *matched {
	m := &matched{cell: cell, ev: c.read(cell)}
	limit := int(c.m.Plan.MaxOutputTokens)
	if cell.Phase == runlog.PhasePrefill {
		limit = 1
	}
	if cell.Phase == runlog.PhaseDecode {
		m.scout = c.srv.take(requestSeed(c.m.Plan.Seed, cell.ContextTokens, cell.Concurrency, 0, 0), 1)
	}
	stream, n := int32(-1), 0
	for i := range cell.Requests {
		r := &request{Request: &cell.Requests[i]}
		if r.Stream != stream {
			stream, n = r.Stream, 0
		}
		var last *request
		if r.Request.Request > 0 {
			last = m.requests[len(m.requests)-1]
		}
		r.kept = last != nil && last.End == runlog.KindDone
		if r.again = last != nil && last.End == runlog.KindCancelled; r.again {
			n--
		}
		r.truth = c.srv.take(requestSeed(c.m.Plan.Seed, cell.ContextTokens, cell.Concurrency, int(stream), n), limit)
		n++
		c.fill(m, r)
		m.requests = append(m.requests, r)
	}
	return m
}

// fill lists the token events of a request, as the server wrote them and as
// they are recorded.
func (c *comparer) fill(m *matched, r *request) {
	if r.truth == nil {
		return
	}
	said := 0 // highest running total so far
	for i, w := range r.truth.writes {
		for _, ch := range w.each {
			e := event{write: i, tokens: -1, reasoning: ch.Reasoning, content: ch.Content, wrote: span{c.us(w.before), c.us(w.after)}, lost: w.lost}
			switch {
			case ch.Said >= said:
				e.tokens, said = int64(ch.Said-said), ch.Said
			case ch.Said < 0 && c.m.Plan.TokenCounting == "token ids" && !c.set.NoTokenIDs:
				e.tokens = int64(ch.Tokens)
			}
			if e.tokens > 0 || ch.Reasoning != "" || ch.Content != "" {
				r.events = append(r.events, e)
			}
		}
	}
}

// closing is the last write of a request, zero if there was none.
func (r *truthRequest) closing() truthWrite {
	if len(r.writes) == 0 {
		return truthWrite{before: r.ended, after: r.ended}
	}
	return r.writes[len(r.writes)-1]
}

// tokenRows returns the rows of a request's token events.
func tokenRows(ev *runlog.Events, r *ingest.Request) (rows []int) {
	for i := r.FirstRow; i < r.FirstRow+r.Rows; i++ {
		if ev.Kind[i] == runlog.KindChunk && (ev.Tokens[i] > 0 || ev.Channel[i] != runlog.ChannelNone) {
			rows = append(rows, i)
		}
	}
	return rows
}

// delays takes the times of all rows, and measures how long the way from the
// server to the run log is: the distribution gives the slack of the times.
func (c *comparer) delays(all []*matched) {
	var excess []float64
	for _, m := range all {
		c.where = m.cell.Key().Name()
		for _, r := range m.requests {
			if r.truth == nil {
				continue
			}
			c.sum.sent = append(c.sum.sent, float64(r.SentUs)-c.us(r.truth.got))
			rows := tokenRows(m.ev, r.Request)
			if len(rows) > len(r.events) {
				c.errorf("stream %d request %d: %d token events recorded, the server wrote %d", r.Stream, r.Request.Request, len(rows), len(r.events))
				rows = rows[:len(r.events)]
			}
			r.arrived = len(rows)
			for k, row := range rows {
				e := &r.events[k]
				e.at, e.row = m.ev.TUs[row], row
				e.t = span{e.wrote.lo, c.arrivedBy(m.ev, r, rows, k)}
				c.sum.delay = append(c.sum.delay, float64(e.at)-e.wrote.lo)
				excess = append(excess, float64(e.at)-e.t.hi)
			}
			c.sum.events += len(rows)
		}
	}
	c.sum.excess = append(c.sum.excess, excess...)
	c.slack, c.late = 1, 1000 // times are whole microseconds
	if len(excess) > 0 {
		c.slack = max(c.slack, 2*spread(values(excess), quantile(0.99)).hi)
	}
	// How late this process was at its own timers bounds how late it is at
	// anything else that it stamps itself.
	for _, s := range c.tel {
		switch {
		case s.Source != runlog.SourceClient:
		case s.Name == runlog.MetricTimerLatenessMax:
			c.late = max(c.late, 2*s.Value)
		case s.Name == runlog.MetricTimerLatenessP99:
			c.sum.timers = append(c.sum.timers, s.Value)
		}
	}
}

// arrivedBy returns when token event k had arrived at the latest, as far as
// the server knows: at the end of the last write of the read that returned
// it, because the kernel tells the time of the last thing that a read
// returns. The rows that share the read say which write that was. What has
// no row may have come with it as well: keep-alives, and the end of the body
// behind the last event.
func (c *comparer) arrivedBy(ev *runlog.Events, r *request, rows []int, k int) float64 {
	at, row, tr := float64(ev.TUs[rows[k]]), rows[k], r.truth
	own := c.us(tr.writes[r.events[k].write].after)
	for row+1 < r.FirstRow+r.Rows && ev.SameRead[row+1] {
		row++
	}
	if tr.fault.Dribble > 0 {
		// These are more small packets than TCP lets out at once; the rest
		// leaves when the first are acknowledged, which nobody here knows.
		return max(own, at)
	}
	last := len(tr.writes) - 1
	i, ok := slices.BinarySearch(rows, row)
	w := last
	if ok {
		w = r.events[i].write
	}
	for ; ; w++ {
		end := c.us(tr.writes[w].after)
		switch {
		case at <= end+1:
			return end
		case w == last && tr.left.IsZero():
			return end
		case w == last:
			return max(end, c.us(tr.left))
		case len(tr.writes[w+1].each) > 0:
			return end
		}
	}
}

func values(xs []float64) (spans []span) {
	for _, x := range xs {
		spans = append(spans, exactly(x))
	}
	return spans
}
