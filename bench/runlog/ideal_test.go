package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"speedmatrix/ingest/runlog"
)

func TestEntropy(t *testing.T) {
	for name, tt := range map[string]struct {
		values []int64
		want   float64
	}{
		"one value":           {[]int64{7, 7, 7, 7}, 0},
		"two, a bit each":     {[]int64{1, 2, 1, 2, 1, 2, 1, 2}, 1},
		"four, two bits each": {[]int64{1, 2, 3, 4}, 1},
	} {
		if got := entropy(tt.values); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: got %v bytes, want %v", name, got, tt.want)
		}
	}
}

// The model must not take less than there is in a text, nor much more.
func TestMixedModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 20_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	if got := mixed(noise); got < 20_000 || got > 22_000 {
		t.Errorf("20,000 random bytes: got %.0f, want hardly more", got)
	}
	if got := mixed([]byte(strings.Repeat("the same again ", 1000))); got > 300 {
		t.Errorf("15,000 bytes of one sentence: got %.0f, want next to nothing", got)
	}
}

// The peer must say the same as the event files, or its bytes mean nothing.
func TestJSONLSaysTheSame(t *testing.T) {
	ev := new(runlog.Events)
	ev.Key = runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 2}
	e := runlog.NewEvent(runlog.KindChunk, 1234)
	e.Stream, e.Request, e.Seq, e.SameRead = 1, 2, 3, true
	e.Tokens, e.Channel, e.HasText, e.Text = 4, runlog.ChannelContent, true, "a \"quoted\"\n\tline \\ 世"
	e.FinishReason, e.PromptTokens, e.CachedTokens, e.CompletionTokens = "length", 0, 5, 6
	ev.Append(e)
	line := appendJSONL(nil, ev)
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	want := map[string]any{
		"phase": "decode", "context_tokens": 8192.0, "concurrency": 2.0, "stream": 1.0, "request": 2.0, "seq": 3.0,
		"kind": "chunk", "t_us": 1234.0, "same_read": true, "tokens": 4.0, "channel": "content", "text": e.Text,
		"finish_reason": "length", "prompt_tokens": 0.0, "cached_tokens": 5.0, "completion_tokens": 6.0,
	}
	for key, v := range want {
		if got[key] != v {
			t.Errorf("%s: got %v, want %v", key, got[key], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d keys, want %d: %s", len(got), len(want), line)
	}
}
