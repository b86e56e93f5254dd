// Command speedmatrix measures how fast a vLLM server is, keeps every
// streamed event as raw data, and turns raw data into static pages.
//
// This package turns flags into calls of the other packages, and their
// errors into exit statuses. It is the only one that prints and exits, and
// it must not measure, compute a figure or draw a page.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"speedmatrix/templates/echarts"
)

// Exit statuses, the same for every subcommand.
const (
	exitDone        = 0   // the work is done
	exitFailed      = 1   // the work could not be done; of diff: something that it fails on was found
	exitUsage       = 2   // the command line is wrong, nothing was done; of diff: or its input can't be read
	exitUnjudged    = 3   // of diff alone: it could not be judged, so that a pipeline can tell that from 1
	exitInterrupted = 130 // stopped by Ctrl-C; what was measured is kept
)

// An env is what a subcommand may use of the world outside.
type env struct {
	ctx context.Context // done at the first Ctrl-C

	stdout io.Writer // data
	stderr io.Writer // talk and progress
}

// A command is one subcommand.
type command struct {
	name    string
	summary string
	run     func(e *env, args []string) error
}

func commands() []command {
	return []command{
		{"collect", "measure a server into results/<run>/", runCollect},
		{"render", "turn runs into a static site", runRender},
		{"check", "look for what should not be published", runCheck},
		{"inspect", "show what is in a run and where a number comes from", runInspect},
		{"diff", "say whether a commit is slower or faster than another", runDiff},
		{"noise", "measure how much launches of one commit differ", runNoise},
		{"simulate", "a vLLM stand-in with a known ground truth", runSimulate},
		{"demo", "no server at hand: simulate, collect, render", runDemo},
		{"version", "print the version", runVersion},
	}
}

// A usageError is a wrong command line.
type usageError struct {
	msg  string
	hint string // what the person probably meant; may be empty
}

func (e usageError) Error() string { return e.msg }
func (e usageError) Hint() string  { return e.hint }

// A hintedError carries a remedy, shown on a line of its own.
type hintedError struct {
	err  error
	hint string
}

func (e hintedError) Error() string { return e.err.Error() }
func (e hintedError) Unwrap() error { return e.err }
func (e hintedError) Hint() string  { return e.hint }

// errInterrupted ends a command that Ctrl-C stopped after it had kept what
// there was to keep; it has said so itself.
var errInterrupted = errors.New("interrupted")

func main() {
	os.Exit(run(interruptible(), os.Args[1:], os.Stdout, os.Stderr))
}

// interruptible returns a context that the first Ctrl-C ends. Unregistering
// then gives the second one its default effect, which ends the process at
// once.
func interruptible() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		io.WriteString(stderr, usage())
		return exitUsage
	}
	switch args[0] {
	case "-h", "--help", "help":
		io.WriteString(stdout, usage())
		return exitDone
	case "--version":
		args = []string{"version"}
	}
	for _, c := range commands() {
		if c.name == args[0] {
			err := c.run(&env{ctx: ctx, stdout: stdout, stderr: stderr}, args[1:])
			return report(stderr, c.name, err)
		}
	}
	return report(stderr, "", usageError{fmt.Sprintf("unknown command %q", args[0]), "speedmatrix --help lists the commands"})
}

// report prints err in the voice of the command and returns the exit status.
func report(stderr io.Writer, name string, err error) int {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitDone
	}
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if verdict := (verdictError{}); errors.As(err, &verdict) {
		return verdict.status
	}
	prefix := "speedmatrix"
	if name != "" {
		prefix += " " + name
	}
	fmt.Fprintf(stderr, "%s: error: %v\n", prefix, err)
	var hinted interface{ Hint() string } // also errors of the packages
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		fmt.Fprintf(stderr, "%s: hint: %s\n", prefix, hinted.Hint())
	}
	if usage, input := (usageError{}), (inputError{}); errors.As(err, &usage) || errors.As(err, &input) {
		return exitUsage
	}
	return exitFailed
}

func usage() string {
	var b strings.Builder
	b.WriteString("speedmatrix measures how fast a vLLM server is and publishes it.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  speedmatrix %-10s %s\n", c.name, c.summary)
	}
	b.WriteString(`
Examples:
  speedmatrix demo
  speedmatrix collect --url http://localhost:8000
  speedmatrix render results -o site

speedmatrix COMMAND --help says more.
`)
	return b.String()
}

// newFlags returns a flag set in the house style: it never prints and never
// exits, and --help writes help to the command's stdout.
func newFlags(e *env, name, help string) *pflag.FlagSet {
	fs := pflag.NewFlagSet("speedmatrix "+name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.Usage = func() { io.WriteString(e.stdout, help) }
	return fs
}

// parseFlags parses args and turns a mistake into a usageError.
func parseFlags(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return err
	}
	return usageError{err.Error(), fs.Name() + " --help lists the flags"}
}

func runVersion(e *env, args []string) error {
	fs := newFlags(e, "version", "Usage: speedmatrix version\n")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0)), ""}
	}
	v, commit := version()
	if commit != "" {
		v += " (" + commit + ")"
	}
	charts := "no ECharts: charts of a site are drawings only"
	if v := echarts.Version(); v != "" {
		charts = "ECharts " + v
	}
	_, err := fmt.Fprintf(e.stdout, "speedmatrix %s\n%s\n", v, charts)
	return err
}

// version returns the program's version and, where it was built from a
// checkout, its commit.
func version() (v, commit string) {
	v = "devel"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, ""
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return v, commit
}
