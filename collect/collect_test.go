package collect

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect/server"
	"speedmatrix/collect/simserver"
	"speedmatrix/ingest/runlog"
)

// simulate starts a simulated server that lives until the test ends.
func simulate(t *testing.T, cfg simserver.Config) *httptest.Server {
	t.Helper()
	s, err := simserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return ts
}

// quick is a configuration whose windows are as short as they can be.
func quick(t *testing.T, url string) Config {
	t.Helper()
	u, err := server.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		URL: u, Root: t.TempDir(), Random: rand.Reader, Idle: 20 * time.Second,
		ReadyHold: 60 * time.Millisecond, DrainHold: 50 * time.Millisecond,
		Tool:    runlog.Tool{Name: "speedmatrix", Version: "test"},
		Machine: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
		Plan: PlanRequest{
			ContextsTokens: []int32{256, 1024}, Concurrency: []int32{1, 3},
			Duration: 300 * time.Millisecond, MaxOutputTokens: 400,
		},
	}
}

func mustRun(t *testing.T, cfg Config) (string, *runlog.Manifest) {
	t.Helper()
	dir, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return dir, manifest(t, dir)
}

func manifest(t *testing.T, dir string) *runlog.Manifest {
	t.Helper()
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRunRecordsEveryCellOfThePlan(t *testing.T) {
	ts := simulate(t, simserver.Config{Seed: 1, MaxModelLen: 4096, KVCacheTokens: 4500, Speed: 2})
	dir, m := mustRun(t, quick(t, ts.URL))
	if !m.Finished || m.Telemetry == nil || m.Warmup == nil {
		t.Errorf("finished %v, telemetry %v, warm-up %v", m.Finished, m.Telemetry, m.Warmup)
	}
	if m.Plan.TokenCounting != countContinuous || m.Plan.PromptCounting != promptsTokenized || !m.Plan.Sampling.IgnoreEOS {
		t.Errorf("counting %q, prompts %q, ignore_eos %v", m.Plan.TokenCounting, m.Plan.PromptCounting, m.Plan.Sampling.IgnoreEOS)
	}
	var got []string
	for _, c := range m.Cells {
		got = append(got, c.Key().Name()+" "+string(c.Outcome))
	}
	// 3 × (1,024 + 400) = 4,272 fits 4,500 less the null block.
	want := []string{"prefill-256 recorded", "prefill-1024 recorded", "decode-256-c1 recorded", "decode-256-c3 recorded", "decode-1024-c1 recorded", "decode-1024-c3 recorded"}
	if !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		ev, err := runlog.ReadEvents(dir, c.Key(), c.FileInfo)
		if err != nil {
			t.Errorf("%s: %v", c.Key().Name(), err)
			continue
		}
		if c.PromptTokens != c.ContextTokens {
			t.Errorf("%s: prompt of %d tokens", c.Key().Name(), c.PromptTokens)
		}
		streams := map[int32]bool{}
		for i := range ev.Len() {
			streams[ev.Stream[i]] = true
			if n := ev.PromptTokens[i]; n != runlog.Unknown && n != c.ContextTokens {
				t.Errorf("%s: the server counted a prompt of %d tokens", c.Key().Name(), n)
			}
		}
		if len(streams) != int(c.Concurrency) {
			t.Errorf("%s: %d streams", c.Key().Name(), len(streams))
		}
		if c.Phase == runlog.PhaseDecode {
			if d := *c.WindowCloseUs - *c.WindowOpenUs; d != m.Plan.DurationUs {
				t.Errorf("%s: window of %d µs, want exactly %d", c.Key().Name(), d, m.Plan.DurationUs)
			}
			if c.Ready == nil || c.Ready.TimedOut || c.Ready.By != "metrics and streams" {
				t.Errorf("%s: ready %+v", c.Key().Name(), c.Ready)
			}
		}
	}
	samples, err := runlog.ReadTelemetry(dir, m.Telemetry.FileInfo)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range samples {
		names[s.Name] = true
	}
	for _, n := range []string{runlog.MetricRequestsRunning, runlog.MetricTimerLatenessP99, runlog.MetricChunks, runlog.MetricScoutTTFTUs} {
		if !names[n] {
			t.Errorf("telemetry has no %s", n)
		}
	}
}

func TestOverCapacityIsNotSent(t *testing.T) {
	ts := simulate(t, simserver.Config{Seed: 1, MaxModelLen: 2048, KVCacheTokens: 3000, Speed: 4})
	_, m := mustRun(t, quick(t, ts.URL))
	c := m.Cells[len(m.Cells)-1]
	if c.Outcome != runlog.OutcomeOverCapacity || c.File != "" || !strings.Contains(c.Reason, "KV cache") && !strings.Contains(c.Reason, "tokens") {
		t.Errorf("decode-1024-c3 = %+v, want over capacity with its reason", c)
	}
}

// What must end before a run directory exists, with an error that helps.
func TestNothingIsWrittenWhenTheServerWillNotDo(t *testing.T) {
	sim := func(cfg simserver.Config) func(t *testing.T) string {
		return func(t *testing.T) string { return simulate(t, cfg).URL }
	}
	for _, tt := range []struct {
		name   string
		url    func(t *testing.T) string
		change func(*Config)
		want   string // in the error
		hint   string // in the hint
	}{
		{"nothing listens", func(*testing.T) string { return "http://127.0.0.1:1" }, nil, "refused", "running"},
		{"wrong key", sim(simserver.Config{APIKey: "sk-right"}), func(c *Config) { c.Key = "sk-wrong" }, "401", "--api-key-file"},
		{"no key", sim(simserver.Config{APIKey: "sk-right"}), nil, "401", "--api-key-file"},
		{"missing model", sim(simserver.Config{Model: "served"}), func(c *Config) { c.Model = "other" }, `"other"`, "served"},
		{"context beyond the server's", sim(simserver.Config{MaxModelLen: 1200}), nil, "context 1024 with up to 400 output tokens", "--max-output 176"},
		{"prefill beyond the server's", sim(simserver.Config{MaxModelLen: 2048}), func(c *Config) { c.Plan.PrefillContextsTokens = []int32{4096} }, "prefill context 4096", "--prefill-contexts"},
		{"not an OpenAI server", func(t *testing.T) string {
			ts := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(ts.Close)
			return ts.URL
		}, nil, "404", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := quick(t, tt.url(t))
			if tt.change != nil {
				tt.change(&cfg)
			}
			dir, err := Run(context.Background(), cfg)
			var h interface{ Hint() string }
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("Run = %v, want one line with %q", err, tt.want)
			}
			if tt.hint != "" && (!errors.As(err, &h) || !strings.Contains(h.Hint(), tt.hint)) {
				t.Errorf("error %v: hint %v, want one with %q", err, h, tt.hint)
			}
			if left, _ := os.ReadDir(cfg.Root); dir != "" || len(left) > 0 {
				t.Errorf("left behind: %q, %v", dir, left)
			}
			if strings.Contains(err.Error(), "sk-wrong") {
				t.Errorf("error holds the key: %v", err)
			}
		})
	}
}

func TestFailedCellDoesNotEndTheRun(t *testing.T) {
	// The server answers 500 to three streams at once, and only then.
	s, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2})
	if err != nil {
		t.Fatal(err)
	}
	busy := make(chan struct{}, 2)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" {
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
			default:
				http.Error(w, `{"error":{"message":"out of slots"}}`, 500)
				return
			}
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	dir, m := mustRun(t, quick(t, ts.URL))
	if !m.Finished {
		t.Error("the run is not finished")
	}
	for _, c := range m.Cells {
		want := runlog.OutcomeRecorded
		if c.Outcome != want && c.Concurrency != 3 {
			t.Errorf("%s = %s %q", c.Key().Name(), c.Outcome, c.Reason)
		}
		if c.Concurrency == 3 {
			ev, err := runlog.ReadEvents(dir, c.Key(), c.FileInfo)
			if err != nil {
				t.Fatal(err)
			}
			if why := failure(ev); !strings.Contains(why, "HTTP 500: out of slots") {
				t.Errorf("%s: first failure %q, want the server's message", c.Key().Name(), why)
			}
		}
	}
}

func TestServerThatDiesKeepsWhatWasMeasured(t *testing.T) {
	s, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	defer ts.Close()
	cfg := quick(t, ts.URL)
	ended := 0
	cfg.Progress = func(u Update) {
		if u.Ended {
			if ended++; ended == 3 {
				ts.Listener.Close()
				ts.CloseClientConnections()
			}
		}
	}
	dir, err := Run(context.Background(), cfg)
	if !errors.Is(err, errServerGone) {
		t.Fatalf("Run = %v, want the server gone", err)
	}
	m := manifest(t, dir)
	n := map[runlog.Outcome]int{}
	for _, c := range m.Cells {
		n[c.Outcome]++
	}
	if m.Finished || n[runlog.OutcomeRecorded] != 3 || n[runlog.OutcomePending] != 3 {
		t.Errorf("finished %v, outcomes %v; want 3 recorded, 3 pending", m.Finished, n)
	}
}

func TestInterruptAndResume(t *testing.T) {
	ts := simulate(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2})
	ctx, cancel := context.WithCancel(context.Background())
	cfg := quick(t, ts.URL)
	ended := 0
	cfg.Progress = func(u Update) {
		if u.Ended {
			ended++
		}
		if ended == 2 && u.Stage == StageWindow {
			cancel()
		}
	}
	dir, err := Run(ctx, cfg)
	if !errors.Is(err, ErrInterrupted) {
		t.Fatalf("Run = %v, want interrupted", err)
	}
	before := manifest(t, dir)
	if before.Finished || before.Cells[0].Outcome != runlog.OutcomeRecorded {
		t.Fatalf("after the interrupt: finished %v, cells %+v", before.Finished, before.Cells)
	}
	old, err := os.ReadFile(filepath.Join(dir, before.Cells[0].File))
	if err != nil {
		t.Fatal(err)
	}

	t.Run("another plan is refused", func(t *testing.T) {
		other := quick(t, ts.URL)
		other.Resume, other.Plan.Duration = dir, time.Second
		var re *ResumeError
		if _, err := Run(context.Background(), other); !errors.As(err, &re) || re.What != "the plan" {
			t.Errorf("Run = %v, want a ResumeError about the plan", err)
		}
	})
	t.Run("another engine is refused", func(t *testing.T) {
		other := quick(t, simulate(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Version: "0.30.0"}).URL)
		other.Resume = dir
		var re *ResumeError
		if _, err := Run(context.Background(), other); !errors.As(err, &re) || re.What != "the engine's version" {
			t.Errorf("Run = %v, want a ResumeError about the version", err)
		}
	})

	again := quick(t, ts.URL)
	again.Plan = PlanRequest{} // all of it is in the run
	again.Resume = dir
	got, m := mustRun(t, again)
	if got != dir || !m.Finished || len(m.ResumedUs) != 1 || !m.StartedAt.Equal(before.StartedAt) {
		t.Errorf("resumed %s: finished %v, resumed at %v, started %v (was %v)", got, m.Finished, m.ResumedUs, m.StartedAt, before.StartedAt)
	}
	for _, c := range m.Cells {
		if c.Outcome != runlog.OutcomeRecorded || len(c.Notes) > 0 {
			t.Errorf("%s = %s %q", c.Key().Name(), c.Outcome, c.Notes)
		}
		if c.WindowOpenUs != nil && c.Concurrency == 3 && *c.WindowOpenUs < m.ResumedUs[0] {
			t.Errorf("%s: window opened at %d µs, before the run was resumed at %d", c.Key().Name(), *c.WindowOpenUs, m.ResumedUs[0])
		}
	}
	now, err := os.ReadFile(filepath.Join(dir, before.Cells[0].File))
	if err != nil || string(now) != string(old) {
		t.Errorf("the file of a finished cell changed (%v)", err)
	}
	if _, err := Run(context.Background(), again); err == nil || !strings.Contains(err.Error(), "nothing to resume") {
		t.Errorf("resume of a finished run = %v", err)
	}
}

// A wall clock that was set back by an hour between a run and its resumption
// looks like a run that began an hour later than it did.
func TestCase_BR032_Resume(t *testing.T) {
	ts := simulate(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2})
	ctx, cancel := context.WithCancel(context.Background())
	cfg := quick(t, ts.URL)
	cfg.Plan.ContextsTokens = []int32{256}
	cfg.Progress = func(u Update) {
		if u.Stage == StageWindow && u.Manifest.Cells[u.Cell].Concurrency == 3 {
			cancel()
		}
	}
	dir, err := Run(ctx, cfg)
	if !errors.Is(err, ErrInterrupted) {
		t.Fatalf("Run = %v, want interrupted", err)
	}
	before := manifest(t, dir)
	before.StartedAt = before.StartedAt.Add(time.Hour)
	if err := runlog.WriteManifest(dir, before); err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for _, c := range before.Cells {
		if c.WindowCloseUs != nil {
			last = max(last, *c.WindowCloseUs)
		}
	}
	again := quick(t, ts.URL)
	again.Plan, again.Resume = PlanRequest{}, dir
	_, m := mustRun(t, again)
	if last == 0 || m.ResumedUs[0] <= last {
		t.Errorf("resumed at %d µs, want it after the last window, which closed at %d", m.ResumedUs[0], last)
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		if c.Concurrency == 3 && *c.WindowOpenUs <= m.ResumedUs[0] {
			t.Errorf("%s: window opened at %d, want it after %d", c.Key().Name(), *c.WindowOpenUs, m.ResumedUs[0])
		}
		if _, err := runlog.ReadEvents(dir, c.Key(), c.FileInfo); err != nil {
			t.Errorf("%s: %v", c.Key().Name(), err)
		}
	}
	if _, err := runlog.ReadTelemetry(dir, m.Telemetry.FileInfo); err != nil {
		t.Error(err)
	}
}

func TestMoreRowsThanAFileHoldsFailTheCell(t *testing.T) {
	if err := tooLong(runlog.MaxRows); err != nil {
		t.Errorf("%d rows: %v, want no error", runlog.MaxRows, err)
	}
	want := "16777217 rows are more than a file holds, 16777216: measure it for a shorter time"
	if err := tooLong(runlog.MaxRows + 1); err == nil || err.Error() != want {
		t.Errorf("%d rows: %v, want %s", runlog.MaxRows+1, err, want)
	}
}

func TestWhatTheServerDoesNotKnowIsLeftOut(t *testing.T) {
	s, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 4, Metrics: simserver.MetricsNone, NoTokenizeRoute: true})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	cfg := quick(t, ts.URL)
	cfg.Plan.ContextsTokens, cfg.Plan.Concurrency = []int32{512}, []int32{1, 2}
	// A nonce has a few tokens more or less, so that of some salts no prompt is
	// within 0.5 %, which is noted then: the test takes one salt.
	cfg.Random = mathrand.NewChaCha8([32]byte{1})
	_, m := mustRun(t, cfg)
	if m.Server.Metrics != "404 Not Found" || m.Plan.PromptCounting != promptsCalibrated || m.Capacity.KVCacheTokens != 0 {
		t.Errorf("metrics %q, prompts %q, capacity %+v", m.Server.Metrics, m.Plan.PromptCounting, m.Capacity)
	}
	for _, c := range m.Cells {
		if c.Outcome != runlog.OutcomeRecorded {
			t.Errorf("%s = %s %q", c.Key().Name(), c.Outcome, c.Reason)
		}
		if off := c.PromptTokens - 512; off > 2 || off < -2 {
			t.Errorf("%s: prompt of %d tokens, want 512 within 0.5 %%", c.Key().Name(), c.PromptTokens)
		}
	}
}

func TestRefusedOptionsAreLeftOutAndRecorded(t *testing.T) {
	for _, tt := range []struct {
		refuse, counting string
		ignoreEOS        bool
	}{
		{"ignore_eos", countContinuous, false},
		{"continuous_usage_stats", countTokenIDs, true},
		{"stream_options", countChunks, true},
	} {
		t.Run(tt.refuse, func(t *testing.T) {
			t.Parallel()
			s, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 4})
			if err != nil {
				t.Fatal(err)
			}
			ts := httptest.NewServer(refusing(s, tt.refuse))
			t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
			cfg := quick(t, ts.URL)
			cfg.Plan.ContextsTokens, cfg.Plan.Concurrency = []int32{256}, []int32{1}
			_, m := mustRun(t, cfg)
			if m.Plan.TokenCounting != tt.counting || m.Plan.Sampling.IgnoreEOS != tt.ignoreEOS {
				t.Errorf("counting %q, ignore_eos %v; want %q, %v", m.Plan.TokenCounting, m.Plan.Sampling.IgnoreEOS, tt.counting, tt.ignoreEOS)
			}
		})
	}
}

// refusing answers 400 to chat requests whose body names the key.
func refusing(next http.Handler, key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" {
			body, err := io.ReadAll(r.Body)
			if err == nil && bytes.Contains(body, []byte(`"`+key+`"`)) {
				http.Error(w, `{"error":{"message":"extra fields not permitted: `+key+`"}}`, 400)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}
