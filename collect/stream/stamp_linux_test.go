package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stampMessage is the control message that brings a kernel time.
func stampMessage(ns int64) []byte {
	b := make([]byte, unix.SizeofCmsghdr+16)
	binary.NativeEndian.PutUint64(b, uint64(len(b)))
	binary.NativeEndian.PutUint32(b[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(b[12:], unix.SCM_TIMESTAMPNS)
	binary.NativeEndian.PutUint64(b[unix.SizeofCmsghdr:], uint64(ns/1e9))
	binary.NativeEndian.PutUint64(b[unix.SizeofCmsghdr+8:], uint64(ns%1e9))
	return b
}

// The kernel's times are wall-clock times. Tokens are 20 ms apart by the
// monotonic clock, and each is read 1 ms after it arrived; a step of the wall
// clock between the arrival of the third and its read must not be seen in the
// gaps. (One before the arrival moves both wall times alike: nothing is left
// of it to be seen.)
func TestCase_BR032(t *testing.T) {
	const gap, wait = 20 * time.Millisecond, time.Millisecond
	for _, tt := range []struct {
		name string
		step time.Duration
		late time.Duration // of the third token, as far as it can be known
	}{
		{"it stands", 0, wait},
		{"set back 2 s", -2 * time.Second, 0},
		{"set forward 2 s", 2 * time.Second, 0},
		{"set back 5 ms", -5 * time.Millisecond, 0},
		{"set forward an hour", time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := time.Now()
			var at []time.Time
			for i := range 5 {
				arrived := base.Add(time.Duration(i) * gap)
				read := arrived.Add(wait)
				stamp := arrived.UnixNano()
				want := wait
				if i == 2 {
					// A clock that was set back since makes the stamp late.
					stamp -= int64(tt.step)
					want = tt.late
				}
				s := &stampedReader{lastEmpty: arrived.Add(-gap / 2)}
				s.oobn = copy(s.oob[:], stampMessage(stamp))
				a := s.arrival(read)
				if a.late != want || !a.at.Equal(read.Add(-want)) {
					t.Errorf("token %d: %v late at +%v, want %v late at +%v", i, a.late, a.at.Sub(base), want, read.Add(-want).Sub(base))
				}
				at = append(at, a.at)
			}
			for i := 1; i < len(at); i++ {
				if d := at[i].Sub(at[i-1]); d < gap-wait || d > gap+wait {
					t.Errorf("gap %d is %v, want %v within the %v of the read", i, d, gap, wait)
				}
			}
		})
	}
}

// A cell opens its connections, and the first answer may come at once.
func TestTheFirstReadOfANewConnectionHasAKernelTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e, err := NewEndpoint(&url.URL{Scheme: "http", Host: l.Addr().String()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := func() (stamped bool) {
		c, err := e.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if _, err := server.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_, a, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		return a.late > 0
	}
	for n := 0; !first(); n++ { // the kernel takes its time to switch them on
		if n == 10_000 {
			t.Fatal("no read had a kernel time")
		}
	}
	for i := range 20 {
		time.Sleep(20 * time.Millisecond) // … and to switch them off
		if !first() {
			t.Errorf("connection %d: the first read has no kernel time", i)
		}
	}
	runtime.KeepAlive(e)
}

// On a busy machine a stream is stopped while events that have arrived wait
// to be read.
func TestWhatHasArrivedBeforeTheStopIsRecorded(t *testing.T) {
	client, server := net.Conn(nil), net.Conn(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn := &Conn{Conn: client, stamped: newStampedReader(client.(*net.TCPConn)), buf: make([]byte, 64<<10)}
	if !conn.Kernel() {
		t.Fatal("no kernel times")
	}
	rec := NewRecording(time.Now())
	x := exchange{rec: rec, lateness: &Lateness{}}
	x.begin(time.Now(), time.Now())
	events := "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
	if _, err := io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+events+events); err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	conn.interrupt()
	if _, _, err := conn.read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the stop: %v, want %v", err, os.ErrDeadlineExceeded)
	}
	if err := x.read(stop, conn, time.Minute, true); !errors.Is(err, os.ErrDeadlineExceeded) || rec.events.n != 2 {
		t.Errorf("%d events recorded, error %v; want 2 and %v", rec.events.n, err, os.ErrDeadlineExceeded)
	}
}

func TestKernelTimeRefusesDamage(t *testing.T) {
	whole := stampMessage(1_700_000_000_123_456_789)
	if ns, ok := kernelTime(whole); !ok || ns != 1_700_000_000_123_456_789 {
		t.Errorf("kernelTime = %d, %v, want 1700000000123456789", ns, ok)
	}
	for n := range whole {
		if ns, ok := kernelTime(whole[:n]); ok {
			t.Errorf("the first %d bytes give %d, want nothing", n, ns)
		}
	}
}
