package ingest

import (
	"slices"

	"speedmatrix/ingest/runlog"
)

// slowedDown are the reasons for a low clock, in NVIDIA's bit mask, that are
// no choice of anyone: hardware slowdown, heat (by software, by hardware),
// and the power brake. A power cap and an idle GPU are none.
const slowedDown = 0x8 | 0x20 | 0x40 | 0x80

// freshUs is how old the last reading before a cell's beginning may be and
// still say how it began.
const freshUs = 10_000_000

// A GPUState is the state of a GPU while a cell was measured. What no sensor
// said is unknown, not 0.
type GPUState struct {
	Index        int32
	TemperatureC Stat // as the measurement began
	HottestC     Stat // highest during the measurement; N is the number of readings
	SlowedShare  Stat // share of readings, 0 … 1, in which heat or a power brake held the clock down; N is their number
}

// gpuStates returns the states of all GPUs that sent anything around the
// window of a decode cell, or around the requests of another, by index.
func gpuStates(c *Cell, win window, tel telemetry) []GPUState {
	from, to := win.open, win.close
	if !win.ok {
		if len(c.Requests) == 0 {
			return nil
		}
		from, to = c.Requests[0].SentUs, c.Requests[0].EndUs
		for i := range c.Requests {
			from, to = min(from, c.Requests[i].SentUs), max(to, c.Requests[i].EndUs)
		}
	}
	var states []GPUState
	state := func(index int32) *GPUState {
		i := slices.IndexFunc(states, func(s GPUState) bool { return s.Index == index })
		if i < 0 {
			i = len(states)
			states = append(states, GPUState{Index: index})
		}
		return &states[i]
	}
	for _, p := range within(tel.of(runlog.SourceGPU, runlog.MetricTemperatureC), from-freshUs, to) {
		s := state(p.index)
		if p.tUs <= from || !s.TemperatureC.Known() {
			s.TemperatureC = Stat{p.value, 1}
		}
		if p.tUs > from {
			s.HottestC = Stat{max(p.value, s.HottestC.Value), s.HottestC.N + 1}
		}
	}
	for _, p := range within(tel.of(runlog.SourceGPU, runlog.MetricThrottleReasons), from, to) {
		s := state(p.index)
		sum := s.SlowedShare.Value * float64(s.SlowedShare.N)
		if int64(p.value)&slowedDown != 0 {
			sum++
		}
		s.SlowedShare = Stat{sum / float64(s.SlowedShare.N+1), s.SlowedShare.N + 1}
	}
	slices.SortFunc(states, func(a, b GPUState) int { return int(a.Index) - int(b.Index) })
	return states
}
