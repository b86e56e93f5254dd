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
	w    io.Writer
	now  func() time.Time
	size func() (columns, lines int) // of the terminal; nil: there is none
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	manifest *runlog.Manifest // copy; nil until there is a plan
	results  map[runlog.Key]string
	cell     int // in progress; −1: none
	doing    string
	since    time.Time     // of the stage
	limit    time.Duration // of the stage; 0: none
	atMost   bool          // the stage may end before its limit
	began    time.Time     // of the cell
	spent    map[runlog.Phase]spent
	chunks   func() int64
	last     int64 // chunks at the last look
	lastAt   time.Time
	rate     float64 // events per second
	drawn    int     // lines on the terminal that the next drawing replaces
	beat     time.Time
}

// spent is how long the cells of a phase took that this process measured.
type spent struct {
	cells int
	time  time.Duration
}

// heartbeat is how long a cell may go on without a line where there is no terminal.
const heartbeat = 30 * time.Second

// startProgress shows a run on w until close.
func startProgress(w io.Writer) *progress {
	p := newProgress(w, time.Now, terminalSize(w))
	p.wg.Go(func() {
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-t.C:
				p.tick()
			}
		}
	})
	return p
}

// newProgress returns a progress that does nothing by itself: someone must
// call tick a few times a second.
func newProgress(w io.Writer, now func() time.Time, size func() (columns, lines int)) *progress {
	return &progress{
		w: w, now: now, size: size, stop: make(chan struct{}),
		cell: -1, results: map[runlog.Key]string{}, spent: map[runlog.Phase]spent{}, beat: now(),
	}
}

// terminalSize returns a function that asks the terminal behind w for its
// size, nil where w is none that can be drawn on.
func terminalSize(w io.Writer) func() (columns, lines int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" || os.Getenv("CI") != "" {
		return nil
	}
	return func() (int, int) {
		columns, lines, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 || lines <= 0 {
			return 80, 24
		}
		return columns, lines
	}
}

// tick brings the display up to date.
func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measureRate()
	switch {
	case p.size != nil && p.manifest != nil:
		p.draw(p.lines())
	case p.size != nil && p.doing != "" && p.now().Sub(p.since) >= 2*time.Second: // a long warm-up
		p.draw([]string{p.current()})
	case p.size == nil && p.doing != "" && p.now().Sub(p.beat) >= heartbeat:
		p.beat = p.now()
		fmt.Fprintf(p.w, "        %s\n", p.current())
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
		p.doing, p.since, p.beat, p.limit = visible(u.Note), p.now(), p.now(), 0
		return
	}
	p.observe(u)
	if !u.Ended {
		if p.cell != u.Cell {
			p.began = p.now()
		}
		p.cell, p.limit, p.since = u.Cell, u.Limit, p.now()
		p.doing = fmt.Sprintf("%s: %s", title(&p.manifest.Cells[u.Cell]), u.Stage)
		p.atMost = u.Stage == collect.StageRamp
		return
	}
	c := &p.manifest.Cells[u.Cell]
	folded := ingest.Fold(p.manifest, *c, u.Events, u.Sample)
	p.results[c.Key()] = brief(&folded)
	s := p.spent[c.Phase]
	p.spent[c.Phase] = spent{s.cells + 1, s.time + p.now().Sub(p.began)}
	p.cell, p.doing, p.beat = -1, "", p.now()
	p.announce(&folded, p.finished())
}

// observe takes over the manifest, and the first time says what is known
// before anything is measured.
func (p *progress) observe(u collect.Update) {
	first := p.manifest == nil
	m := *u.Manifest
	m.Cells = slices.Clone(u.Manifest.Cells)
	p.manifest, p.chunks = &m, u.Chunks
	if !first {
		return
	}
	p.lastAt, p.last = p.now(), u.Chunks()
	n := 0
	for i := range m.Cells {
		switch c := &m.Cells[i]; c.Outcome {
		case runlog.OutcomePending:
		case runlog.OutcomeOverCapacity:
			n++
			folded := ingest.Fold(&m, *c, nil, nil)
			p.results[c.Key()] = brief(&folded)
			p.announce(&folded, n)
		default: // of the run that is gone on with
			n++
			p.results[c.Key()] = "done"
		}
	}
}

// announce says what became of a cell. The matrix of a terminal shows the
// Valid ones well enough.
func (p *progress) announce(c *ingest.Cell, n int) {
	switch {
	case p.size == nil:
		p.say(fmt.Sprintf("%3d/%d  %s: %s", n, len(p.manifest.Cells), title(&c.Cell), describe(c)))
	case c.Status != ingest.Valid:
		p.say(fmt.Sprintf("  %s: %s", title(&c.Cell), describe(c)))
	}
}

// say prints a line, above the live matrix where there is one.
func (p *progress) say(line string) {
	if p.drawn > 0 {
		fmt.Fprintf(p.w, "\r\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
	fmt.Fprintln(p.w, visible(line))
}

// close ends the display and returns the manifest as last seen, nil when
// there never was one. The matrix stays on the terminal.
func (p *progress) close() *runlog.Manifest {
	close(p.stop)
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size != nil && p.manifest != nil {
		p.cell, p.doing = -1, ""
		lines := p.lines()
		p.draw(lines[:len(lines)-1])
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

// brief is a cell's result in a few characters: its speed, or the first word
// of its status.
func brief(c *ingest.Cell) string {
	if c.Status == ingest.Valid {
		return speed(c)
	}
	word, _, _ := strings.Cut(strings.ReplaceAll(c.Status.String(), "-", " "), " ")
	return word
}

// speed is a cell's tok/s in at most seven characters.
func speed(c *ingest.Cell) string {
	rate := c.Figures.TotalTokPerS
	if c.Phase == runlog.PhasePrefill {
		rate = c.Figures.PrefillTokPerS
	}
	switch {
	case !rate.Known():
		return "—"
	case rate.Value >= 9999.95:
		return fmt.Sprintf("%.1fK", rate.Value/1000)
	}
	return fmt.Sprintf("%.1f", rate.Value)
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
	s := speed(c) + " tok/s"
	if f.TTFTUs.Known() {
		s += fmt.Sprintf(", TTFT %.0f ms", f.TTFTUs.Value/1e3)
	}
	if f.BetweenTokensUs.Known() {
		s += fmt.Sprintf(", %.1f ms between tokens", f.BetweenTokensUs.Value/1e3)
	}
	return s
}

// current describes what goes on: where it is, how long, how fast.
func (p *progress) current() string {
	if p.doing == "" {
		return ""
	}
	s := p.doing + " " + seconds(p.now().Sub(p.since))
	if p.limit > 0 {
		s += " of "
		if p.atMost {
			s += "at most "
		}
		s += fmt.Sprintf("%g s", p.limit.Round(100*time.Millisecond).Seconds())
	}
	if p.rate > 0 {
		s += fmt.Sprintf(", %.0f events/s", p.rate)
	}
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%d s", int(d.Seconds())) }

// remaining estimates the time to the end: a cell takes as long as those of
// its phase have taken so far. "" where that can't be told yet.
func (p *progress) remaining() string {
	m := p.manifest
	var left time.Duration
	for i := range m.Cells {
		c := &m.Cells[i]
		if c.Outcome != runlog.OutcomePending {
			continue
		}
		s := p.spent[c.Phase]
		if s.cells == 0 {
			return ""
		}
		each := s.time / time.Duration(s.cells)
		if i == p.cell {
			each = max(0, each-p.now().Sub(p.began))
		}
		left += each
	}
	switch {
	case left <= 0:
		return ""
	case left < time.Minute:
		return "< 1 min left"
	case left < 90*time.Minute:
		return fmt.Sprintf("about %d min left", int(left.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("about %.1f h left", left.Hours())
}

// lines draws the matrix as it stands, and under it what goes on. Columns
// are as narrow as the terminal wants them, within limits.
func (p *progress) lines() []string {
	m := p.manifest
	columns, _ := p.size()
	const row = 7
	col := max(8, min(10, (columns-row)/(len(m.Plan.Concurrency)+1)))
	cell := func(k runlog.Key) string {
		if s, ok := p.results[k]; ok {
			return clipText(s, col-1)
		}
		if p.cell >= 0 && m.Cells[p.cell].Key() == k {
			return clipText("▸ "+seconds(p.now().Sub(p.began)), col-1)
		}
		return "·"
	}
	head := fmt.Sprintf("%-*s%s", row, "tok/s", pad("prefill", col))
	for _, c := range m.Plan.Concurrency {
		head += pad(fmt.Sprint(c), col)
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
	status := []string{fmt.Sprintf("%d/%d", p.finished(), len(m.Cells)), p.remaining(), p.current()}
	status = slices.DeleteFunc(status, func(s string) bool { return s == "" })
	return append(out, strings.Join(status, " · "))
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

// draw replaces the last drawing, in one write and as one update of the
// screen where the terminal can (mode 2026), so that nothing flickers. Of
// more lines than the terminal has it shows the last: a cursor can't go up
// further than the screen.
func (p *progress) draw(lines []string) {
	columns, rows := p.size()
	lines = lines[max(0, len(lines)-max(1, rows-1)):]
	var b strings.Builder
	b.WriteString("\x1b[?2026h\r") // a ^C of the terminal may stand before the cursor
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	for _, l := range lines {
		b.WriteString("\x1b[2K")
		b.WriteString(clipText(l, columns))
		b.WriteByte('\n')
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	io.WriteString(p.w, b.String())
	p.drawn = len(lines)
}
