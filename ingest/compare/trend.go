package compare

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"speedmatrix/ingest/runlog"
)

// A Commit is one commit in the history of a metric.
type Commit struct {
	Launches int // 1 or more

	// Values are the figures of the launches, by cell: of those cells that
	// are Valid and have one that is more than 0 on every launch.
	Values map[runlog.Key][]float64
}

// A Trend is the history of one metric over commits under conditions that
// did not change.
type Trend struct {
	Metric Metric

	// Index is for each commit how far its cells lie from their own means, by
	// the median of the IndexCells that all commits have: a logarithm, more is
	// better. Both are empty where there are fewer than 5 such cells.
	Index      []float64
	IndexCells int
	Whole      History // of Index

	Cells []CellTrend // ascending context, then concurrency
}

// A CellTrend is the history of one cell: against Index where there is one.
// Its steps are those by which the cell itself moved too, the same way.
type CellTrend struct {
	ContextTokens, Concurrency int32
	History                    // the places of a Step are indexes of commits that have the cell
}

// FindTrend looks for steps in a metric over commits in their order: of all
// its cells together, and of each cell, at 1 % of false findings for either.
// p is nil where there is no noise profile of their setting.
func FindTrend(m Metric, commits []Commit, p *Profile, e Effects) Trend {
	t := Trend{Metric: m}
	found := map[runlog.Key]int{} // commits that have the cell
	for _, c := range commits {
		for k := range c.Values {
			found[k]++
		}
	}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b runlog.Key) int {
		return cmp.Or(cmp.Compare(a.ContextTokens, b.ContextTokens), cmp.Compare(a.Concurrency, b.Concurrency))
	})
	logs := map[runlog.Key][]float64{} // by commit, NaN where it has none
	var common []runlog.Key
	for _, k := range keys {
		for _, c := range commits {
			logs[k] = append(logs[k], meanLog(m, c.Values[k]))
		}
		if found[k] == len(commits) {
			common = append(common, k)
		}
	}
	if len(common) >= minSplit {
		t.IndexCells = len(common)
		off := make([][]float64, len(commits))
		for _, k := range common {
			at := mean(logs[k])
			for i, y := range logs[k] {
				off[i] = append(off[i], y-at)
			}
		}
		var points []Point
		for i := range commits {
			t.Index = append(t.Index, middle(off[i]))
			points = append(points, Point{t.Index[i], commits[i].Launches})
		}
		t.Whole = FindSteps(points, p.wholeSD(m, common), e.Run)
	}
	t.findCells(keys, logs, commits, p, e.Of(m))
	return t
}

// meanLog is the mean of logarithms, more is better; NaN of nothing.
func meanLog(m Metric, values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return m.sign() * sum / float64(len(values))
}

// wholeSD is the standard deviation of the median of cells in one launch; 0
// where the profile does not say.
func (p *Profile) wholeSD(m Metric, cells []runlog.Key) float64 {
	if p == nil {
		return 0
	}
	launch, ok := p.SD(m, true, 0, 0)
	if !ok {
		return 0
	}
	var each []float64
	for _, k := range cells {
		if sd, ok := p.SD(m, false, k.ContextTokens, k.Concurrency); ok {
			each = append(each, sd*sd)
		}
	}
	if len(each) == 0 {
		return launch
	}
	return math.Sqrt(max(leastVariance, launch*launch+math.Pi/2*middle(each)/float64(len(cells))))
}

// findCells looks for the steps of every cell, as one family.
func (t *Trend) findCells(keys []runlog.Key, logs map[runlog.Key][]float64, commits []Commit, p *Profile, effect float64) {
	type series struct {
		at           []int // commits
		total, apart []Point
		sd           float64
		estimated    bool
	}
	all := make([]series, len(keys))
	var own []float64 // noise of cells whose noise is estimated
	for i, k := range keys {
		s := &all[i]
		for c, y := range logs[k] {
			if math.IsNaN(y) {
				continue
			}
			s.at, s.total = append(s.at, c), append(s.total, Point{y, commits[c].Launches})
			if t.Index != nil {
				y -= t.Index[c]
			}
			s.apart = append(s.apart, Point{y, commits[c].Launches})
		}
		if p != nil {
			if sd, ok := p.SD(t.Metric, false, k.ContextTokens, k.Concurrency); ok {
				s.sd = math.Sqrt(max(leastVariance, sd*sd))
				if launch, ok := p.SD(t.Metric, true, 0, 0); ok && t.Index == nil {
					s.sd = math.Hypot(s.sd, launch)
				}
			}
		}
		if s.sd == 0 {
			s.estimated, s.sd = true, ownNoise(s.apart)
			if s.sd > 0 {
				own = append(own, s.sd)
			}
		}
	}
	// No cell is taken for steadier than is usual: of many, some look so by chance.
	least := 0.0
	if len(own) > 0 {
		least = middle(own)
	}
	for i, k := range keys {
		s := &all[i]
		if s.estimated {
			s.sd = max(s.sd, least)
		}
		c := CellTrend{k.ContextTokens, k.Concurrency, findSteps(s.apart, s.sd, s.estimated, len(keys), effect)}
		c.Steps = moved(c.Steps, s.total, effect)
		place(c.Steps, len(s.total))
		for j := range c.Steps {
			step := &c.Steps[j]
			step.At, step.Before, step.Last = s.at[step.At], s.at[step.Before], s.at[step.Last]
		}
		t.Cells = append(t.Cells, c)
	}
}

// moved returns the steps at which the points themselves moved, the same
// way. Where the others moved and these did not, they did not change.
func moved(steps []Step, points []Point, effect float64) []Step {
	all := running(points, 1)
	var out []Step
	for i, s := range steps {
		from, to := 0, len(points)
		if i > 0 {
			from = steps[i-1].At
		}
		if i+1 < len(steps) {
			to = steps[i+1].At
		}
		d, _ := between(all[s.At].without(all[from]), all[to].without(all[s.At]))
		if math.Abs(d) >= math.Log1p(effect) && (d > 0) == (s.Share > 0) {
			out = append(out, s)
		}
	}
	return out
}
