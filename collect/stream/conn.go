package stream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// An Endpoint is where chat completions are sent, and with what.
type Endpoint struct {
	addr string      // host:port to dial
	tls  *tls.Config // nil over plain HTTP
	head []byte      // request line and headers up to the value of Content-Length

	stamps *os.File // keeps the kernel's arrival times switched on; nil where there are none
}

// NewEndpoint returns the endpoint of a chat-completions URL. Headers, such
// as Authorization, are sent with every request and kept nowhere else. The
// scheme must be http or https.
func NewEndpoint(u *url.URL, header http.Header) (*Endpoint, error) {
	e := &Endpoint{}
	port := u.Port()
	switch u.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
		e.stamps = keepStamps()
	case "https":
		if port == "" {
			port = "443"
		}
		// No ALPN: an HTTP/2 connection would share one socket between streams.
		e.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
	default:
		return nil, fmt.Errorf("URL scheme %q, want http or https", u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("URL %q has no host", u.Redacted())
	}
	e.addr = net.JoinHostPort(u.Hostname(), port)

	var b strings.Builder
	path := u.RequestURI()
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a URL joined from a base without a path
	}
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\n", path, u.Host)
	b.WriteString("Content-Type: application/json\r\nAccept: text/event-stream\r\nAccept-Encoding: identity\r\n")
	h := http.Header{}
	for name, values := range header {
		for _, v := range values {
			if strings.ContainsAny(name+v, "\r\n\x00") {
				return nil, fmt.Errorf("header %q contains a line break", name)
			}
			h.Add(name, v)
		}
	}
	if err := h.Write(&b); err != nil {
		return nil, fmt.Errorf("write headers: %w", err)
	}
	b.WriteString("Content-Length: ")
	e.head = []byte(b.String())
	return e, nil
}

// A Conn is one connection to an endpoint, for one request after the other.
// Only Close and interrupt may be called from another goroutine.
type Conn struct {
	net.Conn
	stamped *stampedReader // arrival times from the kernel; nil: the time after the read

	used     bool      // it has carried a request before
	deadline time.Time // read deadline in force
	buf      []byte
}

// An arrival says when the bytes of a read arrived.
type arrival struct {
	at   time.Time     // monotonic
	late time.Duration // how long after that the read returned; 0 when only the read's own time is known
}

// Dial opens a connection. With the kernel's arrival times refused or not
// there (TLS, other systems) it goes on without; Kernel tells.
func (e *Endpoint) Dial(ctx context.Context) (*Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", e.addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: nc, buf: make([]byte, 64<<10)}
	if e.tls != nil {
		t := tls.Client(nc, e.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		c.Conn = t
		return c, nil
	}
	if tc, ok := nc.(*net.TCPConn); ok {
		c.stamped = newStampedReader(tc) // nil where the system has no such times
	}
	return c, nil
}

// Kernel reports whether arrival times come from the kernel.
func (c *Conn) Kernel() bool { return c.stamped != nil }

// read reads into the connection's buffer and says when the data arrived.
func (c *Conn) read() ([]byte, arrival, error) {
	if c.stamped != nil {
		n, a, err := c.stamped.read(c.buf)
		return c.buf[:n], a, err
	}
	n, err := c.Conn.Read(c.buf)
	return c.buf[:n], arrival{at: time.Now()}, err
}

// interrupt makes a read or write in progress, and every later one, return.
// Where the kernel tells arrival times, pending still reads what has arrived.
// Elsewhere what is read later counts as arrived later, so that the
// connection may as well be closed.
func (c *Conn) interrupt() {
	if c.stamped == nil {
		c.Close()
		return
	}
	c.SetDeadline(time.Unix(1, 0))
}

// pending reads what has arrived, whatever the deadline is. It does not wait:
// without anything to read its error is os.ErrDeadlineExceeded.
func (c *Conn) pending() ([]byte, arrival, error) {
	if c.stamped == nil {
		return nil, arrival{}, os.ErrDeadlineExceeded
	}
	n, a, err := c.stamped.pending(c.buf)
	return c.buf[:n], a, err
}

// setIdle moves the read deadline to idle from now. Setting it costs more
// than a read does, so it is left alone while it is at most 1 % off.
func (c *Conn) setIdle(now time.Time, idle time.Duration) error {
	want := now.Add(idle)
	if d := want.Sub(c.deadline); d >= 0 && d < idle/100 {
		return nil
	}
	c.deadline = want
	return c.SetReadDeadline(want)
}
