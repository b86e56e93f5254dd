package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render/internal/format"
)

// A summary is all that the pages about several runs know of one. It is
// kept in the cache, so that a run is not loaded for being listed; all of it
// must survive JSON.
type summary struct {
	ID       string
	Started  time.Time // UTC
	Finished bool

	Model, Hardware string // as shown, never empty
	ModelID         string // repository id, or the name that requests ask for
	Quantization    string
	EngineName      string
	Version         string
	Commit          string // as shown
	CommitURL       string
	Build           string
	Setting         string // that a noise profile must be of
	Driver, Tool    string // as shown; a change of these is worth a mark in a history

	// Series is the digest of everything but the engine's version that must
	// be equal for two runs to be comparable; Settings says it in words.
	Series   string
	Settings []fact

	Contexts, Levels int            // of the decode matrix
	Counts           []string       // of statuses, in words
	Statuses         map[string]int // by slug
	Cells            []summaryCell  // prefill, then decode, ascending
	Raw              []string       // files of the run directory
}

// A summaryCell is one planned measurement. Figures are nil where they are
// no results.
type summaryCell struct {
	Prefill              bool
	Context, Concurrency int32
	Status, Slug         string

	Total      *float64 // tok/s; of prefill, prompt tok/s
	PerRequest *float64
	TTFTUs     *float64
	BetweenUs  *float64
}

// Model and hardware of which nothing is known.
const (
	unknownModel    = "Unknown model"
	unknownHardware = "Unknown hardware"
)

func newSummary(in Input) summary {
	run, m := in.Run, in.Run.Manifest
	driver := ""
	if len(m.Hardware.GPUs) > 0 {
		driver = visible(m.Hardware.GPUs[0].Driver)
	}
	commitURL := ""
	for _, l := range mainFacts(m) {
		for _, f := range l.Facts {
			if f.Name == "Commit" {
				commitURL = f.URL
			}
		}
	}
	s := summary{
		ID: run.ID, Started: m.StartedAt.UTC().Round(0), Finished: m.Finished,
		Model:        cmp.Or(modelName(m.Model), unknownModel),
		ModelID:      cmp.Or(visible(m.Model.Repository), visible(m.Model.ServedName)),
		Hardware:     cmp.Or(hardwareName(m.Hardware), unknownHardware),
		Quantization: factValue(m.Engine.Quantization),
		EngineName:   factValue(m.Engine.Name),
		Version:      factValue(m.Engine.Version),
		Commit:       shortCommit(factValue(m.Engine.Commit)),
		CommitURL:    commitURL,
		Build:        factValue(m.Engine.Build),
		Setting:      compare.Setting(m),
		Driver:       driver,
		Tool:         join(" ", visible(m.Tool.Name), visible(m.Tool.Version)),
		Statuses:     map[string]int{},
		Raw:          rawFiles(in),
	}
	decode := phaseCells(run, runlog.PhaseDecode)
	s.Contexts, s.Levels = len(distinct(decode, contextOf)), len(distinct(decode, concurrencyOf))
	counts := statusCounts(run)
	for _, st := range append([]ingest.Status{ingest.Valid}, legendOrder()...) {
		if n := counts[st]; n > 0 {
			s.Counts = append(s.Counts, format.Int(int64(n))+" "+st.String())
			s.Statuses[st.Slug()] = n
		}
	}
	if len(s.Counts) == 0 {
		s.Counts = []string{"none planned"}
	}
	if !m.Finished {
		s.Counts = append(s.Counts, "interrupted")
	}
	for _, c := range allCells(run) {
		k := summaryCell{
			Prefill: c.Phase == runlog.PhasePrefill, Context: c.ContextTokens, Concurrency: c.Concurrency,
			Status: c.Status.String(), Slug: c.Status.Slug(),
		}
		if c.Status == ingest.Valid {
			k.Total = newFigure(rate(c, c.Figures)).Value
			k.PerRequest = newFigure(c.Figures.PerRequestTokPerS).Value
			k.TTFTUs = newFigure(c.Figures.TTFTUs).Value
			k.BetweenUs = newFigure(c.Figures.BetweenTokensUs).Value
		}
		s.Cells = append(s.Cells, k)
	}
	s.Series, s.Settings = seriesOf(m)
	return s
}

// orNaN returns a figure of a summary, and NaN where there is none.
func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// best returns the Valid decode cell with the highest total; nil: none.
func (s *summary) best() *summaryCell {
	var top *summaryCell
	for i := range s.Cells {
		if c := &s.Cells[i]; !c.Prefill && c.Total != nil && (top == nil || *c.Total > *top.Total) {
			top = c
		}
	}
	return top
}

// alone returns the decode cell with one request at the smallest context;
// nil: none was planned.
func (s *summary) alone() *summaryCell {
	for i := range s.Cells {
		if c := &s.Cells[i]; !c.Prefill {
			if c.Concurrency == 1 {
				return c
			}
			return nil // ascending: the smallest context has none
		}
	}
	return nil
}

// seriesOf returns the digest of what must be equal for two runs to stand in
// one history, and the parts of it that are worth reading. What may differ
// is the engine's version, commit and build, and the driver and the tool.
func seriesOf(m *runlog.Manifest) (digest string, settings []fact) {
	e, p := m.Engine, m.Plan
	flags := normalFlags(e.LaunchCommand)
	limits := make([]float64, len(m.Hardware.GPUs))
	for i, g := range m.Hardware.GPUs {
		limits[i] = g.PowerLimitW
	}
	identity, _ := json.Marshal([]any{ // strings, numbers and lists of them
		ingest.Method, m.Model.Repository, cmp.Or(m.Model.Repository, m.Model.ServedName), m.Model.Revision, m.Model.WeightsDigest,
		factValue(e.Quantization), hardwareName(m.Hardware), limits, factValue(e.Name), factValue(e.Backend), flags,
		p.DurationUs, p.MaxOutputTokens, p.PromptSet, p.Sampling, p.DecodeTest, p.PrefillMode, p.TokenCounting,
	})
	sum := sha256.Sum256(identity)
	power := ""
	if len(limits) > 0 && limits[0] > 0 {
		power = fmt.Sprintf("%v W", limits[0])
	}
	duration, output := "", ""
	if p.DurationUs > 0 {
		duration = format.Duration(p.DurationUs)
	}
	if p.MaxOutputTokens > 0 {
		output = format.Int(int64(p.MaxOutputTokens)) + " tokens"
	}
	list := lists(factList{Facts: []fact{
		{Name: "Model", Value: cmp.Or(visible(m.Model.Repository), visible(m.Model.ServedName))},
		{Name: "Revision", Value: visible(m.Model.Revision)},
		{Name: "Quantization", Value: factValue(e.Quantization)},
		{Name: "Hardware", Value: hardwareName(m.Hardware)},
		{Name: "Power limit", Value: power},
		{Name: "Engine", Value: factValue(e.Name)},
		{Name: "Backend", Value: factValue(e.Backend)},
		{Name: "Launch flags", Value: visible(strings.Join(flags, " ")), Code: true},
		{Name: "Time per measurement", Value: duration},
		{Name: "Max output", Value: output},
	}})
	if len(list) > 0 {
		settings = list[0].Facts
	}
	return hex.EncodeToString(sum[:8]), settings
}

// personal are the flags that say where a server is and who may ask it, and
// nothing of its speed.
var personal = []string{"--host", "--port", "--uds", "--root-path", "--api-key", "--served-model-name", "--model", "--download-dir", "--ssl-keyfile", "--ssl-certfile"}

// normalFlags returns the flags of a launch command in one order, without
// the program, the model and what is personal.
func normalFlags(c *runlog.Command) []string {
	if c == nil {
		return nil
	}
	var flags []string
	for i := 0; i < len(c.Args); i++ {
		name, value, joined := strings.Cut(c.Args[i], "=")
		if !strings.HasPrefix(name, "-") || name == "-m" && !joined {
			continue // the program, its module, its model
		}
		if strings.HasPrefix(name, "--") {
			name = strings.ReplaceAll(name, "_", "-")
		}
		for ; !joined && i+1 < len(c.Args) && !strings.HasPrefix(c.Args[i+1], "-"); i++ {
			value = join(" ", value, c.Args[i+1])
		}
		if !slices.Contains(personal, name) {
			flags = append(flags, join(" ", name, value))
		}
	}
	slices.Sort(flags)
	return flags
}
