package compare

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"speedmatrix/ingest"
)

// A world says how launches of the same code differ. Standard deviations are
// of logarithms.
type world struct {
	name          string
	launch        float64 // of what all cells of a launch share
	low, high     float64 // of a cell beside that: uniform over cells between these
	heavyTails    bool    // Student's t with 4 degrees of freedom instead of normal
	slowLaunches  float64 // share of launches that are 20 % slower in everything
	speculative   bool    // a quarter of the decode cells differ by 12 %
	neighbours    float64 // of what cells of one concurrency share in a launch: not in the model
	drift         float64 // of the machine from the first launch to the last: not in the model
	staleProfile  float64 // the profile was made when noise was this many times smaller
	oneAfterOther bool    // A A A B B B instead of A B A B A B
	beyond        bool    // the model: shown, not held to the targets
}

func worlds() []world {
	usual := world{name: "usual", launch: 0.01, low: 0.004, high: 0.016}
	quiet := world{name: "quiet", launch: 0.004, low: 0.002, high: 0.008}
	with := func(w world, name string, change func(*world)) world {
		w.name = name
		change(&w)
		return w
	}
	return []world{
		quiet, usual,
		with(usual, "heavy tails", func(w *world) { w.heavyTails = true }),
		with(usual, "bimodal", func(w *world) { w.slowLaunches = 0.15 }),
		with(quiet, "speculative", func(w *world) { w.speculative = true }),
		with(usual, "stale profile", func(w *world) { w.staleProfile, w.beyond = 2, true }),
		with(usual, "neighbours", func(w *world) { w.neighbours, w.beyond = 0.005, true }),
		with(usual, "drift 2 %", func(w *world) { w.drift, w.beyond = 0.02, true }),
		with(usual, "drift 2 %, AABB", func(w *world) { w.drift, w.oneAfterOther, w.beyond = 0.02, true, true }),
	}
}

// A scenario is what is really different on side B: a factor for a cell of a
// metric, of which more is better.
type scenario struct {
	name   string
	factor func(m Metric, index int) float64 // index of the cell in its run
}

func scenarios() []scenario {
	decode := func(name string, factor func(i int) float64) scenario {
		return scenario{name, func(m Metric, i int) float64 {
			if m == Decode {
				return factor(i)
			}
			return 1
		}}
	}
	one := func(i, n int, by float64) float64 {
		if i%10 == 3 && i/10 < n {
			return by
		}
		return 1
	}
	return []scenario{
		decode("A/A", func(int) float64 { return 1 }),
		decode("4 cells −3 %", func(i int) float64 { return one(i, 4, 0.97) }),
		decode("1 cell −5 %", func(i int) float64 { return one(i, 1, 0.95) }),
		decode("all −3 %", func(int) float64 { return 0.97 }),
		// A quarter of the cells exactly at the edge of what matters, either way.
		{"edge", func(m Metric, i int) float64 {
			edge := 1 + DefaultOptions().Effect.Of(m)
			return [...]float64{edge, 1 / edge, 1, 1, 1, 1, 1, 1}[i%8]
		}},
		// The run as a whole exactly there.
		{"all at the edge", func(Metric, int) float64 { return 1 / (1 + DefaultOptions().Effect.Run) }},
	}
}

// A simulation draws launches of one world.
type simulation struct {
	world
	k, m    int // launches of each side, and of the profile
	rand    *rand.Rand
	base    *ingest.Run
	sides   [2]Side
	profile []*ingest.Run
}

func simulate(w world, k, m int) *simulation {
	s := &simulation{world: w, k: k, m: m, rand: rand.New(rand.NewPCG(uint64(k), uint64(m))), base: matrix(0)}
	for i := range k {
		at := [2]int{20 * i, 20*i + 10}
		if i%2 == 1 {
			at = [2]int{20*i + 10, 20 * i} // ABBA
		}
		if w.oneAfterOther {
			at = [2]int{10 * i, 10 * (k + i)}
		}
		for g := range s.sides {
			s.sides[g].Runs = append(s.sides[g].Runs, matrix(at[g]))
		}
	}
	for i := range m {
		s.profile = append(s.profile, matrix(-10*(i+1)))
	}
	return s
}

func (s *simulation) draw() float64 {
	z := s.rand.NormFloat64()
	if s.heavyTails {
		chi := 0.0
		for range 4 {
			x := s.rand.NormFloat64()
			chi += x * x
		}
		z /= math.Sqrt(chi/4) * math.Sqrt2 // t₄ has a variance of 2
	}
	return z
}

// eachFigure is figures with only those that gate, and the cell's index.
func eachFigure(r *ingest.Run, yield func(m Metric, i int, c *ingest.Cell, s *ingest.Stat)) {
	for i := range r.Decode {
		yield(Decode, i, &r.Decode[i], &r.Decode[i].Figures.TotalTokPerS)
		yield(TTFT, i, &r.Decode[i], &r.Decode[i].Figures.TTFTUs)
	}
	for i := range r.Prefill {
		yield(Prefill, i, &r.Prefill[i], &r.Prefill[i].Figures.PrefillTokPerS)
	}
}

// noiseScale is how much noisier a metric is than the total tok/s.
func noiseScale(m Metric) float64 {
	if m == TTFT {
		return 3
	}
	return 1
}

// next draws a comparison: new machines, new launches, the same code except
// for the scenario.
func (s *simulation) next(sc *scenario, change func(*Options)) *Report {
	var sds [3][]float64
	var truth [3][]float64
	eachFigure(s.base, func(m Metric, i int, _ *ingest.Cell, st *ingest.Stat) {
		sd := s.low + (s.high-s.low)*s.rand.Float64()
		if s.speculative && m != Prefill && i%8 < 2 { // 1 and 2 requests at once
			sd = 0.12 / noiseScale(m)
		}
		sds[m] = append(sds[m], sd*noiseScale(m))
		truth[m] = append(truth[m], st.Value)
	})
	launch := func(r *ingest.Run, quieter float64, real *scenario) {
		slow := 0.0
		if s.rand.Float64() < s.slowLaunches {
			slow = math.Log(0.8)
		}
		var shared [3]float64
		var columns [3][128]float64
		for m := range shared {
			shared[m] = slow + s.launch*noiseScale(Metric(m))*s.draw()/quieter
			shared[m] -= s.drift * r.Manifest.StartedAt.Sub(s.base.Manifest.StartedAt).Minutes() / float64(20*s.k)
			for c := range 8 {
				columns[m][c] = s.neighbours * noiseScale(Metric(m)) * s.draw()
			}
		}
		eachFigure(r, func(m Metric, i int, _ *ingest.Cell, st *ingest.Stat) {
			y := shared[m] + columns[m][i%8] + sds[m][i]*s.draw()/quieter
			if real != nil {
				y += math.Log(real.factor(m, i))
			}
			st.Value = truth[m][i] * math.Exp(m.sign()*y)
		})
		for i := range r.Decode { // shown, not gating, and no news
			r.Decode[i].Figures.PerRequestTokPerS, r.Decode[i].Figures.BetweenTokensUs = ingest.Stat{}, ingest.Stat{}
			if s.speculative {
				r.Decode[i].Figures.TokensPerEvent.Value = 2.5
			}
		}
	}
	o := DefaultOptions()
	if s.m > 0 {
		for _, r := range s.profile {
			launch(r, max(1, s.staleProfile), nil)
		}
		p, err := NewProfile(s.profile)
		if err != nil {
			panic(err) // the simulation is wrong
		}
		o.Noise = p
	}
	for _, r := range s.sides[0].Runs {
		launch(r, 1, nil)
	}
	for _, r := range s.sides[1].Runs {
		launch(r, 1, sc)
	}
	if change != nil {
		change(&o)
	}
	report, err := Compare(s.sides[0], s.sides[1:], o)
	if err != nil {
		panic(err)
	}
	return report
}

// A tally counts what many comparisons said.
type tally struct {
	diffs, fail, unjudged, suspect int
	decodeFail                     int
	intervals, missed              int // of cells
	runIntervals, runMissed        int
	atEdge, edgeNoChange           int // cells whose change is as large as what matters, and those said not to have any
	runAtEdge, runNoChange         int
	falseShare                     float64 // sum over comparisons of the share, among cells called worse or better, of those that are not
}

func (t *tally) add(r *Report, sc *scenario) {
	t.diffs++
	switch exit, _ := r.Counts.Status(DefaultGate()); exit {
	case ExitFail:
		t.fail++
	case ExitUnjudged:
		t.unjudged++
	}
	if r.Counts.Suspect > 0 {
		t.suspect++
	}
	o := DefaultOptions()
	fails, found, wrong := false, 0, 0
	for i := range r.Diffs[0].Metrics[:3] {
		m := &r.Diffs[0].Metrics[i]
		bound := math.Log1p(o.Effect.Of(m.Metric))
		whole := math.Log(sc.factor(m.Metric, 2)) // of most cells
		for j := range m.Cells {
			c := &m.Cells[j]
			real := math.Log(sc.factor(m.Metric, j))
			t.intervals++
			if x := math.Expm1(m.Metric.sign() * real); x < c.Change.Low || x > c.Change.High {
				t.missed++
			}
			if math.Abs(math.Abs(real)-bound) < 1e-9 {
				t.atEdge++
				if c.Verdict == NoChange {
					t.edgeNoChange++
				}
			}
			if c.Verdict == Worse || c.Verdict == Better {
				found++
				if real == whole {
					wrong++
				}
			}
			fails = fails || m.Metric == Decode && c.Verdict == Worse
		}
		t.runIntervals++
		if x := math.Expm1(m.Metric.sign() * whole); x < m.Run.Low || x > m.Run.High {
			t.runMissed++
		}
		if math.Abs(math.Abs(whole)-math.Log1p(o.Effect.Run)) < 1e-9 {
			t.runAtEdge++
			if m.Run.Verdict == NoChange {
				t.runNoChange++
			}
		}
		fails = fails || m.Metric == Decode && m.Run.Verdict == Worse
	}
	if fails {
		t.decodeFail++
	}
	t.falseShare += float64(wrong) / float64(max(1, found))
}

func (s *simulation) run(sc *scenario, n int) tally {
	var t tally
	for range n {
		t.add(s.next(sc, nil), sc)
	}
	return t
}

func share(n, of int) float64 { return 100 * float64(n) / float64(max(1, of)) }

// The quick form of the validation: the same numbers every time.
func TestFalseAlarmsAndPower(t *testing.T) {
	all := worlds()
	aa, cells, cell, whole, edge := scenarios()[0], scenarios()[1], scenarios()[2], scenarios()[3], scenarios()[4]
	var alarms, every tally
	for _, w := range all[:5] {
		for _, km := range [][2]int{{2, 5}, {3, 0}} {
			got := simulate(w, km[0], km[1]).run(&aa, 40)
			alarms.diffs += got.diffs
			alarms.fail += got.fail
			every.intervals += got.intervals
			every.missed += got.missed
			every.unjudged += got.unjudged
		}
	}
	if alarms.diffs != 400 || alarms.fail > 27 { // the 95th percentile at a true rate of 5 %
		t.Errorf("the gate failed on %d of %d comparisons of equal code, want 27 of 400 at most", alarms.fail, alarms.diffs)
	}
	if rate := share(every.missed, every.intervals); rate < 2 || rate > 7 {
		t.Errorf("intervals missed the truth %.1f %% of the time, want about 5 %%", rate)
	}
	for _, sc := range []scenario{cells, cell, whole} {
		got := simulate(all[1], 3, 5).run(&sc, 60)
		if got.fail < 48-8 { // 80 % of 60, less two and a half standard errors
			t.Errorf("usual noise, 3 launches of each and a profile of 5: found %s in %d of %d, want 80 %%", sc.name, got.fail, got.diffs)
		}
		if rate := got.falseShare / float64(got.diffs); sc.name == cells.name && rate > 0.1 {
			t.Errorf("%.0f %% of the cells called changed are not, want 5 %%", 100*rate)
		}
	}
	if got := simulate(all[0], 3, 5).run(&edge, 30); got.atEdge == 0 || share(got.edgeNoChange, got.atEdge) > 7 {
		t.Errorf("called %d of %d cells unchanged that changed by as much as matters, want 5 %% at most", got.edgeNoChange, got.atEdge)
	}
	if got := simulate(all[1], 1, 5).run(&aa, 20); got.fail != 0 || got.unjudged != 20 {
		t.Errorf("one launch of each: %d of %d failed and %d were not judged, want 0 and all", got.fail, got.diffs, got.unjudged)
	}
}

// A row is one setting of the long form.
type row struct {
	w     world
	k, m  int
	tally []tally // by scenario
}

// settings are the rows of docs/diff-validation.md.
func settings() []*row {
	var rows []*row
	for _, w := range worlds() {
		for _, km := range [][2]int{{1, 0}, {1, 5}, {2, 0}, {2, 3}, {2, 5}, {3, 0}, {3, 3}, {3, 5}, {5, 0}, {5, 5}} {
			if w.beyond && km[0] != 3 && km != [2]int{2, 5} || w.staleProfile > 0 && km[1] == 0 {
				continue
			}
			rows = append(rows, &row{w: w, k: km[0], m: km[1]})
		}
	}
	return rows
}

// thin reports whether its launches are too few to be evidence.
func (r *row) thin() bool { return r.k == 1 || r.k == 2 && r.m < 3 }

// name is how its line in the table begins.
func (r *row) name() string {
	profile := "–"
	if r.m > 0 {
		profile = fmt.Sprint(r.m)
	}
	return fmt.Sprintf("| %s | %d | %s |", r.w.name, r.k, profile)
}

// line is its line in the table.
func (r *row) line() string {
	aa, cells, cell, whole, edge, runEdge := r.tally[0], r.tally[1], r.tally[2], r.tally[3], r.tally[4], r.tally[5]
	rate := func(n, of int) string {
		if of == 0 || r.thin() {
			return "–"
		}
		return fmt.Sprintf("%.1f %%", share(n, of))
	}
	found := func(x tally) string {
		if r.thin() {
			return fmt.Sprintf("(%.0f %%)", share(x.suspect, x.diffs))
		}
		return fmt.Sprintf("%.0f %%", share(x.fail, x.diffs))
	}
	falsely := "–"
	if !r.thin() {
		falsely = fmt.Sprintf("%.1f %%", 100*cells.falseShare/float64(cells.diffs))
	}
	alarm := rate(aa.fail, aa.diffs)
	if r.thin() {
		alarm = fmt.Sprintf("%d (%.1f %% suspect)", aa.fail, share(aa.suspect, aa.diffs))
	}
	return fmt.Sprintf("%s %s | %s | %.1f %% | %.1f %% | %.1f %% | %s | %s | %s | %s | %s | %s |\n", r.name(),
		alarm, rate(aa.decodeFail, aa.diffs), share(aa.unjudged, aa.diffs), share(aa.missed, aa.intervals), share(aa.runMissed, aa.runIntervals),
		rate(edge.edgeNoChange, edge.atEdge), rate(runEdge.runNoChange, runEdge.runAtEdge), found(cells), found(cell), found(whole), falsely)
}

// check holds a row of the model to the targets.
func (r *row) check(t *testing.T) {
	aa, edge, runEdge := r.tally[0], r.tally[4], r.tally[5]
	if r.thin() && aa.fail > 0 || aa.fail > 123*aa.diffs/2000 { // the 99th percentile of 2,000 at a true rate of 5 %
		t.Errorf("%s the gate failed on %d of %d comparisons of equal code", r.name(), aa.fail, aa.diffs)
	}
	if r.thin() {
		return
	}
	if bad := share(edge.edgeNoChange, edge.atEdge); bad > 5 {
		t.Errorf("%s “no change” of cells wrong %.1f %%", r.name(), bad)
	}
	if bad := share(runEdge.runNoChange, runEdge.runAtEdge); bad > 7 {
		t.Errorf("%s “no change” of runs wrong %.1f %%", r.name(), bad)
	}
	if miss := share(aa.missed, aa.intervals); miss < 2 || miss > 7 {
		t.Errorf("%s intervals miss %.1f %%", r.name(), miss)
	}
	if r.w.name == "usual" && r.k == 3 && r.m == 5 {
		for _, x := range r.tally[1:4] {
			if x.fail < 149 { // 80 % of 200, less two standard errors
				t.Errorf("%s found %d of %d", r.name(), x.fail, x.diffs)
			}
		}
	}
}

const tableHead = "\n| world | launches a side | profile | A/A fails | in decode alone | not judged | cells: interval misses | run: interval misses | “no change” wrong: cells | run | 4 cells −3 % | 1 cell −5 % | all −3 % | false among found |\n" +
	"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"

// The long form, which make validate-diff runs, writes the document anew.
// Without that only a little of it runs, and the document is held to the
// settings of the long form.
func TestValidation(t *testing.T) {
	const document = "../../docs/diff-validation.md"
	const falseAlarms, power, thinPart = 2000, 200, 5 // thin evidence, which can't fail, gets a fifth of both
	rows := settings()
	file := os.Getenv("SPEEDMATRIX_VALIDATE_DIFF")
	if file == "" {
		text, err := os.ReadFile(document)
		if errors.Is(err, fs.ErrNotExist) {
			t.Log("the long form has not been run yet: make validate-diff")
			rows = nil
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if !strings.Contains(string(text), "\n"+r.name()) {
				t.Errorf("%s has no row %s …: make validate-diff", document, r.name())
			}
		}
		r := &row{w: worlds()[1], k: 3, m: 3}
		for i := range scenarios() {
			r.tally = append(r.tally, simulate(r.w, r.k, r.m).run(&scenarios()[i], 2))
		}
		if got := r.line(); strings.Count(got, "|") != strings.Count(tableHead, "|")/2 {
			t.Errorf("row %q does not fit the table", got)
		}
		return
	}
	var group sync.WaitGroup
	next := make(chan *row)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for r := range next {
				for i, sc := range scenarios() {
					n := power
					if i == 0 {
						n = falseAlarms
					}
					if r.thin() {
						n /= thinPart
					}
					r.tally = append(r.tally, simulate(r.w, r.k, r.m).run(&sc, n))
				}
			}
		})
	}
	for _, r := range rows {
		next <- r
	}
	close(next)
	group.Wait()

	within, beyond := "", ""
	for _, r := range rows {
		if r.w.beyond {
			beyond += r.line()
		} else {
			within += r.line()
			r.check(t)
		}
	}
	text := fmt.Sprintf(validationHead, falseAlarms, power, falseAlarms/thinPart, power/thinPart) + tableHead + within + validationBeyond + tableHead + beyond + validationTail
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
