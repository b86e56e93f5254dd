package stream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"
)

// chunkSeeds are events whose decoding has a history: the cases of
// docs/cases.md, and what is known of servers.
var chunkSeeds = []string{
	`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":5,"completion_tokens":0}}`,
	`{"choices":[{"index":0,"delta":{"reasoning_content":"x","content":null},"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning":"a","reasoning_content":"a","content":""},"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"text","text":"b"}]},"finish_reason":null}]}`,
	`{"choices":[{"delta":{"content":"` + "\xe4" + `"},"token_ids":[1,2]}]}`,
	`{"choices":[{"index":0,"delta":{"content":" call text"},"finish_reason":null}],"usage":{"completion_tokens":4}}`,
	`{"choices":[],"usage":{"prompt_tokens":40000,"total_tokens":40011,"completion_tokens":11,"prompt_tokens_details":{"cached_tokens":16}}}`,
	`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2}}`,
	`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}],"usage":null}`,
	`{"choices":[{"delta":{"content":"\ud83d"}}]}`, `{"choices":[{"delta":{"content":"\ude00\u0000\n"}}]}`,
	`{"error":{"message":"","type":"InternalServerError","code":500}}`, `{"error":{"message":"engine failure","type":"server_error","code":500}}`,
	`{"error":"no"}`, `{"object":"error","message":"m"}`, `{"choices":5,"usage":[]}`, `[]`, `"x"`, `null`, ``,
	`{"choices":[{"text":"a","finish_reason":7}],"usage":{"completion_tokens":1e300}}`,
	`{"choices":[{"delta":{"content":"a"}}],"choices":[{"delta":{"role":"r"}}],"usage":{"completion_tokens":1},"usage":{"prompt_tokens":2}}`,
	`{"choices":[null,{"delta":null,"token_ids":null}],"usage":{"prompt_tokens":-1,"completion_tokens":2.5}}`,
	`{"choices":[{"delta":{"content":"a"},"finish_reason":"` + strings.Repeat("long ", 200) + `"}]}`,
	strings.Repeat(`{"error":`, 50) + "1" + strings.Repeat("}", 50),
}

// bodySeeds are bodies of streams: those of the cases, those whose cuts are
// tried one by one, and every seed of an event.
func bodySeeds() [][]byte {
	delta := func(text string) string {
		return `data: {"choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`
	}
	var seeds [][]byte
	for _, s := range append(cutSeeds,
		delta("a")+"\n\n"+delta("b")+"\n\n"+delta("c")+"\n\ndata: [DONE]\n\n",
		delta("x y")+"\n\ndata: [DONE]\n\n",
		strings.Replace(delta("a"), ": ", ":", 1)+"\n\n"+delta("b")+"\n\ndata:[DONE]\n\n",
		":\n\n"+delta("a")+"\n\n:\n:\n\n"+delta("b")+"\n\ndata: [DONE]\n\n",
		delta("\xe4\xb8\xad")+"\n\ndata: [DONE]\n\n",
		delta("a")+"\r\n\r\n"+delta("b")+"\r\n\r\ndata: [DONE]\r\n\r\n",
		delta("a")+"\n\n"+delta("b")+"\n\ndata: {\"error\":{\"message\":\"engine failure\"}}\n\ndata: [DONE]\n\n",
		delta("a")+"\n\ndata: {\"choi", "data: [DONE]\n\n",
		"data: \n\ndata:\n\n"+delta("a")+"\n\ndata: [DONE]\n\n",
	) {
		seeds = append(seeds, []byte(s))
	}
	for _, s := range chunkSeeds {
		seeds = append(seeds, []byte("data: "+s+"\n\n"+delta("a")+"\n\ndata: "+s+"\n\ndata: [DONE]\n\n"))
	}
	return seeds
}

// captureBodies are the bodies of captured streams.
func captureBodies(tb testing.TB) [][]byte {
	var bodies [][]byte
	for _, c := range captures(tb) {
		if c.method != "POST" || c.status != 200 {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(c.wire)), nil)
		if err != nil {
			tb.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body) // some were cut off
		bodies = append(bodies, b)
	}
	if len(bodies) < 10 {
		tb.Fatalf("%d captured bodies, want 10 at least", len(bodies))
	}
	return bodies
}

// FuzzSSE: where a stream is cut changes no event, and each is there with the
// first piece that suffices.
func FuzzSSE(f *testing.F) {
	for _, b := range bodySeeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2000 {
			return // quadratic
		}
		checkCuts(t, b)
	})
}

// FuzzDecodeChunk: whatever an event is, what is read from it is in range and
// makes rows that the run log takes.
func FuzzDecodeChunk(f *testing.F) {
	for _, s := range chunkSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeChunk(data)
		if quick, ok := decodeUsual(data); ok {
			// The short cut says what the standard library's decoder says.
			if any, anyErr := decodeAny(data); anyErr != nil || !reflect.DeepEqual(quick, any) {
				t.Errorf("decodeUsual = %+v, decodeAny = %+v, %v", quick, any, anyErr)
			}
		}
		if err != nil {
			return
		}
		for name, n := range map[string]int32{"prompt": c.PromptTokens, "completion": c.CompletionTokens, "cached": c.CachedTokens} {
			if n < runlog.Unknown {
				t.Errorf("%s tokens = %d, want unknown or >= 0", name, n)
			}
		}
		if (len(c.Text) > 0) != (c.Channel != runlog.ChannelNone) {
			t.Errorf("text %q with channel %v", c.Text, c.Channel)
		}
		if utf8.Valid(data) && !utf8.Valid(c.Text) {
			t.Errorf("valid event gave invalid text %q", c.Text)
		}
		if c.IsError && (len(c.Text) > 0 || c.Choices > 0) {
			t.Errorf("error event with choices: %+v", c)
		}
		spaced, err := DecodeChunk([]byte(" " + string(data) + "\t"))
		if err != nil || !reflect.DeepEqual(spaced, c) {
			t.Errorf("with blanks around it: %+v, %v, want %+v", spaced, err, c)
		}
	})
}

// FuzzDeltaText: the text of a delta arrives as it was sent, byte by byte,
// even where it is cut between the bytes of a character.
func FuzzDeltaText(f *testing.F) {
	for _, s := range []string{"", "a", "x y\n", "中文🙂", "\xe4", "\xb8\xad", `"\`, "\u2028\x00</script>", `\u00e9`, "\xed\xa0\xbd", "\uFFFD", strings.Repeat("x", 5000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := DecodeChunk([]byte(`{"choices":[{"delta":{"content":` + quoteJSON(text) + `}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		private := strings.ContainsFunc(text, func(r rune) bool { return r >= strayBase && r <= strayBase+0xFF })
		if string(c.Text) != text && (utf8.ValidString(text) || !private) {
			t.Errorf("text %q, want %q", c.Text, text)
		}
	})
}

// quoteJSON writes a JSON string and leaves every byte that need not be
// escaped as it is.
func quoteJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// FuzzRows: whatever a server sends, the rows are ones that the run log
// takes; they do not depend on where the bytes are cut; and where the running
// usage runs, the tokens of the events add up to it.
func FuzzRows(f *testing.F) {
	seeds := append(bodySeeds(), captureBodies(f)...)
	for i, b := range seeds {
		f.Add(b, uint16(i*37))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut uint16) {
		if len(body) > 1<<16 {
			return
		}
		wire := chunked(string(body), 1<<20)
		ev := rowsOf(converse(t, wire))
		if err := ev.Check(); err != nil {
			t.Fatalf("rows: %v", err)
		}
		at := int(cut) % len(wire)
		if other := said(rowsOf(converse(t, wire[:at], wire[at:]))); other != said(ev) {
			t.Errorf("cut at %d: rows\n%swant\n%s", at, other, said(ev))
		}
		n := ev.Len()
		checkEnds(t, ev)
		sum, total, runs := int64(0), int64(0), true
		for i := range n {
			if ev.Kind[i] != runlog.KindChunk {
				continue
			}
			if c := int64(ev.CompletionTokens[i]); c < total {
				runs = false // goes down, or is not everywhere
			} else {
				total = c
			}
			sum += max(int64(ev.Tokens[i]), 0)
		}
		if runs && sum != total {
			t.Errorf("tokens of all events: %d, want the %d of the running usage\n%s", sum, total, said(ev))
		}
	})
}

// checkEnds asserts that rows are those of one request with an end.
func checkEnds(t *testing.T, ev *runlog.Events) {
	t.Helper()
	if n := ev.Len(); ev.Kind[0] != runlog.KindSent || !ev.Kind[n-1].Ends() || ev.Request[n-1] != 0 {
		t.Errorf("rows from %v to %v of request %d, want one request from sent to its end", ev.Kind[0], ev.Kind[n-1], ev.Request[n-1])
	}
}

// FuzzResponse: whatever answers on the port, the rows are ones that the run
// log takes, in every mode of text, and the request ends the same way however
// the bytes are cut.
func FuzzResponse(f *testing.F) {
	seeds := [][]byte{
		[]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
		[]byte("HTTP/1.0 200 OK\n\ndata: {}\n\ndata: [DONE]\n\n"),
		[]byte("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
		[]byte("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"), []byte("HTTP/1.1 999 Odd\r\n\r\nx"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
		[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"), []byte("SSH-2.0-OpenSSH\r\n"), nil,
	}
	for _, c := range captures(f) {
		if c.method == "POST" && len(c.wire) < 1<<13 {
			seeds = append(seeds, c.wire)
		}
	}
	for i, wire := range seeds {
		f.Add(wire, uint16(i*37))
	}
	f.Fuzz(func(t *testing.T, wire []byte, cut uint16) {
		if len(wire) > 1<<16 {
			return
		}
		rec := converse(t, wire)
		for _, text := range []string{TextFull, TextHash, TextNone} {
			ev := &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1}}
			rec.Decode(ev, DecodeOptions{Text: text, HashKey: "k", Redact: func(s string) string { return s }})
			if err := ev.Check(); err != nil {
				t.Fatalf("rows with text %s: %v", text, err)
			}
			checkEnds(t, ev)
		}
		ev := rowsOf(rec)
		at := int(cut) % (len(wire) + 1)
		other := rowsOf(converse(t, wire[:at], wire[at:]))
		if !slices.Equal(other.Kind, ev.Kind) || !slices.Equal(other.Status, ev.Status) || !bytes.Equal(other.Text, ev.Text) {
			t.Errorf("cut at %d: rows\n%swant\n%s", at, said(other), said(ev))
		}
	})
}
