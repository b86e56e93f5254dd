package collect

import (
	"context"
	"fmt"
	"strings"

	"speedmatrix/collect/prompt"
	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// How the length of prompts is known. It is runlog.Plan.PromptCounting.
const (
	promptsTokenized  = "tokenize"   // counted by the server's /tokenize, exact
	promptsCalibrated = "calibrated" // from usage.prompt_tokens of a first request, within 0.5 %
)

// refusesOption reports whether a failure is the refusal of one of the
// named request keys.
func refusesOption(reason string, keys ...string) bool {
	if !strings.HasPrefix(reason, "HTTP 400") && !strings.HasPrefix(reason, "HTTP 422") {
		return false
	}
	for _, k := range keys {
		if strings.Contains(reason, k) {
			return true
		}
	}
	return false
}

// maxExtra bounds what a server may add to a prompt in tokens and still be
// believed to add the same to every prompt.
const maxExtra = 64

// probeTokenize finds out whether the server counts prompts for us, and
// whether it leaves out something that it adds to every prompt, such as a
// template's tokens: the probe, which was sent as a request, tells.
func (r *run) probeTokenize(ctx context.Context) error {
	n, err := r.count(ctx, probeContent)
	switch {
	case err == nil:
		r.m.Plan.PromptCounting = promptsTokenized
		if d := r.probed - n; r.probed > 0 && d > 0 && d <= maxExtra {
			r.extra = d
			r.note("/tokenize leaves out %d tokens that the server adds to every prompt: they are counted in", d)
		}
	case isKind(err, server.NotFound, server.BadStatus, server.BadAnswer, server.Redirected, server.Credentials, server.TimedOut):
		r.m.Plan.PromptCounting = promptsCalibrated
		r.estimator = prompt.NewEstimator(r.promptTokens)
		r.note("no /tokenize on this server: prompt lengths are calibrated, not exact")
	default:
		return err
	}
	return nil
}

func (r *run) count(ctx context.Context, content string) (int, error) {
	n, err := r.server.Tokenize(ctx, r.model, []server.Message{{Role: "user", Content: content}})
	return n + r.extra, err
}

// buildPrompt makes a prompt of the target length.
func (r *run) buildPrompt(ctx context.Context, spec prompt.Spec, target int) (prompt.Prompt, error) {
	if r.m.Plan.PromptCounting == promptsTokenized {
		return prompt.Build(ctx, r.count, spec, target)
	}
	return r.estimator.Build(ctx, spec, target)
}

// promptTokens sends a prompt with one token of output and returns the
// length that the server reports.
func (r *run) promptTokens(ctx context.Context, content string) (int, error) {
	rec := stream.NewRecording(r.start)
	client := stream.NewClient(r.endpoint, r.cfg.Idle, r.lateness, rec)
	defer client.Close()
	unhook := context.AfterFunc(ctx, client.Stop)
	defer unhook()
	if _, err := client.Do(ctx, r.request(content, 1).bytes(), r.bodyEnd(runlog.Key{Phase: runlog.PhaseWarmup}, 0, 0)); err != nil {
		return 0, r.lostServer(ctx, err)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	ev := r.rows(runlog.Key{Phase: runlog.PhaseWarmup, Concurrency: 1}, []*stream.Recording{rec})
	if reason := failure(ev); reason != "" {
		return 0, fmt.Errorf("calibrate prompt length: %s", reason)
	}
	if n := promptTokensOf(ev); n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("calibrate prompt length: the server reports no usage.prompt_tokens")
}

// promptTokensOf returns the length of the prompt of a single request as the
// server reports it, 0 when it does not.
func promptTokensOf(ev *runlog.Events) int {
	for i := range ev.Len() {
		if n := ev.PromptTokens[i]; n != runlog.Unknown {
			return int(n)
		}
	}
	return 0
}
