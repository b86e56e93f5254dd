package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/format"
	"speedmatrix/render/internal/shell"
)

// cellsFile is the page of a run's measurements one by one, beside
// index.html, and cellsTwin the same as Markdown.
const (
	cellsFile = "cells.html"
	cellsTwin = "cells.md"
)

// maxRequestRows bounds the list of requests of one measurement.
const maxRequestRows = 32

// A cellsView is the page that shows where each number of a run comes from.
type cellsView struct {
	page
	Heading, Sub string
	Cells        []cellPart
}

// A cellPart is one measurement.
type cellPart struct {
	ID, Name     string
	Status, Slug string
	Headline     string // its result in one line; empty where there is none
	Why, Remarks string
	Spread       []spreadRow
	Drawings     []drawing
	Requests     []requestRow
	Sent, More   string // how many requests, how many the list leaves out
	Since        string // what the instants of requests count from
	File         *file
	Inspect      string
}

// A spreadRow is percentiles of one figure.
type spreadRow struct{ Name, N, P50, P90, P99, Max string }

// A requestRow is one request.
type requestRow struct{ Stream, Request, Sent, TTFT, Tokens, InWindow, Between, LongestGap, End string }

func newCellsView(run *ingest.Run, labels map[int32]string, raw string) *cellsView {
	v := &cellsView{Heading: heading(run), Sub: "Each measurement of this run: how it went over time, percentiles, requests, raw events."}
	v.page = page{Title: "Each measurement – " + v.Heading, Description: v.Sub, Eyebrow: "Each measurement"}
	byName := map[string]file{}
	for _, f := range files(run.Manifest, raw) {
		byName[f.Name] = f
	}
	for _, c := range allCells(run) {
		p := newCellPart(run, c, labels)
		if f, ok := byName[visible(c.File)]; ok && c.File != "" {
			p.File = &f
		}
		v.Cells = append(v.Cells, p)
	}
	return v
}

// besidePage returns the files that belong to a run's page: those of its
// measurements, and each drawing as a file for the Markdown twin.
func besidePage(run *ingest.Run, v *runView, raw string) ([]document, error) {
	cells := newCellsView(run, contextLabels(run), raw)
	cells.Root, cells.Stylesheet, cells.Icon, cells.Around = v.Root, v.Stylesheet, v.Icon, v.Around
	b, err := html("cells.html.tmpl", cells)
	if err != nil {
		return nil, err
	}
	md, err := markdown("cells.md.tmpl", cells)
	if err != nil {
		return nil, err
	}
	list := []document{{cellsFile, b}, {cellsTwin, md}}
	for _, d := range v.Charts {
		list = append(list, document{d.File, d.file()})
	}
	return list, nil
}

// cellID is the anchor of a measurement, on the run's page and on the page
// of its measurements.
func cellID(c *ingest.Cell, labels map[int32]string) string {
	if c.Phase == runlog.PhasePrefill {
		return "prefill-" + labels[c.ContextTokens]
	}
	return "d-" + labels[c.ContextTokens] + "-" + plain(c.Concurrency)
}

func newCellPart(run *ingest.Run, c *ingest.Cell, labels map[int32]string) cellPart {
	id := cellID(c, labels)
	p := cellPart{
		ID: id, Name: labels[c.ContextTokens] + " context, " + atOnce(c.Concurrency),
		Status: c.Status.String(), Slug: c.Status.Slug(),
		Remarks:  remarksOf(c),
		Requests: requestRows(c),
		Since:    "the run began",
		Inspect:  inspectCell(run, c, labels),
	}
	if c.WindowOpenUs != nil {
		p.Since = "the window opened"
	}
	if c.Phase == runlog.PhasePrefill {
		p.Name = "Prefill of " + labels[c.ContextTokens] + " context"
	}
	if n := len(c.Requests); n > 0 {
		p.Sent = requests(n)
		if n > maxRequestRows {
			p.More = format.Int(int64(n-maxRequestRows)) + " more are in the event file."
		}
	}
	if c.Status != ingest.Valid {
		p.Why = sentence(why(c))
		return p
	}
	f := c.Figures
	if c.Phase == runlog.PhasePrefill {
		p.Headline = join(" · ", tokPerS(value(f.PrefillTokPerS)), format.Millis(value(f.TTFTUs))+" TTFT")
	} else {
		p.Headline = join(" · ", tokPerS(value(f.TotalTokPerS)), format.TokPerS(value(f.PerRequestTokPerS))+" per request", format.Millis(value(f.TTFTUs))+" TTFT")
	}
	p.Spread = spreadRows(c)
	p.Drawings = append(streamsDrawing(c, id, p.Name), ratesDrawing(c, id, p.Name)...)
	return p
}

func spreadRows(c *ingest.Cell) []spreadRow {
	var rows []spreadRow
	add := func(name string, p ingest.Percentiles, text func(float64) string) {
		if p.P50.N > 1 { // of one value they say nothing more
			rows = append(rows, spreadRow{name, format.Int(int64(p.P50.N)), text(value(p.P50)), text(value(p.P90)), text(value(p.P99)), text(value(p.Max))})
		}
	}
	add("TTFT", c.Spread.TTFTUs, format.Millis)
	if c.Phase == runlog.PhaseDecode {
		add("Time between tokens", c.Spread.BetweenTokensUs, format.Millis1)
		add("Per request tok/s", c.Spread.PerRequestTokPerS, format.TokPerS)
		add("Gap between events", c.Spread.GapUs, format.Millis1)
	}
	return rows
}

func requestRows(c *ingest.Cell) []requestRow {
	from := int64(0)
	if c.WindowOpenUs != nil {
		from = *c.WindowOpenUs
	}
	var rows []requestRow
	for i := range c.Requests[:min(len(c.Requests), maxRequestRows)] {
		r := &c.Requests[i]
		rows = append(rows, requestRow{
			Stream: plain(r.Stream), Request: plain(r.Request),
			Sent:       strings.Replace(format.Seconds1(float64(r.SentUs-from)), "-", "−", 1), // before the window
			TTFT:       format.Millis(value(r.TTFTUs)),
			Tokens:     knownCount(r.Tokens),
			InWindow:   knownCount(r.WindowTokens),
			Between:    format.Millis1(value(r.BetweenTokensUs)),
			LongestGap: knownGap(r.LongestGapUs),
			End:        requestEnd(r),
		})
	}
	return rows
}

func knownCount(n int64) string {
	if n < 0 {
		return format.Unknown
	}
	return format.Int(n)
}

func knownGap(us int64) string {
	if us < 0 {
		return format.Unknown
	}
	return format.Millis1(float64(us))
}

// requestEnd says how a request ended, in words.
func requestEnd(r *ingest.Request) string {
	switch {
	case r.Failed:
		return "failed: " + visible(r.Reason)
	case r.End == 0:
		return "no end"
	case r.End == runlog.KindCancelled:
		return "stopped by the benchmark"
	case r.FinishReason != "":
		return "completed (" + visible(r.FinishReason) + ")"
	}
	return "completed"
}

// inspectCell returns the command that computes one cell again.
func inspectCell(run *ingest.Run, c *ingest.Cell, labels map[int32]string) string {
	command := "speedmatrix inspect " + shell.Quote("results/"+run.ID) + " --cell "
	if c.Phase == runlog.PhasePrefill {
		return visible(command + "prefill:" + labels[c.ContextTokens])
	}
	return visible(command + labels[c.ContextTokens] + ":" + plain(c.Concurrency))
}

// A check is one answer to the question whether the page can be trusted.
type check struct {
	Name, Found, Means string
	Look               bool // worth a closer look
}

// checks returns what is known of the run's credibility. Whatever could not
// be checked is said.
func checks(run *ingest.Run, labels map[int32]string) []check {
	counts := statusCounts(run)
	all := len(allCells(run))
	valid := counts[ingest.Valid]
	list := []check{{
		Name: "Valid measurements", Found: format.Int(int64(valid)) + " of " + format.Int(int64(all)),
		Means: "Only those have numbers here.",
	}}
	if !run.Manifest.Finished {
		list = append(list, check{"Interrupted", "the run ended before its plan was worked off", "What is missing is marked Not run.", true})
	}
	list = append(list, check{Name: "Launches of the server", Found: "1", Means: "Nothing here says how far another launch would differ."})

	var decode []*ingest.Cell
	for _, c := range phaseCells(run, runlog.PhaseDecode) {
		if c.Status == ingest.Valid {
			decode = append(decode, c)
		}
	}
	if len(decode) == 0 {
		return list
	}
	at := func(c *ingest.Cell) string { return labels[c.ContextTokens] + ", " + atOnce(c.Concurrency) }
	// most returns the cell with the greatest known value of a figure.
	most := func(figure func(*ingest.Cell) ingest.Stat) (top *ingest.Cell, v float64) {
		for _, c := range decode {
			if s := figure(c); s.Known() && (top == nil || s.Value > v) {
				top, v = c, s.Value
			}
		}
		return top, v
	}
	percent := func(v float64) string { return format.One(100*v) + " %" }

	fewest, mostN := decode[0], decode[0]
	for _, c := range decode {
		if c.Figures.TTFTUs.N < fewest.Figures.TTFTUs.N {
			fewest = c
		}
		if c.Figures.TTFTUs.N > mostN.Figures.TTFTUs.N {
			mostN = c
		}
	}
	found := format.Int(int64(fewest.Figures.TTFTUs.N)) + " (" + at(fewest) + ")"
	if mostN != fewest {
		found += " to " + format.Int(int64(mostN.Figures.TTFTUs.N)) + " (" + at(mostN) + ")"
	}
	list = append(list, check{
		Name: "Requests behind the medians", Found: found,
		Means: "A median of a few requests moves with each of them.",
	})
	if c, v := most(func(c *ingest.Cell) ingest.Stat { return c.Checks.HalvesDiffer }); c != nil {
		list = append(list, check{"Halves of a window", "differ by " + percent(v) + " at most (" + at(c) + ")",
			"A server that still warms up, or slows down as it gets hot, is faster in one half.", c.Checks.Unsteady()})
	}
	if c, v := most(func(c *ingest.Cell) ingest.Stat { return c.Checks.SumDiffers }); c != nil {
		list = append(list, check{"Total against the sum of requests", "differ by " + percent(v) + " at most (" + at(c) + ")",
			"Active requests times their median speed should come near the total; it does not where requests differ much.", c.Checks.SumOff()})
	}
	if falls := ingest.TTFTFalls(run.Decode); len(falls) == 0 {
		list = append(list, check{Name: "TTFT under load", Found: "nowhere falls with more requests at once", Means: "A busier server should not answer sooner."})
	} else {
		f := falls[0]
		for _, g := range falls {
			if g.ToUs/g.FromUs < f.ToUs/f.FromUs {
				f = g
			}
		}
		list = append(list, check{"TTFT under load", fmt.Sprintf("falls in %s; most at %s context, from %s to %s at once: %s to %s",
			placeCount(len(falls)), labels[f.ContextTokens], plain(f.From), plain(f.To), format.Millis(f.FromUs), format.Millis(f.ToUs)),
			"A busier server should not answer sooner: few requests are behind these medians, or it was not warm yet.", true})
	}
	if c, v := most(func(c *ingest.Cell) ingest.Stat { return c.Checks.OverrunUs }); c != nil {
		found := "as long as planned"
		if v >= 50_000 {
			found = "up to " + format.Seconds1(v) + " longer than planned (" + at(c) + ")"
		}
		list = append(list, check{Name: "Length of the windows", Found: found, Means: "Tokens are divided by what the window really was."})
	}
	list = append(list, lag(most, at, percent), cacheState(run, decode, percent), serverCount(decode, at, percent))
	return list
}

func placeCount(n int) string {
	if n == 1 {
		return "1 place"
	}
	return strconv.Itoa(n) + " places"
}

// lag says how late the benchmark itself was.
func lag(most func(func(*ingest.Cell) ingest.Stat) (*ingest.Cell, float64), at func(*ingest.Cell) string, percent func(float64) string) check {
	k := check{Name: "The benchmark's own lag", Found: "not recorded", Means: "What the benchmark reads late looks like a pause of the server."}
	if c, v := most(func(c *ingest.Cell) ingest.Stat { return c.Checks.LateChunkShare }); c != nil {
		k.Found = percent(v) + " of the events at most were read late and share a time (" + at(c) + ")"
	} else if c, v := most(func(c *ingest.Cell) ingest.Stat { return c.Checks.TimerLatenessUs }); c != nil {
		k.Found = "its timers were " + format.Millis1(v) + " late at most (p99 of a second; " + at(c) + ")"
	}
	return k
}

// cacheState says how much of the prompts came from the server's cache.
func cacheState(run *ingest.Run, decode []*ingest.Cell, percent func(float64) string) check {
	k := check{Name: "Prompts from the server's cache", Means: "Decode is measured with the prompt in the cache, prefill without."}
	lowest, highest := -1.0, -1.0
	for _, c := range decode {
		if s := c.Figures.CachedShare; s.Known() && (lowest < 0 || s.Value < lowest) {
			lowest = s.Value
		}
	}
	for _, c := range phaseCells(run, runlog.PhasePrefill) {
		if s := c.Figures.CachedShare; c.Status == ingest.Valid && s.Known() {
			highest = max(highest, s.Value)
		}
	}
	var parts []string
	if lowest >= 0 {
		parts = append(parts, "decode "+percent(lowest)+" at least")
	}
	if highest >= 0 {
		parts = append(parts, "prefill "+percent(highest)+" at most")
	}
	k.Found = cmp.Or(join(", ", parts...), "the server did not say")
	return k
}

// serverCount holds the server's count of tokens against the client's.
func serverCount(decode []*ingest.Cell, at func(*ingest.Cell) string, percent func(float64) string) check {
	k := check{Name: "Tokens by the server's own count", Found: "not known: the server gave no counter", Means: "Both counted between the same two instants; a few tokens are under way at each."}
	var worst *ingest.Cell
	n := 0
	off := func(c *ingest.Cell) float64 {
		d := c.Checks.ClientTokens.Value/c.Checks.ServerTokens.Value - 1
		return max(d, -d)
	}
	for _, c := range decode {
		if c.Checks.ServerTokens.Value <= 0 {
			continue
		}
		n++
		if worst == nil || off(c) > off(worst) {
			worst = c
		}
	}
	if worst != nil {
		k.Found = fmt.Sprintf("the benchmark's is off by %s at most (%s; %s compared)", percent(off(worst)), at(worst), measurementsN(n))
		k.Look = worst.Checks.CountOff()
	}
	return k
}

func measurementsN(n int) string {
	if n == 1 {
		return "1 measurement"
	}
	return format.Int(int64(n)) + " measurements"
}
