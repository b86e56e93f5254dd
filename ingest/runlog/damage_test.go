package runlog

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go/format"
)

// mostMemory is what reading one small file may allocate, damaged or not.
const mostMemory = 64 << 20

// decodeBounded decodes data and fails the test where that takes more
// memory than a small file may.
func decodeBounded(t testing.TB, what string, data []byte, key Key) (*Events, *damage) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ev, d := decodeEvents(data, key)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > mostMemory {
		t.Fatalf("%s: allocated %d bytes, want %d at most", what, got, mostMemory)
	}
	return ev, d
}

// extremes are the numbers that break programs.
var extremes = []int64{0, 1, -1, 1 << 24, math.MaxInt32, 1 << 62, math.MinInt64}

// Damage of every kind must be an error or change nothing, without help
// from the manifest's checksum.
func TestDamageIsAnErrorOrChangesNothing(t *testing.T) {
	const each = 2000 / raceDivisor
	want := smallEvents()
	good := encoded(t, want)
	_, spans := takeApart(t, good)
	spans["file"] = []span{{0, len(good)}}
	spans["tail"] = []span{{len(good) - 8, len(good)}}
	for _, kind := range []string{"header", "dictionary", "body", "footer"} {
		if len(spans[kind]) == 0 {
			t.Fatalf("the file has no %s", kind)
		}
	}
	// in picks a place in one of the named spans.
	in := func(r *rand.Rand, kind string) int {
		s := spans[kind][r.IntN(len(spans[kind]))]
		return s.from + r.IntN(s.to-s.from)
	}
	flip := func(kind string) func(*rand.Rand, []byte) []byte {
		return func(r *rand.Rand, b []byte) []byte {
			b[in(r, kind)] ^= 1 << r.IntN(8)
			return b
		}
	}
	overwrite := func(kind string, most int) func(*rand.Rand, []byte) []byte {
		return func(r *rand.Rand, b []byte) []byte {
			at := in(r, kind)
			for i := range 1 + r.IntN(most) {
				if at+i < len(b) {
					b[at+i] = byte(r.Uint32())
				}
			}
			return b
		}
	}
	total, harmless := 0, 0
	for _, campaign := range []struct {
		name   string
		damage func(*rand.Rand, []byte) []byte
	}{
		{"truncated", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
		{"truncated with a tail", func(r *rand.Rand, b []byte) []byte {
			return append(b[:r.IntN(len(b)-8)], good[len(good)-8:]...)
		}},
		{"a bit anywhere", flip("file")},
		{"a bit in a page header", flip("header")},
		{"a bit in a page body", flip("body")},
		{"a bit in a dictionary", flip("dictionary")},
		{"a bit in the footer", flip("footer")},
		{"bytes in a page header", overwrite("header", 4)},
		{"bytes in a page body", overwrite("body", 16)},
		{"bytes in a dictionary", overwrite("dictionary", 4)},
		{"bytes in the footer", overwrite("footer", 8)},
		{"bytes in the last 8", overwrite("tail", 8)},
		{"a range of zeros", func(r *rand.Rand, b []byte) []byte {
			at := r.IntN(len(b))
			clear(b[at:min(len(b), at+1+r.IntN(64))])
			return b
		}},
		{"a range left out", func(r *rand.Rand, b []byte) []byte {
			at := r.IntN(len(b))
			return slices.Delete(b, at, min(len(b), at+1+r.IntN(16)))
		}},
		{"a range twice", func(r *rand.Rand, b []byte) []byte {
			at := r.IntN(len(b))
			return slices.Insert(b, at, slices.Clone(b[at:min(len(b), at+1+r.IntN(16))])...)
		}},
	} {
		r := rand.New(rand.NewPCG(1, uint64(len(campaign.name))))
		for i := range each {
			data := campaign.damage(r, bytes.Clone(good))
			what := fmt.Sprintf("%s, case %d", campaign.name, i)
			total++
			switch got, d := decodeBounded(t, what, data, want.Key); {
			case d != nil && d.msg == "":
				t.Fatalf("%s: an error that says nothing", what)
			case d == nil && !got.equal(want):
				t.Fatalf("%s: other events without an error", what)
			case d == nil:
				harmless++
			}
		}
	}
	t.Logf("%d damaged files, %d of them harmlessly", total, harmless)
	if total < 20_000/raceDivisor || harmless == 0 || harmless > total/2 {
		t.Errorf("%d damaged files, %d of them harmlessly: want %d or more, and most to be errors", total, harmless, 20_000/raceDivisor)
	}
}

// With the manifest's checksum any change of a file is an error.
func TestChecksumFindsEveryChange(t *testing.T) {
	dir := newRun(t)
	ev := smallEvents()
	info, err := WriteEvents(dir, ev)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.FromSlash(info.File))
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 500 {
		bad := bytes.Clone(good)
		at := r.IntN(len(bad))
		if i%5 == 0 {
			bad = bad[:at]
		} else {
			bad[at] ^= 1 << r.IntN(8)
		}
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadEvents(dir, ev.Key, info); err == nil {
			t.Fatalf("case %d, at byte %d: no error", i, at)
		}
	}
}

// Files that are consistent, checksums and all, but hostile inside: the
// worst that may come out is other events, and they keep the rules.
func TestHostileContentIsBounded(t *testing.T) {
	const cases = 6000 / raceDivisor
	want := smallEvents()
	good := encoded(t, want)
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range cases {
		f, _ := takeApart(t, good)
		column := r.IntN(len(f.columns))
		p := f.columns[column][r.IntN(len(f.columns[column]))]
		if i%3 == 0 { // the compressed bytes instead of what is in them
			p.body = func(b []byte) []byte {
				for range 1 + r.IntN(3) {
					b[r.IntN(len(b))] = byte(r.Uint32())
				}
				return b
			}
		}
		into := &p.data
		if len(p.levels) > 0 && r.IntN(3) == 0 {
			into = &p.levels
		}
		for range (1 + r.IntN(3)) * min(1, i%3) {
			switch at := r.IntN(len(*into) + 1); {
			case r.IntN(4) == 0: // a huge varint: lengths and counts
				*into = slices.Concat((*into)[:at], []byte{0xFF, 0xFF, 0xFF, 0xFF, 0x07}, (*into)[min(len(*into), at+r.IntN(6)):])
			case at == len(*into) || r.IntN(6) == 0:
				*into = append((*into)[:at:at], byte(r.Uint32()))
			default:
				(*into)[at] = byte(r.Uint32())
			}
		}
		what := fmt.Sprintf("case %d, column %q", i, columnsOf[eventRow]()[column].name)
		ev, d := decodeBounded(t, what, f.build(t), want.Key)
		switch {
		case d != nil:
			refused++
		case ev.Check() != nil:
			t.Fatalf("%s: events that break a rule: %v", what, ev.Check())
		}
	}
	t.Logf("%d hostile files, %d of them refused", cases, refused)
	if refused < cases/2 {
		t.Errorf("%d of %d hostile files refused, want most", refused, cases)
	}
}

// Every number in every page header and in the footer, replaced by numbers
// that break programs: an error, or the same events.
func TestHostileNumbersChangeNothing(t *testing.T) {
	want := smallEvents()
	good := encoded(t, want)
	cases := 0
	try := func(what string, f *rawFile) {
		cases++
		ev, d := decodeBounded(t, what, f.build(t), want.Key)
		if d == nil && !ev.equal(want) {
			t.Fatalf("%s: other events without an error", what)
		}
	}
	whole, _ := takeApart(t, good)
	for column, pages := range whole.columns {
		for page := range pages {
			n := len(numbersIn(reflect.ValueOf(&pages[page].header).Elem()))
			for field := page % raceDivisor; field < n; field += raceDivisor {
				for _, value := range extremes {
					pages[page].fix = func(h *format.PageHeader) {
						setNumber(numbersIn(reflect.ValueOf(h).Elem())[field], value)
					}
					try(fmt.Sprintf("column %d, page %d, number %d = %d", column, page, field, value), whole)
					pages[page].fix = nil
				}
			}
		}
	}
	n := len(numbersIn(reflect.ValueOf(&whole.meta).Elem()))
	for field := 0; field < n; field += raceDivisor {
		for _, value := range extremes {
			f, _ := takeApart(t, good)
			f.footer = func(m *format.FileMetaData) { setNumber(numbersIn(reflect.ValueOf(m).Elem())[field], value) }
			try(fmt.Sprintf("footer, number %d = %d", field, value), f)
		}
	}
	t.Logf("%d hostile numbers", cases)
	if cases < 5000/raceDivisor {
		t.Errorf("%d cases, want %d or more", cases, 5000/raceDivisor)
	}
}

// numbersIn lists the integers and booleans in a Thrift struct.
func numbersIn(v reflect.Value) []reflect.Value {
	var list []reflect.Value
	switch v.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Bool:
		list = append(list, v)
	case reflect.Struct:
		for i := range v.NumField() {
			list = append(list, numbersIn(v.Field(i))...)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				list = append(list, numbersIn(v.Index(i))...)
			}
		}
	}
	return list
}

func setNumber(v reflect.Value, value int64) {
	if v.Kind() == reflect.Bool {
		v.SetBool(value%2 != 0)
	} else {
		v.SetInt(value) // wraps in narrower types: as good
	}
}
