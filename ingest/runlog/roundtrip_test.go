package runlog

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"
)

func TestEventsReadBackAsWritten(t *testing.T) {
	dir := newRun(t)
	for seed := range uint64(40 / raceDivisor) {
		for _, ev := range []*Events{
			randomEvents(seed, Key{PhaseDecode, 8192, 1 + int32(seed%7)}, int(seed)*3),
			randomEvents(seed, Key{PhasePrefill, int32(seed), 1}, 3),
			randomEvents(seed, Key{PhaseWarmup, 131072, 1}, 1),
		} {
			info, err := WriteEvents(dir, ev)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, ev.Key.Name(), err)
			}
			got, err := ReadEvents(dir, ev.Key, info)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, ev.Key.Name(), err)
			}
			if diff := cmp.Diff(ev, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d, %s: read back (-written +read):\n%s", seed, ev.Key.Name(), diff)
			}
		}
	}
}

// The columns that our reader gives must be what the library's row reader,
// which shares none of its code, gives.
func TestLibraryReadsTheSameRows(t *testing.T) {
	ev := randomEvents(3, decodeKey, 400)
	var data bytes.Buffer
	if err := encodeEvents(&data, ev); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[eventRow](bytes.NewReader(data.Bytes()), int64(data.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != ev.Len() {
		t.Fatalf("got %d rows, want %d", len(rows), ev.Len())
	}
	number := func(p *int32) int32 {
		if p == nil {
			return Unknown
		}
		return *p
	}
	word := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	for i, r := range rows {
		got := Event{
			Stream: r.Stream, Request: r.Request, Seq: r.Seq, TUs: r.TUs, SameRead: r.SameRead,
			Tokens: number(r.Tokens), HasText: r.Text != nil, Text: word(r.Text), FinishReason: word(r.FinishReason),
			PromptTokens: number(r.PromptTokens), CachedTokens: number(r.CachedTokens),
			CompletionTokens: number(r.CompletionTokens), Status: number(r.Status), Error: word(r.Error),
		}
		want := ev.Row(i)
		if kind, channel := want.Kind.String(), want.Channel.String(); r.Kind != kind || word(r.Channel) != channel {
			t.Fatalf("row %d: got kind %q, channel %q, want %q, %q", i, r.Kind, word(r.Channel), kind, channel)
		}
		want.Kind, want.Channel = 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("row %d (-written +read):\n%s", i, diff)
		}
		if r.Phase != "decode" || r.ContextTokens != 8192 || r.Concurrency != 4 {
			t.Fatalf("row %d: got %s %d %d, want decode 8192 4", i, r.Phase, r.ContextTokens, r.Concurrency)
		}
	}
}
