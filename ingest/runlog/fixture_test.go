package runlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixtureDir holds a run as the first released version wrote it, and
// fixtureRows its rows as text. Both are kept for ever: later versions of
// this package must read the one and get the other. They were made by
//
//	go test ./ingest/runlog -run TestReleasedVersionIsReadForEver -update-fixture
//
// and are not to be made again after a release; a new version of the format
// gets a run of its own beside this one.
const (
	fixtureDir  = "testdata/runlog-1"
	fixtureRows = "testdata/runlog-1.rows.txt"
)

// writeFixture makes the run out of what the generators of these tests
// give now.
func writeFixture(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(fixtureDir); err != nil {
		t.Fatal(err)
	}
	dir, err := Create(filepath.Dir(fixtureDir), filepath.Base(fixtureDir))
	if err != nil {
		t.Fatal(err)
	}
	m := someManifest()
	for _, file := range []struct {
		into *FileInfo
		ev   *Events
	}{
		{&m.Warmup.FileInfo, randomEvents(11, Key{PhaseWarmup, 16384, 1}, 1)},
		{&m.Cells[0].FileInfo, randomEvents(12, Key{PhasePrefill, 8192, 1}, 2)},
		{&m.Cells[1].FileInfo, randomEvents(13, Key{PhaseDecode, 8192, 1}, 6)},
	} {
		if *file.into, err = WriteEvents(dir, file.ev); err != nil {
			t.Fatal(err)
		}
	}
	if *m.Telemetry, err = WriteTelemetry(dir, someSamples()); err != nil {
		t.Fatal(err)
	}
	if err := WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
}

func TestReleasedVersionIsReadForEver(t *testing.T) {
	if *updateFixture {
		writeFixture(t)
	}
	m, err := ReadManifest(fixtureDir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Format != "runlog/1" || m.Model.Repository != "google/gemma-4-E2B-it" || *m.Cells[1].WindowOpenUs != 5_000_000 {
		t.Errorf("got format %s, model %s, window from %d", m.Format, m.Model.Repository, *m.Cells[1].WindowOpenUs)
	}
	var rows bytes.Buffer
	for _, file := range []struct {
		key  Key
		info FileInfo
	}{
		{Key{PhaseWarmup, m.Warmup.ContextTokens, 1}, m.Warmup.FileInfo},
		{m.Cells[0].Key(), m.Cells[0].FileInfo},
		{m.Cells[1].Key(), m.Cells[1].FileInfo},
	} {
		ev, err := ReadEvents(fixtureDir, file.key, file.info)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rows, "%s\n", file.key.File())
		for i := range ev.Len() {
			e := ev.Row(i)
			fmt.Fprintf(&rows, "%d %d %d %s %d %t tokens=%d %q text=%t %q finish=%q usage=%d,%d,%d status=%d error=%q\n",
				e.Stream, e.Request, e.Seq, e.Kind, e.TUs, e.SameRead, e.Tokens, e.Channel.String(), e.HasText, e.Text,
				e.FinishReason, e.PromptTokens, e.CachedTokens, e.CompletionTokens, e.Status, e.Error)
		}
	}
	samples, err := ReadTelemetry(fixtureDir, m.Telemetry.FileInfo)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&rows, "%s\n", TelemetryFile)
	for _, s := range samples {
		fmt.Fprintf(&rows, "%d %s %s %d %v\n", s.TUs, s.Source, s.Name, s.Index, s.Value)
	}
	if *updateFixture {
		if err := os.WriteFile(fixtureRows, rows.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(fixtureRows)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), rows.String()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
