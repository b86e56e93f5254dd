package ingest

import (
	"cmp"
	"slices"

	"speedmatrix/ingest/runlog"
)

// TimelineBins is the number of equal parts into which a timeline cuts its
// window: of the usual 30 s each is a second.
const TimelineBins = 30

// Bounds of what a timeline draws.
const (
	maxTimelineStreams = 32
	maxTimelineSpans   = 400
	leadPart           = 5       // the ramp-up is drawn for a fifth of the window's length at most
	stallGaps          = 10      // a stall is longer than this many median gaps …
	minStallUs         = 100_000 // … and longer than this
)

// A StreamState says what one stream of a cell is doing.
type StreamState uint8

const (
	Waiting    StreamState = iota // its request is sent, and has no token yet
	Delivering                    // tokens come
	Stalled                       // tokens came, and have not come for longer than Timeline.StallUs
	streamStates
)

// A Span is a stretch of time in which a stream is in one state.
type Span struct {
	Stream       int32
	State        StreamState
	FromUs, ToUs int64
}

// A Timeline says how one decode cell went over time. Its size is bounded,
// whatever the number of requests.
type Timeline struct {
	FromUs, ToUs int64 // what Spans cover: the window, and what lies just before it
	StallUs      int64 // a gap between token events that is longer is a stall; 0: no gap was seen

	// Spans of all streams, by stream, then time; nil when there are more
	// than 32 streams, or more spans than a drawing could show.
	Spans []Span

	// Streams is how many streams were in each state, as a time average over
	// each part of the window.
	Streams [streamStates][TimelineBins]float64

	// TokPerS is the rate of tokens in each part of the window; nil where
	// some of its events do not say how many tokens they brought.
	TokPerS []float64
}

// Percentiles of the values of one cell, by linear interpolation between the
// two nearest ranks. N of each is the number of values.
type Percentiles struct{ P5, P25, P50, P75, P90, P95, P99, Max Stat }

// A Spread says how far the values behind a cell's medians lie apart.
// Requests that failed take no part.
type Spread struct {
	TTFTUs            Percentiles // over requests
	BetweenTokensUs   Percentiles // over requests; decode
	PerRequestTokPerS Percentiles // over requests; decode
	GapUs             Percentiles // over gaps between neighbouring token events of a request that ended in the window; decode
}

// percentiles sorts xs in place.
func percentiles[T int64 | float64](xs []T) Percentiles {
	slices.Sort(xs)
	at := func(p float64) Stat { return percentile(xs, p) }
	return Percentiles{at(.05), at(.25), at(.5), at(.75), at(.9), at(.95), at(.99), at(1)}
}

func (f *folder) spread(rs []Request) Spread {
	of := func(value func(*Request) Stat) Percentiles {
		var xs []float64
		for i := range rs {
			if s := value(&rs[i]); !rs[i].Failed && s.Known() {
				xs = append(xs, s.Value)
			}
		}
		return percentiles(xs)
	}
	return Spread{
		TTFTUs:            of(func(r *Request) Stat { return r.TTFTUs }),
		BetweenTokensUs:   of(func(r *Request) Stat { return r.BetweenTokensUs }),
		PerRequestTokPerS: of(func(r *Request) Stat { return r.PerRequestTokPerS }),
		GapUs:             percentiles(f.gaps),
	}
}

// timeline returns nil for a cell without events or without a window.
func (f *folder) timeline(rs []Request, concurrency int32) *Timeline {
	if f.ev == nil || !f.win.ok {
		return nil
	}
	t := &Timeline{FromUs: f.win.close, ToUs: f.win.close}
	for i := range rs {
		t.FromUs = min(t.FromUs, rs[i].SentUs)
	}
	t.FromUs = min(f.win.open, max(t.FromUs, f.win.open-f.win.length()/leadPart))
	if g := percentile(f.gaps, 0.5); g.Known() {
		t.StallUs = max(minStallUs, int64(stallGaps*g.Value))
	}
	draw := concurrency <= maxTimelineStreams
	for i := range rs {
		r := &rs[i]
		f.states(r, t.StallUs, func(s StreamState, from, to int64) {
			f.occupy(&t.Streams[s], from, to)
			from, to = max(from, t.FromUs), min(to, t.ToUs)
			if draw = draw && len(t.Spans) <= maxTimelineSpans; draw && from < to {
				t.Spans = append(t.Spans, Span{r.Stream, s, from, to})
			}
		})
	}
	if !draw || len(t.Spans) > maxTimelineSpans {
		t.Spans = nil
	}
	if f.whole.events > 0 && f.allCounted(rs) {
		t.TokPerS = make([]float64, TimelineBins)
		for i := range rs {
			f.eachCount(i, &rs[i], func(tUs, tokens int64) {
				if f.win.contains(tUs) {
					t.TokPerS[f.bin(tUs)] += float64(tokens)
				}
			})
		}
		for i := range t.TokPerS {
			t.TokPerS[i] *= TimelineBins * 1e6 / float64(f.win.length())
		}
	}
	return t
}

// allCounted reports whether every token event of the window says how many
// tokens it brought.
func (f *folder) allCounted(rs []Request) bool {
	for i := range rs {
		if rs[i].WindowEvents > 0 && f.counts[i] == countsUnknown {
			return false
		}
	}
	return true
}

// bin returns the part of the window that holds an instant of it.
func (f *folder) bin(tUs int64) int {
	return int((tUs - f.win.open - 1) * TimelineBins / f.win.length())
}

// states calls emit for each stretch of a request, in ascending time.
func (f *folder) states(r *Request, stall int64, emit func(s StreamState, from, to int64)) {
	end := r.EndUs
	if end < 0 { // interrupted: what was seen of it
		end = f.ev.TUs[r.FirstRow+r.Rows-1]
	}
	if r.FirstUs < 0 {
		emit(Waiting, r.SentUs, end)
		return
	}
	emit(Waiting, r.SentUs, r.FirstUs)
	from, last := r.FirstUs, r.FirstUs
	next := func(t int64) {
		if stall > 0 && t-last > stall {
			emit(Delivering, from, last)
			emit(Stalled, last, t)
			from = t
		}
		last = t
	}
	for i := r.FirstRow; i < r.FirstRow+r.Rows; i++ {
		if f.delivers(i) {
			next(f.ev.TUs[i])
		}
	}
	next(end)
	emit(Delivering, from, end)
}

// occupy adds a stretch of time of one stream to the averages of the window.
func (f *folder) occupy(averages *[TimelineBins]float64, from, to int64) {
	open, length := f.win.open, f.win.length()
	from, to = max(from, open), min(to, f.win.close)
	if from >= to {
		return
	}
	for i := f.bin(from + 1); i <= f.bin(to); i++ {
		lo, hi := open+int64(i)*length/TimelineBins, open+int64(i+1)*length/TimelineBins
		if d := min(hi, to) - max(lo, from); d > 0 {
			averages[i] += float64(d) / float64(hi-lo)
		}
	}
}

// A counting says which number of tokens each event of a request stands for.
type counting uint8

const (
	countsUnknown counting = iota
	countsRows             // what its row says
	countsOnes             // one
)

// eachCount calls yield for every token event of request i with its tokens,
// unless these are unknown.
func (f *folder) eachCount(i int, r *Request, yield func(tUs, tokens int64)) {
	if f.counts[i] == countsUnknown {
		return
	}
	for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
		if !f.delivers(row) {
			continue
		}
		n := int64(1)
		if f.counts[i] == countsRows {
			n = max(0, int64(f.ev.Tokens[row]))
		}
		yield(f.ev.TUs[row], n)
	}
}

// Checks are figures that tell whether a cell's results can be believed.
// None of them is a result.
type Checks struct {
	HalvesDiffer Stat // |second − first half's tok/s| over the whole window's; N is the number of token events
	SumDiffers   Stat // |active requests × median per-request tok/s − total| over total; N is the number of requests behind the median
	OverrunUs    Stat // the window's length less the planned one; negative when it was shorter

	// ServerTokens is the growth of the server's own count of output tokens
	// between its first and last sample in the window; N is the number of
	// samples. ClientTokens is what arrived at the client between the same
	// two instants; N is the number of token events.
	ServerTokens, ClientTokens Stat

	TimerLatenessUs Stat // with user-space arrival times: the worst second's p99; N is the number of seconds
	LateChunkShare  Stat // with kernel arrival times: chunks that were read late together with an older one, over all; N is the number of chunks
}

// countShare is how far the client's count may be from the server's.
const countShare = 0.02

// Unsteady reports whether the halves of the window differ by more than a
// steady server's would.
func (k *Checks) Unsteady() bool { return k.HalvesDiffer.Value > steadyShare }

// SumOff reports whether total and per-request rates contradict each other.
func (k *Checks) SumOff() bool { return k.SumDiffers.Value > sumShare }

// CountOff reports whether the client counted other tokens than the server.
func (k *Checks) CountOff() bool {
	d := k.ClientTokens.Value - k.ServerTokens.Value
	return k.ServerTokens.Known() && max(d, -d) > countShare*k.ServerTokens.Value
}

func (f *folder) checks(c *Cell, m *runlog.Manifest, tel telemetry) Checks {
	var k Checks
	g := &c.Figures
	if a, b, all := g.FirstHalfTokPerS, g.SecondHalfTokPerS, g.TotalTokPerS; a.Known() && b.Known() && all.Value > 0 {
		k.HalvesDiffer = known(max(b.Value-a.Value, a.Value-b.Value)/all.Value, all.N)
	}
	if total, each, active := g.TotalTokPerS, g.PerRequestTokPerS, g.ActiveRequests; total.Value > 0 && each.Known() && active.Known() {
		sum := each.Value * active.Value
		k.SumDiffers = known(max(sum-total.Value, total.Value-sum)/total.Value, each.N)
	}
	if !f.win.ok || f.ev == nil {
		return k
	}
	if m.Plan.DurationUs > 0 {
		k.OverrunUs = known(float64(f.win.length()-m.Plan.DurationUs), 1)
	}
	pts := tel.of(runlog.SourceServer, runlog.MetricGenerationTokens)
	inside := within(pts, f.win.open, f.win.close)
	if len(inside) == 0 || !f.allCounted(c.Requests) {
		return k
	}
	from, to := inside[0].tUs, inside[len(inside)-1].tUs
	before, after, ok := growth(pts, from, to)
	if from == to || !ok {
		return k
	}
	tokens, events := int64(0), 0
	for i := range c.Requests {
		f.eachCount(i, &c.Requests[i], func(t, n int64) {
			if from < t && t <= to {
				tokens += n
				events++
			}
		})
	}
	k.ServerTokens, k.ClientTokens = known(after-before, len(sums(inside))), known(float64(tokens), max(1, events))
	return k
}

// A Fall is a TTFT that went down when more requests ran at once.
type Fall struct {
	ContextTokens int32
	From, To      int32   // concurrency
	FromUs, ToUs  float64 // TTFT
	FromN, ToN    int     // requests behind each
}

// fallShare is how much lower a TTFT must be to be worth a remark.
const fallShare = 0.1

// TTFTFalls returns where TTFT does not grow with the load: neighbouring
// Valid decode cells of one context of which the one with more requests at
// once has a TTFT that is more than a tenth lower. The order of cells does
// not matter.
func TTFTFalls(cells []Cell) []Fall {
	var known []*Cell
	for i := range cells {
		if c := &cells[i]; c.Status == Valid && c.Figures.TTFTUs.Known() {
			known = append(known, c)
		}
	}
	slices.SortStableFunc(known, func(a, b *Cell) int {
		return cmp.Or(cmp.Compare(a.ContextTokens, b.ContextTokens), cmp.Compare(a.Concurrency, b.Concurrency))
	})
	var falls []Fall
	var last *Cell
	for _, c := range known {
		if last != nil && last.ContextTokens == c.ContextTokens {
			if a, b := last.Figures.TTFTUs, c.Figures.TTFTUs; b.Value < (1-fallShare)*a.Value {
				falls = append(falls, Fall{c.ContextTokens, last.Concurrency, c.Concurrency, a.Value, b.Value, a.N, b.N})
			}
		}
		last = c
	}
	return falls
}
