package simserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// captures holds what a real vLLM sent; its README says how it was recorded.
const captures = "../stream/testdata/vllm/0.32.0"

// readCapture returns status and body of a recorded response.
func readCapture(t *testing.T, name string) (int, string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(captures, name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return resp.StatusCode, string(body)
}

var (
	jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?`)
	jsonNumber = regexp.MustCompile(`([\[,: ])-?[0-9][0-9.e+-]*`)
	jsonList   = regexp.MustCompile(`\[(0,)+0\]`)
)

// skeleton reduces one line of JSON to its form: keys, their order, null,
// white space and a few fixed words stay; other strings become "s", numbers
// 0, lists of numbers [0].
func skeleton(line string) string {
	fixed := []string{`"assistant"`, `"chat.completion"`, `"chat.completion.chunk"`, `"text_completion"`, `"length"`, `"stop"`, `"model"`, `"list"`, `"vllm"`, `"BadRequestError"`, `"NotFoundError"`, `"Bad Request"`}
	line = jsonString.ReplaceAllStringFunc(line, func(s string) string {
		if strings.HasSuffix(s, ":") || slices.Contains(fixed, s) {
			return s
		}
		return `"s"`
	})
	line = jsonNumber.ReplaceAllString(line, "${1}0")
	return jsonList.ReplaceAllString(line, "[0]")
}

// form reduces a body to the skeletons of its lines, without repetitions of
// the line (and the blank line) before.
func form(body string) string {
	var lines []string
	for event := range strings.SplitSeq(body, "\n\n") {
		if s := skeleton(event); len(lines) == 0 || lines[len(lines)-1] != s {
			lines = append(lines, s)
		}
	}
	return strings.Join(lines, "\n")
}

// TestFormIsThatOfVLLM sends requests that a real vLLM answered and compares
// form and order of everything in the answers.
func TestFormIsThatOfVLLM(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(captures, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Captures map[string]struct {
			Method, Path string
			Body         json.RawMessage
		}
	}
	if err := json.Unmarshal(b, &manifest); err != nil {
		t.Fatal(err)
	}
	_, url := start(t, fast(Config{Model: "tiny", MaxModelLen: 16384, BlockSize: 128, CachedTokens: true, AnswerTokens: 12}))
	long := strings.Repeat("bridge ", 16384)
	for _, tt := range []struct {
		name  string
		body  string // where the manifest has cut it
		exact bool   // the whole body is the same
	}{
		{name: "chat_one_token"},
		{name: "chat_stop_eos"},
		{name: "chat_usage_none"},
		{name: "chat_usage_final"},
		{name: "chat_usage_continuous"},
		{name: "chat_usage_continuous_alone"},
		{name: "chat_usage_both_off"},
		{name: "chat_usage_empty_options"},
		{name: "chat_stream_interval_4"},
		{name: "chat_token_ids"},
		{name: "chat_token_ids_usage"},
		{name: "chat_ignore_eos"},
		{name: "chat_not_streamed"},
		{name: "completion_default_length"},
		{name: "completion_usage_none"},
		{name: "completion_usage_final"},
		{name: "completion_usage_continuous"},
		{name: "completion_token_ids"},
		{name: "completion_not_streamed"},
		{name: "models"},
		{name: "version", exact: true},
		{name: "health", exact: true},
		{name: "tokenize_prompt"},
		{name: "tokenize_messages"},
		{name: "detokenize"},
		{name: "reset_prefix_cache", exact: true},
		{name: "error_method", exact: true},
		{name: "error_unknown_route", exact: true},
		{name: "error_unknown_model", exact: true},
		{name: "error_content_type", exact: true},
		{name: "error_max_tokens_zero", exact: true},
		{name: "error_max_tokens_too_large", exact: true},
		{name: "error_min_tokens", exact: true},
		{name: "error_stream_options_not_streamed", exact: true},
		{name: "error_missing_messages"},
		{name: "error_context_too_long", body: fmt.Sprintf(`{"stream":true,"max_tokens":24,"messages":[{"role":"user","content":%q}]}`, long), exact: true},
		{name: "error_unknown_token", body: `{"stream":true,"prompt":[1,100000000]}`},
		{name: "error_prompt_fills_window", body: `{"stream":true,"max_tokens":1,"prompt":[1` + strings.Repeat(",1", 16383) + `]}`, exact: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ok := manifest.Captures[tt.name]
			if !ok {
				t.Fatal("not in the manifest")
			}
			body := tt.body
			if body == "" {
				body = string(c.Body)
			}
			req, err := http.NewRequestWithContext(t.Context(), c.Method, url+c.Path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.name != "error_content_type" {
				req.Header.Set("Content-Type", "application/json")
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			status, want := readCapture(t, tt.name)
			got := string(b)
			if !tt.exact {
				got, want = form(got), form(want)
			}
			if resp.StatusCode != status || got != want {
				t.Errorf("got %d\n%s\nvLLM %d\n%s", resp.StatusCode, got, status, want)
			}
		})
	}
}

// TestMetricFamiliesAreThoseOfVLLM holds names, kinds and order of what
// /metrics shows; vLLM has more.
func TestMetricFamiliesAreThoseOfVLLM(t *testing.T) {
	_, real := readCapture(t, "metrics_load")
	families := func(page string) (list []string) {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "# TYPE vllm:") {
				list = append(list, strings.TrimSpace(line))
			}
		}
		return list
	}
	srv, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := families(real)
	got := families(string(metricsPage(srv.cfg, []stats{srv.engines[0].stats()}, srv.started)))
	if len(got) < 40 {
		t.Fatalf("got only %d families", len(got))
	}
	at := 0
	for _, f := range got {
		i := slices.Index(want[at:], f)
		if i < 0 {
			t.Errorf("%q is not in vLLM's page after %q", f, want[max(0, at-1)])
			continue
		}
		at += i + 1
	}
}
