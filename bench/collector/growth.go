package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"speedmatrix/bench/figure"
)

// fastServer answers every request with as many events as it asks for, as
// fast as they are taken: a long run in a short time. It tells no truth.
func fastServer(tokens int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	words := []string{" the", " restless", " furnace", ",", " outlined", " every", " orchard", " along", " a", " bright", " village", "."}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		head := fmt.Appendf(nil, `data: {"id":"chatcmpl-%016x","object":"chat.completion.chunk","created":1796058245,"model":"%s","choices":[{"index":0,"delta":{"content":"`, len(r.RemoteAddr)*7919, model)
		var b []byte
		for i := 1; i <= tokens; i++ {
			b = append(append(b, head...), words[(i*i+i/7)%len(words)]...)
			b = append(b, `"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":8192,"total_tokens":`...)
			b = append(strconv.AppendInt(b, int64(8192+i), 10), `,"completion_tokens":`...)
			b = append(strconv.AppendInt(b, int64(i), 10), `,"completion_tokens_details":null}}`+"\n\n"...)
			if len(b) > 32<<10 || i == tokens {
				if _, err := w.Write(b); err != nil {
					return
				}
				b = b[:0]
			}
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})}
	go srv.Serve(l)
	fmt.Println("listen", l.Addr())
	io.Copy(io.Discard, os.Stdin)
	return srv.Close()
}

// growth measures memory and time against the number of events, of one cell
// up to the most that a file holds, and of a run of two such cells.
func (m *measurement) growth() error {
	type size struct {
		name          string
		events, cells int
	}
	sizes := []size{{"1 million events", 1_000_000, 1}, {"4 million", 4_000_000, 1}, {"30 million, 2 cells", 15_000_000, 2}}
	if m.quick {
		sizes = []size{{"300,000 events", 300_000, 1}, {"3 million, 2 cells", 1_500_000, 2}}
	}
	const streams = 512
	topic := "collector: many events, 512 streams"
	for _, s := range sizes {
		m.out.Begin()
		rep, wall, err := m.grow(streams, s.events/streams, s.cells)
		if err != nil {
			return err
		}
		size := s.name
		per := func(bytes int64) float64 { return float64(bytes) / float64(s.events) }
		progress("growth, %s: %s s, recorded %s B/event, peak %s B/event while recording, %s in all (%s MiB)", size, figure.Number(wall),
			figure.Number(per(rep.HeldBytes)), figure.Number(per(rep.StreamPeakBytes)), figure.Number(per(rep.PeakBytes)), figure.Number(float64(rep.PeakBytes)/(1<<20)))
		if err := m.out.Write(
			figure.Of(topic, size+": held in memory", "B/event of a cell", per(rep.HeldBytes)).Note("what the streams of a cell recorded, after a garbage collection"),
			figure.Of(topic, size+": peak memory", "B/event of a cell", per(rep.PeakBytes)).Note("resident, with the cell's rows and its Parquet file in the making: %s MiB", figure.Number(float64(rep.PeakBytes)/(1<<20))),
			figure.Of(topic, size+": CPU", "s per million events", rep.TotalCPU/float64(rep.Chunks)*1e6).Note("from the first request to the Parquet file; %s s of time", figure.Number(wall)),
			figure.Of(topic, size+": file", "B/event", float64(rep.ParquetSize)/float64(rep.Chunks)),
		); err != nil {
			return err
		}
		if s.cells > 1 {
			continue // the peak has the rows and the file of the cell before
		}
		if err := m.out.Write(figure.Of(topic, size+": peak memory while recording", "B/event of a cell", per(rep.StreamPeakBytes)).Note("resident, of the whole process")); err != nil {
			return err
		}
	}
	return nil
}

// grow runs our client once against a fast server.
func (m *measurement) grow(streams, tokens, cells int) (rep clientReport, seconds float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return rep, 0, err
	}
	s, err := m.start("-role", "fast-server", "-tokens", strconv.Itoa(tokens))
	if err != nil {
		return rep, 0, err
	}
	file := filepath.Join(m.work, "client")
	c := onTwoCores(self, "-role", "client", "-brief", "-cells", strconv.Itoa(cells), "-url", s.url, "-streams", strconv.Itoa(streams), "-tokens", strconv.Itoa(tokens), "-file", file)
	c.Stderr = os.Stderr
	began := time.Now()
	clientErr := c.Run()
	seconds = time.Since(began).Seconds()
	s.stdin.Close()
	<-s.ended
	if err := s.cmd.Wait(); err != nil {
		return rep, 0, fmt.Errorf("server: %w", err)
	}
	if clientErr != nil {
		return rep, 0, fmt.Errorf("client: %w", clientErr)
	}
	return rep, seconds, readFile(file, &rep)
}
