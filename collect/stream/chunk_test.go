package stream

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

func TestDecodeChunk(t *testing.T) {
	const none = runlog.Unknown
	content := func(text string) Chunk {
		return Chunk{Choices: 1, Text: []byte(text), Channel: runlog.ChannelContent, TokenIDs: -1, PromptTokens: none, CompletionTokens: none, CachedTokens: none}
	}
	with := func(c Chunk, change func(*Chunk)) Chunk { change(&c); return c }
	empty := with(content(""), func(c *Chunk) { c.Text, c.Channel = nil, runlog.ChannelNone })
	for _, tt := range []struct {
		name, data string
		want       Chunk
	}{
		{"role and content in one", `{"choices":[{"delta":{"role":"assistant","content":"a"}}]}`, with(content("a"), func(c *Chunk) { c.Role = true })},
		{"content and finish in one", `{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`, with(content("a"), func(c *Chunk) { c.FinishReason = "length" })},
		{"several choices", `{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1]},{"index":1,"delta":{"content":"b"},"token_ids":[2,3]}]}`, with(content("ab"), func(c *Chunk) { c.Choices, c.TokenIDs = 2, 3 })},
		{"null for everything", `{"choices":[{"delta":{"role":null,"content":null,"reasoning":null,"tool_calls":null},"finish_reason":null,"token_ids":null}],"usage":null,"error":null}`, empty},
		{"nothing at all", `{}`, with(empty, func(c *Chunk) { c.Choices = 0 })},
		{"a choice and a delta that are null", `{"choices":[null,{"delta":null}]}`, with(empty, func(c *Chunk) { c.Choices = 2 })},
		{"keys of another type", `{"choices":[{"delta":{"content":5,"reasoning":["x"],"role":{}},"finish_reason":1,"token_ids":"x"}],"usage":[1]}`, empty},
		{"the last of two equal keys", `{"choices":[{"delta":{"content":"a","content":"b"}}]}`, content("b")},
		{"blanks and line breaks between tokens", "\n{ \"choices\" :\t[ { \"delta\": {\"content\" : \" a \"} } ] }\r\n", content(" a ")},
		{"escapes", `{"choices":[{"delta":{"content":"\u4e2d\n\"\\\ud83d\ude00\u0000"}}]}`, content("中\n\"\\😀\x00")},
		{"half a surrogate pair", `{"choices":[{"delta":{"content":"a\ud83d"}}]}`, content("a\uFFFD")},
		{"bytes that are no UTF-8", "{\"choices\":[{\"delta\":{\"content\":\"a\xe4\xb8\"}}]}", content("a\xe4\xb8")},
		{"counts that are none", `{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":2.5,"prompt_tokens_details":{"cached_tokens":2147483648}}}`, with(empty, func(c *Chunk) { c.Choices = 0 })},
		{"a count in quotes", `{"choices":[],"usage":{"prompt_tokens":"7","completion_tokens":"x"}}`, with(empty, func(c *Chunk) { c.Choices = 0 })},
		{"numbers beyond any float", `{"choices":[],"usage":{"prompt_tokens":1e999,"completion_tokens":3}}`, with(empty, func(c *Chunk) { c.Choices, c.CompletionTokens = 0, 3 })},
		{"a count written as a float", `{"choices":[],"usage":{"prompt_tokens":7.0,"completion_tokens":3e0}}`, with(empty, func(c *Chunk) { c.Choices, c.PromptTokens, c.CompletionTokens = 0, 7, 3 })},
		{"nesting that nobody needs, in a key that nobody reads", `{"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"choices":[{"delta":{"content":"a"}}]}`, content("a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DecodeChunk([]byte(tt.data))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("DecodeChunk = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	for _, data := range []string{
		``, ` `, `5`, `"x"`, `[]`, `[{"choices":[]}]`, `{"choices":[`, `{"choices":[]}}`, `{"choices":[]} {}`, "{\"a\":\"\n\"}", `[DONE]`,
		strings.Repeat(`{"x":`, 1e6) + "1" + strings.Repeat("}", 1e6), // deeper than the decoder goes
	} {
		if c, err := DecodeChunk([]byte(data)); err == nil || !strings.HasPrefix(err.Error(), "event is not a JSON object: ") || len(err.Error()) > 400 {
			t.Errorf("DecodeChunk(%.40q) = %+v, %v, want a short error", data, c, err)
		}
	}
}

func TestErrorMessage(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"too long","code":400}}`:           "too long",
		`{"error":"Unauthorized"}`:                              "Unauthorized",
		`{"object":"error","message":"flat","code":400}`:        "flat",
		`{"error":{"message":"","type":"InternalServerError"}}`: "InternalServerError",
		`{"detail":"something else"}`:                           `{"detail":"something else"}`,
		"<html>bad gateway</html>\n":                            "<html>bad gateway</html>",
		"":                                                      "",
		`{"error":{"message":"x","param":null,"code":"bad","type":1}}`: "x",
	} {
		if got := ErrorMessage([]byte(body)); got != want {
			t.Errorf("ErrorMessage(%q) = %q, want %q", body, got, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	p99, maximum, n := h.Take()
	if n != 1000 || maximum != time.Millisecond {
		t.Errorf("n = %d, max = %v, want 1000 and 1ms", n, maximum)
	}
	if want := 990 * time.Microsecond; p99 < want || p99 > want+want/8 {
		t.Errorf("p99 = %v, want within an eighth above %v", p99, want)
	}
	if _, _, n := h.Take(); n != 0 {
		t.Errorf("n after Take = %d, want 0", n)
	}
	for d := time.Duration(0); d < time.Hour; d = d*5/4 + 1 {
		if b := bucket(d); upper(b) < d || (b > 0 && upper(b-1) >= d) {
			t.Errorf("bucket(%d) = %d, which holds %d … %d", d, b, upper(b-1)+1, upper(b))
		}
	}
}
