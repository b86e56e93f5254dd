package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"speedmatrix/collect/simserver"
)

// A truthWrite is one piece of a body as the server wrote it.
type truthWrite struct {
	before, after time.Time
	each          []simserver.TruthChunk
	lost          bool
}

// A truthRequest is one generation request as the server saw it.
type truthRequest struct {
	id        string
	seed      int64
	maxTokens int
	header    string    // X-Sim-Fault that was given to it
	got       time.Time // the server had all of it

	accepted time.Time // zero: it was refused, or broken off before that
	fault    simserver.Fault
	prompt   int
	writes   []truthWrite
	end      string
	ended    time.Time
	cached   int

	status int       // of the answer; 0: none
	left   time.Time // the server was through with it
	used   bool      // matched to a recorded request
}

// A page is one answer of /metrics: by name, the values by engine.
type page map[string]map[int]float64

// A truthServer is a simulated server that keeps record of what it really
// did, and does to requests what the setting demands.
type truthServer struct {
	set setting
	sim *simserver.Server
	url string

	mu       sync.Mutex
	rng      *rand.Rand
	requests []*truthRequest
	byID     map[string]*truthRequest
	byConn   map[string]*truthRequest // by the client's address: the request that it waits for
	pages    []page
	foreign  int
	close    func()
	died     bool
}

func startTruthServer(set setting) (*truthServer, error) {
	s := &truthServer{set: set, byID: map[string]*truthRequest{}, byConn: map[string]*truthRequest{}, rng: rand.New(rand.NewPCG(set.seed, 2))}
	cfg := set.sim
	cfg.Truth = s.record
	var err error
	if s.sim, err = simserver.New(cfg); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0), ConnState: func(c net.Conn, state http.ConnState) {
		// After a handler the server still has to write the end of the body.
		if state == http.StateIdle || state == http.StateClosed || state == http.StateHijacked {
			s.through(c.RemoteAddr().String())
		}
	}}
	s.url = "http://" + l.Addr().String()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		srv.Serve(l)
	}()
	s.close = sync.OnceFunc(func() {
		srv.Close()
		<-ended
	})
	return s, nil
}

// record takes one truth event; the simulator calls it one at a time.
func (s *truthServer) record(ev simserver.TruthEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byID[strings.TrimPrefix(ev.Request, "chatcmpl-")]
	if r == nil {
		return // of nobody that is measured
	}
	switch ev.Kind {
	case simserver.TruthRequest:
		r.accepted, r.fault, r.prompt = ev.Before, ev.Fault, ev.PromptTokens
	case simserver.TruthWrite:
		r.writes = append(r.writes, truthWrite{ev.Before, ev.After, ev.Each, ev.Lost})
	case simserver.TruthEnd:
		r.end, r.ended, r.cached = ev.End, ev.Before, ev.CachedTokens
		if ev.End == "died" && !s.died {
			s.died = true
			time.AfterFunc(s.set.grace, s.close)
		}
	}
}

// through notes that nothing more will be sent to a client for now.
func (s *truthServer) through(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byConn[client]; r != nil {
		r.left = time.Now()
		delete(s.byConn, client)
	}
}

// A watched writer notes the status of an answer.
type watched struct {
	http.ResponseWriter
	status int
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *watched) Hijack() (c net.Conn, rw *bufio.ReadWriter, err error) {
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

func (s *truthServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/chat/completions":
		s.generate(w, r)
	case "/metrics":
		s.metrics(w, r)
	case "/tokenize":
		s.tokenize(w, r)
	default:
		s.sim.ServeHTTP(w, r)
	}
}

func (s *truthServer) generate(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went while it sent
	}
	tr := &truthRequest{got: time.Now()}
	var req struct {
		Seed      int64 `json:"seed"`
		MaxTokens int   `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		panic(err)
	}
	if s.set.NoTokenIDs {
		body = bytes.Replace(body, []byte(`,"return_token_ids":true`), nil, 1)
	}
	tr.seed, tr.maxTokens = req.Seed, req.MaxTokens
	s.mu.Lock()
	tr.id = fmt.Sprintf("t%05d", len(s.requests))
	tr.header = s.set.header(s.rng, tr)
	s.requests = append(s.requests, tr)
	s.byID[tr.id], s.byConn[r.RemoteAddr] = tr, tr
	s.mu.Unlock()

	r.Header.Set("X-Request-Id", tr.id)
	if tr.header != "" {
		r.Header.Set(simserver.FaultHeader, tr.header)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	ww := &watched{ResponseWriter: w}
	defer func() {
		s.mu.Lock()
		tr.status = ww.status
		s.mu.Unlock()
	}()
	s.sim.ServeHTTP(ww, r)
}

// metrics answers as the simulator does, and keeps the page.
func (s *truthServer) metrics(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	s.sim.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	if s.set.NoCapacity {
		body = regexp.MustCompile(`(?m)^.*cache_config_info.*\n`).ReplaceAll(body, nil)
	}
	s.mu.Lock()
	s.pages = append(s.pages, parsePage(body))
	s.mu.Unlock()
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	w.Write(body)
}

// parsePage reads the gauges and counters that statuses depend on.
func parsePage(body []byte) page {
	p := page{}
	line := regexp.MustCompile(`(?m)^vllm:(num_requests_running|num_requests_waiting|num_preemptions_total)\{[^}]*engine="(\d+)"[^}]*\} (\S+)$`)
	for _, m := range line.FindAllSubmatch(body, -1) {
		engine, err1 := strconv.Atoi(string(m[2]))
		v, err2 := strconv.ParseFloat(string(m[3]), 64)
		if err1 != nil || err2 != nil {
			panic(string(m[0]))
		}
		name := string(m[1])
		if p[name] == nil {
			p[name] = map[int]float64{}
		}
		p[name][engine] = v
	}
	return p
}

// tokenize counts tokens; in some settings another client then sends the
// same prompt, so that the prefix cache knows it.
func (s *truthServer) tokenize(w http.ResponseWriter, r *http.Request) {
	if s.set.Warmed {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if other := bytes.TrimSuffix(bytes.TrimSpace(body), []byte("}")); len(other) < len(body) {
			req := httptest.NewRequest("POST", "/v1/chat/completions", bytes.NewReader(append(other, `,"max_tokens":1}`...)))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set(simserver.FaultHeader, "none")
			rec := httptest.NewRecorder()
			s.sim.ServeHTTP(rec, req)
			if rec.Code == http.StatusOK {
				s.mu.Lock()
				s.foreign++
				s.mu.Unlock()
			}
		}
	}
	s.sim.ServeHTTP(w, r)
}
