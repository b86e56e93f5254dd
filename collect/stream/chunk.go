package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"
)

// A Chunk is one decoded data event of a completion stream.
type Chunk struct {
	// Err is the server's message where the event is an error event; it
	// ends the request whatever follows. IsError is true then, also when
	// the message is empty.
	Err     string
	IsError bool

	Choices int  // number of choices; 0 for a usage-only event
	Role    bool // the delta names a role, as the first event of a chat stream does

	Text         []byte // of all channels; may end or begin within a character
	Channel      runlog.Channel
	FinishReason string

	TokenIDs         int   // number of token_ids; runlog.Unknown where the event has none
	PromptTokens     int32 // usage; runlog.Unknown where the event has none
	CompletionTokens int32
	CachedTokens     int32
}

func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

func isBlank(data []byte) bool { return len(bytes.TrimSpace(data)) == 0 }

func completeJSON(data []byte) bool { return json.Valid(data) }

// looksLikeError reports, without decoding, whether an event may be an
// error event: a top-level "error" key leads in all known servers.
func looksLikeError(data []byte) bool {
	data = bytes.TrimLeft(data, " ")
	data, ok := bytes.CutPrefix(data, []byte("{"))
	return ok && bytes.HasPrefix(bytes.TrimLeft(data, " "), []byte(`"error"`)) ||
		ok && bytes.HasPrefix(bytes.TrimLeft(data, " "), []byte(`"object":"error"`))
}

// wireChunk is the JSON of a chat or text completion chunk, as far as it is
// used. Every key may be absent or null.
type wireChunk struct {
	Object  string          `json:"object"`
	Message json.RawMessage `json:"message"` // of the flat error form
	Error   json.RawMessage `json:"error"`
	Choices []wireChoice    `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
}

type wireChoice struct {
	Delta        wireDelta       `json:"delta"`
	Text         string          `json:"text"` // text completions
	FinishReason string          `json:"finish_reason"`
	TokenIDs     json.RawMessage `json:"token_ids"`
}

// wireDelta holds all spellings that servers use. Releases of vLLM send
// reasoning_content, both, or reasoning; others send reasoning_details.
type wireDelta struct {
	Role             string `json:"role"`
	Content          string `json:"content"`
	Refusal          string `json:"refusal"`
	Reasoning        string `json:"reasoning"`
	ReasoningContent string `json:"reasoning_content"`
	ReasoningDetails []struct {
		Text string `json:"text"`
	} `json:"reasoning_details"`
	ToolCalls []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type wireUsage struct {
	PromptTokens     json.RawMessage `json:"prompt_tokens"`
	CompletionTokens json.RawMessage `json:"completion_tokens"`
	Details          *struct {
		CachedTokens json.RawMessage `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// DecodeChunk decodes the data of one event. It accepts every shape of
// vLLM and what is known of its relatives: absent and null keys, unknown
// keys, keys of another type than expected (ignored). It fails on data that
// is not a JSON object.
//
// Half a surrogate pair, as in "\ud83d" with its "\ude00" in the next event,
// becomes U+FFFD in both: no server is known to send one, and no figure
// depends on it.
//
// The chunk's text may be a part of data.
func DecodeChunk(data []byte) (Chunk, error) {
	if c, ok := decodeUsual(data); ok {
		return c, nil
	}
	return decodeAny(data)
}

// decodeAny is DecodeChunk without the short cut.
func decodeAny(data []byte) (Chunk, error) {
	c := noChunk()
	// A server that cuts its text between bytes of a character sends JSON
	// that is not UTF-8. The stray bytes are carried through the decoder as
	// private characters and put back.
	stray := !utf8.Valid(data)
	if stray {
		data = escapeStray(data)
	}
	var w wireChunk
	if err := json.Unmarshal(data, &w); err != nil {
		var typeErr *json.UnmarshalTypeError
		if !errors.As(err, &typeErr) || len(data) == 0 || bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
			return c, fmt.Errorf("event is not a JSON object: %q", clip(data, 80))
		}
	}
	if msg, ok := errorMessage(w); ok {
		c.Err, c.IsError = msg, true
		return c, nil
	}
	c.Choices = len(w.Choices)
	var reasoning, content, tool strings.Builder
	for i := range w.Choices {
		ch := &w.Choices[i]
		d := &ch.Delta
		c.Role = c.Role || d.Role != ""
		reasoning.WriteString(d.reasoning())
		content.WriteString(d.Content)
		content.WriteString(d.Refusal)
		content.WriteString(ch.Text)
		for _, t := range d.ToolCalls {
			tool.WriteString(t.Function.Name)
			tool.WriteString(t.Function.Arguments)
		}
		if ch.FinishReason != "" {
			c.FinishReason = ch.FinishReason
		}
		var ids []json.Number
		if len(ch.TokenIDs) > 0 && ch.TokenIDs[0] == '[' && json.Unmarshal(ch.TokenIDs, &ids) == nil {
			c.TokenIDs = max(c.TokenIDs, 0) + len(ids)
		}
	}
	kinds := 0
	for _, part := range []struct {
		text    string
		channel runlog.Channel
	}{{reasoning.String(), runlog.ChannelReasoning}, {content.String(), runlog.ChannelContent}, {tool.String(), runlog.ChannelTool}} {
		if part.text == "" {
			continue
		}
		kinds++
		c.Channel = part.channel
		c.Text = append(c.Text, part.text...)
	}
	if kinds > 1 {
		c.Channel = runlog.ChannelMixed
	}
	if stray {
		c.Text = unescapeStray(c.Text)
	}
	if u := w.Usage; u != nil {
		c.PromptTokens = count(u.PromptTokens)
		c.CompletionTokens = count(u.CompletionTokens)
		if u.Details != nil {
			c.CachedTokens = count(u.Details.CachedTokens)
		}
	}
	return c, nil
}

// reasoning returns the thinking text of a delta. Where one delta repeats
// it under several names it is the same text, not more of it.
func (d *wireDelta) reasoning() string {
	if d.Reasoning != "" {
		return d.Reasoning
	}
	if d.ReasoningContent != "" {
		return d.ReasoningContent
	}
	var s string
	for _, p := range d.ReasoningDetails {
		s += p.Text
	}
	return s
}

// count turns a JSON value into a token count; anything that is no whole
// number in range is unknown. (A pointer to a number would be to 0 where the
// value is of another type.)
func count(v json.RawMessage) int32 {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < 0 || f > math.MaxInt32 || f != math.Trunc(f) {
		return runlog.Unknown
	}
	return int32(f)
}

// errorMessage returns the message of an error in any of the known shapes:
// {"error":{"message":…}}, {"error":"…"}, {"object":"error","message":…}.
// The message may be empty; ok says whether there is an error at all.
func errorMessage(w wireChunk) (msg string, ok bool) {
	if w.Object == "error" {
		json.Unmarshal(w.Message, &msg)
		return msg, true
	}
	if len(w.Error) == 0 || string(w.Error) == "null" || string(w.Error) == "false" {
		return "", false
	}
	if json.Unmarshal(w.Error, &msg) == nil {
		return msg, true
	}
	var e struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	var typeErr *json.UnmarshalTypeError
	if err := json.Unmarshal(w.Error, &e); err != nil && !errors.As(err, &typeErr) || w.Error[0] != '{' {
		return clip(w.Error, 200), true
	}
	if e.Message == "" {
		return strings.TrimSpace(e.Type + " " + strings.Trim(string(e.Code), `"`)), true
	}
	return e.Message, true
}

// ErrorMessage returns what an error answer of a server says: the message
// of a JSON body in any of the known shapes, else the beginning of the body.
// It is foreign text.
func ErrorMessage(body []byte) string {
	var w wireChunk
	err := json.Unmarshal(body, &w)
	var typeErr *json.UnmarshalTypeError
	if err == nil || errors.As(err, &typeErr) {
		if msg, ok := errorMessage(w); ok && msg != "" {
			return msg
		}
	}
	return clip(bytes.TrimSpace(bytes.ToValidUTF8(body, []byte("\uFFFD"))), 300)
}

// strayBase is where stray bytes are put: the last private-use plane, which
// no tokenizer emits.
const strayBase = 0x10FE00

func escapeStray(b []byte) []byte {
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			out = utf8.AppendRune(out, strayBase+rune(b[0]))
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}

func unescapeStray(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r >= strayBase && r <= strayBase+0xFF {
			out = append(out, byte(r-strayBase))
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}
