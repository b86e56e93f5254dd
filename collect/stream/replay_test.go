package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

// answer reads one request from c, writes the pieces of a response, and
// closes.
func answer(c net.Conn, pieces ...[]byte) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			return // the client has what it wants
		}
	}
}

// A pipeEnd is one side of a pipe that, like a TCP connection, can still be
// read when the other side has closed.
type pipeEnd struct{ net.Conn }

func (p pipeEnd) SetReadDeadline(at time.Time) error {
	if err := p.Conn.SetReadDeadline(at); err != io.ErrClosedPipe {
		return err
	}
	return nil
}

// converse lets a client send a request over a pipe, where every write of
// the other side is one read of the client, and returns what it recorded.
func converse(t testing.TB, pieces ...[]byte) *Recording {
	t.Helper()
	near, far := net.Pipe()
	go answer(far, pieces...)
	rec := NewRecording(time.Now())
	e := &Endpoint{head: []byte("POST / HTTP/1.1\r\nHost: pipe\r\nContent-Length: ")}
	c := NewClient(e, time.Minute, &Lateness{}, rec)
	c.conn = &Conn{Conn: pipeEnd{near}, buf: make([]byte, 64<<10)}
	defer c.Close()
	if _, err := c.Do(context.Background(), []byte("{}")); err != nil {
		t.Fatalf("Do: %v", err)
	}
	return rec
}

func rowsOf(rec *Recording) *runlog.Events {
	ev := &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1}}
	rec.Decode(ev, DecodeOptions{Text: TextFull, Redact: func(s string) string { return s }})
	return ev
}

// said prints everything of rows that does not depend on reads: no times, and
// no words about where the bytes ended.
func said(ev *runlog.Events) string {
	var b strings.Builder
	for i := range ev.Len() {
		e := ev.Row(i)
		e.TUs, e.SameRead = 0, false
		if text, _, cut := strings.Cut(e.Error, "; last bytes"); cut {
			e.Error = text
		}
		fmt.Fprintf(&b, "%+v\n", e)
	}
	return b.String()
}

func bytewise(b []byte) [][]byte {
	pieces := make([][]byte, len(b))
	for i := range b {
		pieces[i] = b[i : i+1]
	}
	return pieces
}

// checkWireCuts compares every cut of a response into two reads with the
// whole, and the read that each event has with the first that suffices.
func checkWireCuts(t *testing.T, wire []byte) {
	t.Helper()
	want := said(rowsOf(converse(t, wire)))
	single := converse(t, bytewise(wire)...)
	if got := said(rowsOf(single)); got != want {
		t.Fatalf("byte by byte: rows\n%swant\n%s", got, want)
	}
	for cut := 1; cut < len(wire); cut++ {
		rec := converse(t, wire[:cut], wire[cut:])
		if got := said(rowsOf(rec)); got != want {
			t.Fatalf("cut at %d: rows\n%swant\n%s", cut, got, want)
		}
		events, singles := rec.events.cursor(), single.events.cursor()
		for i := range rec.events.n {
			e, completed := events.next(), uint32(1)
			if singles.next().read > uint32(cut) {
				completed = 2
			}
			if e.read != completed {
				t.Fatalf("cut at %d: event %d was completed by read %d, want %d", cut, i, e.read, completed)
			}
		}
	}
}

// chunked returns a streamed answer whose body comes in HTTP chunks of at
// most size bytes.
func chunked(body string, size int) []byte {
	wire := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for len(body) > 0 {
		n := min(size, len(body))
		wire = fmt.Appendf(wire, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return append(wire, "0\r\n\r\n"...)
}

func TestEveryCutOfAConversation(t *testing.T) {
	delta := func(text string) string { return `{"choices":[{"delta":{"content":"` + text + `"}}]}` }
	for _, tt := range []struct{ name, body string }{
		{"text with blanks", "data: " + delta("x y") + "\n\ndata: [DONE]\n\n"},
		{"characters of two to four bytes", "data: " + delta("é中🙂") + "\n\ndata: " + delta(`\u4e2d`) + "\n\ndata: [DONE]\n\n"},
		{"half a character in each of two chunks", "data: " + delta("\xe4\xb8") + "\n\ndata: " + delta("\xad") + "\n\ndata: [DONE]\n\n"},
		{"CR LF", "data: " + delta("a") + "\r\n\r\ndata:" + delta("b") + "\r\n\r\ndata:[DONE]\r\n\r\n"},
		{"CR alone", "data: " + delta("a") + "\r\rdata: [DONE]\r\r"},
		{"byte order mark", "\xef\xbb\xbfdata: " + delta("a") + "\n\ndata: [DONE]\n\n"},
		{"comments between data lines", ":\n\ndata: {\"choices\":\n: ping\ndata: [{\"delta\":{\"content\":\"a\"}}]}\n\nid: 4\n\ndata: [DONE]\n\n"},
		{"usage, then the end marker that nothing completes", "data: " + delta("a") + "\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]"},
		{"an error event", "data: " + delta("a") + "\n\ndata: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n"},
		{"no end marker", "data: " + delta("a") + "\n\n"},
	} {
		for _, size := range []int{1 << 20, 16} {
			t.Run(fmt.Sprintf("%s, HTTP chunks of %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				checkWireCuts(t, chunked(tt.body, size))
			})
		}
	}
}

// A capture is one response that a real server sent, and what it was asked.
type capture struct {
	name   string
	wire   []byte
	status int
	method string
}

// captures returns all responses below testdata/vllm.
func captures(t testing.TB) []capture {
	t.Helper()
	manifests, err := filepath.Glob("testdata/vllm/*/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []capture
	for _, m := range manifests {
		b, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Captures map[string]struct {
				Status int
				Method string
			}
		}
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		for name, c := range list.Captures {
			wire, err := os.ReadFile(filepath.Join(filepath.Dir(m), name+".http"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, capture{filepath.Base(filepath.Dir(m)) + "/" + name, wire, c.Status, c.Method})
		}
	}
	if len(all) == 0 {
		t.Fatal("no captures below testdata/vllm")
	}
	return all
}

// A content is what a capture says, as read by the standard library.
type content struct {
	text, reasoning string
	events          int // with a JSON object that is no error
	usage           map[string]any
	tokenIDs        int
	finish          string
	choices         int
	failed          string // message of an error event or answer
	done            bool
	streamed        bool
}

func contentOf(t *testing.T, wire []byte) content {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(wire)), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	var c content
	message := func(v any) string {
		e, _ := v.(map[string]any)
		if inner, ok := e["error"].(map[string]any); ok {
			e = inner
		} else if s, ok := e["error"].(string); ok {
			return s
		}
		s, _ := e["message"].(string)
		return s
	}
	c.streamed = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if !c.streamed {
		var v any
		json.Unmarshal(body, &v)
		if c.failed = message(v); c.failed == "" {
			c.failed = string(body)
		}
		return c
	}
	truncated := err != nil
	for _, block := range strings.Split(string(body), "\n\n") {
		data, ok := strings.CutPrefix(block, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			c.done = !truncated
			break
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		if v["error"] != nil {
			c.failed = message(v)
			break
		}
		c.events++
		if u, ok := v["usage"].(map[string]any); ok {
			c.usage = u
		}
		choices, _ := v["choices"].([]any)
		for _, ch := range choices {
			ch := ch.(map[string]any)
			c.choices = max(c.choices, int(ch["index"].(float64))+1)
			delta, _ := ch["delta"].(map[string]any)
			str := func(m map[string]any, key string) string { s, _ := m[key].(string); return s }
			c.text += str(delta, "content") + str(ch, "text")
			c.reasoning += str(delta, "reasoning")
			if f := str(ch, "finish_reason"); f != "" {
				c.finish = f
			}
			ids, _ := ch["token_ids"].([]any)
			c.tokenIDs += len(ids)
		}
	}
	return c
}

// checkCapture holds rows against what a capture says.
func checkCapture(t *testing.T, c capture, want content, ev *runlog.Events) {
	t.Helper()
	if err := ev.Check(); err != nil {
		t.Fatalf("rows: %v", err)
	}
	var text, reasoning, finish string
	events, sum, total, prompt := 0, int32(0), runlog.Unknown, runlog.Unknown
	known := true
	for i := range ev.Len() {
		e := ev.Row(i)
		switch e.Kind {
		case runlog.KindChunk, runlog.KindUsage:
			events++
		default:
			continue
		}
		switch e.Channel {
		case runlog.ChannelReasoning:
			reasoning += e.Text
		case runlog.ChannelContent:
			text += e.Text
		case runlog.ChannelNone:
		default:
			t.Errorf("row %d: channel %v", i, e.Channel)
		}
		if e.FinishReason != "" {
			finish = e.FinishReason
		}
		if e.Tokens == runlog.Unknown {
			known = false
		} else {
			sum += e.Tokens
		}
		if e.CompletionTokens != runlog.Unknown {
			total, prompt = e.CompletionTokens, e.PromptTokens
		}
	}
	if events != want.events || text != want.text || reasoning != want.reasoning || finish != want.finish {
		t.Errorf("%d events, text %q, reasoning %q, finish %q; want %d, %q, %q, %q",
			events, text, reasoning, finish, want.events, want.text, want.reasoning, want.finish)
	}
	if n, ok := want.usage["completion_tokens"].(float64); ok {
		if total != int32(n) || prompt != int32(want.usage["prompt_tokens"].(float64)) {
			t.Errorf("last usage: %d of a prompt of %d, want %v", total, prompt, want.usage)
		}
		if known && want.choices == 1 && sum != int32(n) {
			t.Errorf("tokens of all events: %d, want %v", sum, n)
		}
	} else if total != runlog.Unknown {
		t.Errorf("usage %d, want none", total)
	}
	if want.tokenIDs > 0 && known && sum != int32(want.tokenIDs) {
		t.Errorf("tokens of all events: %d, want %d as there are token ids", sum, want.tokenIDs)
	}
	last := ev.Row(ev.Len() - 1)
	switch {
	case c.status != 200:
		if last.Kind != runlog.KindError || last.Status != int32(c.status) || last.Error != fmt.Sprintf("HTTP %d: %s", c.status, clipError(want.failed, c.status)) {
			t.Errorf("ended %v, status %d, %q, want error, %d, with %q", last.Kind, last.Status, last.Error, c.status, want.failed)
		}
	case !want.streamed:
		if last.Kind != runlog.KindError || !strings.Contains(last.Error, "answer is no event stream") {
			t.Errorf("ended %v %q, want an answer that is no event stream", last.Kind, last.Error)
		}
	case want.failed != "":
		if last.Kind != runlog.KindError || last.Error != "error event: "+want.failed {
			t.Errorf("ended %v %q, want an error event with %q", last.Kind, last.Error, want.failed)
		}
	case want.done:
		if last.Kind != runlog.KindDone {
			t.Errorf("ended %v %q, want done", last.Kind, last.Error)
		}
	default:
		if last.Kind != runlog.KindError || !strings.Contains(last.Error, "closed before the answer was complete") {
			t.Errorf("ended %v %q, want a closed connection", last.Kind, last.Error)
		}
	}
}

// clipError is a message as a row has it: 500 code points at most, the
// status in front of it included.
func clipError(msg string, status int) string {
	r := []rune(msg)
	if most := 500 - len(fmt.Sprintf("HTTP %d: ", status)); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return msg
}

// TestCapturesOverTCP lets a client read what a real server sent.
func TestCapturesOverTCP(t *testing.T) {
	streams := 0
	for _, c := range captures(t) {
		if c.method != "POST" {
			continue
		}
		want := contentOf(t, c.wire)
		if want.streamed {
			streams++
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if conn, err := l.Accept(); err == nil {
					answer(conn, c.wire)
				}
			}()
			e, err := NewEndpoint(&url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/v1/chat/completions"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			rec := NewRecording(time.Now())
			client := NewClient(e, time.Minute, &Lateness{}, rec)
			defer client.Close()
			if _, err := client.Do(context.Background(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			ev := rowsOf(rec)
			checkCapture(t, c, want, ev)
			if whole := said(rowsOf(converse(t, bytewise(c.wire)...))); whole != said(ev) {
				t.Errorf("byte by byte: rows\n%swant\n%s", whole, said(ev))
			}
		})
	}
	if streams < 10 {
		t.Errorf("%d captured streams, want 10 at least", streams)
	}
}

// TestEveryCutOfACapture cuts a short real stream everywhere.
func TestEveryCutOfACapture(t *testing.T) {
	var shortest []byte
	for _, c := range captures(t) {
		if c.method != "POST" || c.status != 200 {
			continue
		}
		if want := contentOf(t, c.wire); want.done && want.usage != nil && (shortest == nil || len(c.wire) < len(shortest)) {
			shortest = c.wire
		}
	}
	if shortest == nil {
		t.Fatal("no captured stream with usage")
	}
	checkWireCuts(t, shortest)
}
