package runlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seeds returns the files under testdata/runlog-1 whose name has the suffix.
func seeds(f *testing.F, suffix string) [][]byte {
	f.Helper()
	var found [][]byte
	err := filepath.WalkDir(fixtureDir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, suffix) {
			return err
		}
		data, err := os.ReadFile(path)
		found = append(found, data)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	if len(found) == 0 {
		f.Fatalf("no seeds %s", suffix)
	}
	return found
}

// Any bytes are an error or events that keep the rules, and which written
// again read back as the same.
func FuzzReadEvents(f *testing.F) {
	key := Key{PhaseDecode, 8192, 1}
	n := 0
	for _, data := range seeds(f, ".parquet") {
		f.Add(data)
		if _, d := decodeEvents(data, key); d == nil {
			n++
		}
	}
	if n == 0 {
		f.Fatal("no seed is an event file of the key")
	}
	good, _ := os.ReadFile(filepath.Join(fixtureDir, filepath.FromSlash(key.File())))
	f.Add(good[:len(good)/2])
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if samples, d := decodeSamples(data); d == nil && checkSamples(samples) != nil {
			t.Fatalf("samples that break a rule: %v", checkSamples(samples))
		}
		ev, d := decodeEvents(data, key)
		if d != nil {
			return
		}
		if err := ev.Check(); err != nil {
			t.Fatalf("events that break a rule: %v", err)
		}
		again, d := decodeEvents(encoded(t, ev), key)
		if d != nil || !again.equal(ev) {
			t.Fatalf("written again, they read back otherwise: %v", d)
		}
	})
}

// Any bytes are an error or a manifest that, written, reads back as the same
// bytes.
func FuzzReadManifest(f *testing.F) {
	for _, data := range seeds(f, ManifestFile) {
		if _, d := decodeManifest(data); d != nil {
			f.Fatalf("a seed is refused: %v", d)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
		f.Add(bytes.ReplaceAll(data, []byte("8192"), []byte("1e3")))
	}
	for _, s := range []string{"", "null", "{}", "[]", `{"format":"runlog/1"}`, `{"format":"runlog/2"}`, "[[[["} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, d := decodeManifest(data)
		if d != nil {
			if d.msg == "" {
				t.Fatal("an error that says nothing")
			}
			return
		}
		first, err := encodeManifest(m)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		m, d = decodeManifest(first)
		if d != nil {
			t.Fatalf("what was written can't be read: %v", d)
		}
		second, err := encodeManifest(m)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written twice, the bytes differ: %v", err)
		}
	})
}
