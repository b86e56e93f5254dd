package collect

import (
	"context"
	"errors"
	"strings"
	"time"

	"speedmatrix/collect/host"
	"speedmatrix/collect/prompt"
	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// Facts are what the person says about the server and its machine. They win
// over what is found, and are the only source for what can't be seen from
// here. Empty means not given.
type Facts struct {
	Engine, Version, Commit, Build, Backend, EngineRepository, Quantization string
	LaunchCommand                                                           []string // one argument per element

	ModelRepository, Revision, WeightsDigest string

	HardwareType string // "Discrete GPU", "Integrated GPU", "Unified memory", "CPU"
	GPU          string // name
	GPUs         int    // how many; 0: one
	VRAMBytes    int64  // of one GPU
	CPU, OS      string
}

// prepare asks the server everything that the plan needs, and makes the
// plan. It writes nothing.
func (r *run) prepare(ctx context.Context) error {
	r.sampler = &sampler{start: r.start, server: r.server, lateness: r.lateness}

	var err error
	if r.endpoint, err = stream.NewEndpoint(r.cfg.URL.JoinPath("v1/chat/completions"), r.server.Header()); err != nil {
		return err
	}

	var old *runlog.Manifest
	if r.cfg.Resume != "" {
		if old, err = runlog.ReadManifest(r.cfg.Resume); err != nil {
			return err
		}
		r.cfg.Plan = r.cfg.Plan.or(old)
	}

	models, err := r.server.Models(ctx)
	if err != nil {
		return err
	}
	if old != nil && r.cfg.Model == "" {
		r.cfg.Model = r.recordedModel(models, old.Model.ServedName)
	}
	model, err := server.FindModel(models, r.cfg.Model)
	if err != nil {
		return err
	}
	r.model = model.ID
	version, err := r.server.Version(ctx)
	if err != nil {
		version = "" // a proxy may hide it, in many ways; nothing needs it
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	metrics, metricsErr := r.server.Metrics(ctx)
	r.sampler.metrics = metricsErr == nil

	r.m = runlog.Manifest{
		Format: runlog.Format, Tool: r.cfg.Tool, StartedAt: r.start.UTC().Round(0), ArrivalClock: runlog.ArrivalUser,
		Launch: r.cfg.Launch,
		Model:  runlog.Model{ServedName: r.redact.Text(model.ID), Repository: model.Root, MaxModelLenTokens: model.MaxModelLen},
		Server: runlog.Server{Address: r.server.AddressKind(ctx), Metrics: r.redact.Text(server.MetricsState(metricsErr))},
	}
	local := r.server.SameMachine(ctx)
	var process *host.Process
	if local {
		process = r.findProcess()
		r.sampler.machine = host.NewSampler(r.cfg.Machine)
	} else {
		r.sampler.machine = host.NewSampler(nil) // this machine's GPUs are not the server's
	}
	r.describeEngine(model, version, process)
	r.describeModel(model, process)
	r.describeHardware(ctx, local, process)
	seqs := r.cfg.MaxNumSeqs
	if seqs == 0 && process != nil {
		seqs = process.Engine.MaxNumSeqs
	}
	r.m.Capacity = server.Capacity(metrics, model.MaxModelLen, r.cfg.KVCacheTokens, seqs)
	r.m.Capacity.Raw = r.redact.Env(r.m.Capacity.Raw)

	if r.m.Plan, err = newPlan(r.cfg.Plan, model.MaxModelLen); err != nil {
		return err
	}
	if r.m.Plan.Salt, err = prompt.NewSalt(r.cfg.Random); err != nil {
		return err
	}
	r.m.Plan.PromptSet = prompt.SetID(prompt.Version, r.m.Plan.Seed, sorted(append(r.m.Plan.ContextsTokens, r.m.Plan.PrefillContextsTokens...)))
	r.m.Cells = planCells(r.m.Plan, r.m.Capacity)
	if err := r.probeCounting(ctx); err != nil {
		return err
	}
	return r.probeTokenize(ctx)
}

// secretHeader reports whether a header's name says that its value must not
// be written anywhere. Others, such as X-Team, are no secrets: taking every
// word that one of them holds out of all texts would spoil the log.
func secretHeader(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"auth", "key", "token", "secret", "cookie", "password", "session", "credential", "signature"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// recordedModel returns the name of the served model that a run log has
// under its redacted name; that name itself when none is served any more.
func (r *run) recordedModel(models []server.Model, recorded string) string {
	for _, m := range models {
		if r.redact.Text(m.ID) == recorded {
			return m.ID
		}
	}
	return recorded
}

// isKind reports whether err is a call's error of one of the kinds.
func isKind(err error, kinds ...server.Kind) bool {
	var e *server.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, k := range kinds {
		if e.Kind == k {
			return true
		}
	}
	return false
}

// or fills in what r leaves open from the plan of an earlier run.
func (r PlanRequest) or(m *runlog.Manifest) PlanRequest {
	p := m.Plan
	if r.ContextsTokens == nil {
		r.ContextsTokens = p.ContextsTokens
		if r.PrefillContextsTokens == nil {
			r.PrefillContextsTokens = p.PrefillContextsTokens
		}
	}
	if r.Concurrency == nil {
		r.Concurrency = p.Concurrency
	}
	if r.Duration == 0 {
		r.Duration = time.Duration(p.DurationUs) * time.Microsecond
	}
	if r.MaxOutputTokens == 0 {
		r.MaxOutputTokens = p.MaxOutputTokens
	}
	if r.PrefillRepeats == 0 {
		r.PrefillRepeats = p.PrefillRepeats
	}
	if r.Seed == 0 {
		r.Seed = p.Seed
	}
	if r.Temperature == nil {
		r.Temperature = &p.Sampling.Temperature
	}
	r.SamplingSeeds = r.SamplingSeeds || p.Sampling.Seeded
	if r.Text == "" {
		r.Text = p.Text
	}
	return r
}

// findProcess returns the process that listens on the server's port, nil
// where it can't be seen.
func (r *run) findProcess() *host.Process {
	p, err := host.ServerProcess(r.server.Port())
	if err != nil {
		if len(r.cfg.Facts.LaunchCommand) == 0 {
			r.note("launch command not recorded: %v", err)
		}
		return nil
	}
	return p
}

func (r *run) describeModel(model server.Model, process *host.Process) {
	m, f := &r.m.Model, r.cfg.Facts
	if model.Root != "" {
		m.Repository, m.Revision = host.ModelName(model.Root)
	}
	if process != nil {
		set(&m.Repository, process.Engine.Model)
		set(&m.Revision, process.Engine.Revision)
	}
	set(&m.Repository, f.ModelRepository)
	set(&m.Revision, f.Revision)
	set(&m.WeightsDigest, f.WeightsDigest)
	m.Repository, m.Revision = r.redact.Text(m.Repository), r.redact.Text(m.Revision)
}

// describeHardware looks at this machine where the server runs on it, and
// lets flags win.
func (r *run) describeHardware(ctx context.Context, local bool, process *host.Process) {
	hw, f := &r.m.Hardware, r.cfg.Facts
	if local {
		found, notes := host.Hardware(ctx, r.cfg.Machine)
		*hw = found
		for _, n := range notes {
			r.note("%s", n)
		}
		if process != nil {
			hw.GPUs = host.ServingGPUs(hw.GPUs, process.Args, process.Env)
		}
	}
	if f.GPU != "" {
		hw.Type, hw.GPUs = "Discrete GPU", nil
		for range max(1, f.GPUs) {
			hw.GPUs = append(hw.GPUs, runlog.GPU{Name: f.GPU, VRAMBytes: f.VRAMBytes})
		}
	}
	set(&hw.Type, f.HardwareType)
	set(&hw.CPU, f.CPU)
	set(&hw.OS, f.OS)
}

func set(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// describeEngine fills in the engine's facts, each with its source.
func (r *run) describeEngine(model server.Model, version string, process *host.Process) {
	e, f := &r.m.Engine, r.cfg.Facts
	fact := func(field **runlog.Fact, value string, source runlog.FactSource) {
		if value != "" {
			*field = &runlog.Fact{Value: r.redact.Text(value), Source: source}
		}
	}
	if version != "" {
		fact(&e.Name, "vllm", runlog.FromServer)
		fact(&e.Version, version, runlog.FromServer)
		fact(&e.Commit, host.VersionCommit(version), runlog.FromServer)
		build := host.VersionBuild(version)
		fact(&e.Build, build, runlog.FromServer)
		fact(&e.Backend, host.BuildBackend(build), runlog.FromServer)
	} else {
		fact(&e.Name, model.OwnedBy, runlog.FromServer)
	}
	if process != nil {
		p := process.Engine
		fact(&e.Quantization, p.Quantization, runlog.FromProcess)
		if len(process.Args) > 0 {
			e.LaunchCommand = &runlog.Command{Args: r.redact.Args(process.Args), Source: runlog.FromProcess}
		}
		if len(process.Env) > 0 {
			e.Environment = &runlog.Environment{Variables: r.redact.Env(process.Env), Source: runlog.FromProcess}
		}
	}
	if e.Name != nil && e.Name.Value == "vllm" {
		fact(&e.Repository, "github.com/vllm-project/vllm", runlog.FromServer)
	}
	if len(f.LaunchCommand) > 0 {
		e.LaunchCommand = &runlog.Command{Args: r.redact.Args(f.LaunchCommand), Source: runlog.FromFlag}
		e.Environment = nil
	}
	fact(&e.Name, f.Engine, runlog.FromFlag)
	fact(&e.Version, f.Version, runlog.FromFlag)
	fact(&e.Commit, f.Commit, runlog.FromFlag)
	fact(&e.Build, f.Build, runlog.FromFlag)
	fact(&e.Backend, f.Backend, runlog.FromFlag)
	fact(&e.Repository, f.EngineRepository, runlog.FromFlag)
	fact(&e.Quantization, f.Quantization, runlog.FromFlag)
}

// probeCounting sends a short request, the first real one, and finds out
// what the server understands: how tokens can be counted, and whether it
// takes ignore_eos. What it refuses is left out and recorded in the plan.
func (r *run) probeCounting(ctx context.Context) error {
	p := &r.m.Plan
	for _, counting := range []string{countContinuous, countTokenIDs, countFinal, countChunks} {
		p.TokenCounting = counting
		ev, err := r.probe(ctx)
		if err != nil {
			return err
		}
		reason := failure(ev)
		if refusesOption(reason, "ignore_eos") && p.Sampling.IgnoreEOS {
			p.Sampling.IgnoreEOS = false
			if ev, err = r.probe(ctx); err != nil {
				return err
			}
			reason = failure(ev)
		}
		if refusesOption(reason, "stream_options", "continuous_usage_stats", "return_token_ids") && counting != countChunks {
			continue
		}
		if reason != "" {
			return refusal(0, reason)
		}
		r.probed = promptTokensOf(ev)
		if counted(ev, counting) {
			return nil
		}
	}
	return nil
}

// probeContent is what the first request asks for.
const probeContent = "Write a short story about a lighthouse."

func (r *run) probe(ctx context.Context) (*runlog.Events, error) {
	rec := stream.NewRecording(r.start)
	client := stream.NewClient(r.endpoint, r.cfg.Idle, r.lateness, rec)
	defer client.Close()
	unhook := context.AfterFunc(ctx, client.Stop)
	defer unhook()
	body := r.request(probeContent, 8).bytes()
	if _, err := client.Do(ctx, body, r.bodyEnd(runlog.Key{Phase: runlog.PhaseWarmup}, 0, 0)); err != nil {
		return nil, r.lostServer(ctx, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r.rows(runlog.Key{Phase: runlog.PhaseWarmup, Concurrency: 1}, []*stream.Recording{rec}), nil
}

// counted reports whether the answer to a probe can be counted in the way
// that it asked for.
func counted(ev *runlog.Events, counting string) bool {
	for i := range ev.Len() {
		e := ev.Row(i)
		switch counting {
		case countContinuous:
			if e.Kind == runlog.KindChunk && e.CompletionTokens > 0 && e.Tokens > 0 {
				return true
			}
		case countTokenIDs:
			if e.Kind == runlog.KindChunk && e.Tokens > 0 {
				return true
			}
		case countFinal:
			if e.CompletionTokens > 0 {
				return true
			}
		}
	}
	return counting == countChunks
}
