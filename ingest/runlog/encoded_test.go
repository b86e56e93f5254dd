package runlog

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/rle"
)

// Runs as the library encodes them decode to what they were, at every width.
func TestRunsDecodeToWhatTheyWere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for width := 1; width <= 31; width++ {
		for n := range 300 {
			want := make([]int32, 1+r.IntN(200))
			value := int32(0)
			for i := range want {
				if r.IntN(1+n/20) > 0 { // from one long run to none
					value = int32(r.Uint32() & (1<<width - 1))
				}
				want[i] = value
			}
			b, err := (&rle.Encoding{BitWidth: width}).EncodeInt32(nil, want)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]int32, len(want))
			limit := uint32(slices.Max(want)) + 1
			if err := decodeRuns(got, b, width, limit); err != nil || !slices.Equal(got, want) {
				t.Fatalf("width %d: got %d, %v, want %d", width, got, err, want)
			}
			if err := decodeRuns(got, b, width, limit-1); err == nil || !strings.Contains(err.Error(), "want 0 to") {
				t.Fatalf("width %d, limit too low by one: got error %v, want one about the range", width, err)
			}
			if err := decodeRuns(append(got, 0), b, width, limit); err == nil && len(want)%8 == 0 {
				t.Fatalf("width %d: one value more than there are: got no error, want one", width)
			}
			if err := decodeRuns(got, b[:len(b)-1], width, limit); err == nil {
				t.Fatalf("width %d, cut off: got no error, want one", width)
			}
		}
	}
}

// What a reader returns does not depend on what it read before.
func TestReaderForgetsTheFileBefore(t *testing.T) {
	var files [][]byte
	var all []*Events
	for seed := range uint64(6) {
		ev := randomEvents(seed, decodeKey, []int{40, 3, 25, 0, 1, 60}[seed])
		all, files = append(all, ev), append(files, encoded(t, ev))
	}
	var r Reader
	for _, i := range []int{0, 1, 5, 3, 4, 2, 3, 1, 0} {
		damaged := slices.Clone(files[i])
		if all[i].Len() > 0 {
			damaged[100] ^= 0x40
			if _, d := r.decode(damaged, decodeKey); d == nil {
				t.Fatalf("file %d, damaged: got no error, want one", i)
			}
		}
		got, d := r.decode(files[i], decodeKey)
		if d != nil {
			t.Fatalf("file %d: %s", i, d.msg)
		}
		if !got.equal(all[i]) {
			t.Fatalf("file %d does not read as it was written after other files", i)
		}
	}
}
