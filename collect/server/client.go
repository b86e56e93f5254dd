package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Bounds of one answer. A long prompt's /tokenize answer lists every token
// id, which is why it may be larger and slower than the rest.
const (
	maxSmallBody    = 8 << 20
	maxTokenizeBody = 64 << 20
	maxMetricsBody  = 16 << 20

	smallTimeout    = 10 * time.Second
	tokenizeTimeout = 90 * time.Second
	metricsTimeout  = 5 * time.Second
	healthTimeout   = 5 * time.Second
)

// idleTimeout is shorter than the 5 s after which vLLM closes an idle
// connection, so that no request is lost on a connection that is closing.
const idleTimeout = 4 * time.Second

// A Client asks one server. Its methods may be called concurrently.
type Client struct {
	root   *url.URL // without userinfo, without /v1, without a trailing slash
	header http.Header
	secret []string
	http   *http.Client
}

// ParseURL parses the address of a server as people write it: the scheme
// may be missing (http), and a path may end in /v1 or a slash, both of
// which are cut off. The error says what is wrong and never repeats a
// password.
func ParseURL(s string) (*url.URL, error) {
	text := strings.TrimSpace(s)
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("parse server address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server address has scheme %q, want http or https", u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, errors.New("server address has no host name")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("server address has a query or a fragment, want only scheme, host and path")
	}
	return trimRoot(u), nil
}

// trimRoot returns a copy of u whose path is the server's root.
func trimRoot(u *url.URL) *url.URL {
	c := *u
	c.Path = strings.TrimRight(c.Path, "/")
	c.Path = strings.TrimRight(strings.TrimSuffix(c.Path, "/v1"), "/")
	c.RawPath, c.RawQuery, c.Fragment = "", "", ""
	return &c
}

// New returns a client for the server at base (see ParseURL). The key, if
// not "", is sent as a bearer token; header holds further headers, which
// win over the key. All of them go to every endpoint, and to no other
// address: a redirect that leaves the server is an error. A user and
// password in base are sent as basic authentication where nothing else
// authorizes.
func New(base *url.URL, key string, header http.Header) *Client {
	h := make(http.Header)
	var secrets []string
	if base.User != nil {
		password, _ := base.User.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(base.User.Username(), password)
		secrets = append(secrets, password)
	}
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
		secrets = append(secrets, key)
	}
	for name, values := range header {
		h[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	root := trimRoot(base)
	root.User = nil
	return &Client{
		root: root, header: h, secret: secrets,
		http: &http.Client{
			// Not through a proxy of the environment: what is asked must be
			// the same server that the streams measure.
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: smallTimeout}).DialContext,
				TLSHandshakeTimeout: smallTimeout,
				IdleConnTimeout:     idleTimeout,
				MaxIdleConnsPerHost: 4,
				DisableCompression:  true, // a bound on the body is then a bound on memory
			},
			CheckRedirect: func(r *http.Request, via []*http.Request) error {
				if r.URL.Scheme != root.Scheme || r.URL.Host != root.Host {
					return &redirectError{r.URL.Scheme + "://" + r.URL.Host}
				}
				if len(via) >= 5 {
					return errors.New("more than 5 redirects")
				}
				return nil
			},
		},
	}
}

// Header returns what every request to the server carries, authorization
// included.
func (c *Client) Header() http.Header { return c.header.Clone() }

// redirectError refuses a redirect: net/http would send all headers but
// Authorization along, and Authorization too where only the port differs.
type redirectError struct{ target string }

func (e *redirectError) Error() string {
	return fmt.Sprintf("redirected to another server, %q", e.target)
}

// A Model is one entry of /v1/models.
type Model struct {
	ID          string // the name that requests ask for
	Root        string // path or repository of the weights; "" when not said
	Parent      string // the base model of an adapter; "" for a base model
	OwnedBy     string // "vllm" on vLLM; "" when not said
	MaxModelLen int32  // longest prompt and output together, in tokens; 0 when not said
}

// Models returns what /v1/models lists, in its order; at least one entry.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	const call = "GET /v1/models"
	var answer struct {
		Data []struct {
			ID          string          `json:"id"`
			Root        string          `json:"root"`
			Parent      string          `json:"parent"`
			OwnedBy     string          `json:"owned_by"`
			MaxModelLen json.RawMessage `json:"max_model_len"`
		} `json:"data"`
	}
	if err := c.askJSON(ctx, call, nil, smallTimeout, maxSmallBody, &answer); err != nil {
		return nil, err
	}
	var models []Model
	for _, d := range answer.Data {
		if d.ID == "" {
			continue
		}
		m := Model{ID: d.ID, Root: d.Root, Parent: d.Parent, OwnedBy: d.OwnedBy}
		var n int64 // stays 0 for null, a fraction, text
		if json.Unmarshal(d.MaxModelLen, &n) == nil && n > 0 && n <= math.MaxInt32 {
			m.MaxModelLen = int32(n)
		}
		models = append(models, m)
	}
	if len(models) == 0 {
		return nil, &Error{Call: call, Kind: BadAnswer, Status: http.StatusOK, Detail: "the list of models is empty"}
	}
	return models, nil
}

// FindModel returns the served model with the given name, or without a
// name the first that is not an adapter. The error is a *ModelError.
func FindModel(models []Model, name string) (Model, error) {
	for _, m := range models {
		if m.ID == name || name == "" && m.Parent == "" {
			return m, nil
		}
	}
	e := &ModelError{Want: name}
	for _, m := range models {
		e.Served = append(e.Served, m.ID)
	}
	return Model{}, e
}

// Version returns the engine's version as /version says it, such as
// "0.30.1rc1.dev452+g73a583112".
func (c *Client) Version(ctx context.Context) (string, error) {
	const call = "GET /version"
	var answer struct {
		Version string `json:"version"`
	}
	if err := c.askJSON(ctx, call, nil, smallTimeout, maxSmallBody, &answer); err != nil {
		return "", err
	}
	v := oneLine(answer.Version, 200)
	if v == "" {
		return "", &Error{Call: call, Kind: BadAnswer, Status: http.StatusOK, Detail: "the answer names no version"}
	}
	return v, nil
}

// Health asks the server whether it is well. An *Error of Status 503, in some
// releases 500, means that it says no: vLLM's engine has died. Any other error
// means that it has no such endpoint, or did not answer.
func (c *Client) Health(ctx context.Context) error {
	const call = "GET /health"
	status, body, err := c.ask(ctx, call, nil, healthTimeout, maxSmallBody)
	if err != nil || status == http.StatusOK {
		return err
	}
	return c.statusError(call, status, body)
}

// A Message is one chat message.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Tokenize returns how many tokens a chat request with these messages has
// after the chat template: what the server would report as
// usage.prompt_tokens.
func (c *Client) Tokenize(ctx context.Context, model string, messages []Message) (int, error) {
	const call = "POST /tokenize"
	body, err := json.Marshal(struct {
		Model               string    `json:"model"`
		Messages            []Message `json:"messages"`
		AddGenerationPrompt bool      `json:"add_generation_prompt"` // as chat requests have it
		AddSpecialTokens    bool      `json:"add_special_tokens"`    // the template brings its own
	}{model, messages, true, false})
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", call, err)
	}
	var answer struct {
		Count *int `json:"count"`
	}
	if err := c.askJSON(ctx, call, body, tokenizeTimeout, maxTokenizeBody, &answer); err != nil {
		return 0, err
	}
	if answer.Count == nil || *answer.Count < 0 || *answer.Count > math.MaxInt32 {
		return 0, &Error{Call: call, Kind: BadAnswer, Status: http.StatusOK, Detail: "the answer holds no token count"}
	}
	return *answer.Count, nil
}

// Metrics reads the server's Prometheus page. MetricsState turns its error
// into the words of the run log.
func (c *Client) Metrics(ctx context.Context) (*Metrics, error) {
	const call = "GET /metrics"
	status, body, err := c.ask(ctx, call, nil, metricsTimeout, maxMetricsBody)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, c.statusError(call, status, body)
	}
	m, err := ParseMetrics(body)
	if err != nil {
		return nil, &Error{Call: call, Kind: BadAnswer, Status: status, Detail: err.Error(), Err: err}
	}
	return m, nil
}

// AddressKind returns "loopback", "private" (RFC 1918, unique local, link
// local and shared addresses) or "public"; "" when the host's name can't be
// resolved. Of a name with several addresses the first one counts.
func (c *Client) AddressKind(ctx context.Context) string {
	ips := c.addresses(ctx)
	if len(ips) == 0 {
		return ""
	}
	return addressKind(ips[0])
}

// SameMachine reports whether the server's address is one of this machine's
// own. It can't see behind a tunnel or a container's forwarded port.
func (c *Client) SameMachine(ctx context.Context) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		own = nil
	}
	for _, ip := range c.addresses(ctx) {
		if ip.IsLoopback() || ip.IsUnspecified() {
			return true
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.IP(ip.AsSlice())) {
				return true
			}
		}
	}
	return false
}

// Port returns the TCP port of the server.
func (c *Client) Port() int {
	p, err := net.LookupPort("tcp", c.root.Port())
	if err == nil && p > 0 {
		return p
	}
	if c.root.Scheme == "https" {
		return 443
	}
	return 80
}

func (c *Client) addresses(ctx context.Context) []netip.Addr {
	host := c.root.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}
	}
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips
}

func addressKind(ip netip.Addr) string {
	shared := netip.MustParsePrefix("100.64.0.0/10") // carrier and overlay networks
	switch {
	case ip.IsLoopback(), ip.IsUnspecified():
		return "loopback"
	case ip.IsPrivate(), ip.IsLinkLocalUnicast(), shared.Contains(ip.WithZone("")):
		return "private"
	}
	return "public"
}

// ask performs one call, "METHOD /path", and returns the status and the
// whole body. It fails only where there was no complete answer.
func (c *Client) ask(ctx context.Context, call string, body []byte, limit time.Duration, maxBody int64) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	method, path, _ := strings.Cut(call, " ")
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.root.String()+path, r)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", call, err)
	}
	req.Header = c.header.Clone()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, transportError(call, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		e := transportError(call, err)
		e.Status = resp.StatusCode
		return 0, nil, e
	}
	if int64(len(got)) > maxBody {
		return 0, nil, &Error{Call: call, Kind: BadAnswer, Status: resp.StatusCode, Detail: fmt.Sprintf("the answer is longer than %d bytes", maxBody)}
	}
	return resp.StatusCode, got, nil
}

func (c *Client) askJSON(ctx context.Context, call string, body []byte, limit time.Duration, maxBody int64, into any) error {
	status, got, err := c.ask(ctx, call, body, limit, maxBody)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return c.statusError(call, status, got)
	}
	if err := json.Unmarshal(got, into); err != nil {
		return &Error{Call: call, Kind: BadAnswer, Status: status, Detail: notJSON(got), Err: err}
	}
	return nil
}
