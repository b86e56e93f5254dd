package main

// Cases of kinds K12 and K13: arithmetic of reports, files, interruptions.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"speedmatrix/collect"
	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A taped request is one request of a made-up cell: when it was sent, when
// its events came with how many tokens, and when it ended by itself.
type taped struct {
	sent   int64 // µs, as all
	events []int64
	tokens int32 // of each event
	prompt int32
	done   int64 // 0: it was cut off at the last event
	text   func(i int) string
}

// tapeRun writes a finished run of made-up cells and returns its directory.
// Each decode cell has the window from open to shut.
func tapeRun(t *testing.T, m *runlog.Manifest, cells map[runlog.Key][]taped, open, shut int64) string {
	t.Helper()
	dir, err := runlog.Create(t.TempDir(), "made-up")
	if err != nil {
		t.Fatal(err)
	}
	m.Format, m.Tool.Name, m.ArrivalClock, m.Finished = runlog.Format, "speedmatrix", runlog.ArrivalKernel, true
	m.StartedAt = time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC)
	m.Plan.DurationUs, m.Plan.PromptSet, m.Plan.Text = max(1, shut-open), "p", "full"
	if m.Plan.MaxOutputTokens == 0 {
		m.Plan.MaxOutputTokens = 100_000
	}
	m.Plan.Sampling.TopP, m.Plan.DecodeTest, m.Plan.PrefillMode, m.Plan.TokenCounting = 1, "fixed duration", "measured during decode warm-up", "continuous usage"
	for i := range m.Cells {
		c := &m.Cells[i]
		list, ok := cells[c.Key()]
		if !ok {
			continue
		}
		ev := &runlog.Events{Key: c.Key()}
		for stream, r := range list {
			seq := int32(0)
			add := func(kind runlog.Kind, tUs int64, tokens int32, text string) {
				e := runlog.NewEvent(kind, tUs)
				e.Stream, e.Seq = int32(stream), seq
				if kind == runlog.KindChunk {
					e.Tokens, e.HasText, e.Text, e.Channel = tokens, true, text, runlog.ChannelContent
					if seq == 1 && r.prompt > 0 {
						e.PromptTokens = r.prompt
					}
				}
				seq++
				ev.Append(e)
			}
			add(runlog.KindSent, r.sent, 0, "")
			last := r.sent
			for k, at := range r.events {
				text := fmt.Sprintf("%d ", k*k)
				if r.text != nil {
					text = r.text(k)
				}
				add(runlog.KindChunk, at, r.tokens, text)
				last = at
			}
			if r.done > 0 {
				add(runlog.KindDone, r.done, 0, "")
			} else {
				add(runlog.KindCancelled, last, 0, "")
			}
		}
		c.Outcome = runlog.OutcomeRecorded
		if c.Phase == runlog.PhaseDecode {
			c.WindowOpenUs, c.WindowCloseUs = &open, &shut
		}
		if c.FileInfo, err = runlog.WriteEvents(dir, ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

func prefillKey(context int32) runlog.Key {
	return runlog.Key{Phase: runlog.PhasePrefill, ContextTokens: context, Concurrency: 1}
}

func decodeKey(context, concurrency int32) runlog.Key {
	return runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: context, Concurrency: concurrency}
}

// planned returns a manifest with the given cells.
func planned(keys ...runlog.Key) *runlog.Manifest {
	m := &runlog.Manifest{Model: runlog.Model{ServedName: "m"}}
	p := &m.Plan
	for _, k := range keys {
		m.Cells = append(m.Cells, runlog.Cell{Phase: k.Phase, ContextTokens: k.ContextTokens, Concurrency: k.Concurrency, Outcome: runlog.OutcomePending})
		if k.Phase == runlog.PhasePrefill {
			p.PrefillContextsTokens = append(p.PrefillContextsTokens, k.ContextTokens)
			continue
		}
		if !slices.Contains(p.ContextsTokens, k.ContextTokens) {
			p.ContextsTokens = append(p.ContextsTokens, k.ContextTokens)
		}
		if !slices.Contains(p.Concurrency, k.Concurrency) {
			p.Concurrency = append(p.Concurrency, k.Concurrency)
		}
	}
	return m
}

// oneJSON fails unless the text is JSON as RFC 8259 has it, without a
// name twice in one object.
func oneJSON(t *testing.T, name, text string) {
	t.Helper()
	if !json.Valid([]byte(text)) {
		t.Errorf("%s is no JSON: %.200q", name, text)
		return
	}
	dec := json.NewDecoder(strings.NewReader(text))
	type level struct {
		object bool
		names  map[string]bool
		isName bool
	}
	var levels []level
	for {
		token, err := dec.Token()
		if err != nil {
			break // the end
		}
		top := len(levels) - 1
		if top >= 0 && levels[top].object && levels[top].isName {
			if s, ok := token.(string); ok {
				if levels[top].names[s] {
					t.Errorf("%s: the name %q stands twice in one object", name, s)
				}
				levels[top].names[s], levels[top].isName = true, false
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{object: true, names: map[string]bool{}, isName: true})
			continue
		case json.Delim('['):
			levels = append(levels, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:top]
			top--
		}
		if top >= 0 {
			levels[top].isName = levels[top].object
		}
	}
}

// unreal finds a number that is none, where a figure could stand.
var unreal = regexp.MustCompile(`(?i)(?:^|[^a-z])(?:nan|[+-]?inf(?:inity)?)(?:$|[^a-z])|(?:^|[^a-z])undefined|∞|-0\.0(?:$|[^0-9])`)

// wantRealNumbers fails for each page and data file with NaN, infinity or −0.
// Pages of the method hold words about figures and no figures.
func wantRealNumbers(t *testing.T, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if slices.Contains([]string{".parquet", ".css", ".svg", ".js"}, path.Ext(name)) || strings.Contains(name, "/method/") {
			continue
		}
		if m := unreal.FindStringIndex(content); m != nil {
			t.Errorf("%s holds %q: %.80q", name, content[m[0]:m[1]], content[max(0, m[0]-40):])
		}
	}
}

// A request that ended as it began, one of a single token, and a usual one.
func TestCase_BR110(t *testing.T) {
	t.Parallel()
	c := record(t, caseSetup{Streams: [][]string{
		{"0 DONE"},
		{"20 CU \"a\" 1\n20 FIN stop\n20 USAGE 5 1\n20 DONE"},
		{every(10, 20, 10, `C "x"`) + "111 FIN stop\n111 USAGE 5 10\n111 DONE"},
	}})
	for i, want := range []bool{false, false, true} {
		if r := &c.Requests[i]; r.PerRequestTokPerS.Known() != want || r.BetweenTokensUs.Known() != want {
			t.Errorf("request %d: %+v tok/s, want known: %v", i, r.PerRequestTokPerS, want)
		}
	}
	if g := c.Figures; g.PerRequestTokPerS.N != 1 || g.TTFTUs.N != 2 {
		t.Errorf("rates of %d requests and TTFT of %d, want 1 and 2", g.PerRequestTokPerS.N, g.TTFTUs.N)
	}
	site := rendered(t, c.Dir)
	files := filesBelow(t, site)
	wantRealNumbers(t, files)
	status, stdout, stderr := commandLine("inspect", c.Dir, "--cell", c.Cell.Cell.Key().Name(), "--json")
	if status != exitDone {
		t.Fatalf("inspect: %s", stderr)
	}
	oneJSON(t, "inspect --json", stdout)
	var j struct {
		Requests []struct {
			TokPerS *float64 `json:"per_request_tok_per_s"`
			Tokens  *int64   `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &j); err != nil || len(j.Requests) != 3 {
		t.Fatalf("inspect --json has %d requests (%v), want all 3", len(j.Requests), err)
	}
	for i, want := range []bool{false, false, true} {
		if (j.Requests[i].TokPerS != nil) != want {
			t.Errorf("inspect --json: request %d has %v tok/s, want known: %v", i, j.Requests[i].TokPerS, want)
		}
	}
	// Without the one that brought nothing the cell counts, and a dash
	// stands where nothing could be measured.
	one := record(t, caseSetup{Streams: [][]string{{"20 CU \"a\" 1\n20 FIN stop\n20 USAGE 5 1\n20 DONE"}}})
	row := strings.Split(lineWith(t, one.page(t), "| Sustained decode | 8K | 1 | Valid |"), "|")
	if row[6] != " — " || row[8] != " — " || row[7] == " — " {
		t.Errorf("row %q, want dashes for rate and time between tokens of a request with one token", row)
	}
}

// One sample: said, and no spread.
func TestCase_BR114(t *testing.T) {
	t.Parallel()
	dir := tapeRun(t, planned(prefillKey(8192)), map[runlog.Key][]taped{
		prefillKey(8192): {{sent: 1_000_000, events: []int64{1_500_000}, tokens: 1, prompt: 8192, done: 1_500_100}},
	}, 0, 0)
	site := rendered(t, dir)
	page, md := pagesOf(t, site, "made-up")
	if want := "| Prefill | 8K | 1 | Valid | 16.4K | — | 500 ms | — | — | 1 | — | — |"; !strings.Contains(md, want) {
		t.Errorf("no row %q in\n%s", want, md)
	}
	for name, text := range map[string]string{"page": page, "Markdown": md} {
		if strings.Contains(text, "±") || strings.Contains(text, "+/-") {
			t.Errorf("the %s has a spread", name)
		}
	}
	var d struct {
		Prefill []struct {
			Figures map[string]struct {
				Value *float64
				N     int
			}
		}
	}
	if err := json.Unmarshal([]byte(readAll(t, filepath.Join(site, "runs", "made-up", "index.json"))), &d); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prefill_tok_per_s", "ttft_us"} {
		if f := d.Prefill[0].Figures[name]; f.N != 1 || f.Value == nil {
			t.Errorf("%s: %+v, want a value with its count, 1", name, f)
		}
	}
	if _, stdout, _ := commandLine("inspect", dir, "--cell", "prefill:8K"); !strings.Contains(stdout, "median of 1 = ") {
		t.Errorf("inspect does not say that it is the median of one:\n%s", stdout)
	}
}

// Whatever is missing, unlimited or infinite: JSON stays JSON.
func TestCase_BR116(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4, Metrics: simserver.MetricsNone}, func(w http.ResponseWriter, r *http.Request, n int, _ chatBody) bool {
		if r.URL.Path != "/metrics" {
			return false
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc NaN\nvllm:generation_tokens_total -Inf\n"+
			"vllm:cache_config_info{num_gpu_blocks=\"inf\",block_size=\"nan\",kv_cache_size_tokens=\"Infinity\"} NaN\n")
		return true
	})
	c := collectRun(t, tinyPlan(t.TempDir(), srv.URL, "--duration", "300ms")...)
	files := filesBelow(t, c.dir, rendered(t, c.dir))
	n := 0
	for name, content := range files {
		if strings.HasSuffix(name, ".json") {
			n++
			oneJSON(t, name, content)
		}
	}
	if n < 3 {
		t.Errorf("%d JSON files, want run.json twice and index.json", n)
	}
	for name, content := range files {
		// The labels as read are text, and stay as they were.
		files[name] = strings.NewReplacer(`"inf"`, "", `"nan"`, "", `"Infinity"`, "").Replace(content)
	}
	wantRealNumbers(t, files)
	m := manifestOf(t, c.dir)
	if m.Capacity.KVCacheTokens != 0 {
		t.Errorf("an infinite KV cache became %d tokens", m.Capacity.KVCacheTokens)
	}
	for _, args := range [][]string{{"inspect", c.dir, "--json"}, {"inspect", c.dir, "--json", "--cell", "256:1"}} {
		status, stdout, stderr := commandLine(args...)
		if status != exitDone || stderr != "" {
			t.Errorf("%q: status %d, %s", args, status, stderr)
		}
		oneJSON(t, strings.Join(args, " "), stdout)
	}
	samples, err := runlog.ReadTelemetry(c.dir, m.Telemetry.FileInfo)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || s.Source == runlog.SourceServer && s.Value < 0 {
			t.Errorf("a sample of %v: %+v", s.Value, s)
		}
	}
}

// Medians of nothing, of one, two and three values, through all outputs.
func TestCase_BR117(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ttftMs []int64
		want   string // on the page
		median float64
	}{
		{nil, "—", math.NaN()},
		{[]int64{7}, "7 ms", 7000},
		{[]int64{7, 9}, "8 ms", 8000},
		{[]int64{9, 7, 8}, "8 ms", 8000},
	} {
		var requests []taped
		for _, ms := range tt.ttftMs {
			requests = append(requests, taped{sent: 1_000_000, events: []int64{1_000_000 + ms*1000, 1_100_000, 1_200_000}, tokens: 1})
		}
		if requests == nil {
			requests = []taped{{sent: 1_000_000}} // cut off before its first token
		}
		key := decodeKey(8192, int32(len(requests)))
		dir := tapeRun(t, planned(key), map[runlog.Key][]taped{key: requests}, 1_000_000, 1_200_000)
		cell := runOf(t, dir).Decode[0]
		if s := cell.Figures.TTFTUs; s.N != len(tt.ttftMs) || s.Known() && s.Value != tt.median {
			t.Errorf("median of %v ms = %+v µs, want %v", tt.ttftMs, s, tt.median)
		}
		site := rendered(t, dir)
		files := filesBelow(t, site)
		wantRealNumbers(t, files)
		if cell.Status != ingest.Valid && len(tt.ttftMs) > 0 {
			t.Fatalf("%s %v", cell.Status, cell.Evidence)
		}
		_, md := pagesOf(t, site, "made-up")
		row := lineWith(t, md, "| Sustained decode | 8K |")
		if got := strings.TrimSpace(strings.Split(row, "|")[7]); got != tt.want {
			t.Errorf("TTFT of %v ms on the page: %q, want %q", tt.ttftMs, got, tt.want)
		}
	}
}

// Every stored number says its unit; the run log has nothing in seconds.
func TestCase_BR119(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4}, nil)
	c := collectRun(t, tinyPlan(t.TempDir(), srv.URL)...)
	site := rendered(t, c.dir)
	// Names that end in no unit, because what they hold has none.
	bare := map[string]bool{
		"phase": true, "stream": true, "request": true, "seq": true, "kind": true, "same_read": true, "channel": true, "text": true, "finish_reason": true, "status": true, "error": true,
		"source": true, "name": true, "index": true, "value": true, // a sample's unit is in its name
		"concurrency": true, "run_id": true, "model": true, "hardware": true, "engine_version": true, "engine_commit": true, "why": true,
		"average_active_requests": true, "completed_requests": true,
	}
	unit := regexp.MustCompile(`(?:_us|tokens|_tok_per_s|_bytes|_ratio|_mhz|_c|_w|_total|_reasons)$|^num_requests_|_per_event$|^cached_share_of_`)
	files := filesBelow(t, c.dir)
	n := 0
	for name, content := range files {
		if !strings.HasSuffix(name, ".parquet") {
			continue
		}
		f, err := parquet.OpenFile(strings.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range f.Schema().Columns() {
			n++
			if s := column[0]; !unit.MatchString(s) && !bare[s] || strings.HasSuffix(s, "_s") && !strings.HasSuffix(s, "_tok_per_s") {
				t.Errorf("%s: the column %q has no unit in its name", name, s)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d columns were looked at", n)
	}
	samples, err := runlog.ReadTelemetry(c.dir, manifestOf(t, c.dir).Telemetry.FileInfo)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if !unit.MatchString(s.Name) {
			t.Errorf("the samples %q have no unit in their name", s.Name)
		}
	}
	header, _, _ := strings.Cut(readAll(t, filepath.Join(site, "runs", filepath.Base(c.dir), "cells.csv")), "\n")
	for _, column := range strings.Split(header, ",") {
		if !unit.MatchString(column) && !bare[column] {
			t.Errorf("cells.csv: the column %q has no unit in its name", column)
		}
	}
	for _, f := range new(ingest.Figures).Named() {
		if !unit.MatchString(f.Name) && !bare[f.Name] {
			t.Errorf("index.json: the figure %q has no unit in its name", f.Name)
		}
	}
	// A TTFT longer than its request, or a thousand times off its events,
	// can't be said at all: the log holds instants, and figures come from them.
	for _, cell := range runOf(t, c.dir).Decode {
		for _, r := range cell.Requests {
			if r.TTFTUs.Known() && r.EndUs >= 0 && r.TTFTUs.Value > float64(r.EndUs-r.SentUs) {
				t.Errorf("a TTFT of %v µs in a request of %d µs", r.TTFTUs.Value, r.EndUs-r.SentUs)
			}
		}
	}
}

// Data goes to stdout alone, though there is something to warn about.
func TestCase_BR121(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4, Metrics: simserver.MetricsNone, NoTokenizeRoute: true}, nil)
	c := collectRun(t, tinyPlan(t.TempDir(), srv.URL)...)
	if c.stdout != c.dir+"\n" || !strings.Contains(c.stderr, "no /tokenize on this server") {
		t.Errorf("collect: stdout %q, stderr %q, want the directory alone, and the warning", c.stdout, c.stderr)
	}
	status, stdout, stderr := commandLine("inspect", c.dir, "--json")
	if status != exitDone {
		t.Fatalf("inspect: status %d, %s", status, stderr)
	}
	oneJSON(t, "inspect --json", stdout)
	if !strings.Contains(stdout, "server metrics were not available") {
		t.Errorf("inspect --json does not have the warning as data: %s", stdout)
	}
	site := filepath.Join(t.TempDir(), "site")
	if status, stdout, stderr := commandLine("render", c.dir, "-o", site); status != exitDone || stdout != filepath.Join(site, "index.html")+"\n" || stderr == "" {
		t.Errorf("render: status %d, stdout %q, stderr %q, want the first page's path alone", status, stdout, stderr)
	}
	for _, args := range [][]string{{"inspect", filepath.Join(site, "nowhere"), "--json"}, {"render", filepath.Join(site, "nowhere")}, {"collect", "--url", "http://127.0.0.1:1", "-o", site}} {
		if status, stdout, stderr := commandLine(args...); status != exitFailed || stdout != "" || !strings.Contains(stderr, ": error: ") {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want an error on stderr alone", args, status, stdout, stderr)
		}
	}
}

// sixCells starts a collector with six cells: three prefill, three decode.
func sixCells(t *testing.T) (c *collector, root string) {
	t.Helper()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2}, nil)
	root = t.TempDir()
	c, err := collectProcess("--url", srv.URL, "--out", root, "--prefill-contexts", "64,128,256", "--contexts", "512", "--concurrency", "1,2,3", "--duration", "1500ms", "--max-output", "400")
	if err != nil {
		t.Fatal(err)
	}
	return c, root
}

// theRun returns the only run below root.
func theRun(t *testing.T, root string) string {
	t.Helper()
	dirs, err := runlog.FindRuns(root)
	if err != nil || len(dirs) != 1 {
		t.Fatalf("runs below %s: %q, %v, want one", root, dirs, err)
	}
	return dirs[0]
}

// wantOutcomes compares the cells in the order of the plan: r recorded, p pending.
func wantOutcomes(t *testing.T, m *runlog.Manifest, want string) {
	t.Helper()
	got := ""
	for i := range m.Cells {
		got += string(m.Cells[i].Outcome[0])
	}
	if got != want {
		t.Errorf("cells %s, want %s", got, want)
	}
}

// Killed in the middle of the fourth of six cells.
func TestCase_BR122(t *testing.T) {
	t.Parallel()
	c, root := sixCells(t)
	c.until(3, 700*time.Millisecond)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if status, err := c.end(); status != -1 || err != nil {
		t.Fatalf("status %d, %v: it ended before it was killed", status, err)
	}
	dir := theRun(t, root)
	// As if it had been killed while it wrote the file.
	if err := os.WriteFile(filepath.Join(dir, "cells", "decode-512-c1.parquet.partial"), []byte("PAR1half"), 0o666); err != nil {
		t.Fatal(err)
	}
	m := manifestOf(t, dir)
	wantOutcomes(t, m, "rrrppp")
	for i := range 3 {
		ev, err := runlog.ReadEvents(dir, m.Cells[i].Key(), m.Cells[i].FileInfo)
		if err != nil || ev.Len() == 0 {
			t.Errorf("%s: %v", m.Cells[i].Key().Name(), err)
		}
	}
	site := rendered(t, dir)
	_, md := pagesOf(t, site, filepath.Base(dir))
	for _, want := range []string{"Interrupted", "the run ended before its plan was worked off", "| Sustained decode | 512 | 1 | Not run | — |", "Not run: the benchmark was stopped before it reached this measurement."} {
		if !strings.Contains(md, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if n := strings.Count(md, "| Prefill | "); strings.Count(md, "| Prefill | 64 | 1 | Valid | ") != 1 || n < 3 {
		t.Errorf("%d rows of prefill on the page", n)
	}
	for name := range filesBelow(t, site) {
		if strings.HasSuffix(name, ".partial") {
			t.Errorf("%s is in the site", name)
		}
	}
}

// One damaged file ends every command with an error that names it.
func TestCase_BR124(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4}, nil)
	c := collectRun(t, tinyPlan(t.TempDir(), srv.URL)...)
	damages := map[string]func(b []byte){
		"another end mark":       func(b []byte) { copy(b[len(b)-4:], "susB") },
		"another beginning":      func(b []byte) { copy(b, "susB") },
		"an endless footer":      func(b []byte) { binary.LittleEndian.PutUint32(b[len(b)-8:], math.MaxUint32) },
		"a footer of no length":  func(b []byte) { binary.LittleEndian.PutUint32(b[len(b)-8:], 0) },
		"one byte in the middle": func(b []byte) { b[len(b)/2] ^= 0x10 },
		"one byte of a page":     func(b []byte) { b[40] ^= 0x01 },
		"encrypted, it says":     func(b []byte) { copy(b[len(b)-4:], "PARE") },
	}
	rows := map[string]any{}
	for _, file := range []string{"cells/decode-256-c1.parquet", "cells/prefill-256.parquet", "cells/warmup.parquet", "telemetry.parquet"} {
		rows[file] = rowsOf(t, c.dir, file)
		path := filepath.Join(c.dir, filepath.FromSlash(file))
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(good)
		for what, damage := range damages {
			for _, sealed := range []bool{true, false} { // with and without a checksum that is right
				bad := bytes.Clone(good)
				damage(bad)
				manifest := readAll(t, filepath.Join(c.dir, runlog.ManifestFile))
				if !sealed {
					now := sha256.Sum256(bad)
					write(t, filepath.Join(c.dir, runlog.ManifestFile), strings.Replace(manifest, fmt.Sprintf("%x", sum), fmt.Sprintf("%x", now), 1))
				}
				write(t, path, string(bad))
				for _, args := range [][]string{{"inspect", c.dir}, {"render", c.dir, "-o", filepath.Join(t.TempDir(), "site")}} {
					status, stdout, stderr := commandLine(args...)
					if status == exitDone && !sealed && strings.HasPrefix(what, "one byte") && sameRows(t, c.dir, file, rows[file]) {
						continue // a byte that says nothing of the rows, such as one of a statistic's
					}
					if status != exitFailed || stdout != "" || !strings.Contains(stderr, filepath.Base(file)) || strings.Contains(stderr, "goroutine") {
						t.Errorf("%s: %s (sealed %v): %s: status %d, stderr %q, want an error that names it", file, what, sealed, args[0], status, stderr)
					}
				}
				write(t, path, string(good))
				write(t, filepath.Join(c.dir, runlog.ManifestFile), manifest)
			}
		}
	}
	if status, _, stderr := commandLine("inspect", c.dir); status != exitDone {
		t.Errorf("mended, it is still refused: %s", stderr)
	}
}

// rowsOf reads what a file of the run of tinyPlan holds.
func rowsOf(t *testing.T, dir, file string) any {
	t.Helper()
	var rows any
	var err error
	if file == runlog.TelemetryFile {
		rows, err = runlog.ReadTelemetry(dir, runlog.FileInfo{})
	} else {
		keys := []runlog.Key{decodeKey(256, 1), prefillKey(256), {Phase: runlog.PhaseWarmup, ContextTokens: 256, Concurrency: 1}}
		key := keys[slices.IndexFunc(keys, func(k runlog.Key) bool { return k.File() == file })]
		rows, err = runlog.ReadEvents(dir, key, runlog.FileInfo{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func sameRows(t *testing.T, dir, file string, want any) bool {
	t.Helper()
	return reflect.DeepEqual(rowsOf(t, dir, file), want)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// NaN is never written, and a foreign file that has it is refused; what is
// missing is null.
func TestCase_BR125(t *testing.T) {
	t.Parallel()
	dir := tapeRun(t, planned(decodeKey(8192, 1)), map[runlog.Key][]taped{
		decodeKey(8192, 1): {{sent: 1_000_000, events: []int64{1_100_000, 1_200_000}, tokens: 1}},
	}, 1_000_000, 1_200_000)
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		s := []runlog.Sample{{TUs: 1, Source: runlog.SourceGPU, Name: "power_w", Value: 1}, {TUs: 2, Source: runlog.SourceGPU, Name: "power_w", Value: v}}
		if _, err := runlog.WriteTelemetry(dir, s); err == nil || !strings.Contains(err.Error(), "value") {
			t.Errorf("a sample of %v was written: %v", v, err)
		}
		if _, err := os.Stat(filepath.Join(dir, runlog.TelemetryFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("refused samples left a file: %v", err)
		}
		// By another writer, in its own encoding, with a column that we do not have.
		type foreign struct {
			GapMs float64 `parquet:"gap_ms"`
		}
		var b bytes.Buffer
		w := parquet.NewGenericWriter[foreign](&b)
		if _, err := w.Write([]foreign{{v}, {1}, {2}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, runlog.TelemetryFile), b.String())
		for _, args := range [][]string{{"inspect", dir}, {"render", dir, "-o", filepath.Join(t.TempDir(), "site")}} {
			if status, _, stderr := commandLine(args...); status != exitFailed || !strings.Contains(stderr, runlog.TelemetryFile) {
				t.Errorf("%v: %s: status %d, stderr %q, want an error that names the file", v, args[0], status, stderr)
			}
		}
		if err := os.Remove(filepath.Join(dir, runlog.TelemetryFile)); err != nil {
			t.Fatal(err)
		}
	}
	f := filesBelow(t, dir)["made-up/cells/decode-8192-c1.parquet"]
	file, err := parquet.OpenFile(strings.NewReader(f), int64(len(f)))
	if err != nil {
		t.Fatal(err)
	}
	nulls := map[string]int64{}
	for i, column := range file.Schema().Columns() {
		nulls[column[0]] = file.Metadata().RowGroups[0].Columns[i].MetaData.Statistics.NullCount
	}
	for _, c := range []string{"prompt_tokens", "cached_tokens", "completion_tokens", "status", "error", "finish_reason"} {
		if nulls[c] != 4 {
			t.Errorf("%s: %d nulls in 4 rows, want all", c, nulls[c])
		}
	}
}

// Stopped at the very moment at which the last cell ends: every file is
// whole, whichever of the two ways out wins.
func TestCase_BR128(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 8}, nil)
	var finished atomic.Int32
	tries := make(chan int)
	var wg sync.WaitGroup
	for range 10 { // at the same time: they mostly wait
		wg.Go(func() {
			for i := range tries {
				if err := stopAtTheEnd(t.Context(), srv.URL, t.TempDir(), i, &finished); err != nil {
					t.Errorf("try %d: %v", i, err)
				}
			}
		})
	}
	for i := range 50 {
		tries <- i
	}
	close(tries)
	wg.Wait()
	if finished.Load() == 0 {
		t.Error("no run came to its end before it was stopped: the moment was not met")
	}
}

// stopAtTheEnd makes a run that is stopped as its last cell ends, or a
// little before or after that, and opens all its files.
func stopAtTheEnd(ctx context.Context, url, root string, try int, finished *atomic.Int32) error {
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	cfg, err := collectConfig(&env{ctx: ctx}, []string{"--url", url, "-o", root, "--contexts", "64", "--prefill-contexts", "64", "--concurrency", "1", "--duration", "100ms", "--max-output", "32", "--text", "none"})
	if err != nil {
		return err
	}
	cfg.ReadyHold, cfg.DrainHold = 6*time.Millisecond, time.Millisecond
	cfg.Progress = func(u collect.Update) {
		switch last := u.Cell == 1; {
		case last && u.Ended && try%2 == 0:
			interrupt()
		case last && u.Stage == collect.StageWrite && try%2 == 1:
			time.AfterFunc(time.Duration(try)*200*time.Microsecond, interrupt)
		}
	}
	dir, err := collect.Run(ctx, cfg)
	if err != nil && !errors.Is(err, collect.ErrInterrupted) {
		return err
	}
	m, readErr := runlog.ReadManifest(dir)
	if readErr != nil {
		return readErr
	}
	if m.Finished != (err == nil) {
		return fmt.Errorf("finished %v, but Run returned %v", m.Finished, err)
	}
	if m.Finished {
		finished.Add(1)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*.partial"))
	if err != nil || len(left) > 0 {
		return fmt.Errorf("%q is left (%v)", left, err)
	}
	if status, _, stderr := commandLine("inspect", dir); status != exitDone { // opens and checks every file
		return errors.New(stderr)
	}
	return nil
}

// Neighbour: real Ctrl-Cs, one and two, at the moment of the last cell's end.
func TestCase_BR128_Signals(t *testing.T) {
	t.Parallel()
	for _, signals := range []int{1, 2} {
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 8}, nil)
		root := t.TempDir()
		c, err := collectProcess("--url", srv.URL, "--out", root, "--contexts", "64", "--concurrency", "1", "--duration", "100ms", "--max-output", "32")
		if err != nil {
			t.Fatal(err)
		}
		c.until(2, 0)
		for range signals {
			if err := c.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		}
		status, err := c.end()
		if err != nil || status != exitDone && status != exitInterrupted && !(status == -1 && signals == 2 || status == 128+int(syscall.SIGINT)) {
			t.Errorf("%d signals: status %d, %v", signals, status, err)
		}
		m := manifestOf(t, theRun(t, root))
		wantOutcomes(t, m, "rr")
		if status, _, stderr := commandLine("inspect", theRun(t, root)); status != exitDone {
			t.Errorf("%d signals: %s", signals, stderr)
		}
	}
}

// Stopped within the third of five cells.
func TestCase_BR129(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2}, nil)
	root := t.TempDir()
	c, err := collectProcess("--url", srv.URL, "--out", root, "--prefill-contexts", "64", "--contexts", "64", "--concurrency", "1,2,3,4", "--duration", "3s", "--max-output", "400")
	if err != nil {
		t.Fatal(err)
	}
	c.until(2, time.Second)
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	status, err := c.end()
	if err != nil || status != exitInterrupted {
		t.Errorf("exit status %d (%v), want 130", status, err)
	}
	dir := theRun(t, root)
	wantOutcomes(t, manifestOf(t, dir), "rrppp")
	site := rendered(t, dir)
	_, md := pagesOf(t, site, filepath.Base(dir))
	if row := lineWith(t, md, "| Sustained decode | 64 | 1 |"); strings.Contains(row, "Not run") || strings.Contains(row, "—") && !strings.Contains(row, "Client limited") {
		t.Errorf("the second cell's row is %q, want its figures", row)
	}
	for c, why := range map[int]string{2: "interrupted before its end", 3: "the run ended before this measurement", 4: "the run ended before this measurement"} {
		if row := fmt.Sprintf("| Sustained decode | 64 | %d | Not run | — | — | — | — | — | — | — | — |", c); !strings.Contains(md, row) {
			t.Errorf("no row %q", row)
		}
		if row := fmt.Sprintf("| Sustained decode | 64 | %d | Not run | %s |", c, why); !strings.Contains(md, row) {
			t.Errorf("no row %q", row)
		}
	}
}

// Stopped between prefill and decode.
func TestCase_BR139(t *testing.T) {
	t.Parallel()
	c, root := sixCells(t)
	c.until(3, 0)
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if status, err := c.end(); err != nil || status != exitInterrupted {
		t.Errorf("exit status %d (%v), want 130", status, err)
	}
	dir := theRun(t, root)
	wantOutcomes(t, manifestOf(t, dir), "rrrppp")
	site := rendered(t, dir)
	_, md := pagesOf(t, site, filepath.Base(dir))
	for _, context := range []string{"64", "128", "256"} {
		if row := lineWith(t, md, "| Prefill | "+context+" | 1 | Valid |"); strings.Count(row, "—") != 5 {
			t.Errorf("row %q, want rate, TTFT and count", row)
		}
		if !strings.Contains(md, "- "+context+" context<br>**") {
			t.Errorf("no card of prefill at %s", context)
		}
	}
	for c := 1; c <= 3; c++ {
		if row := rowOf(t, site, filepath.Base(dir), "decode", "512", fmt.Sprint(c)); row["status"] != "not-run" || row["total_tok_per_s"] != "" {
			t.Errorf("%d requests at once: %v, want Not run", c, row)
		}
	}
}

// The same command twice keeps both runs; a name that is taken is refused
// before anything is measured.
func TestCase_BR131(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 8}, nil)
	root := t.TempDir()
	first := collectRun(t, tinyPlan(root, srv.URL)...)
	before := filesBelow(t, root)
	second := collectRun(t, tinyPlan(root, srv.URL)...)
	if first.dir == second.dir {
		t.Errorf("both runs are in %s", first.dir)
	}
	named := collectRun(t, tinyPlan(root, srv.URL, "--name", "mine")...)
	asked := len(srv.asked())
	again := collectQuickly(t.Context(), tinyPlan(root, srv.URL, "--name", "mine")...)
	if again.status != exitFailed || again.stdout != "" || !strings.Contains(again.stderr, "is there already") || !strings.Contains(again.stderr, "hint: choose another --name") {
		t.Errorf("a name that is taken: status %d, stdout %q, stderr %q", again.status, again.stdout, again.stderr)
	}
	if n := len(srv.asked()); n != asked {
		t.Errorf("%d requests were sent for a run that has no place", n-asked)
	}
	after := filesBelow(t, root)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s of the first run has changed", name)
		}
	}
	if dirs, err := runlog.FindRuns(root); err != nil || len(dirs) != 3 {
		t.Errorf("runs: %q, %v, want 3", dirs, err)
	}
	rendered(t, first.dir, second.dir, named.dir)
}

// Neighbour: two that begin in the same second, on the same server.
func TestCase_BR131_SameSecond(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 8}, nil)
	root := t.TempDir()
	const runs = 4
	done := make(chan collected, runs)
	for range runs {
		go func() { done <- collectQuickly(t.Context(), tinyPlan(root, srv.URL)...) }()
	}
	dirs := map[string]bool{}
	for range runs {
		c := <-done
		if c.status != exitDone {
			t.Errorf("status %d, %s", c.status, c.stderr)
		}
		dirs[c.dir] = true
	}
	if found, err := runlog.FindRuns(root); err != nil || len(found) != runs || len(dirs) != runs {
		t.Errorf("%d directories said, %d found (%v), want %d", len(dirs), len(found), err, runs)
	}
}

// windowsRefuses is what no name may have that is checked out on Windows.
var windowsRefuses = regexp.MustCompile(`(?i)[<>:"|?*\\\x00-\x1f]|[. ]$|^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)`)

// wantPortable fails for names that some file system refuses, for two that
// differ in case only, and for paths over the bound.
func wantPortable(t *testing.T, files map[string]string, bound int) {
	t.Helper()
	folded := map[string]string{}
	for path := range files {
		if other, ok := folded[strings.ToLower(path)]; ok {
			t.Errorf("%q and %q are one on some file systems", path, other)
		}
		folded[strings.ToLower(path)] = path
		if len(path) > bound {
			t.Errorf("%q has %d bytes, want %d at most", path, len(path), bound)
		}
		for _, part := range strings.Split(path, "/") {
			if windowsRefuses.MatchString(part) || len(part) > 140 {
				t.Errorf("%q of %q can't be a name everywhere", part, path)
			}
			for _, c := range part {
				if c > '~' {
					t.Errorf("%q of %q is not ASCII", part, path)
				}
			}
		}
	}
}

// maxPath is the bound of FORMAT.md for paths below results/, and of the
// site for those below it.
const maxPath = 200

// Any name of a model, a GPU or an engine gives one flat and safe name, and
// stands in the data and on the page as it is.
func TestCase_BR133(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"org/model-x", "../../etc/x", `org\model`, ".hidden", "a//b", // of the case
		"/", "..", "con", "COM1.bin", "a:b", "x. ", "-rf", "a\nb", "model\u202egpj", "日本語", "%2e%2e%2f", "~root", "$HOME", "a?*|<>\"b",
	}
	atOnce(t, func(i int, _ string) string { return fmt.Sprint(i) }, hostile, func(t *testing.T, name string) {
		srv := serveStub(t, simserver.Config{Seed: 1, Model: name, MaxModelLen: 2048, Speed: 8}, nil)
		outside := t.TempDir()
		root := filepath.Join(outside, "results")
		c := collectRun(t, tinyPlan(root, srv.URL, "--gpu", name, "--engine", name, "--engine-version", name, "--commit", name, "--quantization", name)...)
		if filepath.Dir(c.dir) != root {
			t.Errorf("%q: the run is %s, want it in %s", name, c.dir, root)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("%q: %v beside the results (%v)", name, entries, err)
		}
		wantPortable(t, filesBelow(t, root), maxPath)
		m := manifestOf(t, c.dir)
		if m.Model.ServedName != name {
			t.Errorf("run.json names the model %q, want %q", m.Model.ServedName, name)
		}
		site := rendered(t, c.dir)
		wantPortable(t, filesBelow(t, site), maxPath)
		var d struct {
			Model struct {
				ServedName string `json:"served_name"`
			}
		}
		if err := json.Unmarshal([]byte(readAll(t, filepath.Join(site, "runs", filepath.Base(c.dir), "index.json"))), &d); err != nil || d.Model.ServedName != name {
			t.Errorf("index.json names the model %q (%v), want %q", d.Model.ServedName, err, name)
		}
		page, _ := pagesOf(t, site, filepath.Base(c.dir))
		if shown := collapsed(seen(t, page, "dd")); !strings.Contains(shown, collapsed(visible(name))) && !strings.Contains(shown, collapsed(name)) {
			t.Errorf("the page does not show the model's name %q:\n%s", name, shown)
		}
	})
	t.Run("empty", func(t *testing.T) {
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048}, func(w http.ResponseWriter, r *http.Request, _ int, _ chatBody) bool {
			if r.URL.Path == "/v1/models" {
				fmt.Fprint(w, `{"data":[{"id":"","root":""}]}`)
				return true
			}
			return false
		})
		root := filepath.Join(t.TempDir(), "results")
		c := collectQuickly(t.Context(), tinyPlan(root, srv.URL)...)
		if _, err := os.Stat(root); c.status != exitFailed || !strings.Contains(c.stderr, "the list of models is empty") || err == nil {
			t.Errorf("a model without a name: status %d, %s, %v", c.status, c.stderr, err)
		}
		if got := runlog.RunName(&runlog.Manifest{}); !strings.HasPrefix(got, "unknown--cpu--unknown--") {
			t.Errorf("a run that knows nothing is called %q", got)
		}
	})
	t.Run("given", func(t *testing.T) {
		for _, name := range []string{"../x", "a/b", `a\b`, ".hidden", "a:b", "con", "nul.txt", "x.", "x ", "a\nb", strings.Repeat("x", 135)} {
			if c := collectQuickly(t.Context(), "--url", "http://127.0.0.1:1", "--name", name); c.status != exitUsage || !strings.Contains(c.stderr, "--name is") {
				t.Errorf("--name %q: status %d, %s, want wrong use", name, c.status, c.stderr)
			}
		}
	})
}

// Names of hundreds of letters stay short and apart.
func TestCase_BR135(t *testing.T) {
	t.Parallel()
	names := []string{strings.Repeat("x", 300), strings.Repeat("x", 299) + "y", strings.Repeat("\u6a21", 120)}
	dirs := make([]string, len(names))
	for i, name := range names {
		srv := serveStub(t, simserver.Config{Seed: 1, Model: "org/" + name, MaxModelLen: 2048, Speed: 8}, nil)
		c := collectRun(t, tinyPlan(t.TempDir(), srv.URL, "--gpu", name, "--engine-version", name, "--commit", strings.Repeat("a", 300))...)
		dirs[i] = c.dir
		if n := len(filepath.Base(c.dir)); n >= 255 || n > maxName {
			t.Errorf("name %d has %d bytes", i, n)
		}
		if got := manifestOf(t, c.dir).Model.ServedName; got != "org/"+name {
			t.Errorf("run.json has %q", got)
		}
	}
	a, b := filepath.Base(dirs[0]), filepath.Base(dirs[1])
	if strings.Split(a, "--")[0] == strings.Split(b, "--")[0] {
		t.Errorf("%q and %q name the model alike", a, b)
	}
	site := rendered(t, dirs...)
	wantPortable(t, filesBelow(t, site), maxPath)
	for i, dir := range dirs {
		page, _ := pagesOf(t, site, filepath.Base(dir))
		if !strings.Contains(collapsed(seen(t, page, "h1")), names[i]) {
			t.Errorf("the heading does not have the whole name %d", i)
		}
	}
	style := ""
	for name, content := range filesBelow(t, site) {
		if strings.HasSuffix(name, ".css") {
			style += content
		}
	}
	if !regexp.MustCompile(`overflow-wrap:\s*(anywhere|break-word)`).MatchString(style) {
		t.Error("the style sheet lets long words run over the edge")
	}
}

// Nothing that is produced has a name that Windows refuses, nor a relative
// link with a colon.
func TestCase_BR137(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, Model: "org/m:latest", Version: "0.30.1: rc?", MaxModelLen: 2048, Speed: 8}, nil)
	root := t.TempDir()
	c := collectRun(t, tinyPlan(root, srv.URL, "--gpu", "RTX: 6000?", "--quantization", "a|b")...)
	write(t, filepath.Join(c.dir, runlog.NotesFile), "Measured at 10:15.\n")
	site := rendered(t, root)
	wantPortable(t, filesBelow(t, c.dir), maxPath)
	files := filesBelow(t, site)
	wantPortable(t, files, maxPath)
	links := 0
	for name, content := range files {
		if !strings.HasSuffix(name, ".html") {
			continue
		}
		for _, href := range attributes(t, content, "href", "src") {
			links++
			if strings.Contains(href, ":") && !strings.HasPrefix(href, "https://github.com/") {
				t.Errorf("%s: link %q", name, href)
			}
		}
	}
	if links < 10 {
		t.Errorf("only %d links were looked at", links)
	}
}

// The bound on paths, with facts as long as they come.
func TestCase_BR138(t *testing.T) {
	t.Parallel()
	const version = "0.30.1rc1.dev452+g73a583112"
	srv := serveStub(t, simserver.Config{Seed: 1, Model: "org/" + strings.Repeat("m", 80), Version: version, MaxModelLen: 2048, Speed: 8}, nil)
	root := filepath.Join(t.TempDir(), "results")
	usual := collectRun(t, tinyPlan(root, srv.URL, "--commit", strings.Repeat("0123456789", 4), "--quantization", "INT4+INT8", "--gpu", "NVIDIA RTX PRO 6000")...)
	wantPortable(t, filesBelow(t, root), 160)
	if name := filepath.Base(usual.dir); strings.Contains(name, "int4") || !strings.Contains(name, "012345678901--") {
		t.Errorf("the run is called %q, want 12 digits of the commit and no quantization", name)
	}
	site := rendered(t, usual.dir)
	wantPortable(t, filesBelow(t, site), 160)
	format := readAll(t, filepath.Join("..", "..", "ingest", "runlog", "FORMAT.md"))
	bound := regexp.MustCompile(`has (\d+) bytes at most`).FindStringSubmatch(format)
	if bound == nil {
		t.Fatal("FORMAT.md does not say how long paths can be")
	}
	// The longest that there can be.
	long := strings.Repeat("m", 300)
	m := &runlog.Manifest{
		Model:    runlog.Model{Repository: long},
		Hardware: runlog.Hardware{GPUs: []runlog.GPU{{Name: long}}},
		Engine:   runlog.Engine{Name: &runlog.Fact{Value: long}, Version: &runlog.Fact{Value: long}},
	}
	key := decodeKey(1<<20, 1024)
	longest := "results/" + runlog.RunName(m) + "/" + key.File()
	if fmt.Sprint(len(longest)) != bound[1] || len(runlog.RunName(m)) > maxName {
		t.Errorf("%q has %d bytes, FORMAT.md says %s", longest, len(longest), bound[1])
	}
	if len("runs/"+runlog.RunName(m)+"/raw/"+key.File()) > maxPath {
		t.Error("a path of a site can be longer than the bound")
	}
}

// Zero, something and nothing, in two runs of one series. What the
// comparison makes of them comes with its command; no page of a site may
// show a ratio to nothing.
func TestCase_BR111(t *testing.T) {
	t.Parallel()
	const open, middle, shut = 10_000_000, 20_000_000, 30_000_000
	steady := func(from, to int64) []taped {
		var at []int64
		for us := from; us <= to; us += 100_000 {
			at = append(at, us)
		}
		return []taped{{sent: from - 50_000, events: at, tokens: 1}}
	}
	key := func(context int32) runlog.Key { return decodeKey(context, 1) }
	late := steady(middle+50_000, shut) // nothing in the first half of the window
	late[0].sent = open - 50_000
	early := steady(open+50_000, middle-50_000)
	early[0].events = append(early[0].events, shut+1) // nothing in the second
	cells := []map[runlog.Key][]taped{                // a: 0 -> 0, b: 0 -> 5, c: 5 -> 0, d: missing -> 5, e: 5 -> missing
		{key(1024): late, key(2048): late, key(3072): steady(open, shut), key(5120): steady(open, shut)},
		{key(1024): late, key(2048): steady(open, shut), key(3072): early, key(4096): steady(open, shut)},
	}
	root := t.TempDir()
	for i := range cells {
		m := planned(key(1024), key(2048), key(3072), key(4096), key(5120))
		for j := range m.Cells {
			if cells[i][m.Cells[j].Key()] == nil {
				m.Cells[j].Outcome, m.Cells[j].Reason = runlog.OutcomeFailed, "nothing"
			}
		}
		m.Model.Repository = "org/series"
		m.Engine = runlog.Engine{Name: &runlog.Fact{Value: "vllm", Source: runlog.FromServer}, Commit: &runlog.Fact{Value: strings.Repeat(fmt.Sprint(i+1), 40), Source: runlog.FromFlag}}
		dir := tapeRun(t, m, cells[i], open, shut)
		m = manifestOf(t, dir)
		m.StartedAt = m.StartedAt.AddDate(0, 0, i)
		if err := runlog.WriteManifest(dir, m); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir, filepath.Join(root, fmt.Sprint("run-", i))); err != nil {
			t.Fatal(err)
		}
	}
	site := rendered(t, root)
	wantRealNumbers(t, filesBelow(t, site))
	_, md := pagesOf(t, site, "run-0")
	// A half of a window without a token is a measured 0.
	if row := lineWith(t, md[strings.Index(md, "Behind the medians"):], "| 1K | 1 |"); !strings.Contains(row, "| 0.0 |") {
		t.Errorf("row %q, want a measured 0.0", row)
	}
	if row := rowOf(t, site, "run-0", "decode", "4096", "1"); row["status"] != "failed" || row["total_tok_per_s"] != "" {
		t.Errorf("a value that is missing: %v", row)
	}
	if row := rowOf(t, site, "run-1", "decode", "4096", "1"); row["status"] != "valid" || row["total_tok_per_s"] == "" {
		t.Errorf("a value that is new: %v", row)
	}
}
