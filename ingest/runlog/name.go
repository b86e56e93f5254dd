package runlog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
)

// Lengths of the parts of a run's name. With them the longest path of any
// file of a run, results/<run>/cells/decode-1048576-c1024.parquet, has 177
// bytes, so that a checkout on Windows (260) leaves 80 for where it is. A
// usual one has 105.
const (
	maxModelSlug  = 40
	maxGPUSlug    = 36
	maxEngineSlug = 36

	slugHash = 8 // hexadecimal digits that keep shortened names apart
)

// RunName returns the name of the directory of a run:
//
//	<model>--<gpu>--<engine>-<commit>--<utc>
//
// such as gemma-4-e2b-it--rtx-pro-6000--vllm-73a5831127a9--20261129t101500z.
// The model is the last part of its repository's path, the GPU stands
// without the word NVIDIA and with 2x- before it when there are two, and is
// cpu where there is none; in place of an unknown commit is the version.
// What is not known at all is called unknown. The name is safe on every
// file system whatever the facts are (see Slug), and has at most 134 bytes.
func RunName(m *Manifest) string {
	return strings.Join([]string{
		Slug(lastPart(m.Model), maxModelSlug),
		Slug(gpuName(m.Hardware.GPUs), maxGPUSlug),
		Slug(engineName(m.Engine), maxEngineSlug),
		m.StartedAt.UTC().Format("20060102t150405z"),
	}, "--")
}

// lastPart returns the model's name without the organisation before it.
func lastPart(m Model) string {
	name := m.Repository
	if name == "" {
		name = m.ServedName
	}
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' })
	if len(parts) == 0 {
		return name
	}
	return parts[len(parts)-1]
}

// gpuName names the GPUs of a machine in a few words.
func gpuName(gpus []GPU) string {
	if len(gpus) == 0 {
		return "cpu"
	}
	same := 0
	for _, g := range gpus {
		if g.Name == gpus[0].Name {
			same++
		}
	}
	name := gpus[0].Name
	if rest, ok := strings.CutPrefix(strings.ToUpper(name), "NVIDIA "); ok {
		name = name[len(name)-len(rest):]
	}
	switch {
	case same < len(gpus):
		return fmt.Sprintf("%s and %d more", name, len(gpus)-1)
	case same > 1:
		return fmt.Sprintf("%dx %s", same, name)
	}
	return name
}

// engineName names the engine and the state of its code.
func engineName(e Engine) string {
	const commitDigits = 12
	name := "unknown"
	if e.Name != nil && e.Name.Value != "" {
		name = e.Name.Value
	}
	switch {
	case e.Commit != nil && e.Commit.Value != "":
		return name + "-" + e.Commit.Value[:min(commitDigits, len(e.Commit.Value))]
	case e.Version != nil && e.Version.Value != "":
		return name + "-" + e.Version.Value
	}
	return name
}

// Slug returns s as a name of at most most bytes (at least 16) out of a-z,
// 0-9, "." and "-", for a part of a file name or of an address. Letters
// become lower-case, everything else becomes "-", repeated "-" and "." are
// drawn together, and none stands at an end. Where that loses more than
// punctuation — the name is too long, has letters of another script, has
// nothing left, or is one that Windows reserves — the slug ends in a hash
// of s, so that different names stay different. The slug of "" is unknown.
func Slug(s string, most int) string {
	if s == "" {
		return "unknown"
	}
	var b strings.Builder
	lossy := false
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
			continue
		case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r), r == unicode.ReplacementChar:
			lossy = true
		}
		joint := byte('-')
		if r == '.' {
			joint = '.'
		}
		if n := b.Len(); n > 0 && b.String()[n-1] != '-' && b.String()[n-1] != '.' {
			b.WriteByte(joint)
		}
	}
	slug := strings.Trim(b.String(), "-.")
	if !lossy && slug != "" && len(slug) <= most && !isReserved(slug) {
		return slug
	}
	sum := sha256.Sum256([]byte(s))
	hash := hex.EncodeToString(sum[:])[:slugHash]
	slug = strings.TrimRight(slug[:min(len(slug), max(0, most-slugHash-1))], "-.")
	if slug == "" {
		return "x-" + hash
	}
	if isReserved(slug) {
		slug = strings.ReplaceAll(slug, ".", "-")
	}
	return slug + "-" + hash
}

// isReserved reports whether Windows takes the file name for a device: by
// the part before the first dot.
func isReserved(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	switch stem {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(stem) == 4 && (strings.HasPrefix(stem, "com") || strings.HasPrefix(stem, "lpt")) &&
		stem[3] >= '0' && stem[3] <= '9'
}
