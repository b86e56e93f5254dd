package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// truthOf is a request that arrived at 1 ms and whose events were written
// from 2 ms on, 10 ms apart, each write taking 5 µs.
func truthOf(id string, events int) *served {
	s := &served{ID: id, Arrived: 1e6}
	for i := range events {
		at := int64(2e6 + i*10e6)
		s.Events = append(s.Events, sent{at, at + 5e3})
	}
	return s
}

func TestCompare(t *testing.T) {
	truth := map[string]*served{"a": truthOf("a", 4), "b": truthOf("b", 3)}
	e := compare([]taken{
		{ID: "a", Sent: 0.9e6, Events: []int64{2e6 + 3e3, 12e6 + 3e3, 22e6 + 43e3}}, // one is missing
		{ID: "x", Sent: 1, Events: []int64{1}},                                      // nobody sent it
	}, truth)
	if e.events != 7 || e.lost != 4 {
		t.Errorf("%d events, %d lost; want 7 and 4", e.events, e.lost)
	}
	for _, x := range []struct {
		name      string
		got, want []float64
	}{
		{"recorded − written", e.recorded, []float64{3, 3, 43}},
		{"within the write", e.writing, []float64{5, 5, 5}},
		{"TTFT", e.ttft, []float64{103}}, // 100 µs before it arrived, 3 µs late
		{"gap", e.gap, []float64{0, 40}},
	} {
		if !slices.Equal(x.got, x.want) {
			t.Errorf("%s: got %v, want %v", x.name, x.got, x.want)
		}
	}
	if want := 7 / 0.030; math.Abs(e.rate-want) > 1e-9 {
		t.Errorf("rate %v, want %v", e.rate, want)
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99, 1: 100, 0: 1} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: %v, want NaN", got)
	}
}

func TestLoadsAreEngineSteps(t *testing.T) {
	l := load{10_000, 128, 4}
	if l.period() != 12_800*time.Microsecond || l.tokens() != 312 {
		t.Errorf("%s: period %v, %d tokens; want 12.8ms and 312", l, l.period(), l.tokens())
	}
}

// What other clients leave behind, cut down to one request whose first token
// they saw 2 ms after the request, and two more 10 and 30 ms later.
func TestReadersOfOtherClients(t *testing.T) {
	const wall = -1_000_000_000_000_000_000 // what a wall-clock time is more than a monotonic one
	for _, tt := range []struct {
		client, file, text string
		read               func(peerRun) (said, error)
		want               saidRequest
	}{
		{"vLLM, whose first chunk is the role", "result.json",
			`{"ttfts":[0.002],"itls":[[0.0,0.01,0.02]],"start_times":[7.0]}`, readVLLM,
			saidRequest{taken{"v-0", 7e9, []int64{7_002e6, 7_012e6, 7_032e6}}, 2000, 15000}},
		{"AIPerf", "profile_export.jsonl",
			`{"metadata":{"x_request_id":"q","request_start_ns":1000000007000000000},"metrics":{"time_to_first_token":{"value":2,"unit":"ms"},"inter_chunk_latency":{"value":[10,20],"unit":"ms"}}}`, readAIPerf,
			saidRequest{taken{"q", 7e9, []int64{7_002e6, 7_012e6, 7_032e6}}, 2000, 15000}},
		{"GuideLLM, which keeps the ends", "result.json",
			`{"benchmarks":[{"requests":{"successful":[{"response_id":"chatcmpl-g","info":{"timings":{"request_start":1000000007.0,"first_token_iteration":1000000007.002,"last_token_iteration":1000000007.032,"token_iterations":3}}}]}}]}`, readGuideLLM,
			saidRequest{taken{"g", 7e9, nil}, 2000, 15000}},
	} {
		t.Run(tt.client, func(t *testing.T) {
			r := peerRun{load: load{rate: 300, streams: 1, seconds: 0.01}, out: t.TempDir(), wall: wall}
			if err := os.WriteFile(filepath.Join(r.out, tt.file), []byte(tt.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := tt.read(r)
			if err != nil || len(s.requests) != 1 {
				t.Fatalf("got %+v, %v, want one request", s, err)
			}
			got, near := s.requests[0], func(a, b float64) bool { return math.Abs(a-b) < 1 } // floats of seconds since 1970 have no more
			if got.ID != tt.want.ID || !near(float64(got.Sent)/1e3, float64(tt.want.Sent)/1e3) || !near(got.ttft, tt.want.ttft) || !near(got.between, tt.want.between) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if tt.want.Events == nil {
				return
			}
			events := got.Events[len(got.Events)-len(tt.want.Events):]
			for i := range events {
				if !near(float64(events[i])/1e3, float64(tt.want.Events[i])/1e3) {
					t.Errorf("events at %v, want %v", events, tt.want.Events)
				}
			}
		})
	}
}

// Lists without names are compared by rank, in whatever order they come.
func TestListsAreComparedByRank(t *testing.T) {
	r := peerRun{out: t.TempDir()}
	text := `{"benchmarks":[{"e2e_ttft":{"values":[1.5,1.0]},"tg_req_throughput":{"values":[100,99]}}]}`
	if err := os.WriteFile(filepath.Join(r.out, "result.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readBenchy(r)
	if err != nil {
		t.Fatal(err)
	}
	e := s.judge(map[string]*served{"a": truthOf("a", 4), "b": truthOf("b", 3)})
	if e.matched != 2 || !slices.Equal(e.ttft, []float64{0, 500}) || e.between[0] != 0 || math.Abs(e.between[1]-101.01) > 0.01 {
		t.Errorf("got %+v, want TTFT off by 0 and 500 µs, the time between tokens by 0 and 101 µs", e)
	}
}

func TestTokenizerHasEachByte(t *testing.T) {
	dir := t.TempDir()
	if err := writeTokenizer(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, id := range d.Model.Vocab {
		seen[id] = true
	}
	if len(seen) != 257 || len(d.Model.Vocab) != 257 || d.Model.Vocab["a"] != 'a' || d.Model.Vocab["Ġ"] != ' ' {
		t.Errorf("%d tokens with %d ids, a is %d and a blank %d; want 257, 257, %d, %d", len(d.Model.Vocab), len(seen), d.Model.Vocab["a"], d.Model.Vocab["Ġ"], 'a', ' ')
	}
}
