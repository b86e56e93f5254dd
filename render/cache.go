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
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"speedmatrix/ingest/runlog"
)

// A cache keeps what was computed of runs, one archive per run. Its name is
// a hash of all that the content depends on, so an archive is never out of
// date; it is only unused.
type cache struct {
	options Options
	dir     string // "": keeps nothing

	lock     sync.Mutex
	used     map[string]bool   // names of files
	names    map[string]string // of the archives of runs, by run
	launches map[string][]byte // essences of the runs that were computed, by run
}

// cacheFile are the only names that a cache takes away.
var cacheFile = regexp.MustCompile(`^[0-9a-f]{64}\.(zip|launch|diff)$`)

// Members of an archive: the summary first, then files in two folders.
const (
	summaryFile = "summary.json"
	siteFolder  = "site/"
	twinFolder  = "twin/"
)

func openCache(o Options) (*cache, error) {
	if o.Cache == "" {
		return &cache{options: o, names: map[string]string{}, launches: map[string][]byte{}}, nil
	}
	if o.Version == "" {
		return nil, errors.New("open cache: the version of the program is not known")
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	return &cache{options: o, dir: o.Cache, used: map[string]bool{}, names: map[string]string{}, launches: map[string][]byte{}}, nil
}

// page returns what the site has of a run, and whether it was computed.
func (c *cache) page(s source) (p *runPage, computed bool, err error) {
	if c.dir == "" {
		p, err = c.compute(s)
		return p, true, err
	}
	name, err := c.name(s)
	if err != nil {
		return nil, false, err
	}
	c.lock.Lock()
	c.used[name], c.used[launchFile(name)] = true, true
	c.names[s.id] = name
	c.lock.Unlock()
	if p, err := readPage(filepath.Join(c.dir, name)); err == nil {
		return p, false, nil // one that is damaged or gone is computed anew
	}
	if p, err = c.compute(s); err != nil {
		return nil, false, err
	}
	// A file that changed while the run was read must not be taken for the
	// one that was hashed.
	if now, err := c.name(s); err != nil || now != name {
		c.lock.Lock()
		delete(c.names, s.id)
		c.lock.Unlock()
		return p, true, err
	}
	if err := c.writeLaunch(s.id, name); err != nil {
		return p, true, err
	}
	return p, true, writePage(filepath.Join(c.dir, name), p)
}

func (c *cache) compute(s source) (*runPage, error) {
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	if err := c.keepLaunch(s.id, in.Run); err != nil {
		return nil, err
	}
	return newRunPage(in, c.options)
}

// name hashes everything that a run's files depend on: the program, the
// options, the run's name and every byte of it.
func (c *cache) name(s source) (string, error) {
	h := sha256.New()
	part := func(text string) { fmt.Fprintf(h, "%d %s\n", len(text), text) }
	part("speedmatrix-cache/1")
	part(c.options.Version)
	part(c.options.RawURL)
	part(c.options.Layer.id())
	part(s.id)
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return "", fmt.Errorf("read run: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		isRun := name == runlog.ManifestFile || name == runlog.NotesFile || path.Ext(name) == ".parquet"
		if err != nil || d.IsDir() || !isRun { // not what is made of the run, and lies beside it
			return err
		}
		f, err := root.Open(name) // follows links, as reading the run does
		if err != nil {
			return err
		}
		defer f.Close()
		content := sha256.New()
		if _, err := io.Copy(content, f); err != nil {
			return err
		}
		part(name)
		part(hex.EncodeToString(content.Sum(nil)))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read run %q: %w", s.dir, err)
	}
	return hex.EncodeToString(h.Sum(nil)) + ".zip", nil
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
	if err := os.WriteFile(file+".partial", b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write cache: %w", err)
	}
	if err := os.Rename(file+".partial", file); err != nil {
		return fmt.Errorf("write cache: %w", err)
	}
	return nil
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
	for i, m := range r.File {
		f, err := m.Open()
		if err != nil {
			return nil, err
		}
		data := make([]byte, 0, min(m.UncompressedSize64, 1<<24)+bytes.MinRead)
		b := bytes.NewBuffer(data)
		_, err = b.ReadFrom(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if i == 0 && m.Name == summaryFile {
			if err := json.Unmarshal(b.Bytes(), &p.Summary); err != nil {
				return nil, err
			}
		} else if name, ok := strings.CutPrefix(m.Name, siteFolder); ok {
			p.Files = append(p.Files, document{name, b.Bytes()})
		} else if name, ok := strings.CutPrefix(m.Name, twinFolder); ok {
			p.Twin = append(p.Twin, document{name, b.Bytes()})
		} else {
			return nil, fmt.Errorf("unexpected member %q", m.Name)
		}
	}
	if len(p.Files) == 0 || len(p.Twin) == 0 {
		return nil, errors.New("no files")
	}
	return p, nil
}

// prune takes away what this build did not use.
func (c *cache) prune() error {
	if c.dir == "" {
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
