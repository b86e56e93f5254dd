package made

import (
	"path/filepath"
	"slices"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

func TestMadeUpRunsAreGoodRuns(t *testing.T) {
	text, err := ReadText()
	if err != nil {
		t.Fatal(err)
	}
	cell := Cell{
		Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 512, Concurrency: 4}, TTFTUs: 40_000, StepUs: 8000,
		Tokens: 2.5, MaxTokens: 300, RampUs: 1e6, WindowUs: 4e6, Seed: 1,
	}
	a, b := cell.Events(text), cell.Events(text)
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(a.TUs, b.TUs) || string(a.Text) != string(b.Text) {
		t.Error("the same seed gives two different cells")
	}
	tooLarge, prefill := cell, cell
	tooLarge.Key.ContextTokens, tooLarge.NotSent = 12_000_000, true
	prefill.Key = runlog.Key{Phase: runlog.PhasePrefill, ContextTokens: 512, Concurrency: 1}
	prefillToo := prefill
	prefillToo.Key.ContextTokens = 12_000_000
	dir := t.TempDir()
	events, err := Write(dir, "run", []Cell{prefill, prefillToo, cell, tooLarge}, text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ingest.Load(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	var got []ingest.Status
	rows := 0
	for _, c := range slices.Concat(r.Prefill, r.Decode) {
		got = append(got, c.Status)
		rows += int(c.Rows)
	}
	if want := []ingest.Status{ingest.Valid, ingest.Valid, ingest.Valid, ingest.OverCapacity}; !slices.Equal(got, want) {
		t.Errorf("cells are %v, want %v", got, want)
	}
	if rows != events {
		t.Errorf("got %d events written, want %d", events, rows)
	}
	perEvent := r.Decode[0].Figures.TokensPerEvent
	if perEvent.Value < 2 || perEvent.Value > 3 {
		t.Errorf("got %v tokens an event, want about 2.5", perEvent.Value)
	}
}

func TestTheReferenceRunIsThere(t *testing.T) {
	cells, err := Reference("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 46 {
		t.Errorf("got %d cells, want the 46 of the page", len(cells))
	}
}
