package stream

import (
	"testing"
	"time"
	"unicode/utf8"

	"speedmatrix/ingest/runlog"
)

func FuzzDecodeChunk(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":5,"completion_tokens":0}}`,
		`{"choices":[{"delta":{"reasoning_content":"x","content":null}}]}`,
		`{"choices":[{"delta":{"content":"` + "\xe4" + `"},"token_ids":[1,2]}]}`,
		`{"error":{"message":"","type":"InternalServerError","code":500}}`,
		`{"error":"no"}`, `{"object":"error","message":"m"}`, `{"choices":5,"usage":[]}`, `[]`, `"x"`, ``,
		`{"choices":[{"text":"a","finish_reason":7}],"usage":{"completion_tokens":1e300}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeChunk(data)
		if err != nil {
			return
		}
		for name, n := range map[string]int32{"prompt": c.PromptTokens, "completion": c.CompletionTokens, "cached": c.CachedTokens} {
			if n < runlog.Unknown {
				t.Errorf("%s tokens = %d, want unknown or >= 0", name, n)
			}
		}
		if (len(c.Text) > 0) != (c.Channel != runlog.ChannelNone) {
			t.Errorf("text %q with channel %v", c.Text, c.Channel)
		}
		if utf8.Valid(data) && !utf8.Valid(c.Text) {
			t.Errorf("valid event gave invalid text %q", c.Text)
		}
	})
}

func TestErrorMessage(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"too long","code":400}}`:           "too long",
		`{"error":"Unauthorized"}`:                              "Unauthorized",
		`{"object":"error","message":"flat","code":400}`:        "flat",
		`{"error":{"message":"","type":"InternalServerError"}}`: "InternalServerError",
		`{"detail":"something else"}`:                           `{"detail":"something else"}`,
		"<html>bad gateway</html>\n":                            "<html>bad gateway</html>",
		"":                                                      "",
		`{"error":{"message":"x","param":null,"code":"bad","type":1}}`: "x",
	} {
		if got := ErrorMessage([]byte(body)); got != want {
			t.Errorf("ErrorMessage(%q) = %q, want %q", body, got, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	p99, maximum, n := h.Take()
	if n != 1000 || maximum != time.Millisecond {
		t.Errorf("n = %d, max = %v, want 1000 and 1ms", n, maximum)
	}
	if want := 990 * time.Microsecond; p99 < want || p99 > want+want/8 {
		t.Errorf("p99 = %v, want within an eighth above %v", p99, want)
	}
	if _, _, n := h.Take(); n != 0 {
		t.Errorf("n after Take = %d, want 0", n)
	}
	for d := time.Duration(0); d < time.Hour; d = d*5/4 + 1 {
		if b := bucket(d); upper(b) < d || (b > 0 && upper(b-1) >= d) {
			t.Errorf("bucket(%d) = %d, which holds %d … %d", d, b, upper(b-1)+1, upper(b))
		}
	}
}
