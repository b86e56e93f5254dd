package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"speedmatrix/collect/simserver"
	"speedmatrix/ingest/runlog"
)

// Events that no file can hold, here text that repeats itself so often that a
// reader would take it for a bomb, are the end of their cell and not of the
// run.
func TestCellThatDoesNotFitFailsAlone(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("the same line again and again. ", 20)
	srv := serveStub(t, simserver.Config{Seed: 1, MaxModelLen: 4096, Speed: 4, Metrics: simserver.MetricsNone}, func(w http.ResponseWriter, r *http.Request, n int, b chatBody) bool {
		if n < 0 || *b.MaxTokens != 64 || len(b.prompt()) > 2000 {
			return false
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"first\"}}]}\n\n")
		w.(http.Flusher).Flush() // the window opens
		for range 60_000 {       // a third of them would do
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", line)
		}
		w.(http.Flusher).Flush()
		select { // of a window this is all; a request ahead of one comes to its end
		case <-r.Context().Done():
		case <-time.After(4 * time.Second):
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
		}
		return true
	})
	c := collectRun(t, "--url", srv.URL, "-o", t.TempDir(), "--contexts", "256,1024", "--prefill-contexts", "1024", "--concurrency", "1", "--duration", "3s", "--max-output", "64")
	m := manifestOf(t, c.dir)
	for i := range m.Cells {
		cell := &m.Cells[i]
		want, reason := runlog.OutcomeRecorded, ""
		if cell.Phase == runlog.PhaseDecode && cell.ContextTokens == 256 {
			want, reason = runlog.OutcomeFailed, "its events can't be kept in a file: "
		}
		if cell.Outcome != want || !strings.HasPrefix(cell.Reason, reason) {
			t.Errorf("%s: %s %q, want %s %q", cell.Key().Name(), cell.Outcome, cell.Reason, want, reason)
		}
	}
	rendered(t, c.dir)
}
