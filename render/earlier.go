package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"speedmatrix/ingest/runlog"
)

// What a build takes over from the one before. A site is made of parts, each
// a folder: those of runs and of comparisons. Beside its archives the cache
// keeps a record of the site that was written last: of each part what it was
// made of, and how its files lay on disk. A part that would be made of the
// same, and whose files have not been touched, is linked into the new site:
// it is neither rendered nor written, and its files keep their times.
//
// Which rule holds where:
//   - A file of a run counts as unchanged where its name, size, inode, time
//     of content and time of any change (which no program can set) are those
//     of the record, and where the last of them was two seconds old when the
//     file was read: as git's index does it. Otherwise it is read, and its
//     checksum decides.
//   - A file of the site counts as untouched where name, size, inode and time
//     of content are those of the record.
//   - Where the system tells no such things, every file is read.
//   - Check trusts neither the record nor the cache: it computes in full.
//
// Pages that are about several runs are always made, and written where they
// differ from what is there.

// A record is what is kept of a site. It is of one version of the program.
type record struct {
	Version string
	Runs    map[string]readRun // by name
	Parts   map[string]part    // by folder in the site, ending in a slash
}

// A readRun is a run directory as it was when it was read.
type readRun struct {
	Mark string // hash of all that its files show without being read; "" not to be trusted
	Name string // of its archive in the cache
}

// A part is a folder of the site that is made, or taken over, as a whole.
type part struct {
	Key   string // hash of what it was made of
	Note  []byte // what other pages need to know of it
	Files []stamp
}

// A stamp is how a file lies on disk. It changes when the file is written.
type stamp struct {
	Name  string // relative to its part, with forward slashes
	Size  int64
	Time  int64 // of the content, in Unix nanoseconds
	Inode uint64
}

// recordFile is the record's name in the cache.
const recordFile = "site.record"

// readRecord returns an empty record where there is none of this version, or
// a damaged one.
func readRecord(dir, version string) record {
	r := record{}
	b, err := readKept(filepath.Join(dir, recordFile))
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(b)).Decode(&r)
	}
	if err != nil || r.Version != version {
		return record{}
	}
	return r
}

func (r record) write(dir string) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(r); err != nil {
		return fmt.Errorf("write cache: %w", err)
	}
	return writeKept(filepath.Join(dir, recordFile), b.Bytes())
}

// newStamp returns the stamp of a file; false where the system does not tell
// enough.
func newStamp(name string, i fs.FileInfo) (stamp, bool) {
	id, ok := identityOf(i)
	return stamp{Name: name, Size: i.Size(), Time: i.ModTime().UnixNano(), Inode: id.inode}, ok && i.Mode().IsRegular()
}

// An identity is what tells that a file is the same and as it was.
type identity struct {
	device, inode uint64
	changed       time.Time // when anything about it last changed
}

// settled is how long nothing may have happened to a file before its mark is
// trusted: some file systems count in steps of two seconds.
const settled = 2 * time.Second

// mark hashes what the files of a run show without being read. It is "" where
// that says too little, or where a file changed so shortly before now that
// another change might not show.
func mark(dir string, now time.Time) (string, error) {
	h := sha256.New()
	trusted := true
	err := walkRun(dir, func(root *os.Root, name string) error {
		i, err := root.Stat(name) // of what a link leads to
		if err != nil {
			return err
		}
		id, ok := identityOf(i)
		trusted = trusted && ok && id.changed.Add(settled).Before(now) && i.ModTime().Add(settled).Before(now)
		fmt.Fprintf(h, "%q %d %d %d %d %d\n", name, i.Size(), i.ModTime().UnixNano(), id.changed.UnixNano(), id.device, id.inode)
		return nil
	})
	if err != nil || !trusted {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// walkRun calls do for each file of a run directory, ascending, and not for
// what is made of the run and lies beside it.
func walkRun(dir string, do func(root *os.Root, name string) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		isRun := name == runlog.ManifestFile || name == runlog.NotesFile || path.Ext(name) == ".parquet"
		if err != nil || d.IsDir() || !isRun {
			return err
		}
		return do(root, name)
	})
}

// A folder writes the files of a site below one directory.
type folder struct {
	dir    string
	old    string          // the earlier site; "" none
	before map[string]part // of the earlier site

	lock  sync.Mutex
	parts map[string]part // that were written or taken over
	made  map[string]bool // directories
}

func newFolder(dir, old string, before map[string]part) *folder {
	return &folder{dir: dir, old: old, before: before, parts: map[string]part{}, made: map[string]bool{}}
}

// takeOver puts a part of the earlier site into this one, if it was made of
// what the key stands for and has not been touched since.
func (f *folder) takeOver(at, key string) (p part, ok bool) {
	p, ok = f.before[at]
	if !ok || p.Key != key || key == "" || f.old == "" {
		return part{}, false
	}
	old := filepath.Join(f.old, filepath.FromSlash(at))
	for _, s := range p.Files {
		if !filepath.IsLocal(filepath.FromSlash(s.Name)) {
			return part{}, false
		}
		i, err := os.Lstat(filepath.Join(old, filepath.FromSlash(s.Name)))
		if err != nil {
			return part{}, false
		}
		if now, ok := newStamp(s.Name, i); !ok || now != s {
			return part{}, false
		}
	}
	for _, s := range p.Files {
		path, err := f.place(at + s.Name)
		if err == nil {
			err = os.Link(filepath.Join(old, filepath.FromSlash(s.Name)), path)
		}
		if err != nil { // a file system without links: what is there is written over
			return part{}, false
		}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.parts[at] = p
	return p, true
}

// wrote notes that a part has been written, so that the next build can take
// it over.
func (f *folder) wrote(at, key string, note []byte) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.parts[at] = part{Key: key, Note: note}
}

// stamped returns all parts with the stamps of their files. Parts whose files
// can't be stamped are left out.
func (f *folder) stamped(ctx context.Context) (map[string]part, error) {
	var lock sync.Mutex
	all := maps.Clone(f.parts)
	names := slices.Sorted(maps.Keys(all))
	err := inParallel(ctx, names, func(at string) error {
		p := f.parts[at]
		if p.Files != nil {
			return nil
		}
		whole := true
		dir := filepath.Join(f.dir, filepath.FromSlash(at))
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			i, err := d.Info()
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, path)
			s, ok := newStamp(filepath.ToSlash(name), i)
			p.Files = append(p.Files, s)
			whole = whole && ok
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a comparison may have no page
			return fmt.Errorf("write site: %w", err)
		}
		lock.Lock()
		defer lock.Unlock()
		if all[at] = p; !whole {
			delete(all, at)
		}
		return nil
	})
	return all, err
}

// write writes a file. Where the earlier site has the same there, it is that
// file.
func (f *folder) write(name string, data []byte) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	if f.old != "" {
		old := filepath.Join(f.old, filepath.FromSlash(name))
		if same(old, data) && os.Link(old, path) == nil {
			return nil
		}
	}
	to, err := create(path)
	if err == nil {
		_, err = to.Write(data)
		err = errors.Join(err, to.Close())
	}
	if err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	return nil
}

// same reports whether a regular file holds exactly data.
func same(path string, data []byte) bool {
	if i, err := os.Lstat(path); err != nil || !i.Mode().IsRegular() || i.Size() != int64(len(data)) {
		return false
	}
	b, err := os.ReadFile(path)
	return err == nil && bytes.Equal(b, data)
}

// create makes a new file. What is there already, perhaps a link to a file of
// the earlier site, is not written into.
func create(path string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	to, err := os.OpenFile(path, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if err = os.Remove(path); err == nil {
			to, err = os.OpenFile(path, flags, 0o644)
		}
	}
	return to, err
}

// copy copies files of a run as they are.
func (f *folder) copy(at, dir string, files []string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	defer root.Close()
	for _, name := range files {
		if err := notLocal(name); err != nil {
			return err
		}
		path, err := f.place(at + name)
		if err != nil {
			return err
		}
		if err := copyFile(path, root, filepath.FromSlash(name)); err != nil {
			return fmt.Errorf("write site: %w", err)
		}
	}
	return nil
}

// place makes the directory of a file.
func (f *folder) place(name string) (string, error) {
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	dir := filepath.Dir(path)
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.made[dir] {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write site: %w", err)
	}
	f.made[dir] = true
	return path, nil
}
