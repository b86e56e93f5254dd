package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// DataFormat names the shape of index.json. A change that an old reader
// would misread takes a new number.
const DataFormat = "speedmatrix-run/1"

// A runData is index.json: everything that the page shows, unrounded. Units
// are in the names; what is not known is null.
type runData struct {
	Format  string `json:"format"`
	Method  string `json:"method"`
	RunID   string `json:"run_id"`
	Started string `json:"started_at"` // RFC 3339, UTC

	Finished bool            `json:"finished"`
	Tool     runlog.Tool     `json:"tool"`
	Launch   runlog.Launch   `json:"launch"`
	Engine   runlog.Engine   `json:"engine"`
	Model    runlog.Model    `json:"model"`
	Hardware runlog.Hardware `json:"hardware"`
	Server   runlog.Server   `json:"server"`
	Plan     runlog.Plan     `json:"plan"`
	Capacity runlog.Capacity `json:"capacity"`

	Notes   []string   `json:"notes"`
	Prefill []cellData `json:"prefill"`
	Decode  []cellData `json:"decode"`
	Files   []fileData `json:"files"`
}

type cellData struct {
	Phase         string   `json:"phase"`
	ContextTokens int32    `json:"context_tokens"`
	ContextLabel  string   `json:"context_label"`
	Concurrency   int32    `json:"concurrency"`
	PromptTokens  *float64 `json:"prompt_tokens"`
	Status        string   `json:"status"`
	Why           []reason `json:"evidence"`

	// Figures are results: null unless the cell is Valid. What was computed
	// all the same is in Discarded, and counts for nothing.
	Figures   map[string]figure `json:"figures"`
	Discarded map[string]figure `json:"discarded_figures"`

	// Percentiles of the values behind the figures: null unless the cell is
	// Valid.
	Percentiles map[string]map[string]figure `json:"percentiles"`

	Requests requestData `json:"requests"`
	Loops    []loopData  `json:"loops"`
	Window   *windowData `json:"window"`
	GPUs     []gpuData   `json:"gpus"`
	Notes    []string    `json:"notes"`
	File     *string     `json:"file"`
}

// A figure is a number and the number of values behind it.
type figure struct {
	Value *float64 `json:"value"`
	N     int      `json:"n"`
}

type reason struct {
	Status  string `json:"status"`
	Text    string `json:"text"`
	Stream  *int32 `json:"stream"`
	Request *int32 `json:"request"`
	TUs     *int64 `json:"t_us"`
}

type requestData struct {
	Launched      int            `json:"launched"`
	Completed     int            `json:"completed"`
	Failed        int            `json:"failed"`
	Cancelled     int            `json:"cancelled"`
	Unfinished    int            `json:"unfinished"`
	FinishReasons map[string]int `json:"finish_reasons"`
	HTTPErrors    map[int32]int  `json:"http_errors"` // failed requests by status
}

type loopData struct {
	Stream  int32  `json:"stream"`
	Request int32  `json:"request"`
	Channel string `json:"channel"`
	Start   int    `json:"start_code_points"`
	Period  int    `json:"period_code_points"`
	Length  int    `json:"length_code_points"`
	Cycles  int    `json:"cycles"`
	TUs     int64  `json:"t_us"`
	Text    string `json:"period_start"`
}

type windowData struct {
	OpenUs  int64         `json:"open_us"`
	CloseUs int64         `json:"close_us"`
	Ready   *runlog.Ready `json:"ready"`
}

// A gpuData is the state of a GPU while the cell was measured.
type gpuData struct {
	Index        int32  `json:"index"`
	TemperatureC figure `json:"temperature_c"`         // as it began
	HottestC     figure `json:"highest_temperature_c"` // during the measurement
	SlowedShare  figure `json:"slowed_share"`          // of readings in which heat or a power brake held the clock down
}

type fileData struct {
	File   string  `json:"file"`
	Rows   int64   `json:"rows"`
	Bytes  int64   `json:"bytes"`
	SHA256 *string `json:"sha256"`
}

// figuresByName returns every figure under its name in index.json.
func figuresByName(f ingest.Figures) map[string]figure {
	return map[string]figure{
		"prefill_tok_per_s":             newFigure(f.PrefillTokPerS),
		"prompt_tokens":                 newFigure(f.PromptTokens),
		"total_tok_per_s":               newFigure(f.TotalTokPerS),
		"output_tokens":                 newFigure(f.OutputTokens),
		"measured_for_us":               newFigure(f.WindowUs),
		"per_request_tok_per_s":         newFigure(f.PerRequestTokPerS),
		"ttft_us":                       newFigure(f.TTFTUs),
		"time_between_tokens_us":        newFigure(f.BetweenTokensUs),
		"average_active_requests":       newFigure(f.ActiveRequests),
		"completed_requests":            newFigure(f.CompletedRequests),
		"gap_p50_us":                    newFigure(f.GapP50Us),
		"gap_p90_us":                    newFigure(f.GapP90Us),
		"gap_p99_us":                    newFigure(f.GapP99Us),
		"gap_max_us":                    newFigure(f.GapMaxUs),
		"first_answer_us":               newFigure(f.FirstAnswerUs),
		"cold_ttft_us":                  newFigure(f.ColdTTFTUs),
		"tokens_per_event":              newFigure(f.TokensPerEvent),
		"first_half_tok_per_s":          newFigure(f.FirstHalfTokPerS),
		"second_half_tok_per_s":         newFigure(f.SecondHalfTokPerS),
		"slowest_request_tok_per_s":     newFigure(f.SlowestTokPerS),
		"fastest_request_tok_per_s":     newFigure(f.FastestTokPerS),
		"loop_free_tok_per_s":           newFigure(f.LoopFreeTokPerS),
		"cached_share_of_prompt_tokens": newFigure(f.CachedShare),
	}
}

// percentilesByName returns the percentiles that there are.
func percentilesByName(sp ingest.Spread) map[string]map[string]figure {
	all := map[string]map[string]figure{}
	for name, p := range map[string]ingest.Percentiles{
		"ttft_us": sp.TTFTUs, "time_between_tokens_us": sp.BetweenTokensUs, "per_request_tok_per_s": sp.PerRequestTokPerS, "gap_us": sp.GapUs,
	} {
		if p.P50.Known() {
			all[name] = map[string]figure{
				"p5": newFigure(p.P5), "p25": newFigure(p.P25), "p50": newFigure(p.P50), "p75": newFigure(p.P75),
				"p90": newFigure(p.P90), "p95": newFigure(p.P95), "p99": newFigure(p.P99), "max": newFigure(p.Max),
			}
		}
	}
	return all
}

func newFigure(s ingest.Stat) figure {
	v := value(s)
	if math.IsNaN(v) {
		return figure{}
	}
	return figure{&v, s.N}
}

// indexJSON returns index.json.
func indexJSON(run *ingest.Run) ([]byte, error) {
	m := run.Manifest
	d := runData{
		Format: DataFormat, Method: ingest.Method, RunID: run.ID,
		Started: m.StartedAt.UTC().Format(time.RFC3339Nano), Finished: m.Finished,
		Tool: m.Tool, Launch: m.Launch, Engine: m.Engine, Model: m.Model, Hardware: m.Hardware,
		Server: m.Server, Plan: m.Plan, Capacity: m.Capacity,
		Notes: slices.Concat([]string{}, run.Notes), Prefill: []cellData{}, Decode: []cellData{}, Files: []fileData{},
	}
	labels := contextLabels(run)
	for _, c := range allCells(run) {
		k := newCellData(c, labels)
		if c.Phase == runlog.PhasePrefill {
			d.Prefill = append(d.Prefill, k)
		} else {
			d.Decode = append(d.Decode, k)
		}
	}
	for _, f := range logFiles(m) {
		d.Files = append(d.Files, fileData{f.File, f.Rows, f.Bytes, notEmpty(f.SHA256)})
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render index.json of run %q: %w", run.ID, err)
	}
	return append(b, '\n'), nil
}

func newCellData(c *ingest.Cell, labels map[int32]string) cellData {
	k := cellData{
		Phase: string(c.Phase), ContextTokens: c.ContextTokens, ContextLabel: labels[c.ContextTokens], Concurrency: c.Concurrency,
		PromptTokens: newFigure(c.Figures.PromptTokens).Value,
		Status:       c.Status.Slug(), Why: []reason{}, Loops: []loopData{}, GPUs: []gpuData{},
		Requests: requestData{c.Launch.Launched, c.Launch.Completed, c.Launch.Failed, c.Launch.Cancelled, c.Launch.Unfinished, map[string]int{}, map[int32]int{}},
		Notes:    slices.Concat([]string{}, c.Notes), File: notEmpty(c.File),
	}
	if c.Launch.FinishReasons != nil {
		k.Requests.FinishReasons = c.Launch.FinishReasons
	}
	if c.Launch.HTTPErrors != nil {
		k.Requests.HTTPErrors = c.Launch.HTTPErrors
	}
	if k.PromptTokens == nil && c.PromptTokens > 0 {
		v := float64(c.PromptTokens)
		k.PromptTokens = &v
	}
	if c.Status == ingest.Valid {
		k.Figures, k.Percentiles = figuresByName(c.Figures), percentilesByName(c.Spread)
	} else if len(c.Requests) > 0 {
		k.Discarded = figuresByName(c.Figures)
	}
	for _, e := range c.Evidence {
		k.Why = append(k.Why, reason{e.Status.Slug(), e.Text, notNegative(e.Stream), notNegative(e.Request), notNegative(e.TUs)})
	}
	for _, r := range c.Requests {
		if l := r.Loop; l != nil {
			k.Loops = append(k.Loops, loopData{r.Stream, r.Request, l.Channel, l.Start, l.Period, l.Length, l.Cycles, l.TUs, l.PeriodStart})
		}
	}
	if c.WindowOpenUs != nil && c.WindowCloseUs != nil {
		k.Window = &windowData{*c.WindowOpenUs, *c.WindowCloseUs, c.Ready}
	}
	for _, g := range c.GPUs {
		k.GPUs = append(k.GPUs, gpuData{g.Index, newFigure(g.TemperatureC), newFigure(g.HottestC), newFigure(g.SlowedShare)})
	}
	return k
}

func notEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func notNegative[T int32 | int64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

// csvColumns are the columns of cells.csv: those of the page's table, after
// the ones that say which run a row is of.
var csvColumns = []string{
	"run_id", "model", "hardware", "engine_version", "engine_commit",
	"phase", "context_tokens", "concurrency", "status",
	"total_tok_per_s", "per_request_tok_per_s", "ttft_us", "time_between_tokens_us",
	"average_active_requests", "completed_requests", "output_tokens", "measured_for_us",
	"why",
}

// cellsCSV returns cells.csv: the numbers of the page's table, unrounded,
// without grouping; an empty field is not known.
func cellsCSV(run *ingest.Run) ([]byte, error) {
	m := run.Manifest
	text := func(f *runlog.Fact) string {
		if f == nil {
			return ""
		}
		return f.Value
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(csvColumns)
	for _, c := range allCells(run) {
		f := results(c)
		why := ""
		if len(c.Evidence) > 0 {
			why = c.Evidence[0].Text
		}
		w.Write([]string{
			harmless(run.ID), harmless(m.Model.Repository), harmless(hardwareName(m.Hardware)), harmless(text(m.Engine.Version)), harmless(text(m.Engine.Commit)),
			string(c.Phase), strconv.Itoa(int(c.ContextTokens)), strconv.Itoa(int(c.Concurrency)), c.Status.Slug(),
			number(rate(c, f)), number(f.PerRequestTokPerS), number(f.TTFTUs), number(f.BetweenTokensUs),
			number(f.ActiveRequests), number(f.CompletedRequests), number(f.OutputTokens), number(f.WindowUs),
			harmless(why),
		})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("render cells.csv of run %q: %w", run.ID, err)
	}
	return b.Bytes(), nil
}

func number(s ingest.Stat) string {
	v := newFigure(s).Value
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

// harmless returns foreign text that a spreadsheet will not take for a
// formula: one with such a beginning gets an apostrophe, as spreadsheets do.
func harmless(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if s != "" && strings.ContainsRune("=+-@\t\r\n", rune(s[0])) {
		return "'" + s
	}
	return s
}
