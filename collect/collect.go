package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"speedmatrix/collect/host"
	"speedmatrix/collect/prompt"
	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// A Config is everything that a run needs to know before it asks the server.
type Config struct {
	URL    *url.URL    // of the server, without a path (server.ParseURL)
	Key    string      // API key; "" for none. It is never written anywhere
	Header http.Header // further headers of every request
	Model  string      // served name; "" for the first that is no adapter

	Plan PlanRequest

	KVCacheTokens int64         // the person's own figure, where the server has none; 0: none
	MaxNumSeqs    int32         // the server's --max-num-seqs; 0: not known, or from its process
	Idle          time.Duration // a response silent for so long fails its request
	ReadyHold     time.Duration // how long a cell must be full before its window opens; 0: 3 s
	ReadyLimit    time.Duration // how long to wait for that at most; 0: 60 s, more for long contexts
	DrainHold     time.Duration // how long the server must be idle between cells; 0: 0.5 s

	Facts   Facts // given by flags; they win over what is found
	Launch  runlog.Launch
	Tool    runlog.Tool
	Root    string // directory of runs
	Name    string // of the run directory; "" for runlog.RunName
	Resume  string // run directory to go on with; "" for a new run
	Machine host.Runner
	Random  io.Reader // source of the salt

	// Progress is told of everything worth showing, from one goroutine at a
	// time. It may not block for long. nil: nobody watches.
	Progress func(Update)
}

func (c *Config) readyHold() time.Duration {
	if c.ReadyHold > 0 {
		return c.ReadyHold
	}
	return 3 * time.Second
}

func (c *Config) readyLimit(context int32) time.Duration {
	if c.ReadyLimit > 0 {
		return c.ReadyLimit
	}
	return warmupTimeout(context)
}

func (c *Config) drainHold() time.Duration {
	if c.DrainHold > 0 {
		return c.DrainHold
	}
	return drainHold
}

// drainBlind is the pause between cells where the server has no metrics
// that would say when it is idle.
func (c *Config) drainBlind() time.Duration { return 2 * c.drainHold() }

// An Update is one piece of news about a run.
type Update struct {
	Manifest *runlog.Manifest // as it stands; read only, valid during the call
	Dir      string           // run directory; "" before there is one

	Cell  int           // index in Manifest.Cells of the cell in progress or just ended; −1: none
	Stage Stage         // of the cell in progress
	Limit time.Duration // longest that the stage may take; 0: not known

	Ended  bool            // the cell has just ended
	Events *runlog.Events  // its rows; nil when there are none
	Sample []runlog.Sample // telemetry of the run so far, when Ended
	Chunks func() int64    // events received so far, safe to call at any time
	Note   string          // something to tell apart from cells
}

// ErrInterrupted is returned when ctx was done before the plan was.
var ErrInterrupted = errors.New("interrupted")

// A run is a run in progress.
type run struct {
	cfg      Config
	start    time.Time // instant 0: wall clock and monotonic
	dir      string
	m        runlog.Manifest
	model    string // served name as the server wants it; the manifest's is redacted
	server   *server.Client
	endpoint *stream.Endpoint
	redact   *host.Redactor
	lateness *stream.Lateness
	sampler  *sampler
	kernel   bool
	prompts  map[promptKey]prompted
	attempt  int // how often the run has been resumed

	estimator *prompt.Estimator // of prompt lengths, where the server does not count them
	probed    int               // prompt tokens of the probe, by the server's usage; 0: not said
	extra     int               // prompt tokens that /tokenize leaves out of every request
}

type promptKey struct {
	target int32
	sample int32
}

// A prompted is a prompt as it is sent.
type prompted struct {
	content string
	tokens  int
	note    string // "" where it has exactly the planned length
}

// warmupSample is the sample number of the hidden warm-up's prompt.
const warmupSample = -1

// Run measures a server and returns the run directory. Nothing is written
// unless the server has answered a real request; from then on every cell
// that has ended is on disk whatever happens. The error is ErrInterrupted
// (wrapped) when ctx ended the run before its plan did.
func Run(ctx context.Context, cfg Config) (dir string, err error) {
	r := &run{
		cfg: cfg, start: time.Now(), lateness: &stream.Lateness{},
		server: server.New(cfg.URL, cfg.Key, cfg.Header), redact: newRedactor(&cfg), prompts: map[promptKey]prompted{},
	}
	defer func() {
		if err != nil {
			err = &redactedError{err, r.redact}
		}
	}()
	if err := r.nameIsFree(); err != nil {
		return "", err
	}
	if err := r.prepare(ctx); err != nil {
		return "", interrupted(ctx, err)
	}
	defer r.sampler.machine.Close()
	sampling, stopSampling := context.WithCancel(ctx)
	defer stopSampling()

	var warm *runlog.Events
	if cfg.Resume != "" {
		if err := r.resume(); err != nil {
			return "", err
		}
	}
	go r.sampler.run(sampling, r.sampleInterval())
	key := runlog.Key{Phase: runlog.PhaseWarmup, ContextTokens: r.largestContext(), Concurrency: 1}
	r.note("warm-up at context %d", key.ContextTokens)
	if warm, err = r.warmup(ctx, key); err != nil {
		return "", interrupted(ctx, err)
	}
	r.sampler.kernel.Store(r.kernel)
	if err := r.create(warm); err != nil {
		return r.dir, err
	}
	err = r.cells(ctx)
	stopSampling()
	return r.dir, errors.Join(interrupted(ctx, err), r.finish(err == nil))
}

// interrupted names the error of a run that ctx ended.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// sampleInterval is a second, or less where windows are short: a few samples
// would let one that falls between two requests speak for the whole window.
func (r *run) sampleInterval() time.Duration {
	return max(100*time.Millisecond, min(time.Second, r.window()/20))
}

// window is the length of a decode window.
func (r *run) window() time.Duration {
	return time.Duration(r.m.Plan.DurationUs) * time.Microsecond
}

// largestContext is the context of the hidden warm-up: the largest of which
// one request fits.
func (r *run) largestContext() int32 {
	p := &r.m.Plan
	contexts := p.ContextsTokens
	if len(contexts) == 0 {
		contexts = p.PrefillContextsTokens
	}
	largest := contexts[0]
	for _, c := range contexts {
		if over, _ := server.OverCapacity(r.m.Capacity, 1, c, p.MaxOutputTokens); !over {
			largest = max(largest, c)
		}
	}
	return largest
}

// create makes the run directory, or goes on in the one that is resumed.
func (r *run) create(warm *runlog.Events) error {
	if r.cfg.Resume == "" {
		dir, err := r.newDirectory()
		if err != nil {
			return fmt.Errorf("create run directory: %w", err)
		}
		r.dir = dir
	}
	if r.m.Warmup == nil {
		info, err := runlog.WriteEvents(r.dir, warm)
		if err != nil {
			return fmt.Errorf("write warm-up: %w", err)
		}
		r.m.Warmup = &runlog.Warmup{ContextTokens: warm.Key.ContextTokens, FileInfo: info}
	}
	if r.cfg.Resume != "" {
		// The run on disk may be sealed: its manifest must let go of the
		// telemetry file before that is replaced.
		if err := runlog.WriteManifest(r.dir, &r.m); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return r.save()
}

// newDirectory makes the run directory. A name that the run makes itself
// gets a number where another run that began in the same second has it.
func (r *run) newDirectory() (string, error) {
	if r.cfg.Name != "" {
		return runlog.Create(r.cfg.Root, r.cfg.Name)
	}
	name := runlog.RunName(&r.m)
	dir, err := runlog.Create(r.cfg.Root, name)
	for n := 2; errors.Is(err, fs.ErrExist) && n < 100; n++ {
		dir, err = runlog.Create(r.cfg.Root, fmt.Sprintf("%s-%d", name, n))
	}
	return dir, err
}

// nameIsFree refuses the name of a run that is there already, before
// anything is measured for it.
func (r *run) nameIsFree() error {
	if r.cfg.Name == "" {
		return nil
	}
	dir := filepath.Join(r.cfg.Root, r.cfg.Name)
	switch _, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("create run directory: %w", err)
	}
	return &PlanError{fmt.Sprintf("%s is there already", dir), "choose another --name, or go on with that run by --resume " + dir}
}

// save writes the manifest, and the telemetry so far before it. While the
// run goes on the manifest has no entry for the telemetry, because the two
// files can't be replaced at one instant.
func (r *run) save() error {
	if _, err := runlog.WriteTelemetry(r.dir, r.sampler.sorted()); err != nil {
		return fmt.Errorf("write telemetry: %w", err)
	}
	r.m.Telemetry = nil
	if err := runlog.WriteManifest(r.dir, &r.m); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// finish seals the run.
func (r *run) finish(complete bool) error {
	tel, err := runlog.WriteTelemetry(r.dir, r.sampler.sorted())
	if err != nil {
		return fmt.Errorf("write telemetry: %w", err)
	}
	r.m.Telemetry = &tel
	r.m.Finished = complete
	if err := runlog.WriteManifest(r.dir, &r.m); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// tooLong is the error of a cell that has more rows than a file holds. Nothing
// of it is written: part of a measurement would look like all of it.
func tooLong(rows int) error {
	if rows <= runlog.MaxRows {
		return nil
	}
	return fmt.Errorf("%d rows are more than a file holds, %d: measure it for a shorter time", rows, runlog.MaxRows)
}

// cells works off the plan. A cell that fails does not end the run; a server
// that is gone does, and so does a disk that can't be written.
func (r *run) cells(ctx context.Context) error {
	for _, name := range r.m.Plan.Order {
		i := slices.IndexFunc(r.m.Cells, func(c runlog.Cell) bool { return c.Key().Name() == name })
		cell := &r.m.Cells[i]
		if cell.Outcome != runlog.OutcomePending {
			continue
		}
		var ev *runlog.Events
		var err error
		done := *cell // a copy: an interrupted cell stays as it was planned
		if cell.Phase == runlog.PhasePrefill {
			ev, err = r.prefill(ctx, &done)
		} else {
			ev, err = r.decode(ctx, &done)
		}
		sent := ev != nil && ev.Len() > 0
		if sent {
			if long := tooLong(ev.Len()); long != nil {
				sent, err = false, long
			}
		}
		why := ""
		if sent {
			why = failure(ev)
		}
		if (err != nil || why != "") && !errors.Is(err, errServerGone) {
			// Was it this cell, or is the server gone altogether?
			if gone := r.alive(ctx); errors.Is(gone, errServerGone) {
				err = gone
			}
		}
		gone := errors.Is(err, errServerGone)
		switch {
		case ctx.Err() != nil:
			cell.Notes = append(cell.Notes, "interrupted")
			return ctx.Err()
		case gone && !sent:
			return err // this cell is not run, like the rest of the plan
		case gone && why != "":
			// What the streams saw is the cell's result.
			done.Outcome, done.Reason = runlog.OutcomeFailed, why+"; then "+r.redact.Text(err.Error())
		case err != nil:
			done.Outcome, done.Reason = runlog.OutcomeFailed, r.redact.Text(err.Error())
		default:
			done.Outcome = runlog.OutcomeRecorded
		}
		if sent {
			info, werr := runlog.WriteEvents(r.dir, ev)
			var unfit *runlog.FormatError
			switch {
			case errors.As(werr, &unfit):
				// What was written can't be read again, as text that repeats
				// itself so often that it would pass for a bomb. That is this
				// cell's end and not the run's.
				done.Outcome, done.Reason = runlog.OutcomeFailed, "its events can't be kept in a file: "+unfit.Msg
			case werr != nil:
				return fmt.Errorf("write cell %s: %w", name, werr)
			default:
				done.FileInfo = info
			}
		}
		*cell = done
		if err := r.save(); err != nil {
			return err
		}
		r.update(Update{Cell: i, Ended: true, Events: ev, Sample: r.sampler.sorted()})
		if gone {
			return err
		}
	}
	return nil
}

// prompt returns a prompt of the planned length, or of what the output
// leaves of the server's context where that is less.
func (r *run) prompt(ctx context.Context, contextTokens, maxOutput, sample int32) (prompted, error) {
	limit := r.m.Model.MaxModelLenTokens
	if limit > 0 && r.m.Plan.PromptCounting == promptsCalibrated {
		// An estimate may be a little low, and the server refuses a prompt
		// that is one token too long.
		limit -= max(8, contextTokens/200)
	}
	target := server.PromptTokens(contextTokens, limit, maxOutput)
	k := promptKey{target, sample}
	if p, ok := r.prompts[k]; ok {
		return p, nil
	}
	spec := prompt.Spec{Seed: r.m.Plan.Seed, Salt: r.m.Plan.Salt, Context: contextTokens, Sample: int(sample) + r.attempt*1000}
	p, err := r.buildPrompt(ctx, spec, int(target))
	if err != nil {
		return prompted{}, err
	}
	out := prompted{p.Content, p.Tokens, p.Note}
	if sample == 0 {
		// Only these are sent again; the others would just take memory.
		clear(r.prompts)
		r.prompts[k] = out
	}
	return out, nil
}

func (r *run) request(content string, maxTokens int32) chatRequest {
	return chatRequest{
		model: r.model, content: content, maxTokens: maxTokens,
		sampling: r.m.Plan.Sampling, counting: r.m.Plan.TokenCounting,
	}
}

func (r *run) stage(cell *runlog.Cell, s Stage, limit time.Duration) {
	i := slices.IndexFunc(r.m.Cells, func(c runlog.Cell) bool { return c.Key() == cell.Key() })
	r.update(Update{Cell: i, Stage: s, Limit: limit})
}

func (r *run) note(format string, args ...any) {
	r.update(Update{Cell: -1, Note: r.redact.Secrets(fmt.Sprintf(format, args...))})
}

func (r *run) update(u Update) {
	if r.cfg.Progress == nil {
		return
	}
	u.Manifest, u.Dir = &r.m, r.dir
	u.Chunks = func() int64 { n, _ := r.lateness.Chunks(); return n }
	r.cfg.Progress(u)
}

// A ResumeError says why a run can't be gone on with.
type ResumeError struct {
	Dir  string
	What string // what differs
	Got  string // now
	Want string // in the run
}

func (e *ResumeError) Error() string {
	return fmt.Sprintf("%s can't be resumed: %s is %s now, was %s", e.Dir, e.What, e.Got, e.Want)
}

// resume goes on with an earlier run: its clock, its plan, its finished
// cells. It refuses when anything differs that would make the new cells
// another measurement than the old ones.
func (r *run) resume() error {
	dir := filepath.Clean(r.cfg.Resume)
	old, err := runlog.ReadManifest(dir)
	if err != nil {
		return err
	}
	if old.Finished {
		return fmt.Errorf("%s is finished: there is nothing to resume", dir)
	}
	if err := r.sameRun(dir, old); err != nil {
		return err
	}
	var want runlog.FileInfo
	if old.Telemetry != nil {
		want = old.Telemetry.FileInfo
	}
	samples, err := runlog.ReadTelemetry(dir, want)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := runlog.Sweep(dir); err != nil {
		return fmt.Errorf("sweep %s: %w", dir, err)
	}
	// Times go on counting from the old start. The wall clock bridges the
	// gap between the two processes, once; if it was set back meanwhile, time
	// goes on all the same.
	now := time.Now()
	elapsed := max(now.Round(0).Sub(old.StartedAt), lastInstant(old, samples))
	r.start = now.Add(-elapsed)
	r.sampler.start = r.start
	old.ResumedUs = append(old.ResumedUs, now.Sub(r.start).Microseconds())
	r.attempt = len(old.ResumedUs)
	for i := range old.Cells {
		old.Cells[i].Notes = slices.DeleteFunc(old.Cells[i].Notes, func(n string) bool { return n == "interrupted" })
		// What a server that went away failed is tried again.
		if c := &old.Cells[i]; c.Outcome == runlog.OutcomeFailed {
			*c = runlog.Cell{Phase: c.Phase, ContextTokens: c.ContextTokens, Concurrency: c.Concurrency, Outcome: runlog.OutcomePending}
		}
	}
	r.sampler.samples = append(samples, r.sampler.samples...)
	old.Telemetry = nil
	r.m, r.dir = *old, dir
	return nil
}

// lastInstant returns the latest instant that a run has recorded, from its
// start.
func lastInstant(m *runlog.Manifest, samples []runlog.Sample) time.Duration {
	last := int64(0)
	for _, t := range m.ResumedUs {
		last = max(last, t)
	}
	for _, s := range samples {
		last = max(last, s.TUs)
	}
	for i := range m.Cells {
		if t := m.Cells[i].WindowCloseUs; t != nil {
			last = max(last, *t)
		}
	}
	return time.Duration(last+1) * time.Microsecond
}

// sameRun compares what a resumed run must have kept.
func (r *run) sameRun(dir string, old *runlog.Manifest) error {
	fact := func(f *runlog.Fact) string {
		if f == nil {
			return "unknown"
		}
		return fmt.Sprintf("%q", f.Value)
	}
	gpus := func(h runlog.Hardware) string {
		var names []string
		for _, g := range h.GPUs {
			names = append(names, g.Name)
		}
		return fmt.Sprintf("%s %q on %s", h.Type, names, h.CPU)
	}
	plan := func(p runlog.Plan) string {
		p.Salt, p.Order = "", nil
		return fmt.Sprintf("%+v", p)
	}
	for _, d := range []struct{ what, got, want string }{
		{"the served model", fmt.Sprintf("%q", r.m.Model.ServedName), fmt.Sprintf("%q", old.Model.ServedName)},
		{"the model's repository", fmt.Sprintf("%q", r.m.Model.Repository), fmt.Sprintf("%q", old.Model.Repository)},
		{"the engine's version", fact(r.m.Engine.Version), fact(old.Engine.Version)},
		{"the engine's commit", fact(r.m.Engine.Commit), fact(old.Engine.Commit)},
		{"the hardware", gpus(r.m.Hardware), gpus(old.Hardware)},
		{"the plan", plan(r.m.Plan), plan(old.Plan)},
	} {
		if d.got != d.want {
			return &ResumeError{dir, d.what, d.got, d.want}
		}
	}
	return nil
}
