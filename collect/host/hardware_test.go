package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"speedmatrix/ingest/runlog"
)

// programs is a Runner of programs whose answers are fixed: by name, or by
// name and a part of the arguments ("name part").
func programs(answers map[string]string) Runner {
	return func(_ context.Context, name string, args ...string) ([]byte, error) {
		line := strings.Join(args, " ")
		for key, answer := range answers {
			program, part, _ := strings.Cut(key, " ")
			if program == name && strings.Contains(line, part) {
				return []byte(answer), nil
			}
		}
		return nil, errors.New("not found")
	}
}

func linuxProc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const rocmFacts = `WARNING: AMD GPU device(s) is/are in a low-power state.
{"card1": {"Card Series": "N/A", "Card Model": "0x7551", "Device Name": "AMD Radeon AI PRO R9700", "VRAM Total Memory (B)": "34208743424", "VRAM Total Used Memory (B)": "1"},
 "card0": {"Card series": "AMD Instinct MI300X OAM", "VRAM Total Memory (B)": "206141652992", "Max Graphics Package Power (W)": "750.0"},
 "system": {"Driver version": "6.10.5"}}`

func TestHardware(t *testing.T) {
	proc := linuxProc(t, map[string]string{
		"cpuinfo":              "processor\t: 0\nmodel name\t: AMD EPYC  9554 64-Core Processor\nprocessor\t: 1\nmodel name\t: x\n",
		"meminfo":              "MemTotal:       131072 kB\nMemAvailable:    65536 kB\n",
		"sys/kernel/osrelease": "6.8.0-45-generic\n",
	})
	base := runlog.Hardware{OS: "linux", CPU: "AMD EPYC 9554 64-Core Processor", MemoryBytes: 128 << 20, Kernel: "6.8.0-45-generic"}
	with := func(kind string, gpus ...runlog.GPU) runlog.Hardware {
		h := base
		h.Type, h.GPUs = kind, gpus
		return h
	}
	rtx := runlog.GPU{Name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", VRAMBytes: 97887 << 20, Driver: "580.65.06", PowerLimitW: 600}
	for _, tt := range []struct {
		name  string
		run   Runner
		want  runlog.Hardware
		notes []string
	}{
		{"nvidia-smi", programs(map[string]string{"nvidia-smi": "0, NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887, 580.65.06, 600.00\n1, NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887, 580.65.06, 600.00\n"}), with("Discrete GPU", rtx, rtx), nil},
		{"what is not available stays unknown", programs(map[string]string{"nvidia-smi": "0, NVIDIA GB10, [N/A], 580.95.05, [Not Supported]\n"}), with("Unified memory", runlog.GPU{Name: "NVIDIA GB10", Driver: "580.95.05"}), nil},
		{"a GPU without a name is none", programs(map[string]string{"nvidia-smi": "0, [Unknown Error], [N/A], [N/A], [N/A]\n"}), with("CPU"), []string{"nvidia-smi does not name GPU 0"}},
		{"a program that fails", programs(map[string]string{"nvidia-smi": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"}), with("CPU"), nil},
		{"rocm-smi", programs(map[string]string{"rocm-smi": rocmFacts}), with("Discrete GPU",
			runlog.GPU{Name: "AMD Instinct MI300X OAM", VRAMBytes: 206141652992, Driver: "6.10.5", PowerLimitW: 750},
			runlog.GPU{Name: "AMD Radeon AI PRO R9700", VRAMBytes: 34208743424, Driver: "6.10.5"}), nil},
		{"an integrated GPU", programs(map[string]string{"rocm-smi": `{"card0": {"Card Series": "AMD Radeon 780M Graphics"}}`}), with("Integrated GPU", runlog.GPU{Name: "AMD Radeon 780M Graphics"}), nil},
		{"no program", programs(nil), with("CPU"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, notes := hardware(t.Context(), tt.run, "linux", proc)
			if d := cmp.Diff(tt.want, got) + cmp.Diff(tt.notes, notes); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestHardwareOfOtherSystems(t *testing.T) {
	mac := programs(map[string]string{"sysctl brand_string": "Apple M4 Max\n", "sysctl hw.memsize": "68719476736\n", "sysctl osrelease": "24.6.0\n"})
	got, _ := hardware(t.Context(), mac, "darwin", "")
	want := runlog.Hardware{Type: "Unified memory", CPU: "Apple M4 Max", MemoryBytes: 64 << 30, OS: "darwin", Kernel: "24.6.0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("darwin -want +got:\n%s", d)
	}
	t.Setenv("PROCESSOR_IDENTIFIER", "Intel64 Family 6")
	got, _ = hardware(t.Context(), programs(map[string]string{"cmd": "\r\nMicrosoft Windows [Version 10.0.22631.4317]\r\n"}), "windows", "")
	want = runlog.Hardware{Type: "CPU", CPU: "Intel64 Family 6", OS: "windows", Kernel: "10.0.22631.4317"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("windows -want +got:\n%s", d)
	}
	arm := linuxProc(t, map[string]string{"cpuinfo": "processor : 0\nCPU part : 0xd4f\n"})
	got, _ = hardware(t.Context(), programs(map[string]string{"lscpu": "Architecture: aarch64\nModel name:          Neoverse-V2\n"}), "linux", arm)
	if got.CPU != "Neoverse-V2" || got.MemoryBytes != 0 {
		t.Errorf("ARM: CPU %q, memory %d, want Neoverse-V2, unknown", got.CPU, got.MemoryBytes)
	}
}

func TestServingGPUs(t *testing.T) {
	all := []runlog.GPU{{Name: "0"}, {Name: "1"}, {Name: "2"}, {Name: "3"}}
	serve := func(flags ...string) []string { return append([]string{"vllm", "serve", "org/m"}, flags...) }
	for _, tt := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"nothing known", nil, nil, "0123"},
		{"one GPU unless told", serve(), nil, "0"},
		{"tensor parallel", serve("-tp", "2"), nil, "01"},
		{"all kinds of parallel", serve("-tp", "2", "-pp=2"), nil, "0123"},
		{"more than there are", serve("-tp", "8"), nil, "0123"},
		{"visible devices", serve("-tp", "2"), map[string]string{"CUDA_VISIBLE_DEVICES": "3,1,0"}, "31"},
		{"devices by another name", serve(), map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-8a1c"}, "0"},
		{"an unknown command", []string{"other"}, map[string]string{"HIP_VISIBLE_DEVICES": "2"}, "2"},
	} {
		got := ""
		for _, g := range ServingGPUs(all, tt.args, tt.env) {
			got += g.Name
		}
		if got != tt.want {
			t.Errorf("%s: GPUs %q, want %q", tt.name, got, tt.want)
		}
	}
}

// settle waits until the sampler's program has ended.
func settle(s *Sampler) {
	for {
		s.mu.Lock()
		asking := s.asking
		s.mu.Unlock()
		if !asking {
			return
		}
		runtime.Gosched()
	}
}

func gpuRows(rows []runlog.Sample) []string {
	var out []string
	for _, r := range rows {
		if r.Source == runlog.SourceGPU {
			out = append(out, fmt.Sprintf("%d %s[%d]=%v", r.TUs, r.Name, r.Index, r.Value))
		}
	}
	return out
}

func TestSamplerGPU(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers map[string]string
		want    []string
	}{
		{"nvidia-smi", map[string]string{"nvidia-smi event_reasons": "0, 312.55, 1950, 61, 98, 40000, 0x0000000000000004\n"},
			[]string{"7 power_w[0]=312.55", "7 sm_clock_mhz[0]=1950", "7 temperature_c[0]=61", "7 throttle_reasons[0]=4", "7 utilization_ratio[0]=0.98", "7 memory_used_bytes[0]=4.194304e+10"}},
		{"an older nvidia-smi", map[string]string{"nvidia-smi throttle_reasons": "0, 10, 210, 30, 0, 1, 0x0\n"},
			[]string{"7 power_w[0]=10", "7 sm_clock_mhz[0]=210", "7 temperature_c[0]=30", "7 throttle_reasons[0]=0", "7 utilization_ratio[0]=0", "7 memory_used_bytes[0]=1.048576e+06"}},
		{"[N/A] is no row", map[string]string{"nvidia-smi": "0, [N/A], 1100, [Not Supported], [N/A], [N/A], [N/A]\n1, [N/A], [N/A], 40, [N/A], [N/A], [N/A]\n"},
			[]string{"7 sm_clock_mhz[0]=1100", "7 temperature_c[1]=40"}},
		{"rocm-smi", map[string]string{"rocm-smi": `{"card0": {"Temperature (Sensor edge) (C)": "35.0", "Temperature (Sensor junction) (C)": "36.0", "Average Graphics Package Power (W)": "19.0", "sclk clock speed:": "(2100Mhz)", "GPU use (%)": "3", "VRAM Total Used Memory (B)": "1024"}}`},
			[]string{"7 power_w[0]=19", "7 sm_clock_mhz[0]=2100", "7 temperature_c[0]=36", "7 utilization_ratio[0]=0.03", "7 memory_used_bytes[0]=1024"}},
		{"no program", nil, nil},
		{"nonsense", map[string]string{"nvidia-smi": "\x00\xff,,,\n\"", "rocm-smi": "[1]"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSampler(programs(tt.answers))
			defer s.Close()
			if first := gpuRows(s.Sample(7)); first != nil {
				t.Errorf("first sample has GPU rows %q, want none yet", first)
			}
			settle(s)
			if d := cmp.Diff(tt.want, gpuRows(s.Sample(1e9))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestSamplerNeverWaitsAndNeverAsksTwiceAtOnce(t *testing.T) {
	release, started := make(chan struct{}), make(chan struct{}, 10)
	s := NewSampler(func(ctx context.Context, name string, args ...string) ([]byte, error) {
		started <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return []byte("0, 1, 2, 3, 4, 5, 0x0\n"), ctx.Err()
	})
	for tUs := range int64(5) {
		s.Sample(tUs)
	}
	<-started
	close(release)
	settle(s)
	if n := len(started); n != 0 {
		t.Errorf("%d more programs were started while one ran, want none", n)
	}
	if rows := gpuRows(s.Sample(6)); len(rows) != 6 || !strings.HasPrefix(rows[0], "0 ") {
		t.Errorf("got %q, want six rows of the time of the question, 0", rows)
	}
	s.Close()
	settle(s)
	s.Sample(1 << 40)
	settle(s)
	if n := len(started); n > 1 {
		t.Errorf("a program was started after Close")
	}
}

func TestSamplerWithoutRunner(t *testing.T) {
	s := NewSampler(nil)
	defer s.Close()
	if rows := gpuRows(append(s.Sample(1), s.Sample(2)...)); rows != nil {
		t.Errorf("got %q, want no GPU rows", rows)
	}
}

func TestSamplerHost(t *testing.T) {
	proc := linuxProc(t, map[string]string{"stat": "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n", "meminfo": "MemAvailable: 4 kB\n"})
	s := NewSampler(nil)
	s.proc = proc
	find := func(rows []runlog.Sample, source runlog.Source, name string) (float64, bool) {
		for _, r := range rows {
			if r.Source == source && r.Name == name {
				return r.Value, true
			}
		}
		return 0, false
	}
	rows := s.Sample(0)
	if _, ok := find(rows, runlog.SourceHost, runlog.MetricCPURatio); ok {
		t.Error("a CPU ratio at the first sample, want none: there is no time before")
	}
	if v, _ := find(rows, runlog.SourceHost, runlog.MetricMemoryAvailable); v != 4096 {
		t.Errorf("memory available = %v, want 4096", v)
	}
	if err := os.WriteFile(filepath.Join(proc, "stat"), []byte("cpu  130 0 100 860 10 0 0 0 0 0\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	rows = s.Sample(1)
	if v, ok := find(rows, runlog.SourceHost, runlog.MetricCPURatio); v != 0.3 || !ok {
		t.Errorf("CPU ratio = %v, %v, want 30 busy of 100 ticks", v, ok)
	}
	if v, ok := find(rows, runlog.SourceClient, runlog.MetricCPURatio); !ok || v < 0 {
		t.Errorf("cores kept busy by the client = %v, %v, want a value of 0 or more", v, ok)
	}
	s.proc = t.TempDir()
	if _, ok := find(s.Sample(2), runlog.SourceHost, runlog.MetricMemoryAvailable); ok {
		t.Error("without /proc there is a memory row, want none")
	}
}
