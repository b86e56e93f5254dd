package stream

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// checkLog keeps events and reads them back.
func checkLog(t *testing.T, events []rawEvent) *eventLog {
	t.Helper()
	l := &eventLog{}
	for _, e := range events {
		l.add(e)
	}
	if l.n != len(events) {
		t.Fatalf("%d events, want %d", l.n, len(events))
	}
	c := l.cursor()
	for i, want := range events {
		if got := c.next(); !bytes.Equal(got.data, want.data) || got.tUs != want.tUs || got.read != want.read {
			t.Fatalf("event %d: got %q at %d by read %d, want %q at %d by read %d", i, got.data, got.tUs, got.read, want.data, want.tUs, want.read)
		}
	}
	if len(c.rest) > 0 || len(c.blocks) > 0 {
		t.Errorf("%d bytes and %d blocks are left behind the last event", len(c.rest), len(c.blocks))
	}
	return l
}

func TestWhatIsKeptReadsBack(t *testing.T) {
	var all []rawEvent
	at := int64(-5)
	keep := func(data []byte) error {
		at += 7
		all = append(all, rawEvent{bytes.Clone(data), at, uint32(len(all) % 5)})
		return nil
	}
	for _, b := range append(captureBodies(t), bodySeeds()...) {
		new(sseDecoder).feed(b, keep)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 { // with little in common, much, and all
		b := make([]byte, rng.IntN(40))
		for i := range b {
			b[i] = `"ab,`[rng.IntN(4)]
		}
		keep(b)
	}
	for _, size := range []int{0, 1, eventBlock - 1, eventBlock, 3 * eventBlock, 2} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		keep(b)
	}
	all = append(all, rawEvent{[]byte("x"), 1 << 62, 1<<32 - 1}, rawEvent{nil, -1 << 62, 0})
	checkLog(t, all)
}

// The memory of a cell is bounded by this: about 3 million events in 128 MiB.
func TestEventsTakeLittleMemory(t *testing.T) {
	const events = 10_000
	var all []rawEvent
	new(sseDecoder).feed(manyEvents(events), func(data []byte) error {
		all = append(all, rawEvent{bytes.Clone(data), int64(12_800 * len(all)), uint32(len(all))})
		return nil
	})
	size := 0
	for _, b := range checkLog(t, all).blocks {
		size += len(b)
	}
	if per := size / events; per > 40 {
		t.Errorf("%d bytes an event of %d, want 40 at most", per, len(all[0].data))
	} else {
		t.Logf("%d bytes an event of %d", per, len(all[0].data))
	}
}

// Whatever a server sends, what is kept is hardly more than that.
func TestNoEventTakesMuchMoreThanItsBytes(t *testing.T) {
	for _, pair := range [][2]string{{`"a`, `"b`}, {`"`, `a"`}, {`a"b`, `"`}, {"x", "y"}} {
		var all []rawEvent
		size := 0
		for i := range 100 {
			data := bytes.Repeat([]byte(pair[i%2]), 200)
			all = append(all, rawEvent{data, int64(i), 1})
			size += len(data)
		}
		kept := 0
		for _, b := range checkLog(t, all).blocks {
			kept += len(b)
		}
		if kept > size+16*len(all) {
			t.Errorf("%q: %d bytes for %d, want at most 16 more for each of %d events", pair, kept, size, len(all))
		}
	}
}

func FuzzEventLog(f *testing.F) {
	for _, s := range chunkSeeds {
		f.Add([]byte(s), []byte(chunkSeeds[0]), []byte(s))
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		checkLog(t, []rawEvent{{a, 1, 1}, {b, 5, 2}, {c, 3, 2}, {a, 3, 9}})
	})
}
