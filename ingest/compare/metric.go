package compare

import (
	"math"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A Metric is a figure that is compared.
type Metric uint8

// The metrics in the order in which reports have them.
const (
	Decode        Metric = iota // total tok/s of decode cells
	Prefill                     // tok/s of prefill cells
	TTFT                        // of decode cells, warm
	PerRequest                  // tok/s of one request; decode cells
	BetweenTokens               // time between tokens; decode cells
)

// metricTable is the one table of metrics. share is the metric's part of the
// false alarms that the run-wide and the cell tests of a gate may have, and
// scale its assumed noise relative to the total tok/s of a decode cell.
var metricTable = [...]struct {
	name, label string
	phase       runlog.Phase
	isTime      bool
	share       float64
	scale       float64
	figure      func(*ingest.Figures) ingest.Stat
}{
	Decode:        {"decode", "total tok/s", runlog.PhaseDecode, false, 3, 1, func(f *ingest.Figures) ingest.Stat { return f.TotalTokPerS }},
	Prefill:       {"prefill", "prefill tok/s", runlog.PhasePrefill, false, 1, 2, func(f *ingest.Figures) ingest.Stat { return f.PrefillTokPerS }},
	TTFT:          {"ttft", "TTFT", runlog.PhaseDecode, true, 1, 3, func(f *ingest.Figures) ingest.Stat { return f.TTFTUs }},
	PerRequest:    {"perreq", "per request tok/s", runlog.PhaseDecode, false, 1, 1, func(f *ingest.Figures) ingest.Stat { return f.PerRequestTokPerS }},
	BetweenTokens: {"tbt", "time between tokens", runlog.PhaseDecode, true, 1, 1, func(f *ingest.Figures) ingest.Stat { return f.BetweenTokensUs }},
}

// Metrics lists every metric in order.
func Metrics() []Metric { return []Metric{Decode, Prefill, TTFT, PerRequest, BetweenTokens} }

// String returns the metric's name in flags and files: "decode", "prefill",
// "ttft", "perreq" or "tbt".
func (m Metric) String() string { return metricTable[m].name }

// Label returns the name for readers, such as "total tok/s".
func (m Metric) Label() string { return metricTable[m].label }

// Phase returns the phase whose cells have the metric.
func (m Metric) Phase() runlog.Phase { return metricTable[m].phase }

// IsTime reports whether the metric is a time in microseconds, of which less
// is better. The others are rates in tokens per second.
func (m Metric) IsTime() bool { return metricTable[m].isTime }

// Figure returns the metric's figure of a cell.
func (m Metric) Figure(f *ingest.Figures) ingest.Stat { return metricTable[m].figure(f) }

// sign is 1 where more is better.
func (m Metric) sign() float64 {
	if m.IsTime() {
		return -1
	}
	return 1
}

// ParseMetric returns the metric of a name.
func ParseMetric(name string) (Metric, bool) {
	for _, m := range Metrics() {
		if m.String() == name {
			return m, true
		}
	}
	return 0, false
}

// Effects are the smallest changes that matter, as shares (0.02 is 2 %).
type Effects struct {
	Run                                              float64 // of a run as a whole, in any metric
	Decode, Prefill, TTFT, PerRequest, BetweenTokens float64
	TTFTUs                                           float64 // a change of TTFT must also be as long as this
}

// Of returns the smallest change of a cell that matters.
func (e Effects) Of(m Metric) float64 {
	return [...]float64{Decode: e.Decode, Prefill: e.Prefill, TTFT: e.TTFT, PerRequest: e.PerRequest, BetweenTokens: e.BetweenTokens}[m]
}

// bound returns the smallest change of a cell that matters as a logarithm,
// given the typical value of both sides.
func (e Effects) bound(m Metric, typical float64) float64 {
	b := math.Log1p(e.Of(m))
	if m == TTFT && typical > 0 {
		b = max(b, 2*math.Asinh(e.TTFTUs/(2*typical))) // exactly |B − A| ≥ TTFTUs
	}
	return b
}
