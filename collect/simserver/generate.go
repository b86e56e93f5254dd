package simserver

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A chatMessage is a message as requested; content is a string or a list of
// parts.
type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// flatten turns messages into role and text.
func flatten(list []chatMessage) []message {
	out := make([]message, len(list))
	for i, m := range list {
		out[i].role = m.Role
		if json.Unmarshal(m.Content, &out[i].text) == nil {
			continue
		}
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(m.Content, &parts) == nil {
			for _, p := range parts {
				out[i].text += p.Text
			}
		}
	}
	return out
}

// A generateRequest is the part of both routes' bodies that matters here.
type generateRequest struct {
	Model               string          `json:"model"`
	Messages            []chatMessage   `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           *bool           `json:"ignore_eos"`
	N                   *int            `json:"n"`
	Seed                int64           `json:"seed"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage         *bool `json:"include_usage"`
		ContinuousUsageStats bool  `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	ReturnTokenIDs bool            `json:"return_token_ids"`
	RequestID      string          `json:"request_id"`
	CacheSalt      string          `json:"cache_salt"`
	Logprobs       json.RawMessage `json:"logprobs"`
	StreamInterval int             `json:"stream_interval"`
	Tools          []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
}

// A refusal is an HTTP error that a request earns before it runs.
type refusal struct {
	status               int
	kind, message, param string
	late                 bool // found by the engine: a stream has been answered with 200 by then
}

func badRequest(param, format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, kind: "BadRequestError", message: fmt.Sprintf(format, args...), param: param}
}

// badField is what pydantic says of one field.
func badField(loc, detail string) *refusal {
	return &refusal{status: http.StatusBadRequest, kind: "Bad Request", message: "1 validation error:\n  {" + detail + "}", param: loc}
}

// prompts returns the token ids of each prompt of the request.
func (req *generateRequest) prompts(chat bool) ([][]int32, *refusal) {
	if chat {
		if len(req.Messages) == 0 {
			return nil, badField("body.messages", missing("messages"))
		}
		return [][]int32{appendChat(nil, flatten(req.Messages), true)}, nil
	}
	text := func(s string) []int32 { return appendTokens([]int32{tokenBOS}, s) }
	var one string
	var many []string
	var ids []int32
	var lists [][]int32
	switch {
	case json.Unmarshal(req.Prompt, &one) == nil && one != "":
		return [][]int32{text(one)}, nil
	case json.Unmarshal(req.Prompt, &ids) == nil && len(ids) > 0:
		return [][]int32{ids}, nil
	case json.Unmarshal(req.Prompt, &many) == nil && len(many) > 0:
		for _, s := range many {
			lists = append(lists, text(s))
		}
		return lists, nil
	case json.Unmarshal(req.Prompt, &lists) == nil && len(lists) > 0 && !slices.ContainsFunc(lists, func(l []int32) bool { return len(l) == 0 }):
		return lists, nil
	}
	return nil, badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
}

// tooLong refuses text that cannot fit, without tokenizing it: no token has
// more than five characters.
func (req *generateRequest) tooLong(maxModelLen int) *refusal {
	n := len(req.Prompt)
	for _, m := range req.Messages {
		n += len(m.Content)
	}
	most := maxModelLen * (pieceLetters + 1)
	if n <= 2*most+1024 { // there may be escapes and keys in it
		return nil
	}
	return badRequest("input_text", "This model's maximum context length is %d tokens. However, your prompt contains %d characters (more than %d characters, which is the upper bound for %[1]d input tokens). Please reduce the length of the input prompt. (parameter=input_text, value=%[2]d)", maxModelLen, n, most)
}

// limit returns the most output tokens for a prompt of n tokens.
func (req *generateRequest) limit(chat, strict bool, n, maxModelLen int) (int, *refusal) {
	want := req.MaxTokens
	if chat && req.MaxCompletionTokens != nil {
		want = req.MaxCompletionTokens
	}
	room := maxModelLen - n
	out := room
	if want != nil {
		out = *want
	} else if !chat {
		out = 16
	}
	switch {
	case out > maxModelLen:
		return 0, badRequest("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens. (parameter=max_tokens, value=%[1]d)", out, maxModelLen)
	case strict && out > room:
		// The tokenizer stops one token after the limit, so the count is a lower bound.
		least := maxModelLen - out + 1
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%[3]d)",
			maxModelLen, out, least, least+out)
	case room < 0:
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your prompt contains at least %d input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%[2]d)", maxModelLen, maxModelLen+1)
	}
	if out = min(out, room); out < 1 {
		return 0, badRequest("max_tokens", "max_tokens must be at least 1, got %d. (parameter=max_tokens, value=%[1]d)", out)
	}
	if req.MinTokens > out {
		return 0, badRequest("", "min_tokens must be less than or equal to max_tokens=%d, got %d.", out, req.MinTokens)
	}
	return out, nil
}

// tool returns the function that the answer calls; "" means that it is text.
func (req *generateRequest) tool() string {
	if len(req.Tools) == 0 || string(req.ToolChoice) == `"none"` {
		return ""
	}
	return req.Tools[0].Function.Name
}

// generate answers /v1/chat/completions and /v1/completions.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	arrived := time.Now()
	fault, err := s.faultFor(r)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequestError", err.Error(), FaultHeader)
		return
	}
	if fault.Status != 0 {
		writeError(w, s.cfg.Frontend, fault.Body, fault.Status, strings.ReplaceAll(http.StatusText(fault.Status), " ", "")+"Error", "a fault was asked for", "")
		return
	}
	if fault.After == BeforeHeaders {
		// Unless the body is read, net/http does not notice that the client
		// goes, and closing resets the connection.
		io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
		s.breakOff(w, r, fault.Act)
		return
	}
	if s.isDead() {
		s.refuse(w, http.StatusInternalServerError, "InternalServerError", deadMessage, "")
		return
	}
	var req generateRequest
	if !s.readJSON(w, r, &req) || !s.knowsModel(w, req.Model) {
		return
	}
	g, no := s.plan(&req, r, chat, fault, arrived)
	if no != nil && no.late && req.Stream {
		e := newEncoder(shape{rust: s.cfg.Frontend == Rust, fault: fault})
		s.beginStream(w)
		w.Write(e.done(e.errorEvent(nil, no.kind, no.status, no.message)))
		return
	}
	if no != nil {
		s.refuse(w, no.status, no.kind, no.message, no.param)
		return
	}
	if !req.Stream {
		s.answer(w, r, g)
		return
	}
	s.stream(w, r, g)
}

// faultFor returns the fault that a request meets.
func (s *Server) faultFor(r *http.Request) (Fault, error) {
	n := s.arrived.Add(1)
	if h, ok := r.Header[FaultHeader]; ok {
		return ParseFault(strings.Join(h, ","))
	}
	if every := int64(s.cfg.Fault.Every); every > 1 && n%every != 0 {
		return Fault{}, nil
	}
	return s.cfg.Fault, nil
}

// maxOutputs bounds the outputs of one request.
const maxOutputs = 4096

// A generation is one accepted request: its outputs and where they arrive.
type generation struct {
	shape   shape
	ordinal int
	choices []*choice
	box     *outbox
	runner  *runner
}

// A choice is one output and what was sent of it.
type choice struct {
	part part // index, prompt, and the totals so far
	gen  *generator
	seq  *sequence

	cached int
	done   bool
	tool   bool // a tool call was sent
	owed   int  // tokens whose chunk was left out
	chunks int
}

// plan checks a request and prepares its outputs.
func (s *Server) plan(req *generateRequest, r *http.Request, chat bool, fault Fault, arrived time.Time) (*generation, *refusal) {
	ignoreEOS := req.IgnoreEOS != nil && *req.IgnoreEOS
	n := 1
	if req.N != nil {
		n = *req.N
	}
	switch {
	case req.IgnoreEOS != nil && fault.RejectIgnoreEOS:
		return nil, badField("body.ignore_eos", "'type': 'extra_forbidden', 'loc': 'body.ignore_eos', 'msg': 'Extra inputs are not permitted'")
	case req.StreamOptions != nil && !req.Stream:
		return nil, badRequest("stream_options", "Stream options can only be defined when `stream=True`. (parameter=stream_options)")
	case n < 1 || n > 128:
		return nil, badRequest("n", "n must be between 1 and 128, got %d.", n)
	case len(req.Logprobs) > 0 && string(req.Logprobs) != "null" && string(req.Logprobs) != "false":
		return nil, badRequest("logprobs", "log-probabilities are not simulated")
	}
	c := &s.cfg
	if no := req.tooLong(c.MaxModelLen); no != nil {
		return nil, no
	}
	prompts, no := req.prompts(chat)
	if no != nil {
		return nil, no
	}
	sh := shape{
		chat: chat, rust: c.Frontend == Rust, model: c.Model, created: arrived.Unix(),
		fingerprint: fmt.Sprintf("vllm-%s-%08x", c.Version, uint32(mix(c.Seed, 1))),
		returnIDs:   req.ReturnTokenIDs, details: c.CachedTokens, blockSize: c.BlockSize, fault: fault,
	}
	if sh.rust {
		sh.fingerprint = ""
	}
	if o := req.StreamOptions; o != nil && fault.Usage != UsageNone {
		sh.usage = c.UsageByDefault
		if o.IncludeUsage != nil {
			sh.usage = *o.IncludeUsage
		}
		sh.continuous = sh.usage && o.ContinuousUsageStats && fault.Usage != UsageFinal
	}
	thinking := 0
	if chat {
		thinking = c.ReasoningTokens
		sh.parser, sh.field = thinking > 0, c.ReasoningField
		if c.ToolCalls {
			sh.tool = req.tool()
		}
	}

	if len(prompts)*n > maxOutputs {
		return nil, badRequest("prompt", "%d outputs are too many, the most is %d.", len(prompts)*n, maxOutputs)
	}
	g := &generation{box: newOutbox(c.MergeDeltas), runner: s.pickEngine(r)}
	for pi, ids := range prompts {
		for _, id := range ids {
			if id < 0 || id >= tokenLimit {
				no := badRequest("", "Token id %d is out of vocabulary", id)
				no.late = true
				return nil, no
			}
		}
		limit, no := req.limit(chat, c.StrictLength, len(ids), c.MaxModelLen)
		if no != nil {
			return nil, no
		}
		if fault.IgnoreMaxTokens {
			limit = c.MaxModelLen - len(ids)
		}
		hashes, all := blockHashes(ids, c.BlockSize, hashString(0, req.CacheSalt))
		sh.prompt += len(ids)
		if pi == 0 {
			sh.promptIDs = ids
		}
		for i := range n {
			key := mix(mix(mix(c.Seed, all), uint64(req.Seed)), uint64(i))
			text := textPlan{
				key: key, nonASCII: c.NonASCII, empty: c.EmptyTokens, thinking: thinking, tool: sh.tool != "",
				after: c.Loop.After, period: c.Loop.Period, split: fault.SplitUTF8,
			}
			if c.AnswerTokens > 0 {
				text.end = max(1, c.AnswerTokens/2+int(mix(key, 2)%uint64(c.AnswerTokens)), req.MinTokens+1)
			}
			ch := &choice{gen: newGenerator(text)}
			ch.part = part{index: pi*n + i, prompt: len(ids)}
			if !chat {
				ch.part.promptIDs = ids
			}
			ch.seq = &sequence{
				prompt: len(ids), hashes: hashes, max: limit, arrived: arrived,
				accept: rand.New(rand.NewPCG(key, 0x647261)),
				every:  max(c.StreamInterval, req.StreamInterval),
				sink:   func(em emission) { g.box.put(ch, em) },
			}
			if !ignoreEOS || fault.IgnoreIgnoreEOS {
				ch.seq.end = text.end
			}
			g.choices = append(g.choices, ch)
		}
	}
	g.ordinal = int(s.accepted.Add(1) - 1)
	sh.id, sh.toolID = s.ids(req, r, chat, g.ordinal)
	g.shape = sh
	return g, nil
}

// ids returns the answer's id and that of a tool call.
func (s *Server) ids(req *generateRequest, r *http.Request, chat bool, ordinal int) (id, toolID string) {
	h := mix(mix(s.cfg.Seed, 0x6964), uint64(ordinal))
	id = fmt.Sprintf("%016x", h)
	if req.RequestID != "" {
		id = req.RequestID
	}
	if v := r.Header.Get("X-Request-Id"); v != "" {
		id = v
	}
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	return prefix + id, fmt.Sprintf("chatcmpl-tool-%016x", mix(h, 1))
}

// pickEngine returns the engine that a request asks for, else the one with
// the least to do.
func (s *Server) pickEngine(r *http.Request) *runner {
	if i, err := strconv.Atoi(r.Header.Get("X-data-parallel-rank")); err == nil && i >= 0 && i < len(s.engines) {
		return s.engines[i]
	}
	best := s.engines[0]
	if len(s.engines) == 1 {
		return best
	}
	least := best.load()
	for _, e := range s.engines[1:] {
		if l := e.load(); l < least {
			best, least = e, l
		}
	}
	return best
}

func (g *generation) submit() {
	for _, c := range g.choices {
		g.runner.submit(c.seq)
	}
}

func (g *generation) abort() {
	for _, c := range g.choices {
		g.runner.abort(c.seq)
	}
}

// totals returns the tokens of all choices.
func (g *generation) totals() (completion, thought, cached int) {
	for _, c := range g.choices {
		completion += c.part.completion
		thought += c.part.thought
		cached += c.cached
	}
	return completion, thought, cached
}

// finished reports whether every choice has ended, and how.
func (g *generation) finished() (how string, ok bool) {
	for _, c := range g.choices {
		if !c.done {
			return "", false
		}
		how = c.part.finish
	}
	return how, true
}

// advance makes what an emission adds to a choice and leaves it in c.part.
func (c *choice) advance(em emission, tool string) {
	c.gen.looping = em.looping
	c.gen.next(em.tokens)
	p := &c.part
	p.reasoning, p.content, p.ids = c.gen.reasoning, c.gen.content, c.gen.ids
	p.completion += em.tokens
	p.thought = c.gen.thought
	p.toolHead, p.toolText = c.gen.toolHead, 0
	c.cached = em.cached
	if em.finish != finishNone {
		p.finish, c.done = em.finish.String(), true
	}
	if tool == "" {
		return
	}
	if len(p.content) > 0 {
		p.toolText = 2
		if !c.gen.toolText {
			c.gen.toolText = true
			p.toolText = 1
		}
	}
	c.tool = c.tool || p.toolHead || p.toolText > 0
	if c.done && c.tool {
		p.finish = "tool_calls"
		p.toolText = max(p.toolText, 2)
	}
}

// breakOff ends a request on the level of the connection.
func (s *Server) breakOff(w http.ResponseWriter, r *http.Request, a FaultAct) {
	switch a {
	case ActHang:
		s.hang(r.Context())
	case ActReset:
		if h, ok := w.(http.Hijacker); ok {
			if conn, _, err := h.Hijack(); err == nil {
				if tcp, ok := conn.(*net.TCPConn); ok {
					tcp.SetLinger(0) // Close sends a reset and drops what is unsent
				}
				conn.Close()
				return
			}
		}
	}
	panic(http.ErrAbortHandler) // closes the connection without an end
}
