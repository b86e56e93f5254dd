package compare

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// all changes every figure by a factor of speed.
func all(by float64) func(*ingest.Run) {
	return func(r *ingest.Run) {
		figures(r, func(m Metric, _ *ingest.Cell, s *ingest.Stat) { s.Value *= math.Pow(by, m.sign()) })
	}
}

func TestVerdicts(t *testing.T) {
	const context, concurrency = 32768, 16
	both := func(changes ...func(*ingest.Run)) func(*ingest.Run) {
		return func(r *ingest.Run) {
			for _, change := range changes {
				change(r)
			}
		}
	}
	decode := func(by float64) func(*ingest.Run) { return scale(Decode, context, concurrency, by) }
	for _, tt := range []struct {
		name   string
		change func(*ingest.Run)
		metric Metric
		cell   Verdict // of the one cell
		run    Verdict
		exit   int
	}{
		{"nothing changed", nil, Decode, NoChange, NoChange, ExitPass},
		{"a slower cell", decode(0.9), Decode, Worse, NoChange, ExitFail},
		{"a faster cell", decode(1.1), Decode, Better, NoChange, ExitPass},
		{"less than matters", decode(0.99), Decode, NoChange, NoChange, ExitPass},
		{"a slower run", scale(Decode, 0, 0, 0.97), Decode, MovedWithRun, Worse, ExitFail},
		{"a faster run", scale(Decode, 0, 0, 1.05), Decode, MovedWithRun, Better, ExitPass},
		{"a cell that held while the run fell", both(scale(Decode, 0, 0, 0.95), decode(1/0.95)), Decode, Held, Worse, ExitFail},
		{"a cell that fell less than the run", both(scale(Decode, 0, 0, 0.90), decode(0.95/0.90)), Decode, MovedWithRun, Worse, ExitFail},
		{"a cell that rose while the run fell", both(scale(Decode, 0, 0, 0.95), decode(1.10/0.95)), Decode, Better, Worse, ExitFail},
		{"a later first token", scale(TTFT, context, concurrency, 1.2), TTFT, Worse, NoChange, ExitFail},
		{"an earlier first token", scale(TTFT, context, concurrency, 0.8), TTFT, Better, NoChange, ExitPass},
		{"slower prefill", scale(Prefill, context, 1, 0.9), Prefill, Worse, NoChange, ExitFail},
		{"slower streams do not decide by themselves", scale(PerRequest, context, concurrency, 0.9), PerRequest, Worse, NoChange, ExitPass},
		{"nor does the time between tokens", scale(BetweenTokens, context, concurrency, 1.1), BetweenTokens, Worse, NoChange, ExitPass},
	} {
		a, b := pair(3, tt.change)
		r := mustCompare(t, a, b, nil)
		n := int32(concurrency)
		if tt.metric == Prefill {
			n = 1
		}
		c, m := cellOf(t, r, tt.metric, context, n), &r.Diffs[0].Metrics[tt.metric]
		exit, _ := r.Counts.Status(DefaultGate())
		if c.Verdict != tt.cell || m.Run.Verdict != tt.run || exit != tt.exit {
			t.Errorf("%s: got %v in a run of %v, exit %d; want %v, %v, %d", tt.name, c.Verdict, m.Run.Verdict, exit, tt.cell, tt.run, tt.exit)
		}
		if m.State != Judged || m.Why != "" {
			t.Errorf("%s: %v, %q, want it judged", tt.name, m.State, m.Why)
		}
		if c.Change.Low > c.Change.Share || c.Change.Share > c.Change.High || math.Abs(c.Change.Share) > 0.25 {
			t.Errorf("%s: a change of %+v", tt.name, *c.Change)
		}
		if up := c.Change.Share > 0; c.Verdict == Worse && up != tt.metric.IsTime() {
			t.Errorf("%s: worse with a change of %+v", tt.name, c.Change)
		}
	}
}

// A TTFT that changes by much of very little does not matter, and is not
// called a change; in microseconds, not milliseconds.
func TestSmallTimes(t *testing.T) {
	for _, tt := range []struct {
		us   float64 // of the base
		by   float64
		want Verdict
	}{{40_000, 1.10, NoChange}, {40_000, 1.15, Worse}, {40_000_000, 1.10, Worse}, {400, 1.10, NoChange}} {
		set := func(r *ingest.Run, us float64) {
			r.Decode[3].Figures.TTFTUs.Value *= us / (200_000 * (1 + 8.0/16))
		}
		a := launches(3, 0, 20, func(r *ingest.Run) { set(r, tt.us) })
		b := launches(3, 10, 20, func(r *ingest.Run) { set(r, tt.us*tt.by) })
		if c := cellOf(t, mustCompare(t, a, b, nil), TTFT, 8192, 8); c.Verdict != tt.want {
			t.Errorf("%v µs and %.0f %% more: got %v (%+v), want %v", tt.us, 100*(tt.by-1), c.Verdict, c.Change, tt.want)
		}
	}
}

// Who has how many launches, and a profile or none.
func TestEvidence(t *testing.T) {
	profile, err := NewProfile(launches(5, 1000, 10, nil).Runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		n       int
		profile *Profile
		state   MetricState
		verdict Verdict
		source  NoiseSource
		exit    int
		why     string
	}{
		{"one of each: a guess", 1, nil, ThinEvidence, SuspectWorse, Assumed, ExitUnjudged, "1 launch of A and 1 of B without a noise profile: it takes 3 of each, or 2 with a profile of 3"},
		{"one of each and a profile: a suspicion", 1, profile, ThinEvidence, SuspectWorse, FromProfile, ExitUnjudged, "with a noise profile it takes 2 of each"},
		{"two of each: a suspicion", 2, nil, ThinEvidence, SuspectWorse, FromLaunches, ExitUnjudged, "it takes 3 of each"},
		{"two of each and a profile", 2, profile, Judged, Worse, FromBoth, ExitFail, ""},
		{"three of each", 3, nil, Judged, Worse, FromLaunches, ExitFail, ""},
	} {
		a, b := pair(tt.n, scale(Decode, 32768, 16, 0.95))
		r := mustCompare(t, a, b, func(o *Options) { o.Noise = tt.profile })
		c, m := cellOf(t, r, Decode, 32768, 16), &r.Diffs[0].Metrics[Decode]
		exit, _ := r.Counts.Status(DefaultGate())
		if m.State != tt.state || c.Verdict != tt.verdict || m.Noise.Source != tt.source || exit != tt.exit || !strings.Contains(m.Why, tt.why) || (m.Why == "") != (tt.why == "") {
			t.Errorf("%s: got %v, %v, noise %+v, exit %d, %q", tt.name, m.State, c.Verdict, m.Noise, exit, m.Why)
		}
		if tt.state == ThinEvidence {
			if gate := (Gate{FailOn: []Event{OnWorse}, AllowUnjudged: true}); status(r, gate) != ExitPass {
				t.Errorf("%s: allowed to be thin, and the exit status is %d", tt.name, status(r, gate))
			}
			if got := status(r, Gate{FailOn: []Event{OnSuspect}}); (got == ExitFail) != (tt.verdict == SuspectWorse) {
				t.Errorf("%s: failing on suspicions, the exit status is %d", tt.name, got)
			}
			for i := range m.Cells {
				if v := m.Cells[i].Verdict; v == NoChange || v == Worse || v == Better {
					t.Fatalf("%s: called %v without evidence", tt.name, v)
				}
			}
		}
	}
}

func status(r *Report, g Gate) int {
	exit, _ := r.Counts.Status(g)
	return exit
}

// Runs of few cells have no median to hold a cell against.
func TestSmallMatrix(t *testing.T) {
	side := func(n, minutes int, by float64) Side {
		var s Side
		for i := range n {
			r := noisy(plain(minutes+20*i, []int32{8192, 16384}, []int32{1, 8}, []int32{8192}), uint64(minutes+20*i), 0.002)
			scale(Decode, 8192, 8, by)(r)
			s.Runs = append(s.Runs, r)
		}
		return s
	}
	profile, err := NewProfile(launches(5, 1000, 10, nil).Runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		n    int
		by   float64
		want Verdict
	}{{3, 0.9, Worse}, {3, 1.1, Better}, {3, 1, NoChange}, {2, 0.9, SuspectWorse}} {
		for _, p := range []*Profile{nil, profile} {
			r := mustCompare(t, side(tt.n, 0, 1), side(tt.n, 10, tt.by), func(o *Options) { o.Noise = p })
			m := &r.Diffs[0].Metrics[Decode]
			if c := cellOf(t, r, Decode, 8192, 8); c.Verdict != tt.want || m.Run != nil || c.Against != nil {
				t.Errorf("%d launches, × %v: got %v, run %+v, want %v and nothing about the run", tt.n, tt.by, c.Verdict, m.Run, tt.want)
			}
		}
	}
}

// Launches of one side that lie far apart, all cells alike: nothing is said
// about the run, and a slower cell is still found.
func TestLaunchesInGroups(t *testing.T) {
	a, b := pair(4, scale(Decode, 32768, 16, 0.9))
	for i, r := range b.Runs {
		if i%2 == 0 {
			all(0.8)(r)
		}
	}
	m := &mustCompare(t, a, b, nil).Diffs[0].Metrics[Decode]
	if !m.Run.Grouped || m.Run.Verdict != Unclear || !strings.Contains(m.Run.Reason, "fall into groups") {
		t.Errorf("got %+v, want launches in groups and no verdict", m.Run)
	}
	if lo, hi := slices.Min(m.Run.LaunchesB), slices.Max(m.Run.LaunchesB); hi-lo < 0.15 || len(m.Run.LaunchesA) != 4 {
		t.Errorf("launches: got %v, want two groups a fifth apart", m.Run.LaunchesB)
	}
	if i := slices.IndexFunc(m.Cells, func(c CellDiff) bool { return c.Verdict == Worse }); i < 0 || m.Cells[i].ContextTokens != 32768 {
		t.Errorf("the slower cell is not found")
	}
}

// One side after the other: the machine may have drifted, so that a slower
// run is only suspect, and neither fails nor passes. Cells are held against
// the run, and the machine's drift with it.
func TestOneAfterTheOther(t *testing.T) {
	after := func(change func(*ingest.Run)) *Report {
		return mustCompare(t, launches(3, 0, 10, nil), launches(3, 30, 10, change), nil)
	}
	r := after(all(0.95))
	if d := &r.Diffs[0]; d.Order != "AAABBB" || findingOf(t, r, "order of launches").Outcome != Warn || d.Metrics[Decode].Run.Verdict != SuspectWorse || status(r, DefaultGate()) != ExitUnjudged {
		t.Errorf("a slower run: got order %s, %v, exit %d", d.Order, d.Metrics[Decode].Run.Verdict, status(r, DefaultGate()))
	}
	r = after(scale(Decode, 32768, 16, 0.9))
	if c := cellOf(t, r, Decode, 32768, 16); c.Verdict != Worse || status(r, DefaultGate()) != ExitFail {
		t.Errorf("a slower cell: got %v, exit %d, want worse and 1", c.Verdict, status(r, DefaultGate()))
	}
	if r = after(nil); status(r, DefaultGate()) != ExitPass {
		t.Errorf("no change: exit %d, want 0", status(r, DefaultGate()))
	}
	r = mustCompare(t, launches(3, 0, 10, nil), launches(3, 30, 10, all(0.95)), func(o *Options) { o.Allow = []Allowance{AllowOrder} })
	if v := r.Diffs[0].Metrics[Decode].Run.Verdict; v != Worse || findingOf(t, r, "order of launches").Outcome != Same {
		t.Errorf("declared: got %v, want worse", v)
	}
}

// Swapping the sides turns signs, words and letters round, and nothing else.
func TestSwap(t *testing.T) {
	turned := map[Verdict]Verdict{
		Worse: Better, Better: Worse, SuspectWorse: SuspectBetter, SuspectBetter: SuspectWorse, Lost: Gained, Gained: Lost, OnlyInA: OnlyInB, OnlyInB: OnlyInA,
	}
	turn := func(v Verdict) Verdict {
		if w, ok := turned[v]; ok {
			return w
		}
		return v
	}
	a, b := pair(3, func(r *ingest.Run) {
		scale(Decode, 32768, 16, 0.9)(r)
		scale(Decode, 32768, 32, 1.1)(r)
		scale(TTFT, 0, 0, 1.07)(r)
		r.Decode[0].Status, r.Decode[1].Status, r.Decode[2].Status = ingest.Looped, ingest.OverCapacity, ingest.Failed
	})
	ab, ba := mustCompare(t, a, b, nil).Diffs[0], mustCompare(t, b, a, nil).Diffs[0]
	same := func(what string, x, y, tolerance float64) {
		t.Helper()
		if math.Abs(x-y) > tolerance {
			t.Errorf("%s: %v and %v", what, x, y)
		}
	}
	for i := range ab.Metrics {
		m, n := &ab.Metrics[i], &ba.Metrics[i]
		if m.Run.Verdict != turn(n.Run.Verdict) || m.Noise != n.Noise {
			t.Errorf("%v: run %v and %v, noise %+v and %+v", m.Metric, m.Run.Verdict, n.Run.Verdict, m.Noise, n.Noise)
		}
		same("run", math.Log1p(m.Run.Share), -math.Log1p(n.Run.Share), 1e-15)
		same("run's low", math.Log1p(m.Run.Low), -math.Log1p(n.Run.High), 1e-14)
		same("run's p", m.Run.P, n.Run.P, 0)
		for j := range m.Cells {
			c, d := &m.Cells[j], &n.Cells[j]
			if c.Verdict != turn(d.Verdict) || c.RunsNeeded != d.RunsNeeded || (c.Change == nil) != (d.Change == nil) {
				t.Errorf("%v %d × %d: %v and %v", m.Metric, c.ContextTokens, c.Concurrency, c.Verdict, d.Verdict)
			}
			if c.Change != nil {
				same("cell", math.Log1p(c.Change.Share), -math.Log1p(d.Change.Share), 1e-15)
				same("cell's high", math.Log1p(c.Change.High), -math.Log1p(d.Change.Low), 1e-14)
				same("against the run", math.Log1p(c.Against.Share), -math.Log1p(d.Against.Share), 1e-14)
				same("p", c.P, d.P, 0)
				same("adjusted", c.Adjusted, d.Adjusted, 0)
			}
		}
	}
	if ab.Coverage.Lost != ba.Coverage.Gained || ab.Coverage.P != ba.Coverage.P || len(ab.Coverage.Changes) != len(ba.Coverage.Changes) {
		t.Errorf("coverage: %+v and %+v", ab.Coverage, ba.Coverage)
	}
}

// The order in which launches and cells are given changes not a bit.
func TestOrderOfInput(t *testing.T) {
	a, b := pair(4, scale(Decode, 32768, 16, 0.95))
	want := mustCompare(t, a, b, nil)
	g := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		for _, s := range []Side{a, b} {
			g.Shuffle(len(s.Runs), func(i, j int) { s.Runs[i], s.Runs[j] = s.Runs[j], s.Runs[i] })
			for _, r := range s.Runs {
				g.Shuffle(len(r.Decode), func(i, j int) { r.Decode[i], r.Decode[j] = r.Decode[j], r.Decode[i] })
			}
		}
		got := mustCompare(t, Side{Runs: slices.Clone(a.Runs)}, Side{Runs: slices.Clone(b.Runs)}, nil)
		if !equalReports(got, want) {
			t.Fatal("another order of launches gives another report")
		}
	}
}

// equalReports compares everything that a report says, bit by bit.
func equalReports(a, b *Report) bool {
	plain := func(r *Report) []Diff {
		diffs := slices.Clone(r.Diffs)
		for i := range diffs {
			d := &diffs[i]
			d.A.Runs, d.B.Runs = nil, nil
			d.Metrics = slices.Clone(d.Metrics)
			for j := range d.Metrics {
				d.Metrics[j].Cells = slices.Clone(d.Metrics[j].Cells)
				for k := range d.Metrics[j].Cells {
					d.Metrics[j].Cells[k].launches = nil
				}
			}
		}
		return diffs
	}
	return reflect.DeepEqual(plain(a), plain(b)) && a.Counts == b.Counts
}

// B is A times 0.97: the run is 3.0 % slower and no cell is by itself.
func TestAllOfBSlower(t *testing.T) {
	a := launches(3, 0, 20, nil)
	b := launches(3, 0, 20, nil)
	for _, r := range b.Runs {
		r.Manifest.StartedAt = r.Manifest.StartedAt.AddDate(0, 0, 1)
		r.Manifest.Plan.Salt += "b"
		all(0.97)(r)
	}
	d := &mustCompare(t, a, b, func(o *Options) { o.Allow = []Allowance{AllowOrder} }).Diffs[0]
	for i := range d.Metrics {
		m := &d.Metrics[i]
		want := 0.97 - 1
		if m.Metric.IsTime() {
			want = 1/0.97 - 1
		}
		if !near(m.Run.Share, want, 1e-12) || m.Run.Verdict != Worse {
			t.Errorf("%v: the run changed by %+v, %v; want %v, worse", m.Metric, m.Run.Change, m.Run.Verdict, want)
		}
		for j := range m.Cells {
			if c := &m.Cells[j]; math.Abs(c.Against.Share) > 1e-12 || c.Verdict != MovedWithRun {
				t.Errorf("%v %d × %d: against the run %v, %v", m.Metric, c.ContextTokens, c.Concurrency, c.Against.Share, c.Verdict)
			}
		}
	}
}

// One identical cell more changes only how many tests there are.
func TestOneCellMore(t *testing.T) {
	less := func(r *ingest.Run) { r.Decode = r.Decode[:39] }
	a, b := pair(3, scale(Decode, 32768, 16, 0.95))
	full := cellOf(t, mustCompare(t, a, b, nil), Decode, 32768, 16)
	for _, s := range []Side{a, b} {
		for _, r := range s.Runs {
			less(r)
		}
	}
	c := cellOf(t, mustCompare(t, a, b, nil), Decode, 32768, 16)
	if c.Change.Share != full.Change.Share || c.Verdict != full.Verdict || c.Adjusted == full.Adjusted {
		t.Errorf("got %+v and %+v, want the same change and another adjusted p", c, full)
	}
}

// Several sides are held against one base and corrected together.
func TestSeveralSides(t *testing.T) {
	a, b := pair(3, scale(Decode, 32768, 16, 0.975))
	c := launches(3, 5, 20, all(1.05))
	r, err := Compare(a, []Side{b, c}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	alone := mustCompare(t, a, b, nil)
	if len(r.Diffs) != 2 || r.Counts.Sides != 2 || r.Counts.Worse != 1 || r.Counts.Better != 3 || status(r, DefaultGate()) != ExitFail {
		t.Errorf("got %+v", r.Counts)
	}
	x, y := cellOf(t, r, Decode, 32768, 16), cellOf(t, alone, Decode, 32768, 16)
	if x.Change.Share != y.Change.Share || x.P != y.P || !(x.Adjusted > y.Adjusted) {
		t.Errorf("got %+v beside another side and %+v alone, want the same p and a larger adjusted one", x.Test, y.Test)
	}
}

func TestErrors(t *testing.T) {
	a, b := pair(2, nil)
	twice := Side{Runs: []*ingest.Run{b.Runs[0], b.Runs[0]}}
	moved := *b.Runs[0]
	moved.ID = "a copy under another name"
	shared := *b.Runs[0]
	m := *shared.Manifest
	m.Plan.Salt, shared.Manifest = "another", &m
	m.Cells = slices.Clone(m.Cells)
	m.Cells[5].SHA256 = strings.Repeat("ab", 32)
	one := *a.Runs[0].Manifest
	one.Cells = slices.Clone(one.Cells)
	one.Cells[5].SHA256 = strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name  string
		a     Side
		sides []Side
		o     func(*Options)
		want  string
		is    error
	}{
		{"a base without a launch", Side{Label: "x"}, []Side{b}, nil, `side "x": no launch`, nil},
		{"a side without a launch", a, []Side{{Label: "y"}}, nil, `side "y": no launch`, nil},
		{"no side", a, nil, nil, "nothing to compare", nil},
		{"a launch without a manifest", a, []Side{{Label: "y", Runs: []*ingest.Run{{}, nil}}}, nil, "without a manifest", nil},
		{"a run against itself", a, []Side{a}, nil, `"run-0000" and "run-0000"`, ErrSameLaunch},
		{"a launch twice on one side", a, []Side{twice}, nil, "", ErrSameLaunch},
		{"a copy", Side{Runs: []*ingest.Run{&moved}}, []Side{b}, nil, "a copy under another name", ErrSameLaunch},
		{"one event file on both sides", Side{Runs: []*ingest.Run{{ID: "z", Manifest: &one}}}, []Side{{Runs: []*ingest.Run{&shared}}}, nil, `"z" and "run-0010"`, ErrSameLaunch},
		{"q of 0", a, []Side{b}, func(o *Options) { o.Q = 0 }, "q: got 0", nil},
		{"q that is no number", a, []Side{b}, func(o *Options) { o.Q = math.NaN() }, "q: got NaN", nil},
		{"a negative effect", a, []Side{b}, func(o *Options) { o.Effect.Prefill = -1 }, "smallest effect of prefill: got -1", nil},
		{"a metric twice", a, []Side{b}, func(o *Options) { o.GateOn = []Metric{TTFT, TTFT} }, "each once", nil},
		{"an unknown metric", a, []Side{b}, func(o *Options) { o.GateOn = []Metric{9} }, "known ones", nil},
		{"an unknown allowance", a, []Side{b}, func(o *Options) { o.Allow = []Allowance{"all"} }, `got "all"`, nil},
	} {
		o := DefaultOptions()
		if tt.o != nil {
			tt.o(&o)
		}
		r, err := Compare(tt.a, tt.sides, o)
		if err == nil || r != nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

func TestStatusChanges(t *testing.T) {
	const valid, over, notRun, failed, looped, limited, under = ingest.Valid, ingest.OverCapacity, ingest.NotRun, ingest.Failed, ingest.Looped, ingest.ClientLimited, ingest.UnderFilled
	memory := func(r *ingest.Run) {
		r.Manifest.Engine.LaunchCommand.Args = []string{"vllm", "serve", "org/tiny", "--gpu-memory-utilization", "0.8"}
	}
	for _, tt := range []struct {
		a, b   ingest.Status
		want   Verdict
		class  Class
		text   string
		exit   int
		change func(*ingest.Run)
	}{
		{a: valid, b: over, want: Lost, class: ClassCapacity, text: "lost: over capacity", exit: ExitFail},
		{a: looped, b: over, want: Lost, class: ClassCapacity, text: "lost: over capacity", exit: ExitFail},
		{a: valid, b: over, want: NotComparable, class: ClassCapacity, text: "not comparable: launch flags that decide the capacity differ", exit: ExitPass, change: memory},
		{a: over, b: valid, want: Gained, class: ClassCapacity, text: "gained: from over capacity", exit: ExitPass},
		{a: over, b: looped, want: Gained, class: ClassCapacity, text: "gained: from over capacity", exit: ExitPass},
		{a: valid, b: failed, want: Lost, class: ClassError, text: "lost: failed", exit: ExitFail},
		{a: looped, b: failed, want: Lost, class: ClassError, text: "lost: failed", exit: ExitFail},
		{a: valid, b: notRun, want: Lost, class: ClassError, text: "lost: not run", exit: ExitFail},
		{a: failed, b: valid, want: Gained, class: ClassError, text: "gained: from failed", exit: ExitPass},
		{a: failed, b: notRun, want: Changed, class: ClassError, text: "changed", exit: ExitPass},
		{a: over, b: failed, want: Changed, class: ClassCapacity, text: "changed", exit: ExitPass},
		{a: valid, b: looped, want: Lost, class: ClassStatus, text: "lost: looped", exit: ExitPass},
		{a: looped, b: valid, want: Gained, class: ClassStatus, text: "gained: from looped", exit: ExitPass},
		{a: valid, b: under, want: Lost, class: ClassStatus, text: "lost: under-filled", exit: ExitPass},
		{a: valid, b: limited, want: Lost, class: ClassStatus, text: "lost: client limited", exit: ExitPass},
		{a: looped, b: limited, want: Changed, class: ClassStatus, text: "changed", exit: ExitPass},
		{a: looped, b: looped, want: SameStatus, exit: ExitPass},
		{a: over, b: over, want: SameStatus, exit: ExitPass},
	} {
		t.Run(fmt.Sprint(tt.a, " → ", tt.b), func(t *testing.T) {
			set := func(r *ingest.Run, s ingest.Status) { r.Decode[3].Status = s }
			a := launches(3, 0, 20, func(r *ingest.Run) { set(r, tt.a) })
			b := launches(3, 10, 20, func(r *ingest.Run) {
				set(r, tt.b)
				scale(Decode, 8192, 8, 1.5)(r) // never a speed-up
				if tt.change != nil {
					tt.change(r)
				}
			})
			r := mustCompare(t, a, b, func(o *Options) { o.Allow = []Allowance{AllowLaunch} })
			c, cov := cellOf(t, r, Decode, 8192, 8), &r.Diffs[0].Coverage
			if c.Verdict != tt.want || c.Change != nil || c.Reason != tt.text || status(r, DefaultGate()) != tt.exit || r.Counts.Better != 0 {
				t.Errorf("got %v, %q, change %v, exit %d; want %v, %q, none, %d", c.Verdict, c.Reason, c.Change, status(r, DefaultGate()), tt.want, tt.text, tt.exit)
			}
			if tt.want == SameStatus {
				if len(cov.Changes) != 0 {
					t.Errorf("changes: %+v, want none", cov.Changes)
				}
				return
			}
			if len(cov.Changes) != 1 || cov.Changes[0].Class != tt.class || cov.Changes[0].Text != tt.text || cov.Changes[0].Verdict != tt.want || cov.Changes[0].Phase != runlog.PhaseDecode {
				t.Errorf("changes: got %+v, want one of class %s, %q", cov.Changes, tt.class, tt.text)
			}
			if cov.Changes[0].A.Value.Known() || cov.Changes[0].B.Values != nil {
				t.Errorf("a number beside a status: %+v", cov.Changes[0])
			}
			if fails := status(r, Gate{FailOn: []Event{OnStatus}}); (fails == ExitFail) != (tt.want == Lost && tt.class == ClassStatus) {
				t.Errorf("failing on statuses, the exit status is %d", fails)
			}
		})
	}
}

// Of several launches all must be Valid; how many were is said.
func TestCoverage(t *testing.T) {
	a := launches(3, 0, 20, nil)
	b := launches(3, 10, 20, func(r *ingest.Run) {
		for i := range 6 {
			r.Decode[8+i].Status = ingest.Looped
		}
		r.Prefill = r.Prefill[:5]
		extra := r.Decode[39]
		extra.Concurrency = 256
		r.Decode = append(r.Decode, extra)
	})
	b.Runs[1].Decode[0].Status = ingest.Failed
	r := mustCompare(t, a, b, nil)
	cov := &r.Diffs[0].Coverage
	if want := (PhaseCoverage{PlannedA: 40, PlannedB: 41, ValidA: 40, ValidB: 34, Both: 33, OnlyB: 1}); cov.Decode != want {
		t.Errorf("decode: got %+v, want %+v", cov.Decode, want)
	}
	if want := (PhaseCoverage{PlannedA: 7, PlannedB: 5, ValidA: 7, ValidB: 5, Both: 5, OnlyA: 2}); cov.Prefill != want {
		t.Errorf("prefill: got %+v, want %+v", cov.Prefill, want)
	}
	if cov.Lost != 7 || cov.Gained != 0 || cov.LoopsBegun != 6 || cov.LoopsEnded != 0 || !near(cov.LoopsP, 1.0/32, 1e-9) || !near(cov.P, 1.0/64, 1e-9) {
		t.Errorf("got %+v", cov)
	}
	if first := cov.Changes[0]; len(cov.Changes) != 7 || first.Text != "lost: failed (valid on 3 of 3 launches → 2 of 3)" || first.Class != ClassError {
		t.Errorf("changes: %d, the first %+v", len(cov.Changes), first)
	}
	if c := cellOf(t, r, Decode, 131072, 256); c.Verdict != OnlyInB || c.Change != nil {
		t.Errorf("a cell of B only: %v", c.Verdict)
	}
	if c := cellOf(t, r, Prefill, 196608, 1); c.Verdict != OnlyInA || c.A.Value.N != 3 || c.B.Value.Known() {
		t.Errorf("a cell of A only: %+v", c)
	}
	if m := &r.Diffs[0].Metrics[Decode]; m.Compared != 33 || m.Run.Cells != 33 {
		t.Errorf("compared %d cells, the run of %d, want 33", m.Compared, m.Run.Cells)
	}
	if r.Counts.Lost != 7 || r.Counts.LostError != 1 || r.Counts.StatusLost != 6 {
		t.Errorf("counts: %+v", r.Counts)
	}
}

// What a launch did not plan is not lost.
func TestPlansOfOneSideDiffer(t *testing.T) {
	a, b := pair(3, nil)
	b.Runs[1].Decode = b.Runs[1].Decode[:39]
	r := mustCompare(t, a, b, nil)
	c := cellOf(t, r, Decode, 131072, 128)
	if c.Verdict != NotComparable || c.Reason != "planned by 3 of 3 launches of A and 2 of 3 of B" || len(r.Diffs[0].Coverage.Changes) != 0 || status(r, DefaultGate()) != ExitPass {
		t.Errorf("got %v, %q, changes %+v, exit %d", c.Verdict, c.Reason, r.Diffs[0].Coverage.Changes, status(r, DefaultGate()))
	}
}

func TestGate(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Counts
		g    Gate
		want int
		word string
	}{
		{"all well", Counts{Sides: 1, NoChange: 9}, DefaultGate(), 0, "pass"},
		{"unclear is no failure", Counts{Sides: 1, Unclear: 9}, DefaultGate(), 0, "pass"},
		{"worse", Counts{Sides: 1, Worse: 1}, DefaultGate(), 1, "fail"},
		{"worse, but not to fail on", Counts{Sides: 1, Worse: 1}, Gate{}, 0, "pass"},
		{"a cell lost to capacity", Counts{Sides: 1, LostCapacity: 1}, DefaultGate(), 1, "fail"},
		{"a cell lost to an error", Counts{Sides: 1, LostError: 1}, DefaultGate(), 1, "fail"},
		{"a cell lost to a loop", Counts{Sides: 1, StatusLost: 1}, DefaultGate(), 0, "pass"},
		{"… to fail on", Counts{Sides: 1, StatusLost: 1}, Gate{FailOn: []Event{OnStatus}}, 1, "fail"},
		{"suspect, of too few launches", Counts{Sides: 1, Suspect: 1, Thin: 1}, DefaultGate(), 3, "unjudged"},
		{"suspect, to fail on", Counts{Sides: 1, Suspect: 1, Thin: 1}, Gate{FailOn: []Event{OnSuspect}}, 1, "fail"},
		{"too few launches", Counts{Sides: 1, Thin: 3}, DefaultGate(), 3, "unjudged"},
		{"too few launches, allowed", Counts{Sides: 1, Thin: 3}, Gate{AllowUnjudged: true}, 0, "pass"},
		{"not comparable", Counts{Sides: 1, Incomparable: 1}, DefaultGate(), 3, "unjudged"},
		{"not comparable is not thin", Counts{Sides: 1, Incomparable: 1}, Gate{AllowUnjudged: true}, 3, "unjudged"},
		{"a metric that is absent is not thin", Counts{Sides: 1, Unjudged: 1}, Gate{AllowUnjudged: true}, 3, "unjudged"},
		{"a failure is not hidden by what can't be judged", Counts{Sides: 2, Worse: 1, Incomparable: 1, Thin: 1}, DefaultGate(), 1, "fail"},
		{"nothing at all", Counts{}, DefaultGate(), 3, "unjudged"},
		{"zero for a failure", Counts{Sides: 1, Worse: 1}, Gate{FailOn: []Event{OnWorse}, ExitZero: true}, 0, "fail"},
		{"zero for what can't be judged", Counts{Sides: 1, Incomparable: 1}, Gate{ExitZero: true}, 0, "unjudged"},
	} {
		if exit, word := tt.c.Status(tt.g); exit != tt.want || word != tt.word {
			t.Errorf("%s: got %d, %s, want %d, %s", tt.name, exit, word, tt.want, tt.word)
		}
	}
	c := Counts{Sides: 1, Worse: 3, NoChange: 29, Unclear: 6, Lost: 1, LostCapacity: 1, NotComparable: 1}
	if got, want := c.Line(DefaultGate()), "verdict=fail worse=3 better=0 nochange=29 unclear=6 suspect=0 lost=1 gained=0 notcomparable=1 exit=1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A metric that decides and is not there is no pass.
func TestAbsentMetric(t *testing.T) {
	a, b := pair(3, nil)
	for _, s := range []Side{a, b} {
		for _, r := range s.Runs {
			r.Prefill = nil
		}
	}
	if r := mustCompare(t, a, b, nil); status(r, DefaultGate()) != ExitUnjudged || r.Diffs[0].Metrics[Prefill].State != NothingCompared {
		t.Errorf("no prefill: got exit %d, %v", status(r, DefaultGate()), r.Diffs[0].Metrics[Prefill].State)
	}
	if r := mustCompare(t, a, b, func(o *Options) { o.GateOn = []Metric{Decode, TTFT} }); status(r, DefaultGate()) != ExitPass {
		t.Errorf("prefill does not decide: got exit %d, want 0", status(r, DefaultGate()))
	}
}

// The same build twice is said to be that: whatever it shows is noise.
func TestSameBuild(t *testing.T) {
	commit := func(v string) func(*ingest.Run) {
		return func(r *ingest.Run) { r.Manifest.Engine.Commit = &runlog.Fact{Value: v, Source: runlog.FromFlag} }
	}
	for _, tt := range []struct {
		name   string
		change func(*ingest.Run)
		want   bool
	}{
		{"nothing differs", func(*ingest.Run) {}, true},
		{"nine digits of one commit", commit("73a583112"), true},
		{"another commit", commit("73a583113"), false},
		{"a commit that is not known", func(r *ingest.Run) { r.Manifest.Engine.Commit = nil }, false},
		{"another build of it", func(r *ingest.Run) { r.Manifest.Engine.Build.Value = "cuda-13.3" }, false},
	} {
		r := mustCompare(t, launches(1, 0, 20, nil), launches(1, 10, 20, tt.change), nil)
		if r.Diffs[0].AA != tt.want {
			t.Errorf("%s: A/A is %v, want %v", tt.name, r.Diffs[0].AA, tt.want)
		}
	}
}

// A cell that became unsteady within its window is not called steady between
// launches: the parts of the window are the floor of its noise.
func TestFloor(t *testing.T) {
	bins := func(step float64) *ingest.Timeline {
		rates := make([]float64, ingest.TimelineBins)
		for i := range rates {
			rates[i] = 100
			if i/5%2 == 1 {
				rates[i] *= 1 + step
			}
		}
		return &ingest.Timeline{TokPerS: rates}
	}
	change := func(step float64) *CellDiff {
		a, b := pair(3, func(r *ingest.Run) { r.Decode[3].Timeline = bins(step) })
		return cellOf(t, mustCompare(t, a, b, nil), Decode, 8192, 8)
	}
	steady, restless := change(0), change(0.2)
	if !(restless.SD > 2*steady.SD) || restless.Change.Share != steady.Change.Share {
		t.Errorf("sd %v where the window is restless and %v where it is steady, want more", restless.SD, steady.SD)
	}
	// Six blocks of 100 and 120 in turn: of the mean, each step's square over
	// 2 and 6, relative to 110.
	if v, ok := withinVariance(&ingest.Cell{Timeline: bins(0.2)}); !ok || !near(v, (20.0/110)*(20.0/110)/2/6, 1e-9) {
		t.Errorf("within a window: got %v, %v", v, ok)
	}
	for _, c := range []*ingest.Cell{{}, {Timeline: &ingest.Timeline{}}, {Timeline: &ingest.Timeline{TokPerS: make([]float64, 30)}}} {
		if v, ok := withinVariance(c); ok {
			t.Errorf("nothing known: got %v", v)
		}
	}
}

// Without any launch to tell, noise is a guess that depends on what was
// measured, and says so.
func TestAssumedNoise(t *testing.T) {
	speculative := func(r *ingest.Run) {
		for i := range r.Decode {
			r.Decode[i].Figures.TokensPerEvent.Value = 2.5
		}
	}
	a, b := pair(1, nil)
	plain := mustCompare(t, a, b, nil)
	speculative(b.Runs[0])
	guess := mustCompare(t, a, b, nil)
	sd := func(r *Report, m Metric, n int32) float64 { return cellOf(t, r, m, 8192, n).SD / math.Sqrt2 }
	for _, tt := range []struct {
		what      string
		got, want float64
	}{
		{"decode", sd(plain, Decode, 4), math.Hypot(0.01, 0.01)},
		{"TTFT", sd(plain, TTFT, 4), math.Hypot(0.03, 0.03)},
		{"prefill", sd(plain, Prefill, 1), math.Hypot(0.02, 0.02)},
		{"speculative, 4 requests", sd(guess, Decode, 4), math.Hypot(0.01, 0.12)},
		{"speculative, 8 requests", sd(guess, Decode, 8), math.Hypot(0.01, 0.03)},
		{"speculative, 16 requests", sd(guess, Decode, 16), math.Hypot(0.01, 0.02)},
		{"speculative prefill", sd(guess, Prefill, 1), math.Hypot(0.02, 0.02)},
	} {
		if !near(tt.got, tt.want, 1e-12) {
			t.Errorf("%s: got %v, want %v", tt.what, tt.got, tt.want)
		}
	}
	if n := plain.Diffs[0].Metrics[Decode].Noise; n.Source != Assumed || n.DF != 0 {
		t.Errorf("noise: %+v, want it assumed", n)
	}
}

func TestNames(t *testing.T) {
	for _, m := range Metrics() {
		if got, ok := ParseMetric(m.String()); !ok || got != m || m.Label() == "" {
			t.Errorf("%v is read back as %v", m, got)
		}
	}
	if _, ok := ParseMetric("speed"); ok {
		t.Error(`"speed" is a metric`)
	}
	seen := map[string]bool{}
	for _, v := range Verdicts() {
		if v.String() == "" || seen[v.String()] {
			t.Errorf("verdict %d is called %q", v, v)
		}
		seen[v.String()] = true
	}
}
