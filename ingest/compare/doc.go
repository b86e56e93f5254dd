// Package compare says whether launches of one side differ in speed or in
// coverage from those of another, how sure that is, and what can't be
// compared at all. docs/diff.md describes its rules and words.
//
// A comparison is made of runs that package ingest computed, and of a noise
// profile where there is one. The unit of evidence is a launch: nothing
// here looks at events. All of it is closed form: the same launches, in any
// order, give the same report.
//
// It must not know how runs are found, how a report is drawn, or what a
// program's exit looks like beyond its status: no files, no clock, no
// random numbers, no number format.
package compare
