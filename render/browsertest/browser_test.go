package browsertest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// startBrowser starts a browser that lives as long as the test. Without one
// the test is skipped, except where CI says that nothing may be.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless-shell"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		missing(t, "no Chromium or Chrome on PATH: pages were not looked at")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// missing ends a test that needs something this machine does not have.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// A tab is one page in the browser, and what it did.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	messages []string // of the console, exceptions, and policy that was broken
}

// newTab opens an empty tab that is closed with the test.
func newTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	p := &tab{T: t}
	ctx, stop := context.WithTimeout(browser, 3*time.Minute)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx, chromedp.WithListener(p.heard))
	t.Cleanup(stop)
	p.ctx = ctx
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	return p
}

func (p *tab) heard(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *log.EventEntryAdded:
		p.messages = append(p.messages, string(e.Entry.Source)+": "+e.Entry.Text)
	case *runtime.EventConsoleAPICalled:
		p.messages = append(p.messages, "console: "+string(e.Type))
	case *runtime.EventExceptionThrown:
		p.messages = append(p.messages, "exception: "+e.ExceptionDetails.Text)
	}
}

// did returns what the page asked for and said since the last call.
func (p *tab) did() (requests, messages []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests, messages = p.requests, p.messages
	p.requests, p.messages = nil, nil
	return requests, messages
}

// open loads a page, or fails the test.
func (p *tab) open(url string) {
	p.Helper()
	p.do(chromedp.Navigate(url))
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.Fatal(err)
	}
}

// look sets the colour scheme and the size of the window.
func (p *tab) look(scheme string, width, height int64) {
	p.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	p.do(chromedp.EmulateViewport(width, height))
}

// scripts switches the page's own scripts on or off.
func (p *tab) scripts(on bool) {
	p.Helper()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// ask evaluates an expression, which may be a promise, in a page.
func ask[T any](p *tab, expression string, options ...chromedp.EvaluateOption) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		p.Fatalf("%v: %.80s", err, strings.TrimSpace(expression))
	}
	return v
}

// literal returns v as JavaScript.
func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return string(b)
}

// call sends a command of the browser's protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.Helper()
	r, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.Fatalf("%s: %v", command.Method, err)
	}
	return r
}
