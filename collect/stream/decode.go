package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"
)

// Text modes: what event rows keep of the model's output.
const (
	TextFull = "full" // the text
	TextHash = "hash" // a short keyed hash of each chunk's text, and its length
	TextNone = "none" // nothing
)

// DecodeOptions say what rows keep.
type DecodeOptions struct {
	Stream  int32
	Text    string              // TextFull, TextHash or TextNone
	HashKey string              // for TextHash
	Redact  func(string) string // applied to every error text and finish reason
}

// Decode appends the rows of everything recorded to ev, in the order of the
// run log. The recording must not be in use any more.
//
// An event that is no JSON object fails its request: its row stays as a
// chunk of unknown content, and the request ends in an error that quotes it.
// An error event ends its request; nothing behind it counts.
func (r *Recording) Decode(ev *runlog.Events, opt DecodeOptions) {
	events := r.events.cursor()
	for i := range r.requests {
		end := r.events.n
		if i+1 < len(r.requests) {
			end = r.requests[i+1].firstEvent
		}
		d := rowWriter{ev: ev, opt: opt, request: int32(i)}
		d.begin(&r.requests[i])
		goesOn := true
		for k := range end - r.requests[i].firstEvent {
			if raw := events.next(); goesOn {
				goesOn = d.event(&r.requests[i], k, raw)
			}
		}
		if goesOn {
			d.end(&r.requests[i])
		}
	}
}

// A rowWriter writes the rows of one request.
type rowWriter struct {
	ev      *runlog.Events
	opt     DecodeOptions
	request int32

	seq      int32
	tUs      int64  // of the last row
	read     uint32 // that completed the last row; 0: none did
	usage    int32  // output tokens so far
	missed   bool   // text came since then that did not say how many tokens it was
	carry    []byte // beginning of a character whose end has not come yet
	carryOf  runlog.Channel
	lastText int // row of the last text; −1: none
	bad      string
}

// begin writes the rows of a request's beginning.
func (d *rowWriter) begin(req *rawRequest) {
	d.lastText = -1
	sent := req.sentUs
	if req.headersUs >= 0 && req.headersUs < sent {
		// Nothing is answered before it was sent: this process was kept from
		// noting that it had sent the request. The write itself takes but a
		// moment, so its beginning is the better note.
		sent = req.beganUs
	}
	d.add(runlog.NewEvent(runlog.KindSent, sent), 0)
	if req.headersUs >= 0 {
		h := runlog.NewEvent(runlog.KindHeaders, req.headersUs)
		h.Status = req.status
		d.add(h, req.headRead)
	}
}

// event writes the row of the request's event i. It returns false if that
// was the last row: an error.
func (d *rowWriter) event(req *rawRequest, i int, raw rawEvent) bool {
	c, err := DecodeChunk(raw.data)
	if err == nil && c.IsError {
		d.flush()
		d.fail(raw.tUs, raw.read, req.status, strings.TrimSpace("error event: "+c.Err))
		return false
	}
	if err != nil && d.bad == "" {
		d.bad = fmt.Sprintf("event %d of the request: %v", i, err)
	}
	d.chunk(c, err == nil, raw)
	return true
}

// end writes the last row of a request that no event has ended.
func (d *rowWriter) end(req *rawRequest) {
	d.flush()
	switch {
	case req.end == endNever:
	case d.bad != "" && req.end != endFailed:
		d.fail(req.endUs, req.endRead, req.status, d.bad)
	case req.end == endDone:
		d.add(runlog.NewEvent(runlog.KindDone, req.endUs), req.endRead)
	case req.end == endCancelled:
		e := runlog.NewEvent(runlog.KindCancelled, req.endUs)
		e.Error = d.foreign(req.endError)
		d.add(e, req.endRead)
	default:
		why := req.endError
		if len(req.last) > 0 {
			why += fmt.Sprintf("; last bytes %q", d.tail(req.last))
		}
		d.fail(req.endUs, req.endRead, req.status, why)
	}
}

// tail returns the end of what was received without secrets: they are taken
// out before it is cut, because no one knows half a secret again.
func (d *rowWriter) tail(b []byte) string {
	const shown = 120
	r := []rune(d.opt.Redact(strings.ToValidUTF8(string(b), "\uFFFD")))
	return string(r[max(0, len(r)-shown):])
}

// chunk writes the row of one data event.
func (d *rowWriter) chunk(c Chunk, ok bool, raw rawEvent) {
	e := runlog.NewEvent(runlog.KindChunk, raw.tUs)
	if !ok {
		d.add(e, raw.read)
		return
	}
	if c.Choices == 0 && c.CompletionTokens != runlog.Unknown {
		e.Kind = runlog.KindUsage
	}
	e.Tokens = d.tokens(c, e.Kind)
	e.PromptTokens, e.CachedTokens, e.CompletionTokens = c.PromptTokens, c.CachedTokens, c.CompletionTokens
	e.FinishReason = d.foreign(c.FinishReason)
	if e.Kind == runlog.KindChunk {
		text := d.complete(c.Text, c.Channel)
		e.Channel = c.Channel
		switch d.opt.Text {
		case TextFull:
			e.HasText, e.Text = true, text
		case TextHash:
			e.HasText, e.Text = true, hashText(d.opt.HashKey, text)
		}
		if len(c.Text) > 0 {
			d.lastText = d.ev.Len()
		}
	}
	d.add(e, raw.read)
}

// tokens returns the number of output tokens that an event delivered:
// growth of the server's running total since the event before, else the
// number of token ids, else unknown. The role chunk and the usage chunk carry
// none.
func (d *rowWriter) tokens(c Chunk, kind runlog.Kind) int32 {
	switch {
	case kind == runlog.KindUsage:
		return 0
	case c.CompletionTokens != runlog.Unknown:
		n := c.CompletionTokens - d.usage
		if n < 0 {
			return runlog.Unknown // not a running total
		}
		d.usage = c.CompletionTokens
		if d.missed {
			// A total on the finish chunk, or on some chunks only: the
			// growth is that of several events.
			d.missed = false
			return runlog.Unknown
		}
		return n
	case c.TokenIDs >= 0:
		n := int32(c.TokenIDs)
		d.usage += min(n, math.MaxInt32-d.usage)
		return n
	case c.Choices == 0, c.Role && len(c.Text) == 0:
		return 0
	}
	d.missed = d.missed || len(c.Text) > 0
	return runlog.Unknown
}

// complete returns text as valid UTF-8. A character that is split over
// chunks is given to the later one; a byte that is no part of any becomes
// U+FFFD.
func (d *rowWriter) complete(text []byte, ch runlog.Channel) string {
	if len(text) == 0 {
		return ""
	}
	if len(d.carry) > 0 {
		text = append(d.carry, text...)
		// A chunk of several channels begins or ends in any of them.
		if ch != d.carryOf && ch != runlog.ChannelMixed && d.carryOf != runlog.ChannelMixed {
			text = []byte(strings.ToValidUTF8(string(d.carry), "\uFFFD") + string(text[len(d.carry):]))
		}
		d.carry = nil
	}
	if n := incompleteSuffix(text); n > 0 {
		d.carry = append([]byte(nil), text[len(text)-n:]...)
		d.carryOf = ch
		text = text[:len(text)-n]
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// incompleteSuffix returns how many bytes at the end of b begin a character
// that is not complete.
func incompleteSuffix(b []byte) int {
	for n := 1; n <= min(3, len(b)); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// flush ends the text of a request. A character that never came to its end
// stays visible as U+FFFD at the end of the last text.
func (d *rowWriter) flush() {
	if len(d.carry) == 0 || d.lastText < 0 || d.opt.Text != TextFull {
		return
	}
	d.ev.Text = append(d.ev.Text, "\uFFFD"...)
	for i := d.lastText; i < d.ev.Len(); i++ {
		d.ev.TextEnd[i] += len("\uFFFD")
	}
	d.carry = nil
}

func (d *rowWriter) fail(tUs int64, read uint32, status int32, why string) {
	e := runlog.NewEvent(runlog.KindError, tUs)
	e.Status = status
	e.Error = d.foreign(why)
	d.add(e, read)
}

// foreign redacts and bounds a text of the server that is no output.
func (d *rowWriter) foreign(s string) string {
	if s == "" {
		return ""
	}
	r := []rune(strings.ToValidUTF8(d.opt.Redact(s), "\uFFFD"))
	if len(r) > 500 {
		r = append(r[:499], '…')
	}
	return string(r)
}

// add appends a row. The kernel's times and ours differ by a hair, but
// within a request time never goes back.
func (d *rowWriter) add(e runlog.Event, read uint32) {
	e.Stream, e.Request, e.Seq = d.opt.Stream, d.request, d.seq
	d.seq++
	d.tUs = max(d.tUs, e.TUs)
	e.TUs = d.tUs
	e.SameRead = read != 0 && read == d.read
	d.read = read
	d.ev.Append(e)
}

// hashText stands in for a text that must not be kept: equal texts have
// equal hashes under one key.
func hashText(key, text string) string {
	sum := sha256.Sum256([]byte(key + "\x00" + text))
	return fmt.Sprintf("#%s:%d", hex.EncodeToString(sum[:8]), utf8.RuneCountInString(text))
}
