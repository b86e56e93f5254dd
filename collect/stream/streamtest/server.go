// Package streamtest serves scripted event streams over real TCP, for tests
// of everything that reads one: each line of a script is one write at one
// instant, so that a test decides where bytes are cut and when they arrive.
//
// A script is lines of the form "T COMMAND": T is milliseconds after the
// request was complete.
//
//	200 text/event-stream   the response's head; implied at 0 unless the first line is another answer, DROP or RESET
//	401 {"error":"no"}      another status with a body, which ends the response
//	ROLE                    chunk with delta {"role":"assistant","content":""}
//	C "x"   R "x"   RC "x"  chunk with delta.content, delta.reasoning, delta.reasoning_content
//	CU "x" n                like C, with usage.completion_tokens n
//	FIN stop                chunk with an empty delta and a finish reason
//	USAGE p c               chunk without choices, with usage
//	DONE                    the end marker, then the clean end of the body; the connection is kept
//	W bytes                 raw bytes: \r \n \\ \xNN are escapes, nothing is added
//	CLOSE                   clean end of the body, then of the connection
//	DROP                    end of the connection without an end of the body
//	RESET                   TCP reset
//	HANG                    silence with the connection open
//
// A script that runs out without DONE or one of the last four ends the body,
// and the connection too unless its raw bytes held the end marker.
//
// The package must not know the client: it only writes bytes.
package streamtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Request is what a client sent.
type Request struct {
	Path   string
	Header http.Header
	Body   []byte
	Conn   int       // 0, 1, … number of the connection
	At     time.Time // when it was complete: instant 0 of its script
}

// A Write is one write of body bytes. On the loopback the bytes arrive while
// the call lasts, so that Before and After bound the instant of arrival
// however late this machine let the server run.
type Write struct {
	Data          string // without its transfer encoding
	Before, After time.Time
}

// A performance is what was written in answer to one request.
type performance struct {
	writes []Write
	ended  chan struct{}
}

// A Server answers its n-th request with its n-th script, and the last
// script from then on.
type Server struct {
	URL string // base, without a path

	tb       testing.TB
	listener net.Listener
	mu       sync.Mutex
	answer   func(n int, r Request) string
	requests []Request
	answers  []*performance
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
}

// Serve starts a server that lives until the test ends.
func Serve(tb testing.TB, scripts ...string) *Server {
	return ServeFunc(tb, func(n int, _ Request) string { return scripts[min(n, len(scripts)-1)] })
}

// ServeFunc starts a server whose n-th answer is the script that the
// function returns.
func ServeFunc(tb testing.TB, answer func(n int, r Request) string) *Server {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), tb: tb, listener: l, answer: answer, conns: map[net.Conn]bool{}}
	s.wg.Add(1)
	go s.accept()
	tb.Cleanup(s.Close)
	return s
}

// Close stops the server and closes its connections.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Requests returns what has been received so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Writes returns what was written in answer to request n, in order, leaving
// out the head and the end of the body. It waits until the script has ended.
func (s *Server) Writes(n int) []Write {
	s.mu.Lock()
	p := s.answers[n]
	s.mu.Unlock()
	<-p.ended
	return p.writes
}

func (s *Server) accept() {
	defer s.wg.Done()
	for n := 0; ; n++ {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.serve(c.(*net.TCPConn), n)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		}()
	}
}

func (s *Server) serve(c *net.TCPConn, conn int) {
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		req := Request{Path: r.URL.RequestURI(), Header: r.Header, Body: body, Conn: conn, At: time.Now()}
		p := &performance{ended: make(chan struct{})}
		s.mu.Lock()
		n := len(s.requests)
		s.requests = append(s.requests, req)
		s.answers = append(s.answers, p)
		s.mu.Unlock()
		keep, err := p.play(c, req.At, s.answer(n, req))
		close(p.ended)
		if err != nil {
			s.tb.Errorf("script of request %d: %v", n, err)
			return
		}
		if !keep {
			return
		}
	}
}

// play writes a script. keep says that the connection may carry another
// request. It ends early when the client closes the connection.
func (p *performance) play(c *net.TCPConn, start time.Time, script string) (keep bool, err error) {
	headSent, gone := false, false
	clock := metronome{start: start, at: start}
	body := "" // of W lines
	head := func(contentType string) {
		headSent = true
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", contentType)
	}
	chunk := func(b string) {
		wire := fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b)
		w := Write{Data: b, Before: time.Now()}
		_, err := c.Write(wire)
		w.After = time.Now()
		if gone = err != nil; !gone {
			p.writes = append(p.writes, w)
		}
	}
	choice := func(delta, usage string) string {
		return `data: {"choices":[{"index":0,"delta":{` + delta + `},"finish_reason":null}]` + usage + "}\n\n"
	}
	lines := strings.Split(strings.TrimSpace(script), "\n")
	if f := strings.Fields(lines[0]); len(f) < 2 || !isStatus(f[1]) && f[1] != "DROP" && f[1] != "RESET" {
		head("text/event-stream; charset=utf-8") // at 0, before the first time of the script
	}
	for _, line := range lines {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			continue
		}
		var cmd, arg string
		f := strings.SplitN(line, " ", 2)
		if ms, err := strconv.ParseFloat(f[0], 64); err == nil && len(f) == 2 {
			clock.wait(time.Duration(ms * float64(time.Millisecond)))
			line = strings.TrimLeft(f[1], " ")
		}
		cmd, arg, _ = strings.Cut(line, " ")
		if gone {
			return false, nil
		}
		switch cmd {
		case "ROLE":
			chunk(choice(`"role":"assistant","content":""`, ""))
		case "C":
			chunk(choice(`"content":`+arg, ""))
		case "R":
			chunk(choice(`"reasoning":`+arg, ""))
		case "RC":
			chunk(choice(`"reasoning_content":`+arg, ""))
		case "CU":
			i := strings.LastIndex(arg, " ")
			chunk(choice(`"content":`+arg[:i], `,"usage":{"completion_tokens":`+arg[i+1:]+`}`))
		case "FIN":
			chunk(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + arg + `"}]}` + "\n\n")
		case "USAGE":
			var p, n int
			if _, err := fmt.Sscan(arg, &p, &n); err != nil {
				return false, fmt.Errorf("line %q: %w", line, err)
			}
			chunk(fmt.Sprintf(`data: {"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}`+"\n\n", p, p+n, n))
		case "DONE":
			chunk("data: [DONE]\n\n")
			io.WriteString(c, "0\r\n\r\n")
			return true, nil
		case "W":
			b, err := unescape(arg)
			if err != nil {
				return false, fmt.Errorf("line %q: %w", line, err)
			}
			chunk(b)
			body += b
		case "CLOSE":
			io.WriteString(c, "0\r\n\r\n")
			return false, nil
		case "DROP":
			return false, nil
		case "RESET":
			c.SetLinger(0)
			return false, nil
		case "HANG":
			io.Copy(io.Discard, c) // until the client gives up
			return false, nil
		case "200":
			if strings.HasPrefix(arg, "text/event-stream") {
				head(arg)
				continue
			}
			fallthrough
		default:
			status, err := strconv.Atoi(cmd)
			if err != nil {
				return false, fmt.Errorf("unknown command in line %q", line)
			}
			fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(arg), arg)
			return true, nil
		}
	}
	if headSent {
		io.WriteString(c, "0\r\n\r\n")
	}
	return strings.Contains(body, "[DONE]"), nil
}

// A metronome keeps a script's times. On a machine so busy that a step came
// late, the next one follows after no less than half of the time between the
// two, so that they do not become one, and the steps after it catch up.
type metronome struct {
	start time.Time
	due   time.Duration // of the last step, after start
	at    time.Time     // when it came
}

func (m *metronome) wait(due time.Duration) {
	next := m.start.Add(due)
	if least := m.at.Add((due - m.due) / 2); next.Before(least) {
		next = least
	}
	time.Sleep(time.Until(next))
	m.due, m.at = due, time.Now()
}

// isStatus reports whether a command is an HTTP status.
func isStatus(cmd string) bool {
	n, err := strconv.Atoi(cmd)
	return err == nil && n >= 100 && n <= 999
}

// unescape resolves \r \n \\ \xNN.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'r':
			b.WriteByte('\r')
		case 'n':
			b.WriteByte('\n')
		case '\\':
			b.WriteByte('\\')
		case 'x':
			if i+2 >= len(s) {
				return "", fmt.Errorf("short escape in %q", s)
			}
			v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", err
			}
			b.WriteByte(byte(v))
			i += 2
		default:
			b.WriteByte('\\') // JSON's own escapes pass
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
