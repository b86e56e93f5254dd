package compare

import (
	"bytes"
	"encoding/gob"
	"reflect"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// The essence of runs, kept in a file and read back, gives the comparison of
// the runs to the last bit: also the floor from inside the windows, heat,
// and statuses.
func TestEssence(t *testing.T) {
	a, b := pair(3, func(r *ingest.Run) {
		scale(Decode, 32768, 8, 0.9)(r)
		r.Decode[3].Status = ingest.Looped
		r.Decode[5].GPUs = []ingest.GPUState{{Index: 1, TemperatureC: ingest.Stat{Value: 80, N: 1}, SlowedShare: ingest.Stat{Value: 0.5, N: 10}}}
		r.Decode[7].Timeline = &ingest.Timeline{StallUs: 5, Spans: make([]ingest.Span, 9), TokPerS: []float64{9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 8, 7, 6, 5}}
		r.Decode[7].Requests = make([]ingest.Request, 8)
	})
	want, err := Compare(a, []Side{b}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	kept := func(s Side) Side {
		var out Side
		for _, r := range s.Runs {
			var file bytes.Buffer
			var back ingest.Run
			if err := gob.NewEncoder(&file).Encode(Essence(r)); err != nil {
				t.Fatal(err)
			}
			if file.Len() > 64<<10 {
				t.Errorf("the essence of a run has %d bytes", file.Len())
			}
			if err := gob.NewDecoder(&file).Decode(&back); err != nil {
				t.Fatal(err)
			}
			out.Runs = append(out.Runs, &back)
		}
		return out
	}
	got, err := Compare(kept(a), []Side{kept(b)}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if want.Counts.NotComparable == 0 || want.Counts.Lost == 0 || want.Counts.Worse == 0 {
		t.Fatalf("the pair has too little in it: %+v", want.Counts)
	}
	if got.Counts != want.Counts || len(got.Diffs[0].Metrics) != len(want.Diffs[0].Metrics) || !reflect.DeepEqual(got.Diffs[0].Findings, want.Diffs[0].Findings) ||
		!reflect.DeepEqual(got.Diffs[0].Coverage, want.Diffs[0].Coverage) {
		t.Errorf("got %+v, want %+v", got.Counts, want.Counts)
	}
	for i := range want.Diffs[0].Metrics {
		x, y := got.Diffs[0].Metrics[i], want.Diffs[0].Metrics[i]
		for j := range y.Cells {
			x.Cells[j].launches, y.Cells[j].launches = nil, nil
		}
		if !reflect.DeepEqual(x, y) {
			t.Errorf("%v: the essence gives another comparison", y.Metric)
		}
	}
	profile, err := NewProfile(a.Runs)
	if err != nil {
		t.Fatal(err)
	}
	again, err := NewProfile(kept(a).Runs)
	if err != nil || !reflect.DeepEqual(profile, again) {
		t.Errorf("the essence gives another noise profile (%v)", err)
	}
	if m := a.Runs[0].Manifest; Setting(m) != Setting(kept(a).Runs[0].Manifest) || runlog.Format != m.Format {
		t.Error("the essence is of another setting")
	}
}
