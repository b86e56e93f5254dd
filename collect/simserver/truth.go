package simserver

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// A TruthKind says what a TruthEvent is about.
type TruthKind string

const (
	TruthRequest TruthKind = "request" // a request was accepted; its headers are about to be sent
	TruthWrite   TruthKind = "write"   // a piece of the body was handed to the network
	TruthEnd     TruthKind = "end"     // nothing more will be sent
)

// A TruthEvent is one thing that a Server really did. Events of one request
// come in order.
type TruthEvent struct {
	Kind    TruthKind
	Request string // the id in the answer, such as "chatcmpl-…"
	Ordinal int    // of the request: 0, 1, … in the order in which they were accepted

	// Before and After enclose the write; equal for the other kinds. They
	// carry Go's monotonic clock.
	Before, After time.Time

	Bytes  int          // written, without HTTP framing
	Chunks int          // of these, events that carry tokens
	Tokens int          // output tokens that these events carry, of all choices
	Text   string       // their text, thinking and answer, in the order sent
	Each   []TruthChunk // the events that carry tokens, one by one
	Lost   bool         // the client went meanwhile: any part of it may have arrived

	Fault        Fault  // on TruthRequest: what the request will meet
	PromptTokens int    // on TruthRequest
	CachedTokens int    // on TruthEnd: prompt tokens that came from the cache
	End          string // on TruthEnd: "stop", "length", "disconnect", or the fault's name
}

// A TruthChunk is one event that carries tokens.
type TruthChunk struct {
	Tokens             int
	Said               int // completion_tokens of its usage; −1 where it has none
	Reasoning, Content string
}

// truthLine is the form of a TruthEvent in a file.
type truthLine struct {
	Kind         TruthKind `json:"kind"`
	Request      string    `json:"request,omitempty"`
	Ordinal      int       `json:"ordinal"`
	BeforeUS     float64   `json:"before_us"`
	AfterUS      float64   `json:"after_us"`
	Bytes        int       `json:"bytes,omitempty"`
	Chunks       int       `json:"chunks,omitempty"`
	Tokens       int       `json:"tokens,omitempty"`
	Text         string    `json:"text,omitempty"`
	Lost         bool      `json:"lost,omitempty"`
	PromptTokens int       `json:"prompt_tokens,omitempty"`
	CachedTokens int       `json:"cached_tokens,omitempty"`
	End          string    `json:"end,omitempty"`
}

// A TruthLog writes truth events as JSON lines. The first line is
// {"kind":"start","unix_us":…}; before_us and after_us count from that
// instant on the monotonic clock.
type TruthLog struct {
	mu    sync.Mutex
	start time.Time
	w     *bufio.Writer
	enc   *json.Encoder
	err   error
}

// NewTruthLog begins a log on w at the instant start.
func NewTruthLog(w io.Writer, start time.Time) *TruthLog {
	l := &TruthLog{start: start, w: bufio.NewWriterSize(w, 1<<16)}
	l.enc = json.NewEncoder(l.w)
	l.enc.SetEscapeHTML(false)
	l.err = l.enc.Encode(map[string]any{"kind": "start", "unix_us": start.UnixMicro()})
	return l
}

// Record appends an event; it fits Config.Truth. Each end of a request
// brings the file up to date.
func (l *TruthLog) Record(ev TruthEvent) {
	us := func(t time.Time) float64 { return float64(t.Sub(l.start).Nanoseconds()) / 1000 }
	line := truthLine{
		Kind: ev.Kind, Request: ev.Request, Ordinal: ev.Ordinal, BeforeUS: us(ev.Before), AfterUS: us(ev.After),
		Bytes: ev.Bytes, Chunks: ev.Chunks, Tokens: ev.Tokens, Text: ev.Text, Lost: ev.Lost,
		PromptTokens: ev.PromptTokens, CachedTokens: ev.CachedTokens, End: ev.End,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.enc.Encode(line)
	}
	if l.err == nil && ev.Kind == TruthEnd {
		l.err = l.w.Flush()
	}
}

// Flush writes out what is buffered and returns the first error of all.
func (l *TruthLog) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.w.Flush()
	}
	return l.err
}
