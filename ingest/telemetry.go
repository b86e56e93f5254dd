package ingest

import (
	"cmp"
	"slices"

	"speedmatrix/ingest/runlog"
)

// A point is one sample of one series.
type point struct {
	tUs   int64
	index int32 // engine or GPU
	value float64
}

type seriesName struct {
	source runlog.Source
	name   string
}

// A telemetry is a run's samples by series, each in ascending time.
type telemetry map[seriesName][]point

func indexTelemetry(samples []runlog.Sample) telemetry {
	t := make(telemetry)
	for _, s := range samples {
		k := seriesName{s.Source, s.Name}
		t[k] = append(t[k], point{s.TUs, s.Index, s.Value})
	}
	byTime := func(a, b point) int { return cmp.Compare(a.tUs, b.tUs) }
	for _, pts := range t {
		if !slices.IsSortedFunc(pts, byTime) {
			slices.SortStableFunc(pts, byTime)
		}
	}
	return t
}

func (t telemetry) of(source runlog.Source, name string) []point {
	return t[seriesName{source, name}]
}

// within returns the points with from ≤ t ≤ to.
func within(pts []point, from, to int64) []point {
	lo, _ := slices.BinarySearchFunc(pts, from, func(p point, t int64) int { return cmp.Compare(p.tUs, t) })
	hi := lo
	for hi < len(pts) && pts[hi].tUs <= to {
		hi++
	}
	return pts[lo:hi]
}

// sums adds up the engines of each scrape: points of one instant.
func sums(pts []point) []float64 {
	var out []float64
	for i, p := range pts {
		if i == 0 || p.tUs != pts[i-1].tUs {
			out = append(out, 0)
		}
		out[len(out)-1] += p.value
	}
	return out
}

// growth returns a counter's values around a stretch of time, summed over
// engines: for each the last value at or before from, and the first at or
// after to. It is unknown when an engine lacks one of them, or when a
// counter went down in between: the server was started again.
func growth(pts []point, from, to int64) (before, after float64, ok bool) {
	type engine struct {
		index         int32
		before, last  float64
		begun, closed bool
	}
	var engines []engine
	for _, p := range pts {
		i := slices.IndexFunc(engines, func(e engine) bool { return e.index == p.index })
		if i < 0 {
			i = len(engines)
			engines = append(engines, engine{index: p.index})
		}
		e := &engines[i]
		switch {
		case p.tUs <= from:
			e.before, e.last, e.begun = p.value, p.value, true
			continue
		case e.closed:
			continue
		case !e.begun || p.value < e.last:
			return 0, 0, false
		}
		e.last, e.closed = p.value, p.tUs >= to
	}
	for _, e := range engines {
		if !e.begun || !e.closed {
			return 0, 0, false
		}
		before += e.before
		after += e.last
	}
	return before, after, len(engines) > 0
}

// growthInside is growth for a stretch that the samples may not quite
// cover: an end without a sample beyond it takes the nearest one inside.
func growthInside(pts []point, from, to int64) (before, after float64, ok bool) {
	if len(pts) == 0 {
		return 0, 0, false
	}
	from, to = max(from, pts[0].tUs), min(to, pts[len(pts)-1].tUs)
	if from >= to {
		return 0, 0, false
	}
	return growth(pts, from, to)
}
