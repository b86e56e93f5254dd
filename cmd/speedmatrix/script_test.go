package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs what people do with the command, one script for each
// behaviour. Beside testscript's own commands the scripts have:
//
//	simulate [FLAGS]      start speedmatrix simulate; its address becomes $URL
//	run DIR               the only run below DIR becomes $RUN, its name $NAME
//	copyrun FROM TO       copy a run, in the place of what is there
//	flip FILE             change one byte in the middle of a file
//	truncate FILE         cut a file in half
//	columns N FILE        no line has more than N characters
//	inorder FILE TEXTS    each line of TEXTS stands in FILE, in this order
//	json FILE             FILE is one JSON value by the letter of the standard
//	[!] below DIR TEXT    a file below DIR has TEXT in it
//
// where FILE may be stdout or stderr.
func TestScripts(t *testing.T) {
	t.Parallel()
	fixture, err := filepath.Abs(filepath.Join(moduleRoot, "ingest", "runlog", "testdata", "runlog-1"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIXTURE", fixture) // a run of the first released format
			e.Setenv("SPEEDMATRIX_API_KEY", "")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"simulate": scriptSimulate,
			"run":      scriptRun,
			"copyrun":  scriptCopyRun,
			"flip":     scriptFlip,
			"truncate": scriptTruncate,
			"columns":  scriptColumns,
			"inorder":  scriptInOrder,
			"json":     scriptJSON,
			"below":    scriptBelow,
		},
	})
}

// wellUsed ends a script whose command is used wrongly.
func wellUsed(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

func scriptSimulate(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg, "simulate [FLAGS]")
	cmd := exec.Command("speedmatrix", append([]string{"simulate", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	talk := bufio.NewReader(stderr)
	line, err := talk.ReadString('\n')
	_, address, ok := strings.Cut(line, " listens on ")
	if err != nil || !ok {
		ts.Fatalf("simulate said %q (%v), want its address", line, err)
	}
	address, _, _ = strings.Cut(address, ",")
	ts.Setenv("URL", address)
	ts.Defer(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil { // Windows has none
			cmd.Process.Kill()
		}
		rest, _ := io.ReadAll(talk)
		if err := cmd.Wait(); err != nil {
			ts.Logf("simulate ended with %v: %s", err, rest)
		}
	})
}

func scriptRun(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 1, "run DIR")
	runs, err := runlog.FindRuns(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(runs) != 1 {
		ts.Fatalf("runs %q, want one", runs)
	}
	rel, err := filepath.Rel(ts.MkAbs("."), runs[0])
	ts.Check(err)
	ts.Setenv("RUN", rel)
	ts.Setenv("NAME", filepath.Base(rel))
}

func scriptCopyRun(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 2, "copyrun FROM TO")
	ts.Check(os.RemoveAll(ts.MkAbs(args[1])))
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(ts.MkAbs(args[0]))))
}

func scriptTruncate(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 1, "truncate FILE")
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), info.Size()/2))
}

func scriptFlip(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 1, "flip FILE")
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[len(b)/2] ^= 0x10
	ts.Check(os.WriteFile(path, b, 0o666))
}

func scriptColumns(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 2, "columns N FILE")
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	for i, line := range strings.Split(ts.ReadFile(args[1]), "\n") {
		if got := utf8.RuneCountInString(line); got > n {
			ts.Fatalf("line %d has %d characters, want at most %d: %s", i+1, got, n, line)
		}
	}
}

func scriptInOrder(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 2, "inorder FILE TEXTS")
	text, at, n := ts.ReadFile(args[0]), 0, 0
	for _, line := range strings.Split(ts.ReadFile(args[1]), "\n") {
		if line == "" {
			continue
		}
		n++
		i := strings.Index(text[at:], line)
		switch {
		case i >= 0:
			at += i + len(line)
		case strings.Contains(text, line):
			ts.Fatalf("%q stands before the text that it should follow", line)
		default:
			ts.Fatalf("%q is not there", line)
		}
	}
	wellUsed(ts, n > 0, "inorder FILE TEXTS, with lines in TEXTS")
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, !neg && len(args) == 1, "json FILE")
	if err := strictJSON([]byte(ts.ReadFile(args[0]))); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
}

func scriptBelow(ts *testscript.TestScript, neg bool, args []string) {
	wellUsed(ts, len(args) == 2, "[!] below DIR TEXT")
	found, files := "", 0
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(args[1])) {
			found = path
		}
		return err
	}))
	switch {
	case files == 0:
		ts.Fatalf("there is no file below %s", args[0])
	case neg && found != "":
		ts.Fatalf("%q is in %s", args[1], found)
	case !neg && found == "":
		ts.Fatalf("%q is in no file below %s", args[1], args[0])
	}
}

// strictJSON checks that b is one JSON value and a newline: valid UTF-8, and
// no key twice in an object, which decoders silently differ about.
func strictJSON(b []byte) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("not UTF-8")
	}
	if !bytes.HasSuffix(b, []byte("\n")) {
		return fmt.Errorf("no newline at the end")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := distinctKeys(dec); err != nil {
		return fmt.Errorf("byte %d: %w", dec.InputOffset(), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("byte %d: there is something after the value", dec.InputOffset())
	}
	return nil
}

// distinctKeys reads one value.
func distinctKeys(dec *json.Decoder) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	keys := map[string]bool{}
	for dec.More() {
		if open == '{' {
			token, err := dec.Token()
			if err != nil {
				return err
			}
			key := token.(string)
			if keys[key] {
				return fmt.Errorf("key %q is there twice", key)
			}
			keys[key] = true
		}
		if err := distinctKeys(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

func TestStrictJSON(t *testing.T) {
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"{\"a\": [1, {\"b\": null}], \"b\": 1e300}\n", true},
		{"{\"a\": 1, \"a\": 2}\n", false},
		{"{\"x\": [{\"a\": 1, \"a\": 2}]}\n", false},
		{"{\"a\": NaN}\n", false},
		{"{\"a\": Infinity}\n", false},
		{"{}\n{}\n", false},
		{"{}", false},
		{"{\"a\": \"\xff\"}\n", false},
		{"[1,]\n", false},
		{"\n", false},
	} {
		if err := strictJSON([]byte(tt.text)); (err == nil) != tt.want {
			t.Errorf("strictJSON(%q) = %v, want accepted %v", tt.text, err, tt.want)
		}
	}
}
