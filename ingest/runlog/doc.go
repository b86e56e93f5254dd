// Package runlog reads and writes run directories: the raw format runlog/1,
// described in FORMAT.md beside this file. It is the only package that the
// collector and the rest of speedmatrix share.
//
// What is in a run log was observed. This package knows the shape of that
// and its rules (row order, enumerations, ranges, checksums) and refuses
// what breaks them with an error that names the file, the place, what it
// got and what it wanted. It must not know how anything is measured, and it
// must not compute: no median, no status, no rate.
package runlog
