package runlog

import (
	"io"
	"strconv"
)

// An eventRow is Event as a Parquet row: columns, types and encodings of an
// event file, in this order. FORMAT.md says why each is as it is. No row is
// ever made: the columns are written and read one by one.
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
	CompletionTokens *int32  `parquet:"completion_tokens,optional"` // delta, by the default of columnsOf: the library refuses the tag on a pointer
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

// createdBy is fixed, so that an upgrade of the library changes no bytes.
const createdBy = "speedmatrix " + Format

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

// encodeEvents writes ev as a Parquet file to w.
func encodeEvents(w io.Writer, ev *Events) error {
	e, err := newEncoder[eventRow](ev.Len(), ev.Key.metadata())
	if err != nil {
		return err
	}
	e.constant(plainWords([]string{string(ev.Key.Phase)}))
	e.constant(plainNumbers([]int32{ev.Key.ContextTokens}))
	e.constant(plainNumbers([]int32{ev.Key.Concurrency}))
	e.numbers(ev.Stream)
	e.numbers(ev.Request)
	e.numbers(ev.Seq)
	encodeEnum(e, ev.Kind, kindNames[:])
	e.times(ev.TUs)
	e.bools(ev.SameRead)
	e.numbers(ev.Tokens)
	encodeEnum(e, ev.Channel, channelNames[:])
	e.texts(ev)
	e.words(ev.FinishReason)
	e.numbers(ev.PromptTokens)
	e.numbers(ev.CachedTokens)
	e.numbers(ev.CompletionTokens)
	e.numbers(ev.Status)
	e.words(ev.Error)
	return e.finish(w, "stream", "request", "seq")
}

// encodeSamples writes samples as a Parquet file to w.
func encodeSamples(w io.Writer, samples []Sample) error {
	n := len(samples)
	e, err := newEncoder[sampleRow](n, telemetryMetadata())
	if err != nil {
		return err
	}
	times, values, indexes := make([]int64, n), make([]float64, n), make([]int32, n)
	sources, names := make([]string, n), make([]string, n)
	for i, s := range samples {
		times[i], sources[i], names[i], indexes[i], values[i] = s.TUs, string(s.Source), s.Name, s.Index, s.Value
	}
	e.times(times)
	e.words(sources)
	e.words(names)
	e.numbers(indexes)
	e.floats(values)
	return e.finish(w, "source", "name", "index", "t_us")
}
