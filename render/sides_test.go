package render

import (
	"strings"
	"testing"
)

// Many runs of which neither commit nor version is known, with names that
// differ in nothing that an address can show.
func TestSidesOfUnknownBuilds(t *testing.T) {
	var runs []*summary
	for i := range 200 {
		runs = append(runs, &summary{ID: "r" + strings.Repeat("_", i%2) + strings.Repeat("-", 1+i/2)})
	}
	slugs := map[string]bool{}
	for _, s := range sidesOf(runs) {
		slugs[s.Slug] = true
	}
	if len(slugs) != len(runs) {
		t.Errorf("%d addresses of %d builds", len(slugs), len(runs))
	}
}
