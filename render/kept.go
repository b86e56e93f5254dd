package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/compare"
)

// What the cache keeps beside the pages of runs: of each run what
// comparisons look at, so that a run need not be read to be compared, and of
// each comparison its pages.

// launchFile is the name of the file with a run's essence, beside the
// archive of its pages.
func launchFile(archive string) string { return strings.TrimSuffix(archive, ".zip") + ".launch" }

// writeLaunch keeps what comparisons look at, beside the run's archive.
func (c *cache) writeLaunch(archive string, r *ingest.Run) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(compare.Essence(r)); err != nil {
		return fmt.Errorf("keep run %q: %w", r.ID, err)
	}
	return writeKept(filepath.Join(c.dir, launchFile(archive)), b.Bytes())
}

// launch returns what comparisons look at of a run whose summary was asked
// for. What is damaged or gone is made anew.
func (c *cache) launch(s source) (*ingest.Run, error) {
	archive := c.archive(s.id)
	if b, err := readKept(filepath.Join(c.dir, launchFile(archive))); err == nil {
		r := &ingest.Run{}
		if err := gob.NewDecoder(bytes.NewReader(b)).Decode(r); err == nil {
			return r, nil
		}
	}
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	return compare.Essence(in.Run), c.writeLaunch(archive, in.Run)
}

// use marks a file of the cache as one that this build needs.
func (c *cache) use(name string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.used[name] = true
}

// writeKept writes data behind its checksum.
func writeKept(file string, data []byte) error {
	sum := sha256.Sum256(data)
	return writeWhole(file, append(sum[:], data...))
}

// writeWhole writes a file of the cache so that nobody sees a part of it.
// Several may write the same at once.
func writeWhole(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.partial")
	if err != nil {
		return fmt.Errorf("write cache: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write cache: %w", err)
	}
	return nil
}

// readKept reads such a file.
func readKept(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(b) < sha256.Size || sha256.Sum256(b[sha256.Size:]) != [sha256.Size]byte(b[:sha256.Size]) {
		return nil, errors.New("damaged")
	}
	return b[sha256.Size:], nil
}
