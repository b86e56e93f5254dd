package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect"

	"github.com/rogpeppe/go-internal/testscript"
)

// roleVariable makes the test binary play another part than running tests.
const roleVariable = "SPEEDMATRIX_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "main":
		main()
	case "quick collect":
		os.Exit(quickCollect())
	case "stubborn":
		beStubborn()
	}
	testscript.Main(m, map[string]func(){"speedmatrix": main})
}

// quickCollect is speedmatrix collect that does not wait for long around its
// windows, and is the same in everything else.
func quickCollect() int {
	e := &env{ctx: interruptible(), stdout: os.Stdout, stderr: os.Stderr}
	cfg, err := collectConfig(e, os.Args[1:])
	if err != nil {
		return report(os.Stderr, "collect", err)
	}
	cfg.ReadyHold, cfg.DrainHold = 30*time.Millisecond, 20*time.Millisecond
	dir, err := measure(e, cfg)
	if dir != "" {
		io.WriteString(os.Stdout, dir+"\n")
	}
	return report(os.Stderr, "collect", err)
}

// beStubborn ignores the first Ctrl-C, which it only confirms.
func beStubborn() {
	ctx := interruptible()
	io.WriteString(os.Stdout, "ready\n")
	<-ctx.Done()
	io.WriteString(os.Stdout, "interrupted\n")
	time.Sleep(time.Minute)
	os.Exit(exitFailed)
}

// What scripts can't say: the exact exit status, and which stream was silent.
func TestExitStatus(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "results")
	writeTinyRun(t, filepath.Join(results, "a"))
	a, missing, site := filepath.Join(results, "a"), filepath.Join(dir, "missing"), filepath.Join(dir, "site")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, plan := file("empty.key", "\n"), file("plan.json", `{"contexts": 8192, "colour": "red"}`)
	broken := file("broken.json", `{"contexts": `)
	long := file("trailing.json", `{"contexts": "8K"} {}`)
	const nowhere = "http://127.0.0.1:1"

	type want struct {
		status         int
		stdout, stderr string // contained; "" means silence
	}
	for _, tt := range []struct {
		rule string
		args []string
		want want
	}{
		{"no command", nil, want{exitUsage, "", "Usage:"}},
		{"help is data", []string{"--help"}, want{exitDone, "Usage:", ""}},
		{"help by name", []string{"help"}, want{exitDone, "Usage:", ""}},
		{"help by letter", []string{"-h"}, want{exitDone, "Usage:", ""}},
		{"version", []string{"version"}, want{exitDone, "speedmatrix ", ""}},
		{"version as a flag", []string{"--version"}, want{exitDone, "speedmatrix ", ""}},
		{"version takes nothing", []string{"version", "x"}, want{exitUsage, "", `unexpected argument "x"`}},
		{"unknown command", []string{"measure"}, want{exitUsage, "", `unknown command "measure"`}},
		{"unknown flag before the command", []string{"--frobnicate"}, want{exitUsage, "", `unknown command "--frobnicate"`}},

		{"collect without a server", []string{"collect"}, want{exitUsage, "", "no server given"}},
		{"collect takes no arguments", []string{"collect", "results"}, want{exitUsage, "", `unexpected argument "results"`}},
		{"collect with a wrong URL", []string{"collect", "--url", "ftp://x"}, want{exitUsage, "", "ftp"}},
		{"collect with a wrong number", []string{"collect", "--url", nowhere, "--contexts", "8Q"}, want{exitUsage, "", `"8Q" is not a number of tokens`}},
		{"collect with a window too short", []string{"collect", "--url", nowhere, "--duration", "99ms"}, want{exitUsage, "", "want at least 100ms"}},
		{"collect with a plan of unknown keys", []string{"collect", "--url", nowhere, "--plan", plan}, want{exitUsage, "", `unknown key "colour"`}},
		{"collect with a plan that is no JSON", []string{"collect", "--url", nowhere, "--plan", broken}, want{exitFailed, "", "broken.json"}},
		{"collect with two plans in a file", []string{"collect", "--url", nowhere, "--plan", long}, want{exitFailed, "", "trailing.json"}},
		{"collect without the plan file", []string{"collect", "--url", nowhere, "--plan", missing}, want{exitFailed, "", "read plan"}},
		{"collect without the key file", []string{"collect", "--url", nowhere, "--api-key-file", missing}, want{exitFailed, "", "read API key"}},
		{"collect with an empty key file", []string{"collect", "--url", nowhere, "--api-key-file", key}, want{exitFailed, "", "does not hold one line with a key"}},
		{"collect where nothing listens", []string{"collect", "--url", nowhere, "-o", filepath.Join(dir, "none")}, want{exitFailed, "", "connection refused"}},
		{"collect resumes no directory", []string{"collect", "--url", nowhere, "--resume", missing}, want{exitFailed, "", "read manifest"}},

		{"render", []string{"render", results, "-o", site}, want{exitDone, filepath.Join(site, "index.html"), "1 run rendered"}},
		{"render without runs", []string{"render", missing, "-o", site}, want{exitFailed, "", "does not exist"}},
		{"render with an unknown flag", []string{"render", "--colour"}, want{exitUsage, "", "unknown flag: --colour"}},

		{"inspect", []string{"inspect", a}, want{exitDone, "runlog/1", ""}},
		{"inspect as JSON", []string{"inspect", a, "--json"}, want{exitDone, `"run_id": "a"`, ""}},
		{"inspect without a run", []string{"inspect"}, want{exitUsage, "", "got 0 runs, want one"}},
		{"inspect a missing run", []string{"inspect", missing}, want{exitFailed, "", "run.json"}},
		{"inspect a cell that was not planned", []string{"inspect", a, "--cell", "4K:1"}, want{exitFailed, "", "no cell decode-4096-c1"}},
		{"inspect a cell that is none", []string{"inspect", a, "--cell", "4K"}, want{exitUsage, "", "--cell"}},

		{"simulate with a wrong value", []string{"simulate", "--frontend", "perl"}, want{exitUsage, "", `unknown value "perl"`}},
		{"simulate on a wrong address", []string{"simulate", "--listen", "127.0.0.1:notaport"}, want{exitFailed, "", "listen"}},
		{"demo takes no arguments", []string{"demo", "here"}, want{exitUsage, "", `unexpected argument "here"`}},
		{"demo where it can't write", []string{"demo", "-o", filepath.Join(key, "x")}, want{exitFailed, "", "not a directory"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := commandLine(tt.args...)
			if status != tt.want.status {
				t.Errorf("%q: exit status %d, want %d; stderr %q", tt.args, status, tt.want.status, stderr)
			}
			for _, s := range []struct{ name, got, want string }{{"stdout", stdout, tt.want.stdout}, {"stderr", stderr, tt.want.stderr}} {
				if s.want == "" && s.got != "" {
					t.Errorf("%q: %s %q, want silence", tt.args, s.name, s.got)
				}
				if !strings.Contains(s.got, s.want) {
					t.Errorf("%q: %s %q, want %q in it", tt.args, s.name, s.got, s.want)
				}
			}
		})
	}
}

// An error is one line that names the command, and a hint is one more.
func TestErrorsAreALineAndAHint(t *testing.T) {
	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := commandLine(c.name, "--no-such-flag")
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			prefix := "speedmatrix " + c.name
			if status != exitUsage || stdout != "" || len(lines) != 2 ||
				lines[0] != prefix+": error: unknown flag: --no-such-flag" || !strings.HasPrefix(lines[1], prefix+": hint: ") {
				t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
			}
		})
	}
}

func TestReport(t *testing.T) {
	refused := &collect.PlanError{Msg: "context 9 does not fit", Remedy: "leave it out"}
	for _, tt := range []struct {
		rule   string
		err    error
		status int
		want   string
	}{
		{"no error, no word", nil, exitDone, ""},
		{"an interruption has spoken for itself", errInterrupted, exitInterrupted, ""},
		{"a plain error", errors.New("disk full"), exitFailed, "speedmatrix x: error: disk full\n"},
		{"a wrong command line", usageError{"two runs", ""}, exitUsage, "speedmatrix x: error: two runs\n"},
		{"the hint of another package", errors.Join(refused), exitFailed, "speedmatrix x: error: context 9 does not fit\nspeedmatrix x: hint: leave it out\n"},
		{"a hint around a wrong command line", hintedError{usageError{"two runs", ""}, "one"}, exitUsage, "speedmatrix x: error: two runs\nspeedmatrix x: hint: one\n"},
	} {
		var b strings.Builder
		if got := report(&b, "x", tt.err); got != tt.status || b.String() != tt.want {
			t.Errorf("%s: report(%v) = %d, %q; want %d, %q", tt.rule, tt.err, got, b.String(), tt.status, tt.want)
		}
	}
}

// A writer that is full must not look like success.
func TestOutputThatCanNotBeWritten(t *testing.T) {
	a := filepath.Join(t.TempDir(), "a")
	writeTinyRun(t, a)
	for _, args := range [][]string{{"version"}, {"inspect", a}, {"inspect", a, "--json"}, {"render", a, "-o", filepath.Join(t.TempDir(), "site")}} {
		var talk strings.Builder
		if got := run(t.Context(), args, fullWriter{}, &talk); got != exitFailed || !strings.Contains(talk.String(), "no space left") {
			t.Errorf("%q: exit status %d, stderr %q, want %d", args, got, talk.String(), exitFailed)
		}
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestUsageNamesEveryCommand(t *testing.T) {
	_, stdout, _ := commandLine("--help")
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
		if !strings.Contains(stdout, "  speedmatrix "+c.name+" ") {
			t.Errorf("%s is not in the usage", c.name)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("commands %q are not all different", names)
	}
}
