package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// The JSON forms. Names are those of index.json on a page.

type runJSON struct {
	RunID    string     `json:"run_id"`
	Format   string     `json:"format"`
	Method   string     `json:"method"`
	Finished bool       `json:"finished"`
	Notes    []string   `json:"notes"`
	Prefill  []cellJSON `json:"prefill"`
	Decode   []cellJSON `json:"decode"`
}

type cellJSON struct {
	Name          string         `json:"name"`
	Phase         runlog.Phase   `json:"phase"`
	ContextTokens int32          `json:"context_tokens"`
	Concurrency   int32          `json:"concurrency"`
	Status        string         `json:"status"`
	Evidence      []evidenceJSON `json:"evidence"`
	Notes         []string       `json:"notes"`

	// Figures are results: null unless the cell is Valid. Discarded are
	// those of other cells, which count for nothing.
	Figures   figuresJSON `json:"figures"`
	Discarded figuresJSON `json:"discarded_figures"`

	WindowOpenUs  *int64         `json:"window_open_us"`
	WindowCloseUs *int64         `json:"window_close_us"`
	Launched      int            `json:"launched_requests"`
	Completed     int            `json:"completed_requests"`
	Failed        int            `json:"failed_requests"`
	Cancelled     int            `json:"cancelled_requests"`
	Unfinished    int            `json:"unfinished_requests"`
	FinishReasons map[string]int `json:"finish_reasons"`
	GPUs          []gpuJSON      `json:"gpus"`
	File          *string        `json:"file"`
	Rows          int64          `json:"rows"`
	Bytes         int64          `json:"bytes"`
	Requests      []requestJSON  `json:"requests,omitempty"` // only of one cell
}

type evidenceJSON struct {
	Status  string `json:"status"`
	Text    string `json:"text"`
	Stream  *int32 `json:"stream"`
	Request *int32 `json:"request"`
	TUs     *int64 `json:"t_us"`
}

// A gpuJSON is the state of a GPU while the cell was measured.
type gpuJSON struct {
	Index        int32       `json:"index"`
	TemperatureC *figureJSON `json:"temperature_c"` // as it began
	HottestC     *figureJSON `json:"highest_temperature_c"`
	SlowedShare  *figureJSON `json:"slowed_share"` // of readings in which heat or a power brake held the clock down
}

// figuresJSON holds a value and the number of values behind it, or null.
type figuresJSON map[string]*figureJSON

type figureJSON struct {
	Value float64 `json:"value"`
	N     int     `json:"n"`
}

type requestJSON struct {
	Stream            int32    `json:"stream"`
	Request           int32    `json:"request"`
	FirstRow          int      `json:"first_row"`
	Rows              int      `json:"rows"`
	SentUs            *int64   `json:"sent_us"`
	HeadersUs         *int64   `json:"headers_us"`
	FirstTokenUs      *int64   `json:"first_token_us"`
	LastTokenUs       *int64   `json:"last_token_us"`
	FirstAnswerUs     *int64   `json:"first_answer_us"`
	EndUs             *int64   `json:"end_us"`
	End               *string  `json:"end"`
	Failed            bool     `json:"failed"`
	Reason            *string  `json:"reason"`
	HTTPStatus        *int32   `json:"http_status"`
	FinishReason      *string  `json:"finish_reason"`
	EndedEarly        bool     `json:"ended_early"`
	Note              *string  `json:"note"`
	PromptTokens      *int32   `json:"prompt_tokens"`
	CachedTokens      *int32   `json:"cached_tokens"`
	OutputTokens      *int64   `json:"output_tokens"`
	FirstEventTokens  *int64   `json:"first_event_tokens"`
	WindowTokens      *int64   `json:"window_tokens"`
	TokenEvents       int      `json:"token_events"`
	WindowTokenEvents int      `json:"window_token_events"`
	ActiveUs          int64    `json:"active_in_window_us"`
	LongestGapUs      *int64   `json:"longest_gap_us"`
	TTFTUs            *float64 `json:"ttft_us"`
	BetweenTokensUs   *float64 `json:"time_between_tokens_us"`
	TokPerS           *float64 `json:"per_request_tok_per_s"`
}

func newRunJSON(r *ingest.Run) runJSON {
	j := runJSON{
		RunID: r.ID, Format: r.Manifest.Format, Method: ingest.Method, Finished: r.Manifest.Finished,
		Notes: orEmpty(r.Notes), Prefill: []cellJSON{}, Decode: []cellJSON{},
	}
	for i := range r.Prefill {
		j.Prefill = append(j.Prefill, newCellJSON(&r.Prefill[i]))
	}
	for i := range r.Decode {
		j.Decode = append(j.Decode, newCellJSON(&r.Decode[i]))
	}
	return j
}

func newCellJSON(c *ingest.Cell) cellJSON {
	key, l := c.Key(), c.Launch
	j := cellJSON{
		Name: key.Name(), Phase: c.Phase, ContextTokens: c.ContextTokens, Concurrency: c.Concurrency,
		Status: c.Status.Slug(), Evidence: []evidenceJSON{}, Notes: orEmpty(c.Notes), GPUs: []gpuJSON{},
		WindowOpenUs: c.WindowOpenUs, WindowCloseUs: c.WindowCloseUs,
		Launched: l.Launched, Completed: l.Completed, Failed: l.Failed, Cancelled: l.Cancelled, Unfinished: l.Unfinished,
		FinishReasons: l.FinishReasons, File: text(c.File), Rows: c.Rows, Bytes: c.Bytes,
	}
	figures := figuresJSON{}
	for _, f := range c.Figures.Named() {
		figures[f.Name] = newFigureJSON(f.Stat)
	}
	for _, g := range c.GPUs {
		j.GPUs = append(j.GPUs, gpuJSON{g.Index, newFigureJSON(g.TemperatureC), newFigureJSON(g.HottestC), newFigureJSON(g.SlowedShare)})
	}
	if c.Status == ingest.Valid {
		j.Figures = figures
	} else {
		j.Discarded = figures
	}
	for _, e := range c.Evidence {
		j.Evidence = append(j.Evidence, evidenceJSON{e.Status.Slug(), e.Text, measured(e.Stream), measured(e.Request), measured(e.TUs)})
	}
	return j
}

func newFigureJSON(s ingest.Stat) *figureJSON {
	if !s.Known() {
		return nil
	}
	return &figureJSON{s.Value, s.N}
}

func newRequestsJSON(rs []ingest.Request) []requestJSON {
	out := []requestJSON{}
	for i := range rs {
		r := &rs[i]
		var end *string
		if r.End != 0 {
			end = text(r.End.String())
		}
		out = append(out, requestJSON{
			Stream: r.Stream, Request: r.Request, FirstRow: r.FirstRow, Rows: r.Rows,
			SentUs: measured(r.SentUs), HeadersUs: measured(r.HeadersUs), FirstTokenUs: measured(r.FirstUs),
			LastTokenUs: measured(r.LastUs), FirstAnswerUs: measured(r.FirstAnswerUs), EndUs: measured(r.EndUs), End: end,
			Failed: r.Failed, Reason: text(r.Reason), HTTPStatus: measured(r.Status), FinishReason: text(r.FinishReason),
			EndedEarly: r.EndedEarly, Note: text(r.Note), PromptTokens: measured(r.PromptTokens), CachedTokens: measured(r.CachedTokens),
			OutputTokens: measured(r.Tokens), FirstEventTokens: measured(r.FirstTokens), WindowTokens: measured(r.WindowTokens),
			TokenEvents: r.TokenEvents, WindowTokenEvents: r.WindowEvents, ActiveUs: r.ActiveUs, LongestGapUs: measured(r.LongestGapUs),
			TTFTUs: value(r.TTFTUs), BetweenTokensUs: value(r.BetweenTokensUs), TokPerS: value(r.PerRequestTokPerS),
		})
	}
	return out
}

// measured is nil for the numbers that stand for unknown.
func measured[T int32 | int64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

func value(s ingest.Stat) *float64 {
	if !s.Known() {
		return nil
	}
	return &s.Value
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}
