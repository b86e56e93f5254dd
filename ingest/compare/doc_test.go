package compare

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// The tables "How many launches do I need?" of docs/diff.md are computed
// here: what is found with a power of 80 % by launches of each side and a
// profile of five, in a matrix of the usual size in which nothing else
// changed.
func TestTablesOfTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/diff.md")
	if err != nil {
		t.Fatal(err)
	}
	const q, profile, neighbours = 0.05, 4.0, 8.0 // degrees of freedom of the profile, and of what other cells tell
	shares := func(m Metric) float64 { return metricTable[m].share }
	tests := 40*shares(Decode) + 40*shares(TTFT) + 7*shares(Prefill)
	cellAlpha := q * shares(Decode) / tests // of the smallest of all p-values
	runAlpha := q * shares(Decode) / (shares(Decode) + shares(TTFT) + shares(Prefill))
	smallest := func(sd, alpha, df float64, k int) string {
		x := math.Expm1((tQuantile(1-alpha/2, df) + tQuantile(0.8, df)) * sd * math.Sqrt(2/float64(k)))
		if x >= 0.1 {
			return fmt.Sprintf("%.0f %%", 100*x)
		}
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	counts := []int{2, 3, 5, 10}
	var want []string
	for _, sd := range []float64{0.003, 0.005, 0.01, 0.02, 0.1} {
		row := fmt.Sprintf("| cell | %.1f %% |", 100*sd)
		for _, k := range counts {
			row += " " + smallest(sd, cellAlpha, float64(2*k-2)+profile+neighbours, k) + " |"
		}
		want = append(want, row)
	}
	for _, sd := range []float64{0.004, 0.01, 0.02} {
		row := fmt.Sprintf("| run | %.1f %% |", 100*sd)
		for _, k := range counts {
			row += " " + smallest(sd, runAlpha, float64(2*k-2)+profile, k) + " |"
		}
		want = append(want, row)
	}
	for _, sd := range []float64{0.003, 0.005, 0.01, 0.015, 0.02, 0.03} {
		n := runsNeeded(variance{sd * sd, profile}, variance{0, math.Inf(1)}, math.Log1p(0.02))
		want = append(want, fmt.Sprintf("| %.1f %% | %d |", 100*sd, n))
	}
	for _, row := range want {
		if !strings.Contains(string(doc), row+"\n") {
			t.Errorf("docs/diff.md has no row\n%s", row)
		}
	}
	for _, v := range Verdicts() {
		if !strings.Contains(string(doc), "**"+v.String()+"**") {
			t.Errorf("docs/diff.md does not explain %q", v)
		}
	}
	for _, r := range rules() {
		if !strings.Contains(string(doc), "| "+r.field+" |") {
			t.Errorf("docs/diff.md has no row for %q", r.field)
		}
	}
}
