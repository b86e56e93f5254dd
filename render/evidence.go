package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/format"
	"speedmatrix/render/internal/shell"
)

// This file builds what a page says beside the sections that every speed
// test page has: how far to trust it, how it was measured, where the raw
// data is.

// trust returns sentences about the run as a whole, beside its checks.
func trust(run *ingest.Run) []string {
	var list []string
	for _, n := range run.Notes {
		list = append(list, sentence(n))
	}
	return list
}

// colours says what the colours of the matrix mean; "" where it has none.
func colours(run *ingest.Run) string {
	if best(run) == nil {
		return ""
	}
	return "Colour in the matrix: stronger is faster, on a logarithmic scale."
}

// sentence makes foreign words look like one.
func sentence(s string) string {
	s = capitalised(visible(s))
	if s != "" && !strings.ContainsRune(".!?", rune(s[len(s)-1])) {
		s += "."
	}
	return s
}

func discards(run *ingest.Run, labels map[int32]string) []discarded {
	var list []discarded
	for _, c := range allCells(run) {
		if c.Status == ingest.Valid {
			continue
		}
		list = append(list, discarded{
			Phase: phaseName(c.Phase), Context: labels[c.ContextTokens], Concurrency: plain(c.Concurrency),
			Status: c.Status.String(), Slug: c.Status.Slug(), Why: why(c),
		})
	}
	return list
}

// why says why a cell is not Valid: how many requests failed, the first piece
// of evidence for its status, and which other statuses would also apply.
func why(c *ingest.Cell) string {
	var parts []string
	if c.Status == ingest.Failed && c.Launch.Launched > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s failed", format.Int(int64(c.Launch.Failed)), requests(c.Launch.Launched)))
	}
	first := ""
	var others []string
	for _, e := range c.Evidence {
		switch {
		case e.Status == c.Status && first == "":
			first = evidence(e)
		case e.Status != c.Status && !slices.Contains(others, e.Status.String()):
			others = append(others, e.Status.String())
		}
	}
	parts = append(parts, cmp.Or(first, visible(c.Reason)))
	if len(others) > 0 {
		parts = append(parts, "also "+strings.Join(others, ", "))
	}
	return cmp.Or(join("; ", parts...), format.Unknown)
}

// allRequests says for each measurement that was sent what became of its
// requests, failures above all: 0 of them is said too.
func allRequests(run *ingest.Run, labels map[int32]string) []requestsOf {
	var list []requestsOf
	count := func(n int) string { return format.Int(int64(n)) }
	for _, c := range allCells(run) {
		l := c.Launch
		if l.Launched == 0 {
			continue
		}
		var statuses []string
		for _, s := range slices.Sorted(maps.Keys(l.HTTPErrors)) {
			statuses = append(statuses, fmt.Sprintf("%s × %d", count(l.HTTPErrors[s]), s))
		}
		list = append(list, requestsOf{
			phaseName(c.Phase), labels[c.ContextTokens], plain(c.Concurrency),
			count(l.Launched), count(l.Completed), count(l.Failed), cmp.Or(join(", ", statuses...), "0"), count(l.Cancelled), count(l.Unfinished),
		})
	}
	return list
}

func requests(n int) string {
	if n == 1 {
		return "1 request"
	}
	return format.Int(int64(n)) + " requests"
}

func evidence(e ingest.Evidence) string {
	s := visible(e.Text)
	var where []string
	if e.Stream >= 0 && e.Request >= 0 {
		where = append(where, fmt.Sprintf("stream %d, request %d", e.Stream, e.Request))
	}
	if e.TUs >= 0 {
		where = append(where, "at "+format.Seconds1(float64(e.TUs)))
	}
	if len(where) == 0 {
		return s
	}
	return s + " (" + strings.Join(where, ", ") + ")"
}

func remarks(run *ingest.Run, labels map[int32]string) []remark {
	var list []remark
	for _, c := range allCells(run) {
		if text := remarksOf(c); text != "" {
			list = append(list, remark{phaseName(c.Phase), labels[c.ContextTokens], plain(c.Concurrency), text})
		}
	}
	return list
}

func remarksOf(c *ingest.Cell) string {
	var notes []string
	for _, n := range c.Notes {
		notes = append(notes, visible(n))
	}
	return join("; ", notes...)
}

func spreads(run *ingest.Run, labels map[int32]string) []spread {
	var list []spread
	for _, c := range phaseCells(run, runlog.PhaseDecode) {
		if c.Status != ingest.Valid {
			continue
		}
		f := c.Figures
		behind := format.Unknown
		if f.TTFTUs.Known() || f.BetweenTokensUs.Known() {
			behind = format.Int(int64(f.TTFTUs.N)) + " / " + format.Int(int64(f.BetweenTokensUs.N))
		}
		list = append(list, spread{
			Context:     labels[c.ContextTokens],
			Concurrency: plain(c.Concurrency),
			Requests:    behind,
			GapP90:      format.Millis1(value(f.GapP90Us)),
			GapP99:      format.Millis1(value(f.GapP99Us)),
			GapMax:      format.Millis1(value(f.GapMaxUs)),
			PerEvent:    format.Two(value(f.TokensPerEvent)),
			FirstHalf:   format.TokPerS(value(f.FirstHalfTokPerS)),
			SecondHalf:  format.TokPerS(value(f.SecondHalfTokPerS)),
			Slowest:     format.TokPerS(value(f.SlowestTokPerS)),
			Fastest:     format.TokPerS(value(f.FastestTokPerS)),
			ColdTTFT:    format.Millis(value(f.ColdTTFTUs)),
		})
	}
	return list
}

// methodFacts says how the run was measured, beyond what the three lists of
// every page say.
func methodFacts(run *ingest.Run) factList {
	m := run.Manifest
	started := ""
	if !m.StartedAt.IsZero() {
		started = m.StartedAt.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	clock := map[runlog.ArrivalClock]string{
		runlog.ArrivalKernel: "the kernel's receive time",
		runlog.ArrivalUser:   "right after the read returned",
	}[m.ArrivalClock]
	l := lists(factList{"method", "How it was measured", []fact{
		{Name: "Started", Value: started},
		{Name: "Definitions", Value: ingest.Method},
		{Name: "Log format", Value: visible(m.Format)},
		{Name: "Collector commit", Value: shortCommit(visible(m.Tool.Commit)), Code: true},
		{Name: "Arrival times", Value: clock},
		{Name: "Decode windows opened when", Value: openings(run)},
		{Name: "Tokens counted by", Value: visible(m.Plan.TokenCounting)},
		{Name: "Prompts counted by", Value: visible(m.Plan.PromptCounting)},
		{Name: "Prompt set", Value: visible(m.Plan.PromptSet), Code: true},
		{Name: "Sampling", Value: sampling(m.Plan.Sampling)},
		{Name: "Output text kept", Value: visible(m.Plan.Text)},
		{Name: "Server metrics", Value: visible(m.Server.Metrics)},
		{Name: "Server's place", Value: visible(m.Server.Address)},
		{Name: "KV cache", Value: kvCache(m.Capacity)},
		{Name: "Requests at once, server's limit", Value: positive(int64(m.Capacity.MaxNumSeqs), "")},
		{Name: "Longest context of the server", Value: positive(int64(m.Model.MaxModelLenTokens), " tokens")},
		{Name: "Model repository", Value: visible(m.Model.Repository)},
		{Name: "Weights", Value: visible(m.Model.WeightsDigest), Code: true},
		{Name: "Driver", Value: eachDistinct(m.Hardware.GPUs, func(g runlog.GPU) string { return visible(g.Driver) })},
		{Name: "Power limit", Value: eachDistinct(m.Hardware.GPUs, powerLimit)},
		{Name: "CPU", Value: visible(m.Hardware.CPU)},
		{Name: "Memory", Value: memory(m.Hardware.MemoryBytes)},
		{Name: "Kernel", Value: visible(m.Hardware.Kernel)},
		{Name: "Launch", Value: launch(m.Launch)},
		{Name: "Sources of the engine's facts", Value: sources(m.Engine)},
	}})
	if len(l) == 0 {
		return factList{}
	}
	return l[0]
}

// openings says why the decode windows opened when they did, and so that the
// time before, when fewer requests ran, is in none.
func openings(run *ingest.Run) string {
	by := map[string]int{}
	for _, c := range phaseCells(run, runlog.PhaseDecode) {
		if r := c.Ready; r != nil {
			words := map[string]string{
				"metrics and streams": "all requests delivered output and the server ran them",
				"streams":             "all requests delivered output",
				"timeout":             "they did not fill up in time",
			}
			by[cmp.Or(words[r.By], visible(r.By))]++
		}
	}
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", s, by[s]))
	}
	return join(", ", parts...)
}

func sampling(s runlog.Sampling) string {
	if s.TopP <= 0 { // never a real value: not recorded
		return ""
	}
	float := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	eos := "end-of-text token ignored"
	if !s.IgnoreEOS {
		eos = "end-of-text token obeyed"
	}
	seeds := "no seeds"
	if s.Seeded {
		seeds = "a seed for every request"
	}
	return "temperature " + float(s.Temperature) + ", top-p " + float(s.TopP) + ", " + seeds + ", " + eos
}

func positive(n int64, unit string) string {
	if n <= 0 {
		return ""
	}
	return format.Int(n) + unit
}

func kvCache(c runlog.Capacity) string {
	s := positive(c.KVCacheTokens, " tokens")
	if s == "" {
		return ""
	}
	if c.Engines > 1 {
		s += fmt.Sprintf(" in %d engines", c.Engines)
	}
	if c.Source != "" {
		s += " (" + visible(c.Source) + ")"
	}
	return s
}

func powerLimit(g runlog.GPU) string {
	if g.PowerLimitW <= 0 {
		return ""
	}
	return suffix(format.Whole(g.PowerLimitW), " W")
}

func memory(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return format.GiB(bytes) + " GiB"
}

func eachDistinct(gpus []runlog.GPU, f func(runlog.GPU) string) string {
	var list []string
	for _, g := range gpus {
		if s := f(g); s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return strings.Join(list, " + ")
}

func launch(l runlog.Launch) string {
	var parts []string
	if l.Index > 0 {
		parts = append(parts, "number "+strconv.Itoa(l.Index))
	}
	if l.Group != "" {
		parts = append(parts, "session "+visible(l.Group))
	}
	if l.Order > 0 {
		parts = append(parts, "place "+strconv.Itoa(l.Order)+" in its order")
	}
	if l.Restarted != nil {
		parts = append(parts, map[bool]string{true: "server started anew", false: "server was already running"}[*l.Restarted])
	}
	return strings.Join(parts, ", ")
}

// sources says where the engine's facts come from, one source after the other.
func sources(e runlog.Engine) string {
	by := map[runlog.FactSource][]string{}
	add := func(name string, known bool, source runlog.FactSource) {
		if known && source != "" {
			by[source] = append(by[source], name)
		}
	}
	for _, f := range []struct {
		name string
		fact *runlog.Fact
	}{
		{"engine", e.Name}, {"version", e.Version}, {"quantization", e.Quantization}, {"backend", e.Backend},
		{"repository", e.Repository}, {"build", e.Build}, {"commit", e.Commit},
	} {
		if f.fact != nil {
			add(f.name, f.fact.Value != "", f.fact.Source)
		}
	}
	if e.LaunchCommand != nil {
		add("launch command", true, e.LaunchCommand.Source)
	}
	if e.Environment != nil {
		add("environment", true, e.Environment.Source)
	}
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, visible(string(s))+": "+strings.Join(by[s], ", "))
	}
	return strings.Join(parts, " · ")
}

// logFiles returns the entries of a run's data files in page order.
func logFiles(m *runlog.Manifest) []runlog.FileInfo {
	var list []runlog.FileInfo
	if m.Warmup != nil {
		list = append(list, m.Warmup.FileInfo)
	}
	cells := slices.Clone(m.Cells)
	slices.SortStableFunc(cells, func(a, b runlog.Cell) int {
		return cmp.Or(-cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.ContextTokens, b.ContextTokens), cmp.Compare(a.Concurrency, b.Concurrency))
	})
	for _, c := range cells {
		list = append(list, c.FileInfo)
	}
	if m.Telemetry != nil {
		list = append(list, m.Telemetry.FileInfo)
	}
	return slices.DeleteFunc(list, func(f runlog.FileInfo) bool { return f.File == "" })
}

func files(m *runlog.Manifest, raw string) []file {
	var list []file
	for _, f := range logFiles(m) {
		list = append(list, file{visible(f.File), raw + escapePath(f.File), format.Int(f.Rows), format.Int(f.Bytes), visible(f.SHA256)})
	}
	return list
}

func links(in Input, raw string, twins bool) []link {
	var list []link
	if twins {
		list = append(list,
			link{"index.json", "index.json", "every figure, unrounded, with its evidence"},
			link{"cells.csv", "cells.csv", "the table above, unrounded"},
			link{"index.md", "index.md", "this page as Markdown"},
			link{cellsTwin, cellsTwin, "each measurement as Markdown: percentiles, requests, event file, command"})
	}
	list = append(list, link{runlog.ManifestFile, raw + runlog.ManifestFile, "what was planned, on what, with the checksums of all files"})
	if len(in.Notes) > 0 {
		list = append(list, link{runlog.NotesFile, raw + runlog.NotesFile, "the notes as they were written"})
	}
	return list
}

// inspectCommand returns the command that prints the arithmetic behind one
// cell: a Valid one where there is any.
func inspectCommand(run *ingest.Run, labels map[int32]string) string {
	cells := phaseCells(run, runlog.PhaseDecode)
	if len(cells) == 0 {
		return visible("speedmatrix inspect " + shell.Quote("results/"+run.ID))
	}
	return inspectCell(run, cmp.Or(best(run), cells[0]), labels)
}
