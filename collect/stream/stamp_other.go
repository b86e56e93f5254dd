//go:build !linux

package stream

import (
	"net"
	"os"
)

// A stampedReader exists only on Linux; elsewhere arrival times are taken
// right after the read.
type stampedReader struct{}

func keepStamps() *os.File { return nil }

func newStampedReader(*net.TCPConn) *stampedReader { return nil }

func (*stampedReader) read([]byte) (int, arrival, error) {
	panic("internal error: no kernel arrival times on this system")
}

func (*stampedReader) pending([]byte) (int, arrival, error) {
	panic("internal error: no kernel arrival times on this system")
}
