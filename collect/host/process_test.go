//go:build linux

package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeProc is a process table in a directory.
type fakeProc struct {
	t   *testing.T
	dir string
	tcp string
}

func newProc(t *testing.T) *fakeProc {
	return &fakeProc{t: t, dir: t.TempDir(), tcp: "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"}
}

func (p *fakeProc) write(name, content string) {
	p.t.Helper()
	name = filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		p.t.Fatal(err)
	}
}

// socket adds a line of net/tcp; state "0A" listens.
func (p *fakeProc) socket(port int, state string, inode int) {
	p.tcp += fmt.Sprintf("   0: 0100007F:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0000 100 0 0 10 0\n", port, state, inode)
	p.write("net/tcp", p.tcp)
}

func (p *fakeProc) process(pid, ppid int, env string, inode int, args ...string) {
	dir := fmt.Sprint(pid)
	p.write(dir+"/cmdline", strings.Join(args, "\x00")+"\x00")
	p.write(dir+"/stat", fmt.Sprintf("%d (VLLM: a (b) c) S %d 1 1 0", pid, ppid))
	p.write(dir+"/environ", env)
	if err := os.MkdirAll(filepath.Join(p.dir, dir, "fd"), 0o777); err != nil {
		p.t.Fatal(err)
	}
	if inode > 0 {
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(p.dir, dir, "fd", "7")); err != nil {
			p.t.Fatal(err)
		}
	}
}

func TestServerProcess(t *testing.T) {
	serve := []string{"/home/x/env/bin/python3", "/home/x/env/bin/vllm", "serve", "org/m", "--max-num-seqs", "8"}
	t.Run("a server that listens itself", func(t *testing.T) {
		p := newProc(t)
		p.socket(8000, "0A", 111)
		p.socket(8001, "0A", 222)
		p.process(10, 1, "VLLM_USE_V1=1\x00VLLM_API_KEY=k\x00PATH=/bin\x00CUDA_VISIBLE_DEVICES=0\x00HF_TOKEN=h\x00VLLM_HOST_IP=10.0.0.1\x00", 111, serve...)
		p.process(11, 1, "", 222, "other")
		got, err := serverProcess(p.dir, 8000)
		want := &Process{PID: 10, Args: serve[1:], Env: map[string]string{"VLLM_USE_V1": "1", "CUDA_VISIBLE_DEVICES": "0"}, Engine: CommandFacts{Model: "org/m", MaxNumSeqs: 8}}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("error %v, -want +got:\n%s", err, d)
		}
	})
	t.Run("workers of one server, which renamed themselves", func(t *testing.T) {
		p := newProc(t)
		p.socket(8000, "0A", 111)
		p.socket(8000, "0A", 112)
		p.process(10, 1, "", 0, serve...)
		p.process(20, 10, "", 111, "VLLM::APIServer_0")
		p.process(21, 10, "", 112, "VLLM::APIServer_1")
		got, err := serverProcess(p.dir, 8000)
		if err != nil || got.PID != 10 {
			t.Errorf("got %+v, %v, want process 10", got, err)
		}
	})
	t.Run("another server keeps its own command", func(t *testing.T) {
		p := newProc(t)
		p.socket(8000, "0A", 111)
		p.process(5, 1, "", 0, "bash")
		p.process(10, 5, "", 111, "llama-server", "-m", "x.gguf")
		got, err := serverProcess(p.dir, 8000)
		if err != nil || got.PID != 10 || got.Args[0] != "llama-server" {
			t.Errorf("got %+v, %v, want process 10", got, err)
		}
	})
	t.Run("two servers on one port of different addresses", func(t *testing.T) {
		p := newProc(t)
		p.socket(8000, "0A", 111)
		p.socket(8000, "0A", 112)
		p.process(10, 1, "", 111, serve...)
		p.process(11, 1, "", 112, serve...)
		if _, err := serverProcess(p.dir, 8000); err == nil || err.Error() != "2 unrelated processes listen on port 8000" {
			t.Errorf("got %v, want a refusal to choose", err)
		}
	})
	t.Run("a forwarder is not the server", func(t *testing.T) {
		p := newProc(t)
		p.socket(8000, "0A", 111)
		p.process(10, 1, "", 111, "/usr/bin/docker-proxy", "-proto", "tcp")
		if _, err := serverProcess(p.dir, 8000); err == nil || err.Error() != "port 8000 is held by docker-proxy, which only forwards it" {
			t.Errorf("got %v, want the forwarder named", err)
		}
	})
	t.Run("a connection to the port is no listener", func(t *testing.T) {
		p := newProc(t)
		p.socket(8000, "01", 111)
		p.process(10, 1, "", 111, serve...)
		if _, err := serverProcess(p.dir, 8000); !errors.Is(err, ErrNoProcess) {
			t.Errorf("got %v, want %v", err, ErrNoProcess)
		}
	})
	t.Run("no process table", func(t *testing.T) {
		if _, err := serverProcess(t.TempDir(), 8000); !errors.Is(err, ErrNoProcess) {
			t.Errorf("got %v, want %v", err, ErrNoProcess)
		}
	})
}

func TestServerProcessOfThisTest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := ServerProcess(l.Addr().(*net.TCPAddr).Port)
	if err != nil || p.PID != os.Getpid() || len(p.Args) == 0 {
		t.Errorf("got %+v, %v, want this process, %d", p, err, os.Getpid())
	}
}

func TestServingVariable(t *testing.T) {
	for name, want := range map[string]bool{
		"VLLM_USE_V1": true, "CUDA_VISIBLE_DEVICES": true, "NCCL_DEBUG": true, "PYTORCH_CUDA_ALLOC_CONF": true, "FLASHINFER_NVCC_THREADS": true, "TORCHINDUCTOR_COMPILE_THREADS": true, "MAX_JOBS": true,
		"VLLM_API_KEY": false, "HF_TOKEN": false, "PYTORCH_SECRET": false, "PATH": false, "HOSTNAME": false, "VLLM_HOST_IP": false, "USER": false, "MAX_JOBS_X": false,
	} {
		if got := servingVariable(name); got != want {
			t.Errorf("servingVariable(%q) = %v, want %v", name, got, want)
		}
	}
}
