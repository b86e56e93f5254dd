package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest/runlog"
)

// lastLine is the line of a text report that is for programs.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

// The gate through raw logs: what was made slower fails, its reverse and an
// A/A pair do not, other hardware can't be judged, and garbage is no verdict.
func TestDiffExitStatus(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	side := func(name string, n int, b func(*launchSpec)) (string, string) {
		return launchSides(t, filepath.Join(root, name), n, b)
	}
	aa, ab := side("same", 3, nil)
	slowA, slowB := side("slow", 3, slower(32768, 2, 0.9))
	otherA, otherB := side("hardware", 3, func(s *launchSpec) {
		s.change = func(m *runlog.Manifest) { m.Hardware.GPUs[0].Name = "NVIDIA A100" }
	})
	oneA, oneB := side("one", 1, slower(32768, 2, 0.9))
	lostA, lostB := side("lost", 3, func(s *launchSpec) {
		s.change = func(m *runlog.Manifest) {
			m.Capacity.KVCacheTokens = 200_000 // two requests of 128K do not fit any more
			last := &m.Cells[len(m.Cells)-1]
			*last = runlog.Cell{Phase: last.Phase, ContextTokens: last.ContextTokens, Concurrency: last.Concurrency, Outcome: runlog.OutcomeOverCapacity}
		}
	})
	garbage := filepath.Join(root, "garbage")
	if err := os.MkdirAll(garbage, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(garbage, runlog.ManifestFile), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rule string
		args []string
		want int
		says string // in the output, or in the error
	}{
		{"A/A passes", []string{aa, ab}, 0, "verdict=pass worse=0 better=0"},
		{"one cell 10 % slower fails", []string{slowA, slowB}, 1, "verdict=fail worse=2 better=0"},
		{"… and the other way round passes", []string{slowB, slowA}, 0, "verdict=pass worse=0 better=2"},
		{"… and passes where nothing fails", []string{slowA, slowB, "--exit-zero"}, 0, "exit=0"},
		{"… and where it is too small to matter", []string{slowA, slowB, "--min-effect", "decode=20,ttft=20"}, 0, "verdict=pass worse=0"},
		{"other hardware can't be judged", []string{otherA, otherB}, exitUnjudged, `gpu: "1 × NVIDIA H200" and "1 × NVIDIA A100"`},
		{"… nor when it is allowed", []string{otherA, otherB, "--allow", "hardware"}, exitUnjudged, "described only"},
		{"one launch is a suspicion", []string{oneA, oneB}, exitUnjudged, "suspect=1"},
		{"… which may be enough to fail", []string{oneA, oneB, "--fail-on", "suspect"}, 1, "verdict=fail"},
		{"… or no reason to stop", []string{oneA, oneB, "--allow-unjudged"}, 0, "verdict=pass"},
		{"cells lost to capacity fail", []string{lostA, lostB}, 1, "lost 1 (128K × 2 over capacity)"},
		{"… unless they are allowed to", []string{lostA, lostB, "--fail-on", "worse"}, 0, "lost=1"},
		{"several sides, the worst decides", []string{aa, ab, slowB}, exitUsage, "the same launch twice"}, // both have launches of the same minutes
		{"garbage is no verdict", []string{aa, garbage}, exitUsage, "run.json"},
		{"a launch against itself", []string{aa, aa}, exitUsage, "the same launch twice"},
		{"nothing there", []string{aa, filepath.Join(root, "missing")}, exitUsage, "does not exist"},
		{"no such commit", []string{aa, "0123456"}, exitUsage, "no run below"},
		{"no profile", []string{aa, ab, "--noise", filepath.Join(garbage, "x.json")}, exitUsage, "read noise profile"},
		{"a profile that is none", []string{aa, ab, "--noise", filepath.Join(garbage, runlog.ManifestFile)}, exitUsage, "decode noise profile"},
		{"a file that can't be written", []string{aa, ab, "-o", filepath.Join(root, "no", "such", "dir.md")}, exitUsage, "dir.md"},
		{"one side", []string{aa}, exitUsage, "want a base and at least one more"},
		{"an unknown allowance", []string{aa, ab, "--allow", "everything"}, exitUsage, `--allow: got "everything"`},
		{"an unknown metric", []string{aa, ab, "--gate-on", "latency"}, exitUsage, `--gate-on: got "latency"`},
		{"an unknown event", []string{aa, ab, "--fail-on", "rain"}, exitUsage, `--fail-on: got "rain"`},
		{"an effect without a number", []string{aa, ab, "--min-effect", "decode"}, exitUsage, `--min-effect: got "decode"`},
		{"an effect of nothing", []string{aa, ab, "--min-effect", "rain=2"}, exitUsage, `--min-effect: got "rain"`},
		{"q of 1", []string{aa, ab, "--q", "1"}, exitUsage, "--q is 1"},
		{"an unknown format", []string{aa, ab, "--format", "pdf"}, exitUsage, `--format is "pdf"`},
		{"runs without a plan", []string{aa, ab, "--runs", "2"}, exitUsage, "--runs without --plan"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := commandLine(append([]string{"diff"}, tt.args...)...)
			if status != tt.want {
				t.Errorf("exit status %d, want %d; stderr %q, last line %q", status, tt.want, stderr, lastLine(stdout))
			}
			text := stdout + stderr
			if !strings.Contains(text, tt.says) {
				t.Errorf("it does not say %q:\n%s", tt.says, text)
			}
			if strings.Count(stderr, "\n") > 8 {
				t.Errorf("an error of more than eight lines:\n%s", stderr)
			}
			if (status == exitUsage) != (stdout == "") || (status == exitUsage) == (stderr == "") {
				t.Errorf("stdout %q, stderr %q: want a report or an error", stdout, stderr)
			}
		})
	}
}

// Someone who sees the first eight lines knows what was compared, whether
// coverage and speed changed, by how much at most, and what to do next.
func TestDiffFirstLines(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	sets := map[string][]string{}
	add := func(name string, n int, b func(*launchSpec)) {
		sideA, sideB := launchSides(t, filepath.Join(root, name), n, b)
		sets[name] = []string{sideA, sideB}
	}
	add("same", 3, nil)
	add("slow", 3, slower(8192, 1, 0.9))
	add("one", 1, nil)
	add("model", 3, func(s *launchSpec) { s.change = func(m *runlog.Manifest) { m.Model.Repository = "org/other" } })
	for name, want := range map[string]map[string]string{
		"same":  {"speed": "NO CHANGE as large as what counts: 13 no change", "next": "nothing", "coverage": "lost 0, gained 0"},
		"slow":  {"speed": "SLOWER: ", "next": "find what made it slower", "at most": " to +"},
		"one":   {"speed": "NOT JUDGED, too few launches", "next": "measure 2 launches more of each side"},
		"model": {"speed": `NOT COMPARABLE: different model: "org/tiny" and "org/other"`, "at most": "no change was computed", "next": "measure both sides alike"},
	} {
		_, stdout, stderr := commandLine(append([]string{"diff"}, sets[name]...)...)
		lines := strings.Split(stdout, "\n")[:8]
		if !strings.HasPrefix(lines[0], "tiny on H200 141GB") {
			t.Errorf("%s: first line %q; stderr %q", name, lines[0], stderr)
		}
		for _, key := range []string{"compared", "coverage", "speed", "at most", "next"} {
			i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+" ") })
			if i < 0 {
				t.Errorf("%s: no line %q in the first eight:\n%s", name, key, strings.Join(lines, "\n"))
			} else if !strings.Contains(lines[i], want[key]) {
				t.Errorf("%s: %q, want %q in it", name, lines[i], want[key])
			}
		}
		for i, l := range strings.Split(strings.TrimSuffix(stdout, "\n"), "\n") {
			if utf8.RuneCountInString(l) > 100 && !strings.HasPrefix(l, "verdict=") {
				t.Errorf("%s: line %d has %d columns: %s", name, i+1, utf8.RuneCountInString(l), l)
			}
		}
		if strings.Contains(stdout, "\x1b") {
			t.Errorf("%s: colour where there is no terminal", name)
		}
	}
}

// The example of docs/diff.md is what the program says of launches of which
// one cell of B is 10 % slower.
func TestExampleOfTheDocument(t *testing.T) {
	t.Parallel()
	sideA, sideB := launchSides(t, t.TempDir(), 3, slower(32768, 2, 0.9))
	_, stdout, stderr := commandLine("diff", sideA, sideB)
	opening, _, found := strings.Cut(stdout, "\n\n")
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "diff.md"))
	if err != nil || !found || !strings.Contains(string(doc), "\n```\n"+opening+"\n```\n") {
		t.Errorf("docs/diff.md has not (%v, stderr %q):\n%s", err, stderr, opening)
	}
	if line := lastLine(stdout); !strings.Contains(string(doc), "\n    "+line+"\n") {
		t.Errorf("docs/diff.md has not the last line:\n%s", line)
	}
}

// Every form has the same counts and nothing that is no number.
func TestDiffFormsAgree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	sideA, sideB := launchSides(t, filepath.Join(root, "runs"), 3, slower(32768, 2, 0.9))
	var args []string
	for _, name := range []string{"d.txt", "d.md", "d.html", "d.json", "d.csv"} {
		args = append(args, "-o", filepath.Join(root, name))
	}
	status, stdout, stderr := commandLine(append([]string{"diff", sideA, sideB}, args...)...)
	if status != 1 || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("exit status %d, stdout %q, stderr %q; want 1 and one line", status, stdout, stderr)
	}
	line := strings.TrimSuffix(stdout, "\n")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if text := read("d.txt"); lastLine(text) != line {
		t.Errorf("text ends in %q, want %q", lastLine(text), line)
	}
	if md := read("d.md"); lastLine(md) != "`"+line+"`" || !strings.Contains(md, "<details>") || strings.Count(md, "**worse (slower)**") != 4 {
		t.Errorf("Markdown ends in %q, or lacks the matrix or a verdict:\n%s", lastLine(md), md)
	}
	page := read("d.html")
	for _, want := range []string{"<code>" + line + "</code>", "<svg ", `<span class="worse">worse (slower)</span>`, "style-src &#39;sha256-"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, ban := range []string{"<script", "http-equiv=\"refresh\"", "src=", "url(", " style=\""} {
		if strings.Contains(page, ban) {
			t.Errorf("the page has %q", ban)
		}
	}
	text := read("d.json")
	if err := strictJSON([]byte(text)); err != nil {
		t.Error(err)
	}
	var d struct {
		Format  string
		Exit    int
		Verdict string
		Counts  struct{ Worse, Better, No_change, Unclear, Suspect, Lost, Gained, Not_comparable int }
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "diff.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, schema, _ := strings.Cut(string(doc), "\n## JSON\n")
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	for key := range keysOf(value) {
		if !regexp.MustCompile(`\b` + key + `\b`).MatchString(schema) {
			t.Errorf("docs/diff.md does not say what %q is", key)
		}
	}
	c := d.Counts
	if got := fmt.Sprintf("verdict=%s worse=%d better=%d nochange=%d unclear=%d suspect=%d lost=%d gained=%d notcomparable=%d exit=%d",
		d.Verdict, c.Worse, c.Better, c.No_change, c.Unclear, c.Suspect, c.Lost, c.Gained, c.Not_comparable, d.Exit); got != line || d.Format != "speedmatrix-diff/1" {
		t.Errorf("JSON says %q in %q, want %q", got, d.Format, line)
	}
	rows, err := csv.NewReader(strings.NewReader(read("d.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	gates, verdict := slices.Index(rows[0], "gates"), slices.Index(rows[0], "verdict")
	worse := 0
	for _, r := range rows[1:] {
		if r[gates] == "true" && r[verdict] == "worse" {
			worse++
		}
	}
	if worse != c.Worse {
		t.Errorf("CSV has %d worse, want %d", worse, c.Worse)
	}
	for name, text := range map[string]string{"text": read("d.txt"), "JSON": text, "CSV": read("d.csv"), "Markdown": read("d.md"), "HTML": page} {
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s has NaN or Inf in it", name)
		}
	}
}

// keysOf returns the names of all keys of a JSON value.
func keysOf(value any) map[string]bool {
	keys := map[string]bool{}
	var walk func(any)
	walk = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for key, x := range v {
				keys[key] = true
				walk(x)
			}
		}
	}
	walk(value)
	return keys
}

// Commits are found among runs; several sides are told apart in the first lines.
func TestDiffOfCommits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range 3 {
		writeLaunch(t, root, launchSpec{minutes: 30 * i})
		writeLaunch(t, root, launchSpec{minutes: 30*i + 10, commit: "9f2c41e07b55"})
		s := launchSpec{minutes: 30*i + 20, commit: "9a00000000aa"}
		slower(8192, 1, 0.9)(&s)
		writeLaunch(t, root, s)
	}
	status, stdout, stderr := commandLine("diff", "73a583", "9f2c", "9a00", "--results", root)
	if status != 1 {
		t.Fatalf("exit status %d, stderr %q", status, stderr)
	}
	first := strings.Join(strings.Split(stdout, "\n")[:8], "\n")
	for _, want := range []string{"base          73a5831127a9, 3 launches, against 2 sides", "\n9f2c41e07b55  lost 0, gained 0 · NO CHANGE", "\n9a00000000aa  lost 0, gained 0 · SLOWER",
		"\n  next        nothing; at most total −", "\n  next        the change is no noise: find what made it slower; at most total −"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first lines do not say %q:\n%s", want, first)
		}
	}
	_, stdout, stderr = commandLine("diff", "old one=73a583", "neu="+filepath.Join(root, "9f2c41e07b55-0010")+","+filepath.Join(root, "9f2c41e07b55-0040"), "--results", root)
	if want := "compared      vllm old one → neu · 3 and 2 launches"; !strings.Contains(stdout, want) {
		t.Errorf("labels: stderr %q, the first lines do not say %q:\n%s", stderr, want, stdout)
	}
	if status, _, stderr := commandLine("diff", "9f2c", "9", "--results", root); status != exitUsage {
		t.Errorf("one digit: exit status %d, stderr %q", status, stderr)
	}
	writeLaunch(t, root, launchSpec{minutes: 500, change: func(m *runlog.Manifest) { m.Model.Repository = "org/other" }})
	if status, _, stderr := commandLine("diff", "73a583", "9f2c", "--results", root); status != exitUsage || !strings.Contains(stderr, "several settings") {
		t.Errorf("two models of one commit: exit status %d, stderr %q", status, stderr)
	}
	if status, _, stderr := commandLine("diff", "73a583", "9f2c", "--results", root, "--model", "org/tiny"); status != 0 {
		t.Errorf("one of two models: exit status %d, stderr %q", status, stderr)
	}
}

// With a profile two launches are enough; one of another setting is not used
// and one that is too old is said to be.
func TestNoiseProfile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	results := filepath.Join(root, "results")
	launches := filepath.Join(root, "launches")
	prefill := []int32{8192, 16384, 32768, 65536, 131072}
	for i := range 3 {
		writeLaunch(t, launches, launchSpec{minutes: -1000 + 10*i, prefill: prefill})
	}
	status, stdout, stderr := commandLine("noise", launches, "-o", filepath.Join(results, "noise"))
	path := strings.TrimSpace(stdout)
	if status != exitDone || filepath.Dir(path) != filepath.Join(results, "noise") {
		t.Fatalf("noise: exit status %d, %q, stderr %q", status, stdout, stderr)
	}
	if _, out, _ := commandLine("noise", launches); strictJSON([]byte(out)) != nil || !strings.Contains(out, `"schema": "noise/1"`) {
		t.Errorf("the profile on stdout is %q", out)
	}
	sideA, sideB := launchSides(t, filepath.Join(root, "two"), 2, slower(32768, 2, 0.9))
	gate := "--gate-on=decode"
	if status, out, _ := commandLine("diff", sideA, sideB, gate, "--results", results); status != 1 || !strings.Contains(out, "a profile of 3") {
		t.Errorf("two launches with a profile: exit status %d, want 1:\n%s", status, out)
	}
	if status, out, _ := commandLine("diff", sideA, sideB, gate, "--results", results, "--noise", "none"); status != exitUnjudged {
		t.Errorf("two launches without it: exit status %d, want %d:\n%s", status, exitUnjudged, out)
	}
	const late = 200 * 24 * 60
	for i := range 2 {
		writeLaunch(t, filepath.Join(root, "late", "a"), launchSpec{minutes: late + 20*i, prefill: prefill})
		writeLaunch(t, filepath.Join(root, "late", "b"), launchSpec{minutes: late + 20*i + 10, prefill: prefill})
	}
	if status, out, _ := commandLine("diff", filepath.Join(root, "late", "a"), filepath.Join(root, "late", "b"), "--noise", path); status != 0 || !strings.Contains(out, "the noise profile is 201 days older than the runs") {
		t.Errorf("an old profile is not said to be: exit status %d\n%s", status, out)
	}
	if status, _, stderr := commandLine("noise", sideA); status != exitFailed || !strings.Contains(stderr, "got 2 launches, want 3 or more") {
		t.Errorf("two launches: exit status %d, stderr %q", status, stderr)
	}
	if status, _, stderr := commandLine("noise"); status != exitUsage || !strings.Contains(stderr, "no run given") {
		t.Errorf("no launch: exit status %d, stderr %q", status, stderr)
	}
}

// A real pair, collected from one simulated server: whatever a busy machine
// does to its speed, the verdict is well formed.
func TestDiffOfCollectedRuns(t *testing.T) {
	s := &restartable{t: t, address: "127.0.0.1:0", config: simserver.Config{Seed: 1, MaxModelLen: 4096}}
	s.start()
	defer s.stop()
	var stdout, stderr strings.Builder
	e := &env{ctx: t.Context(), stdout: &stdout, stderr: &stderr}
	for range 2 {
		cfg, err := collectConfig(e, []string{"--url", "http://" + s.address, "--contexts", "512,1K,2K", "--concurrency", "1,2", "--duration", "300ms", "--max-output", "256", "-o", t.TempDir(), "--commit", "73a5831127a9"})
		if err != nil {
			t.Fatal(err)
		}
		cfg.ReadyHold, cfg.DrainHold = 30*time.Millisecond, 20*time.Millisecond
		dir, err := measure(e, cfg)
		if err != nil {
			t.Fatalf("%v; stderr %s", err, stderr.String())
		}
		stdout.WriteString(dir + "\n")
	}
	dirs := strings.Fields(stdout.String())
	status, out, talk := commandLine("diff", dirs[0], dirs[1])
	if status != exitUnjudged && status != 1 || talk != "" {
		t.Errorf("exit status %d, stderr %q; want %d, or 1 for cells that a busy machine lost", status, talk, exitUnjudged)
	}
	if !strings.Contains(out, "A/A: one build") {
		t.Errorf("it is not said to be A/A:\n%s", out)
	}
	var n [8]int
	if _, err := fmt.Sscanf(strings.NewReplacer("=", " ").Replace(lastLine(out)), "verdict unjudged worse %d better %d nochange %d unclear %d suspect %d lost %d gained %d notcomparable %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil && status == exitUnjudged {
		t.Errorf("last line %q: %v", lastLine(out), err)
	}
	if n[0]+n[1]+n[2] != 0 {
		t.Errorf("a pair of single runs proves something: %q", lastLine(out))
	}
}

func TestPlan(t *testing.T) {
	status, stdout, _ := commandLine("diff", "--plan", "73a5831127a9", "9f2c41e07b55", "--runs", "3")
	var commits []string
	for _, l := range strings.Split(stdout, "\n") {
		if f := strings.Fields(l); len(f) > 5 && f[1] == "collect" {
			commits = append(commits, f[5][:1])
		}
	}
	if status != exitDone || strings.Join(commits, "") != "799779" || !strings.HasSuffix(stdout, "speedmatrix diff 73a5831127a9 9f2c41e07b55\n") || !strings.Contains(stdout, "ABBAAB") {
		t.Errorf("exit status %d:\n%s", status, stdout)
	}
	if _, stdout, _ := commandLine("diff", "--plan", "old", "new", "--runs", "1"); !strings.Contains(stdout, "-o results/old ") || !strings.HasSuffix(stdout, "speedmatrix diff results/old results/new\n") {
		t.Errorf("plain names:\n%s", stdout)
	}
	if status, _, _ := commandLine("diff", "--plan", "a b", "new"); status != exitUsage {
		t.Errorf("a name with a blank: exit status %d, want %d", status, exitUsage)
	}
}

// The action's script runs the command as docs/diff-ci.md says, and inputs
// can't become commands.
func TestAction(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err) // the action needs it too
	}
	b, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(b), "      run: |\n")
	if !ok {
		t.Fatal("action.yml has no script")
	}
	if strings.Contains(block, "${{") {
		t.Error("an input is written into the script")
	}
	script := strings.ReplaceAll("\n"+block, "\n        ", "\n")
	root := t.TempDir()
	temp := filepath.Join(root, "temp dir")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(temp, "speedmatrix"), fmt.Appendf(nil, "#!%s\nexec '%s' \"$@\"\n", bash, os.Args[0]), 0o777); err != nil {
		t.Fatal(err)
	}
	slowA, slowB := launchSides(t, filepath.Join(root, "slow"), 3, slower(8192, 1, 0.9))
	oneA, oneB := launchSides(t, filepath.Join(root, "one"), 1, nil)
	for _, tt := range []struct {
		rule, base, head, arguments, fail, unjudged string
		want                                        int
		status                                      string
	}{
		{"slower fails", slowA, slowB, "", "true", "false", 1, "1"},
		{"… unless it may not", slowA, slowB, "", "false", "false", 0, "1"},
		{"faster passes", slowB, slowA, "--gate-on=decode\n--q=0.01\n", "true", "true", 0, "0"},
		{"what can't be judged warns", oneA, oneB, "", "true", "false", 0, "3"},
		{"… or fails", oneA, oneB, "", "true", "true", 3, "3"},
		{"a mistake fails", slowA, "$(touch pwned)", "", "false", "false", 2, "2"},
	} {
		output, summary := filepath.Join(t.TempDir(), "output"), filepath.Join(t.TempDir(), "summary")
		cmd := exec.Command(bash, "-c", script)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), roleVariable+"=main", "BASE="+tt.base, "HEAD="+tt.head, "RESULTS=results", "ARGUMENTS="+tt.arguments,
			"FAIL="+tt.fail, "FAIL_UNJUDGED="+tt.unjudged, "RUNNER_TEMP="+temp, "GITHUB_OUTPUT="+output, "GITHUB_STEP_SUMMARY="+summary)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != tt.want {
			t.Errorf("%s: exit status %d, want %d: %s", tt.rule, got, tt.want, out)
		}
		said, err := os.ReadFile(output)
		if err != nil || !strings.HasPrefix(string(said), "status="+tt.status+"\nline=") {
			t.Errorf("%s: outputs %q (%v), want status %s", tt.rule, said, err, tt.status)
		}
		if md, err := os.ReadFile(summary); tt.status != "2" && (err != nil || !strings.Contains(string(md), "<details>")) {
			t.Errorf("%s: summary %q (%v)", tt.rule, md, err)
		}
		if _, err := os.Stat(filepath.Join(cmd.Dir, "pwned")); err == nil {
			t.Errorf("%s: the input was run", tt.rule)
		}
	}
}
