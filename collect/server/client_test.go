package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stub serves fixed answers by path and keeps what it was asked.
type stub struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
	body string // of the last request
}

func serve(t *testing.T, answer http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen, s.body = append(s.seen, r.Header.Clone()), string(b)
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stub) client(t *testing.T, key string) *Client {
	t.Helper()
	u, err := ParseURL(s.URL + "/v1/")
	if err != nil {
		t.Fatal(err)
	}
	return New(u, key, nil)
}

func text(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestParseURL(t *testing.T) {
	for _, tt := range []struct{ name, in, want, err string }{
		{"a scheme may be missing", "localhost:8000", "http://localhost:8000", ""},
		{"v1 and slashes are cut off", "https://h.example/llm/v1/", "https://h.example/llm", ""},
		{"a path of its own stays", "http://h.example/llm", "http://h.example/llm", ""},
		{"IPv6", "[::1]:8000", "http://[::1]:8000", ""},
		{"another scheme is refused", "ftp://h", "", `server address has scheme "ftp", want http or https`},
		{"no host is refused", "http:///v1", "", "server address has no host name"},
		{"a query is refused", "http://h?key=1", "", "server address has a query or a fragment, want only scheme, host and path"},
		{"an error does not repeat a password", "http://u:hunter2@h:port", "", `parse server address: invalid port ":port" after host`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseURL(tt.in)
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			} else if got.String() != tt.want {
				t.Errorf("ParseURL(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if gotErr != tt.err {
				t.Errorf("ParseURL(%q): error %q, want %q", tt.in, gotErr, tt.err)
			}
		})
	}
}

func TestModels(t *testing.T) {
	s := serve(t, text(200, "application/json", `{"object":"list","data":[
		{"id":"lora","object":"model","root":"/a","parent":"gemma","max_model_len":null},
		{"id":"gemma","object":"model","created":1,"owned_by":"vllm","root":"org/gemma","parent":null,"max_model_len":131072,"permission":[{}]},
		{"id":""},
		{"id":"odd","max_model_len":1e40}]}`))
	got, err := s.client(t, "").Models(t.Context())
	want := []Model{
		{ID: "lora", Root: "/a", Parent: "gemma"},
		{ID: "gemma", Root: "org/gemma", OwnedBy: "vllm", MaxModelLen: 131072},
		{ID: "odd"},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Fatalf("Models: error %v, -want +got:\n%s", err, d)
	}
	if m, err := FindModel(got, ""); err != nil || m.ID != "gemma" {
		t.Errorf("FindModel without a name = %q, %v, want the first base model", m.ID, err)
	}
	_, err = FindModel(got, "llama")
	var me *ModelError
	if !errors.As(err, &me) || me.Error() != `the server does not serve model "llama"` || me.Hint() != `it serves "lora", "gemma", "odd"` {
		t.Errorf("FindModel of a missing model: %v", err)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		kind   Kind
		want   string
		hint   string // a part of it
	}{
		{"401 with a string", text(401, "application/json", `{"error":"Unauthorized"}`), Credentials, "GET /v1/models: 401 Unauthorized: Unauthorized", "credentials"},
		{"403", text(403, "text/plain", ""), Credentials, "GET /v1/models: 403 Forbidden", "API key"},
		{"404 with an object", text(404, "application/json", `{"error":{"message":"The model `+"`x`"+` does not exist.","type":"NotFoundError","param":"model","code":404}}`), NotFound, "GET /v1/models: 404 Not Found: The model `x` does not exist.", "OpenAI"},
		{"400 of older releases", text(400, "application/json", `{"object":"error","message":"too\nlong","type":"BadRequestError","param":null,"code":400}`), BadStatus, "GET /v1/models: 400 Bad Request: too long", ""},
		{"an error with an empty message", text(500, "application/json", `{"error":{"message":"","type":"InternalServerError","code":500}}`), BadStatus, "GET /v1/models: 500 Internal Server Error: InternalServerError", ""},
		{"FastAPI's own shape", text(404, "application/json", `{"detail":"Not Found"}`), NotFound, "GET /v1/models: 404 Not Found: Not Found", ""},
		{"a gateway's page", text(502, "text/html", "<html><body>Bad</body></html>"), BadStatus, "GET /v1/models: 502 Bad Gateway: an HTML page", ""},
		{"a login page", text(200, "text/html", "<!doctype html><form>"), BadAnswer, "GET /v1/models: unexpected answer: got an HTML page, want JSON", "proxy"},
		{"not JSON", text(200, "text/plain", "hello \x1b[31m"), BadAnswer, `GET /v1/models: unexpected answer: got "hello [31m", want JSON`, "proxy"},
		{"nothing", text(200, "application/json", ""), BadAnswer, "GET /v1/models: unexpected answer: the answer is empty, want JSON", ""},
		{"no models", text(200, "application/json", `{"data":[]}`), BadAnswer, "GET /v1/models: unexpected answer: the list of models is empty", ""},
		{"a status without a name", text(599, "text/plain", "x"), BadStatus, "GET /v1/models: status 599: x", ""},
		{"the key is not repeated", text(401, "application/json", `{"error":"bad key sk-test-7"}`), Credentials, "GET /v1/models: 401 Unauthorized: bad key <redacted>", ""},
		{"a connection that breaks", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, Unreachable, "GET /v1/models: no connection: EOF", "address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := serve(t, tt.answer).client(t, "sk-test-7").Models(t.Context())
			var e *Error
			if !errors.As(err, &e) || e.Kind != tt.kind || e.Error() != tt.want || !strings.Contains(e.Hint(), tt.hint) {
				t.Errorf("got %v, want kind %d, %q with a hint about %q", err, tt.kind, tt.want, tt.hint)
			}
		})
	}
}

func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse("http://" + l.Addr().String())
	l.Close()
	_, err = New(u, "", nil).Version(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Kind != Refused || e.Error() != "GET /version: connection refused" || !strings.Contains(e.Hint(), "running") {
		t.Errorf("got %v, want a refused connection and the hint to start the server", err)
	}
}

func TestTimeOut(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	defer close(release)
	c := s.client(t, "")
	_, _, err := c.ask(t.Context(), "GET /metrics", nil, 1, 100)
	var e *Error
	if !errors.As(err, &e) || e.Kind != TimedOut || e.Error() != "GET /metrics: timed out" || MetricsState(err) != "timed out" {
		t.Errorf("got %v, want a time-out", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Metrics(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: got %v, want context.Canceled", err)
	}
}

func TestAnswerTooLong(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 101)) })
	_, _, err := s.client(t, "").ask(t.Context(), "GET /version", nil, smallTimeout, 100)
	var e *Error
	if !errors.As(err, &e) || e.Kind != BadAnswer || e.Detail != "the answer is longer than 100 bytes" {
		t.Errorf("got %v, want the bound of 100 bytes", err)
	}
}

func TestCredentialsGoEverywhereOnTheServer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-test-0003" || r.Header.Get("X-Team") != "a" {
			w.WriteHeader(401)
			return
		}
		switch r.URL.Path {
		case "/moved/version":
			fmt.Fprint(w, `{"version":"0.28.0"}`)
		case "/version":
			http.Redirect(w, r, "/moved/version", http.StatusTemporaryRedirect)
		case "/v1/models":
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
		case "/metrics":
			fmt.Fprintln(w, "vllm:num_requests_running 0")
		case "/tokenize":
			fmt.Fprint(w, `{"count":7,"tokens":[1,2,3,4,5,6,7]}`)
		}
	})
	u, _ := ParseURL(s.URL)
	c := New(u, "sk-test-0003", http.Header{"x-team": {"a"}})
	if v, err := c.Version(t.Context()); v != "0.28.0" || err != nil {
		t.Errorf("Version over a redirect on the server = %q, %v", v, err)
	}
	if _, err := c.Models(t.Context()); err != nil {
		t.Errorf("Models: %v", err)
	}
	if _, err := c.Metrics(t.Context()); err != nil {
		t.Errorf("Metrics: %v", err)
	}
	if n, err := c.Tokenize(t.Context(), "m", nil); n != 7 || err != nil {
		t.Errorf("Tokenize = %d, %v", n, err)
	}
}

func TestCredentialsNeverLeaveTheServer(t *testing.T) {
	other := serve(t, text(200, "application/json", `{"version":"1","data":[{"id":"m"}],"count":1}`))
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	u, _ := ParseURL(s.URL)
	c := New(u, "sk-test-0003", http.Header{"X-Api-Key": {"k1"}})
	_, err1 := c.Version(t.Context())
	_, err2 := c.Models(t.Context())
	_, err3 := c.Tokenize(t.Context(), "m", []Message{{"user", "x"}})
	_, err4 := c.Metrics(t.Context())
	for _, err := range []error{err1, err2, err3, err4} {
		var e *Error
		if !errors.As(err, &e) || e.Kind != Redirected {
			t.Errorf("got %v, want a refused redirect", err)
		}
	}
	if len(other.seen) != 0 {
		t.Errorf("the other server was asked %d times, want never", len(other.seen))
	}
}

func TestPasswordInTheAddress(t *testing.T) {
	s := serve(t, text(500, "text/plain", "no pw-9 here"))
	u, err := ParseURL(strings.Replace(s.URL, "http://", "http://me:pw-9@", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(u, "", nil).Version(t.Context())
	if user, pw, ok := (&http.Request{Header: s.seen[0]}).BasicAuth(); !ok || user != "me" || pw != "pw-9" {
		t.Errorf("sent %q %q, want the user and password of the address", user, pw)
	}
	if err == nil || strings.Contains(err.Error(), "pw-9") {
		t.Errorf("error %v repeats the password", err)
	}
}

func TestTokenizeAsksAsAChatRequestIsTemplated(t *testing.T) {
	s := serve(t, text(200, "application/json", `{"count":12,"max_model_len":4096,"tokens":[],"token_strs":null}`))
	n, err := s.client(t, "").Tokenize(t.Context(), "m", []Message{{"user", "hi <b>"}})
	if n != 12 || err != nil {
		t.Errorf("Tokenize = %d, %v, want 12", n, err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(s.body), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"model": "m", "messages": []any{map[string]any{"role": "user", "content": "hi <b>"}},
		"add_generation_prompt": true, "add_special_tokens": false,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("request -want +got:\n%s", d)
	}
	for _, body := range []string{`{}`, `{"count":null}`, `{"count":-1}`, `{"count":99999999999}`} {
		if n, err := serve(t, text(200, "application/json", body)).client(t, "").Tokenize(t.Context(), "m", nil); err == nil {
			t.Errorf("Tokenize answered with %s = %d, want an error", body, n)
		}
	}
}

func TestMetricsAreOptional(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"there", text(200, "text/plain", "vllm:num_requests_running 1\n"), "available"},
		{"404", text(404, "application/json", `{"detail":"Not Found"}`), "404 Not Found"},
		{"401", text(401, "application/json", `{"error":"Unauthorized"}`), "401 Unauthorized"},
		{"login page", text(200, "text/html", "<html>login</html>"), "not Prometheus text"},
		{"JSON", text(200, "application/json", `{"a": 1}`), "not Prometheus text"},
		{"empty", text(200, "text/plain", ""), "empty"},
		{"white space", text(200, "text/plain", "\n\n"), "empty"},
		{"another engine", text(200, "text/plain", "# TYPE up gauge\nup 1\n"), "no vLLM metrics"},
		{"cut off", text(200, "text/plain", "vllm:num_requests_running 1"), "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := serve(t, tt.answer).client(t, "k").Metrics(t.Context())
			if got := MetricsState(err); got != tt.want {
				t.Errorf("MetricsState(%v) = %q, want %q", err, got, tt.want)
			}
		})
	}
}

func TestAddressKind(t *testing.T) {
	for ip, want := range map[string]string{
		"127.0.0.1": "loopback", "::1": "loopback", "0.0.0.0": "loopback", "127.0.0.2": "loopback",
		"10.1.2.3": "private", "192.168.1.1": "private", "172.16.0.1": "private", "100.64.0.9": "private",
		"fd00::1": "private", "fe80::1": "private", "169.254.1.1": "private",
		"8.8.8.8": "public", "172.32.0.1": "public", "2606:4700::1111": "public",
	} {
		if got := addressKind(netip.MustParseAddr(ip)); got != want {
			t.Errorf("addressKind(%s) = %q, want %q", ip, got, want)
		}
	}
	for address, want := range map[string]string{"http://[::ffff:10.0.0.1]:1": "private", "http://127.0.0.1": "loopback"} {
		u, _ := ParseURL(address)
		if got := New(u, "", nil).AddressKind(t.Context()); got != want {
			t.Errorf("AddressKind of %s = %q, want %q", address, got, want)
		}
	}
	u, _ := ParseURL("https://127.0.0.1")
	if c := New(u, "", nil); !c.SameMachine(t.Context()) || c.Port() != 443 {
		t.Errorf("loopback: SameMachine %v, Port %d, want true, 443", c.SameMachine(t.Context()), c.Port())
	}
	u, _ = ParseURL("192.0.2.1:8000")
	if c := New(u, "", nil); c.SameMachine(t.Context()) || c.Port() != 8000 {
		t.Errorf("a documentation address: SameMachine true or Port %d, want false, 8000", c.Port())
	}
}
