package ingest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest/runlog"
)

// Thresholds of method/1.
const (
	maxTimerLatenessUs = 5000 // Client limited above this, with user-space arrival times
	maxTimerShare      = 0.1  // … and above this share of the time between tokens
	maxLateShare       = 0.05 // Client limited above this share of late chunks, with kernel arrival times
	minRunningShare    = 0.9  // Under-filled below this share of C running on average
	maxWaitingShare    = 0.1  // Under-filled when requests wait in more than this share of the samples
	cachedPercent      = 1    // Cached from this share of the prompt on …
	templateTokens     = 64   // … if the counters say more than this, which a chat template may share
	steadyShare        = 0.03 // not steady when the halves differ by more, relative to the whole
	clockDropShare     = 0.1  // a fall of the SM clock that is worth a note
	promptShare        = 0.01 // prompts that differ more from the planned context are worth a note
	sumShare           = 0.25 // total and per-request rates that differ by more are worth a note
	maxEvidence        = 20   // requests in the evidence of one status; a last piece says how many more there were
)

// Notes that Build says once for the run when every cell has them.
const (
	noteNoGauges   = "not checked whether the server ran all requests at once: it gave no gauges"
	noteNoLateness = "not checked whether the benchmark kept up: its own lateness was not recorded"
	noteNoCache    = "not checked whether the prompt was cached: the server did not say"
	noteHashed     = "not checked for loops: the run kept hashes of the text only"
	noteNoText     = "not checked for loops: the run kept no text"
)

// A judge finds the status of one cell.
type judge struct {
	m    *runlog.Manifest
	cell *Cell // folded, without a status
	sent bool  // there is an event file
	win  window
	tel  telemetry

	notes []string
}

// verdict applies every rule and returns the first status that applied, with
// the evidence of all that did, in order of precedence.
func (j *judge) verdict() (Status, []Evidence) {
	rules := [...]func(*judge) []Evidence{
		OverCapacity:  (*judge).overCapacity,
		NotRun:        (*judge).notRun,
		Failed:        (*judge).failed,
		Looped:        (*judge).looped,
		ClientLimited: (*judge).clientLimited,
		UnderFilled:   (*judge).underFilled,
		Cached:        (*judge).cached,
	}
	var all []Evidence
	for _, s := range Statuses() {
		for _, e := range rules[s](j) {
			e.Status = s
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return Valid, nil
	}
	return all[0].Status, all
}

// about is evidence that concerns no single request or instant.
func about(text string) Evidence { return Evidence{Text: text, Stream: -1, Request: -1, TUs: -1} }

// capped keeps the evidence of the first requests and says how many more
// there were.
func capped(found []Evidence) []Evidence {
	if n := len(found) - maxEvidence; n > 0 {
		return append(found[:maxEvidence], about(fmt.Sprintf("… and %s more", grouped(int64(n)))))
	}
	return found
}

// of is evidence about one request.
func of(r *Request, tUs int64, text string) Evidence {
	return Evidence{Text: text, Stream: r.Stream, Request: r.Request, TUs: tUs}
}

func (j *judge) note(format string, args ...any) {
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

// overCapacity believes that a cell can't fit only if the recorded facts say
// so too.
func (j *judge) overCapacity() []Evidence {
	if j.cell.Outcome != runlog.OutcomeOverCapacity || j.sent {
		return nil
	}
	if text, over := exceeds(j.m, &j.cell.Cell); over {
		return []Evidence{about(text)}
	}
	return nil
}

// exceeds reports whether the recorded capacity proves that a cell can't
// run, and says the sum. A request lives in one engine, so C requests put
// ⌈C / engines⌉ on one of them.
func exceeds(m *runlog.Manifest, c *runlog.Cell) (text string, over bool) {
	capacity, n := &m.Capacity, int64(c.Concurrency)
	if limit := capacity.MaxNumSeqs; limit > 0 && c.Concurrency > limit {
		return fmt.Sprintf("%s requests at once, more than the server's limit of %s (max_num_seqs)", grouped(n), grouped(int64(limit))), true
	}
	if capacity.KVCacheTokens <= 0 {
		return "the size of the KV cache is not known", false
	}
	out := int64(m.Plan.MaxOutputTokens)
	if c.Phase == runlog.PhasePrefill {
		out = 1
	}
	engines := int64(max(1, capacity.Engines))
	each, room := (n+engines-1)/engines, capacity.KVCacheTokens/engines
	need := int64(c.ContextTokens) + out
	if need <= 0 {
		return "the cell needs no tokens", false
	}
	over = each > room/need // without a product that could overflow
	verb := "at most"
	if over {
		verb = "more than"
	}
	where := "the KV cache"
	if engines > 1 {
		where = fmt.Sprintf("one of %d engines", engines)
	}
	return fmt.Sprintf("%s × (%s context + %s output) tokens, %s the %s tokens of %s",
		grouped(each), grouped(int64(c.ContextTokens)), grouped(out), verb, grouped(room), where), over
}

func (j *judge) notRun() []Evidence {
	c := j.cell
	switch {
	case c.Outcome == runlog.OutcomePending && j.sent:
		return []Evidence{about("interrupted before its end; what had been recorded is kept")}
	case c.Outcome == runlog.OutcomePending && slices.Contains(c.Notes, "interrupted"):
		return []Evidence{about("interrupted before its end")}
	case c.Outcome == runlog.OutcomePending:
		return []Evidence{about("the run ended before this measurement")}
	case c.Outcome == runlog.OutcomeOverCapacity && j.sent:
		return []Evidence{about("recorded as not sent because of its size, but there are events")}
	case c.Outcome == runlog.OutcomeOverCapacity:
		text, over := exceeds(j.m, &c.Cell)
		if over {
			return nil
		}
		j.note("not sent as over capacity, but the recorded facts do not confirm it")
		return []Evidence{about("not sent as over capacity, but the recorded facts do not confirm it: " + text)}
	case c.Outcome == runlog.OutcomeRecorded && !j.sent:
		return []Evidence{about("recorded, but there are no events")}
	case c.Outcome == runlog.OutcomeRecorded && c.Phase == runlog.PhaseDecode && !j.win.ok:
		return []Evidence{about("its window never opened")}
	}
	return nil
}

func (j *judge) failed() []Evidence {
	c := j.cell
	var found []Evidence
	if c.Outcome == runlog.OutcomeFailed {
		text := "it could not be measured"
		if c.Reason != "" {
			text += ": " + strconv.Quote(c.Reason)
		}
		found = append(found, about(text))
	}
	ended, early := 0, 0
	var requests []Evidence
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.End == runlog.KindDone || r.End == runlog.KindError {
			ended++
		}
		if r.EndedEarly {
			early++
		}
		if !r.Failed {
			continue
		}
		text := failure(r)
		if r.EndedEarly {
			text += fmt.Sprintf(", ended early %s of %s tokens", grouped(r.Tokens), grouped(int64(j.m.Plan.MaxOutputTokens)))
		}
		requests = append(requests, of(r, r.EndUs, text))
	}
	slices.SortStableFunc(requests, byTime)
	found = append(found, capped(requests)...)
	if early > 0 {
		text := fmt.Sprintf("%s of the %s requests that ended by themselves ended early, before the %s tokens asked for",
			grouped(int64(early)), grouped(int64(ended)), grouped(int64(j.m.Plan.MaxOutputTokens)))
		j.notes = append(j.notes, text)
		if 2*early > ended {
			found = append(found, about(text))
		}
	}
	if c.Outcome != runlog.OutcomeRecorded || !j.sent {
		return found
	}
	if c.Phase == runlog.PhasePrefill && !slices.ContainsFunc(c.Requests, delivered) {
		return append(found, about("no request delivered a token"))
	}
	if c.Phase == runlog.PhaseDecode && j.win.ok && !slices.ContainsFunc(c.Requests, func(r Request) bool { return r.WindowEvents > 0 }) {
		return append(found, about("no token arrived in the window"))
	}
	return found
}

// failure says why a request failed. The server's words are quoted, ours not.
func failure(r *Request) string {
	switch {
	case r.End != runlog.KindError, r.Reason == reasonNoMessage, r.Reason == statusReason(r.Status):
		return "request failed: " + r.Reason
	case r.Status >= 300:
		return fmt.Sprintf("request failed with HTTP status %d: %s", r.Status, strconv.Quote(r.Reason))
	}
	return "request failed: " + strconv.Quote(r.Reason)
}

func byTime(a, b Evidence) int { return cmp.Compare(a.TUs, b.TUs) }

func delivered(r Request) bool { return r.TokenEvents > 0 }

func (j *judge) looped() []Evidence {
	var found []Evidence
	for i := range j.cell.Requests {
		if r := &j.cell.Requests[i]; r.Loop != nil {
			l := r.Loop
			found = append(found, of(r, l.TUs, fmt.Sprintf("the %s repeats %s characters from character %s on: %s whole cycles, %s characters",
				l.Channel, grouped(int64(l.Period)), grouped(int64(l.Start)), grouped(int64(l.Cycles)), grouped(int64(l.Length)))))
		}
	}
	if j.sent && j.cell.Phase == runlog.PhaseDecode {
		switch j.m.Plan.Text {
		case textFull:
		case textHash:
			j.note(noteHashed)
		default:
			j.note(noteNoText)
		}
	}
	slices.SortStableFunc(found, byTime)
	return capped(found)
}

// clientLimited judges by what limits each arrival clock: user-space times
// are late when the collector is; kernel times are right however late they
// are read, except that what one late read returns shares one time.
func (j *judge) clientLimited() []Evidence {
	if !j.sent || !j.win.ok {
		return nil
	}
	if j.m.ArrivalClock == runlog.ArrivalKernel {
		chunks0, chunks1, ok1 := growthInside(j.tel.of(runlog.SourceClient, runlog.MetricChunks), j.win.open, j.win.close)
		late0, late1, ok2 := growthInside(j.tel.of(runlog.SourceClient, runlog.MetricLateSharedChunks), j.win.open, j.win.close)
		if !ok1 || !ok2 {
			j.note(noteNoLateness)
			return nil
		}
		late, chunks := late1-late0, chunks1-chunks0
		if chunks > 0 {
			j.cell.Checks.LateChunkShare = known(late/chunks, int(chunks))
		}
		if late > maxLateShare*chunks {
			return []Evidence{about(fmt.Sprintf("%s of %s chunks were read so late that they share a time with an older one", grouped(int64(late)), grouped(int64(chunks))))}
		}
		return nil
	}
	pts := within(j.tel.of(runlog.SourceClient, runlog.MetricTimerLatenessP99), j.win.open, j.win.close)
	if len(pts) == 0 {
		j.note(noteNoLateness)
		return nil
	}
	worst := slices.MaxFunc(pts, func(a, b point) int { return cmp.Compare(a.value, b.value) })
	j.cell.Checks.TimerLatenessUs = known(worst.value, len(pts))
	limit, what := float64(maxTimerLatenessUs), "allowed"
	if s := j.cell.Figures.BetweenTokensUs; s.Known() && maxTimerShare*s.Value < limit {
		limit, what = maxTimerShare*s.Value, "a tenth of the time between tokens"
	}
	if worst.value <= limit {
		return nil
	}
	e := about(fmt.Sprintf("the benchmark's timers were up to %s µs late (p99 of a second), more than the %s µs %s", decimal(worst.value), decimal(limit), what))
	e.TUs = worst.tUs
	return []Evidence{e}
}

func (j *judge) underFilled() []Evidence {
	if !j.sent || !j.win.ok {
		return nil
	}
	var found []Evidence
	if c := float64(j.cell.Concurrency); c > 1 {
		server := func(name string) []float64 {
			return sums(within(j.tel.of(runlog.SourceServer, name), j.win.open, j.win.close))
		}
		running, waiting := server(runlog.MetricRequestsRunning), server(runlog.MetricRequestsWaiting)
		if len(running) == 0 && len(waiting) == 0 {
			j.note(noteNoGauges)
		}
		if n := len(running); n > 0 {
			sum := 0.0
			for _, v := range running {
				sum += v
			}
			if mean := sum / float64(n); mean < minRunningShare*c {
				found = append(found, about(fmt.Sprintf("%s of %s requests were running on average (%d samples)", decimal(mean), decimal(c), n)))
			}
		}
		if mean := j.inProgress(); mean > 0 && mean < minRunningShare*c && j.cell.Launch.Failed == 0 {
			found = append(found, about(fmt.Sprintf("the benchmark itself had only %s of %s requests in progress on average", decimal(mean), decimal(c))))
		}
		queued := 0
		for _, v := range waiting {
			if v > 0 {
				queued++
			}
		}
		if n := len(waiting); float64(queued) > maxWaitingShare*float64(n) {
			found = append(found, about(fmt.Sprintf("requests were waiting in %d of %d samples, up to %s of them", queued, n, decimal(slices.Max(waiting)))))
		}
	}
	before, after, ok := growthInside(j.tel.of(runlog.SourceServer, runlog.MetricPreemptions), j.win.open, j.win.close)
	if ok && after > before {
		j.note("preempted %s times", decimal(after-before))
		found = append(found, about(fmt.Sprintf("the server preempted requests %s times (its counter went from %s to %s)", decimal(after-before), decimal(before), decimal(after))))
	}
	return found
}

// inProgress returns how many requests the benchmark had sent and not seen
// the end of, as a time average over the window. It is about C, whatever the
// server does with the requests, unless a stream sends no more. After a
// failure none does, and that is Failed already.
func (j *judge) inProgress() float64 {
	var sum int64
	for i := range j.cell.Requests {
		r := &j.cell.Requests[i]
		end := j.win.close
		if r.End != 0 {
			end = min(end, r.EndUs)
		}
		sum += max(0, end-max(j.win.open, r.SentUs))
	}
	return float64(sum) / float64(j.win.length())
}

// cached judges prefill samples, by what the server says about the request,
// and by its counters around it.
func (j *judge) cached() []Evidence {
	c := j.cell
	if c.Phase != runlog.PhasePrefill || !j.sent {
		return nil
	}
	var found []Evidence
	judged := false
	var prompts, first, last int64
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.Failed || r.PromptTokens <= 0 || r.EndUs < 0 {
			continue
		}
		prompt := int64(r.PromptTokens)
		if prompts == 0 {
			first = r.SentUs
		}
		prompts, last = prompts+prompt, max(last, r.EndUs)
		if n := int64(r.CachedTokens); n >= 0 {
			judged = true
			if n > 0 && 100*n >= cachedPercent*prompt {
				found = append(found, of(r, r.EndUs, fmt.Sprintf("%s of %s prompt tokens came from the cache", grouped(n), grouped(prompt))))
			}
			continue
		}
		if text, ok := j.hits(r.SentUs, r.EndUs, prompt); ok {
			judged = true
			if text != "" {
				found = append(found, of(r, r.EndUs, text))
			}
		}
	}
	found = capped(found)
	if prompts == 0 {
		return found
	}
	if !judged {
		// Samples closer together than the scrapes can be judged as one.
		text, ok := j.hits(first, last, prompts)
		if judged = ok; text != "" {
			found = append(found, about(text))
		}
	}
	if !judged {
		j.note(noteNoCache)
	}
	return found
}

// hits says how much of prompt tokens sent between two instants came from
// the prefix cache, by the server's counters; "" if no more than a template
// may share. It is not ok when the counters are missing, went down, or
// counted other requests too.
func (j *judge) hits(from, to, prompt int64) (text string, ok bool) {
	slack := float64(max(templateTokens, prompt*cachedPercent/100))
	queries := j.tel.of(runlog.SourceServer, runlog.MetricPrefixCacheQueries)
	q0, q1, ok := growth(queries, from, to)
	if !ok && len(queries) > 0 || ok && q1-q0 > float64(prompt)+slack {
		return "", false
	}
	h0, h1, ok := growth(j.tel.of(runlog.SourceServer, runlog.MetricPrefixCacheHits), from, to)
	if !ok {
		return "", false
	}
	if grew := h1 - h0; grew > templateTokens && 100*grew >= cachedPercent*float64(prompt) {
		return fmt.Sprintf("the server's prefix-cache hits grew by %s tokens (from %s to %s) for a prompt of %s", decimal(grew), decimal(h0), decimal(h1), grouped(prompt)), true
	}
	return "", true
}

// decimal writes a measured number for a sentence: whole numbers grouped,
// others with one decimal.
func decimal(v float64) string {
	switch {
	case math.Abs(v) >= 1<<53:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v == math.Trunc(v):
		return grouped(int64(v))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// grouped writes n with thousands commas, such as "16,384".
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
