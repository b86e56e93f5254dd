package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect"
	"speedmatrix/ingest/runlog"

	"github.com/google/go-cmp/cmp"
)

// A screen is what a progress writes to, under a clock that stands still
// until it is told to go on.
type screen struct {
	t *testing.T
	p *progress
	m *runlog.Manifest

	written strings.Builder
	clock   time.Time
	chunks  int64
}

// newScreen shows a run of two contexts. Without columns there is no terminal.
func newScreen(t *testing.T, columns, lines int) *screen {
	s := &screen{t: t, clock: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)}
	var size func() (int, int)
	if columns > 0 {
		size = func() (int, int) { return columns, lines }
	}
	s.p = newProgress(&s.written, func() time.Time { return s.clock }, size)
	s.m = &runlog.Manifest{
		StartedAt: s.clock, ArrivalClock: runlog.ArrivalUser,
		Plan: runlog.Plan{
			ContextsTokens: []int32{1024, 8192}, Concurrency: []int32{1, 2}, PrefillContextsTokens: []int32{1024, 8192},
			DurationUs: 30e6, MaxOutputTokens: 4000, TokenCounting: "continuous usage",
		},
		Capacity: runlog.Capacity{KVCacheTokens: 16000, Engines: 1},
		Cells: []runlog.Cell{
			{Phase: runlog.PhasePrefill, ContextTokens: 1024, Concurrency: 1, Outcome: runlog.OutcomePending},
			{Phase: runlog.PhasePrefill, ContextTokens: 8192, Concurrency: 1, Outcome: runlog.OutcomePending},
			{Phase: runlog.PhaseDecode, ContextTokens: 1024, Concurrency: 1, Outcome: runlog.OutcomePending},
			{Phase: runlog.PhaseDecode, ContextTokens: 1024, Concurrency: 2, Outcome: runlog.OutcomePending},
			{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1, Outcome: runlog.OutcomePending},
			{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 2, Outcome: runlog.OutcomeOverCapacity},
		},
	}
	return s
}

func (s *screen) update(u collect.Update) {
	u.Manifest, u.Chunks = s.m, func() int64 { return s.chunks }
	s.p.update(u)
}

func (s *screen) stage(cell int, stage collect.Stage, limit time.Duration) {
	s.update(collect.Update{Cell: cell, Stage: stage, Limit: limit})
}

// pass lets time go by in ticks of the display, with so many chunks a second.
func (s *screen) pass(d time.Duration, chunksPerSecond int64) {
	const every = 200 * time.Millisecond
	for ; d > 0; d -= every {
		s.clock = s.clock.Add(min(d, every))
		s.chunks += chunksPerSecond / 5
		s.p.tick()
	}
}

// end ends a cell with the events of its only requests: a prefill of 20 ms,
// or one token each millisecond in a window of a second.
func (s *screen) end(cell int, outcome runlog.Outcome, reason string) {
	c := &s.m.Cells[cell]
	c.Outcome, c.Reason = outcome, reason
	ev := &runlog.Events{Key: c.Key()}
	add := func(stream int32, kind runlog.Kind, tUs int64) {
		e := runlog.NewEvent(kind, tUs)
		e.Stream = stream
		if n := ev.Len(); n > 0 && ev.Stream[n-1] == stream {
			e.Seq = ev.Seq[n-1] + 1
		}
		switch kind {
		case runlog.KindChunk:
			e.Tokens, e.Channel, e.HasText, e.Text = 1, runlog.ChannelContent, true, fmt.Sprint(tUs, " ")
			e.PromptTokens = c.ContextTokens
		case runlog.KindError:
			e.Error = reason
		}
		ev.Append(e)
	}
	for stream := range c.Concurrency {
		add(stream, runlog.KindSent, 0)
		switch {
		case outcome == runlog.OutcomeFailed:
			add(stream, runlog.KindError, 10)
		case c.Phase == runlog.PhasePrefill:
			add(stream, runlog.KindChunk, 20_000)
			add(stream, runlog.KindDone, 20_001)
		default:
			open, shut := int64(0), int64(1e6)
			c.WindowOpenUs, c.WindowCloseUs = &open, &shut
			for t := int64(1000); t <= 1_001_000; t += 1000 {
				add(stream, runlog.KindChunk, t)
			}
			add(stream, runlog.KindCancelled, 1_002_000)
		}
	}
	if err := ev.Check(); err != nil {
		s.t.Fatal(err)
	}
	s.update(collect.Update{Cell: cell, Ended: true, Events: ev})
}

// wrote returns what was written since the last call.
func (s *screen) wrote() string {
	w := s.written.String()
	s.written.Reset()
	return w
}

func (s *screen) want(rule, want string) {
	s.t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), s.wrote()); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", rule, diff)
	}
}

// frame is a drawing as it stands on the terminal: what was written for it,
// without the codes that put it there.
func frame(rows ...string) string {
	return "\x1b[?2026h\r" + body(rows)
}

func redrawn(rows ...string) string {
	return fmt.Sprintf("\x1b[?2026h\r\x1b[%dA", len(rows)) + body(rows)
}

func body(rows []string) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString("\x1b[2K" + r + "\n")
	}
	return b.String() + "\x1b[J\x1b[?2026l"
}

const noMatrix = "\r\x1b[4A\x1b[J" // takes a matrix of two contexts away

func TestWithoutATerminalALinePerCell(t *testing.T) {
	s := newScreen(t, 0, 0)
	s.update(collect.Update{Cell: -1, Note: "warm-up at context 8192"})
	s.want("a note is a line", "  warm-up at context 8192\n")
	s.pass(29*time.Second, 100)
	s.want("nothing for half a minute", "")
	s.pass(2*time.Second, 100)
	s.want("then a heartbeat", "        warm-up at context 8192 30 s\n")

	s.stage(0, collect.StageScout, 0)
	s.want("what is over capacity is said before the first cell", "  1/6  decode 8K × 2: Over capacity: 2 × (8,192 context + 4,000 output) tokens, more than the 16,000 tokens of the KV cache\n")
	s.pass(time.Second, 0)
	s.end(0, runlog.OutcomeRecorded, "")
	s.want("a prefill", "  2/6  prefill 1K: 51.2K tok/s, TTFT 20 ms\n")

	s.stage(2, collect.StageRamp, 60*time.Second)
	s.pass(20*time.Second, 1000)
	s.want("no heartbeat yet", "")
	s.pass(10*time.Second, 1000)
	s.want("a heartbeat in a ramp", "        decode 1K × 1: ramp 30 s of at most 60 s, 1000 events/s\n")
	s.stage(2, collect.StageWindow, 30*time.Second)
	s.pass(29*time.Second, 500)
	s.want("heartbeats are half a minute apart, not one for each stage", "")
	s.pass(time.Second, 500)
	s.want("a heartbeat in a window", "        decode 1K × 1: window 30 s of 30 s, 500 events/s\n")
	s.end(2, runlog.OutcomeRecorded, "")
	s.want("a decode cell", "  3/6  decode 1K × 1: 1000.0 tok/s, TTFT 1 ms, 1.0 ms between tokens\n")

	s.stage(3, collect.StageRamp, 60*time.Second)
	s.end(3, runlog.OutcomeFailed, "HTTP 500: \x1b[31mout of\nslots")
	got := s.wrote()
	if strings.ContainsRune(got, '\x1b') || strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "  4/6  decode 1K × 2: Failed: ") || !strings.Contains(got, "out of") {
		t.Errorf("a failed cell: %q, want one line without control codes that names the reason", got)
	}
	if m := s.p.close(); m == nil || len(m.Cells) != 6 {
		t.Errorf("close = %v, want the manifest", m)
	}
	s.want("nothing at the end", "")
}

func TestOnATerminalAMatrixFillsIn(t *testing.T) {
	s := newScreen(t, 80, 24)
	s.update(collect.Update{Cell: -1, Note: "warm-up at context 8192"})
	s.want("a note is a line", "  warm-up at context 8192\n")
	s.pass(time.Second, 0)
	s.want("a short warm-up is just that", "")
	s.pass(time.Second, 0)
	s.want("a long one counts its seconds", frame("warm-up at context 8192 2 s"))

	s.stage(0, collect.StageScout, 0)
	s.want("over capacity takes the line's place", "\r\x1b[1A\x1b[J  decode 8K × 2: Over capacity: 2 × (8,192 context + 4,000 output) tokens, more than the 16,000 tokens of the KV cache\n")
	s.pass(200*time.Millisecond, 0)
	s.want("the first matrix", frame(
		"tok/s     prefill         1         2",
		"1K          ▸ 0 s         ·         ·",
		"8K              ·         ·      Over",
		"1/6 · prefill 1K: scout 0 s"))
	s.pass(200*time.Millisecond, 0)
	s.want("the next takes its place", redrawn(
		"tok/s     prefill         1         2",
		"1K          ▸ 0 s         ·         ·",
		"8K              ·         ·      Over",
		"1/6 · prefill 1K: scout 0 s"))
	s.pass(9600*time.Millisecond, 0)
	s.wrote()
	s.end(0, runlog.OutcomeRecorded, "")
	s.want("a Valid cell is no line", "")

	s.stage(2, collect.StageRamp, 60*time.Second)
	s.pass(10*time.Second, 1000)
	s.stage(2, collect.StageWindow, 30*time.Second)
	s.pass(20*time.Second-200*time.Millisecond, 1000)
	s.wrote()
	s.pass(200*time.Millisecond, 1000)
	s.want("the seconds of the cell in the matrix, of its stage below; no estimate before a decode cell has ended", redrawn(
		"tok/s     prefill         1         2",
		"1K          51.2K    ▸ 30 s         ·",
		"8K              ·         ·      Over",
		"2/6 · decode 1K × 1: window 20 s of 30 s, 1000 events/s"))
	s.pass(10*time.Second, 1000)
	s.end(2, runlog.OutcomeRecorded, "")
	s.stage(3, collect.StageDrain, 0)
	s.wrote()
	s.pass(5*time.Second-200*time.Millisecond, 0)
	s.wrote()
	s.pass(200*time.Millisecond, 0)
	// 10 s of prefill, 40 s of decode, and 35 s of the cell in progress.
	s.want("an estimate", redrawn(
		"tok/s     prefill         1         2",
		"1K          51.2K    1000.0     ▸ 5 s",
		"8K              ·         ·      Over",
		"3/6 · about 1 min left · decode 1K × 2: waiting for the server to be idle 5 s"))
	s.end(3, runlog.OutcomeFailed, "HTTP 500")
	if got := s.wrote(); !strings.HasPrefix(got, noMatrix+"  decode 1K × 2: Failed: ") || strings.Count(got, "\n") != 1 {
		t.Errorf("a failed cell: %q, want a line in the place of the matrix", got)
	}
	s.stage(1, collect.StageScout, 0)
	s.pass(200*time.Millisecond, 0)
	s.want("and the matrix below it", frame(
		"tok/s     prefill         1         2",
		"1K          51.2K    1000.0    Failed",
		"8K          ▸ 0 s         ·      Over",
		"4/6 · < 1 min left · prefill 8K: scout 0 s"))
	if s.p.close() == nil {
		t.Error("close returns no manifest")
	}
	s.want("the matrix stays, without what goes on", "\x1b[?2026h\r\x1b[4A"+body([]string{
		"tok/s     prefill         1         2",
		"1K          51.2K    1000.0    Failed",
		"8K              ·         ·      Over"}))
}

func TestTheMatrixFitsTheTerminal(t *testing.T) {
	s := newScreen(t, 31, 24)
	s.stage(0, collect.StageScout, 0)
	s.wrote()
	s.pass(200*time.Millisecond, 0)
	s.want("narrow: columns of eight, long lines cut", frame(
		"tok/s   prefill       1       2",
		"1K        ▸ 0 s       ·       ·",
		"8K            ·       ·    Over",
		"1/6 · prefill 1K: scout 0 s"))

	s = newScreen(t, 20, 24)
	s.stage(0, collect.StageScout, 0)
	s.wrote()
	s.pass(200*time.Millisecond, 0)
	s.want("too narrow: every line is cut", frame(
		"tok/s   prefill    …",
		"1K        ▸ 0 s    …",
		"8K            ·    …",
		"1/6 · prefill 1K: s…"))

	s = newScreen(t, 80, 3)
	s.stage(0, collect.StageScout, 0)
	s.wrote()
	s.pass(200*time.Millisecond, 0)
	s.want("too low: the last lines", frame(
		"8K              ·         ·      Over",
		"1/6 · prefill 1K: scout 0 s"))

	s = newScreen(t, 80, 24)
	s.m.Plan.Concurrency = []int32{1, 2, 4, 8, 16, 32, 64, 128}
	s.stage(0, collect.StageScout, 0)
	s.wrote()
	s.pass(200*time.Millisecond, 0)
	if header, _, _ := strings.Cut(s.wrote(), "\n"); !strings.HasSuffix(header, "      64     128") {
		t.Errorf("the default plan on 80 columns: header %q, want all of it", header)
	}
}

func TestAResumedRunShowsWhatIsDone(t *testing.T) {
	s := newScreen(t, 80, 24)
	s.m.Cells[0].Outcome, s.m.Cells[2].Outcome = runlog.OutcomeRecorded, runlog.OutcomeRecorded
	s.stage(3, collect.StageScout, 0)
	s.wrote()
	s.pass(200*time.Millisecond, 0)
	s.want("earlier cells are done, and say nothing about the pace", frame(
		"tok/s     prefill         1         2",
		"1K           done      done     ▸ 0 s",
		"8K              ·         ·      Over",
		"3/6 · decode 1K × 2: scout 0 s"))
}

func TestRemainingTime(t *testing.T) {
	for _, tt := range []struct {
		each time.Duration // of a decode cell
		want string
	}{
		{100 * time.Millisecond, "< 1 min left"},
		{29 * time.Second, "< 1 min left"},
		{30 * time.Second, "about 1 min left"},
		{45 * time.Second, "about 2 min left"}, // half to the next
		{40 * time.Minute, "about 80 min left"},
		{time.Hour, "about 2.0 h left"},
	} {
		s := newScreen(t, 80, 24)
		s.stage(0, collect.StageScout, 0)
		s.end(0, runlog.OutcomeRecorded, "")
		s.stage(1, collect.StageScout, 0)
		s.end(1, runlog.OutcomeRecorded, "")
		if got := s.p.remaining(); got != "" {
			t.Errorf("before a decode cell has ended: %q, want nothing", got)
		}
		s.stage(2, collect.StageRamp, 0)
		s.clock = s.clock.Add(tt.each)
		s.end(2, runlog.OutcomeRecorded, "")
		if got := s.p.remaining(); got != tt.want { // two are left
			t.Errorf("cells of %v, two left: %q, want %q", tt.each, got, tt.want)
		}
	}
}

func TestClipText(t *testing.T) {
	for _, tt := range []struct {
		s     string
		width int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"▸ 12 s", 6, "▸ 12 s"}, {"▸ 123 s", 6, "▸ 123…"}, {"ab", 1, "…"}} {
		if got := clipText(tt.s, tt.width); got != tt.want {
			t.Errorf("clipText(%q, %d) = %q, want %q", tt.s, tt.width, got, tt.want)
		}
	}
}
