package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// A clock turns times of this process into nanoseconds of the machine's
// monotonic clock, which all of its processes share. (Python's perf_counter
// is the same clock.)
type clock struct {
	base time.Time
	ns   int64 // at base
}

// newClock reads both clocks as closely together as it can.
func newClock() clock {
	var best clock
	least := time.Duration(1 << 62)
	for range 1000 {
		before := time.Now()
		ns := monotonicNs()
		if d := time.Since(before); d < least {
			least, best = d, clock{before.Add(d / 2), ns}
		}
	}
	return best
}

func (c clock) at(t time.Time) int64 { return c.ns + int64(t.Sub(c.base)) }

func monotonicNs() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("internal error: no monotonic clock: " + err.Error())
	}
	return ts.Nano()
}

// wallOffset returns what has to be added to nanoseconds since 1970 for
// nanoseconds of the monotonic clock, for clients that note wall-clock time.
func wallOffset() int64 {
	var best, least int64 = 0, 1 << 62
	for range 1000 {
		before := monotonicNs()
		wall := time.Now().UnixNano()
		if d := monotonicNs() - before; d < least {
			least, best = d, before+d/2-wall
		}
	}
	return best
}
