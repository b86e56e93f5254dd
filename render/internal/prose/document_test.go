package prose

import (
	"strings"
	"testing"
)

func TestDocument(t *testing.T) {
	source := "# What it *is*\n\nSee [the rules](rules.md#two), [no page](gone.md), [there](https://example.org/), [here](#a-part).\n\n" +
		"![a picture](x.png) <b>raw</b>\n\n## A part\n\n| Name | Rate |\n|---|--:|\n| `a` <i> | 1 |\n\n### Deeper\n\n| x |\n|---|\n| y |\n"
	title, body, err := Document([]byte(source), map[string]string{"rules.md": "../rules/index.html"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "What it *is*"; title != want {
		t.Errorf("title %q, want %q", title, want)
	}
	page := string(body)
	for _, want := range []string{
		`<a href="../rules/index.html#two">the rules</a>`, "no page", `<a href="https://example.org/">there</a>`, `<a href="#a-part">here</a>`,
		`<h2 id="a-part">A part</h2>`, `<h3 id="deeper">Deeper</h3>`,
		`<th scope="col">Name</th>`, `<th scope="col" class="end">Rate</th>`,
		`aria-labelledby="a-part"><table class="text"><caption class="unseen"><span>A part</span></caption>`,
		`aria-labelledby="deeper"><table class="text"><caption class="unseen"><span>Deeper</span></caption>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	for _, bad := range []string{"<b>", "<i>", "<img", "gone.md", "<h1", "style="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s:\n%s", bad, page)
		}
	}
	if open, shut := strings.Count(page, "<div"), strings.Count(page, "</div>"); open != 2 || shut != 2 {
		t.Errorf("%d regions begin, %d end, want 2", open, shut)
	}
}

// A document may say nothing at all.
func TestDocumentWithoutATitle(t *testing.T) {
	for _, source := range []string{"", "text", "## Second\n"} {
		title, _, err := Document([]byte(source), nil)
		if err != nil || title != "" {
			t.Errorf("%q: title %q (%v), want none", source, title, err)
		}
	}
}
