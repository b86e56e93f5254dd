package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"speedmatrix/bench/process"
	"speedmatrix/collect/stream"
	"speedmatrix/ingest/runlog"
)

// A taken is what a client says of one request. Times are nanoseconds of the
// machine's monotonic clock; 0 is not said.
type taken struct {
	ID     string
	Sent   int64
	Events []int64 // that carry tokens
}

// A clientReport is what our client's process found out about itself.
type clientReport struct {
	Requests    []taken
	Kernel      bool    // arrival times came from the kernel
	StreamCPU   float64 // seconds of user and system time while the streams ran
	TotalCPU    float64 // … and until their rows were in a Parquet file
	PeakBytes   int64   // resident
	Chunks      int64   // events, of all kinds
	LateShared  int64   // events that a late read returned together with an older one of another step
	GCs         int64   // garbage collections while the streams ran
	GCPauses    float64 // seconds, of all goroutines
	ParquetSize int64

	HeldBytes       int64 // of the heap, by what the streams recorded
	StreamPeakBytes int64 // resident, until the streams had ended
}

// client is the client's process: it measures cells one after the other and
// leaves a report of them together.
func client(base string, streams, tokens, cells int, brief bool, result string) error {
	u, err := url.Parse(base + "/v1/chat/completions")
	if err != nil {
		return err
	}
	var all clientReport
	for range cells {
		rep, err := measureCell(u, streams, tokens, brief)
		if err != nil {
			return err
		}
		rep.StreamCPU += all.StreamCPU
		rep.TotalCPU += all.TotalCPU
		rep.Chunks += all.Chunks
		rep.LateShared += all.LateShared
		rep.GCs += all.GCs
		rep.GCPauses += all.GCPauses
		rep.ParquetSize += all.ParquetSize
		all = rep
	}
	return writeFile(result, all)
}

// measureCell is as many streams as a cell has, each of one request, with the
// collector's own client; then rows, then a Parquet file.
func measureCell(u *url.URL, streams, tokens int, brief bool) (rep clientReport, err error) {
	c := newClock()
	start := time.Now()
	late := &stream.Lateness{}
	clients := make([]*stream.Client, streams)
	recs := make([]*stream.Recording, streams)
	for i := range clients {
		e, err := stream.NewEndpoint(u, http.Header{"X-Request-Id": {streamID(i)}})
		if err != nil {
			return rep, err
		}
		recs[i] = stream.NewRecording(start)
		clients[i] = stream.NewClient(e, time.Minute, late, recs[i])
		if err := clients[i].Open(context.Background()); err != nil {
			return rep, err
		}
	}
	rep.Kernel = clients[0].Kernel()
	body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"Tell me a long story."}],"stream":true,`+
		`"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":%d,"temperature":0,"ignore_eos":true}`, model, tokens)

	var gcBefore, gcAfter debug.GCStats
	debug.ReadGCStats(&gcBefore)
	cpu, err := process.Spent()
	if err != nil {
		return rep, err
	}
	var wg sync.WaitGroup
	errs := make([]error, streams)
	for i, cl := range clients {
		wg.Go(func() {
			if out, err := cl.Do(context.Background(), body); err != nil || out != stream.Done {
				errs[i] = fmt.Errorf("stream %d: outcome %d: %v", i, out, err)
			}
		})
	}
	wg.Wait()
	streamed, err := process.Spent()
	if err != nil {
		return rep, err
	}
	rep.StreamCPU = (streamed - cpu).Seconds()
	debug.ReadGCStats(&gcAfter)
	rep.GCs, rep.GCPauses = gcAfter.NumGC-gcBefore.NumGC, (gcAfter.PauseTotal - gcBefore.PauseTotal).Seconds()
	for _, err := range errs {
		if err != nil {
			return rep, err
		}
	}
	rep.Chunks, rep.LateShared = late.Chunks()

	if brief {
		rep.StreamPeakBytes = process.PeakBytes()
		for _, cl := range clients {
			cl.Close()
		}
		rep.HeldBytes = heap()
	}
	ev := &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8, Concurrency: int32(streams)}}
	n := 0
	for _, rec := range recs {
		n += rec.Rows()
	}
	ev.Grow(n)
	for i, rec := range recs {
		rec.Decode(ev, stream.DecodeOptions{Stream: int32(i), Text: stream.TextFull, Redact: func(s string) string { return s }})
	}
	dir, err := os.MkdirTemp("", "bench-collector-")
	if err != nil {
		return rep, err
	}
	defer os.RemoveAll(dir)
	run, err := runlog.Create(dir, "run")
	if err != nil {
		return rep, err
	}
	info, err := runlog.WriteEvents(run, ev)
	if err != nil {
		return rep, err
	}
	rep.ParquetSize = info.Bytes
	written, err := process.Spent()
	if err != nil {
		return rep, err
	}
	rep.TotalCPU, rep.PeakBytes = (written - cpu).Seconds(), process.PeakBytes()
	if !brief {
		rep.Requests = requests(ev, streams, c.at(start))
	}
	return rep, nil
}

// heap returns the bytes of the heap that are in use, after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func streamID(i int) string { return "stream-" + strconv.Itoa(i) }

// bareID takes off what a server puts before a request's id.
func bareID(id string) string {
	return strings.TrimPrefix(strings.TrimPrefix(id, "chatcmpl-"), "cmpl-")
}

// requests returns the rows of each stream as what a client says.
func requests(ev *runlog.Events, streams int, startNs int64) []taken {
	list := make([]taken, streams)
	for i := range list {
		list[i].ID = streamID(i)
	}
	for i := range ev.Len() {
		t := &list[ev.Stream[i]]
		at := startNs + ev.TUs[i]*1000
		switch {
		case ev.Kind[i] == runlog.KindSent:
			t.Sent = at
		case ev.Kind[i] == runlog.KindChunk && ev.Tokens[i] > 0:
			t.Events = append(t.Events, at)
		}
	}
	return list
}
