// Command collector measures the collector under load: a simulated server
// that stamps its own writes and a client are two processes on two cores.
// How far are recorded times from the times of writing, does an event get
// lost, and what does an event cost? The clients that people use (peers.sh
// installs them) meet the same server and the same load in the same run.
//
// It must not know how the client under test works: it has its times and its
// processor time.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"speedmatrix/bench/figure"
)

const model = "simulated"

func main() {
	role := flag.String("role", "", "server, fast-server or client: one of this program's own processes")
	base := flag.String("url", "", "of the server, for the client")
	streams := flag.Int("streams", 0, "of the client")
	tokens := flag.Int("tokens", 0, "of each stream")
	period := flag.Duration("period", 0, "of the server's engine: each stream gets a token in each")
	cells := flag.Int("cells", 1, "that the client measures, one after the other")
	brief := flag.Bool("brief", false, "of the client: leave out the times of its events")
	file := flag.String("file", "", "that the process leaves")
	quick := flag.Bool("quick", false, "a second for each load instead of four, each once, to try it out")
	peers := flag.String("peers", "peers", "directory of the other clients, as peers.sh makes it; those that it lacks are left out")
	only := flag.String("only", "", "measure one part: ours, peers or growth")
	profile := flag.String("cpuprofile", "", "where our client leaves a profile of its processor time; use it with -rate")
	rate := flag.Int("rate", 0, "measure ours at this many events per second only")
	flag.Parse()
	var err error
	switch *role {
	case "server":
		err = server(*period, *file)
	case "fast-server":
		err = fastServer(*tokens)
	case "client":
		err = profiled(*profile, func() error { return client(*base, *streams, *tokens, *cells, *brief, *file) })
	default:
		err = measure(options{quick: *quick, peers: *peers, only: *only, rate: *rate, profile: *profile})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/collector:", err)
		os.Exit(1)
	}
}

type options struct {
	quick bool
	peers string
	only  string
	rate  int

	profile string
}

// profiled runs f with a profile of its processor time, if one is wanted.
func profiled(file string, f func() error) error {
	if file == "" {
		return f()
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// A load is what a server sends.
type load struct {
	rate    int // events per second, of all streams
	streams int
	seconds float64
}

func (l load) String() string {
	return fmt.Sprintf("%s events/s, %d streams", figure.Number(float64(l.rate)), l.streams)
}

func (l load) period() time.Duration {
	return time.Second * time.Duration(l.streams) / time.Duration(l.rate)
}
func (l load) tokens() int { return max(2, int(float64(l.rate)*l.seconds)/l.streams) }
