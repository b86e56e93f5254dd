package browsertest

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

// contrastScript looks at every text of a page that can be seen and returns
// how many there are, by kind, and those with a contrast under 4.5 : 1.
const contrastScript = `(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const cx = canvas.getContext("2d", {willReadFrequently: true});
  const rgba = c => {
    cx.clearRect(0, 0, 1, 1);
    cx.fillStyle = c;
    cx.fillRect(0, 0, 1, 1);
    const d = cx.getImageData(0, 0, 1, 1).data;
    return [d[0], d[1], d[2], d[3] / 255];
  };
  const over = (top, ground) => [0, 1, 2].map(i => top[i] * top[3] + ground[i] * (1 - top[3])).concat(1);
  const luminance = c => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
    const v = c[i] / 255;
    return sum + w * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const ground = e => {
    const layers = [];
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      layers.push(c);
      if (c[3] === 1) break;
    }
    return layers.reduceRight((g, c) => over(c, g), [255, 255, 255, 1]);
  };
  const drawnUnder = (e, g) => { // shapes of the same drawing behind a label
    e.scrollIntoView({block: "center", inline: "center"});
    const r = e.getBoundingClientRect();
    const all = document.elementsFromPoint(r.left + r.width / 2, r.top + r.height / 2);
    return all.filter(s => s !== e && s.ownerSVGElement === e.ownerSVGElement && s.tagName !== "text" && s.tagName !== "g")
      .map(s => [rgba(getComputedStyle(s).fill), getComputedStyle(s)])
      .filter(([c, s]) => s.fill !== "none" && c[3] > 0)
      .reduceRight((under, [c, s]) => over([c[0], c[1], c[2], c[3] * s.fillOpacity * s.opacity], under), g);
  };
  const kinds = {}, bad = [];
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join("").trim();
    const style = getComputedStyle(e), r = e.getBoundingClientRect();
    if (!own || !r.width || !r.height || r.right <= 0 || style.visibility !== "visible" || ["SCRIPT", "STYLE", "title", "desc"].includes(e.tagName)) continue;
    const drawn = !!e.ownerSVGElement;
    let alpha = 1;
    for (let p = e; p; p = p.parentElement) alpha *= getComputedStyle(p).opacity;
    let under = ground(e);
    if (drawn) under = drawnUnder(e, under);
    const ink = rgba(drawn ? style.fill : style.color);
    const text = over([ink[0], ink[1], ink[2], ink[3] * alpha], under);
    const [a, b] = [luminance(text), luminance(under)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const kind = drawn ? "label" : e.closest("h1,h2,h3") ? "heading" : e.closest("td.off,.word") ? "status" : e.closest("td,th") ? "cell" : "text";
    kinds[kind] = (kinds[kind] || 0) + 1;
    if (contrast < 4.5) bad.push(kind + " " + JSON.stringify(own.slice(0, 40)) + " in <" + e.tagName + " class=" + (e.className.baseVal ?? e.className) + ">: " + contrast.toFixed(2));
  }
  return {kinds, bad: bad.slice(0, 10)};
})()`

// contrasts is what contrastScript returns.
type contrasts struct {
	Kinds map[string]int
	Bad   []string
}

// Every text can be read in light, in dark and on paper (BR-151).
func TestContrast(t *testing.T) {
	browser := startBrowser(t)
	dir, pages := buildSite(t)
	origin := serve(t, dir)
	seen := map[string]bool{}
	for _, page := range pages {
		if seen[page.kind] && page.kind != "runs page" {
			continue
		}
		seen[page.kind] = true
		t.Run(page.file, func(t *testing.T) {
			p := newTab(t, browser)
			for _, look := range []struct{ name, media, scheme string }{{"light", "", "light"}, {"dark", "", "dark"}, {"print", "print", "light"}, {"print from dark", "print", "dark"}} {
				call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Media: look.media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}},
				})
				p.open(origin + page.file)
				got := ask[contrasts](p, contrastScript)
				for _, b := range got.Bad {
					t.Errorf("%s: %s, want 4.5", look.name, b)
				}
				wanted := []string{"heading"}
				if page.kind == "runs page" {
					wanted = append(wanted, "cell", "status", "text")
				}
				for _, kind := range wanted {
					if got.Kinds[kind] == 0 {
						t.Errorf("%s: no %s was looked at: %v", look.name, kind, got.Kinds)
					}
				}
			}
		})
	}
}
