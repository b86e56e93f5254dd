package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// A Runner runs a program to its end and returns its standard output. The
// error says that it could not be started, failed, or was stopped by ctx.
type Runner func(ctx context.Context, name string, args ...string) ([]byte, error)

const maxProgramOutput = 1 << 20

// System returns the Runner that runs real programs: found on the PATH, in
// the C locale, with at most 1 MiB of output.
func System() Runner {
	return func(ctx context.Context, name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
		var out limited
		cmd.Stdout = &out
		err := cmd.Run()
		if out.over {
			err = errors.New("too much output")
		}
		return out.Bytes(), err
	}
}

// limited keeps the first maxProgramOutput bytes.
type limited struct {
	bytes.Buffer
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if n := maxProgramOutput - l.Len(); len(p) > n {
		l.over = true
		l.Buffer.Write(p[:n])
		return len(p), nil
	}
	return l.Buffer.Write(p)
}
