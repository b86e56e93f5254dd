package stream

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Streams whose events must not depend on where the transport cuts them.
var cutSeeds = []string{
	"data: {\"choices\":[{\"delta\":{\"content\":\"x y\"}}]}\n\ndata: [DONE]\n\n",
	"data:{\"a\":1}\r\n\r\ndata:[DONE]\r\n\r\n",
	"data: a\rdata: b\r\rdata: c\r\n\r\n\n\ndata: d\n\n",
	":\n\ndata: {\"x\":\"中文\"}\n:\n\n: ping\r\nid: 3\nevent: m\ndata\ndata: 2\n\n",
	"\xef\xbb\xbfdata: 1\n\ndata: [DONE]",
	"data: unfinished\ndata: {\"a\"",
	strings.Repeat("data: "+strings.Repeat("x", 50)+"\n\n", 5),
}

// decodeAll feeds the pieces and returns the events, each with the number
// of the piece that completed it.
func decodeAll(pieces ...[]byte) (events []string, at []int) {
	var d sseDecoder
	now := 0
	emit := func(data []byte) error {
		events, at = append(events, string(data)), append(at, now)
		return nil
	}
	for i, p := range pieces {
		now = i
		if err := d.feed(bytes.Clone(p), emit); err != nil {
			events = append(events, "error: "+err.Error())
			return events, at
		}
	}
	now = len(pieces)
	d.finish(emit)
	return events, at
}

// checkCuts compares every cut of b into two pieces with the whole, and
// each event's piece with the first at which the bytes up to it suffice.
func checkCuts(t *testing.T, b []byte) {
	t.Helper()
	whole, _ := decodeAll(b)
	bytewise := make([][]byte, len(b))
	for i := range b {
		bytewise[i] = b[i : i+1]
	}
	single, completedBy := decodeAll(bytewise...)
	if fmt.Sprint(single) != fmt.Sprint(whole) {
		t.Fatalf("byte by byte: events %q, want %q", single, whole)
	}
	for cut := 1; cut < len(b); cut++ {
		got, at := decodeAll(b[:cut], b[cut:])
		if fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Fatalf("cut at %d: events %q, want %q", cut, got, whole)
		}
		for i := range got {
			want := 1
			switch {
			case completedBy[i] < cut:
				want = 0
			case completedBy[i] == len(b):
				want = 2 // only the end of the stream completes it
			}
			if at[i] != want {
				t.Fatalf("cut at %d: event %d completed by piece %d, want %d", cut, i, at[i], want)
			}
		}
	}
}

func TestEveryCutGivesTheSameEvents(t *testing.T) {
	for _, s := range cutSeeds {
		checkCuts(t, []byte(s))
	}
}

func TestEventOverTheLimitIsAnError(t *testing.T) {
	var d sseDecoder
	line := append([]byte("data: "), bytes.Repeat([]byte("x"), 1<<20)...)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = d.feed(line, func([]byte) error { return nil })
	}
	if err == nil || n > maxEvent>>20+1 {
		t.Errorf("after %d MiB in one line: error %v, want one at %d MiB", n, err, maxEvent>>20)
	}
}

func TestLargeLineIsOneEvent(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	got, _ := decodeAll([]byte("data: a\n\ndata: "+big[:100<<10]), []byte(big[100<<10:]+"\n\ndata: b\n\n"))
	if len(got) != 3 || got[0] != "a" || got[1] != big || got[2] != "b" {
		t.Errorf("got %d events, want a, 200 KiB, b", len(got))
	}
}

// responses and the bodies that they must give, whatever the cuts.
func TestEveryCutOfAResponse(t *testing.T) {
	for _, tt := range []struct{ name, wire, status, body, rest string }{
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nT: 1\r\n\r\n", "200 keep", "abc0123456789", ""},
		{"interim answer first", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nnoX", "404 keep", "no", "X"},
		{"no length, until the end", "HTTP/1.0 200 OK\n\nabc", "200 close", "abc", ""},
		{"empty", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "503 close", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for cut := 0; cut < len(tt.wire); cut++ {
				var r responseDecoder
				var body, rest []byte
				heads := 0
				for _, p := range []string{tt.wire[:cut], tt.wire[cut:]} {
					if p == "" || r.done {
						rest = append(rest, p...)
						continue
					}
					left, err := r.feed([]byte(p), func() error { heads++; return nil }, func(b []byte) error { body = append(body, b...); return nil })
					if err != nil {
						t.Fatalf("cut at %d: %v", cut, err)
					}
					rest = append(rest, left...)
				}
				if err := r.eof(); err != nil {
					t.Fatalf("cut at %d: end: %v", cut, err)
				}
				status := fmt.Sprintf("%d %s", r.status, map[bool]string{true: "keep", false: "close"}[r.keepAlive])
				if heads != 1 || status != tt.status || string(body) != tt.body || string(rest) != tt.rest {
					t.Fatalf("cut at %d: %d heads, %s, body %q, rest %q; want 1, %s, %q, %q", cut, heads, status, body, rest, tt.status, tt.body, tt.rest)
				}
			}
		})
	}
}

func TestBadResponses(t *testing.T) {
	for wire, want := range map[string]string{
		"SSH-2.0-OpenSSH\r\n": `not an HTTP response: it begins with "SSH-2.0-OpenSSH\r\n"`,
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc": `response has Content-Encoding "gzip", which was not asked for`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n":              `chunk size "xyz", want hexadecimal digits`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n":               `chunk size "-1", want hexadecimal digits`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n":         `chunk is longer than its size says: "bc" follows`,
		"HTTP/1.1 099 Odd\r\n\r\n":                                                          "HTTP status 099, want 100 to 999",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", maxHead) + "\r\n":                    "response head of more than 262144 bytes",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1", 5000): "chunk header of more than 4096 bytes",
	} {
		var r responseDecoder
		_, err := r.feed([]byte(wire), func() error { return nil }, func([]byte) error { return nil })
		if err == nil || err.Error() != want {
			t.Errorf("feed(%.60q) = %v, want %s", wire, err, want)
		}
	}
}
