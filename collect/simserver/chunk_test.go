package simserver

import (
	"strings"
	"testing"
)

// testShape is the request of the contract's examples.
func testShape() shape {
	return shape{chat: true, id: "chatcmpl-1", model: "m", created: 1755000000, fingerprint: "vllm-0.28.0-1a2b3c4d", prompt: 5, promptIDs: []int32{1, 2, 3, 4, 5}, blockSize: 1}
}

func with(f func(*shape)) shape {
	s := testShape()
	f(&s)
	return s
}

// TestEventBytes holds the bytes of every kind of event. The chat lines with
// usage are those of a vLLM 0.28 stream, with short ids.
func TestEventBytes(t *testing.T) {
	const head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1755000000,"model":"m","choices":[`
	const textHead = `data: {"id":"cmpl-1","object":"text_completion","created":1755000000,"model":"m","choices":[`
	usage := func(s *shape) { s.usage = true }
	continuous := func(s *shape) { s.usage, s.continuous = true, true }
	text := func(s *shape) { s.chat, s.id = false, "cmpl-1" }
	for _, tt := range []struct {
		name  string
		shape shape
		event func(e *encoder) []byte
		want  string
	}{
		{"role", testShape(),
			func(e *encoder) []byte { return e.roleChunk(nil, 0) },
			head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}`},
		{"role with continuous usage", with(continuous),
			func(e *encoder) []byte { return e.roleChunk(nil, 0) },
			head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":5,"total_tokens":5,"completion_tokens":0,"completion_tokens_details":null},"prompt_token_ids":null,"prompt_text":null}`},
		{"role with prompt ids", with(func(s *shape) { s.returnIDs = true }),
			func(e *encoder) []byte { return e.roleChunk(nil, 1) },
			head + `{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[1,2,3,4,5],"prompt_text":null}`},
		{"content", testShape(),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x")}) },
			head + `{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"content with continuous usage", with(continuous),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("Hi"), prompt: 5, completion: 1}) },
			head + `{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1,"completion_tokens_details":null}}`},
		{"content with token ids", with(func(s *shape) { s.returnIDs = true }),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x"), ids: []int32{7, 8}}) },
			head + `{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null,"token_ids":[7,8]}]}`},
		{"escapes are short and text is raw", testShape(),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("a\"b\\\n\t\x01é🙂")}) },
			head + `{"index":0,"delta":{"content":"a\"b\\\n\t\u0001é🙂"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"token without text is a chunk", testShape(),
			func(e *encoder) []byte { return e.chunk(nil, &part{}) },
			head + `{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"finish with text, fingerprint without a usage chunk", testShape(),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x"), finish: "length"}) },
			head + `{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"system_fingerprint":"vllm-0.28.0-1a2b3c4d"}`},
		{"finish without text, usage chunk follows", with(usage),
			func(e *encoder) []byte { return e.chunk(nil, &part{finish: "stop"}) },
			head + `{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}`},
		{"usage chunk", with(usage),
			func(e *encoder) []byte { return e.usageChunk(nil, 2, 0, 0) },
			head + `],"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2},"system_fingerprint":"vllm-0.28.0-1a2b3c4d"}`},
		{"usage chunk with details", with(func(s *shape) { s.usage, s.details, s.parser = true, true, true }),
			func(e *encoder) []byte { return e.usageChunk(nil, 2, 1, 4) },
			head + `],"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4,"created_cache_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}},"system_fingerprint":"vllm-0.28.0-1a2b3c4d"}`},
		{"done", testShape(),
			func(e *encoder) []byte { return e.done(nil) }, `data: [DONE]`},
		{"error event is Python's JSON", testShape(),
			func(e *encoder) []byte { return e.internalError(nil, "é \"x\" 🙂") },
			`data: {"error": {"message": "\u00e9 \"x\" \ud83d\ude42", "type": "InternalServerError", "param": null, "code": 500}}`},

		{"reasoning", with(func(s *shape) { s.parser = true }),
			func(e *encoder) []byte { return e.chunk(nil, &part{reasoning: []byte("x")}) },
			head + `{"index":0,"delta":{"reasoning":"x"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"reasoning_content", with(func(s *shape) { s.parser, s.field = true, ReasoningContent }),
			func(e *encoder) []byte { return e.chunk(nil, &part{reasoning: []byte("x")}) },
			head + `{"index":0,"delta":{"reasoning_content":"x"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"both fields", with(func(s *shape) { s.parser, s.field = true, ReasoningBoth }),
			func(e *encoder) []byte { return e.chunk(nil, &part{reasoning: []byte("x")}) },
			head + `{"index":0,"delta":{"reasoning":"x","reasoning_content":"x"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"both fields, answer", with(func(s *shape) { s.parser, s.field = true, ReasoningBoth }),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x")}) },
			head + `{"index":0,"delta":{"content":"x","reasoning_content":null},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"reasoning and answer in one delta, reasoning tokens counted", with(func(s *shape) { s.parser, s.usage, s.continuous = true, true, true }),
			func(e *encoder) []byte {
				return e.chunk(nil, &part{reasoning: []byte("a"), content: []byte("b"), prompt: 5, completion: 3, thought: 1})
			},
			head + `{"index":0,"delta":{"content":"b","reasoning":"a"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":1}}}`},
		{"control token with a parser is no chunk", with(func(s *shape) { s.parser = true }),
			func(e *encoder) []byte { return e.chunk(nil, &part{ids: []int32{9}}) }, ``},
		{"control token with a parser and token ids", with(func(s *shape) { s.parser, s.returnIDs = true, true }),
			func(e *encoder) []byte { return e.chunk(nil, &part{ids: []int32{9}}) },
			head + `{"index":0,"delta":{},"logprobs":null,"finish_reason":null,"token_ids":[9]}]}`},
		{"finish without text with a parser", with(func(s *shape) { s.parser, s.usage = true, true }),
			func(e *encoder) []byte { return e.chunk(nil, &part{finish: "stop"}) },
			head + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}`},

		{"tool call begins", with(func(s *shape) { s.tool, s.toolID = "find", "chatcmpl-tool-1" }),
			func(e *encoder) []byte { return e.chunk(nil, &part{toolHead: true}) },
			head + `{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"find","arguments":""}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"tool arguments begin", with(func(s *shape) { s.tool = "find" }),
			func(e *encoder) []byte { return e.chunk(nil, &part{toolText: 1, content: []byte("a\n")}) },
			head + `{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"text\": \"a\\n"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}`},
		{"tool arguments end", with(func(s *shape) { s.tool, s.usage = "find", true }),
			func(e *encoder) []byte {
				return e.chunk(nil, &part{toolText: 2, content: []byte("b"), finish: "tool_calls"})
			},
			head + `{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"b\"}"}}]},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null,"token_ids":null}]}`},

		{"completion, first chunk with ids", with(func(s *shape) { text(s); s.returnIDs = true }),
			func(e *encoder) []byte {
				return e.chunk(nil, &part{content: []byte("x"), promptIDs: []int32{1, 2}, ids: []int32{7}})
			},
			textHead + `{"index":0,"text":"x","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2],"token_ids":[7]}]}`},
		{"completion with continuous usage has three counts", with(func(s *shape) { text(s); continuous(s) }),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x"), prompt: 5, completion: 1}) },
			textHead + `{"index":0,"text":"x","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}`},

		{"rust, role", with(func(s *shape) { s.rust, s.fingerprint = true, "" }),
			func(e *encoder) []byte { return e.roleChunk(nil, 0) },
			head + `{"index":0,"delta":{"role":"assistant","content":""}}]}`},
		{"rust, content with continuous usage", with(func(s *shape) { s.rust, s.fingerprint = true, ""; continuous(s) }),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x"), prompt: 5, completion: 1}) },
			head + `{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}`},
		{"rust, finish", with(func(s *shape) { s.rust, s.fingerprint = true, "" }),
			func(e *encoder) []byte { return e.chunk(nil, &part{content: []byte("x"), finish: "length"}) },
			head + `{"index":0,"delta":{"content":"x"},"finish_reason":"length"}]}`},
		{"rust, error event", with(func(s *shape) { s.rust = true }),
			func(e *encoder) []byte { return e.internalError(nil, "é") },
			`data: {"error":{"message":"é","type":"server_error","code":"server_error"}}`},
		{"no space after the colon", with(func(s *shape) { s.fault.NoSpace = true }),
			func(e *encoder) []byte { return e.done(nil) }, `data:[DONE]`},
		{"comment", testShape(), func(e *encoder) []byte { return e.comment(nil) }, `: keep-alive`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want != "" {
				want += "\n\n"
			}
			if got := string(tt.event(newEncoder(tt.shape))); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			tt.shape.fault.CRLF = true
			want = strings.ReplaceAll(want, "\n", "\r\n")
			if got := string(tt.event(newEncoder(tt.shape))); got != want {
				t.Errorf("with CRLF: got\n%q\nwant\n%q", got, want)
			}
		})
	}
}

func BenchmarkChunk(b *testing.B) {
	s := testShape()
	s.usage, s.continuous = true, true
	e := newEncoder(s)
	g := newGenerator(textPlan{key: 1})
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		g.next(1)
		n++
		buf = e.chunk(buf[:0], &part{content: g.content, prompt: 5, completion: n})
	}
}
