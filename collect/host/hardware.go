package host

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode"

	"speedmatrix/ingest/runlog"
)

// Proc is where Linux shows its processes and its state.
const Proc = "/proc"

// factTimeout bounds one program that is asked for facts.
const factTimeout = 15 * time.Second

// Hardware describes this machine. Notes say in words what should have been
// there and was not, such as a GPU program that failed. What can't be found
// out stays absent. It is the serving machine's description only if the
// server runs on this machine.
func Hardware(ctx context.Context, run Runner) (h runlog.Hardware, notes []string) {
	return hardware(ctx, run, runtime.GOOS, Proc)
}

func hardware(ctx context.Context, run Runner, goos, proc string) (h runlog.Hardware, notes []string) {
	h.OS = goos
	ask := func(name string, args ...string) string {
		ctx, cancel := context.WithTimeout(ctx, factTimeout)
		defer cancel()
		out, err := run(ctx, name, args...)
		if err != nil {
			return ""
		}
		return clean(string(out), 200)
	}
	switch goos {
	case "linux":
		h.CPU = linuxCPU(proc)
		if h.CPU == "" { // 64-bit ARM does not say it there
			h.CPU = armCPU(ctx, run)
		}
		h.MemoryBytes = memoryLine(proc, "MemTotal:")
		if b, err := os.ReadFile(filepath.Join(proc, "sys/kernel/osrelease")); err == nil {
			h.Kernel = clean(string(b), 100)
		}
	case "darwin":
		h.CPU = known(ask("sysctl", "-n", "machdep.cpu.brand_string"))
		if n, err := strconv.ParseInt(ask("sysctl", "-n", "hw.memsize"), 10, 64); err == nil && n > 0 {
			h.MemoryBytes = n
		}
		h.Kernel = known(ask("sysctl", "-n", "kern.osrelease"))
	case "windows":
		h.CPU = known(os.Getenv("PROCESSOR_IDENTIFIER"))
		if m := regexp.MustCompile(`\d+(\.\d+)+`).FindString(ask("cmd", "/c", "ver")); m != "" {
			h.Kernel = m
		}
	}
	for _, tool := range gpuTools() {
		ctx, cancel := context.WithTimeout(ctx, factTimeout)
		found, _ := tool.ask(ctx, run, tool.facts)
		cancel()
		for i, g := range found {
			if g.gpu.Name == "" {
				notes = append(notes, fmt.Sprintf("%s does not name GPU %d", tool.name, i))
				continue
			}
			h.GPUs = append(h.GPUs, g.gpu)
		}
		if len(h.GPUs) > 0 {
			break
		}
	}
	h.Type = machineType(h, goos)
	return h, notes
}

// machineType sorts a machine by its first GPU's name, because no program
// says it: parts that share the memory of the CPU are known by name.
func machineType(h runlog.Hardware, goos string) string {
	if len(h.GPUs) == 0 {
		if goos == "darwin" && strings.HasPrefix(h.CPU, "Apple") {
			return "Unified memory"
		}
		return "CPU"
	}
	name := strings.ToLower(h.GPUs[0].Name)
	for _, part := range []string{"gb10", "orin", "xavier", "thor", "tegra", "jetson", "mi300a", "8060s", "8050s"} {
		if strings.Contains(name, part) {
			return "Unified memory"
		}
	}
	for _, part := range []string{"radeon graphics", "radeon(tm) graphics", "780m", "760m", "880m", "890m", "680m"} {
		if strings.Contains(name, part) {
			return "Integrated GPU"
		}
	}
	return "Discrete GPU"
}

// linuxCPU returns the model name of the first core; "" where there is none.
func linuxCPU(proc string) string {
	f, err := os.Open(filepath.Join(proc, "cpuinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) == "model name" {
			return known(value)
		}
	}
	return ""
}

// memoryLine returns a line of meminfo in bytes, 0 when it is not there.
func memoryLine(proc, name string) int64 {
	b, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(lineValue(string(b), name), " kB"), 10, 53)
	if err != nil || n < 0 {
		return 0
	}
	return n * 1024
}

// lineValue returns what stands behind the prefix on the first line that
// has it.
func lineValue(s, prefix string) string {
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// clean makes foreign text fit for a fact: valid UTF-8, one line, no
// control characters, at most n code points.
func clean(s string, n int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\ufffd")), " ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		s = string(r[:n])
	}
	return s
}

// ServingGPUs returns those of the machine's GPUs that a server with this
// command and environment uses: CUDA_VISIBLE_DEVICES and its relatives where
// they hold plain numbers, then as many as the parallelism flags multiply to,
// one where there are none. Without a command all stay.
func ServingGPUs(gpus []runlog.GPU, args []string, env map[string]string) []runlog.GPU {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} {
		value, ok := env[name]
		if !ok || value == "" {
			continue
		}
		var visible []runlog.GPU
		for _, s := range strings.Split(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || n < 0 || n >= len(gpus) {
				visible = nil
				break
			}
			visible = append(visible, gpus[n])
		}
		if len(visible) > 0 {
			gpus = visible
		}
		break
	}
	if !looksLikeServer(args) {
		return gpus
	}
	f := ParseCommand(args)
	if n := max(1, f.TensorParallel) * max(1, f.PipelineParallel) * max(1, f.DataParallel); n < len(gpus) {
		gpus = gpus[:n]
	}
	return gpus
}

// armCPU asks lscpu, which keeps a table of ARM's part numbers.
func armCPU(ctx context.Context, run Runner) string {
	ctx, cancel := context.WithTimeout(ctx, factTimeout)
	defer cancel()
	out, err := run(ctx, "lscpu")
	if err != nil {
		return ""
	}
	return known(lineValue(string(out), "Model name:"))
}
