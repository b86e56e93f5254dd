//go:build !linux

package stream

import "net"

// A stampedReader exists only on Linux; elsewhere arrival times are taken
// right after the read.
type stampedReader struct{}

func newStampedReader(*net.TCPConn) *stampedReader { return nil }

func (*stampedReader) read([]byte) (int, arrival, error) {
	panic("internal error: no kernel arrival times on this system")
}
