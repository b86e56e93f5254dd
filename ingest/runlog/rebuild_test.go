package runlog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A rawFile is a Parquet file taken apart, so that a test can change one
// thing in it and put it together again with everything else consistent:
// sizes, offsets and checksums are computed anew.
type rawFile struct {
	meta    format.FileMetaData
	columns [][]*rawPage

	footer func(*format.FileMetaData) // changes the footer after it was made consistent
}

type rawPage struct {
	header       format.PageHeader
	levels, data []byte // data decompressed
	compressed   bool
	read         []byte // levels and data as they were read
	stored       []byte // and the body that they were read from

	body func([]byte) []byte      // changes the body after compression, before sizes and checksum
	fix  func(*format.PageHeader) // changes the header after it was made consistent
}

// A span is a range of bytes of a file.
type span struct{ from, to int }

// encoded returns ev as a file.
func encoded(t testing.TB, ev *Events) []byte {
	t.Helper()
	var data bytes.Buffer
	if err := encodeEvents(&data, ev); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// takeApart takes a good file apart. spans gives the places of headers,
// dictionaries, page bodies and the footer.
func takeApart(t testing.TB, data []byte) (f *rawFile, spans map[string][]span) {
	t.Helper()
	f, spans = new(rawFile), map[string][]span{}
	size := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	start := len(data) - 8 - size
	spans["footer"] = []span{{start, len(data) - 8}}
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), bytes.Clone(data[start:len(data)-8]), &f.meta); err != nil {
		t.Fatal(err)
	}
	for i := range f.meta.RowGroups[0].Columns {
		chunk := &f.meta.RowGroups[0].Columns[i].MetaData
		at := int(chunk.DataPageOffset)
		if chunk.DictionaryPageOffset != 0 {
			at = int(chunk.DictionaryPageOffset)
		}
		end := at + int(chunk.TotalCompressedSize)
		var pages []*rawPage
		for at < end {
			header, body, after, err := nextPage(data[at:end])
			if err != nil {
				t.Fatal(err)
			}
			bodyAt, next := end-len(after)-len(body), end-len(after)
			kind := "body"
			if header.Type == format.DictionaryPage {
				kind = "dictionary"
			}
			spans["header"] = append(spans["header"], span{at, bodyAt})
			spans[kind] = append(spans[kind], span{bodyAt, next})
			at = next

			levels := int(header.DataPageHeaderV2.V.DefinitionLevelsByteLength)
			p := &rawPage{header: *header, levels: bytes.Clone(body[:levels]), compressed: chunk.Codec == format.Zstd}
			p.data = bytes.Clone(body[levels:])
			if p.compressed {
				if p.data, err = parquet.Zstd.Decode(nil, body[levels:]); err != nil {
					t.Fatal(err)
				}
			}
			p.read, p.stored = slices.Concat(p.levels, p.data), bytes.Clone(body)
			pages = append(pages, p)
		}
		f.columns = append(f.columns, pages)
	}
	return f, spans
}

// build puts the file together.
func (f *rawFile) build(t testing.TB) []byte {
	t.Helper()
	marshal := func(v any) []byte {
		b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	out := []byte(parquetMagic)
	for i, pages := range f.columns {
		chunk := &f.meta.RowGroups[0].Columns[i].MetaData
		start := len(out)
		chunk.DictionaryPageOffset = 0
		for _, p := range pages {
			body := slices.Concat(p.levels, p.data)
			switch {
			case bytes.Equal(body, p.read):
				body = p.stored // saves the time to compress it
			case p.compressed:
				data, err := parquet.Zstd.Encode(nil, p.data)
				if err != nil {
					t.Fatal(err)
				}
				body = append(bytes.Clone(p.levels), data...)
			}
			if p.body != nil {
				body = p.body(bytes.Clone(body))
			}
			h := p.header
			h.UncompressedPageSize = int32(len(p.levels) + len(p.data))
			h.CompressedPageSize = int32(len(body))
			h.CRC = int32(crc32.ChecksumIEEE(body))
			if h.DataPageHeaderV2.Valid {
				h.DataPageHeaderV2.V.DefinitionLevelsByteLength = int32(len(p.levels))
			}
			if p.fix != nil {
				p.fix(&h)
			}
			if h.Type == format.DictionaryPage {
				chunk.DictionaryPageOffset = int64(len(out))
			} else if len(out) == start || chunk.DictionaryPageOffset != 0 && p == pages[1] {
				chunk.DataPageOffset = int64(len(out))
			}
			out = append(out, marshal(&h)...)
			out = append(out, body...)
		}
		chunk.TotalCompressedSize = int64(len(out) - start)
	}
	if f.footer != nil {
		f.footer(&f.meta)
	}
	footer := marshal(&f.meta)
	out = append(out, footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, parquetMagic...)
}

// column returns the index of a column of event files.
func columnIndex(t testing.TB, name string) int {
	t.Helper()
	for i, c := range columnsOf[eventRow]() {
		if c.name == name {
			return i
		}
	}
	t.Fatalf("no column %q", name)
	return -1
}

// last returns the last page of a column: its data page.
func (f *rawFile) last(t testing.TB, name string) *rawPage {
	pages := f.columns[columnIndex(t, name)]
	return pages[len(pages)-1]
}

// dictionary returns the dictionary page of a column.
func (f *rawFile) dictionary(t testing.TB, name string) *rawPage {
	return f.columns[columnIndex(t, name)][0]
}

// chunk returns the footer's entry of a column.
func chunkOf(t testing.TB, m *format.FileMetaData, name string) *format.ColumnMetaData {
	return &m.RowGroups[0].Columns[columnIndex(t, name)].MetaData
}
