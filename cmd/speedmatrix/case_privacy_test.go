package main

// Cases of kinds K08 to K11: secrets and privacy, output behaviour, prefix
// caching, the state of the machine. A simulated server behind a hook is
// measured by the command line; everything that comes out is looked at.

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"speedmatrix/collect"
	"speedmatrix/collect/prompt"
	"speedmatrix/collect/server"
	"speedmatrix/collect/simserver"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A chatBody is what a chat request asks for.
type chatBody struct {
	Model    string
	Messages []struct{ Content string }
	// Pointers tell absent from 0.
	MaxTokens *int  `json:"max_tokens"`
	IgnoreEOS *bool `json:"ignore_eos"`
}

func (b chatBody) prompt() string {
	if len(b.Messages) == 0 {
		return ""
	}
	return b.Messages[0].Content
}

// A stub is a simulated server that remembers what it was asked, behind a
// hook that may answer in its place.
type stub struct {
	URL string

	mu    sync.Mutex
	chats []chatBody
	heads []http.Header // of every request, to any endpoint
}

func (s *stub) asked() []chatBody {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.chats)
}

// prompts returns the prompts that asked for more or less than one token.
func (s *stub) prompts(scouts bool) []string {
	var list []string
	for _, b := range s.asked() {
		if one := b.MaxTokens != nil && *b.MaxTokens == 1; one == scouts {
			list = append(list, b.prompt())
		}
	}
	return list
}

// serveStub starts a stub that lives until the test ends. The hook, which
// may be nil, reports whether it has answered; n counts chat requests from 0
// and is −1 for others.
func serveStub(t *testing.T, cfg simserver.Config, hook func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool) *stub {
	t.Helper()
	sim, err := simserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		n, b := -1, chatBody{}
		s.mu.Lock()
		s.heads = append(s.heads, r.Header.Clone())
		if r.URL.Path == "/v1/chat/completions" {
			if err := json.Unmarshal(body, &b); err != nil {
				t.Errorf("chat request is no JSON: %v", err)
			}
			n = len(s.chats)
			s.chats = append(s.chats, b)
		}
		s.mu.Unlock()
		if hook == nil || !hook(w, r, n, b) {
			sim.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	s.URL = ts.URL
	return s
}

// event writes one data event of a stream at once.
func event(w http.ResponseWriter, data string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	io.WriteString(w, "data: "+data+"\n\n")
	w.(http.Flusher).Flush()
}

// refuse answers with an error as vLLM does.
func refuse(w http.ResponseWriter, status int, message string) bool {
	b, err := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": "error", "code": status}})
	if err != nil {
		panic("internal error: marshal message: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
	return true
}

// atOnce runs subtests at the same time, however few of them the test
// command lets run in parallel: they mostly wait.
func atOnce[T any](t *testing.T, name func(i int, v T) string, values []T, f func(t *testing.T, v T)) {
	t.Helper()
	var wg sync.WaitGroup
	for i, v := range values {
		wg.Go(func() { t.Run(name(i, v), func(t *testing.T) { f(t, v) }) })
	}
	wg.Wait()
}

// A collected is what the collect command left behind.
type collected struct {
	status         int
	dir            string // run directory; "" when there is none
	stdout, stderr string
}

// collectQuickly runs the collect command in this process; only its waits
// around the windows are shorter than a person's.
func collectQuickly(ctx context.Context, args ...string) collected {
	var out, talk bytes.Buffer
	e := &env{ctx: ctx, stdout: &out, stderr: &talk}
	cfg, err := collectConfig(e, args)
	var c collected
	if err == nil {
		cfg.ReadyHold, cfg.DrainHold = 60*time.Millisecond, 50*time.Millisecond
		c.dir, err = measure(e, cfg)
		if c.dir != "" {
			fmt.Fprintln(&out, c.dir)
		}
	}
	c.status = report(&talk, "collect", err)
	c.stdout, c.stderr = out.String(), talk.String()
	return c
}

// collectRun is collectQuickly of a run that must come to its end.
func collectRun(t *testing.T, args ...string) collected {
	t.Helper()
	c := collectQuickly(t.Context(), args...)
	if c.status != exitDone || c.dir == "" {
		t.Fatalf("collect %q: status %d, stderr %s", args, c.status, c.stderr)
	}
	return c
}

// collectValid is collectRun for what needs a page with all its figures: on a
// machine so busy that a cell is not Valid, the run is measured again.
func collectValid(t *testing.T, args ...string) collected {
	t.Helper()
	const tries = 20
	for range tries {
		c := collectRun(t, args...)
		r := runOf(t, c.dir)
		invalid := slices.IndexFunc(r.Decode, func(c ingest.Cell) bool { return c.Status != ingest.Valid })
		if invalid < 0 {
			return c
		}
		t.Logf("measured again: a cell is %s", r.Decode[invalid].Status)
		if err := os.RemoveAll(c.dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("collect %q: a cell that is not Valid in each of %d tries", args, tries)
	return collected{}
}

func manifestOf(t *testing.T, dir string) *runlog.Manifest {
	t.Helper()
	m, err := runlog.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func runOf(t *testing.T, dir string) *ingest.Run {
	t.Helper()
	r, err := ingest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// decodeCell returns a decode cell of a run.
func decodeCell(t *testing.T, r *ingest.Run, concurrency int32) *ingest.Cell {
	t.Helper()
	for i := range r.Decode {
		if r.Decode[i].Concurrency == concurrency {
			return &r.Decode[i]
		}
	}
	t.Fatalf("no decode cell with %d requests at once", concurrency)
	return nil
}

// judged returns the status that a cell would have if this machine had not
// been too busy to keep up, which is no concern of these cases.
func judged(c *ingest.Cell) ingest.Status {
	for _, e := range c.Evidence {
		if e.Status != ingest.ClientLimited {
			return e.Status
		}
	}
	return ingest.Valid
}

// rendered renders runs by the command and returns the site's directory.
func rendered(t *testing.T, dirs ...string) string {
	t.Helper()
	site := filepath.Join(t.TempDir(), "site")
	if status, _, stderr := commandLine(append([]string{"render", "-o", site}, dirs...)...); status != exitDone {
		t.Fatalf("render: status %d, %s", status, stderr)
	}
	return site
}

// pagesOf returns a run's page in a site and its Markdown twin.
func pagesOf(t *testing.T, site, run string) (page, markdown string) {
	t.Helper()
	return readAll(t, filepath.Join(site, "runs", run, "index.html")), readAll(t, filepath.Join(site, "runs", run, "index.md"))
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// filesBelow returns all files below directories by their slashed paths,
// each path beginning with the directory's own name.
func filesBelow(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range dirs {
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				files[filepath.Base(dir)+"/"+name] = readAll(t, filepath.Join(dir, filepath.FromSlash(name)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// everything returns all that a run has left anywhere: its files, the
// strings inside its Parquet files, the rendered site, what inspect says of
// the run and of each cell, and what the commands said.
func everything(t *testing.T, c collected) map[string]string {
	t.Helper()
	site := rendered(t, c.dir)
	all := filesBelow(t, c.dir, site)
	all["collect's stdout"], all["collect's stderr"] = c.stdout, c.stderr
	say := func(args ...string) {
		status, stdout, stderr := commandLine(append([]string{"inspect", c.dir}, args...)...)
		if status != exitDone {
			t.Errorf("inspect %q: status %d, %s", args, status, stderr)
		}
		all["inspect "+strings.Join(args, " ")] = stdout + stderr
	}
	say()
	say("--json")
	m := manifestOf(t, c.dir)
	keys := []runlog.Key{{Phase: runlog.PhaseWarmup, ContextTokens: m.Warmup.ContextTokens, Concurrency: 1}}
	infos := []runlog.FileInfo{m.Warmup.FileInfo}
	for i := range m.Cells {
		say("--cell", m.Cells[i].Key().Name())
		if m.Cells[i].File != "" {
			keys, infos = append(keys, m.Cells[i].Key()), append(infos, m.Cells[i].FileInfo)
		}
	}
	for i, key := range keys {
		ev, err := runlog.ReadEvents(c.dir, key, infos[i])
		if err != nil {
			t.Fatal(err)
		}
		all["text column of "+key.File()] = string(ev.Text)
		all["finish_reason column of "+key.File()] = strings.Join(ev.FinishReason, "\n")
		all["error column of "+key.File()] = strings.Join(ev.Error, "\n")
	}
	return all
}

// spellings returns the usual ways to write a secret.
func spellings(secret string) map[string]string {
	quoted, _ := json.Marshal(secret)
	list := map[string]string{
		"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"JSON": string(quoted[1 : len(quoted)-1]), "HTML": html.EscapeString(secret), "Go": strconv.Quote(secret)[1 : len(strconv.Quote(secret))-1],
		"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))),
	}
	for before := range 3 { // its place decides how base64 writes it
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, before), secret...))
			list[fmt.Sprintf("%s after %d", name, before)] = text[(before*8+5)/6 : (before+len(secret))*8/6]
		}
	}
	return list
}

// wantNowhere fails for each place that holds the secret in any spelling, in
// its name or in its content.
func wantNowhere(t *testing.T, all map[string]string, secret string) {
	t.Helper()
	for how, s := range spellings(secret) {
		for place, content := range all {
			if strings.Contains(place, s) {
				t.Errorf("the name of %q holds the secret (%s)", place, how)
			}
			if i := strings.Index(content, s); i >= 0 {
				t.Errorf("%s holds the secret (%s): %q", place, how, content[max(0, i-60):min(len(content), i+len(s)+20)])
			}
		}
	}
}

// tinyPlan is the smallest plan with a cell of each phase.
func tinyPlan(root, url string, more ...string) []string {
	return append([]string{"--url", url, "-o", root, "--contexts", "256", "--concurrency", "1", "--duration", "150ms", "--max-output", "64"}, more...)
}

// echo makes a server that repeats the key wherever it can: in the model
// list, in its version, in labels, finish reasons, and errors of all kinds.
func echo(key string) (simserver.Config, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool) {
	cfg := simserver.Config{Seed: 1, Model: "org/m-" + key, Version: "0.32.0+" + key, MaxModelLen: 2048, KVCacheTokens: 8192, Speed: 4}
	var decodes atomic.Int32
	hook := func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
		all := fmt.Sprintf("Bearer %s, ?api_key=%s, Basic %s, {%q: %q}, x-api-key: %s, ", key, url.QueryEscape(key),
			base64.StdEncoding.EncodeToString([]byte("user:"+key)), "api_key", key, hex.EncodeToString([]byte(key)))
		if n < 0 {
			if r.URL.Path == "/metrics" {
				w.Header().Set("Content-Type", "text/plain")
				fmt.Fprintf(w, "vllm:cache_config_info{engine=\"0\",cache_dtype=%q,api_key=\"x%s\",block_size=\"16\",num_gpu_blocks=\"4096\"} 1\n", key, key)
				return true
			}
			return false
		}
		if *b.MaxTokens == 1 || *b.MaxTokens == 8 {
			return false // scouts and the first question go well
		}
		switch k := decodes.Add(1); {
		case k <= 1:
			return false // the warm-up
		case k == 2:
			return refuse(w, 500, "cannot serve "+all+strings.Repeat("x", 500-60-len(all))+key) // cut inside the last
		case k == 3:
			event(w, `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`)
			data, _ := json.Marshal(map[string]any{"error": map[string]any{"message": all, "code": 500}})
			event(w, string(data))
			return true
		case k == 4:
			event(w, "no JSON: "+key+key+all)
		case k == 5:
			w.Header().Set("Content-Type", "text/"+url.QueryEscape(key))
			io.WriteString(w, "welcome "+all)
			return true
		case k == 6:
			w.WriteHeader(403)
			fmt.Fprintf(w, "<html>%s</html>", all)
			return true
		default:
			data, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": "b"}, "finish_reason": "stop " + all}}})
			event(w, string(data))
			event(w, "[DONE]")
		}
		return true
	}
	return cfg, hook
}

// A key from the environment, the same in a header, and a server that
// repeats it everywhere.
func TestCase_BR086(t *testing.T) {
	const key = "sk-test-0001"
	t.Setenv("SPEEDMATRIX_API_KEY", key)
	cfg, hook := echo(key)
	srv := serveStub(t, cfg, hook)
	c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1,2,3,4", "--duration", "150ms", "--max-output", "64",
		"--header", "Authorization: Bearer "+key, "--launch-command", "vllm serve m --api-key "+key)
	for i, h := range srv.heads {
		if got := h.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("request %d went with authorization %q", i, got)
		}
	}
	all := everything(t, c)
	if !strings.Contains(all["error column of cells/decode-256-c1.parquet"]+all["error column of cells/decode-256-c2.parquet"], "<redacted>") {
		t.Error("no error text shows that something was taken out: the server did not repeat its key")
	}
	wantNowhere(t, all, key)
}

// Neighbours: a key with characters that every encoding writes otherwise,
// secrets in other headers, in the address, in a file.
func TestCase_BR086_OtherSpellings(t *testing.T) {
	t.Parallel()
	const key, session, password = `te+st/K%y&<0002>="q" z`, "cookie-5551212", "pa:ss@word/1"
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := map[string]string{key: "key", session: "header", password: "address"}
	atOnce(t, func(_ int, secret string) string { return places[secret] }, []string{key, session, password}, func(t *testing.T, secret string) {
		cfg, hook := echo(secret)
		cfg.Model, cfg.Version = "org/m", ""
		srv := serveStub(t, cfg, hook)
		address, more := srv.URL, []string{"--api-key-file", keyFile, "--header", "Cookie: " + session}
		if secret == password {
			address, more = strings.Replace(srv.URL, "://", "://"+url.UserPassword("bench", password).String()+"@", 1), nil
		}
		c := collectRun(t, append([]string{"--url", address, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1,2,3", "--duration", "150ms", "--max-output", "64"}, more...)...)
		for i, h := range srv.heads {
			_, got, _ := (&http.Request{Header: h}).BasicAuth()
			if secret == password && got != password || secret == session && h.Get("Cookie") != session || secret == key && h.Get("Authorization") != "Bearer "+key {
				t.Errorf("request %d went without the secret: %v", i, h)
			}
		}
		wantNowhere(t, everything(t, c), secret)
	})
}

// Nothing that ends a run early may say the key on the terminal either.
func TestCase_BR086_ErrorsOfTheCommand(t *testing.T) {
	t.Parallel()
	const key = "sk-test-0003/x+y"
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	words := fmt.Sprintf("key %s, %s, %s is not known", key, url.QueryEscape(key), base64.StdEncoding.EncodeToString([]byte(key)))
	for _, tt := range []struct {
		rule string
		hook func(w http.ResponseWriter, r *http.Request, n int) bool
		args []string
		want string
	}{
		{"the key is refused", func(w http.ResponseWriter, r *http.Request, n int) bool { return refuse(w, 401, words) }, nil, "401"},
		{"no such model", func(w http.ResponseWriter, r *http.Request, n int) bool {
			fmt.Fprintf(w, `{"data":[{"id":"m %s"},{"id":%q}]}`, url.QueryEscape(key), key)
			return true
		}, []string{"--model", "other"}, `does not serve model "other"`},
		{"another program answers", func(w http.ResponseWriter, r *http.Request, n int) bool { io.WriteString(w, words); return true }, nil, "unexpected answer"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request, n int) bool {
			http.Redirect(w, r, "http://other.example/?key="+url.QueryEscape(key), http.StatusFound)
			return true
		}, nil, "redirected"},
		{"the first question fails", func(w http.ResponseWriter, r *http.Request, n int) bool { return n >= 0 && refuse(w, 500, words) }, nil, "500"},
	} {
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048}, func(w http.ResponseWriter, r *http.Request, n int, _ chatBody) bool { return tt.hook(w, r, n) })
		root := filepath.Join(t.TempDir(), "results")
		c := collectQuickly(t.Context(), tinyPlan(root, srv.URL, append(tt.args, "--api-key-file", keyFile)...)...)
		if c.status != exitFailed || c.stdout != "" || !strings.Contains(c.stderr, tt.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want %q", tt.rule, c.status, c.stdout, c.stderr, tt.want)
		}
		if _, err := os.Stat(root); err == nil {
			t.Errorf("%s: something was written", tt.rule)
		}
		wantNowhere(t, map[string]string{tt.rule + ": stderr": c.stderr}, key)
	}
}

// The launch command keeps everything but the secrets.
func TestCase_BR088(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4}, nil)
	for _, tt := range []struct {
		command string
		args    []string
		page    string // as a shell takes it
		secrets []string
	}{
		{"vllm serve org/m --api-key sk-live-Z9 --port 8000",
			[]string{"vllm", "serve", "org/m", "--api-key", "<redacted>", "--port", "8000"},
			"vllm serve org/m --api-key <redacted> --port 8000", []string{"sk-live-Z9"}},
		{"HF_TOKEN=hf_abc vllm serve org/m --hf-token hf_abc",
			[]string{"HF_TOKEN=<redacted>", "vllm", "serve", "org/m", "--hf-token", "<redacted>"},
			"HF_TOKEN=<redacted> vllm serve org/m --hf-token <redacted>", []string{"hf_abc"}},
		{`bench --base-url https://user:pw@host.example/v1 --header "X-Api-Key: k1"`,
			[]string{"bench", "--base-url", "https://<redacted>@host.example/v1", "--header", "X-Api-Key: <redacted>"},
			"bench --base-url https://<redacted>@host.example/v1 --header 'X-Api-Key: <redacted>'", []string{"user:pw", "k1"}},
	} {
		c := collectRun(t, tinyPlan(t.TempDir(), srv.URL, "--prefill-contexts", "256", "--launch-command", tt.command)...)
		m := manifestOf(t, c.dir)
		if got := m.Engine.LaunchCommand.Args; !slices.Equal(got, tt.args) {
			t.Errorf("%s: run.json has %q, want %q", tt.command, got, tt.args)
		}
		page, md := pagesOf(t, rendered(t, c.dir), filepath.Base(c.dir))
		if !strings.Contains(seen(t, page, "code"), tt.page+"\n") {
			t.Errorf("%s: the page does not show %q", tt.command, tt.page)
		}
		if !strings.Contains(md, "\n"+tt.page+"\n") {
			t.Errorf("%s: the Markdown page does not show %q", tt.command, tt.page)
		}
		files := filesBelow(t, c.dir)
		delete(files, filepath.Base(c.dir)+"/telemetry.parquet") // two letters stand in any bytes
		for _, s := range tt.secrets {
			for name, content := range files {
				if strings.HasSuffix(name, ".json") && strings.Contains(content, s) || len(s) > 4 && strings.Contains(content, s) {
					t.Errorf("%s: %s holds %q", tt.command, name, s)
				}
			}
		}
	}
}

// A sweep that is interrupted and resumed sends the real key all the way,
// and its saved settings never have it.
func TestCase_BR090(t *testing.T) {
	t.Parallel()
	const key = "sk-test-0004"
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var scouts atomic.Int32
	srv := serveStub(t, simserver.Config{Seed: 1, APIKey: key, MaxModelLen: 2048, Speed: 4}, func(_ http.ResponseWriter, _ *http.Request, _ int, b chatBody) bool {
		if b.MaxTokens != nil && *b.MaxTokens == 1 && scouts.Add(1) == 3 {
			interrupt() // prefill and the first decode cell have been measured and saved
		}
		return false
	})
	c := collectQuickly(ctx, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1,2,3", "--duration", "150ms", "--max-output", "64",
		"--api-key-file", keyFile, "--launch-command", "vllm serve m --api-key "+key)
	if c.status != exitInterrupted || c.dir == "" {
		t.Fatalf("status %d, stderr %s, want interrupted", c.status, c.stderr)
	}
	saved := readAll(t, filepath.Join(c.dir, runlog.ManifestFile))
	if !strings.Contains(saved, `"<redacted>"`) || strings.Contains(saved, key) {
		t.Errorf("saved settings: %s, want <redacted> in place of the key", saved)
	}
	before := len(srv.asked())
	c = collectRun(t, "--url", srv.URL, "--resume", c.dir, "--api-key-file", keyFile)
	m := manifestOf(t, c.dir)
	for i := range m.Cells {
		if m.Cells[i].Outcome != runlog.OutcomeRecorded {
			t.Errorf("%s: %s %q", m.Cells[i].Key().Name(), m.Cells[i].Outcome, m.Cells[i].Reason)
		}
	}
	if len(srv.asked()) == before {
		t.Error("nothing was sent after the resume")
	}
	for i, h := range srv.heads {
		if got := h.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("request %d went with authorization %q", i, got)
		}
	}
	for _, cell := range runOf(t, c.dir).Decode {
		if cell.Launch.Failed > 0 {
			t.Errorf("%d requests at once: %d of %d failed", cell.Concurrency, cell.Launch.Failed, cell.Launch.Launched)
		}
	}
	wantNowhere(t, everything(t, c), key)
}

// The machine's name and its addresses are nobody's business; what it is
// made of stays.
func TestCase_BR092(t *testing.T) {
	const name = "lab-box-17"
	t.Setenv("HOSTNAME", name)
	real, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	srv := serveStub(t, simserver.Config{Seed: 1, Version: "0.32.0+" + name, Model: "/srv/" + name + "/models/tiny", MaxModelLen: 2048, Speed: 4},
		func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
			if n < 0 || *b.MaxTokens == 1 || *b.MaxTokens == 8 || n < 4 {
				return false
			}
			return refuse(w, 503, "worker on "+name+" ("+real+") is gone: dial tcp lookup "+strings.ToUpper(name)+".lab.example: no such host")
		})
	c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1,2", "--duration", "150ms", "--max-output", "64",
		"--launch-command", "vllm serve /srv/"+name+"/models/tiny --host "+name, "--gpu", "NVIDIA RTX 9", "--vram", "32G", "--cpu", "Fast CPU 3")
	all := everything(t, c)
	names := []string{name}
	if len(real) > 5 {
		names = append(names, real) // a short one stands in any binary file
	}
	for place, content := range all {
		for _, n := range names {
			if strings.Contains(strings.ToLower(place+content), strings.ToLower(n)) {
				t.Errorf("%s holds the machine's name %q", place, n)
			}
		}
	}
	if m := manifestOf(t, c.dir); m.Hardware.CPU != "Fast CPU 3" || len(m.Hardware.GPUs) != 1 || m.Hardware.GPUs[0].Name != "NVIDIA RTX 9" || m.Hardware.OS == "" || m.Server.Address != "loopback" {
		t.Errorf("hardware %+v, server %+v, want them described", m.Hardware, m.Server)
	}
	if !strings.Contains(strings.Join(mapValues(all), ""), "worker on <host>") {
		t.Error("the server's words are not in the run: it was not asked to fail")
	}
	if strings.Contains(all["collect's stderr"], "http") {
		t.Errorf("stderr names the server's address: %s", all["collect's stderr"])
	}
}

func mapValues(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// Prompts are in no file at all, outputs in no page; a long prompt does not
// make a longer page.
func TestCase_BR094(t *testing.T) {
	const marker = "PRIVATE-4711"
	sizes := map[string][2]int{}
	for _, context := range []string{"1024", "96K"} {
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 100 << 10, KVCacheTokens: 1 << 20, PrefillSpeed: 4e6, PrefillHalf: 1 << 20, Speed: 4, Metrics: simserver.MetricsNone},
			func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
				if n < 0 || *b.MaxTokens != 64 {
					return false
				}
				usage := func(k int) string {
					return fmt.Sprintf(`,"usage":{"prompt_tokens":1024,"completion_tokens":%d}`, k)
				}
				for k := 1; k <= 64; k++ { // an output that repeats a part of its input
					event(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"%s %d "},"finish_reason":null}]%s}`, marker, k, usage(k)))
					time.Sleep(time.Millisecond)
				}
				event(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)
				event(w, `{"choices":[]`+usage(64)+`}`)
				event(w, "[DONE]")
				return true
			})
		c := collectValid(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", context, "--prefill-contexts", "256", "--concurrency", "1", "--duration", "400ms", "--max-output", "64", "--name", "run")
		site := rendered(t, c.dir)
		var pieces []string // of every prompt, a few words from its beginning, its middle and its end
		for _, p := range srv.prompts(false) {
			if len(p) > 800 {
				pieces = append(pieces, p[:48], p[len(p)/2:len(p)/2+48], p[len(p)-48:])
			}
		}
		if len(pieces) < 3 {
			t.Fatalf("%s: only %d pieces of prompts", context, len(pieces))
		}
		all := everything(t, c)
		for place, content := range all {
			for _, p := range pieces {
				if strings.Contains(content, p) {
					t.Errorf("%s: %s holds a part of a prompt, %q", context, place, p)
				}
			}
			for _, suffix := range []string{".html", ".md", ".csv", "index.json", "run.json"} {
				if strings.HasSuffix(place, suffix) && strings.Contains(content, marker) {
					t.Errorf("%s: %s holds the output", context, place)
				}
			}
		}
		if !strings.Contains(all["text column of "+runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: manifestOf(t, c.dir).Plan.ContextsTokens[0], Concurrency: 1}.File()], marker) {
			t.Errorf("%s: the raw events do not have the output", context)
		}
		page, md := pagesOf(t, site, "run")
		sizes[context] = [2]int{len(page), len(md)}
	}
	for i, what := range []string{"page", "Markdown page"} {
		if d := sizes["96K"][i] - sizes["1024"][i]; d > 1024 || d < -1024 {
			t.Errorf("the %s has %d bytes after a prompt of 1K tokens, %d after 96K", what, sizes["1024"][i], sizes["96K"][i])
		}
	}
}

// Neighbour: a run can be told to keep no output at all, or hashes of it.
func TestCase_BR094_TextModes(t *testing.T) {
	t.Parallel()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4}, nil)
	for mode, want := range map[string]string{"none": `^$`, "hash": "#"} {
		c := collectRun(t, tinyPlan(t.TempDir(), srv.URL, "--text", mode)...)
		m := manifestOf(t, c.dir)
		for i := range m.Cells {
			ev, err := runlog.ReadEvents(c.dir, m.Cells[i].Key(), m.Cells[i].FileInfo)
			if err != nil {
				t.Fatal(err)
			}
			for row := range ev.Len() {
				text := string(ev.TextAt(row))
				if mode == "none" && text != "" || mode == "hash" && text != "" && !strings.HasPrefix(text, want) {
					t.Fatalf("--text %s: row %d of %s has the text %q", mode, row, m.Cells[i].Key().Name(), text)
				}
			}
		}
	}
}

// words answers a request with n tokens at a pace, as fast as the stub can
// where the pace is 0.
func words(w http.ResponseWriter, n int, pace time.Duration, word func(i int) string) {
	for i := range n {
		data, _ := json.Marshal(map[string]any{
			"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": word(i)}, "finish_reason": nil}},
			"usage":   map[string]any{"prompt_tokens": 256, "completion_tokens": i + 1},
		})
		event(w, string(data))
		time.Sleep(pace)
	}
	event(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)
	event(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":256,"completion_tokens":%d}}`, n))
	event(w, "[DONE]")
}

// Of two runs, the one that repeats itself is twice as fast and has no speed.
func TestCase_BR095(t *testing.T) {
	t.Parallel()
	var dirs []string
	for run, answer := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) {
			words(w, 900, 2*time.Millisecond, func(i int) string { return fmt.Sprintf("%d, ", i*i) })
		},
		func(w http.ResponseWriter) { words(w, 900, 0, func(int) string { return "ab-" }) },
	} {
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 4, Metrics: simserver.MetricsNone}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
			if n < 0 || *b.MaxTokens != 900 || n < 3 {
				return false
			}
			answer(w)
			return true
		})
		c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1", "--duration", "1s", "--max-output", "900", "--name", fmt.Sprintf("run-%d", run+1))
		dirs = append(dirs, c.dir)
	}
	site := rendered(t, dirs...)
	for i, want := range []ingest.Status{ingest.Valid, ingest.Looped} {
		c := decodeCell(t, runOf(t, dirs[i]), 1)
		if judged(c) != want {
			t.Errorf("run %d is %s %v, want %s", i+1, c.Status, c.Evidence, want)
		}
		row := rowOf(t, site, filepath.Base(dirs[i]), "decode", "256", "1")
		if want == ingest.Looped && (row["status"] != "looped" || row["total_tok_per_s"] != "" || row["completed_requests"] != "0" || row["output_tokens"] != "0") {
			t.Errorf("run %d in cells.csv: %v, want Looped, no speed, 0 completed requests and 0 output tokens", i+1, row)
		}
		if c.Status == ingest.Valid && (row["status"] != "valid" || row["total_tok_per_s"] == "") {
			t.Errorf("run %d in cells.csv: %v, want a speed", i+1, row)
		}
	}
	page, md := pagesOf(t, site, "run-2")
	for _, p := range []string{page, md} {
		if !strings.Contains(p, "Looped: the model kept repeating the same text, so the benchmark discarded this measurement.") {
			t.Error("the page does not say what Looped means")
		}
	}
	if want := "| Sustained decode | 256 | 1 | Looped | — | — | — | — | — | 0 | 0 | — |"; !strings.Contains(md, want) {
		t.Errorf("no row %q", want)
	}
	// It can't win: the list of runs has no best speed for it.
	if index := readAll(t, filepath.Join(site, "index.md")); !strings.Contains(lineWith(t, index, "run-2/"), "| — |") {
		t.Errorf("the list of runs shows a speed of run 2:\n%s", index)
	}
	c := decodeCell(t, runOf(t, dirs[1]), 1)
	ev, err := runlog.ReadEvents(dirs[1], c.Key(), c.FileInfo)
	if err != nil || !strings.Contains(string(ev.Text), strings.Repeat("ab-", 900)) {
		t.Errorf("the raw events of the loop are not kept (%v)", err)
	}
}

// lineWith returns the line of a text that holds a piece of it.
func lineWith(t *testing.T, text, piece string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.Contains(line, piece) {
			return line
		}
	}
	t.Fatalf("no line with %q in\n%s", piece, text)
	return ""
}

// One of six streams is answered for ever: its cell ends in time, and the
// next one follows.
func TestCase_BR097(t *testing.T) {
	t.Parallel()
	var sixth atomic.Int32
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4, Metrics: simserver.MetricsNone}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
		// The warm-up is the first of its length; then come six streams.
		if n < 0 || *b.MaxTokens != 64 || sixth.Add(1) != 4 {
			return false
		}
		for i := 1; r.Context().Err() == nil; i++ {
			event(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"%d "},"finish_reason":null}],"usage":{"prompt_tokens":256,"completion_tokens":%d}}`, i*i, i))
			if i > 80 { // all that was asked for comes at once, on the slowest machine too
				time.Sleep(time.Second / 75)
			}
		}
		return true
	})
	began := time.Now()
	c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--prefill-contexts", "128", "--concurrency", "6,7", "--duration", "500ms", "--max-output", "64")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the run took %v", took)
	}
	for i, b := range srv.asked() {
		if b.MaxTokens == nil {
			t.Errorf("chat request %d has no max_tokens", i)
		}
	}
	r := runOf(t, c.dir)
	if !r.Manifest.Finished {
		t.Error("the run is not finished")
	}
	six, seven := decodeCell(t, r, 6), decodeCell(t, r, 7)
	if d := *six.WindowCloseUs - *six.WindowOpenUs; d != 500_000 {
		t.Errorf("the window of the endless stream was %d µs, want exactly 500,000", d)
	}
	if six.Status != ingest.Failed || !strings.Contains(six.Evidence[0].Text, "more than") {
		t.Errorf("the cell with the endless stream is %s %v, want Failed: more tokens than asked for", six.Status, six.Evidence)
	}
	if seven.Outcome != runlog.OutcomeRecorded || seven.Status == ingest.Failed || seven.Launch.Completed == 0 {
		t.Errorf("the cell behind it is %s %v, %+v, want it measured", seven.Status, seven.Evidence, seven.Launch)
	}
}

// Ten thousand tokens were wanted and 801 came: only these are in figures.
func TestCase_BR099(t *testing.T) {
	t.Parallel()
	lengths := []int{801, 640, 87}
	var answers []string
	for _, n := range lengths {
		var b strings.Builder
		for i := 1; i <= n; i++ {
			fmt.Fprintf(&b, "%g CU \"%d \" %d\n", 20+float64(i)/8, i*i, i)
		}
		fmt.Fprintf(&b, "%g FIN stop\n%g USAGE 300 %d\n%g DONE\n", 20+float64(n)/8, 20+float64(n)/8, n, 20+float64(n)/8)
		answers = append(answers, b.String())
	}
	c := record(t, caseSetup{Streams: [][]string{answers}, MaxOutput: 10_000})
	if c.Status != ingest.Valid {
		t.Fatalf("%s %v, want Valid: the server was not told to ignore its end", c.Status, c.Evidence)
	}
	const all = 801 + 640 + 87
	if got := c.Figures.OutputTokens.Value; got != all {
		t.Errorf("output tokens = %v, want %d", got, all)
	}
	window := float64(*c.WindowCloseUs-*c.WindowOpenUs) / 1e6
	if got, want := c.Figures.TotalTokPerS.Value, all/window; got < want*0.999 || got > want*1.001 {
		t.Errorf("total = %v tok/s, want %d tokens / %v s = %v", got, all, window, want)
	}
	if n := c.Figures.CompletedRequests.Value; n != 3 {
		t.Errorf("%v completed requests, want 3", n)
	}
	for i, n := range lengths { // the spread is in the raw data
		if got := c.Requests[i].Tokens; got != int64(n) {
			t.Errorf("request %d has %d tokens, want %d", i, got, n)
		}
	}
	md := c.page(t)
	if row := lineWith(t, md, "| Sustained decode | 8K | 1 | Valid |"); !strings.Contains(row, "| 1,528 |") {
		t.Errorf("the page's row is %q, want 1,528 output tokens", row)
	}
	if strings.Count(md, "10,000") != 1 {
		t.Errorf("the wanted length stands %d times on the page, want once, as Max output", strings.Count(md, "10,000"))
	}
	// Told to ignore the end of text, the same answers are no measurement of
	// this load at all.
	if c := record(t, caseSetup{Streams: [][]string{answers}, MaxOutput: 10_000, IgnoreEOS: true}); c.Status != ingest.Failed || c.Figures.OutputTokens.Value != all {
		t.Errorf("with the end of text ignored: %s, %v output tokens, want Failed and %d as evidence", c.Status, c.Figures.OutputTokens.Value, all)
	}
}

// A vendor option that is silently ignored, and one that is refused.
func TestCase_BR100(t *testing.T) {
	t.Parallel()
	atOnce(t, func(i int, _ func(*testing.T)) string { return []string{"ignored", "refused"}[i] },
		[]func(*testing.T){ignoredOption, refusedOption}, func(t *testing.T, f func(*testing.T)) { f(t) })
}

// Many short answers in the window.
func ignoredOption(t *testing.T) {
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4, Metrics: simserver.MetricsNone}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
		if n < 0 || *b.MaxTokens != 64 {
			return false
		}
		words(w, 15, 2*time.Millisecond, func(i int) string { return fmt.Sprintf("%d%d ", n, i*i) })
		return true
	})
	c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--prefill-contexts", "128", "--concurrency", "4", "--duration", "1s", "--max-output", "64")
	cell := decodeCell(t, runOf(t, c.dir), 4)
	l, g := cell.Launch, cell.Figures
	if l.Completed < 20 || l.Failed > 0 || l.Launched != l.Completed+l.Cancelled || l.Cancelled > 4 {
		t.Errorf("%+v, want many completed requests, at most one cut off on each stream", l)
	}
	inside, sampled := 0, 0
	for _, r := range cell.Requests {
		if r.End == runlog.KindDone && r.EndUs > *cell.WindowOpenUs && r.EndUs <= *cell.WindowCloseUs {
			inside++
		}
		if r.TTFTUs.Known() {
			sampled++
		}
	}
	if g.CompletedRequests.Value != float64(inside) || g.TTFTUs.N != sampled || sampled < l.Completed {
		t.Errorf("completed %v with %d ends in the window; TTFT of %d requests, %d have one", g.CompletedRequests.Value, inside, g.TTFTUs.N, sampled)
	}
	if got := l.FinishReasons["length"]; got != l.Completed {
		t.Errorf("finish reasons %v, want %d", l.FinishReasons, l.Completed)
	}
	// docs/method.md, "Ended early": it is another load than the plan's.
	if cell.Status != ingest.Failed || !strings.Contains(cell.Evidence[0].Text, "ended") {
		t.Errorf("%s %v, want Failed because most requests ended early", cell.Status, cell.Evidence)
	}
}

// It is left out after one retry, and the run says so.
func refusedOption(t *testing.T) {
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4, AnswerTokens: 15}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
		return n >= 0 && b.IgnoreEOS != nil && refuse(w, 400, "extra fields not permitted: ignore_eos")
	})
	c := collectRun(t, tinyPlan(t.TempDir(), srv.URL)...)
	refused := 0
	for _, b := range srv.asked() {
		if b.IgnoreEOS != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d requests with ignore_eos, want one", refused)
	}
	if m := manifestOf(t, c.dir); m.Plan.Sampling.IgnoreEOS || !strings.Contains(readAll(t, filepath.Join(c.dir, runlog.ManifestFile)), `"ignore_eos": false`) {
		t.Errorf("run.json has %+v, want ignore_eos false", m.Plan.Sampling)
	}
	cell := decodeCell(t, runOf(t, c.dir), 1)
	if judged(cell) != ingest.Valid {
		t.Errorf("%s %v, want Valid: short answers are what was asked for", cell.Status, cell.Evidence)
	}
	if _, md := pagesOf(t, rendered(t, c.dir), filepath.Base(c.dir)); !strings.Contains(md, "end-of-text token obeyed") {
		t.Error("the page does not say that answers could end by themselves")
	}
}

// counters is a metrics page with prefix-cache counters of engines.
func counters(w http.ResponseWriter, queries, hits []int) {
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprint(w, "# TYPE vllm:prefix_cache_queries_total counter\n")
	for e, v := range queries {
		fmt.Fprintf(w, "vllm:prefix_cache_queries_total{engine=\"%d\",model_name=\"m\"} %d\n", e, v)
	}
	fmt.Fprint(w, "# TYPE vllm:prefix_cache_hits_total counter\n")
	for e, v := range hits {
		fmt.Fprintf(w, "vllm:prefix_cache_hits_total{engine=\"%d\",model_name=\"m\"} %d\n", e, v)
	}
}

// scout answers a request for one token of a prompt of the given length.
func scout(w http.ResponseWriter, prompt int) {
	event(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"length"}],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, prompt))
	event(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, prompt))
	event(w, "[DONE]")
}

// A server that answers at once what it has seen before, and counts it: no
// prefill sample is one of these. If all are, none is a prefill speed.
func TestCase_BR101(t *testing.T) {
	t.Parallel()
	atOnce(t, func(i int, _ bool) string { return []string{"cold", "everything was cached"}[i] }, []bool{false, true}, func(t *testing.T, alwaysCached bool) {
		var mu sync.Mutex
		seen := map[string]bool{}
		queries, hits := 0, 0
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 16 << 10, Speed: 4}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
			if r.URL.Path == "/metrics" {
				mu.Lock()
				counters(w, []int{queries}, []int{hits})
				mu.Unlock()
				return true
			}
			if n < 0 || *b.MaxTokens == 8 {
				return false
			}
			mu.Lock()
			cached := alwaysCached || seen[b.prompt()]
			seen[b.prompt()] = true
			queries += 8192
			if cached {
				hits += 8192
			}
			mu.Unlock()
			wait := 120 * time.Millisecond
			if cached {
				wait = 20 * time.Millisecond
			}
			time.Sleep(wait)
			if *b.MaxTokens == 1 {
				scout(w, 8192)
			} else {
				words(w, 64, 2*time.Millisecond, func(i int) string { return fmt.Sprintf("%d ", i*i) })
			}
			return true
		})
		c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "8K", "--prefill-repeats", "3", "--concurrency", "1,2,4", "--duration", "200ms", "--max-output", "64")
		r := runOf(t, c.dir)
		prefill := r.Prefill[0]
		site := rendered(t, c.dir)
		row := rowOf(t, site, filepath.Base(c.dir), "prefill", "8192", "1")
		if alwaysCached {
			if prefill.Status != ingest.Cached || row["status"] != "cached" || row["total_tok_per_s"] != "" {
				t.Errorf("%s %v, %v, want Cached without a speed", prefill.Status, prefill.Evidence, row)
			}
			page, md := pagesOf(t, site, filepath.Base(c.dir))
			if !strings.Contains(page, "Cached: part of the prompt") || !strings.Contains(md, "Cached: part of the prompt") {
				t.Error("the page does not say what Cached means")
			}
			return
		}
		if prefill.Status != ingest.Valid || prefill.Figures.PrefillTokPerS.N != 3 {
			t.Fatalf("%s %v, %d samples, want 3 valid ones", prefill.Status, prefill.Evidence, prefill.Figures.PrefillTokPerS.N)
		}
		for _, q := range prefill.Requests {
			if q.TTFTUs.Value < 100_000 { // a new prompt takes 120 ms, one seen before 20
				t.Errorf("sample %d took %v µs: its prompt had been seen", q.Request, q.TTFTUs.Value)
			}
		}
		if rate := prefill.Figures.PrefillTokPerS.Value; rate > 8192/0.100 {
			t.Errorf("prefill %v tok/s, want %v at most", rate, 8192/0.100)
		}
		scouts := srv.prompts(true)
		heads := map[string]bool{}
		for _, p := range scouts[:3] {
			heads[firstWords(p, 64)] = true
		}
		if len(heads) != 3 {
			t.Errorf("3 prefill samples with %d different beginnings", len(heads))
		}
		for _, p := range scouts[3:] { // the decode cells warm the cache with what they send
			if p != scouts[2] {
				t.Error("a decode cell's prompt is not the one that the cache has")
			}
		}
	})
}

func firstWords(s string, n int) string {
	f := strings.Fields(s)
	return strings.Join(f[:min(n, len(f))], " ")
}

// Hit rates come from counter differences, and may be unknown.
func TestCase_BR102(t *testing.T) {
	t.Parallel()
	type counting struct {
		rule                    string
		queries, hits           []int // of each engine, before the sample
		queriesAfter, hitsAfter []int
		evidence                string // that it was cached
		unknown                 bool   // whether it was
	}
	atOnce(t, func(_ int, tt counting) string { return tt.rule }, []counting{
		{"1 % over two engines", []int{0, 0}, []int{0, 0}, []int{5000, 5000}, []int{100, 0}, "prefix-cache hits grew by 100 tokens", false},
		{"just below", []int{0, 0}, []int{0, 0}, []int{5000, 5000}, []int{99, 0}, "", false},
		{"counters that went down", []int{1000}, []int{900}, []int{200}, []int{10}, "", true},
		{"one of two engines started again", []int{1000, 1000}, []int{900, 0}, []int{6000, 200}, []int{900, 10}, "", true},
		{"no such counters", nil, nil, nil, nil, "", true},
		{"an engine that appears", []int{0}, []int{0}, []int{5000, 5000}, []int{0, 4000}, "", true},
	}, func(t *testing.T, tt counting) {
		var after atomic.Bool
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 16 << 10, PrefillSpeed: 1e6, Speed: 4}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
			if r.URL.Path == "/metrics" {
				if after.Load() {
					counters(w, tt.queriesAfter, tt.hitsAfter)
				} else {
					counters(w, tt.queries, tt.hits)
				}
				return true
			}
			if n < 0 || *b.MaxTokens != 1 {
				return false
			}
			after.Store(true)
			scout(w, 10_000)
			return true
		})
		c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--prefill-contexts", "10000", "--contexts", "10001", "--concurrency", "1", "--duration", "100ms", "--max-output", "64")
		r := runOf(t, c.dir)
		p := r.Prefill[0]
		want := ingest.Valid
		if tt.evidence != "" {
			want = ingest.Cached
		}
		if p.Status != want || tt.evidence != "" && !strings.Contains(p.Evidence[0].Text, tt.evidence) {
			t.Errorf("%s %v, want %s with %q", p.Status, p.Evidence, want, tt.evidence)
		}
		if said := strings.Contains(strings.Join(append(r.Notes, p.Notes...), "\n"), "not checked whether the prompt was cached"); said != tt.unknown {
			t.Errorf("notes %q %q; said that it is unknown: %v, want %v", r.Notes, p.Notes, said, tt.unknown)
		}
		if s := p.Figures.CachedShare; s.Known() {
			t.Errorf("cached share %v, which no request said", s.Value)
		}
		for name, content := range filesBelow(t, rendered(t, c.dir)) {
			if strings.HasSuffix(name, ".md") && strings.Contains(content, "111 %") {
				t.Errorf("%s shows 111 %%", name)
			}
		}
	})
}

// Two runs never send the same prompt, and each prompt can be made again
// from what its run has stored.
func TestCase_BR105(t *testing.T) {
	t.Parallel()
	cfg := simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 4}
	root := t.TempDir()
	var beginnings [2]map[string]bool
	var salts [2]string
	for i := range beginnings {
		srv := serveStub(t, cfg, nil)
		c := collectRun(t, "--url", srv.URL, "-o", root, "--contexts", "256,512", "--concurrency", "1", "--prefill-repeats", "2", "--duration", "100ms", "--max-output", "64", "--name", fmt.Sprint("run-", i))
		m := manifestOf(t, c.dir)
		salts[i], beginnings[i] = m.Plan.Salt, map[string]bool{}
		sent := map[string]bool{}
		for _, b := range srv.asked() {
			if *b.MaxTokens != 8 { // the question before the run, which measures nothing
				beginnings[i][firstWords(b.prompt(), 64)] = true
				sent[b.prompt()] = true
			}
		}
		u, err := server.ParseURL(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		client := server.New(u, "", nil)
		count := func(ctx context.Context, content string) (int, error) {
			return client.Tokenize(ctx, m.Model.ServedName, []server.Message{{Role: "user", Content: content}})
		}
		for _, context := range m.Plan.ContextsTokens {
			for sample := range 2 {
				p, err := prompt.Build(t.Context(), count, prompt.Spec{Seed: m.Plan.Seed, Salt: m.Plan.Salt, Context: context, Sample: sample}, int(context))
				if err != nil {
					t.Fatal(err)
				}
				if !sent[p.Content] {
					t.Errorf("run %d: prompt %d of context %d, made again, is none that was sent", i, sample, context)
				}
			}
		}
	}
	if salts[0] == salts[1] || salts[0] == "" {
		t.Errorf("salts %q and %q, want two", salts[0], salts[1])
	}
	if len(beginnings[0]) < 4 {
		t.Errorf("%d different prompts in a run, want that of each sample", len(beginnings[0]))
	}
	for b := range beginnings[0] {
		if beginnings[1][b] {
			t.Errorf("both runs sent a prompt that begins with %q", b)
		}
	}
}

// A clock that falls inside a cell is noted, without any flag of the driver.
func TestCase_BR106(t *testing.T) {
	t.Parallel()
	// On a starved machine a short window has too few samples.
	for _, window := range []string{"1500ms", "5s", "20s"} {
		dir := throttledRun(t, window)
		r := runOf(t, dir)
		samples, err := runlog.ReadTelemetry(dir, r.Manifest.Telemetry.FileInfo)
		if err != nil {
			t.Fatal(err)
		}
		inside := map[int32]int{} // clock samples in the window of each cell
		for _, s := range samples {
			for i := range r.Manifest.Cells {
				if c := &r.Manifest.Cells[i]; s.Name == runlog.MetricSMClockMHz && c.WindowOpenUs != nil && *c.WindowOpenUs < s.TUs && s.TUs <= *c.WindowCloseUs {
					inside[c.Concurrency]++
				}
			}
		}
		if inside[1] < 2 || inside[2] < 5 {
			t.Logf("clock samples in windows of %s: %v, measured again", window, inside)
			continue
		}
		one, two := decodeCell(t, r, 1), decodeCell(t, r, 2)
		for _, n := range one.Notes {
			if strings.Contains(n, "clock") {
				t.Errorf("the steady cell has the note %q", n)
			}
		}
		const want = "SM clock of GPU 0 fell 1,950 → 1,100 MHz"
		if !slices.Contains(two.Notes, want) {
			t.Errorf("notes %q, want %q", two.Notes, want)
		}
		if s := two.GPUs; len(s) != 1 || s[0].SlowedShare.Value != 0 || s[0].SlowedShare.N == 0 {
			t.Errorf("GPU states %+v, want one that no flag says was slowed down", s)
		}
		page, md := pagesOf(t, rendered(t, dir), filepath.Base(dir))
		if !strings.Contains(page, want) || !strings.Contains(md, want) {
			t.Errorf("a page does not say %q", want)
		}
		return
	}
	t.Error("no run had enough samples of the clock")
}

// throttledRun measures two cells on a machine whose GPU's clock falls in
// the middle of the second one's window.
func throttledRun(t *testing.T, window string) (dir string) {
	t.Helper()
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 2}, nil)
	e := &env{ctx: t.Context(), stdout: io.Discard, stderr: io.Discard}
	cfg, err := collectConfig(e, []string{"--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1,2", "--duration", window, "--max-output", "512"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.ReadyHold, cfg.DrainHold = 60*time.Millisecond, 50*time.Millisecond
	var mu sync.Mutex
	var falls time.Time // zero: it has not been decided
	cfg.Progress = func(u collect.Update) {
		mu.Lock()
		defer mu.Unlock()
		if u.Stage == collect.StageWindow && u.Manifest.Cells[u.Cell].Concurrency == 2 && falls.IsZero() {
			falls = time.Now().Add(cfg.Plan.Duration / 2)
		}
	}
	cfg.Machine = func(_ context.Context, name string, args ...string) ([]byte, error) {
		if name != "nvidia-smi" {
			return nil, os.ErrNotExist
		}
		mu.Lock()
		defer mu.Unlock()
		clock := "1950"
		if !falls.IsZero() && time.Now().After(falls) {
			clock = "1100"
		}
		return nvidiaAnswer(args[0], map[string]string{"clocks.sm": clock}), nil
	}
	if dir, err = collect.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nvidiaAnswer answers a query of nvidia-smi for one GPU: what values does
// not say is an ordinary value.
func nvidiaAnswer(query string, values map[string]string) []byte {
	ordinary := map[string]string{
		"index": "0", "name": "NVIDIA RTX PRO 6000", "memory.total": "97887", "driver_version": "580.65.06", "power.limit": "600.00",
		"power.draw": "320.5", "clocks.sm": "1950", "temperature.gpu": "61", "utilization.gpu": "98", "memory.used": "81000", "clocks_event_reasons.active": "0x0000000000000000",
	}
	var line []string
	for _, field := range strings.Split(strings.TrimPrefix(query, "--query-gpu="), ",") {
		v, ok := values[field]
		if !ok {
			v = ordinary[field]
		}
		line = append(line, v)
	}
	return []byte(strings.Join(line, ", ") + "\n")
}

// The conditions of a measurement are recorded: the limit, why requests
// ended, the sensors. What no sensor says is not known.
func TestCase_BR107(t *testing.T) {
	t.Parallel()
	type sensor struct {
		rule    string
		program string // of nvidia-smi, in sh; "" for none on the PATH
		states  int    // GPUs with a state
		hot     float64
		slowed  float64
		note    bool
	}
	atOnce(t, func(_ int, tt sensor) string { return tt.rule }, []sensor{
		{"a sensor", fakeNvidia("61", "0x0000000000000000"), 1, 61, 0, false},
		{"a hot one", fakeNvidia("93", "0x0000000000000060"), 1, 93, 1, true},
		{"a power cap is no heat", fakeNvidia("70", "0x0000000000000004"), 1, 70, 0, false},
		{"no program", "", 0, 0, 0, false},
		{"a program that does not know", "echo '0, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]'\n", 0, 0, 0, false},
		{"a program that fails", "echo 'NVIDIA-SMI has failed' >&2; exit 9\n", 0, 0, 0, false},
	}, func(t *testing.T, tt sensor) {
		bin := t.TempDir()
		if tt.program != "" {
			if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte("#!/bin/sh\n"+tt.program), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 2048, Speed: 4, Metrics: simserver.MetricsOld}, nil)
		// A program that takes seconds to start, on a busy machine, is asked
		// too seldom for a short window.
		var c collected
		var r *ingest.Run
		var cell *ingest.Cell
		for _, window := range []string{"2s", "8s", "30s"} {
			c = collectElsewhere(t, []string{"PATH=" + bin}, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256", "--concurrency", "1", "--duration", window, "--max-output", "50")
			r = runOf(t, c.dir)
			cell = decodeCell(t, r, 1)
			if tt.states == 0 || len(cell.GPUs) > 0 && cell.GPUs[0].SlowedShare.Known() && cell.GPUs[0].HottestC.Known() {
				break
			}
		}
		if r.Manifest.Plan.MaxOutputTokens != 50 || cell.Launch.FinishReasons["length"] != cell.Launch.Completed || cell.Launch.Completed == 0 {
			t.Errorf("max_tokens %d, ends %v of %d", r.Manifest.Plan.MaxOutputTokens, cell.Launch.FinishReasons, cell.Launch.Completed)
		}
		if len(cell.GPUs) != tt.states {
			t.Fatalf("states of GPUs: %+v, want %d", cell.GPUs, tt.states)
		}
		if tt.states > 0 {
			g := cell.GPUs[0]
			if g.TemperatureC.Value != tt.hot || g.HottestC.Value != tt.hot || g.SlowedShare.Value != tt.slowed || g.SlowedShare.N == 0 {
				t.Errorf("state %+v, want %v °C and a share of %v", g, tt.hot, tt.slowed)
			}
		}
		if got := strings.Contains(strings.Join(cell.Notes, "\n"), "slowed down by heat or a power brake"); got != tt.note {
			t.Errorf("notes %q", cell.Notes)
		}
		samples, err := runlog.ReadTelemetry(c.dir, r.Manifest.Telemetry.FileInfo)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			if s.Source == runlog.SourceGPU && tt.states == 0 {
				t.Errorf("a sample of no sensor: %+v", s)
			}
		}
		// The same in what others read.
		status, stdout, _ := commandLine("inspect", c.dir, "--cell", cell.Cell.Key().Name(), "--json")
		var j struct {
			FinishReasons map[string]int `json:"finish_reasons"`
			GPUs          []struct {
				Temperature *struct{ Value float64 } `json:"temperature_c"`
			} `json:"gpus"`
		}
		if err := json.Unmarshal([]byte(stdout), &j); err != nil || status != exitDone || len(j.GPUs) != tt.states || j.FinishReasons["length"] == 0 {
			t.Errorf("inspect --json: status %d, %v, %+v", status, err, j)
		}
		page := readAll(t, filepath.Join(rendered(t, c.dir), "runs", filepath.Base(c.dir), "index.json"))
		if tt.states == 0 != strings.Contains(page, `"gpus": []`) || strings.Contains(page, `"temperature_c": 0`) {
			t.Errorf("index.json of %s: its gpus are not what the sensors said", tt.rule)
		}
	})
}

// collectElsewhere is collectRun in a process with variables of its own.
func collectElsewhere(t *testing.T, variables []string, args ...string) collected {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(append(os.Environ(), roleVariable+"=quick collect"), variables...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		t.Fatalf("collect %q: %v, stderr %s", args, err, &talk)
	}
	return collected{dir: strings.TrimSpace(out.String()), stdout: out.String(), stderr: talk.String()}
}

// fakeNvidia is an nvidia-smi that answers both of the collector's queries.
func fakeNvidia(temperature, reasons string) string {
	return `case "$1" in
*driver_version*) echo '0, NVIDIA RTX PRO 6000, 97887, 580.65.06, 600.00' ;;
*) echo '0, 320.5, 1950, ` + temperature + `, 98, 81000, ` + reasons + `' ;;
esac
`
}
