package figure

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	ours, theirs := []float64{2, 4, 3}, []float64{10, 40, 12}
	f := Of("topic", "wall", "ms", ours...)
	for name, tt := range map[string]struct {
		f    Figure
		want bool
	}{
		"the median meets":               {f.AtMost(3), true},
		"the median misses":              {f.AtMost(2.9), false},
		"at least, met":                  {f.AtLeast(3), true},
		"at least, missed":               {f.AtLeast(3.1), false},
		"the median of the ratios meets": {f.Beating("peer", ours, theirs).RatioAtLeast(5), true}, // 5, 10, 4
		"… misses":                       {f.Beating("peer", ours, theirs).RatioAtLeast(5.1), false},
		"ours over theirs":               {f.Against("peer", ours, theirs).RatioAtMost(0.2), true}, // 0.2, 0.1, 0.25
		"no peer, no ratio":              {f.RatioAtMost(1e9), false},
		"nothing measured meets nothing": {Figure{Value: math.NaN()}.AtMost(1), false},
	} {
		if got := *tt.f.Met; got != tt.want {
			t.Errorf("%s: got met %t, want %t", name, got, tt.want)
		}
	}
	if f.Value != 3 || f.Min != 2 || f.Max != 4 || f.Samples != 3 {
		t.Errorf("got %+v, want median 3 of 3 from 2 to 4", f)
	}
}

func TestWhatIsWrittenReadsBack(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, "make it")
	if err != nil {
		t.Fatal(err)
	}
	w.load = 1.5
	a := Of("read", "wall | time", "ms", 96, 100, 104).Beating("DuckDB", []float64{100}, []float64{800}).RatioAtLeast(5)
	c := Of("read", "events", "", 2_600_000).Note("a note")
	if err := w.Write(a, c); err != nil {
		t.Fatal(err)
	}
	r, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Machine; got.Cores < 1 || got.Go == "" || got.System == "" {
		t.Errorf("machine: got %+v, want at least cores, system and Go", got)
	}
	if len(r.Figures) != 2 || r.Figures[0].Command != "make it" || r.Figures[0].LoadBefore != 1.5 || *r.Figures[0].Peer != *a.Peer {
		t.Fatalf("got %+v, want the figures with command and load", r.Figures)
	}
	for _, want := range []string{"100 ms", "96–104 (3)", "DuckDB: 800 ms", "8 × better", "ratio ≥ 5 ×", "yes", "2,600,000", "load before: 1.5"} {
		if got := r.Text(); !strings.Contains(got, want) {
			t.Errorf("text: got\n%s\nwant %q in it", got, want)
		}
	}
	for _, want := range []string{"### read\n", `wall \| time`, "`make it`", "\n- events: a note\n", "| yes |"} {
		if got := r.Markdown(); !strings.Contains(got, want) {
			t.Errorf("Markdown: got\n%s\nwant %q in it", got, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"an empty line":   `{}`,
		"an unknown key":  `{"figure":{"nmae":"x"}}`,
		"what is no JSON": `benchmark`,
	} {
		if _, err := Read(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: got error %v, want one that names line 1", name, err)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0034: "0.0034", 0.123456: "0.123", 3.14159: "3.14", 42: "42", 999.4: "999", 999.6: "1,000",
		1234.5: "1,234", 2_600_000: "2,600,000", -12345: "−12,345", 0.0000123456: "1.23e-05", math.Inf(1): "unknown",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v): got %q, want %q", v, got, want)
		}
	}
}

func TestBetween(t *testing.T) {
	got, err := Between("a\n<b>\nold\n<e>\nz\n", "<b>", "<e>", "new\n")
	if want := "a\n<b>\nnew\n<e>\nz\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, doc := range []string{"", "<b>\n", "<e>\n<b>\n", "<b>\n<e>\n<b>\n<e>\n"} {
		if _, err := Between(doc, "<b>", "<e>", ""); err == nil {
			t.Errorf("Between(%q): got no error, want one", doc)
		}
	}
}
