package figure

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A Machine is where figures were measured. Unknown is "" or 0.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"` // that the program may use
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	System      string `json:"system"` // "linux/amd64"
	Go          string `json:"go"`
	Date        string `json:"date"` // UTC
}

// ThisMachine describes the machine that the program runs on. Off Linux
// only the Go runtime knows something.
func ThisMachine() Machine {
	m := Machine{
		Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		CPU: procValue("/proc/cpuinfo", "model name"), Date: time.Now().UTC().Format(time.DateOnly),
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		release, _, _ := strings.Cut(string(bytes.TrimSpace(kernel)), "-") // what follows names the distribution's build
		m.Kernel = release
	}
	kib, _, _ := strings.Cut(procValue("/proc/meminfo", "MemTotal"), " ")
	if n, err := strconv.ParseInt(kib, 10, 64); err == nil {
		m.MemoryBytes = n << 10
	}
	return m
}

// String returns the machine as a line of text.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.0f GiB, %s, kernel %s, %s, %s",
		m.CPU, m.Cores, float64(m.MemoryBytes)/(1<<30), m.System, m.Kernel, m.Go, m.Date)
}

// procValue returns the first value of a key in a file of "key: value" lines.
func procValue(file, key string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// LoadAverage returns how many processes wanted a core over the last minute;
// −1 when that is unknown.
func LoadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return load
}
