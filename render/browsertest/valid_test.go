package browsertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// vnuFile is the W3C's Nu Html Checker, put there by make browser-tools.
const vnuFile = "tools/vnu-jar/build/dist/vnu.jar"

// Every page is valid HTML, and every drawing valid SVG, by the W3C's own
// checker: no error and no warning.
func TestValidHTML(t *testing.T) {
	java, err := exec.LookPath("java")
	if err != nil {
		missing(t, "no java: pages were not checked for validity")
	}
	jar, err := filepath.Abs(vnuFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(jar); err != nil {
		missing(t, "no HTML checker: make browser-tools fetches it")
	}
	dir, pages := buildSite(t)
	broken := filepath.Join(dir, "broken.html") // so that silence means something
	if err := os.WriteFile(broken, []byte("<!doctype html><html lang=en><title>x</title><p><table><tr><td align=right>1</table>"), 0o644); err != nil {
		t.Fatal(err)
	}
	// The exit status says only that there are messages.
	out, _ := exec.Command(java, "-jar", jar, "--also-check-svg", "--skip-non-html", "--stdout", "--format", "json", "--exit-zero-always", dir).Output()
	var found struct {
		Messages []struct {
			Type, SubType, URL, Message, Extract string
			LastLine                             int
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("the checker said %.300q: %v", out, err)
	}
	heard := false
	for _, m := range found.Messages {
		switch {
		case strings.HasSuffix(m.URL, "/broken.html"):
			heard = true
		case strings.Contains(m.Message, "Content Security Policy") && strings.HasPrefix(m.URL, "file:"):
			// It takes files of one folder for different origins; TestPages
			// asks a browser.
		case strings.HasPrefix(m.Message, "CSS: ") && (strings.Contains(m.Message, "vector-effect") || strings.Contains(m.Message, "container")):
			// It does not know these yet; every browser does.
		default:
			t.Errorf("%s:%d: %s %s: %s: %s", strings.TrimPrefix(m.URL, "file:"+dir+"/"), m.LastLine, m.Type, m.SubType, m.Message, m.Extract)
		}
	}
	if !heard {
		t.Error("the checker found nothing wrong with a broken page")
	}
	t.Logf("%d pages", len(pages))
}
