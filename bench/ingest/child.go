package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
	"github.com/google/pprof/profile"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// ingestRun computes everything of the run in dir.
func ingestRun(dir string, _ int) (result, error) {
	r, err := ingest.Load(dir)
	if err != nil {
		return result{}, err
	}
	res := result{Figures: map[string]float64{}, Cells: map[string]int{}}
	for _, cells := range [][]ingest.Cell{r.Prefill, r.Decode} {
		for i := range cells {
			c := &cells[i]
			res.Cells[c.Status.String()]++
			named := map[string]ingest.Stat{}
			for _, f := range c.Figures.Named() {
				named[f.Name] = f.Stat
			}
			for _, name := range compared()[c.Phase] {
				if s := named[name]; s.Known() {
					res.Figures[c.Key().Name()+" "+name] = s.Value
				}
			}
		}
	}
	return res, nil
}

// compared are the figures that docs/sql.md computes, by phase.
func compared() map[runlog.Phase][]string {
	return map[runlog.Phase][]string{
		runlog.PhasePrefill: {"prefill_tok_per_s", "ttft_us", "completed_requests"},
		runlog.PhaseDecode: {
			"total_tok_per_s", "output_tokens", "measured_for_us", "tokens_per_event",
			"ttft_us", "time_between_tokens_us", "per_request_tok_per_s", "average_active_requests", "completed_requests",
			"gap_p50_us", "gap_p90_us", "gap_p99_us", "gap_max_us",
		},
	}
}

// duckdbAll computes the figures of the runs in dir/results with DuckDB, by
// all queries of the document.
func duckdbAll(dir string, cores int) (result, error) {
	return duckdb(dir, cores, "prefill figures", "decode throughput", "decode requests", "decode gaps")
}

// duckdbGaps asks for the gaps only.
func duckdbGaps(dir string, cores int) (result, error) { return duckdb(dir, cores, "decode gaps") }

var fence = regexp.MustCompile("(?ms)^```sql\n-- name: ([^\n]*)\n(.*?)^```$")

func duckdb(dir string, cores int, names ...string) (result, error) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "sql.md"))
	if err != nil {
		return result{}, err
	}
	db, err := sql.Open("duckdb", "?threads="+fmt.Sprint(cores))
	if err != nil {
		return result{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if err := os.Chdir(dir); err != nil { // where the document says that DuckDB is started
		return result{}, err
	}
	res := result{Figures: map[string]float64{}}
	for _, m := range fence.FindAllStringSubmatch(string(doc), -1) {
		name, text := m[1], m[2]
		switch {
		case strings.HasPrefix(text, "CREATE "):
			if _, err := db.Exec(text); err != nil {
				return result{}, fmt.Errorf("query %q: %w", name, err)
			}
		case slices.Contains(names, name):
			if err := figures(db, name, text, res.Figures); err != nil {
				return result{}, fmt.Errorf("query %q: %w", name, err)
			}
		}
	}
	return res, nil
}

// figures adds what a query says of each cell.
func figures(db *sql.DB, name, text string, into map[string]float64) error {
	rows, err := db.Query(text)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	phase, _, _ := strings.Cut(name, " ")
	values, to := make([]sql.NullFloat64, len(columns)), make([]any, len(columns))
	for i, c := range columns {
		if to[i] = &values[i]; c == "run" {
			to[i] = new(string)
		}
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		key := runlog.Key{Phase: runlog.Phase(phase), Concurrency: 1}
		for i, c := range columns {
			switch v := int32(values[i].Float64); c {
			case "context_tokens":
				key.ContextTokens = v
			case "concurrency":
				key.Concurrency = v
			}
		}
		for i, c := range columns {
			if values[i].Valid && slices.Contains(compared()[key.Phase], c) {
				into[key.Name()+" "+c] = values[i].Float64
			}
		}
	}
	return rows.Err()
}

// profileRead reads the event files of a run for some seconds and says what
// share of the processor time their parts have.
func profileRead(dir string, _ int) (result, error) {
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		return result{}, err
	}
	var data bytes.Buffer
	if err := pprof.StartCPUProfile(&data); err != nil {
		return result{}, err
	}
	for start := time.Now(); time.Since(start) < 5*time.Second; {
		for _, c := range m.Cells {
			if c.File == "" {
				continue
			}
			if _, err := runlog.ReadEvents(dir, c.Key(), c.FileInfo); err != nil {
				return result{}, err
			}
		}
	}
	pprof.StopCPUProfile()
	p, err := profile.ParseData(data.Bytes())
	if err != nil {
		return result{}, err
	}
	parts := map[string]*regexp.Regexp{
		"all":        regexp.MustCompile(`runlog\.(\(\*Reader\)\.Events|ReadEvents)$`),
		"validation": regexp.MustCompile(`runlog\.walk|^crypto/sha256\.|^hash/crc32\.|runlog\.checkMetadata|runlog\.checkSchema`),
		"rules":      regexp.MustCompile(`runlog\.\(\*Events\)\.check`),
		"zstd":       regexp.MustCompile(`zstd\.\(\*Decoder\)\.`),
	}
	time := map[string]int64{}
	for _, s := range p.Sample {
		for part, functions := range parts {
			if slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
				return slices.ContainsFunc(l.Line, func(l profile.Line) bool { return functions.MatchString(l.Function.Name) })
			}) {
				time[part] += s.Value[len(s.Value)-1]
			}
		}
	}
	res := result{Shares: map[string]float64{}}
	for part := range parts {
		if time["all"] > 0 {
			res.Shares[part] = float64(time[part]) / float64(time["all"])
		}
	}
	return res, nil
}
