package stream

import (
	"sync/atomic"
	"time"
)

// A Recording holds what one stream received, request after request, as raw
// bytes with times. It is filled while the stream runs and decoded after
// it has stopped. Only Delivered may be called while it is being filled.
type Recording struct {
	start    time.Time // instant 0 of the run
	requests []rawRequest
	events   eventLog

	delivered atomic.Bool
}

// NewRecording returns an empty recording whose times count from start,
// which must hold a monotonic clock reading.
func NewRecording(start time.Time) *Recording { return &Recording{start: start} }

// Delivered reports whether any output, a token or text, has arrived yet.
// It is safe to call while the stream runs.
func (r *Recording) Delivered() bool { return r.delivered.Load() }

// Requests returns the number of requests recorded.
func (r *Recording) Requests() int { return len(r.requests) }

// Rows returns the number of rows that Decode writes at most.
func (r *Recording) Rows() int { return r.events.n + 3*len(r.requests) }

// rawRequest is what is known of a request without decoding.
type rawRequest struct {
	firstEvent int   // number of its first event
	beganUs    int64 // writing it began
	sentUs     int64 // its last byte was written, as soon as that could be noted
	status     int32
	headersUs  int64  // −1: none
	headRead   uint32 // which read completed the head

	end      endKind
	endUs    int64
	endRead  uint32
	endError string // for endFailed and endCancelled: why
	last     []byte // the end of what was received, where it may tell more
}

type endKind uint8

const (
	endNever endKind = iota
	endDone
	endFailed
	endCancelled
)

// us returns t as microseconds since the start of the run.
func (r *Recording) us(t time.Time) int64 { return t.Sub(r.start).Microseconds() }
