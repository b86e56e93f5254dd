package main

// Cases of docs/cases.md about comparing runs: the command, over run logs
// with exact events.

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
)

// Runs that differ in what was measured are refused, with every field that
// differs; an override says "not comparable" all the same.
func TestCase_BR153(t *testing.T) {
	t.Parallel()
	a, b := launchSides(t, t.TempDir(), 3, func(s *launchSpec) {
		s.contexts = []int32{8192, 32768, 65536}
		s.change = func(m *runlog.Manifest) {
			m.Hardware.GPUs[0].Name = "NVIDIA RTX 6000"
			m.Plan.DurationUs = 2_000_000
		}
	})
	status, stdout, _ := commandLine("diff", a, b)
	if status != exitUnjudged {
		t.Errorf("exit status %d, want %d", status, exitUnjudged)
	}
	for _, want := range []string{`"1 × NVIDIA H200" and "1 × NVIDIA RTX 6000"`, `"6 s" and "2 s"`, "128K"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, stdout)
		}
	}
	for _, l := range strings.Split(stdout, "\n") {
		if strings.Contains(l, " %") && strings.Contains(l, "[") && !strings.Contains(l, "interval") {
			t.Errorf("a change of what can't be compared: %q", l)
		}
	}
	status, stdout, _ = commandLine("diff", a, b, "--allow", "hardware,window")
	if status != exitUnjudged || !strings.Contains(stdout, "NOT COMPARABLE") || strings.Contains(stdout, "worse (") || strings.Contains(stdout, "better (") {
		t.Errorf("allowed: exit status %d, want %d and no verdict:\n%s", status, exitUnjudged, stdout)
	}
}

// A pair of single runs never decides, and a newest point inside the spread
// of its history is no step.
func TestCase_BR156(t *testing.T) {
	t.Parallel()
	for _, by := range []float64{4485.0 / 9129, 1, 9129.0 / 4455} {
		a, b := launchSides(t, t.TempDir(), 1, slower(32768, 2, by))
		status, stdout, stderr := commandLine("diff", a, b)
		if line := lastLine(stdout); status != exitUnjudged || !strings.Contains(line, "verdict=unjudged worse=0 better=0 nochange=0") {
			t.Errorf("× %.2f: exit status %d, %q, want %d and nothing decided; stderr %q", by, status, line, exitUnjudged, stderr)
		}
	}
	var history []compare.Point
	for _, v := range []float64{4455, 5259, 9129, 4485} {
		history = append(history, compare.Point{Log: v / 1e4, Launches: 1})
	}
	if h := compare.FindSteps(history, 0, 0.02); len(h.Steps) != 0 || h.Why == "" {
		t.Errorf("steps %v, why %q: want none, and why", h.Steps, h.Why)
	}
}

// Twenty times the same bytes, ordered by context, concurrency and metric as
// numbers.
func TestCase_BR158(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dirs := [2]string{filepath.Join(root, "a"), filepath.Join(root, "b")}
	var runs [2][]string
	for i := range 2 * 2 {
		runs[i%2] = append(runs[i%2], writeLaunch(t, dirs[i%2], launchSpec{minutes: 10 * i, commit: []string{"73a5831127a9", "9f2c41e07b55"}[i%2],
			contexts: []int32{8192, 16384, 32768, 131072}, levels: []int32{1, 2, 4, 16}}))
	}
	for _, format := range diffFormats {
		_, first, _ := commandLine("diff", dirs[0], dirs[1], "--format", format)
		for range 4 { // of each form, twenty in all
			slices.Reverse(runs[0])
			if _, again, stderr := commandLine("diff", strings.Join(runs[0], ","), dirs[1], "--format", format); again != first || first == "" {
				t.Fatalf("%s: the second time it is another text; stderr %q", format, stderr)
			}
		}
	}
	_, text, _ := commandLine("diff", dirs[0], dirs[1], "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	var last [3]int
	n := 0
	for _, r := range rows[1:] {
		if r[column("scope")] != "cell" {
			continue
		}
		n++
		context, _ := strconv.Atoi(r[column("context_tokens")])
		concurrency, _ := strconv.Atoi(r[column("concurrency")])
		metric, _ := compare.ParseMetric(r[column("metric")])
		now := [3]int{context, concurrency, int(metric)}
		if slices.Compare(last[:], now[:]) >= 0 {
			t.Errorf("%v comes after %v", now, last)
		}
		last = now
	}
	if want := 4*4*4 + 1; n != want {
		t.Errorf("%d cells, want %d", n, want)
	}
}

// inZone runs the command as a process of its own in an environment.
func inZone(t *testing.T, variables []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), roleVariable+"=main"), variables...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != exitUnjudged {
		t.Fatalf("%q: %v, %s", args, err, stderr.String())
	}
	return string(out)
}

// Times are UTC and say so, whatever the zone.
func TestCase_BR160(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := writeLaunch(t, root, launchSpec{}) // 2026-11-29 23:30 UTC, already the 30th in Auckland
	b := writeLaunch(t, root, launchSpec{minutes: 10, commit: "9f2c41e07b55"})
	for _, args := range [][]string{{"diff", a, b, "--format", "json"}, {"inspect", a}} {
		auckland, angeles := inZone(t, []string{"TZ=Pacific/Auckland"}, args...), inZone(t, []string{"TZ=America/Los_Angeles"}, args...)
		if auckland != angeles {
			t.Errorf("%q depends on the zone", args[0])
		}
		if !strings.Contains(auckland, "2026-11-29T23:30:00Z") && !strings.Contains(auckland, "2026-11-29 23:30:00 UTC") {
			t.Errorf("%q does not say the time in UTC:\n%s", args[0], auckland)
		}
	}
	pages := map[string]string{}
	for _, zone := range []string{"Pacific/Auckland", "America/Los_Angeles"} {
		site := filepath.Join(t.TempDir(), "site")
		inZone(t, []string{"TZ=" + zone}, "render", root, "-o", site)
		b, err := os.ReadFile(filepath.Join(site, "runs", filepath.Base(a), "index.html"))
		if err != nil {
			t.Fatal(err)
		}
		pages[zone] = string(b)
		if !strings.Contains(pages[zone], "UTC") {
			t.Errorf("%s: the page does not say UTC", zone)
		}
	}
	if pages["Pacific/Auckland"] != pages["America/Los_Angeles"] {
		t.Error("the page depends on the zone")
	}
}

// No locale changes a number: a point before decimals, commas between thousands.
func TestCase_BR162(t *testing.T) {
	t.Parallel()
	a, b := launchSides(t, t.TempDir(), 1, nil)
	for _, format := range diffFormats {
		want := inZone(t, []string{"LC_ALL=C"}, "diff", a, b, "--format", format)
		for _, locale := range []string{"pl_PL.UTF-8", "de_DE.UTF-8", "ar_EG.UTF-8"} {
			if got := inZone(t, []string{"LC_ALL=" + locale, "LANG=" + locale}, "diff", a, b, "--format", format); got != want {
				t.Errorf("%s: %s is not as in the locale C", locale, format)
			}
		}
		if format == "text" && !strings.Contains(want, "3,2") {
			t.Errorf("no thousands with a comma:\n%s", want)
		}
	}
}

// CSV has a point, no grouping, quotes where needed, and gives the numbers back.
func TestCase_BR163(t *testing.T) {
	t.Parallel()
	a, b := launchSides(t, t.TempDir(), 3, func(s *launchSpec) {
		s.change = func(m *runlog.Manifest) { m.Engine.Commit = nil; m.Engine.Version.Value = `a,b"c` }
	})
	_, text, stderr := commandLine("diff", a, b, "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("%v; stderr %q", err, stderr)
	}
	_, asJSON, _ := commandLine("diff", a, b, "--format", "json")
	var d struct {
		Sides []struct {
			Label   string
			Metrics map[string]struct {
				Cells []struct {
					Context_tokens, Concurrency int
					A                           struct{ Value float64 }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(asJSON), &d); err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	if got, want := rows[1][column("side")], `a,b"c`; got != want || d.Sides[0].Label != want {
		t.Errorf("side %q in CSV and %q in JSON, want %q", got, d.Sides[0].Label, want)
	}
	n := 0
	for _, r := range rows[1:] {
		if r[column("scope")] != "cell" {
			continue
		}
		text := r[column("a_tok_per_s")] + r[column("a_us")]
		got, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Errorf("%q is no plain number", text)
		}
		for _, c := range d.Sides[0].Metrics[r[column("metric")]].Cells {
			if fmt.Sprint(c.Context_tokens, c.Concurrency) == r[column("context_tokens")]+" "+r[column("concurrency")] {
				n++
				if c.A.Value != got {
					t.Errorf("%s: %v in CSV, %v in JSON", r[column("metric")], got, c.A.Value)
				}
			}
		}
	}
	if want := 6*4 + 1; n != want {
		t.Errorf("%d values compared, want %d", n, want)
	}
}

// Ways of measuring are told apart by name, and not subtracted.
func TestCase_BR164(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*runlog.Manifest){
		"decode test":    func(m *runlog.Manifest) { m.Plan.DecodeTest = "fixed tokens" },
		"prefill mode":   func(m *runlog.Manifest) { m.Plan.PrefillMode = "offline" },
		"token counting": func(m *runlog.Manifest) { m.Plan.TokenCounting = "final usage" },
	} {
		a, b := launchSides(t, t.TempDir(), 3, func(s *launchSpec) { s.change = change })
		for _, allow := range []string{"", "engine", "launch,engine,window,hardware,telemetry,order,driver,tool"} {
			args := []string{"diff", a, b}
			if allow != "" {
				args = append(args, "--allow", allow)
			}
			status, stdout, stderr := commandLine(args...)
			if status != exitUnjudged || !strings.Contains(stdout, "NOT COMPARABLE: different "+name+": ") {
				t.Errorf("%s, allowing %q: exit status %d, stderr %q, want %d and the field:\n%s", name, allow, status, stderr, exitUnjudged, stdout)
			}
		}
	}
}
