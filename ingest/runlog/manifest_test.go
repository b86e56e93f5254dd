package runlog

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Flags of this package's tests.
var (
	update        = flag.Bool("update", false, "write golden files anew")
	updateFixture = flag.Bool("update-fixture", false, "make the run of the released version anew: never after a release")
)

func TestManifestGolden(t *testing.T) {
	got, err := encodeManifest(someManifest())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "run.json.golden"), got)
}

// golden holds got against a file of test data.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestManifestReadsBackAsWritten(t *testing.T) {
	dir := newRun(t)
	want := someManifest()
	local := copyManifest(t, want)
	local.StartedAt = want.StartedAt.In(time.FixedZone("", 5*3600))
	if err := WriteManifest(dir, local); err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	if err := WriteManifest(dir, got); err != nil {
		t.Fatal(err)
	}
	again, err := encodeManifest(want)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, again) {
		t.Error("written again after reading, the bytes differ")
	}
}

// A plan of nothing is written with empty lists, which can be read.
func TestEmptyPlanReadsBack(t *testing.T) {
	m := someManifest()
	m.Plan.ContextsTokens, m.Plan.Concurrency, m.Plan.PrefillContextsTokens, m.Plan.Order, m.Cells = nil, nil, nil, nil, nil
	m.Warmup, m.Telemetry = nil, nil
	dir := newRun(t)
	if err := WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(dir); err != nil {
		t.Error(err)
	}
}

// edit changes the first place of old in a good manifest's bytes.
func edit(t *testing.T, old, new string) []byte {
	t.Helper()
	data, err := encodeManifest(someManifest())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(old)) {
		t.Fatalf("the manifest has no %s", old)
	}
	return bytes.Replace(data, []byte(old), []byte(new), 1)
}

func TestCorruptManifestSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"unknown keys are ignored", `"finished": false`, `"finished": false, "colour": {"of": ["sky", null]}`, ""},
		{"unknown keys in cells are ignored", `"outcome": "pending"`, `"outcome": "pending", "x": 1`, ""},
		{"optional null is absent", `"revision": "main"`, `"revision": null`, ""},
		{"keys are not folded", `"format": `, `"FORMAT": "x", "format": `, ""},

		{"another version", `"runlog/1"`, `"runlog/2"`, `format: got "runlog/2", want "runlog/1"`},
		{"version of another type", `"format": "runlog/1"`, `"format": 1`, `format: got 1, want "runlog/1"`},
		{"no version", `"format": `, `"from": `, `not a run log: no key "format"`},
		{"key twice", `"finished": false`, `"finished": false, "finished": true`, `at byte …: key "finished" stands twice`},
		{"cut off", "\n  }\n}\n", "", `at byte …: unexpected EOF`},
		{"something after it", "\n  }\n}\n", "\n  }\n}\n{}", `at byte …: more than one value`},
		{"not JSON", `"finished": false`, `"finished": False`, `at byte …: invalid character 'F' looking for beginning of value`},
		{"not UTF-8", `"night"`, "\"n\xffght\"", `not UTF-8`},
		{"nested without end", `"night"`, strings.Repeat("[", 40) + strings.Repeat("]", 40), `at byte …: nested more than 32 deep`},
		{"missing key", `"seed": 1`, `"sead": 1`, `plan.seed: missing`},
		{"missing object", `"capacity": {`, `"kapacity": {`, `capacity: missing`},
		{"required null", `"finished": false`, `"finished": null`, `finished: got null, want true or false`},
		{"string for a number", `"seed": 1`, `"seed": "1"`, `plan.seed: got "1", want an integer of 64 bits`},
		{"fraction for an integer", `"prompt_tokens": 8192`, `"prompt_tokens": 8192.5`, `cells[0].prompt_tokens: got 8192.5, want an integer of 32 bits`},
		{"too large a number", `"prompt_tokens": 8192`, `"prompt_tokens": 4294967296`, `cells[0].prompt_tokens: got 4294967296, want an integer of 32 bits`},
		{"infinite number", `"power_limit_w": 600`, `"power_limit_w": 1e999`, `hardware.gpus[0].power_limit_w: got 1e999, want a number`},
		{"object for an array", `"gpus": [`, `"gpus": {"a": 1}, "gpu": [`, `hardware.gpus: got an object, want an array`},
		{"array for an object", `"launch": {`, `"launch": [], "lunch": {`, `launch: got an array, want an object`},
		{"number in a map of strings", `"16"`, `16`, `capacity.raw["block_size"]: got 16, want a string`},
		{"no time", `2026-11-29T10:15:00.123456Z`, `yesterday`, `started_at: got "yesterday", want a time as in RFC 3339`},
		{"another time zone", `2026-11-29T10:15:00.123456Z`, `2026-11-29T10:15:00+02:00`, `started_at: got 2026-11-29T10:15:00+02:00, want UTC`},
		{"unknown clock", `"kernel"`, `"sun"`, `arrival_clock: got "sun", want one of kernel, user`},
		{"unknown source", `"source": "process"`, `"source": "hearsay"`, `engine.environment.source: got "hearsay", want one of server, process, flag`},
		{"an address", `"loopback"`, `"10.0.0.7"`, `server.address: got "10.0.0.7", want one of loopback, private, public`},
		{"unknown outcome", `"outcome": "pending"`, `"outcome": "done"`, `cells[3].outcome: got "done", want one of recorded, over_capacity, failed, pending`},
		{"unknown phase", `"phase": "prefill"`, `"phase": "prefil"`, `cells[0].phase: got "prefil", want one of warmup, prefill, decode`},
		{"path out of the run", `"cells/prefill-8192.parquet"`, `"../../secret.parquet"`, `cells[0].file: got "../../secret.parquet", want "cells/prefill-8192.parquet"`},
		{"path of another cell", `"cells/prefill-8192.parquet"`, `"cells/decode-8192-c1.parquet"`, `cells[0].file: got "cells/decode-8192-c1.parquet", want "cells/prefill-8192.parquet"`},
		{"short checksum", `"sha256": "0123`, `"sha256": "123`, `cells[0].sha256: got "1234…`},
		{"checksum in capitals", `"sha256": "0123456789a`, `"sha256": "0123456789A`, `cells[0].sha256: got "0123456789A…`},
		{"negative rows", `"rows": 3`, `"rows": -3`, `cells[0].rows: got -3, want 0 to 16777216`},
		{"cell twice", `"concurrency": 2,`, `"concurrency": 1,`, `cells[2]: got decode-8192-c1 a second time, after cells[1]`},
		{"plan and cells differ", `"concurrency": 2,`, `"concurrency": 4,`, `cells[2]: got decode-8192-c4, want decode-8192-c2 as in the plan`},
		{"plan has more", "\"concurrency\": [\n      1,", "\"concurrency\": [\n      1,\n 1000000,", `plan.concurrency[2]: got 2 after 1000000, want ascending`},
		{"order names no cell", `"decode-8192-c1"`, `"decode-8192-c9"`, `plan.order[0]: got "decode-8192-c9", want the name of a planned cell, once`},
		{"order names one twice", `"decode-8192-c1"`, `"prefill-8192"`, `plan.order[1]: got "prefill-8192", want the name of a planned cell, once`},
		{"finished and pending", `"finished": false`, `"finished": true`, `cells[3].outcome: got pending in a run that is finished`},
		{"failed for no reason", `"reason": "server busy"`, `"raisin": ""`, `cells[2].reason: missing in a cell that failed`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newRun(t)
			if err := os.WriteFile(filepath.Join(dir, ManifestFile), edit(t, tt.old, tt.new), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := ReadManifest(dir)
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a *FormatError", err)
			}
			begin, end, _ := strings.Cut(tt.want, "…")
			if !strings.HasPrefix(fe.Msg, begin) || !strings.HasSuffix(fe.Msg, end) {
				t.Errorf("got %q, want %q", fe.Msg, tt.want)
			}
			if want := filepath.Join(dir, ManifestFile); fe.Path != want {
				t.Errorf("got the path %s, want %s", fe.Path, want)
			}
		})
	}
}

func TestManifestRules(t *testing.T) {
	us := func(n int64) *int64 { return &n }
	for _, tt := range []struct {
		name   string
		change func(m *Manifest)
		want   string
	}{
		{"all rules kept", func(m *Manifest) {}, ""},
		{"no tool", func(m *Manifest) { m.Tool.Name = "" }, `tool.name: missing`},
		{"no start", func(m *Manifest) { m.StartedAt = time.Time{} }, `started_at: got year 1, want 1970 to 9999`},
		{"resumed before an earlier time", func(m *Manifest) { m.ResumedUs[1] = 5 }, `resumed_us[1]: got 5 after 90000000, want ascending`},
		{"fact that says nothing", func(m *Manifest) { m.Engine.Build = &Fact{Source: FromFlag} }, `engine.build.value: got "", want no key where it is not known`},
		{"command of nothing", func(m *Manifest) { m.Engine.LaunchCommand.Args = nil }, `engine.launch_command.args: got none, want no key where it is not known`},
		{"GPU without a name", func(m *Manifest) { m.Hardware.GPUs[0].Name = "" }, `hardware.gpus[0].name: missing`},
		{"power that is no number", func(m *Manifest) { m.Hardware.GPUs[0].PowerLimitW = math.NaN() }, `hardware.gpus[0].power_limit_w: got NaN, want 0 or more`},
		{"negative memory", func(m *Manifest) { m.Hardware.MemoryBytes = -1 }, `hardware.memory_bytes: got -1, want 0 or more`},
		{"temperature that is no number", func(m *Manifest) { m.Plan.Sampling.Temperature = math.Inf(1) }, `plan.sampling.temperature: got +Inf, want 0 or more`},
		{"top_p of nothing", func(m *Manifest) { m.Plan.Sampling.TopP = 0 }, `plan.sampling.top_p: got 0, want more than 0, 1 at most`},
		{"unknown text", func(m *Manifest) { m.Plan.Text = "some" }, `plan.text: got "some", want one of full, hash, none`},
		{"no duration", func(m *Manifest) { m.Plan.DurationUs = 0 }, `plan.duration_us: got 0, want 1 to 1125899906842624`},
		{"negative concurrency", func(m *Manifest) { m.Plan.Concurrency[0] = 0 }, `plan.concurrency[0]: got 0, want 1 or more`},
		{"contexts not ascending", func(m *Manifest) { m.Plan.ContextsTokens[1] = 8192 }, `plan.contexts_tokens[1]: got 8192 after 8192, want ascending`},
		{"more cells than anyone measures", func(m *Manifest) {
			for i := range int32(200) {
				m.Plan.ContextsTokens = append(m.Plan.ContextsTokens, 20_000+i)
				m.Plan.Concurrency = append(m.Plan.Concurrency, 3+i)
			}
		}, `plan: got 40805 cells, want 10000 at most`},
		{"cell missing", func(m *Manifest) { m.Cells = m.Cells[:4] }, `cells: got 4, want 5: decode-16384-c2 is missing`},
		{"cell too many", func(m *Manifest) {
			m.Cells = append(m.Cells, Cell{Phase: PhaseDecode, ContextTokens: 1, Concurrency: 1, Outcome: OutcomePending})
		}, `cells[5]: got decode-1-c1, want no more than the 5 cells of the plan`},
		{"recorded without a file", func(m *Manifest) { m.Cells[0].FileInfo = FileInfo{} }, `cells[0].file: missing in a cell that is recorded`},
		{"recorded without rows", func(m *Manifest) { m.Cells[0].Rows = 0 }, `cells[0].rows: missing in a cell that is recorded`},
		{"recorded without a window", func(m *Manifest) { m.Cells[1].WindowOpenUs, m.Cells[1].WindowCloseUs = nil, nil }, `cells[1].window_open_us: missing in a cell that is recorded`},
		{"window with one end", func(m *Manifest) { m.Cells[1].WindowCloseUs = nil }, `cells[1]: got one end of the window, want window_open_us and window_close_us, or neither`},
		{"window that ends before it begins", func(m *Manifest) { m.Cells[1].WindowCloseUs = us(1) }, `cells[1]: got a window from 5000000 to 1, want 0 or more and an end after the beginning`},
		{"window in prefill", func(m *Manifest) { m.Cells[0].WindowOpenUs, m.Cells[0].WindowCloseUs = us(1), us(2) }, `cells[0].window_open_us: got a window in phase prefill, want one only in decode`},
		{"ready in prefill", func(m *Manifest) { m.Cells[0].Ready = &Ready{By: "streams"} }, `cells[0].ready: got it in phase prefill, want it only in decode`},
		{"file of a cell that was not sent", func(m *Manifest) { m.Cells[4].FileInfo = m.Cells[1].FileInfo }, `cells[4].file: got "cells/decode-8192-c1.parquet" in a cell that is over_capacity, want no file`},
		{"size without a file", func(m *Manifest) { m.Cells[3].Bytes = 5 }, `cells[3].file: missing beside its rows, bytes or sha256`},
		{"other telemetry file", func(m *Manifest) { m.Telemetry.File = "t.parquet" }, `telemetry.file: got "t.parquet", want "telemetry.parquet"`},
		{"warm-up without its context", func(m *Manifest) { m.Warmup.ContextTokens = 0 }, `warmup.context_tokens: got 0, want 1 or more`},
		{"other warm-up file", func(m *Manifest) { m.Warmup.File = "cells/x.parquet" }, `warmup.file: got "cells/x.parquet", want "cells/warmup.parquet"`},
		{"failed with events", func(m *Manifest) {
			m.Cells[2].FileInfo = m.Cells[1].FileInfo
			m.Cells[2].File = m.Cells[2].Key().File()
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := copyManifest(t, someManifest())
			tt.change(m)
			got := ""
			if err := m.Check(); err != nil {
				got = err.Error()
			}
			want := tt.want
			if want != "" {
				want = "run.json: " + want
			}
			if got != want {
				t.Errorf("Check() = %q, want %q", got, want)
			}
			dir := newRun(t)
			if err := WriteManifest(dir, m); (err != nil) != (tt.want != "") {
				t.Errorf("WriteManifest: got %v, want an error only where Check has one", err)
			}
			if got := tree(t, dir); tt.want != "" && got != "" {
				t.Errorf("files after a refused write: %q, want none", got)
			}
		})
	}
}

func TestManifestOfMoreThanItsLimitIsRefused(t *testing.T) {
	dir := newRun(t)
	if err := os.WriteFile(filepath.Join(dir, ManifestFile), bytes.Repeat([]byte{' '}, maxManifestBytes+1), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := ReadManifest(dir)
	if want := "got 16777217 bytes, want 16777216 at most"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
