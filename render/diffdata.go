package render

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"speedmatrix/ingest/compare"
)

// DiffFormat names the shape of a comparison as JSON. A change that an old
// reader would misread takes a new number. docs/diff.md describes it.
const DiffFormat = "speedmatrix-diff/1"

type diffData struct {
	Format   string         `json:"format"`
	Method   string         `json:"method"`
	Settings settingsData   `json:"settings"`
	Base     sideData       `json:"base"`
	Sides    []diffSideData `json:"sides"`
	Counts   countsData     `json:"counts"`
	Verdict  string         `json:"verdict"`
	Exit     int            `json:"exit"`
}

type settingsData struct {
	Q        *float64            `json:"q"`
	Effects  map[string]*float64 `json:"smallest_effect_shares"`
	TTFTUs   *float64            `json:"smallest_ttft_effect_us"`
	GateOn   []string            `json:"gate_on"`
	FailOn   []string            `json:"fail_on"`
	Allow    []string            `json:"allow"`
	Profiled bool                `json:"noise_profile_given"`
}

type sideData struct {
	Label string       `json:"label"`
	Runs  []launchData `json:"launches"`
}

type launchData struct {
	RunID   string `json:"run_id"`
	Launch  string `json:"launch"`
	Started string `json:"started_at"`
	Commit  string `json:"engine_commit,omitempty"`
	Version string `json:"engine_version,omitempty"`
}

type diffSideData struct {
	sideData
	Order       string                `json:"order"`
	AA          bool                  `json:"same_build"`
	Comparable  bool                  `json:"comparable"`
	Descriptive bool                  `json:"descriptive"`
	Findings    []findingData         `json:"comparability"`
	Flags       []flagData            `json:"launch_flags"`
	Coverage    coverageData          `json:"coverage"`
	Metrics     map[string]metricData `json:"metrics"`
	Counts      countsData            `json:"counts"`
}

type findingData struct {
	Field   string `json:"field"`
	Outcome string `json:"outcome"`
	Allowed bool   `json:"allowed"`
	A       string `json:"a"`
	B       string `json:"b"`
	Text    string `json:"text"`
}

type flagData struct {
	Name   string  `json:"name"`
	A      *string `json:"a"` // null: not given
	B      *string `json:"b"`
	Memory bool    `json:"decides_capacity"`
}

type coverageData struct {
	Prefill     phaseData    `json:"prefill"`
	Decode      phaseData    `json:"decode"`
	Changes     []statusData `json:"changes"`
	Lost        int          `json:"lost"`
	Gained      int          `json:"gained"`
	P           *float64     `json:"p"`
	LoopsBegun  int          `json:"loops_begun"`
	LoopsEnded  int          `json:"loops_ended"`
	LoopsChance *float64     `json:"loops_p"`
}

type phaseData struct {
	PlannedA int `json:"planned_a"`
	PlannedB int `json:"planned_b"`
	ValidA   int `json:"valid_a"`
	ValidB   int `json:"valid_b"`
	Both     int `json:"valid_both"`
	OnlyA    int `json:"only_in_a"`
	OnlyB    int `json:"only_in_b"`
}

type statusData struct {
	Phase         string `json:"phase"`
	ContextTokens int32  `json:"context_tokens"`
	Concurrency   int32  `json:"concurrency"`
	A             string `json:"a"`
	B             string `json:"b"`
	Verdict       string `json:"verdict"`
	Class         string `json:"class"`
	Text          string `json:"text"`
}

type metricData struct {
	Label  string         `json:"label"`
	Unit   string         `json:"unit"`
	Gates  bool           `json:"gates"`
	State  string         `json:"state"`
	Why    string         `json:"why"`
	Effect *float64       `json:"smallest_effect_share"`
	Noise  noiseData      `json:"noise"`
	Run    *runDiffData   `json:"whole_run"`
	Cells  []cellDiffData `json:"cells"`
}

type noiseData struct {
	Source          string   `json:"source"`
	ProfileLaunches int      `json:"profile_launches"`
	LaunchSD        *float64 `json:"launch_sd_log"`
	CellSD          *float64 `json:"cell_sd_log"`
	DF              *float64 `json:"degrees_of_freedom"`
	Unused          string   `json:"profile_unused"`
}

type changeData struct {
	Share *float64 `json:"share"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

type testData struct {
	P          *float64 `json:"p"`
	Adjusted   *float64 `json:"p_adjusted"`
	SD         *float64 `json:"sd_log"`
	DF         *float64 `json:"degrees_of_freedom"`
	RunsNeeded *int     `json:"launches_needed"`
}

type runDiffData struct {
	Change    *changeData `json:"change"`
	Cells     int         `json:"cells"`
	Verdict   string      `json:"verdict"`
	Reason    string      `json:"reason"`
	LaunchesA []*float64  `json:"launches_a"`
	LaunchesB []*float64  `json:"launches_b"`
	Grouped   bool        `json:"launches_fall_into_groups"`
	testData
}

type cellDiffData struct {
	ContextTokens int32       `json:"context_tokens"`
	Concurrency   int32       `json:"concurrency"`
	A             cellSide    `json:"a"`
	B             cellSide    `json:"b"`
	Change        *changeData `json:"change"`
	Against       *changeData `json:"against_whole_run"`
	Effect        *float64    `json:"smallest_effect_share"`
	Verdict       string      `json:"verdict"`
	Reason        string      `json:"reason"`
	testData
}

type cellSide struct {
	Value   *float64   `json:"value"`
	Values  []*float64 `json:"values"`
	Status  *string    `json:"status"` // null: not planned
	Planned int        `json:"planned_launches"`
	Valid   int        `json:"valid_launches"`
}

type countsData struct {
	Worse         int `json:"worse"`
	Better        int `json:"better"`
	NoChange      int `json:"no_change"`
	Unclear       int `json:"unclear"`
	Suspect       int `json:"suspect"`
	NotComparable int `json:"not_comparable"`
	Lost          int `json:"lost"`
	LostCapacity  int `json:"lost_to_capacity"`
	LostError     int `json:"lost_to_errors"`
	Gained        int `json:"gained"`
}

// six rounds to six significant digits; what is not finite is null.
func six(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return nil
	}
	if r == 0 {
		r = 0 // not −0
	}
	return &r
}

// known6 is six of a figure of which 0 means that there is none.
func known6(v float64) *float64 {
	if v == 0 {
		return nil
	}
	return six(v)
}

func sixes(all []float64) []*float64 {
	out := make([]*float64, len(all))
	for i, v := range all {
		out[i] = six(v)
	}
	return out
}

func newChangeData(c *compare.Change) *changeData {
	if c == nil {
		return nil
	}
	return &changeData{six(c.Share), six(c.Low), six(c.High)}
}

func newTestData(t *compare.Test, judged bool) testData {
	d := testData{SD: known6(t.SD), DF: known6(t.DF)}
	if judged {
		d.P, d.Adjusted = six(t.P), six(t.Adjusted)
	}
	if t.RunsNeeded > 0 {
		d.RunsNeeded = &t.RunsNeeded
	}
	return d
}

func newCountsData(c compare.Counts) countsData {
	return countsData{c.Worse, c.Better, c.NoChange, c.Unclear, c.Suspect, c.NotComparable, c.Lost, c.LostCapacity, c.LostError, c.Gained}
}

func newSideData(s *compare.Side) sideData {
	d := sideData{Label: s.Label, Runs: []launchData{}}
	for _, r := range s.Runs {
		m := r.Manifest
		l := launchData{RunID: r.ID, Launch: compare.Launch(m), Started: m.StartedAt.UTC().Format(time.RFC3339)}
		if m.Engine.Commit != nil {
			l.Commit = m.Engine.Commit.Value
		}
		if m.Engine.Version != nil {
			l.Version = m.Engine.Version.Value
		}
		d.Runs = append(d.Runs, l)
	}
	return d
}

// words turns values into their names; never null.
func words[T any](all []T, name func(T) string) []string {
	out := []string{}
	for _, v := range all {
		out = append(out, name(v))
	}
	return out
}

func newDiffData(c Comparison) *diffData {
	r, o := c.Report, &c.Report.Settings
	d := &diffData{
		Format: DiffFormat, Method: r.Method, Base: newSideData(&r.Base), Counts: newCountsData(r.Counts),
		Settings: settingsData{
			Q: six(o.Q), Effects: map[string]*float64{"run": six(o.Effect.Run)}, TTFTUs: six(o.Effect.TTFTUs),
			GateOn:   words(o.GateOn, compare.Metric.String),
			FailOn:   words(c.Gate.FailOn, func(e compare.Event) string { return string(e) }),
			Allow:    words(o.Allow, func(a compare.Allowance) string { return string(a) }),
			Profiled: o.Noise != nil,
		},
	}
	for _, m := range compare.Metrics() {
		d.Settings.Effects[m.String()] = six(o.Effect.Of(m))
	}
	d.Exit, d.Verdict = r.Counts.Status(c.Gate)
	for i := range r.Diffs {
		d.Sides = append(d.Sides, newDiffSideData(&r.Diffs[i]))
	}
	return d
}

func newDiffSideData(d *compare.Diff) diffSideData {
	s := diffSideData{
		sideData: newSideData(&d.B), Order: d.Order, AA: d.AA, Comparable: d.Comparable, Descriptive: d.Descriptive,
		Findings: []findingData{}, Flags: []flagData{}, Metrics: map[string]metricData{}, Counts: newCountsData(d.Counts),
	}
	for _, f := range d.Findings {
		s.Findings = append(s.Findings, findingData{f.Field, f.Outcome.String(), f.Allowed, f.A, f.B, f.Text})
	}
	for _, f := range d.Flags {
		side := func(in bool, value string) *string {
			if !in {
				return nil
			}
			return &value
		}
		s.Flags = append(s.Flags, flagData{f.Name, side(f.InA, f.A), side(f.InB, f.B), f.Memory})
	}
	c := &d.Coverage
	phase := func(p compare.PhaseCoverage) phaseData {
		return phaseData{p.PlannedA, p.PlannedB, p.ValidA, p.ValidB, p.Both, p.OnlyA, p.OnlyB}
	}
	s.Coverage = coverageData{
		Prefill: phase(c.Prefill), Decode: phase(c.Decode), Changes: []statusData{}, Lost: c.Lost, Gained: c.Gained,
		LoopsBegun: c.LoopsBegun, LoopsEnded: c.LoopsEnded,
	}
	if d.Comparable {
		s.Coverage.P, s.Coverage.LoopsChance = six(c.P), six(c.LoopsP)
	}
	for _, x := range c.Changes {
		s.Coverage.Changes = append(s.Coverage.Changes, statusData{
			string(x.Phase), x.ContextTokens, x.Concurrency, x.A.Status.String(), x.B.Status.String(), x.Verdict.String(), string(x.Class), x.Text,
		})
	}
	for i := range d.Metrics {
		s.Metrics[d.Metrics[i].Metric.String()] = newMetricData(&d.Metrics[i])
	}
	return s
}

func newMetricData(m *compare.MetricDiff) metricData {
	d := metricData{
		Label: m.Metric.Label(), Unit: metricUnit(m.Metric), Gates: m.Gates, State: m.State.String(), Why: m.Why, Effect: six(m.Effect),
		Noise: noiseData{string(m.Noise.Source), m.Noise.ProfileLaunches, known6(m.Noise.LaunchSD), known6(m.Noise.CellSD), known6(m.Noise.DF), m.Noise.Unused},
		Cells: []cellDiffData{},
	}
	if r := m.Run; r != nil {
		d.Run = &runDiffData{
			newChangeData(&r.Change), r.Cells, r.Verdict.String(), r.Reason, sixes(r.LaunchesA), sixes(r.LaunchesB), r.Grouped, newTestData(&r.Test, r.Verdict != compare.NotComparable),
		}
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		d.Cells = append(d.Cells, cellDiffData{
			ContextTokens: c.ContextTokens, Concurrency: c.Concurrency, A: newCellSide(&c.A), B: newCellSide(&c.B),
			Change: newChangeData(c.Change), Against: newChangeData(c.Against), Effect: known6(c.Effect),
			Verdict: c.Verdict.String(), Reason: c.Reason, testData: newTestData(&c.Test, c.Change != nil && c.Verdict != compare.NotComparable),
		})
	}
	return d
}

func metricUnit(m compare.Metric) string {
	if m.IsTime() {
		return "us"
	}
	return "tok_per_s"
}

func newCellSide(s *compare.CellSide) cellSide {
	d := cellSide{Values: sixes(s.Values), Planned: s.Planned, Valid: s.Valid}
	if s.Value.Known() {
		d.Value = six(s.Value.Value)
	}
	if s.Planned > 0 {
		status := s.Status.Slug()
		d.Status = &status
	}
	return d
}

// DiffJSON returns a comparison as JSON, numbers in six significant digits.
func DiffJSON(c Comparison) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(newDiffData(c)); err != nil {
		return nil, fmt.Errorf("render comparison as JSON: %w", err)
	}
	return b.Bytes(), nil
}

// diffColumnsCSV are the columns of a comparison as CSV.
var diffColumnsCSV = []string{
	"base", "side", "scope", "context_tokens", "concurrency", "metric", "gates",
	"a_tok_per_s", "b_tok_per_s", "a_us", "b_us", "a_status", "b_status", "a_valid_launches", "b_valid_launches", "a_launches", "b_launches",
	"change_share", "change_low_share", "change_high_share", "against_run_share", "against_run_low_share", "against_run_high_share",
	"smallest_effect_share", "sd_log", "degrees_of_freedom", "p", "p_adjusted", "launches_needed", "verdict", "reason",
}

// DiffCSV returns a comparison as CSV: for each side its whole runs (scope
// "run"), then its cells by context, concurrency and metric. An empty field
// is not known.
func DiffCSV(c Comparison) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(diffColumnsCSV)
	for i := range c.Report.Diffs {
		d := &c.Report.Diffs[i]
		type cell struct {
			metric *compare.MetricDiff
			*compare.CellDiff
		}
		var cells []cell
		for j := range d.Metrics {
			m := &d.Metrics[j]
			if m.Run != nil {
				w.Write(diffRecord(d, m, nil, newMetricData(m).Run))
			}
			for k := range m.Cells {
				cells = append(cells, cell{m, &m.Cells[k]})
			}
		}
		slices.SortStableFunc(cells, func(a, b cell) int {
			return cmp.Or(cmp.Compare(a.ContextTokens, b.ContextTokens), cmp.Compare(a.Concurrency, b.Concurrency), cmp.Compare(a.metric.Metric, b.metric.Metric))
		})
		for _, x := range cells {
			w.Write(diffRecord(d, x.metric, x.CellDiff, nil))
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("render comparison as CSV: %w", err)
	}
	return b.Bytes(), nil
}

// diffRecord is the line of a cell, or of a whole run.
func diffRecord(d *compare.Diff, m *compare.MetricDiff, c *compare.CellDiff, r *runDiffData) []string {
	num := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	}
	needed := func(t testData) string {
		if t.RunsNeeded == nil {
			return ""
		}
		return strconv.Itoa(*t.RunsNeeded)
	}
	three := func(c *changeData) []string {
		if c == nil {
			return []string{"", "", ""}
		}
		return []string{num(c.Share), num(c.Low), num(c.High)}
	}
	record := []string{harmless(d.A.Label), harmless(d.B.Label)}
	gates := strconv.FormatBool(m.Gates)
	launches := []string{strconv.Itoa(len(d.A.Runs)), strconv.Itoa(len(d.B.Runs))}
	tests := func(t testData) []string {
		return []string{num(t.SD), num(t.DF), num(t.P), num(t.Adjusted), needed(t)}
	}
	if c == nil {
		return slices.Concat(record, []string{"run", "", "", m.Metric.String(), gates}, make([]string, 8), launches,
			three(r.Change), make([]string, 4), tests(r.testData), []string{r.Verdict, harmless(r.Reason)})
	}
	a, b := newCellSide(&c.A), newCellSide(&c.B)
	status := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	values := []string{num(a.Value), num(b.Value), "", ""}
	if m.Metric.IsTime() {
		values = []string{"", "", num(a.Value), num(b.Value)}
	}
	return slices.Concat(record, []string{"cell", strconv.Itoa(int(c.ContextTokens)), strconv.Itoa(int(c.Concurrency)), m.Metric.String(), gates}, values,
		[]string{status(a.Status), status(b.Status), strconv.Itoa(c.A.Valid), strconv.Itoa(c.B.Valid)}, launches,
		three(newChangeData(c.Change)), three(newChangeData(c.Against)), []string{num(known6(c.Effect))},
		tests(newTestData(&c.Test, c.Change != nil && c.Verdict != compare.NotComparable)), []string{c.Verdict.String(), harmless(c.Reason)})
}
