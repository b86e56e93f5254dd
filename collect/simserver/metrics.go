package simserver

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stats are the counters of one engine. Counts are float64 because the
// format knows nothing else.
type stats struct {
	gauges, next gauges

	promptTokens, cachedTokens, generationTokens float64
	prefixQueries, prefixHits, preemptions       float64
	drafts, draftTokens                          float64
	acceptedPerPos                               []float64
	success                                      [len(finishReasons)]float64

	ttft, interToken, e2e, queue, inference, prefill, decode histogram
	requestTPOT                                              histogram
	requestPrompt, requestGeneration, prefillComputed        histogram
	maxTokens, requestPreemptions                            histogram
	iterationTokens                                          histogram
}

type gauges struct{ running, waiting, usedBlocks int }

var finishReasons = [...]string{"stop", "length", "abort", "error", "repetition"}

// A histogram is a Prometheus one: counts[i] is of values ≤ bounds[i], not
// cumulative, with one more for the rest.
type histogram struct {
	bounds []float64
	counts []float64
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]float64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

func (h histogram) clone() histogram {
	h.counts = slices.Clone(h.counts)
	return h
}

// oneTwoFive returns 1, 2, 5, 10, … up to limit.
func oneTwoFive(limit int) []float64 {
	var b []float64
	for scale := 1; ; scale *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*scale > limit {
				return b
			}
			b = append(b, float64(m*scale))
		}
	}
}

func newStats(cfg Config) stats {
	ttft := []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	token := []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	request := []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	lengths := oneTwoFive(cfg.MaxModelLen)
	iteration := []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	h := newHistogram
	return stats{
		acceptedPerPos: make([]float64, cfg.DraftTokens),
		ttft:           h(ttft), interToken: h(token), requestTPOT: h(token),
		e2e: h(request), queue: h(request), inference: h(request), prefill: h(request), decode: h(request),
		requestPrompt: h(lengths), requestGeneration: h(lengths), prefillComputed: h(lengths), maxTokens: h(lengths),
		requestPreemptions: h([]float64{0, 1, 2, 3, 5, 10}),
		iterationTokens:    h(iteration),
	}
}

// clone returns a copy that shares nothing that changes.
func (s stats) clone() stats {
	s.acceptedPerPos = slices.Clone(s.acceptedPerPos)
	for _, h := range []*histogram{&s.ttft, &s.interToken, &s.e2e, &s.queue, &s.inference, &s.prefill, &s.decode,
		&s.requestTPOT, &s.requestPrompt, &s.requestGeneration, &s.prefillComputed, &s.maxTokens, &s.requestPreemptions, &s.iterationTokens} {
		*h = h.clone()
	}
	return s
}

// tokens counts n output tokens of s.
func (st *stats) tokens(s *sequence, n int, first bool, now time.Time) {
	st.generationTokens += float64(n)
	if first {
		// The whole prompt is counted with the first token.
		st.promptTokens += float64(s.prompt)
		st.cachedTokens += float64(s.cached)
		st.ttft.observe(now.Sub(s.arrived).Seconds())
		return
	}
	st.interToken.observe(now.Sub(s.last).Seconds())
}

// finished records a request that ended by itself.
func (st *stats) finished(s *sequence, f finish, now time.Time) {
	st.success[slices.Index(finishReasons[:], f.String())]++
	st.e2e.observe(now.Sub(s.arrived).Seconds())
	st.queue.observe(s.scheduled.Sub(s.arrived).Seconds())
	st.inference.observe(now.Sub(s.scheduled).Seconds())
	st.prefill.observe(s.first.Sub(s.scheduled).Seconds())
	st.decode.observe(now.Sub(s.first).Seconds())
	if s.out > 1 {
		st.requestTPOT.observe(now.Sub(s.first).Seconds() / float64(s.out-1))
	}
	st.requestPrompt.observe(float64(s.prompt))
	st.requestGeneration.observe(float64(s.out))
	st.prefillComputed.observe(float64(s.prompt - s.cached))
	st.maxTokens.observe(float64(s.max))
	st.requestPreemptions.observe(float64(s.preempted))
}

// pythonFloat formats a value as prometheus_client does, oddities included:
// "3.0", and from a million up "9.8e+07".
func pythonFloat(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case v != math.Trunc(v) || v >= 1e16:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 1, 64)
	dot := strings.IndexByte(s, '.')
	if v <= 0 || dot <= 6 {
		return s
	}
	mantissa := strings.TrimRight(s[:1]+"."+s[1:dot]+s[dot+1:], "0.")
	return mantissa + "e+0" + strconv.Itoa(dot-1)
}

// An exposition is a metrics page being written.
type exposition struct {
	b     []byte
	model string
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (x *exposition) head(name, kind, help string) {
	x.b = fmt.Appendf(x.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// line writes one sample. labels are complete pairs, in the order in which
// they are printed; engine and model_name are added around them by name.
func (x *exposition) line(name string, engine int, extra string, v float64) {
	pairs := []string{fmt.Sprintf(`engine="%d"`, engine), fmt.Sprintf(`model_name="%s"`, labelEscaper.Replace(x.model))}
	if extra != "" {
		pairs = append(pairs, extra)
		slices.Sort(pairs)
	}
	x.b = fmt.Appendf(x.b, "%s{%s} %s\n", name, strings.Join(pairs, ","), pythonFloat(v))
}

// metricsPage renders what GET /metrics shows of the engines.
func metricsPage(cfg Config, engines []stats, started time.Time) []byte {
	x := &exposition{model: cfg.Model}
	created := float64(started.UnixNano()) / 1e9
	fresh := cfg.Metrics != MetricsOld
	old := cfg.Metrics != MetricsNew
	gauge := func(name, help, extra string, v func(stats) float64) {
		x.head(name, "gauge", help)
		for i, s := range engines {
			x.line(name, i, extra, v(s))
		}
	}
	counter := func(name, help string, extras []string, v func(s stats, i int) float64) {
		x.head(name+"_total", "counter", help)
		for e, s := range engines {
			for i, extra := range extras {
				x.line(name+"_total", e, extra, v(s, i))
			}
		}
		x.head(name+"_created", "gauge", help)
		for e := range engines {
			for _, extra := range extras {
				x.line(name+"_created", e, extra, created)
			}
		}
	}
	plain := []string{""}
	histo := func(name, help string, of func(stats) histogram) {
		x.head(name, "histogram", help)
		for e, s := range engines {
			h, n := of(s), 0.0
			for i, c := range h.counts {
				bound := math.Inf(1)
				if i < len(h.bounds) {
					bound = h.bounds[i]
				}
				n += c
				x.line(name+"_bucket", e, fmt.Sprintf(`le="%s"`, pythonFloat(bound)), n)
			}
			x.line(name+"_count", e, "", n)
			x.line(name+"_sum", e, "", h.sum)
		}
		x.head(name+"_created", "gauge", help)
		for e := range engines {
			x.line(name+"_created", e, "", created)
		}
	}

	gauge("vllm:num_requests_running", "Number of requests in model execution batches.", "",
		func(s stats) float64 { return float64(s.gauges.running) })
	gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", "",
		func(s stats) float64 { return float64(s.gauges.waiting) })
	if fresh {
		x.head("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.")
		for e, s := range engines {
			x.line("vllm:num_requests_waiting_by_reason", e, `reason="capacity"`, float64(s.gauges.waiting))
			x.line("vllm:num_requests_waiting_by_reason", e, `reason="deferred"`, 0)
		}
	}
	if fresh {
		x.head("vllm:engine_sleep_state", "gauge", "Engine sleep state.")
		for e := range engines {
			x.line("vllm:engine_sleep_state", e, `sleep_state="awake"`, 1)
			x.line("vllm:engine_sleep_state", e, `sleep_state="weights_offloaded"`, 0)
			x.line("vllm:engine_sleep_state", e, `sleep_state="discard_all"`, 0)
		}
	}
	for _, n := range []struct {
		prefix string
		show   bool
	}{{"vllm:", fresh}, {"vllm:gpu_", old}} {
		if !n.show {
			continue
		}
		usage := n.prefix + "kv_cache_usage_perc"
		if n.prefix != "vllm:" {
			usage = "vllm:gpu_cache_usage_perc"
		}
		gauge(usage, "KV-cache usage. 1 means 100 percent usage.", "", func(s stats) float64 {
			return float64(s.gauges.usedBlocks) / float64(cfg.blocks()-1)
		})
		counter(n.prefix+"prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", plain,
			func(s stats, _ int) float64 { return s.prefixQueries })
		counter(n.prefix+"prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", plain,
			func(s stats, _ int) float64 { return s.prefixHits })
	}
	if fresh {
		zero := func(stats, int) float64 { return 0 }
		counter("vllm:external_prefix_cache_queries", "External prefix cache queries, in tokens.", plain, zero)
		counter("vllm:external_prefix_cache_hits", "External prefix cache hits, in tokens.", plain, zero)
		counter("vllm:mm_cache_queries", "Multi-modal cache queries, in items.", plain, zero)
		counter("vllm:mm_cache_hits", "Multi-modal cache hits, in items.", plain, zero)
	}
	counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", plain,
		func(s stats, _ int) float64 { return s.preemptions })
	counter("vllm:prompt_tokens", "Number of prefill tokens processed.", plain,
		func(s stats, _ int) float64 { return s.promptTokens })
	if fresh {
		counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.",
			[]string{`source="local_compute"`, `source="local_cache_hit"`, `source="external_kv_transfer"`},
			func(s stats, i int) float64 {
				return [...]float64{s.promptTokens - s.cachedTokens, s.cachedTokens, 0}[i]
			})
		counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens.", plain,
			func(s stats, _ int) float64 { return s.cachedTokens })
	}
	counter("vllm:generation_tokens", "Number of generation tokens processed.", plain,
		func(s stats, _ int) float64 { return s.generationTokens })
	var reasons []string
	for _, r := range finishReasons {
		reasons = append(reasons, fmt.Sprintf(`finished_reason="%s"`, r))
	}
	counter("vllm:request_success", "Count of successfully processed requests.", reasons,
		func(s stats, i int) float64 { return s.success[i] })
	if cfg.DraftTokens > 0 {
		counter("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.", plain,
			func(s stats, _ int) float64 { return s.drafts })
		counter("vllm:spec_decode_num_draft_tokens", "Number of draft tokens.", plain,
			func(s stats, _ int) float64 { return s.draftTokens })
		counter("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.", plain,
			func(s stats, _ int) float64 {
				sum := 0.0
				for _, v := range s.acceptedPerPos {
					sum += v
				}
				return sum
			})
		var positions []string
		for i := range cfg.DraftTokens {
			positions = append(positions, fmt.Sprintf(`position="%d"`, i))
		}
		counter("vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", positions,
			func(s stats, i int) float64 { return s.acceptedPerPos[i] })
	}
	for _, h := range []struct {
		name, help string
		show       bool
		of         func(stats) histogram
	}{
		{"vllm:request_prompt_tokens", "Number of prefill tokens processed.", true, func(s stats) histogram { return s.requestPrompt }},
		{"vllm:request_generation_tokens", "Number of generation tokens processed.", true, func(s stats) histogram { return s.requestGeneration }},
		{"vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", true, func(s stats) histogram { return s.iterationTokens }},
		{"vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", true, func(s stats) histogram { return s.maxTokens }},
		{"vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", true, func(s stats) histogram { return s.ttft }},
		{"vllm:time_per_output_token_seconds", "Histogram of time per output token in seconds.", old, func(s stats) histogram { return s.interToken }},
		{"vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", fresh, func(s stats) histogram { return s.interToken }},
		{"vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", fresh, func(s stats) histogram { return s.requestTPOT }},
		{"vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", true, func(s stats) histogram { return s.e2e }},
		{"vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", true, func(s stats) histogram { return s.queue }},
		{"vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", true, func(s stats) histogram { return s.inference }},
		{"vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", true, func(s stats) histogram { return s.prefill }},
		{"vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", true, func(s stats) histogram { return s.decode }},
		{"vllm:request_num_preemptions", "Histogram of the number of times a request was preempted.", fresh, func(s stats) histogram { return s.requestPreemptions }},
		{"vllm:request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill.", fresh, func(s stats) histogram { return s.prefillComputed }},
	} {
		if h.show {
			histo(h.name, h.help, h.of)
		}
	}
	x.cacheConfig(cfg)
	return x.b
}

// cacheConfig writes cache_config_info, whose labels say how large the KV
// cache is. num_gpu_blocks is the sum over engines in each series, the
// capacity in tokens is per engine.
func (x *exposition) cacheConfig(cfg Config) {
	blocks := cfg.blocks()
	pairs := [][2]string{
		{"block_size", strconv.Itoa(cfg.BlockSize)},
		{"cache_dtype", "auto"},
		{"enable_prefix_caching", map[bool]string{false: "True", true: "False"}[cfg.NoPrefixCache]},
		{"engine", ""},
		{"gpu_memory_utilization", "0.92"},
		{"kv_cache_memory_bytes", "None"},
		{"mamba_block_size", "None"},
		{"num_gpu_blocks", strconv.Itoa(blocks * cfg.Engines)},
		{"num_gpu_blocks_override", "None"},
		{"prefix_caching_hash_algo", "sha256"},
		{"sliding_window", "None"},
	}
	if !cfg.NoCacheSize && cfg.Metrics != MetricsOld {
		perRequest := (cfg.MaxModelLen + cfg.BlockSize - 1) / cfg.BlockSize
		concurrency := float64(blocks) / float64(perRequest)
		pairs = append(pairs,
			[2]string{"kv_cache_max_concurrency", pythonFloat(concurrency)},
			[2]string{"kv_cache_size_tokens", strconv.Itoa(int(concurrency * float64(cfg.MaxModelLen)))})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	x.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	for e := range cfg.Engines {
		x.b = append(x.b, "vllm:cache_config_info{"...)
		for i, p := range pairs {
			if p[0] == "engine" {
				p[1] = strconv.Itoa(e)
			}
			if i > 0 {
				x.b = append(x.b, ',')
			}
			x.b = fmt.Appendf(x.b, `%s="%s"`, p[0], p[1])
		}
		x.b = append(x.b, "} 1.0\n"...)
	}
}
