package main

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"speedmatrix/bench/process"
)

// watched runs a program that can't be asked, and returns also the most
// memory that it had resident, as it was seen while it ran: what the system
// says afterwards begins at our own size. 0 is unknown.
func watched(name string, args ...string) (process.Usage, int64, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = nil // it talks of what it did
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return process.Usage{}, 0, err
	}
	stop, seen := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		peak := int64(0)
		for {
			select {
			case <-stop:
				seen <- peak
				return
			case <-tick.C:
				peak = max(peak, process.PeakBytesOf(cmd.Process.Pid))
			}
		}
	}()
	err := cmd.Wait()
	wall := time.Since(start)
	close(stop)
	peak := <-seen
	if err != nil {
		return process.Usage{}, 0, fmt.Errorf("run %s: %w", strings.Join(cmd.Args, " "), err)
	}
	return process.Usage{Wall: wall, CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, peak, nil
}
