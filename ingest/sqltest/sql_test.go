// Package sqltest holds the queries of docs/sql.md against package ingest:
// DuckDB, which shares no code with this project, reads the event files and
// must come to the same figures, so the files mean what they say.
//
// It is a module of its own, so that DuckDB and the C compiler that it needs
// are no business of the program's. It must not compute anything itself.
package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"

	"speedmatrix/collect"
	"speedmatrix/collect/server"
	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// root is the repository's top.
const root = "../.."

// A query is a named one of docs/sql.md.
type query struct{ name, text string }

// isView reports whether a query makes something for the later ones and has
// no rows of its own.
func (q query) isView() bool { return strings.HasPrefix(q.text, "CREATE ") }

var fence = regexp.MustCompile("(?ms)^```sql\n(.*?)^```$")

// documented returns the queries of docs/sql.md in their order.
func documented(t *testing.T) []query {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(root, "docs", "sql.md"))
	if err != nil {
		t.Fatal(err)
	}
	var queries []query
	for _, m := range fence.FindAllSubmatch(doc, -1) {
		name, text, ok := strings.Cut(string(m[1]), "\n")
		name, named := strings.CutPrefix(name, "-- name: ")
		if !ok || !named {
			t.Fatalf("docs/sql.md: a query begins with %q, want -- name: …", name)
		}
		queries = append(queries, query{name, text})
	}
	return queries
}

// simulate measures a simulated server into results and returns what came out.
func simulate(t *testing.T, results, name string, cfg simserver.Config, plan collect.PlanRequest) *ingest.Run {
	t.Helper()
	sim, err := simserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(sim)
	defer func() {
		ts.CloseClientConnections()
		ts.Close()
	}()
	u, err := server.ParseURL(ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := collect.Run(t.Context(), collect.Config{
		URL: u, Root: results, Name: name, Plan: plan, Random: rand.Reader, Idle: 30 * time.Second,
		ReadyHold: 100 * time.Millisecond, DrainHold: 50 * time.Millisecond,
		Machine: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
		Tool:    runlog.Tool{Name: "speedmatrix", Version: "test"},
	})
	if err != nil {
		t.Fatalf("run %s: %v", name, err)
	}
	return load(t, dir)
}

func load(t *testing.T, dir string) *ingest.Run {
	t.Helper()
	r, err := ingest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rows executes a query and returns its rows by column.
func rows(t *testing.T, db *sql.DB, q query) []map[string]any {
	t.Helper()
	r, err := db.QueryContext(t.Context(), q.text)
	if err != nil {
		t.Fatalf("query %q: %v", q.name, err)
	}
	defer r.Close()
	columns, err := r.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for r.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := r.Scan(into...); err != nil {
			t.Fatalf("query %q: %v", q.name, err)
		}
		row := map[string]any{}
		for i, c := range columns {
			row[c] = values[i]
		}
		all = append(all, row)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("query %q: %v", q.name, err)
	}
	return all
}

// number returns a value of DuckDB as a figure; NULL is not known.
func number(t *testing.T, v any) ingest.Stat {
	t.Helper()
	switch v := v.(type) {
	case nil:
		return ingest.Stat{}
	case int32:
		return ingest.Stat{Value: float64(v), N: 1}
	case int64:
		return ingest.Stat{Value: float64(v), N: 1}
	case float64:
		return ingest.Stat{Value: v, N: 1}
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return ingest.Stat{Value: f, N: 1}
	}
	t.Fatalf("DuckDB has %T for a number", v)
	return ingest.Stat{}
}

// A place is where a row belongs: a cell of a run, or one request of it.
type place struct {
	run    string
	key    runlog.Key
	stream int32 // −1: the whole cell
	number int32
}

func (p place) String() string {
	s := p.run + " " + p.key.Name()
	if p.stream >= 0 {
		s += fmt.Sprintf(" stream %d request %d", p.stream, p.number)
	}
	return s
}

// placeOf reads where a row of a query belongs. The name of a query about
// cells begins with their phase.
func placeOf(q query, row map[string]any) place {
	p := place{key: runlog.Key{Phase: runlog.PhasePrefill, Concurrency: 1}, stream: -1, number: -1}
	p.run = filepath.Base(row["run"].(string))
	if strings.HasPrefix(q.name, "decode") {
		p.key.Phase = runlog.PhaseDecode
	}
	if phase, ok := row["phase"].(string); ok {
		p.key.Phase = runlog.Phase(phase)
	}
	p.key.ContextTokens = row["context_tokens"].(int32)
	if c, ok := row["concurrency"].(int32); ok {
		p.key.Concurrency = c
	}
	if stream, ok := row["stream"].(int32); ok {
		p.stream, p.number = stream, row["request"].(int32)
	}
	return p
}

// whole are the figures that are counts or instants, and so must be equal to
// the last digit.
var whole = []string{"output_tokens", "completed_requests", "measured_for_us", "gap_max_us", "events", "tokens", "prompt_tokens"}

func equal(name string, a, b ingest.Stat) bool {
	switch {
	case !a.Known() || !b.Known():
		return a.Known() == b.Known()
	case slices.Contains(whole, name):
		return a.Value == b.Value
	}
	return math.Abs(a.Value-b.Value) <= 1e-9*max(math.Abs(a.Value), math.Abs(b.Value))
}

// A comparison counts what was compared, by query.
type comparison struct {
	t        *testing.T
	compared map[string]int
}

// row compares the columns that both sides name.
func (c *comparison) row(q query, at place, row map[string]any, want map[string]ingest.Stat) {
	c.t.Helper()
	for column, v := range row {
		w, ok := want[column]
		if !ok {
			continue
		}
		c.compared[q.name]++
		if got := number(c.t, v); !equal(column, got, w) {
			c.t.Errorf("%s: %s: %q has %s, ingest %s", at, column, q.name, show(got), show(w))
		}
	}
}

func show(s ingest.Stat) string {
	if !s.Known() {
		return "nothing"
	}
	return fmt.Sprint(s.Value)
}

func TestDuckDBComesToTheSameFigures(t *testing.T) {
	queries := documented(t)
	work := t.TempDir()
	results := filepath.Join(work, "results")
	runs := []*ingest.Run{
		// Speculation, reasoning, a loop where three requests run, and a
		// cell that is not sent.
		simulate(t, results, "speculating", simserver.Config{
			Seed: 7, MaxModelLen: 8192, KVCacheTokens: 20_000, Speed: 3, DraftTokens: 2, ReasoningTokens: 40, CachedTokens: true,
			Jitter: 0.05, StallShare: 0.005, StallTime: 20 * time.Millisecond,
			Loop: simserver.Loop{After: 48, Period: 24, MinBatch: 3, Context: 2048},
		}, collect.PlanRequest{
			ContextsTokens: []int32{1024, 2048, 6000}, Concurrency: []int32{1, 3}, PrefillRepeats: 2,
			Duration: 1200 * time.Millisecond, MaxOutputTokens: 1600,
		}),
		// Short answers, many of which end inside the window; no text.
		simulate(t, results, "short-answers", simserver.Config{
			Seed: 8, MaxModelLen: 4096, Speed: 3, StreamInterval: 4, EmptyTokens: 0.05, NonASCII: 0.2,
		}, collect.PlanRequest{
			ContextsTokens: []int32{512}, Concurrency: []int32{1, 2, 5},
			Duration: 500 * time.Millisecond, MaxOutputTokens: 60, Text: "none",
		}),
	}
	found := map[ingest.Status]int{}
	for _, r := range runs {
		for _, c := range slices.Concat(r.Prefill, r.Decode) {
			found[c.Status]++
			t.Logf("%s: %s is %s", r.ID, c.Key().Name(), c.Status)
		}
	}
	if found[ingest.Valid] == 0 || found[ingest.Looped] == 0 || found[ingest.OverCapacity] == 0 {
		t.Errorf("statuses %v, want at least one cell Valid, Looped and over capacity", found)
	}
	runs = append(runs, samples(t, results)...)
	runs = append(runs, finishUsage(t, results))

	t.Chdir(work) // where the document says that DuckDB is started
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // views are not temporary, but one is enough
	c := &comparison{t, map[string]int{}}
	for _, q := range queries {
		if q.isView() {
			if _, err := db.ExecContext(t.Context(), q.text); err != nil {
				t.Fatalf("query %q: %v", q.name, err)
			}
			continue
		}
		switch phase, _, _ := strings.Cut(q.name, " "); phase {
		case "prefill", "decode":
			c.cells(q, rows(t, db, q), runs)
		case "tokens":
			c.tokens(q, rows(t, db, q), runs, results)
		default:
			t.Errorf("query %q: nothing here knows what to compare it with", q.name)
		}
	}
	c.requests(query{"requests", "FROM requests"}, db, runs)

	for _, want := range []string{"requests", "prefill figures", "decode throughput", "decode requests", "decode gaps", "tokens a run"} {
		if c.compared[want] == 0 {
			t.Errorf("query %q: nothing was compared", want)
		}
	}
	t.Logf("figures compared: %v", c.compared)
}

// finishUsage writes a run of a server that counts tokens only at the end of
// a request, and puts that on the finish chunk.
func finishUsage(t *testing.T, results string) *ingest.Run {
	t.Helper()
	dir, err := runlog.Create(results, "usage-on-the-finish-chunk")
	if err != nil {
		t.Fatal(err)
	}
	key := runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 512, Concurrency: 1}
	ev := &runlog.Events{Key: key}
	at := int64(0)
	request, seq := int32(0), int32(0)
	add := func(kind runlog.Kind, completion int32, set ...func(*runlog.Event)) {
		at += 10_000
		e := runlog.NewEvent(kind, at)
		e.Request, e.Seq, e.CompletionTokens = request, seq, completion
		for _, f := range set {
			f(&e)
		}
		ev.Append(e)
		seq++
	}
	text := func(e *runlog.Event) { e.Channel, e.HasText, e.Text = runlog.ChannelContent, true, "some words" }
	finish := func(e *runlog.Event) { e.FinishReason = "length" }
	for _, end := range []func(){
		func() { add(runlog.KindChunk, 11, finish); add(runlog.KindDone, runlog.Unknown) },
		func() { add(runlog.KindChunk, 12, text, finish); add(runlog.KindDone, runlog.Unknown) }, // with the last text
		func() { add(runlog.KindUsage, 13); add(runlog.KindDone, runlog.Unknown) },
		func() { add(runlog.KindCancelled, runlog.Unknown) }, // how many is not known
		func() { // a usage that was not the last word
			add(runlog.KindUsage, 5)
			add(runlog.KindChunk, runlog.Unknown, text)
			add(runlog.KindCancelled, runlog.Unknown)
		},
	} {
		add(runlog.KindSent, runlog.Unknown)
		for range 5 {
			add(runlog.KindChunk, runlog.Unknown, text)
		}
		end()
		request, seq = request+1, 0
	}
	open, shut := int64(0), at
	cell := runlog.Cell{
		Phase: key.Phase, ContextTokens: key.ContextTokens, Concurrency: 1, Outcome: runlog.OutcomeRecorded,
		WindowOpenUs: &open, WindowCloseUs: &shut,
	}
	if cell.FileInfo, err = runlog.WriteEvents(dir, ev); err != nil {
		t.Fatal(err)
	}
	m := &runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix"}, StartedAt: time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC),
		ArrivalClock: runlog.ArrivalUser, Finished: true, Cells: []runlog.Cell{cell}, Capacity: runlog.Capacity{Engines: 1},
		Plan: runlog.Plan{
			ContextsTokens: []int32{512}, Concurrency: []int32{1}, DurationUs: shut, MaxOutputTokens: 100, PromptSet: "p",
			Order: []string{}, Sampling: runlog.Sampling{TopP: 1}, DecodeTest: "fixed duration", PrefillMode: "separate",
			TokenCounting: "final usage", Text: "full",
		},
	}
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	r := load(t, dir)
	var tokens []int64
	for _, q := range r.Decode[0].Requests {
		tokens = append(tokens, q.Tokens)
	}
	if want := []int64{11, 12, 13, -1, -1}; !slices.Equal(tokens, want) {
		t.Errorf("%s: requests of %d tokens, want %d", dir, tokens, want)
	}
	return r
}

// samples copies the runs that the repository holds into results.
func samples(t *testing.T, results string) (runs []*ingest.Run) {
	t.Helper()
	dirs, err := runlog.FindRuns(filepath.Join(root, "results"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		copied := filepath.Join(results, filepath.Base(dir))
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, load(t, copied))
	}
	return runs
}

// judged reports whether SQL knows the figures of a cell: docs/method.md
// fails requests for reasons that the queries leave out, and of the others
// nothing was recorded.
func judged(s ingest.Status) bool {
	return s != ingest.Failed && s != ingest.NotRun && s != ingest.OverCapacity
}

// cells compares a query of one row for each cell of a phase.
func (c *comparison) cells(q query, got []map[string]any, runs []*ingest.Run) {
	c.t.Helper()
	byPlace := map[place]map[string]any{}
	for _, row := range got {
		byPlace[placeOf(q, row)] = row
	}
	for _, r := range runs {
		cells := r.Decode
		if strings.HasPrefix(q.name, "prefill") {
			cells = r.Prefill
		}
		for i := range cells {
			at := place{r.ID, cells[i].Key(), -1, -1}
			row, ok := byPlace[at]
			if !judged(cells[i].Status) {
				continue
			}
			if !ok {
				c.t.Errorf("%s: %q has no row for it", at, q.name)
				continue
			}
			want := map[string]ingest.Stat{}
			for _, f := range cells[i].Figures.Named() {
				want[f.Name] = f.Stat
			}
			c.row(q, at, row, want)
		}
	}
}

// requests compares the view of requests, on which the other queries stand.
func (c *comparison) requests(q query, db *sql.DB, runs []*ingest.Run) {
	c.t.Helper()
	byPlace := map[place]map[string]any{}
	for _, row := range rows(c.t, db, q) {
		byPlace[placeOf(q, row)] = row
	}
	instant := func(us int64) ingest.Stat {
		if us < 0 {
			return ingest.Stat{}
		}
		return ingest.Stat{Value: float64(us), N: 1}
	}
	n := 0
	for _, r := range runs {
		for _, cell := range slices.Concat(r.Prefill, r.Decode) {
			if !judged(cell.Status) {
				continue
			}
			for i := range cell.Requests {
				req := &cell.Requests[i]
				n++
				at := place{r.ID, cell.Key(), req.Stream, req.Request}
				row, ok := byPlace[at]
				if !ok {
					c.t.Errorf("%s: %q has no row for it", at, q.name)
					continue
				}
				if row["failed"] != req.Failed {
					c.t.Errorf("%s: failed: %q has %v, ingest %v", at, q.name, row["failed"], req.Failed)
				}
				c.row(q, at, row, map[string]ingest.Stat{
					"sent_us": instant(req.SentUs), "first_us": instant(req.FirstUs), "last_us": instant(req.LastUs), "end_us": instant(req.EndUs),
					"ttft_us": req.TTFTUs, "time_between_tokens_us": req.BetweenTokensUs,
					"tokens": instant(req.Tokens), "token_events": instant(int64(req.TokenEvents)),
				})
			}
		}
	}
	if n == 0 {
		c.t.Error("there are no requests to compare")
	}
}

// tokens compares counts of rows and tokens by run and phase.
func (c *comparison) tokens(q query, got []map[string]any, runs []*ingest.Run, results string) {
	c.t.Helper()
	type part struct {
		run   string
		phase runlog.Phase
	}
	want := map[part]*[3]int64{} // events, tokens, events that say how many
	count := func(r *ingest.Run, key runlog.Key, info runlog.FileInfo) {
		ev, err := runlog.ReadEvents(filepath.Join(results, r.ID), key, info)
		if err != nil {
			c.t.Fatal(err)
		}
		at := part{r.ID, key.Phase}
		if want[at] == nil {
			want[at] = &[3]int64{}
		}
		want[at][0] += int64(ev.Len())
		for _, n := range ev.Tokens {
			if n != runlog.Unknown {
				want[at][1] += int64(n)
				want[at][2]++
			}
		}
	}
	for _, r := range runs {
		for _, cell := range r.Manifest.Cells {
			if cell.File != "" {
				count(r, cell.Key(), cell.FileInfo)
			}
		}
		if w := r.Manifest.Warmup; w != nil {
			count(r, runlog.Key{Phase: runlog.PhaseWarmup, ContextTokens: w.ContextTokens, Concurrency: 1}, w.FileInfo)
		}
	}
	if len(got) != len(want) {
		c.t.Errorf("%q has %d rows, want %d", q.name, len(got), len(want))
	}
	for _, row := range got {
		at := part{filepath.Base(row["run"].(string)), runlog.Phase(row["phase"].(string))}
		w := want[at]
		if w == nil {
			c.t.Errorf("%q has a row for %v, which is not there", q.name, at)
			continue
		}
		c.row(q, place{at.run, runlog.Key{Phase: at.phase}, -1, -1}, row, map[string]ingest.Stat{
			"events": {Value: float64(w[0]), N: 1}, "tokens": {Value: float64(w[1]), N: int(w[2])},
		})
	}
}
