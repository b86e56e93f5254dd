//go:build !race

package runlog

// raceDivisor: see race_test.go.
const raceDivisor = 1
