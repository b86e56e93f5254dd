// Package made makes run logs up that look like measured ones, for the
// measuring programs: engine steps that all streams share, the jitter of a
// kernel's receive times, text that people wrote. The same seed gives the
// same run, as long as the Go distribution is the same.
//
// It must not measure anything, and must not make up anything that a real
// collector would not record.
package made

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// A Text is what made-up models say: the source of the Go distribution, prose
// and code, cut into pieces of the size of tokens. Wherever this program
// builds, there is that.
type Text struct {
	words []byte
	ends  []int // of each piece
}

// textBytes is how much of the distribution is enough: more than a reference
// run delivers.
const textBytes = 12 << 20

// ReadText reads the text.
func ReadText() (*Text, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find the Go distribution: %w", err)
	}
	t := new(Text)
	enough := errors.New("enough")
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "src"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// Tables repeat themselves, as no healthy model does.
		if len(data) > 100_000 || bytes.Contains(data, []byte("Code generated")) || !utf8.Valid(data) {
			return nil
		}
		if t.add(data); len(t.words) > textBytes {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, fmt.Errorf("read the Go distribution: %w", err)
	}
	return t, nil
}

// add cuts data into pieces as tokenizers do: a word with the space before
// it, long words in parts, up to three digits, a run of anything else.
func (t *Text) add(data []byte) {
	class := func(c byte) int {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
			return 0
		case c >= '0' && c <= '9':
			return 1
		case c == ' ' || c == '\t' || c == '\n':
			return 2
		}
		return 3
	}
	longest := [...]int{7, 3, 8, 3}
	for len(data) > 0 {
		n := 0
		if data[0] == ' ' && len(data) > 1 && class(data[1]) == 0 {
			n = 1
		}
		kind, from := class(data[n]), n
		for n < len(data) && class(data[n]) == kind && (n-from < longest[kind] || data[n]&0xC0 == 0x80) {
			n++
		}
		t.words = append(t.words, data[:n]...)
		t.ends = append(t.ends, len(t.words))
		data = data[n:]
	}
}

// piece returns n pieces from piece i on; after the last comes the first.
func (t *Text) piece(i, n int) []byte {
	i %= len(t.ends)
	from, to := 0, t.ends[min(len(t.ends), i+n)-1]
	if i > 0 {
		from = t.ends[i-1]
	}
	return t.words[from:to]
}

// Shuffled returns n bytes of the text's pieces in a random order, so that no
// passage comes twice, with a question mark for what is not ASCII.
func (t *Text) Shuffled(n int) string {
	r := rand.New(rand.NewPCG(11, 13))
	var b []byte
	for len(b) < n {
		b = append(b, t.piece(r.IntN(len(t.ends)), 1)...)
	}
	return ascii(b[:n])
}

// ASCII returns the first n bytes of the text, which has that many where n is
// 10 MB or less, with a question mark for everything that is not ASCII.
func (t *Text) ASCII(n int) string {
	return ascii(bytes.Clone(t.words[:n]))
}

func ascii(b []byte) string {
	for i, c := range b {
		if c >= utf8.RuneSelf {
			b[i] = '?'
		}
	}
	return string(b)
}
