package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"speedmatrix/collect"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"

	"golang.org/x/term"
)

// A progress shows a run while it goes on: on a terminal as a matrix that
// fills in, elsewhere as a line for each finished cell and a heartbeat in
// long ones. All of it is talk, on stderr.
type progress struct {
	w     io.Writer
	now   func() time.Time
	live  bool
	width func() int
	done  chan struct{}
	wg    sync.WaitGroup

	mu       sync.Mutex
	manifest *runlog.Manifest // copy
	results  map[runlog.Key]string
	cell     int // in progress; −1: none
	stage    collect.Stage
	since    time.Time // of the stage
	limit    time.Duration
	began    time.Time // of the first cell
	chunks   func() int64
	last     int64 // chunks at the last look
	lastAt   time.Time
	rate     float64 // events per second
	drawn    int     // lines on the terminal that the next drawing replaces
	beat     time.Time
}

// heartbeat is how long a cell may go on without a line where there is no terminal.
const heartbeat = 30 * time.Second

func newProgress(w io.Writer, now func() time.Time) *progress {
	p := &progress{w: w, now: now, cell: -1, results: map[runlog.Key]string{}, done: make(chan struct{}), beat: now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == "" {
		p.live = true
		p.width = func() int {
			if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 20 {
				return n
			}
			return 80
		}
	}
	p.wg.Go(p.ticker)
	return p
}

func (p *progress) ticker() {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-t.C:
		}
		p.mu.Lock()
		p.measureRate()
		switch {
		case p.live && p.manifest != nil:
			p.draw(p.lines())
		case !p.live && p.cell >= 0 && p.now().Sub(p.beat) >= heartbeat:
			p.beat = p.now()
			fmt.Fprintf(p.w, "        %s\n", p.current())
		}
		p.mu.Unlock()
	}
}

// measureRate updates the events per second over the last second or so.
func (p *progress) measureRate() {
	if p.chunks == nil {
		return
	}
	now := p.now()
	if d := now.Sub(p.lastAt); d >= time.Second {
		n := p.chunks()
		p.rate = float64(n-p.last) / d.Seconds()
		p.last, p.lastAt = n, now
	}
}

// update takes one piece of news.
func (p *progress) update(u collect.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.Note != "" {
		p.say("  " + u.Note)
		return
	}
	m := *u.Manifest
	m.Cells = slices.Clone(u.Manifest.Cells)
	p.manifest, p.chunks = &m, u.Chunks
	if p.began.IsZero() {
		p.began, p.lastAt = p.now(), p.now()
		for i := range m.Cells {
			if c := &m.Cells[i]; c.Outcome != runlog.OutcomePending {
				p.results[c.Key()] = string(c.Outcome)
			}
		}
	}
	if !u.Ended {
		p.cell, p.stage, p.limit, p.since = u.Cell, u.Stage, u.Limit, p.now()
		return
	}
	c := &m.Cells[u.Cell]
	folded := ingest.Fold(&m, *c, u.Events, u.Sample)
	p.results[c.Key()] = brief(&folded)
	p.cell, p.beat = -1, p.now()
	if !p.live {
		fmt.Fprintf(p.w, "%3d/%d  %s: %s\n", p.finished(), len(m.Cells), title(c), describe(&folded))
	} else if folded.Status != ingest.Valid {
		p.say(fmt.Sprintf("  %s: %s", title(c), describe(&folded)))
	}
}

// say prints a line above the live matrix.
func (p *progress) say(line string) {
	p.erase()
	fmt.Fprintln(p.w, line)
}

// close ends the display and returns the manifest as last seen, nil when
// there never was one.
func (p *progress) close() *runlog.Manifest {
	close(p.done)
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && p.manifest != nil {
		p.cell = -1
		p.draw(p.lines())
		p.drawn = 0
	}
	return p.manifest
}

func (p *progress) finished() (n int) {
	for i := range p.manifest.Cells {
		if p.manifest.Cells[i].Outcome != runlog.OutcomePending {
			n++
		}
	}
	return n
}

// title names a cell: "decode 8K × 16", "prefill 128K".
func title(c *runlog.Cell) string {
	if c.Phase == runlog.PhasePrefill {
		return "prefill " + contextLabel(c.ContextTokens)
	}
	return fmt.Sprintf("decode %s × %d", contextLabel(c.ContextTokens), c.Concurrency)
}

func contextLabel(tokens int32) string {
	if tokens < 1024 {
		return fmt.Sprint(tokens)
	}
	return fmt.Sprintf("%dK", tokens/1024)
}

// brief is a cell's result in a few characters.
func brief(c *ingest.Cell) string {
	rate := c.Figures.TotalTokPerS
	if c.Phase == runlog.PhasePrefill {
		rate = c.Figures.PrefillTokPerS
	}
	if c.Status == ingest.Valid && rate.Known() {
		return fmt.Sprintf("%.1f", rate.Value)
	}
	return c.Status.String()
}

// describe is a cell's result in a line.
func describe(c *ingest.Cell) string {
	f := &c.Figures
	if c.Status != ingest.Valid {
		if len(c.Evidence) > 0 {
			return c.Status.String() + ": " + c.Evidence[0].Text
		}
		return c.Status.String()
	}
	s := brief(c) + " tok/s"
	if f.TTFTUs.Known() {
		s += fmt.Sprintf(", TTFT %.0f ms", f.TTFTUs.Value/1e3)
	}
	if f.BetweenTokensUs.Known() {
		s += fmt.Sprintf(", %.1f ms between tokens", f.BetweenTokensUs.Value/1e3)
	}
	return s
}

// current describes the cell in progress: where it is, how long, how fast.
func (p *progress) current() string {
	if p.cell < 0 || p.manifest == nil {
		return ""
	}
	elapsed := p.now().Sub(p.since)
	s := fmt.Sprintf("%s: %s %s", title(&p.manifest.Cells[p.cell]), p.stage, seconds(elapsed))
	if p.limit > 0 {
		s += " of " + seconds(p.limit)
		if p.stage == collect.StageRamp {
			s += " at most"
		}
	}
	if p.rate > 0 {
		s += fmt.Sprintf(", %.0f events/s", p.rate)
	}
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%d s", int(d.Seconds())) }

// remaining estimates the time to the end from the cells done so far. ""
// before there is one.
func (p *progress) remaining() string {
	m := p.manifest
	done, left := 0, 0
	for i := range m.Cells {
		switch c := &m.Cells[i]; {
		case c.Outcome == runlog.OutcomePending:
			left++
		case c.Outcome != runlog.OutcomeOverCapacity:
			done++
		}
	}
	if done == 0 || left == 0 {
		return ""
	}
	each := p.now().Sub(p.began) / time.Duration(done)
	return fmt.Sprintf("about %v left", (each * time.Duration(left)).Round(time.Minute).String())
}

// lines draws the matrix as it stands.
func (p *progress) lines() []string {
	m := p.manifest
	const row, col = 9, 10
	cell := func(k runlog.Key) string {
		if s, ok := p.results[k]; ok {
			return clipText(s, col-1)
		}
		if p.cell >= 0 && m.Cells[p.cell].Key() == k {
			return "▸ " + seconds(p.now().Sub(p.since))
		}
		return "·"
	}
	head := fmt.Sprintf("%-*s%*s", row, "tok/s", col, "prefill")
	for _, c := range m.Plan.Concurrency {
		head += fmt.Sprintf("%*d", col, c)
	}
	out := []string{head}
	contexts := slices.Concat(m.Plan.ContextsTokens, m.Plan.PrefillContextsTokens)
	slices.Sort(contexts)
	for _, context := range slices.Compact(contexts) {
		s := fmt.Sprintf("%-*s", row, contextLabel(context))
		if slices.Contains(m.Plan.PrefillContextsTokens, context) {
			s += pad(cell(runlog.Key{Phase: runlog.PhasePrefill, ContextTokens: context, Concurrency: 1}), col)
		} else {
			s += strings.Repeat(" ", col)
		}
		if slices.Contains(m.Plan.ContextsTokens, context) {
			for _, c := range m.Plan.Concurrency {
				s += pad(cell(runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: context, Concurrency: c}), col)
			}
		}
		out = append(out, s)
	}
	status := fmt.Sprintf("%d/%d", p.finished(), len(m.Cells))
	for _, s := range []string{p.current(), p.remaining()} {
		if s != "" {
			status += "  " + s
		}
	}
	return append(out, status)
}

// pad right-aligns by characters.
func pad(s string, width int) string {
	return strings.Repeat(" ", max(0, width-len([]rune(s)))) + s
}

func clipText(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// erase removes the last drawing.
func (p *progress) erase() {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// draw replaces the last drawing, in one write and as one update of the
// screen where the terminal can (mode 2026), so that nothing flickers.
func (p *progress) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[?2026h")
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	for _, l := range lines {
		b.WriteString("\x1b[2K")
		b.WriteString(clipText(l, p.width()))
		b.WriteByte('\n')
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	io.WriteString(p.w, b.String())
	p.drawn = len(lines)
}
