package runlog

// A Source says where a telemetry sample was taken.
type Source string

const (
	SourceServer Source = "server" // the server's own /metrics
	SourceGPU    Source = "gpu"    // nvidia-smi or rocm-smi
	SourceHost   Source = "host"   // the machine that the collector runs on
	SourceClient Source = "client" // the collector itself
)

// A Sample is one row of the telemetry file: one value at one instant.
// A source that is not there has no samples; a value that could not be
// read has none either, so there is never a NaN or a stand-in zero.
type Sample struct {
	TUs    int64   // microseconds since Manifest.StartedAt, monotonic
	Source Source  //
	Name   string  // base name with its unit, such as "power_w"; the names in use are the Metric constants
	Index  int32   // engine, GPU or core; 0 where there is one
	Value  float64 // finite
}

// Names of samples. Counters end in _total and only grow while the server lives.
const (
	// Of the server; index is the engine.
	MetricRequestsRunning     = "num_requests_running"
	MetricRequestsWaiting     = "num_requests_waiting"
	MetricKVCacheUsage        = "kv_cache_usage_ratio" // 0 … 1
	MetricGenerationTokens    = "generation_tokens_total"
	MetricPromptTokens        = "prompt_tokens_total"
	MetricPromptTokensCached  = "prompt_tokens_cached_total"
	MetricPreemptions         = "num_preemptions_total"
	MetricPrefixCacheQueries  = "prefix_cache_queries_total" // tokens
	MetricPrefixCacheHits     = "prefix_cache_hits_total"    // tokens
	MetricSpecDrafts          = "spec_decode_num_drafts_total"
	MetricSpecDraftTokens     = "spec_decode_num_draft_tokens_total"
	MetricSpecAcceptedTokens  = "spec_decode_num_accepted_tokens_total"
	MetricRequestSuccessTotal = "request_success_total"

	// Of a GPU; index is the GPU.
	MetricPowerW          = "power_w"
	MetricSMClockMHz      = "sm_clock_mhz"
	MetricTemperatureC    = "temperature_c"
	MetricThrottleReasons = "throttle_reasons" // bit mask as the driver gives it
	MetricGPUUtilization  = "utilization_ratio"
	MetricGPUMemoryUsed   = "memory_used_bytes"

	// Of the host and of the client.
	MetricCPURatio        = "cpu_ratio" // busy share of all cores (host), cores kept busy (client)
	MetricMemoryAvailable = "memory_available_bytes"

	// Of the client, about itself; each covers the time since the sample before.
	MetricTimerLatenessP99 = "timer_lateness_p99_us" // how late a timer of the collector fired
	MetricTimerLatenessMax = "timer_lateness_max_us"
	MetricReadLatenessP99  = "read_lateness_p99_us" // read minus the kernel's receive time; only with kernel arrival times
	MetricReadLatenessMax  = "read_lateness_max_us"
	MetricChunks           = "chunks_total"             // data events received since the run began
	MetricLateSharedChunks = "late_shared_chunks_total" // of these, completed by a late read together with an older one of another engine step

	// Of the client, about a scout that only warmed the cache (prefill scouts have rows of their own).
	MetricScoutTTFTUs       = "scout_ttft_us"
	MetricScoutPromptTokens = "scout_prompt_tokens"
	MetricScoutCachedTokens = "scout_cached_tokens"
)
