package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

const diffHelp = `Usage: speedmatrix diff BASE SIDE… [flags]

Says whether SIDE is slower or faster than BASE, in which cells, how sure that
is, and which cells were lost. Each of them is one of:

  a directory              a run, or all runs below it, each a launch
  a list                   run directories with commas between them
  a commit                 its first digits: all its launches below --results

with NAME= in front for what the report calls it, such as old=results/a,results/b.

Three launches of each side are evidence; two with a noise profile.

Which runs:
      --results DIR        where commits are looked for (default results)
      --model TEXT         of a commit's runs those whose model has TEXT in it
      --hardware TEXT      likewise, a GPU or the processor
      --noise FILE         noise profile, or none (default the one for this
                           setting in the folder noise of --results, if it is there)
      --allow LIST         differences that are intended: launch, engine, window,
                           hardware, telemetry, order, driver, tool

What counts:
      --gate-on LIST       metrics that decide (default decode,prefill,ttft);
                           others are perreq and tbt
      --min-effect LIST    smallest changes that matter, in percent (default run=1,
                           decode=2,prefill=3,ttft=5,perreq=2,tbt=2,ttft-ms=5)
      --q Q                share of false findings that is accepted (default 0.05)

What fails:
      --fail-on LIST       worse, suspect, status, capacity, error
                           (default worse,capacity,error)
      --allow-unjudged     too few launches are no reason for exit status 3
      --exit-zero          exit status 0 also for what failed or can't be judged

Output:
      --format FORMAT      text, md, html, json or csv (default text)
  -o, --output FILE        write FILE in the format of its name's end (.txt .md
                           .html .json .csv), else of --format; may be given again.
                           Stdout then has only the last line, unless FILE is -
      --github             Markdown for $GITHUB_STEP_SUMMARY too

Before measuring:
      --plan               print commands that launch BASE and SIDE in turn
      --runs N             launches of each side in the plan (default 3)

Exit status: 0 nothing failed, 1 something did, 2 wrong command line or input
that can't be read, 3 could not be judged. docs/diff.md explains the words.

Examples:
  speedmatrix diff 73a5831127a9 9f2c41e07b55
  speedmatrix diff results/old results/new -o diff.md -o diff.json -o -
  speedmatrix diff --plan 73a5831127a9 9f2c41e07b55 --runs 3
`

// A diffCommand is the command line of diff.
type diffCommand struct {
	args    []string
	results string
	filter  runFilter
	noise   string
	options compare.Options
	gate    compare.Gate
	format  string
	outputs []string
	github  bool
	plan    bool
	runs    int
}

// diffFormats are the forms of a report, by the names of --format and the
// ends of file names.
var diffFormats = []string{"text", "md", "html", "json", "csv"}

// An inputError is input that can't be compared. Exit status 1 is for what a
// comparison found.
type inputError struct{ err error }

func (e inputError) Error() string { return e.err.Error() }
func (e inputError) Unwrap() error { return e.err }

// A verdictError ends diff with the exit status of what it found; the report
// has said the rest.
type verdictError struct{ status int }

func (e verdictError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

func runDiff(e *env, args []string) error {
	c, err := parseDiff(e, args)
	if err != nil {
		return err
	}
	if c.plan {
		return writeOut(e.stdout, plan(c.args, c.runs))
	}
	status, err := c.run(e)
	switch {
	case errors.Is(err, errInterrupted):
		return err
	case err != nil:
		return inputError{err}
	case status != compare.ExitPass:
		return verdictError{status}
	}
	return nil
}

func parseDiff(e *env, args []string) (*diffCommand, error) {
	c := &diffCommand{options: compare.DefaultOptions(), gate: compare.DefaultGate()}
	var allow, gateOn, failOn, effects []string
	flags := newFlags(e, "diff", diffHelp)
	flags.StringVar(&c.results, "results", "results", "")
	flags.StringVar(&c.filter.model, "model", "", "")
	flags.StringVar(&c.filter.hardware, "hardware", "", "")
	flags.StringVar(&c.noise, "noise", "", "")
	flags.StringSliceVar(&allow, "allow", nil, "")
	flags.StringSliceVar(&gateOn, "gate-on", nil, "")
	flags.StringSliceVar(&effects, "min-effect", nil, "")
	flags.Float64Var(&c.options.Q, "q", c.options.Q, "")
	flags.StringSliceVar(&failOn, "fail-on", nil, "")
	flags.BoolVar(&c.gate.AllowUnjudged, "allow-unjudged", false, "")
	flags.BoolVar(&c.gate.ExitZero, "exit-zero", false, "")
	flags.StringVar(&c.format, "format", "text", "")
	flags.StringArrayVarP(&c.outputs, "output", "o", nil, "")
	flags.BoolVar(&c.github, "github", false, "")
	flags.BoolVar(&c.plan, "plan", false, "")
	flags.IntVar(&c.runs, "runs", 3, "")
	if err := parseFlags(flags, args); err != nil {
		return nil, err
	}
	c.args = flags.Args()
	return c, cmp.Or(c.check(flags), c.words(allow, gateOn, failOn), c.effects(effects))
}

func (c *diffCommand) check(flags *pflag.FlagSet) error {
	switch {
	case len(c.args) < 2:
		return usageError{fmt.Sprintf("got %d sides, want a base and at least one more", len(c.args)), "speedmatrix diff BASE SIDE, each a run directory or a commit"}
	case !slices.Contains(diffFormats, c.format):
		return usageError{fmt.Sprintf("--format is %q, want one of %s", c.format, strings.Join(diffFormats, ", ")), ""}
	case !(c.options.Q > 0 && c.options.Q < 1):
		return usageError{fmt.Sprintf("--q is %v, want more than 0 and less than 1", c.options.Q), "0.05 is usual"}
	case c.runs < 1 || c.runs > 100:
		return usageError{fmt.Sprintf("--runs is %d, want 1 to 100", c.runs), ""}
	case flags.Changed("runs") && !c.plan:
		return usageError{"--runs without --plan", "a comparison takes all launches that it is given"}
	case c.plan && len(c.args) > 26:
		return usageError{fmt.Sprintf("got %d sides to plan for, want at most 26", len(c.args)), ""}
	case c.plan && slices.ContainsFunc(c.args, func(s string) bool { return !plannedName.MatchString(s) }):
		return usageError{"--plan: a side is no commit and no plain name", "such as --plan 73a5831127a9 9f2c41e07b55, or --plan old new"}
	}
	return nil
}

// words reads lists of words.
func (c *diffCommand) words(allow, gateOn, failOn []string) error {
	for _, w := range allow {
		a := compare.Allowance(w)
		if !slices.Contains(compare.Allowances(), a) {
			return usageError{fmt.Sprintf("--allow: got %q, want one of %q", w, compare.Allowances()), ""}
		}
		c.options.Allow = append(c.options.Allow, a)
	}
	if len(gateOn) > 0 {
		c.options.GateOn = nil
	}
	for _, w := range gateOn {
		m, ok := compare.ParseMetric(w)
		if !ok || slices.Contains(c.options.GateOn, m) {
			return usageError{fmt.Sprintf("--gate-on: got %q, want some of %v, each once", w, compare.Metrics()), ""}
		}
		c.options.GateOn = append(c.options.GateOn, m)
	}
	if len(failOn) > 0 {
		c.gate.FailOn = nil
	}
	for _, w := range failOn {
		if !slices.Contains(compare.Events(), compare.Event(w)) {
			return usageError{fmt.Sprintf("--fail-on: got %q, want some of %q", w, compare.Events()), ""}
		}
		c.gate.FailOn = append(c.gate.FailOn, compare.Event(w))
	}
	return nil
}

// effects reads "decode=2,ttft-ms=5".
func (c *diffCommand) effects(list []string) error {
	at := map[string]*float64{
		"run": &c.options.Effect.Run, "decode": &c.options.Effect.Decode, "prefill": &c.options.Effect.Prefill,
		"ttft": &c.options.Effect.TTFT, "perreq": &c.options.Effect.PerRequest, "tbt": &c.options.Effect.BetweenTokens,
	}
	for _, item := range list {
		name, text, _ := strings.Cut(item, "=")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= 1000) {
			return usageError{fmt.Sprintf("--min-effect: got %q, want NAME=PERCENT", item), "such as --min-effect decode=2,run=1"}
		}
		switch {
		case name == "ttft-ms":
			c.options.Effect.TTFTUs = 1000 * v
		case at[name] != nil:
			*at[name] = v / 100
		default:
			return usageError{fmt.Sprintf("--min-effect: got %q, want run, decode, prefill, ttft, perreq, tbt or ttft-ms", name), ""}
		}
	}
	return nil
}

// run compares, writes everything, and returns the exit status.
func (c *diffCommand) run(e *env) (status int, err error) {
	var sides []compare.Side
	for _, arg := range c.args {
		label, arg := cutLabel(arg)
		side, err := findSide(arg, c.results, c.filter)
		if err != nil {
			return 0, err
		}
		s := compare.Side{Label: label}
		if s.Runs, err = loadRuns(e, side); err != nil {
			return 0, err
		}
		sides = append(sides, s)
	}
	if c.options.Noise, err = c.profile(sides[0].Runs[0].Manifest); err != nil {
		return 0, err
	}
	report, err := compare.Compare(sides[0], sides[1:], c.options)
	if errors.Is(err, compare.ErrSameLaunch) {
		return 0, hintedError{err, "a launch compared with itself says nothing; measure again with a server that was started anew"}
	} else if err != nil {
		return 0, err
	}
	if err := c.write(e, render.Comparison{Report: report, Gate: c.gate}); err != nil {
		return 0, err
	}
	status, _ = report.Counts.Status(c.gate)
	return status, nil
}

// profile reads the noise profile that was asked for, or the one that lies
// ready for the setting of a launch. It returns nil when there is none.
func (c *diffCommand) profile(m *runlog.Manifest) (*compare.Profile, error) {
	path := c.noise
	switch path {
	case "none":
		return nil, nil
	case "":
		path = filepath.Join(c.results, noiseFolder, compare.ProfileName(m))
	}
	b, err := os.ReadFile(path)
	if c.noise == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read noise profile: %w", err)
	}
	p, err := compare.DecodeProfile(b)
	if err != nil {
		return nil, hintedError{fmt.Errorf("%s: %w", path, err), "speedmatrix noise makes profiles"}
	}
	return p, nil
}

// write writes the report wherever it is wanted. Everything is made before
// anything is written.
func (c *diffCommand) write(e *env, r render.Comparison) error {
	type file struct {
		path string
		data []byte
	}
	var files []file
	var out []byte
	for _, path := range c.outputs {
		b, err := diffDocument(r, c.formatOf(path), false)
		if err != nil {
			return err
		}
		if path == "-" {
			out = b
			continue
		}
		files = append(files, file{path, b})
	}
	switch {
	case len(c.outputs) == 0:
		b, err := diffDocument(r, c.format, colourful(e.stdout))
		if err != nil {
			return err
		}
		out = b
	case out == nil:
		out = []byte(r.Report.Counts.Line(c.gate) + "\n")
	}
	if c.github {
		if err := appendSummary(r); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := writeWhole(f.path, f.data); err != nil {
			return err
		}
	}
	return writeOut(e.stdout, string(out))
}

// formatOf returns the format of a file: by the end of its name, else that of --format.
func (c *diffCommand) formatOf(path string) string {
	end := strings.TrimPrefix(filepath.Ext(path), ".")
	if end == "txt" {
		return "text"
	}
	if slices.Contains(diffFormats[1:], end) {
		return end
	}
	return c.format
}

func diffDocument(r render.Comparison, format string, colour bool) ([]byte, error) {
	switch format {
	case "md":
		return render.DiffMarkdown(r)
	case "html":
		return render.DiffHTML(r)
	case "json":
		return render.DiffJSON(r)
	case "csv":
		return render.DiffCSV(r)
	}
	return render.DiffText(r, colour), nil
}

// colourful reports whether w is a terminal on which colour is wanted.
func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// appendSummary adds the report to the page that GitHub shows of a job.
func appendSummary(r render.Comparison) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return hintedError{errors.New("--github: GITHUB_STEP_SUMMARY is not set"), "it is in a step of a GitHub workflow; elsewhere -o diff.md writes the same"}
	}
	b, err := render.DiffMarkdown(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	_, err = f.Write(b)
	if err := cmp.Or(err, f.Close()); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// writeWhole writes a file as a whole or not at all.
func writeWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".speedmatrix-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// A runFilter picks runs by what they measured; "" takes all.
type runFilter struct{ model, hardware string }

func (f runFilter) takes(m *runlog.Manifest) bool {
	has := func(s, part string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(part)) }
	return has(m.Model.Repository+" "+m.Model.ServedName, f.model) && has(hardwareOf(m), f.hardware)
}

func hardwareOf(m *runlog.Manifest) string {
	var names []string
	for _, g := range m.Hardware.GPUs {
		names = append(names, g.Name)
	}
	if len(names) == 0 {
		return m.Hardware.CPU
	}
	return strings.Join(names, ", ")
}

// commitDigits are the first digits of a commit, as people give them.
var commitDigits = regexp.MustCompile(`^[0-9a-f]{4,64}$`)

// sideLabel is what a report may call a side.
var sideLabel = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N} ._+-]{0,31}$`)

// cutLabel cuts the label off a side, "" where it has none: a directory may
// have an equals sign in its name.
func cutLabel(arg string) (label, rest string) {
	label, rest, found := strings.Cut(arg, "=")
	if _, err := os.Stat(arg); err == nil || !found || !sideLabel.MatchString(label) {
		return "", arg
	}
	return label, rest
}

// findSide returns the run directories of a side: an existing directory, a
// list of them, or a commit.
func findSide(arg, results string, filter runFilter) ([]string, error) {
	paths := []string{arg}
	if _, err := os.Stat(arg); err != nil { // a directory may have a comma in its name
		paths = strings.Split(arg, ",")
	}
	var dirs []string
	for _, path := range paths {
		found, err := runlog.FindRuns(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && len(paths) == 1 && commitDigits.MatchString(strings.ToLower(arg)):
			return findCommit(strings.ToLower(arg), results, filter)
		case errors.Is(err, fs.ErrNotExist):
			return nil, hintedError{fmt.Errorf("find runs: %q does not exist", path), "a side is a run directory, a directory of runs, a list of them with commas, or a commit"}
		case err != nil:
			return nil, err
		case len(found) == 0:
			return nil, hintedError{fmt.Errorf("find runs: no run in %q", path), "a run is a directory with a run.json"}
		}
		dirs = append(dirs, found...)
	}
	return dirs, nil
}

// findCommit returns the runs below results whose engine was built from a
// commit. They must all be of one model on one kind of hardware.
func findCommit(digits, results string, filter runFilter) ([]string, error) {
	all, err := runlog.FindRuns(results)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []string
	commits, settings := map[string]bool{}, map[string]bool{}
	for _, dir := range all {
		m, err := runlog.ReadManifest(dir)
		if err != nil {
			return nil, err
		}
		commit := strings.ToLower(fact(m.Engine.Commit))
		if !strings.HasPrefix(commit, digits) && !(len(commit) >= 7 && strings.HasPrefix(digits, commit)) || !filter.takes(m) {
			continue
		}
		dirs = append(dirs, dir)
		commits[commit[:min(len(commit), 9)]] = true
		settings[m.Model.Repository+" on "+hardwareOf(m)] = true
	}
	list := func(set map[string]bool) string {
		var names []string
		for s := range set {
			names = append(names, strconv.Quote(s))
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	switch {
	case len(dirs) == 0:
		return nil, hintedError{fmt.Errorf("find runs: %q is no directory, and no run below %q is of that commit", digits, results), "--results says where commits are looked for; speedmatrix inspect RUN shows a run's commit"}
	case len(commits) > 1:
		return nil, hintedError{fmt.Errorf("find runs: %q begins several commits: %s", digits, list(commits)), "more digits tell them apart"}
	case len(settings) > 1:
		return nil, hintedError{fmt.Errorf("find runs: those of commit %q are of several settings: %s", digits, list(settings)), "--model and --hardware choose among them"}
	}
	return dirs, nil
}

// loadRuns computes runs.
func loadRuns(e *env, dirs []string) ([]*ingest.Run, error) {
	var runs []*ingest.Run
	for _, dir := range dirs {
		if e.ctx.Err() != nil {
			return nil, errInterrupted
		}
		r, err := ingest.Load(dir)
		if err != nil {
			return nil, noRun(dir, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// plannedName is a name that is one word for every shell and file system.
var plannedName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,63}$`)

// plan writes the commands that launch sides in turn, forwards and backwards.
func plan(sides []string, runs int) string {
	order := compare.Interleave(len(sides), runs)
	letters := make([]byte, len(order))
	for i, s := range order {
		letters[i] = byte('A' + s)
	}
	args := slices.Clone(sides)
	var b strings.Builder
	fmt.Fprintf(&b, "# %d launches, %s: a steady drift of the machine meets all sides alike.\n", len(order), letters)
	b.WriteString("# For each line: start the server of that side anew, wait until it answers, run the line.\n")
	for i, s := range order {
		to := "--commit " + sides[s]
		if !commitDigits.MatchString(sides[s]) {
			to, args[s] = "-o results/"+sides[s], "results/"+sides[s]
		}
		fmt.Fprintf(&b, "speedmatrix collect --url http://localhost:8000 %s  # %d of %d: %c\n", to, i+1, len(order), letters[i])
	}
	fmt.Fprintf(&b, "speedmatrix diff %s\n", strings.Join(args, " "))
	return b.String()
}
