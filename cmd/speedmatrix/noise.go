package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"speedmatrix/ingest/compare"
)

// noiseFolder holds noise profiles, below the directory of runs.
const noiseFolder = "noise"

const noiseHelp = `Usage: speedmatrix noise RUN… [-o FILE]

Says how much launches of one commit under one setting differ from each
other: a noise profile, with which speedmatrix diff needs fewer launches. RUN
is a run directory, a directory of runs, a list of them with commas, or the
first digits of a commit. It takes three launches or more, each with a server
that was started anew.

      --results DIR   where commits are looked for (default results)
  -o, --output FILE   write the profile there instead of to stdout. In a
                      directory it gets the name under which diff looks for it
  -h, --help          this text

Examples:
  speedmatrix noise 73a5831127a9 -o results/noise
  speedmatrix noise results/launch-1 results/launch-2 results/launch-3
`

func runNoise(e *env, args []string) error {
	flags := newFlags(e, "noise", noiseHelp)
	results := flags.String("results", "results", "")
	output := flags.StringP("output", "o", "", "")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return usageError{"no run given", "speedmatrix noise RUN RUN RUN, three launches of one commit or more"}
	}
	var dirs []string
	for _, arg := range flags.Args() {
		found, err := findSide(arg, *results, runFilter{})
		if err != nil {
			return err
		}
		dirs = append(dirs, found...)
	}
	runs, err := loadRuns(e, dirs)
	if err != nil {
		return err
	}
	p, err := compare.NewProfile(runs)
	if errors.Is(err, compare.ErrNoProfile) {
		return hintedError{err, "it takes three launches of one commit, measured alike: speedmatrix collect --launches 3"}
	} else if err != nil {
		return err
	}
	b, err := p.Encode()
	if err != nil {
		return err
	}
	if *output == "" {
		return writeOut(e.stdout, string(b))
	}
	path := *output
	if info, err := os.Stat(path); filepath.Base(path) == noiseFolder || err == nil && info.IsDir() {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return fmt.Errorf("write noise profile: %w", err)
		}
		path = filepath.Join(path, compare.ProfileName(runs[0].Manifest))
	}
	if err := writeWhole(path, b); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.stdout, path)
	return err
}
