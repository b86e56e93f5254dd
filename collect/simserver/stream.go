package simserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// deadMessage is what vLLM says when its engine is gone.
const deadMessage = "EngineCore encountered an issue. See stack trace (above) for the root cause."

// An outbox holds what the engine has made of one request and nobody has
// read yet.
type outbox struct {
	merge bool
	ready chan struct{} // has an item while there may be something to take

	mu    sync.Mutex
	items []item
}

type item struct {
	choice *choice
	em     emission
}

func newOutbox(merge bool) *outbox { return &outbox{merge: merge, ready: make(chan struct{}, 1)} }

// put adds an emission. It never waits.
func (b *outbox) put(c *choice, em emission) {
	b.mu.Lock()
	if n := len(b.items); b.merge && n > 0 && b.items[n-1].choice == c {
		last := &b.items[n-1].em
		em.tokens += last.tokens
		*last = em
	} else {
		b.items = append(b.items, item{c, em})
	}
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take returns everything, reusing old for what comes next.
func (b *outbox) take(old []item) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = old[:0]
	return items
}

// A streamer writes one answer as server-sent events.
type streamer struct {
	s    *Server
	w    http.ResponseWriter
	ctl  *http.ResponseController
	g    *generation
	enc  *encoder
	buf  []byte
	sent int  // chunks with tokens, buffered ones included
	role bool // the role chunks are written

	truth TruthEvent // of the next write
}

// stream answers with events until the request ends, its client goes, or a
// fault strikes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, g *generation) {
	st := &streamer{s: s, w: w, ctl: http.NewResponseController(w), g: g, enc: newEncoder(g.shape), buf: make([]byte, 0, 4096)}
	s.tell(g.event(TruthRequest, ""))
	s.beginStream(w)
	st.ctl.Flush() // before the prefill
	g.submit()
	end, act := st.run(r.Context())
	g.abort() // what has ended by itself is not concerned
	s.tell(g.event(TruthEnd, end))
	if act == ActClose || act == ActReset {
		s.breakOff(w, r, act)
	}
}

// beginStream writes the headers of a stream.
func (s *Server) beginStream(w http.ResponseWriter) {
	contentType := "text/event-stream; charset=utf-8"
	if s.cfg.Frontend == Rust {
		contentType = "text/event-stream"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
}

// event returns a truth event about the whole request.
func (g *generation) event(kind TruthKind, end string) TruthEvent {
	now := time.Now()
	_, _, cached := g.totals()
	return TruthEvent{Kind: kind, Request: g.shape.id, Ordinal: g.ordinal, Before: now, After: now, PromptTokens: g.shape.prompt, CachedTokens: cached, End: end, Fault: g.shape.fault}
}

func (s *Server) tell(ev TruthEvent) {
	if s.cfg.Truth == nil {
		return
	}
	s.truthMu.Lock()
	defer s.truthMu.Unlock()
	s.cfg.Truth(ev)
}

// run writes until the end and says which it was. An act that it returns is
// still to be done to the connection.
func (st *streamer) run(ctx context.Context) (string, FaultAct) {
	f := &st.g.shape.fault
	var idle <-chan time.Time
	var timer *time.Timer
	if f.KeepAlive > 0 {
		timer = time.NewTimer(f.KeepAlive)
		defer timer.Stop()
		idle = timer.C
	}
	var items []item
	for {
		if f.Act != ActNone && st.sent >= f.After {
			return st.strike(ctx, f.Act)
		}
		select {
		case <-st.g.box.ready:
		case <-idle:
			st.buf = st.enc.comment(st.buf)
			if !st.flush() {
				return "disconnect", ActNone
			}
			timer.Reset(f.KeepAlive)
			continue
		case <-ctx.Done():
			return "disconnect", ActNone
		case <-st.s.dead:
			return st.strike(ctx, ActDie)
		case <-st.s.stopping:
			return st.strike(ctx, ActAbort)
		}
		items = st.g.box.take(items)
		for _, it := range items {
			before := st.sent
			st.add(it)
			if st.sent == before {
				continue
			}
			if f.Act != ActNone && st.sent >= f.After {
				return st.strike(ctx, f.Act)
			}
			if f.StallFor > 0 && st.sent > f.StallAfter && before <= f.StallAfter && !st.pause(ctx, f.StallFor) {
				return "disconnect", ActNone
			}
		}
		how, finished := st.g.finished()
		if finished {
			st.finish()
		}
		if !st.flush() {
			return "disconnect", ActNone
		}
		if finished {
			return how, ActNone
		}
		if timer != nil {
			timer.Reset(f.KeepAlive)
		}
	}
}

// pause flushes and waits.
func (st *streamer) pause(ctx context.Context, d time.Duration) bool {
	if !st.flush() {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// open appends the role chunks, once. They come with the first output, not
// with the headers.
func (st *streamer) open() {
	if !st.role && st.enc.chat {
		for _, c := range st.g.choices {
			st.buf = st.enc.roleChunk(st.buf, c.part.index)
		}
	}
	st.role = true
}

// add appends what an emission adds.
func (st *streamer) add(it item) {
	st.open()
	c := it.choice
	c.advance(it.em, st.enc.tool)
	c.owed += it.em.tokens
	if st.s.cfg.Truth != nil {
		st.truth.Text += string(c.part.reasoning) + string(c.part.content)
	}
	before := len(st.buf)
	p := c.part
	switch st.enc.fault.Usage {
	case UsageDeltas:
		p.completion = it.em.tokens
	case UsageChunks:
		p.completion = c.chunks + 1
	}
	st.buf = st.enc.chunk(st.buf, &p)
	if len(st.buf) == before {
		return
	}
	c.part.promptIDs = nil // only in the first chunk
	c.chunks++
	st.sent++
	if st.s.cfg.Truth != nil {
		said := -1
		if st.enc.continuous {
			said = p.completion
		}
		st.truth.Each = append(st.truth.Each, TruthChunk{c.owed, said, string(p.reasoning), string(p.content)})
	}
	st.truth.Chunks++
	st.truth.Tokens += c.owed
	c.owed = 0
}

// finish appends the usage chunk, where it was asked for, and the end marker.
func (st *streamer) finish() {
	if st.enc.usage {
		completion, thought, cached := st.g.totals()
		switch st.enc.fault.Usage {
		case UsageChunks:
			completion = 0
			for _, c := range st.g.choices {
				completion += c.chunks
			}
		case UsageWrong:
			completion += 7
		}
		st.buf = st.enc.usageChunk(st.buf, completion, thought, cached)
	}
	st.buf = st.enc.done(st.buf)
}

// strike carries out an act as far as it is bytes.
func (st *streamer) strike(ctx context.Context, a FaultAct) (string, FaultAct) {
	name := "fault"
	switch a {
	case ActDie:
		st.s.die()
		st.buf = st.enc.done(st.enc.internalError(st.buf, deadMessage))
		name = "died"
	case ActError:
		st.buf = st.enc.done(st.enc.internalError(st.buf, "Internal server error"))
		name = "error"
	case ActEmptyError:
		st.buf = st.enc.done(st.enc.internalError(st.buf, ""))
		name = "empty-error"
	case ActAbort:
		st.open()
		for _, c := range st.g.choices {
			if !c.done {
				c.advance(emission{finish: finishAbort, cached: c.cached, looping: c.gen.looping}, "")
				st.buf = st.enc.chunk(st.buf, &c.part)
			}
		}
		st.finish()
		name = "abort"
	case ActTruncate:
		name = "truncate"
	case ActClose:
		name = "close"
	case ActReset:
		name = "reset"
	case ActHang:
		name = "hang"
	}
	if !st.flush() {
		return "disconnect", ActNone
	}
	if a == ActHang {
		st.s.hang(ctx)
	}
	return name, a
}

// flush hands what is buffered to the network in one write and reports it,
// also where the client goes meanwhile, who may have got a part of it.
// It returns false if the client has gone.
func (st *streamer) flush() bool {
	if len(st.buf) == 0 {
		return true
	}
	before := time.Now()
	ok := true
	step := len(st.buf)
	if d := st.enc.fault.Dribble; d > 0 {
		step = d
	}
	for at := 0; at < len(st.buf) && ok; at += step {
		_, err := st.w.Write(st.buf[at:min(at+step, len(st.buf))])
		ok = err == nil && st.ctl.Flush() == nil
	}
	if st.s.cfg.Truth != nil {
		ev := st.truth
		ev.Lost = !ok
		ev.Kind, ev.Request, ev.Ordinal = TruthWrite, st.g.shape.id, st.g.ordinal
		ev.Before, ev.After, ev.Bytes = before, time.Now(), len(st.buf)
		st.s.tell(ev)
	}
	st.truth = TruthEvent{}
	st.buf = st.buf[:0]
	return ok
}

// answer waits for the whole output and sends it as one JSON object.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, g *generation) {
	f := &g.shape.fault
	switch f.Act {
	case ActNone, ActAbort:
	case ActDie:
		s.die()
	case ActError, ActEmptyError:
		message := "Internal server error"
		if f.Act == ActEmptyError {
			message = ""
		}
		s.refuse(w, http.StatusInternalServerError, "InternalServerError", message, "")
		return
	default:
		s.breakOff(w, r, f.Act)
		return
	}
	s.tell(g.event(TruthRequest, ""))
	g.submit()
	defer g.abort()
	whole := make([]whole, len(g.choices))
	var items []item
	for {
		select {
		case <-g.box.ready:
		case <-r.Context().Done():
			s.tell(g.event(TruthEnd, "disconnect"))
			return
		case <-s.dead:
			s.refuse(w, http.StatusInternalServerError, "InternalServerError", deadMessage, "")
			return
		case <-s.stopping:
			s.refuse(w, http.StatusServiceUnavailable, "ServiceUnavailableError", "the server is stopping", "")
			return
		}
		items = g.box.take(items)
		for _, it := range items {
			it.choice.advance(it.em, g.shape.tool)
			whole[it.choice.part.index].add(&it.choice.part)
		}
		if how, ok := g.finished(); ok {
			writeJSON(w, http.StatusOK, string(wholeAnswer(g, whole)))
			s.tell(g.event(TruthEnd, how))
			return
		}
	}
}

// A whole is one choice of an answer that is sent in one piece.
type whole struct {
	reasoning, content []byte
	ids                []int32
}

func (o *whole) add(p *part) {
	o.reasoning = append(o.reasoning, p.reasoning...)
	o.content = append(o.content, p.content...)
	o.ids = append(o.ids, p.ids...)
}

// wholeAnswer renders the body of an answer that is not streamed.
func wholeAnswer(g *generation, outs []whole) []byte {
	e := &encoder{shape: g.shape}
	object := "text_completion"
	if e.chat {
		object = "chat.completion"
	}
	b := fmt.Appendf(nil, `{"id":%s,"object":"%s","created":%d,"model":%s,"choices":[`, quote(e.id), object, e.created, quote(e.model))
	for i := range outs {
		o, p := &outs[i], &g.choices[i].part
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d`, i)
		if e.chat {
			b = e.message(b, o, g.choices[i].tool)
		} else {
			b = append(appendString(append(b, `,"text":"`...), o.content), '"')
		}
		b = e.null(b, "logprobs")
		b = fmt.Appendf(b, `,"finish_reason":"%s"`, p.finish)
		b = e.null(b, "stop_reason")
		if e.returnIDs {
			b = appendIDs(append(b, `,"token_ids":`...), o.ids)
		} else {
			b = e.null(b, "token_ids")
		}
		if !e.chat {
			b = e.null(b, "prompt_logprobs")
			if e.returnIDs {
				b = appendIDs(append(b, `,"prompt_token_ids":`...), p.promptIDs)
			} else {
				b = e.null(b, "prompt_token_ids")
			}
		}
		b = append(e.null(b, "routed_experts"), '}')
	}
	b = append(b, ']')
	b = e.null(b, "service_tier")
	b = e.appendFingerprint(b)
	completion, thought, cached := g.totals()
	b = fmt.Appendf(b, `,"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`, e.prompt, e.prompt+completion, completion)
	if e.details {
		b = fmt.Appendf(b, `,"prompt_tokens_details":{"cached_tokens":%d`, cached)
		if e.chat {
			b = fmt.Appendf(b, `,"created_cache_tokens":%d`, e.createdCache(cached))
		} else {
			b = e.null(b, "created_cache_tokens")
		}
		b = append(e.null(b, "multimodal_tokens"), '}')
	} else {
		b = e.null(b, "prompt_tokens_details")
	}
	if e.parser {
		b = fmt.Appendf(b, `,"completion_tokens_details":{"reasoning_tokens":%d}`, thought)
	} else {
		b = e.null(b, "completion_tokens_details")
	}
	b = append(b, '}')
	if e.chat {
		b = e.null(b, "prompt_logprobs")
		if e.returnIDs {
			b = appendIDs(append(b, `,"prompt_token_ids":`...), e.promptIDs)
		} else {
			b = e.null(b, "prompt_token_ids")
		}
		b = e.null(b, "prompt_text")
	}
	b = e.null(b, "kv_transfer_params")
	b = e.null(b, "ec_transfer_params")
	return append(e.null(b, "metrics"), '}')
}

// message appends the message of a whole chat answer.
func (e *encoder) message(b []byte, o *whole, tool bool) []byte {
	b = append(b, `,"message":{"role":"assistant","content":`...)
	if tool {
		b = append(b, "null"...)
	} else {
		b = append(appendString(append(b, '"'), o.content), '"')
	}
	for _, key := range []string{"refusal", "annotations", "audio", "function_call"} {
		b = e.null(b, key)
	}
	if tool {
		b = fmt.Appendf(b, `,"tool_calls":[{"id":%s,"type":"function","function":{"name":%s,"arguments":"`, quote(e.toolID), quote(e.tool))
		b = e.arguments(b, &part{toolText: 1, content: o.content, finish: "tool_calls"})
		b = append(b, `"}}]`...)
	}
	if len(o.reasoning) == 0 {
		b = e.null(b, "reasoning")
	} else {
		e.thinking(func(key string, s []byte) {
			b = append(appendString(append(append(append(b, `,"`...), key...), `":"`...), s), '"')
		}, o.reasoning)
	}
	return append(b, '}')
}
