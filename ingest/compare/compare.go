package compare

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// Method is the version of these rules and of the meaning of every field of
// a Report. docs/diff.md describes them.
const Method = "diff/1"

// A Side is the launches of one commit under one setting.
type Side struct {
	Label string // what the reader calls it; "" for the commit, the version or the run's name
	Runs  []*ingest.Run
}

// Options say what counts as a change.
type Options struct {
	Q      float64 // rate of false findings that is accepted, 0 < Q < 1
	Effect Effects
	GateOn []Metric // metrics whose changes decide; each once
	Allow  []Allowance
	Noise  *Profile // nil: there is none
}

// DefaultOptions returns the options of a plain comparison.
func DefaultOptions() Options {
	return Options{
		Q: 0.05,
		Effect: Effects{
			Run: 0.01, Decode: 0.02, Prefill: 0.03, TTFT: 0.05, PerRequest: 0.02, BetweenTokens: 0.02, TTFTUs: 5000,
		},
		GateOn: []Metric{Decode, Prefill, TTFT},
	}
}

// check returns an error where a comparison under these options would have
// no meaning.
func (o *Options) check() error {
	if !(o.Q > 0 && o.Q < 1) {
		return fmt.Errorf("q: got %v, want more than 0 and less than 1", o.Q)
	}
	effects := map[string]float64{"run": o.Effect.Run, "ttft in µs": o.Effect.TTFTUs}
	for _, m := range Metrics() {
		effects[m.String()] = o.Effect.Of(m)
	}
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		if e := effects[name]; !(e >= 0) || math.IsInf(e, 0) {
			return fmt.Errorf("smallest effect of %s: got %v, want 0 or more", name, e)
		}
	}
	for i, m := range o.GateOn {
		if int(m) >= len(metricTable) || slices.Contains(o.GateOn[:i], m) {
			return fmt.Errorf("metrics to gate on: got %v, want known ones, each once", o.GateOn)
		}
	}
	for _, a := range o.Allow {
		if !slices.Contains(Allowances(), a) {
			return fmt.Errorf("allowance: got %q, want one of %q", a, Allowances())
		}
	}
	return nil
}

// A Report is the comparison of one or more sides with a base.
type Report struct {
	Method   string // the constant Method
	Settings Options
	Base     Side   // its launches in the order of time, its label filled in
	Diffs    []Diff // one for each side, in the order given
	Counts   Counts // over all sides
}

// A Diff compares one side, B, with the base, A.
type Diff struct {
	A, B  Side   // launches in the order of time, labels filled in
	Order string // whose launch was measured when, such as "ABBA"
	AA    bool   // both are known to be the same build, so that every change is noise

	Comparable  bool // false: nothing below is judged; Findings say why
	Descriptive bool // not Comparable, but changes are computed, because the difference was declared

	Findings []Finding        // every rule in the order of the table, what is Same too
	Flags    []FlagDifference // of the launch commands, by name

	Coverage Coverage
	Metrics  []MetricDiff // in the order of Metrics, also those without a cell
	Counts   Counts
}

// A MetricDiff compares one metric.
type MetricDiff struct {
	Metric Metric
	Gates  bool // its verdicts decide
	State  MetricState
	Why    string  // what keeps it from being Judged, and what would help; "" when Judged
	Effect float64 // smallest change of a cell that matters, a share

	Cells    []CellDiff // every cell that a side planned: ascending context, then concurrency
	Compared int        // cells that are Valid on every launch of both sides
	Run      *RunDiff   // nil when fewer than 5 cells were compared
	Noise    Noise      // what its intervals rest on
}

// A MetricState says whether the verdicts of a metric can be relied on.
type MetricState uint8

const (
	Judged          MetricState = iota // yes
	ThinEvidence                       // too few launches: changes are suspicions
	NothingCompared                    // no cell has the metric on both sides
	NotJudged                          // the sides are not comparable
)

// String returns "judged", "thin evidence", "nothing compared" or "not comparable".
func (s MetricState) String() string {
	return [...]string{Judged: "judged", ThinEvidence: "thin evidence", NothingCompared: "nothing compared", NotJudged: "not comparable"}[s]
}

// A Change is an estimate of B against A with its interval, as shares: −0.03
// is 3 % less, of a time as of a rate. Intervals have 95 % confidence.
type Change struct {
	Share     float64
	Low, High float64 // Low ≤ Share ≤ High
}

// change turns a logarithm in which more is better into a Change.
func change(m Metric, at, margin float64) Change {
	at *= m.sign()
	return Change{math.Expm1(at), math.Expm1(at - margin), math.Expm1(at + margin)}
}

// A Test is what a verdict rests on.
type Test struct {
	P          float64 // two-sided; 1 where there is no noise to hold it against
	Adjusted   float64 // … after Benjamini and Hochberg; a finding when it is at most Q
	SD         float64 // standard deviation of the logarithm of the change
	DF         float64 // its degrees of freedom; 0: taken as known
	RunsNeeded int     // launches of each side that would settle an Unclear change; 0: not said, or more than 50
}

// A RunDiff is the change of a whole run: the median over its cells.
type RunDiff struct {
	Change
	Test
	Cells   int
	Verdict Verdict
	Reason  string // in words, what the verdict alone does not say; often ""

	// LaunchesA and LaunchesB say how much each launch differs from its own
	// side, as shares. Grouped reports that they fall into groups: then no
	// verdict about the whole run is possible.
	LaunchesA, LaunchesB []float64
	Grouped              bool
}

// A CellDiff is one cell of one metric.
type CellDiff struct {
	ContextTokens, Concurrency int32
	A, B                       CellSide

	Verdict Verdict
	Reason  string // in words, what the verdict alone does not say; often ""

	Change  *Change // nil where it was not computed: see Verdict
	Against *Change // against the change of the whole run, with its own interval; nil where that is not known
	Test
	Effect float64 // smallest change of this cell that matters, a share; 0 where Change is nil

	launches []launched // that planned it
}

// A CellSide is one side of a cell.
type CellSide struct {
	Planned  int           // launches that planned the cell
	Valid    int           // … in which it was Valid
	Status   ingest.Status // Valid only if it was that on every launch that planned it; else the first other status in order of precedence. Meaningless if Planned is 0
	Launches int           // of the side

	// Value is the geometric mean of the metric over the Valid launches, and
	// N their number. It is the arithmetic mean if one of them is 0.
	Value  ingest.Stat
	Values []float64 // of the Valid launches that have the metric, in the order of time
}

// compared reports whether the side has the metric on every launch.
func (s *CellSide) compared() bool {
	return s.Valid == s.Launches && s.Value.N == s.Launches && s.Launches > 0
}

// positive reports whether all values have a logarithm.
func (s *CellSide) positive() bool { return len(s.Values) > 0 && slices.Min(s.Values) > 0 }

// ErrSameLaunch is the error of a launch that is given twice, on one side or
// on both.
var ErrSameLaunch = errors.New("the same launch twice")

// Compare compares sides with a base. It is an error when a side has no
// launch, when a launch is given twice, or when the options make no sense.
// That sides can't be compared is no error: the report says why.
func Compare(base Side, sides []Side, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if len(sides) == 0 {
		return nil, errors.New("nothing to compare the base with")
	}
	all := []Side{base.ordered()}
	for _, s := range sides {
		all = append(all, s.ordered())
	}
	if err := checkLaunches(all); err != nil {
		return nil, err
	}
	r := &Report{Method: Method, Settings: o, Base: all[0]}
	for _, b := range all[1:] {
		r.Diffs = append(r.Diffs, newDiff(all[0], b, &o))
	}
	r.judge()
	for i := range r.Diffs {
		d := &r.Diffs[i]
		if o.Noise != nil {
			d.Findings = append(d.Findings, o.Noise.findings(d))
		}
		d.count()
		r.Counts.add(d.Counts)
	}
	return r, nil
}

// ordered returns the side with its launches in the order of time, so that
// the order in which they were given changes nothing.
func (s Side) ordered() Side {
	s.Runs = slices.Clone(s.Runs)
	slices.SortFunc(s.Runs, func(a, b *ingest.Run) int {
		if a == nil || b == nil || a.Manifest == nil || b.Manifest == nil {
			return 0 // checkLaunches refuses them
		}
		return cmp.Or(a.Manifest.StartedAt.Compare(b.Manifest.StartedAt), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Manifest.Plan.Salt, b.Manifest.Plan.Salt))
	})
	if s.Label == "" && len(s.Runs) > 0 && s.Runs[0] != nil && s.Runs[0].Manifest != nil {
		m := s.Runs[0].Manifest
		s.Label = cmp.Or(first(fact(m.Engine.Commit), 12), fact(m.Engine.Version), s.Runs[0].ID)
	}
	return s
}

func first(s string, n int) string { return s[:min(n, len(s))] }

// Launch returns the identity of a launch, 16 hexadecimal digits, whatever
// its directory is called.
func Launch(m *runlog.Manifest) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s", m.StartedAt.UnixNano(), m.Plan.Salt))
	return hex.EncodeToString(sum[:8])
}

// checkLaunches refuses sides without launches, and a launch that is given
// twice: by its identity, and by the sums of its event files.
func checkLaunches(sides []Side) error {
	seen := map[string]string{}
	for _, s := range sides {
		if len(s.Runs) == 0 {
			return fmt.Errorf("side %q: no launch", s.Label)
		}
		for _, r := range s.Runs {
			if r == nil || r.Manifest == nil {
				return fmt.Errorf("side %q: a launch without a manifest", s.Label)
			}
			marks := []string{Launch(r.Manifest)}
			for i := range r.Manifest.Cells {
				if sum := r.Manifest.Cells[i].SHA256; sum != "" {
					marks = append(marks, sum)
				}
			}
			for _, mark := range marks {
				if other, twice := seen[mark]; twice {
					return fmt.Errorf("%w: %q and %q", ErrSameLaunch, other, r.ID)
				}
			}
			for _, mark := range marks {
				seen[mark] = r.ID
			}
		}
	}
	return nil
}

// newDiff does everything that needs no other side: comparability, coverage
// and the cells of every metric.
func newDiff(a, b Side, o *Options) Diff {
	d := Diff{A: a, B: b, Order: order(a, b), AA: sameBuild(a, b)}
	var s scope
	d.Findings, s, d.Flags = comparability(a.Runs, b.Runs, o.Allow)
	d.Comparable, d.Descriptive = s == judge, s == describe
	if d.sequential() && !slices.Contains(o.Allow, AllowOrder) && len(d.Order) > 2 {
		d.Findings = append(d.Findings, Finding{Field: "order of launches", Outcome: Warn, A: d.Order, B: d.Order,
			Text: "the sides were measured one after the other (" + d.Order + "), so a drift of the machine can't be told from a change of the whole run"})
	} else {
		d.Findings = append(d.Findings, Finding{Field: "order of launches", A: d.Order, B: d.Order, Allowed: d.sequential()})
	}
	for _, m := range Metrics() {
		d.Metrics = append(d.Metrics, MetricDiff{
			Metric: m, Gates: slices.Contains(o.GateOn, m), Effect: o.Effect.Of(m), Cells: cells(m, a, b),
		})
	}
	d.Findings = append(d.Findings, d.heat(slices.Contains(o.Allow, AllowTelemetry)))
	d.Coverage = coverage(&d)
	return d
}

// heat says in how many cells a GPU was held back.
func (d *Diff) heat(allowed bool) Finding {
	f, n := Finding{Field: "heat"}, 0
	for _, m := range []Metric{Decode, Prefill} {
		for i := range d.Metrics[m].Cells {
			if d.Metrics[m].Cells[i].slowed() != "" {
				n++
			}
		}
	}
	if n > 0 {
		f.Outcome, f.Allowed = Warn, allowed
		f.Text = fmt.Sprintf("heat or a power brake held a GPU back in %d of the cells, which are not compared", n)
		if allowed {
			f.Text = fmt.Sprintf("heat or a power brake held a GPU back in %d of the cells, which are compared all the same", n)
		}
	}
	return f
}

// order writes the sides' letters in the order of time.
func order(a, b Side) string {
	type launch struct {
		run  *ingest.Run
		side byte
	}
	var all []launch
	for _, r := range a.Runs {
		all = append(all, launch{r, 'A'})
	}
	for _, r := range b.Runs {
		all = append(all, launch{r, 'B'})
	}
	slices.SortStableFunc(all, func(x, y launch) int { return x.run.Manifest.StartedAt.Compare(y.run.Manifest.StartedAt) })
	var out []byte
	for _, l := range all {
		out = append(out, l.side)
	}
	return string(out)
}

// sequential reports whether one side was measured after the other.
func (d *Diff) sequential() bool {
	changes := 0
	for i := 1; i < len(d.Order); i++ {
		if d.Order[i] != d.Order[i-1] {
			changes++
		}
	}
	return changes < 2
}

// sameBuild reports whether all launches are known to be of one commit and
// one build of it.
func sameBuild(a, b Side) bool {
	for _, value := range []func(*runlog.Manifest) string{
		func(m *runlog.Manifest) string { return fact(m.Engine.Version) },
		func(m *runlog.Manifest) string { return fact(m.Engine.Build) },
	} {
		if len(said(slices.Concat(a.Runs, b.Runs), value)) > 1 {
			return false
		}
	}
	commits := said(slices.Concat(a.Runs, b.Runs), func(m *runlog.Manifest) string { return fact(m.Engine.Commit) })
	long := slices.MaxFunc(commits, func(x, y string) int { return cmp.Compare(len(x), len(y)) })
	for _, c := range commits { // 9 digits and 12 can be one commit
		if len(c) < 7 || long[:len(c)] != c {
			return false
		}
	}
	return true
}

// cells lists the cells of a metric that any launch planned.
func cells(m Metric, a, b Side) []CellDiff {
	at := map[runlog.Key]*CellDiff{}
	for g, s := range []Side{a, b} {
		for _, r := range s.Runs {
			planned := r.Decode
			if m.Phase() == runlog.PhasePrefill {
				planned = r.Prefill
			}
			for i := range planned {
				c := &planned[i]
				d := at[c.Key()]
				if d == nil {
					d = &CellDiff{ContextTokens: c.ContextTokens, Concurrency: c.Concurrency}
					d.P, d.Adjusted = 1, 1
					at[c.Key()] = d
				}
				side, name := &d.A, "A"
				if g == 1 {
					side, name = &d.B, "B"
				}
				side.take(m, c)
				d.launches = append(d.launches, launched{name, r, c})
			}
		}
	}
	var out []CellDiff
	for _, d := range at {
		d.A.finish(len(a.Runs))
		d.B.finish(len(b.Runs))
		out = append(out, *d)
	}
	slices.SortFunc(out, func(x, y CellDiff) int {
		return cmp.Or(cmp.Compare(x.ContextTokens, y.ContextTokens), cmp.Compare(x.Concurrency, y.Concurrency))
	})
	return out
}

// take adds the cell of one launch.
func (s *CellSide) take(m Metric, c *ingest.Cell) {
	s.Planned++
	if c.Status != ingest.Valid {
		if s.Status == ingest.Valid || c.Status < s.Status {
			s.Status = c.Status
		}
		return
	}
	s.Valid++
	if f := m.Figure(&c.Figures); f.Known() {
		s.Values = append(s.Values, f.Value)
	}
}

// finish computes what needs all launches.
func (s *CellSide) finish(launches int) {
	s.Launches = launches
	n := len(s.Values)
	if n == 0 {
		return
	}
	s.Value = ingest.Stat{Value: mean(s.Values), N: n}
	if s.positive() && n > 1 {
		sum := 0.0
		for _, v := range s.Values {
			sum += math.Log(v)
		}
		s.Value.Value = math.Exp(sum / float64(n))
	}
}
