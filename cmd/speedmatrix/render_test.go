package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

// writeTinyRun writes a run without any event: one cell that did not fit.
func writeTinyRun(t *testing.T, dir string) {
	t.Helper()
	m := runlog.Manifest{
		Format: runlog.Format, Tool: runlog.Tool{Name: "speedmatrix"}, Finished: true,
		StartedAt: time.Date(2026, 11, 29, 10, 15, 0, 0, time.UTC), ArrivalClock: runlog.ArrivalUser,
		Model: runlog.Model{Repository: "org/tiny"},
		Plan: runlog.Plan{
			ContextsTokens: []int32{8192}, Concurrency: []int32{1}, DurationUs: 30e6, MaxOutputTokens: 4096, PromptSet: "x", Text: "full",
			Sampling: runlog.Sampling{TopP: 1}, DecodeTest: "fixed duration", PrefillMode: "measured during decode warm-up", TokenCounting: "token ids",
		},
		Capacity: runlog.Capacity{KVCacheTokens: 1000, Engines: 1},
		Cells:    []runlog.Cell{{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1, Outcome: runlog.OutcomeOverCapacity}},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := runlog.WriteManifest(dir, &m); err != nil {
		t.Fatal(err)
	}
}

// commandLine runs one command line.
func commandLine(args ...string) (status int, stdout, stderr string) {
	var out, talk bytes.Buffer
	status = run(context.Background(), args, &out, &talk)
	return status, out.String(), talk.String()
}

func TestRender(t *testing.T) {
	dir := t.TempDir()
	results, site := filepath.Join(dir, "results"), filepath.Join(dir, "site")
	writeTinyRun(t, filepath.Join(results, "a"))
	writeTinyRun(t, filepath.Join(results, "deeper", "b"))
	exists := func(parts ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{site}, parts...)...))
		return err == nil
	}

	status, stdout, stderr := commandLine("render", results, "-o", site)
	if status != exitDone || stdout != filepath.Join(site, "index.html")+"\n" || !strings.Contains(stderr, "2 runs rendered") {
		t.Fatalf("got status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if !exists("runs", "a", "index.html") || !exists("runs", "b", "index.md") {
		t.Error("a page is missing")
	}

	// Runs inside the site itself, and a run given twice, count once.
	if status, _, stderr = commandLine("render", dir, filepath.Join(results, "a"), "-o", site); status != exitDone || !strings.Contains(stderr, "2 runs rendered") {
		t.Errorf("with the site among the roots: status %d, stderr %q", status, stderr)
	}

	if status, _, stderr = commandLine("render", filepath.Join(results, "a"), "--output", site); status != exitDone || !strings.Contains(stderr, "1 run rendered") || exists("runs", "b") {
		t.Errorf("a single run: status %d, stderr %q", status, stderr)
	}

	// A run that can't be read ends it, and the site stays.
	if err := os.WriteFile(filepath.Join(results, "deeper", "b", runlog.ManifestFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = commandLine("render", results, "-o", site)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, filepath.Join("b", runlog.ManifestFile)) || !strings.Contains(stderr, "nothing was written") {
		t.Errorf("a damaged run: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if !exists("runs", "a", "index.html") {
		t.Error("a damaged run took the old site away")
	}
}

func TestRenderMistakes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		rule   string
		args   []string
		status int
		want   string
	}{
		{"no run there", []string{dir, "-o", filepath.Join(dir, "site")}, exitFailed, "hint: a run is a directory with a run.json"},
		{"nothing there", []string{filepath.Join(dir, "nowhere")}, exitFailed, "does not exist"},
		{"no output", []string{dir, "-o", ""}, exitUsage, "--output is empty"},
		{"an unknown flag", []string{"--colour"}, exitUsage, "--colour"},
	} {
		status, stdout, stderr := commandLine(append([]string{"render"}, c.args...)...)
		if status != c.status || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want %d and %q", c.rule, status, stdout, stderr, c.status, c.want)
		}
	}
	if status, stdout, stderr := commandLine("render", "--help"); status != exitDone || stdout != renderHelp || stderr != "" {
		t.Errorf("--help: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if lines := strings.Count(renderHelp, "\n"); lines > 24 {
		t.Errorf("the help has %d lines, more than a screen", lines)
	}
}
