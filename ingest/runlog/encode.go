package runlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file writes Parquet files column by column, as parquet.go reads them.
// The library writes rows, and to take rows apart into columns that were
// columns before took it more than all compression. Here it does the schema,
// the metadata and the encodings.

// A page has so many rows at most, and ends after so many bytes of text.
// That is more than the library's 256 KiB: 3 % fewer bytes.
const (
	pageRows  = 1 << 17
	pageBytes = 1 << 20
)

// An encoder makes a Parquet file of one row group. Its methods add one
// column each, in the order of the schema.
type encoder struct {
	meta    format.FileMetaData
	columns []column
	rows    int
	data    []byte // the file so far
	zstd    *zstd.Encoder
	chunks  []format.ColumnChunk
	err     error // the first

	// Used again from page to page.
	indexes, present             []int32
	levels, encoded, raw, packed []byte
}

// newEncoder returns an encoder of rows rows of type T.
func newEncoder[T any](rows int, metadata map[string]string) (*encoder, error) {
	e := &encoder{columns: columnsOf[T](), rows: rows, data: []byte(parquetMagic)}
	var err error
	// The window is as large as a page, so that the encoder takes no more
	// memory than that.
	if e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(pageBytes), zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false)); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	e.meta = format.FileMetaData{Version: 2, CreatedBy: createdBy, NumRows: int64(rows), Schema: schemaOf[T]()}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		e.meta.KeyValueMetadata = append(e.meta.KeyValueMetadata, format.KeyValue{Key: key, Value: metadata[key]})
	}
	for range e.columns {
		e.meta.ColumnOrders = append(e.meta.ColumnOrders, format.ColumnOrder{Value: new(format.TypeDefinedOrder)})
	}
	return e, nil
}

// schemaOf returns the schema of files with rows of type T.
func schemaOf[T any]() []format.SchemaElement {
	schema := parquet.SchemaOf(*new(T))
	elements := []format.SchemaElement{{Name: schema.Name(), NumChildren: thrift.New(int32(len(schema.Fields())))}}
	for _, field := range schema.Fields() {
		e := format.SchemaElement{
			Name: field.Name(), Type: thrift.New(format.Type(field.Type().Kind())), RepetitionType: thrift.New(format.Required),
		}
		if field.Optional() {
			e.RepetitionType.V = format.Optional
		}
		if logical := field.Type().LogicalType(); logical != nil {
			e.LogicalType = *logical
		}
		if converted := field.Type().ConvertedType(); converted != nil { // the same, for old readers
			e.ConvertedType = thrift.New(*converted)
		}
		elements = append(elements, e)
	}
	return elements
}

// finish writes the file to w. Its rows are sorted by the named columns.
func (e *encoder) finish(w io.Writer, sorted ...string) error {
	if e.err != nil {
		return e.err
	}
	if e.rows > 0 {
		group := format.RowGroup{Columns: e.chunks, NumRows: e.meta.NumRows, FileOffset: int64(len(parquetMagic))}
		for i := range e.chunks {
			group.TotalByteSize += e.chunks[i].MetaData.TotalUncompressedSize
			group.TotalCompressedSize += e.chunks[i].MetaData.TotalCompressedSize
		}
		for _, name := range sorted {
			for i, c := range e.columns {
				if c.name == name {
					group.SortingColumns = append(group.SortingColumns, format.SortingColumn{ColumnIdx: int32(i)})
				}
			}
		}
		e.meta.RowGroups = []format.RowGroup{group}
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &e.meta)
	if err != nil {
		return fmt.Errorf("encode footer: %w", err)
	}
	e.data = append(e.data, footer...)
	e.data = binary.LittleEndian.AppendUint32(e.data, uint32(len(footer)))
	e.data = append(e.data, parquetMagic...)
	_, err = w.Write(e.data)
	return err
}

// begin begins the next column.
func (e *encoder) begin() (column, *format.ColumnMetaData) {
	c := e.columns[len(e.chunks)]
	e.chunks = append(e.chunks, format.ColumnChunk{MetaData: format.ColumnMetaData{
		Type: c.kind, Codec: c.codec, PathInSchema: []string{c.name}, NumValues: int64(e.rows),
		Encoding: []format.Encoding{format.RLE, c.encoding},
	}})
	meta := &e.chunks[len(e.chunks)-1].MetaData
	if c.encoding == format.RLEDictionary {
		meta.Encoding = append(meta.Encoding, format.Plain)
		meta.DictionaryPageOffset = int64(len(e.data))
	}
	return c, meta
}

// eachPage calls yield for the rows of each page.
func (e *encoder) eachPage(yield func(from, to int)) {
	for from := 0; from < e.rows; from += pageRows {
		yield(from, min(from+pageRows, e.rows))
	}
}

// dictionary adds the dictionary page of the column begun last.
func (e *encoder) dictionary(plain []byte, entries int) {
	e.page(&format.PageHeader{
		Type:                 format.DictionaryPage,
		DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: int32(entries), Encoding: format.Plain}),
	}, nil, plain)
	meta := &e.chunks[len(e.chunks)-1].MetaData
	meta.DataPageOffset = int64(len(e.data))
}

// dataPage adds a data page to the column begun last; levels are those of
// rows, nil in a column that is not optional, values is encoded.
func (e *encoder) dataPage(rows, nulls int, levels, values []byte) {
	chunk := &e.chunks[len(e.chunks)-1].MetaData
	if chunk.DataPageOffset == 0 {
		chunk.DataPageOffset = int64(len(e.data))
	}
	chunk.Statistics.NullCount += int64(nulls)
	c := e.columns[len(e.chunks)-1]
	e.encoded = e.encoded[:0]
	if levels != nil {
		var err error
		if e.encoded, err = (&rle.Encoding{BitWidth: 1}).EncodeLevels(e.encoded, levels); err != nil {
			e.fail(err)
		}
	}
	e.page(&format.PageHeader{
		Type: format.DataPageV2,
		DataPageHeaderV2: thrift.New(format.DataPageHeaderV2{
			NumValues: int32(rows), NumRows: int32(rows), NumNulls: int32(nulls), Encoding: c.encoding,
			DefinitionLevelsByteLength: int32(len(e.encoded)), IsCompressed: thrift.New(c.codec != format.Uncompressed),
		}),
	}, e.encoded, values)
}

// page adds a page with its header. head is not compressed.
func (e *encoder) page(header *format.PageHeader, head, body []byte) {
	chunk := &e.chunks[len(e.chunks)-1].MetaData
	header.UncompressedPageSize = int32(len(head) + len(body))
	if chunk.Codec == format.Zstd {
		e.packed = e.zstd.EncodeAll(body, e.packed[:0])
		body = e.packed
	}
	header.CompressedPageSize = int32(len(head) + len(body))
	header.CRC = int32(crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, body))
	h, err := thrift.Marshal(new(thrift.CompactProtocol), header)
	if err != nil {
		e.fail(err)
	}
	e.data = append(append(append(e.data, h...), head...), body...)
	chunk.TotalCompressedSize += int64(len(h)) + int64(header.CompressedPageSize)
	chunk.TotalUncompressedSize += int64(len(h)) + int64(header.UncompressedPageSize)
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = fmt.Errorf("encode column %q: %w", e.columns[len(e.chunks)-1].name, err)
	}
}

// split returns the levels of some rows and their values without the nulls,
// which are negative. levels is nil in a column that is not optional.
func (e *encoder) split(c column, rows []int32) (levels []byte, values []int32) {
	if !c.optional {
		return nil, rows
	}
	e.levels, e.present = sized(e.levels, len(rows)), sized(e.present, len(rows))
	n := 0
	for i, v := range rows {
		e.present[n] = v
		level := 1 - byte(uint32(v)>>31)
		e.levels[i] = level
		n += int(level)
	}
	return e.levels, e.present[:n]
}

// numbers adds a column of int32; in an optional one Unknown is null.
func (e *encoder) numbers(rows []int32) {
	if e.columns[len(e.chunks)].encoding == format.RLEDictionary {
		e.indexes = sized(e.indexes, len(rows))
		d := indexer[int32]{null: Unknown}
		d.indexAll(rows, e.indexes)
		lowest, highest := int32(math.MaxInt32), int32(math.MinInt32)
		for _, v := range d.entries {
			lowest, highest = min(lowest, v), max(highest, v)
		}
		meta := e.indexed(e.indexes, plainNumbers(d.entries), len(d.entries))
		if len(d.entries) > 0 {
			meta.Statistics.MinValue, meta.Statistics.MaxValue = plainNumbers([]int32{lowest}), plainNumbers([]int32{highest})
		}
		return
	}
	c, meta := e.begin()
	lowest, highest := int32(math.MaxInt32), int32(math.MinInt32)
	e.eachPage(func(from, to int) {
		levels, values := e.split(c, rows[from:to])
		for _, v := range values {
			lowest, highest = min(lowest, v), max(highest, v)
		}
		var err error
		if e.raw, err = new(delta.BinaryPackedEncoding).EncodeInt32(e.raw[:0], values); err != nil {
			e.fail(err)
		}
		e.dataPage(to-from, to-from-len(values), levels, e.raw)
	})
	if lowest <= highest { // there is a value
		meta.Statistics.MinValue, meta.Statistics.MaxValue = plainNumbers([]int32{lowest}), plainNumbers([]int32{highest})
	}
}

// indexed adds a column with a dictionary: the index of each row, negative
// for null.
func (e *encoder) indexed(indexes []int32, plain []byte, entries int) *format.ColumnMetaData {
	c, meta := e.begin()
	if e.rows == 0 {
		return meta
	}
	e.dictionary(plain, entries)
	e.eachPage(func(from, to int) {
		levels, values := e.split(c, indexes[from:to])
		var err error
		if e.raw, err = parquet.RLEDictionary.EncodeInt32(e.raw[:0], values); err != nil {
			e.fail(err)
		}
		e.dataPage(to-from, to-from-len(values), levels, e.raw)
	})
	return meta
}

// constant adds a column of one value, which plain is; it is its own bound.
func (e *encoder) constant(plain []byte) {
	e.indexes = sized(e.indexes, e.rows)
	clear(e.indexes)
	meta := e.indexed(e.indexes, plain, 1)
	if meta.Type == format.Int32 && e.rows > 0 {
		meta.Statistics.MinValue, meta.Statistics.MaxValue = plain, plain
	}
}

// An indexer makes a dictionary.
type indexer[T comparable] struct {
	null    T // has no entry, and a negative index
	entries []T
	at      map[T]int32
}

// indexAll sets the index of each value. Runs of one value, which is what
// most columns are, cost a comparison.
func (d *indexer[T]) indexAll(values []T, indexes []int32) {
	d.at = map[T]int32{d.null: -1}
	last, index := d.null, int32(-1)
	for i, v := range values {
		if v != last {
			var ok bool
			if index, ok = d.at[v]; !ok {
				index = int32(len(d.entries))
				d.at[v] = index
				d.entries = append(d.entries, v)
			}
			last = v
		}
		indexes[i] = index
	}
}

// words adds a column of strings; in an optional one "" is null.
func (e *encoder) words(rows []string) {
	e.indexes = sized(e.indexes, len(rows))
	var d indexer[string]
	d.indexAll(rows, e.indexes)
	e.indexed(e.indexes, plainWords(d.entries), len(d.entries))
}

// encodeEnum adds a column of words of which the values are the numbers; in
// an optional one 0 is null.
func encodeEnum[E ~uint8](e *encoder, rows []E, names []string) {
	var d indexer[E]
	e.indexes = sized(e.indexes, len(rows))
	d.indexAll(rows, e.indexes)
	var words []string
	for _, v := range d.entries {
		words = append(words, names[v])
	}
	e.indexed(e.indexes, plainWords(words), len(words))
}

// times adds a column of int64.
func (e *encoder) times(rows []int64) {
	_, meta := e.begin()
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	e.eachPage(func(from, to int) {
		for _, v := range rows[from:to] {
			lowest, highest = min(lowest, v), max(highest, v)
		}
		var err error
		if e.raw, err = new(delta.BinaryPackedEncoding).EncodeInt64(e.raw[:0], rows[from:to]); err != nil {
			e.fail(err)
		}
		e.dataPage(to-from, 0, nil, e.raw)
	})
	meta.Statistics.MinValue = binary.LittleEndian.AppendUint64(nil, uint64(lowest))
	meta.Statistics.MaxValue = binary.LittleEndian.AppendUint64(nil, uint64(highest))
}

// bools adds a column of booleans.
func (e *encoder) bools(rows []bool) {
	e.begin()
	e.eachPage(func(from, to int) {
		e.raw = sized(e.raw, (to-from+7)/8)
		clear(e.raw)
		for i, v := range rows[from:to] {
			if v {
				e.raw[i/8] |= 1 << (i % 8)
			}
		}
		e.dataPage(to-from, 0, nil, e.raw)
	})
}

// floats adds a column of doubles.
func (e *encoder) floats(rows []float64) {
	e.begin()
	e.eachPage(func(from, to int) {
		e.raw = e.raw[:0]
		for _, v := range rows[from:to] {
			e.raw = binary.LittleEndian.AppendUint64(e.raw, math.Float64bits(v))
		}
		e.dataPage(to-from, 0, nil, e.raw)
	})
}

// texts adds the column of texts.
func (e *encoder) texts(ev *Events) {
	e.begin()
	var offsets []uint32 // of the texts of a page, in its bytes
	for from := 0; from < e.rows; {
		first := ev.TextEnd[from] - len(ev.TextAt(from))
		e.levels = sized(e.levels, pageRows)
		offsets = append(offsets[:0], 0)
		to := from
		for ; to < e.rows && to-from < pageRows && int(offsets[len(offsets)-1]) < pageBytes; to++ {
			e.levels[to-from] = 0
			if ev.HasText[to] {
				e.levels[to-from] = 1
				offsets = append(offsets, uint32(ev.TextEnd[to]-first))
			}
		}
		var err error
		text := ev.Text[first : first+int(offsets[len(offsets)-1])]
		if e.raw, err = new(delta.LengthByteArrayEncoding).EncodeByteArray(e.raw[:0], text, offsets); err != nil {
			e.fail(err)
		}
		e.dataPage(to-from, to-from-(len(offsets)-1), e.levels[:to-from], e.raw)
		from = to
	}
}

// plainNumbers and plainWords return the entries of a dictionary.
func plainNumbers(entries []int32) (b []byte) {
	for _, v := range entries {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func plainWords(entries []string) (b []byte) {
	for _, w := range entries {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(w)))
		b = append(b, w...)
	}
	return b
}
