package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"speedmatrix/ingest/compare"
	"speedmatrix/render/internal/format"
)

// A site is what the pages about several runs are made of.
type site struct {
	options     Options
	style, icon asset
	slugs       *slugs
	runs        []*summary        // by model, hardware, series, version, start
	series      []*series         // by model, hardware, address
	names       map[string]string // of models, by id: the short ones, where they are of one model only
	sides       map[string]*side  // of runs, by id
	files       []document
	diffs       []string // folders of comparisons, which are written already
}

// A series is the runs that may stand in one history: equal but for the
// engine's version.
type series struct {
	Path   string     // folder in the site, ending in a slash
	Runs   []*summary // oldest version first
	Sides  []*side    // the same runs by build
	noise  *compare.Profile
	labels map[int32]string // of the contexts of all runs

	epochs []epoch
	steps  []foundStep // newest first
}

func (s *series) newest() *summary { return s.Runs[len(s.Runs)-1] }

// newSite puts the runs of a site in order. The order in which they are given
// does not matter.
func newSite(runs []*summary, o Options) (*site, error) {
	given, err := readSlugs(o.Slugs)
	if err != nil {
		return nil, err
	}
	given.assign(runs)
	s := &site{options: o, slugs: given}
	s.style, s.icon = assets()
	s.group(runs)
	return s, nil
}

// pages makes all files of the site that are not of one run or of one
// comparison.
func (s *site) pages() error {
	for _, add := range []func() error{
		s.addIndex, s.addRuns, s.addModels, s.addHardware, s.addHistories, s.addSteps, s.addDocs, s.addData, s.addRedirects, s.addRest,
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

// group puts runs into their series, and both in order.
func (s *site) group(runs []*summary) {
	byDigest := map[string]*series{}
	for _, r := range runs {
		if byDigest[r.Series] == nil {
			byDigest[r.Series] = &series{Path: "series/" + s.slugs.Series[r.Series] + "/"}
		}
		byDigest[r.Series].Runs = append(byDigest[r.Series].Runs, r)
	}
	s.series = slices.SortedFunc(maps.Values(byDigest), func(a, b *series) int {
		x, y := a.Runs[0], b.Runs[0]
		return cmp.Or(
			cmp.Compare(strings.ToLower(x.Model), strings.ToLower(y.Model)), cmp.Compare(x.ModelID, y.ModelID),
			cmp.Compare(x.Hardware, y.Hardware), cmp.Compare(a.Path, b.Path),
		)
	})
	models := map[string]map[string]bool{} // ids, by name
	for _, r := range runs {
		if models[r.Model] == nil {
			models[r.Model] = map[string]bool{}
		}
		models[r.Model][r.ModelID] = true
	}
	s.names, s.sides = map[string]string{}, map[string]*side{}
	for _, r := range runs {
		s.names[r.ModelID] = r.Model
		if len(models[r.Model]) > 1 {
			s.names[r.ModelID] = cmp.Or(r.ModelID, r.Model)
		}
	}
	for _, list := range s.series {
		list.Sides = sidesOf(list.Runs)
		list.Runs = list.Runs[:0]
		for _, side := range list.Sides {
			list.Runs = append(list.Runs, side.Runs...)
			for _, r := range side.Runs {
				s.sides[r.ID] = side
			}
		}
		list.labels = cellLabels(list.Runs...)
		s.runs = append(s.runs, list.Runs...)
	}
}

func (s *site) modelPath(r *summary) string { return "models/" + s.slugs.Models[r.ModelID] + "/" }
func (s *site) hardwarePath(r *summary) string {
	return "hardware/" + s.slugs.Hardware[r.Hardware] + "/"
}
func (s *site) seriesPath(r *summary) string { return "series/" + s.slugs.Series[r.Series] + "/" }
func runPath(r *summary) string              { return runsFolder + "/" + r.ID + "/" }

// A sitePage is what every page about several runs has.
type sitePage struct {
	page
	Nav     []navItem
	Heading string
	Lead    string
	MD      string // name of the Markdown twin; "" none
	JSON    string // relative path of the data behind the page; "" none
}

// A navItem is one link of the navigation of the site.
type navItem struct {
	Text, URL string
	Here      bool
}

// sections are the top of the site's navigation.
var sections = []struct{ text, path string }{
	{"Newest", ""}, {"All runs", runsFolder + "/"}, {"Models", "models/"}, {"Hardware", "hardware/"}, {"Steps", "steps/"}, {"Method", "method/"},
}

// newPage returns the frame of the page at a path: "" or a folder.
func (s *site) newPage(at, heading, lead string) sitePage {
	root := strings.Repeat("../", strings.Count(at, "/"))
	title := heading
	if at != "" {
		title += " – " + eyebrow
	} else {
		title = eyebrow + ": " + heading
	}
	p := sitePage{
		page:    page{Title: title, Description: lead, Eyebrow: eyebrow, Root: root, Stylesheet: s.style.name, Icon: s.icon.name},
		Heading: heading, Lead: lead, MD: "index.md", JSON: root + runsData,
	}
	for _, n := range sections {
		p.Nav = append(p.Nav, navItem{n.text, root + n.path + "index.html", n.path == at})
	}
	return p
}

// add puts a page and its Markdown twin into a folder of the site.
func (s *site) add(at, template string, view any) error {
	b, err := html(template+".html.tmpl", view)
	if err != nil {
		return err
	}
	s.files = append(s.files, document{at + "index.html", b})
	if b, err = markdown(template+".md.tmpl", view); err != nil {
		return err
	}
	s.files = append(s.files, document{at + "index.md", b})
	return nil
}

// aroundPlace stands in a run's pages where their navigation goes. Foreign
// text is escaped and can't look like it.
const aroundPlace = "<nav-around></nav-around>"

// An aroundItem is a link from a run to what is about it.
type aroundItem struct{ Text, URL, Rel string }

// around returns the navigation of the pages of each run, by run.
func (s *site) around() (map[string][]byte, error) {
	all := make(map[string][]byte, len(s.runs))
	for _, list := range s.series {
		for i, r := range list.Runs {
			v := struct {
				Nav    []navItem
				Around []aroundItem
			}{Nav: s.newPage(runPath(r), "", "").Nav}
			const root = "../../"
			v.Around = []aroundItem{
				{"This model", root + s.modelPath(r) + "index.html", ""},
				{"This hardware", root + s.hardwarePath(r) + "index.html", ""},
				{"History", root + list.Path + "index.html", ""},
			}
			if d := s.sides[r.ID].Diff; d != nil && d.Path != "" {
				v.Around = append(v.Around, aroundItem{"Compared with the version before", root + d.Path + "index.html", ""})
			}
			if i > 0 {
				v.Around = append(v.Around, aroundItem{"← Before", root + escapePath(runPath(list.Runs[i-1])) + "index.html", "prev"})
			}
			if i < len(list.Runs)-1 {
				v.Around = append(v.Around, aroundItem{"After →", root + escapePath(runPath(list.Runs[i+1])) + "index.html", "next"})
			}
			nav, err := html("around", v)
			if err != nil {
				return nil, err
			}
			all[r.ID] = nav
		}
	}
	return all, nil
}

// A runRow is one run in a list.
type runRow struct {
	URL, ModelURL, HardwareURL, SeriesURL string // of folders, ending in a slash
	Model, Quantization, Hardware         string
	Engine, Version, Commit, CommitURL    string
	Date, Plan                            string
	Counts                                []string // of statuses, in words
	Best, BestAt, BestAnchor              string
	Alone, AloneAt, AloneAnchor           string
	Mark                                  string // what changed beside the engine's version since the run before
	Since                                 *since // how it compares with the version before; nil: it is the first
	Common                                []string
}

// A since says how a run compares with the version before.
type since struct {
	diffBrief
	URL string // of the comparison, a folder; "" where there is no page
}

// newRow describes a run for a page whose root is at the relative path root.
func (s *site) newRow(r *summary, root string) runRow {
	row := runRow{
		URL: root + escapePath(runPath(r)), ModelURL: root + s.modelPath(r), HardwareURL: root + s.hardwarePath(r), SeriesURL: root + s.seriesPath(r),
		Model: s.names[r.ModelID], Quantization: r.Quantization, Hardware: r.Hardware,
		Engine: cmp.Or(r.EngineName, format.Unknown), Version: r.shortVersion(),
		Commit: cmp.Or(r.Commit, format.Unknown), CommitURL: r.CommitURL,
		Date: r.Started.UTC().Format(time.DateOnly), Counts: r.Counts, Best: format.Unknown, Alone: format.Unknown,
	}
	if r.Contexts > 0 {
		row.Plan = plural(r.Contexts, "context") + " × " + plural(r.Levels, "level")
	}
	if d := s.sides[r.ID].Diff; d != nil {
		row.Since = &since{diffBrief: d.Brief}
		if d.Path != "" {
			row.Since.URL = root + d.Path
		}
	}
	labels := cellLabels(r)
	if c := r.best(); c != nil {
		row.Best, row.BestAnchor = format.TokPerS(*c.Total), c.anchor(labels)
		row.BestAt = labels[c.Context] + " context, " + atOnce(c.Concurrency)
	}
	if c := r.alone(); c != nil {
		row.AloneAnchor, row.AloneAt = c.anchor(labels), labels[c.Context]+" context"
		if row.Alone = c.Status; c.Total != nil {
			row.Alone = format.TokPerS(*c.Total)
			row.AloneAt += ", " + format.Millis(orNaN(c.TTFTUs)) + " TTFT"
		}
	}
	return row
}

// shortVersion leaves out of a version the commit that stands beside it.
func (s *summary) shortVersion() string {
	version, commit, found := strings.Cut(s.Version, "+g")
	if short := min(len(commit), len(s.Commit)); found && short >= 7 && commit[:short] == s.Commit[:short] {
		return version
	}
	return s.Version
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// cellLabels returns the labels of all contexts of runs, as their pages have
// them when it is one run.
func cellLabels(runs ...*summary) map[int32]string {
	seen := map[int32]bool{}
	for _, r := range runs {
		for i := range r.Cells {
			seen[r.Cells[i].Context] = true
		}
	}
	return format.Contexts(slices.Collect(maps.Keys(seen)))
}

// anchor returns the place of a measurement on the page of its run.
func (c *summaryCell) anchor(labels map[int32]string) string {
	if c.Prefill {
		return "prefill-" + labels[c.Context]
	}
	return "d-" + labels[c.Context] + "-" + plain(c.Concurrency)
}

// newestOf returns the run of a list that started last.
func newestOf(runs []*summary) *summary {
	return slices.MaxFunc(runs, func(a, b *summary) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
}

// by groups runs by a key and keeps the order in which keys come first.
func by(runs []*summary, key func(*summary) string) [][]*summary {
	at := map[string]int{}
	var groups [][]*summary
	for _, r := range runs {
		k := key(r)
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// A listView is a table of runs.
type listView struct {
	sitePage
	Caption string
	Rows    []runRow
	Pages   []link // other pages of the same list
}

// Compared reports whether any run has a version before it.
func (v listView) Compared() bool {
	return slices.ContainsFunc(v.Rows, func(r runRow) bool { return r.Since != nil })
}

const (
	indexHeading = "Inference speed, measured"
	indexLead    = "How fast a server answers, over context lengths and simultaneous requests. " +
		"Every number leads back to the streamed events that it was computed from."
)

// addIndex adds the first page: the newest run of each model on each hardware.
func (s *site) addIndex() error {
	v := listView{
		sitePage: s.newPage("", indexHeading, indexLead),
		Caption:  "The newest run of each model on each hardware. One row is one launch of a server; the date is from its log.",
	}
	for _, group := range by(s.runs, func(r *summary) string { return r.ModelID + "\n" + r.Hardware }) {
		v.Rows = append(v.Rows, s.newRow(newestOf(group), ""))
	}
	return s.add("", "index", v)
}

// runsPerPage is the most that a list of runs has on one page.
const runsPerPage = 200

// addRuns adds the list of all runs, as one page, or the newest as one page
// and all by year. A year's page that is full stays as it is.
func (s *site) addRuns() error {
	byTime := slices.SortedFunc(slices.Values(s.runs), func(a, b *summary) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	v := listView{
		sitePage: s.newPage(runsFolder+"/", "All runs", "Every launch of a server that was measured, oldest first."),
		Caption:  "One row is one launch of a server; the date is from its log.",
	}
	if len(byTime) > runsPerPage {
		v.Lead = "The newest launches that were measured, oldest first. Earlier ones stand by year."
		for _, year := range by(byTime, func(r *summary) string { return r.Started.Format("2006") }) {
			name := year[0].Started.Format("2006")
			for i := 0; i*runsPerPage < len(year); i++ {
				at, heading := "years/"+name+"/", "Runs of "+name
				if i > 0 {
					at, heading = "years/"+name+"-"+strconv.Itoa(i+1)+"/", heading+", part "+strconv.Itoa(i+1)
				}
				part := listView{sitePage: s.newPage(at, heading, "Launches that were measured in "+name+", oldest first."), Caption: v.Caption}
				for _, r := range year[i*runsPerPage : min((i+1)*runsPerPage, len(year))] {
					part.Rows = append(part.Rows, s.newRow(r, part.Root))
				}
				if err := s.add(at, "runs", part); err != nil {
					return err
				}
				v.Pages = append(v.Pages, link{Text: strings.TrimPrefix(heading, "Runs of "), URL: "../" + at})
			}
		}
		byTime = byTime[len(byTime)-runsPerPage:]
	}
	for _, r := range byTime {
		v.Rows = append(v.Rows, s.newRow(r, v.Root))
	}
	return s.add(runsFolder+"/", "runs", v)
}

// A groupsView is a list of pages, each about some runs.
type groupsView struct {
	sitePage
	Groups []groupRow
}

type groupRow struct {
	Text, URL string // of a folder, ending in a slash
	Parts     []link // what the group is divided into
	Date      string // of its newest run
}

// A modelView is everything about one model.
type modelView struct {
	sitePage
	Hardware []modelHardware
}

type modelHardware struct {
	ID, Name, URL string
	Series        []seriesView
}

// A seriesView shows one series by its newest run.
type seriesView struct {
	ID, Heading, Flags, URL string
	Matrix                  *trendMatrix
	Rows                    []runRow // the newest, oldest first
	All                     bool     // Rows are all of them
}

// newestRows is how many runs of a series stand on the page of its model.
const newestRows = 10

func (s *site) addModels() error {
	list := groupsView{sitePage: s.newPage("models/", "Models", "Every model that was measured, and on what.")}
	for _, group := range by(s.runs, func(r *summary) string { return r.ModelID }) {
		r := group[0]
		at := s.modelPath(r)
		row := groupRow{Text: s.names[r.ModelID], URL: "../" + at, Date: newestOf(group).Started.Format(time.DateOnly)}
		lead := "Speed of " + cmp.Or(r.ModelID, "a model whose name is not known") + " by hardware and settings. Colours compare within one matrix; lines show the runs from the oldest to the newest."
		v := modelView{sitePage: s.newPage(at, r.Model, lead)}
		for _, on := range by(group, func(r *summary) string { return r.Hardware }) {
			slug := s.slugs.Hardware[on[0].Hardware]
			h := modelHardware{ID: "on-" + slug, Name: on[0].Hardware, URL: v.Root + s.hardwarePath(on[0])}
			for _, same := range by(on, func(r *summary) string { return r.Series }) {
				h.Series = append(h.Series, s.newSeriesView(same, v.Root))
			}
			v.Hardware = append(v.Hardware, h)
			row.Parts = append(row.Parts, link{Text: h.Name, URL: "../" + s.hardwarePath(on[0])})
		}
		if err := s.add(at, "model", v); err != nil {
			return err
		}
		list.Groups = append(list.Groups, row)
	}
	return s.add("models/", "groups", list)
}

func (s *site) newSeriesView(runs []*summary, root string) seriesView {
	r := runs[len(runs)-1]
	v := seriesView{
		ID:      "of-" + strings.ReplaceAll(s.slugs.Series[r.Series], "/", "-"),
		Heading: cmp.Or(join(" · ", r.Quantization, r.EngineName), "Unknown engine"),
		URL:     root + s.seriesPath(r),
		Matrix:  newTrendMatrix(runs, root),
		All:     len(runs) <= newestRows,
	}
	for _, f := range r.Settings {
		if f.Name == "Launch flags" {
			v.Flags = f.Value
		}
	}
	for _, r := range runs[max(0, len(runs)-newestRows):] {
		v.Rows = append(v.Rows, s.newRow(r, root))
	}
	return v
}

// A hardwareView sets the models on one kind of hardware side by side.
type hardwareView struct {
	sitePage
	Common []string // heads of the columns of common measurements
	Rows   []runRow
}

func (s *site) addHardware() error {
	list := groupsView{sitePage: s.newPage("hardware/", "Hardware", "Every kind of hardware that was measured, and with which models.")}
	groups := by(s.runs, func(r *summary) string { return r.Hardware })
	slices.SortFunc(groups, func(a, b []*summary) int { return cmp.Compare(a[0].Hardware, b[0].Hardware) })
	for _, group := range groups {
		at := s.hardwarePath(group[0])
		row := groupRow{Text: group[0].Hardware, URL: "../" + at, Date: newestOf(group).Started.Format(time.DateOnly)}
		for _, of := range by(group, func(r *summary) string { return r.ModelID }) {
			row.Parts = append(row.Parts, link{Text: s.names[of[0].ModelID], URL: "../" + s.modelPath(of[0])})
		}
		list.Groups = append(list.Groups, row)

		v := hardwareView{sitePage: s.newPage(at, group[0].Hardware, "The newest run of every series on this hardware. This describes; it does not compare: models differ in size, precision and settings.")}
		var newest []*summary
		for _, same := range by(group, func(r *summary) string { return r.Series }) {
			newest = append(newest, same[len(same)-1])
		}
		labels := cellLabels(newest...)
		places := commonPlaces(newest)
		for _, p := range places {
			v.Common = append(v.Common, labels[p.context]+" × "+plain(p.concurrency))
		}
		for _, r := range newest {
			row := s.newRow(r, v.Root)
			for _, p := range places {
				row.Common = append(row.Common, r.at(p).total())
			}
			v.Rows = append(v.Rows, row)
		}
		if err := s.add(at, "hardware", v); err != nil {
			return err
		}
	}
	return s.add("hardware/", "groups", list)
}

// A place is a decode cell by its plan.
type place struct{ context, concurrency int32 }

// at returns the decode cell at a place; nil: not planned.
func (s *summary) at(p place) *summaryCell {
	for i := range s.Cells {
		if c := &s.Cells[i]; !c.Prefill && c.Context == p.context && c.Concurrency == p.concurrency {
			return c
		}
	}
	return nil
}

// total returns what a table shows of a cell: its rate, or why there is none.
func (c *summaryCell) total() string {
	switch {
	case c == nil:
		return format.Unknown
	case c.Total == nil && c.Slug != "valid":
		return c.Status
	}
	return format.TokPerS(orNaN(c.Total))
}

// commonPlaces returns places that all runs have: of the smallest and the
// largest common context, the smallest, middle and largest concurrency.
func commonPlaces(runs []*summary) []place {
	count := map[place]int{}
	for _, r := range runs {
		for _, c := range r.Cells {
			if !c.Prefill {
				count[place{c.Context, c.Concurrency}]++
			}
		}
	}
	levels := map[int32][]int32{}
	for p, n := range count {
		if n == len(runs) {
			levels[p.context] = append(levels[p.context], p.concurrency)
		}
	}
	contexts := slices.Sorted(maps.Keys(levels))
	var list []place
	for i, t := range contexts {
		if i != 0 && i != len(contexts)-1 {
			continue
		}
		slices.Sort(levels[t])
		n := len(levels[t])
		for _, at := range slices.Compact([]int{0, n / 2, n - 1}) {
			list = append(list, place{t, levels[t][at]})
		}
	}
	return slices.Compact(list)
}

// Files that hold no page.
const (
	runsData  = "data/runs.json"
	slugsPath = "data/" + SlugsFile
)

// RunsFormat names the shape of data/runs.json.
const RunsFormat = "speedmatrix-runs/1"

// runsEntry is a run in data/runs.json.
type runsEntry struct {
	ID           string         `json:"run_id"`
	Started      string         `json:"started_at"` // RFC 3339, UTC
	Finished     bool           `json:"finished"`
	URL          string         `json:"url"` // relative to the site's root, as are all
	Data         string         `json:"data"`
	History      string         `json:"history"`
	Model        string         `json:"model"` // repository id, or name
	Hardware     string         `json:"hardware"`
	Quantization *string        `json:"quantization"`
	Engine       *string        `json:"engine"`
	Version      *string        `json:"engine_version"`
	Commit       *string        `json:"engine_commit"`
	Measurements map[string]int `json:"measurements"` // by status
	Best         *bestEntry     `json:"best"`

	Compared *comparedEntry `json:"compared_with_version_before"` // null: there is none
}

type comparedEntry struct {
	Against  string  `json:"against"`
	Coverage *string `json:"coverage"` // null: nothing can be compared
	Speed    string  `json:"speed"`
	URL      *string `json:"url"` // null: there is no page
}

type bestEntry struct {
	TotalTokPerS  float64 `json:"total_tok_per_s"`
	ContextTokens int32   `json:"context_tokens"`
	Concurrency   int32   `json:"concurrency"`
}

func (s *site) addData() error {
	list := struct {
		Format string      `json:"format"`
		Runs   []runsEntry `json:"runs"`
	}{RunsFormat, []runsEntry{}}
	for _, r := range s.runs {
		at := escapePath(runPath(r))
		e := runsEntry{
			ID: r.ID, Started: r.Started.Format(time.RFC3339Nano), Finished: r.Finished,
			URL: at + "index.html", Data: at + "index.json", History: s.seriesPath(r) + "index.html",
			Model: r.ModelID, Hardware: r.Hardware, Quantization: notEmpty(r.Quantization), Engine: notEmpty(r.EngineName),
			Version: notEmpty(r.Version), Commit: notEmpty(r.Commit), Measurements: r.Statuses,
		}
		if c := r.best(); c != nil {
			e.Best = &bestEntry{*c.Total, c.Context, c.Concurrency}
		}
		if d := s.sides[r.ID].Diff; d != nil {
			e.Compared = &comparedEntry{d.Brief.Against, notEmpty(d.Brief.Coverage.Text), d.Brief.Speed.Text, nil}
			if d.Path != "" {
				url := d.Path + "index.html"
				e.Compared.URL = &url
			}
		}
		list.Runs = append(list.Runs, e)
	}
	b, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return fmt.Errorf("render %s: %w", runsData, err)
	}
	s.files = append(s.files, document{runsData, append(b, '\n')})
	if b, err = s.slugs.json(); err != nil {
		return err
	}
	s.files = append(s.files, document{slugsPath, b})
	return nil
}

// addRedirects leaves a page where one was that has moved.
func (s *site) addRedirects() error {
	there := map[string]bool{}
	for _, r := range s.runs {
		there[runPath(r)] = true
	}
	for _, d := range s.files {
		if folder, ok := strings.CutSuffix(d.Name, "index.html"); ok {
			there[folder] = true
		}
	}
	for _, folder := range s.diffs {
		there[folder] = true
	}
	for _, from := range slices.Sorted(maps.Keys(s.slugs.Redirects)) {
		to := s.slugs.Redirects[from]
		if there[from] || !there[to] {
			return fmt.Errorf("read %s: redirect from %q to %q: want from where no page is to where one is", SlugsFile, from, to)
		}
		v := struct {
			sitePage
			URL string
		}{s.newPage(from, "This page has moved", "It is at another address now."), ""}
		v.URL, v.MD, v.JSON = v.Root+escapePath(to)+"index.html", "", ""
		b, err := html("moved.html.tmpl", v)
		if err != nil {
			return err
		}
		s.files = append(s.files, document{from + "index.html", b})
	}
	return nil
}

// addRest adds what makes the files a site: the style, the page for
// addresses that do not exist, and what hosts and search engines look for.
func (s *site) addRest() error {
	s.files = append(s.files,
		document{SiteMarker, []byte(markerText)},
		document{".nojekyll", nil},
		document{s.style.name, s.style.data},
		document{s.icon.name, s.icon.data},
	)
	s.files = append(s.files, s.options.Layer.files()...)
	lost := groupsView{sitePage: s.newPage("", "There is no such page", "Pages are by model and hardware, and every run has one.")}
	lost.Title, lost.MD, lost.JSON = lost.Heading+" – "+eyebrow, "", ""
	// The page appears at any depth, so only the whole address leads back.
	lost.Root = basePath(s.options.BaseURL)
	for i := range lost.Nav {
		lost.Nav[i].URL, lost.Nav[i].Here = lost.Root+lost.Nav[i].URL, false
	}
	for _, group := range by(s.runs, func(r *summary) string { return r.ModelID }) {
		lost.Groups = append(lost.Groups, groupRow{Text: s.names[group[0].ModelID], URL: lost.Root + s.modelPath(group[0])})
	}
	b, err := html("404.html.tmpl", lost)
	if err != nil {
		return err
	}
	s.files = append(s.files, document{"404.html", b})

	robots := "User-agent: *\nAllow: /\n"
	if base := s.options.BaseURL; base != "" {
		base = strings.TrimSuffix(base, "/") + "/"
		robots += "Sitemap: " + base + "sitemap.xml\n"
		var pages []string
		for _, d := range s.files {
			if path.Base(d.Name) == "index.html" && s.slugs.Redirects[strings.TrimSuffix(d.Name, "index.html")] == "" {
				pages = append(pages, strings.TrimSuffix(d.Name, "index.html"))
			}
		}
		for _, r := range s.runs {
			pages = append(pages, escapePath(runPath(r)))
		}
		pages = append(pages, s.diffs...)
		slices.Sort(pages)
		var b strings.Builder
		b.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n")
		for _, p := range pages {
			b.WriteString("<url><loc>" + escapeXML(base+p) + "</loc></url>\n")
		}
		b.WriteString("</urlset>\n")
		s.files = append(s.files, document{"sitemap.xml", []byte(b.String())})
	}
	s.files = append(s.files, document{"robots.txt", []byte(robots)})
	return nil
}
