// Package docs embeds those documents of this folder that a site shows, so
// that a site says by which method its numbers were computed. It must not do
// anything else.
package docs

import _ "embed"

// Method is method.md: how a server is measured, and what each number means.
//
//go:embed method.md
var Method []byte

// SQL is sql.md: the figures as queries over the event files.
//
//go:embed sql.md
var SQL []byte

// Comparing is diff.md: what a comparison says, and when.
//
//go:embed diff.md
var Comparing []byte

// Validation is diff-validation.md: how often a comparison is wrong.
//
//go:embed diff-validation.md
var Validation []byte

// CI is diff-ci.md: comparisons on pull requests.
//
//go:embed diff-ci.md
var CI []byte
