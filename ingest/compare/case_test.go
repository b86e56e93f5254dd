package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// Cases of docs/cases.md that are about computing a comparison.

// 0 → 0 is no change; from or to 0 there is no percentage; what is missing
// on one side is new or gone. Nothing is ever infinite or no number.
func TestCase_BR111(t *testing.T) {
	set := func(old bool) func(*ingest.Run) {
		return func(r *ingest.Run) {
			value := func(i int, v float64, n int) { r.Prefill[i].Figures.PrefillTokPerS = ingest.Stat{Value: v, N: n} }
			if old {
				value(0, 0, 1)
				value(1, 0, 1)
				value(2, 5, 1)
				value(3, 0, 0)
				value(4, 5, 1)
			} else {
				value(0, 0, 1)
				value(1, 5, 1)
				value(2, 0, 1)
				value(3, 5, 1)
				value(4, 0, 0)
			}
		}
	}
	r := mustCompare(t, launches(3, 0, 20, set(true)), launches(3, 10, 20, set(false)), nil)
	for i, tt := range []struct {
		want   Verdict
		reason string
		a, b   ingest.Stat
	}{
		{NoChange, "0 on both sides", ingest.Stat{N: 3}, ingest.Stat{N: 3}},
		{NotComparable, "a change from or to 0 has no percentage", ingest.Stat{N: 3}, ingest.Stat{Value: 5, N: 3}},
		{NotComparable, "a change from or to 0 has no percentage", ingest.Stat{Value: 5, N: 3}, ingest.Stat{N: 3}},
		{NotComparable, "not measured on every launch of A", ingest.Stat{}, ingest.Stat{Value: 5, N: 3}},
		{NotComparable, "not measured on every launch of B", ingest.Stat{Value: 5, N: 3}, ingest.Stat{}},
	} {
		c := &r.Diffs[0].Metrics[Prefill].Cells[i]
		if c.Verdict != tt.want || c.Reason != tt.reason || c.Change != nil || c.A.Value != tt.a || c.B.Value != tt.b {
			t.Errorf("case %c: got %v, %q, %+v → %+v, change %v", 'a'+i, c.Verdict, c.Reason, c.A.Value, c.B.Value, c.Change)
		}
	}
	if text := fmt.Sprintf("%+v", r.Diffs[0].Metrics); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("a report with NaN or Inf in it")
	}
}

// One launch of each side has no spread of its own: nothing is called
// significant, whatever the difference, and the interval is not a point.
func TestCase_BR114(t *testing.T) {
	a, b := pair(1, all(0.5))
	r := mustCompare(t, a, b, nil)
	for i := range r.Diffs[0].Metrics {
		m := &r.Diffs[0].Metrics[i]
		if m.State != ThinEvidence || m.Noise.Source != Assumed {
			t.Errorf("%v: got %v, noise %v, want thin evidence and assumed noise", m.Metric, m.State, m.Noise.Source)
		}
		for j := range m.Cells {
			c := &m.Cells[j]
			if c.Verdict != SuspectWorse && c.Verdict != Unclear || !(c.Change.High-c.Change.Low > 0.01) {
				t.Errorf("%v %d × %d: got %v, %+v", m.Metric, c.ContextTokens, c.Concurrency, c.Verdict, *c.Change)
			}
		}
	}
	if got := status(r, DefaultGate()); got != ExitUnjudged {
		t.Errorf("exit status %d, want 3", got)
	}
}

// Other hardware, other windows and other contexts: refused, with a list of
// what differs; declared, it is described and still not judged.
func TestCase_BR153(t *testing.T) {
	a, b := pair(3, nil)
	for _, r := range b.Runs {
		m := r.Manifest
		m.Hardware.GPUs[0].Name, m.Plan.DurationUs, m.Plan.ContextsTokens = "A100", 10_000_000, m.Plan.ContextsTokens[:4]
		r.Decode = r.Decode[:32]
	}
	r := mustCompare(t, a, b, nil)
	var differ []string
	for _, f := range r.Diffs[0].Findings {
		if f.Outcome != Same {
			differ = append(differ, fmt.Sprint(f.Field, ": ", f.Outcome))
		}
	}
	if want := []string{"gpu: not comparable", "window: not comparable", "contexts and concurrency: noted"}; !slices.Equal(differ, want) {
		t.Errorf("findings: got %q, want %q", differ, want)
	}
	allow := func(as ...Allowance) func(*Options) { return func(o *Options) { o.Allow = as } }
	for _, r := range []*Report{r, mustCompare(t, a, b, allow(AllowHardware)), mustCompare(t, a, b, allow(AllowHardware, AllowWindow))} {
		if status(r, DefaultGate()) != ExitUnjudged || r.Diffs[0].Comparable || r.Counts.Worse+r.Counts.Better+r.Counts.NoChange+r.Counts.Unclear > 0 {
			t.Errorf("got %s", r.Counts.Line(DefaultGate()))
		}
	}
	for _, us := range []int64{15_000_000, 30_000_000} { // half as long, or as long
		for _, r := range b.Runs {
			r.Manifest.Plan.DurationUs = us
		}
		r := mustCompare(t, a, b, allow(AllowHardware, AllowWindow))
		if c := cellOf(t, r, Decode, 8192, 8); !r.Diffs[0].Descriptive || c.Change == nil || c.Verdict != NotComparable || status(r, DefaultGate()) != ExitUnjudged {
			t.Errorf("declared: descriptive %v, %v, exit %d", r.Diffs[0].Descriptive, c.Verdict, status(r, DefaultGate()))
		}
	}
}

// 4,455, 5,259, 9,129, then 4,485 tok/s: the last is no regression, neither
// against its neighbour nor in the history.
func TestCase_BR156(t *testing.T) {
	values := []float64{4455, 5259, 9129, 4485}
	one := func(minutes int, tokPerS float64) Side {
		r := matrix(minutes)
		r.Decode[3].Figures.TotalTokPerS.Value = tokPerS
		return Side{Runs: []*ingest.Run{r}}
	}
	r := mustCompare(t, one(0, values[2]), one(10, values[3]), nil)
	if c := cellOf(t, r, Decode, 8192, 8); c.Verdict != SuspectWorse || r.Counts.Worse != 0 || status(r, DefaultGate()) != ExitUnjudged {
		t.Errorf("a pair of single runs: got %v, %s", c.Verdict, r.Counts.Line(DefaultGate()))
	}
	// With the spread of the history as launches, the last lies within it.
	base := Side{}
	for i, v := range values[:3] {
		base.Runs = append(base.Runs, one(20*i, v).Runs...)
	}
	if c := cellOf(t, mustCompare(t, base, one(70, values[3]), nil), Decode, 8192, 8); c.Verdict != Unclear || !(c.Change.Low < 0 && c.Change.High > 0) {
		t.Errorf("against three launches: got %v, %+v, want it unclear", c.Verdict, c.Change)
	}
	var points []Point
	for _, v := range values {
		points = append(points, Point{Log: math.Log(v), Launches: 1})
	}
	if h := FindSteps(points, 0, 0.02); len(h.Steps) != 0 || h.Why == "" {
		t.Errorf("the history: got %+v, want no step and the reason", h)
	}
	if h := FindSteps(points, 0.3, 0.02); len(h.Steps) != 0 {
		t.Errorf("the history with its noise: got %+v, want no step", h.Steps)
	}
}

// The order is context, then concurrency, then metric, as numbers, and
// twenty comparisons are one.
func TestCase_BR158(t *testing.T) {
	side := func(minutes int) Side {
		var s Side
		for i := range 3 {
			s.Runs = append(s.Runs, noisy(plain(minutes+20*i, []int32{8192, 16384, 32768, 131072}, []int32{1, 2, 4, 8, 16, 128}, []int32{8192, 131072}), uint64(minutes+i), 0.01))
		}
		return s
	}
	a, b := side(0), side(10)
	first := mustCompare(t, a, b, nil)
	for range 20 {
		if again := mustCompare(t, a, b, nil); !equalReports(again, first) {
			t.Fatal("the same comparison twice is not the same")
		}
	}
	d := &first.Diffs[0]
	var metrics []Metric
	for i := range d.Metrics {
		metrics = append(metrics, d.Metrics[i].Metric)
		var keys []runlog.Key
		for _, c := range d.Metrics[i].Cells {
			keys = append(keys, runlog.Key{Phase: d.Metrics[i].Metric.Phase(), ContextTokens: c.ContextTokens, Concurrency: c.Concurrency})
		}
		var want []runlog.Key
		for _, k := range a.Runs[0].Manifest.Plan.Keys() { // of the plan: ascending
			if k.Phase == d.Metrics[i].Metric.Phase() {
				want = append(want, k)
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("%v: got %v, want %v", d.Metrics[i].Metric, keys, want)
		}
	}
	if !slices.Equal(metrics, Metrics()) {
		t.Errorf("metrics: got %v, want %v", metrics, Metrics())
	}
}

// Another way of measuring is refused by its name, and nothing subtracted.
func TestCase_BR164(t *testing.T) {
	for _, tt := range []struct {
		field  string
		change func(*runlog.Plan)
	}{
		{"decode test", func(p *runlog.Plan) { p.DecodeTest = "fixed tokens" }},
		{"prefill mode", func(p *runlog.Plan) { p.PrefillMode = "offline" }},
	} {
		a, b := pair(3, func(r *ingest.Run) { tt.change(&r.Manifest.Plan) })
		r := mustCompare(t, a, b, func(o *Options) { o.Allow = Allowances() })
		f := findingOf(t, r, tt.field)
		if f.Outcome != Refuse || f.Allowed || !strings.Contains(f.Text, "different "+tt.field) {
			t.Errorf("%s: got %+v, want a refusal that nothing allows", tt.field, f)
		}
		for i := range r.Diffs[0].Metrics {
			for _, c := range r.Diffs[0].Metrics[i].Cells {
				if c.Change != nil || c.Verdict != NotComparable || !c.A.Value.Known() || !c.B.Value.Known() {
					t.Fatalf("%s: %+v, want the values of both sides and no change", tt.field, c)
				}
			}
		}
	}
}
