package runlog

import (
	"fmt"
	"slices"
)

// A Phase says which part of a run a request belongs to.
type Phase string

const (
	PhaseWarmup  Phase = "warmup"  // the hidden warm-up before the first cell; kept, never shown as a result
	PhasePrefill Phase = "prefill" // scouts with a prompt that no cache can hold: the prefill measurement
	PhaseDecode  Phase = "decode"  // the streams of one context × concurrency cell
)

// A Kind says what happened to a request.
type Kind uint8

// The kinds in the order in which they can occur in one request.
const (
	KindSent      Kind = iota + 1 // the request's last byte was written
	KindHeaders                   // the response's status line and headers were complete
	KindChunk                     // a data event with choices: text, tokens, a role, a finish reason
	KindUsage                     // a data event without choices that carries usage
	KindDone                      // the [DONE] marker: the request ended by itself
	KindError                     // the request failed: HTTP error, error event, broken or truncated stream, time-out
	KindCancelled                 // the collector ended the request itself: end of the window, or a resend on a new connection
)

var kindNames = [...]string{
	KindSent: "sent", KindHeaders: "headers", KindChunk: "chunk", KindUsage: "usage",
	KindDone: "done", KindError: "error", KindCancelled: "cancelled",
}

// String returns the name that stands in the file, such as "chunk".
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Ends reports whether a row of this kind is the last one of its request.
func (k Kind) Ends() bool { return k == KindDone || k == KindError || k == KindCancelled }

// A Channel says which part of the model's answer a chunk's text belongs to.
type Channel uint8

const (
	ChannelNone      Channel = iota // no text, or not a chunk: null in the file
	ChannelReasoning                // thinking: delta.reasoning, delta.reasoning_content, delta.reasoning_details
	ChannelContent                  // the answer: delta.content
	ChannelTool                     // delta.tool_calls
	ChannelMixed                    // text of more than one of these in one chunk
)

var channelNames = [...]string{
	ChannelNone: "", ChannelReasoning: "reasoning", ChannelContent: "content",
	ChannelTool: "tool", ChannelMixed: "mixed",
}

// String returns the name that stands in the file; "" for ChannelNone.
func (c Channel) String() string {
	if int(c) >= len(channelNames) {
		return fmt.Sprintf("Channel(%d)", uint8(c))
	}
	return channelNames[c]
}

// Unknown stands for null in the int32 fields of an Event. No such field
// can be negative otherwise.
const Unknown int32 = -1

// A Key names one event file: what was planned, not what was measured.
type Key struct {
	Phase         Phase
	ContextTokens int32 // planned prompt length, after the chat template
	Concurrency   int32 // planned simultaneous requests; 1 for warm-up and prefill
}

// Name returns the cell's name, which is also the stem of its file:
// "warmup", "prefill-8192", "decode-8192-c16".
func (k Key) Name() string {
	switch k.Phase {
	case PhaseWarmup:
		return "warmup"
	case PhasePrefill:
		return fmt.Sprintf("prefill-%d", k.ContextTokens)
	default:
		return fmt.Sprintf("%s-%d-c%d", k.Phase, k.ContextTokens, k.Concurrency)
	}
}

// File returns the path of the cell's event file relative to the run
// directory, with forward slashes: "cells/decode-8192-c16.parquet".
func (k Key) File() string { return "cells/" + k.Name() + ".parquet" }

// An Event is one row of an event file: one thing that happened to one
// request, as the client saw it.
//
// For one request the kinds appear as sent, headers, any number of chunk
// and usage, then at most one of done, error or cancelled. A request
// without an ending row never finished.
type Event struct {
	Stream  int32 // 0 … concurrency − 1
	Request int32 // 0, 1, … within the stream
	Seq     int32 // 0, 1, … within the request, without gaps
	Kind    Kind

	// TUs is microseconds since Manifest.StartedAt on one monotonic clock.
	// It never decreases within a request. For everything that came from
	// the server it is the time at which the data that completed the event
	// arrived (Manifest.ArrivalClock says by whose clock).
	TUs int64

	// SameRead reports that the event was completed by the same read as the
	// row before it of the same request, so that its time is that read's.
	SameRead bool

	Tokens       int32   // output tokens that this row delivered; Unknown when it can't be told
	Channel      Channel // ChannelNone when the row has no text
	HasText      bool    // false: null in the file (not a chunk, or the run kept no text)
	Text         string  // valid UTF-8; with hashed text "#<16 hex digits>:<code points>"
	FinishReason string  // as sent; "" is null

	PromptTokens     int32 // usage.prompt_tokens on the row that brought it; else Unknown
	CachedTokens     int32 // usage.prompt_tokens_details.cached_tokens; else Unknown
	CompletionTokens int32 // the server's running total, usage.completion_tokens; else Unknown

	Status int32  // HTTP status on headers and error rows; else Unknown
	Error  string // at most 500 code points, redacted; "" is null
}

// NewEvent returns an event of the given kind and time with every optional
// field unknown.
func NewEvent(kind Kind, tUs int64) Event {
	return Event{
		Kind: kind, TUs: tUs, Tokens: Unknown,
		PromptTokens: Unknown, CachedTokens: Unknown, CompletionTokens: Unknown, Status: Unknown,
	}
}

// Events is the content of one event file, by columns: the one form that
// the collector writes and everything else reads. All slices have the same
// length; the text of row i is Text[TextEnd[i-1]:TextEnd[i]].
//
// The zero value with a Key is an empty file.
type Events struct {
	Key Key

	Stream, Request, Seq []int32
	Kind                 []Kind
	TUs                  []int64
	SameRead             []bool
	Tokens               []int32
	Channel              []Channel
	HasText              []bool
	TextEnd              []int
	Text                 []byte
	FinishReason         []string
	PromptTokens         []int32
	CachedTokens         []int32
	CompletionTokens     []int32
	Status               []int32
	Error                []string
}

// Len returns the number of rows.
func (e *Events) Len() int { return len(e.Kind) }

// Grow makes room for n more rows, so that appending them copies nothing but
// text. Many rows that grow by themselves take twice the memory.
func (e *Events) Grow(n int) {
	e.Stream = slices.Grow(e.Stream, n)
	e.Request = slices.Grow(e.Request, n)
	e.Seq = slices.Grow(e.Seq, n)
	e.Kind = slices.Grow(e.Kind, n)
	e.TUs = slices.Grow(e.TUs, n)
	e.SameRead = slices.Grow(e.SameRead, n)
	e.Tokens = slices.Grow(e.Tokens, n)
	e.Channel = slices.Grow(e.Channel, n)
	e.HasText = slices.Grow(e.HasText, n)
	e.TextEnd = slices.Grow(e.TextEnd, n)
	e.FinishReason = slices.Grow(e.FinishReason, n)
	e.PromptTokens = slices.Grow(e.PromptTokens, n)
	e.CachedTokens = slices.Grow(e.CachedTokens, n)
	e.CompletionTokens = slices.Grow(e.CompletionTokens, n)
	e.Status = slices.Grow(e.Status, n)
	e.Error = slices.Grow(e.Error, n)
}

// Append adds one row. It does not check it; Check does.
func (e *Events) Append(ev Event) {
	e.Stream = append(e.Stream, ev.Stream)
	e.Request = append(e.Request, ev.Request)
	e.Seq = append(e.Seq, ev.Seq)
	e.Kind = append(e.Kind, ev.Kind)
	e.TUs = append(e.TUs, ev.TUs)
	e.SameRead = append(e.SameRead, ev.SameRead)
	e.Tokens = append(e.Tokens, ev.Tokens)
	e.Channel = append(e.Channel, ev.Channel)
	e.HasText = append(e.HasText, ev.HasText)
	e.Text = append(e.Text, ev.Text...)
	e.TextEnd = append(e.TextEnd, len(e.Text))
	e.FinishReason = append(e.FinishReason, ev.FinishReason)
	e.PromptTokens = append(e.PromptTokens, ev.PromptTokens)
	e.CachedTokens = append(e.CachedTokens, ev.CachedTokens)
	e.CompletionTokens = append(e.CompletionTokens, ev.CompletionTokens)
	e.Status = append(e.Status, ev.Status)
	e.Error = append(e.Error, ev.Error)
}

// TextAt returns the text of row i without copying; the caller must not
// change it. It is empty where the row has no text.
func (e *Events) TextAt(i int) []byte {
	start := 0
	if i > 0 {
		start = e.TextEnd[i-1]
	}
	return e.Text[start:e.TextEnd[i]]
}

// Row returns row i as an Event.
func (e *Events) Row(i int) Event {
	return Event{
		Stream: e.Stream[i], Request: e.Request[i], Seq: e.Seq[i], Kind: e.Kind[i],
		TUs: e.TUs[i], SameRead: e.SameRead[i], Tokens: e.Tokens[i], Channel: e.Channel[i],
		HasText: e.HasText[i], Text: string(e.TextAt(i)), FinishReason: e.FinishReason[i],
		PromptTokens: e.PromptTokens[i], CachedTokens: e.CachedTokens[i],
		CompletionTokens: e.CompletionTokens[i], Status: e.Status[i], Error: e.Error[i],
	}
}
