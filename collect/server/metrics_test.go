package server

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest/runlog"
)

func parse(t *testing.T, lines ...string) *Metrics {
	t.Helper()
	m, err := ParseMetrics([]byte(strings.Join(lines, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMetricsSums(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		of    string
		want  float64
		known bool
	}{
		{"engines are added up", []string{`vllm:num_requests_running{engine="0",model_name="m"} 3.0`, `vllm:num_requests_running{engine="1",model_name="m"} 4.0`}, runlog.MetricRequestsRunning, 7, true},
		{"the new name of the cache usage", []string{`vllm:kv_cache_usage_perc{engine="0"} 0.42`}, runlog.MetricKVCacheUsage, 0.42, true},
		{"the old name of the cache usage", []string{`vllm:gpu_cache_usage_perc{engine="0"} 0.42`}, runlog.MetricKVCacheUsage, 0.42, true},
		{"neither name is unknown", []string{`vllm:num_requests_running 0`}, runlog.MetricKVCacheUsage, 0, false},
		{"a ratio is averaged over engines", []string{`vllm:kv_cache_usage_perc{engine="0"} 0.2`, `vllm:kv_cache_usage_perc{engine="1"} 0.6`}, runlog.MetricKVCacheUsage, 0.4, true},
		{"a ratio given twice for one engine is unknown", []string{`vllm:kv_cache_usage_perc{engine="0",pid="1"} 0.2`, `vllm:kv_cache_usage_perc{engine="0",pid="2"} 0.6`}, runlog.MetricKVCacheUsage, 0, false},
		{"both names at once are not added up", []string{`vllm:gpu_prefix_cache_hits_total 5`, `vllm:prefix_cache_hits_total 5`}, runlog.MetricPrefixCacheHits, 5, true},
		{"the old name of a counter", []string{`vllm:gpu_prefix_cache_queries_total{engine="0"} 9.8e+07`}, runlog.MetricPrefixCacheQueries, 9.8e7, true},
		{"counters by reason are added up", []string{`vllm:request_success_total{engine="0",finished_reason="stop"} 2`, `vllm:request_success_total{engine="0",finished_reason="length"} 3`}, runlog.MetricRequestSuccessTotal, 5, true},
		{"cached prompt tokens by source", []string{`vllm:prompt_tokens_by_source_total{source="local_compute"} 100`, `vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 20`, `vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 3`}, runlog.MetricPromptTokensCached, 23, true},
		{"comments and types are of no account", []string{"# HELP vllm:num_preemptions_total x", "# TYPE vllm:num_preemptions_total counter", `vllm:num_preemptions_total{engine="0"} 37`, `vllm:num_preemptions_created{engine="0"} 1.7e9`}, runlog.MetricPreemptions, 37, true},
		{"NaN is unknown", []string{`vllm:num_requests_running{engine="0"} NaN`}, runlog.MetricRequestsRunning, 0, false},
		{"a sum with one NaN is unknown", []string{`vllm:num_requests_running{engine="0"} 1`, `vllm:num_requests_running{engine="1"} NaN`}, runlog.MetricRequestsRunning, 0, false},
		{"infinity is unknown", []string{`vllm:num_requests_running{engine="0"} +Inf`}, runlog.MetricRequestsRunning, 0, false},
		{"a negative number is unknown", []string{`vllm:num_requests_running{engine="0"} -1`}, runlog.MetricRequestsRunning, 0, false},
		{"the word None is unknown", []string{`vllm:num_requests_running{engine="0"} None`}, runlog.MetricRequestsRunning, 0, false},
		{"a broken family harms no other", []string{`vllm:num_requests_waiting{engine="0} 2`, `vllm:num_requests_running{engine="0"} 2`}, runlog.MetricRequestsRunning, 2, true},
		{"escapes in labels", []string{`vllm:num_requests_running{engine="0",model_name="a\"b\\c\n}"} 2`}, runlog.MetricRequestsRunning, 2, true},
		{"zero is a value", []string{`vllm:num_requests_waiting{engine="0"} 0.0`}, runlog.MetricRequestsWaiting, 0, true},
		{"CR LF line ends", []string{"vllm:num_requests_running{engine=\"0\"} 2\r"}, runlog.MetricRequestsRunning, 2, true},
		{"a longer name is another family", []string{`vllm:num_requests_waiting_by_reason{reason="capacity"} 2`}, runlog.MetricRequestsWaiting, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, known := parse(t, tt.lines...).Sum(tt.of)
			if got != tt.want || known != tt.known {
				t.Errorf("Sum(%s) = %v, %v, want %v, %v", tt.of, got, known, tt.want, tt.known)
			}
		})
	}
}

func TestMetricsSamples(t *testing.T) {
	got := parse(t,
		`vllm:num_requests_waiting{engine="1"} 2`, `vllm:num_requests_waiting{engine="0"} 1`,
		`vllm:kv_cache_usage_perc{engine="1"} 0.5`, `vllm:generation_tokens_total NaN`,
	).Samples(5)
	want := []runlog.Sample{
		{TUs: 5, Source: runlog.SourceServer, Name: runlog.MetricKVCacheUsage, Index: 1, Value: 0.5},
		{TUs: 5, Source: runlog.SourceServer, Name: runlog.MetricRequestsWaiting, Index: 0, Value: 1},
		{TUs: 5, Source: runlog.SourceServer, Name: runlog.MetricRequestsWaiting, Index: 1, Value: 2},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Samples -want +got:\n%s", d)
	}
}

func TestIdle(t *testing.T) {
	if idle, known := parse(t, "vllm:num_requests_running 0", "vllm:num_requests_waiting 0").Idle(); !idle || !known {
		t.Errorf("0 and 0: Idle = %v, %v, want true, true", idle, known)
	}
	if idle, known := parse(t, "vllm:num_requests_running 0", "vllm:num_requests_waiting 1").Idle(); idle || !known {
		t.Errorf("0 and 1: Idle = %v, %v, want false, true", idle, known)
	}
	if _, known := parse(t, "vllm:num_requests_running 0").Idle(); known {
		t.Error("without the waiting gauge: known, want unknown")
	}
}

func TestPrefixCaching(t *testing.T) {
	for value, want := range map[string][2]bool{"True": {true, true}, "False": {false, true}, "None": {false, false}} {
		on, known := parse(t, `vllm:cache_config_info{enable_prefix_caching="`+value+`"} 1`).PrefixCaching()
		if on != want[0] || known != want[1] {
			t.Errorf("PrefixCaching of %q = %v, %v, want %v", value, on, known, want)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{engine=\"0\"} 1\n"), int32(4096))
	f.Add([]byte("vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"661\",block_size=\"16\"} 1\n"), int32(0))
	f.Add([]byte("<html>"), int32(1))
	f.Fuzz(func(t *testing.T, page []byte, length int32) {
		m, err := ParseMetrics(page)
		if err != nil {
			if !errors.Is(err, ErrMetricsEmpty) && !errors.Is(err, ErrMetricsFormat) && !errors.Is(err, ErrMetricsForeign) && !errors.Is(err, ErrMetricsTruncated) {
				t.Fatalf("undeclared error %v", err)
			}
			return
		}
		for _, s := range m.Samples(0) {
			if !(s.Value >= 0 && s.Value <= math.MaxFloat64) || s.Index < 0 {
				t.Fatalf("sample %+v out of range", s)
			}
		}
		if c := Capacity(m, length, 0, 1); c.KVCacheTokens < 0 || (c.KVCacheTokens > 0) != (c.Source != "") {
			t.Fatalf("capacity %+v: want tokens of 0 or more, and a source exactly with tokens", c)
		}
	})
}
