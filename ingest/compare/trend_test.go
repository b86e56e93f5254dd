package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"speedmatrix/ingest/runlog"
)

// trendCommits are commits of one launch each and m cells, with noise of 1 %
// of a launch and 0.5 % of a cell; level is the logarithm that is added.
func trendCommits(seed uint64, n, cells int, level func(commit, cell int) float64) []Commit {
	g := rand.New(rand.NewPCG(seed, 3))
	var out []Commit
	for i := range n {
		c := Commit{Launches: 1, Values: map[runlog.Key][]float64{}}
		launch := 0.01 * g.NormFloat64()
		for j := range cells {
			y := launch + 0.005*g.NormFloat64()
			if level != nil {
				y += level(i, j)
			}
			c.Values[trendKey(j)] = []float64{100 * float64(j+1) * math.Exp(y)}
		}
		out = append(out, c)
	}
	return out
}

func trendKey(j int) runlog.Key {
	return runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: int32(8192 * (j/8 + 1)), Concurrency: int32(1 << (j % 8))}
}

// trendProfile says what the noise of trendCommits is.
func trendProfile(cells int) *Profile {
	pm := ProfileMetric{Metric: Decode.String(), DF: 4, LaunchSD: 0.01}
	for j := range cells {
		k := trendKey(j)
		pm.Cells = append(pm.Cells, ProfileCell{k.ContextTokens, k.Concurrency, 0.005})
	}
	return &Profile{Metrics: []ProfileMetric{pm}}
}

// describe lists the steps of a trend: "whole 5" or "16384×4 5", with a
// question mark where they are unconfirmed.
func (t *Trend) describe() (out []string) {
	add := func(what string, h *History) {
		for _, s := range h.Steps {
			mark := ""
			if !s.Confirmed {
				mark = "?"
			}
			out = append(out, fmt.Sprintf("%s %d %+.0f%s", what, s.At, 100*s.Share, mark))
		}
	}
	add("whole", &t.Whole)
	for i := range t.Cells {
		add(fmt.Sprintf("%d×%d", t.Cells[i].ContextTokens, t.Cells[i].Concurrency), &t.Cells[i].History)
	}
	return out
}

func TestFindTrend(t *testing.T) {
	after := func(at int, by float64, cells ...int) func(int, int) float64 {
		return func(commit, cell int) float64 {
			if commit >= at && (len(cells) == 0 || slices.Contains(cells, cell)) {
				return math.Log1p(by)
			}
			return 0
		}
	}
	for _, tt := range []struct {
		rule    string
		commits []Commit
		profile *Profile
		want    []string
	}{
		{"a level", trendCommits(1, 12, 40, nil), trendProfile(40), nil},
		{"all cells move: a step of the run and of no cell", trendCommits(1, 12, 40, after(6, -0.05)), trendProfile(40), []string{"whole 6 -5"}},
		{"one cell moves: a step of that cell", trendCommits(1, 12, 40, after(6, -0.05, 11)), trendProfile(40), []string{"16384×8 6 -5"}},
		{"without a profile too, of what is large", trendCommits(1, 20, 40, after(10, -0.08, 11)), nil, []string{"16384×8 10 -8"}},
		{"the newest commit alone waits for the next", trendCommits(1, 12, 40, after(11, -0.06)), trendProfile(40), []string{"whole 11 -5?"}},
		{"all but one cell move: that one held", trendCommits(1, 12, 40, func(commit, cell int) float64 {
			if commit >= 6 && cell != 11 {
				return math.Log(0.95)
			}
			return 0
		}), trendProfile(40), []string{"whole 6 -5"}},
		{"few cells: each on its own", trendCommits(1, 12, 3, after(6, -0.08)), trendProfile(3), []string{"8192×1 6 -8", "8192×2 6 -8", "8192×4 6 -9"}},
		{"nothing", nil, trendProfile(40), nil},
		{"one commit", trendCommits(1, 1, 40, nil), trendProfile(40), nil},
	} {
		tr := FindTrend(Decode, tt.commits, tt.profile, DefaultOptions().Effect)
		if got := tr.describe(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.rule, got, tt.want)
		}
	}
	// A cell that some commits lack has a history of the others.
	commits := trendCommits(1, 14, 40, after(7, -0.08, 11))
	delete(commits[3].Values, trendKey(11))
	tr := FindTrend(Decode, commits, trendProfile(40), DefaultOptions().Effect)
	if got := tr.describe(); !slices.Equal(got, []string{"16384×8 7 -9"}) || tr.IndexCells != 39 {
		t.Errorf("with a gap: got %q over %d cells, want the step at 7 over 39", got, tr.IndexCells)
	}
	if short := FindTrend(Decode, trendCommits(1, 3, 40, nil), nil, DefaultOptions().Effect); short.Whole.Why == "" || len(short.Index) != 3 {
		t.Errorf("three commits without a profile: why %q, index %v", short.Whole.Why, short.Index)
	}
}

// Histories of 40 cells in which nothing changes: at most about 1 % have a
// step of the run, and 1 % a step of any cell, whether a profile says how
// noisy they are or they themselves.
func TestFalseTrends(t *testing.T) {
	const n = 300
	effects := DefaultOptions().Effect
	effects.Run, effects.Decode = 0, 0
	for _, length := range []int{5, 8, 12, 20, 40} {
		for _, profile := range []*Profile{trendProfile(40), nil} {
			if profile == nil && length < minOwnNoise {
				continue
			}
			whole, cells := 0, 0
			for seed := range uint64(n) {
				tr := FindTrend(Decode, trendCommits(seed+100, length, 40, nil), profile, effects)
				confirmed := func(h History) bool { return slices.ContainsFunc(h.Steps, func(s Step) bool { return s.Confirmed }) }
				if confirmed(tr.Whole) {
					whole++
				}
				if slices.ContainsFunc(tr.Cells, func(c CellTrend) bool { return confirmed(c.History) }) {
					cells++
				}
			}
			if whole > 10 || cells > 10 { // the 99.9th percentile at a true rate of 1 %
				t.Errorf("%d commits, profile %v: steps of the run in %d and of cells in %d of %d histories of one level", length, profile != nil, whole, cells, n)
			}
		}
	}
}
