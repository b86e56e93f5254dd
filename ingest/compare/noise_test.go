package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

func mustProfile(t testing.TB, s Side) *Profile {
	t.Helper()
	p, err := NewProfile(s.Runs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewProfile(t *testing.T) {
	p := mustProfile(t, launches(5, 0, 10, func(r *ingest.Run) { r.Decode[7].Status = ingest.Looped }))
	if p.Schema != ProfileSchema || p.Method != ingest.Method || p.Commit != "73a5831127a9" || len(p.Launches) != 5 || len(p.Metrics) != 5 {
		t.Errorf("got %+v", p)
	}
	m := p.Metrics[Decode]
	if m.Metric != "decode" || m.DF != 4 || len(m.Cells) != 39 || !(m.LaunchSD > 0.0005 && m.LaunchSD < 0.006) {
		t.Errorf("decode: got %s, %d df, %d cells, launches %v; want 4 df, 39 cells without the looped one, and about 0.002", m.Metric, m.DF, len(m.Cells), m.LaunchSD)
	}
	if sd, ok := p.SD(Decode, true, 0, 0); !ok || sd != m.LaunchSD {
		t.Errorf("of the run: got %v, %v", sd, ok)
	}
	if sd, ok := p.SD(Decode, false, 8192, 8); !ok || sd != m.Cells[3].SD {
		t.Errorf("of a cell: got %v, %v", sd, ok)
	}
	if sd, ok := p.SD(Decode, false, 8192, 128); ok {
		t.Errorf("of the looped cell: got %v", sd)
	}

	set := func(i int, change func(*runlog.Manifest)) Side {
		s := launches(3, 0, 10, nil)
		change(s.Runs[i].Manifest)
		return s
	}
	few := launches(3, 0, 10, func(r *ingest.Run) { r.Decode, r.Prefill = r.Decode[:4], nil })
	for _, tt := range []struct {
		name string
		s    Side
		want string
		is   error
	}{
		{"two launches", launches(2, 0, 10, nil), "got 2 launches, want 3 or more", ErrNoProfile},
		{"none", Side{}, "no launch", nil},
		{"one of them twice", Side{Runs: append(launches(3, 0, 10, nil).Runs, matrix(0))}, "", ErrSameLaunch},
		{"another commit", set(1, func(m *runlog.Manifest) { m.Engine.Commit.Value = "9f2c41e07b55" }), `launches of several commits: "73a5831127a9" | "9f2c41e07b55"`, ErrNoProfile},
		{"another version", set(2, func(m *runlog.Manifest) { m.Engine.Version.Value = "0.31" }), "different engine version", ErrNoProfile},
		{"another GPU", set(2, func(m *runlog.Manifest) { m.Hardware.GPUs[0].Name = "H100" }), "different gpu", ErrNoProfile},
		{"another flag", set(0, func(m *runlog.Manifest) {
			m.Engine.LaunchCommand.Args = append(m.Engine.LaunchCommand.Args, "--enforce-eager")
		}), "--enforce-eager", ErrNoProfile},
		{"four cells", few, "no metric has 5 cells", ErrNoProfile},
	} {
		if p, err := NewProfile(tt.s.Runs); err == nil || p != nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

func TestProfileRoundTrip(t *testing.T) {
	p := mustProfile(t, launches(3, 0, 10, nil))
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeProfile(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Encode()
	if err != nil || !bytes.Equal(data, again) || data[len(data)-1] != '\n' {
		t.Errorf("a round trip changes bytes: %v", err)
	}
	turned, err := mustProfile(t, launches(3, 20, -10, nil)).Encode()
	if err != nil || !bytes.Equal(data, turned) {
		t.Errorf("another order of launches changes bytes: %v", err)
	}
	if name := ProfileName(matrix(0).Manifest); len(name) != 21 || name != ProfileName(matrix(99).Manifest) {
		t.Errorf("name: %q", name)
	}
	other := matrix(0).Manifest
	other.Plan.MaxOutputTokens++
	if ProfileName(other) == ProfileName(matrix(0).Manifest) {
		t.Error("another setting has the same name")
	}

	for _, tt := range []struct{ name, old, new, want string }{
		{"another version", `"noise/1"`, `"noise/2"`, `schema: got "noise/2", want "noise/1"`},
		{"no key", `"key"`, `"yek"`, "key: missing"},
		{"not a metric", `"decode"`, `"decoding"`, `metrics[0].metric: got "decoding"`},
		{"a metric twice", `"prefill",`, `"decode",`, `metrics[1].metric: got "decode"`},
		{"other degrees of freedom", `"df": 2`, `"df": 200`, "metrics[0].df: got 200, want 2"},
		{"a negative deviation", `"launch_sd": 0`, `"launch_sd": -0`, "metrics[0].launch_sd: got -0.00"},
		{"one beyond belief", `"sd": 0`, `"sd": 1110`, "cells[0].sd: got 1110"},
		{"a cell out of order", `"concurrency": 2,`, `"concurrency": 9,`, "out of order"},
		{"no concurrency", `"concurrency": 1,`, `"concurrency": 0,`, "got context 8192 and concurrency 0"},
		{"a launch twice", p.Launches[1].Launch, p.Launches[0].Launch, "a second time"},
		{"garbage", `{`, `[`, "decode noise profile"},
		{"nothing", string(data), "", "unexpected end"},
		{"a time that is none", `T10:`, `T99:`, "decode noise profile"},
	} {
		if bad := strings.Replace(string(data), tt.old, tt.new, 1); bad == string(data) {
			t.Errorf("%s: nothing to replace", tt.name)
		} else if p, err := DecodeProfile([]byte(bad)); err == nil || p != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
	if _, err := DecodeProfile(make([]byte, maxProfileBytes+1)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("too long: got %v", err)
	}
	p.Metrics[0].LaunchSD = math.NaN()
	if _, err := p.Encode(); err == nil {
		t.Error("a deviation that is no number is written")
	}
}

// When a profile takes part, and what is said when it does not.
func TestProfileUse(t *testing.T) {
	good := launches(5, -200, 10, nil)
	for _, tt := range []struct {
		name    string
		profile Side
		change  func(*Profile)
		runs    func(*ingest.Run) // of both sides
		used    bool
		outcome Outcome
		text    string
	}{
		{name: "of the same setting", profile: good, used: true, outcome: Same},
		{name: "of another model", profile: launches(5, -200, 10, func(r *ingest.Run) { r.Manifest.Model.Repository = "org/other" }), outcome: Warn,
			text: `another setting: model is "org/other" there and "org/tiny" here`},
		{name: "of other flags", profile: launches(5, -200, 10, func(r *ingest.Run) { served("--enforce-eager")(r.Manifest) }), outcome: Warn, text: "another setting: launch flags"},
		{name: "of another method", profile: good, change: func(p *Profile) { p.Method = "method/0" }, outcome: Warn, text: "of method/0, not method/1"},
		{name: "of another driver", profile: good, change: func(p *Profile) { p.Driver = "1 × 1" }, used: true, outcome: Warn, text: "another driver"},
		{name: "of another engine version", profile: launches(5, -200, 10, func(r *ingest.Run) { r.Manifest.Engine.Version.Value = "0.29" }), used: true, outcome: Same},
		{name: "91 days old", profile: launches(5, -91*24*60-50, 10, nil), used: true, outcome: Warn, text: "91 days older than the runs"},
		{name: "without the metric", profile: good, change: func(p *Profile) { p.Metrics = p.Metrics[1:] }, outcome: Warn, text: "says nothing about total tok/s"},
		{name: "of a quieter time, cell for cell", profile: good, runs: func(r *ingest.Run) {
			noisy(r, uint64(r.Manifest.StartedAt.Unix()), 0.01)
		}, outcome: Warn, text: "looks stale"},
		{name: "of a quieter time, as a whole", profile: good, runs: func(r *ingest.Run) {
			all(1 + 0.03*float64(r.Manifest.StartedAt.Minute()%4-1))(r)
		}, outcome: Warn, text: "looks stale: launches differ by"},
	} {
		p := mustProfile(t, tt.profile)
		if tt.change != nil {
			tt.change(p)
		}
		a, b := launches(2, 0, 21, tt.runs), launches(2, 10, 21, tt.runs)
		r := mustCompare(t, a, b, func(o *Options) { o.Noise, o.GateOn = p, []Metric{Decode} })
		n := r.Diffs[0].Metrics[Decode].Noise
		f := findingOf(t, r, "noise profile")
		if (n.ProfileLaunches == 5) != tt.used || (n.Unused == "") != tt.used || f.Outcome != tt.outcome || !strings.Contains(f.Text, tt.text) {
			t.Errorf("%s: got %+v and %v, %q; want used %v and %v, %q", tt.name, n, f.Outcome, f.Text, tt.used, tt.outcome, tt.text)
		}
		if judged := r.Diffs[0].Metrics[Decode].State == Judged; judged != tt.used {
			t.Errorf("%s: judged %v with two launches of each, want %v", tt.name, judged, tt.used)
		}
	}
}

// A profile of the base's own launches is not counted a second time.
func TestProfileOfTheBase(t *testing.T) {
	a, b := pair(3, nil)
	p := mustProfile(t, a)
	n := mustCompare(t, a, b, func(o *Options) { o.Noise = p }).Diffs[0].Metrics[Decode].Noise
	if n.Source != FromBoth || n.DF != 4 { // 2 of the profile and 2 of B
		t.Errorf("got %+v, want 4 degrees of freedom", n)
	}
	b.Runs = b.Runs[:1]
	if n := mustCompare(t, a, b, func(o *Options) { o.Noise = p }).Diffs[0].Metrics[Decode].Noise; n.Source != FromProfile || n.DF != 2 {
		t.Errorf("one launch of B: got %+v, want 2 degrees of freedom, all of the profile", n)
	}
}

func FuzzDecodeProfile(f *testing.F) {
	p, err := NewProfile(launches(3, 0, 10, nil).Runs)
	if err != nil {
		f.Fatal(err)
	}
	data, err := p.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"schema":"noise/1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeProfile(data)
		if err != nil {
			return
		}
		out, err := p.Encode()
		if err != nil || !json.Valid(out) {
			t.Errorf("read but not written: %v", err)
		}
		a, b := pair(2, nil)
		mustCompare(t, a, b, func(o *Options) { o.Noise = p })
	})
}
