package simserver

import (
	"fmt"
	"net/http"
	"strconv"
)

// A shape is everything about one request's chunks that does not change
// while they are sent.
type shape struct {
	chat        bool // else text completion
	rust        bool // keys without a value are left out
	id, model   string
	created     int64
	fingerprint string // "" means none
	prompt      int    // tokens, of all prompts
	promptIDs   []int32
	returnIDs   bool
	usage       bool // a usage chunk at the end
	continuous  bool // usage in each chunk
	details     bool // prompt_tokens_details in the last usage
	blockSize   int  // tokens per KV block
	parser      bool // a reasoning parser is configured
	field       ReasoningField
	tool        string // name of the function that is called; "" means none
	toolID      string
	fault       Fault
}

// An encoder writes the events of one request. Chunks are put together by
// hand: this is the hot path, and the order of keys is the point.
type encoder struct {
	shape
	head []byte // `data: {"id":…,"choices":[{"index":`
	end  []byte // what ends an event
}

func newEncoder(s shape) *encoder {
	object := "text_completion"
	if s.chat {
		object = "chat.completion.chunk"
	}
	e := &encoder{shape: s, end: []byte("\n\n")}
	if s.fault.CRLF {
		e.end = []byte("\r\n\r\n")
	}
	e.head = fmt.Appendf(e.data(nil), `{"id":%s,"object":"%s","created":%d,"model":%s,"choices":[`, quote(s.id), object, s.created, quote(s.model))
	return e
}

func (e *encoder) data(b []byte) []byte {
	if e.fault.NoSpace {
		return append(b, "data:"...)
	}
	return append(b, "data: "...)
}

func (e *encoder) null(b []byte, key string) []byte {
	if e.rust {
		return b
	}
	return append(append(append(b, `,"`...), key...), `":null`...)
}

// chunkUsage appends a chunk's own usage: cumulative per choice.
func (e *encoder) chunkUsage(b []byte, prompt, completion, reasoning int) []byte {
	if !e.continuous {
		return b
	}
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(prompt), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(prompt+completion), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(completion), 10)
	switch {
	case e.parser:
		b = append(b, `,"completion_tokens_details":{"reasoning_tokens":`...)
		b = strconv.AppendInt(b, int64(reasoning), 10)
		b = append(b, '}')
	case e.chat:
		b = e.null(b, "completion_tokens_details")
	}
	return append(b, '}')
}

// roleChunk appends the chunk that opens a chat answer.
func (e *encoder) roleChunk(b []byte, index int) []byte {
	b = append(b, e.head...)
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	b = append(b, `,"delta":{"role":"assistant","content":""`...)
	if e.parser && e.field == ReasoningBoth {
		b = append(b, `,"reasoning_content":null`...)
	}
	b = append(b, '}')
	b = e.null(b, "logprobs")
	b = e.null(b, "finish_reason")
	b = append(b, "}]"...)
	b = e.chunkUsage(b, e.prompt, 0, 0)
	if e.returnIDs {
		b = appendIDs(append(b, `,"prompt_token_ids":`...), e.promptIDs)
	} else {
		b = e.null(b, "prompt_token_ids")
	}
	b = e.null(b, "prompt_text")
	return append(append(b, '}'), e.end...)
}

// A part is what one chunk says about one choice.
type part struct {
	index              int
	reasoning, content []byte
	toolHead           bool // the tool call begins
	toolText           int  // content is arguments: 1 their beginning, 2 more; 0 means it is not
	ids                []int32
	finish             string // "" means that it goes on
	prompt             int    // tokens of this choice's prompt
	promptIDs          []int32
	completion         int // tokens of this choice so far, this chunk's included
	thought            int // of these, thinking
}

// chunk appends the chunk for p. With a parser and nothing to show it
// appends nothing, as vLLM does.
func (e *encoder) chunk(b []byte, p *part) []byte {
	empty := len(p.reasoning) == 0 && len(p.content) == 0 && !p.toolHead
	if e.chat && empty && (e.parser || e.tool != "") && p.finish == "" && !e.returnIDs {
		return b
	}
	b = append(b, e.head...)
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(p.index), 10)
	if e.chat {
		b = append(b, `,"delta":{`...)
		b = e.delta(b, p, empty)
		b = append(b, '}')
	} else {
		b = append(b, `,"text":"`...)
		b = appendString(b, p.content)
		b = append(b, '"')
	}
	b = e.null(b, "logprobs")
	if p.finish == "" {
		b = e.null(b, "finish_reason")
	} else {
		b = append(append(append(b, `,"finish_reason":"`...), p.finish...), '"')
	}
	if p.finish != "" || !e.chat {
		b = e.null(b, "stop_reason")
	}
	if !e.chat {
		if p.promptIDs != nil && e.returnIDs {
			b = appendIDs(append(b, `,"prompt_token_ids":`...), p.promptIDs)
		} else {
			b = e.null(b, "prompt_token_ids")
		}
	}
	if e.returnIDs {
		b = appendIDs(append(b, `,"token_ids":`...), p.ids)
	} else {
		b = e.null(b, "token_ids")
	}
	b = append(b, "}]"...)
	b = e.chunkUsage(b, p.prompt, p.completion, p.thought)
	if p.finish != "" && !e.usage {
		b = e.appendFingerprint(b)
	}
	return append(append(b, '}'), e.end...)
}

// delta appends the inside of a chat delta.
func (e *encoder) delta(b []byte, p *part, empty bool) []byte {
	text := func(key string, s []byte) {
		if len(b) > 0 && b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), key...), `":"`...)
		b = append(appendString(b, s), '"')
	}
	switch {
	case p.toolHead || p.toolText > 0:
		if len(p.reasoning) > 0 {
			e.thinking(text, p.reasoning)
			b = append(b, ',')
		}
		return e.toolDelta(b, p)
	case empty && (e.parser || e.tool != ""):
		return b
	}
	if len(p.content) > 0 || len(p.reasoning) == 0 {
		text("content", p.content)
	}
	if len(p.reasoning) > 0 {
		e.thinking(text, p.reasoning)
	} else if e.parser && e.field == ReasoningBoth {
		b = append(b, `,"reasoning_content":null`...)
	}
	return b
}

func (e *encoder) thinking(text func(string, []byte), s []byte) {
	if e.field != ReasoningContent {
		text("reasoning", s)
	}
	if e.field != Reasoning {
		text("reasoning_content", s)
	}
}

func (e *encoder) toolDelta(b []byte, p *part) []byte {
	b = append(b, `"tool_calls":[{`...)
	if p.toolHead {
		b = fmt.Appendf(b, `"id":%s,"type":"function","index":0,"function":{"name":%s,"arguments":"`, quote(e.toolID), quote(e.tool))
	} else {
		b = append(b, `"index":0,"function":{"arguments":"`...)
	}
	b = e.arguments(b, p)
	return append(b, `"}}]`...)
}

// arguments appends p's share of the call's arguments: JSON within a JSON
// string, one string argument that holds the generated text.
func (e *encoder) arguments(b []byte, p *part) []byte {
	if p.toolText == 1 {
		b = append(b, `{\"text\": \"`...)
	}
	b = appendString(b, appendString(nil, p.content))
	if p.finish != "" && p.toolText > 0 {
		b = append(b, `\"}`...)
	}
	return b
}

func (e *encoder) appendFingerprint(b []byte) []byte {
	if e.fingerprint == "" {
		return b
	}
	return append(append(append(b, `,"system_fingerprint":"`...), e.fingerprint...), '"')
}

// usageChunk appends the last chunk, which has no choices.
func (e *encoder) usageChunk(b []byte, completion, thought, cached int) []byte {
	b = append(b, e.head...)
	b = append(b, `],"usage":`...)
	b = e.finalUsage(b, completion, thought, cached)
	b = e.appendFingerprint(b)
	return append(append(b, '}'), e.end...)
}

// finalUsage appends the usage object of a whole request, without nulls.
func (e *encoder) finalUsage(b []byte, completion, thought, cached int) []byte {
	b = fmt.Appendf(b, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`, e.prompt, e.prompt+completion, completion)
	if e.details {
		b = fmt.Appendf(b, `,"prompt_tokens_details":{"cached_tokens":%d`, cached)
		if e.chat {
			b = fmt.Appendf(b, `,"created_cache_tokens":%d`, e.createdCache(cached))
		}
		b = append(b, '}')
	}
	if e.parser {
		b = fmt.Appendf(b, `,"completion_tokens_details":{"reasoning_tokens":%d}`, thought)
	}
	return append(b, '}')
}

// createdCache is how many prompt tokens are in the prefix cache since this
// request: those in whole blocks that were not there before.
func (e *encoder) createdCache(cached int) int {
	return max(0, e.prompt/e.blockSize*e.blockSize-cached)
}

// done appends the end marker.
func (e *encoder) done(b []byte) []byte {
	return append(append(e.data(b), "[DONE]"...), e.end...)
}

// errorEvent appends an error inside a stream. Its JSON is Python's, with
// spaces and escapes.
func (e *encoder) errorEvent(b []byte, kind string, code int, message string) []byte {
	b = e.data(b)
	if e.rust {
		b = fmt.Appendf(b, `{"error":{"message":%s,"type":"server_error","code":"server_error"}}`, quote(message))
	} else {
		b = fmt.Appendf(b, `{"error": {"message": %s, "type": "%s", "param": null, "code": %d}}`, quoteASCII(message), kind, code)
	}
	return append(b, e.end...)
}

// internalError appends the error event of a failing engine.
func (e *encoder) internalError(b []byte, message string) []byte {
	return e.errorEvent(b, "InternalServerError", http.StatusInternalServerError, message)
}

// comment appends a keep-alive line.
func (e *encoder) comment(b []byte) []byte {
	return append(append(b, ": keep-alive"...), e.end...)
}
