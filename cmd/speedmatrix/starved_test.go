//go:build unix

package main

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/render"
)

// A collector that gets no processor time says so itself, from its own
// telemetry: the status Client limited. With a signal it is stopped for ten
// steps of the engine, and goes on for a few. The server does not notice.
func TestStarvedCollectorIsClientLimited(t *testing.T) {
	t.Parallel()
	const step = 60 * time.Millisecond
	cell, err := collectSlowly(t, step, func(c *collector, ended <-chan struct{}) {
		for running := true; running; {
			c.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(10 * step)
			c.cmd.Process.Signal(syscall.SIGCONT)
			select {
			case <-ended:
				running = false
			case <-time.After(3 * step):
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if cell.Status != ingest.ClientLimited {
		t.Errorf("stopped three quarters of the time: %s, want %s; evidence %v", cell.Status, ingest.ClientLimited, cell.Evidence)
	}
	if s := cell.Checks.LateChunkShare; s.Known() && s.Value < 0.5 { // ten of thirteen, or more where it had to wait besides
		t.Errorf("%.2f of the chunks were late, want at least half", s.Value)
	}
}

// The same measurement without that is not Client limited, unless the
// machine really has no time for it: then it is asked again.
func TestCollectorThatHasTimeIsNotClientLimited(t *testing.T) {
	t.Parallel()
	for try := 0; ; try++ {
		cell, err := collectSlowly(t, 60*time.Millisecond, func(_ *collector, ended <-chan struct{}) { <-ended })
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(cell.Evidence, func(e ingest.Evidence) bool { return e.Status == ingest.ClientLimited }) {
			if !cell.Checks.LateChunkShare.Known() && !cell.Checks.TimerLatenessUs.Known() {
				t.Error("its lateness is not known, so it was not judged")
			}
			return
		}
		if try == 9 {
			t.Fatalf("%s in each of %d tries, the last time because of %v", ingest.ClientLimited, try+1, cell.Evidence)
		}
		t.Logf("measured again: %v", cell.Evidence)
	}
}

// collectSlowly measures one decode cell of a server that takes step for each
// token, in a process of its own that starve is told of, and returns the cell
// as it is judged.
func collectSlowly(t *testing.T, step time.Duration, starve func(c *collector, ended <-chan struct{})) (*ingest.Cell, error) {
	t.Helper()
	s, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 1024, StepBase: step, StepPerSeq: 1, StepPerKToken: 1})
	if err != nil {
		return nil, err
	}
	ts := httptest.NewServer(s)
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	results := t.TempDir()
	c, err := collectProcess("--url", ts.URL, "--out", results, "--contexts", "256", "--concurrency", "4", "--duration", "3s", "--max-output", "700")
	if err != nil {
		return nil, err
	}
	ended, starved := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(starved)
		starve(c, ended)
	}()
	for c.next() {
	}
	close(ended)
	<-starved // before the process is waited for: afterwards its id may be another's
	status, err := c.end()
	if err != nil || status != 0 {
		return nil, fmt.Errorf("collect ended with status %d, %v: %s", status, err, strings.Join(c.talk, "\n"))
	}
	in, err := render.Open(filepath.Clean(strings.TrimSpace(c.stdout.String())))
	if err != nil {
		return nil, err
	}
	if n := len(in.Run.Decode); n != 1 {
		return nil, fmt.Errorf("%d decode cells, want 1", n)
	}
	return &in.Run.Decode[0], nil
}
