package runlog

import (
	"fmt"
	"io"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// An eventRow is Event as a Parquet row: columns, types and encodings of an
// event file, in this order. FORMAT.md says why each is as it is. A plain
// string that is optional would turn "" into null, so optional columns are
// pointers; they point into the Events being written.
type eventRow struct {
	Phase            string  `parquet:"phase,dict"`
	ContextTokens    int32   `parquet:"context_tokens,dict"`
	Concurrency      int32   `parquet:"concurrency,dict"`
	Stream           int32   `parquet:"stream,dict"`
	Request          int32   `parquet:"request,dict"`
	Seq              int32   `parquet:"seq,delta"`
	Kind             string  `parquet:"kind,dict"`
	TUs              int64   `parquet:"t_us,delta,uncompressed"`
	SameRead         bool    `parquet:"same_read"`
	Tokens           *int32  `parquet:"tokens,optional,dict"`
	Channel          *string `parquet:"channel,optional,dict"`
	Text             *string `parquet:"text,optional"`
	FinishReason     *string `parquet:"finish_reason,optional,dict"`
	PromptTokens     *int32  `parquet:"prompt_tokens,optional,dict"`
	CachedTokens     *int32  `parquet:"cached_tokens,optional,dict"`
	CompletionTokens *int32  `parquet:"completion_tokens,optional"` // delta, by the default that newWriter sets: the library refuses the tag on a pointer
	Status           *int32  `parquet:"status,optional,dict"`
	Error            *string `parquet:"error,optional,dict"`
}

// A sampleRow is Sample as a Parquet row.
type sampleRow struct {
	TUs    int64   `parquet:"t_us,delta,uncompressed"`
	Source string  `parquet:"source,dict"`
	Name   string  `parquet:"name,dict"`
	Index  int32   `parquet:"index,dict"`
	Value  float64 `parquet:"value,plain"`
}

const (
	createdBy = "speedmatrix " + Format // fixed, so that an upgrade of the library changes no bytes

	// pageBytes is how much of a column a page holds before it is encoded.
	// Larger than the library's 256 KiB: 3 % fewer bytes.
	pageBytes = 1 << 20

	// batchRows is how many rows are handed to the library at a time.
	batchRows = 1024
)

// Keys of the metadata with which a file alone says what it is.
const (
	metaFormat      = "runlog.format"
	metaPhase       = "runlog.phase"
	metaContext     = "runlog.context_tokens"
	metaConcurrency = "runlog.concurrency"
	metaContent     = "runlog.content" // "telemetry"; absent in an event file
)

// contentTelemetry is the value of metaContent in a telemetry file.
const contentTelemetry = "telemetry"

// metadata returns the key-value metadata of the event file of k.
func (k Key) metadata() map[string]string {
	return map[string]string{
		metaFormat:      Format,
		metaPhase:       string(k.Phase),
		metaContext:     strconv.Itoa(int(k.ContextTokens)),
		metaConcurrency: strconv.Itoa(int(k.Concurrency)),
	}
}

// telemetryMetadata returns the key-value metadata of a telemetry file.
func telemetryMetadata() map[string]string {
	return map[string]string{metaFormat: Format, metaContent: contentTelemetry}
}

// newWriter returns a Parquet writer of rows of type T, sorted by the named
// columns, to w.
func newWriter[T any](w io.Writer, metadata map[string]string, sorted ...string) *parquet.GenericWriter[T] {
	var order []parquet.SortingColumn
	for _, name := range sorted {
		order = append(order, parquet.Ascending(name))
	}
	options := []parquet.WriterOption{
		&parquet.WriterConfig{CreatedBy: createdBy},
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedBetterCompression}),
		parquet.PageBufferSize(pageBytes),
		parquet.DataPageVersion(2),
		parquet.DataPageStatistics(false), // the page index has them
		parquet.DefaultEncodingFor(parquet.Int32, &parquet.DeltaBinaryPacked),
		parquet.SortingWriterConfig(parquet.SortingColumns(order...)),
	}
	for _, foreign := range []string{"text", "finish_reason", "error"} { // whole values would stand in the footer
		options = append(options, parquet.SkipPageBounds(foreign))
	}
	for key, value := range metadata {
		options = append(options, parquet.KeyValueMetadata(key, value))
	}
	return parquet.NewGenericWriter[T](w, options...)
}

// encodeEvents writes ev as a Parquet file to w.
func encodeEvents(w io.Writer, ev *Events) error {
	out := newWriter[eventRow](w, ev.Key.metadata(), "stream", "request", "seq")
	rows := make([]eventRow, batchRows)
	texts := make([]string, batchRows)
	channels := channelNames // pointed to by the rows

	known := func(p *int32) *int32 {
		if *p == Unknown {
			return nil
		}
		return p
	}
	notEmpty := func(p *string) *string {
		if *p == "" {
			return nil
		}
		return p
	}
	textStart := 0
	for start := 0; start < ev.Len(); start += batchRows {
		n := min(batchRows, ev.Len()-start)
		textBase := textStart
		batch := string(ev.Text[textBase:ev.TextEnd[start+n-1]]) // one allocation for all texts of the batch
		for j := range n {
			i := start + j
			row := &rows[j]
			*row = eventRow{
				Phase: string(ev.Key.Phase), ContextTokens: ev.Key.ContextTokens, Concurrency: ev.Key.Concurrency,
				Stream: ev.Stream[i], Request: ev.Request[i], Seq: ev.Seq[i], Kind: kindNames[ev.Kind[i]],
				TUs: ev.TUs[i], SameRead: ev.SameRead[i],
				Tokens: known(&ev.Tokens[i]), Channel: notEmpty(&channels[ev.Channel[i]]),
				FinishReason: notEmpty(&ev.FinishReason[i]), PromptTokens: known(&ev.PromptTokens[i]),
				CachedTokens: known(&ev.CachedTokens[i]), CompletionTokens: known(&ev.CompletionTokens[i]),
				Status: known(&ev.Status[i]), Error: notEmpty(&ev.Error[i]),
			}
			if ev.HasText[i] {
				texts[j] = batch[textStart-textBase : ev.TextEnd[i]-textBase]
				row.Text = &texts[j]
			}
			textStart = ev.TextEnd[i]
		}
		if _, err := out.Write(rows[:n]); err != nil {
			return fmt.Errorf("encode rows: %w", err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("encode file: %w", err)
	}
	return nil
}

// encodeSamples writes samples as a Parquet file to w.
func encodeSamples(w io.Writer, samples []Sample) error {
	out := newWriter[sampleRow](w, telemetryMetadata(), "source", "name", "index", "t_us")
	rows := make([]sampleRow, batchRows)
	for start := 0; start < len(samples); start += batchRows {
		batch := samples[start:min(start+batchRows, len(samples))]
		for j, s := range batch {
			rows[j] = sampleRow{TUs: s.TUs, Source: string(s.Source), Name: s.Name, Index: s.Index, Value: s.Value}
		}
		if _, err := out.Write(rows[:len(batch)]); err != nil {
			return fmt.Errorf("encode rows: %w", err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("encode file: %w", err)
	}
	return nil
}
