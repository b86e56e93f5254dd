package render_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/render"
)

// A pairing is a comparison of launches whose speed is known.
type pairing struct {
	launches  int                                        // of each side; 0: 3
	noise     float64                                    // of a cell, as a share; 0: 0.1 %
	alone     float64                                    // noise of one cell beside that
	sides     []func(context, concurrency int32) float64 // nil: one that is as fast
	change    func(side int, r *ingest.Run)              // nil: nothing
	after     bool                                       // sides are measured one after the other
	same      bool                                       // of one commit
	options   func(*compare.Options)
	allowThin bool
}

func (p pairing) compare(t *testing.T) render.Comparison {
	t.Helper()
	if p.launches == 0 {
		p.launches = 3
	}
	if p.noise == 0 {
		p.noise = 0.001
	}
	if p.sides == nil {
		p.sides = []func(int32, int32) float64{even}
	}
	var sides []compare.Side
	for s, factor := range append([]func(int32, int32) float64{even}, p.sides...) {
		var side compare.Side
		for i := range p.launches {
			minutes := 100*i + s
			if p.after {
				minutes = i + 1000*s
			}
			commit := fmt.Sprintf("%012x", 0x73a5831127a9+int64(s)*0x2b88c0f5cdac)
			if p.same {
				commit = "73a5831127a9"
			}
			r := diffRun(minutes, commit, 5, func(context, concurrency int32) float64 {
				f := factor(context, concurrency) * (1 + p.noise*math.Sin(float64(minutes)+float64(context)*1.7+float64(concurrency)))
				if concurrency == 4 {
					f *= 1 + p.alone*math.Sin(float64(minutes)*3+1)
				}
				return f
			})
			r.Manifest.Model.ServedName = "tiny"
			if p.change != nil {
				p.change(s, r)
			}
			side.Runs = append(side.Runs, r)
		}
		sides = append(sides, side)
	}
	o := compare.DefaultOptions()
	if p.options != nil {
		p.options(&o)
	}
	report, err := compare.Compare(sides[0], sides[1:], o)
	if err != nil {
		t.Fatal(err)
	}
	g := compare.DefaultGate()
	g.AllowUnjudged = p.allowThin
	return render.Comparison{Report: report, Gate: g}
}

func everywhere(by float64) func(int32, int32) float64 {
	return func(int32, int32) float64 { return by }
}

// cellAt makes one decode cell faster or slower.
func cellAt(context, concurrency int32, by float64) func(int32, int32) float64 {
	return func(t, c int32) float64 {
		if t == context && c == concurrency {
			return by
		}
		return 1
	}
}

// status gives the last decode cell of the other side another status.
func status(s ingest.Status, ofBase ingest.Status) func(int, *ingest.Run) {
	return func(side int, r *ingest.Run) {
		c := &r.Decode[len(r.Decode)-1]
		if c.Status = s; side == 0 {
			c.Status = ofBase
		}
	}
}

// Someone who sees only the first eight lines of a comparison knows what was
// compared, whether coverage changed, whether speed did, by how much at most,
// and what to do next: whatever came of it.
func TestFirstEightLines(t *testing.T) {
	for _, tt := range []struct {
		rule string
		p    pairing
		exit int
		says map[string]string // by the name of the line, part of it
	}{
		{"no change, proved", pairing{}, 0, map[string]string{"speed": "NO CHANGE as large as what counts", "next": "nothing", "coverage": "both have 40 of 40 decode, 5 of 5 prefill · lost 0, gained 0"}},
		{"no change found: some are unclear", pairing{alone: 0.02}, 0, map[string]string{"speed": "NO CHANGE FOUND", "next": "settle what is unclear with"}},
		{"nothing but unclear", pairing{noise: 0.15}, 0, map[string]string{"speed": "UNCLEAR", "next": "with"}},
		{"one build on both sides", pairing{same: true}, 0, map[string]string{"compared": "A/A: one build, every change is noise"}},
		{"a cell is slower", pairing{sides: []func(int32, int32) float64{cellAt(16384, 8, 0.9)}}, 1, map[string]string{"speed": "SLOWER: total −10.", "next": "find what made it slower", "at most": "total −1"}},
		{"all is slower", pairing{sides: []func(int32, int32) float64{everywhere(0.96)}}, 1, map[string]string{"speed": "SLOWER: whole run total −4.0 %, prefill −4.0 %, TTFT +4.2 %", "next": "find what made it slower"}},
		{"a cell is faster", pairing{sides: []func(int32, int32) float64{cellAt(16384, 8, 1.1)}}, 0, map[string]string{"speed": "FASTER: total +", "next": "nothing"}},
		{"one slower, one faster", pairing{sides: []func(int32, int32) float64{func(t, c int32) float64 { return cellAt(16384, 8, 1.1)(t, c) * cellAt(8192, 1, 0.9)(t, c) }}}, 1, map[string]string{"speed": "SLOWER and faster in part: total −10"}},
		{"suspected of one launch", pairing{launches: 1, sides: []func(int32, int32) float64{cellAt(16384, 8, 0.7)}}, 3, map[string]string{"speed": "SUSPECTED SLOWER, not proved", "next": "measure 2 launches more of each side, in turn"}},
		{"… which may pass", pairing{launches: 1, allowThin: true}, 0, map[string]string{"speed": "NOT JUDGED, too few launches"}},
		{"too few launches", pairing{launches: 1}, 3, map[string]string{"speed": "NOT JUDGED, too few launches", "next": "measure 2 launches more of each side, in turn"}},
		{"two launches without a profile", pairing{launches: 2}, 3, map[string]string{"speed": "NOT JUDGED, too few launches", "next": "measure 1 launch more of each side, in turn"}},
		{"suspected for the order", pairing{after: true, sides: []func(int32, int32) float64{everywhere(0.96)}}, 3, map[string]string{"speed": "SUSPECTED SLOWER, not proved", "next": "measure the sides again, in turn", "compared": "AAABBB"}},
		{"another GPU", pairing{change: func(side int, r *ingest.Run) { r.Manifest.Hardware.GPUs[0].Name = fmt.Sprint("GPU ", side) }}, 3, map[string]string{
			"speed": `NOT COMPARABLE: different gpu: "1 × GPU 0" and "1 × GPU 1"`, "at most": "no change was computed", "next": "measure both sides alike, or declare"}},
		{"another GPU, declared", pairing{change: func(side int, r *ingest.Run) { r.Manifest.Hardware.GPUs[0].Name = fmt.Sprint("GPU ", side) }, options: func(o *compare.Options) { o.Allow = []compare.Allowance{compare.AllowHardware} }}, 3, map[string]string{
			"speed": "NOT COMPARABLE, changes are described only", "next": "measure both sides on the same hardware"}},
		{"nothing to compare", pairing{change: func(side int, r *ingest.Run) {
			for i := range r.Decode {
				r.Decode[i].Status = ingest.Looped
			}
			for i := range r.Prefill {
				r.Prefill[i].Status = ingest.Cached
			}
		}}, 3, map[string]string{"speed": "NOT JUDGED, nothing to compare", "coverage": "both have 0 of 40 decode, 0 of 5 prefill", "next": "find out why no measurement has a result on both sides"}},
		{"no prefill to compare", pairing{change: func(side int, r *ingest.Run) { r.Prefill = nil }}, 3, map[string]string{"speed": "NO CHANGE as large as what counts", "next": "measure prefill tok/s on both sides too, or decide without: --gate-on decode,ttft"}},
		{"lost to capacity", pairing{change: status(ingest.OverCapacity, ingest.Valid)}, 1, map[string]string{"coverage": "lost 1 (40K × 128 over capacity), gained 0", "next": "find out why cells were lost"}},
		{"lost to an error", pairing{change: status(ingest.Failed, ingest.Valid)}, 1, map[string]string{"coverage": "lost 1 (40K × 128 failed), gained 0", "next": "find out why cells were lost"}},
		{"lost to capacity, the others faster", pairing{sides: []func(int32, int32) float64{everywhere(1.05)}, change: status(ingest.OverCapacity, ingest.Valid)}, 1, map[string]string{"speed": "FASTER where both have results: whole run total +5.0 %", "coverage": "lost 1", "next": "find out why cells were lost"}},
		{"lost to a loop", pairing{change: status(ingest.Looped, ingest.Valid)}, 0, map[string]string{"coverage": "lost 1 (40K × 128 looped), gained 0", "next": "find out why cells were lost"}},
		{"gained from a loop", pairing{change: status(ingest.Valid, ingest.Looped)}, 0, map[string]string{"coverage": "lost 0, gained 1", "speed": "NO CHANGE"}},
		{"other flags, declared", pairing{change: func(side int, r *ingest.Run) {
			r.Manifest.Engine.LaunchCommand.Args = []string{"vllm", "serve", "m", "--max-num-seqs", fmt.Sprint(64 + side)}
		},
			options: func(o *compare.Options) { o.Allow = []compare.Allowance{compare.AllowLaunch} }}, 0, map[string]string{"noted": "every change is one of the commit and of launch flags together", "speed": "NO CHANGE"}},
	} {
		c := tt.p.compare(t)
		if exit, _ := c.Report.Counts.Status(c.Gate); exit != tt.exit {
			t.Errorf("%s: exit status %d, want %d", tt.rule, exit, tt.exit)
		}
		text := firstLines(string(render.DiffText(c, false)))
		md, err := render.DiffMarkdown(c)
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv("SPEEDMATRIX_SHOW") != "" {
			fmt.Printf("— %s (%d)\n%s\n\n", tt.rule, tt.exit, text)
		}
		answers := map[string]string{"compared": "73a5831127a9 → ", "coverage": "both have ", "speed": "", "at most": "", "next": ""}
		if tt.p.same {
			answers["compared"] = "73a5831127a9 → 73a5831127a9"
		}
		for name, part := range tt.says {
			answers[name] = part
		}
		whole := strings.ReplaceAll(text, "\n"+strings.Repeat(" ", 14), " ") // lines that go on in the next
		for name, want := range answers {
			if got := lineOf(whole, fmt.Sprintf("%-14s", name)); got == "" || !strings.Contains(got, want) {
				t.Errorf("%s: the first lines of the text do not say of %s %q:\n%s", tt.rule, name, want, text)
			}
			want = strings.NewReplacer(`[`, `\[`, `]`, `\]`).Replace(want)
			if got := lineOf(firstLines(string(md)), "- **"+name+"**: "); got == "" || !strings.Contains(got, want) {
				t.Errorf("%s: the first lines of the Markdown do not say of %s %q:\n%s", tt.rule, name, want, firstLines(string(md)))
			}
		}
		for _, l := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(l); n > 100 || strings.HasSuffix(l, "…") {
				t.Errorf("%s: a line that is cut, or of %d columns: %q", tt.rule, n, l)
			}
		}
	}
}

func firstLines(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[:min(8, len(lines))], "\n")
}

// lineOf returns what follows a beginning of a line; "" where no line has it.
func lineOf(text, beginning string) string {
	for _, l := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(l, beginning); ok {
			return rest
		}
	}
	return ""
}
