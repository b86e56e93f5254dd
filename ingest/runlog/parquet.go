package runlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file reads the Parquet files that this package writes, column by
// column, and no others. The library's own readers trust a file: a damaged
// one makes them panic, allocate without bounds, or return other values
// than were written without an error. Here the library decodes metadata,
// pages and values, each only after a walk (encoded.go) has shown that it is
// whole and how large it is; every count is held against the content.

const (
	parquetMagic   = "PAR1"
	maxFooterBytes = 1 << 20
	maxHeaderBytes = 1 << 16 // of a page's header

	// What the pages of a file of n bytes may decompress to: bombBase +
	// bombRatio × n bytes. A cell whose tokens come one by one stays far
	// below that even where its text is one looping line; one whose events
	// bring long pieces of a loop may not, and can't be kept.
	bombBase  = 8 << 20
	bombRatio = 100
)

// A column is what the format says of a column.
type column struct {
	name     string
	kind     format.Type
	typeName string // as in errors and in FORMAT.md: "STRING", "INT32", …
	optional bool
	encoding format.Encoding // of the data pages; RLEDictionary has one dictionary page before them
	codec    format.CompressionCodec
}

// want says what the column must be: "optional INT32".
func (c column) want() string { return optionalWord(c.optional) + c.typeName }

func optionalWord(optional bool) string {
	if optional {
		return "optional "
	}
	return ""
}

// columnsOf returns the columns of files with rows of type T.
func columnsOf[T any]() []column {
	var columns []column
	for _, field := range parquet.SchemaOf(*new(T)).Fields() {
		c := column{
			name: field.Name(), kind: format.Type(field.Type().Kind()), optional: field.Optional(),
			typeName: typeName(format.Type(field.Type().Kind()), field.Type().LogicalType()),
			codec:    format.Zstd, // by default, as the encodings here
		}
		switch {
		case field.Encoding() != nil:
			c.encoding = field.Encoding().Encoding()
		case c.kind == format.Int32:
			c.encoding = format.DeltaBinaryPacked
		case c.kind == format.ByteArray:
			c.encoding = format.DeltaLengthByteArray
		}
		if field.Compression() != nil {
			c.codec = field.Compression().CompressionCodec()
		}
		columns = append(columns, c)
	}
	return columns
}

// typeName names a physical type with its annotation, leaving out the
// annotation that says no more than the type.
func typeName(kind format.Type, logical *format.LogicalType) string {
	annotation := ""
	if logical != nil && logical.Value != nil {
		annotation = logical.Value.String()
	}
	switch {
	case annotation == "STRING" && kind == format.ByteArray:
		return annotation
	case annotation == "",
		annotation == "INT(32,true)" && kind == format.Int32,
		annotation == "INT(64,true)" && kind == format.Int64:
		return kind.String()
	}
	return kind.String() + " as " + annotation
}

// A parquetFile is a Parquet file in memory whose footer has been checked.
type parquetFile struct {
	data    []byte
	rows    int
	columns []column
	chunks  [][]byte // the pages of each column; empty when there are no rows
	budget  int64    // bytes that pages may still decompress to

	*scratch
}

// scratch is memory that serves one page after the other, of one file after
// the other.
type scratch struct {
	unpacked, levels []byte
	ints             []int32
}

// openParquet checks everything in data but the pages: frame, footer,
// metadata, schema, and where the columns are.
func openParquet(data []byte, columns []column, metadata map[string]string, memory *scratch) (*parquetFile, *damage) {
	frame := len(parquetMagic)
	tail := len(data) - frame - 4
	switch {
	case len(data) < 2*frame+4:
		return nil, damagef("not a Parquet file: %d bytes", len(data))
	case string(data[:frame]) != parquetMagic:
		return nil, damagef("not a Parquet file: begins with %q, want %q", data[:frame], parquetMagic)
	case string(data[tail+4:]) != parquetMagic:
		return nil, damagef("not a whole Parquet file: ends with %q, want %q", data[tail+4:], parquetMagic)
	}
	size := int64(binary.LittleEndian.Uint32(data[tail:]))
	if size > int64(tail-frame) || size > maxFooterBytes {
		return nil, damagef("footer: got a length of %d bytes, want %d at most", size, min(tail-frame, maxFooterBytes))
	}
	footerStart := tail - int(size)
	footer := data[footerStart:tail]
	if n, err := walkThrift(footer); err != nil {
		return nil, damagef("footer: %v", err)
	} else if n != len(footer) {
		return nil, damagef("footer: got %d bytes, want %d as its length says", n, len(footer))
	}
	var meta format.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), footer, &meta); err != nil {
		return nil, damagef("footer: %v", err)
	}
	if err := checkMetadata(meta.KeyValueMetadata, metadata); err != nil {
		return nil, err
	}
	if err := checkSchema(meta.Schema, columns); err != nil {
		return nil, err
	}
	f := &parquetFile{data: data, columns: columns, budget: bombBase + bombRatio*int64(len(data)), scratch: memory}
	return f, f.locate(&meta, footerStart)
}

// checkMetadata holds a file's key-value metadata against what must stand
// there; more may.
func checkMetadata(got []format.KeyValue, want map[string]string) *damage {
	values := make(map[string]string, len(got))
	for _, kv := range got {
		if _, twice := values[kv.Key]; twice {
			return damagef("metadata: got %q twice", clip(kv.Key))
		}
		values[kv.Key] = kv.Value
	}
	if _, ok := values[metaFormat]; !ok {
		return damagef("not a run log: no %s in its metadata", metaFormat)
	}
	for _, key := range []string{metaFormat, metaContent, metaPhase, metaContext, metaConcurrency} { // the version first
		if values[key] != want[key] {
			return damagef("%s: got %q, want %q", key, clip(values[key]), want[key])
		}
	}
	return nil
}

// checkSchema holds a file's schema against the format.
func checkSchema(schema []format.SchemaElement, columns []column) *damage {
	if len(schema) != len(columns)+1 || int(schema[0].NumChildren.V) != len(columns) {
		return damagef("schema: got %d columns, want %d", max(0, len(schema)-1), len(columns))
	}
	for i := range columns {
		e, want := &schema[i+1], columns[i]
		if e.Name != want.name {
			return damagef("column %d: got %q, want %q", i, clip(e.Name), want.name)
		}
		got := "group"
		if e.Type.Valid {
			got = optionalWord(e.RepetitionType.V == format.Optional) + typeName(e.Type.V, &e.LogicalType)
		}
		if e.RepetitionType.V == format.Repeated {
			got = "repeated " + got
		}
		if got != want.want() {
			return damagef("column %q: got %s, want %s", want.name, clip(got), want.want())
		}
	}
	return nil
}

// locate finds the pages of each column. They must lie one after the other
// from the beginning of the file, as the writer puts them: this leaves a
// damaged offset nowhere to point to.
func (f *parquetFile) locate(meta *format.FileMetaData, end int) *damage {
	switch groups := len(meta.RowGroups); {
	case meta.NumRows < 0 || meta.NumRows > MaxRows:
		return damagef("got %d rows, want %d at most", meta.NumRows, MaxRows)
	case meta.NumRows == 0 && groups == 0:
		return nil
	case groups != 1:
		return damagef("got %d row groups for %d rows, want 1", groups, meta.NumRows)
	}
	group := &meta.RowGroups[0]
	switch {
	case group.NumRows != meta.NumRows || meta.NumRows == 0:
		return damagef("got %d rows in the row group and %d in the file, want the same and more than 0", group.NumRows, meta.NumRows)
	case len(group.Columns) != len(f.columns):
		return damagef("row group: got %d columns, want %d", len(group.Columns), len(f.columns))
	}
	f.rows = int(group.NumRows)
	start := int64(len(parquetMagic))
	for i, c := range f.columns {
		chunk := &group.Columns[i].MetaData
		first, dictionary := chunk.DataPageOffset, int64(0)
		if c.encoding == format.RLEDictionary {
			first, dictionary = chunk.DictionaryPageOffset, start
		}
		size := chunk.TotalCompressedSize
		switch {
		case len(chunk.PathInSchema) != 1 || chunk.PathInSchema[0] != c.name:
			return damagef("column %q: got the pages of %q", c.name, clip(strings.Join(chunk.PathInSchema, ".")))
		case group.Columns[i].FilePath != "" || len(group.Columns[i].EncryptedColumnMetadata) > 0:
			return damagef("column %q: is not in this file, or encrypted", c.name)
		case chunk.Type != c.kind:
			return damagef("column %q: got pages of %s, want %s", c.name, chunk.Type, c.kind)
		case chunk.Codec != c.codec:
			return damagef("column %q: got codec %s, want %s", c.name, chunk.Codec, c.codec)
		case chunk.NumValues != group.NumRows:
			return damagef("column %q: got %d rows, want %d", c.name, chunk.NumValues, group.NumRows)
		case first != start || chunk.DictionaryPageOffset != dictionary:
			return damagef("column %q: got pages at byte %d, want %d", c.name, first, start)
		case size <= 0 || size > int64(end)-start:
			return damagef("column %q: got %d bytes of pages at byte %d of %d", c.name, size, start, end)
		case dictionary != 0 && (chunk.DataPageOffset <= start || chunk.DataPageOffset >= start+size):
			return damagef("column %q: got data pages at byte %d, want %d to %d", c.name, chunk.DataPageOffset, start+1, start+size-1)
		}
		f.chunks = append(f.chunks, f.data[start:start+size:start+size])
		start += size
	}
	return nil
}

// A page is a data page, decompressed. It is valid until the next one.
type page struct {
	rows     int
	values   int    // rows that are not null
	levels   []byte // 1 for each row with a value, 0 for each null; nil in a column that is not optional
	data     []byte // encoded values
	firstRow int
}

// runs calls yield for each run of rows of the page that have a value, or
// have none; from counts rows from the page's first on.
func (p *page) runs(yield func(from, to int, has bool)) {
	if p.levels == nil {
		yield(0, p.rows, true)
		return
	}
	for from := 0; from < p.rows; {
		level := p.levels[from]
		to := p.rows
		if n := bytes.IndexByte(p.levels[from:p.rows], 1-level); n >= 0 {
			to = from + n
		}
		yield(from, to, level == 1)
		from = to
	}
}

// row returns the row of the page that has value i.
func (p *page) row(i int) (row int) {
	p.runs(func(from, to int, has bool) {
		if n := to - from; has && 0 <= i && i < n {
			row = from + i
		}
		if has {
			i -= to - from
		}
	})
	return row
}

// A dictionary is a dictionary page, decompressed: values without encoding.
type dictionary struct {
	entries int
	data    []byte
}

// pages calls each for every data page of a column, and before that dict,
// for its dictionary page, if it has one.
func (f *parquetFile) pages(index int, dict func(dictionary) *damage, each func(page) *damage) *damage {
	c := f.columns[index]
	if len(f.chunks) == 0 {
		return nil
	}
	at := func(format string, args ...any) *damage {
		return damagef("column %q: %s", c.name, fmt.Sprintf(format, args...))
	}
	needDictionary := c.encoding == format.RLEDictionary
	row := 0
	for rest := f.chunks[index]; len(rest) > 0; {
		header, body, after, err := nextPage(rest)
		if err != nil {
			return at("page at row %d: %v", row, err)
		}
		rest = after
		if needDictionary {
			needDictionary = false
			h := header.DictionaryPageHeader
			if header.Type != format.DictionaryPage || !h.Valid || h.V.Encoding != format.Plain || h.V.NumValues < 0 {
				return at("got page type %s, want a plain dictionary", header.Type)
			}
			data, err := f.unpack(body, int(header.UncompressedPageSize), c.codec)
			if err != nil {
				return at("dictionary: %v", err)
			}
			if d := dict(dictionary{entries: int(h.V.NumValues), data: data}); d != nil {
				return at("dictionary: %s", d.msg)
			}
			continue
		}
		h := header.DataPageHeaderV2.V
		compressed := !h.IsCompressed.Valid || h.IsCompressed.V
		levels := int(h.DefinitionLevelsByteLength)
		switch {
		case header.Type != format.DataPageV2 || !header.DataPageHeaderV2.Valid:
			return at("got page type %s, want %s", header.Type, format.DataPageV2)
		case h.NumValues <= 0 || int(h.NumValues) > f.rows-row || h.NumRows != h.NumValues:
			return at("page at row %d: got %d values in %d rows, want %d at most", row, h.NumValues, h.NumRows, f.rows-row)
		case h.NumNulls < 0 || h.NumNulls > h.NumValues || h.NumNulls > 0 && !c.optional:
			return at("page at row %d: got %d nulls in %d rows", row, h.NumNulls, h.NumRows)
		case h.RepetitionLevelsByteLength != 0 || levels < 0 || levels > len(body) || (levels > 0) != c.optional:
			return at("page at row %d: got %d and %d bytes of levels", row, h.RepetitionLevelsByteLength, levels)
		case h.Encoding != c.encoding:
			return at("page at row %d: got encoding %s, want %s", row, h.Encoding, c.encoding)
		case compressed != (c.codec != format.Uncompressed):
			return at("page at row %d: got compressed %t, want %t", row, compressed, !compressed)
		}
		p := page{rows: int(h.NumValues), values: int(h.NumValues - h.NumNulls), firstRow: row}
		if c.optional {
			if p.levels, err = f.unpackLevels(body[:levels], int(h.NumValues), p.values); err != nil {
				return at("page at row %d: levels: %v", row, err)
			}
		}
		if p.data, err = f.unpack(body[levels:], int(header.UncompressedPageSize)-levels, c.codec); err != nil {
			return at("page at row %d: %v", row, err)
		}
		if d := each(p); d != nil {
			if d.row >= 0 { // says itself which column
				return d
			}
			return at("page at row %d: %s", row, d.msg)
		}
		row += int(h.NumValues)
	}
	if row != f.rows || needDictionary {
		return at("got %d rows in its pages, want %d", row, f.rows)
	}
	return nil
}

// nextPage returns the header and the body of the page that b begins with,
// and what follows it. It checks the checksum.
func nextPage(b []byte) (header *format.PageHeader, body, after []byte, err error) {
	n, err := walkThrift(b[:min(len(b), maxHeaderBytes)])
	if err != nil {
		return nil, nil, nil, fmt.Errorf("header: %w", err)
	}
	header = new(format.PageHeader)
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], header); err != nil {
		return nil, nil, nil, fmt.Errorf("header: %w", err)
	}
	size := header.CompressedPageSize
	if size < 0 || int(size) > len(b)-n {
		return nil, nil, nil, fmt.Errorf("got a size of %d bytes, want %d at most", size, len(b)-n)
	}
	body = b[n : n+int(size)]
	if sum := crc32.ChecksumIEEE(body); sum != uint32(header.CRC) { // a missing one is 0
		return nil, nil, nil, fmt.Errorf("got checksum %08x, want %08x", sum, uint32(header.CRC))
	}
	return header, body, b[n+int(size):], nil
}

// unpack decompresses b, which must give size bytes.
func (f *parquetFile) unpack(b []byte, size int, codec format.CompressionCodec) ([]byte, error) {
	if size < 0 || int64(size) > f.budget {
		return nil, fmt.Errorf("got a decompressed size of %d bytes, want 0 to %d", size, f.budget)
	}
	f.budget -= int64(size)
	if codec == format.Uncompressed {
		if size != len(b) {
			return nil, fmt.Errorf("got %d bytes, want %d", len(b), size)
		}
		return b, nil
	}
	if err := walkZstd(b, size); err != nil {
		return nil, err
	}
	f.unpacked = sized(f.unpacked, size)
	out, err := parquet.Zstd.Decode(f.unpacked[:0], b)
	if err != nil {
		return nil, err
	}
	if len(out) != size {
		return nil, fmt.Errorf("got %d bytes decompressed, want %d", len(out), size)
	}
	return out, nil
}

// unpackLevels decodes the levels of rows rows, of which values must be 1.
func (f *parquetFile) unpackLevels(b []byte, rows, values int) ([]byte, error) {
	f.levels = sized(f.levels, rows)
	levels := f.levels
	if err := decodeRuns(levels, b, 1, 2); err != nil {
		return nil, err
	}
	if ones := bytes.Count(levels, []byte{1}); ones != values {
		return nil, fmt.Errorf("got %d values and %d nulls, want %d and %d", ones, rows-ones, values, rows-values)
	}
	return levels, nil
}

// indexes decodes the dictionary indexes of a page, each less than entries.
func (f *parquetFile) indexes(p page, entries int) ([]int32, *damage) {
	if p.values == 0 {
		return nil, nil
	}
	if len(p.data) == 0 || p.data[0] > 32 {
		return nil, damagef("indexes: no width, or more than 32 bits")
	}
	f.ints = sized(f.ints, p.values)
	if err := decodeRuns(f.ints, p.data[1:], int(p.data[0]), uint32(entries)); err != nil {
		return nil, damagef("indexes: %v", err)
	}
	return f.ints, nil
}

// deltas decodes n delta-encoded int32 at the beginning of b and returns
// what follows them.
func (f *parquetFile) deltas(b []byte, n int) (values []int32, rest []byte, d *damage) {
	if n == 0 {
		return nil, nil, nil
	}
	end, err := walkDelta(b, 32, n)
	if err != nil {
		return nil, nil, damagef("%v", err)
	}
	f.ints = sized(f.ints, n)
	values, err = new(delta.BinaryPackedEncoding).DecodeInt32(f.ints, b[:end:end])
	if err != nil {
		return nil, nil, damagef("%v", err)
	}
	return values, b[end:], nil
}

// readIndexed reads a string column with a dictionary: it calls each for
// every page with the dictionary and the indexes of the rows that are not
// null.
func (f *parquetFile) readIndexed(index int, each func(p page, words []string, indexes []int32) *damage) *damage {
	var words []string
	return f.pages(index, func(dict dictionary) (d *damage) {
		words, d = dict.words()
		return d
	}, func(p page) *damage {
		indexes, d := f.indexes(p, len(words))
		if d != nil {
			return d
		}
		return each(p, words, indexes)
	})
}

// words returns the entries of a dictionary of strings.
func (dict dictionary) words() ([]string, *damage) {
	var words []string
	b := dict.data
	for range dict.entries {
		if len(b) < 4 || int64(binary.LittleEndian.Uint32(b)) > int64(len(b)-4) {
			return nil, damagef("got %d entries, want %d", len(words), dict.entries)
		}
		end := 4 + int(binary.LittleEndian.Uint32(b))
		words = append(words, string(b[4:end]))
		b = b[end:]
	}
	if len(b) > 0 {
		return nil, damagef("got %d bytes more than its %d entries have", len(b), dict.entries)
	}
	return words, nil
}

// numbers returns the entries of a dictionary of int32.
func (dict dictionary) numbers() ([]int32, *damage) {
	if len(dict.data)%4 != 0 || len(dict.data)/4 != dict.entries {
		return nil, damagef("got %d bytes for %d entries, want 4 for each", len(dict.data), dict.entries)
	}
	numbers := make([]int32, dict.entries)
	for i := range numbers {
		numbers[i] = int32(binary.LittleEndian.Uint32(dict.data[4*i:]))
	}
	return numbers, nil
}

// readInt32s returns an int32 column, in the memory of into where that is
// enough; null is Unknown, which is no value that can stand in the file.
func (f *parquetFile) readInt32s(index int, into []int32) ([]int32, *damage) {
	c := f.columns[index]
	out := sized(into, f.rows)
	add := func(p page, values []int32) *damage {
		if c.optional {
			for i, value := range values {
				if value < 0 {
					return rowf(p.firstRow+p.row(i), "%s: got %d, want 0 or more, or null", c.name, value)
				}
			}
		}
		rows := out[p.firstRow : p.firstRow+p.rows]
		p.runs(func(from, to int, has bool) {
			if has {
				values = values[copy(rows[from:to], values):]
				return
			}
			for i := range rows[from:to] {
				rows[from+i] = Unknown
			}
		})
		return nil
	}
	if c.encoding == format.DeltaBinaryPacked {
		d := f.pages(index, nil, func(p page) *damage {
			values, rest, d := f.deltas(p.data, p.values)
			if d != nil {
				return d
			}
			if len(rest) > 0 {
				return damagef("got %d bytes after the values", len(rest))
			}
			return add(p, values)
		})
		return out, d
	}
	d := f.readNumbers(index, func(p page, numbers, indexes []int32) *damage {
		for i, index := range indexes {
			indexes[i] = numbers[index]
		}
		return add(p, indexes)
	})
	return out, d
}

// readNumbers is readIndexed for a column of int32.
func (f *parquetFile) readNumbers(index int, each func(p page, numbers, indexes []int32) *damage) *damage {
	var numbers []int32
	return f.pages(index, func(dict dictionary) (d *damage) {
		numbers, d = dict.numbers()
		return d
	}, func(p page) *damage {
		indexes, d := f.indexes(p, len(numbers))
		if d != nil {
			return d
		}
		return each(p, numbers, indexes)
	})
}

// readInt64s returns a delta-encoded int64 column that is not optional, in
// the memory of into where that is enough. It allocates no more than the
// file's bytes account for, so that a number of rows that this function
// confirms can be allocated for.
func (f *parquetFile) readInt64s(index int, into []int64) ([]int64, *damage) {
	out := into[:0]
	d := f.pages(index, nil, func(p page) *damage {
		end, err := walkDelta(p.data, 64, p.values)
		if err != nil {
			return damagef("%v", err)
		}
		if end != len(p.data) {
			return damagef("got %d bytes after the values", len(p.data)-end)
		}
		done := len(out)
		out = slices.Grow(out, p.values)[:done+p.values]
		values, err := new(delta.BinaryPackedEncoding).DecodeInt64(out[done:], p.data[:end:end])
		if err != nil {
			return damagef("%v", err)
		}
		copy(out[done:], values) // onto itself, where the library used the memory it was given
		return nil
	})
	return out, d
}

// readBools returns a boolean column that is not optional, in the memory of
// into where that is enough.
func (f *parquetFile) readBools(index int, into []bool) ([]bool, *damage) {
	out := sized(into, f.rows)
	d := f.pages(index, nil, func(p page) *damage {
		if want := (p.values + 7) / 8; len(p.data) != want {
			return damagef("got %d bytes, want %d", len(p.data), want)
		}
		rows := out[p.firstRow : p.firstRow+p.rows]
		for i := range rows {
			rows[i] = p.data[i/8]>>(i%8)&1 != 0
		}
		return nil
	})
	return out, d
}

// readFloats returns a double column that is not optional.
func (f *parquetFile) readFloats(index int) ([]float64, *damage) {
	out := make([]float64, 0, f.rows)
	d := f.pages(index, nil, func(p page) *damage {
		if len(p.data) != 8*p.values {
			return damagef("got %d bytes, want %d", len(p.data), 8*p.values)
		}
		for i := range p.values {
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(p.data[8*i:])))
		}
		return nil
	})
	return out, d
}

// readWords returns a string column with a dictionary, in the memory of into
// where that is enough; null is "". Equal strings share their bytes.
func (f *parquetFile) readWords(index int, into []string) ([]string, *damage) {
	out := sized(into, f.rows)
	clear(out)
	d := f.readIndexed(index, func(p page, words []string, indexes []int32) *damage {
		rows := out[p.firstRow : p.firstRow+p.rows]
		p.runs(func(from, to int, has bool) {
			if has {
				for i := range rows[from:to] {
					rows[from+i] = words[indexes[i]]
				}
				indexes = indexes[to-from:]
			}
		})
		return nil
	})
	return out, d
}

// sized returns a slice of n elements, s where it is large enough.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
