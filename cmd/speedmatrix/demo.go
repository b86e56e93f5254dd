package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/host"
	"speedmatrix/collect/server"
	"speedmatrix/collect/simserver"
	"speedmatrix/render"
)

const demoHelp = `Usage: speedmatrix demo [flags]

Starts a simulated vLLM server on a loopback port, measures a small matrix of
it over real HTTP, renders the pages, and prints where they are. It takes
less than a minute. The figures are those of the simulation, not of a model.

  -o, --out DIR   directory for results/ and site/ (default a new one below the temporary directory)

Example:
  speedmatrix demo -o demo && open demo/site/index.html
`

// demoServer is the ground truth of the demo: small and quick, with a KV
// cache that the largest cell does not fit, and an output that falls into a
// loop where many requests run at the longer context.
func demoServer() simserver.Config {
	return simserver.Config{
		Seed: 7, Model: "simulated-8b", MaxModelLen: 40960, KVCacheTokens: 150_000,
		PrefillSpeed: 60_000, Jitter: 0.05, StallShare: 0.001, StallTime: 30 * time.Millisecond,
		DraftTokens: 4, AcceptedMean: 3.4, ReasoningTokens: 40,
		CompileTime: 300 * time.Millisecond, CachedTokens: true,
		Loop: simserver.Loop{After: 48, Period: 24, MinBatch: 8, Context: 8192},
	}
}

// demoPlan is a matrix that takes less than a minute.
func demoPlan() collect.PlanRequest {
	return collect.PlanRequest{
		ContextsTokens: []int32{2048, 8192, 32768}, Concurrency: []int32{1, 2, 4, 8},
		Duration: 2500 * time.Millisecond, MaxOutputTokens: 2048,
	}
}

func runDemo(e *env, args []string) error {
	var out string
	fs := newFlags(e, "demo", demoHelp)
	fs.StringVarP(&out, "out", "o", "", "")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0)), "the directory is given by --out"}
	}
	if out == "" {
		var err error
		if out, err = os.MkdirTemp("", "speedmatrix-demo-"); err != nil {
			return fmt.Errorf("make demo directory: %w", err)
		}
	}
	sim, err := simserver.New(demoServer())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	ctx, stop := context.WithCancel(e.ctx)
	served := make(chan error, 1)
	go func() { served <- sim.Serve(ctx, l) }()
	defer func() {
		stop()
		<-served
	}()

	u, err := server.ParseURL("http://" + l.Addr().String())
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stderr, "simulated server at %s: its figures are those of a simulation\n", u)
	dir, err := measure(e, collect.Config{
		URL: u, Plan: demoPlan(), Idle: time.Minute, ReadyHold: 300 * time.Millisecond, DrainHold: 200 * time.Millisecond,
		Random: rand.Reader, Machine: host.System(), Tool: tool(), Root: filepath.Join(out, "results"),
		Facts: collect.Facts{
			Engine: "vllm (simulated)", EngineRepository: "speedmatrix simulate", Quantization: "none",
			GPU: "Simulated GPU", VRAMBytes: 24 << 30, HardwareType: "Discrete GPU",
			LaunchCommand: []string{"speedmatrix", "simulate"},
		},
	})
	if err != nil {
		return err
	}
	layer, err := chartLayer()
	if err != nil {
		return err
	}
	result, err := render.Build(e.ctx, []string{dir}, filepath.Join(out, "site"), render.Options{Layer: layer})
	if err != nil {
		return interruptedOr(err)
	}
	fmt.Fprintf(e.stderr, "page: ")
	fmt.Fprintln(e.stdout, result.Index)
	return nil
}
