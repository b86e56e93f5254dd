package stream

import (
	"testing"

	"speedmatrix/ingest/runlog"
)

// The kernel stamps the answer, this process the sending: when it is kept
// from its work in between, its note comes after the answer.
func TestSentIsBeforeTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		name                        string
		noted, headers, token, want int64
	}{
		{"noted in time", 100, 150, 900, 100},
		{"noted after the headers", 500, 150, 900, 95},
		{"noted after the first token", 1000, 150, 900, 95},
		{"no answer", 500, -1, -1, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Recording{requests: []rawRequest{{beganUs: 95, sentUs: tt.noted, headersUs: tt.headers, status: 200, headRead: 1}}}
			if tt.token >= 0 {
				r.events.add(rawEvent{[]byte(`{"choices":[{"delta":{"content":"x"}}]}`), tt.token, 2})
			}
			ev := &runlog.Events{}
			r.Decode(ev, DecodeOptions{Text: TextFull})
			if ev.TUs[0] != tt.want {
				t.Errorf("sent at %d, want %d", ev.TUs[0], tt.want)
			}
			if tt.token >= 0 && ev.TUs[2] != tt.token {
				t.Errorf("token at %d, want %d", ev.TUs[2], tt.token)
			}
		})
	}
}

// A character that is cut where thinking ends and the answer begins in one
// chunk stays whole.
func TestCharacterCutAroundAChunkOfTwoChannels(t *testing.T) {
	r := Recording{requests: []rawRequest{{headersUs: -1}}}
	for i, data := range []string{
		"{\"choices\":[{\"delta\":{\"reasoning\":\"caf\xc3\"}}]}",
		"{\"choices\":[{\"delta\":{\"reasoning\":\"\xa9.\",\"content\":\"\xe2\x82\"}}]}",
		"{\"choices\":[{\"delta\":{\"content\":\"\xac5\"}}]}",
	} {
		r.events.add(rawEvent{[]byte(data), int64(i), uint32(i + 1)})
	}
	ev := &runlog.Events{}
	r.Decode(ev, DecodeOptions{Text: TextFull})
	if got, want := string(ev.Text), "café.€5"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
