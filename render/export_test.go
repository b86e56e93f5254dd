package render

import (
	"context"
	"fmt"
	"time"
)

// RunPage computes all files of one run, as a build does, and returns their
// size in bytes.
func RunPage(in Input) (bytes int, err error) {
	p, err := newRunPage(in, Options{})
	if err != nil {
		return 0, err
	}
	for _, d := range append(p.Files, p.Twin...) {
		bytes += len(d.Data)
	}
	return bytes, nil
}

// PagesOf returns a function that makes all pages about several runs of a
// site of n runs like one, in ten series, and returns their number.
func PagesOf(in Input, n int) func() (int, error) {
	runs := make([]*summary, n)
	for i := range runs {
		s := newSummary(in)
		s.ID = fmt.Sprintf("run-%05d", i)
		s.ModelID, s.Model = fmt.Sprintf("owner/model-%d", i%5), fmt.Sprintf("model-%d", i%5)
		s.Hardware = fmt.Sprintf("GPU %d", i/5%2)
		s.Series = s.ModelID + s.Hardware
		s.Version, s.Commit = fmt.Sprintf("0.30.%d", i/10), fmt.Sprintf("%012x", i/10+1)
		s.Started = s.Started.Add(time.Duration(i) * time.Hour)
		runs[i] = &s
	}
	return func() (int, error) {
		s, err := newSite(runs, Options{})
		if err != nil {
			return 0, err
		}
		if err := s.findSteps(context.Background()); err != nil {
			return 0, err
		}
		err = s.pages()
		return len(s.files), err
	}
}
