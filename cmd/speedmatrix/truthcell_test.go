package main_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A window is open below and closed above, as docs/method.md has it.
type window struct{ open, close float64 }

func (c *comparer) window(cell *ingest.Cell) (w window, ok bool) {
	if cell.WindowOpenUs == nil || cell.WindowCloseUs == nil || *cell.WindowCloseUs <= *cell.WindowOpenUs {
		return w, false
	}
	return window{float64(*cell.WindowOpenUs), float64(*cell.WindowCloseUs)}, true
}

// has reports whether an arrival within t is in the window. Where it may be
// on either side of an edge, the recorded instant decides.
func (w window) has(t span, at int64) bool {
	in := func(t float64) bool { return w.open < t && t <= w.close }
	if lo := in(math.Floor(t.lo)); lo == in(math.Floor(t.hi)) && (lo || t.hi <= w.open || t.lo > w.close) {
		return lo
	}
	return in(float64(at))
}

// A verdict is what must be said of one request.
type verdict struct {
	failed, early bool
	total, first  int64 // −1: unknown
	counted       bool  // the tokens of every event are known
	ones          bool  // … because there are as many as events, whatever the events say
	end           runlog.Kind
	ended         span

	rate, between span
	known         bool // rate and between are
}

// requests compares every request of a cell.
func (c *comparer) requests(m *matched) {
	for i, r := range m.requests {
		c.where = fmt.Sprintf("%s stream %d request %d", m.cell.Key().Name(), r.Stream, r.Request.Request)
		c.sum.requests++
		last := i+1 == len(m.requests) || m.requests[i+1].Stream != r.Stream
		c.request(m, r, last)
	}
}

// request compares one request with what the server did for it.
func (c *comparer) request(m *matched, r *request, last bool) {
	ev, tr := m.ev, r.truth
	win, hasWin := c.window(m.cell)
	if tr == nil {
		// It was on its way when its connection was closed.
		if r.End != runlog.KindCancelled || r.HeadersUs >= 0 || r.TokenEvents != 0 || !last && !c.srv.died {
			c.errorf("the server never got it, but it is recorded as %+v", *r.Request)
		}
		c.unknownTimes(r)
		return
	}
	sent := span{c.us(tr.got) - c.late, c.us(tr.got) + c.late}
	if len(tr.writes) > 0 {
		sent.hi = min(sent.hi, c.us(tr.writes[0].before)+c.slack) // the headers had been sent by then
	}
	c.within("sent", r.SentUs, sent)
	for k := range r.events[:r.arrived] {
		e := &r.events[k]
		e.t.hi = max(e.t.hi+c.slack, float64(r.SentUs)) // time does not go back behind the sending
		c.within(fmt.Sprintf("event %d", k), e.at, e.t)
		equal(c, fmt.Sprintf("tokens of event %d", k), int64(ev.Tokens[e.row]), e.tokens)
	}
	c.text(ev, r)

	r.verdict = c.verdict(m, r, last)
	v := r.verdict
	equal(c, "End", r.End, v.end)
	if v.end != runlog.KindCancelled {
		c.within("end", r.EndUs, v.ended)
	} else if hasWin && !c.resent(r, last) && float64(r.EndUs) < win.close {
		c.errorf("cancelled at %d, before the window closed at %v", r.EndUs, win.close)
	}
	equal(c, "Failed", r.Failed, v.failed)
	if r.Failed == (r.Reason == "") {
		c.errorf("failed %v for the reason %q", r.Failed, r.Reason)
	}
	equal(c, "EndedEarly", r.EndedEarly, v.early)
	equal(c, "Tokens", r.Tokens, v.total)
	equal(c, "FirstTokens", r.FirstTokens, v.first)
	equal(c, "TokenEvents", r.TokenEvents, r.arrived)
	c.said(ev, r)

	// Times.
	if r.arrived == 0 {
		c.unknownTimes(r)
	} else {
		first, lastEvent := r.events[0], r.events[r.arrived-1]
		equal(c, "FirstUs", r.FirstUs, first.at)
		equal(c, "LastUs", r.LastUs, lastEvent.at)
		c.figure("TTFT", r.TTFTUs, first.t.minus(sent), 1)
		c.figure("TTFT as recorded", r.TTFTUs, exactly(float64(r.FirstUs-r.SentUs)), 1)
		n := 0
		if v.known {
			n = 1
		}
		c.figure("time between tokens", r.BetweenTokensUs, v.between, n)
		c.figure("tok/s", r.PerRequestTokPerS, v.rate, n)
	}
	answer := int64(-1)
	for k, thought := 0, false; k < r.arrived && answer < 0; k++ {
		e := &r.events[k]
		if e.content != "" {
			if thought {
				answer = e.at
			}
			break // else the answer began in the event in which thinking did
		}
		thought = thought || e.reasoning != ""
	}
	equal(c, "FirstAnswerUs", r.FirstAnswerUs, answer)

	// In the window.
	events, tokens, gap := 0, int64(0), int64(-1)
	for k := range r.events[:r.arrived] {
		e := &r.events[k]
		if !hasWin || !win.has(e.t, e.at) {
			continue
		}
		events++
		tokens += c.tokens(r, v, k)
		if k > 0 {
			gap = max(gap, e.at-r.events[k-1].at)
		}
	}
	switch {
	case !hasWin:
		tokens = -1
	case v.counted || events == 0:
	case events == r.arrived:
		tokens = v.total
	default:
		tokens = -1
	}
	equal(c, "WindowEvents", r.WindowEvents, events)
	equal(c, "WindowTokens", r.WindowTokens, tokens)
	equal(c, "LongestGapUs", r.LongestGapUs, gap)
	c.loop(ev, r)
}

// within compares a recorded instant, whole microseconds, with a span.
func (c *comparer) within(what string, at int64, want span) {
	c.t.Helper()
	if float64(at) < math.Floor(want.lo) || float64(at) > want.hi {
		c.errorf("%s at %d µs, want %.1f to %.1f", what, at, want.lo, want.hi)
	}
}

func (c *comparer) unknownTimes(r *request) {
	c.t.Helper()
	if r.FirstUs != -1 || r.LastUs != -1 || r.FirstAnswerUs != -1 || r.LongestGapUs != -1 || r.ActiveUs != 0 {
		c.errorf("no token came, but it has times: %+v", *r.Request)
	}
	c.figure("TTFT", r.TTFTUs, span{}, 0)
	c.figure("time between tokens", r.BetweenTokensUs, span{}, 0)
	c.figure("tok/s", r.PerRequestTokPerS, span{}, 0)
}

// tokens returns how many tokens event k counts for.
func (c *comparer) tokens(r *request, v verdict, k int) int64 {
	if v.ones {
		return 1
	}
	return max(0, r.events[k].tokens)
}

// reason is the finish reason that was sent. An answer that had all its tokens
// before it was broken off had ended by itself.
func (r *truthRequest) reason() string {
	tokens := 0
	for _, w := range r.writes {
		tokens += w.tokens()
	}
	switch {
	case r.end == "stop", r.end == "length":
		return r.end
	case tokens == r.maxTokens:
		return "length"
	case r.end == "abort":
		return r.end
	}
	return ""
}

func (w truthWrite) tokens() (n int) {
	for _, ch := range w.each {
		n += ch.Tokens
	}
	return n
}

// hung reports whether the client waited longer than its limit: after which
// instant, if at all. Bytes of any kind end a silence.
func (c *comparer) hung(r *request) (from float64, yes bool) {
	tr, limit := r.truth, float64(c.set.Idle.Microseconds())
	at := float64(r.SentUs)
	if !tr.accepted.IsZero() {
		at = max(at, c.us(tr.accepted)) // the headers
	}
	silence := func(from, to float64) bool {
		return to-from > 1.01*limit+c.late || to-from > 0.98*limit-c.late && r.End == runlog.KindError && strings.Contains(r.Reason, "idle limit")
	}
	for _, w := range tr.writes {
		if silence(at, c.us(w.before)) {
			return at, true
		}
		at = max(at, c.us(w.after))
	}
	if tr.end == "disconnect" && silence(at, c.us(tr.ended)) {
		return at, true
	}
	if tr.end == "hang" || tr.accepted.IsZero() && r.truth.status == 0 {
		if silence(at, c.us(tr.left)) {
			return at, true
		}
	}
	return 0, false
}

// resent reports whether the client must have sent the request again: it was
// broken off before any answer, on a connection that had served before.
func (c *comparer) resent(r *request, last bool) bool {
	tr := r.truth
	return tr.accepted.IsZero() && tr.status == 0 && r.kept && !r.again && !last
}

// verdict says how a request must have ended and what that means.
func (c *comparer) verdict(m *matched, r *request, last bool) verdict {
	tr := r.truth
	win, hasWin := c.window(m.cell)
	v := verdict{total: -1, first: -1}

	// The end.
	closing := tr.closing()
	wrote := span{c.us(closing.before), c.us(tr.left) + c.slack} // the end of the body follows
	if tr.fault.Dribble > 0 {
		wrote.hi = max(wrote.hi, float64(r.EndUs)) // as in arrivedBy
	}
	left := span{c.us(tr.got), c.us(tr.left) + c.late}
	if !tr.ended.IsZero() {
		left.lo = c.us(tr.ended)
	}
	done, abort := false, false
	hungFrom, hung := c.hung(r)
	switch {
	case hung:
		limit := float64(c.set.Idle.Microseconds())
		v.end, v.ended = runlog.KindError, span{hungFrom + 0.98*limit - c.late, hungFrom + 1.02*limit + c.late}
	case tr.status >= 300:
		v.end, v.ended = runlog.KindError, left
	case tr.end == "stop", tr.end == "length", tr.end == "abort":
		v.end, v.ended = runlog.KindDone, wrote
		done, abort = true, tr.reason() == "abort"
	case tr.end == "error", tr.end == "empty-error", tr.end == "died":
		v.end, v.ended = runlog.KindError, wrote
	case tr.end == "disconnect":
		v.end = runlog.KindCancelled
	case c.resent(r, last):
		v.end, v.ended = runlog.KindCancelled, left
	default: // truncate, close, reset, and what came before the headers
		v.end, v.ended = runlog.KindError, left
	}
	// What the server did while the collector was leaving may not have come
	// any more; but what came by the close must be there.
	leaving := m.cell.Phase == runlog.PhaseWarmup || hasWin && v.ended.hi > win.close
	if r.End == runlog.KindCancelled && leaving {
		v.end, done, abort = runlog.KindCancelled, false, false
	}
	for k, e := range r.events[r.arrived:] {
		if hung && e.wrote.lo > v.ended.lo {
			break // the client had given up
		}
		cut := r.End == runlog.KindCancelled && (e.lost || m.cell.Phase == runlog.PhaseWarmup || hasWin && e.wrote.hi+c.slack > win.close)
		if !cut {
			c.errorf("event %d of %d was written at %.1f to %.1f µs but is not recorded", r.arrived+k, len(r.events), e.wrote.lo, e.wrote.hi)
			break
		}
	}

	// Tokens: the final usage wins; a running count that went down, or stood
	// still while text came, counts nothing.
	final, sum := int64(-1), int64(0)
	var uncounted, stuck int
	down := false
	sayings := c.sayings(r)
	for k := range r.events[:r.arrived] {
		e := &r.events[k]
		sum += max(0, e.tokens)
		switch {
		case e.tokens < 0:
			uncounted++
		case e.tokens == 0:
			stuck++
		}
	}
	for i, s := range sayings {
		down = down || i > 0 && s < sayings[i-1]
	}
	if hasRow(m.ev, r, runlog.KindUsage) || done {
		final = c.finalUsage(r)
	}
	n := int64(r.arrived)
	unusable := down || stuck > 0 && (final >= 0 && uncounted == 0 && sum != final || final < 0 && 2*stuck > r.arrived)
	switch {
	case unusable, final >= 0:
		v.total = final
	case uncounted == 0:
		v.total = sum
	}
	v.counted = uncounted == 0 && !unusable
	if !v.counted && v.total == n && n > 0 {
		v.counted, v.ones = true, true
	}
	if c.m.Plan.TokenCounting == "chunks" {
		v.total, v.counted, v.ones = -1, false, false
	}
	if v.counted && n > 0 {
		v.first = c.tokens(r, v, 0)
	}
	if after := v.total - v.first; v.counted && n > 0 && v.total >= 0 && after > 0 {
		first, lastEvent := r.events[0], r.events[n-1]
		apart := lastEvent.t.minus(first.t)
		if v.known = lastEvent.at > first.at; !v.known && apart.lo > 1 {
			v.known = true // and the comparison fails
		}
		apart.lo = max(1, apart.lo)
		v.between, v.rate = apart.times(1/float64(after)), apart.under(float64(after)*1e6)
	}

	limit := int64(c.m.Plan.MaxOutputTokens)
	decode := m.cell.Phase == runlog.PhaseDecode
	v.failed = v.end == runlog.KindError || v.end == runlog.KindDone && (n == 0 || abort) || decode && v.total > limit
	v.early = decode && c.m.Plan.Sampling.IgnoreEOS && n > 0 && v.total >= 0 && v.total < limit &&
		(v.end == runlog.KindDone || v.end == runlog.KindError)
	return v
}

// sayings returns the running totals that arrived with chunks.
func (c *comparer) sayings(r *request) (s []int64) {
	k := 0
	for _, w := range r.truth.writes {
		for _, ch := range w.each {
			if k < r.arrived && ch.Said >= 0 {
				s = append(s, int64(ch.Said))
			}
			k++
		}
	}
	return s
}

func hasRow(ev *runlog.Events, r *request, kind runlog.Kind) bool {
	return slices.Contains(ev.Kind[r.FirstRow:r.FirstRow+r.Rows], kind)
}

// finalUsage is what the server says at the end, −1 if it says nothing.
func (c *comparer) finalUsage(r *request) int64 {
	tokens, chunks := 0, 0
	for _, w := range r.truth.writes {
		for _, ch := range w.each {
			tokens += ch.Tokens
			chunks++
		}
	}
	switch {
	case c.m.Plan.TokenCounting == "chunks", r.truth.fault.Usage == simserver.UsageNone:
		return -1
	case r.truth.fault.Usage == simserver.UsageWrong:
		return int64(tokens) + 7
	case r.truth.fault.Usage == simserver.UsageChunks:
		return int64(chunks)
	}
	return int64(tokens)
}

// said compares what the server said beside its tokens.
func (c *comparer) said(ev *runlog.Events, r *request) {
	tr := r.truth
	prompt, cached, reason := runlog.Unknown, runlog.Unknown, ""
	usage := hasRow(ev, r, runlog.KindUsage)
	running := c.m.Plan.TokenCounting == "continuous usage" && tr.fault.Usage != simserver.UsageNone && tr.fault.Usage != simserver.UsageFinal
	if usage || running && hasRow(ev, r, runlog.KindChunk) {
		prompt = int32(tr.prompt)
	}
	if usage && c.set.sim.CachedTokens {
		cached = int32(tr.cached)
	}
	if r.arrived == len(r.events) && (tr.reason() != "abort" || r.End == runlog.KindDone || r.FinishReason != "") {
		reason = tr.reason()
	}
	if r.End == runlog.KindDone && usage != (c.finalUsage(r) >= 0) {
		c.errorf("final usage recorded: %v, sent: %v", usage, !usage)
	}
	equal(c, "PromptTokens", r.PromptTokens, prompt)
	equal(c, "CachedTokens", r.CachedTokens, cached)
	equal(c, "FinishReason", r.FinishReason, reason)
	status := int32(200)
	if tr.accepted.IsZero() {
		status = int32(tr.status)
		if status == 0 {
			status = runlog.Unknown
		}
	} else if r.HeadersUs < 0 {
		status = runlog.Unknown
		if _, hung := c.hung(r); r.End != runlog.KindCancelled && !hung {
			c.errorf("headers were sent but are not recorded")
		}
	}
	equal(c, "Status", r.Status, status)
}

// text compares the whole text, where the run kept it.
func (c *comparer) text(ev *runlog.Events, r *request) {
	if c.m.Plan.Text != "full" {
		return
	}
	var thoughts, answer, got strings.Builder // thinking comes first
	for _, e := range r.events[:r.arrived] {
		thoughts.WriteString(e.reasoning)
		answer.WriteString(e.content)
	}
	for i := r.FirstRow; i < r.FirstRow+r.Rows; i++ {
		got.Write(ev.TextAt(i))
	}
	// A character may be cut where thinking ends; whether its halves belong
	// together is a matter of taste.
	want := plainText(thoughts.String() + answer.String())
	if g := plainText(got.String()); g != want && g != plainText(plainText(thoughts.String())+plainText(answer.String())) {
		c.errorf("text %.60q…, want %.60q…", g, want)
	}
}

// plainText makes texts comparable of which characters were cut: how many
// replacement characters stand for a cut one does not matter.
func plainText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for strings.Contains(s, "\uFFFD\uFFFD") {
		s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
	}
	return s
}

// Limits of loops in docs/method.md, in characters.
const (
	truthLoopPeriod = 32768
	truthLoopCycles = 4
	truthLoopLength = 4096
)

// loop compares the loop of a request with that of a search that tries
// every period.
func (c *comparer) loop(ev *runlog.Events, r *request) {
	var want *ingest.Loop
	if c.m.Plan.Text == "full" {
		for _, channel := range []string{"reasoning", "content"} {
			var text []rune
			var at []int64
			for i := r.FirstRow; i < r.FirstRow+r.Rows; i++ {
				ch := ev.Channel[i].String()
				if ch == "mixed" {
					ch = "content"
				}
				if ch != channel {
					continue
				}
				for _, x := range string(ev.TextAt(i)) {
					text, at = append(text, x), append(at, ev.TUs[i])
				}
			}
			if l := firstLoop(text); l != nil && (want == nil || at[l.Start] < want.TUs) {
				l.Channel, l.TUs = channel, at[l.Start]
				want = l
			}
		}
	}
	switch got := r.Loop; {
	case got == nil && want == nil:
	case got == nil || want == nil || *got != *want:
		c.errorf("loop %+v, want %+v", got, want)
	}
}

// mayRepeat looks at every thousandth place: a loop has at least 3,072
// characters that are what stands one period before.
func mayRepeat(text []rune, period int) bool {
	for i := period; i+32 <= len(text); i += 1000 {
		if slices.Equal(text[i:i+32], text[i-period:i-period+32]) {
			return true
		}
	}
	return false
}

// firstLoop returns the loop that begins first, of these the one with the
// shortest period.
func firstLoop(text []rune) *ingest.Loop {
	if len(text) < truthLoopLength {
		return nil
	}
	var best *ingest.Loop
	for p := 1; p <= min(truthLoopPeriod, len(text)/truthLoopCycles); p++ {
		if !mayRepeat(text, p) {
			continue
		}
		need := max(truthLoopLength, truthLoopCycles*p)
		run := 0 // positions up to here that repeat what is p before
		for i := p; i <= len(text); i++ {
			if i < len(text) && text[i] == text[i-p] {
				run++
				continue
			}
			start, length := i-run-p, run+p
			if length >= need && (best == nil || start < best.Start) && strings.TrimFunc(string(text[start:start+p]), unicode.IsSpace) != "" {
				best = &ingest.Loop{Start: start, Period: p, Cycles: length / p, Length: length,
					PeriodStart: string(text[start : start+min(p, 80)])}
			}
			run = 0
			if best != nil && i-p >= best.Start {
				break
			}
		}
	}
	return best
}
