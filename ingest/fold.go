package ingest

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"
)

// Values of runlog.Plan that change how events are read.
const (
	countingChunks = "chunks" // nothing said how many tokens there were
	textFull       = "full"
	textHash       = "hash"
)

// Fold computes one cell from what was recorded: its requests, figures,
// status and notes. ev is nil when the cell has no event file; tel is the
// telemetry of the whole run, in any order. ColdTTFTUs of a decode cell
// comes from another cell; Build fills it in.
//
// ev and tel must satisfy the rules of the run log, as everything does that
// package runlog has read.
func Fold(m *runlog.Manifest, cell runlog.Cell, ev *runlog.Events, tel []runlog.Sample) Cell {
	return fold(m, cell, ev, indexTelemetry(tel), new(scratch))
}

// scratch is memory that serves one cell after the other.
type scratch struct {
	gaps, sorted []int64
	counts       []counting
	text         []byte
	runes        []rune
	loops        loopFinder
}

func fold(m *runlog.Manifest, cell runlog.Cell, ev *runlog.Events, tel telemetry, memory *scratch) Cell {
	c := Cell{Cell: cell, Notes: slices.Clone(cell.Notes)}
	f := newFolder(m, &cell, ev, memory)
	defer func() { memory.gaps, memory.counts = f.gaps, f.counts }()
	if ev != nil {
		c.Requests = f.requests()
	}
	c.Launch = count(c.Requests)
	c.Figures = f.figures(&c)
	c.Spread = f.spread(c.Requests)
	c.Timeline = f.timeline(c.Requests, cell.Concurrency)
	c.Checks = f.checks(&c, m, tel)
	c.GPUs = gpuStates(&c, f.win, tel)
	j := judge{m: m, cell: &c, sent: ev != nil, win: f.win, tel: tel}
	c.Status, c.Evidence = j.verdict()
	if c.Status == Looped {
		c.Figures.LoopFreeTokPerS = f.loopFree(c.Requests)
	}
	if c.Phase == runlog.PhasePrefill && c.Status == Valid {
		c.Figures.ColdTTFTUs = c.Figures.TTFTUs
	}
	j.lint()
	for _, n := range j.notes {
		if !slices.Contains(c.Notes, n) {
			c.Notes = append(c.Notes, n)
		}
	}
	return c
}

// A window is the measured stretch of a decode cell: open < t ≤ close.
type window struct {
	open, close int64
	ok          bool
}

func windowOf(c *runlog.Cell) window {
	if c.WindowOpenUs == nil || c.WindowCloseUs == nil || *c.WindowCloseUs <= *c.WindowOpenUs {
		return window{}
	}
	return window{*c.WindowOpenUs, *c.WindowCloseUs, true}
}

func (w window) length() int64         { return w.close - w.open }
func (w window) middle() int64         { return w.open + w.length()/2 }
func (w window) contains(t int64) bool { return w.ok && w.open < t && t <= w.close }

// A tally counts the tokens of some events.
type tally struct {
	tokens  int64
	events  int
	unknown bool // tokens is not the whole truth
}

func (t *tally) add(u tally) {
	t.tokens += u.tokens
	t.events += u.events
	t.unknown = t.unknown || u.unknown
}

// A folder folds the events of one cell.
type folder struct {
	ev  *runlog.Events
	win window

	counted   bool  // the run counted tokens, not chunks
	readable  bool  // texts are stored in full
	maxTokens int64 // tokens asked for; 0: no matter
	ignoreEOS bool

	halves [2]tally   // of the window
	whole  tally      // of the window: known where a request's tokens can't be told to either half
	gaps   []int64    // between neighbouring token events of requests that did not fail
	counts []counting // of each request
	memory *scratch
}

func newFolder(m *runlog.Manifest, cell *runlog.Cell, ev *runlog.Events, memory *scratch) *folder {
	f := &folder{
		ev:       ev,
		memory:   memory,
		gaps:     memory.gaps[:0],
		counts:   memory.counts[:0],
		win:      windowOf(cell),
		counted:  m.Plan.TokenCounting != countingChunks,
		readable: m.Plan.Text == textFull,
	}
	if cell.Phase == runlog.PhaseDecode {
		f.maxTokens, f.ignoreEOS = int64(m.Plan.MaxOutputTokens), m.Plan.Sampling.IgnoreEOS
	}
	return f
}

// requests folds all rows.
func (f *folder) requests() []Request {
	ev := f.ev
	f.gaps = slices.Grow(f.gaps, ev.Len()) // at once: to grow into it costs several times the memory
	var out []Request
	for lo := 0; lo < ev.Len(); {
		hi := lo + 1
		for hi < ev.Len() && ev.Stream[hi] == ev.Stream[lo] && ev.Request[hi] == ev.Request[lo] {
			hi++
		}
		out = append(out, f.request(lo, hi))
		lo = hi
	}
	return out
}

// hasText reports whether row i delivered text. Its channel says so even
// where the run kept no text, or the text is half a character that the next
// chunk completes.
func (f *folder) hasText(i int) bool { return f.ev.Channel[i] != runlog.ChannelNone }

// delivers reports whether row i is a token event: a chunk with tokens or
// text. A role chunk, an empty finish chunk and usage are none.
func (f *folder) delivers(i int) bool {
	return f.ev.Kind[i] == runlog.KindChunk && (f.ev.Tokens[i] > 0 || f.hasText(i))
}

// request folds rows lo … hi−1, which are one request.
func (f *folder) request(lo, hi int) Request {
	ev := f.ev
	r := Request{
		Stream: ev.Stream[lo], Request: ev.Request[lo], FirstRow: lo, Rows: hi - lo,
		SentUs: ev.TUs[lo], HeadersUs: -1, FirstUs: -1, LastUs: -1, EndUs: -1, FirstAnswerUs: -1,
		LongestGapUs: -1, LongestGapAt: -1,
		Status: runlog.Unknown, Tokens: -1, FirstTokens: -1, WindowTokens: -1,
		PromptTokens: runlog.Unknown, CachedTokens: runlog.Unknown,
	}
	var (
		halves    [2]tally
		sum       int64         // growth of the running count over all chunks
		final     = int64(-1)   // the final usage: behind the last token event
		late      bool          // running came with the last token event, or behind it
		running   = int64(-1)   // the running usage
		went      bool          // … went down
		uncounted int           // token events that don't say how many
		stuck     int           // token events that say none
		textBytes = [3]int{}    // by loop channel
		reasoned  bool          // reasoning came before any answer
		gapsFrom  = len(f.gaps) // to take them back if the request failed
		errText   string
	)
	for i := lo; i < hi; i++ {
		if p := ev.PromptTokens[i]; p >= 0 {
			r.PromptTokens = p
		}
		if p := ev.CachedTokens[i]; p >= 0 {
			r.CachedTokens = p
		}
		if ev.Status[i] >= 0 {
			r.Status = ev.Status[i]
		}
		if ev.FinishReason[i] != "" {
			r.FinishReason = ev.FinishReason[i]
		}
		t := ev.TUs[i]
		switch ev.Kind[i] {
		case runlog.KindSent:
			r.SentUs = t
		case runlog.KindHeaders:
			r.HeadersUs = t
		case runlog.KindUsage:
			if n := ev.CompletionTokens[i]; n >= 0 {
				final = int64(n)
			}
		case runlog.KindDone, runlog.KindError, runlog.KindCancelled:
			r.End, r.EndUs, errText = ev.Kind[i], t, ev.Error[i]
		case runlog.KindChunk:
			if n := int64(ev.CompletionTokens[i]); n >= 0 {
				went = went || n < running
				running, late = n, true
			}
			n := int64(ev.Tokens[i])
			if n > 0 {
				sum += n
			}
			if !f.delivers(i) {
				continue
			}
			final, late = -1, ev.CompletionTokens[i] >= 0
			switch {
			case n < 0:
				uncounted++
			case n == 0:
				stuck++
			}
			if c := loopChannel(ev.Channel[i]); c >= 0 {
				textBytes[c] += len(ev.TextAt(i))
			}
			if f.hasText(i) {
				switch ch := ev.Channel[i]; {
				case r.FirstAnswerUs >= 0:
				case ch == runlog.ChannelReasoning:
					reasoned = true
				case reasoned && (ch == runlog.ChannelContent || ch == runlog.ChannelMixed):
					r.FirstAnswerUs = t
				}
			}
			if r.FirstUs < 0 {
				r.FirstUs, r.FirstTokens = t, n
			} else if f.win.contains(t) {
				gap := t - r.LastUs
				f.gaps = append(f.gaps, gap)
				if gap > r.LongestGapUs {
					r.LongestGapUs, r.LongestGapAt = gap, t
				}
			}
			r.LastUs = t
			r.TokenEvents++
			if f.win.contains(t) {
				h := &halves[0]
				if t > f.win.middle() {
					h = &halves[1]
				}
				h.events++
				h.tokens += max(n, 0)
			}
		}
	}

	if final < 0 && uncounted > 0 && stuck == 0 && late && !went {
		final = running // on the finish chunk, say, instead of one of its own
	}
	r.Tokens, r.Note = total(r.TokenEvents, sum, final, uncounted, stuck, went)
	each, counts := uncounted == 0 && r.Note != noteRunningUsage, countsRows // every token event's count is known
	if !each && r.Tokens == int64(r.TokenEvents) && r.TokenEvents > 0 {
		// As many events as tokens, and text takes at least one token: each
		// event delivered exactly one.
		each, counts, r.FirstTokens = true, countsOnes, 1
		for h := range halves {
			halves[h].tokens = int64(halves[h].events)
		}
	}
	if !f.counted {
		r.Tokens, each, r.Note = -1, false, ""
	}
	if !each {
		r.FirstTokens, counts = -1, countsUnknown
	}
	f.counts = append(f.counts, counts)
	inside := halves[0].events + halves[1].events
	for h := range halves {
		if t := &halves[h]; !each && t.events > 0 {
			if r.Tokens >= 0 && t.events == r.TokenEvents {
				t.tokens = r.Tokens // all of them arrived here
			} else {
				t.unknown = true
			}
		}
		f.halves[h].add(halves[h])
	}
	r.WindowEvents = inside
	switch {
	case !f.win.ok:
	case each || inside == 0:
		r.WindowTokens = halves[0].tokens + halves[1].tokens
	case r.Tokens >= 0 && inside == r.TokenEvents:
		r.WindowTokens = r.Tokens
	}
	f.whole.add(tally{tokens: max(r.WindowTokens, 0), events: inside, unknown: r.WindowTokens < 0})

	f.conclude(&r, errText)
	if r.Failed {
		f.gaps = f.gaps[:gapsFrom]
	}
	if f.win.ok && r.FirstUs >= 0 {
		end := f.win.close
		if r.End != 0 {
			end = min(end, r.EndUs)
		}
		r.ActiveUs = max(0, end-max(f.win.open, r.FirstUs))
	}
	if r.FirstUs >= 0 {
		r.TTFTUs = known(float64(r.FirstUs-r.SentUs), 1)
	}
	if n := r.Tokens - r.FirstTokens; each && r.Tokens >= 0 && n > 0 && r.LastUs > r.FirstUs {
		r.BetweenTokensUs = known(float64(r.LastUs-r.FirstUs)/float64(n), 1)
		r.PerRequestTokPerS = known(perSecond(n, r.LastUs-r.FirstUs), 1)
	}
	if f.readable {
		r.Loop = f.loop(lo, hi, textBytes)
	}
	return r
}

// Notes of a request.
const (
	noteRunningUsage = "running usage not usable"
	noteUsageDiffers = "its events and its final usage disagree about the number of tokens"
)

// total returns how many tokens a request had, −1 when that is unknown. The
// final usage wins. A running count that went down, or that stood still
// while text came, counts nothing and leaves only the final usage.
func total(events int, sum, final int64, uncounted, stuck int, went bool) (tokens int64, note string) {
	disagree := final >= 0 && uncounted == 0 && sum != final
	switch {
	case went, stuck > 0 && (disagree || final < 0 && 2*stuck > events):
		return final, noteRunningUsage
	case disagree && events > 0:
		return final, noteUsageDiffers
	case final >= 0:
		return final, ""
	case uncounted > 0:
		return -1, ""
	}
	return sum, ""
}

// reasonNoMessage and statusReason are the reasons of errors without words.
const reasonNoMessage = "error without a message"

func statusReason(status int32) string { return fmt.Sprintf("HTTP status %d", status) }

// conclude decides whether a request failed, why, and whether it ended
// before it had what was asked for.
func (f *folder) conclude(r *Request, errText string) {
	fail := func(reason string) {
		if !r.Failed {
			r.Failed, r.Reason = true, reason
		}
	}
	switch {
	case r.End == runlog.KindError && errText != "":
		fail(errText)
	case r.End == runlog.KindError && r.Status >= 300:
		fail(statusReason(r.Status))
	case r.End == runlog.KindError:
		fail(reasonNoMessage)
	case r.End == runlog.KindDone && r.TokenEvents == 0:
		fail("no output: the stream ended without a token")
	case r.End == runlog.KindDone && r.FinishReason == "abort":
		fail(`the server aborted it (finish reason "abort")`)
	}
	if f.maxTokens <= 0 || r.Tokens < 0 {
		return
	}
	if r.Tokens > f.maxTokens {
		fail(fmt.Sprintf("%s tokens, more than the %s asked for", grouped(r.Tokens), grouped(f.maxTokens)))
	}
	r.EndedEarly = f.ignoreEOS && r.TokenEvents > 0 && r.Tokens < f.maxTokens &&
		(r.End == runlog.KindDone || r.End == runlog.KindError)
}

// Channels in which loops are looked for, each on its own.
var loopChannels = [...]string{"reasoning", "content", "tool"}

// loopChannel returns the index in loopChannels of the channel that a
// chunk's text belongs to, −1 for none. A mixed chunk belongs to the answer.
func loopChannel(c runlog.Channel) int {
	switch c {
	case runlog.ChannelReasoning:
		return 0
	case runlog.ChannelContent, runlog.ChannelMixed:
		return 1
	case runlog.ChannelTool:
		return 2
	}
	return -1
}

// loop returns the loop of rows lo … hi−1 that began first, nil without one.
func (f *folder) loop(lo, hi int, textBytes [3]int) *Loop {
	var first *Loop
	for ch, n := range textBytes {
		if n < shortLoop.minLength { // bytes are never fewer than code points
			continue
		}
		text := f.textOf(lo, hi, ch)
		var found foundLoop
		if isASCII(text) {
			found = firstLoop(&f.memory.loops, text)
		} else {
			runes := f.memory.runes[:0]
			for len(text) > 0 {
				c, size := utf8.DecodeRune(text)
				runes = append(runes, c)
				text = text[size:]
			}
			f.memory.runes = runes
			found = firstLoop(&f.memory.loops, runes)
		}
		if found.length == 0 {
			continue
		}
		t := f.ev.TUs[f.rowAt(lo, hi, ch, found.start)]
		if first == nil || t < first.TUs {
			first = &Loop{
				Channel: loopChannels[ch], Start: found.start, Period: found.period,
				Cycles: found.length / found.period, Length: found.length, TUs: t, PeriodStart: found.text,
			}
		}
	}
	return first
}

// A foundLoop is a repetition, and the beginning of its period. The zero
// value is none.
type foundLoop struct {
	repetition
	text string
}

// firstLoop returns the loop of text that begins first, by either limits.
func firstLoop[T rune | byte](f *loopFinder, text []T) (found foundLoop) {
	rep, ok := findLoop(f, text, longLoop)
	if short, also := findLoop(f, text, shortLoop); also && (!ok || short.start < rep.start) {
		rep, ok = short, true
	}
	if !ok {
		return found
	}
	var period []rune
	for _, c := range text[rep.start : rep.start+min(rep.period, 80)] {
		period = append(period, rune(c))
	}
	return foundLoop{rep, string(period)}
}

// textOf returns the text of one loop channel in rows lo … hi−1: where no
// other comes between, which is the rule, without copying.
func (f *folder) textOf(lo, hi, ch int) []byte {
	ev := f.ev
	apart := f.memory.text[:0]
	from, to := 0, 0
	for i := lo; i < hi; i++ {
		if ev.Kind[i] != runlog.KindChunk || loopChannel(ev.Channel[i]) != ch {
			continue
		}
		if begin := ev.TextEnd[i] - len(ev.TextAt(i)); begin != to {
			apart = append(apart, ev.Text[from:to]...)
			from = begin
		}
		to = ev.TextEnd[i]
	}
	if len(apart) == 0 {
		return ev.Text[from:to]
	}
	f.memory.text = append(apart, ev.Text[from:to]...)
	return f.memory.text
}

// rowAt returns the row of lo … hi−1 that brought a code point of the text of
// one loop channel.
func (f *folder) rowAt(lo, hi, ch, at int) int {
	for i := lo; i < hi; i++ {
		if f.ev.Kind[i] != runlog.KindChunk || loopChannel(f.ev.Channel[i]) != ch {
			continue
		}
		if at -= utf8.RuneCount(f.ev.TextAt(i)); at < 0 {
			return i
		}
	}
	return hi - 1
}

func isASCII(text []byte) bool {
	var all byte
	for _, c := range text {
		all |= c
	}
	return all < utf8.RuneSelf
}

// loopFree returns the rate of the window up to the first loop.
func (f *folder) loopFree(rs []Request) Stat {
	begin := int64(-1)
	for i := range rs {
		if l := rs[i].Loop; l != nil && (begin < 0 || l.TUs < begin) {
			begin = l.TUs
		}
	}
	end := min(begin, f.win.close)
	if !f.win.ok || end <= f.win.open {
		return Stat{}
	}
	g := folder{
		ev: f.ev, win: window{f.win.open, end, true}, memory: f.memory,
		counted: f.counted, maxTokens: f.maxTokens, ignoreEOS: f.ignoreEOS,
	}
	g.requests()
	return g.rate(g.whole, g.win.length())
}

// count says what became of the requests.
func count(rs []Request) Counts {
	c := Counts{Launched: len(rs), FinishReasons: make(map[string]int), HTTPErrors: make(map[int32]int)}
	for i := range rs {
		r := &rs[i]
		switch {
		case r.End == 0:
			c.Unfinished++
		case r.Failed:
			c.Failed++
		case r.End == runlog.KindCancelled:
			c.Cancelled++
		default:
			c.Completed++
		}
		if r.Failed && r.Status >= 300 {
			c.HTTPErrors[r.Status]++
		}
		if r.FinishReason != "" {
			c.FinishReasons[r.FinishReason]++
		}
	}
	return c
}
