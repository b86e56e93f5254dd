package runlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSameEventsGiveSameBytes(t *testing.T) {
	ev := randomEvents(1, decodeKey, 500)
	one, two := encoded(t, ev), encoded(t, ev)
	if !bytes.Equal(one, two) {
		t.Error("two encodings of the same events differ")
	}
	dir := newRun(t)
	first, err := WriteEvents(dir, ev)
	if err != nil {
		t.Fatal(err)
	}
	second, err := WriteEvents(dir, ev)
	if err != nil {
		t.Fatal(err)
	}
	if first != second || first.Bytes != int64(len(one)) || first.Rows != int64(ev.Len()) {
		t.Errorf("got %+v, then %+v, want the same, of %d bytes and %d rows", first, second, len(one), ev.Len())
	}
}

func TestTelemetryReadsBackSorted(t *testing.T) {
	dir := newRun(t)
	want := someSamples()
	mixed := append([]Sample(nil), want...)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	given := append([]Sample(nil), mixed...)
	info, err := WriteTelemetry(dir, mixed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given, mixed); diff != "" {
		t.Errorf("WriteTelemetry changed its argument:\n%s", diff)
	}
	got, err := ReadTelemetry(dir, info.FileInfo)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	empty, err := WriteTelemetry(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadTelemetry(dir, empty.FileInfo); err != nil || len(got) != 0 {
		t.Errorf("no samples: read %d, %v", len(got), err)
	}
}

// Whatever fails while a file is written: the file that was there before
// stays, and nothing of the new one is left.
func TestFailedWriteLeavesNothing(t *testing.T) {
	broken := errors.New("no space left")
	for _, tt := range []struct {
		name  string
		write func(w io.Writer) error
		want  error
	}{
		{"before the first byte", func(w io.Writer) error { return broken }, broken},
		{"after some bytes", func(w io.Writer) error {
			w.Write([]byte("half a file"))
			return broken
		}, broken},
		{"at sync", func(w io.Writer) error { return w.(*os.File).Close() }, fs.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x")
			for _, before := range []string{"", "x 3\n"} {
				if before != "" {
					if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				if err := writeFile(path, tt.write); !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if got := tree(t, dir); got != before {
					t.Errorf("files afterwards: %q, want %q", got, before)
				}
			}
		})
	}
	t.Run("at rename", func(t *testing.T) {
		dir := newRun(t)
		ev := smallEvents()
		occupied := filepath.Join(dir, filepath.FromSlash(ev.Key.File()))
		if err := os.MkdirAll(filepath.Join(occupied, "x"), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := WriteEvents(dir, ev); err == nil {
			t.Error("no error")
		}
		if got := tree(t, dir); got != "" {
			t.Errorf("files afterwards: %q, want none", got)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, err := WriteEvents(filepath.Join(t.TempDir(), "none"), smallEvents()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want %v", err, fs.ErrNotExist)
		}
	})
}

// What a writer that was killed leaves is no file of the run, and is swept.
func TestPartialFilesAreSweptAndNotRead(t *testing.T) {
	dir := newRun(t)
	ev := smallEvents()
	info, err := WriteEvents(dir, ev)
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	half := encoded(t, ev)[:100]
	for _, name := range []string{"run.json.partial", "telemetry.parquet.partial", "cells/decode-8192-c4.parquet.partial", "cells/warmup.parquet.partial"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), half, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadEvents(dir, ev.Key, info); err != nil {
		t.Errorf("a partial file beside the whole one: %v", err)
	}
	if _, err := ReadManifest(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("only a partial manifest: got %v, want %v", err, fs.ErrNotExist)
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); got != before {
		t.Errorf("after the sweep:\n%swant\n%s", got, before)
	}
	if err := Sweep(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sweeping nothing: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestCreateNeverTouchesWhatIsThere(t *testing.T) {
	root := filepath.Join(t.TempDir(), "results", "deep")
	dir, err := Create(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteEvents(dir, smallEvents()); err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	if _, err := Create(root, "a"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create a second time: got %v, want %v", err, fs.ErrExist)
	}
	if got := tree(t, root); got != before {
		t.Errorf("after a second Create:\n%swant\n%s", got, before)
	}
	for _, name := range []string{"", ".", "..", "../b", "a/b", `a\b`, "a:b"} {
		if _, err := Create(root, name); err == nil {
			t.Errorf("Create(%q): no error", name)
		}
	}
}

func TestReaderRefusesWhatIsNoFileOfTheRun(t *testing.T) {
	dir := newRun(t)
	ev := smallEvents()
	info, err := WriteEvents(dir, ev)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		want FileInfo
		msg  string
	}{
		{"other path", FileInfo{File: "../../etc/passwd"}, `file: got "../../etc/passwd", want "cells/decode-8192-c4.parquet"`},
		{"other size", FileInfo{File: info.File, Rows: info.Rows, Bytes: info.Bytes + 1, SHA256: info.SHA256}, ` bytes, want `},
		{"other checksum", FileInfo{File: info.File, Rows: info.Rows, Bytes: info.Bytes, SHA256: strings.Repeat("0", 64)}, `got SHA-256 ` + info.SHA256},
		{"other rows", FileInfo{File: info.File, Rows: info.Rows + 1, Bytes: info.Bytes, SHA256: info.SHA256}, ` rows, want `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fe *FormatError
			if _, err := ReadEvents(dir, ev.Key, tt.want); !errors.As(err, &fe) || !strings.Contains(err.Error(), tt.msg) {
				t.Errorf("got %v, want a *FormatError with %s", err, tt.msg)
			}
		})
	}
	if _, err := ReadEvents(dir, Key{PhaseDecode, 1, 1}, FileInfo{}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), filepath.Join(dir, "cells", "decode-1-c1.parquet")) {
		t.Errorf("no such cell: got %v, want %v with the whole path", err, fs.ErrNotExist)
	}
	t.Run("link out of the run", func(t *testing.T) {
		outside := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(outside, encoded(t, ev), 0o666); err != nil {
			t.Fatal(err)
		}
		linked := newRun(t)
		if err := os.Symlink(outside, filepath.Join(linked, filepath.FromSlash(ev.Key.File()))); err != nil {
			t.Logf("no symbolic links here: %v", err)
			return
		}
		if _, err := ReadEvents(linked, ev.Key, FileInfo{}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("directory in the file's place", func(t *testing.T) {
		other := newRun(t)
		if err := os.Mkdir(filepath.Join(other, filepath.FromSlash(ev.Key.File())), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadEvents(other, ev.Key, FileInfo{}); err == nil || !strings.HasSuffix(err.Error(), "not a regular file") {
			t.Errorf("got %v, want it not to be a regular file", err)
		}
	})
}

// The cost of an event is a few appends, not an allocation.
func TestEncodingAllocatesByBatch(t *testing.T) {
	few, many := cellEvents(1, 1600, 1), cellEvents(1, 64_000, 1)
	count := func(ev *Events) float64 {
		return testing.AllocsPerRun(3, func() {
			if err := encodeEvents(io.Discard, ev); err != nil {
				t.Error(err)
			}
		})
	}
	per := (count(many) - count(few)) / float64(many.Len()-few.Len())
	if per > 0.01 {
		t.Errorf("%.4f allocations for an event, want 0.01 at most", per)
	}
}

// The target of the format for events of one token each, text included.
func TestPlainEventsAreSmall(t *testing.T) {
	ev := cellEvents(1, benchRows, 1)
	per := float64(len(encoded(t, ev))) / float64(ev.Len())
	if per > 3.5 {
		t.Errorf("%.2f bytes for an event, want 3.5 at most", per)
	}
}

// killedWriter is the variable with which this test binary, started anew,
// is a writer that never stops; it names the run directory.
const killedWriter = "RUNLOG_TEST_KILLED_WRITER"

func TestMain(m *testing.M) {
	dir := os.Getenv(killedWriter)
	if dir == "" {
		os.Exit(m.Run())
	}
	one, two := randomEvents(1, decodeKey, 20), randomEvents(2, decodeKey, 40)
	manifest := someManifest()
	for i := 0; ; i++ {
		manifest.Plan.Seed = int64(i)
		_, err1 := WriteEvents(dir, one)
		err2 := WriteManifest(dir, manifest)
		_, err3 := WriteEvents(dir, two)
		if err := errors.Join(err1, err2, err3); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

// A writer that is killed at any instant leaves whole files: the old one or
// the new one.
func TestKilledWriterLeavesWholeFiles(t *testing.T) {
	dir := newRun(t)
	one, two := randomEvents(1, decodeKey, 20), randomEvents(2, decodeKey, 40)
	r := rand.New(rand.NewPCG(1, 1))
	for kill := range 15 {
		writer := exec.Command(os.Args[0])
		writer.Env = append(os.Environ(), killedWriter+"="+dir)
		out, err := writer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + r.IntN(5) {
			if !lines.Scan() {
				t.Fatal("the writer stopped by itself")
			}
		}
		for range r.IntN(20_000) { // some instant within a write
			runtime.Gosched()
		}
		if err := writer.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // to its end
		}
		writer.Wait()
		ev, err := ReadEvents(dir, decodeKey, FileInfo{})
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		if !ev.equal(one) && !ev.equal(two) {
			t.Fatalf("kill %d: neither the old nor the new events", kill)
		}
		if _, err := ReadManifest(dir); err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		if err := Sweep(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// Readers at work at the same time do not disturb each other: the library
// shares its decompressors between them.
func TestReadersAtTheSameTime(t *testing.T) {
	dir := newRun(t)
	want := randomEvents(1, decodeKey, 200)
	info, err := WriteEvents(dir, want)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5 {
				if got, err := ReadEvents(dir, decodeKey, info); err != nil || !got.equal(want) {
					t.Errorf("read other events than were written, %v", err)
				}
			}
		})
	}
	group.Wait()
}
