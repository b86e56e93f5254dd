package runlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSlug(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "gemma-4-e2b-it", "gemma-4-e2b-it"},
		{"capitals and blanks", "RTX PRO 6000", "rtx-pro-6000"},
		{"a version", "0.30.1rc1.dev452+g73a583112", "0.30.1rc1.dev452-g73a583112"},
		{"punctuation is drawn together", "a__b  (c) -- d..e.-f", "a-b-c-d.e.f"},
		{"hidden", ".hidden", "hidden"},
		{"end that Windows drops", "name. ", "name"},
		{"nothing", "", "unknown"},
		{"only dots", "..", "x-…"},
		{"letters of another script", "模型", "x-…"},
		{"some letters of another script", "qwen-模型", "qwen-…"},
		{"accent", "café", "caf-…"},
		{"not UTF-8", "a\xffb", "a-b-…"},
		{"device", "con", "con-…"},
		{"device with an extension", "NUL.txt", "nul-txt-…"},
		{"numbered device", "com1", "com1-…"},
		{"no device", "console", "console"},
		{"colon", "qwen3:8b", "qwen3-8b"},
		{"just short enough", strings.Repeat("x", 40), strings.Repeat("x", 40)},
		{"one too long", strings.Repeat("x", 41), strings.Repeat("x", 31) + "-…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Slug(tt.in, 40)
			begin, hashed := strings.CutSuffix(tt.want, "…")
			if got != tt.want && !(hashed && strings.HasPrefix(got, begin) && len(got) == len(begin)+slugHash) {
				t.Errorf("Slug(%q, 40) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// Names that differ in what a slug leaves out stay different.
func TestSlugsStayDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, in := range []string{
		strings.Repeat("x", 300), strings.Repeat("x", 299) + "y", strings.Repeat("模", 120), strings.Repeat("模", 119),
		"模型", "模型二", "..", "../..", "/", "con", "CON.a", "x", "café", "cafè", "caf",
	} {
		got := Slug(in, 40)
		if other, taken := seen[got]; taken {
			t.Errorf("Slug gives %q for %q and %q", got, in, other)
		}
		seen[got] = in
	}
}

// isSafe reports whether a name can be used on every file system and in an
// address without escapes.
func isSafe(name string) bool {
	for _, c := range []byte(name) {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-", rune(c)) {
			return false
		}
	}
	return name != "" && name[0] != '.' && name[0] != '-' && !strings.HasSuffix(name, ".") && !strings.Contains(name, "..")
}

func FuzzSlug(f *testing.F) {
	for _, s := range []string{"", "..", "a/b", "模", "CON", "a.-b", "\xff", strings.Repeat("ab.", 50)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Slug(s, 24)
		if !isSafe(got) || len(got) > 24 || isReserved(got) {
			t.Errorf("Slug(%q, 24) = %q, want a safe name of 24 bytes at most", s, got)
		}
	})
}

func TestRunName(t *testing.T) {
	base := func() *Manifest {
		m := someManifest()
		m.StartedAt = time.Date(2026, 11, 29, 10, 15, 0, 999, time.UTC)
		return m
	}
	for _, tt := range []struct {
		name   string
		change func(m *Manifest)
		want   string
	}{
		{"as in the documents", func(m *Manifest) {}, "gemma-4-e2b-it--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
		{"time in UTC", func(m *Manifest) { m.StartedAt = m.StartedAt.In(time.FixedZone("", -7*3600)) }, "gemma-4-e2b-it--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
		{"two GPUs", func(m *Manifest) { m.Hardware.GPUs = append(m.Hardware.GPUs, m.Hardware.GPUs[0]) }, "gemma-4-e2b-it--2x-rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
		{"different GPUs", func(m *Manifest) {
			m.Hardware.GPUs = []GPU{{Name: "NVIDIA H200"}, {Name: "NVIDIA A100"}, {Name: "NVIDIA H200"}}
		}, "gemma-4-e2b-it--h200-and-2-more--vllm-73a5831127a9--20261129t101500z"},
		{"no GPU", func(m *Manifest) { m.Hardware.GPUs = nil }, "gemma-4-e2b-it--cpu--vllm-73a5831127a9--20261129t101500z"},
		{"no commit", func(m *Manifest) { m.Engine.Commit = nil }, "gemma-4-e2b-it--rtx-pro-6000--vllm-0.30.1rc1.dev452-g73a583112--20261129t101500z"},
		{"nothing known", func(m *Manifest) { m.Engine, m.Model, m.Hardware = Engine{}, Model{}, Hardware{} }, "unknown--cpu--unknown--20261129t101500z"},
		{"served name only", func(m *Manifest) { m.Model = Model{ServedName: "/home/me/models/tiny"} }, "tiny--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
		{"path of another system", func(m *Manifest) { m.Model.Repository = `C:\models\tiny` }, "tiny--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
		{"slashes", func(m *Manifest) { m.Model.Repository = "a//b" }, "b--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
		{"climbing", func(m *Manifest) { m.Model.Repository = "../../etc/x" }, "x--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := base()
			tt.change(m)
			if got := RunName(m); got != tt.want {
				t.Errorf("RunName() = %q, want %q", got, tt.want)
			}
		})
	}
}

// Whatever the facts are, the longest path of a run stays within the bound
// that RunName documents, and the name is one that Create takes.
func TestRunNamesAreSafeAndBounded(t *testing.T) {
	longest := 0
	root := t.TempDir()
	for i, model := range []string{"", "../..", ".hidden", "org/model", strings.Repeat("x", 300), strings.Repeat("x", 299) + "y", strings.Repeat("模", 120), "con", "a:b*?", "org/"} {
		m := someManifest()
		m.Model = Model{Repository: model}
		if i%2 == 0 {
			long := &Fact{Value: strings.Repeat("0.30.1rc1+", 30), Source: FromFlag}
			m.Engine = Engine{Name: long, Version: long}
			m.Hardware.GPUs = []GPU{{Name: "NVIDIA " + strings.Repeat("RTX ", 50)}}
		}
		name := RunName(m)
		if !isSafe(name) || strings.Count(name, "--") != 3 {
			t.Errorf("RunName for model %q = %q, want a safe name of four parts", model, name)
		}
		if _, err := Create(root, name); err != nil {
			t.Error(err)
		}
		longest = max(longest, len("results/"+name+"/"+Key{PhaseDecode, 1048576, 1024}.File()))
	}
	if longest != 177 {
		t.Errorf("the longest path has %d bytes, want 177 as documented", longest)
	}
	usual := "results/gemma-4-e2b-it--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z/" + Key{PhaseDecode, 131072, 128}.File()
	if len(usual) >= 120 {
		t.Errorf("a usual path has %d bytes, want less than 120", len(usual))
	}
}

func TestFindRuns(t *testing.T) {
	root := t.TempDir()
	add := func(dir string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(dir))
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, ManifestFile), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"b", "a/1", "a/2", "1/2/3/4/5/6", "1/2/3/4/5/6/7", ".git/x", "a/.trash/y"} {
		add(dir)
	}
	if err := os.MkdirAll(filepath.Join(root, "c", ManifestFile), 0o777); err != nil { // a directory of that name
		t.Fatal(err)
	}
	got, err := FindRuns(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1/2/3/4/5/6", "a/1", "a/2", "b"}
	for i := range want {
		want[i] = filepath.Join(root, filepath.FromSlash(want[i]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("FindRuns = %q, want %q", got, want)
	}
	add(".")
	if got, err := FindRuns(root); err != nil || got[0] != filepath.Clean(root) || len(got) != 5 {
		t.Errorf("a run at the root itself: FindRuns = %q, %v, want it first of 5", got, err)
	}
	if got, err := FindRuns(filepath.Join(root, "c")); err != nil || len(got) != 0 {
		t.Errorf("no runs: FindRuns = %q, %v, want none", got, err)
	}
	if _, err := FindRuns(filepath.Join(root, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %v, want %v", err, fs.ErrNotExist)
	}
}
