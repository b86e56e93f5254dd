package render

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"speedmatrix/ingest/runlog"
)

// SlugsFile is the name of the file, beside the run directories, that keeps
// the addresses that were given.
const SlugsFile = "slugs.json"

// slugsFormat names the shape of slugs.json.
const slugsFormat = "speedmatrix-slugs/1"

// Slugs are the addresses of a site. What once got one keeps it, whatever
// comes later. People may add redirects, and change a slug by hand.
type slugs struct {
	Format   string            `json:"format"`
	Models   map[string]string `json:"models"`   // repository id → slug
	Hardware map[string]string `json:"hardware"` // name → slug
	Series   map[string]string `json:"series"`   // digest → model/hardware/slug

	// Redirects leads from the folder of a page that was renamed to its new
	// one, such as "models/old/" → "models/new/".
	Redirects map[string]string `json:"redirects"`
}

// maxSlug bounds the bytes of a slug before the hash of a collision.
const maxSlug = 48

var validSlug = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$`)

// readSlugs reads slugs.json and checks it.
func readSlugs(data []byte) (*slugs, error) {
	s := &slugs{}
	if len(data) > 0 {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(s); err != nil {
			return nil, fmt.Errorf("read %s: %w", SlugsFile, err)
		}
		if s.Format != slugsFormat {
			return nil, fmt.Errorf("read %s: format %q, want %q", SlugsFile, s.Format, slugsFormat)
		}
	}
	s.Format = slugsFormat
	for _, m := range []*map[string]string{&s.Models, &s.Hardware, &s.Series, &s.Redirects} {
		if *m == nil {
			*m = map[string]string{}
		}
	}
	for _, kind := range []struct {
		name  string
		slugs map[string]string
		parts int
	}{{"models", s.Models, 1}, {"hardware", s.Hardware, 1}, {"series", s.Series, 3}} {
		taken := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(kind.slugs)) {
			slug := kind.slugs[name]
			parts := strings.Split(slug, "/")
			if len(parts) != kind.parts || slices.ContainsFunc(parts, func(p string) bool { return !validSlug.MatchString(p) }) {
				return nil, fmt.Errorf("read %s: %s of %q is %q, want %d of a-z, 0-9, . and - between slashes", SlugsFile, kind.name, name, slug, kind.parts)
			}
			if other, ok := taken[slug]; ok {
				return nil, fmt.Errorf("read %s: %s of %q and of %q are both %q", SlugsFile, kind.name, other, name, slug)
			}
			taken[slug] = name
		}
	}
	for _, from := range slices.Sorted(maps.Keys(s.Redirects)) {
		for _, at := range []string{from, s.Redirects[from]} {
			if !strings.HasSuffix(at, "/") || !fs.ValidPath(strings.TrimSuffix(at, "/")) {
				return nil, fmt.Errorf("read %s: redirect from %q to %q, want folders such as \"models/old/\"", SlugsFile, from, s.Redirects[from])
			}
		}
	}
	return s, nil
}

func (s *slugs) json() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", "  ") // sorts the names
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", SlugsFile, err)
	}
	return append(b, '\n'), nil
}

// assign gives a slug to everything in runs that has none yet. The run that
// started first gets the plain slug of a name, a later one that would get
// the same has a hash of its own name behind it.
func (s *slugs) assign(runs []*summary) {
	first := slices.SortedFunc(slices.Values(runs), func(a, b *summary) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range first {
		model := give(s.Models, r.ModelID, "", r.Model)
		hardware := give(s.Hardware, r.Hardware, "", r.Hardware)
		give(s.Series, r.Series, model+"/"+hardware+"/", join(" ", r.Quantization, cmp.Or(r.EngineName, "engine")))
	}
}

// give returns the slug of a name, a new one made of text where it has none.
func give(given map[string]string, name, prefix, text string) string {
	if slug, ok := given[name]; ok {
		return slug
	}
	slug := prefix + runlog.Slug(text, maxSlug)
	for length := 6; slices.Contains(slices.Collect(maps.Values(given)), slug); length++ {
		sum := sha256.Sum256([]byte(name))
		slug = prefix + runlog.Slug(text, maxSlug) + "-" + hex.EncodeToString(sum[:])[:length]
	}
	given[name] = slug
	return slug
}

// versionKey orders the versions of an engine as Python's do: releases by
// number, before each its development builds and candidates, after it its
// post-releases. It is nil for what is no such version.
func versionKey(version string) []int {
	m := pythonVersion.FindStringSubmatch(strings.ToLower(version))
	if m == nil {
		return nil
	}
	number := func(s string, absent int) int {
		if s == "" {
			return absent
		}
		n := 0
		for _, c := range s {
			n = min(n*10+int(c-'0'), 1<<40) // a hostile version overflows nothing
		}
		return n
	}
	key := make([]int, 0, 10)
	parts := strings.Split(m[1], ".")
	for i := range 6 {
		n := 0
		if i < len(parts) {
			n = number(parts[i], 0)
		}
		key = append(key, n)
	}
	const none = 1 << 41
	post, dev := number(m[4], -1), number(m[5], none)
	stage := strings.Index(" a b rc", " "+m[2]) // 0, 2, 4
	if m[2] == "" {
		stage = 9 // the release
		if post < 0 && dev < none {
			stage = -1 // development builds come before all candidates
		}
	}
	return append(key, stage, number(m[3], 0), post, dev)
}

var pythonVersion = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:[.-]?(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+.*)?$`)

// byVersion orders the runs of one series by the order of the engine's
// versions, then by start. Runs of versions that have no order come first.
func byVersion(a, b *summary) int {
	return cmp.Or(
		slices.Compare(versionKey(a.Version), versionKey(b.Version)),
		a.Started.Compare(b.Started),
		cmp.Compare(a.ID, b.ID),
	)
}
