package stream

import (
	"fmt"
	"testing"
	"time"

	"speedmatrix/ingest/runlog"
)

// manyEvents is a body of n events as vLLM sends them.
func manyEvents(n int) []byte {
	var b []byte
	for i := range n {
		b = fmt.Appendf(b, `data: {"id":"chatcmpl-3f2c7d0a9b8e4f16","object":"chat.completion.chunk","created":1700000000,"model":"meta-llama/Llama-3.1-8B-Instruct",`+
			`"choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null,"token_ids":null}],`+
			`"usage":{"prompt_tokens":8192,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":null}}`+"\n\n", i%97, 8193+i, 1+i)
	}
	return b
}

func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

// The measuring path behind the read: cutting and copying.
func BenchmarkRecord(b *testing.B) {
	const events = 1000
	body := manyEvents(events)
	size := len(body) / events
	b.ReportAllocs()
	for b.Loop() {
		x := exchange{rec: NewRecording(time.Now()), lateness: &Lateness{}}
		x.begin(time.Now(), time.Now())
		x.resp.status = 200
		for rest := body; len(rest) > 0; { // a read for each event
			n := min(size, len(rest))
			x.reads++
			if err := x.onBody(rest[:n]); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
		if n := x.rec.events.n; n != events {
			b.Fatalf("%d events, want %d", n, events)
		}
	}
	perEvent(b, events)
}

func BenchmarkSSE(b *testing.B) {
	const events = 1000
	body := manyEvents(events)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := new(sseDecoder).feed(body, func([]byte) error { n++; return nil }); err != nil || n != events {
			b.Fatal(n, err)
		}
	}
	perEvent(b, events)
}

func BenchmarkDecodeChunk(b *testing.B) {
	data := manyEvents(1)
	data = data[len("data: ") : len(data)-2]
	for _, d := range []struct {
		name   string
		decode func([]byte) (Chunk, error)
	}{{"usual", DecodeChunk}, {"any", decodeAny}} {
		b.Run(d.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c, err := d.decode(data); err != nil || c.CompletionTokens != 1 {
					b.Fatal(c, err)
				}
			}
		})
	}
}

// From what was recorded to rows.
func BenchmarkDecode(b *testing.B) {
	const events = 1000
	x := exchange{rec: NewRecording(time.Now()), lateness: &Lateness{}}
	x.begin(time.Now(), time.Now())
	x.resp.status = 200
	if err := x.onBody(manyEvents(events)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ev := &runlog.Events{}
		x.rec.Decode(ev, DecodeOptions{Text: TextFull, Redact: func(s string) string { return s }})
		if ev.Len() != events+1 {
			b.Fatalf("%d rows, want %d", ev.Len(), events+1)
		}
	}
	perEvent(b, events)
}
