package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"speedmatrix/ingest/runlog"
)

// Build computes a whole run from what was recorded. cells holds the events
// of every cell that has a file, and those of the warm-up under its key; it
// is not kept. Build is Load without the files.
func Build(id string, m *runlog.Manifest, cells map[runlog.Key]*runlog.Events, samples []runlog.Sample) *Run {
	tel := indexTelemetry(samples)
	r := &Run{ID: id, Manifest: m}
	for _, c := range m.Cells {
		r.add(fold(m, c, cells[c.Key()], tel, new(scratch)))
	}
	for key, ev := range cells {
		if key.Phase == runlog.PhaseWarmup {
			w := fold(m, warmupCell(m, key), ev, tel, new(scratch))
			r.Warmup = &w
		}
	}
	r.finish()
	return r
}

// maxWorkers is how many cells are in memory at once, at most.
const maxWorkers = 4

// Load reads a run directory and computes everything. It holds the events of
// one cell for each processor at a time, of four at most. Whatever breaks the
// format of any file of the run is an error that names the file: a run is
// never shown without a part of it.
func Load(dir string) (*Run, error) {
	m, tel, err := open(dir)
	if err != nil {
		return nil, err
	}
	id, err := name(dir)
	if err != nil {
		return nil, err
	}
	planned := slices.Clone(m.Cells)
	if m.Warmup != nil {
		key := runlog.Key{Phase: runlog.PhaseWarmup, ContextTokens: m.Warmup.ContextTokens, Concurrency: 1}
		planned = append(planned, warmupCell(m, key))
	}
	cells, err := loadCells(dir, m, planned, tel)
	if err != nil {
		return nil, err
	}
	r := &Run{ID: id, Manifest: m}
	for _, c := range cells[:len(m.Cells)] {
		r.add(c)
	}
	if m.Warmup != nil {
		r.Warmup = &cells[len(m.Cells)]
	}
	r.finish()
	return r, nil
}

// loadCells reads and computes cells, the largest first, so that none is left
// when the others are done. The error is that of the first cell in the order
// of the plan that has one.
func loadCells(dir string, m *runlog.Manifest, planned []runlog.Cell, tel telemetry) ([]Cell, error) {
	cells, errs := make([]Cell, len(planned)), make([]error, len(planned))
	bySize := make(chan int, len(planned))
	order := make([]int, len(planned))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(planned[b].Rows, planned[a].Rows) })
	for _, i := range order {
		bySize <- i
	}
	close(bySize)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxWorkers, len(planned)) {
		workers.Go(func() {
			var l loader
			for i := range bySize {
				cells[i], errs[i] = l.load(dir, m, planned[i], tel)
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// A loader loads one cell after the other, in the same memory.
type loader struct {
	reader runlog.Reader
	memory scratch
}

func (l *loader) load(dir string, m *runlog.Manifest, c runlog.Cell, tel telemetry) (Cell, error) {
	if c.File == "" {
		return fold(m, c, nil, tel, &l.memory), nil
	}
	ev, err := l.reader.Events(dir, c.Key(), c.FileInfo)
	if err != nil {
		return Cell{}, err
	}
	return fold(m, c, ev, tel, &l.memory), nil
}

// LoadCell reads and computes one planned cell of a run directory, and
// nothing else of it but what the cell's figures need. No note of the cell
// is moved to the run.
func LoadCell(dir string, key runlog.Key) (*runlog.Manifest, *Cell, error) {
	m, tel, err := open(dir)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(m.Cells, func(c runlog.Cell) bool { return c.Key() == key })
	if i < 0 {
		return nil, nil, fmt.Errorf("%s: %w %s", filepath.Join(dir, runlog.ManifestFile), ErrNoCell, key.Name())
	}
	var l loader
	c, err := l.load(dir, m, m.Cells[i], tel)
	if err != nil {
		return nil, nil, err
	}
	cold := runlog.Key{Phase: runlog.PhasePrefill, ContextTokens: key.ContextTokens, Concurrency: 1}
	if i := slices.IndexFunc(m.Cells, func(c runlog.Cell) bool { return c.Key() == cold }); i >= 0 && key != cold {
		prefill, err := l.load(dir, m, m.Cells[i], tel)
		if err != nil {
			return nil, nil, err
		}
		c.Figures.ColdTTFTUs = prefill.Figures.ColdTTFTUs
	}
	return m, &c, nil
}

// ErrNoCell is the error of asking for a cell that was not planned.
var ErrNoCell = errors.New("the run has no cell")

func open(dir string) (*runlog.Manifest, telemetry, error) {
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		return nil, nil, err
	}
	// A run that was killed has telemetry without an entry in the manifest.
	var want runlog.FileInfo
	if m.Telemetry != nil {
		want = m.Telemetry.FileInfo
	}
	samples, err := runlog.ReadTelemetry(dir, want)
	if m.Telemetry == nil && errors.Is(err, fs.ErrNotExist) {
		return m, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return m, indexTelemetry(samples), nil
}

// name returns the name of a run directory, also of "." and "..".
func name(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("name run: %w", err)
	}
	return filepath.Base(abs), nil
}

// warmupCell makes the planned cell that the manifest has no entry for.
func warmupCell(m *runlog.Manifest, key runlog.Key) runlog.Cell {
	c := runlog.Cell{
		Phase: key.Phase, ContextTokens: key.ContextTokens, Concurrency: key.Concurrency,
		Outcome: runlog.OutcomeRecorded,
	}
	if m.Warmup != nil {
		c.FileInfo = m.Warmup.FileInfo
	}
	return c
}

func (r *Run) add(c Cell) {
	if c.Phase == runlog.PhasePrefill {
		r.Prefill = append(r.Prefill, c)
	} else {
		r.Decode = append(r.Decode, c)
	}
}

// finish puts the cells in order and fills in what needs all of them.
func (r *Run) finish() {
	ascending := func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.ContextTokens, b.ContextTokens), cmp.Compare(a.Concurrency, b.Concurrency))
	}
	slices.SortStableFunc(r.Prefill, ascending)
	slices.SortStableFunc(r.Decode, ascending)
	cold := make(map[int32]Stat)
	for i := range r.Prefill {
		cold[r.Prefill[i].ContextTokens] = r.Prefill[i].Figures.ColdTTFTUs
	}
	for i := range r.Decode {
		r.Decode[i].Figures.ColdTTFTUs = cold[r.Decode[i].ContextTokens]
	}
	r.Notes = runNotes(r)
}
