package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A stampedReader reads from a TCP socket with the kernel's receive time of
// the last segment that each read returned (SO_TIMESTAMPNS, socket(7)). The
// figures then do not depend on when the scheduler lets this process run.
type stampedReader struct {
	raw syscall.RawConn
	oob [64]byte

	// Of the read in progress: fields, so that the callback needs no
	// allocation per read.
	buf       []byte
	n, oobn   int
	err       error
	msg       unix.Msghdr
	iov       unix.Iovec
	callback  func(fd uintptr) bool
	lastEmpty time.Time // when the socket was last seen without data
}

// keepStamps returns an open socket that wants the kernel's receive times,
// nil where the kernel refuses. It closes when nothing refers to it any more.
//
// The kernel begins to stamp some time after the first socket has asked for
// it, and stops with the last one. On a busy machine the first answers of
// every cell, whose connections are new, would have no times.
func keepStamps() *os.File {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "stamps")
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) != nil {
		f.Close()
		return nil
	}
	return f
}

// newStampedReader returns nil where the kernel refuses the option.
func newStampedReader(c *net.TCPConn) *stampedReader {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || optErr != nil {
		return nil
	}
	s := &stampedReader{raw: raw, lastEmpty: time.Now()}
	s.callback = func(fd uintptr) bool {
		for {
			asked := time.Now()
			switch s.err = s.recvmsg(fd); s.err {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				// Not the time now: a thread is as good as anywhere else
				// interrupted on its way back from the kernel, and meanwhile
				// there may be something.
				s.lastEmpty = asked
				return false // wait until there is something
			}
			return true
		}
	}
	return s
}

// recvmsg reads into buf and oob what there is. It is the call that costs most
// of an event's processor time, and it never waits: so the scheduler need not
// be told of it, which with what else unix.Recvmsg does is a sixth.
func (s *stampedReader) recvmsg(fd uintptr) error {
	s.iov.Base = unsafe.SliceData(s.buf)
	s.iov.SetLen(len(s.buf))
	s.msg.Iov = &s.iov
	s.msg.SetIovlen(1)
	s.msg.Control = &s.oob[0]
	s.msg.SetControllen(len(s.oob))
	n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&s.msg)), unix.MSG_DONTWAIT)
	if errno != 0 {
		s.n, s.oobn = 0, 0
		return errno
	}
	s.n, s.oobn = int(n), int(s.msg.Controllen)
	return nil
}

func (s *stampedReader) read(b []byte) (int, arrival, error) {
	s.buf, s.n, s.oobn, s.err = b, 0, 0, nil
	return s.result(s.raw.Read(s.callback))
}

// pending is read without waiting: its error is os.ErrDeadlineExceeded when
// there is nothing to read.
func (s *stampedReader) pending(b []byte) (int, arrival, error) {
	s.buf, s.n, s.oobn, s.err = b, 0, 0, nil
	err := s.raw.Control(func(fd uintptr) { s.callback(fd) })
	if err == nil && s.err == unix.EAGAIN {
		err = os.ErrDeadlineExceeded
	}
	return s.result(err)
}

func (s *stampedReader) result(err error) (int, arrival, error) {
	now := bothClocks()
	if err == nil && s.err != nil {
		err = os.NewSyscallError("recvmsg", s.err)
	}
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			err = net.ErrClosed
		}
		return 0, arrival{at: now}, err
	}
	if s.n == 0 {
		return 0, arrival{at: now}, io.EOF
	}
	return s.n, s.arrival(now), nil
}

// bothClocks is time.Now with a wall clock and a monotonic clock that were
// read at the same instant. time.Now reads one after the other, and a thread
// that is interrupted between them gets a monotonic time that is late. Of two
// readings only one is.
func bothClocks() time.Time {
	a, b := time.Now(), time.Now()
	if b.Sub(a) > b.Round(0).Sub(a.Round(0)) {
		return a
	}
	return b
}

// arrival brings the kernel's receive time, which is wall-clock time, onto
// the monotonic clock: both clocks are read at the same instant after the
// read, so a wall clock that was set before it does no harm. If it was set
// between arrival and read, the lateness comes out negative or longer than
// the data can have waited, and the read's own time is used instead.
func (s *stampedReader) arrival(now time.Time) arrival {
	ns, ok := kernelTime(s.oob[:s.oobn])
	if !ok {
		return arrival{at: now}
	}
	late := time.Duration(now.UnixNano() - ns)
	if late < 0 || late > now.Sub(s.lastEmpty)+time.Millisecond {
		return arrival{at: now}
	}
	return arrival{at: now.Add(-late), late: late}
}

// kernelTime finds the SCM_TIMESTAMPNS control message: a timespec, in
// nanoseconds since the Unix epoch.
func kernelTime(oob []byte) (ns int64, ok bool) {
	const header = unix.SizeofCmsghdr
	for len(oob) >= header {
		size := binary.NativeEndian.Uint64(oob)
		level := binary.NativeEndian.Uint32(oob[8:])
		typ := binary.NativeEndian.Uint32(oob[12:])
		if size < header || size > uint64(len(oob)) {
			return 0, false
		}
		if level == unix.SOL_SOCKET && typ == unix.SCM_TIMESTAMPNS && size >= header+16 {
			sec := int64(binary.NativeEndian.Uint64(oob[header:]))
			nsec := int64(binary.NativeEndian.Uint64(oob[header+8:]))
			return sec*1e9 + nsec, true
		}
		next := (size + 7) &^ 7
		if next > uint64(len(oob)) {
			return 0, false
		}
		oob = oob[next:]
	}
	return 0, false
}
