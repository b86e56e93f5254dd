// Package ingest turns run directories into requests, cells and figures. It
// is the only place that computes: every number and every status on a page,
// in inspect and in a comparison comes from here, by the definitions of
// docs/method.md, and can be computed again from the raw events.
//
// It must not know how anything is measured or drawn: no clock, no network,
// no HTML, no number format.
package ingest
