package main

import (
	"context"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"speedmatrix/collect/simserver"
)

// A served is the truth of one request. Times are nanoseconds of the
// machine's monotonic clock.
type served struct {
	ID      string // without what the server puts before it
	Arrived int64  // the last byte of the request, by the kernel's clock
	Events  []sent // that carry tokens
}

// A sent event was handed to the network between two instants.
type sent struct{ Before, After int64 }

// server is the server's process: a simulated vLLM whose engine gives each
// running request a token every period. It says where it listens, then when
// the first token goes out, and writes the truth to a file when its input
// ends.
func server(period time.Duration, truth string) error {
	c := newClock()
	wall := wallOffset()
	log := &truthLog{clock: c, requests: map[string]*served{}}
	sim, err := simserver.New(simserver.Config{
		Seed: 1, Model: model, MaxModelLen: 1 << 20, MaxNumSeqs: 4096, MaxBatchedTokens: 1 << 24, KVCacheTokens: 1 << 25,
		PrefillSpeed: 1e12, StepBase: period, StepPerSeq: 1, StepPerKToken: 1, // 0 would mean the defaults
		IdleTimeout: -1, Truth: log.record,
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n := atomic.Int64{}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/book" {
				io.WriteString(w, book())
				return
			}
			if r.Header.Get("X-Request-Id") == "" {
				r.Header.Set("X-Request-Id", fmt.Sprintf("request-%d", n.Add(1)))
			}
			id := r.Header.Get("X-Request-Id")
			conn, _ := r.Context().Value(connKey{}).(*stampedConn)
			r.Body = &notedBody{r.Body, func() { log.arrived(id, conn.arrived.Load()+wall) }}
			sim.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, nc)
		},
	}
	go srv.Serve(stampedListener{l})
	fmt.Println("listen", l.Addr())
	io.Copy(io.Discard, os.Stdin)
	srv.Close()
	return writeFile(truth, log.all())
}

// writeFile keeps a value for another process.
func writeFile(name string, v any) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(f).Encode(v); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}

func readFile(name string, v any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := gob.NewDecoder(f).Decode(v); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// A truthLog collects the truth in memory.
type truthLog struct {
	clock clock

	mu       sync.Mutex
	begun    bool
	requests map[string]*served
}

func (l *truthLog) request(id string) *served {
	s := l.requests[id]
	if s == nil {
		s = &served{ID: id, Events: make([]sent, 0, 4096)}
		l.requests[id] = s
	}
	return s
}

func (l *truthLog) arrived(id string, ns int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request(id).Arrived = ns
}

// record takes an event of the simulation.
func (l *truthLog) record(ev simserver.TruthEvent) {
	if ev.Kind != simserver.TruthWrite || ev.Chunks == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		fmt.Println("begin")
	}
	s := l.request(bareID(ev.Request))
	for range ev.Chunks {
		s.Events = append(s.Events, sent{l.clock.at(ev.Before), l.clock.at(ev.After)})
	}
}

func (l *truthLog) all() map[string]*served {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

type connKey struct{}

// A notedBody calls back after each read.
type notedBody struct {
	io.ReadCloser
	note func()
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.note()
	return n, err
}

// A stampedListener's connections know when the kernel received what was
// read last, so that the truth of a request's beginning does not depend on
// when this process ran.
type stampedListener struct{ net.Listener }

func (l stampedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	return &stampedConn{Conn: nc, raw: raw}, err
}

type stampedConn struct {
	net.Conn
	raw     syscall.RawConn
	arrived atomic.Int64 // wall-clock nanoseconds
}

func (c *stampedConn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	oob := make([]byte, 64)
	var oobn int
	rerr := c.raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, err = unix.Recvmsg(int(fd), p, oob, unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if rerr != nil {
		return 0, rerr
	}
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	at := time.Now().UnixNano()
	if list, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for _, m := range list { // a timespec
			if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
				at = int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
			}
		}
	}
	c.arrived.Store(at)
	return n, nil
}
