// Package process runs programs to be measured, each fresh and alone, and
// says what it took. It must not know what they do.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
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
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
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
	data, err := os.ReadFile("/proc/self/status")
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
