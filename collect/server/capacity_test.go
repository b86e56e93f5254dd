package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest/runlog"
)

func TestCapacity(t *testing.T) {
	const concurrencyWins = "kv_cache_max_concurrency × max_model_len"
	const blocks = "(num_gpu_blocks − reserved) × block_size"
	for _, tt := range []struct {
		name    string
		lines   []string
		length  int32
		given   int64
		want    int64
		source  string
		engines int
	}{
		{"the label in tokens", []string{`{engine="0",kv_cache_size_tokens="10576",kv_cache_max_concurrency="2.58203125",block_size="16",num_gpu_blocks="661"}`}, 4096, 0, 10576, "kv_cache_size_tokens", 1},
		{"concurrency x length wins over a smaller label", []string{`{engine="0",kv_cache_size_tokens="290864",kv_cache_max_concurrency="33.04",block_size="16"}`}, 32768, 0, 1082654, concurrencyWins, 1},
		{"concurrency x length does not lower the label", []string{`{engine="0",kv_cache_size_tokens="290864",kv_cache_max_concurrency="2"}`}, 32768, 0, 290864, "kv_cache_size_tokens", 1},
		{"concurrency without a length is of no use", []string{`{engine="0",kv_cache_max_concurrency="33.04"}`}, 0, 0, 0, "", 1},
		{"concurrency x length alone", []string{`{engine="0",kv_cache_size_tokens="None",kv_cache_max_concurrency="2.5"}`}, 4096, 0, 10240, concurrencyWins, 1},
		{"tokens are per engine and added up", []string{`{engine="0",kv_cache_size_tokens="500000"}`, `{engine="1",kv_cache_size_tokens="500000"}`}, 0, 0, 1000000, "kv_cache_size_tokens, sum of 2 engines", 2},
		{"one engine that does not tell makes the sum unknown", []string{`{engine="0",kv_cache_size_tokens="500000"}`, `{engine="1",kv_cache_size_tokens="None"}`}, 0, 0, 0, "", 2},
		{"blocks less the reserved one", []string{`{engine="0",num_gpu_blocks="661",block_size="16"}`}, 4096, 0, 10560, blocks, 1},
		{"blocks are already the sum over engines", []string{`{engine="0",num_gpu_blocks="1322",block_size="16"}`, `{engine="1",num_gpu_blocks="1322",block_size="16"}`}, 4096, 0, 21120, blocks, 2},
		{"blocks that differ are unknown", []string{`{engine="0",num_gpu_blocks="1322",block_size="16"}`, `{engine="1",num_gpu_blocks="7",block_size="16"}`}, 4096, 0, 0, "", 2},
		{"the word None is unknown", []string{`{engine="0",num_gpu_blocks="None",block_size="16"}`}, 4096, 0, 0, "", 1},
		{"a number given is taken where the server is silent", []string{`{engine="0",num_gpu_blocks="None",block_size="16"}`}, 4096, 77, 77, "given: --kv-cache-tokens", 1},
		{"the server's own figure is preferred, and that is said", []string{`{engine="0",kv_cache_size_tokens="500000"}`}, 0, 77000, 500000, "kv_cache_size_tokens; the given 77,000 tokens are not used", 1},
		{"nonsense is unknown", []string{`{engine="0",kv_cache_size_tokens="1e300",num_gpu_blocks="-4",block_size="NaN"}`}, 4096, 0, 0, "", 1},
		{"a series given twice counts once", []string{`{engine="0",kv_cache_size_tokens="500",pid="1"}`, `{engine="0",kv_cache_size_tokens="500",pid="2"}`}, 0, 0, 500, "kv_cache_size_tokens", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			for _, l := range tt.lines {
				lines = append(lines, "vllm:cache_config_info"+l+" 1.0")
			}
			got := Capacity(parse(t, lines...), tt.length, tt.given, 0)
			if got.KVCacheTokens != tt.want || got.Source != tt.source || got.Engines != tt.engines || got.MaxNumSeqs != 0 {
				t.Errorf("got %d tokens (%q), %d engines, want %d (%q), %d", got.KVCacheTokens, got.Source, got.Engines, tt.want, tt.source, tt.engines)
			}
		})
	}
}

func TestCapacityWithoutMetrics(t *testing.T) {
	if d := cmp.Diff(runlog.Capacity{}, Capacity(nil, 4096, 0, 0)); d != "" {
		t.Errorf("nothing known -want +got:\n%s", d)
	}
	want := runlog.Capacity{KVCacheTokens: 9, Source: "given: --kv-cache-tokens", MaxNumSeqs: 256}
	if d := cmp.Diff(want, Capacity(nil, 4096, 9, 256)); d != "" {
		t.Errorf("given figures -want +got:\n%s", d)
	}
}

func TestCapacityKeepsTheLabels(t *testing.T) {
	m := parse(t,
		`vllm:cache_config_info{engine="0",model_name="m",block_size="16",num_gpu_blocks="None"} 1`,
		`vllm:cache_config_info{engine="1",block_size="32"} 1`)
	want := runlog.Capacity{Engines: 2, MaxNumSeqs: 512, Raw: map[string]string{
		"engine": "0", "block_size": "16", "num_gpu_blocks": "None", "engine@1": "1", "block_size@1": "32",
	}}
	if d := cmp.Diff(want, Capacity(m, 4096, 0, 256)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestOverCapacity(t *testing.T) {
	one := runlog.Capacity{KVCacheTokens: 589824, Source: "kv_cache_size_tokens", Engines: 1}
	two := runlog.Capacity{KVCacheTokens: 1000000, Source: "kv_cache_size_tokens, sum of 2 engines", Engines: 2}
	hybrid := runlog.Capacity{KVCacheTokens: 1082654, Engines: 1}
	for _, tt := range []struct {
		name          string
		c             runlog.Capacity
		c16, ctx, out int32
		want          bool
		reason        string
	}{
		{name: "exactly full fits", c: one, c16: 16, ctx: 32768, out: 4096},
		{name: "one token more does not", c: one, c16: 16, ctx: 32769, out: 4096, want: true,
			reason: "16 requests × (32,769 context + 4,096 output) tokens = 589,840, but the KV cache holds 589,824 (kv_cache_size_tokens)"},
		{name: "a hybrid's 16 x 32K fits", c: hybrid, c16: 16, ctx: 32768, out: 4096},
		{name: "two engines hold one long request", c: two, c16: 1, ctx: 400000, out: 4096},
		{name: "two engines hold one long request each", c: two, c16: 2, ctx: 400000, out: 4096},
		{name: "the third does not fit in either", c: two, c16: 3, ctx: 400000, out: 4096, want: true,
			reason: "2 requests in the fullest of 2 engines × (400,000 context + 4,096 output) tokens = 808,192, but the engine's KV cache holds 500,000 (kv_cache_size_tokens, sum of 2 engines)"},
		{name: "engines do not share a cache", c: two, c16: 3, ctx: 300000, out: 4096, want: true,
			reason: "2 requests in the fullest of 2 engines × (300,000 context + 4,096 output) tokens = 608,192, but the engine's KV cache holds 500,000 (kv_cache_size_tokens, sum of 2 engines)"},
		{name: "one request that is too long", c: runlog.Capacity{KVCacheTokens: 100, Source: "s"}, c16: 1, ctx: 100, out: 1, want: true,
			reason: "1 request × (100 context + 1 output) tokens = 101, but the KV cache holds 100 (s)"},
		{name: "unknown rules nothing out", c: runlog.Capacity{Engines: 1}, c16: 1024, ctx: 1 << 30, out: 1 << 30},
		{name: "slots", c: runlog.Capacity{MaxNumSeqs: 64}, c16: 65, ctx: 1, out: 1, want: true,
			reason: "65 requests at once, but the server runs at most 64 (max_num_seqs)"},
		{name: "as many as slots", c: runlog.Capacity{MaxNumSeqs: 64}, c16: 64, ctx: 1, out: 1},
		{name: "no overflow", c: one, c16: 1<<31 - 1, ctx: 1<<31 - 1, out: 1<<31 - 1, want: true,
			reason: "2,147,483,647 requests × (2,147,483,647 context + 2,147,483,647 output) tokens = 9,223,372,028,264,841,218, but the KV cache holds 589,824 (kv_cache_size_tokens)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over, reason := OverCapacity(tt.c, tt.c16, tt.ctx, tt.out)
			if over != tt.want || reason != tt.reason {
				t.Errorf("OverCapacity = %v, %q\nwant %v, %q", over, reason, tt.want, tt.reason)
			}
		})
	}
}

func TestDefaultPlan(t *testing.T) {
	k := func(ks ...int32) []int32 {
		for i := range ks {
			ks[i] *= 1024
		}
		return ks
	}
	for _, tt := range []struct {
		name     string
		length   int32
		contexts []int32
		prefill  []int32
	}{
		{"128K, as on the reference page", 131072, k(8, 16, 32, 64, 123), k(8, 16, 32, 64, 123, 128)},
		{"256K, as on the reference page", 262144, k(8, 16, 32, 64, 128, 251), k(8, 16, 32, 64, 128, 251, 256)},
		{"40K", 40960, k(8, 16, 32, 35), k(8, 16, 32, 35, 40)},
		{"1M", 1048576, k(8, 16, 32, 64, 128, 256, 512, 1019), k(8, 16, 32, 64, 128, 256, 512, 1019, 1024)},
		{"just above 128K, prefill at 128K and at the end", 133120, k(8, 16, 32, 64, 125), k(8, 16, 32, 64, 125, 128, 130)},
		{"the largest is a power already", 13312, k(8), k(8, 13)},
		{"too short for 8K", 8192, k(1, 2, 3), k(1, 2, 3, 8)},
		{"16K", 16384, k(8, 11), k(8, 11, 16)},
		{"4K, with a smaller output", 4096, k(1, 2), k(1, 2, 4)},
		{"2K", 2048, k(1), k(1, 2)},
		{"no room for 1K", 1024, []int32{640}, []int32{640, 1024}},
		{"unknown", 0, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := DefaultMaxOutput(tt.length)
			contexts, prefill := DefaultPlan(tt.length, out)
			if d := cmp.Diff(tt.contexts, contexts) + cmp.Diff(tt.prefill, prefill); d != "" {
				t.Errorf("DefaultPlan(%d, %d) -want +got:\n%s", tt.length, out, d)
			}
		})
	}
	if c, p := DefaultPlan(4096, 4096); c != nil || p != nil {
		t.Errorf("no room beside the output: got %v, %v, want nothing", c, p)
	}
}

func TestPromptTokens(t *testing.T) {
	for _, tt := range []struct{ context, length, out, want int32 }{
		{8192, 131072, 4096, 8192}, {131072, 131072, 1, 131071}, {131072, 0, 1, 131072}, {10, 5, 6, -1},
	} {
		if got := PromptTokens(tt.context, tt.length, tt.out); got != tt.want {
			t.Errorf("PromptTokens(%d, %d, %d) = %d, want %d", tt.context, tt.length, tt.out, got, tt.want)
		}
	}
}
