package stream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxHead bounds the status line and headers of a response.
const maxHead = 256 << 10

// A responseDecoder cuts the bytes of a connection into one HTTP/1.1
// response: head, then body. Bytes are pushed into it as they arrive, so
// that the caller knows which read completed what.
type responseDecoder struct {
	head   []byte
	inBody bool

	status    int
	header    http.Header
	keepAlive bool

	body    bodyKind
	left    int64 // of the body (bodyLength) or of the chunk in progress (bodyChunked)
	chunk   chunkState
	line    []byte // chunk-size or trailer line in progress
	trailer int    // bytes of trailers so far
	done    bool   // the body is complete
}

type bodyKind uint8

const (
	bodyChunked bodyKind = iota
	bodyLength
	bodyToEOF
)

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd // the line end behind the data
	chunkTrailer
)

// feed takes the next bytes. It calls onHead once, when the head is
// complete, and onBody for each piece of body, in order. It returns what is
// left behind the end of the response.
func (r *responseDecoder) feed(b []byte, onHead func() error, onBody func([]byte) error) ([]byte, error) {
	if !r.inBody {
		rest, complete, err := r.feedHead(b)
		if err != nil || !complete {
			return nil, err
		}
		b = rest
		if err := onHead(); err != nil {
			return nil, err
		}
	}
	for !r.done && len(b) > 0 {
		var err error
		b, err = r.feedBody(b, onBody)
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// feedHead collects the head and interprets it.
func (r *responseDecoder) feedHead(b []byte) (rest []byte, complete bool, err error) {
	for {
		from := max(0, len(r.head)-3)
		r.head = append(r.head, b...)
		i := headEnd(r.head[from:])
		if i < 0 {
			if len(r.head) > maxHead {
				return nil, false, fmt.Errorf("response head of more than %d bytes", maxHead)
			}
			if len(r.head) >= 5 && !bytes.HasPrefix(r.head, []byte("HTTP/")) {
				return nil, false, fmt.Errorf("not an HTTP response: it begins with %q", clip(r.head, 40))
			}
			return nil, false, nil
		}
		i += from
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(r.head[:i])), nil)
		if err != nil {
			return nil, false, fmt.Errorf("read response head: %w", err)
		}
		if resp.StatusCode < 100 {
			return nil, false, fmt.Errorf("HTTP status %03d, want 100 to 999", resp.StatusCode)
		}
		rest = bytes.Clone(r.head[i:])
		if resp.StatusCode >= 100 && resp.StatusCode < 200 {
			// An interim answer: the real one follows.
			r.head = r.head[:0]
			if len(rest) == 0 {
				return nil, false, nil
			}
			b = rest
			continue
		}
		return rest, true, r.start(resp)
	}
}

// headEnd returns the length of b up to and with the blank line that ends a
// head, or −1. Bare LF is accepted as a line end, as the standard library does.
func headEnd(b []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return -1
		}
		i += n + 1
		if bytes.HasPrefix(b[i:], []byte("\r\n")) {
			return i + 2
		}
		if bytes.HasPrefix(b[i:], []byte("\n")) {
			return i + 1
		}
	}
}

func (r *responseDecoder) start(resp *http.Response) error {
	r.inBody = true
	r.status, r.header = resp.StatusCode, resp.Header
	r.keepAlive = !resp.Close
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fmt.Errorf("response has Content-Encoding %q, which was not asked for", clip([]byte(enc), 40))
	}
	switch {
	case len(resp.TransferEncoding) > 0 && resp.TransferEncoding[0] == "chunked":
		r.body = bodyChunked
	case resp.ContentLength >= 0:
		r.body, r.left = bodyLength, resp.ContentLength
		r.done = r.left == 0
	default:
		r.body, r.keepAlive = bodyToEOF, false
	}
	return nil
}

func (r *responseDecoder) feedBody(b []byte, onBody func([]byte) error) ([]byte, error) {
	switch {
	case r.body == bodyToEOF:
		return nil, onBody(b)
	case r.body == bodyLength:
		n := min(int64(len(b)), r.left)
		r.left -= n
		r.done = r.left == 0
		return b[n:], onBody(b[:n])
	case r.chunk == chunkData:
		n := min(int64(len(b)), r.left)
		r.left -= n
		if r.left == 0 {
			r.chunk = chunkEnd
		}
		return b[n:], onBody(b[:n])
	}
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		r.line = append(r.line, b...)
		if len(r.line) > 4096 {
			return nil, errors.New("chunk header of more than 4096 bytes")
		}
		return nil, nil
	}
	line := append(r.line, b[:i]...)
	r.line = line[:0]
	b = b[i+1:]
	line = bytes.TrimSuffix(line, []byte("\r"))
	switch r.chunk {
	case chunkSize:
		size, err := parseChunkSize(line)
		if err != nil {
			return nil, err
		}
		r.left, r.chunk = size, chunkData
		if size == 0 {
			r.chunk = chunkTrailer
		}
	case chunkEnd:
		if len(line) > 0 {
			return nil, fmt.Errorf("chunk is longer than its size says: %q follows", clip(line, 40))
		}
		r.chunk = chunkSize
	case chunkTrailer:
		r.trailer += len(line)
		if r.trailer > maxHead {
			return nil, fmt.Errorf("trailers of more than %d bytes", maxHead)
		}
		r.done = len(line) == 0
	}
	return b, nil
}

func parseChunkSize(line []byte) (int64, error) {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimSpace(digits)
	size, err := strconv.ParseUint(string(digits), 16, 62)
	if err != nil {
		return 0, fmt.Errorf("chunk size %q, want hexadecimal digits", clip(line, 40))
	}
	return int64(size), nil
}

// eof takes the end of the connection. It returns io.ErrUnexpectedEOF where
// the response was not complete.
func (r *responseDecoder) eof() error {
	if r.inBody && (r.done || r.body == bodyToEOF) {
		r.done = true
		return nil
	}
	return io.ErrUnexpectedEOF
}

// clip returns at most n bytes of b as a string.
func clip(b []byte, n int) string {
	if len(b) > n {
		return string(b[:n]) + "…"
	}
	return string(b)
}
