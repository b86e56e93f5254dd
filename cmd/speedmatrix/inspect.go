package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

const inspectHelp = `Usage: speedmatrix inspect RUN [--cell CELL] [--json]

Says what is in a run. With --cell it shows where each number of one
measurement comes from, down to requests, instants and token counts, so that
it can be checked by hand against the event file.

  --cell CELL   one measurement: CONTEXT:CONCURRENCY (32K:16), prefill:CONTEXT
                (prefill:8K), or its name (decode-32768-c16). K is 1,024
  --json        as JSON, unrounded, units in the names; null is not known
  -h, --help    this text

Examples:
  speedmatrix inspect results/gemma--rtx-pro-6000--vllm-73a5831127a9
  speedmatrix inspect results/gemma--rtx-pro-6000--vllm-73a5831127a9 --cell 32K:16
  speedmatrix inspect results/gemma--rtx-pro-6000--vllm-73a5831127a9 --json | jq .decode
`

func runInspect(e *env, args []string) error {
	flags := newFlags(e, "inspect", inspectHelp)
	cell := flags.String("cell", "", "")
	asJSON := flags.Bool("json", false, "")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return usageError{fmt.Sprintf("got %d runs, want one", flags.NArg()), "speedmatrix inspect results/RUN"}
	}
	dir := flags.Arg(0)
	if !flags.Changed("cell") {
		r, err := ingest.Load(dir)
		if err != nil {
			return noRun(dir, err)
		}
		if *asJSON {
			return writeJSON(e.stdout, newRunJSON(r))
		}
		return writeOut(e.stdout, overview(r))
	}

	key, err := parseCell(*cell)
	if err != nil {
		return err
	}
	m, c, err := ingest.LoadCell(dir, key)
	if errors.Is(err, ingest.ErrNoCell) {
		return hintedError{err, "it has " + cellList(dir)}
	} else if err != nil {
		return noRun(dir, err)
	}
	if *asJSON {
		k := newCellJSON(c)
		k.Requests = newRequestsJSON(c.Requests)
		return writeJSON(e.stdout, k)
	}
	return writeOut(e.stdout, arithmetic(m, c))
}

// noRun adds a hint to the error of reading a directory that is no run.
func noRun(dir string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if runs, findErr := runlog.FindRuns(dir); findErr == nil && len(runs) > 0 && !slices.Contains(runs, filepath.Clean(dir)) {
		return hintedError{err, "there are runs below it: " + strings.Join(runs[:min(len(runs), 5)], " ")}
	}
	return hintedError{err, "RUN is a directory with a run.json, such as results/NAME"}
}

// cellList names the planned cells of a run in the short form.
func cellList(dir string) string {
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		return "no readable plan"
	}
	var names []string
	for i := range m.Cells {
		names = append(names, shortName(&m.Cells[i]))
	}
	return strings.Join(names, " ")
}

// shortName names a cell as --cell takes it, such as "32K:16".
func shortName(c *runlog.Cell) string {
	context := strconv.Itoa(int(c.ContextTokens))
	if c.ContextTokens > 0 && c.ContextTokens%1024 == 0 {
		context = strconv.Itoa(int(c.ContextTokens/1024)) + "K"
	}
	if c.Phase == runlog.PhasePrefill {
		return "prefill:" + context
	}
	return context + ":" + strconv.Itoa(int(c.Concurrency))
}

// parseCell reads "32K:16", "prefill:8K", "decode-32768-c16" or "prefill-8192".
func parseCell(s string) (runlog.Key, error) {
	wrong := usageError{fmt.Sprintf("--cell: got %q, want CONTEXT:CONCURRENCY or prefill:CONTEXT", s), "such as --cell 32K:16 or --cell prefill:8K"}
	key := runlog.Key{Phase: runlog.PhaseDecode, Concurrency: 1}
	context, concurrency, ok := "", "", false
	if rest, found := strings.CutPrefix(s, "decode-"); found {
		context, concurrency, ok = strings.Cut(rest, "-c")
	} else if rest, found := strings.CutPrefix(s, "prefill"); found && len(rest) > 1 && strings.ContainsRune(":-", rune(rest[0])) {
		key.Phase, context, concurrency, ok = runlog.PhasePrefill, rest[1:], "1", true
	} else {
		context, concurrency, ok = strings.Cut(s, ":")
	}
	if !ok {
		return key, wrong
	}
	if context != "0" { // an empty prompt has a name too
		n, err := parseTokens(context)
		if err != nil {
			return key, wrong
		}
		key.ContextTokens = n
	}
	c, err := strconv.ParseUint(concurrency, 10, 31)
	if err != nil || c < 1 {
		return key, wrong
	}
	key.Concurrency = int32(c)
	return key, nil
}

func writeOut(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// Numbers for a terminal.

func whole[T int | int32 | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func instant(us int64) string      { return fmt.Sprintf("%.6f s", float64(us)/1e6) }
func milliseconds(us int64) string { return fmt.Sprintf("%.3f ms", float64(us)/1e3) }

func fixed(s ingest.Stat, scale float64, decimals int, unit string) string {
	if !s.Known() {
		return "—"
	}
	return strconv.FormatFloat(s.Value/scale, 'f', decimals, 64) + unit
}

func tokPerS(s ingest.Stat) string { return fixed(s, 1, 1, "") }
func ms(s ingest.Stat) string      { return fixed(s, 1e3, 3, " ms") }

// overview says what is in a run.
func overview(r *ingest.Run) string {
	var b strings.Builder
	m, p := r.Manifest, &r.Manifest.Plan
	state := "finished"
	if !m.Finished {
		state = "not finished"
	}
	fmt.Fprintf(&b, "%s\n", visible(r.ID))
	line := func(key string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if len(parts) > 0 {
			fmt.Fprintf(&b, "  %-10s%s\n", key, visible(strings.Join(parts, " · ")))
		}
	}
	line("format", m.Format, ingest.Method, state)
	line("tool", strings.TrimSpace(m.Tool.Name+" "+m.Tool.Version), m.Tool.Commit)
	line("started", m.StartedAt.UTC().Format(time.DateTime)+" UTC", "arrival times by the "+string(m.ArrivalClock)+" clock")
	line("engine", fact(m.Engine.Name), fact(m.Engine.Version), fact(m.Engine.Commit), fact(m.Engine.Quantization))
	line("model", m.Model.Repository, m.Model.Revision, m.Model.ServedName)
	var gpus []string
	for _, g := range m.Hardware.GPUs {
		gpus = append(gpus, g.Name)
	}
	line("hardware", append(append([]string{m.Hardware.Type}, gpus...), m.Hardware.CPU)...)
	line("contexts", list(p.ContextsTokens), "prefill at "+list(p.PrefillContextsTokens))
	line("requests", list(p.Concurrency)+" at once", whole(p.MaxOutputTokens)+" tokens out", fmt.Sprintf("%g s each", float64(p.DurationUs)/1e6))
	line("tokens", "counted by "+p.TokenCounting, "text: "+p.Text)
	capacity := "KV cache of unknown size"
	if m.Capacity.KVCacheTokens > 0 {
		capacity = fmt.Sprintf("KV cache of %s tokens (%s)", whole(m.Capacity.KVCacheTokens), m.Capacity.Source)
	}
	line("server", "metrics: "+cmp.Or(m.Server.Metrics, "unknown"), capacity)
	if t := m.Telemetry; t != nil {
		line("telemetry", whole(t.Rows)+" samples", whole(t.Bytes)+" bytes")
	}
	if w := r.Warmup; w != nil {
		line("warm-up", whole(w.ContextTokens)+" tokens of context", whole(w.Rows)+" rows", "TTFT "+ms(w.Figures.TTFTUs))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "  note      %s\n", visible(n))
	}

	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cell\tstatus\ttok/s\tper request\tTTFT\tbetween tokens\tactive\tcompleted\ttokens\trows\tbytes")
	var rows, size int64
	cells := slices.Concat(r.Prefill, r.Decode)
	for i := range cells {
		c := &cells[i]
		g := ingest.Figures{} // only those of Valid cells are results
		if c.Status == ingest.Valid {
			g = c.Figures
		}
		rate := g.TotalTokPerS
		if c.Phase == runlog.PhasePrefill {
			rate = g.PrefillTokPerS
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortName(&c.Cell), c.Status,
			tokPerS(rate), tokPerS(g.PerRequestTokPerS), ms(g.TTFTUs), ms(g.BetweenTokensUs), tokPerS(g.ActiveRequests),
			fixed(g.CompletedRequests, 1, 0, ""), fixed(g.OutputTokens, 1, 0, ""), whole(c.Rows), whole(c.Bytes))
		rows, size = rows+c.Rows, size+c.Bytes
	}
	t.Flush()
	fmt.Fprintf(&b, "\n%d cells, %s rows, %s bytes of events\n", len(cells), whole(rows), whole(size))
	for i := range cells {
		c := &cells[i]
		for k, e := range c.Evidence { // the first of each status; --cell shows all
			if k == 0 || e.Status != c.Evidence[k-1].Status {
				fmt.Fprintf(&b, "%s: %s: %s\n", shortName(&c.Cell), e.Status, evidence(e))
			}
		}
		for _, n := range c.Notes {
			fmt.Fprintf(&b, "%s: note: %s\n", shortName(&c.Cell), visible(n))
		}
	}
	return b.String()
}

// list writes token counts or concurrency levels, plainly.
func list(values []int32) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, strconv.Itoa(int(v)))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

func fact(f *runlog.Fact) string {
	if f == nil {
		return ""
	}
	return f.Value
}

// visible writes foreign text on one line, with control characters escaped:
// a terminal must not obey a log.
func visible(s string) string {
	q := strconv.Quote(s)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(q[1 : len(q)-1])
}

func evidence(e ingest.Evidence) string {
	s := visible(e.Text)
	if e.Stream >= 0 {
		s += fmt.Sprintf(" (stream %d request %d)", e.Stream, e.Request)
	}
	if e.TUs >= 0 {
		s += " at " + instant(e.TUs)
	}
	return s
}

// arithmetic shows how each figure of a cell was computed.
func arithmetic(m *runlog.Manifest, c *ingest.Cell) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	g, rs := &c.Figures, c.Requests

	key := c.Key()
	say("%s (%s)", key.Name(), shortName(&c.Cell))
	say("status: %s", c.Status)
	for _, e := range c.Evidence {
		say("  %s: %s", e.Status, evidence(e))
	}
	for _, n := range c.Notes {
		say("  note: %s", visible(n))
	}
	if c.File != "" {
		say("events: %s, %s rows, %s bytes, sha256 %s", c.File, whole(c.Rows), whole(c.Bytes), c.SHA256)
	}
	l := c.Launch
	say("requests: %s launched = %s completed + %s failed + %s cancelled + %s unfinished",
		whole(l.Launched), whole(l.Completed), whole(l.Failed), whole(l.Cancelled), whole(l.Unfinished))
	if len(rs) == 0 {
		return b.String()
	}
	say("instants are seconds since the start of the run; rows count from 0")
	for i := range rs {
		r := &rs[i]
		end := "never ended"
		if r.End != 0 {
			end = fmt.Sprintf("%s %s", r.End, instant(r.EndUs))
		}
		say("  %s: rows %s to %s, %s", id(r), whole(r.FirstRow), whole(r.FirstRow+r.Rows-1), end)
		if r.Failed {
			say("    failed, in no median: %s", visible(r.Reason))
		}
		if r.Note != "" {
			say("    %s", r.Note)
		}
	}

	ttft := gather(rs, func(r *ingest.Request) (ingest.Stat, string) {
		return r.TTFTUs, fmt.Sprintf("first token %s − sent %s", instant(r.FirstUs), instant(r.SentUs))
	})
	section(&b, "TTFT = first token − sent", ttft, g.TTFTUs, ms)
	spread(&b, c.Spread.TTFTUs, ms)
	if c.Phase == runlog.PhasePrefill {
		rates := gather(rs, func(r *ingest.Request) (ingest.Stat, string) {
			return ingest.PrefillTokPerS(r), fmt.Sprintf("%s prompt tokens / %s", whole(r.PromptTokens), instant(r.FirstUs-r.SentUs))
		})
		section(&b, "prefill tok/s = prompt tokens / TTFT", rates, g.PrefillTokPerS, tokPerS)
		say("\ncompleted requests = samples measured = %s", fixed(g.CompletedRequests, 1, 0, ""))
		return b.String()
	}
	between := gather(rs, func(r *ingest.Request) (ingest.Stat, string) {
		return r.BetweenTokensUs, fmt.Sprintf("first %s (%s), last %s, n=%d", instant(r.FirstUs), tokens(r.FirstTokens), instant(r.LastUs), r.Tokens)
	})
	section(&b, "time between tokens = (last − first) / (n − tokens of the first event)", between, g.BetweenTokensUs, ms)
	spread(&b, c.Spread.BetweenTokensUs, ms)
	per := gather(rs, func(r *ingest.Request) (ingest.Stat, string) {
		return r.PerRequestTokPerS, "1 / " + ms(r.BetweenTokensUs)
	})
	section(&b, "per request tok/s = 1 / time between tokens", per, g.PerRequestTokPerS, tokPerS)
	spread(&b, c.Spread.PerRequestTokPerS, tokPerS)

	if !g.WindowUs.Known() {
		return b.String()
	}
	open, shut := *c.WindowOpenUs, *c.WindowCloseUs
	say("\nwindow: from %s (not in it) to %s (in it)", instant(open), instant(shut))
	say("measured for = %s", instant(shut-open))
	say("\ntokens that arrived in the window")
	for i := range rs {
		r := &rs[i]
		say("  %s: %s of %s in %s of %s token events", id(r), count(r.WindowTokens), tokens(r.Tokens), whole(r.WindowEvents), whole(r.TokenEvents))
	}
	if g.TotalTokPerS.Known() {
		n := int64(g.OutputTokens.Value)
		say("output tokens = %s", whole(n))
		say("total tok/s = %s tokens / %s = %s", whole(n), instant(shut-open), tokPerS(g.TotalTokPerS))
		say("tokens per event = %s / %s = %s", whole(n), whole(g.TokensPerEvent.N), fixed(g.TokensPerEvent, 1, 3, ""))
		say("first half %s tok/s, second half %s tok/s", tokPerS(g.FirstHalfTokPerS), tokPerS(g.SecondHalfTokPerS))
	} else {
		say("total tok/s: not known, because the tokens of some request are not")
	}
	if g.LoopFreeTokPerS.Known() {
		say("before the first loop: %s tok/s", tokPerS(g.LoopFreeTokPerS))
	}

	say("\naverage active requests = time between first token and end, in the window / measured for")
	var active, completed int64
	for i := range rs {
		r := &rs[i]
		if r.ActiveUs > 0 {
			say("  %s: %s", id(r), instant(r.ActiveUs))
		}
		active += r.ActiveUs
	}
	say("average active requests = %s / %s = %s", instant(active), instant(shut-open), fixed(g.ActiveRequests, 1, 3, ""))
	say("\ncompleted requests: ended by themselves in the window")
	for i := range rs {
		if r := &rs[i]; r.End == runlog.KindDone && !r.Failed && open < r.EndUs && r.EndUs <= shut {
			say("  %s at %s", id(r), instant(r.EndUs))
			completed++
		}
	}
	say("completed requests = %s", whole(completed))

	say("\ngaps between token events that ended in the window: %s of them", whole(g.GapP50Us.N))
	say("p50 %s, p90 %s, p99 %s, longest %s", ms(g.GapP50Us), ms(g.GapP90Us), ms(g.GapP99Us), ms(g.GapMaxUs))
	for i := range rs {
		if r := &rs[i]; !r.Failed && g.GapMaxUs.Known() && float64(r.LongestGapUs) == g.GapMaxUs.Value {
			say("  the longest: %s, %s up to %s", id(r), milliseconds(r.LongestGapUs), instant(r.LongestGapAt))
		}
	}
	if g.FirstAnswerUs.Known() {
		answers := gather(rs, func(r *ingest.Request) (ingest.Stat, string) {
			if r.FirstAnswerUs < 0 {
				return ingest.Stat{}, ""
			}
			return ingest.Stat{Value: float64(r.FirstAnswerUs - r.SentUs), N: 1}, fmt.Sprintf("first answer %s − sent %s", instant(r.FirstAnswerUs), instant(r.SentUs))
		})
		section(&b, "time to the first answer token, where reasoning came first", answers, g.FirstAnswerUs, ms)
	}
	if g.ColdTTFTUs.Known() {
		say("\ncold TTFT (of the scouts that measured this context's prefill) = %s", ms(g.ColdTTFTUs))
	}
	if m.Plan.TokenCounting != "continuous usage" {
		say("\ntokens were counted by %s; docs/method.md says what that leaves unknown", visible(m.Plan.TokenCounting))
	}
	return b.String()
}

func id(r *ingest.Request) string { return fmt.Sprintf("stream %d request %d", r.Stream, r.Request) }

func count(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return whole(n)
}

func tokens(n int64) string {
	if n == 1 {
		return "1 token"
	}
	return count(n) + " tokens"
}

// A valued is one request's value of a figure, and how it came about.
type valued struct {
	r    *ingest.Request
	stat ingest.Stat
	how  string
}

// gather lists what each request that did not fail has to say of a figure.
func gather(rs []ingest.Request, value func(*ingest.Request) (ingest.Stat, string)) []valued {
	var out []valued
	for i := range rs {
		if s, how := value(&rs[i]); !rs[i].Failed && s.Known() {
			out = append(out, valued{&rs[i], s, how})
		}
	}
	return out
}

// spread writes the percentiles that the page of measurements shows, where
// there is more than one value: linear between the two nearest ranks.
func spread(b *strings.Builder, p ingest.Percentiles, unit func(ingest.Stat) string) {
	if p.P50.N > 1 {
		fmt.Fprintf(b, "p90 %s, p99 %s, greatest %s\n", unit(p.P90), unit(p.P99), unit(p.Max))
	}
}

// section writes a figure that is a median over requests.
func section(b *strings.Builder, title string, values []valued, figure ingest.Stat, unit func(ingest.Stat) string) {
	fmt.Fprintf(b, "\n%s\n", title)
	for _, v := range values {
		fmt.Fprintf(b, "  %s: %s → %s\n", id(v.r), v.how, unit(v.stat))
	}
	slices.SortStableFunc(values, func(a, c valued) int { return cmp.Compare(a.stat.Value, c.stat.Value) })
	middle := func(i int) string { return fmt.Sprintf("%s of %s", unit(values[i].stat), id(values[i].r)) }
	switch n := len(values); {
	case n == 0:
		fmt.Fprintf(b, "median: not known, no request has one\n")
	case n%2 == 1:
		fmt.Fprintf(b, "median of %d = %s = %s\n", n, middle(n/2), unit(figure))
	default:
		fmt.Fprintf(b, "median of %d = mean of %s and %s = %s\n", n, middle(n/2-1), middle(n/2), unit(figure))
	}
}
