package runlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// One hand-made file for each way of being wrong, and what the reader says.
func TestCorruptFileSaysWhatIsWrong(t *testing.T) {
	good := encoded(t, smallEvents())
	patch := func(change func(b []byte) []byte) func(testing.TB) []byte {
		return func(testing.TB) []byte { return change(bytes.Clone(good)) }
	}
	rebuilt := func(change func(t testing.TB, f *rawFile)) func(testing.TB) []byte {
		return func(t testing.TB) []byte {
			f, _ := takeApart(t, good)
			change(t, f)
			return f.build(t)
		}
	}
	footer := func(change func(t testing.TB, m *format.FileMetaData)) func(testing.TB) []byte {
		return rebuilt(func(t testing.TB, f *rawFile) {
			f.footer = func(m *format.FileMetaData) { change(t, m) }
		})
	}
	header := func(column string, change func(h *format.PageHeader)) func(testing.TB) []byte {
		return rebuilt(func(t testing.TB, f *rawFile) { f.last(t, column).fix = change })
	}
	content := func(column string, data ...byte) func(testing.TB) []byte {
		return rebuilt(func(t testing.TB, f *rawFile) { f.last(t, column).data = data })
	}
	rows := smallEvents().Len()

	for _, tt := range []struct {
		name string
		file func(testing.TB) []byte
		want string // all of the message, or with … its beginning
	}{
		// The frame.
		{"empty", patch(func(b []byte) []byte { return nil }), `not a Parquet file: 0 bytes`},
		{"other beginning", patch(func(b []byte) []byte { copy(b, "susB"); return b }), `not a Parquet file: begins with "susB", want "PAR1"`},
		{"other end", patch(func(b []byte) []byte { copy(b[len(b)-4:], "susB"); return b }), `not a whole Parquet file: ends with "susB", want "PAR1"`},
		{"cut off", patch(func(b []byte) []byte { return b[:len(b)/2] }), `not a whole Parquet file: ends with …`},
		{"footer of 4 GiB", patch(func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[len(b)-8:], math.MaxUint32)
			return b
		}), fmt.Sprintf(`footer: got a length of 4294967295 bytes, want %d at most`, len(good)-12)},
		{"footer cut short", patch(func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[len(b)-8:], binary.LittleEndian.Uint32(b[len(b)-8:])-1)
			return b
		}), `footer: …`},
		{"encrypted", patch(func(b []byte) []byte { copy(b[len(b)-4:], "PARE"); return b }), `not a whole Parquet file: ends with "PARE", want "PAR1"`},

		// Metadata and schema.
		{"another version", footer(func(t testing.TB, m *format.FileMetaData) { m.KeyValueMetadata[2].Value = "runlog/2" }),
			`runlog.format: got "runlog/2", want "runlog/1"`},
		{"no version", footer(func(t testing.TB, m *format.FileMetaData) { m.KeyValueMetadata = nil }),
			`not a run log: no runlog.format in its metadata`},
		{"of another cell", footer(func(t testing.TB, m *format.FileMetaData) { m.KeyValueMetadata[1].Value = "16384" }),
			`runlog.context_tokens: got "16384", want "8192"`},
		{"metadata twice", footer(func(t testing.TB, m *format.FileMetaData) {
			m.KeyValueMetadata = append(m.KeyValueMetadata, format.KeyValue{Key: "runlog.phase", Value: "decode"})
		}), `metadata: got "runlog.phase" twice`},
		{"renamed column", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema[10].Name = "toks" }),
			`column 9: got "toks", want "tokens"`},
		{"two columns of one type change places", footer(func(t testing.TB, m *format.FileMetaData) {
			m.Schema[4], m.Schema[5] = m.Schema[5], m.Schema[4]
		}), `column 3: got "request", want "stream"`},
		{"column of another type", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema[10].Type.V = format.Int64 }),
			`column "tokens": got optional INT64 as INT(32,true), want optional INT32`},
		{"column of another meaning", footer(func(t testing.TB, m *format.FileMetaData) {
			m.Schema[10].LogicalType = format.LogicalType{Value: &format.DateType{}}
		}), `column "tokens": got optional INT32 as DATE, want optional INT32`},
		{"optional column is required", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema[10].RepetitionType.V = format.Required }),
			`column "tokens": got INT32, want optional INT32`},
		{"required column is optional", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema[8].RepetitionType.V = format.Optional }),
			`column "t_us": got optional INT64, want INT64`},
		{"repeated column", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema[8].RepetitionType.V = format.Repeated }),
			`column "t_us": got repeated INT64, want INT64`},
		{"a column is a group", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema[8].Type.Valid = false }),
			`column "t_us": got group, want INT64`},
		{"a column is missing", footer(func(t testing.TB, m *format.FileMetaData) { m.Schema = m.Schema[:18] }),
			`schema: got 17 columns, want 18`},
		{"list of 2^31 in the footer", patch(func(b []byte) []byte {
			n := binary.LittleEndian.Uint32(b[len(b)-8:])
			start := len(b) - 8 - int(n)
			// version: i32 1, then schema: a list of 2^31-1 structs.
			copy(b[start:], []byte{0x15, 0x02, 0x19, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x07})
			return b
		}), `footer: a list has 2147483647 items, want 256 at most`},
		{"footer nested without end", patch(func(b []byte) []byte {
			n := binary.LittleEndian.Uint32(b[len(b)-8:])
			start := len(b) - 8 - int(n)
			for i := start; i < len(b)-8; i++ {
				b[i] = 0x1C
			}
			return b
		}), `footer: structs are nested more than 16 deep`},

		// Where the columns are.
		{"more rows than there are", footer(func(t testing.TB, m *format.FileMetaData) { m.NumRows++ }),
			fmt.Sprintf(`got %d rows in the row group and %d in the file, want the same and more than 0`, rows, rows+1)},
		{"2^62 rows", footer(func(t testing.TB, m *format.FileMetaData) { m.NumRows = 1 << 62 }),
			`got 4611686018427387904 rows, want 16777216 at most`},
		{"all counts 2^24", footer(func(t testing.TB, m *format.FileMetaData) {
			m.NumRows, m.RowGroups[0].NumRows = 1<<24, 1<<24
			for i := range m.RowGroups[0].Columns {
				m.RowGroups[0].Columns[i].MetaData.NumValues = 1 << 24
			}
		}), fmt.Sprintf(`column "t_us": got %d rows in its pages, want 16777216`, rows)},
		{"all counts one less", footer(func(t testing.TB, m *format.FileMetaData) {
			m.NumRows--
			m.RowGroups[0].NumRows--
			for i := range m.RowGroups[0].Columns {
				m.RowGroups[0].Columns[i].MetaData.NumValues--
			}
		}), fmt.Sprintf(`column "t_us": page at row 0: got %d values in %d rows, want %d at most`, rows, rows, rows-1)},
		{"no row group", footer(func(t testing.TB, m *format.FileMetaData) { m.RowGroups = nil }),
			fmt.Sprintf(`got 0 row groups for %d rows, want 1`, rows)},
		{"a column with fewer values", footer(func(t testing.TB, m *format.FileMetaData) { chunkOf(t, m, "seq").NumValues-- }),
			fmt.Sprintf(`column "seq": got %d rows, want %d`, rows-1, rows)},
		{"a column of negative size", footer(func(t testing.TB, m *format.FileMetaData) { chunkOf(t, m, "seq").TotalCompressedSize = -1 }),
			`column "seq": got -1 bytes of pages …`},
		{"a column of 2^62 bytes", footer(func(t testing.TB, m *format.FileMetaData) { chunkOf(t, m, "seq").TotalCompressedSize = 1 << 62 }),
			`column "seq": got 4611686018427387904 bytes of pages …`},
		{"a column at another's place", footer(func(t testing.TB, m *format.FileMetaData) {
			chunkOf(t, m, "seq").DataPageOffset = chunkOf(t, m, "completion_tokens").DataPageOffset
		}), `column "seq": got pages at byte …`},
		{"pages in another file", footer(func(t testing.TB, m *format.FileMetaData) { m.RowGroups[0].Columns[3].FilePath = "/etc/passwd" }),
			`column "stream": is not in this file, or encrypted`},
		{"another codec", footer(func(t testing.TB, m *format.FileMetaData) { chunkOf(t, m, "seq").Codec = format.Snappy }),
			`column "seq": got codec SNAPPY, want ZSTD`},
		{"an unknown codec", footer(func(t testing.TB, m *format.FileMetaData) { chunkOf(t, m, "seq").Codec = 99 }),
			`column "seq": got codec CompressionCodec(?), want ZSTD`},
		{"the path of another column", footer(func(t testing.TB, m *format.FileMetaData) { chunkOf(t, m, "seq").PathInSchema[0] = "request" }),
			`column "seq": got the pages of "request"`},

		// Page headers.
		{"no checksum", header("seq", func(h *format.PageHeader) { h.CRC = 0 }), `column "seq": page at row 0: got checksum …`},
		{"no checksum of a dictionary", rebuilt(func(t testing.TB, f *rawFile) {
			f.dictionary(t, "kind").fix = func(h *format.PageHeader) { h.CRC = 0 }
		}), `column "kind": page at row 0: got checksum …`},
		{"page of 2^31 values", header("stream", func(h *format.PageHeader) {
			h.DataPageHeaderV2.V.NumValues, h.DataPageHeaderV2.V.NumRows = math.MaxInt32, math.MaxInt32
		}), fmt.Sprintf(`column "stream": page at row 0: got 2147483647 values in 2147483647 rows, want %d at most`, rows)},
		{"page of negative size", header("seq", func(h *format.PageHeader) { h.CompressedPageSize = -5 }),
			`column "seq": page at row 0: got a size of -5 bytes, want …`},
		{"page larger than its column", header("seq", func(h *format.PageHeader) { h.CompressedPageSize = 1 << 20 }),
			`column "seq": page at row 0: got a size of 1048576 bytes, want …`},
		{"other encoding", header("seq", func(h *format.PageHeader) { h.DataPageHeaderV2.V.Encoding = format.Plain }),
			`column "seq": page at row 0: got encoding PLAIN, want DELTA_BINARY_PACKED`},
		{"page of version 1", header("seq", func(h *format.PageHeader) { h.Type = format.DataPage }),
			`column "seq": got page type DATA_PAGE, want DATA_PAGE_V2`},
		{"nulls in a column without", header("seq", func(h *format.PageHeader) { h.DataPageHeaderV2.V.NumNulls = 1 }),
			fmt.Sprintf(`column "seq": page at row 0: got 1 nulls in %d rows`, rows)},
		{"fewer nulls than levels say", header("tokens", func(h *format.PageHeader) { h.DataPageHeaderV2.V.NumNulls-- }),
			`column "tokens": page at row 0: levels: got …`},
		{"repetition levels", header("seq", func(h *format.PageHeader) { h.DataPageHeaderV2.V.RepetitionLevelsByteLength = 2 }),
			`column "seq": page at row 0: got 2 and 0 bytes of levels`},
		{"no dictionary", rebuilt(func(t testing.TB, f *rawFile) {
			i := columnIndex(t, "kind")
			f.columns[i] = f.columns[i][1:]
		}), `column "kind": got pages at byte 0, want …`},
		{"page that decompresses to 2 GiB", header("text", func(h *format.PageHeader) { h.UncompressedPageSize = math.MaxInt32 }),
			`column "text": page at row 0: got a decompressed size of …`},
		{"page that decompresses to less than said", header("text", func(h *format.PageHeader) { h.UncompressedPageSize++ }),
			`column "text": page at row 0: a Zstandard frame of …`},
		{"not a frame", rebuilt(func(t testing.TB, f *rawFile) {
			f.last(t, "text").body = func(b []byte) []byte { b[len(f.last(t, "text").levels)] ^= 1; return b }
		}), `column "text": page at row 0: not a Zstandard frame`},

		// Content, with everything around it consistent.
		{"run of 2^30 values", content("stream", 1, 0x80, 0x80, 0x80, 0x80, 0x08, 0x00),
			fmt.Sprintf(`column "stream": page at row 0: indexes: a run of 1073741824 values, want %d at most`, rows)},
		{"packed run without its bytes", content("stream", 32, 0x7F), `column "stream": page at row 0: indexes: ends too early`},
		{"indexes of 200 bits", content("stream", 200, 2, 0), `column "stream": page at row 0: indexes: no width, or more than 32 bits`},
		{"index outside the dictionary", content("phase", slices.Concat([]byte{8}, binary.AppendUvarint(nil, uint64(rows)<<1), []byte{77})...),
			`column "phase": page at row 0: indexes: got 77, want 0 to 0`},
		{"too few indexes", content("phase", slices.Concat([]byte{0}, binary.AppendUvarint(nil, uint64(rows-3)<<1))...),
			`column "phase": page at row 0: indexes: 3 values are missing`},
		{"2^30 delta values", content("seq", 0x80, 0x01, 0x04, 0x80, 0x80, 0x80, 0x80, 0x04, 0x00),
			fmt.Sprintf(`column "seq": page at row 0: 1073741824 delta values, want %d`, rows)},
		{"delta block of 2^40", content("seq", 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0x04, byte(rows), 0x01, 0x00),
			`column "seq": page at row 0: delta blocks of 1099511627776 in 4, want 128 in 4`},
		{"delta blocks missing", content("seq", 0x80, 0x01, 0x04, byte(rows)|0x80, byte(rows>>7), 0x00),
			`column "seq": page at row 0: ends too early`},
		{"bytes after the values", rebuilt(func(t testing.TB, f *rawFile) { f.last(t, "seq").data = append(f.last(t, "seq").data, 0) }),
			`column "seq": page at row 0: got 1 bytes after the values`},
		{"bytes after the texts", rebuilt(func(t testing.TB, f *rawFile) { f.last(t, "text").data = append(f.last(t, "text").data, 'x') }),
			`column "text": page at row 0: got texts of …`},
		{"dictionary shorter than said", rebuilt(func(t testing.TB, f *rawFile) {
			f.dictionary(t, "kind").fix = func(h *format.PageHeader) { h.DictionaryPageHeader.V.NumValues = math.MaxInt32 }
		}), `column "kind": dictionary: got …`},
		{"unknown kind", rebuilt(func(t testing.TB, f *rawFile) {
			d := f.dictionary(t, "kind")
			d.data = bytes.Replace(d.data, []byte("chunk"), []byte("chonk"), 1)
		}), `row 3: kind: got "chonk", want one of sent, headers, chunk, usage, done, error, cancelled`},
		{"unknown channel", rebuilt(func(t testing.TB, f *rawFile) {
			d := f.dictionary(t, "channel")
			d.data = bytes.Replace(d.data, []byte("tool"), []byte("fool"), 1)
		}), `row …`},
		{"another phase in the rows", rebuilt(func(t testing.TB, f *rawFile) {
			d := f.dictionary(t, "phase")
			d.data = bytes.Replace(d.data, []byte("decode"), []byte("encode"), 1)
		}), `row 0: phase: got "encode", want "decode"`},
		{"another context in the rows", rebuilt(func(t testing.TB, f *rawFile) {
			binary.LittleEndian.PutUint32(f.dictionary(t, "context_tokens").data, 4096)
		}), `row 0: context_tokens: got 4096, want 8192`},
		{"a negative number", rebuilt(func(t testing.TB, f *rawFile) {
			copy(f.dictionary(t, "status").data, "\xFF\xFF\xFF\xFF")
		}), `row 2: status: got -1, want 0 or more, or null`},
		{"text that is not UTF-8", rebuilt(func(t testing.TB, f *rawFile) {
			data := f.last(t, "text").data
			data[len(data)-1] = 0xFF
		}), `row …`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ev, d := decodeBounded(t, tt.name, tt.file(t), decodeKey)
			if d == nil {
				t.Fatalf("got %d events, want the error %q", ev.Len(), tt.want)
			}
			got := strings.TrimPrefix(d.in("f").Error(), "f: ")
			if begin, open := strings.CutSuffix(tt.want, "…"); got != tt.want && !(open && strings.HasPrefix(got, begin)) {
				t.Errorf("got the error\n\t%s\nwant\n\t%s", got, tt.want)
			}
		})
	}
}

// A file that decompresses to far more than it has bytes is refused, even
// though each of its pages is what it says.
func TestBombsAreRefused(t *testing.T) {
	ev := &Events{Key: decodeKey}
	ev.Append(NewEvent(KindSent, 0))
	chunk := NewEvent(KindChunk, 1)
	chunk.Seq, chunk.HasText, chunk.Text = 1, true, strings.Repeat("!", 40<<20)
	ev.Append(chunk)
	data := encoded(t, ev)
	if len(data) > 1<<20 {
		t.Fatalf("the bomb has %d bytes, want a small one", len(data))
	}
	_, d := decodeBounded(t, "bomb", data, decodeKey)
	if want := `column "text": page at row 0: got a decompressed size of 419430`; d == nil || !strings.HasPrefix(d.msg, want) {
		t.Errorf("got %v, want %s…", d, want)
	}
	dir := newRun(t)
	if _, err := WriteEvents(dir, ev); err == nil {
		t.Error("the writer wrote what the reader refuses")
	}
	if got := tree(t, dir); got != "" {
		t.Errorf("files after the refused write:\n%s", got)
	}
}

// Data and header agree, and yet the frame gives more than it says.
func TestLyingFrameIsRefused(t *testing.T) {
	f, _ := takeApart(t, encoded(t, smallEvents()))
	p := f.last(t, "same_read")
	bomb, err := parquet.Zstd.Encode(nil, make([]byte, 100<<20))
	if err != nil {
		t.Fatal(err)
	}
	want := len(p.data)
	p.body = func([]byte) []byte {
		// Magic, descriptor of a single segment with a size of one byte, the
		// size, and the blocks of the bomb.
		blocks := bomb[9:] // magic 4, descriptor 1, size 4
		return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, byte(want)}, blocks...)
	}
	if _, d := decodeBounded(t, "lying frame", f.build(t), decodeKey); d == nil {
		t.Error("no error")
	}
}

// Errors keep their type and their place through the exported functions.
func TestErrorNamesFileAndRow(t *testing.T) {
	dir := newRun(t)
	ev := smallEvents()
	if _, err := WriteEvents(dir, ev); err != nil {
		t.Fatal(err)
	}
	ev.TUs[5] = ev.TUs[4] - 33
	err := ev.Check()
	want := fmt.Sprintf("cells/decode-8192-c4.parquet: row 5: t_us went back from %d to %d", ev.TUs[4], ev.TUs[5])
	var fe *FormatError
	if !errors.As(err, &fe) || fe.Row != 5 || err.Error() != want {
		t.Errorf("Check: got %v, want %s", err, want)
	}
	if _, err := WriteEvents(dir, ev); !errors.As(err, &fe) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("WriteEvents: got %v, want it to end in %s", err, want)
	}
	_, err = ReadEvents(dir, Key{PhaseDecode, 8192, 4}, FileInfo{SHA256: strings.Repeat("0", 64), Bytes: 1})
	if want := pathIn(dir, "cells/decode-8192-c4.parquet") + ": got "; !errors.As(err, &fe) || fe.Row != -1 || !strings.Contains(err.Error(), want) {
		t.Errorf("ReadEvents: got %v, want it to contain %s", err, want)
	}
}
