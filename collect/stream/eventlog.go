package stream

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// rawEvent is the data of one event, undecoded.
type rawEvent struct {
	data []byte
	tUs  int64
	read uint32 // number of the read that completed it, within the request
}

// An eventLog keeps events in a tenth of the memory that their bytes would
// take: of each it keeps what the one before it does not have. It holds no
// pointer an event, which the garbage collector would follow, and never moves
// what it holds. The zero value is empty.
type eventLog struct {
	n      int
	blocks [][]byte
	last   rawEvent // the latest; its data is a copy

	packed []byte // scratch
}

const eventBlock = 64 << 10

// add keeps an event. It allocates nothing in nearly all cases.
func (l *eventLog) add(e rawEvent) {
	b := binary.AppendVarint(l.packed[:0], e.tUs-l.last.tUs)
	b = binary.AppendVarint(b, int64(e.read)-int64(l.last.read))
	b = binary.AppendUvarint(b, uint64(len(e.data)))
	front := len(b)
	if b = appendDifference(b, l.last.data, e.data); len(b)-front > len(e.data)+8 {
		// Little in common and many quotation marks: as a whole it is shorter.
		b = append(b[:front], 0, 0)
		b = append(binary.AppendUvarint(b, uint64(len(e.data))), e.data...)
	}
	l.packed = b
	l.last = rawEvent{append(l.last.data[:0], e.data...), e.tUs, e.read}
	l.n++
	i := len(l.blocks) - 1
	if i < 0 || cap(l.blocks[i])-len(l.blocks[i]) < len(l.packed) {
		l.blocks = append(l.blocks, make([]byte, 0, max(eventBlock, len(l.packed))))
		i++
	}
	l.blocks[i] = append(l.blocks[i], l.packed...)
}

// A cursor reads a log from its beginning.
type cursor struct {
	blocks [][]byte
	rest   []byte // of the first block
	last   rawEvent
	spare  []byte
}

func (l *eventLog) cursor() *cursor { return &cursor{blocks: l.blocks} }

// next returns the next event, of which there must be one. Its data is valid
// until the call after the next.
func (c *cursor) next() rawEvent {
	if len(c.rest) == 0 {
		c.rest, c.blocks = c.blocks[0], c.blocks[1:]
	}
	c.last.tUs += c.varint()
	c.last.read = uint32(int64(c.last.read) + c.varint())
	size := int(c.uvarint())
	data := c.difference(c.spare[:0], c.last.data, size)
	c.last.data, c.spare = data, c.last.data
	return c.last
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.rest)
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	c.rest = c.rest[n:]
	return v
}

// appendDifference appends to b what makes next out of old: in turns, how
// many bytes are the same, how many bytes of old are left out, how many
// others come in their place, and these. Where two events differ they are
// likely to be the same again from the next quotation mark on: behind the
// text, behind a number.
func appendDifference(b, old, next []byte) []byte {
	for {
		n := commonPrefix(old, next)
		b = binary.AppendUvarint(b, uint64(n))
		old, next = old[n:], next[n:]
		if len(next) == 0 {
			return b
		}
		out, in := toQuote(old), toQuote(next)
		b = binary.AppendUvarint(b, uint64(out))
		b = binary.AppendUvarint(b, uint64(in))
		b = append(b, next[:in]...)
		if old, next = old[out:], next[in:]; len(next) == 0 {
			return b
		}
	}
}

// difference appends to b the size bytes that appendDifference told from old.
func (c *cursor) difference(b, old []byte, size int) []byte {
	for {
		n := c.uvarint()
		b, old = append(b, old[:n]...), old[n:]
		if len(b) == size {
			return b
		}
		out, in := c.uvarint(), c.uvarint()
		b, old, c.rest = append(b, c.rest[:in]...), old[out:], c.rest[in:]
		if len(b) == size {
			return b
		}
	}
}

// toQuote returns how many bytes come before the first quotation mark that is
// not the first byte; all of them where there is none.
func toQuote(b []byte) int {
	if len(b) > 1 {
		if i := bytes.IndexByte(b[1:], '"'); i >= 0 {
			return 1 + i
		}
	}
	return len(b)
}

// commonPrefix returns how many bytes a and b have in common at their front.
func commonPrefix(a, b []byte) int {
	n := 0
	for len(a)-n >= 8 && len(b)-n >= 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
