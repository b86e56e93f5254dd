package simserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// fast makes everything quick enough for tests.
func fast(cfg Config) Config {
	if cfg.Seed == 0 {
		cfg.Seed = 1
	}
	cfg.Speed = 100
	return cfg
}

// start serves cfg over real HTTP.
func start(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	t.Cleanup(ts.Close)
	t.Cleanup(ts.CloseClientConnections)
	return srv, ts.URL
}

const chatBody = `{"model":"simulated","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},` +
	`"max_tokens":20,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me about the sea."}]}`

// post sends body to a path; fault may be empty.
func post(t *testing.T, ctx context.Context, url, body, fault string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if fault != "" {
		req.Header.Set(FaultHeader, fault)
	}
	return http.DefaultClient.Do(req)
}

// fetch returns status and body of a post.
func fetch(t *testing.T, url, body, fault string) (int, string, error) {
	t.Helper()
	resp, err := post(t, t.Context(), url, body, fault)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// A chunkJSON is what these tests read of a chunk.
type chunkJSON struct {
	ID      string
	Choices []struct {
		Index int
		Text  string
		Delta struct {
			Role      string
			Content   string
			Reasoning string
			ToolCalls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason string  `json:"finish_reason"`
		TokenIDs     []int32 `json:"token_ids"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
	Error *struct{ Message string }
}

// A streamed is a stream as a plain client sees it.
type streamed struct {
	chunks             []chunkJSON
	reasoning, content string
	tool, arguments    string
	finish             string
	ids                []int32
	usage              []int // completion_tokens of each chunk that has it
	prompt             int
	done               bool
	errMessage         *string
	raw                string
	err                error
}

func readStream(t *testing.T, url, body, fault string) streamed {
	t.Helper()
	_, raw, err := fetch(t, url, body, fault)
	return parseStream(t, raw, err)
}

func parseStream(t *testing.T, raw string, err error) streamed {
	t.Helper()
	s := streamed{raw: raw, err: err}
	sc := bufio.NewScanner(strings.NewReader(raw))
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		line := strings.TrimSuffix(sc.Text(), "\r")
		data, ok := strings.CutPrefix(line, "data:")
		if !ok {
			continue
		}
		data = strings.TrimPrefix(data, " ")
		if data == "[DONE]" {
			s.done = true
			continue
		}
		var c chunkJSON
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		s.chunks = append(s.chunks, c)
		if c.Error != nil {
			s.errMessage = &c.Error.Message
		}
		for _, ch := range c.Choices {
			s.reasoning += ch.Delta.Reasoning
			s.content += ch.Delta.Content + ch.Text
			for _, tc := range ch.Delta.ToolCalls {
				s.tool += tc.Function.Name
				s.arguments += tc.Function.Arguments
			}
			if ch.FinishReason != "" {
				s.finish = ch.FinishReason
			}
			s.ids = append(s.ids, ch.TokenIDs...)
		}
		if c.Usage != nil {
			s.usage = append(s.usage, c.Usage.CompletionTokens)
			s.prompt = c.Usage.PromptTokens
		}
	}
	return s
}

// total is the last completion_tokens.
func (s streamed) total() int {
	if len(s.usage) == 0 {
		return -1
	}
	return s.usage[len(s.usage)-1]
}

func TestChatStream(t *testing.T) {
	_, url := start(t, fast(Config{}))
	s := readStream(t, url+"/v1/chat/completions", chatBody, "")
	if s.err != nil || !s.done || s.finish != "length" || s.errMessage != nil {
		t.Fatalf("got err %v, done %v, finish %q, want a whole stream", s.err, s.done, s.finish)
	}
	if got := fmt.Sprint(s.usage); got != "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 20]" {
		t.Errorf("usage is %s, want one more per chunk and the sum at the end", got)
	}
	if s.chunks[0].Choices[0].Delta.Role != "assistant" || len(s.chunks) != 22 {
		t.Errorf("got %d chunks, the first %+v; want 22, a role first", len(s.chunks), s.chunks[0])
	}
	again := readStream(t, url+"/v1/chat/completions", chatBody, "")
	if again.content != s.content || s.content == "" {
		t.Errorf("the same request gives %q and %q", s.content, again.content)
	}
	other := readStream(t, url+"/v1/chat/completions", strings.Replace(chatBody, `"max_tokens"`, `"seed":5,"max_tokens"`, 1), "")
	if other.content == s.content {
		t.Error("another seed in the request gives the same text")
	}
}

func TestUsageOptions(t *testing.T) {
	body := func(options string) string {
		return `{"stream":true,"max_tokens":3,"messages":[{"role":"user","content":"x"}]` + options + `}`
	}
	for _, tt := range []struct {
		name, options string
		byDefault     bool
		want          string
	}{
		{"none", ``, false, "[]"},
		{"final", `,"stream_options":{"include_usage":true}`, false, "[3]"},
		{"continuous", `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, false, "[0 1 2 3 3]"},
		{"continuous alone counts for nothing", `,"stream_options":{"continuous_usage_stats":true}`, false, "[]"},
		{"old default", `,"stream_options":{"continuous_usage_stats":true}`, true, "[0 1 2 3 3]"},
		{"old default, no options", ``, true, "[]"},
	} {
		_, url := start(t, fast(Config{UsageByDefault: tt.byDefault}))
		s := readStream(t, url+"/v1/chat/completions", body(tt.options), "")
		if got := fmt.Sprint(s.usage); got != tt.want || !s.done {
			t.Errorf("%s: usage %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestCompletions(t *testing.T) {
	_, url := start(t, fast(Config{}))
	s := readStream(t, url+"/v1/completions", `{"prompt":"The sea","stream":true,"return_token_ids":true}`, "")
	if len(s.ids) != 16 || s.finish != "length" || !s.done {
		t.Errorf("got %d tokens and %q, want the default of 16", len(s.ids), s.finish)
	}
	if got := detokenize(s.ids); got != s.content {
		t.Errorf("token ids give %q, text is %q", got, s.content)
	}
	ids := readStream(t, url+"/v1/completions", fmt.Sprintf(`{"prompt":%s,"stream":true}`, strings.ReplaceAll(fmt.Sprint(appendTokens([]int32{tokenBOS}, "The sea")), " ", ",")), "")
	if ids.content != s.content {
		t.Errorf("a prompt of token ids gives %q, its text %q", ids.content, s.content)
	}

	s = readStream(t, url+"/v1/completions", `{"prompt":["a","b"],"n":2,"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, "")
	seen := map[int]int{}
	for _, c := range s.chunks {
		for _, ch := range c.Choices {
			seen[ch.Index]++
		}
	}
	if fmt.Sprint(seen) != "map[0:5 1:5 2:5 3:5]" || s.total() != 20 {
		t.Errorf("got chunks by index %v and %d tokens, want 5 of each of 4 and 20", seen, s.total())
	}
}

func TestWholeAnswers(t *testing.T) {
	_, url := start(t, fast(Config{CachedTokens: true, ReasoningTokens: 4}))
	streamedBody := `{"stream":true,"max_tokens":12,"messages":[{"role":"user","content":"x"}]}`
	s := readStream(t, url+"/v1/chat/completions", streamedBody, "")
	status, body, err := fetch(t, url+"/v1/chat/completions", strings.Replace(streamedBody, `"stream":true,`, "", 1), "")
	if err != nil || status != 200 {
		t.Fatalf("got %d, %v", status, err)
	}
	var a struct {
		Object  string
		Choices []struct {
			Message      struct{ Content, Reasoning string }
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if m := a.Choices[0].Message; m.Content != s.content || m.Reasoning != s.reasoning || m.Reasoning == "" {
		t.Errorf("got %+v, the stream had %q and %q", m, s.content, s.reasoning)
	}
	if a.Usage.CompletionTokens != 12 || a.Choices[0].FinishReason != "length" || a.Object != "chat.completion" {
		t.Errorf("got %+v", a)
	}
	if !strings.Contains(body, `"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0,"multimodal_tokens":null},"completion_tokens_details":{"reasoning_tokens":4}}`) {
		t.Errorf("usage of %s lacks its details", body)
	}
	status, body, err = fetch(t, url+"/v1/completions", `{"prompt":"x","max_tokens":3}`, "")
	if err != nil || status != 200 || !strings.Contains(body, `"object":"text_completion"`) || !strings.Contains(body, `"completion_tokens":3,`) {
		t.Errorf("got %d %s %v", status, body, err)
	}
}

func TestReasoningStream(t *testing.T) {
	_, url := start(t, fast(Config{ReasoningTokens: 8, DraftTokens: 3, AcceptedMean: 2.5, NonASCII: 0.3}))
	s := readStream(t, url+"/v1/chat/completions", chatBody, "")
	if s.reasoning == "" || s.content == "" || s.total() != 20 || !s.done {
		t.Errorf("got %q, then %q, %d tokens; want both and 20", s.reasoning, s.content, s.total())
	}
	if !strings.Contains(s.raw, `"completion_tokens_details":{"reasoning_tokens":8}`) {
		t.Error("usage lacks the number of reasoning tokens")
	}
	withIDs := readStream(t, url+"/v1/chat/completions", strings.Replace(chatBody, `"stream":true`, `"stream":true,"return_token_ids":true`, 1), "")
	if len(withIDs.ids) != 20 {
		t.Errorf("got %d token ids, want 20: with them no chunk is left out", len(withIDs.ids))
	}
}

func TestToolCall(t *testing.T) {
	_, url := start(t, fast(Config{ToolCalls: true, AnswerTokens: 30}))
	body := `{"stream":true,"max_tokens":200,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"find"}}]}`
	s := readStream(t, url+"/v1/chat/completions", body, "")
	var args struct{ Text string }
	if err := json.Unmarshal([]byte(s.arguments), &args); err != nil || args.Text == "" {
		t.Errorf("arguments %q: %v", s.arguments, err)
	}
	if s.tool != "find" || s.finish != "tool_calls" || s.content != "" {
		t.Errorf("got tool %q, finish %q, content %q", s.tool, s.finish, s.content)
	}
	s = readStream(t, url+"/v1/chat/completions", strings.Replace(body, `"tools"`, `"tool_choice":"none","tools"`, 1), "")
	if s.tool != "" || s.content == "" || s.finish != "stop" {
		t.Errorf("with tool_choice none: got tool %q, finish %q", s.tool, s.finish)
	}
	_, whole, _ := fetch(t, url+"/v1/chat/completions", strings.Replace(body, `"stream":true,`, "", 1), "")
	if !strings.Contains(whole, `"content":null,`) || !strings.Contains(whole, `"finish_reason":"tool_calls"`) {
		t.Errorf("the whole answer is %s", whole)
	}
}

func TestTokenizeAgreesWithUsage(t *testing.T) {
	_, url := start(t, fast(Config{}))
	count := func(body string) (n int, tokens []int32) {
		status, b, err := fetch(t, url+"/tokenize", body, "")
		var r struct {
			Count       int
			MaxModelLen int `json:"max_model_len"`
			Tokens      []int32
		}
		if err := errors.Join(err, json.Unmarshal([]byte(b), &r)); err != nil || status != 200 || r.Count != len(r.Tokens) || r.MaxModelLen != 131072 {
			t.Fatalf("tokenize: %d %s %v", status, b, err)
		}
		return r.Count, r.Tokens
	}
	for _, messages := range []string{
		`[{"role":"user","content":"Tell me about the sea."}]`,
		`[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Tell "},{"type":"text","text":"me"}]}]`,
		`[{"role":"user","content":""},{"role":"assistant","content":"Yes?"},{"role":"user","content":"ünïcödé 🙂"}]`,
	} {
		n, _ := count(`{"messages":` + messages + `}`)
		s := readStream(t, url+"/v1/chat/completions", `{"stream":true,"max_tokens":1,"stream_options":{"include_usage":true},"messages":`+messages+`}`, "")
		if s.prompt != n {
			t.Errorf("%s: /tokenize counts %d, usage %d", messages, n, s.prompt)
		}
		if bare, _ := count(`{"add_generation_prompt":false,"messages":` + messages + `}`); bare >= n {
			t.Errorf("%s: %d tokens without the generation prompt, %d with it", messages, bare, n)
		}
	}
	with, ids := count(`{"prompt":"The sea, the sea"}`)
	without, _ := count(`{"prompt":"The sea, the sea","add_special_tokens":false}`)
	if with != without+1 {
		t.Errorf("%d tokens with and %d without special ones, want one more", with, without)
	}
	if s := readStream(t, url+"/v1/completions", `{"prompt":"The sea, the sea","stream":true,"max_tokens":1,"stream_options":{"include_usage":true}}`, ""); s.prompt != with {
		t.Errorf("/tokenize counts %d, usage of a completion %d", with, s.prompt)
	}
	_, back, err := fetch(t, url+"/detokenize", `{"tokens":`+strings.ReplaceAll(fmt.Sprint(ids), " ", ",")+`}`, "")
	if err != nil || back != `{"prompt":"The sea, the sea"}` {
		t.Errorf("detokenize: got %s, %v", back, err)
	}
}

func TestRefusals(t *testing.T) {
	_, url := start(t, fast(Config{MaxModelLen: 100}))
	_, strict := start(t, fast(Config{MaxModelLen: 100, StrictLength: true}))
	chat := url + "/v1/chat/completions"
	long := strings.Repeat("sea ", 200)
	for _, tt := range []struct {
		name, url, body, fault string
		status                 int
		want                   string
	}{
		{"context too long", chat, `{"max_tokens":30,"messages":[{"role":"user","content":"` + long + `"}]}`, "", 400,
			`{"error":{"message":"This model's maximum context length is 100 tokens. However, your prompt contains at least 101 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=101)","type":"BadRequestError","param":"input_tokens","code":400}}`},
		{"context far too long", chat, `{"messages":[{"role":"user","content":"` + strings.Repeat(long, 5) + `"}]}`, "", 400, `(more than 500 characters, which is the upper bound for 100 input tokens)`},
		{"context fills the window", url + "/v1/completions", `{"max_tokens":1,"prompt":[1` + strings.Repeat(",1", 99) + `]}`, "", 400,
			`{"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)","type":"BadRequestError","param":"max_tokens","code":400}}`},
		{"context too long, older", strict + "/v1/chat/completions", `{"max_tokens":30,"messages":[{"role":"user","content":"` + long + `"}]}`, "", 400,
			`{"error":{"message":"This model's maximum context length is 100 tokens. However, you requested 30 output tokens and your prompt contains at least 71 input tokens, for a total of at least 101 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=71)","type":"BadRequestError","param":"input_tokens","code":400}}`},
		{"max_tokens too large", chat, `{"max_tokens":300,"messages":[{"role":"user","content":"x"}]}`, "", 400, `max_tokens=300 cannot be greater than max_model_len=100`},
		{"max_tokens zero", chat, `{"max_tokens":0,"messages":[{"role":"user","content":"x"}]}`, "", 400, `max_tokens must be at least 1`},
		{"min over max", chat, `{"max_tokens":3,"min_tokens":4,"messages":[{"role":"user","content":"x"}]}`, "", 400,
			`{"error":{"message":"min_tokens must be less than or equal to max_tokens=3, got 4.","type":"BadRequestError","param":null,"code":400}}`},
		{"unknown model", chat, `{"model":"x","messages":[{"role":"user","content":"x"}]}`, "", 404,
			"{\"error\":{\"message\":\"The model `x` does not exist. Valid aliases: simulated.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
		{"no messages", chat, `{}`, "", 400, `"param":"body.messages"`},
		{"not JSON", chat, `{`, "", 400, `"type":"Bad Request"`},
		{"wrong type", chat, `{"max_tokens":"x"}`, "", 400, `"param":"body.max_tokens"`},
		{"stream_options without stream", chat, `{"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"x"}]}`, "", 400, "Stream options can only be defined when `stream=True`."},
		{"logprobs", chat, `{"logprobs":true,"messages":[{"role":"user","content":"x"}]}`, "", 400, `not simulated`},
		{"unknown token, not streamed", url + "/v1/completions", `{"prompt":[1,-1]}`, "", 400, `Token id -1 is out of vocabulary`},
		{"empty prompt", url + "/v1/completions", `{"prompt":""}`, "", 400, `must be provided and non-empty`},
		{"one empty prompt of two", url + "/v1/completions", `{"prompt":[[1],[]]}`, "", 400, `must be provided and non-empty`},
		{"too many outputs", url + "/v1/completions", `{"n":100,"prompt":["x"` + strings.Repeat(`,"x"`, 50) + `]}`, "", 400, `5100 outputs are too many`},
		{"unknown route", url + "/v1/nothing", `{}`, "", 404, `{"detail":"Not Found"}`},
		{"dev route", url + "/reset_prefix_cache", `{}`, "", 404, `Not Found`},
		{"wrong method", url + "/v1/models", `{}`, "", 405, `{"detail":"Method Not Allowed"}`},
		{"unknown fault", chat, chatBody, "explode", 400, `fault \"explode\" is unknown`},
		{"ignore_eos rejected", chat, chatBody, "reject-ignore-eos", 400, `'type': 'extra_forbidden', 'loc': 'body.ignore_eos'`},
		{"status, object", chat, chatBody, "status=503", 503, `{"error":{"message":`},
		{"status, flat", chat, chatBody, "status=500,body=flat", 500, `{"object":"error","message":`},
		{"status, string", chat, chatBody, "status=503,body=string", 503, `{"error":"a fault was asked for"}`},
		{"status, page", chat, chatBody, "status=502,body=html", 502, `<h1>502 Bad Gateway</h1>`},
	} {
		status, body, err := fetch(t, tt.url, tt.body, tt.fault)
		if err != nil || status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: got %d %s %v, want %d with %s", tt.name, status, body, err, tt.status, tt.want)
		}
	}
	if status, body, err := fetch(t, chat, chatBody, "status=500,body=empty"); status != 500 || body != "" || err != nil {
		t.Errorf("empty body: got %d %q %v", status, body, err)
	}
	resp, err := http.Post(chat, "text/plain", strings.NewReader(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("a body that is not declared as JSON: got %d, want 400", resp.StatusCode)
	}

	_, rust := start(t, fast(Config{Frontend: Rust}))
	if _, body, _ := fetch(t, rust+"/v1/chat/completions", `{"model":"x","messages":[]}`, ""); !strings.Contains(body, `"type":"invalid_request_error","code":"model_not_found"`) {
		t.Errorf("rust: got %s, want string codes", body)
	}
}

func TestAPIKey(t *testing.T) {
	_, url := start(t, fast(Config{APIKey: "secret"}))
	for _, tt := range []struct {
		path, header string
		status       int
	}{
		{"/v1/models", "", 401},
		{"/v1/models", "Bearer wrong", 401},
		{"/v1/models", "Bearer secret", 200},
		{"/metrics", "", 200},
		{"/health", "", 200},
		{"/version", "", 200},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+tt.path, nil)
		req.Header.Set("Authorization", tt.header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || tt.status == 401 && string(body) != `{"error":"Unauthorized"}` {
			t.Errorf("%s with %q: got %d %s, want %d", tt.path, tt.header, resp.StatusCode, body, tt.status)
		}
	}
}

func TestStreamFaults(t *testing.T) {
	_, url := start(t, fast(Config{AnswerTokens: 10, NonASCII: 0.9}))
	chat := url + "/v1/chat/completions"
	empty, internal := "", "Internal server error"
	for _, tt := range []struct {
		fault   string
		chunks  int // with tokens that arrive
		broken  bool
		done    bool
		message *string
		finish  string
	}{
		{"error-after=3", 3, false, true, &internal, ""},
		{"error-after=0", 0, false, true, &internal, ""},
		{"empty-error-after=2", 2, false, true, &empty, ""},
		{"truncate-after=4", 4, false, false, nil, ""},
		{"close-after=5", 5, true, false, nil, ""},
		{"close-after=0", 0, true, false, nil, ""},
		{"reset-after=5", -1, true, false, nil, ""},
		{"abort-after=3", 3, false, true, nil, "abort"},
		{"none", 20, false, true, nil, "length"},
		{"crlf", 20, false, true, nil, "length"},
		{"no-space", 20, false, true, nil, "length"},
		{"dribble=3", 20, false, true, nil, "length"},
		{"stall=2:5ms", 20, false, true, nil, "length"},
	} {
		s := readStream(t, chat, chatBody, tt.fault)
		got := 0
		for _, n := range s.usage {
			got = max(got, n)
		}
		// A reset can destroy what was sent before it.
		if tt.chunks >= 0 && got != tt.chunks {
			t.Errorf("%s: got %d tokens, want %d", tt.fault, got, tt.chunks)
		}
		if (s.err != nil) != tt.broken || s.done != tt.done || s.finish != tt.finish {
			t.Errorf("%s: got err %v, done %v, finish %q; want broken %v, done %v, finish %q", tt.fault, s.err, s.done, s.finish, tt.broken, tt.done, tt.finish)
		}
		if (s.errMessage == nil) != (tt.message == nil) || s.errMessage != nil && *s.errMessage != *tt.message {
			t.Errorf("%s: got error event %v, want %v", tt.fault, s.errMessage, tt.message)
		}
		if crlf := strings.Contains(s.raw, "\r\n"); crlf != (tt.fault == "crlf") {
			t.Errorf("%s: CRLF is %v", tt.fault, crlf)
		}
	}
	for _, fault := range []string{"close-before", "reset-before"} {
		if status, _, err := fetch(t, chat, chatBody, fault); err == nil {
			t.Errorf("%s: got status %d, want no answer", fault, status)
		}
	}
	if s := readStream(t, chat, chatBody, "split-utf8"); utf8.ValidString(s.raw) {
		t.Error("split-utf8: the stream is valid UTF-8")
	}
	if s := readStream(t, chat, chatBody, "ignore-ignore-eos"); s.finish != "stop" || s.total() >= 20 {
		t.Errorf("ignore-ignore-eos: got %q after %d tokens, want stop", s.finish, s.total())
	}
	for fault, want := range map[string]string{
		"usage=none":   "[]",
		"usage=final":  "[4]",
		"usage=deltas": "[0 1 1 1 1 4]",
		"usage=wrong":  "[0 1 2 3 4 11]",
	} {
		if s := readStream(t, chat, strings.Replace(chatBody, `"max_tokens":20`, `"max_tokens":4`, 1), fault); fmt.Sprint(s.usage) != want {
			t.Errorf("%s: got usage %v, want %s", fault, s.usage, want)
		}
	}
}

func TestUsageCountsChunks(t *testing.T) {
	_, url := start(t, fast(Config{StreamInterval: 5}))
	if s := readStream(t, url+"/v1/chat/completions", chatBody, "usage=chunks"); fmt.Sprint(s.usage) != "[0 1 2 3 4 5 5]" {
		t.Errorf("got usage %v, want chunks counted", s.usage)
	}
}

func TestIgnoreMaxTokens(t *testing.T) {
	_, url := start(t, fast(Config{MaxModelLen: 60}))
	s := readStream(t, url+"/v1/chat/completions", chatBody, "ignore-max-tokens")
	if s.total() != 60-s.prompt || s.finish != "length" {
		t.Errorf("got %d tokens after a prompt of %d, want all of 60", s.total(), s.prompt)
	}
}

func TestFaultEvery(t *testing.T) {
	_, url := start(t, fast(Config{Fault: Fault{Status: 500, Every: 3}}))
	var got []int
	for range 6 {
		status, _, err := fetch(t, url+"/v1/chat/completions", chatBody, "")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, status)
	}
	if fmt.Sprint(got) != "[200 200 500 200 200 500]" {
		t.Errorf("got %v, want each third request to fail", got)
	}
	if status, _, _ := fetch(t, url+"/v1/chat/completions", chatBody, "status=501"); status != 501 {
		t.Errorf("got %d, want the header's fault to win", status)
	}
}

func TestHangs(t *testing.T) {
	srv, url := start(t, fast(Config{}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if resp, err := post(t, ctx, url+"/v1/chat/completions", chatBody, "hang-before"); err == nil {
		resp.Body.Close()
		t.Error("hang-before: got an answer")
	}
	for fault, lines := range map[string]int{"hang-after=0": 0, "hang-after=3": 4} { // the role and three chunks
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := post(t, ctx, url+"/v1/chat/completions", chatBody, fault)
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		for range 2 * lines {
			if line, err := r.ReadString('\n'); err != nil {
				t.Fatalf("%s: got %q, %v", fault, line, err)
			}
		}
		if n := r.Buffered(); n > 0 {
			t.Errorf("%s: %d more bytes came", fault, n)
		}
		cancel()
		resp.Body.Close()
		waitIdle(t, srv)
	}
}

// waitIdle waits until the engine has nothing to do.
func waitIdle(t *testing.T, srv *Server) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if r, w := srv.Running(); r+w == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the engine does not become idle")
		}
	}
}

func TestHeadersComeBeforePrefill(t *testing.T) {
	srv, url := start(t, Config{PrefillSpeed: 0.001}) // hours
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := post(t, ctx, url+"/v1/chat/completions", chatBody, "")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("got %v, %v; want headers", resp, err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
		t.Errorf("Content-Type is %q", ct)
	}
	for { // the request is submitted just after the headers
		if r, _ := srv.Running(); r == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

func TestKeepAliveComments(t *testing.T) {
	_, url := start(t, Config{PrefillSpeed: 0.001})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := post(t, ctx, url+"/v1/chat/completions", chatBody, "keep-alive=1ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for range 3 {
		if line, err := r.ReadString('\n'); err != nil || line != ": keep-alive\n" {
			t.Fatalf("got %q, %v; want a comment", line, err)
		}
		if line, err := r.ReadString('\n'); err != nil || line != "\n" {
			t.Fatalf("got %q, %v; want a blank line", line, err)
		}
	}
}

func TestDisconnectFreesTheSlot(t *testing.T) {
	srv, url := start(t, fast(Config{}))
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := post(t, ctx, url+"/v1/chat/completions", strings.Replace(chatBody, `"max_tokens":20`, `"max_tokens":100000`, 1), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	waitIdle(t, srv)
	m := scrape(t, url)
	if got := m.sum("vllm:request_success_total"); got != 0 {
		t.Errorf("%v requests counted as finished, want none", got)
	}
	if got := m.sum("vllm:generation_tokens_total"); got < 2 {
		t.Errorf("%v tokens counted, want those of the aborted request", got)
	}
}

func TestEngineDeath(t *testing.T) {
	cfg := fast(Config{DeathGrace: 50 * time.Millisecond})
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(t.Context(), l) }()
	url := "http://" + l.Addr().String()

	other, err := post(t, t.Context(), url+"/v1/chat/completions", strings.Replace(chatBody, `"max_tokens":20`, `"max_tokens":100000`, 1), "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Body.Close()
	dying := readStream(t, url+"/v1/chat/completions", chatBody, "die-after=4")
	b, err := io.ReadAll(other.Body)
	victim := parseStream(t, string(b), err)
	for name, s := range map[string]streamed{"the one that killed it": dying, "another": victim} {
		if s.errMessage == nil || *s.errMessage != deadMessage || !s.done {
			t.Errorf("%s: got error %v, done %v; want the dead engine's message and [DONE]", name, s.errMessage, s.done)
		}
	}
	if err := <-served; !errors.Is(err, ErrDied) {
		t.Errorf("Serve returned %v, want ErrDied", err)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("connections are accepted after the death")
	}
}

func TestHealthAfterDeath(t *testing.T) {
	srv, url := start(t, fast(Config{}))
	status := func() int {
		resp, err := http.Get(url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(); got != 200 {
		t.Errorf("alive: got %d, want 200", got)
	}
	srv.Kill()
	srv.Kill()
	if got := status(); got != 503 {
		t.Errorf("dead: got %d, want 503", got)
	}
	if got, body, _ := fetch(t, url+"/v1/chat/completions", chatBody, ""); got != 500 || !strings.Contains(body, deadMessage) {
		t.Errorf("dead: a request got %d %s, want 500", got, body)
	}
}

func TestServeStopsAndClosesIdleConnections(t *testing.T) {
	srv, err := New(fast(Config{IdleTimeout: 30 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
	all, err := io.ReadAll(c) // ends when the server closes
	if err != nil || !bytes.HasSuffix(all, []byte(`{"version":"0.32.0"}`)) {
		t.Errorf("got %q, %v; want an answer and then the end", all, err)
	}

	resp, err := post(t, t.Context(), "http://"+l.Addr().String()+"/v1/chat/completions", strings.Replace(chatBody, `"max_tokens":20`, `"max_tokens":100000`, 1), "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	b, err := io.ReadAll(resp.Body)
	if s := parseStream(t, string(b), err); s.finish != "abort" || !s.done || s.err != nil {
		t.Errorf("a running request got finish %q, done %v, %v; want abort", s.finish, s.done, s.err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve returned %v, want nil", err)
	}
}

// A scraped is a parsed /metrics page.
type scraped map[string]*dto.MetricFamily

func scrape(t *testing.T, url string) scraped {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p := expfmt.NewTextParser(model.LegacyValidation)
	m, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("parse /metrics: %v", err)
	}
	return m
}

// sum adds a family's series; a histogram counts with its observations.
func (m scraped) sum(name string) float64 {
	if m[name] == nil {
		return -1
	}
	sum := 0.0
	for _, s := range m[name].Metric {
		sum += s.GetGauge().GetValue() + s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
	}
	return sum
}

func TestMetricsAgreeWithTheRequests(t *testing.T) {
	srv, url := start(t, fast(Config{Engines: 2, DraftTokens: 2}))
	var wg sync.WaitGroup
	var mu sync.Mutex
	prompt, output := 0, 0
	for i := range 8 {
		wg.Go(func() {
			s := readStream(t, url+"/v1/chat/completions", strings.Replace(chatBody, "the sea", fmt.Sprint("number ", i/2), 1), "")
			mu.Lock()
			defer mu.Unlock()
			prompt, output = prompt+s.prompt, output+s.total()
		})
	}
	wg.Wait()
	waitIdle(t, srv)
	m := scrape(t, url)
	for name, want := range map[string]float64{
		"vllm:generation_tokens_total":               float64(output),
		"vllm:prompt_tokens_total":                   float64(prompt),
		"vllm:prompt_tokens_by_source_total":         float64(prompt),
		"vllm:prefix_cache_queries_total":            float64(prompt),
		"vllm:prefix_cache_hits_total":               m.sum("vllm:prompt_tokens_cached_total"),
		"vllm:request_success_total":                 8,
		"vllm:num_requests_running":                  0,
		"vllm:num_requests_waiting":                  0,
		"vllm:kv_cache_usage_perc":                   0,
		"vllm:num_preemptions_total":                 0,
		"vllm:time_to_first_token_seconds":           8,
		"vllm:e2e_request_latency_seconds":           8,
		"vllm:inter_token_latency_seconds":           m.sum("vllm:spec_decode_num_drafts_total"),
		"vllm:spec_decode_num_draft_tokens_total":    2 * m.sum("vllm:spec_decode_num_drafts_total"),
		"vllm:spec_decode_num_accepted_tokens_total": float64(output-8) - m.sum("vllm:spec_decode_num_drafts_total"),
		"vllm:cache_config_info":                     2,
	} {
		if got := m.sum(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if n := len(m["vllm:num_requests_running"].Metric); n != 2 {
		t.Errorf("got %d series, want one per engine", n)
	}
	if got := m["vllm:iteration_tokens_total"].GetType(); got != dto.MetricType_HISTOGRAM {
		t.Errorf("iteration_tokens_total is a %v, want a histogram", got)
	}
}

func TestMetricsModes(t *testing.T) {
	const newName, oldName = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
	for _, tt := range []struct {
		mode     MetricsMode
		new, old bool
	}{{MetricsNew, true, false}, {MetricsOld, false, true}, {MetricsBoth, true, true}} {
		_, url := start(t, fast(Config{Metrics: tt.mode}))
		m := scrape(t, url)
		if (m[newName] != nil) != tt.new || (m[oldName] != nil) != tt.old {
			t.Errorf("mode %d: new names %v, old names %v; want %v, %v", tt.mode, m[newName] != nil, m[oldName] != nil, tt.new, tt.old)
		}
	}
	for mode, want := range map[MetricsMode]string{MetricsEmpty: "200 ", MetricsHTML: "200 <!doctype html>", MetricsNone: "404 {\"detail\""} {
		_, url := start(t, fast(Config{Metrics: mode}))
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, b); !strings.HasPrefix(got, want) || mode == MetricsEmpty && got != want {
			t.Errorf("mode %d: got %s, want %s", mode, got, want)
		}
	}
	_, url := start(t, fast(Config{Metrics: MetricsHang}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Error("mode hang: got an answer")
	}
}

func TestCacheConfigInfo(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{KVCacheTokens: 661 * 16, MaxModelLen: 4096, Engines: 2},
			`vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="1",gpu_memory_utilization="0.92",kv_cache_max_concurrency="2.58203125",kv_cache_memory_bytes="None",kv_cache_size_tokens="10576",mamba_block_size="None",num_gpu_blocks="1322",num_gpu_blocks_override="None",prefix_caching_hash_algo="sha256",sliding_window="None"} 1.0`},
		{Config{NoCacheSize: true, NoPrefixCache: true},
			`vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="False",engine="0",gpu_memory_utilization="0.92",kv_cache_memory_bytes="None",mamba_block_size="None",num_gpu_blocks="32768",num_gpu_blocks_override="None",prefix_caching_hash_algo="sha256",sliding_window="None"} 1.0`},
	} {
		srv, err := New(tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		srv.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if !strings.Contains(rec.Body.String(), tt.want+"\n") {
			t.Errorf("got\n%s\nwant in it\n%s", rec.Body.String(), tt.want)
		}
	}
}

func TestPythonFloat(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", 999999: "999999.0", 1000000: "1e+06", 98000000: "9.8e+07", 1234567: "1.234567e+06",
		12345678901: "1.2345678901e+010", 0.25: "0.25", 0.001: "0.001", 1e-5: "1e-05", 1755700000.5: "1.7557000005e+09",
	} {
		if got := pythonFloat(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

func TestModels(t *testing.T) {
	_, url := start(t, fast(Config{Model: "org/small \"x\"", MaxModelLen: 4096}))
	resp, err := http.Get(url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct {
		Data []struct {
			ID          string
			MaxModelLen int `json:"max_model_len"`
			Permission  []struct{ ID string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || len(m.Data) != 1 {
		t.Fatalf("got %+v, %v", m, err)
	}
	if d := m.Data[0]; d.ID != `org/small "x"` || d.MaxModelLen != 4096 || !strings.HasPrefix(d.Permission[0].ID, "modelperm-") || strings.Contains(d.Permission[0].ID, "%") {
		t.Errorf("got %+v", d)
	}
}

// TestTruthAgreesWithTheClient compares what the server says it did with
// what arrived: bytes, tokens, text, and the order of instants.
func TestTruthAgreesWithTheClient(t *testing.T) {
	var mu sync.Mutex
	truth := map[string][]TruthEvent{}
	cfg := fast(Config{DraftTokens: 3, ReasoningTokens: 5, NonASCII: 0.2})
	cfg.Truth = func(ev TruthEvent) {
		mu.Lock()
		defer mu.Unlock()
		truth[ev.Request] = append(truth[ev.Request], ev)
	}
	_, url := start(t, cfg)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			before := time.Now()
			s := readStream(t, url+"/v1/chat/completions", strings.Replace(chatBody, "the sea", fmt.Sprint("number ", i), 1), "")
			after := time.Now()
			id := s.chunks[0].ID
			var evs []TruthEvent
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				mu.Lock()
				evs = truth[id]
				mu.Unlock()
				if len(evs) > 0 && evs[len(evs)-1].Kind == TruthEnd {
					break // the client can see the end before it is reported
				}
			}
			bytes, tokens, text, at := 0, 0, "", before
			for j, ev := range evs {
				if ev.Before.Before(at) || ev.After.Before(ev.Before) {
					t.Errorf("%s: event %d goes back in time", id, j)
				}
				at = ev.After
				bytes, tokens, text = bytes+ev.Bytes, tokens+ev.Tokens, text+ev.Text
			}
			if len(evs) < 3 || evs[0].Kind != TruthRequest || evs[0].PromptTokens != s.prompt || evs[len(evs)-1].End != "length" {
				t.Errorf("%s: events are %+v", id, evs)
				return
			}
			if evs[len(evs)-2].Before.After(after) {
				t.Errorf("%s: the last write began after the client had everything", id)
			}
			if bytes != len(s.raw) || tokens != s.total() || text != s.reasoning+s.content {
				t.Errorf("%s: truth has %d bytes, %d tokens, text %q; the client %d, %d, %q", id, bytes, tokens, text, len(s.raw), s.total(), s.reasoning+s.content)
			}
		})
	}
	wg.Wait()
}

func TestTruthLog(t *testing.T) {
	var b strings.Builder
	at := time.Unix(1700000000, 0)
	l := NewTruthLog(&b, at)
	l.Record(TruthEvent{Kind: TruthWrite, Request: "r", Ordinal: 2, Before: at.Add(1500 * time.Nanosecond), After: at.Add(time.Millisecond), Bytes: 9, Chunks: 1, Tokens: 1, Text: "<a>"})
	l.Record(TruthEvent{Kind: TruthEnd, Request: "r", Ordinal: 2, Before: at, After: at, End: "length"})
	want := `{"kind":"start","unix_us":1700000000000000}
{"kind":"write","request":"r","ordinal":2,"before_us":1.5,"after_us":1000,"bytes":9,"chunks":1,"tokens":1,"text":"<a>"}
{"kind":"end","request":"r","ordinal":2,"before_us":0,"after_us":0,"end":"length"}
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	l = NewTruthLog(failingWriter{}, at)
	if err := l.Flush(); err == nil {
		t.Error("a write error is not reported")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// TestSlowReader holds back a reader until the engine is done: without
// merging each step keeps its chunk, with it they come as few.
func TestSlowReader(t *testing.T) {
	for _, merge := range []bool{false, true} {
		box := newOutbox(merge)
		c := &choice{}
		for range 5 {
			box.put(c, emission{tokens: 2, cached: 3})
		}
		box.put(c, emission{tokens: 1, finish: finishLength, cached: 3})
		items := box.take(nil)
		want := 6
		if merge {
			want = 1
		}
		sum := 0
		for _, it := range items {
			sum += it.em.tokens
		}
		if last := items[len(items)-1].em; len(items) != want || sum != 11 || last.finish != finishLength || last.cached != 3 {
			t.Errorf("merge %v: got %d items with %d tokens, the last %+v; want %d with 11", merge, len(items), sum, last, want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{Jitter: 2}, "Jitter is 2, want 0 to 1"},
		{Config{BlockSize: -1}, "BlockSize is -1"},
		{Config{KVCacheTokens: -5}, "KVCacheTokens is -5"},
		{Config{MaxModelLen: 4096, KVCacheTokens: 4096}, "MaxModelLen is 4096, want at most what the KV cache holds, 4080 tokens"},
		{Config{DraftTokens: 2, AcceptedMean: 3.5}, "AcceptedMean is 3.5, want 1 to 3"},
		{Config{Loop: Loop{After: 10}}, "Loop.After is 10, want at least Loop.Period, 48"},
		{Config{Frontend: 7}, "Frontend is 7"},
		{Config{Fault: Fault{Status: 200}}, "Fault.Status is 200"},
		{Config{Fault: Fault{Act: ActError, After: BeforeHeaders}}, "before the headers"},
	} {
		if err := tt.cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q in it", err, tt.want)
		}
		if _, err := New(tt.cfg); err == nil {
			t.Errorf("New accepts what Validate refuses: %q", tt.want)
		}
	}
}

func TestParseFault(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Fault
	}{
		{"", Fault{}},
		{"none", Fault{}},
		{"close-after=5", Fault{Act: ActClose, After: 5}},
		{"hang-before", Fault{Act: ActHang, After: BeforeHeaders}},
		{" stall=3:2s , crlf", Fault{StallAfter: 3, StallFor: 2 * time.Second, CRLF: true}},
		{"status=503,body=flat,every=4", Fault{Status: 503, Body: BodyFlat, Every: 4}},
		{"usage=deltas,dribble=7,keep-alive=10ms", Fault{Usage: UsageDeltas, Dribble: 7, KeepAlive: 10 * time.Millisecond}},
		{"ignore-max-tokens,ignore-ignore-eos,reject-ignore-eos,no-space,split-utf8", Fault{IgnoreMaxTokens: true, IgnoreIgnoreEOS: true, RejectIgnoreEOS: true, NoSpace: true, SplitUTF8: true}},
	} {
		if got, err := ParseFault(tt.in); err != nil || got != tt.want {
			t.Errorf("%q: got %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"x", "x=1", "close-after", "close-after=x", "close-after=-1", "error-before", "status=200", "status=700", "body=x",
		"usage=x", "stall=5", "stall=5:x", "stall=x:1s", "keep-alive=0s", "dribble=0", "crlf=1", "close-after=1,reset-after=2", "every=0", "x-after=1"} {
		if f, err := ParseFault(in); err == nil {
			t.Errorf("%q: got %+v, want an error", in, f)
		}
	}
}

func TestChunksAreTheSameForOneSeed(t *testing.T) {
	run := func(seed uint64) string {
		_, url := start(t, fast(Config{Seed: seed, DraftTokens: 3, NonASCII: 0.2, Jitter: 0.2}))
		s := readStream(t, url+"/v1/chat/completions", chatBody, "")
		return fmt.Sprint(s.usage, s.content, s.chunks[0].ID)
	}
	if a, b := run(7), run(7); a != b {
		t.Errorf("two servers with one seed sent\n%s\nand\n%s", a, b)
	}
	if run(7) == run(8) {
		t.Error("two seeds give one stream")
	}
}
