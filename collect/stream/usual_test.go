package stream

import (
	"bytes"
	"reflect"
	"testing"
)

// What vLLM really sent, and what the tests of decoding are about: the short
// cut agrees with the standard library's decoder or says nothing, and of the
// captured events it leaves out next to none.
func TestTheShortCutAgrees(t *testing.T) {
	taken, all := 0, 0
	check := func(data []byte) bool {
		quick, ok := decodeUsual(data)
		if !ok {
			return false
		}
		if c, err := decodeAny(data); err != nil || !reflect.DeepEqual(quick, c) {
			t.Errorf("decodeUsual(%q) = %+v, want %+v (%v)", data, quick, c, err)
		}
		return true
	}
	for _, body := range captureBodies(t) {
		new(sseDecoder).feed(body, func(data []byte) error {
			if isDone(data) || bytes.Contains(data, []byte(`"error"`)) {
				return nil
			}
			if all++; check(data) {
				taken++
			} else {
				t.Logf("not usual: %.300q", data)
			}
			return nil
		})
	}
	if all < 100 || taken < all*9/10 {
		t.Errorf("%d of %d captured events are usual, want nine in ten at least", taken, all)
	}
	for _, s := range chunkSeeds {
		check([]byte(s))
		for i := range s { // damaged
			check([]byte(s[:i]))
			check([]byte(s[:i] + s[i+1:]))
			check([]byte(s[:i] + `"` + s[i:]))
		}
	}
	for _, s := range []string{
		`{"choices":[{"finish_reason":"stop","finish_reason":,"delta":{"content":"a"}}]}`, `{"choices":[{"finish_reason":null,"finish_reason":}]}`,
		`{"Choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"a","content":"b"}}]}`,
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":01}}`, `{"choices":[{"delta":{"content":"a"},"x":1.5}]}`,
		`{"choices":[{"delta":{"content":"a"}}],"object":"error"}`, `{"choices":[{"delta":{"content":"\u4e2d"}}]}`,
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":2147483648}}`, `{"choices":[{"delta":{"tool_calls":[]}}]}`,
		`{"choices":[{"delta":{"content":"a","reasoning":"b"}}]}`, `{"choices":[{"delta":{"content":"a"},"text":"b"}]}`,
		"{\"choices\":[{\"delta\":{\"content\":\"a\xe4\"}}]}", `{"choices":[{"delta":{"content":"a"}}]} `, `{"choices":[{"delta":{"content":"a"}}]}}`,
		`{"choices":[{"delta":{"role":"a"},"delta":{"content":"b"}}]}`, `{"choices":[{"delta":{"content":"a"}},{"delta":{}}]}`,
	} {
		if c, ok := decodeUsual([]byte(s)); ok {
			t.Errorf("decodeUsual(%s) = %+v, want that it leaves it to the other decoder", s, c)
		}
	}
}
