package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// change rewrites a run's manifest.
func changeManifest(t *testing.T, dir string, change func(*runlog.Manifest)) {
	t.Helper()
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	if err := runlog.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(old, text...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCheckResults(t *testing.T) {
	fake := "sk-" + strings.Repeat("a1", 12) // a key's shape, no key
	for _, c := range []struct {
		rule   string
		change func(t *testing.T, root, run string)
		want   []string // each a part of a line on stdout, in order; nil: nothing is wrong
	}{
		{"a run as it was written", func(*testing.T, string, string) {}, nil},
		{"with its page and addresses beside it", func(t *testing.T, root, _ string) {
			if status, _, stderr := commandLine("render", root, "--markdown-into", root, "--cache", ""); status != exitDone {
				t.Fatal(stderr)
			}
		}, nil},
		{"a page that is out of date", func(t *testing.T, root, run string) { appendTo(t, filepath.Join(run, render.ReadmeFile), "old") }, []string{"README.md: not up to date"}},
		{"a manifest that is none", func(t *testing.T, root, run string) { appendTo(t, filepath.Join(run, runlog.ManifestFile), "}") }, []string{"run.json"}},
		{"a file that is not of the run", func(t *testing.T, root, run string) { appendTo(t, filepath.Join(run, "server.log"), "x") }, []string{`"server.log" is no file of the run`}},
		{"a key in the launch command", func(t *testing.T, root, run string) {
			changeManifest(t, run, func(m *runlog.Manifest) {
				m.Engine.LaunchCommand = &runlog.Command{Args: []string{"vllm", "serve", "--api-key", fake}, Source: runlog.FromProcess}
			})
		}, []string{"launch command in run.json: looks like a secret"}},
		{"a key in the environment", func(t *testing.T, root, run string) {
			changeManifest(t, run, func(m *runlog.Manifest) {
				m.Engine.Environment = &runlog.Environment{Variables: map[string]string{"HF_TOKEN": fake}, Source: runlog.FromProcess}
			})
		}, []string{"environment in run.json: looks like a secret"}},
		{"a home directory as the model", func(t *testing.T, root, run string) {
			changeManifest(t, run, func(m *runlog.Manifest) { m.Model.Repository = "/home/ann/models/tiny" })
		}, []string{"model.repository in run.json: looks like"}},
		{"a key in the notes", func(t *testing.T, root, run string) {
			appendTo(t, filepath.Join(run, runlog.NotesFile), "# Notes\n\ncurl -H 'Authorization: Bearer "+fake+"'\n")
		}, []string{"line 3 of notes.md: looks like a secret"}},
		{"addresses that are none", func(t *testing.T, root, run string) { appendTo(t, filepath.Join(root, render.SlugsFile), "{}") }, []string{`slugs.json: read slugs.json: format ""`}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "a")
			writeTinyRun(t, dir)
			c.change(t, root, dir)
			status, stdout, stderr := commandLine("check", root)
			lines := strings.FieldsFunc(stdout, func(r rune) bool { return r == '\n' })
			if (status == exitDone) != (len(c.want) == 0) || len(lines) != len(c.want) || !strings.Contains(stderr, "1 run checked") {
				t.Errorf("status %d, stdout %q, stderr %q, want lines with %q", status, stdout, stderr, c.want)
			}
			for i, want := range c.want {
				if i < len(lines) && !strings.Contains(lines[i], want) {
					t.Errorf("line %q, want %q", lines[i], want)
				}
			}
			if strings.Contains(stdout+stderr, fake) {
				t.Errorf("the secret itself was printed")
			}
		})
	}
}

func TestCheckWarnsOfWhatWasNotMeasured(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a")
	writeTinyRun(t, dir)
	changeManifest(t, dir, func(m *runlog.Manifest) { m.Finished, m.Cells[0].Outcome = false, runlog.OutcomePending })
	status, stdout, stderr := commandLine("check", root)
	if status != exitDone || stdout != "" || !strings.Contains(stderr, "warning: "+dir+": 1 of 1 planned measurements were not made") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestCheckSite(t *testing.T) {
	dir := t.TempDir()
	results, site := filepath.Join(dir, "results"), filepath.Join(dir, "site")
	writeTinyRun(t, filepath.Join(results, "a"))
	writeTinyRun(t, filepath.Join(results, "b"))
	if status, _, stderr := commandLine("render", results, "-o", site); status != exitDone {
		t.Fatal(stderr)
	}
	status, stdout, stderr := commandLine("check", site, results)
	if status != exitDone || stdout != "" || !strings.Contains(stderr, "links within the site") || !strings.Contains(stderr, "run page") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if err := os.Remove(filepath.Join(site, "runs", "b", "raw", runlog.ManifestFile)); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = commandLine("check", site)
	if want := filepath.Join(site, "runs", "b", "index.html") + `: link "raw/run.json" leads nowhere` + "\n"; status != exitFailed || !strings.Contains(stdout, want) || !strings.Contains(stderr, "problem") {
		t.Errorf("status %d, stdout %q, stderr %q, want %q", status, stdout, stderr, want)
	}
}

func TestRenderCheck(t *testing.T) {
	dir := t.TempDir()
	results, site := filepath.Join(dir, "results"), filepath.Join(dir, "site")
	run := filepath.Join(results, "a")
	writeTinyRun(t, run)
	all := []string{"render", results, "-o", site, "--markdown-into", results}
	readme := filepath.Join(run, render.ReadmeFile)

	status, stdout, stderr := commandLine(append(all, "--check")...)
	if status != exitFailed || !strings.Contains(stdout, readme+"\n") || !strings.Contains(stdout, filepath.Join(site, "index.html")+"\n") || !strings.Contains(stderr, "would change") {
		t.Errorf("nothing there: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	for _, path := range []string{readme, site, filepath.Join(results, render.SlugsFile)} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("--check wrote %s", path)
		}
	}
	if status, _, stderr := commandLine(all...); status != exitDone || !strings.Contains(stderr, "1 run rendered") {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	if status, stdout, stderr := commandLine(append(all, "--check")...); status != exitDone || stdout != "" || stderr != "" {
		t.Errorf("up to date: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	appendTo(t, readme, "x")
	appendTo(t, filepath.Join(site, "runs", "a", "index.md"), "x")
	want := readme + "\n" + filepath.Join(site, "runs", "a", "index.md") + "\n"
	if status, stdout, _ := commandLine(append(all, "--check")...); status != exitFailed || stdout != want {
		t.Errorf("two files changed: status %d, stdout %q, want %q", status, stdout, want)
	}
}

func TestRenderKeepsWhatItComputed(t *testing.T) {
	dir := t.TempDir()
	results, site := filepath.Join(dir, "results"), filepath.Join(dir, "site")
	for _, id := range []string{"a", "b"} {
		writeTinyRun(t, filepath.Join(results, id))
	}
	for _, c := range []struct {
		rule string
		args []string
		want string
	}{
		{"first", nil, "2 runs rendered, 2 of them computed anew"},
		{"again", nil, "2 runs rendered, 0 of them computed anew"},
		{"without a cache", []string{"--cache", ""}, "2 of them computed anew"},
		{"with another cache", []string{"--cache", filepath.Join(dir, "other")}, "2 of them computed anew"},
		{"for another place of raw files", []string{"--raw-url", "https://example.org/raw"}, "2 of them computed anew"},
	} {
		status, _, stderr := commandLine(append([]string{"render", results, "-o", site}, c.args...)...)
		if status != exitDone || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, stderr %q, want %q", c.rule, status, stderr, c.want)
		}
	}
	for _, bad := range []string{"example.org", "ftp://example.org/", "https://example.org/?a", "/speeds"} {
		if status, _, stderr := commandLine("render", results, "-o", site, "--base-url", bad); status != exitUsage || !strings.Contains(stderr, "--base-url") {
			t.Errorf("--base-url %s: status %d, stderr %q", bad, status, stderr)
		}
	}
}
