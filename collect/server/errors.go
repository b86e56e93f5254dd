package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"unicode"
)

// A Kind says in which way a call failed.
type Kind int

const (
	Unreachable Kind = iota + 1 // no connection, or it broke: name, route, TLS, reset
	Refused                     // nothing listens on the port
	TimedOut                    // no complete answer within the time limit
	Credentials                 // 401 or 403
	NotFound                    // 404 or 405: the server has no such endpoint
	BadStatus                   // any other status than 200
	BadAnswer                   // 200, but not what the endpoint promises: HTML, not JSON, empty, too long
	Redirected                  // to another server, where the credentials must not go
)

// An Error is a call that failed.
type Error struct {
	Call   string // "GET /v1/models"
	Kind   Kind
	Status int    // HTTP status; 0 when there was none
	Detail string // one line about what was got, at most 500 code points; "" when there is nothing to say
	Err    error  // the cause; nil when the status says it all
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	s := e.Call + ": " + e.what()
	if e.Detail != "" && e.Detail != e.what() {
		s += ": " + e.Detail
	}
	return s
}

// what says the failure in a few words.
func (e *Error) what() string {
	switch e.Kind {
	case Refused:
		return "connection refused"
	case TimedOut:
		return "timed out"
	case Unreachable:
		return "no connection"
	case Redirected:
		return "redirected"
	case BadAnswer:
		return "unexpected answer"
	}
	return statusText(e.Status)
}

// Hint returns what the person can do about it, "" when there is no advice.
func (e *Error) Hint() string {
	switch e.Kind {
	case Refused:
		return "is the server running, and is this its port?"
	case Unreachable:
		if strings.Contains(e.Detail, "HTTP response to HTTPS client") {
			return "the server speaks plain HTTP: use http:// in the address"
		}
		return "check the address, and that nothing between here and the server blocks it"
	case TimedOut:
		return "the server may still be loading its model, or be busy"
	case Credentials:
		return "the server wants other credentials: give its API key with --api-key-file or in the environment"
	case NotFound:
		return "is this the address of an OpenAI-compatible server, without a path of its own?"
	case BadAnswer:
		return "something else than the server may answer here, such as a proxy or a login page"
	case Redirected:
		return "give the address that it redirects to, if you trust it with the credentials"
	}
	return ""
}

// A ModelError reports that the server does not serve the wanted model.
type ModelError struct {
	Want   string   // "" when any base model would have done
	Served []string // names that it does serve, in its order
}

func (e *ModelError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("the server lists only adapters: %s", quoted(e.Served))
	}
	return fmt.Sprintf("the server does not serve model %q", oneLine(e.Want, 200))
}

// Hint names what is served.
func (e *ModelError) Hint() string { return "it serves " + quoted(e.Served) }

func quoted(names []string) string {
	const most = 8
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", oneLine(n, 200))
	}
	return b.String()
}

// transportError classifies what net/http could not do. The *url.Error
// around it is dropped, because it repeats the whole address.
func transportError(call string, err error) *Error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	e := &Error{Call: call, Kind: Unreachable, Detail: oneLine(err.Error(), 500), Err: err}
	var redirect *redirectError
	var timeout net.Error
	switch {
	case errors.As(err, &redirect):
		e.Kind = Redirected
	case errors.Is(err, context.Canceled):
		// Not the server's doing: callers see context.Canceled by errors.Is.
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Kind, e.Detail = TimedOut, ""
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(err.Error(), "actively refused"): // the latter on Windows
		e.Kind, e.Detail = Refused, ""
	}
	return e
}

func (c *Client) statusError(call string, status int, body []byte) *Error {
	e := &Error{Call: call, Kind: BadStatus, Status: status, Detail: ErrorMessage(body)}
	for _, s := range c.secret { // some servers repeat the key that they refuse
		if s != "" {
			e.Detail = strings.ReplaceAll(e.Detail, s, "<redacted>")
		}
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = Credentials
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		e.Kind = NotFound
	}
	return e
}

// ErrorMessage returns the message in the body of an answer that is not
// 200, as one line of at most 500 code points. It knows the shapes of vLLM
// and of the proxies before it: {"error":{"message":…}}, {"error":"…"},
// {"object":"error","message":…}, {"detail":…}, and plain text. HTML is
// named, not shown; an empty body gives "".
func ErrorMessage(body []byte) string {
	var answer struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &answer) == nil {
		var object struct {
			Message string `json:"message"`
			Type    string `json:"type"`
		}
		var text string
		switch {
		case json.Unmarshal(answer.Error, &text) == nil && text != "":
			return oneLine(text, 500)
		case json.Unmarshal(answer.Error, &object) == nil && object.Message != "":
			return oneLine(object.Message, 500)
		case object.Type != "":
			return oneLine(object.Type, 500)
		case answer.Message != "":
			return oneLine(answer.Message, 500)
		case json.Unmarshal(answer.Detail, &text) == nil && text != "":
			return oneLine(text, 500)
		}
	}
	if looksLikeHTML(body) {
		return "an HTML page"
	}
	return oneLine(string(body[:min(len(body), 4096)]), 500)
}

func notJSON(body []byte) string {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return "the answer is empty, want JSON"
	case looksLikeHTML(body):
		return "got an HTML page, want JSON"
	}
	return fmt.Sprintf("got %q, want JSON", oneLine(string(body[:min(len(body), 400)]), 60))
}

func looksLikeHTML(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n\ufeff"), []byte("<"))
}

func statusText(status int) string {
	if t := http.StatusText(status); t != "" {
		return fmt.Sprintf("%d %s", status, t)
	}
	return fmt.Sprintf("status %d", status)
}

// oneLine makes foreign text fit for a line of output: valid UTF-8, white
// space folded, control characters gone, at most n code points.
func oneLine(s string, n int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\ufffd")), " ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		s = string(r[:n-1]) + "…"
	}
	return s
}
