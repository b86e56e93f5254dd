package collect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"speedmatrix/collect/server"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// Timing of the cell algorithm of docs/method.md.
const (
	drainHold    = 500 * time.Millisecond // the server must have been idle for so long
	drainTimeout = 300 * time.Second
	pollEvery    = 100 * time.Millisecond
	stopTimeout  = 10 * time.Second // for streams to end after their connections were closed
)

// errServerGone ends a run whose server can't be reached any more, or says
// itself that it is dead.
var errServerGone = errors.New("the server is gone")

// warmupTimeout is how long a cell may take to fill before its window opens
// all the same.
func warmupTimeout(context int32) time.Duration {
	switch {
	case context >= 128<<10:
		return 180 * time.Second
	case context >= 64<<10:
		return 120 * time.Second
	}
	return 60 * time.Second
}

// A stage is where the cell in progress is.
type Stage string

const (
	StagePrompt Stage = "making the prompt"
	StageDrain  Stage = "waiting for the server to be idle"
	StageScout  Stage = "scout"
	StageRamp   Stage = "ramp"
	StageWindow Stage = "window"
	StageWrite  Stage = "writing"
)

// drain is the barrier before a cell: it waits until the server has nothing
// to do.
func (r *run) drain(ctx context.Context, cell *runlog.Cell) error {
	if err := r.reachable(ctx); err != nil {
		return err
	}
	begin := time.Now()
	var idleSince time.Time
	for {
		m := r.sampler.sampleServer(ctx)
		now := time.Now()
		if m == nil && !r.sampler.hasMetrics() {
			if r.sampler.metrics {
				addNote(cell, "the server's metrics did not answer: not checked whether it was idle before")
			}
			return sleep(ctx, r.cfg.drainBlind())
		}
		idle := false
		if m != nil {
			var known bool
			if idle, known = m.Idle(); !known {
				return sleep(ctx, r.cfg.drainBlind())
			}
		}
		switch {
		case !idle:
			idleSince = time.Time{}
		case idleSince.IsZero():
			idleSince = now
		case now.Sub(idleSince) >= r.cfg.drainHold():
			return nil
		}
		if now.Sub(begin) > drainTimeout {
			return fmt.Errorf("server busy: other requests were running or waiting for %v", drainTimeout)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// reachable tells a server that is gone from one that is busy.
func (r *run) reachable(ctx context.Context) error {
	c, err := r.endpoint.Dial(ctx)
	if err != nil {
		return r.lostServer(ctx, err)
	}
	return c.Close()
}

// alive is reachable for after a failure: it also asks the server, which may
// answer for a while after its engine has died.
func (r *run) alive(ctx context.Context) error {
	if err := r.reachable(ctx); err != nil {
		return err
	}
	var e *server.Error
	if err := r.server.Health(ctx); errors.As(err, &e) && (e.Status == http.StatusServiceUnavailable || e.Status == http.StatusInternalServerError) {
		return fmt.Errorf("%w: %s", errServerGone, r.redact.Text(err.Error()))
	}
	return nil
}

// plainNetError names a network error without addresses and ports.
func plainNetError(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// scouts sends n requests of one output token, one after the other, and
// returns their rows.
func (r *run) scouts(ctx context.Context, key runlog.Key, prompts []prompted) (*runlog.Events, error) {
	rec := stream.NewRecording(r.start)
	client := stream.NewClient(r.endpoint, r.cfg.Idle, r.lateness, rec)
	defer client.Close()
	unhook := context.AfterFunc(ctx, client.Stop)
	defer unhook()
	for i, p := range prompts {
		body := r.request(p.content, 1).bytes()
		release := r.sampler.alone()
		r.sampler.read(ctx) // counters before and after tell whether the cache helped
		client.Sent = release
		out, err := client.Do(ctx, body, r.bodyEnd(key, 0, int32(i)))
		release()
		if err != nil {
			return r.rows(key, []*stream.Recording{rec}), r.lostServer(ctx, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if out != stream.Done {
			break
		}
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
	}
	return r.rows(key, []*stream.Recording{rec}), nil
}

// settle waits a moment until the server's counters, which can be a step
// behind, show the request that has just ended, and reads them.
func (r *run) settle(ctx context.Context) error {
	if !r.sampler.hasMetrics() {
		return nil
	}
	if err := sleep(ctx, pollEvery); err != nil {
		return err
	}
	r.sampler.sampleServer(ctx)
	return nil
}

// lostServer turns an error of connecting into errServerGone.
func (r *run) lostServer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s", errServerGone, r.redact.Text(plainNetError(err)))
}

// rows decodes recordings, one per stream, into one file's rows.
func (r *run) rows(key runlog.Key, recs []*stream.Recording) *runlog.Events {
	ev := &runlog.Events{Key: key}
	n := 0
	for _, rec := range recs {
		n += rec.Rows()
	}
	ev.Grow(n)
	for i, rec := range recs {
		rec.Decode(ev, stream.DecodeOptions{
			Stream: int32(i), Text: r.m.Plan.Text, HashKey: r.m.Plan.Salt, Redact: r.redact.Text,
		})
	}
	return ev
}

// prefill measures the prefill of one context: each sample with a prompt
// that the server has not seen.
func (r *run) prefill(ctx context.Context, cell *runlog.Cell) (*runlog.Events, error) {
	r.stage(cell, StagePrompt, 0)
	var prompts []prompted
	for sample := range r.m.Plan.PrefillRepeats {
		p, err := r.prompt(ctx, cell.ContextTokens, 1, sample)
		if err != nil {
			return nil, err
		}
		prompts = append(prompts, p)
	}
	r.stage(cell, StageDrain, 0)
	if err := r.drain(ctx, cell); err != nil {
		return nil, err
	}
	r.stage(cell, StageScout, 0)
	// The prompt of sample 0 is the one that the decode cells of this
	// context repeat, so it is sent last: then the cache still has it.
	if n := len(prompts); n > 1 {
		prompts[0], prompts[n-1] = prompts[n-1], prompts[0]
	}
	cell.PromptTokens = int32(prompts[0].tokens)
	addNote(cell, prompts[0].note)
	return r.scouts(ctx, cell.Key(), prompts)
}

// decode measures one decode cell.
func (r *run) decode(ctx context.Context, cell *runlog.Cell) (*runlog.Events, error) {
	key := cell.Key()
	r.stage(cell, StagePrompt, 0)
	p, err := r.prompt(ctx, cell.ContextTokens, r.m.Plan.MaxOutputTokens, 0)
	if err != nil {
		return nil, err
	}
	cell.PromptTokens = int32(p.tokens)
	addNote(cell, p.note)
	r.stage(cell, StageDrain, 0)
	if err := r.drain(ctx, cell); err != nil {
		return nil, err
	}
	r.stage(cell, StageScout, 0)
	scout, err := r.scouts(ctx, key, []prompted{p})
	if err != nil {
		return nil, err
	}
	if reason := failure(scout); reason != "" {
		return nil, fmt.Errorf("scout: %s", reason)
	}
	r.noteScout(scout)

	n := int(cell.Concurrency)
	recs := make([]*stream.Recording, n)
	clients := make([]*stream.Client, n)
	for i := range n {
		recs[i] = stream.NewRecording(r.start)
		clients[i] = stream.NewClient(r.endpoint, r.cfg.Idle, r.lateness, recs[i])
		defer clients[i].Close()
	}
	for _, c := range clients {
		if err := c.Open(ctx); err != nil {
			return nil, r.lostServer(ctx, fmt.Errorf("connect: %w", err))
		}
	}
	r.stage(cell, StageRamp, r.cfg.readyLimit(cell.ContextTokens))
	body := r.request(p.content, r.m.Plan.MaxOutputTokens).bytes()
	all := r.startStreams(ctx, key, clients, body)
	stop := func() {
		for _, c := range clients {
			c.Stop()
		}
	}
	defer func() {
		// Until they have ended, the connections are theirs.
		stop()
		select {
		case <-all.ended:
		case <-time.After(stopTimeout):
		}
	}()

	ready, err := r.ready(ctx, cell, recs, all)
	if err != nil {
		return nil, err
	}
	if ready != nil {
		cell.Ready = ready
		if ready.TimedOut {
			cell.Notes = append(cell.Notes, "warm-up timed out")
		}
		r.stage(cell, StageWindow, r.window())
		r.sampler.sampleServer(ctx) // counters at the opening
		open := time.Now()
		closing := open.Add(r.window())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(closing)):
		case <-all.ended:
			// Every stream has failed: there is nothing left to measure.
			closing = time.Now()
		}
		openUs, closeUs := open.Sub(r.start).Microseconds(), closing.Sub(r.start).Microseconds()
		cell.WindowOpenUs, cell.WindowCloseUs = &openUs, &closeUs
	}
	stop()
	select {
	case <-all.ended:
	case <-time.After(stopTimeout):
		return nil, errors.New("internal error: streams did not stop")
	}
	r.sampler.sampleServer(ctx) // counters at the close
	r.stage(cell, StageWrite, 0)
	ev := r.rows(key, recs)
	if ready == nil {
		reason := failure(ev)
		if reason == "" {
			reason = all.reason()
		}
		cell.Notes = append(cell.Notes, "every stream ended before the window opened")
		return ev, &cellError{reason}
	}
	if why := all.reason(); why != "" {
		// There is no row of the request that could not be sent, so nothing
		// else would say that fewer streams ran than were planned.
		return ev, &cellError{"a stream could not connect: " + why}
	}
	return ev, nil
}

func addNote(cell *runlog.Cell, note string) {
	if note != "" {
		cell.Notes = append(cell.Notes, note)
	}
}

// A cellError fails a cell whose rows are worth keeping.
type cellError struct{ reason string }

func (e *cellError) Error() string { return e.reason }

// streams are the streams of a cell while they run.
type streams struct {
	ended chan struct{} // closed when none runs any more
	mu    sync.Mutex
	over  []bool // by stream: it has ended
	why   string // the first error of connecting
}

// failed reports whether a stream has ended, which none does by itself.
func (s *streams) failed(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over[i]
}

func (s *streams) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// startStreams sets all streams going. Each sends, reads to the end, and
// sends again at once. A stream whose request failed sends no more: the cell
// does not count any longer, and a server in trouble is not helped by load.
func (r *run) startStreams(ctx context.Context, key runlog.Key, clients []*stream.Client, body []byte) *streams {
	s := &streams{ended: make(chan struct{}), over: make([]bool, len(clients))}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, c := range clients {
		wg.Go(func() {
			<-start
			for n := int32(0); ; n++ {
				out, err := c.Do(ctx, body, r.bodyEnd(key, int32(i), n))
				if err == nil && out == stream.Done {
					continue
				}
				s.mu.Lock()
				s.over[i] = true
				if err != nil && s.why == "" && ctx.Err() == nil && !c.Stopped() {
					s.why = plainNetError(err)
				}
				s.mu.Unlock()
				return
			}
		})
	}
	close(start)
	go func() {
		wg.Wait()
		close(s.ended)
	}()
	return s
}

// ready waits until the cell is full: every stream has delivered output,
// nothing waits, and all of them run, for a while without a break. It
// returns nil when every stream has ended before that.
func (r *run) ready(ctx context.Context, cell *runlog.Cell, recs []*stream.Recording, all *streams) (*runlog.Ready, error) {
	begin := time.Now()
	timeout := r.cfg.readyLimit(cell.ContextTokens)
	by := "streams"
	var since time.Time
	var lastMetrics time.Time
	serverReady := true
	for {
		// A stream that has failed will never deliver: the cell does not
		// count any more, but what the others do is worth having.
		full, alive := true, 0
		for i, rec := range recs {
			if all.failed(i) {
				continue
			}
			alive++
			full = full && rec.Delivered()
		}
		// Reading the metrics page costs the server something; twice a
		// second, and only when the streams themselves are ready.
		if full && r.sampler.hasMetrics() && time.Since(lastMetrics) >= r.cfg.readyHold()/6 {
			lastMetrics = time.Now()
			by, serverReady = "streams", true // unless the page says otherwise
			if m := r.sampler.sampleServer(ctx); m != nil {
				running, known1 := m.Running()
				waiting, known2 := m.Waiting()
				if known1 && known2 {
					by = "metrics and streams"
					serverReady = waiting == 0 && running >= float64(alive)
				}
			}
		}
		now := time.Now()
		switch {
		case !full || !serverReady:
			since = time.Time{}
		case since.IsZero():
			since = now
		}
		if !since.IsZero() && now.Sub(since) >= r.cfg.readyHold() {
			return &runlog.Ready{By: by, WaitedUs: now.Sub(begin).Microseconds()}, nil
		}
		if now.Sub(begin) >= timeout {
			return &runlog.Ready{By: "timeout", WaitedUs: now.Sub(begin).Microseconds(), TimedOut: true}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-all.ended:
			return nil, nil
		case <-time.After(min(pollEvery, r.cfg.readyHold()/6)):
		}
	}
}

// failure returns the reason of the first failed request in ev, "" when
// none failed.
func failure(ev *runlog.Events) string {
	for i := range ev.Len() {
		if ev.Kind[i] == runlog.KindError {
			return ev.Error[i]
		}
	}
	return ""
}

// noteScout keeps what a scout that only warmed the cache has seen.
func (r *run) noteScout(ev *runlog.Events) {
	var sent int64
	var rows []runlog.Sample
	row := func(t int64, name string, value float64) {
		rows = append(rows, runlog.Sample{TUs: t, Source: runlog.SourceClient, Name: name, Value: value})
	}
	ttft := false
	for i := range ev.Len() {
		e := ev.Row(i)
		switch {
		case e.Kind == runlog.KindSent:
			sent = e.TUs
		case !ttft && e.Kind == runlog.KindChunk && (e.Tokens > 0 || e.Channel != runlog.ChannelNone):
			ttft = true
			row(e.TUs, runlog.MetricScoutTTFTUs, float64(e.TUs-sent))
		}
		if e.Kind == runlog.KindUsage && e.PromptTokens != runlog.Unknown {
			row(e.TUs, runlog.MetricScoutPromptTokens, float64(e.PromptTokens))
		}
		if e.CachedTokens != runlog.Unknown {
			row(e.TUs, runlog.MetricScoutCachedTokens, float64(e.CachedTokens))
		}
	}
	r.sampler.add(rows)
}

// warmup sends one request at the largest context that fits, before
// anything is measured: the first request of a server's life pays for
// compilation and caches. It is stopped a few seconds after its first
// output. Its error is that of a server that will not do at all.
func (r *run) warmup(ctx context.Context, key runlog.Key) (*runlog.Events, error) {
	p, err := r.prompt(ctx, key.ContextTokens, r.m.Plan.MaxOutputTokens, warmupSample)
	if err != nil {
		return nil, err
	}
	rec := stream.NewRecording(r.start)
	client := stream.NewClient(r.endpoint, r.cfg.Idle, r.lateness, rec)
	defer client.Close()
	unhook := context.AfterFunc(ctx, client.Stop)
	defer unhook()
	if err := client.Open(ctx); err != nil {
		return nil, r.lostServer(ctx, err)
	}
	if r.kernel = client.Kernel(); r.kernel {
		r.m.ArrivalClock = runlog.ArrivalKernel
	} else {
		r.m.ArrivalClock = runlog.ArrivalUser
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !rec.Delivered() {
			if sleep(ctx, 10*time.Millisecond) != nil || client.Stopped() {
				return
			}
		}
		if sleep(ctx, min(3*time.Second, r.window())) == nil {
			client.Stop()
		}
	}()
	_, err = client.Do(ctx, r.request(p.content, r.m.Plan.MaxOutputTokens).bytes(), r.bodyEnd(key, 0, 0))
	client.Stop()
	<-done
	if err != nil {
		return nil, r.lostServer(ctx, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ev := r.rows(key, []*stream.Recording{rec})
	if reason := failure(ev); reason != "" {
		return nil, refusal(key.ContextTokens, reason)
	}
	return ev, nil
}

// A refusedError is a server's refusal of a request that the plan needs.
type refusedError struct {
	msg, hint string
}

func (e *refusedError) Error() string { return e.msg }

// Hint says what may help.
func (e *refusedError) Hint() string { return e.hint }

// refusal turns the failure of a first request into an error with a hint.
func refusal(context int32, reason string) error {
	what := "a request"
	if context > 0 { // not the probe
		what = fmt.Sprintf("a request at context %d", context)
	}
	e := &refusedError{msg: fmt.Sprintf("the server does not answer %s: %s", what, reason)}
	low := strings.ToLower(reason)
	switch {
	case strings.Contains(low, "context length"), strings.Contains(low, "max_model_len"):
		e.hint = "leave out contexts that the server refuses: --contexts, --max-output"
	case strings.HasPrefix(reason, "HTTP 401"), strings.HasPrefix(reason, "HTTP 403"):
		e.hint = "give the key by --api-key-file, or in the environment as SPEEDMATRIX_API_KEY"
	case strings.HasPrefix(reason, "HTTP 404"):
		e.hint = "give the base URL of the server, and --model if it serves several"
	}
	return e
}
