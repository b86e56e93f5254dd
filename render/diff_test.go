package render_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// diffRun is a computed run of contexts × 8 decode cells, by a factor as
// fast as it could be, and one prefill cell for each context.
func diffRun(minutes int, commit string, contexts int, factor func(context, concurrency int32) float64) *ingest.Run {
	m := &runlog.Manifest{
		StartedAt: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute), Finished: true,
		Engine:   runlog.Engine{Name: fact("vllm"), Commit: fact(commit), Version: fact("1"), LaunchCommand: &runlog.Command{Args: []string{"vllm", "serve", "m"}}},
		Model:    runlog.Model{Repository: "org/m", WeightsDigest: "sha256:aa"},
		Hardware: runlog.Hardware{Type: "Discrete GPU", GPUs: []runlog.GPU{{Name: "NVIDIA H200", VRAMBytes: 141 << 30, PowerLimitW: 700}}},
		Plan:     runlog.Plan{DurationUs: 30_000_000, PromptSet: "p", Salt: fmt.Sprint(minutes)},
	}
	r := &ingest.Run{ID: fmt.Sprintf("run-%d", minutes), Manifest: m}
	stat := func(v float64) ingest.Stat { return ingest.Stat{Value: v, N: 10} }
	for i := range contexts {
		context := int32(8192 * (i + 1))
		f := factor(context, 0)
		r.Prefill = append(r.Prefill, ingest.Cell{Cell: runlog.Cell{Phase: runlog.PhasePrefill, ContextTokens: context, Concurrency: 1},
			Figures: ingest.Figures{PrefillTokPerS: stat(9000 * f)}})
		for c := int32(1); c <= 128; c *= 2 {
			f := factor(context, c)
			r.Decode = append(r.Decode, ingest.Cell{Cell: runlog.Cell{Phase: runlog.PhaseDecode, ContextTokens: context, Concurrency: c}, Figures: ingest.Figures{
				TotalTokPerS: stat(80 * float64(c) * f), PerRequestTokPerS: stat(80 * f), TTFTUs: stat(300_000 / f), BetweenTokensUs: stat(12_500 / f),
			}})
		}
	}
	return r
}

// comparisonOf compares sides of n launches with a base; noise is small and
// not random.
func comparisonOf(t testing.TB, n, contexts int, factors ...func(context, concurrency int32) float64) render.Comparison {
	t.Helper()
	var sides []compare.Side
	for s, factor := range factors {
		var side compare.Side
		for i := range n {
			minutes := 100*i + s
			side.Runs = append(side.Runs, diffRun(minutes, fmt.Sprintf("%012x", s+1), contexts, func(context, concurrency int32) float64 {
				return factor(context, concurrency) * (1 + 0.001*math.Sin(float64(minutes)+float64(context)*1.7+float64(concurrency)))
			}))
		}
		sides = append(sides, side)
	}
	r, err := compare.Compare(sides[0], sides[1:], compare.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	return render.Comparison{Report: r, Gate: compare.DefaultGate()}
}

func even(int32, int32) float64 { return 1 }

// slowAt makes every cell of a concurrency slower.
func slowAt(concurrency int32) func(int32, int32) float64 {
	return func(_, c int32) float64 {
		if c == concurrency {
			return 0.9
		}
		return 1
	}
}

// A page says of itself what may be in it, and is within its weight.
func TestDiffPage(t *testing.T) {
	page, err := render.DiffHTML(comparisonOf(t, 3, 5, even, slowAt(128)))
	if err != nil {
		t.Fatal(err)
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindSubmatch(page)
	if style == nil {
		t.Fatal("no style sheet")
	}
	sum := sha256.Sum256(style[1])
	want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if got := strings.NewReplacer("&#39;", "'", "&#43;", "+").Replace(string(page)); !strings.Contains(got, "style-src "+want) {
		t.Errorf("the policy does not allow the style sheet %s", want)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(page)
	z.Close()
	if len(page) > 150_000 || packed.Len() > 30_000 {
		t.Errorf("a page of 40 cells has %d bytes, %d packed; want at most 150,000 and 30,000", len(page), packed.Len())
	}
	if n := bytes.Count(page, []byte("<svg ")); n != 5+1+5 {
		t.Errorf("%d figures, want one for each context of two metrics and one of prefill", n)
	}
}

// A comment has 65,536 characters at most: what does not fit is counted.
func TestDiffMarkdownFits(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		c       render.Comparison
		leftOut bool
	}{
		{"a usual matrix", comparisonOf(t, 3, 5, even, slowAt(128)), false},
		{"several sides of many contexts", comparisonOf(t, 3, 30, even, even, slowAt(128), slowAt(64)), true},
		{"everything changed", comparisonOf(t, 3, 40, even, func(_, c int32) float64 { return 1 - 0.1*float64(c%3) }, slowAt(1)), true},
	} {
		md, err := render.DiffMarkdown(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCount(md); n > 60_000 {
			t.Errorf("%s: %d characters", tt.rule, n)
		}
		if got := regexp.MustCompile(`\d+ more rows did not fit here`).Match(md); got != tt.leftOut {
			t.Errorf("%s: rows left out: %v, want %v", tt.rule, got, tt.leftOut)
		}
		if !bytes.HasSuffix(md, []byte("`"+tt.c.Report.Counts.Line(tt.c.Gate)+"`\n")) {
			t.Errorf("%s: it does not end in the verdict: %s", tt.rule, md[max(0, len(md)-200):])
		}
		if bytes.Count(md, []byte("<details>")) != bytes.Count(md, []byte("</details>")) {
			t.Errorf("%s: a <details> is not closed", tt.rule)
		}
	}
}

// What is foreign is text, in every form.
func TestDiffOfHostileText(t *testing.T) {
	const evil = "<img src=x onerror=alert(1)>|`\n# x\x1b[31m\u202e"
	runs := [2]*ingest.Run{diffRun(0, evil, 5, even), diffRun(1, "x", 5, even)}
	for i, r := range runs {
		r.Manifest.Model.Repository = evil
		r.Manifest.Engine.Version = fact(evil)
		r.Manifest.Engine.LaunchCommand.Args = []string{"vllm", "serve", "m", "--" + evil, evil + fmt.Sprint(i)}
	}
	report, err := compare.Compare(compare.Side{Runs: runs[:1]}, []compare.Side{{Label: evil, Runs: runs[1:]}}, compare.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	c := render.Comparison{Report: report, Gate: compare.DefaultGate()}
	page, err := render.DiffHTML(c)
	if err != nil {
		t.Fatal(err)
	}
	md, err := render.DiffMarkdown(c)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(render.DiffText(c, false)); strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, "\n# x") {
		t.Errorf("the text obeys: %q", text)
	}
	if bytes.Contains(page, []byte("<img")) || bytes.ContainsAny(page, "\x1b\u202e") {
		t.Error("the page has an element of foreign text, or a control character")
	}
	for name, b := range map[string][]byte{"page": page, "Markdown": []byte(markdownToHTML(t, string(md)))} {
		if bytes.Contains(b, []byte("<img")) || bytes.Contains(b, []byte("<h1>x")) {
			t.Errorf("%s has an element of foreign text", name)
		}
	}
}

// Colour stands beside words, and only where it is wanted.
func TestDiffColour(t *testing.T) {
	c := comparisonOf(t, 3, 5, even, slowAt(128))
	plain, coloured := string(render.DiffText(c, false)), string(render.DiffText(c, true))
	if strings.Contains(plain, "\x1b") || !strings.Contains(coloured, "\x1b[33mworse (slower)\x1b[0m") {
		t.Error("colour where it is not wanted, or none where it is")
	}
	if bare := regexp.MustCompile("\x1b\\[\\d+m").ReplaceAllString(coloured, ""); bare != plain {
		t.Error("the words depend on colour")
	}
}

// Swapping the sides turns every sign; each form is the same twice.
func TestDiffIsSteady(t *testing.T) {
	a, b := comparisonOf(t, 3, 5, even, slowAt(128)), comparisonOf(t, 3, 5, even, slowAt(128))
	for name, form := range map[string]func(render.Comparison) ([]byte, error){
		"text": func(c render.Comparison) ([]byte, error) { return render.DiffText(c, false), nil }, "md": render.DiffMarkdown, "html": render.DiffHTML, "json": render.DiffJSON, "csv": render.DiffCSV,
	} {
		x, err := form(a)
		y, err2 := form(b)
		if err != nil || err2 != nil || !bytes.Equal(x, y) || len(x) == 0 {
			t.Errorf("%s: not the same twice (%v, %v)", name, err, err2)
		}
	}
}
