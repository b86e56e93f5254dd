package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/server"

	"golang.org/x/term"
)

// A repetition is collect measuring one server several times, started anew
// in between: launches are what commits can be compared by.
type repetition struct {
	launches int
	restart  []string // command that starts the server anew; nil: someone is asked to
}

// Waiting for a server that was started anew: a large model is loaded for a
// long time.
const (
	restartLimit = time.Hour
	restartPoll  = 500 * time.Millisecond
)

func (r *repetition) check(cfg collect.Config, command string) error {
	last := fmt.Sprintf("%s-%d", cfg.Name, r.launches)
	switch {
	case r.launches < 1 || r.launches > 100:
		return usageError{fmt.Sprintf("--launches is %d, want 1 to 100", r.launches), "3 are usual"}
	case r.launches == 1 && command != "":
		return usageError{"--restart-command without --launches", "such as --launches 3"}
	case command != "" && len(r.restart) == 0:
		return usageError{"--restart-command is empty", ""}
	case r.launches > 1 && cfg.Resume != "":
		return usageError{"--resume and --launches exclude each other", "resume the run that was interrupted, then measure the launches that are missing"}
	case r.launches > 1 && cfg.Name != "" && !isPlainName(last):
		return usageError{fmt.Sprintf("--name: %q is too long for the last launch", last), ""}
	}
	return nil
}

// run measures every launch, each with a fresh salt, and prints their
// directories. It ends at the first that does not end well.
func (r *repetition) run(e *env, cfg collect.Config) error {
	ask := r.restart == nil
	if ask && !onTerminal(os.Stdin) {
		return usageError{"--launches needs someone who starts the server anew, or a --restart-command", `such as --restart-command "docker restart vllm"`}
	}
	input := bufio.NewReader(os.Stdin)
	return r.runEach(e, cfg, func(ctx context.Context) (bool, error) {
		if !ask {
			return true, runRestart(ctx, e.stderr, r.restart)
		}
		return askForRestart(ctx, e.stderr, input)
	})
}

func onTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// runEach is run with the way in which the server is started anew, which
// reports whether it was.
func (r *repetition) runEach(e *env, cfg collect.Config, restart func(context.Context) (bool, error)) error {
	id := make([]byte, 8)
	if _, err := io.ReadFull(cfg.Random, id); err != nil {
		return fmt.Errorf("name session: %w", err)
	}
	name := cfg.Name
	cfg.Launch.Group = hex.EncodeToString(id)
	for i := 1; i <= r.launches; i++ {
		cfg.Launch.Index, cfg.Launch.Order = i, i
		if i > 1 {
			anew, err := restart(e.ctx)
			if e.ctx.Err() != nil {
				fmt.Fprintf(e.stderr, "interrupted after %d of %d launches\n", i-1, r.launches)
				return errInterrupted
			}
			if err != nil {
				return fmt.Errorf("start server anew: %w", err)
			}
			cfg.Launch.Restarted = &anew
			if err := awaitServer(e.ctx, server.New(cfg.URL, cfg.Key, cfg.Header)); err != nil {
				return err
			}
		}
		fmt.Fprintf(e.stderr, "launch %d of %d\n", i, r.launches)
		if name != "" {
			cfg.Name = fmt.Sprintf("%s-%d", name, i)
		}
		dir, err := measure(e, cfg)
		if dir != "" {
			fmt.Fprintln(e.stdout, dir)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(e.stderr, "compare them with those of another commit: speedmatrix diff; three or more make a profile: speedmatrix noise")
	return nil
}

// runRestart runs a command to its end. What it leaves running in the
// background may go on writing to nowhere.
func runRestart(ctx context.Context, talk io.Writer, command []string) error {
	fmt.Fprintf(talk, "starting the server anew: %s\n", command[0])
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = talk, talk
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("run %q: %w", command[0], err)
	}
	return nil
}

// askForRestart waits until someone says whether the server was started anew.
func askForRestart(ctx context.Context, talk io.Writer, input *bufio.Reader) (anew bool, err error) {
	fmt.Fprint(talk, "start the server anew, then press Return (or type \"same\" to go on with the same one): ")
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := input.ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case a := <-got:
		if a.err != nil {
			return false, fmt.Errorf("read answer: %w", a.err)
		}
		return strings.TrimSpace(a.line) != "same", nil
	}
}

// awaitServer waits until the server answers and has a model.
func awaitServer(ctx context.Context, s *server.Client) error {
	ctx, stop := context.WithTimeout(ctx, restartLimit)
	defer stop()
	for {
		models, err := s.Models(ctx)
		if err == nil && len(models) > 0 {
			return nil
		}
		wait := time.NewTimer(restartPoll)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("wait for the server: it did not come up again in %v: %w", restartLimit, err)
			}
			return errInterrupted
		}
	}
}
