package render

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"speedmatrix/ingest/runlog"
)

// A cache keeps what was computed of runs, one archive per run. Its name is
// a hash of all that the content depends on, so an archive is never out of
// date; it is only unused. A build without a cache has one for its own time,
// in which nothing is looked up, so that no page waits in memory.
type cache struct {
	options   Options
	dir       string
	temporary bool
	base      string    // of the names of archives: what all runs depend on
	now       time.Time // when the build began, by the clock of the file system
	earlier   record    // of the site

	lock     sync.Mutex
	used     map[string]bool    // names of files
	archives map[string]string  // names of the archives of runs, by run
	runs     map[string]readRun // those whose archive is named by its content, by run
}

// cacheFile are the only names that a cache takes away.
var cacheFile = regexp.MustCompile(`^[0-9a-f]{64}\.(zip|launch|diff)(\.\d+\.partial)?$`)

// Members of an archive: the summary first, then files in two folders.
const (
	summaryFile = "summary.json"
	siteFolder  = "site/"
	twinFolder  = "twin/"
)

// openCache opens the cache, or makes one at the path temporary.
func openCache(o Options, temporary string) (*cache, error) {
	c := &cache{options: o, dir: o.Cache, used: map[string]bool{}, archives: map[string]string{}, runs: map[string]readRun{}}
	if o.Cache == "" {
		c.dir, c.temporary = temporary, true
	} else if o.Version == "" {
		return nil, errors.New("open cache: the version of the program is not known")
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if c.temporary {
		return c, nil
	}
	h := sha256.New()
	for _, text := range []string{"speedmatrix-cache/2", o.Version, o.RawURL, o.Layer.id()} {
		fmt.Fprintf(h, "%d %s\n", len(text), text)
	}
	c.base = hex.EncodeToString(h.Sum(nil))
	c.earlier = readRecord(c.dir, c.base)
	probe, err := os.CreateTemp(c.dir, "now.*.partial")
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	i, err := probe.Stat()
	if err := errors.Join(err, probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	c.now = i.ModTime()
	return c, nil
}

// close takes a temporary cache away.
func (c *cache) close() {
	if c.temporary {
		os.RemoveAll(c.dir)
	}
}

// summary returns what other pages know of a run, and whether it was
// computed. After that its archive is in the cache, if nobody takes it out.
func (c *cache) summary(s source) (sum summary, computed bool, err error) {
	if c.temporary {
		sum, err = c.compute(s, volatile(s.id))
		return sum, true, err
	}
	seen, err := mark(s.dir, c.now)
	if err != nil {
		return summary{}, false, fmt.Errorf("read run %q: %w", s.dir, err)
	}
	known := c.earlier.Runs[s.id]
	unread := seen != "" && seen == known.Mark
	name := known.Name
	if !unread {
		if name, err = c.name(s); err != nil {
			return summary{}, false, err
		}
	}
	c.lock.Lock()
	c.archives[s.id] = name
	c.runs[s.id] = readRun{seen, name}
	c.used[name], c.used[launchFile(name)] = true, true
	c.lock.Unlock()
	err = errors.New("no record")
	if known.Name == name {
		err = json.Unmarshal(c.earlier.Parts[runFolder(s.id)].Note, &sum)
	}
	if err != nil {
		sum, err = readSummary(filepath.Join(c.dir, name))
	}
	if err == nil && (unread || whole(s.dir)) {
		return sum, false, nil
	}
	if sum, err = c.compute(s, name); err != nil {
		return summary{}, false, err
	}
	// A run that changed while it was read must not be taken for the one that
	// was hashed.
	if now, err := c.name(s); err != nil || now != name {
		c.lock.Lock()
		delete(c.runs, s.id)
		c.lock.Unlock()
		return sum, true, err
	}
	return sum, true, nil
}

// page returns the files of a run whose summary was asked for, and whether
// they were computed: an archive that is damaged or gone is made anew.
func (c *cache) page(s source) (p *runPage, computed bool, err error) {
	file := filepath.Join(c.dir, c.archive(s.id))
	if p, err := readPage(file); err == nil {
		return p, false, nil
	}
	if _, err := c.compute(s, c.archive(s.id)); err != nil {
		return nil, false, err
	}
	if p, err = readPage(file); err != nil {
		return nil, false, fmt.Errorf("read cache: %w", err)
	}
	return p, true, nil
}

// compute computes a run and puts what is kept of it into the cache.
func (c *cache) compute(s source, name string) (summary, error) {
	c.lock.Lock()
	c.archives[s.id] = name
	c.lock.Unlock()
	in, err := s.open()
	if err != nil {
		return summary{}, err
	}
	p, err := newRunPage(in, c.options)
	if err != nil {
		return summary{}, err
	}
	if err := c.writeLaunch(name, in.Run); err != nil {
		return summary{}, err
	}
	return p.Summary, writePage(filepath.Join(c.dir, name), p)
}

func (c *cache) archive(id string) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.archives[id]
}

// named returns the name of a run's archive where that stands for its content.
func (c *cache) named(id string) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.runs[id].Name
}

// writeRun puts the part of a run into a site, with its navigation.
func (c *cache) writeRun(f *folder, e *runEntry, nav []byte) error {
	at, key := runFolder(e.id), ""
	if name := c.named(e.id); name != "" {
		sum := sha256.Sum256(append([]byte(name+"\n"), nav...))
		key = hex.EncodeToString(sum[:])
	}
	if _, ok := f.takeOver(at, key); ok {
		return nil
	}
	p, computed, err := c.page(e.source)
	if err != nil {
		return err
	}
	e.computed = e.computed || computed
	for _, d := range p.Files {
		if d.Name == "index.html" || d.Name == cellsFile {
			d.Data = bytes.Replace(d.Data, []byte(aroundPlace), nav, 1)
		}
		if err := f.write(at+d.Name, d.Data); err != nil {
			return err
		}
	}
	if c.options.RawURL == "" {
		if err := f.copy(at+rawFolder+"/", e.dir, e.summary.Raw); err != nil {
			return err
		}
	}
	note, err := json.Marshal(e.summary)
	if err != nil {
		return fmt.Errorf("keep run %q: %w", e.id, err)
	}
	f.wrote(at, key, note)
	return nil
}

// runFolder is where a run is in a site.
func runFolder(id string) string { return runsFolder + "/" + id + "/" }

// volatile is the name of an archive that is of no use to another build.
func volatile(id string) string {
	sum := sha256.Sum256([]byte("volatile\n" + id))
	return hex.EncodeToString(sum[:]) + ".zip"
}

// name hashes everything that a run's files depend on: the program, the
// options, the run's name and what is in its directory. The manifest stands
// for the event files, whose checksums it has; telemetry of a run that was
// killed is not in it.
func (c *cache) name(s source) (string, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return "", fmt.Errorf("read run: %w", err)
	}
	defer root.Close()
	h := sha256.New()
	part := func(text string) { fmt.Fprintf(h, "%d %s\n", len(text), text) }
	part(c.base)
	part(s.id)
	for _, file := range []string{runlog.ManifestFile, runlog.NotesFile, runlog.TelemetryFile} {
		sum, err := checksum(root, file)
		if err != nil && (file == runlog.ManifestFile || !errors.Is(err, fs.ErrNotExist)) {
			return "", fmt.Errorf("read run %q: %w", s.dir, err)
		}
		part(sum)
	}
	return hex.EncodeToString(h.Sum(nil)) + ".zip", nil
}

// whole reports whether the event files of a run are as its manifest says, so
// that its name stands for their content.
func whole(dir string) bool {
	m, err := runlog.ReadManifest(dir)
	if format := (*runlog.FormatError)(nil); errors.As(err, &format) {
		return true // it vouches for nothing; the same bytes were computed from before
	} else if err != nil {
		return false
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	for _, l := range logFiles(m) {
		if sum, err := checksum(root, filepath.FromSlash(l.File)); err != nil || sum != l.SHA256 {
			return false
		}
	}
	return true
}

// checksum returns the SHA-256 of a file, following links as reading the run
// does.
func checksum(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// keep writes the record of a site of the given parts.
func (c *cache) keep(parts map[string]part) error {
	if c.temporary {
		return nil
	}
	return record{c.base, c.runs, parts}.write(c.dir)
}

func writePage(file string, p *runPage) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	add := func(name string, data []byte) error {
		// Stored, not deflated: what takes the time of a build is not the disk.
		m, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = m.Write(data)
		}
		return err
	}
	data, err := json.Marshal(p.Summary)
	if err == nil {
		err = add(summaryFile, data)
	}
	for _, d := range p.Files {
		if err == nil {
			err = add(siteFolder+d.Name, d.Data)
		}
	}
	for _, d := range p.Twin {
		if err == nil {
			err = add(twinFolder+d.Name, d.Data)
		}
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("write cache: %w", err)
	}
	return writeWhole(file, b.Bytes())
}

// readPage reads an archive. The format has a checksum for each member, so
// that damage is an error.
func readPage(file string) (*runPage, error) {
	r, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := &runPage{}
	for _, m := range r.File {
		data, err := readMember(m)
		if err != nil {
			return nil, err
		}
		if name, ok := strings.CutPrefix(m.Name, siteFolder); ok {
			p.Files = append(p.Files, document{name, data})
		} else if name, ok := strings.CutPrefix(m.Name, twinFolder); ok {
			p.Twin = append(p.Twin, document{name, data})
		} else if m.Name != summaryFile {
			return nil, fmt.Errorf("unexpected member %q", m.Name)
		} else if err := json.Unmarshal(data, &p.Summary); err != nil {
			return nil, err
		}
	}
	if len(p.Files) == 0 || len(p.Twin) == 0 || p.Summary.ID == "" {
		return nil, errors.New("no files")
	}
	return p, nil
}

// readSummary reads the first member of an archive only.
func readSummary(file string) (s summary, err error) {
	r, err := zip.OpenReader(file)
	if err != nil {
		return summary{}, err
	}
	defer r.Close()
	if len(r.File) == 0 || r.File[0].Name != summaryFile {
		return summary{}, errors.New("no summary")
	}
	data, err := readMember(r.File[0])
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

func readMember(m *zip.File) ([]byte, error) {
	f, err := m.Open()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, min(m.UncompressedSize64, 1<<24)+bytes.MinRead))
	_, err = b.ReadFrom(f)
	return b.Bytes(), errors.Join(err, f.Close())
}

// prune takes away what this build did not use.
func (c *cache) prune() error {
	if c.temporary {
		return nil
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("prune cache: %w", err)
	}
	for _, e := range entries {
		if cacheFile.MatchString(e.Name()) && !c.used[e.Name()] {
			if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil {
				return fmt.Errorf("prune cache: %w", err)
			}
		}
	}
	return nil
}
