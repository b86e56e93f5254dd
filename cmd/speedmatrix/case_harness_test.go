package main

// Cases of docs/cases.md whose input is an event stream: a stub server on the
// loopback writes the stream, the real client records it, the run log is
// written and read, and ingest folds it. What is compared is not the script's
// times but the stub's own record of when it wrote what: a busy machine makes
// a stub late, and that is no fault of the client.

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"speedmatrix/collect/stream"
	"speedmatrix/collect/stream/streamtest"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A caseSetup is one cell to be played. The zero value of each field but
// Streams has a meaning that suits most cases.
type caseSetup struct {
	// Streams holds, for each stream, the scripts that answer its requests,
	// one after the other, in the notation of package streamtest. All
	// streams start at once.
	Streams [][]string

	Phase     runlog.Phase  // "": decode
	Context   int32         // planned tokens; 0: 8,192
	MaxOutput int32         // planned; 0: 4,096
	IgnoreEOS bool          // whether an end before MaxOutput tokens is noted
	Counting  string        // runlog.Plan.TokenCounting; "": "continuous usage"
	Idle      time.Duration // idle limit of the client; 0: 20 s
	Stop      time.Duration // all streams are cancelled, and the window closes, so long after the start; 0: never
	Body      string        // of every request; "": {}
}

// A caseRun is what became of a cell: everything that ingest computed, the
// rows, and the stub's record. Its window, in decode, spans everything.
type caseRun struct {
	ingest.Cell
	Dir      string // a finished run with this cell alone, for commands
	Manifest *runlog.Manifest
	Events   *runlog.Events

	start time.Time
	stub  []*streamtest.Server // of each stream
}

// sent stands for the instant at which a request was complete, in place of
// the number of a write.
const sent = -1

// playScripts plays requests one after the other on one decode stream.
func playScripts(t *testing.T, scripts ...string) *caseRun {
	t.Helper()
	return playCase(t, caseSetup{Streams: [][]string{scripts}})
}

// playCase plays a cell. Every event must have the time of the write that
// completed it; a machine so busy that two writes were read at once, or that
// the client or the stub was held up inside a system call, is given another
// try.
func playCase(t *testing.T, s caseSetup) *caseRun {
	t.Helper()
	const tries = 10
	var why error
	for range tries {
		c := record(t, s)
		if why = c.punctual(); why == nil {
			return c
		}
		t.Logf("played again: %v", why)
	}
	t.Fatalf("arrival times: %v, in each of %d tries", why, tries)
	return nil
}

// record plays a cell once, and does not look at times.
func record(t *testing.T, s caseSetup) *caseRun {
	t.Helper()
	if s.Phase == "" {
		s.Phase = runlog.PhaseDecode
	}
	if s.Context == 0 {
		s.Context = 8192
	}
	if s.MaxOutput == 0 {
		s.MaxOutput = 4096
	}
	if s.Counting == "" {
		s.Counting = "continuous usage"
	}
	if s.Idle == 0 {
		s.Idle = 20 * time.Second
	}
	if s.Body == "" {
		s.Body = "{}"
	}
	c := &caseRun{start: time.Now()}
	us := func(at time.Time) int64 { return at.Sub(c.start).Microseconds() }
	clock := runlog.ArrivalUser
	clients := make([]*stream.Client, len(s.Streams))
	recs := make([]*stream.Recording, len(s.Streams))
	for i, scripts := range s.Streams {
		srv := streamtest.Serve(t, scripts...)
		u, err := url.Parse(srv.URL + "/v1/chat/completions")
		if err != nil {
			t.Fatal(err)
		}
		e, err := stream.NewEndpoint(u, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.stub, recs[i] = append(c.stub, srv), stream.NewRecording(c.start)
		clients[i] = stream.NewClient(e, s.Idle, &stream.Lateness{}, recs[i])
		defer clients[i].Close()
		if err := clients[i].Open(context.Background()); err != nil {
			t.Fatal(err)
		}
		if clients[i].Kernel() {
			clock = runlog.ArrivalKernel
		}
	}
	open := us(time.Now())
	if s.Stop > 0 {
		timer := time.AfterFunc(s.Stop, func() {
			for _, cl := range clients {
				cl.Stop()
			}
		})
		defer timer.Stop()
	}
	var wg sync.WaitGroup
	for i, scripts := range s.Streams {
		wg.Go(func() {
			for range scripts {
				if _, err := clients[i].Do(context.Background(), []byte(s.Body)); err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	shut := us(time.Now())
	if s.Stop > 0 {
		shut = open + s.Stop.Microseconds()
	}

	key := runlog.Key{Phase: s.Phase, ContextTokens: s.Context, Concurrency: int32(len(s.Streams))}
	rows := &runlog.Events{Key: key}
	for i, r := range recs {
		r.Decode(rows, stream.DecodeOptions{Stream: int32(i), Text: stream.TextFull, Redact: func(s string) string { return s }})
	}
	var err error
	if c.Dir, err = runlog.Create(t.TempDir(), "case"); err != nil {
		t.Fatal(err)
	}
	info, err := runlog.WriteEvents(c.Dir, rows)
	if err != nil {
		t.Fatalf("write rows: %v", err)
	}
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix"}, Finished: true,
		StartedAt: c.start.UTC(), ArrivalClock: clock,
		Model: runlog.Model{ServedName: "stub"},
		Plan: runlog.Plan{
			DurationUs: shut - open, MaxOutputTokens: s.MaxOutput, PromptSet: "case", DecodeTest: "fixed duration",
			PrefillMode: "measured during decode warm-up", TokenCounting: s.Counting, Text: "full",
			Sampling: runlog.Sampling{TopP: 1, IgnoreEOS: s.IgnoreEOS},
		},
		Cells: []runlog.Cell{{
			Phase: key.Phase, ContextTokens: key.ContextTokens, Concurrency: key.Concurrency,
			Outcome: runlog.OutcomeRecorded, FileInfo: info,
		}},
	}
	if key.Phase == runlog.PhaseDecode {
		m.Plan.ContextsTokens, m.Plan.Concurrency = []int32{key.ContextTokens}, []int32{key.Concurrency}
		m.Cells[0].WindowOpenUs, m.Cells[0].WindowCloseUs = &open, &shut
	} else {
		m.Plan.PrefillContextsTokens = []int32{key.ContextTokens}
	}
	if err := runlog.WriteManifest(c.Dir, m); err != nil {
		t.Fatalf("write manifest: %v", err)
	}
	var cell *ingest.Cell
	if c.Manifest, cell, err = ingest.LoadCell(c.Dir, key); err != nil {
		t.Fatalf("load: %v", err)
	}
	c.Cell = *cell
	if c.Events, err = runlog.ReadEvents(c.Dir, key, cell.FileInfo); err != nil {
		t.Fatalf("read rows: %v", err)
	}
	return c
}

// punctual reports the first row of an event whose time is not that of the
// write that completed it: from 1 ms before until 4 ms after the call began.
func (c *caseRun) punctual() error {
	const before, after = 1000, 4000
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.HeadersUs < 0 {
			continue // nothing arrived
		}
		srv := c.stub[r.Stream]
		got := srv.Requests()[r.Request].At.Sub(c.start).Microseconds()
		if d := r.SentUs - got; d > after || d < -after {
			return fmt.Errorf("stream %d request %d: sent at %d µs, received by the stub at %d", r.Stream, r.Request, r.SentUs, got)
		}
		writes := srv.Writes(int(r.Request))
		var by []int // write that completed each event
		body := ""
		for n, w := range writes {
			body += w.Data
			for len(by) < completeEvents(body) {
				by = append(by, n)
			}
		}
		event := 0
		for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
			switch c.Events.Kind[row] {
			case runlog.KindChunk, runlog.KindUsage, runlog.KindDone:
			default:
				continue
			}
			if event >= len(by) {
				break // completed by the end of the body, or not at all
			}
			w := writes[by[event]]
			event++
			lo, hi := w.Before.Sub(c.start).Microseconds(), w.After.Sub(c.start).Microseconds()
			if t := c.Events.TUs[row]; t < lo-before || t > lo+after {
				return fmt.Errorf("stream %d request %d: event %d (%s) at %d µs, written from %d to %d", r.Stream, r.Request, event-1, c.Events.Kind[row], t, lo, hi)
			}
		}
	}
	return nil
}

// completeEvents counts the events that a body has completed so far: blocks
// ended by a blank line that hold data.
func completeEvents(body string) int {
	body = strings.TrimPrefix(body, "\xef\xbb\xbf")
	body = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(body)
	blocks := strings.Split(body, "\n\n")
	n := 0
	for _, b := range blocks[:len(blocks)-1] {
		for _, line := range strings.Split(b, "\n") {
			if line == "data" || strings.HasPrefix(line, "data:") {
				n++
				break
			}
		}
	}
	return n
}

// text returns the text of a request's chunks.
func (c *caseRun) text(request int) string {
	var b strings.Builder
	r := &c.Requests[request]
	for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
		b.Write(c.Events.TextAt(row))
	}
	return b.String()
}

// tokenTimes returns when each token event of a request arrived.
func (c *caseRun) tokenTimes(request int) []int64 {
	var at []int64
	r := &c.Requests[request]
	for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
		if c.Events.Kind[row] == runlog.KindChunk && (c.Events.Tokens[row] > 0 || c.Events.Channel[row] != runlog.ChannelNone) {
			at = append(at, c.Events.TUs[row])
		}
	}
	return at
}

// wrote returns the instant of the stub's write n in answer to a request, on
// the clock of the run, or that of the request itself (sent).
func (c *caseRun) wrote(request, n int) int64 {
	r := &c.Requests[request]
	srv := c.stub[r.Stream]
	at := srv.Requests()[r.Request].At
	if n != sent {
		at = srv.Writes(int(r.Request))[n].Before
	}
	return at.Sub(c.start).Microseconds()
}

// took asserts that a figure in microseconds is the time between two writes
// of the stub, nominalMs apart in the script. Counted from the request, the
// time can't be less than that: a stub may be late, never early. (Of two
// writes the first may be late and the second not.)
func (c *caseRun) took(t *testing.T, what string, got ingest.Stat, request, from, to int, nominalMs float64) {
	t.Helper()
	want := float64(c.wrote(request, to) - c.wrote(request, from))
	c.is(t, what, got, want)
	if from == sent && got.Known() && got.Value < nominalMs*1000-5000 {
		t.Errorf("%s = %.3f ms, want %.3f at least", what, got.Value/1000, nominalMs)
	}
}

// is asserts a figure in microseconds within the tolerance of the cases,
// 5 ms and 2 %.
func (c *caseRun) is(t *testing.T, what string, got ingest.Stat, wantUs float64) {
	t.Helper()
	if !got.Known() {
		t.Errorf("%s is unknown, want %.3f ms", what, wantUs/1000)
	} else if math.Abs(got.Value-wantUs) > 5000+wantUs/50 {
		t.Errorf("%s = %.3f ms, want %.3f", what, got.Value/1000, wantUs/1000)
	}
}

// gaps asserts the gaps between the token events of a request, given the
// writes that brought them.
func (c *caseRun) gaps(t *testing.T, request int, writes ...int) {
	t.Helper()
	at := c.tokenTimes(request)
	if len(at) != len(writes) {
		t.Errorf("request %d: %d token events, want %d", request, len(at), len(writes))
		return
	}
	for i := 1; i < len(at); i++ {
		want := float64(c.wrote(request, writes[i]) - c.wrote(request, writes[i-1]))
		c.is(t, fmt.Sprintf("request %d: gap %d", request, i), ingest.Stat{Value: float64(at[i] - at[i-1]), N: 1}, want)
	}
}

// unknown asserts that a figure was not measured.
func (c *caseRun) unknown(t *testing.T, what string, got ingest.Stat) {
	t.Helper()
	if got.Known() {
		t.Errorf("%s = %v, want it unknown", what, got.Value)
	}
}

// page renders the run with the command and returns its Markdown page.
func (c *caseRun) page(t *testing.T) string {
	t.Helper()
	site := filepath.Join(t.TempDir(), "site")
	if status, _, stderr := commandLine("render", c.Dir, "-o", site); status != exitDone {
		t.Fatalf("render: status %d, %s", status, stderr)
	}
	b, err := os.ReadFile(filepath.Join(site, "runs", filepath.Base(c.Dir), "index.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// kinds prints the rows of a request by their kinds, such as "sent headers
// chunk done".
func (c *caseRun) kinds(request int) string {
	var names []string
	r := &c.Requests[request]
	for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
		names = append(names, c.Events.Kind[row].String())
	}
	return strings.Join(names, " ")
}
