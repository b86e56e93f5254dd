package simserver

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDied is what Serve returns after the engine's death.
var ErrDied = errors.New("the engine died")

// A Server is a running stand-in. It is an http.Handler, so that it works
// with httptest as well as with Serve; only Serve closes idle connections
// and refuses new ones after the engine's death.
type Server struct {
	cfg      Config
	started  time.Time
	mux      *http.ServeMux
	engines  []*runner
	accepted atomic.Int64 // generation requests whose prompt was accepted
	arrived  atomic.Int64 // generation requests
	die      func()       // idempotent
	dead     chan struct{}
	stop     func()
	stopping chan struct{}
	truthMu  sync.Mutex
}

// New makes a server. The configuration must be valid; see Config.Validate.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, started: time.Now(), mux: http.NewServeMux(), dead: make(chan struct{}), stopping: make(chan struct{})}
	s.die = sync.OnceFunc(func() { close(s.dead) })
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	for i := range cfg.Engines {
		s.engines = append(s.engines, &runner{e: newEngine(cfg, i), dead: s.dead})
	}
	s.routes()
	return s, nil
}

// Config returns the configuration with its defaults filled in.
func (s *Server) Config() Config { return s.cfg }

// Kill ends the engine as a crash does: streams get an error event, /health
// answers 503, and Serve returns after Config.DeathGrace.
func (s *Server) Kill() { s.die() }

// Running returns how many requests run and how many wait at this instant,
// over all engines; the gauges of /metrics can be a step older.
func (s *Server) Running() (running, waiting int) {
	for _, r := range s.engines {
		r.mu.Lock()
		running += len(r.e.running)
		waiting += len(r.e.waiting)
		r.mu.Unlock()
	}
	return running, waiting
}

// Serve answers requests on l until ctx is done or the engine has died. It
// closes l. It returns nil after ctx was done, ErrDied after a death, and
// otherwise what went wrong with the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: s, IdleTimeout: max(0, s.cfg.IdleTimeout), ReadHeaderTimeout: 30 * time.Second}
	if s.cfg.IdleTimeout < 0 {
		srv.IdleTimeout = 1000 * time.Hour // zero would mean ReadHeaderTimeout
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	var result error
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		s.stop() // running requests end with finish_reason "abort"
	case <-s.dead:
		result = ErrDied
		select {
		case <-time.After(s.cfg.DeathGrace):
		case <-ctx.Done():
		}
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		srv.Close()
	}
	<-ended
	return result
}

func (s *Server) routes() {
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, true) })
	s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, false) })
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, fmt.Sprintf(`{"version":%s}`, quote(s.cfg.Version)))
	})
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.HandleFunc("GET /ping", s.health)
	s.mux.HandleFunc("POST /ping", s.health)
	if !s.cfg.NoTokenizeRoute {
		s.mux.HandleFunc("POST /tokenize", s.tokenize)
		s.mux.HandleFunc("POST /detokenize", s.detokenize)
	}
	if s.cfg.Metrics != MetricsNone {
		s.mux.HandleFunc("GET /metrics", s.metrics)
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "uvicorn")
	if !s.authorized(r) {
		writeJSON(w, http.StatusUnauthorized, `{"error":"Unauthorized"}`)
		return
	}
	h, pattern := s.mux.Handler(r)
	if pattern == "" {
		// The mux knows 404 from 405 but not FastAPI's bodies.
		probe := statusProbe{header: http.Header{}}
		h.ServeHTTP(&probe, r)
		status := http.StatusNotFound
		if probe.status == http.StatusMethodNotAllowed {
			status = probe.status
			w.Header().Set("Allow", probe.header.Get("Allow"))
		}
		writeJSON(w, status, `{"detail":`+quote(http.StatusText(status))+`}`)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// A statusProbe catches the status of a handler and drops the rest.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }

// authorized checks the key on the paths that vLLM guards.
func (s *Server) authorized(r *http.Request) bool {
	if s.cfg.APIKey == "" {
		return true
	}
	guarded := false
	for _, p := range []string{"/v1", "/v2", "/inference", "/cohere"} {
		guarded = guarded || strings.HasPrefix(r.URL.Path, p)
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	ok := strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare([]byte(key), []byte(s.cfg.APIKey)) == 1
	return ok || !guarded
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	io.WriteString(w, body) // a client that has gone needs no answer
}

// refuse answers with vLLM's error body.
func (s *Server) refuse(w http.ResponseWriter, status int, kind, message, param string) {
	writeError(w, s.cfg.Frontend, BodyObject, status, kind, message, param)
}

func writeError(w http.ResponseWriter, f Frontend, shape BodyShape, status int, kind, message, param string) {
	p := "null"
	if param != "" {
		p = quote(param)
	}
	fields := fmt.Sprintf(`"message":%s,"type":%s,"param":%s,"code":%d`, quote(message), quote(kind), p, status)
	if f == Rust {
		code := map[int]string{http.StatusNotFound: "model_not_found", http.StatusInternalServerError: "server_error"}[status]
		kind = "invalid_request_error"
		if status >= 500 {
			kind = "server_error"
		}
		if code == "" {
			code = kind
		}
		fields = fmt.Sprintf(`"message":%s,"type":%s,"code":%s`, quote(message), quote(kind), quote(code))
	}
	switch shape {
	case BodyObject:
		writeJSON(w, status, `{"error":{`+fields+`}}`)
	case BodyFlat:
		writeJSON(w, status, `{"object":"error",`+fields+`}`)
	case BodyString:
		writeJSON(w, status, `{"error":`+quote(message)+`}`)
	case BodyHTML:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%[1]d %[2]s</h1></center>\r\n<hr><center>proxy</center>\r\n</body>\r\n</html>\r\n", status, http.StatusText(status))
	case BodyEmpty:
		w.WriteHeader(status)
	}
}

func (s *Server) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.isDead() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	now := time.Now().Unix()
	writeJSON(w, http.StatusOK, fmt.Sprintf(`{"object":"list","data":[{"id":%[1]s,"object":"model","created":%[2]d,"owned_by":"vllm",`+
		`"root":%[1]s,"parent":null,"max_model_len":%[3]d,"permission":[{"id":"modelperm-%016[4]x","object":"model_permission","created":%[2]d,`+
		`"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,`+
		`"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}]}`,
		quote(s.cfg.Model), now, s.cfg.MaxModelLen, mix(s.cfg.Seed, uint64(now))))
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	switch s.cfg.Metrics {
	case MetricsEmpty:
	case MetricsHTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, "<!doctype html><html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>\n")
	case MetricsHang:
		s.hang(r.Context())
	default:
		var all []stats
		for _, e := range s.engines {
			all = append(all, e.stats())
		}
		w.Write(metricsPage(s.cfg, all, s.started))
	}
}

// hang waits until the client gives up or the server ends.
func (s *Server) hang(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.stopping:
	case <-s.dead:
	}
}

// maxBody bounds a request's body: some sixty million tokens of text.
const maxBody = 256 << 20

// readJSON decodes a request's body into v and answers itself if it cannot.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if mediaType != "application/json" {
		s.refuse(w, http.StatusBadRequest, "Bad Request",
			"1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", "")
		return false
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(v)
	if err == nil {
		return true
	}
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		s.invalid(w, "body."+te.Field, fmt.Sprintf("'type': 'type_error', 'loc': 'body.%s', 'msg': 'Input should be a valid %s'", te.Field, te.Type))
		return false
	}
	loc := "body.0"
	var se *json.SyntaxError
	if errors.As(err, &se) {
		loc = fmt.Sprintf("body.%d", se.Offset)
	}
	s.invalid(w, loc, fmt.Sprintf("'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': '%v'}", loc, err))
	return false
}

// invalid answers as pydantic does for a bad field.
func (s *Server) invalid(w http.ResponseWriter, loc, detail string) {
	no := badField(loc, detail)
	s.refuse(w, no.status, no.kind, no.message, no.param)
}

// missing is the detail of a field that is not there.
func missing(field string) string {
	return fmt.Sprintf("'type': 'missing', 'loc': 'body.%s', 'msg': 'Field required'", field)
}

// knowsModel answers 404 for another model's name; no name means ours.
func (s *Server) knowsModel(w http.ResponseWriter, name string) bool {
	if name == "" || name == s.cfg.Model {
		return true
	}
	s.refuse(w, http.StatusNotFound, "NotFoundError", fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", name, s.cfg.Model), "model")
	return false
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model               string        `json:"model"`
		Prompt              *string       `json:"prompt"`
		Messages            []chatMessage `json:"messages"`
		AddSpecialTokens    *bool         `json:"add_special_tokens"`
		AddGenerationPrompt *bool         `json:"add_generation_prompt"`
		ReturnTokenStrs     bool          `json:"return_token_strs"`
	}
	if !s.readJSON(w, r, &req) || !s.knowsModel(w, req.Model) {
		return
	}
	var ids []int32
	switch {
	case req.Messages != nil:
		ids = appendChat(nil, flatten(req.Messages), req.AddGenerationPrompt == nil || *req.AddGenerationPrompt)
		if req.AddSpecialTokens != nil && *req.AddSpecialTokens {
			ids = append([]int32{tokenBOS}, ids...)
		}
	case req.Prompt != nil:
		if req.AddSpecialTokens == nil || *req.AddSpecialTokens {
			ids = append(ids, tokenBOS)
		}
		ids = appendTokens(ids, *req.Prompt)
	default:
		s.invalid(w, "body.prompt", missing("prompt"))
		return
	}
	b := fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":`, len(ids), s.cfg.MaxModelLen)
	b = append(appendIDs(b, ids), `,"token_strs":`...)
	if !req.ReturnTokenStrs {
		b = append(b, "null"...)
	} else {
		b = append(b, '[')
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			text := specialText[id]
			if text == "" {
				text = detokenize([]int32{id})
			}
			b = append(b, quote(text)...)
		}
		b = append(b, ']')
	}
	writeJSON(w, http.StatusOK, string(append(b, '}')))
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	if !s.readJSON(w, r, &req) || !s.knowsModel(w, req.Model) {
		return
	}
	if req.Tokens == nil {
		s.invalid(w, "body.tokens", missing("tokens"))
		return
	}
	writeJSON(w, http.StatusOK, `{"prompt":`+quote(detokenize(req.Tokens))+`}`)
}
