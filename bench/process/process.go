// Package process runs programs to be measured, each fresh and alone, and
// says what it took. It must not know what they do.
package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Usage is what a process took.
type Usage struct {
	Wall time.Duration
	CPU  time.Duration // user and system, of all its threads
}

// Run runs a command to its end and returns its standard output. Its error
// output is ours. cores restricts it to the first so many cores (0: all);
// a Go program then takes as many for GOMAXPROCS. Off Linux there is no
// taskset, and cores must be 0.
func Run(cores int, name string, args ...string) (Usage, []byte, error) {
	if cores > 0 {
		args = append([]string{"-c", "0-" + strconv.Itoa(cores-1), name}, args...)
		name = "taskset"
	}
	return run(exec.Command(name, args...))
}

func run(cmd *exec.Cmd) (Usage, []byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if err != nil {
		return Usage{}, nil, fmt.Errorf("run %s: %w", strings.Join(cmd.Args, " "), err)
	}
	return Usage{Wall: wall, CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, out.Bytes(), nil
}

// PeakBytes returns the most memory that this process ever had resident, 0
// when that is unknown. A process asks for itself: what a parent can read of
// its child begins at the parent's own size.
func PeakBytes() int64 {
	return PeakBytesOf(os.Getpid())
}

// PeakBytesOf is PeakBytes of another process, which must still run: 0 when
// it has ended.
func PeakBytesOf(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(l, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// Filter is Run on all cores with an input.
func Filter(in io.Reader, name string, args ...string) (Usage, []byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = in
	return run(cmd)
}

// CPU returns the processor time, user and system, that this process spends
// on all its threads while f runs.
func CPU(f func() error) (time.Duration, error) {
	before, err := Spent()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := Spent()
	return after - before, err
}

// Spent returns the processor time, user and system, that this process has
// spent on all its threads so far.
func Spent() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("ask for processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// PeakHeap returns how many bytes more the heap held while f ran than
// before, at the worst of many instants.
func PeakHeap(f func() error) (int64, error) {
	held := func() int64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	runtime.GC()
	before, peak := held(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak = max(peak, held()-before)
			}
		}
	}()
	err := f()
	close(stop)
	<-done
	return max(peak, held()-before), err
}
