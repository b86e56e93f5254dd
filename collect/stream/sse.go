package stream

import (
	"bytes"
	"fmt"
)

// maxEvent bounds the memory of one event. The largest that a server has
// reason to send, the ids of a long prompt in one line, is about 2 MB.
const maxEvent = 64 << 20

// An sseDecoder cuts a byte stream into server-sent events by the rules of
// the HTML standard, section 9.2.6: lines end in LF, CRLF or CR; data lines
// of one event are joined by LF; lines that begin with a colon and unknown
// fields are ignored; a blank line completes the event. Where the bytes are
// cut into reads makes no difference.
//
// The zero value is ready for the first byte of a stream.
type sseDecoder struct {
	line    []byte // beginning of a line whose end has not come yet
	data    []byte // data lines of the event so far, each with its LF
	hasData bool
	skipLF  bool // the last line ended in CR: an LF that comes next belongs to it
	started bool // the first line has been seen; a byte order mark can only be before it
}

// feed takes the next bytes and calls emit with the data of each event that
// they complete. The data is valid only during the call. An error from emit
// ends the feeding and is returned.
func (d *sseDecoder) feed(b []byte, emit func(data []byte) error) error {
	for len(b) > 0 {
		if d.skipLF {
			d.skipLF = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := bytes.IndexByte(b, '\n')
		cr := false
		scope := b
		if end >= 0 {
			scope = b[:end]
		}
		if i := bytes.IndexByte(scope, '\r'); i >= 0 {
			end, cr = i, true
		}
		if end < 0 {
			if len(d.line)+len(d.data)+len(b) > maxEvent {
				return fmt.Errorf("event of more than %d bytes", maxEvent)
			}
			d.line = append(d.line, b...)
			return nil
		}
		line := b[:end]
		b = b[end+1:]
		if cr {
			d.skipLF = true
		}
		if len(d.line) > 0 {
			d.line = append(d.line, line...)
			line = d.line
		}
		line = d.trimBOM(line)
		// A blank line right behind a single data line, by far the usual
		// case, needs no copy: the event is the line.
		if !d.hasData && len(line) <= maxEvent {
			if payload, ok := dataField(line); ok {
				if rest, blank, rcr := blankLine(b, d.skipLF); blank {
					b, d.skipLF, d.line = rest, rcr, d.line[:0]
					if err := emit(payload); err != nil {
						return err
					}
					continue
				}
			}
		}
		if err := d.endLine(line, emit); err != nil {
			return err
		}
		d.line = d.line[:0]
	}
	return nil
}

// blankLine reports whether b begins with the end of a blank line, after an
// LF that still belongs to the line before.
func blankLine(b []byte, skipLF bool) (rest []byte, blank, cr bool) {
	if skipLF && len(b) > 0 && b[0] == '\n' {
		b = b[1:]
	}
	switch {
	case len(b) > 0 && b[0] == '\n':
		return b[1:], true, false
	case len(b) > 0 && b[0] == '\r':
		return b[1:], true, true
	}
	return nil, false, false
}

func (d *sseDecoder) trimBOM(line []byte) []byte {
	if d.started {
		return line
	}
	d.started = true
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

// dataField returns the value of a data line.
func dataField(line []byte) ([]byte, bool) {
	v, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok {
		return nil, false
	}
	if len(v) == 0 {
		return v, true
	}
	if v[0] != ':' {
		return nil, false
	}
	v = v[1:]
	if len(v) > 0 && v[0] == ' ' {
		v = v[1:]
	}
	return v, true
}

func (d *sseDecoder) endLine(line []byte, emit func([]byte) error) error {
	if len(line) == 0 {
		if !d.hasData {
			return nil
		}
		data := d.data[:len(d.data)-1]
		d.hasData = false
		d.data = d.data[:0]
		return emit(data)
	}
	v, ok := dataField(line)
	if !ok {
		return nil
	}
	if len(d.data)+len(v) > maxEvent {
		return fmt.Errorf("event of more than %d bytes", maxEvent)
	}
	d.data = append(append(d.data, v...), '\n')
	d.hasData = true
	return nil
}

// finish takes the clean end of the stream. The standard drops an event
// that no blank line completed; a server that ends its stream with such an
// event has said it all the same, so it counts when it is complete in
// itself: the end marker, or JSON that ends where the stream does.
func (d *sseDecoder) finish(emit func(data []byte) error) error {
	if len(d.line) > 0 {
		if err := d.endLine(d.trimBOM(d.line), func([]byte) error { return nil }); err != nil {
			return err
		}
		d.line = d.line[:0]
	}
	if !d.hasData {
		return nil
	}
	data := d.data[:len(d.data)-1]
	d.hasData = false
	if !isDone(data) && !completeJSON(data) {
		return nil
	}
	return emit(data)
}
