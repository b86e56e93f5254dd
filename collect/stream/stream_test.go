package stream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect/stream"
	"speedmatrix/collect/stream/streamtest"
	"speedmatrix/ingest/runlog"
)

// session is one stream against a scripted server.
type session struct {
	t      *testing.T
	client *stream.Client
	rec    *stream.Recording
	late   *stream.Lateness
	start  time.Time // instant 0 of the rows
}

func newSession(t *testing.T, srv *streamtest.Server, idle time.Duration) *session {
	t.Helper()
	u, err := url.Parse(srv.URL + "/v1/chat/completions")
	if err != nil {
		t.Fatal(err)
	}
	e, err := stream.NewEndpoint(u, http.Header{"Authorization": {"Bearer sk-test"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, start: time.Now(), late: &stream.Lateness{}}
	s.rec = stream.NewRecording(s.start)
	s.client = stream.NewClient(e, idle, s.late, s.rec)
	t.Cleanup(s.client.Close)
	return s
}

// do sends n requests and returns the rows of all.
func (s *session) do(n int) *runlog.Events {
	s.t.Helper()
	for range n {
		if _, err := s.client.Do(context.Background(), []byte(`{}`)); err != nil {
			s.t.Fatalf("Do: %v", err)
		}
	}
	return s.rows()
}

func (s *session) rows() *runlog.Events {
	ev := &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1}}
	s.rec.Decode(ev, stream.DecodeOptions{Text: stream.TextFull, Redact: func(s string) string { return s }})
	return ev
}

// brief prints rows without times: kind, tokens, channel, text and what else is set.
func brief(ev *runlog.Events) string {
	var b strings.Builder
	for i := range ev.Len() {
		e := ev.Row(i)
		fmt.Fprintf(&b, "%d/%d %s", e.Request, e.Seq, e.Kind)
		if e.Status != runlog.Unknown {
			fmt.Fprintf(&b, " status=%d", e.Status)
		}
		if e.Tokens != runlog.Unknown {
			fmt.Fprintf(&b, " tokens=%d", e.Tokens)
		}
		if e.Channel != runlog.ChannelNone {
			fmt.Fprintf(&b, " %s=%q", e.Channel, e.Text)
		}
		if e.FinishReason != "" {
			fmt.Fprintf(&b, " finish=%s", e.FinishReason)
		}
		if e.PromptTokens != runlog.Unknown {
			fmt.Fprintf(&b, " prompt=%d", e.PromptTokens)
		}
		if e.CompletionTokens != runlog.Unknown {
			fmt.Fprintf(&b, " total=%d", e.CompletionTokens)
		}
		if e.Error != "" {
			fmt.Fprintf(&b, " error=%q", e.Error)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestRows(t *testing.T) {
	for _, tt := range []struct {
		name, script, want string
	}{
		{
			"role, text, finish, usage and done are rows of their own",
			"6 ROLE\n 20 C \"Hi\"\n 30 C \"!\"\n 31 FIN stop\n 31 USAGE 9 2\n 32 DONE",
			`0/0 sent
0/1 headers status=200
0/2 chunk tokens=0
0/3 chunk content="Hi"
0/4 chunk content="!"
0/5 chunk finish=stop
0/6 usage tokens=0 prompt=9 total=2
0/7 done
`,
		},
		{
			"running usage gives the tokens of each event",
			"1 CU \"a\" 1\n 5 CU \" call text\" 4\n 9 CU \"b\" 5\n 10 USAGE 5 5\n 10 DONE",
			`0/0 sent
0/1 headers status=200
0/2 chunk tokens=1 content="a" total=1
0/3 chunk tokens=3 content=" call text" total=4
0/4 chunk tokens=1 content="b" total=5
0/5 usage tokens=0 prompt=5 total=5
0/6 done
`,
		},
		{
			"token ids count where there is no usage",
			`1 W data: {"choices":[{"delta":{"content":"ab"},"token_ids":[7,8]}]}\n\n
5 W data: {"choices":[{"delta":{},"token_ids":[9]}]}\n\n
6 DONE`,
			`0/0 sent
0/1 headers status=200
0/2 chunk tokens=2 content="ab"
0/3 chunk tokens=1
0/4 done
`,
		},
		{
			"a total that comes with the finish only is of no single event",
			`1 C "a"
5 C "b"
9 W data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\n
10 DONE`,
			`0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 chunk content="b"
0/4 chunk finish=stop prompt=4 total=2
0/5 done
`,
		},
		{
			"token ids and a total at the end count no token twice",
			`1 W data: {"choices":[{"delta":{"content":"ab"},"token_ids":[7,8]}]}\n\n
5 W data: {"choices":[{"delta":{"content":"c"},"finish_reason":"stop","token_ids":[9]}],"usage":{"prompt_tokens":4,"completion_tokens":3}}\n\n
6 USAGE 4 3
7 DONE`,
			`0/0 sent
0/1 headers status=200
0/2 chunk tokens=2 content="ab"
0/3 chunk tokens=1 content="c" finish=stop prompt=4 total=3
0/4 usage tokens=0 prompt=4 total=3
0/5 done
`,
		},
		{
			"the growth behind an uncounted text is not one event's, the next one's is",
			"1 CU \"a\" 1\n 2 C \"b\"\n 5 CU \"c\" 3\n 6 CU \"d\" 5\n 7 DONE",
			`0/0 sent
0/1 headers status=200
0/2 chunk tokens=1 content="a" total=1
0/3 chunk content="b"
0/4 chunk content="c" total=3
0/5 chunk tokens=2 content="d" total=5
0/6 done
`,
		},
		{
			"reasoning under any name, once",
			`1 W data: {"choices":[{"delta":{"reasoning":"a","reasoning_content":"a","content":""}}]}\n\n
2 W data: {"choices":[{"delta":{"reasoning_details":[{"type":"text","text":"b"}]}}]}\n\n
3 W data: {"choices":[{"delta":{"reasoning_content":"c","content":null}}]}\n\n
4 W data: {"choices":[{"delta":{"reasoning":"d","content":"e"}}]}\n\n
5 W data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]}\n\n
6 DONE`,
			`0/0 sent
0/1 headers status=200
0/2 chunk reasoning="a"
0/3 chunk reasoning="b"
0/4 chunk reasoning="c"
0/5 chunk mixed="de"
0/6 chunk tool="f{"
0/7 done
`,
		},
		{
			"an error event ends the request, done or not",
			"1 C \"a\"\n 2 W data: {\"error\":{\"message\":\"engine failure\",\"code\":500}}\\n\\n\n 3 DONE",
			`0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 error status=200 error="error event: engine failure"
`,
		},
		{
			"an error answer keeps its message",
			`1 401 {"error":"Unauthorized"}`,
			`0/0 sent
0/1 headers status=401
0/2 error status=401 error="HTTP 401: Unauthorized"
`,
		},
		{
			"a clean end without the end marker is truncated",
			"1 C \"a\"\n 2 CLOSE",
			`0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 error status=200 error="stream ended without [DONE] after 1 events; last bytes \"data: {\\\"choices\\\":[{\\\"index\\\":0,\\\"delta\\\":{\\\"content\\\":\\\"a\\\"},\\\"finish_reason\\\":null}]}\\n\\n\""
`,
		},
		{
			"an end marker that no blank line completes counts at the end of the body",
			"1 C \"a\"\n 2 W data: [DONE]",
			`0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 done
`,
		},
		{
			"an event that is no JSON fails the request and stays",
			"1 C \"a\"\n 2 W data: {\"choi\\n\\n\n 3 DONE",
			`0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 chunk
0/4 error status=200 error="event 1 of the request: event is not a JSON object: \"{\\\"choi\""
`,
		},
		{
			"a character split over two chunks belongs to the later one",
			`1 W data: {"choices":[{"delta":{"content":"x\xE4"}}]}\n\n
2 W data: {"choices":[{"delta":{"content":"\xB8\xADy"}}]}\n\n
3 W data: {"choices":[{"delta":{"content":"z\xE4\xB8"}}]}\n\n
4 DONE`,
			`0/0 sent
0/1 headers status=200
0/2 chunk content="x"
0/3 chunk content="中y"
0/4 chunk content="z` + "\uFFFD" + `"
0/5 done
`,
		},
		{
			"keep-alive comments, empty events and other fields are nothing",
			"1 W :\\n\\n\n 1 W data:\\n\\ndata: \\n\\n\n 2 W event: x\\nid: 7\\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\\n\n 3 W : ping\\n\n 4 W \\n\n 5 DONE",
			`0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 done
`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ev := newSession(t, streamtest.Serve(t, tt.script), 5*time.Second).do(1)
			if got := brief(ev); got != tt.want {
				t.Errorf("rows:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestBrokenConnections(t *testing.T) {
	t.Run("reset in the middle keeps the events and quotes the last bytes", func(t *testing.T) {
		t.Parallel()
		ev := newSession(t, streamtest.Serve(t, "1 C \"a\"\n 5 W data: {\"choi\n 400 RESET"), 5*time.Second).do(1)
		last := ev.Row(ev.Len() - 1)
		if last.Kind != runlog.KindError || !strings.Contains(last.Error, "connection reset by peer after 1 events") || !strings.Contains(last.Error, `data: {\"choi`) {
			t.Errorf("last row = %v %q, want an error that names the reset and the last bytes", last.Kind, last.Error)
		}
	})
	t.Run("silence fails after the idle limit", func(t *testing.T) {
		t.Parallel()
		ev := newSession(t, streamtest.Serve(t, "1 C \"a\"\n 2 C \"b\"\n 3 HANG"), 300*time.Millisecond).do(1)
		last := ev.Row(ev.Len() - 1)
		if last.Kind != runlog.KindError || !strings.Contains(last.Error, "nothing arrived for 300ms") {
			t.Errorf("last row = %v %q, want an error that names the idle limit", last.Kind, last.Error)
		}
		if gap := last.TUs - ev.TUs[ev.Len()-2]; gap < 290_000 {
			t.Errorf("ended %d µs after the last event, want 300,000 less 1 %%", gap)
		}
	})
	t.Run("a kept connection that died is replaced once, and this is recorded", func(t *testing.T) {
		t.Parallel()
		srv := streamtest.ServeFunc(t, func(n int, r streamtest.Request) string {
			if n == 1 {
				return "0 DROP" // the second request of the first connection
			}
			return "1 C \"a\"\n 2 DONE"
		})
		ev := newSession(t, srv, 5*time.Second).do(2)
		want := `0/0 sent
0/1 headers status=200
0/2 chunk content="a"
0/3 done
1/0 sent
1/1 cancelled error="kept connection was closed before any answer (connection closed before the answer was complete); sent again on a new one"
2/0 sent
2/1 headers status=200
2/2 chunk content="a"
2/3 done
`
		if got := brief(ev); got != want {
			t.Errorf("rows:\n%s\nwant:\n%s", got, want)
		}
	})
	t.Run("a new connection that dies before the answer is a failure", func(t *testing.T) {
		t.Parallel()
		ev := newSession(t, streamtest.Serve(t, "0 DROP"), 5*time.Second).do(1)
		if last := ev.Row(ev.Len() - 1); ev.Len() != 2 || last.Kind != runlog.KindError {
			t.Errorf("rows:\n%s\nwant sent, error", brief(ev))
		}
	})
	t.Run("stop cancels the request in progress", func(t *testing.T) {
		t.Parallel()
		s := newSession(t, streamtest.Serve(t, "1 C \"a\"\n 2 HANG"), 5*time.Second)
		go func() {
			for !s.rec.Delivered() {
				time.Sleep(time.Millisecond)
			}
			s.client.Stop()
		}()
		out, err := s.client.Do(context.Background(), []byte(`{}`))
		if out != stream.Cancelled || err != nil {
			t.Errorf("Do = %v, %v, want Cancelled", out, err)
		}
		ev := s.rows()
		if last := ev.Row(ev.Len() - 1); last.Kind != runlog.KindCancelled || last.Error != "" {
			t.Errorf("last row = %v %q, want cancelled", last.Kind, last.Error)
		}
		if out, err := s.client.Do(context.Background(), []byte(`{}`)); out != stream.Cancelled || err != nil || s.rec.Requests() != 1 {
			t.Errorf("Do after Stop = %v, %v with %d requests, want Cancelled and nothing sent", out, err, s.rec.Requests())
		}
	})
}

// Two events in one write share one read and its time; one that is completed
// by a later write has that write's time. A machine so busy that two writes
// were read at once gets another try.
func TestArrivalTimes(t *testing.T) {
	var why error
	for range 10 {
		if why = arrivals(t); why == nil {
			return
		}
		t.Log(why)
	}
	t.Errorf("in each of 10 tries: %v", why)
}

func arrivals(t *testing.T) error {
	srv := streamtest.Serve(t, `100 W data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[{"delta":{"content":"b"}}]}\n\ndata: {"cho
140 W ices":[{"delta":{"content":"c"}}]}
200 W \n\ndata: [DONE]\n\n`)
	s := newSession(t, srv, 5*time.Second)
	if err := s.client.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	kernel := s.client.Kernel()
	ev := s.do(1)
	writes := srv.Writes(0)
	for i, want := range []struct {
		kind   runlog.Kind
		write  int
		shared bool
	}{
		{runlog.KindChunk, 0, false}, {runlog.KindChunk, 0, true}, {runlog.KindChunk, 2, false}, {runlog.KindDone, 2, true},
	} {
		got, wrote := ev.Row(i+2), writes[want.write].Before.Sub(s.start).Microseconds()
		if got.Kind != want.kind || got.TUs < wrote-1000 || got.TUs > wrote+5000 || got.SameRead != want.shared {
			return fmt.Errorf("row %d: %v at %d µs, same read %v; want %v at %d µs, %v (times from the kernel: %v)",
				i+2, got.Kind, got.TUs, got.SameRead, want.kind, wrote, want.shared, kernel)
		}
	}
	return nil
}

func TestRequestOnTheWire(t *testing.T) {
	srv := streamtest.Serve(t, "1 C \"a\"\n 2 DONE")
	s := newSession(t, srv, 5*time.Second)
	if _, err := s.client.Do(context.Background(), []byte(`{"a":`), []byte(`1}`)); err != nil {
		t.Fatal(err)
	}
	r := srv.Requests()[0]
	if r.Path != "/v1/chat/completions" || string(r.Body) != `{"a":1}` || r.Header.Get("Authorization") != "Bearer sk-test" || r.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("request = %+v", r)
	}
}
