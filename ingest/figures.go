package ingest

import (
	"speedmatrix/ingest/runlog"
)

// figures computes what is computed whatever the cell's status is.
func (f *folder) figures(c *Cell) Figures {
	var g Figures
	rs := c.Requests
	medianOf := func(value func(*Request) Stat) Stat {
		var xs []float64
		for i := range rs {
			if s := value(&rs[i]); !rs[i].Failed && s.Known() {
				xs = append(xs, s.Value)
			}
		}
		return median(xs)
	}
	g.PromptTokens = medianOf(func(r *Request) Stat { return counted(r.PromptTokens) })
	g.TTFTUs = medianOf(func(r *Request) Stat { return r.TTFTUs })
	g.FirstAnswerUs = medianOf(func(r *Request) Stat {
		if r.FirstAnswerUs < 0 {
			return Stat{}
		}
		return known(float64(r.FirstAnswerUs-r.SentUs), 1)
	})
	g.CachedShare = cachedShare(rs)
	if c.Phase == runlog.PhasePrefill {
		g.PrefillTokPerS = medianOf(PrefillTokPerS)
		if len(rs) > 0 {
			g.CompletedRequests = known(float64(g.PrefillTokPerS.N), len(rs))
		}
		return g
	}

	g.BetweenTokensUs = medianOf(func(r *Request) Stat { return r.BetweenTokensUs })
	g.PerRequestTokPerS = medianOf(func(r *Request) Stat { return r.PerRequestTokPerS })
	for i := range rs {
		r := &rs[i]
		if s := r.PerRequestTokPerS; !r.Failed && s.Known() {
			n := g.PerRequestTokPerS.N
			if !g.SlowestTokPerS.Known() || s.Value < g.SlowestTokPerS.Value {
				g.SlowestTokPerS = known(s.Value, n)
			}
			if !g.FastestTokPerS.Known() || s.Value > g.FastestTokPerS.Value {
				g.FastestTokPerS = known(s.Value, n)
			}
		}
	}
	if !f.win.ok || f.ev == nil {
		return g
	}
	g.WindowUs = known(float64(f.win.length()), 1)
	g.TotalTokPerS = f.rate(f.whole, f.win.length())
	if g.TotalTokPerS.Known() {
		n := f.whole.tokens
		g.OutputTokens = known(float64(n), g.TotalTokPerS.N)
		g.TokensPerEvent = known(float64(n)/float64(g.TotalTokPerS.N), g.TotalTokPerS.N)
		g.FirstHalfTokPerS = f.rate(f.halves[0], f.win.middle()-f.win.open)
		g.SecondHalfTokPerS = f.rate(f.halves[1], f.win.close-f.win.middle())
	}
	var active int64
	var ever, completed int
	for i := range rs {
		active += rs[i].ActiveUs
		if rs[i].ActiveUs > 0 {
			ever++
		}
		if rs[i].End == runlog.KindDone && !rs[i].Failed && f.win.contains(rs[i].EndUs) {
			completed++
		}
	}
	if ever > 0 {
		g.ActiveRequests = known(float64(active)/float64(f.win.length()), ever)
	}
	if len(rs) > 0 {
		g.CompletedRequests = known(float64(completed), len(rs))
	}
	f.memory.sorted = sortGaps(f.gaps, f.memory.sorted)
	g.GapP50Us = percentile(f.gaps, 0.5)
	g.GapP90Us = percentile(f.gaps, 0.9)
	g.GapP99Us = percentile(f.gaps, 0.99)
	g.GapMaxUs = percentile(f.gaps, 1)
	return g
}

// rate returns the tokens of a stretch of the window per second, as a figure
// over the token events of the whole window, so that a half in which nothing
// came is a measured 0. It is unknown when the tokens are not all counted, or
// when the window had no token event at all.
func (f *folder) rate(t tally, length int64) Stat {
	if t.unknown || length <= 0 {
		return Stat{}
	}
	return known(perSecond(t.tokens, length), f.whole.events)
}

// PrefillTokPerS returns the prefill rate of one sample: its prompt tokens,
// as the server counted them, over its TTFT.
func PrefillTokPerS(r *Request) Stat {
	if r.PromptTokens <= 0 || !r.TTFTUs.Known() || r.TTFTUs.Value <= 0 {
		return Stat{}
	}
	return known(perSecond(int64(r.PromptTokens), r.FirstUs-r.SentUs), 1)
}

// counted returns a count as a figure; unknown stays unknown.
func counted(n int32) Stat {
	if n < 0 {
		return Stat{}
	}
	return known(float64(n), 1)
}

// cachedShare returns cached over all prompt tokens of the requests for
// which the server says both.
func cachedShare(rs []Request) Stat {
	var cached, prompt int64
	n := 0
	for i := range rs {
		if r := &rs[i]; !r.Failed && r.CachedTokens >= 0 && r.PromptTokens > 0 {
			cached += int64(r.CachedTokens)
			prompt += int64(r.PromptTokens)
			n++
		}
	}
	if n == 0 {
		return Stat{}
	}
	return known(float64(cached)/float64(prompt), n)
}
