package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest/runlog"
)

// A restartable is a simulated server that can be stopped and started again
// at one address.
type restartable struct {
	t       *testing.T
	address string
	config  simserver.Config
	server  *http.Server
	starts  int
}

func (r *restartable) start() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Errorf("start server: %v", err)
		return
	}
	r.address = l.Addr().String()
	sim, err := simserver.New(r.config)
	if err != nil {
		r.t.Errorf("start server: %v", err)
		return
	}
	r.starts++
	r.server = &http.Server{Handler: sim}
	go r.server.Serve(l)
}

func (r *restartable) stop() { r.server.Close() }

// launchConfig is a small collection of a server.
func launchConfig(t *testing.T, e *env, address, root string, more ...string) (c collectAgain) {
	t.Helper()
	args := append([]string{"--url", "http://" + address, "--contexts", "512", "--concurrency", "1", "--duration", "150ms", "--max-output", "64", "-o", root}, more...)
	cfg, again, err := repeatedCollect(e, args)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ReadyHold, cfg.DrainHold = 30*time.Millisecond, 20*time.Millisecond
	return collectAgain{again, func(restart func(context.Context) (bool, error)) error { return again.runEach(e, cfg, restart) }}
}

type collectAgain struct {
	repetition
	run func(restart func(context.Context) (bool, error)) error
}

// Launches are one session: numbered, each with prompts of its own, and it
// is known of each but the first whether the server was started anew.
func TestLaunches(t *testing.T) {
	s := &restartable{t: t, address: "127.0.0.1:0", config: simserver.Config{Seed: 1, Speed: 4, MaxModelLen: 4096}}
	s.start()
	defer func() { s.stop() }()
	var stdout, stderr bytes.Buffer
	e := &env{ctx: t.Context(), stdout: &stdout, stderr: &stderr}
	c := launchConfig(t, e, s.address, t.TempDir(), "--launches", "3", "--name", "tiny")
	answers := []bool{true, false}
	up := make(chan struct{})
	err := c.run(func(context.Context) (bool, error) {
		anew := answers[0]
		answers = answers[1:]
		if anew { // it comes up only after the command has ended
			s.stop()
			time.AfterFunc(50*time.Millisecond, func() { s.start(); close(up) })
		}
		return anew, nil
	})
	if err != nil {
		t.Fatalf("%v; stderr %s", err, stderr.String())
	}
	<-up
	dirs := strings.Fields(stdout.String())
	var names, salts []string
	for i, dir := range dirs {
		m, err := runlog.ReadManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		names, salts = append(names, filepath.Base(dir)), append(salts, m.Plan.Salt)
		first, err := runlog.ReadManifest(dirs[0])
		if err != nil {
			t.Fatal(err)
		}
		if l := m.Launch; l.Group == "" || l.Group != first.Launch.Group || l.Index != i+1 || l.Order != i+1 {
			t.Errorf("launch %d: group %q, index %d, order %d; want the session %q and %d", i+1, l.Group, l.Index, l.Order, first.Launch.Group, i+1)
		}
		if got, want := m.Launch.Restarted, []*bool{nil, new(true), new(false)}[i]; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("launch %d: restarted %v, want %v", i+1, got, want)
		}
		if !m.Finished {
			t.Errorf("launch %d is not finished", i+1)
		}
	}
	if want := []string{"tiny-1", "tiny-2", "tiny-3"}; !slices.Equal(names, want) {
		t.Errorf("runs %q, want %q", names, want)
	}
	if slices.Sort(salts); len(slices.Compact(salts)) != 3 {
		t.Errorf("salts %q, want three", salts)
	}
	if s.starts != 2 {
		t.Errorf("the server was started %d times, want 2", s.starts)
	}
}

// A restart that goes wrong ends it, and what was measured is kept.
func TestLaunchesEndWhereARestartFails(t *testing.T) {
	s := &restartable{t: t, address: "127.0.0.1:0", config: simserver.Config{Seed: 1, Speed: 4, MaxModelLen: 4096}}
	s.start()
	defer s.stop()
	var stdout, stderr bytes.Buffer
	e := &env{ctx: t.Context(), stdout: &stdout, stderr: &stderr}
	c := launchConfig(t, e, s.address, t.TempDir(), "--launches", "2", "--restart-command", filepath.Join(t.TempDir(), "missing"))
	err := c.run(func(ctx context.Context) (bool, error) { return true, runRestart(ctx, e.stderr, c.restart) })
	if err == nil || !strings.Contains(err.Error(), "start server anew: run ") {
		t.Errorf("error %v, want that of the command", err)
	}
	dirs := strings.Fields(stdout.String())
	if len(dirs) != 1 {
		t.Fatalf("directories %q, want one", dirs)
	}
	if m, err := runlog.ReadManifest(dirs[0]); err != nil || !m.Finished {
		t.Errorf("first launch: %v, want it finished", err)
	}
}

// The restart command is run to its end, its words go to stderr.
func TestRunRestart(t *testing.T) {
	t.Setenv(roleVariable, "main")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var talk bytes.Buffer
	if err := runRestart(t.Context(), &talk, []string{exe, "version"}); err != nil || !strings.Contains(talk.String(), "speedmatrix devel") && !strings.Contains(talk.String(), "speedmatrix v") {
		t.Errorf("error %v, said %q", err, talk.String())
	}
	if err := runRestart(t.Context(), io.Discard, []string{exe, "no-such-command"}); err == nil {
		t.Error("a command with exit status 2 is no error")
	}
}

func TestAskForRestart(t *testing.T) {
	for _, tt := range []struct {
		typed string
		anew  bool
		fails bool
	}{{"\n", true, false}, {"same\n", false, false}, {"", false, true}} {
		anew, err := askForRestart(t.Context(), io.Discard, bufio.NewReader(strings.NewReader(tt.typed)))
		if anew != tt.anew || (err != nil) != tt.fails {
			t.Errorf("typed %q: anew %v, error %v; want %v, error %v", tt.typed, anew, err, tt.anew, tt.fails)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r, w := io.Pipe()
	defer w.Close()
	if _, err := askForRestart(ctx, io.Discard, bufio.NewReader(r)); !errors.Is(err, context.Canceled) {
		t.Errorf("Ctrl-C while asking: error %v, want %v", err, context.Canceled)
	}
}

func TestLaunchFlags(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	for _, tt := range []struct{ flags, want string }{
		{"--launches 0", "--launches is 0"},
		{"--launches 101", "--launches is 101"},
		{"--restart-command x", "--restart-command without --launches"},
		{"--launches 2 --resume x", "exclude each other"},
		{"--launches 2 --name " + strings.Repeat("n", maxName-1), "too long for the last launch"},
		{"--launches 2 --restart-command ''", "needs someone who starts the server anew"}, // no terminal in a test
	} {
		status, _, stderr := commandLine(append([]string{"collect", "--url", u.String()}, splitCommand(tt.flags)...)...)
		if status != exitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: status %d, %q; want %d and %q", tt.flags, status, stderr, exitUsage, tt.want)
		}
	}
}
