package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// workflows returns the workflows of this repository and of the example.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range []string{".github/workflows", "examples/results-repo/.github/workflows"} {
		paths, err := filepath.Glob(filepath.Join(moduleRoot, filepath.FromSlash(dir), "*.yml"))
		if err != nil || len(paths) < 2 {
			t.Fatalf("%s: workflows %q (%v), want two or more", dir, paths, err)
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			files[strings.TrimPrefix(filepath.ToSlash(p), moduleRoot+"/")] = string(b)
		}
	}
	return files
}

var pinned = regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// What a workflow runs is named by a commit, and may do no more than it must.
func TestWorkflowsArePinnedAndModest(t *testing.T) {
	versions := map[string]string{}
	for name, text := range workflows(t) {
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.+)$`).FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %q, want an action at a commit, and its version behind it", name, m[1])
			}
			action, at, _ := strings.Cut(m[1], "@")
			if other, ok := versions[action]; ok && other != at {
				t.Errorf("%s uses %s at %q, another workflow at %q", name, action, at, other)
			}
			versions[action] = at
		}
		if !strings.Contains(text, "\npermissions:\n  contents: read\n") {
			t.Errorf("%s: want permissions to read only, but for single jobs", name)
		}
		if strings.Contains(text, "pull_request_target") || strings.Contains(text, "secrets.") {
			t.Errorf("%s: pull requests of strangers must not meet secrets", name)
		}
		if got, want := strings.Count(text, "persist-credentials: false"), strings.Count(text, "uses: actions/checkout"); got != want {
			t.Errorf("%s: %d of %d checkouts leave no credentials behind", name, got, want)
		}
	}
}

// The commands of the workflows work, in their order, on a run that was added
// as docs/publish.md says.
func TestWorkflowCommandsWork(t *testing.T) {
	commands := regexp.MustCompile(`(?m)^\s+speedmatrix (.+)$`)
	for name, text := range workflows(t) {
		lines := commands.FindAllStringSubmatch(text, -1)
		if len(lines) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			writeTinyRun(t, filepath.Join("results", "a"))
			if status, _, stderr := commandLine("render", "results", "--markdown-into", "results"); status != exitDone {
				t.Fatal(stderr)
			}
			for _, l := range lines {
				line := strings.NewReplacer(`"$BASE_URL"`, "https://example.org/speeds", `"$RAW_URL"`, "https://example.org/raw").Replace(l[1])
				if status, stdout, stderr := commandLine(strings.Fields(line)...); status != exitDone {
					t.Errorf("speedmatrix %s: status %d\n%s%s", line, status, stdout, stderr)
				}
			}
			if _, err := os.Stat(filepath.Join("site", "index.html")); err != nil {
				t.Error(err)
			}
			if cached, err := os.ReadDir(".site.cache"); err != nil || len(cached) == 0 || !strings.Contains(text, "speedmatrix render results -o site") {
				t.Errorf("the cache that the workflow keeps holds %d files (%v)", len(cached), err)
			}
		})
	}
}
