package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Why there is no process to describe.
var (
	ErrUnsupported = errors.New("a server's process can be read on Linux only")
	ErrNoProcess   = errors.New("no process of this user listens on the port")
)

// A Process is a server that runs on this machine. Args and Env hold what
// was found: they are for a Redactor, not for a file.
type Process struct {
	PID    int
	Args   []string          // launch command, without the interpreter before a script
	Env    map[string]string // serving variables of the allow-list; nil when it could not be read
	Engine CommandFacts      // what Args say
}

// ServerProcess returns the process that listens on the TCP port, or its
// ancestor that was launched as the server where the listener is only a
// worker of it. It returns ErrUnsupported elsewhere than on Linux, and
// ErrNoProcess when the port is not held by a process that this user may
// look into (another user's, one in a container).
func ServerProcess(port int) (*Process, error) {
	if runtime.GOOS != "linux" {
		return nil, ErrUnsupported
	}
	return serverProcess(Proc, port)
}

func serverProcess(proc string, port int) (*Process, error) {
	inodes := listeners(proc, port)
	if len(inodes) == 0 {
		return nil, ErrNoProcess
	}
	found := make(map[int]bool)
	for _, pid := range holders(proc, inodes) {
		found[launcher(proc, pid)] = true
	}
	pids := slices.Sorted(maps.Keys(found))
	switch len(pids) {
	case 0:
		return nil, ErrNoProcess
	case 1:
	default:
		return nil, fmt.Errorf("%d unrelated processes listen on port %d", len(pids), port)
	}
	pid := pids[0]
	args := cmdline(proc, pid)
	if len(args) == 0 {
		return nil, ErrNoProcess
	}
	if name := filepath.Base(args[0]); slices.Contains([]string{"docker-proxy", "rootlessport", "ssh", "sshd", "kubectl", "nginx", "haproxy", "envoy", "caddy", "socat"}, strings.TrimSuffix(name, ":")) {
		return nil, fmt.Errorf("port %d is held by %s, which only forwards it", port, strings.TrimSuffix(name, ":"))
	}
	args = withoutInterpreter(args)
	return &Process{PID: pid, Args: args, Env: servingEnv(proc, pid), Engine: ParseCommand(args)}, nil
}

// listeners returns the inodes of the sockets that listen on the port.
func listeners(proc string, port int) map[string]bool {
	inodes := make(map[string]bool)
	suffix := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		b, err := readBounded(filepath.Join(proc, table), 64<<20)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) && f[9] != "0" {
				inodes[f[9]] = true
			}
		}
	}
	return inodes
}

// holders returns the processes that have one of the sockets open.
func holders(proc string, inodes map[string]bool) []int {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(proc, e.Name(), "fd")
		fds, err := os.ReadDir(dir) // fails for other users' processes
		if err != nil {
			continue
		}
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok && inodes[strings.TrimSuffix(inode, "]")] {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// launcher returns the nearest of the process and its ancestors that looks
// like a server's launch command; the process itself when none does.
func launcher(proc string, pid int) int {
	for p, depth := pid, 0; p > 1 && depth < 16; depth++ {
		if looksLikeServer(cmdline(proc, p)) {
			return p
		}
		p = parent(proc, p)
	}
	return pid
}

// looksLikeServer reports whether a command launches a server. Workers of
// vLLM rewrite their command line to a title such as "VLLM::APIServer_0".
func looksLikeServer(args []string) bool {
	for i, a := range args {
		base := strings.TrimSuffix(filepath.Base(a), ".exe")
		switch {
		case strings.HasPrefix(a, "vllm.entrypoints."), strings.HasSuffix(a, "openai/api_server.py"):
			return true
		case i+1 < len(args) && (base == "vllm" || base == "vllm.entrypoints.cli.main") && args[i+1] == "serve":
			return true
		case i+1 < len(args) && base == "speedmatrix" && args[i+1] == "simulate":
			return true
		}
	}
	return false
}

func parent(proc string, pid int) int {
	b, err := readBounded(filepath.Join(proc, strconv.Itoa(pid), "stat"), 4096)
	if err != nil {
		return 0
	}
	// pid (name) state ppid …, where the name may hold spaces and brackets.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	ppid, err := strconv.Atoi(f[1])
	if err != nil {
		return 0
	}
	return ppid
}

func cmdline(proc string, pid int) []string {
	b, err := readBounded(filepath.Join(proc, strconv.Itoa(pid), "cmdline"), 1<<20)
	if err != nil || len(b) == 0 {
		return nil
	}
	var args []string
	for _, a := range bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		args = append(args, strings.ToValidUTF8(string(a), "\ufffd"))
	}
	return args
}

// withoutInterpreter drops "python" before the script that a person called.
func withoutInterpreter(args []string) []string {
	if len(args) > 1 && strings.HasPrefix(filepath.Base(args[0]), "python") &&
		filepath.IsAbs(args[1]) && !strings.HasSuffix(args[1], ".py") {
		return args[1:]
	}
	return args
}

// servingEnv returns the variables that change how the engine serves.
func servingEnv(proc string, pid int) map[string]string {
	b, err := readBounded(filepath.Join(proc, strconv.Itoa(pid), "environ"), 1<<20)
	if err != nil {
		return nil
	}
	env := make(map[string]string)
	for _, v := range bytes.Split(b, []byte{0}) {
		name, value, ok := strings.Cut(strings.ToValidUTF8(string(v), "\ufffd"), "=")
		if ok && servingVariable(name) {
			env[name] = value
		}
	}
	return env
}

// servingVariable is the allow-list. Names that may hold a secret or an
// address are never on it.
func servingVariable(name string) bool {
	for _, part := range []string{"KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH", "HOST", "_IP", "ADDR", "URL", "PROXY", "USER"} {
		if strings.Contains(name, part) {
			return false
		}
	}
	for _, exact := range []string{
		"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
		"OMP_NUM_THREADS", "MKL_NUM_THREADS", "MAX_JOBS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "LD_PRELOAD", "SAFETENSORS_FAST_GPU",
	} {
		if name == exact {
			return true
		}
	}
	for _, prefix := range []string{"VLLM_", "NCCL_", "RCCL_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "FLASHINFER_", "TRITON_", "HSA_", "CUBLAS_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// readBounded reads a file of the process table, whose size is not known
// before, up to a bound.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
