package main_test

import (
	"fmt"
	"slices"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A reading is the sum over the engines of one value at one instant.
type reading struct{ t, v float64 }

// readings returns a series in the order of time, its engines added up.
func (c *comparer) readings(source runlog.Source, name string) (all []reading) {
	at := map[int64]float64{}
	for _, s := range c.tel {
		if s.Source == source && s.Name == name {
			at[s.TUs] += s.Value
		}
	}
	for t, v := range at {
		all = append(all, reading{float64(t), v})
	}
	slices.SortFunc(all, func(a, b reading) int { return int(a.t - b.t) })
	return all
}

func inside(all []reading, w window) (in []reading) {
	for _, r := range all {
		if w.open <= r.t && r.t <= w.close {
			in = append(in, r)
		}
	}
	return in
}

// around returns a counter's last reading up to from and its first from to
// on. Where there is none, near takes the first or last of all instead.
func around(all []reading, from, to float64, near bool) (before, after float64, ok bool) {
	b, a := -1, -1
	for i, r := range all {
		if r.t <= from {
			b = i
		}
		if r.t >= to && a < 0 {
			a = i
		}
	}
	if near && len(all) > 0 {
		b = max(b, 0)
		if a < 0 {
			a = len(all) - 1
		}
	}
	if b < 0 || a < 0 || near && b >= a {
		return 0, 0, false
	}
	return all[b].v, all[a].v, true
}

// clientLimited reports whether the collector's own telemetry says that too
// much was read too late.
func (c *comparer) clientLimited(w window, betweenTokens ingest.Stat) bool {
	if c.m.ArrivalClock != runlog.ArrivalKernel {
		limited, limit := false, 5000.0
		if betweenTokens.Known() {
			limit = min(limit, 0.1*betweenTokens.Value)
		}
		for _, r := range inside(c.readings(runlog.SourceClient, runlog.MetricTimerLatenessP99), w) {
			limited = limited || r.v > limit
		}
		return limited
	}
	chunks0, chunks1, ok := around(c.readings(runlog.SourceClient, runlog.MetricChunks), w.open, w.close, true)
	late0, late1, _ := around(c.readings(runlog.SourceClient, runlog.MetricLateSharedChunks), w.open, w.close, true)
	return ok && late1-late0 > 0.05*(chunks1-chunks0)
}

// underFilled reports whether the server's gauges say that fewer ran than
// were asked to, or its counter that some were preempted, or whether too few
// requests were in progress though none failed.
func (c *comparer) underFilled(m *matched, w window) bool {
	concurrency := float64(m.cell.Concurrency)
	progress, failed := 0.0, false
	for _, r := range m.requests {
		progress += max(0, min(w.close, float64(r.EndUs))-max(w.open, float64(r.SentUs)))
		failed = failed || r.failed
	}
	if progress /= w.close - w.open; concurrency > 1 && !failed && progress > 0 && progress < 0.9*concurrency {
		return true
	}
	running := inside(c.readings(runlog.SourceServer, runlog.MetricRequestsRunning), w)
	waiting := inside(c.readings(runlog.SourceServer, runlog.MetricRequestsWaiting), w)
	sum, queued := 0.0, 0.0
	for _, r := range running {
		sum += r.v
	}
	for _, r := range waiting {
		if r.v > 0 {
			queued++
		}
	}
	before, after, ok := around(c.readings(runlog.SourceServer, runlog.MetricPreemptions), w.open, w.close, true)
	return concurrency > 1 && (sum < 0.9*concurrency*float64(len(running)) || queued > 0.1*float64(len(waiting))) || ok && after > before
}

// cached reports whether a prefill sample is known to have come from the
// cache. Where the counters can say that, they must be right.
func (c *comparer) cached(m *matched) bool {
	hits := c.readings(runlog.SourceServer, runlog.MetricPrefixCacheHits)
	queries := c.readings(runlog.SourceServer, runlog.MetricPrefixCacheQueries)
	judge := func(from, to, prompt float64) (found, ok bool) {
		q0, q1, ok := around(queries, from, to, false)
		if ok && q1-q0 > prompt+max(64, prompt/100) {
			return false, false // others used the cache as well
		}
		h0, h1, ok := around(hits, from, to, false)
		return ok && h1-h0 > 64 && (h1-h0)*100 >= prompt, ok
	}
	found, judged := false, false
	prompts, cached, from, to := 0.0, 0.0, 0.0, 0.0
	for _, r := range m.requests {
		if r.failed || r.PromptTokens <= 0 {
			continue
		}
		prompt := float64(r.truth.prompt)
		if prompts == 0 {
			from = float64(r.SentUs)
		}
		prompts, cached, to = prompts+prompt, cached+float64(r.truth.cached), max(to, float64(r.EndUs))
		if r.CachedTokens >= 0 {
			judged = true
			found = found || r.truth.cached > 0 && float64(100*r.truth.cached) >= prompt
		} else if f, ok := judge(float64(r.SentUs), float64(r.EndUs), prompt); ok {
			judged = true
			found = found || f
			equal(c, "cached by the counters", f, r.truth.cached > 64 && float64(100*r.truth.cached) >= prompt)
		}
	}
	if !judged && prompts > 0 {
		if f, ok := judge(from, to, prompts); ok {
			found = f
			equal(c, "cached by the counters, all samples", f, cached > 64 && 100*cached >= prompts)
		}
	}
	return found
}

// telemetry compares the server's gauges in the run log with the pages that
// the server sent: nothing was changed or made up.
func (c *comparer) telemetry() {
	served := map[string]int{}
	for _, p := range c.srv.pages {
		for name, byEngine := range p {
			served[fmt.Sprint(name, byEngine)]++
		}
	}
	read := map[string]map[int64]map[int]float64{}
	for _, s := range c.tel {
		switch s.Name {
		case runlog.MetricRequestsRunning, runlog.MetricRequestsWaiting, runlog.MetricPreemptions:
			if read[s.Name] == nil {
				read[s.Name] = map[int64]map[int]float64{}
			}
			if read[s.Name][s.TUs] == nil {
				read[s.Name][s.TUs] = map[int]float64{}
			}
			read[s.Name][s.TUs][int(s.Index)] = s.Value
		}
	}
	for name, times := range read {
		for t, byEngine := range times {
			key := fmt.Sprint(name, byEngine)
			if served[key]--; served[key] < 0 {
				c.errorf("%s at %d µs is %v, which the server did not say", name, t, byEngine)
			}
		}
	}
	if len(c.srv.pages) > 0 && c.srv.pages[0] != nil && len(read) == 0 && len(c.srv.pages[0]) > 0 {
		c.errorf("%d pages of metrics were served, none is recorded", len(c.srv.pages))
	}
}
