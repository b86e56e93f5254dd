//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
	"speedmatrix/render"
)

// A collector is a process of quickCollect at work on a server of its own.
type collector struct {
	cmd     *exec.Cmd
	started time.Time
	lines   chan string // of stderr, closed at its end
	stdout  bytes.Buffer

	talk     []string     // lines read so far
	reported []runlog.Key // cells that they call finished
}

// simulated starts a server for one collector. Its KV cache holds three
// requests of the shorter context and not of the longer.
func simulated(t *testing.T) string {
	s, err := simserver.New(simserver.Config{Seed: 1, MaxModelLen: 1024, KVCacheTokens: 2000, Speed: 2})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return ts.URL
}

// quickPlan has five cells to measure and one over capacity.
func quickPlan(url, results string) []string {
	return []string{"--url", url, "--out", results, "--contexts", "256,512", "--concurrency", "1,3", "--duration", "100ms", "--max-output", "400"}
}

func collectProcess(args ...string) (*collector, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &collector{cmd: exec.Command(exe, args...), lines: make(chan string, 100)}
	c.cmd.Env = append(os.Environ(), roleVariable+"=quick collect")
	c.cmd.Stdout = &c.stdout
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	c.started = time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.lines)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			c.lines <- sc.Text()
		}
	}()
	return c, nil
}

// resumeProcess goes on with the run that w is.
func resumeProcess(url string, w wreck) (*collector, error) {
	c, err := collectProcess("--url", url, "--resume", w.dir)
	if err != nil {
		return nil, err
	}
	for i := range w.m.Cells {
		if w.m.Cells[i].Outcome == runlog.OutcomeRecorded {
			c.reported = append(c.reported, w.m.Cells[i].Key())
		}
	}
	return c, nil
}

// next reads one line of talk; false when there are no more.
func (c *collector) next() bool {
	line, ok := <-c.lines
	if !ok {
		return false
	}
	c.hear(line)
	return true
}

var cellLine = regexp.MustCompile(`^ *\d+/\d+  (prefill|decode) (\d+)(?: × (\d+))?: `)

func (c *collector) hear(line string) {
	c.talk = append(c.talk, line)
	m := cellLine.FindStringSubmatch(line)
	if m == nil || strings.Contains(line, ": Over capacity: ") {
		return
	}
	context, _ := strconv.Atoi(m[2])
	concurrency, err := strconv.Atoi(m[3])
	if err != nil {
		concurrency = 1
	}
	c.reported = append(c.reported, runlog.Key{Phase: runlog.Phase(m[1]), ContextTokens: int32(context), Concurrency: int32(concurrency)})
}

// until reads until n cells are finished, then until d has passed. The
// process may end before that.
func (c *collector) until(n int, d time.Duration) {
	for len(c.reported) < n {
		if !c.next() {
			return
		}
	}
	for timeout := time.After(d); ; {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return
			}
			c.hear(line)
		case <-timeout:
			return
		}
	}
}

// end reads the rest and waits. The status is −1 for a process that a signal ended.
func (c *collector) end() (status int, err error) {
	for c.next() {
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return c.cmd.ProcessState.ExitCode(), nil
}

// A wreck is what a process left behind.
type wreck struct {
	dir      string           // "" where there is no run
	m        *runlog.Manifest // nil where there is no run
	partials int
}

// inspectWreck checks what must hold at any instant of a collector's life:
// there is no run yet, or one that loads and renders, in which every cell
// that was called finished is recorded, and at most one more that had just
// ended when the process did.
func inspectWreck(results string, reported []runlog.Key, site string) (wreck, error) {
	runs, err := runlog.FindRuns(results)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(runs) == 0 {
		if len(reported) > 0 {
			return wreck{}, fmt.Errorf("no run, though %v are said to be finished", reported)
		}
		return wreck{}, nil
	}
	if err != nil || len(runs) != 1 {
		return wreck{}, fmt.Errorf("runs %q (%v), want one", runs, err)
	}
	w := wreck{dir: runs[0]}
	if w.m, err = runlog.ReadManifest(w.dir); err != nil {
		return w, err
	}
	recorded := map[string]bool{}
	pending := 0
	for i := range w.m.Cells {
		switch c := &w.m.Cells[i]; c.Outcome {
		case runlog.OutcomeRecorded:
			recorded[c.Key().Name()] = true
		case runlog.OutcomePending:
			pending++
		case runlog.OutcomeFailed:
			return w, fmt.Errorf("%s failed: %s", c.Key().Name(), c.Reason)
		}
	}
	for _, key := range reported {
		if !recorded[key.Name()] {
			return w, fmt.Errorf("%s is said to be finished and is not recorded", key.Name())
		}
	}
	if n := len(recorded) - len(reported); n > 1 {
		return w, fmt.Errorf("%d cells recorded, %d said to be finished, want at most one more", len(recorded), len(reported))
	}
	if err := w.files(recorded); err != nil {
		return w, err
	}

	run, err := ingest.Load(w.dir)
	if err != nil {
		return w, err
	}
	notRun := 0
	for _, c := range slices.Concat(run.Prefill, run.Decode) {
		if c.Status == ingest.NotRun {
			notRun++
		}
	}
	if notRun != pending {
		return w, fmt.Errorf("%d cells are shown as not run, %d are pending", notRun, pending)
	}
	in, err := render.Open(w.dir)
	if err != nil {
		return w, err
	}
	if _, err := render.Site([]render.Input{in}, site); err != nil {
		return w, err
	}
	page, err := os.ReadFile(filepath.Join(site, "runs", filepath.Base(w.dir), "index.html"))
	if err != nil {
		return w, err
	}
	if says := bytes.Contains(page, []byte("Not run:")); says != (pending > 0) {
		return w, fmt.Errorf("%d cells are pending, the page says so: %v", pending, says)
	}
	return w, nil
}

// files checks that every file in the run is one of the run's, or one that
// was being written: a partial one, or that of one cell beyond the recorded.
func (w *wreck) files(recorded map[string]bool) error {
	lost := 0
	return filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimSuffix(d.Name(), ".parquet")
		switch {
		case strings.HasSuffix(name, ".partial"):
			if w.partials++; w.partials > 1 {
				return fmt.Errorf("%s is the second file that was being written", path)
			}
		case filepath.Dir(path) == w.dir:
			if d.Name() != runlog.ManifestFile && d.Name() != runlog.TelemetryFile {
				return fmt.Errorf("%s is no file of a run", path)
			}
		case strings.HasPrefix(name, "warmup"), recorded[name]:
		default:
			if lost++; lost > 1 {
				return fmt.Errorf("%s is the second cell that is lost", path)
			}
			i := slices.IndexFunc(w.m.Cells, func(c runlog.Cell) bool { return c.Key().Name() == name })
			if i < 0 {
				return fmt.Errorf("%s is no cell of the plan", path)
			}
			_, err = runlog.ReadEvents(w.dir, w.m.Cells[i].Key(), runlog.FileInfo{})
		}
		return err
	})
}

// wantFinished checks that a run has been worked off and tidied up.
func (w *wreck) wantFinished() error {
	for _, c := range w.m.Cells {
		if c.Outcome != runlog.OutcomeRecorded && c.Outcome != runlog.OutcomeOverCapacity {
			return fmt.Errorf("%s is %s %q, want recorded", c.Key().Name(), c.Outcome, c.Reason)
		}
	}
	if !w.m.Finished || w.m.Telemetry == nil || w.partials > 0 {
		return fmt.Errorf("finished %v, telemetry %v, %d partial files; want all of it and no partial file", w.m.Finished, w.m.Telemetry, w.partials)
	}
	return nil
}

// A kill is an instant: so many cells finished, and a part of the usual time
// to the next line.
type kill struct {
	cells int
	part  float64
}

// A pace is how long an undisturbed run took.
type pace struct {
	start, cell time.Duration // to the first finished cell; for each further one
}

func (k kill) after(p pace) time.Duration {
	if k.cells == 0 {
		return time.Duration(k.part * float64(p.start))
	}
	return time.Duration(k.part * float64(p.cell))
}

func TestKilledAtAnyInstantARunLosesAtMostOneCell(t *testing.T) {
	t.Parallel()
	const instants, atOnce = 50, 4
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	p, cells := undisturbed(t)
	t.Logf("an undisturbed run: %d cells, the first after %v, each further after %v", cells, p.start, p.cell)
	kills := make(chan kill, instants)
	for i := range instants {
		k := kill{random.IntN(cells), 1.2 * random.Float64()}
		if i%5 == 0 {
			// The moment in which a cell is said to be finished deserves
			// more than its share.
			k = kill{1 + random.IntN(cells-1), 0}
		}
		kills <- k
	}
	close(kills)

	var mu sync.Mutex
	var early, cut, whole, resumed int
	var wg sync.WaitGroup
	for range atOnce {
		url := simulated(t)
		wg.Go(func() {
			for k := range kills {
				results, site := t.TempDir(), t.TempDir()
				w, err := killOne(url, results, site, k, p)
				if err != nil {
					t.Errorf("killed %.2f of a cell's time after cell %d: %v", k.part, k.cells, err)
					continue
				}
				mu.Lock()
				again := false
				switch {
				case w.m == nil:
					early++
				case w.m.Finished:
					whole++
				default:
					cut++
					again = cut%6 == 1
				}
				mu.Unlock()
				if again {
					if err := killAndResume(url, results, site, w, p); err != nil {
						t.Errorf("killed %.2f of a cell's time after cell %d, resumed: %v", k.part, k.cells, err)
						continue
					}
					mu.Lock()
					resumed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	t.Logf("killed before there was a run %d, with a part of it %d (resumed %d), when it was finished %d", early, cut, resumed, whole)
	if !t.Failed() && (cut < instants/2 || resumed < 3) {
		t.Errorf("%d of %d processes were killed with a part of a run and %d resumed: too few to say anything", cut, instants, resumed)
	}
}

// undisturbed runs the plan to its end.
func undisturbed(t *testing.T) (p pace, cells int) {
	t.Helper()
	results := t.TempDir()
	c, err := collectProcess(quickPlan(simulated(t), results)...)
	if err != nil {
		t.Fatal(err)
	}
	c.until(1, 0)
	p.start = time.Since(c.started)
	status, err := c.end()
	if err != nil || status != exitDone {
		t.Fatalf("exit status %d (%v), stderr %q", status, err, c.talk)
	}
	w, err := inspectWreck(results, c.reported, filepath.Join(t.TempDir(), "site"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.wantFinished(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(c.stdout.String()); got != w.dir || len(c.reported) != 5 {
		t.Fatalf("stdout %q, want %q; cells said to be finished %v, want 5", got, w.dir, c.reported)
	}
	p.cell = (time.Since(c.started) - p.start) / time.Duration(len(c.reported)-1)
	return p, len(c.reported)
}

func killOne(url, results, site string, k kill, p pace) (wreck, error) {
	c, err := collectProcess(quickPlan(url, results)...)
	if err != nil {
		return wreck{}, err
	}
	c.until(k.cells, k.after(p))
	c.cmd.Process.Kill()
	if _, err := c.end(); err != nil {
		return wreck{}, err
	}
	return inspectWreck(results, c.reported, site)
}

// killAndResume goes on with a run, is killed again, and then finishes it.
func killAndResume(url, results, site string, w wreck, p pace) error {
	c, err := resumeProcess(url, w)
	if err != nil {
		return err
	}
	c.until(0, p.start)
	c.cmd.Process.Kill()
	if _, err := c.end(); err != nil {
		return err
	}
	if w, err = inspectWreck(results, c.reported, site); err != nil || w.m.Finished {
		return err
	}
	if c, err = resumeProcess(url, w); err != nil {
		return err
	}
	if status, err := c.end(); err != nil || status != exitDone {
		return fmt.Errorf("exit status %d (%v), stderr %q", status, err, c.talk)
	}
	if w, err = inspectWreck(results, c.reported, site); err != nil {
		return err
	}
	return w.wantFinished()
}

// interruptedRun stops a run by one Ctrl-C after two cells.
func interruptedRun(t *testing.T) (url, results string, w wreck) {
	t.Helper()
	url, results = simulated(t), t.TempDir()
	c, err := collectProcess(quickPlan(url, results)...)
	if err != nil {
		t.Fatal(err)
	}
	c.until(2, 0)
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	status, err := c.end()
	if err != nil || status != exitInterrupted {
		t.Fatalf("exit status %d (%v), want %d; stderr %q", status, err, exitInterrupted, c.talk)
	}
	w, err = inspectWreck(results, c.reported, filepath.Join(t.TempDir(), "site"))
	if err != nil {
		t.Fatal(err)
	}
	if last, want := c.talk[len(c.talk)-1], "; go on with --resume "+w.dir; !strings.HasPrefix(last, "interrupted: ") || !strings.Contains(last, "of 6 measurements") || !strings.HasSuffix(last, want) {
		t.Errorf("last line %q, want one that begins with interrupted, counts, and ends in %q", last, want)
	}
	if got := c.stdout.String(); got != w.dir+"\n" {
		t.Errorf("stdout %q, want the run's directory", got)
	}
	return url, results, w
}

func TestOneInterruptKeepsWhatWasMeasured(t *testing.T) {
	_, _, w := interruptedRun(t)
	if w.m.Finished || w.m.Telemetry == nil || w.partials > 0 {
		t.Errorf("finished %v, telemetry %v, %d partial files; want an unfinished run that is sealed", w.m.Finished, w.m.Telemetry, w.partials)
	}
	var notes []string
	for _, c := range w.m.Cells {
		notes = append(notes, c.Notes...)
	}
	if !slices.Equal(notes, []string{"interrupted"}) {
		t.Errorf("notes %q, want one cell that was interrupted", notes)
	}
}

// An interrupted run has a sealed telemetry file. When it is gone on with,
// the seal must be taken off before the file changes.
func TestKilledWhileTheTelemetryOfAResumedRunChanges(t *testing.T) {
	url, results, w := interruptedRun(t)
	for range 3 {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(results)); err != nil {
			t.Fatal(err)
		}
		w.dir = filepath.Join(copied, filepath.Base(w.dir))
		telemetry := filepath.Join(w.dir, runlog.TelemetryFile)
		before, err := os.Stat(telemetry)
		if err != nil {
			t.Fatal(err)
		}
		c, err := resumeProcess(url, w)
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			if now, err := os.Stat(telemetry); err == nil && !os.SameFile(before, now) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the telemetry file was not written; stderr %q", c.talk)
			}
			time.Sleep(50 * time.Microsecond)
		}
		c.cmd.Process.Kill()
		if _, err := c.end(); err != nil {
			t.Fatal(err)
		}
		if _, err := inspectWreck(copied, c.reported, filepath.Join(t.TempDir(), "site")); err != nil {
			t.Errorf("killed as soon as the telemetry file had changed: %v", err)
		}
	}
}

func TestTwoInterruptsEndTheProcessAtOnce(t *testing.T) {
	t.Run("a run stays readable", func(t *testing.T) {
		results := t.TempDir()
		c, err := collectProcess(quickPlan(simulated(t), results)...)
		if err != nil {
			t.Fatal(err)
		}
		c.until(2, 0)
		c.cmd.Process.Signal(os.Interrupt)
		c.cmd.Process.Signal(os.Interrupt)
		if status, err := c.end(); err != nil || status != exitInterrupted && status != -1 {
			t.Errorf("exit status %d (%v), want %d or death by a signal", status, err, exitInterrupted)
		}
		if _, err := inspectWreck(results, c.reported, filepath.Join(t.TempDir(), "site")); err != nil {
			t.Error(err)
		}
	})
	t.Run("whatever it does", func(t *testing.T) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), roleVariable+"=stubborn")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(stdout)
		for _, want := range []string{"ready", "interrupted"} {
			if !sc.Scan() || sc.Text() != want {
				t.Fatalf("got line %q, want %q", sc.Text(), want)
			}
			cmd.Process.Signal(os.Interrupt)
		}
		// The process takes its handler off a moment after the first one.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for sc.Scan() {
			}
			cmd.Wait()
		}()
		for repeat := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ended:
				if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGINT {
					t.Errorf("it ended with %v, want death by an interrupt", cmd.ProcessState)
				}
				return
			case <-repeat.C:
				cmd.Process.Signal(os.Interrupt)
			}
		}
	})
}
