package render_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A target is what the table of a page shall print for one measurement. NaN
// stands for a dash.
type target struct {
	key                                        runlog.Key
	status                                     ingest.Status
	total, perRequest, ttftMs, betweenMs       float64
	active, completed, outputTokens, measuredS float64
}

// readTargets reads a table of targets.
func readTargets(t testing.TB, name string) []target {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []target
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		c := strings.Split(s.Text(), "\t")
		var n [8]float64
		for i := range n {
			n[i] = math.NaN()
			if v := c[4+i]; v != "-" {
				if n[i], err = strconv.ParseFloat(v, 64); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		context, _ := strconv.Atoi(c[1])
		concurrency, _ := strconv.Atoi(c[2])
		k := target{
			key:   runlog.Key{Phase: runlog.Phase(c[0]), ContextTokens: int32(context), Concurrency: int32(concurrency)},
			total: n[0], perRequest: n[1], ttftMs: n[2], betweenMs: n[3], active: n[4], completed: n[5], outputTokens: n[6], measuredS: n[7],
		}
		for _, s := range append(ingest.Statuses(), ingest.Valid) {
			if s.String() == c[3] {
				k.status = s
			}
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		t.Fatalf("%s has no targets", name)
	}
	return list
}

const (
	cellTimeUs = 300e6 // from the beginning of one cell to that of the next
	rampUs     = 120e6 // of it before the window opens
	tokensEach = 32    // in one event, about: keeps the logs small
	endUs      = 1000  // from the last event of a request to its end
)

// writeRun writes a run that has the given facts and prints the given targets.
func writeRun(t testing.TB, dir string, m runlog.Manifest, targets []target) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "cells"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, k := range targets {
		c := runlog.Cell{Phase: k.key.Phase, ContextTokens: k.key.ContextTokens, Concurrency: k.key.Concurrency, Outcome: runlog.OutcomeRecorded}
		start := int64(i+1) * cellTimeUs
		var ev *runlog.Events
		var err error
		switch {
		case k.status == ingest.OverCapacity:
			c.Outcome = runlog.OutcomeOverCapacity
		case k.status == ingest.NotRun:
			c.Outcome = runlog.OutcomePending
		case k.key.Phase == runlog.PhasePrefill:
			ev = prefillEvents(k, start)
		case k.status == ingest.Valid:
			var window int64
			if ev, window, err = decodeEvents(k, start); err != nil {
				t.Fatalf("%s: %v", k.key.Name(), err)
			}
			setWindow(&c, start+rampUs, window)
		case k.status == ingest.Looped:
			ev = loopedEvents(k, start, m.Plan.DurationUs)
			setWindow(&c, start+rampUs, m.Plan.DurationUs)
		default:
			t.Fatalf("%s: no events for status %s", k.key.Name(), k.status)
		}
		if ev != nil {
			if c.FileInfo, err = runlog.WriteEvents(dir, ev); err != nil {
				t.Fatal(err)
			}
		}
		m.Cells = append(m.Cells, c)
	}
	if err := runlog.WriteManifest(dir, &m); err != nil {
		t.Fatal(err)
	}
}

func setWindow(c *runlog.Cell, open, length int64) {
	shut := open + length
	c.WindowOpenUs, c.WindowCloseUs = &open, &shut
	c.Ready = &runlog.Ready{By: "streams", WaitedUs: 3e6}
}

// prefillEvents gives one sample whose prompt tokens over its TTFT are the
// target's total, as exactly as a microsecond allows.
func prefillEvents(k target, start int64) *runlog.Events {
	ev := &runlog.Events{Key: k.key}
	prompt := math.Round(k.total * k.ttftMs / 1000)
	r := request{ev: ev}
	r.add(runlog.KindSent, start)
	r.add(runlog.KindHeaders, start+200)
	first := start + int64(math.Round(prompt/k.total*1e6))
	r.chunk(first, 1)
	r.add(runlog.KindUsage, first+100, func(e *runlog.Event) {
		e.PromptTokens, e.CachedTokens, e.CompletionTokens = int32(prompt), 0, 1
	})
	r.add(runlog.KindDone, first+200)
	return ev
}

// loopedEvents gives one request that repeats itself, and others that are
// cut off.
func loopedEvents(k target, start, window int64) *runlog.Events {
	ev := &runlog.Events{Key: k.key}
	open := start + rampUs
	for s := range k.key.Concurrency {
		r := request{ev: ev, stream: s}
		r.add(runlog.KindSent, open-2e6)
		r.add(runlog.KindHeaders, open-2e6+500)
		r.chunk(open-1e6, 1)
		for i := range int64(8) {
			r.add(runlog.KindChunk, open+window*(i+1)/8, func(e *runlog.Event) {
				e.Tokens, e.Channel, e.HasText, e.Text = 100, runlog.ChannelContent, true, fmt.Sprintf("stream %d says %d. ", s, i)
				if s == 0 {
					e.Text = strings.Repeat("and so it goes on and on, ", 32)
				}
			})
		}
		r.add(runlog.KindCancelled, open+window)
	}
	return ev
}

// A request appends the rows of one request.
type request struct {
	ev              *runlog.Events
	stream, request int32
	seq             int32
}

func (r *request) add(kind runlog.Kind, t int64, set ...func(*runlog.Event)) {
	e := runlog.NewEvent(kind, t)
	e.Stream, e.Request, e.Seq = r.stream, r.request, r.seq
	r.seq++
	if kind == runlog.KindHeaders {
		e.Status = 200
	}
	for _, f := range set {
		f(&e)
	}
	r.ev.Append(e)
}

// chunk adds an event with tokens and a text that never repeats.
func (r *request) chunk(t, tokens int64) {
	r.add(runlog.KindChunk, t, func(e *runlog.Event) {
		e.Tokens, e.Channel, e.HasText, e.Text = int32(tokens), runlog.ChannelContent, true, strconv.Itoa(int(r.seq))+" "
	})
}

// spread adds n tokens, evenly in (from, to].
func (r *request) spread(from, to, n int64) {
	events := max(1, (n+tokensEach-1)/tokensEach)
	for i := range events {
		r.chunk(from+(to-from)*(i+1)/events, n*(i+1)/events-n*i/events)
	}
}

// decodeEvents gives streams whose figures are the target's.
//
// Each stream's first request is under way when the window opens. It has as
// many tokens in the window as the total needs, and as many before it as its
// speed needs. Completed requests are followed, after a pause that gives the
// average of active requests, by another at its own speed.
func decodeEvents(k target, start int64) (ev *runlog.Events, window int64, err error) {
	c, completed := int64(k.key.Concurrency), int64(k.completed)
	open := start + rampUs
	if window, err = windowFor(k); err != nil {
		return nil, 0, err
	}
	shut := open + window
	ttft := int64(k.ttftMs * 1000)
	speeds, err := speedsFor(k, c+completed)
	if err != nil {
		return nil, 0, err
	}
	// Each completion costs active time: a pause and the next TTFT. Where
	// that is more than the average allows, requests complete so late that
	// the window closes before the next one's first token.
	pause, late := int64(0), int64(0)
	if completed > 0 {
		loss := int64((float64(c) - k.active) * float64(window) / float64(completed))
		pause = max(0, loss-ttft)
		if natural := float64(c) - float64((ttft+pause)*completed)/float64(window); !prints(natural, k.active) {
			late = max(loss, 3*endUs)
		}
	}

	// A plan of all requests: the ones that begin in the window first, since
	// their tokens follow from their speeds; the others share the rest.
	type plan struct {
		stream, request  int32
		first, last, end int64
		before, inside   int64 // tokens before the window and in it, beyond the first
		speed            float64
		done             bool
	}
	var plans []plan
	rest := int64(k.outputTokens)
	for s := range c {
		ends := completed / c
		if s < completed%c {
			ends++
		}
		at := func(i int64) int64 { return open + window*i/(ends+1) }
		if late > 0 && ends == 1 {
			at = func(i int64) int64 { return shut - late*(2-i) }
		}
		for i := range ends + 1 {
			p := plan{
				stream: int32(s), request: int32(i), end: at(i + 1), done: i < ends,
				speed: speeds[len(plans)%2],
			}
			p.last = p.end - endUs
			if i > 0 {
				p.first = at(i) + pause + ttft
				if p.first >= p.last {
					plans = append(plans, p)
					continue
				}
				p.inside = int64(p.speed * float64(p.last-p.first) / 1e6)
				p.last = p.first + int64(math.Round(float64(p.inside)/p.speed*1e6))
				rest -= 1 + p.inside
			}
			plans = append(plans, p)
		}
	}
	seen := int64(0)
	for i := range plans {
		p := &plans[i]
		if p.request > 0 {
			continue
		}
		p.inside = rest*(seen+1)/c - rest*seen/c
		seen++
		if p.inside < 1 {
			return nil, 0, fmt.Errorf("%d tokens in the window do not leave one for stream %d", int64(k.outputTokens), p.stream)
		}
		p.before = max(0, int64(math.Ceil(p.speed*float64(p.last-open)/1e6))-p.inside) + 2
		p.first = p.last - int64(math.Round(float64(p.before+p.inside)/p.speed*1e6))
	}

	ev = &runlog.Events{Key: k.key}
	for _, p := range plans {
		r := request{ev: ev, stream: p.stream, request: p.request}
		r.add(runlog.KindSent, p.first-ttft)
		if p.inside == 0 {
			r.add(runlog.KindCancelled, shut+endUs)
			continue
		}
		r.add(runlog.KindHeaders, p.first-ttft+min(500, ttft))
		r.chunk(p.first, 1)
		from := p.first
		if p.before > 0 {
			r.chunk(p.first+(open-p.first)/2, p.before)
			from = open
		}
		r.spread(from, p.last, p.inside)
		if !p.done {
			r.add(runlog.KindCancelled, shut+endUs)
			continue
		}
		r.add(runlog.KindUsage, p.end, func(e *runlog.Event) {
			e.PromptTokens, e.CompletionTokens = k.key.ContextTokens, int32(1+p.before+p.inside)
		})
		r.add(runlog.KindDone, p.end)
	}
	return ev, window, nil
}

// prints reports whether v is printed as want, which has one decimal.
func prints(v, want float64) bool {
	return strconv.FormatFloat(v, 'f', 1, 64) == strconv.FormatFloat(want, 'f', 1, 64)
}

// windowFor returns a window that prints as the target's and over which the
// output is the target's total.
func windowFor(k target) (int64, error) {
	for _, us := range []float64{k.measuredS * 1e6, k.outputTokens / k.total * 1e6} {
		w := math.Round(us)
		if prints(w/1e6, k.measuredS) && prints(k.outputTokens*1e6/w, k.total) {
			return int64(w), nil
		}
	}
	return 0, fmt.Errorf("%v tokens in %v s are not %v tok/s", k.outputTokens, k.measuredS, k.total)
}

// speedsFor returns the speeds of every other request. One speed serves both
// medians where they are inverse to each other; where they are not, two
// speeds do: half of the requests at each, an even number of requests.
func speedsFor(k target, requests int64) ([2]float64, error) {
	const half = 0.049 // of the last decimal, less a margin
	low := max(k.perRequest-half, 1000/(k.betweenMs+half))
	high := min(k.perRequest+half, 1000/(k.betweenMs-half))
	if low < high {
		s := (low + high) / 2
		return [2]float64{s, s}, nil
	}
	product := k.perRequest * k.betweenMs
	if requests%2 != 0 || product < 1000 {
		return [2]float64{}, fmt.Errorf("%d requests can't have medians of %v tok/s and %v ms", requests, k.perRequest, k.betweenMs)
	}
	d := math.Sqrt(k.perRequest * (k.perRequest - 1000/k.betweenMs))
	return [2]float64{k.perRequest + d, k.perRequest - d}, nil
}

func fact(v string) *runlog.Fact { return &runlog.Fact{Value: v, Source: runlog.FromFlag} }

// referenceManifest returns the facts that both reference pages share.
func referenceManifest(targets []target) runlog.Manifest {
	m := runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "llm-inference-bench", Version: "v0.7.6"},
		StartedAt: time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC), ArrivalClock: runlog.ArrivalUser, Finished: true,
		Engine: runlog.Engine{
			Name: fact("vllm"), Version: fact("0.30.1rc1.dev452+g73a583112"), Commit: fact("73a5831127a9"),
			Build: fact("cuda-13.2"), Backend: fact("cuda"), Repository: fact("github.com/vllm-project/vllm"),
		},
		Model: runlog.Model{Revision: "main"},
		Hardware: runlog.Hardware{
			Type: "Discrete GPU", OS: "linux",
			GPUs: []runlog.GPU{{Name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", VRAMBytes: 97_887 << 20}},
		},
		Plan: runlog.Plan{
			DurationUs: 30e6, MaxOutputTokens: 4096, PrefillRepeats: 1, PromptSet: "reference", Text: "full",
			Sampling:   runlog.Sampling{Temperature: 0, TopP: 1},
			DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "continuous usage",
		},
	}
	planFrom(&m.Plan, targets)
	return m
}

// planFrom plans exactly the targets' cells.
func planFrom(p *runlog.Plan, targets []target) {
	add := func(list *[]int32, v int32) {
		for _, w := range *list {
			if w == v {
				return
			}
		}
		*list = append(*list, v)
	}
	for _, k := range targets {
		if k.key.Phase == runlog.PhasePrefill {
			add(&p.PrefillContextsTokens, k.key.ContextTokens)
			continue
		}
		add(&p.ContextsTokens, k.key.ContextTokens)
		add(&p.Concurrency, k.key.Concurrency)
	}
}
