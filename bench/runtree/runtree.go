// Package runtree makes trees of run directories out of one: the same events
// under other names, models, hardware and engine versions, as a repository
// collects them over a year.
//
// It must not measure anything and must not know what reads the trees.
package runtree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"speedmatrix/ingest/runlog"
)

// A Tree makes runs like one run.
type Tree struct {
	dir      string
	manifest *runlog.Manifest
}

// Like returns a tree of runs that are like the one in dir.
func Like(dir string) (*Tree, error) {
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	return &Tree{dir, m}, nil
}

// Small returns the tree of runs that have only the first prefill and the
// first decode measurement of each: the smallest that a page can be made of.
func (t *Tree) Small() *Tree {
	m := *t.manifest
	m.Plan.ContextsTokens, m.Plan.Concurrency = m.Plan.ContextsTokens[:1], m.Plan.Concurrency[:1]
	m.Plan.PrefillContextsTokens = m.Plan.PrefillContextsTokens[:1]
	m.Plan.Order, m.Cells = nil, nil
	for _, k := range m.Plan.Keys() {
		m.Plan.Order = append(m.Plan.Order, k.Name())
	}
	for _, c := range t.manifest.Cells {
		if slices.Contains(m.Plan.Keys(), runlog.Key{Phase: c.Phase, ContextTokens: c.ContextTokens, Concurrency: c.Concurrency}) {
			m.Cells = append(m.Cells, c)
		}
	}
	m.Warmup, m.Telemetry = nil, nil
	return &Tree{t.dir, &m}
}

// The runs of a tree are of so many models and kinds of hardware: with 1,000
// runs a history has 100.
var (
	models   = []string{"google/gemma-4-E2B-it", "Qwen/Qwen3-0.6B", "poolside/Laguna-M.1", "mistralai/Ministral-3B", "other/gemma-4-E2B-it"}
	hardware = []runlog.GPU{
		{Name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", VRAMBytes: 96 << 30, Driver: "580.10"},
		{Name: "NVIDIA H200", VRAMBytes: 141 << 30, Driver: "580.10"},
	}
)

// Name returns the name of a tree's i-th run.
func Name(i int) string { return fmt.Sprintf("run-%05d", i) }

// Write writes the runs from the first up to, not including, the last into
// the directory root.
func (t *Tree) Write(root string, first, last int) error {
	for i := first; i < last; i++ {
		if err := t.write(filepath.Join(root, Name(i)), i); err != nil {
			return fmt.Errorf("write run %d: %w", i, err)
		}
	}
	return nil
}

func (t *Tree) write(dir string, i int) error {
	m := *t.manifest
	m.StartedAt = time.Date(2025, 11, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(i) * 50 * time.Minute)
	m.Model.Repository = models[i%len(models)]
	m.Hardware.GPUs = hardware[i/len(models)%len(hardware):][:1]
	commit := fmt.Sprintf("%012x%028x", 0x73a5831127a9+int64(i/10)*7919e9%(1<<47), i)
	m.Engine.Name = &runlog.Fact{Value: "vllm", Source: runlog.FromFlag}
	m.Engine.Version = &runlog.Fact{Value: fmt.Sprintf("0.21.1rc1.dev%d+g%s", 400+i/10, commit[:9]), Source: runlog.FromFlag}
	m.Engine.Commit = &runlog.Fact{Value: commit, Source: runlog.FromFlag}
	files := []runlog.FileInfo{}
	for _, c := range m.Cells {
		files = append(files, c.FileInfo)
	}
	if m.Warmup != nil {
		files = append(files, m.Warmup.FileInfo)
	}
	if m.Telemetry != nil {
		files = append(files, m.Telemetry.FileInfo)
	}
	if err := os.MkdirAll(filepath.Join(dir, "cells"), 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if f.File == "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(t.dir, filepath.FromSlash(f.File)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(f.File)), data, 0o644); err != nil {
			return err
		}
	}
	return runlog.WriteManifest(dir, &m)
}
