package runlog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The functions of this file walk over encoded bytes before anything
// decodes them. Decoders believe counts and lengths that they read; a few
// hostile bytes can make them allocate gigabytes, loop for minutes or
// panic. After a walk it is known that everything lies inside the input
// and how many values there are.

var errShort = errors.New("ends too early")

// Limits of a footer and of a page header. Real footers have lists of 19
// schema elements and 18 columns.
const (
	maxThriftDepth = 16
	maxThriftItems = 256 // in one list
)

// walkThrift returns the length of the compact Thrift struct that b begins
// with.
func walkThrift(b []byte) (int, error) { return walkThriftStruct(b, 0) }

func walkThriftStruct(b []byte, depth int) (int, error) {
	if depth > maxThriftDepth {
		return 0, fmt.Errorf("structs are nested more than %d deep", maxThriftDepth)
	}
	for n := 0; n < len(b); {
		field := b[n]
		n++
		if field == 0 {
			return n, nil
		}
		if field>>4 == 0 { // the field's number follows
			l, err := walkVarint(b[n:])
			if err != nil {
				return 0, err
			}
			n += l
		}
		kind := field & 0x0F
		if kind == thriftTrue || kind == thriftFalse {
			continue // the value is in the kind
		}
		l, err := walkThriftValue(b[n:], kind, depth)
		if err != nil {
			return 0, err
		}
		n += l
	}
	return 0, errShort
}

// Kinds of values of the compact Thrift protocol that Parquet uses.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI8     = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

func walkThriftValue(b []byte, kind byte, depth int) (int, error) {
	switch kind {
	case thriftTrue, thriftFalse, thriftI8:
		return walkBytes(b, 1)
	case thriftI16, thriftI32, thriftI64:
		return walkVarint(b)
	case thriftDouble:
		return walkBytes(b, 8)
	case thriftBinary:
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return 0, errShort
		}
		return n + int(size), nil
	case thriftList:
		return walkThriftList(b, depth)
	case thriftStruct:
		return walkThriftStruct(b, depth+1)
	default:
		return 0, fmt.Errorf("unknown Thrift type %d", kind)
	}
}

func walkThriftList(b []byte, depth int) (int, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	items, kind, n := uint64(b[0]>>4), b[0]&0x0F, 1
	if items == 15 { // the number follows
		var l int
		if items, l = binary.Uvarint(b[1:]); l <= 0 {
			return 0, errShort
		}
		n += l
	}
	if items > maxThriftItems {
		return 0, fmt.Errorf("a list has %d items, want %d at most", items, maxThriftItems)
	}
	for range items {
		l, err := walkThriftValue(b[n:], kind, depth+1)
		if err != nil {
			return 0, err
		}
		n += l
	}
	return n, nil
}

func walkBytes(b []byte, n int) (int, error) {
	if len(b) < n {
		return 0, errShort
	}
	return n, nil
}

func walkVarint(b []byte) (int, error) {
	_, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, errShort
	}
	return n, nil
}

// walkZstd reports whether b is exactly one Zstandard frame whose header
// says that it decompresses to want bytes. The decoder holds the frame to
// that number, so it bounds the memory. A frame of less than 256 bytes need
// not say its size; it must then be one block, which has 128 KiB at most.
func walkZstd(b []byte, want int) error {
	const magic = "\x28\xb5\x2f\xfd"
	if len(b) < 5 || string(b[:4]) != magic {
		return errors.New("not a Zstandard frame")
	}
	descriptor := b[4]
	singleSegment := descriptor&0x20 != 0
	n := 5
	if !singleSegment {
		n++ // window size
	}
	if descriptor&0x03 != 0 {
		return errors.New("a Zstandard frame with a dictionary")
	}
	sizeBytes := 1 << (descriptor >> 6)
	unsaid := sizeBytes == 1 && !singleSegment
	if unsaid {
		sizeBytes = 0
		if want > 255 {
			return errors.New("a Zstandard frame without its size")
		}
	}
	if len(b) < n+sizeBytes {
		return errShort
	}
	var size uint64
	for i := range sizeBytes {
		size |= uint64(b[n+i]) << (8 * i)
	}
	if sizeBytes == 2 {
		size += 256
	}
	if !unsaid && size != uint64(want) {
		return fmt.Errorf("a Zstandard frame of %d bytes, want %d", size, want)
	}
	n += sizeBytes
	for last := false; !last; {
		if len(b) < n+3 {
			return errShort
		}
		header := int(b[n]) | int(b[n+1])<<8 | int(b[n+2])<<16
		n += 3
		last = header&1 != 0
		if unsaid && !last {
			return errors.New("a Zstandard frame of several blocks without its size")
		}
		switch size := header >> 3; header >> 1 & 3 {
		case 0, 2: // raw, compressed
			n += size
		case 1: // one byte, repeated
			n++
		default:
			return errors.New("a Zstandard block of a reserved type")
		}
		if n > len(b) {
			return errShort
		}
	}
	if descriptor&0x04 != 0 {
		n += 4 // checksum
	}
	if n != len(b) {
		return fmt.Errorf("a Zstandard frame of %d bytes in %d", n, len(b))
	}
	return nil
}

// decodeRuns decodes b, runs of repeated or bit-packed values of the given
// width, into dst, of which there must be exactly as many, each less than
// limit. The last run may be padded to a multiple of eight.
func decodeRuns[T uint8 | int32](dst []T, b []byte, bitWidth int, limit uint32) error {
	for len(b) > 0 {
		if len(dst) == 0 {
			return errors.New("more values than the page has rows")
		}
		header, l := binary.Uvarint(b)
		if l <= 0 {
			return errShort
		}
		b = b[l:]
		count, packed := header>>1, header&1 != 0
		switch {
		case count == 0:
			return errors.New("an empty run")
		case packed && count > uint64(len(b)): // each group of eight takes at least a byte, or none at width 0
			return errShort
		case packed && count > uint64(len(dst)+7)/8:
			return errors.New("more values than the page has rows")
		case packed:
			size, n := int(count)*bitWidth, min(int(count)*8, len(dst))
			if size > len(b) {
				return errShort
			}
			if err := unpackBits(dst[:n], b[:size], bitWidth, limit); err != nil {
				return err
			}
			dst, b = dst[n:], b[size:]
		case count > uint64(len(dst)):
			return fmt.Errorf("a run of %d values, want %d at most", count, len(dst))
		default:
			size := (bitWidth + 7) / 8
			if size > len(b) {
				return errShort
			}
			var value uint32
			for i, c := range b[:size] {
				value |= uint32(c) << (8 * i)
			}
			if value >= limit {
				return fmt.Errorf("got %d, want 0 to %d", value, int64(limit)-1)
			}
			run := dst[:count]
			run[0] = T(value)
			for n := 1; n < len(run); n *= 2 {
				copy(run[n:], run[:n])
			}
			dst, b = dst[count:], b[size:]
		}
	}
	if len(dst) > 0 {
		return fmt.Errorf("%d values are missing", len(dst))
	}
	return nil
}

// unpackBits unpacks values of the given width, which b has enough bytes
// for; each must be less than limit.
func unpackBits[T uint8 | int32](dst []T, b []byte, bitWidth int, limit uint32) error {
	var bits uint64 // not used yet, the next ones lowest
	have := 0
	mask := uint64(1)<<bitWidth - 1
	var highest uint64
	for i := range dst {
		for have < bitWidth {
			bits |= uint64(b[0]) << have
			b = b[1:]
			have += 8
		}
		value := bits & mask
		highest = max(highest, value)
		dst[i] = T(value)
		bits >>= bitWidth
		have -= bitWidth
	}
	if highest >= uint64(limit) {
		return fmt.Errorf("got %d, want 0 to %d", highest, int64(limit)-1)
	}
	return nil
}

// Shape of delta-encoded blocks: the one that the writer produces and that
// nearly all others do.
const (
	deltaBlock      = 128
	deltaMiniBlocks = 4
	deltaMini       = deltaBlock / deltaMiniBlocks
)

// walkDelta returns the length of the delta-encoded integers that b begins
// with, of which there must be exactly want.
func walkDelta(b []byte, maxBitWidth, want int) (int, error) {
	var header [3]uint64
	n := 0
	for i := range header {
		v, l := binary.Uvarint(b[n:])
		if l <= 0 {
			return 0, errShort
		}
		header[i] = v
		n += l
	}
	if header[0] != deltaBlock || header[1] != deltaMiniBlocks {
		return 0, fmt.Errorf("delta blocks of %d in %d, want %d in %d", header[0], header[1], deltaBlock, deltaMiniBlocks)
	}
	if header[2] != uint64(want) {
		return 0, fmt.Errorf("%d delta values, want %d", header[2], want)
	}
	l, err := walkVarint(b[n:]) // first value
	if err != nil {
		return 0, err
	}
	n += l
	for left := want - 1; left > 0; left -= deltaBlock {
		l, err := walkVarint(b[n:]) // smallest delta
		if err != nil {
			return 0, err
		}
		n += l
		if len(b) < n+deltaMiniBlocks {
			return 0, errShort
		}
		widths := b[n : n+deltaMiniBlocks]
		n += deltaMiniBlocks
		for i, width := range widths {
			switch {
			case int(width) > maxBitWidth:
				return 0, fmt.Errorf("a delta of %d bits, want %d at most", width, maxBitWidth)
			case i*deltaMini < left:
				n += deltaMini * int(width) / 8
			}
		}
		if n > len(b) {
			return 0, errShort
		}
	}
	return n, nil
}
