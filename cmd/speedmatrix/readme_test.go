package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A readmeCommand is one "$ speedmatrix …" of a console block, with the
// lines that follow it.
type readmeCommand struct {
	file, line string
	args       []string
	want       []string
}

// readmeCommands returns the commands of all console blocks of a document.
func readmeCommands(t *testing.T, path string) []readmeCommand {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []readmeCommand
	in := false
	for _, l := range strings.Split(string(b), "\n") {
		switch {
		case strings.HasPrefix(l, "```"):
			in = l == "```console"
		case in && strings.HasPrefix(l, "$ "):
			out = append(out, readmeCommand{file: path, line: l, args: splitCommand(strings.TrimPrefix(l, "$ "))})
		case in && len(out) > 0:
			out[len(out)-1].want = append(out[len(out)-1].want, l)
		}
	}
	return out
}

// TestReadmeExamples runs what README.md shows on the sample runs, and
// compares the output; a line "…" stands for any lines. Commands that need a
// server are parsed only: their flags must exist.
func TestReadmeExamples(t *testing.T) {
	commands := readmeCommands(t, "../../README.md")
	work := t.TempDir()
	if err := os.CopyFS(filepath.Join(work, "results"), os.DirFS("../../results")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(work)
	ran := 0
	for _, c := range commands {
		if c.args[0] != "speedmatrix" {
			continue
		}
		ran++
		if c.args[1] == "collect" {
			if _, err := collectConfig(&env{ctx: context.Background(), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}, c.args[2:]); err != nil {
				t.Errorf("%s: %v", c.line, err)
			}
			continue
		}
		var stdout, stderr bytes.Buffer
		if status := run(context.Background(), c.args[1:], &stdout, &stderr); status != exitDone {
			t.Errorf("%s: exit status %d: %s", c.line, status, stderr.String())
		}
		want := strings.Split(strings.TrimRight(strings.Join(c.want, "\n"), "\n"), "\n")
		if got := strings.Split(strings.TrimRight(stdout.String(), "\n"), "\n"); !matchLines(got, want) {
			t.Errorf("%s prints\n%s\nand the document says\n%s", c.line, stdout.String(), strings.Join(c.want, "\n"))
		}
	}
	if ran < 4 {
		t.Errorf("%d commands found in README.md, want 4 or more", ran)
	}
}

// matchLines compares lines; "…" in want stands for any number of them.
func matchLines(got, want []string) bool {
	if len(want) > 0 && want[0] == "…" {
		for i := range len(got) + 1 {
			if matchLines(got[i:], want[1:]) {
				return true
			}
		}
		return false
	}
	if len(got) == 0 || len(want) == 0 {
		return len(got) == len(want)
	}
	return strings.TrimRight(got[0], " ") == strings.TrimRight(want[0], " ") && matchLines(got[1:], want[1:])
}
