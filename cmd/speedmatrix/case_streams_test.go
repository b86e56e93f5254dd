package main

import "testing"

func TestCase_BR001(t *testing.T) {
	t.Parallel()
	c := playScripts(t, "6 ROLE\n214 C \"Hi\"\n234 C \"!\"\n235 FIN stop\n235 USAGE 9 2\n236 DONE")
	r := &c.Requests[0]
	c.took(t, "TTFT", r.TTFTUs, 0, sent, 1, 214)
	c.gaps(t, 0, 1, 2)
	if r.Tokens != 2 || r.TokenEvents != 2 || r.PromptTokens != 9 {
		t.Errorf("got %d tokens in %d events, prompt %d, want 2 in 2, 9", r.Tokens, r.TokenEvents, r.PromptTokens)
	}
}
