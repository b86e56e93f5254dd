package server

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"speedmatrix/ingest/runlog"
)

// Why a metrics page that was answered can't be used.
var (
	ErrMetricsEmpty     = errors.New("empty")
	ErrMetricsFormat    = errors.New("not Prometheus text")
	ErrMetricsForeign   = errors.New("no vLLM metrics")
	ErrMetricsTruncated = errors.New("cut off")
)

// MetricsState returns the words of runlog.Server.Metrics for the outcome
// of Client.Metrics: "available" for nil, else why not, such as "404 Not
// Found", "empty", "timed out".
func MetricsState(err error) string {
	if err == nil {
		return "available"
	}
	var e *Error
	if !errors.As(err, &e) {
		return "not available"
	}
	if e.Kind == BadAnswer && e.Detail != "" {
		return e.Detail
	}
	return e.what()
}

// Metrics is one reading of a vLLM server's metrics page. Names are those
// of the run log; what the page does not have, or has as something else
// than a finite number of 0 or more, is not in it.
type Metrics struct {
	values map[string]map[int32]float64 // by name, by engine
	cache  []engineLabels               // vllm:cache_config_info, by ascending engine
}

type engineLabels struct {
	engine int32
	labels map[string]string
}

// A source says where a value of the run log stands on the page: the first
// of the names that is there.
type source struct {
	name  string   // in the run log
	names []string // on the page, newest first
	ratio bool     // not to be added up where an engine has several series
}

const cacheInfo = "vllm:cache_config_info"

// promptBySource is the only family of which just some series count.
const promptBySource = "vllm:prompt_tokens_by_source_total"

func sources() []source {
	return []source{
		{name: runlog.MetricRequestsRunning, names: []string{"vllm:num_requests_running"}},
		{name: runlog.MetricRequestsWaiting, names: []string{"vllm:num_requests_waiting"}},
		{name: runlog.MetricKVCacheUsage, names: []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}, ratio: true},
		{name: runlog.MetricGenerationTokens, names: []string{"vllm:generation_tokens_total"}},
		{name: runlog.MetricPromptTokens, names: []string{"vllm:prompt_tokens_total"}},
		{name: runlog.MetricPromptTokensCached, names: []string{"vllm:prompt_tokens_cached_total", promptBySource}},
		{name: runlog.MetricPreemptions, names: []string{"vllm:num_preemptions_total"}},
		{name: runlog.MetricPrefixCacheQueries, names: []string{"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"}},
		{name: runlog.MetricPrefixCacheHits, names: []string{"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"}},
		{name: runlog.MetricSpecDrafts, names: []string{"vllm:spec_decode_num_drafts_total"}},
		{name: runlog.MetricSpecDraftTokens, names: []string{"vllm:spec_decode_num_draft_tokens_total"}},
		{name: runlog.MetricSpecAcceptedTokens, names: []string{"vllm:spec_decode_num_accepted_tokens_total"}},
		{name: runlog.MetricRequestSuccessTotal, names: []string{"vllm:request_success_total"}},
	}
}

// ParseMetrics reads a metrics page. Only the families that it needs are
// handed to the Prometheus parser, each alone, without their comments: so a
// page of thousands of histogram series costs little each second, and a
// line that breaks the format makes its own family unknown and no other.
// The error is one of the ErrMetrics values.
func ParseMetrics(page []byte) (*Metrics, error) {
	if len(bytes.TrimSpace(page)) == 0 {
		return nil, ErrMetricsEmpty
	}
	wanted := map[string]*bytes.Buffer{cacheInfo: {}}
	for _, s := range sources() {
		for _, n := range s.names {
			wanted[n] = &bytes.Buffer{}
		}
	}
	vllm := false
	for line := range bytes.Lines(page) {
		if !bytes.HasPrefix(line, []byte("vllm:")) {
			continue
		}
		vllm = true
		name := line
		if i := bytes.IndexAny(line, "{ \t\r\n"); i >= 0 {
			name = line[:i]
		}
		if b := wanted[string(name)]; b != nil {
			b.Write(bytes.TrimRight(line, "\r\n"))
			b.WriteByte('\n')
		}
	}
	if !vllm {
		if _, err := parseText(page); err != nil || looksLikeHTML(page) {
			return nil, ErrMetricsFormat
		}
		return nil, ErrMetricsForeign
	}
	if page[len(page)-1] != '\n' {
		return nil, ErrMetricsTruncated // the last line may lack digits, and engines may be missing
	}
	m := &Metrics{values: make(map[string]map[int32]float64)}
	for _, s := range sources() {
		for _, n := range s.names {
			if v := perEngine(n, wanted[n].Bytes(), s.ratio); v != nil {
				m.values[s.name] = v
				break
			}
		}
	}
	m.cache = cacheLabels(wanted[cacheInfo].Bytes())
	return m, nil
}

func parseText(page []byte) (map[string]*dto.MetricFamily, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(bytes.NewReader(page))
}

// perEngine returns the values of one family by engine, series of one
// engine added up; nil when the family is missing or one of its values is
// not a number of 0 or more, because the sum would then be wrong.
func perEngine(name string, lines []byte, ratio bool) map[int32]float64 {
	families, err := parseText(lines)
	if err != nil {
		return nil
	}
	var byEngine map[int32]float64
	for _, series := range families[name].GetMetric() {
		labels := labelMap(series)
		if s := labels["source"]; name == promptBySource && s != "local_cache_hit" && s != "external_kv_transfer" {
			continue
		}
		v := series.GetUntyped().GetValue()
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return nil
		}
		e := engineOf(labels)
		if byEngine == nil {
			byEngine = make(map[int32]float64)
		}
		if _, twice := byEngine[e]; twice && ratio {
			return nil
		}
		if byEngine[e] += v; math.IsInf(byEngine[e], 0) {
			return nil
		}
	}
	return byEngine
}

func cacheLabels(lines []byte) []engineLabels {
	families, err := parseText(lines)
	if err != nil {
		return nil
	}
	var all []engineLabels
	for _, series := range families[cacheInfo].GetMetric() {
		labels := labelMap(series)
		e := engineOf(labels)
		if slices.ContainsFunc(all, func(l engineLabels) bool { return l.engine == e }) {
			continue // the same engine again, from another process of the server
		}
		all = append(all, engineLabels{engine: e, labels: labels})
	}
	slices.SortFunc(all, func(a, b engineLabels) int { return int(a.engine) - int(b.engine) })
	return all
}

func labelMap(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// engineOf returns the index of the engine; 0 where the label is missing,
// as on servers before it was introduced.
func engineOf(labels map[string]string) int32 {
	n, err := strconv.ParseUint(labels["engine"], 10, 31)
	if err != nil {
		return 0
	}
	return int32(n)
}

// Samples returns the reading as telemetry rows taken at tUs, by name and
// engine in ascending order.
func (m *Metrics) Samples(tUs int64) []runlog.Sample {
	var rows []runlog.Sample
	for name, byEngine := range m.values {
		for engine, v := range byEngine {
			rows = append(rows, runlog.Sample{TUs: tUs, Source: runlog.SourceServer, Name: name, Index: engine, Value: v})
		}
	}
	slices.SortFunc(rows, func(a, b runlog.Sample) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Index) - int(b.Index)
	})
	return rows
}

// Sum returns the value of the given name of the run log over all engines,
// and whether the page has it. A ratio is averaged, not added up.
func (m *Metrics) Sum(name string) (float64, bool) {
	byEngine, ok := m.values[name]
	if !ok {
		return 0, false
	}
	sum := 0.0
	for _, engine := range slices.Sorted(maps.Keys(byEngine)) {
		sum += byEngine[engine]
	}
	if name == runlog.MetricKVCacheUsage {
		sum /= float64(len(byEngine))
	}
	return sum, true
}

// Running returns the requests in the execution batch over all engines.
func (m *Metrics) Running() (float64, bool) { return m.Sum(runlog.MetricRequestsRunning) }

// Waiting returns the queued requests over all engines.
func (m *Metrics) Waiting() (float64, bool) { return m.Sum(runlog.MetricRequestsWaiting) }

// Idle reports whether nothing runs and nothing waits; known is false when
// the page does not say both.
func (m *Metrics) Idle() (idle, known bool) {
	r, okR := m.Running()
	w, okW := m.Waiting()
	return r == 0 && w == 0, okR && okW
}

// Engines returns how many engines the page shows, 0 when it shows none.
func (m *Metrics) Engines() int {
	seen := make(map[int32]bool)
	for _, name := range []string{runlog.MetricRequestsRunning, runlog.MetricRequestsWaiting} {
		for e := range m.values[name] {
			seen[e] = true
		}
	}
	for _, l := range m.cache {
		seen[l.engine] = true
	}
	return len(seen)
}

// PrefixCaching returns whether the server says that prefix caching is on;
// known is false when it does not say.
func (m *Metrics) PrefixCaching() (on, known bool) {
	if len(m.cache) == 0 {
		return false, false
	}
	switch strings.ToLower(m.cache[0].labels["enable_prefix_caching"]) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// rawCache returns the labels as runlog.Capacity.Raw keeps them. The number
// and the length of labels are bounded, because they go into the manifest.
func (m *Metrics) rawCache() map[string]string {
	const maxLabels, maxValue = 400, 500
	raw := make(map[string]string)
	for i, l := range m.cache {
		for name, value := range l.labels {
			if len(raw) >= maxLabels || len(name) > 100 || name == "model_name" {
				continue
			}
			if i > 0 {
				name = fmt.Sprintf("%s@%d", name, l.engine)
			}
			raw[name] = oneLine(value, maxValue)
		}
	}
	if len(raw) == 0 {
		return nil
	}
	return raw
}
