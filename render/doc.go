// Package render turns computed runs into documents: a run's page as HTML
// and as Markdown, its index.json and cells.csv, and a static site of many
// runs.
//
// A run becomes one view, a struct of ready strings, and every document is
// made from it, so documents can't disagree. Templates place and loop.
// Everything foreign is escaped for its place. The same runs give the same
// bytes on every machine, at every time.
//
// It must not know how anything was measured, and it must not compute: what
// is not in ingest.Run does not exist. It knows no clock and no network.
package render
