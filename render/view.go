package render

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"math/big"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/format"
	"speedmatrix/render/internal/mdtext"
	"speedmatrix/render/internal/prose"
	"speedmatrix/render/internal/shell"
)

// Words of the page that stand in no table of statuses.
const (
	eyebrow = "Speed test matrix"

	// ttftSentence ends the legend under the matrix.
	ttftSentence = "TTFT is measured after the benchmark warms the server's prompt cache, so it mostly excludes prefill."
)

// A runView is the page of one run, ready to be placed: every string in it
// is visible text of one line without markup. An empty string, list or
// section is left out.
type runView struct {
	page

	Heading    string
	EngineLine string
	PlanLine   string
	Facts      []factList // hardware, engine, run
	Command    []string   // launch command: the part before its first flag, then each flag
	Prefill    []card
	Matrix     *matrix
	Legend     string // sentences of the statuses that occur
	Sentence   string // about TTFT
	Rows       []measurement

	Charts   []drawing
	Layer    *layerView // what makes them interactive; nil: nothing does
	Pictures bool       // the drawings lie beside the document
	Gaps     []gapRow

	Checks    []check
	Trust     []string // sentences
	Colours   string   // a sentence about them, for documents that have colours
	Discarded []discarded
	Requests  []requestsOf
	Remarks   []remark
	Spread    []spread
	Method    factList
	NotesHTML template.HTML
	NotesText string // notes as Markdown
	Files     []file
	Links     []link
	Inspect   string // command that shows where a number comes from
}

// A page is what every page has.
type page struct {
	Title       string
	Description string
	Eyebrow     string
	Root        string // relative path of the site's root, "" or ending in a slash
	Stylesheet  string // file name
	Icon        string // file name

	// Style is the style sheet of a page that loads nothing, and Policy what
	// its browser is told to refuse; both are "" of a page of a site.
	Style  template.CSS
	Policy string

	// Around is the navigation of a run's pages. It depends on other runs,
	// and is put in its place when a site is written.
	Around template.HTML
}

type factList struct {
	ID, Heading string
	Facts       []fact
}

type fact struct {
	Name, Value string
	URL         string // where the value leads; may be empty
	Code        bool   // to be set in a fixed-width face
}

// A card is one prefill context. Status is empty when it is Valid, and then
// only has it numbers.
type card struct{ ID, Context, Rate, TTFT, Status, Slug string }

type matrix struct {
	Concurrency []string
	Rows        []matrixRow
}

type matrixRow struct {
	Context string
	Cells   []matrixCell
}

// A matrixCell holds numbers, or the word of a status that is not Valid.
type matrixCell struct {
	ID           string // anchor of its measurement; empty where none was planned
	Total, TTFT  string
	Status, Slug string
	Step         int // colour, 0 … speedSteps − 1; only with numbers
}

type measurement struct {
	ID                                        string // anchor
	Begins                                    bool   // first row of its phase and context
	Phase, Context, Concurrency               string
	Status, Slug                              string
	Total, PerRequest, TTFT, Between          string
	Active, Completed, OutputTokens, Measured string
}

// A discarded measurement is one that is not Valid, and why.
type discarded struct{ Phase, Context, Concurrency, Status, Slug, Why string }

// A requestsOf says what became of the requests of one measurement.
type requestsOf struct {
	Phase, Context, Concurrency                                string
	Sent, Completed, Failed, HTTPErrors, Cancelled, Unfinished string
}

// A remark is a note on one measurement.
type remark struct{ Phase, Context, Concurrency, Text string }

// A spread says what stands behind the numbers of one Valid decode cell.
type spread struct {
	Context, Concurrency                                              string
	Requests, GapP90, GapP99, GapMax, PerEvent, FirstHalf, SecondHalf string
	Slowest, Fastest, ColdTTFT                                        string
}

type file struct{ Name, URL, Rows, Bytes, SHA256 string }

type link struct{ Text, URL, What string }

// newRunView builds the view of a run. raw is the relative path from the
// document to the run directory's files, "" or ending in a slash; twins says
// whether index.json and cells.csv lie beside the document.
func newRunView(in Input, raw string, twins bool) (*runView, error) {
	run, m := in.Run, in.Run.Manifest
	labels := contextLabels(run)
	v := &runView{
		Heading:    heading(run),
		EngineLine: join(" · ", factValue(m.Engine.Name), factValue(m.Engine.Version), factValue(m.Engine.Quantization)),
		PlanLine:   planLine(run, labels),
		Facts:      mainFacts(m),
		Command:    launchCommand(m.Engine),
		Prefill:    cards(run, labels),
		Matrix:     newMatrix(run, labels),
		Legend:     legend(run),
		Sentence:   ttftSentence,
		Rows:       measurements(run, labels),
		Charts:     runDrawings(run, labels),
		Gaps:       gapRows(run, labels),
		Checks:     checks(run, labels),
		Trust:      trust(run),
		Colours:    colours(run),
		Discarded:  discards(run, labels),
		Requests:   allRequests(run, labels),
		Remarks:    remarks(run, labels),
		Spread:     spreads(run, labels),
		Method:     methodFacts(run),
		Inspect:    inspectCommand(run, labels),
	}
	v.page = page{
		Title:       v.Heading + " – " + eyebrow,
		Description: description(run, v, labels),
		Eyebrow:     eyebrow,
	}
	html, err := prose.HTML(in.Notes)
	if err != nil {
		return nil, err
	}
	v.NotesHTML, v.NotesText = html, prose.Markdown(in.Notes)
	v.moveTo(in, raw, twins)
	return v, nil
}

// moveTo makes the view one of another document; see newRunView.
func (v *runView) moveTo(in Input, raw string, twins bool) {
	v.Files, v.Links, v.Pictures = files(in.Run.Manifest, raw), links(in, raw, twins), twins
}

// visible makes foreign text fit for a view.
func visible(s string) string { return mdtext.Clean(s) }

// join joins the parts that there are.
func join(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}

// value returns a figure's value, and NaN where there is no finite one.
func value(s ingest.Stat) float64 {
	if !s.Known() || math.IsInf(s.Value, 0) {
		return math.NaN()
	}
	return s.Value
}

// results returns the figures of a cell that are results. A cell that is not
// Valid has none, except that a Looped one shows that nothing was completed.
func results(c *ingest.Cell) ingest.Figures {
	switch {
	case c.Status == ingest.Valid:
		return c.Figures
	case c.Status == ingest.Looped && c.Phase == runlog.PhaseDecode:
		return ingest.Figures{CompletedRequests: ingest.Stat{N: 1}, OutputTokens: ingest.Stat{N: 1}}
	}
	return ingest.Figures{}
}

// rate returns the figure that a cell's Total tok/s is.
func rate(c *ingest.Cell, f ingest.Figures) ingest.Stat {
	if c.Phase == runlog.PhasePrefill {
		return f.PrefillTokPerS
	}
	return f.TotalTokPerS
}

// allCells returns prefill, then decode cells.
func allCells(run *ingest.Run) []*ingest.Cell {
	var all []*ingest.Cell
	for i := range run.Prefill {
		all = append(all, &run.Prefill[i])
	}
	for i := range run.Decode {
		all = append(all, &run.Decode[i])
	}
	// The order of the page does not depend on the order of the log.
	slices.SortStableFunc(all, func(a, b *ingest.Cell) int {
		return cmp.Or(
			-cmp.Compare(a.Phase, b.Phase), // "prefill" before "decode"
			cmp.Compare(a.ContextTokens, b.ContextTokens),
			cmp.Compare(a.Concurrency, b.Concurrency),
		)
	})
	return all
}

func phaseCells(run *ingest.Run, phase runlog.Phase) []*ingest.Cell {
	return slices.DeleteFunc(allCells(run), func(c *ingest.Cell) bool { return c.Phase != phase })
}

// distinct returns the ascending distinct values of f over cells.
func distinct(cells []*ingest.Cell, f func(*ingest.Cell) int32) []int32 {
	var list []int32
	for _, c := range cells {
		list = append(list, f(c))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func contextOf(c *ingest.Cell) int32     { return c.ContextTokens }
func concurrencyOf(c *ingest.Cell) int32 { return c.Concurrency }

func contextLabels(run *ingest.Run) map[int32]string {
	return format.Contexts(distinct(allCells(run), contextOf))
}

func phaseName(p runlog.Phase) string {
	if p == runlog.PhasePrefill {
		return "Prefill"
	}
	return "Sustained decode"
}

func plain(n int32) string { return strconv.Itoa(int(n)) }

func factValue(f *runlog.Fact) string {
	if f == nil {
		return ""
	}
	return visible(f.Value)
}

// modelName returns the last path part of the repository id, else the name
// that requests ask for; "" when neither is known.
func modelName(m runlog.Model) string {
	repository := strings.TrimRight(visible(m.Repository), "/")
	if repository == "" {
		return visible(m.ServedName)
	}
	return path.Base(repository)
}

// A gpuGroup is a number of equal GPUs.
type gpuGroup struct {
	count int
	name  string // without the vendor; "" unknown
	vram  string // whole GiB; "" unknown
}

func gpuGroups(gpus []runlog.GPU) []gpuGroup {
	var groups []gpuGroup
	for _, g := range gpus {
		name := visible(g.Name)
		if rest, ok := strings.CutPrefix(name, "NVIDIA "); ok {
			name = strings.TrimSpace(rest)
		}
		vram := ""
		if g.VRAMBytes > 0 {
			vram = format.GiB(g.VRAMBytes)
		}
		i := slices.IndexFunc(groups, func(h gpuGroup) bool { return h.name == name && h.vram == vram })
		if i < 0 {
			groups = append(groups, gpuGroup{1, name, vram})
			continue
		}
		groups[i].count++
	}
	return groups
}

// each writes f of every group, with its count in front where it is not one.
func each(groups []gpuGroup, f func(gpuGroup) string) string {
	var parts []string
	for _, g := range groups {
		s := f(g)
		if s != "" && g.count > 1 {
			s = strconv.Itoa(g.count) + " × " + s
		}
		parts = append(parts, s)
	}
	return join(" + ", parts...)
}

// hardwareName returns "RTX PRO 6000 96GB", the CPU where there is no GPU,
// or "" when neither is known.
func hardwareName(h runlog.Hardware) string {
	gpus := each(gpuGroups(h.GPUs), func(g gpuGroup) string {
		if g.name == "" || g.vram == "" {
			return g.name
		}
		return g.name + " " + g.vram + "GB"
	})
	return cmp.Or(gpus, visible(h.CPU))
}

func heading(run *ingest.Run) string {
	model := cmp.Or(modelName(run.Manifest.Model), "Unknown model")
	if hardware := hardwareName(run.Manifest.Hardware); hardware != "" {
		return model + " on " + hardware
	}
	return model
}

func planLine(run *ingest.Run, labels map[int32]string) string {
	decode := phaseCells(run, runlog.PhaseDecode)
	var prefill []string
	for _, t := range distinct(phaseCells(run, runlog.PhasePrefill), contextOf) {
		prefill = append(prefill, labels[t])
	}
	line := join(" × ",
		countRange("context", distinct(decode, contextOf), func(t int32) string { return labels[t] }),
		countRange("concurrency level", distinct(decode, concurrencyOf), plain))
	if len(prefill) > 0 {
		line = join(" · ", line, "prefill at "+strings.Join(prefill, ", "))
	}
	return line
}

// countRange writes "5 contexts (8K–123K)", "1 context (8K)", or "" of none.
func countRange(noun string, sorted []int32, label func(int32) string) string {
	switch n := len(sorted); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 %s (%s)", noun, label(sorted[0]))
	default:
		return fmt.Sprintf("%s %ss (%s–%s)", format.Int(int64(n)), noun, label(sorted[0]), label(sorted[n-1]))
	}
}

var hexCommit = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

func shortCommit(s string) string {
	if hexCommit.MatchString(s) {
		return s[:12]
	}
	return s
}

// known are the hosts whose repositories a page links to.
var known = regexp.MustCompile(`^(github\.com|gitlab\.com|huggingface\.co)/[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`)

// mainFacts returns the three lists that every page has, without what is not known.
func mainFacts(m *runlog.Manifest) []factList {
	groups := gpuGroups(m.Hardware.GPUs)
	e := m.Engine
	repository, commit := factValue(e.Repository), factValue(e.Commit)
	repositoryURL, commitURL := "", ""
	if known.MatchString(repository) {
		repositoryURL = "https://" + repository
		if hexCommit.MatchString(commit) {
			commitURL = repositoryURL + "/commit/" + commit
		}
	}
	duration, output := "", ""
	if m.Plan.DurationUs > 0 {
		duration = format.Duration(m.Plan.DurationUs)
	}
	if m.Plan.MaxOutputTokens > 0 {
		output = format.Int(int64(m.Plan.MaxOutputTokens)) + " tokens"
	}
	return lists(
		factList{"hardware", "Hardware", []fact{
			{Name: "Type", Value: visible(m.Hardware.Type)},
			{Name: "GPU", Value: each(groups, func(g gpuGroup) string { return g.name })},
			{Name: "VRAM", Value: each(groups, func(g gpuGroup) string { return suffix(g.vram, " GB") })},
			{Name: "OS", Value: visible(m.Hardware.OS)},
		}},
		factList{"engine", "Engine", []fact{
			{Name: "Engine", Value: factValue(e.Name)},
			{Name: "Version", Value: factValue(e.Version)},
			{Name: "Quantization", Value: factValue(e.Quantization)},
			{Name: "Backend", Value: factValue(e.Backend)},
			{Name: "Repository", Value: repository, URL: repositoryURL},
			{Name: "Build", Value: factValue(e.Build)},
			{Name: "Commit", Value: shortCommit(commit), URL: commitURL, Code: true},
		}},
		factList{"run", "Run", []fact{
			{Name: "Served model", Value: visible(m.Model.ServedName)},
			{Name: "Revision", Value: visible(m.Model.Revision)},
			{Name: "Benchmark tool", Value: join(" ", visible(m.Tool.Name), visible(m.Tool.Version))},
			{Name: "Decode test", Value: capitalised(visible(m.Plan.DecodeTest))},
			{Name: "Prefill mode", Value: capitalised(visible(m.Plan.PrefillMode))},
			{Name: "Time per measurement", Value: duration},
			{Name: "Max output", Value: output},
		}},
	)
}

// lists leaves out unknown facts, and lists that have no other.
func lists(all ...factList) []factList {
	for i := range all {
		all[i].Facts = slices.DeleteFunc(all[i].Facts, func(f fact) bool { return f.Value == "" })
	}
	return slices.DeleteFunc(all, func(l factList) bool { return len(l.Facts) == 0 })
}

func suffix(s, suffix string) string {
	if s == "" {
		return ""
	}
	return s + suffix
}

func capitalised(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

func launchCommand(e runlog.Engine) []string {
	if e.LaunchCommand == nil {
		return nil
	}
	var environment map[string]string
	if e.Environment != nil {
		environment = e.Environment.Variables
	}
	var parts []string
	for _, p := range shell.Parts(e.LaunchCommand.Args, environment) {
		parts = append(parts, visible(p))
	}
	return parts
}

func cards(run *ingest.Run, labels map[int32]string) []card {
	var list []card
	for _, c := range phaseCells(run, runlog.PhasePrefill) {
		k := card{ID: cellID(c, labels), Context: labels[c.ContextTokens]}
		if c.Status == ingest.Valid {
			k.Rate = format.TokPerSWhole(value(c.Figures.PrefillTokPerS))
			k.TTFT = format.Millis(value(c.Figures.TTFTUs))
		} else {
			k.Status, k.Slug = c.Status.String(), c.Status.Slug()
		}
		list = append(list, k)
	}
	return list
}

// newMatrix returns nil when no decode cell was planned.
func newMatrix(run *ingest.Run, labels map[int32]string) *matrix {
	cells := phaseCells(run, runlog.PhaseDecode)
	if len(cells) == 0 {
		return nil
	}
	type at struct{ context, concurrency int32 }
	byPlace := map[at]*ingest.Cell{}
	var speeds []float64
	for _, c := range cells {
		byPlace[at{c.ContextTokens, c.Concurrency}] = c
		speeds = append(speeds, value(results(c).TotalTokPerS))
	}
	scale := newSpeedScale(speeds)
	m := &matrix{}
	columns := distinct(cells, concurrencyOf)
	for _, n := range columns {
		m.Concurrency = append(m.Concurrency, plain(n))
	}
	for _, t := range distinct(cells, contextOf) {
		row := matrixRow{Context: labels[t]}
		for _, n := range columns {
			row.Cells = append(row.Cells, newMatrixCell(byPlace[at{t, n}], scale, labels))
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

// newMatrixCell returns an em dash for a place that was not planned.
func newMatrixCell(c *ingest.Cell, scale speedScale, labels map[int32]string) matrixCell {
	switch {
	case c == nil:
		return matrixCell{Status: format.Unknown, Slug: "none"}
	case c.Status != ingest.Valid:
		return matrixCell{ID: cellID(c, labels), Status: c.Status.String(), Slug: c.Status.Slug()}
	}
	total := value(c.Figures.TotalTokPerS)
	return matrixCell{
		ID:    cellID(c, labels),
		Total: format.TokPerS(total),
		TTFT:  format.Millis(value(c.Figures.TTFTUs)) + " TTFT",
		Step:  scale.step(total),
	}
}

// speedSteps is the number of colours that the matrix has for speeds.
const speedSteps = 10

// A speedScale gives the speeds of one matrix their colours, at equal
// ratios from the slowest to the fastest.
type speedScale struct{ slowest, fastest *big.Float }

// newSpeedScale returns the scale of the given speeds. It spans a factor of
// eight at least, so that colours don't exaggerate small differences.
func newSpeedScale(speeds []float64) speedScale {
	speeds = slices.DeleteFunc(slices.Clone(speeds), func(v float64) bool { return !(v > 0) })
	if len(speeds) == 0 {
		return speedScale{new(big.Float), new(big.Float)}
	}
	fastest := slices.Max(speeds)
	return speedScale{big.NewFloat(min(slices.Min(speeds), fastest/8)), big.NewFloat(fastest)}
}

// step returns the colour of a speed, 0 … speedSteps − 1: the number of
// limits slowest^((n−k)/n) × fastest^(k/n), k = 1 … n, that it reaches. Both
// sides are raised to the power of n and compared exactly: every machine
// picks the same colour, which logarithms would not promise.
func (s speedScale) step(v float64) int {
	if !(v > 0) {
		return 0
	}
	const n = speedSteps - 1
	power := func(base *big.Float, exponent int) *big.Float {
		p := new(big.Float).SetPrec(53 * n).SetInt64(1)
		for range exponent {
			p.Mul(p, base)
		}
		return p
	}
	reached := power(big.NewFloat(v), n)
	step := 0
	for k := 1; k <= n; k++ {
		limit := power(s.slowest, n-k)
		if reached.Cmp(limit.Mul(limit, power(s.fastest, k))) >= 0 {
			step = k
		}
	}
	return step
}

// legendOrder returns every status but Valid in the order of the legend: that
// of precedence, but Looped first, as the pages have it that ours follow.
func legendOrder() []ingest.Status {
	rest := slices.DeleteFunc(ingest.Statuses(), func(s ingest.Status) bool { return s == ingest.Looped })
	return append([]ingest.Status{ingest.Looped}, rest...)
}

// legend returns the sentences of the statuses that occur, in fixed order.
func legend(run *ingest.Run) string {
	var sentences []string
	counts := statusCounts(run)
	for _, s := range legendOrder() {
		if counts[s] > 0 {
			sentences = append(sentences, s.Sentence())
		}
	}
	return strings.Join(sentences, " ")
}

func statusCounts(run *ingest.Run) map[ingest.Status]int {
	counts := map[ingest.Status]int{}
	for _, c := range allCells(run) {
		counts[c.Status]++
	}
	return counts
}

func measurements(run *ingest.Run, labels map[int32]string) []measurement {
	var list []measurement
	cells := allCells(run)
	for i, c := range cells {
		f := results(c)
		r := measurement{
			ID:           cellID(c, labels),
			Begins:       i > 0 && (cells[i-1].Phase != c.Phase || c.Phase == runlog.PhaseDecode && cells[i-1].ContextTokens != c.ContextTokens),
			Phase:        phaseName(c.Phase),
			Context:      labels[c.ContextTokens],
			Concurrency:  plain(c.Concurrency),
			Status:       c.Status.String(),
			Slug:         c.Status.Slug(),
			Total:        format.TokPerS(value(rate(c, f))),
			PerRequest:   format.Unknown,
			TTFT:         format.Millis(value(f.TTFTUs)),
			Between:      format.Unknown,
			Active:       format.Unknown,
			Completed:    format.Whole(value(f.CompletedRequests)),
			OutputTokens: format.Unknown,
			Measured:     format.Unknown,
		}
		if c.Phase == runlog.PhaseDecode {
			r.PerRequest = format.TokPerS(value(f.PerRequestTokPerS))
			r.Between = format.Millis1(value(f.BetweenTokensUs))
			r.Active = format.One(value(f.ActiveRequests))
			r.OutputTokens = format.Whole(value(f.OutputTokens))
			r.Measured = format.Seconds1(value(f.WindowUs))
		}
		list = append(list, r)
	}
	return list
}

// best returns the Valid decode cell with the highest total; nil: none.
func best(run *ingest.Run) *ingest.Cell {
	var top *ingest.Cell
	for _, c := range phaseCells(run, runlog.PhaseDecode) {
		v := value(results(c).TotalTokPerS)
		if !math.IsNaN(v) && (top == nil || v > top.Figures.TotalTokPerS.Value) {
			top = c
		}
	}
	return top
}

func description(run *ingest.Run, v *runView, labels map[int32]string) string {
	s := v.Heading + ", measured with " + cmp.Or(v.EngineLine, "an unknown engine")
	if c := best(run); c != nil {
		s += fmt.Sprintf(": up to %s tok/s at %s context with %s", format.TokPerS(c.Figures.TotalTokPerS.Value), labels[c.ContextTokens], atOnce(c.Concurrency))
	}
	return s + "."
}

// atOnce writes "1 request" or "16 requests at once".
func atOnce(n int32) string {
	if n == 1 {
		return "1 request"
	}
	return plain(n) + " requests at once"
}

// escapePath escapes a relative path with forward slashes for a URL.
func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
