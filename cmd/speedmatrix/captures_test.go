package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"speedmatrix/collect/stream"
	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// TestCapturesFold reads what a real vLLM sent (collect/stream/testdata) and
// holds the folded request against those bytes: the last usage in them, else,
// where there are token ids, the length that was asked for; the last finish
// reason; and whether there is an end marker and no error.
func TestCapturesFold(t *testing.T) {
	manifests, err := filepath.Glob("../../collect/stream/testdata/vllm/*/manifest.json")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	totals := regexp.MustCompile(`"completion_tokens":(\d+)`)
	finishes := regexp.MustCompile(`"finish_reason":"([^"]+)"`)
	last := func(re *regexp.Regexp, b []byte) string {
		all := re.FindAllSubmatch(b, -1)
		if len(all) == 0 {
			return ""
		}
		return string(all[len(all)-1][1])
	}
	for _, path := range manifests {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Captures map[string]struct {
				Status int
				Body   json.RawMessage
			}
		}
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for name, c := range list.Captures {
			var body struct {
				Stream    bool  `json:"stream"`
				MaxTokens int64 `json:"max_tokens"`
				TokenIDs  bool  `json:"return_token_ids"`
			}
			if json.Unmarshal(c.Body, &body) != nil || !body.Stream || c.Status != 200 {
				continue
			}
			wire, err := os.ReadFile(filepath.Join(filepath.Dir(path), name+".http"))
			if err != nil {
				t.Fatal(err)
			}
			tokens := int64(-1)
			if n := last(totals, wire); n != "" {
				tokens, _ = strconv.ParseInt(n, 10, 64)
			} else if body.TokenIDs {
				tokens = body.MaxTokens
			} else if !bytes.Contains(wire, []byte(`"choices"`)) {
				tokens = 0 // an error ahead of all output
			}
			finish := last(finishes, wire)
			failed := !bytes.Contains(wire, []byte("[DONE]")) || bytes.Contains(wire, []byte(`{"error"`))
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := foldWire(t, wire)
				if r.Tokens != tokens || r.FinishReason != finish || r.Failed != failed {
					t.Errorf("%d tokens, finish %q, failed %v %q; want %d, %q, %v", r.Tokens, r.FinishReason, r.Failed, r.Reason, tokens, finish, failed)
				}
			})
		}
	}
}

// foldWire serves a response byte for byte, lets a client read it, and folds
// its rows.
func foldWire(t *testing.T, wire []byte) *ingest.Request {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.Copy(io.Discard, r.Body)
			c.Write(wire)
		}
	}()
	e, err := stream.NewEndpoint(&url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := stream.NewRecording(time.Now())
	client := stream.NewClient(e, time.Minute, &stream.Lateness{}, rec)
	defer client.Close()
	if _, err := client.Do(context.Background(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	ev := &runlog.Events{Key: runlog.Key{Phase: runlog.PhaseDecode, ContextTokens: 8192, Concurrency: 1}}
	rec.Decode(ev, stream.DecodeOptions{Text: stream.TextFull, Redact: func(s string) string { return s }})
	m := &runlog.Manifest{Plan: runlog.Plan{Text: "full", TokenCounting: "continuous usage"}}
	cell := ingest.Fold(m, runlog.Cell{Phase: runlog.PhaseDecode, Outcome: runlog.OutcomeRecorded}, ev, nil)
	if len(cell.Requests) != 1 {
		t.Fatalf("%d requests, want 1", len(cell.Requests))
	}
	return &cell.Requests[0]
}
