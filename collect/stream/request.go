package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"speedmatrix/ingest/runlog"
)

// An Outcome says how a request ended, as far as that can be seen without
// decoding its events.
type Outcome uint8

const (
	Done      Outcome = iota + 1 // [DONE] came
	Failed                       // error answer, error event, broken or silent connection
	Cancelled                    // the connection was closed by Stop
)

// A Client sends requests to one endpoint, one at a time, on one connection
// that it keeps and opens again when it has to. It belongs to one stream.
//
// Do must not be called by two goroutines at once; Stop may be called from
// any.
type Client struct {
	// Sent, unless nil, is called when a request has been written, before
	// its answer is waited for.
	Sent func()

	endpoint *Endpoint
	idle     time.Duration
	lateness *Lateness
	rec      *Recording

	stop   context.Context
	cancel context.CancelFunc
	conn   *Conn
}

// NewClient returns a client that records into rec. A response that stays
// silent for idle fails its request. Lateness, shared by the clients of a
// run, may not be nil.
func NewClient(e *Endpoint, idle time.Duration, lateness *Lateness, rec *Recording) *Client {
	c := &Client{endpoint: e, idle: idle, lateness: lateness, rec: rec}
	c.stop, c.cancel = context.WithCancel(context.Background())
	return c
}

// Open dials the connection that the next request will use, so that the
// request does not wait for it.
func (c *Client) Open(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := c.endpoint.Dial(ctx)
	if err != nil {
		return err
	}
	c.conn = conn
	return nil
}

// Kernel reports whether the open connection has arrival times from the kernel.
func (c *Client) Kernel() bool { return c.conn != nil && c.conn.Kernel() }

// Stop makes the request in progress, and every later one, end as
// cancelled by closing its connection. It does not wait. What the kernel says
// has arrived by then is recorded still, however late it is read.
func (c *Client) Stop() { c.cancel() }

// Stopped reports whether Stop has been called.
func (c *Client) Stopped() bool { return c.stop.Err() != nil }

// Close closes the connection.
func (c *Client) Close() {
	c.cancel()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// Do sends one request with the given JSON body, in pieces, and records
// everything until its end. The error says why no request could be sent at
// all (nothing is recorded then); what goes wrong later is an Outcome.
//
// A server closes a kept connection after some idle time (vLLM: 5 s), and a
// request sent at that moment is lost though nothing is wrong. When a
// connection that has carried a request before dies ahead of any byte of
// the answer, the request is therefore sent again, once, on a new one; the
// first attempt is recorded as cancelled, with the reason.
func (c *Client) Do(ctx context.Context, body ...[]byte) (Outcome, error) {
	retried := false
	for {
		if c.stop.Err() != nil {
			return Cancelled, nil
		}
		if err := c.Open(ctx); err != nil {
			return 0, fmt.Errorf("connect: %w", err)
		}
		used := c.conn.used
		out, again := c.attempt(body, used && !retried)
		if !again {
			return out, nil
		}
		retried = true
	}
}

// attempt sends and reads one request. again asks for another attempt.
func (c *Client) attempt(body [][]byte, mayRetry bool) (out Outcome, again bool) {
	conn := c.conn
	unhook := context.AfterFunc(c.stop, conn.interrupt)
	defer unhook()

	x := exchange{rec: c.rec, lateness: c.lateness}
	began := time.Now()
	writeErr := c.write(conn, body)
	conn.used = true
	now := time.Now()
	x.begin(began, now)
	if c.Sent != nil {
		c.Sent()
	}
	if writeErr != nil {
		// A server that refuses a request may answer before it has read all
		// of it, and close. The answer says more than the broken pipe.
		conn.SetReadDeadline(now.Add(time.Second))
		conn.deadline = time.Time{}
	}
	err := x.read(c.stop, conn, c.idle, writeErr == nil)
	if err != nil && writeErr != nil && !x.resp.inBody {
		err = writeErr
	}
	switch {
	case err == nil && x.resp.keepAlive && writeErr == nil:
	default:
		conn.Close()
		c.conn = nil
	}
	broken := err != nil && writeErr == nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) // by the server
	switch {
	case c.stop.Err() != nil && err != nil && !broken && (x.resp.status == 0 || x.resp.status == 200):
		x.end(endCancelled, "")
		return Cancelled, false
	case err == nil:
		x.end(endDone, "")
		return Done, false
	case mayRetry && x.bytes == 0 && !errors.Is(err, os.ErrDeadlineExceeded):
		x.end(endCancelled, "kept connection was closed before any answer ("+describe(err)+"); sent again on a new one")
		return 0, true
	default:
		x.end(endFailed, x.explain(err, c.idle))
		return Failed, false
	}
}

func (c *Client) write(conn *Conn, body [][]byte) error {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	head := fmt.Appendf(nil, "%s%d\r\n\r\n", c.endpoint.head, n)
	bufs := append(net.Buffers{head}, body...)
	conn.SetWriteDeadline(time.Now().Add(c.idle))
	if c.stop.Err() != nil {
		return net.ErrClosed // its interrupt may have come before the deadline above
	}
	_, err := bufs.WriteTo(conn.Conn) // one writev over plain TCP
	return err
}

// An exchange is one request while its response is read.
type exchange struct {
	rec      *Recording
	lateness *Lateness
	req      *rawRequest

	resp  responseDecoder
	sse   sseDecoder
	plain []byte // body of an answer that is no event stream

	reads uint32 // reads so far
	bytes int64
	now   arrival // of the read in progress
	seen  bool    // this request has delivered output
	done  bool    // [DONE] has been seen
	last  []byte  // end of what was received, for error messages
}

// maxPlain bounds what is kept of an answer that is no event stream.
const maxPlain = 64 << 10

// maxRecorded bounds the memory that one request's events may take.
const maxRecorded = 512 << 20

func (x *exchange) begin(began, sent time.Time) {
	r := x.rec
	r.requests = append(r.requests, rawRequest{
		firstEvent: r.events.n, beganUs: r.us(began), sentUs: r.us(sent), headersUs: -1, status: runlog.Unknown,
	})
	x.req = &r.requests[len(r.requests)-1]
	x.now.at = sent
}

// read reads the response to its end, or, once stop is done, what had
// arrived by then. It returns nil when the request ended by itself with
// [DONE], and os.ErrDeadlineExceeded when nothing came for too long or after
// the stop.
func (x *exchange) read(stop context.Context, conn *Conn, idle time.Duration, setDeadline bool) error {
	var stopped time.Time // when that was seen
	for {
		if setDeadline {
			wait := idle
			if x.done {
				wait = time.Second // for the end of the body only
			}
			err := conn.setIdle(x.now.at.Add(x.now.late), wait)
			if err != nil && x.done {
				return x.cutAfterDone()
			}
			if err != nil {
				return err
			}
		}
		if stopped.IsZero() && stop.Err() != nil {
			stopped = time.Now()
		}
		read := conn.read
		if !stopped.IsZero() {
			read = conn.pending
		}
		b, a, err := read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline passed, but on a busy machine that does not mean
			// that there was nothing to read.
			b, a, err = conn.pending()
		}
		if len(b) > 0 {
			x.reads++
			x.bytes += int64(len(b))
			x.now = a
			before := x.rec.events.n
			rest, ferr := x.resp.feed(b, x.onHead, x.onBody)
			x.lateness.note(a.late, x.rec.events.n-before, before-x.req.firstEvent)
			if !x.resp.inBody {
				x.keepTail(b)
			}
			if ferr != nil {
				return ferr
			}
			if len(rest) > 0 {
				x.resp.keepAlive = false // bytes that nobody asked for
			}
			if x.resp.done {
				return x.finished()
			}
		}
		if err == nil && !stopped.IsZero() && a.at.After(stopped) {
			err = os.ErrDeadlineExceeded
		}
		if err == nil {
			continue
		}
		if x.done {
			return x.cutAfterDone()
		}
		if errors.Is(err, io.EOF) {
			if err := x.resp.eof(); err != nil {
				return err
			}
			return x.finished()
		}
		return err
	}
}

// cutAfterDone takes the end of a connection ahead of the end of the body,
// but behind the end marker: everything was said, only the connection can't
// be kept.
func (x *exchange) cutAfterDone() error {
	x.resp.keepAlive = false
	return nil
}

// keepTail remembers the end of what was received, over several reads: more
// than is shown, so that a secret in it is whole and can be taken out.
func (x *exchange) keepTail(b []byte) {
	const keep = 2 << 10
	if len(b) > keep {
		b = b[len(b)-keep:]
	}
	if n := len(x.last) + len(b) - 2*keep; n > 0 {
		x.last = x.last[:copy(x.last, x.last[max(n, len(x.last)-keep):])]
	}
	x.last = append(x.last, b...)
}

// finished takes the clean end of the response.
func (x *exchange) finished() error {
	if x.resp.status != 200 {
		return errStatus
	}
	if err := x.sse.finish(x.onEvent); err != nil {
		return err
	}
	if x.done {
		return nil
	}
	if x.rec.events.n == x.req.firstEvent && len(x.plain) > 0 {
		return errNotStream
	}
	return errTruncated
}

var (
	errStatus     = errors.New("HTTP error status")
	errNotStream  = errors.New("answer is no event stream")
	errTruncated  = errors.New("stream ended without [DONE]")
	errErrorEvent = errors.New("error event")
	errTooMuch    = errors.New("more data than a request may have")
)

func (x *exchange) onHead() error {
	x.req.status = int32(x.resp.status)
	x.req.headersUs = x.rec.us(x.now.at)
	x.req.headRead = x.reads
	x.last = x.last[:0]
	return nil
}

func (x *exchange) onBody(b []byte) error {
	x.keepTail(b)
	if x.bytes > maxRecorded {
		return errTooMuch
	}
	if n := min(len(b), maxPlain-len(x.plain)); n > 0 && x.rec.events.n == x.req.firstEvent {
		x.plain = append(x.plain, b[:n]...)
	}
	if x.resp.status != 200 {
		if len(x.plain) >= maxPlain {
			return errStatus
		}
		return nil
	}
	return x.sse.feed(b, x.onEvent)
}

// onEvent records one event. This is the measuring path.
func (x *exchange) onEvent(data []byte) error {
	if x.done || isBlank(data) {
		return nil // nothing counts behind the end marker; an empty event is a keep-alive
	}
	if isDone(data) {
		x.done = true
		x.req.endUs, x.req.endRead = x.rec.us(x.now.at), x.reads
		return nil
	}
	x.rec.events.add(rawEvent{data, x.rec.us(x.now.at), x.reads})
	if x.seen {
		if looksLikeError(data) {
			return errErrorEvent
		}
		return nil
	}
	// Until the first output every event is looked at: a handful.
	c, err := DecodeChunk(data)
	switch {
	case err != nil:
		return err
	case c.IsError:
		return errErrorEvent
	case len(c.Text) > 0 || c.TokenIDs > 0 || c.CompletionTokens > 0:
		x.seen = true
		x.rec.delivered.Store(true)
	}
	return nil
}

// end closes the request's record.
func (x *exchange) end(kind endKind, why string) {
	if kind != endDone {
		x.req.endUs, x.req.endRead = x.rec.us(time.Now()), x.reads+1
	}
	x.req.end, x.req.endError = kind, why
}

// explain says why a request failed, in words for the log. It is foreign
// text and may hold secrets: the caller redacts.
func (x *exchange) explain(err error, idle time.Duration) string {
	switch {
	case errors.Is(err, errStatus):
		msg := ErrorMessage(x.plain)
		if msg == "" {
			msg = "no message"
		}
		return fmt.Sprintf("HTTP %d: %s", x.resp.status, msg)
	case errors.Is(err, errErrorEvent):
		data := x.rec.events.last.data
		if c, err := DecodeChunk(data); err == nil && c.Err != "" {
			return "error event: " + c.Err
		}
		return "error event without a message"
	case errors.Is(err, errNotStream):
		return fmt.Sprintf("answer is no event stream (Content-Type %q): %s", clip([]byte(x.resp.header.Get("Content-Type")), 60), ErrorMessage(x.plain))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("nothing arrived for %v (idle limit)", idle)
	}
	msg := describe(err)
	if n := x.rec.events.n - x.req.firstEvent; n > 0 {
		msg += fmt.Sprintf(" after %d events", n)
	}
	x.req.last = x.last
	return msg
}

// describe names a connection's error without addresses and ports.
func describe(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "connection closed before the answer was complete"
	case errors.As(err, &op):
		err = op.Err
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		err = sys.Err
	}
	return err.Error()
}
