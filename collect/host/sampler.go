package host

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"speedmatrix/ingest/runlog"
)

// sampleTimeout bounds one question to a GPU program.
const sampleTimeout = 5 * time.Second

// restFactor is how many times its own duration a GPU program rests before
// it is asked again, so that a slow one (no persistence mode, many GPUs)
// does not load the machine that is being measured.
const restFactor = 4

// A Sampler takes samples of the machine: GPUs, the host's load and memory,
// and what this process itself uses. Its methods may be called concurrently.
type Sampler struct {
	run  Runner
	proc string

	mu         sync.Mutex
	busy, idle float64 // of all cores, in ticks, at the sample before
	cpuTime    time.Duration
	cpuAt      time.Time

	tool    *gpuTool        // the program that answered; nil before, and when none did
	list    int             // its argument list that worked
	gone    bool            // no program answers
	asking  bool            // one is running
	nextUs  int64           // not asked again before
	waiting []runlog.Sample // what it answered since the sample before
	stop    context.CancelFunc
	ctx     context.Context
}

// NewSampler returns a sampler that asks GPU programs by run. With a nil
// run there are no GPU samples: so for a server on another machine, whose
// GPUs are not this machine's.
func NewSampler(run Runner) *Sampler {
	s := &Sampler{run: run, proc: Proc, gone: run == nil}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close stops a GPU program that still runs. Samples taken later have no
// GPU values.
func (s *Sampler) Close() { s.stop() }

// Sample returns what is known now, as rows at tUs, microseconds since the
// run's start. It never waits: a GPU program is started now, and what it
// says is returned by a later call, at the time at which it was started.
func (s *Sampler) Sample(tUs int64) []runlog.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.waiting
	s.waiting = nil
	if !s.gone && !s.asking && tUs >= s.nextUs && s.ctx.Err() == nil {
		s.asking = true
		go s.askGPUs(tUs)
	}
	row := func(source runlog.Source, name string, value float64) {
		rows = append(rows, runlog.Sample{TUs: tUs, Source: source, Name: name, Value: value})
	}
	if busy, idle, ok := cpuTicks(s.proc); ok {
		if db, di := busy-s.busy, idle-s.idle; s.busy+s.idle > 0 && db >= 0 && di >= 0 && db+di > 0 {
			row(runlog.SourceHost, runlog.MetricCPURatio, db/(db+di))
		}
		s.busy, s.idle = busy, idle
	}
	if n := memoryLine(s.proc, "MemAvailable:"); n > 0 {
		row(runlog.SourceHost, runlog.MetricMemoryAvailable, float64(n))
	}
	if used, ok := processCPU(); ok {
		now := time.Now()
		if wall := now.Sub(s.cpuAt); !s.cpuAt.IsZero() && wall > 0 && used >= s.cpuTime {
			row(runlog.SourceClient, runlog.MetricCPURatio, float64(used-s.cpuTime)/float64(wall))
		}
		s.cpuTime, s.cpuAt = used, now
	}
	return rows
}

// askGPUs runs the GPU program once. Which program there is, and which of
// its argument lists it takes, is found out the first time.
func (s *Sampler) askGPUs(tUs int64) {
	ctx, cancel := context.WithTimeout(s.ctx, sampleTimeout)
	defer cancel()
	began := time.Now()
	s.mu.Lock()
	tool, list := s.tool, s.list
	s.mu.Unlock()
	var got []reading
	if tool != nil {
		got, _ = tool.ask(ctx, s.run, tool.samples[list:list+1])
	} else {
		for _, t := range gpuTools() {
			if got, list = t.ask(ctx, s.run, t.samples); len(got) > 0 {
				tool = &t
				break
			}
		}
	}
	var rows []runlog.Sample
	for i, g := range got {
		rows = append(rows, g.samples(tUs, i)...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tool, s.list, s.gone = tool, list, tool == nil
	s.waiting = append(s.waiting, rows...)
	s.asking = false
	s.nextUs = tUs + restFactor*time.Since(began).Microseconds()
}

// cpuTicks returns the time that all cores were busy and idle since boot.
func cpuTicks(proc string) (busy, idle float64, ok bool) {
	b, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return 0, 0, false
	}
	// user nice system idle iowait irq softirq steal; guest time is in user.
	fields := strings.Fields(lineValue(string(b), "cpu "))
	for i, f := range fields[:min(len(fields), 8)] {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil {
			return 0, 0, false
		}
		if i == 3 || i == 4 {
			idle += float64(n)
		} else {
			busy += float64(n)
		}
	}
	return busy, idle, len(fields) >= 4
}
