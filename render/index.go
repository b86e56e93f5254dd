package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/render/internal/format"
)

// An indexView is the list of runs.
type indexView struct {
	page
	Heading, Lead string
	Runs          []indexRow
}

type indexRow struct {
	URL                            string // of the run's directory, ending in a slash
	Model, Quantization            string
	Hardware, Engine, Commit, Date string
	Counts                         string // of statuses, in words
	Best, BestAt                   string
}

// newIndexView lists runs by model, hardware, start and id.
func newIndexView(runs []*ingest.Run) *indexView {
	v := &indexView{
		Heading: "Inference speed, measured",
		Lead: "How fast a server answers, over context lengths and simultaneous requests. " +
			"Every number leads back to the streamed events that it was computed from.",
	}
	v.page = page{Title: v.Heading + " – " + eyebrow, Description: v.Lead, Eyebrow: eyebrow}
	for _, run := range sortedRuns(runs) {
		v.Runs = append(v.Runs, newIndexRow(run))
	}
	return v
}

func sortedRuns(runs []*ingest.Run) []*ingest.Run {
	return slices.SortedStableFunc(slices.Values(runs), func(a, b *ingest.Run) int {
		return cmp.Or(
			cmp.Compare(strings.ToLower(modelName(a.Manifest.Model)), strings.ToLower(modelName(b.Manifest.Model))),
			cmp.Compare(hardwareName(a.Manifest.Hardware), hardwareName(b.Manifest.Hardware)),
			a.Manifest.StartedAt.Compare(b.Manifest.StartedAt),
			cmp.Compare(a.ID, b.ID),
		)
	})
}

func newIndexRow(run *ingest.Run) indexRow {
	m := run.Manifest
	r := indexRow{
		URL:          runsFolder + "/" + escapePath(run.ID) + "/",
		Model:        cmp.Or(modelName(m.Model), "Unknown model"),
		Quantization: factValue(m.Engine.Quantization),
		Hardware:     cmp.Or(hardwareName(m.Hardware), format.Unknown),
		Engine:       cmp.Or(join(" ", factValue(m.Engine.Name), factValue(m.Engine.Version)), format.Unknown),
		Commit:       cmp.Or(shortCommit(factValue(m.Engine.Commit)), format.Unknown),
		Date:         m.StartedAt.UTC().Format("2006-01-02"),
		Best:         format.Unknown,
	}
	counts := statusCounts(run)
	var words []string
	for _, s := range append([]ingest.Status{ingest.Valid}, legendOrder()...) {
		if n := counts[s]; n > 0 {
			words = append(words, format.Int(int64(n))+" "+s.String())
		}
	}
	r.Counts = cmp.Or(join(", ", words...), "none planned")
	if !m.Finished {
		r.Counts += "; interrupted"
	}
	if c := best(run); c != nil {
		r.Best = format.TokPerS(value(c.Figures.TotalTokPerS))
		r.BestAt = fmt.Sprintf("%s context, %s", contextLabels(run)[c.ContextTokens], atOnce(c.Concurrency))
	}
	return r
}
