package compare

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/gonum/mathext"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// ProfileSchema is the version of the noise profiles that this package
// writes and the only one that it reads. docs/diff.md describes it.
const ProfileSchema = "noise/1"

// Limits of a profile.
const (
	maxProfileBytes = 4 << 20
	maxProfileCells = 10_000
	staleDays       = 90   // a profile that is older than the runs by more than this is worth a warning
	staleP          = 0.01 // launches noisier than the profile by more than chance put it aside
)

// A Profile says how much launches of one commit under one setting differ
// from each other. It is made of launches of nothing but that.
type Profile struct {
	Schema string `json:"schema"` // the constant ProfileSchema
	Method string `json:"method"` // of the figures: ingest.Method

	// Key is the setting that the profile is good for, by field of the
	// comparison; "" is not known. The engine's version is none of it.
	Key map[string]string `json:"key"`

	Commit   string          `json:"commit,omitempty"`  // of the engine; "" not known
	Version  string          `json:"version,omitempty"` // likewise
	Driver   string          `json:"driver,omitempty"`  // likewise
	Launches []ProfileLaunch `json:"launches"`          // in the order of time, 3 or more
	Metrics  []ProfileMetric `json:"metrics"`           // in the order of Metrics; those that could be had
}

// A ProfileLaunch is a launch that a profile was made of.
type ProfileLaunch struct {
	ID        string    `json:"id"`         // name of its run directory
	Launch    string    `json:"launch"`     // its identity: Launch
	StartedAt time.Time `json:"started_at"` // UTC
}

// A ProfileMetric is the noise of one metric. Standard deviations are of the
// logarithm of the figure: 0.01 is 1 %.
type ProfileMetric struct {
	Metric   string        `json:"metric"`
	DF       int           `json:"df"`        // launches − 1
	LaunchSD float64       `json:"launch_sd"` // of what all cells of a launch share
	Cells    []ProfileCell `json:"cells"`     // Valid on every launch; ascending context, then concurrency
}

// A ProfileCell is the noise of one cell.
type ProfileCell struct {
	ContextTokens int32   `json:"context_tokens"`
	Concurrency   int32   `json:"concurrency"`
	SD            float64 `json:"sd"` // beside the launch's own
}

// A NoiseSource says what intervals rest on.
type NoiseSource string

// The sources.
const (
	Assumed      NoiseSource = "assumed" // nothing was known: nobody's launches, a guess
	FromLaunches NoiseSource = "launches"
	FromProfile  NoiseSource = "profile"
	FromBoth     NoiseSource = "launches and profile"
)

// Noise says what the intervals of a metric rest on.
type Noise struct {
	Source          NoiseSource
	ProfileLaunches int     // launches of the profile that took part; 0: none did
	LaunchSD        float64 // of the logarithm, of what all cells of a launch share; 0 where cells were taken one by one
	CellSD          float64 // typical, of a cell beside that; likewise
	DF              float64 // degrees of freedom of LaunchSD; 0: taken as known
	Unused          string  // why the given profile took no part; "" when it did, or none was given

	profileLaunchSD float64
}

// ErrNoProfile is the error of launches that make no noise profile.
var ErrNoProfile = errors.New("no noise profile")

// NewProfile makes a noise profile of three or more launches of one commit
// under one setting.
func NewProfile(runs []*ingest.Run) (*Profile, error) {
	side := Side{Runs: runs}.ordered()
	if err := checkLaunches([]Side{side}); err != nil {
		return nil, err
	}
	runs = side.Runs
	if len(runs) < minProfile {
		return nil, fmt.Errorf("%w: got %s, want %d or more", ErrNoProfile, launchCount(len(runs)), minProfile)
	}
	found, _, _ := comparability(runs[:1], runs[1:], nil)
	for _, f := range found {
		if f.Outcome == Refuse || f.Field == "engine version" && f.Outcome != Same || f.Field == "engine build" && f.Outcome != Same {
			return nil, fmt.Errorf("%w: %s", ErrNoProfile, f.Text)
		}
	}
	commits := said(runs, func(m *runlog.Manifest) string { return fact(m.Engine.Commit) })
	if len(commits) > 1 && !sameBuild(Side{Runs: runs[:1]}, Side{Runs: runs[1:]}) {
		return nil, fmt.Errorf("%w: launches of several commits: %s", ErrNoProfile, quoted(commits))
	}
	m := runs[0].Manifest
	p := &Profile{
		Schema: ProfileSchema, Method: ingest.Method, Key: profileKey(m),
		Commit: fact(m.Engine.Commit), Version: fact(m.Engine.Version), Driver: drivers(m),
	}
	for _, r := range runs {
		p.Launches = append(p.Launches, ProfileLaunch{r.ID, Launch(r.Manifest), r.Manifest.StartedAt.UTC()})
	}
	for _, metric := range Metrics() {
		if pm, ok := profileMetric(metric, side); ok {
			p.Metrics = append(p.Metrics, pm)
		}
	}
	if len(p.Metrics) == 0 {
		return nil, fmt.Errorf("%w: no metric has %d cells that are Valid on every launch", ErrNoProfile, minSplit)
	}
	return p, nil
}

func launchCount(n int) string {
	if n == 1 {
		return "1 launch"
	}
	return strconv.Itoa(n) + " launches"
}

// profileMetric measures the noise of a metric. It is not ok when too few
// cells have it on every launch to tell a launch from a cell.
func profileMetric(metric Metric, side Side) (pm ProfileMetric, ok bool) {
	m := MetricDiff{Metric: metric, Cells: cells(metric, side, Side{})}
	var at []int
	for i := range m.Cells {
		if c := &m.Cells[i]; c.A.compared() && c.A.positive() {
			at = append(at, i)
		}
	}
	if len(at) < minSplit {
		return pm, false
	}
	y := make(logs, len(side.Runs))
	for r := range y {
		for _, i := range at {
			y[r] = append(y[r], metric.sign()*math.Log(m.Cells[i].A.Values[r]))
		}
	}
	s := y.spread()
	sd := func(ss float64) float64 { return round6(math.Sqrt(ss / float64(s.df))) }
	pm = ProfileMetric{Metric: metric.String(), DF: s.df, LaunchSD: sd(s.launch)}
	for i, c := range at {
		pm.Cells = append(pm.Cells, ProfileCell{m.Cells[c].ContextTokens, m.Cells[c].Concurrency, sd(s.rest[i])})
	}
	return pm, true
}

// round6 rounds to six significant digits.
func round6(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil {
		return x
	}
	return y
}

// profileKey is the setting of a launch that a profile is good for.
func profileKey(m *runlog.Manifest) map[string]string {
	key := map[string]string{}
	for _, r := range rules() {
		if r.key {
			key[r.field] = r.value(m)
		}
	}
	return key
}

// Setting names what a launch was measured under, 16 hexadecimal digits:
// equal for launches that a noise profile is good for alike, whatever the
// engine's version. They form one series.
func Setting(m *runlog.Manifest) string { return settingOf(profileKey(m)) }

// Setting is the setting that the profile is good for: Setting of the
// launches that it was made of.
func (p *Profile) Setting() string { return settingOf(p.Key) }

func settingOf(key map[string]string) string {
	h := sha256.New()
	for _, field := range slices.Sorted(maps.Keys(key)) {
		fmt.Fprintf(h, "%q=%q\n", field, key[field])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// ProfileName returns the file name under which a profile for the setting of
// a launch is kept, without a folder.
func ProfileName(m *runlog.Manifest) string { return Setting(m) + ".json" }

// unfit says why the profile says nothing about a comparison, "" if it does.
func (p *Profile) unfit(d *Diff) string {
	if p.Method != ingest.Method {
		return fmt.Sprintf("the noise profile is of %s, not %s", p.Method, ingest.Method)
	}
	for _, s := range []Side{d.A, d.B} {
		for _, r := range s.Runs {
			key := profileKey(r.Manifest)
			for _, rule := range rules() {
				if got, want := p.Key[rule.field], key[rule.field]; rule.key && got != want {
					return fmt.Sprintf("the noise profile is of another setting: %s is %q there and %q here", rule.field, got, want)
				}
			}
		}
	}
	return ""
}

// has reports whether the profile was made of one of these launches.
func (p *Profile) has(runs []*ingest.Run) bool {
	return slices.ContainsFunc(runs, func(r *ingest.Run) bool {
		id := Launch(r.Manifest)
		return slices.ContainsFunc(p.Launches, func(l ProfileLaunch) bool { return l.Launch == id })
	})
}

// metric returns what the profile says about a trial's metric, or why that
// can't be used. use says which sides are not in the profile.
func (p *Profile) metric(t *trial, use [2]bool) (*ProfileMetric, string) {
	name := t.m.Metric.String()
	i := slices.IndexFunc(p.Metrics, func(m ProfileMetric) bool { return m.Metric == name })
	if i < 0 {
		return nil, "the noise profile says nothing about " + t.m.Metric.Label()
	}
	pm := &p.Metrics[i]
	if why := t.stale(pm, use); why != "" {
		return nil, why
	}
	return pm, ""
}

// cell returns the variance of a cell, one without degrees of freedom where
// the profile does not have it.
func (m *ProfileMetric) cell(context, concurrency int32) variance {
	i, ok := slices.BinarySearchFunc(m.Cells, ProfileCell{ContextTokens: context, Concurrency: concurrency}, byCell)
	if !ok {
		return variance{}
	}
	return variance{m.Cells[i].SD * m.Cells[i].SD, float64(m.DF)}
}

func byCell(a, b ProfileCell) int {
	return cmp.Or(cmp.Compare(a.ContextTokens, b.ContextTokens), cmp.Compare(a.Concurrency, b.Concurrency))
}

// stale says that the launches at hand are noisier than the profile by more
// than chance: as wholes, by an F-test, or cell for cell, by the mean of the
// logarithms of the ratios of variances. "" if not.
func (t *trial) stale(pm *ProfileMetric, use [2]bool) string {
	df, effects := 0, 0.0
	rest := make([]float64, len(t.at))
	for g, s := range t.own {
		if use[g] {
			df += s.df
			effects += s.launch
			for c := range rest {
				rest[c] += s.rest[c]
			}
		}
	}
	if df == 0 {
		return ""
	}
	n, known := float64(df), float64(pm.DF)
	if profile := max(pm.LaunchSD*pm.LaunchSD, leastVariance); fTail(effects/n/profile, n, known) < staleP {
		return fmt.Sprintf("the noise profile looks stale: launches differ by %.1f %%, in the profile by %.1f %%", 100*math.Sqrt(effects/n), 100*pm.LaunchSD)
	}
	half := func(df float64) float64 { return mathext.Digamma(df/2) - math.Log(df/2) }
	sum, cells := 0.0, 0.0
	for i, at := range t.at {
		c := &t.m.Cells[at]
		if v := pm.cell(c.ContextTokens, c.Concurrency); v.df > 0 {
			sum += math.Log(max(rest[i]/n, leastVariance)) - half(n) - math.Log(max(v.value, leastVariance)) + half(known)
			cells++
		}
	}
	if cells > 0 && normalTail(sum/math.Sqrt(cells*(trigamma(n/2)+trigamma(known/2)))) < staleP {
		return fmt.Sprintf("the noise profile looks stale: cells differ %.1f times as much between launches as in the profile", math.Exp(sum/cells/2))
	}
	return ""
}

// findings say what is wrong with a profile that was given.
func (p *Profile) findings(d *Diff) Finding {
	f := Finding{Field: "noise profile"}
	newest := time.Time{}
	for _, l := range p.Launches {
		if l.StartedAt.After(newest) {
			newest = l.StartedAt
		}
	}
	var unused []string
	for i := range d.Metrics {
		if why := d.Metrics[i].Noise.Unused; why != "" && !slices.Contains(unused, why) {
			unused = append(unused, why)
		}
	}
	latest := time.Time{}
	for _, s := range []Side{d.A, d.B} {
		if at := s.Runs[len(s.Runs)-1].Manifest.StartedAt; at.After(latest) {
			latest = at
		}
	}
	switch days := latest.Sub(newest).Hours() / 24; {
	case len(unused) > 0:
		f.Outcome, f.Text = Warn, unused[0]
	case days > staleDays:
		f.Outcome, f.Text = Warn, fmt.Sprintf("the noise profile is %.0f days older than the runs", days)
	default:
		for _, s := range []Side{d.A, d.B} {
			for _, r := range s.Runs {
				if now := drivers(r.Manifest); f.Outcome == Same && now != p.Driver {
					f.Outcome, f.Text = Warn, fmt.Sprintf("the noise profile is of another driver: %q there and %q here", p.Driver, now)
				}
			}
		}
	}
	return f
}

// Encode returns the profile as JSON.
func (p *Profile) Encode() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encode noise profile: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeProfile reads what Encode wrote. Keys that it does not know mean
// nothing.
func DecodeProfile(data []byte) (*Profile, error) {
	if len(data) > maxProfileBytes {
		return nil, fmt.Errorf("decode noise profile: got %d bytes, want %d at most", len(data), maxProfileBytes)
	}
	p := new(Profile)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("decode noise profile: %w", err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("decode noise profile: %w", err)
	}
	return p, nil
}

// check returns the first thing that a profile can't be.
func (p *Profile) check() error {
	switch {
	case p.Schema != ProfileSchema:
		return fmt.Errorf("schema: got %q, want %q", p.Schema, ProfileSchema)
	case p.Method == "":
		return errors.New("method: missing")
	case len(p.Key) == 0:
		return errors.New("key: missing")
	case len(p.Launches) < minProfile:
		return fmt.Errorf("launches: got %d, want %d or more", len(p.Launches), minProfile)
	}
	for i, l := range p.Launches {
		if slices.ContainsFunc(p.Launches[:i], func(o ProfileLaunch) bool { return o.Launch == l.Launch }) {
			return fmt.Errorf("launches[%d]: got %q a second time", i, l.Launch)
		}
	}
	last := -1
	for i := range p.Metrics {
		m := &p.Metrics[i]
		metric, ok := ParseMetric(m.Metric)
		switch {
		case !ok || int(metric) <= last:
			return fmt.Errorf("metrics[%d].metric: got %q, want a metric, each once and in order", i, m.Metric)
		case m.DF != len(p.Launches)-1:
			return fmt.Errorf("metrics[%d].df: got %d, want %d, one less than launches", i, m.DF, len(p.Launches)-1)
		case !plausible(m.LaunchSD):
			return fmt.Errorf("metrics[%d].launch_sd: got %v, want 0 to 10", i, m.LaunchSD)
		case len(m.Cells) < minSplit || len(m.Cells) > maxProfileCells:
			return fmt.Errorf("metrics[%d].cells: got %d, want %d to %d", i, len(m.Cells), minSplit, maxProfileCells)
		}
		last = int(metric)
		for j, c := range m.Cells {
			switch {
			case !plausible(c.SD):
				return fmt.Errorf("metrics[%d].cells[%d].sd: got %v, want 0 to 10", i, j, c.SD)
			case c.ContextTokens < 0 || c.Concurrency < 1:
				return fmt.Errorf("metrics[%d].cells[%d]: got context %d and concurrency %d, want 0 and 1 or more", i, j, c.ContextTokens, c.Concurrency)
			case j > 0 && byCell(m.Cells[j-1], c) >= 0:
				return fmt.Errorf("metrics[%d].cells[%d]: got context %d and concurrency %d out of order", i, j, c.ContextTokens, c.Concurrency)
			}
		}
	}
	return nil
}

// plausible reports whether x is a standard deviation of a logarithm.
func plausible(x float64) bool { return x >= 0 && x <= 10 }
