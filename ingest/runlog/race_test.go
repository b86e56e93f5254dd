//go:build race

package runlog

// raceDivisor divides the number of cases of the long campaigns: they have
// one goroutine, in which the race detector finds nothing and costs tenfold.
const raceDivisor = 10
