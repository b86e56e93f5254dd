package main

// Cases of docs/cases.md about the measuring window, faults of server and
// link, capacity and lengths, and the metrics page (K03, K05, K06, K07). Most
// run the whole program: a server on the loopback whose every answer the test
// decides, the collector with short windows, the run log, ingest, the page.
// Real times of a case are scaled down where the test says so. Where only
// arithmetic is at stake, events are put into a run log as they were observed
// and read back by the real reader.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/server"
	"speedmatrix/collect/simserver"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// A loadServer is an OpenAI-compatible server whose answers a test decides.
// Its tokens are the words of a text.
type loadServer struct {
	URL string

	// chat answers a chat request; nil: tokens 20 ms apart until max_tokens.
	chat func(*loadChat)
	// gauges are further lines of the metrics page, behind the gauges of
	// running and waiting requests.
	gauges func() string
	// metrics answers /metrics instead; nil: the page of the gauges.
	metrics http.HandlerFunc
	// tokenize counts the tokens of a prompt for /tokenize, extra is what
	// usage has beyond that; nil and noTokenize: words.
	extra      int
	tokenize   func(content string) int
	noTokenize bool
	usage      func(content string) int // prompt tokens by usage; nil: words + extra

	front   http.Handler // stands before it and may answer in its place; nil: nobody
	maxLen  int          // max_model_len; 0: 8192
	running atomic.Int64
	decode  atomic.Int64 // chat requests with max_tokens above 8, so far

	mu    sync.Mutex
	chats []*loadChat
	asked map[string]int // requests by path

	http *httptest.Server
}

// A loadChat is one chat request in progress.
type loadChat struct {
	s         *loadServer
	n         int // 0, 1, … of all
	decode    int // 1, 2, … of those of a cell or the warm-up, which want more than 8 tokens; 0: another
	Content   string
	MaxTokens int
	at        time.Time // received

	w      http.ResponseWriter
	r      *http.Request
	prompt int         // tokens of the prompt by usage
	tokens []loadWrite // one token each
}

// A loadWrite is the span of one write.
type loadWrite struct{ before, after time.Time }

// promptWords counts words, the tokens of a loadServer.
func promptWords(s string) int { return len(strings.Fields(s)) }

// start starts the server; it lives until the test ends.
func (s *loadServer) start(t *testing.T) *loadServer {
	t.Helper()
	return s.listen(t, "127.0.0.1:0")
}

func (s *loadServer) listen(t *testing.T, address string) *loadServer {
	t.Helper()
	if s.maxLen == 0 {
		s.maxLen = 8192
	}
	s.asked = map[string]int{}
	if s.front == nil {
		s.front = s
	}
	s.http = httptest.NewUnstartedServer(s.front)
	s.http.Listener.Close()
	var err error
	if s.http.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatalf("listen: %v", err)
	}
	s.http.Start()
	s.URL = s.http.URL
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func (s *loadServer) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func (s *loadServer) requests() []*loadChat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.chats)
}

func (s *loadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	s.mu.Unlock()
	reply := func(format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, format, args...)
	}
	switch r.URL.Path {
	case "/v1/models":
		reply(`{"object":"list","data":[{"id":"stub","root":"org/stub","owned_by":"vllm","max_model_len":%d}]}`, s.maxLen)
	case "/version":
		reply(`{"version":"0.32.0"}`)
	case "/health":
	case "/metrics":
		if s.metrics != nil {
			s.metrics(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		more := ""
		if s.gauges != nil {
			more = s.gauges()
		}
		fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"a\\\"b\"} %d\nvllm:num_requests_waiting{engine=\"0\",model_name=\"a\\\"b\"} 0\n%s", s.running.Load(), more)
	case "/tokenize":
		var body struct{ Messages []struct{ Content string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Messages) != 1 || s.noTokenize {
			http.NotFound(w, r)
			return
		}
		count := s.tokenize
		if count == nil {
			count = promptWords
		}
		reply(`{"count":%d}`, count(body.Messages[0].Content))
	case "/v1/chat/completions":
		s.serveChat(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *loadServer) serveChat(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages  []struct{ Content string }
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, `{"error":{"message":"bad body"}}`, http.StatusBadRequest)
		return
	}
	io.Copy(io.Discard, r.Body)
	c := &loadChat{s: s, MaxTokens: body.MaxTokens, at: time.Now(), w: w, r: r}
	if len(body.Messages) > 0 {
		c.Content = body.Messages[0].Content
	}
	if c.prompt = promptWords(c.Content) + s.extra; s.usage != nil {
		c.prompt = s.usage(c.Content)
	}
	if c.MaxTokens > 8 {
		c.decode = int(s.decode.Add(1))
	}
	s.mu.Lock()
	c.n = len(s.chats)
	s.chats = append(s.chats, c)
	s.mu.Unlock()
	s.running.Add(1)
	defer s.running.Add(-1)
	if s.chat != nil {
		s.chat(c)
		return
	}
	c.steady(0, 20*time.Millisecond)
}

// pause waits until an instant after the request; false: the client has gone.
func (c *loadChat) pause(after time.Duration) bool { return c.until(c.at.Add(after)) }

func (c *loadChat) until(at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-c.r.Context().Done():
		return false
	case <-timer.C:
		return true
	}
}

// raw writes bytes of the body at once.
func (c *loadChat) raw(data string) {
	if c.w.Header().Get("Content-Type") == "" {
		c.w.Header().Set("Content-Type", "text/event-stream")
	}
	io.WriteString(c.w, data)
	c.w.(http.Flusher).Flush()
}

// token writes a chunk of one token that is like no other.
func (c *loadChat) token() {
	n := len(c.tokens) + 1
	before := time.Now()
	c.raw(fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":"w%d-%d "},"finish_reason":null}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\n",
		c.n, n*7919%100003, c.prompt, n))
	write := loadWrite{before, time.Now()}
	c.s.mu.Lock()
	c.tokens = append(c.tokens, write)
	c.s.mu.Unlock()
}

// writes returns what has been written so far.
func (c *loadChat) writes() []loadWrite {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Clone(c.tokens)
}

// finish ends the answer as it should end.
func (c *loadChat) finish() {
	c.raw(fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`+"\n\n"+
		`data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\ndata: [DONE]\n\n", c.prompt, len(c.tokens)))
}

// steady answers with max_tokens tokens, the first after a time, the others
// each a gap after the one before, and the end. A server that was held up does
// not catch up.
func (c *loadChat) steady(first, gap time.Duration) {
	next := c.at.Add(first)
	for range c.MaxTokens {
		if !c.until(next) {
			return
		}
		next = time.Now().Add(gap)
		c.token()
	}
	c.finish()
}

// refuse answers with an HTTP error.
func (c *loadChat) refuse(status int, message string) {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	fmt.Fprintf(c.w, `{"error":{"message":%q}}`, message)
}

// drop ends the connection: with a reset, or as a program that exits does.
func (c *loadChat) drop(reset bool) {
	conn, _, err := c.w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	if reset {
		conn.(*net.TCPConn).SetLinger(0)
	}
	conn.Close()
}

// A together runs subtests at the same time, all of them whatever -parallel
// says: they do little but wait.
type together struct {
	t  *testing.T
	wg sync.WaitGroup
}

func (g *together) run(name string, f func(*testing.T)) {
	g.wg.Go(func() { g.t.Run(name, f) })
}

// A loadRun is what the program made of a server.
type loadRun struct {
	Dir    string
	Status int    // of the command
	Stderr string // of the command
	Run    *ingest.Run
	HTML   string // text of the page, without markup
	MD     string // its Markdown twin, as it stands
}

// measureLoad measures a server, by the code of the command collect, with a
// plan of two concurrencies at one context, as changed.
func measureLoad(t *testing.T, address string, change func(*collect.Config)) *loadRun {
	t.Helper()
	u, err := server.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	cfg := collect.Config{
		URL: u, Root: t.TempDir(), Name: "run", Random: rand.Reader, Idle: 20 * time.Second,
		ReadyHold: 60 * time.Millisecond, DrainHold: 20 * time.Millisecond, ReadyLimit: 20 * time.Second,
		Tool:    runlog.Tool{Name: "speedmatrix", Version: "test"},
		Machine: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
		Plan: collect.PlanRequest{
			ContextsTokens: []int32{128}, PrefillContextsTokens: []int32{}, Concurrency: []int32{1, 2},
			Duration: 300 * time.Millisecond, MaxOutputTokens: 4000,
		},
	}
	if change != nil {
		change(&cfg)
	}
	var stderr bytes.Buffer
	dir, err := measure(&env{ctx: context.Background(), stdout: io.Discard, stderr: &stderr}, cfg)
	r := &loadRun{Dir: dir, Status: report(&stderr, "collect", err)}
	r.Stderr = stderr.String()
	if dir != "" {
		r.load(t)
	} else if left, _ := os.ReadDir(cfg.Root); len(left) > 0 {
		t.Errorf("no run, but files: %v", left)
	}
	return r
}

// measureUnhurried is measureLoad for figures that a machine which is too
// busy for the benchmark would spoil: the program says so itself (Client
// limited), and then it is asked again.
func measureUnhurried(t *testing.T, serve func() *loadServer, change func(*collect.Config)) (*loadServer, *loadRun) {
	t.Helper()
	for try := 0; ; try++ {
		s := serve()
		r := measureLoad(t, s.URL, change)
		limited := r.Run != nil && slices.ContainsFunc(r.Run.Decode, func(c ingest.Cell) bool { return c.Status == ingest.ClientLimited })
		if !limited || try == 4 {
			return s, r
		}
		t.Logf("measured again: %v", r.Run.Decode[0].Evidence)
	}
}

// load reads a run directory and makes its page.
func (r *loadRun) load(t *testing.T) {
	t.Helper()
	in, err := render.Open(r.Dir)
	if err != nil {
		t.Fatalf("open run: %v\n%s", err, r.Stderr)
	}
	r.Run = in.Run
	site := filepath.Join(t.TempDir(), "site")
	if _, err := render.Site([]render.Input{in}, site); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(site, "runs", in.Run.ID, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	r.HTML = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(read("index.html"), " "))
	r.MD = read("index.md")
}

// decode returns a decode cell by its concurrency.
func (r *loadRun) decode(t *testing.T, concurrency int32) *ingest.Cell {
	t.Helper()
	if r.Run == nil {
		t.Fatalf("nothing was measured: %s", r.Stderr)
	}
	for i := range r.Run.Decode {
		if c := &r.Run.Decode[i]; c.Concurrency == concurrency {
			return c
		}
	}
	t.Fatalf("no decode cell of %d", concurrency)
	return nil
}

// events returns the rows of a cell as the run log has them.
func (r *loadRun) events(t *testing.T, c *ingest.Cell) *runlog.Events {
	t.Helper()
	ev, err := runlog.ReadEvents(r.Dir, c.Key(), c.FileInfo)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// samples returns the values of one series of the server's telemetry.
func (r *loadRun) samples(t *testing.T, name string) (values []float64) {
	t.Helper()
	all, err := runlog.ReadTelemetry(r.Dir, runlog.FileInfo{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Source == runlog.SourceServer && s.Name == name {
			values = append(values, s.Value)
		}
	}
	return values
}

// applies reports whether there is evidence for a status, be it the cell's or
// hidden behind another: on a busy machine any cell may be Client limited.
func applies(c *ingest.Cell, status ingest.Status) bool {
	return slices.ContainsFunc(c.Evidence, func(e ingest.Evidence) bool { return e.Status == status })
}

// says asserts that the page has each text, in HTML and in Markdown.
func (r *loadRun) says(t *testing.T, texts ...string) {
	t.Helper()
	md := strings.ReplaceAll(r.MD, `\`, "")
	for _, s := range texts {
		if !strings.Contains(r.HTML, s) || !strings.Contains(md, strings.ReplaceAll(s, `\`, "")) {
			t.Errorf("the page does not say %q", s)
		}
	}
}

// silent asserts that the page has none of the texts.
func (r *loadRun) silent(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if strings.Contains(r.HTML, s) || strings.Contains(r.MD, s) {
			t.Errorf("the page says %q", s)
		}
	}
}

// row asserts that a table of the page has a row.
func (r *loadRun) row(t *testing.T, cells ...any) {
	t.Helper()
	line := "|"
	for _, c := range cells {
		line += fmt.Sprintf(" %v |", c)
	}
	if !strings.Contains(r.MD, line+"\n") {
		t.Errorf("the page has no row %s", line)
	}
}

// became asserts the row of a decode cell in the table of what became of
// requests.
func (r *loadRun) became(t *testing.T, c *ingest.Cell, sent, completed, failed int, httpErrors string, stopped int) {
	t.Helper()
	r.row(t, "Sustained decode", loadContext(c), c.Concurrency, sent, completed, failed, httpErrors, stopped, 0)
	if l := c.Launch; l.Launched != sent || l.Completed != completed || l.Failed != failed || l.Cancelled != stopped || l.Unfinished != 0 {
		t.Errorf("%+v, want %d = %d completed + %d failed + %d stopped", l, sent, completed, failed, stopped)
	}
}

func loadContext(c *ingest.Cell) string {
	if c.ContextTokens >= 1024 {
		return fmt.Sprintf("%dK", c.ContextTokens/1024)
	}
	return fmt.Sprint(c.ContextTokens)
}

// kinds counts the rows of a kind.
func kinds(ev *runlog.Events, k runlog.Kind) (n int) {
	for i := range ev.Len() {
		if ev.Kind[i] == k {
			n++
		}
	}
	return n
}

func wantStat(t *testing.T, what string, got ingest.Stat, value float64, n int) {
	t.Helper()
	if got.N != n || math.Abs(got.Value-value) > 1e-6*math.Abs(value) {
		t.Errorf("%s = %v over %d, want %v over %d", what, got.Value, got.N, value, n)
	}
}

// A logCell is a cell of a run log that is made by hand.
type logCell struct {
	events *runlog.Events
	window [2]int64 // decode only
}

// logRun writes a run log of decode cells and reads it back.
func logRun(t *testing.T, m runlog.Manifest, samples []runlog.Sample, cells ...logCell) *loadRun {
	t.Helper()
	dir, err := runlog.Create(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	m.Format, m.Finished = runlog.Format, true
	m.Tool = runlog.Tool{Name: "speedmatrix"}
	m.StartedAt = time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC)
	m.ArrivalClock = runlog.ArrivalUser
	m.Model.ServedName = "stub"
	p := &m.Plan
	p.PromptSet, p.DecodeTest, p.PrefillMode = "case", "fixed duration", "measured during decode warm-up"
	p.TokenCounting, p.Text, p.Sampling.TopP = "continuous usage", "full", 1
	if p.MaxOutputTokens == 0 {
		p.MaxOutputTokens = 4096
	}
	for _, c := range cells {
		info, err := runlog.WriteEvents(dir, c.events)
		if err != nil {
			t.Fatalf("write rows: %v", err)
		}
		key, open, shut := c.events.Key, c.window[0], c.window[1]
		p.DurationUs = max(p.DurationUs, shut-open)
		if !slices.Contains(p.ContextsTokens, key.ContextTokens) {
			p.ContextsTokens = append(p.ContextsTokens, key.ContextTokens)
		}
		if !slices.Contains(p.Concurrency, key.Concurrency) {
			p.Concurrency = append(p.Concurrency, key.Concurrency)
		}
		m.Cells = append(m.Cells, runlog.Cell{
			Phase: key.Phase, ContextTokens: key.ContextTokens, Concurrency: key.Concurrency,
			Outcome: runlog.OutcomeRecorded, FileInfo: info, WindowOpenUs: &open, WindowCloseUs: &shut,
			Ready: &runlog.Ready{By: "streams", WaitedUs: 1},
		})
	}
	tel, err := runlog.WriteTelemetry(dir, samples)
	if err != nil {
		t.Fatal(err)
	}
	m.Telemetry = &tel
	if err := runlog.WriteManifest(dir, &m); err != nil {
		t.Fatal(err)
	}
	r := &loadRun{Dir: dir}
	r.load(t)
	return r
}

// steadyStream appends one request of a stream: n events of one token, each a
// gap after the one before, the first a gap after it was sent, and an end.
func steadyStream(ev *runlog.Events, stream int32, sentUs, gapUs int64, n int, end runlog.Kind, endUs int64) {
	burstStream(ev, stream, sentUs, gapUs, n, 1, end, endUs)
}

// burstStream is steadyStream with events of several tokens.
func burstStream(ev *runlog.Events, stream int32, sentUs, gapUs int64, n int, tokens int32, end runlog.Kind, endUs int64) {
	add := func(e runlog.Event, seq int32) {
		e.Stream, e.Seq = stream, seq
		ev.Append(e)
	}
	add(runlog.NewEvent(runlog.KindSent, sentUs), 0)
	for i := range int32(n) {
		e := runlog.NewEvent(runlog.KindChunk, sentUs+int64(i+1)*gapUs)
		e.Tokens, e.CompletionTokens, e.PromptTokens = tokens, (i+1)*tokens, ev.Key.ContextTokens
		e.HasText, e.Text, e.Channel = true, fmt.Sprintf("w%d-%d ", stream, i*7919%1000003), runlog.ChannelContent
		add(e, i+1)
	}
	add(runlog.NewEvent(end, endUs), int32(n+1))
}

func decodeEvents(context, concurrency int32) *runlog.Events {
	return &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: context, Concurrency: concurrency}}
}

// fire sends requests by n clients of the collector at once, one after the
// other on each with a pause between, and makes a run of a single cell of what
// they recorded.
func fire(t *testing.T, address string, n, each int, pause time.Duration) *loadRun {
	t.Helper()
	u, err := url.Parse(address + "/v1/chat/completions")
	if err != nil {
		t.Fatal(err)
	}
	e, err := stream.NewEndpoint(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	recs := make([]*stream.Recording, n)
	var wg sync.WaitGroup
	for i := range n {
		recs[i] = stream.NewRecording(start)
		wg.Go(func() {
			c := stream.NewClient(e, 20*time.Second, &stream.Lateness{}, recs[i])
			defer c.Close()
			for k := range each {
				if k > 0 {
					time.Sleep(pause)
				}
				if _, err := c.Do(context.Background(), []byte(`{"messages":[{"content":"x"}],"max_tokens":64}`)); err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	ev := decodeEvents(8192, int32(n))
	for i, r := range recs {
		r.Decode(ev, stream.DecodeOptions{Stream: int32(i), Text: stream.TextFull, Redact: func(s string) string { return s }})
	}
	return logRun(t, runlog.Manifest{}, nil, logCell{ev, [2]int64{0, time.Since(start).Microseconds() + 1}})
}

// Real rate, window of 2 s instead of 10.
func TestCase_BR026(t *testing.T) {
	t.Parallel()
	s, r := measureUnhurried(t, func() *loadServer {
		return (&loadServer{chat: func(c *loadChat) { c.steady(0, 50*time.Millisecond) }}).start(t)
	}, func(cfg *collect.Config) {
		cfg.Plan.Concurrency, cfg.Plan.Duration = []int32{2}, 2*time.Second
	})
	c := r.decode(t, 2)
	if c.Status != ingest.Valid {
		t.Fatalf("%s %v, want Valid", c.Status, c.Evidence)
	}
	ev, inside := r.events(t, c), 0
	for i := range ev.Len() {
		if ev.Kind[i] == runlog.KindChunk && ev.TUs[i] > *c.WindowOpenUs && ev.TUs[i] <= *c.WindowCloseUs {
			inside += int(ev.Tokens[i])
		}
	}
	// The stub's own record: what it wrote well inside the window, and what
	// it may have written inside.
	const slack = 40 * time.Millisecond
	least, most := 0, 0
	open := r.Run.Manifest.StartedAt.Add(time.Duration(*c.WindowOpenUs) * time.Microsecond)
	shut := r.Run.Manifest.StartedAt.Add(time.Duration(*c.WindowCloseUs) * time.Microsecond)
	for _, q := range s.requests() {
		for _, w := range q.writes() {
			if w.before.After(open) && w.after.Before(shut.Add(-slack)) {
				least++
			}
			if w.after.After(open.Add(-slack)) && w.before.Before(shut) {
				most++
			}
		}
	}
	if inside < least || inside > most || most > 84 {
		t.Errorf("%d tokens in the window, the stub wrote %d to %d there; want 80", inside, least, most)
	}
	wantStat(t, "output tokens", c.Figures.OutputTokens, float64(inside), inside)
	wantStat(t, "total tok/s", c.Figures.TotalTokPerS, float64(inside)/2, inside)
	wantStat(t, "completed requests", c.Figures.CompletedRequests, 0, 2)
	wantStat(t, "active requests", c.Figures.ActiveRequests, 2, 2)
	r.became(t, c, 2, 0, 0, "0", 2)
}

// The case's own times, as events.
func TestCase_BR026_Log(t *testing.T) {
	t.Parallel()
	ev := decodeEvents(8192, 2)
	for s := range int32(2) {
		steadyStream(ev, s, 1_000_000, 50_000, 240, runlog.KindCancelled, 13_010_000)
	}
	r := logRun(t, runlog.Manifest{}, nil, logCell{ev, [2]int64{2_000_000, 12_000_000}})
	r.row(t, "Sustained decode", "8K", 2, "Valid", "40.0", "20.0", "50 ms", "50.0 ms", "2.0", 0, 400, "10.0 s")
	r.became(t, r.decode(t, 2), 2, 0, 0, "0", 2)
}

func TestCase_BR027(t *testing.T) {
	t.Parallel()
	steady, whole := decodeEvents(8192, 4), decodeEvents(16384, 4)
	for s := range int32(4) {
		for _, ev := range []*runlog.Events{steady, whole} {
			at := 1_000_000 + int64(s)*1_000_000
			steadyStream(ev, s, at-99_999, 100_000, 100, runlog.KindDone, at+10_000_000)
		}
	}
	log := func(ev *runlog.Events, open, shut int64) *loadRun {
		return logRun(t, runlog.Manifest{}, nil, logCell{ev, [2]int64{open, shut}})
	}
	r := log(steady, 4_000_000, 11_000_000)
	r.row(t, "Sustained decode", "8K", 4, "Valid", "40.0", "10.0", "100 ms", "100.0 ms", "4.0", 1, 280, "7.0 s")
	r.says(t, "Decode windows opened when", "all requests delivered output (1)")
	r = log(whole, 1_000_000, 14_000_001)
	c := r.decode(t, 4)
	if got := c.Figures.TotalTokPerS.Value; math.Abs(got-400.0/13) > 0.001 {
		t.Errorf("whole run: %v tok/s, want 30.8", got)
	}
	if got := c.Figures.ActiveRequests.Value; math.Abs(got-3.08) > 0.005 {
		t.Errorf("whole run: %v active, want 3.08", got)
	}
	// The whole run is no measurement of 4 at once, and is not shown as one.
	r.row(t, "Sustained decode", "16K", 4, "Under-filled", "—", "—", "—", "—", "—", "—", "—", "—")
	r.says(t, "the benchmark itself had only 3.1 of 4 requests in progress on average")
	r.silent(t, "30.8")
}

// The collector's own window leaves the ramp-up out. Scaled down by 10.
func TestCase_BR027_Ramp(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, metrics := range []bool{true, false} {
		all.run(fmt.Sprint("metrics ", metrics), func(t *testing.T) {
			s := &loadServer{chat: func(c *loadChat) {
				late := 0
				if c.decode > 1 { // the first is the warm-up
					late = c.decode - 2
				}
				c.steady(time.Duration(late)*100*time.Millisecond, 40*time.Millisecond)
			}}
			if !metrics {
				s.metrics = http.NotFound
			}
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) { cfg.Plan.Concurrency = []int32{4} })
			c := r.decode(t, 4)
			open := r.Run.Manifest.StartedAt.Add(time.Duration(*c.WindowOpenUs) * time.Microsecond)
			for _, q := range s.requests() {
				if w := q.writes(); q.decode > 1 && w[0].before.After(open) {
					t.Errorf("the window opened %v before request %d had a token", w[0].before.Sub(open), q.decode)
				}
			}
			if applies(c, ingest.Failed) || applies(c, ingest.UnderFilled) {
				t.Errorf("%s %v, want it full", c.Status, c.Evidence)
			}
			wantStat(t, "active requests", c.Figures.ActiveRequests, 4, 4)
			words := "all requests delivered output and the server ran them (1)"
			if !metrics {
				words = "all requests delivered output (1)"
			}
			r.says(t, words)
		})
	}
}

// Real times. The first request of all may be a short one of the collector,
// or the first that the server can't do in one step.
func TestCase_BR029(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range []struct {
		name string
		slow func(c *loadChat) bool // the request may be the one that pays
	}{
		{"the first request of all", func(*loadChat) bool { return true }},
		{"the first long prompt", func(c *loadChat) bool { return promptWords(c.Content) > 64 }},
	} {
		all.run(tt.name, func(t *testing.T) {
			var paid atomic.Bool
			s := (&loadServer{chat: func(c *loadChat) {
				first := 200 * time.Millisecond
				if tt.slow(c) && !paid.Swap(true) {
					first = 1700 * time.Millisecond
				}
				c.steady(first, 5*time.Millisecond)
			}}).start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) {
				cfg.Plan.ContextsTokens, cfg.Plan.PrefillContextsTokens = []int32{}, []int32{128}
				cfg.Plan.PrefillRepeats, cfg.Plan.MaxOutputTokens = 3, 32
			})
			if len(r.Run.Prefill) != 1 || len(r.Run.Decode) != 0 {
				t.Fatalf("%d prefill and %d decode cells, want 1 and 0", len(r.Run.Prefill), len(r.Run.Decode))
			}
			c := &r.Run.Prefill[0]
			if ttft := c.Figures.TTFTUs; c.Status != ingest.Valid || ttft.N != 3 || ttft.Value < 195_000 || ttft.Value > 1_000_000 {
				t.Errorf("%s %v: TTFT %v, want about 200 ms over 3", c.Status, c.Evidence, ttft)
			}
			w := r.Run.Warmup
			if w == nil || w.Phase != runlog.PhaseWarmup || len(w.Requests) != 1 || w.Requests[0].TokenEvents == 0 {
				t.Fatalf("warm-up %+v, want one request with its token events", w)
			}
			if slow := tt.name == "the first long prompt"; w.Requests[0].TTFTUs.Value < 195_000 || slow && w.Requests[0].TTFTUs.Value < 1_695_000 {
				t.Errorf("TTFT of the warm-up %v, want that of the request that pays: %v", w.Requests[0].TTFTUs, slow)
			}
			r.silent(t, "1,7", "Warm-up")
			r.says(t, "cells/warmup.parquet")
		})
	}
}

func TestCase_BR031(t *testing.T) {
	t.Parallel()
	s := (&loadServer{chat: func(c *loadChat) {
		if c.n%3 == 1 || c.n == 98 {
			c.refuse(500, "internal")
			return
		}
		if c.pause(750 * time.Millisecond) {
			c.token()
			c.finish()
		}
	}}).start(t)
	r := fire(t, s.URL, 100, 1, 0)
	c := r.decode(t, 100)
	sum, n, most := 0.0, 0, 0.0
	for _, q := range c.Requests {
		if v := q.TTFTUs; !q.Failed && v.Known() {
			sum, n, most = sum+v.Value, n+1, max(most, v.Value)
		}
	}
	if n != 66 || sum/66 < 745_000 {
		t.Errorf("mean %v µs over %d, want 750,000 at least over 66", sum/float64(n), n)
	}
	if v := c.Figures.TTFTUs; v.N != 66 || v.Value < 745_000 || v.Value > most {
		t.Errorf("median %v, want 750,000 µs at least over 66", v)
	}
	if c.Status != ingest.Failed {
		t.Errorf("%s, want Failed", c.Status)
	}
	r.became(t, c, 100, 66, 34, "34 × 500", 0)
	r.says(t, "34 of 100 requests failed", `request failed with HTTP status 500: "HTTP 500: internal"`)
	r.silent(t, "495 ms")
}

func TestCase_BR035(t *testing.T) {
	t.Parallel()
	log := func(open, shut int64) *loadRun {
		ev := decodeEvents(8192, 32)
		for s := range int32(32) {
			n := 100 // events of 10 tokens, to keep the log small
			if s == 31 {
				n = 400
			}
			burstStream(ev, s, 900_001, 100_000, n, 10, runlog.KindDone, 1_000_001+int64(n)*100_000)
		}
		return logRun(t, runlog.Manifest{}, nil, logCell{ev, [2]int64{open, shut}})
	}
	r := log(1_000_000, 11_000_000)
	r.row(t, "Sustained decode", "8K", 32, "Valid", "3,200.0", "100.0", "100 ms", "10.0 ms", "32.0", 0, "32,000", "10.0 s")
	r = log(1_000_000, 41_000_001)
	c := r.decode(t, 32)
	if got := c.Figures.TotalTokPerS.Value; math.Abs(got-875) > 0.001 {
		t.Errorf("end to end: %v tok/s, want 875", got)
	}
	if got := c.Figures.ActiveRequests.Value; math.Abs(got-8.75) > 0.001 {
		t.Errorf("end to end: %v active, want 8.75", got)
	}
	if c.Status != ingest.UnderFilled {
		t.Errorf("end to end: %s, want Under-filled", c.Status)
	}
	r.says(t, "the benchmark itself had only 8.8 of 32 requests in progress on average")
	r.silent(t, "| 875.0", "875.0<br>")
}

func TestCase_BR036(t *testing.T) {
	t.Parallel()
	s := (&loadServer{chat: func(c *loadChat) {
		if c.n == 2 {
			c.refuse(500, "no")
			return
		}
		c.token()
		c.finish()
	}}).start(t)
	r := fire(t, s.URL, 4, 1, 0)
	c := r.decode(t, 4)
	ev := r.events(t, c)
	if done, failed := kinds(ev, runlog.KindDone), kinds(ev, runlog.KindError); done != 3 || failed != 1 {
		t.Errorf("rows: %d done, %d errors, want 3 and 1", done, failed)
	}
	wantStat(t, "completed requests", c.Figures.CompletedRequests, 3, 4)
	r.became(t, c, 4, 3, 1, "1 × 500", 0)
}

func TestCase_BR051(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"141 DONE", "141 CLOSE", "141 RESET", "150 C \"c\"\n160 DONE"} {
		c := playScripts(t, "100 C \"a\"\n120 C \"b\"\n140 W data: {\"error\":{\"message\":\"engine failure\",\"type\":\"server_error\",\"code\":500}}\\n\\n\n"+end)
		q := &c.Requests[0]
		if !q.Failed || !strings.Contains(q.Reason, "engine failure") || q.TokenEvents != 2 || c.text(0) != "ab" {
			t.Errorf("%s: failed %v (%q) with %d events %q, want the server's message and 2 tokens", end, q.Failed, q.Reason, q.TokenEvents, c.text(0))
		}
		if c.Status != ingest.Failed || c.Launch.Failed != 1 || c.Launch.Completed != 0 {
			t.Errorf("%s: %s, %+v, want 1 failed, 0 completed", end, c.Status, c.Launch)
		}
		r := &loadRun{Dir: c.Dir}
		r.load(t)
		r.became(t, &c.Cell, 1, 0, 1, "0", 0)
		r.says(t, "1 of 1 request failed", "engine failure")
	}
}

func TestCase_BR053(t *testing.T) {
	t.Parallel()
	script := func(how string) string {
		var b strings.Builder
		for i := range 10 {
			line := fmt.Sprintf("%d C \"x\"\n", 50+20*i)
			if how == "counted" {
				line = fmt.Sprintf("%d CU \"x\" %d\n", 50+20*i, i+1)
			}
			b.WriteString(line)
		}
		return b.String()
	}
	for _, tt := range []struct{ how, end, share string }{
		{"counted", "240 CLOSE", "1 of the 1 requests that ended by themselves ended early, before the 1,024 tokens asked for"},
		{"counted", "240 FIN stop\n241 USAGE 9 10\n242 DONE", "1 of the 1 requests that ended by themselves ended early, before the 1,024 tokens asked for"},
		{"not counted", "240 CLOSE", ""}, // nobody knows how many tokens that was
	} {
		c := playCase(t, caseSetup{Streams: [][]string{{script(tt.how) + tt.end}}, MaxOutput: 1024, IgnoreEOS: true})
		r := &loadRun{Dir: c.Dir}
		r.load(t)
		if c.Status != ingest.Failed {
			t.Errorf("%s, %s: %s, want Failed", tt.how, tt.end, c.Status)
		}
		if tt.share == "" {
			r.says(t, "stream ended without [DONE] after 10 events")
			if v := c.Figures.OutputTokens; v.Known() {
				t.Errorf("not counted: %v output tokens, want it unknown", v)
			}
			continue
		}
		if q := &c.Requests[0]; q.Tokens != 10 || !q.EndedEarly {
			t.Errorf("%s: %d tokens, ended early %v, want 10 of 1,024", tt.end, q.Tokens, q.EndedEarly)
		}
		wantStat(t, "output tokens", c.Figures.OutputTokens, 10, 10)
		r.says(t, tt.share)
		if strings.Contains(tt.end, "CLOSE") {
			r.says(t, "ended early 10 of 1,024")
		}
	}
}

// The stream also holds the key, cut by the server's writes.
func TestCase_BR056(t *testing.T) {
	t.Parallel()
	const key = "sk-test-0056-abcdef"
	c := playScripts(t, "50 C \"a\"\n70 C \"b\"\n80 W data: {\"choi\n85 RESET")
	if q := &c.Requests[0]; !q.Failed || !strings.Contains(q.Reason, "reset") || !strings.Contains(q.Reason, `{\"choi`) || c.text(0) != "ab" {
		t.Errorf("failed %v: %q with %q, want the reset, the last bytes and both tokens", q.Failed, q.Reason, c.text(0))
	}

	s := (&loadServer{chat: func(c *loadChat) {
		if c.decode < 2 {
			c.steady(0, 20*time.Millisecond)
			return
		}
		c.pause(50 * time.Millisecond)
		c.token()
		c.token()
		c.raw("data: {\"choi" + strings.Repeat("x", 100) + " Authorization: Bearer sk-test-00")
		c.pause(80 * time.Millisecond)
		c.raw("56-abcdef\", \"de")
		c.pause(110 * time.Millisecond)
		c.drop(true)
	}}).start(t)
	r := measureLoad(t, s.URL, func(cfg *collect.Config) { cfg.Key, cfg.Plan.Concurrency = key, []int32{1} })
	cell := r.decode(t, 1)
	ev := r.events(t, cell)
	last := ev.Row(ev.Len() - 1)
	if last.Kind != runlog.KindError || !strings.Contains(last.Error, "reset") || !strings.Contains(last.Error, "last bytes") || len([]rune(last.Error)) > 500 {
		t.Errorf("last row %v %q, want the reset and the last bytes", last.Kind, last.Error)
	}
	if cell.Requests[0].Tokens != 2 || cell.Status != ingest.Failed {
		t.Errorf("%s with %d tokens, want Failed with 2", cell.Status, cell.Requests[0].Tokens)
	}
	for _, piece := range []string{key, "0056-abcdef", "56-abcdef", "sk-test-00"} {
		if strings.Contains(last.Error, piece) {
			t.Errorf("the error has %q of the key: %q", piece, last.Error)
		}
		r.silent(t, piece)
	}
}

func TestCase_BR057(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		"40 W data: [DONE]\\n\\n\n41 CLOSE",
		"20 ROLE\n40 FIN stop\n41 USAGE 9 0\n42 DONE",
		"40 CLOSE",
		"20 W : keep-alive\\n\\n\n40 DONE",
	} {
		c := playScripts(t, script)
		if q := &c.Requests[0]; !q.Failed || q.Reason == "" || q.TTFTUs.Known() {
			t.Errorf("%q: failed %v %q, TTFT %v; want failed without TTFT", script, q.Failed, q.Reason, q.TTFTUs)
		}
		if c.Figures.TTFTUs.Known() || c.Launch.Completed != 0 || c.Launch.Failed != 1 || c.Status != ingest.Failed {
			t.Errorf("%q: %s %+v, TTFT %v, want Failed without a TTFT", script, c.Status, c.Launch, c.Figures.TTFTUs)
		}
	}
}

// Scaled down by 10. The server closes connections that are idle, and says
// nothing.
func TestCase_BR059(t *testing.T) {
	t.Parallel()
	s := &loadServer{chat: func(c *loadChat) {
		if c.MaxTokens > 8 && c.pause(30*time.Millisecond) {
			c.token()
			c.finish()
			return
		}
		c.steady(0, 20*time.Millisecond)
	}}
	idle := httptest.NewUnstartedServer(s)
	idle.Config.IdleTimeout = 100 * time.Millisecond
	s.asked, s.maxLen = map[string]int{}, 8192
	idle.Start()
	defer idle.Close()

	r := fire(t, idle.URL, 8, 2, 300*time.Millisecond)
	c := r.decode(t, 8)
	for i := range c.Requests {
		switch q := &c.Requests[i]; q.Request {
		case 1:
			if q.End != runlog.KindCancelled {
				t.Errorf("stream %d: the attempt on the closed connection ended in %v, want cancelled", q.Stream, q.End)
			}
		case 2:
			if before := c.Requests[i-1]; q.SentUs < before.EndUs {
				t.Errorf("stream %d: sent again at %d, before the first attempt ended at %d", q.Stream, q.SentUs, before.EndUs)
			}
			fallthrough
		default:
			if q.Failed || !q.TTFTUs.Known() || q.TTFTUs.Value < 25_000 || q.TTFTUs.Value != float64(q.FirstUs-q.SentUs) {
				t.Errorf("stream %d request %d: failed %v, TTFT %v; want 30 ms from its own sending", q.Stream, q.Request, q.Failed, q.TTFTUs)
			}
		}
	}
	ev := r.events(t, c)
	reasons := 0
	for i := range ev.Len() {
		if strings.Contains(ev.Error[i], "kept connection was closed before any answer") && strings.Contains(ev.Error[i], "sent again") {
			reasons++
		}
	}
	if reasons != 8 {
		t.Errorf("%d recorded retries, want 8", reasons)
	}
	r.became(t, c, 24, 16, 0, "0", 8)
	if n := len(s.requests()); n != 16 {
		t.Errorf("the server saw %d requests, want 16", n)
	}

	// And through the collector: two cells, with pauses longer than the
	// server's patience.
	whole := measureLoad(t, idle.URL, func(cfg *collect.Config) {
		cfg.Plan.Concurrency, cfg.DrainHold = []int32{7, 8}, 250*time.Millisecond
	})
	for _, n := range []int32{7, 8} {
		if c := whole.decode(t, n); c.Launch.Failed != 0 || c.Launch.Completed == 0 || whole.Status != exitDone {
			t.Errorf("%d streams: %+v %v, exit status %d, want 0 failed", n, c.Launch, c.Evidence, whole.Status)
		}
	}
}

// Scaled down by 10.
func TestCase_BR061(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range []struct {
		name string
		then string // what the server does after its engine's death
		want string // in the run's error
	}{
		{"the port refuses connections", "refuse", "connection refused"},
		{"the port is open, the health page says that it is dead", "unwell", "GET /health: 503 Service Unavailable"},
	} {
		all.run(tt.name, func(t *testing.T) {
			dead := make(chan struct{})
			var after atomic.Int64 // chat requests after the death
			s := &loadServer{chat: func(c *loadChat) {
				for i := range c.MaxTokens {
					select {
					case <-dead:
						if i == 0 {
							after.Add(1)
						}
						c.raw(`data: {"error":{"message":"EngineDeadError","code":500}}` + "\n\n")
						if tt.then == "refuse" {
							time.Sleep(20 * time.Millisecond)
							c.drop(false)
						}
						return
					default:
					}
					if !c.pause(time.Duration(i) * 20 * time.Millisecond) {
						return
					}
					c.token()
				}
				c.finish()
			}}
			if tt.then == "unwell" {
				s.front = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					select {
					case <-dead:
						if r.URL.Path != "/v1/chat/completions" {
							http.Error(w, "dead", http.StatusServiceUnavailable)
							return
						}
					default:
					}
					s.ServeHTTP(w, r)
				})
			}
			var once sync.Once
			s.gauges = func() string { // asked when the window opens, and now and then before and in it
				if s.running.Load() == 3 {
					once.Do(func() {
						time.AfterFunc(250*time.Millisecond, func() {
							if tt.then == "refuse" {
								s.http.Listener.Close()
							}
							close(dead)
						})
					})
				}
				return ""
			}
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) {
				cfg.Plan.Concurrency, cfg.Plan.Duration = []int32{1, 2, 3, 4, 5}, 400*time.Millisecond
			})
			if r.Status != exitFailed || !strings.Contains(r.Stderr, tt.want) || !strings.Contains(r.Stderr, "--resume") {
				t.Errorf("exit status %d, stderr %q; want %d, %q and how to go on", r.Status, r.Stderr, exitFailed, tt.want)
			}
			for n, status := range map[int32]ingest.Status{1: ingest.Valid, 2: ingest.Valid, 3: ingest.Failed, 4: ingest.NotRun, 5: ingest.NotRun} {
				c := r.decode(t, n)
				if status == ingest.Valid {
					if c.Outcome != runlog.OutcomeRecorded || c.Launch.Failed != 0 || c.Launch.Cancelled != int(n) {
						t.Errorf("%d streams: %s %v, %+v; want it measured", n, c.Status, c.Evidence, c.Launch)
					}
				} else if c.Status != status {
					t.Errorf("%d streams: %s %v, want %s", n, c.Status, c.Evidence, status)
				}
			}
			if c := r.decode(t, 3); c.Launch.Failed != 3 || c.Rows == 0 {
				t.Errorf("the cell that saw it: %+v, %d rows, want 3 failed with their rows", c.Launch, c.Rows)
			}
			r.says(t, "EngineDeadError", "the run ended before its plan was worked off", "2 of 5 measurements are missing")
			if n := after.Load(); n > 0 {
				t.Errorf("%d requests after the death, want none", n)
			}
		})
	}
}

// Real times.
func TestCase_BR063(t *testing.T) {
	t.Parallel()
	var other strings.Builder
	for i := range 30 {
		fmt.Fprintf(&other, "%d CU \"w%d\" %d\n", 100*(i+1), i, i+1)
	}
	c := playCase(t, caseSetup{
		Streams: [][]string{{"100 CU \"a\" 1\n120 CU \"b\" 2\n HANG"}, {other.String() + "3010 DONE"}},
		Idle:    2 * time.Second,
	})
	q, rest := &c.Requests[0], &c.Requests[1]
	if took := q.EndUs - q.SentUs; !q.Failed || !strings.Contains(q.Reason, "nothing arrived for 2s (idle limit)") || took < 2_095_000 || took > 10_000_000 {
		t.Errorf("failed %v %q after %d µs, want the idle limit at about 2,120,000", q.Failed, q.Reason, took)
	}
	if q.Tokens != 2 || c.text(0) != "ab" {
		t.Errorf("%d tokens %q, want the 2 that came", q.Tokens, c.text(0))
	}
	if rest.Failed || rest.Tokens != 30 || rest.LastUs < q.LastUs+2_500_000 {
		t.Errorf("the other stream: failed %v, %d tokens, the last at %d; want it to run on 2.9 s after %d", rest.Failed, rest.Tokens, rest.LastUs, q.LastUs)
	}
	r := &loadRun{Dir: c.Dir}
	r.load(t)
	r.became(t, &c.Cell, 2, 1, 1, "0", 0)
	r.says(t, "idle limit")
}

// In a cell of the collector the others run on to the end of the window.
func TestCase_BR063_Cell(t *testing.T) {
	t.Parallel()
	s := (&loadServer{chat: func(c *loadChat) {
		if c.decode == 3 {
			c.token()
			c.token()
			c.pause(time.Minute)
			return
		}
		c.steady(0, 40*time.Millisecond)
	}}).start(t)
	r := measureLoad(t, s.URL, func(cfg *collect.Config) {
		cfg.Plan.Concurrency, cfg.Plan.Duration, cfg.Idle = []int32{3}, 2*time.Second, time.Second
	})
	c := r.decode(t, 3)
	if c.Status != ingest.Failed || c.Launch.Failed != 1 || c.Launch.Cancelled != 2 {
		t.Fatalf("%s %v, %+v; want 1 failed, 2 stopped at the close", c.Status, c.Evidence, c.Launch)
	}
	var silent *ingest.Request
	for i := range c.Requests {
		if c.Requests[i].Failed {
			silent = &c.Requests[i]
		}
	}
	if silent.Tokens != 2 || !strings.Contains(silent.Reason, "idle limit") {
		t.Errorf("%q with %d tokens, want the idle limit with 2", silent.Reason, silent.Tokens)
	}
	for _, q := range c.Requests {
		if !q.Failed && q.LastUs < silent.EndUs {
			t.Errorf("stream %d had its last token at %d, before the silent one ended at %d", q.Stream, q.LastUs, silent.EndUs)
		}
	}
	if *c.WindowCloseUs-*c.WindowOpenUs != 2_000_000 {
		t.Errorf("window of %d µs, want all of it", *c.WindowCloseUs-*c.WindowOpenUs)
	}
}

func TestCase_BR065(t *testing.T) {
	t.Parallel()
	s := (&loadServer{chat: func(c *loadChat) {
		if c.decode == 2 || c.decode == 4 {
			c.w.Header().Set("Retry-After", "3")
			c.refuse(429, "slow down")
			return
		}
		c.steady(0, 20*time.Millisecond)
	}}).start(t)
	r := measureLoad(t, s.URL, func(cfg *collect.Config) { cfg.Plan.Concurrency = []int32{4} })
	c := r.decode(t, 4)
	if got := s.decode.Load(); got != 5 {
		t.Errorf("the server saw %d requests, want the warm-up and 4, without a retry", got)
	}
	for _, q := range c.Requests {
		if q.Failed && q.TTFTUs.Known() {
			t.Errorf("a refused request has TTFT %v", q.TTFTUs)
		}
	}
	if c.Status != ingest.Failed || r.Status != exitDone {
		t.Errorf("%s, exit status %d, want Failed in a run that is done", c.Status, r.Status)
	}
	r.became(t, c, 4, 0, 2, "2 × 429", 2)
	r.says(t, "2 of 4 requests failed", "slow down")
}

// locked answers 401 to whoever does not show the key, and remembers which
// endpoints were asked with it.
func locked(next http.Handler, key string) (h http.Handler, seen func() map[string]int) {
	var mu sync.Mutex
	paths := map[string]int{}
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(401)
			io.WriteString(w, `{"error":"no key"}`)
			return
		}
		mu.Lock()
		paths[r.URL.Path]++
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	return h, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(paths)
	}
}

// By the command line, with its own waiting times.
func TestCase_BR066(t *testing.T) {
	t.Parallel()
	const key = "sk-test-0003"
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "key")
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &loadServer{chat: func(c *loadChat) {
		if c.decode > 1 { // a cell that fails makes the collector ask for the server's health
			c.refuse(500, "no")
			return
		}
		c.steady(0, 10*time.Millisecond)
	}}
	front, seen := locked(s, key)
	s.front = front
	s.start(t)
	args := []string{"collect", "--url", s.URL, "-o", filepath.Join(dir, "results"), "--contexts", "128", "--prefill-contexts", "128",
		"--concurrency", "1", "--duration", "200ms", "--max-output", "16"}

	status, stdout, stderr := commandLine(append(args, "--api-key-file", keyFile)...)
	if status != exitDone || stdout == "" {
		t.Errorf("with the key: status %d, stderr %q", status, stderr)
	}
	for _, path := range []string{"/health", "/v1/models", "/metrics", "/v1/chat/completions", "/tokenize", "/version"} {
		if seen()[path] == 0 {
			t.Errorf("%s was not asked with the key", path)
		}
	}
	if strings.Contains(stderr+stdout, key) {
		t.Errorf("the output holds the key")
	}

	status, stdout, stderr = commandLine(append(args, "--name", "again")...)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "401 Unauthorized") || !strings.Contains(stderr, "credentials") || !strings.Contains(stderr, "--api-key-file") {
		t.Errorf("without the key: status %d, stderr %q; want a word about credentials", status, stderr)
	}
	if strings.Contains(stderr, "is the server running") || strings.Contains(stderr, "no connection") {
		t.Errorf("without the key: %q, want no talk of a server that is down", stderr)
	}
}

// The key goes to the server that was named, whatever its address looks like,
// and to no other.
func TestCase_BR066_Redirect(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	const key = "sk-test-0003"
	for _, path := range []string{"/health", "/v1/models", "/metrics", "/v1/chat/completions", "/tokenize", "/version"} {
		all.run(strings.ReplaceAll(path[1:], "/", "-"), func(t *testing.T) {
			other := &loadServer{}
			address := "127.0.0.2:0"
			if l, err := net.Listen("tcp", address); err != nil {
				address = "127.0.0.1:0" // another port is another server, too
			} else {
				l.Close()
			}
			other.listen(t, address)
			s := &loadServer{chat: func(c *loadChat) {
				if c.decode > 1 {
					c.refuse(500, "no") // then the health is asked for
					return
				}
				c.steady(0, 10*time.Millisecond)
			}}
			behind, _ := locked(s, key)
			var redirected atomic.Int64
			s.front = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == path {
					redirected.Add(1)
					http.Redirect(w, r, other.URL+path, http.StatusTemporaryRedirect)
					return
				}
				behind.ServeHTTP(w, r)
			})
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) { cfg.Key, cfg.Plan.Concurrency = key, []int32{1} })
			if redirected.Load() == 0 {
				t.Errorf("%s was not asked for", path)
			}
			other.mu.Lock()
			defer other.mu.Unlock()
			if len(other.asked) > 0 {
				t.Errorf("the other server was asked: %v", other.asked)
			}
			if needed := path == "/v1/models" || path == "/v1/chat/completions"; needed != (r.Status == exitFailed) {
				t.Errorf("exit status %d, stderr %q; an endpoint that is needed: %v", r.Status, r.Stderr, needed)
			}
		})
	}
}

func TestCase_BR066_IPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Logf("no IPv6 here (%v): the address is parsed all the same", err)
		if u, err := server.ParseURL("[::1]:8000/v1/"); err != nil || u.String() != "http://[::1]:8000" {
			t.Errorf("ParseURL = %v, %v", u, err)
		}
		return
	}
	l.Close()
	s := &loadServer{}
	front, seen := locked(s, "sk-test-0003")
	s.front = front
	s.listen(t, "[::1]:0")
	r := measureLoad(t, s.URL, func(cfg *collect.Config) { cfg.Key, cfg.Plan.Concurrency = "sk-test-0003", []int32{1} })
	if c := r.decode(t, 1); c.Outcome != runlog.OutcomeRecorded || seen()["/metrics"] == 0 {
		t.Errorf("%s %q, asked %v", c.Outcome, c.Reason, seen())
	}
}

func TestCase_BR067(t *testing.T) {
	t.Parallel()
	asked := atomic.Int64{}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(401)
		io.WriteString(w, `{"error":"no key"}`)
	}))
	defer ts.Close()
	out := filepath.Join(t.TempDir(), "results")
	status, stdout, stderr := commandLine("collect", "--url", ts.URL, "-o", out)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "401 Unauthorized: no key") {
		t.Errorf("status %d, stdout %q, stderr %q; want %d and the 401", status, stdout, stderr, exitFailed)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("%s: %v, want nothing written", out, err)
	}
	if n := asked.Load(); n > 3 {
		t.Errorf("asked %d times, want it to stop early", n)
	}
	if status, _, stderr = commandLine("render", filepath.Dir(out), "-o", filepath.Join(filepath.Dir(out), "site")); status != exitFailed {
		t.Errorf("render of nothing: status %d, %q", status, stderr)
	}
}

func TestCase_BR068(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{false, true} {
		s := (&loadServer{chat: func(c *loadChat) {
			if n := c.n + 1; n == 20 || n == 50 || n == 80 {
				c.drop(reset)
				return
			}
			c.token()
			c.finish()
		}}).start(t)
		r := fire(t, s.URL, 100, 1, 0)
		c := r.decode(t, 100)
		if n := len(s.requests()); n != 100 {
			t.Errorf("reset %v: the server saw %d requests, want 100", reset, n)
		}
		if sent := kinds(r.events(t, c), runlog.KindSent); sent != 100 {
			t.Errorf("reset %v: %d requests in the log, want 100", reset, sent)
		}
		r.became(t, c, 100, 97, 3, "0", 0)
		if c.Status != ingest.Failed {
			t.Errorf("reset %v: %s, want Failed", reset, c.Status)
		}
		r.says(t, "3 of 100 requests failed")
	}
}

func TestCase_BR069(t *testing.T) {
	t.Parallel()
	s := (&loadServer{chat: func(c *loadChat) {
		switch {
		case c.n%5 < 2 && c.n < 10:
			c.refuse(503, "busy")
		case c.n == 11:
			c.refuse(429, "slow down")
		default:
			c.token()
			c.finish()
		}
	}}).start(t)
	r := fire(t, s.URL, 10, 1, 0)
	c := r.decode(t, 10)
	r.became(t, c, 10, 6, 4, "4 × 503", 0)
	r.says(t, "4 of 10 requests failed")
	if c.Status != ingest.Failed {
		t.Errorf("%s, want Failed", c.Status)
	}

	// Requests 10 and 12 of the server are well: none failed, and that is said.
	r = fire(t, s.URL, 1, 1, 0)
	r.became(t, r.decode(t, 1), 1, 1, 0, "0", 0)
	r = fire(t, s.URL, 1, 1, 0)
	r.became(t, r.decode(t, 1), 1, 0, 1, "1 × 429", 0)
}

func TestCase_BR070(t *testing.T) {
	t.Parallel()
	s := (&loadServer{maxLen: 32768, gauges: func() string {
		return `vllm:cache_config_info{engine="0",kv_cache_size_tokens="290864",kv_cache_max_concurrency="33.04",block_size="16"} 1` + "\n"
	}}).start(t)
	r := measureLoad(t, s.URL, func(cfg *collect.Config) {
		// 28,672 and 4,096 tokens: 32K each, 524,288 for 16.
		cfg.Plan.ContextsTokens, cfg.Plan.MaxOutputTokens, cfg.Plan.Concurrency = []int32{28672}, 4096, []int32{16, 33, 34}
		cfg.MaxNumSeqs = 0
	})
	if k := r.Run.Manifest.Capacity; k.KVCacheTokens != 1_082_654 {
		t.Errorf("capacity %d, want 1,082,654", k.KVCacheTokens)
	}
	if c := r.decode(t, 16); c.Outcome != runlog.OutcomeRecorded || c.PromptTokens != 28672 {
		t.Errorf("16 × 32K: %s %q with prompts of %d, want it run", c.Outcome, c.Reason, c.PromptTokens)
	}
	if c := r.decode(t, 33); c.Outcome != runlog.OutcomeRecorded {
		t.Errorf("33 × 32K: %s %q, want it run", c.Outcome, c.Reason)
	}
	if c := r.decode(t, 34); c.Status != ingest.OverCapacity {
		t.Errorf("34 × 32K: %s %v, want Over capacity", c.Status, c.Evidence)
	}
	r.says(t, "1,082,654 tokens (kv_cache_max_concurrency × max_model_len)",
		"34 × (28,672 context + 4,096 output) tokens, more than the 1,082,654 tokens of the KV cache")
}

func TestCase_BR072(t *testing.T) {
	t.Parallel()
	lines := func(each int) func() string {
		return func() string {
			return fmt.Sprintf("vllm:num_requests_running{engine=\"1\"} 0\nvllm:num_requests_waiting{engine=\"1\"} 0\n"+
				"vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"%d\"} 1\nvllm:cache_config_info{engine=\"1\",kv_cache_size_tokens=\"%d\"} 1\n", each, each)
		}
	}
	// The case's own figures, from a page that was really asked for.
	s := (&loadServer{gauges: lines(500_000)}).start(t)
	u, err := server.ParseURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	m, err := server.New(u, "", nil).Metrics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	k := server.Capacity(m, 0, 0, 0)
	for c, over := range map[int32]bool{1: false, 2: false, 3: true} {
		if got, why := server.OverCapacity(k, c, 400_000, 4096); got != over {
			t.Errorf("%d × 400,000: over capacity %v (%s), want %v", c, got, why, over)
		}
	}
	// Scaled down by 1,000, through the whole program.
	s = (&loadServer{gauges: lines(500)}).start(t)
	r := measureLoad(t, s.URL, func(cfg *collect.Config) {
		cfg.Plan.ContextsTokens, cfg.Plan.MaxOutputTokens, cfg.Plan.Concurrency = []int32{400}, 50, []int32{1, 2, 3}
	})
	for c, status := range map[int32]runlog.Outcome{1: runlog.OutcomeRecorded, 2: runlog.OutcomeRecorded, 3: runlog.OutcomeOverCapacity} {
		if got := r.decode(t, c); got.Outcome != status {
			t.Errorf("%d × 400: %s %q, want %s", c, got.Outcome, got.Reason, status)
		}
	}
	r.says(t, "1,000 tokens in 2 engines (kv_cache_size_tokens, sum of 2 engines)",
		"2 × (400 context + 50 output) tokens, more than the 500 tokens of one of 2 engines")
}

func TestCase_BR075(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range []struct {
		name  string
		setup func(*loadServer)
		least int // tokens of the prompt; 0: refused
	}{
		{"/tokenize leaves the overhead out", func(*loadServer) {}, 1024},
		{"/tokenize counts it", func(s *loadServer) { s.tokenize = func(c string) int { return promptWords(c) + 6 } }, 1024},
		{"no /tokenize", func(s *loadServer) { s.noTokenize = true }, 1014},
		{"an overhead that can't be learnt", func(s *loadServer) {
			s.usage = func(c string) int { return promptWords(c) + max(0, (promptWords(c)-500)/10) }
		}, 0},
	} {
		all.run(tt.name, func(t *testing.T) {
			s := &loadServer{maxLen: 2048, extra: 6}
			s.chat = func(c *loadChat) {
				if n := c.prompt + c.MaxTokens; n > 2048 {
					c.refuse(400, fmt.Sprintf("maximum context length is 2048, requested %d", n))
					return
				}
				c.steady(0, 20*time.Millisecond)
			}
			tt.setup(s)
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) {
				cfg.Plan.ContextsTokens, cfg.Plan.PrefillContextsTokens = []int32{1024}, []int32{1024}
				cfg.Plan.MaxOutputTokens = 1024
			})
			if tt.least == 0 {
				if r.Status != exitFailed || r.Dir != "" || !strings.Contains(r.Stderr, "maximum context length is 2048, requested 2") || !strings.Contains(r.Stderr, "--max-output") {
					t.Errorf("exit status %d, stderr %q; want the server's numbers", r.Status, r.Stderr)
				}
				if n := len(s.requests()); n > 5 {
					t.Errorf("%d requests, want it to give up early", n)
				}
				return
			}
			for _, c := range append(slices.Clone(r.Run.Prefill), r.Run.Decode...) {
				if c.Outcome != runlog.OutcomeRecorded || c.Launch.Failed > 0 || !c.Figures.TTFTUs.Known() {
					t.Errorf("%s: %s %v; want it measured", c.Key().Name(), c.Status, c.Evidence)
				}
				if n := c.Figures.PromptTokens.Value; n < float64(tt.least) || n > 1024 || float64(c.PromptTokens) != n {
					t.Errorf("%s: prompts of %v tokens, said to be %d; want %d to 1024", c.Key().Name(), n, c.PromptTokens, tt.least)
				}
			}
		})
	}
}

func TestCase_BR077(t *testing.T) {
	t.Parallel()
	s := (&loadServer{maxLen: 32768, usage: func(string) int { return 5828 }, chat: func(c *loadChat) {
		first := time.Duration(0)
		if promptWords(c.Content) > 1000 {
			first = 500 * time.Millisecond
		}
		c.steady(first, 5*time.Millisecond)
	}}).start(t)
	r := measureLoad(t, s.URL, func(cfg *collect.Config) {
		cfg.Plan.ContextsTokens, cfg.Plan.PrefillContextsTokens, cfg.Plan.MaxOutputTokens = []int32{}, []int32{10000}, 16
	})
	c := &r.Run.Prefill[0]
	if got := promptWords(s.requests()[len(s.requests())-1].Content); got != 10000 {
		t.Errorf("prompt of %d tokens by /tokenize, want 10,000", got)
	}
	rate, ttft := c.Figures.PrefillTokPerS, c.Figures.TTFTUs.Value
	wantStat(t, "prefill tok/s", rate, 5828/(ttft/1e6), 1)
	if ttft < 495_000 || rate.Value > 11_780 {
		t.Errorf("%v tok/s at %v µs, want at most 11.7K", rate.Value, ttft)
	}
	r.says(t, "prompts had 5,828 tokens, not the 10,000 planned")
	r.silent(t, "20K", "| 19.")
}

func TestCase_BR078(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range []struct {
		name          string
		before, after string
		preempted     bool
	}{
		{"one engine", `vllm:num_preemptions_total{engine="0"} 3`, `vllm:num_preemptions_total{engine="0"} 40`, true},
		{"two engines", "vllm:num_preemptions_total{engine=\"0\"} 1\nvllm:num_preemptions_total{engine=\"1\"} 2", "vllm:num_preemptions_total{engine=\"0\"} 20\nvllm:num_preemptions_total{engine=\"1\"} 20", true},
		{"none in this window", `vllm:num_preemptions_total{engine="0"} 40`, `vllm:num_preemptions_total{engine="0"} 40`, false},
		{"a counter that went back", `vllm:num_preemptions_total{engine="0"} 40`, `vllm:num_preemptions_total{engine="0"} 3`, false},
		{"unknown", `vllm:num_preemptions_total{engine="0"} NaN`, `vllm:num_preemptions_total{engine="0"} NaN`, false},
	} {
		all.run(tt.name, func(t *testing.T) {
			var later atomic.Bool
			s := &loadServer{}
			s.chat = func(c *loadChat) {
				if c.decode == 3 { // the second stream; the window opens soon, and is 2 s long
					time.AfterFunc(time.Second, func() { later.Store(true) })
				}
				c.steady(0, 40*time.Millisecond)
			}
			s.gauges = func() string {
				if later.Load() {
					return tt.after + "\n"
				}
				return tt.before + "\n"
			}
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) {
				cfg.Plan.Concurrency, cfg.Plan.Duration, cfg.ReadyHold = []int32{2}, 2*time.Second, 20*time.Millisecond
			})
			c := r.decode(t, 2)
			if !tt.preempted {
				if applies(c, ingest.UnderFilled) {
					t.Errorf("%s %v, want no word of preemption", c.Status, c.Evidence)
				}
				r.silent(t, "preempted")
				return
			}
			if !applies(c, ingest.UnderFilled) || c.Status == ingest.Valid {
				t.Errorf("%s %v, want Under-filled", c.Status, c.Evidence)
			}
			r.says(t, "preempted 37 times")
			r.row(t, "Sustained decode", "128", 2, c.Status, "—", "—", "—", "—", "—", "—", "—", "—")
			if c.Status == ingest.UnderFilled {
				r.says(t, "the server preempted requests 37 times (its counter went from 3 to 40)")
			}
			values := r.samples(t, runlog.MetricPreemptions)
			sum := func(line string) (s float64) {
				for _, l := range strings.Split(line, "\n") {
					var v float64
					fmt.Sscan(l[strings.LastIndex(l, " ")+1:], &v)
					s += v
					if !slices.Contains(values, v) {
						t.Errorf("the telemetry has no %v", v)
					}
				}
				return s
			}
			if a, b := sum(tt.before), sum(tt.after); a != 3 || b != 40 {
				t.Errorf("counters %v and %v", a, b)
			}
		})
	}
}

// Scaled down by about 100: 6 of 10 requests run, the others wait.
func TestCase_BR079(t *testing.T) {
	t.Parallel()
	sim, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 4096, MaxNumSeqs: 6, StepBase: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(sim)
	defer func() {
		ts.CloseClientConnections()
		ts.Close()
	}()
	change := func(cfg *collect.Config) {
		cfg.Plan.Concurrency, cfg.ReadyLimit, cfg.Plan.Duration, cfg.Plan.MaxOutputTokens = []int32{10}, 400*time.Millisecond, 800*time.Millisecond, 2000
	}
	r := measureLoad(t, ts.URL, change)
	c := r.decode(t, 10)
	if got := c.Figures.ActiveRequests.Value; got < 5.5 || got > 6 {
		t.Errorf("%v active, want 6", got)
	}
	if !applies(c, ingest.UnderFilled) {
		t.Errorf("%s %v, want Under-filled", c.Status, c.Evidence)
	}
	if c.Status == ingest.UnderFilled {
		r.says(t, "of 10 requests were running on average")
		r.row(t, "Sustained decode", "128", 10, "Under-filled", "—", "—", "—", "—", "—", "—", "—", "—")
	}
	r.says(t, "warm-up timed out", "TTFT is the median of only 6 of 10 requests", "they did not fill up in time (1)")

	// A limit that is known is not tried at all.
	r = measureLoad(t, ts.URL, func(cfg *collect.Config) {
		change(cfg)
		cfg.MaxNumSeqs = 6
	})
	if c := r.decode(t, 10); c.Status != ingest.OverCapacity {
		t.Errorf("with the limit known: %s, want Over capacity", c.Status)
	}
	r.says(t, "10 requests at once, more than the server's limit of 6 (max_num_seqs)")
}

// The case's own numbers, as events and samples.
func TestCase_BR079_Log(t *testing.T) {
	t.Parallel()
	ev := decodeEvents(8192, 1024)
	for s := range int32(1024) {
		if s < 614 {
			steadyStream(ev, s, 0, 500_000, 8, runlog.KindCancelled, 4_100_000)
		} else {
			steadyStream(ev, s, 0, 1, 0, runlog.KindCancelled, 4_100_000)
		}
	}
	var samples []runlog.Sample
	for _, g := range []struct {
		name  string
		value float64
	}{{runlog.MetricRequestsRunning, 614}, {runlog.MetricRequestsWaiting, 410}} {
		for at := int64(1_000_000); at <= 4_000_000; at += 1_000_000 {
			samples = append(samples, runlog.Sample{TUs: at, Source: runlog.SourceServer, Name: g.name, Value: g.value})
		}
	}
	r := logRun(t, runlog.Manifest{}, samples, logCell{ev, [2]int64{1_000_000, 4_000_000}})
	wantStat(t, "active requests", r.decode(t, 1024).Figures.ActiveRequests, 614, 614)
	r.says(t, "614 of 1,024 requests were running on average (4 samples)", "TTFT is the median of only 614 of 1,024 requests")
	r.row(t, "Sustained decode", "8K", 1024, "Under-filled", "—", "—", "—", "—", "—", "—", "—", "—")
}

func TestCase_BR080(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range []struct {
		line string
		want []float64 // all the values that the telemetry has
	}{
		{`vllm:kv_cache_usage_perc{engine="0"} 0.42`, []float64{0.42}},
		{`vllm:gpu_cache_usage_perc{engine="0"} 0.42`, []float64{0.42}},
		{"vllm:gpu_cache_usage_perc{engine=\"0\"} 0.4\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.42", []float64{0.42}},
		{`vllm:kv_cache_usage_perc{engine="0"} 0`, []float64{0}},
		{`vllm:cpu_cache_usage_perc{engine="0"} 0.42`, nil},
	} {
		all.run(tt.line, func(t *testing.T) {
			s := (&loadServer{gauges: func() string { return tt.line + "\n" }}).start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) { cfg.Plan.Concurrency = []int32{1} })
			got := r.samples(t, runlog.MetricKVCacheUsage)
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("telemetry %v, want %v", got, tt.want)
			}
			if len(tt.want) == 0 {
				r.silent(t, "cache usage", "KV cache 0")
			}
		})
	}
}

// A metricsPage stands in for a metrics page.
type metricsPage struct {
	name    string
	metrics http.HandlerFunc // nil: the usual page with gauges
	gauges  string           // more lines of that
	says    string           // on the run's page
	asked   int              // readings at most; 0: any number
}

// answerMetrics answers every reading alike.
func answerMetrics(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// measurePages asserts that each page neither stops nor slows a run, nor is
// taken for a server without a cache.
func measurePages(t *testing.T, pages []metricsPage) {
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range pages {
		all.run(tt.name, func(t *testing.T) {
			s := &loadServer{metrics: tt.metrics, gauges: func() string { return tt.gauges + "\n" }, chat: func(c *loadChat) { c.steady(0, 40*time.Millisecond) }}
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) {
				cfg.Plan.Concurrency, cfg.Plan.Duration = []int32{2}, time.Second
			})
			if r.Status != exitDone {
				t.Fatalf("exit status %d, stderr %q", r.Status, r.Stderr)
			}
			for _, c := range r.Run.Decode {
				if c.Outcome != runlog.OutcomeRecorded || c.Status == ingest.OverCapacity || !c.Figures.TotalTokPerS.Known() {
					t.Errorf("%s: %s, %s %v; want it measured", c.Key().Name(), c.Outcome, c.Status, c.Evidence)
				}
			}
			if k := r.Run.Manifest.Capacity; k.KVCacheTokens != 0 || k.Source != "" {
				t.Errorf("capacity %+v, want it unknown", k)
			}
			r.says(t, "The size of the server's KV cache was not known")
			if tt.says != "" {
				r.says(t, tt.says, "Not checked whether the server ran all requests at once: it gave no gauges")
			}
			if n := s.count("/metrics"); tt.asked > 0 && n > tt.asked {
				t.Errorf("the page was asked for %d times, want %d", n, tt.asked)
			}
		})
	}
}

func TestCase_BR082(t *testing.T) {
	t.Parallel()
	measurePages(t, []metricsPage{
		{"empty", answerMetrics(200, "text/plain", ""), "", "Server metrics were not available (empty)", 1},
		{"white space", answerMetrics(200, "text/plain", "\n\n"), "", "Server metrics were not available (empty)", 1},
	})
}

func TestCase_BR084(t *testing.T) {
	t.Parallel()
	measurePages(t, []metricsPage{
		{"None", nil, `vllm:cache_config_info{engine="0",num_gpu_blocks="None",block_size="16"} 1`, "", 0},
		{"0 blocks", nil, `vllm:cache_config_info{engine="0",num_gpu_blocks="0",block_size="16",kv_cache_size_tokens="0"} 1`, "", 0},
		{"NaN", nil, "vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"NaN\",block_size=\"16\"} 1\nvllm:kv_cache_usage_perc{engine=\"0\"} NaN", "", 0},
	})
}

func TestCase_BR085(t *testing.T) {
	t.Parallel()
	measurePages(t, []metricsPage{
		{"404", answerMetrics(404, "application/json", `{"detail":"Not Found"}`), "", "Server metrics were not available (404 Not Found)", 1},
		{"401", answerMetrics(401, "text/plain", "no"), "", "Server metrics were not available (401 Unauthorized)", 1},
		{"403", answerMetrics(403, "text/plain", "no"), "", "Server metrics were not available (403 Forbidden)", 1},
		{"500", answerMetrics(500, "text/plain", "no"), "", "Server metrics were not available (500 Internal Server Error)", 1},
		{"HTML", answerMetrics(200, "text/html", "<html>login</html>"), "", "Server metrics were not available (not Prometheus text)", 1},
		{"another server's", answerMetrics(200, "text/plain", "go_goroutines 7\n"), "", "Server metrics were not available (no vLLM metrics)", 1},
		{"cut off", answerMetrics(200, "text/plain", "vllm:num_requests_running 1"), "", "Server metrics were not available (cut off)", 1},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			line := []byte(strings.Repeat("#", 1<<16) + "\n")
			for range 400 {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, "", "Server metrics were not available (the answer is longer than 16777216 bytes)", 1},
		{"hang", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", "Server metrics were not available (timed out)", 1},
		{"hang in the body", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "vllm:num_requests_running 0\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "", "Server metrics were not available (timed out)", 1},
	})
}

// A page that stops answering in the middle of a run costs one time limit,
// not one at each poll.
func TestCase_BR085_HangsLater(t *testing.T) {
	t.Parallel()
	all := together{t: t}
	defer all.wg.Wait()
	for _, tt := range []struct {
		name string
		bad  http.HandlerFunc
		most int // readings after the first bad one
	}{
		{"it hangs", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 3},
		{"it fails at once", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusBadGateway) }, 12},
	} {
		all.run(tt.name, func(t *testing.T) {
			var good, bad atomic.Int64
			s := &loadServer{chat: func(c *loadChat) { c.steady(0, 40*time.Millisecond) }}
			s.metrics = func(w http.ResponseWriter, r *http.Request) {
				if good.Add(1) <= 6 {
					fmt.Fprintf(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")
					return
				}
				bad.Add(1)
				tt.bad(w, r)
			}
			s.start(t)
			r := measureLoad(t, s.URL, func(cfg *collect.Config) {
				cfg.Plan.Concurrency = []int32{1, 2, 3}
			})
			if n := bad.Load(); n == 0 || int(n) > tt.most {
				t.Errorf("%d readings of a page that does not answer, want 1 to %d", n, tt.most)
			}
			for _, c := range r.Run.Decode {
				if c.Outcome != runlog.OutcomeRecorded || !c.Figures.TotalTokPerS.Known() || c.Ready.TimedOut {
					t.Errorf("%s: %s %q, ready %+v; want it measured", c.Key().Name(), c.Outcome, c.Reason, c.Ready)
				}
			}
			r.says(t, "the server's metrics did not answer: not checked whether it was idle before")
		})
	}
}
