package runlog

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// tablesOf returns the tables of FORMAT.md under a heading: rows of cells,
// without the header.
func tablesOf(t *testing.T, heading string) [][][]string {
	t.Helper()
	data, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("FORMAT.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var tables [][][]string
	inside := 0 // lines of the table so far
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			inside = 0
			continue
		}
		inside++
		switch inside {
		case 1:
			tables = append(tables, nil)
		case 2: // the rule
		default:
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			tables[len(tables)-1] = append(tables[len(tables)-1], cells)
		}
	}
	return tables
}

// describe returns what FORMAT.md must say of the columns of T.
func describe[T any]() [][]string {
	var rows [][]string
	for _, c := range columnsOf[T]() {
		encoding := map[format.Encoding]string{
			format.RLEDictionary: "dictionary", format.DeltaBinaryPacked: "delta",
			format.DeltaLengthByteArray: "delta length", format.Plain: "plain",
		}[c.encoding]
		if c.codec == format.Uncompressed {
			encoding += ", not compressed"
		}
		null := map[bool]string{true: "yes", false: "no"}[c.optional]
		rows = append(rows, []string{"`" + c.name + "`", c.typeName, null, encoding})
	}
	return rows
}

func TestColumnTablesAreTheRowTypes(t *testing.T) {
	for _, tt := range []struct {
		heading string
		want    [][]string
	}{
		{"Event files", describe[eventRow]()},
		{"Telemetry file", describe[sampleRow]()},
	} {
		var got [][]string
		for _, row := range tablesOf(t, tt.heading)[0] {
			got = append(got, row[:4])
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-code +FORMAT.md):\n%s", tt.heading, diff)
		}
	}
}

func TestKindTableIsTheKinds(t *testing.T) {
	var got []string
	for _, row := range tablesOf(t, "Event files")[1] {
		got = append(got, strings.Trim(row[0], "`"))
	}
	if want := kindNames[1:]; !slices.Equal(got, want) {
		t.Errorf("FORMAT.md has the kinds %q, the code %q", got, want)
	}
}

// The table of sample names holds the Metric constants, all of them, in
// their order.
func TestNameTableIsTheMetricConstants(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "telemetry.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Metric") {
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !isSampleName(name) {
				t.Errorf("%s: %q can't be the name of a sample", spec.Names[0].Name, name)
			}
			want = append(want, "`"+name+"`")
		}
		return true
	})
	var got []string
	for _, row := range tablesOf(t, "Telemetry file")[1] {
		got = append(got, row[0])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-code +FORMAT.md):\n%s", diff)
	}
	if len(want) < 20 {
		t.Errorf("found %d Metric constants, want 20 or more", len(want))
	}
}

// Every key of run.json is in FORMAT.md, in bold where it must be there.
func TestManifestTablesNameEveryKey(t *testing.T) {
	text := ""
	for _, table := range tablesOf(t, "run.json") {
		for _, row := range table {
			text += strings.Join(row, " ") + "\n"
		}
	}
	keys := 0
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.PkgPath() != reflect.TypeFor[Manifest]().PkgPath() {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.Anonymous {
				keys++
				key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				want := "`" + key + "`"
				if options == "" {
					want = "**" + want + "**"
				}
				if !strings.Contains(text, want) {
					t.Errorf("%s.%s: FORMAT.md does not have %s", typ.Name(), f.Name, want)
				}
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Manifest]())
	if keys < 60 {
		t.Errorf("found %d keys, want 60 or more", keys)
	}
}

// What FORMAT.md promises of the file around the columns.
func TestFileIsLaidOutAsPromised(t *testing.T) {
	ev := cellEvents(1, 300_000, 1) // enough for several pages
	data := encoded(t, ev)
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	meta := file.Metadata()
	if meta.CreatedBy != "speedmatrix runlog/1" {
		t.Errorf("created by %q, want %q", meta.CreatedBy, "speedmatrix runlog/1")
	}
	want := []format.KeyValue{
		{Key: "runlog.concurrency", Value: "16"}, {Key: "runlog.context_tokens", Value: "8192"},
		{Key: "runlog.format", Value: "runlog/1"}, {Key: "runlog.phase", Value: "decode"},
	}
	if diff := cmp.Diff(want, []format.KeyValue(meta.KeyValueMetadata)); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if len(meta.RowGroups) != 1 {
		t.Fatalf("%d row groups, want 1", len(meta.RowGroups))
	}
	group := meta.RowGroups[0]
	var sorting []string
	for _, s := range group.SortingColumns {
		sorting = append(sorting, meta.Schema[s.ColumnIdx+1].Name)
	}
	if want := []string{"stream", "request", "seq"}; !slices.Equal(sorting, want) {
		t.Errorf("sorted by %q, want %q", sorting, want)
	}
	for _, column := range group.Columns {
		c := column.MetaData
		name := c.PathInSchema[0]
		if c.BloomFilterOffset != 0 {
			t.Errorf("%s: has a bloom filter", name)
		}
		foreign := name == "text" || name == "finish_reason" || name == "error"
		if bounds := len(c.Statistics.MinValue)+len(c.Statistics.MaxValue) > 0; foreign && bounds {
			t.Errorf("%s: has a smallest and largest value", name)
		}
	}
	f, _ := takeApart(t, data)
	pages := 0
	for _, column := range f.columns {
		for _, p := range column {
			if p.header.CRC == 0 {
				t.Errorf("a page without a checksum: %+v", p.header)
			}
			if p.header.Type != format.DictionaryPage && p.header.Type != format.DataPageV2 {
				t.Errorf("a page of type %s", p.header.Type)
			}
			pages++
		}
	}
	if pages < len(f.columns)+20 {
		t.Errorf("%d pages, want more than one data page in some columns", pages)
	}
	got, d := decodeEvents(data, ev.Key)
	if d != nil || !got.equal(ev) {
		t.Errorf("a file of several pages does not read back: %v", d)
	}
}
