package render

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/format"
)

// A historyView is one series: its runs in the order of the engine's
// versions, and each measurement over all of them.
type historyView struct {
	sitePage
	Settings factList
	Rows     []runRow // oldest first
	Newest   []runRow // newest first, at most historyRows: for HTML
	Levels   *levelView
	Steps    []stepRow // newest first
	Contexts []trendTable
	Cells    []cellHistory // for Markdown
}

// A trendTable is the total tok/s of one context, or of prefill, by run.
type trendTable struct {
	ID, Heading, Caption string
	Columns              []trendColumn
	Rows                 []trendRow // newest first
}

type trendColumn struct {
	ID, Name string
	Line     *sparkline
}

type trendRow struct {
	URL, Date, Version, Commit string
	Cells                      []trendCell
}

type trendCell struct {
	Text string
	Step string // a change that begins with this run, "" none
	Tone tone
}

// Class is the class of the step in the style sheet.
func (c trendCell) Class() string { return string(c.Tone) }

// A cellHistory is one measurement over all runs, oldest first. A further
// run adds a line and changes none.
type cellHistory struct {
	Heading string
	Prefill bool
	Rows    []cellRow
}

type cellRow struct {
	URL, Date, Version, Commit               string
	Status, Total, PerRequest, TTFT, Between string
}

// historyRows is how many runs a table of a history shows in HTML. Markdown
// and cells.csv have all.
const historyRows = 60

func (s *site) addHistories() error {
	for _, list := range s.series {
		r := list.newest()
		heading := "History of " + r.Model + " on " + r.Hardware
		lead := join(" · ", r.Quantization, r.EngineName)
		lead = join(" – ", lead, "runs that differ in the engine's version only, in the order of versions.")
		v := historyView{sitePage: s.newPage(list.Path, heading, lead), Settings: factList{"settings", "What is equal", r.Settings}}
		v.JSON = ""
		var before *summary
		for _, r := range list.Runs {
			row := s.newRow(r, v.Root)
			row.Mark = changes(before, r)
			before = r
			v.Rows = append(v.Rows, row)
		}
		v.Newest = slices.Clone(v.Rows[max(0, len(v.Rows)-historyRows):])
		slices.Reverse(v.Newest)
		v.Levels = s.newLevels(list, v.Root)
		for i := range list.steps[:min(len(list.steps), maxSteps)] {
			v.Steps = append(v.Steps, s.stepRow(&list.steps[i], v.Root))
		}
		v.Contexts = trendTables(list, list.labels, v.Root)
		v.Cells = cellHistories(list.Runs, list.labels, v.Root)
		if err := s.add(list.Path, "history", v); err != nil {
			return err
		}
		b, err := historyCSV(list.Runs)
		if err != nil {
			return err
		}
		s.files = append(s.files, document{list.Path + "cells.csv", b})
	}
	return nil
}

// changes says what changed from the run before that a step of speed could
// come from beside the engine.
func changes(before, r *summary) string {
	if before == nil {
		return ""
	}
	var list []string
	for _, f := range []struct{ name, old, now string }{
		{"driver", before.Driver, r.Driver}, {"tool", before.Tool, r.Tool},
	} {
		if f.old != f.now {
			list = append(list, fmt.Sprintf("%s %s → %s", f.name, cmp.Or(f.old, "unknown"), cmp.Or(f.now, "unknown")))
		}
	}
	return strings.Join(list, "; ")
}

// cellPlace is a measurement by its plan, over runs.
type cellPlace struct {
	prefill bool
	place
}

// places returns all measurements of runs: prefill, then decode, ascending.
func places(runs []*summary) []cellPlace {
	var list []cellPlace
	for _, r := range runs {
		for _, c := range r.Cells {
			list = append(list, cellPlace{c.Prefill, place{c.Context, c.Concurrency}})
		}
	}
	slices.SortFunc(list, func(a, b cellPlace) int {
		if a.prefill != b.prefill {
			if a.prefill {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.context, b.context), cmp.Compare(a.concurrency, b.concurrency))
	})
	return slices.Compact(list)
}

func (s *summary) find(p cellPlace) *summaryCell {
	for i := range s.Cells {
		if c := &s.Cells[i]; c.Prefill == p.prefill && c.Context == p.context && c.Concurrency == p.concurrency {
			return c
		}
	}
	return nil
}

// trendTables returns a table for prefill and one for each context.
func trendTables(list *series, labels map[int32]string, root string) []trendTable {
	var tables []trendTable
	runs := list.Runs
	shown := runs[max(0, len(runs)-historyRows):]
	all := places(runs)
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].prefill == all[i].prefill && (all[i].prefill || all[j].context == all[i].context) {
			j++
		}
		columns := all[i:j]
		t := trendTable{ID: "prefill", Heading: "Prefill", Caption: "prompt tok/s · columns are context length, rows are runs, newest first"}
		if !columns[0].prefill {
			label := labels[columns[0].context]
			t = trendTable{ID: "decode-" + label, Heading: "Decode at " + label + " context", Caption: "total tok/s · columns are simultaneous requests, rows are runs, newest first"}
		}
		for _, p := range columns {
			c := trendColumn{ID: "prefill-" + labels[p.context], Name: labels[p.context]}
			what := "prefill at " + c.Name + " context"
			if !p.prefill {
				c = trendColumn{ID: "d-" + labels[p.context] + "-" + plain(p.concurrency), Name: plain(p.concurrency)}
				what = labels[p.context] + " context, " + atOnce(p.concurrency)
			}
			c.Line = newSparkline(what, totals(runs, p))
			t.Columns = append(t.Columns, c)
		}
		for _, r := range slices.Backward(shown) {
			row := trendRow{
				URL: root + escapePath(runPath(r)), Date: r.Started.Format(time.DateOnly),
				Version: cmp.Or(r.shortVersion(), format.Unknown), Commit: cmp.Or(r.Commit, format.Unknown),
			}
			for _, p := range columns {
				cell := trendCell{Text: r.find(p).total()}
				if f := list.stepAt(r, p); f != nil {
					c := f.share()
					cell.Step, cell.Tone = percent(c.Share)+" %", goodTone
					if f.worse() {
						cell.Tone = worseTone
					}
					if !f.Confirmed {
						cell.Step += ", unconfirmed"
					}
				}
				row.Cells = append(row.Cells, cell)
			}
			t.Rows = append(t.Rows, row)
		}
		tables = append(tables, t)
		i = j
	}
	return tables
}

// totals returns the rate of one measurement in each run, NaN where none.
func totals(runs []*summary, p cellPlace) []float64 {
	var list []float64
	for _, r := range runs {
		v := math.NaN()
		if c := r.find(p); c != nil {
			v = orNaN(c.Total)
		}
		list = append(list, v)
	}
	return list
}

func cellHistories(runs []*summary, labels map[int32]string, root string) []cellHistory {
	var list []cellHistory
	for _, p := range places(runs) {
		h := cellHistory{Prefill: p.prefill, Heading: "Prefill, " + labels[p.context] + " context"}
		if !p.prefill {
			h.Heading = "Decode, " + labels[p.context] + " context, " + atOnce(p.concurrency)
		}
		for _, r := range runs {
			c := r.find(p)
			if c == nil {
				continue // not in the plan of this run
			}
			h.Rows = append(h.Rows, cellRow{
				URL: root + escapePath(runPath(r)), Date: r.Started.Format(time.DateOnly),
				Version: cmp.Or(r.shortVersion(), format.Unknown), Commit: cmp.Or(r.Commit, format.Unknown), Status: c.Status,
				Total: format.TokPerS(orNaN(c.Total)), PerRequest: format.TokPerS(orNaN(c.PerRequest)),
				TTFT: format.Millis(orNaN(c.TTFTUs)), Between: format.Millis1(orNaN(c.BetweenUs)),
			})
		}
		list = append(list, h)
	}
	return list
}

// historyCSV returns the measurements of all runs of a series, unrounded.
func historyCSV(runs []*summary) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write([]string{
		"run_id", "started_at", "engine_version", "engine_commit", "phase", "context_tokens", "concurrency", "status",
		"total_tok_per_s", "per_request_tok_per_s", "ttft_us", "time_between_tokens_us",
	})
	plainNumber := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	}
	for _, r := range runs {
		for _, c := range r.Cells {
			phase := runlog.PhaseDecode
			if c.Prefill {
				phase = runlog.PhasePrefill
			}
			w.Write([]string{
				harmless(r.ID), r.Started.Format(time.RFC3339Nano), harmless(r.Version), harmless(r.Commit),
				string(phase), plain(c.Context), plain(c.Concurrency), c.Slug,
				plainNumber(c.Total), plainNumber(c.PerRequest), plainNumber(c.TTFTUs), plainNumber(c.BetweenUs),
			})
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("render cells.csv of a series: %w", err)
	}
	return b.Bytes(), nil
}

// A trendMatrix is the decode matrix of the newest run of a series, with a
// line over all its runs in each cell.
type trendMatrix struct {
	Concurrency []string
	Rows        []trendMatrixRow
}

type trendMatrixRow struct {
	Context string
	Cells   []trendMatrixCell
}

type trendMatrixCell struct {
	matrixCell
	URL  string     // of the measurement on the run's page
	Line *sparkline // nil where there is nothing to draw
}

// newTrendMatrix returns nil when the newest run has no decode cell.
func newTrendMatrix(runs []*summary, root string) *trendMatrix {
	r := runs[len(runs)-1]
	labels := cellLabels(r)
	var contexts, levels []int32
	var speeds []float64
	for _, c := range r.Cells {
		if !c.Prefill {
			contexts, levels = append(contexts, c.Context), append(levels, c.Concurrency)
			speeds = append(speeds, orNaN(c.Total))
		}
	}
	if len(contexts) == 0 {
		return nil
	}
	slices.Sort(contexts)
	slices.Sort(levels)
	contexts, levels = slices.Compact(contexts), slices.Compact(levels)
	scale := newSpeedScale(speeds)
	m := &trendMatrix{}
	for _, n := range levels {
		m.Concurrency = append(m.Concurrency, plain(n))
	}
	for _, t := range contexts {
		row := trendMatrixRow{Context: labels[t]}
		for _, n := range levels {
			row.Cells = append(row.Cells, newTrendMatrixCell(runs, place{t, n}, labels, scale, root))
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

func newTrendMatrixCell(runs []*summary, p place, labels map[int32]string, scale speedScale, root string) trendMatrixCell {
	r := runs[len(runs)-1]
	c := r.at(p)
	switch {
	case c == nil:
		return trendMatrixCell{matrixCell: matrixCell{Status: format.Unknown, Slug: "none"}}
	case c.Slug != "valid":
		return trendMatrixCell{matrixCell: matrixCell{Status: c.Status, Slug: c.Slug}, URL: root + escapePath(runPath(r)) + "index.html#" + c.anchor(labels)}
	}
	k := trendMatrixCell{
		matrixCell: matrixCell{
			Total: format.TokPerS(orNaN(c.Total)), TTFT: format.Millis(orNaN(c.TTFTUs)) + " TTFT", Step: scale.step(orNaN(c.Total)),
		},
		URL: root + escapePath(runPath(r)) + "index.html#" + c.anchor(labels),
	}
	k.Line = newSparkline(labels[p.context]+" context, "+atOnce(p.concurrency), totals(runs, cellPlace{false, p}))
	return k
}

// A sparkline is a small drawing of one figure over runs.
type sparkline struct {
	Title string
	Path  string // of an SVG of 120 × 28
	Dots  string // of the runs, where they are few
}

const (
	sparkPoints = 60 // the newest, at most
	sparkDots   = 20 // with more runs there is only the line
)

// newSparkline draws values in their order, oldest first. NaN leaves a gap.
// The height spans a tenth of the highest value at least, so that noise does
// not look like mountains. It returns nil where there are fewer than two.
func newSparkline(what string, values []float64) *sparkline {
	values = values[max(0, len(values)-sparkPoints):]
	low, high := math.Inf(1), math.Inf(-1)
	known := 0
	for _, v := range values {
		if !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
			known++
		}
	}
	if known < 2 {
		return nil
	}
	s := &sparkline{Title: what + ": between " + format.TokPerS(low) + " and " + format.TokPerS(high) + " tok/s"}
	if low == high {
		s.Title = what + ": " + format.TokPerS(low) + " tok/s"
	}
	floor := min(low, high*9/10)
	var path, dots strings.Builder
	drawn := false
	for i, v := range values {
		if math.IsNaN(v) {
			drawn = false
			continue
		}
		x := 40 + 1120*i/(len(values)-1) // tenths of the drawing's unit: whole numbers are the same on every machine
		share := 0.5
		if high > floor {
			share = (v - floor) / (high - floor)
		}
		at := tenths(x) + " " + tenths(240-int(math.RoundToEven(share*200)))
		if drawn {
			path.WriteString("L" + at)
		} else {
			path.WriteString("M" + at + "h0")
		}
		dots.WriteString("M" + at + "h0")
		drawn = true
	}
	s.Path = path.String()
	if len(values) <= sparkDots {
		s.Dots = dots.String()
	}
	return s
}

func tenths(n int) string {
	if n%10 == 0 {
		return strconv.Itoa(n / 10)
	}
	return strconv.Itoa(n/10) + "." + strconv.Itoa(n%10)
}
