package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"speedmatrix/bench/figure"
)

// measure runs everything and writes the figures to standard output.
func measure(o options) error {
	out, err := figure.NewWriter(os.Stdout, "make bench-collector")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bench-collector-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	m := measurement{options: o, out: out, work: work}
	for _, part := range []struct {
		name string
		f    func() error
	}{{"ours", m.ours}, {"peers", m.againstPeers}, {"growth", m.growth}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := part.f(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

type measurement struct {
	options
	out  *figure.Writer
	work string
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// onTwoCores is a command that may use two cores at most.
func onTwoCores(name string, args ...string) *exec.Cmd {
	if runtime.NumCPU() > 2 {
		return exec.Command("taskset", append([]string{"-c", "0,1", name}, args...)...)
	}
	return exec.Command(name, args...)
}

// A serving is a server's process.
type serving struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
	file  string
	begun chan struct{} // closed with the first token
	ended chan struct{} // it has said everything
}

// serve starts the server of a load.
func (m *measurement) serve(l load) (*serving, error) {
	file := filepath.Join(m.work, "truth")
	s, err := m.start("-role", "server", "-period", l.period().String(), "-file", file)
	if err == nil {
		s.file = file
	}
	return s, err
}

// start starts this program as a server.
func (m *measurement) start(args ...string) (*serving, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &serving{begun: make(chan struct{}), ended: make(chan struct{})}
	s.cmd = onTwoCores(self, args...)
	s.cmd.Stderr = os.Stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		s.cmd.Wait()
		return nil, fmt.Errorf("server ended at once")
	}
	s.url = "http://" + strings.TrimPrefix(lines.Text(), "listen ")
	go func() {
		defer close(s.ended)
		for lines.Scan() {
			if lines.Text() == "begin" {
				close(s.begun)
			}
		}
	}()
	return s, nil
}

// stop ends the server and returns the truth.
func (s *serving) stop() (map[string]*served, error) {
	s.stdin.Close()
	<-s.ended
	if err := s.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	var truth map[string]*served
	err := readFile(s.file, &truth)
	return truth, err
}

// An outcome is what one client made of one load.
type outcome struct {
	clientReport
	errors
	truth map[string]*served
}

// our runs our client once.
func (m *measurement) our(l load) (outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return outcome{}, err
	}
	s, err := m.serve(l)
	if err != nil {
		return outcome{}, err
	}
	file := filepath.Join(m.work, "client")
	c := onTwoCores(self, "-role", "client", "-url", s.url, "-streams", strconv.Itoa(l.streams), "-tokens", strconv.Itoa(l.tokens()), "-file", file, "-cpuprofile", m.profile)
	c.Stderr = os.Stderr
	clientErr := c.Run()
	truth, err := s.stop()
	if clientErr != nil {
		return outcome{}, fmt.Errorf("client: %w", clientErr)
	}
	if err != nil {
		return outcome{}, err
	}
	o := outcome{truth: truth}
	if err := readFile(file, &o.clientReport); err != nil {
		return outcome{}, err
	}
	o.errors = compare(o.Requests, truth)
	return o, nil
}

// errors are by how much a client's times are off, in µs.
type errors struct {
	recorded []float64 // recorded − written, of each event whose time a client keeps
	writing  []float64 // how long the server was within the write
	ttft     []float64 // |what the client says − the server's|, of each request
	gap      []float64 // … of each gap between two events
	events   int       // that the server sent
	lost     int       // of these, not noted by the client
	rate     float64   // events per second that the server really sent
}

// compare sets what a client says beside the truth. A request that one of
// them does not know is lost as a whole.
func compare(requests []taken, truth map[string]*served) errors {
	var e errors
	first, last := int64(math.MaxInt64), int64(0)
	for _, s := range truth {
		e.events += len(s.Events)
		if n := len(s.Events); n > 0 {
			first, last = min(first, s.Events[0].Before), max(last, s.Events[n-1].Before)
		}
	}
	if last > first {
		e.rate = float64(e.events) / (float64(last-first) / 1e9)
	}
	e.lost = e.events
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	for _, t := range requests {
		s := truth[t.ID]
		if s == nil {
			continue
		}
		n := min(len(t.Events), len(s.Events))
		e.lost -= n
		for i := range n {
			e.recorded = append(e.recorded, us(t.Events[i]-s.Events[i].Before))
			e.writing = append(e.writing, us(s.Events[i].After-s.Events[i].Before))
			if i > 0 {
				e.gap = append(e.gap, math.Abs(us(t.Events[i]-t.Events[i-1]-(s.Events[i].Before-s.Events[i-1].Before))))
			}
		}
		if n > 0 && t.Sent != 0 && s.Arrived != 0 {
			e.ttft = append(e.ttft, math.Abs(us(t.Events[0]-t.Sent-(s.Events[0].Before-s.Arrived))))
		}
	}
	for _, list := range [][]float64{e.recorded, e.writing, e.ttft, e.gap} {
		slices.Sort(list)
	}
	return e
}

// quantile returns the nearest rank of sorted values; NaN of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// ours measures the collector's client at each load.
func (m *measurement) ours() error {
	const topicError, topicCPU = "collector: recorded − written", "collector: cost"
	for _, l := range m.loads() {
		repetitions := 1
		if l.streams == 128 && !m.quick && (l.rate == 10_000 || l.rate == 25_000) {
			repetitions = 3 // there are targets
		}
		var p50, p99, most, writing, cpu, all, peak, lost []float64
		var last outcome
		m.out.Begin()
		for range repetitions {
			o, err := m.our(l)
			if err != nil {
				return fmt.Errorf("%s: %w", l, err)
			}
			if !o.Kernel {
				return fmt.Errorf("%s: no arrival times from the kernel", l)
			}
			n := float64(o.events)
			p50, p99, most = append(p50, quantile(o.recorded, 0.5)), append(p99, quantile(o.recorded, 0.99)), append(most, quantile(o.recorded, 1))
			writing = append(writing, quantile(o.writing, 0.99))
			cpu, all = append(cpu, o.StreamCPU/n*1e6), append(all, o.TotalCPU/n*1e6)
			peak, lost = append(peak, float64(o.PeakBytes)/(1<<20)), append(lost, float64(o.lost))
			last = o
			progress("ours, %s: %s/s sent, p50 %s p99 %s max %s µs (in the write p99 %s), %s µs CPU an event, %d lost, %s MiB, %d GCs",
				l, figure.Number(o.rate), figure.Number(p50[len(p50)-1]), figure.Number(p99[len(p99)-1]), figure.Number(most[len(most)-1]),
				figure.Number(quantile(o.writing, 0.99)), figure.Number(cpu[len(cpu)-1]), o.lost, figure.Number(peak[len(peak)-1]), o.GCs)
		}
		sent := fmt.Sprintf("%s events/s were really sent; within the server's write p99 %s µs", figure.Number(last.rate), figure.Number(figure.Median(writing)))
		f99 := figure.Of(topicError, l.String()+": p99", "µs", p99...).Note("%s", sent)
		fCPU := figure.Of(topicCPU, l.String()+": CPU", "s per million events", cpu...).
			Note("with rows and Parquet %s; %d garbage collections, paused %s ms in all", figure.Number(figure.Median(all)), last.GCs, figure.Number(last.GCPauses*1e3))
		if l.streams == 128 {
			switch l.rate {
			case 10_000:
				f99, fCPU = f99.AtMost(200), fCPU.AtMost(15)
			case 25_000:
				f99 = f99.AtMost(1000)
			}
		}
		if err := m.out.Write(
			figure.Of(topicError, l.String()+": p50", "µs", p50...), f99, figure.Of(topicError, l.String()+": max", "µs", most...),
			fCPU, figure.Of(topicCPU, l.String()+": events lost", "", lost...).AtMost(0),
			figure.Of(topicCPU, l.String()+": peak memory", "MiB", peak...),
		); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) loads() (list []load) {
	seconds := 4.0
	if m.quick {
		seconds = 1
	}
	for _, rate := range []int{1_000, 10_000, 25_000, 50_000, 100_000} {
		if m.rate != 0 && m.rate != rate {
			continue
		}
		for _, streams := range []int{8, 128, 512} {
			list = append(list, load{rate, streams, seconds})
		}
	}
	return list
}

// treeCPU returns the seconds of processor time that a process and all that
// came from it have used, those included that were waited for.
func treeCPU(pid int) float64 {
	type proc struct {
		parent int
		ticks  float64
	}
	procs := map[int]proc{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The second field, in parentheses, may hold anything.
		_, rest, ok := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
		f := strings.Fields(rest)
		if !ok || len(f) < 15 {
			continue
		}
		var p proc
		p.parent, _ = strconv.Atoi(f[1])
		for _, s := range f[11:15] { // utime, stime, cutime, cstime
			t, _ := strconv.ParseFloat(s, 64)
			p.ticks += t
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		procs[id] = p
	}
	sum := 0.0
	for id, p := range procs {
		for at := id; at > 1; at = procs[at].parent {
			if at == pid {
				sum += p.ticks
				break
			}
		}
	}
	const ticksPerSecond = 100 // USER_HZ, on every Linux
	return sum / ticksPerSecond
}

// rusageCPU returns the seconds of processor time of an ended process and of
// all of its descendants that were waited for.
func rusageCPU(s *os.ProcessState) float64 {
	u := s.SysUsage().(*syscall.Rusage)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
