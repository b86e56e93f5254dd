package ingest

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestGapsAreSortedAsByComparison(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var memory []int64
	for _, n := range []int{0, 1, 2000, 2048, 5000, 3000} {
		for _, most := range []int64{1, 2, 2047, 2048, 1 << 22, 1<<22 + 1, 1 << 50} {
			got := make([]int64, n)
			for i := range got {
				got[i] = r.Int64N(most)
			}
			want := slices.Sorted(slices.Values(got))
			if memory = sortGaps(got, memory); !slices.Equal(got, want) {
				t.Errorf("%d gaps below %d are not in order", n, most)
			}
		}
	}
}
