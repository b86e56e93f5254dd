package render

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/render/internal/format"
)

// A Comparison is a comparison ready to be shown: by DiffText, DiffMarkdown,
// DiffHTML, DiffJSON and DiffCSV, which all say the same.
type Comparison struct {
	Report *compare.Report // at least one side
	Gate   compare.Gate    // what it fails on
}

// A diffView is a comparison in ready strings of one line, without markup.
// Text, Markdown and HTML are made of it.
type diffView struct {
	Heading string
	Data    bool       // files with the data lie beside it
	Several bool       // there is more than one side
	Opening []diffLine // what was compared, coverage, speed, how much at most, what next: at most 8 lines
	Sides   []diffSide
	Line    string // the last one, for programs
}

// A diffLine is a line of the opening.
type diffLine struct{ Name, Text string }

// A diffSide is one side against the base.
type diffSide struct {
	Heading  string
	Opening  []diffLine // empty when the comparison's own says it
	Findings []diffFinding
	Same     string // names of the fields that are the same
	Flags    []flagRow
	Changed  []diffRow // cells and whole runs with a finding, of all metrics
	Statuses []statusRow
	Metrics  []diffMetric
	Launches []diffLaunch
}

// A diffLaunch is a launch of a side.
type diffLaunch struct {
	Side, Name, Started, Version, Commit string
	URL                                  string // of its folder in a site; "" where there is none
}

// A diffFinding is a field that is not the same.
type diffFinding struct{ Outcome, Text string }

type flagRow struct{ Name, A, B string }

type statusRow struct{ Phase, Context, Concurrency, A, B, Text string }

// A diffMetric is the table of one metric.
type diffMetric struct {
	Title   string // "Total tok/s"
	Rule    string // what counts, and what the intervals rest on
	Why     string // what keeps it from being judged; "" nothing
	Gates   bool
	Rows    []diffRow // the whole run first, where it was judged
	Figures []drawing
}

// A diffRow is a cell, or a whole run.
type diffRow struct {
	Metric, Context, Concurrency string // Context is "whole run" of a run
	A, B                         string // values, or statuses
	Change                       string // "−4.8 % [−6.2, −3.4]"; "—" not computed
	Against                      string // the change against the whole run's; "" not known
	Verdict                      string // in words
	Reason                       string // further words; often ""
	Tone                         tone
}

// A tone is the colour of a verdict, which never says more than its word.
type tone string

const (
	plainTone tone = ""
	worseTone tone = "worse"
	goodTone  tone = "better"
	faintTone tone = "faint"
)

// metricTitles begin a heading or a sentence.
func metricTitle(m compare.Metric) string {
	s := m.Label()
	return strings.ToUpper(s[:1]) + s[1:]
}

// percent writes a share with its sign: "−4.8", "+0.3", "0.0".
func percent(share float64) string {
	s := format.One(math.Abs(100 * share))
	switch {
	case s == format.Unknown || s == "0.0":
		return s
	case share < 0:
		return "−" + s
	}
	return "+" + s
}

// threshold writes a share without a sign and without needless digits: "2 %".
func threshold(share float64) string {
	return strings.TrimSuffix(format.One(100*share), ".0") + " %"
}

func changeText(c *compare.Change) string {
	if c == nil {
		return format.Unknown
	}
	return fmt.Sprintf("%s %% [%s, %s]", percent(c.Share), percent(c.Low), percent(c.High))
}

func metricValue(m compare.Metric, v float64) string {
	switch m {
	case compare.TTFT:
		return format.Millis(v)
	case compare.BetweenTokens:
		return format.Millis1(v)
	}
	return format.TokPerS(v)
}

// verdictWords says a verdict, and of a change which way it went.
func verdictWords(m compare.Metric, v compare.Verdict, needed int, effect float64) string {
	direction := func(time, rate string) string {
		if m.IsTime() {
			return v.String() + " (" + time + ")"
		}
		return v.String() + " (" + rate + ")"
	}
	switch v {
	case compare.Worse, compare.SuspectWorse:
		return direction("longer", "slower")
	case compare.Better, compare.SuspectBetter:
		return direction("shorter", "faster")
	case compare.NoChange:
		if effect > 0 {
			return "no change > " + threshold(effect)
		}
	case compare.Unclear:
		if needed > 0 {
			return fmt.Sprintf("unclear (%d launches)", needed)
		}
	}
	return v.String()
}

func toneOf(v compare.Verdict) tone {
	switch v {
	case compare.Worse, compare.SuspectWorse, compare.Lost:
		return worseTone
	case compare.Better, compare.SuspectBetter, compare.Gained:
		return goodTone
	case compare.Unclear, compare.NoChange, compare.SameStatus, compare.MovedWithRun:
		return faintTone
	}
	return plainTone
}

// A differ builds the view of one side.
type differ struct {
	*compare.Diff
	number   int // 1, 2, … among the sides
	settings *compare.Options
	labels   map[int32]string
	runs     func(id string) string // folder of a run in a site; nil: there is none
}

func newDiffView(c Comparison, runs func(id string) string) *diffView {
	r := c.Report
	v := &diffView{Several: len(r.Diffs) > 1, Line: r.Counts.Line(c.Gate)}
	v.Heading = heading(r.Base.Runs[0])
	labels := diffLabels(r)
	for i := range r.Diffs {
		d := &differ{&r.Diffs[i], i + 1, &r.Settings, labels, runs}
		s := d.side()
		if !v.Several {
			v.Opening, s.Opening = s.Opening, nil
		}
		v.Sides = append(v.Sides, s)
	}
	if v.Several {
		v.Opening = severalOpening(r, v.Sides)
	}
	return v
}

// severalOpening says of each side in one line what its own opening says.
func severalOpening(r *compare.Report, sides []diffSide) []diffLine {
	const most, whole = 5, 3 // so that all of it is in the first eight lines
	lines := []diffLine{{"base", fmt.Sprintf("%s, %s, against %s", visible(r.Base.Label), launchCount(len(r.Base.Runs)), plural(len(sides), "side"))}}
	for i, s := range sides {
		if i == most {
			lines = append(lines, diffLine{"…", "and " + plural(len(sides)-most, "further side")})
			break
		}
		d := r.Diffs[i]
		of := func(name string) string {
			for _, l := range s.Opening {
				if l.Name == name {
					return l.Text
				}
			}
			return ""
		}
		coverage := ""
		if d.Comparable {
			coverage = fmt.Sprintf("lost %d, gained %d", d.Counts.Lost, d.Counts.Gained)
		}
		lines = append(lines, diffLine{clip(visible(d.B.Label), 12), join(" · ", coverage, of("speed"))})
		if len(sides) <= whole {
			lines = append(lines, diffLine{"  next", of("next") + "; at most " + of("at most")})
		}
	}
	if len(sides) > whole {
		lines = append(lines, diffLine{"next", "what each side says below, with how much it changed at most"})
	}
	return lines
}

func diffLabels(r *compare.Report) map[int32]string {
	var contexts []int32
	for i := range r.Diffs {
		for j := range r.Diffs[i].Metrics {
			for k := range r.Diffs[i].Metrics[j].Cells {
				contexts = append(contexts, r.Diffs[i].Metrics[j].Cells[k].ContextTokens)
			}
		}
	}
	return format.Contexts(contexts)
}

func (d *differ) side() diffSide {
	s := diffSide{
		Heading: visible(d.A.Label) + " → " + visible(d.B.Label), Opening: d.opening(),
	}
	var same []string
	for _, f := range d.Findings {
		if f.Outcome == compare.Same {
			same = append(same, f.Field)
			continue
		}
		outcome := f.Outcome.String()
		if f.Allowed {
			outcome = "allowed"
		}
		s.Findings = append(s.Findings, diffFinding{outcome, clip(visible(f.Text), 400)})
	}
	s.Same = strings.Join(same, ", ")
	for _, f := range d.Flags {
		side := func(in bool, value string) string {
			switch {
			case !in:
				return "not given"
			case value == "":
				return "given"
			}
			return clip(visible(value), 200)
		}
		s.Flags = append(s.Flags, flagRow{clip(visible(f.Name), 80), side(f.InA, f.A), side(f.InB, f.B)})
	}
	for _, c := range d.Coverage.Changes {
		s.Statuses = append(s.Statuses, statusRow{string(c.Phase), d.labels[c.ContextTokens], plain(c.Concurrency), c.A.Status.String(), c.B.Status.String(), c.Text})
	}
	for i := range d.Metrics {
		m := d.metric(&d.Metrics[i])
		s.Metrics = append(s.Metrics, m)
		for _, row := range m.Rows {
			if row.Tone == worseTone || row.Tone == goodTone {
				s.Changed = append(s.Changed, row)
			}
		}
	}
	s.Launches = d.launches()
	// What is lost or gained stands in the list of statuses already.
	s.Changed = slices.DeleteFunc(s.Changed, func(r diffRow) bool { return r.Change == format.Unknown })
	return s
}

// launches lists the launches of both sides in the order of time.
func (d *differ) launches() []diffLaunch {
	var list []diffLaunch
	next := map[rune][]*ingest.Run{'A': d.A.Runs, 'B': d.B.Runs}
	for _, side := range d.Order {
		r := next[side][0]
		next[side] = next[side][1:]
		l := diffLaunch{
			Side: string(side), Name: visible(r.ID), Started: r.Manifest.StartedAt.UTC().Format("2006-01-02 15:04 UTC"),
			Version: factValue(r.Manifest.Engine.Version), Commit: shortCommit(factValue(r.Manifest.Engine.Commit)),
		}
		if d.runs != nil {
			l.URL = d.runs(r.ID)
		}
		list = append(list, l)
	}
	return list
}

// briefOf says of a comparison with one side what other pages say of it.
func briefOf(r *compare.Report) diffBrief {
	d := &differ{Diff: &r.Diffs[0], settings: &r.Settings}
	o := d.outcome()
	b := diffBrief{Against: visible(d.A.Label), Coverage: brief{Text: "coverage kept"}}
	if !d.Comparable {
		b.Coverage.Text, b.Speed.Text = "", "not comparable"
		return b
	}
	c := &d.Counts
	switch {
	case c.Lost > 0 && c.Gained > 0:
		b.Coverage.Text = fmt.Sprintf("%d lost, %d gained", c.Lost, c.Gained)
	case c.Lost > 0:
		b.Coverage.Text = fmt.Sprintf("%d lost", c.Lost)
	case c.Gained > 0:
		b.Coverage = brief{fmt.Sprintf("%d gained", c.Gained), goodTone}
	}
	if c.Lost > 0 {
		b.Coverage.Tone = worseTone
	}
	speed, _, _ := strings.Cut(d.word(&o), ",")
	b.Speed.Text = strings.ToLower(speed)
	switch {
	case o.worse > 0 || o.runWorse:
		b.Speed.Tone = worseTone
		if o.better > 0 || o.runBetter {
			b.Speed.Text = "slower and faster in part"
		}
	case o.suspect > 0 || o.runSuspect:
		b.Speed.Tone = worseTone
	case o.better > 0 || o.runBetter:
		b.Speed.Tone = goodTone
	case o.thin != "":
		b.Speed.Text = "too few launches to judge speed"
	}
	return b
}

func (d *differ) metric(m *compare.MetricDiff) diffMetric {
	v := diffMetric{Title: metricTitle(m.Metric), Why: m.Why, Gates: m.Gates}
	v.Rule = fmt.Sprintf("a change of %s counts", threshold(m.Effect))
	if m.Metric == compare.TTFT {
		v.Rule = fmt.Sprintf("a change of %s and %s counts", threshold(m.Effect), format.Millis(d.settings.Effect.TTFTUs))
	}
	v.Rule = join("; ", v.Rule, noiseText(&m.Noise, m.Compared))
	if !m.Gates {
		v.Rule += "; shown only, it does not decide"
	}
	v.Figures = d.intervals(m)
	if r := m.Run; r != nil {
		v.Rows = append(v.Rows, diffRow{
			Metric: m.Metric.Label(), Context: "whole run", Concurrency: "", A: launchCount(len(d.A.Runs)), B: launchCount(len(d.B.Runs)),
			Change: changeText(&r.Change), Verdict: verdictWords(m.Metric, r.Verdict, r.RunsNeeded, d.settings.Effect.Run),
			Reason: further(r.Reason, m.Why), Tone: toneOf(r.Verdict),
		})
		if r.Grouped {
			shares := func(all []float64) string {
				var parts []string
				for _, s := range all {
					parts = append(parts, percent(s))
				}
				return strings.Join(parts, ", ")
			}
			v.Rows[0].Reason = join("; ", v.Rows[0].Reason, "launches of A: "+shares(r.LaunchesA)+" %, of B: "+shares(r.LaunchesB)+" %")
		}
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		row := diffRow{
			Metric: m.Metric.Label(), Context: d.labels[c.ContextTokens], Concurrency: plain(c.Concurrency),
			A: sideText(m.Metric, &c.A), B: sideText(m.Metric, &c.B), Change: changeText(c.Change),
			Verdict: verdictWords(m.Metric, c.Verdict, c.RunsNeeded, cmp.Or(c.Effect, m.Effect)), Reason: clip(visible(further(c.Reason, m.Why)), 300), Tone: toneOf(c.Verdict),
		}
		if c.Against != nil {
			row.Against = percent(c.Against.Share) + " %"
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// further is a reason that was not given for the metric as a whole.
func further(reason, why string) string {
	if reason == why {
		return ""
	}
	return reason
}

// sideText is a side's value, or why there is none.
func sideText(m compare.Metric, s *compare.CellSide) string {
	switch {
	case s.Planned == 0:
		return format.Unknown
	case s.Valid == s.Launches && s.Value.Known():
		return metricValue(m, s.Value.Value)
	case s.Valid > 0 && s.Valid < s.Launches:
		return fmt.Sprintf("valid %d of %d", s.Valid, s.Launches)
	case s.Valid > 0:
		return format.Unknown
	}
	return s.Status.String()
}

func noiseText(n *compare.Noise, compared int) string {
	if compared == 0 {
		return ""
	}
	sd := ""
	if n.LaunchSD > 0 || n.CellSD > 0 {
		sd = fmt.Sprintf(" (a launch differs by %s %%, a cell by %s %% more)", format.Two(100*n.LaunchSD), format.Two(100*n.CellSD))
	}
	switch n.Source {
	case compare.Assumed:
		return "assumed noise" + sd
	case compare.FromLaunches:
		return "noise of these launches" + sd
	case compare.FromProfile:
		return fmt.Sprintf("noise of a profile of %d launches", n.ProfileLaunches) + sd
	}
	return fmt.Sprintf("noise of these launches and a profile of %d", n.ProfileLaunches) + sd
}

// An outcome is what the opening looks for in the gating metrics.
type diffOutcome struct {
	worse, better, suspect, hopeful int // cells
	noChange, unclear, moved        int
	runs                            []string // whole runs that changed or may have, in words
	runWorse, runBetter, runSuspect bool
	worst                           *compare.CellDiff // the largest change of a finding
	worstIn                         compare.Metric
	needed                          int // launches that would settle the unclear changes; 0: not known
	thin                            string
	bounds                          []string
	absent                          []compare.Metric // no cell has them on both sides
	judged                          []string
}

func (d *differ) outcome() diffOutcome {
	var o diffOutcome
	for i := range d.Metrics {
		m := &d.Metrics[i]
		if !m.Gates {
			continue
		}
		switch {
		case m.State == compare.ThinEvidence && o.thin == "":
			o.thin = m.Why
		case m.State == compare.NothingCompared:
			o.absent = append(o.absent, m.Metric)
		case m.State == compare.Judged:
			o.judged = append(o.judged, m.Metric.String())
		}
		if r := m.Run; r != nil {
			switch r.Verdict {
			case compare.Worse, compare.SuspectWorse, compare.Better, compare.SuspectBetter:
				o.runs = append(o.runs, fmt.Sprintf("%s %s %%", shortLabel(m.Metric), percent(r.Change.Share)))
			}
			o.runWorse = o.runWorse || r.Verdict == compare.Worse
			o.runBetter = o.runBetter || r.Verdict == compare.Better
			o.runSuspect = o.runSuspect || r.Verdict == compare.SuspectWorse
			o.needed = max(o.needed, r.RunsNeeded)
		}
		low, high, n := math.Inf(1), math.Inf(-1), 0
		for j := range m.Cells {
			c := &m.Cells[j]
			switch c.Verdict {
			case compare.Worse:
				o.worse++
			case compare.Better:
				o.better++
			case compare.SuspectWorse:
				o.suspect++
			case compare.SuspectBetter:
				o.hopeful++
			case compare.NoChange:
				o.noChange++
			case compare.Unclear:
				o.unclear++
			case compare.MovedWithRun:
				o.moved++
			}
			o.needed = max(o.needed, c.RunsNeeded)
			if c.Change == nil {
				continue
			}
			low, high, n = min(low, c.Change.Low), max(high, c.Change.High), n+1
			finding := c.Verdict == compare.Worse || c.Verdict == compare.Better || c.Verdict == compare.SuspectWorse || c.Verdict == compare.SuspectBetter
			if finding && (o.worst == nil || rank(c) > rank(o.worst)) {
				o.worst, o.worstIn = c, m.Metric
			}
		}
		if n > 0 {
			o.bounds = append(o.bounds, fmt.Sprintf("%s %s to %s %%", shortLabel(m.Metric), percent(low), percent(high)))
		}
	}
	return o
}

// shortLabel names a metric that decides where there is little room.
func shortLabel(m compare.Metric) string {
	s := m.Label()
	if s != "prefill tok/s" && s != "total tok/s" {
		return s
	}
	return strings.TrimSuffix(s, " tok/s")
}

// rank orders findings: slower before faster, then the larger one.
func rank(c *compare.CellDiff) float64 {
	r := math.Abs(math.Log1p(max(c.Change.Share, -0.999)))
	if c.Verdict == compare.Worse || c.Verdict == compare.SuspectWorse {
		r += 1000
	}
	return r
}

// opening says what was compared, whether coverage changed, whether speed
// changed, by how much at most, and what to do next.
func (d *differ) opening() []diffLine {
	o := d.outcome()
	m := d.A.Runs[0].Manifest
	compared := join(" ", factValue(m.Engine.Name), visible(d.A.Label), "→", visible(d.B.Label))
	if d.AA {
		compared += " (A/A: one build, every change is noise)"
	}
	compared += fmt.Sprintf(" · %d and %s", len(d.A.Runs), launchCount(len(d.B.Runs)))
	if len(d.Order) > 2 && len(d.Order) <= 12 {
		compared += ", " + d.Order
	}
	lines := []diffLine{
		{"compared", compared}, {"coverage", d.coverageText()}, {"speed", d.speed(&o)},
		{"at most", cmp.Or(strings.Join(o.bounds, ", "), "no change was computed")},
		{"next", d.next(&o)},
	}
	if len(o.bounds) > 0 {
		lines[3].Text += " (95 % intervals)"
	}
	if noted := d.noted(); noted != "" {
		lines = append(lines, diffLine{"noted", noted})
	}
	return lines
}

// noted is the first reason for doubt, and how many more things differ.
func (d *differ) noted() string {
	first, warnings, notes := "", 0, 0
	for _, f := range d.Findings {
		switch {
		case f.Outcome == compare.Note:
			notes++
		case f.Outcome == compare.Warn && first == "":
			first = clip(visible(f.Text), 110)
		case f.Outcome == compare.Warn:
			warnings++
		}
	}
	more := ""
	if warnings > 0 {
		more = plural(warnings, "warning")
	}
	if notes > 0 {
		more = join(" and ", more, plural(notes, "note"))
	}
	switch {
	case first == "" && more == "":
		return ""
	case first == "":
		return more + " about comparability, below"
	case more == "":
		return first
	}
	return first + " (and " + more + ", below)"
}

func (d *differ) coverageText() string {
	c := &d.Coverage
	phase := func(p *compare.PhaseCoverage, name string) string {
		if p.PlannedA+p.PlannedB == 0 {
			return ""
		}
		return fmt.Sprintf("%d of %d %s", p.Both, p.PlannedA+p.OnlyB, name)
	}
	text := join(", ", phase(&c.Decode, "decode"), phase(&c.Prefill, "prefill"))
	if text == "" {
		return "no cell was planned"
	}
	text = "both have " + text
	if !d.Comparable {
		return text
	}
	lost := fmt.Sprintf("lost %d", d.Counts.Lost)
	for _, s := range c.Changes {
		if s.Verdict == compare.Lost {
			lost += fmt.Sprintf(" (%s × %d %s", d.labels[s.ContextTokens], s.Concurrency, strings.TrimPrefix(s.Text, "lost: "))
			if d.Counts.Lost > 1 {
				lost += ", …"
			}
			lost += ")"
			break
		}
	}
	return fmt.Sprintf("%s · %s, gained %d", text, lost, d.Counts.Gained)
}

func (d *differ) speed(o *diffOutcome) string {
	if !d.Comparable {
		if d.Descriptive {
			return "NOT COMPARABLE, changes are described only: " + d.refusal()
		}
		return "NOT COMPARABLE: " + d.refusal()
	}
	var parts []string
	if w := o.worst; w != nil {
		parts = append(parts, fmt.Sprintf("%s %s %% at %s × %d", shortLabel(o.worstIn), percent(w.Change.Share), d.labels[w.ContextTokens], w.Concurrency))
	}
	if len(o.runs) > 0 {
		parts = append(parts, "whole run "+strings.Join(o.runs, ", "))
	}
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	count(o.worse, "cells worse")
	count(o.better, "better")
	count(o.suspect, "suspect")
	count(o.hopeful, "suspect better")
	count(o.moved, "moved with the run")
	count(o.noChange, "no change")
	count(o.unclear, "unclear")
	return join(": ", d.word(o), strings.Join(parts, ", "))
}

// word says of sides that are comparable whether speed changed.
func (d *differ) word(o *diffOutcome) string {
	worse, better := o.worse > 0 || o.runWorse, o.better > 0 || o.runBetter
	switch {
	case worse && better:
		return "SLOWER and faster in part"
	case worse:
		return "SLOWER"
	case o.suspect > 0 || o.runSuspect:
		return "SUSPECTED SLOWER, not proved"
	case better && d.Counts.Lost > 0:
		return "FASTER where both have results"
	case better:
		return "FASTER"
	case o.thin != "":
		return "NOT JUDGED, too few launches"
	case o.noChange+o.unclear+o.moved == 0:
		return "NOT JUDGED, nothing to compare"
	case o.unclear == 0:
		return "NO CHANGE as large as what counts"
	case o.noChange > 0:
		return "NO CHANGE FOUND"
	}
	return "UNCLEAR"
}

// refusal is the first field that is not comparable, and how many more.
func (d *differ) refusal() string {
	text, more := "", 0
	for _, f := range d.Findings {
		switch {
		case f.Outcome != compare.Refuse && !(d.Descriptive && f.Allowed && f.Outcome == compare.Warn):
		case text == "":
			text = clip(visible(f.Text), 120)
		default:
			more++
		}
	}
	if more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func (d *differ) next(o *diffOutcome) string {
	switch {
	case !d.Comparable && !d.Descriptive:
		return "measure both sides alike, or declare what is meant to differ (--allow)"
	case !d.Comparable:
		return "measure both sides on the same hardware for a verdict"
	case d.Counts.LostCapacity+d.Counts.LostError > 0 && (o.worse > 0 || o.runWorse):
		return "find out why cells were lost, and what made the others slower"
	case d.Counts.LostCapacity+d.Counts.LostError > 0:
		return "find out why cells were lost"
	case o.worse > 0 || o.runWorse:
		return "the change is no noise: find what made it slower"
	case o.thin != "":
		least := min(len(d.A.Runs), len(d.B.Runs))
		return fmt.Sprintf("measure %s more of each side, in turn: speedmatrix diff --plan", launchCount(max(1, 3-least)))
	case o.suspect > 0 || o.runSuspect:
		return "measure the sides again, in turn: speedmatrix diff --plan"
	case len(o.absent) > 0 && len(o.judged) == 0:
		return "find out why no measurement has a result on both sides"
	case len(o.absent) > 0:
		return fmt.Sprintf("measure %s on both sides too, or decide without: --gate-on %s", o.absent[0].Label(), strings.Join(o.judged, ","))
	case d.Counts.Lost > 0:
		return "find out why cells were lost"
	case o.unclear > 0 && o.needed > min(len(d.A.Runs), len(d.B.Runs)):
		return fmt.Sprintf("nothing, or settle what is unclear with %d launches of each side", o.needed)
	}
	return "nothing"
}

func clip(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

func launchCount(n int) string {
	if n == 1 {
		return "1 launch"
	}
	return strconv.Itoa(n) + " launches"
}
