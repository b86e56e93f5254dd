package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"speedmatrix/render"
	"speedmatrix/templates/echarts"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// buildLiveSite writes a site whose charts can be made interactive, and
// returns its directory and the page of a run in it.
func buildLiveSite(t *testing.T) (dir, file string) {
	t.Helper()
	files := echarts.Files()
	if files == nil {
		missing(t, "no ECharts: make assets fetches it")
	}
	layer, err := render.NewLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	runs := writeRuns(t, t.TempDir())
	dir = filepath.Join(t.TempDir(), "site")
	if _, err := render.Build(t.Context(), runs, dir, render.Options{Layer: layer}); err != nil {
		t.Fatal(err)
	}
	return dir, "runs/newer/index.html"
}

// figures returns how many series the figures of the open page have, by id.
func (p *tab) figures() map[string]int {
	p.Helper()
	series := ask[map[string]int](p, `Object.fromEntries(Object.entries(JSON.parse(document.getElementById("chart-options").textContent)).map(([id, o]) => [id, o.series.length]))`)
	if len(series) != 6 || series["chart-total"] != 3 || series["chart-gaps"] != 3 || series["chart-prefill"] != 1 {
		p.Fatalf("the figures have series %v, want those of three contexts", series)
	}
	return series
}

// A live says what has become of the charts of a page.
type live struct {
	Series map[string]int // of the charts that ECharts drew, by id
	Lines  map[string]int // shapes with a colour of a series, by id
	Hidden int            // drawings that do not show
	Named  int            // charts that say what they are
	Button string         // "" when it does not show
	Note   string
	Boxes  int // to choose contexts
}

const liveScript = `(() => {
  const seen = e => !!e && e.getClientRects().length > 0;
  const r = {Series: {}, Lines: {}, Hidden: 0, Named: 0, Button: "", Note: "", Boxes: 0};
  for (const svg of document.querySelectorAll("figure svg.chart")) {
    const figure = svg.closest("figure"), e = figure.querySelector(".canvas"), id = svg.querySelector("title").id.slice(0, -2);
    if (!seen(svg)) r.Hidden++;
    if (!seen(e)) continue;
    const chart = window.echarts?.getInstanceByDom(e);
    if (chart) r.Series[id] = chart.getOption().series.length;
    r.Lines[id] = [...e.querySelectorAll("svg path")].filter(p => p.getBoundingClientRect().width > 0).length;
    if (e.getAttribute("role") === "img" && e.getAttribute("aria-label")) r.Named++;
  }
  const button = document.querySelector(".live button");
  if (seen(button)) { r.Button = button.textContent; r.Note = button.nextElementSibling.textContent; }
  r.Boxes = [...document.querySelectorAll(".pick input")].filter(seen).length;
  return r;
})()`

// until waits until an expression holds, as long as the tab lives.
func (p *tab) until(expression string) error {
	_, err := chromedp.Run(p.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0)))
	return err
}

// untilLive waits for what a reader waits for.
func (p *tab) untilLive() live {
	p.Helper()
	if err := p.until(`document.querySelector(".live button").textContent.startsWith("Back")`); err != nil {
		p.Fatalf("the charts did not come: %v; %+v", err, ask[live](p, liveScript))
	}
	return ask[live](p, liveScript)
}

// tap touches the middle of an element.
func (p *tab) tap(selector string) {
	p.Helper()
	at := ask[[]float64](p, `(() => {
	  const e = document.querySelector(`+literal(selector)+`);
	  e.scrollIntoView({block: "center", behavior: "instant"});
	  const r = e.getBoundingClientRect();
	  return [r.x + r.width / 2, r.y + r.height / 2];
	})()`)
	call(p, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true})
	call(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{{X: at[0], Y: at[1]}}})
	call(p, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchEnd, TouchPoints: []*input.TouchPoint{}})
}

const askText = "Make charts interactive"

func (p *tab) checkLive(got live, want map[string]int) {
	p.Helper()
	for id, n := range want {
		if got.Series[id] != n || got.Lines[id] < 3 {
			p.Errorf("%s has %d series and %d shapes, want %d and some", id, got.Series[id], got.Lines[id], n)
		}
	}
	if got.Hidden != len(want) || got.Named != len(want) || got.Boxes != want["chart-total"] {
		p.Errorf("%d drawings hidden, %d charts named, want %d; %d contexts to choose, want %d", got.Hidden, got.Named, len(want), got.Boxes, want["chart-total"])
	}
}

func TestInteractiveCharts(t *testing.T) {
	browser := startBrowser(t)
	dir, file := buildLiveSite(t)
	served := serve(t, dir)
	for _, from := range []struct{ name, root string }{{"a server", served}, {"a disk", "file://" + filepath.ToSlash(dir) + "/"}} {
		for _, way := range []struct {
			name string
			do   func(p *tab)
		}{
			{"a click on the button", func(p *tab) { p.do(chromedp.Click(".live button")) }},
			{"a key on the button", func(p *tab) {
				p.do(chromedp.Focus(".live button"), chromedp.KeyEvent(kb.Enter))
			}},
			{"a click on a drawing", func(p *tab) { p.do(chromedp.Click("figure svg.chart")) }},
			{"a touch of a drawing", func(p *tab) { p.tap("figure svg.chart") }},
		} {
			t.Run(way.name+" from "+from.name, func(t *testing.T) {
				p := newTab(t, browser)
				p.look("light", 1280, 900)
				p.open(from.root + file)
				figures := p.figures()
				requests, messages := p.did()
				for _, r := range requests {
					if strings.Contains(r, "/echarts/") {
						t.Errorf("asked for %s before anyone wanted it", r)
					}
				}
				if len(requests) > 4 {
					t.Errorf("asked for %q, want the page, its style sheet, its script and its icon", requests)
				}
				if got := ask[live](p, liveScript); got.Button != askText || len(got.Lines) != 0 || got.Hidden != 0 || !strings.Contains(got.Note, " MB") {
					t.Errorf("at first %+v, want the drawings and a button that says what it costs", got)
				}
				way.do(p)
				p.checkLive(p.untilLive(), figures)
				more, talk := p.did()
				more = slices.DeleteFunc(more, func(r string) bool { return strings.Contains(r, "/icon.") }) // comes when it comes
				if len(more) != 1 || !strings.Contains(more[0], "/echarts/echarts.") {
					t.Errorf("then asked for %q, want ECharts, once", more)
				}
				for _, r := range slices.Concat(requests, more) {
					if !strings.HasPrefix(r, from.root) && !strings.HasPrefix(r, "data:") {
						t.Errorf("asked for %s, outside %s", r, from.root)
					}
				}
				for _, m := range slices.Concat(messages, talk) {
					t.Errorf("the browser says: %s", m)
				}
			})
		}
	}
}

// firstSeries says on which charts the first series shows, by its colour.
const firstSeries = `(c => JSON.stringify([...document.querySelectorAll(".canvas")].map(e =>
  +!!e.querySelector('path:is([stroke="' + c + '"], [fill="' + c + '"])'))))(getComputedStyle(document.body).getPropertyValue("--c0"))`

// What the charts do when they are there.
func TestLiveChartsAnswer(t *testing.T) {
	browser := startBrowser(t)
	dir, file := buildLiveSite(t)
	p := newTab(t, browser)
	p.look("light", 1280, 900)
	p.open(serve(t, dir) + file)
	figures := p.figures()
	p.do(chromedp.Click(".live button"))
	p.checkLive(p.untilLive(), figures)
	keepShot(p, "live")

	t.Run("a tooltip has place, value, unit and status", func(t *testing.T) {
		const point = `(() => {
		  const e = document.getElementById("chart-%s-t").closest("figure").querySelector(".canvas"), c = echarts.getInstanceByDom(e);
		  const v = c.getOption().series[%d].data[%d].value, [x, y] = c.convertToPixel({seriesIndex: %[2]d}, [v[0], v[%d]]);
		  c.dispatchAction({type: "showTip", x, y, seriesIndex: %[2]d, dataIndex: %[3]d});
		  return [...e.querySelectorAll(".tip b, .tip p")].map(r => [...r.childNodes].map(n => n.textContent).filter(s => s).join(" "));
		})()`
		for _, tt := range []struct {
			chart         string
			series, point int
			y             int
			want          string
		}{
			{"total", 0, 0, 1, `^1 request\|8K [\d.,]+ tok/s Valid\|32K — Looped\|128K [\d.,]+ tok/s Valid$`},
			{"per-request", 0, 1, 1, `^2 requests at once\|8K [\d.,]+ tok/s Valid\|32K — Failed\|128K [\d.,]+ tok/s Valid$`},
			{"ttft", 2, 0, 1, `^1 request\|8K [\d,]+ ms Valid\|32K — Looped\|128K [\d,]+ ms Valid$`},
			{"sizing", 0, 1, 1, `^8K context, \d requests? ?(at once)?\|[\d.,]+ per request\|[\d.,]+ in all\|Valid$`},
			{"gaps", 0, 0, 3, `^8K context, 1 request\|half of the gaps lie in [\d.,]+ ms … [\d.,]+ ms\|median [\d.,]+ ms\|p99 [\d.,]+ ms\|Valid$`},
			{"prefill", 0, 0, 1, `^8K context\|[\d.,]+K? tok/s Valid$`},
		} {
			got := strings.Join(ask[[]string](p.on(t), fmt.Sprintf(point, tt.chart, tt.series, tt.point, tt.y)), "|")
			if !regexp.MustCompile(tt.want).MatchString(got) {
				t.Errorf("%s says %q, want %s", tt.chart, got, tt.want)
			}
		}
	})
	t.Run("a touch shows values", func(t *testing.T) {
		const told = `!!document.querySelector(".canvas .tip")`
		p.on(t).do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll(".canvas").forEach(e => echarts.getInstanceByDom(e).dispatchAction({type: "hideTip"}))`))
		ask[bool](p, `document.querySelectorAll(".tip").forEach(e => e.remove()) ?? true`)
		p.tap(".canvas")
		if err := p.until(told); err != nil {
			t.Errorf("no values came: %v", err)
		}
	})
	t.Run("the keyboard chooses contexts", func(t *testing.T) {
		p.on(t).do(chromedp.Focus(".pick input"), chromedp.KeyEvent(" "))
		if got, want := ask[string](p, firstSeries), "[0,0,0,0,0,1]"; got != want { // prefill is one line
			t.Errorf("8K without its mark is on the charts %s, want %s", got, want)
		}
		p.do(chromedp.KeyEvent(" "))
		if got, want := ask[string](p, firstSeries), "[1,1,1,1,1,1]"; got != want {
			t.Errorf("and with it on %s, want %s", got, want)
		}
	})
	t.Run("they follow the colour scheme", func(t *testing.T) {
		p.on(t)
		const colour = `getComputedStyle(document.body).getPropertyValue("--c0")`
		light := ask[string](p, colour)
		p.look("dark", 1280, 900)
		if err := p.until(firstSeries + ` === "[1,1,1,1,1,1]"`); err != nil || ask[string](p, colour) == light {
			t.Errorf("in dark the first series is on the charts %s with %s, and was with %s (%v)", ask[string](p, firstSeries), ask[string](p, colour), light, err)
		}
		keepShot(p, "live-dark")
		p.look("light", 1280, 900)
	})
	t.Run("paper has the drawings", func(t *testing.T) {
		call(p.on(t), emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
		if got := ask[live](p, liveScript); got.Hidden != 0 || len(got.Lines) != 0 || got.Button != "" || got.Boxes != 0 {
			t.Errorf("on paper %+v, want the drawings only", got)
		}
		call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "screen"})
	})
	t.Run("they fit a phone", func(t *testing.T) {
		p.on(t).fits()
		const wider = `[...document.querySelectorAll(".canvas")].some(e => e.querySelector("svg").getBoundingClientRect().width > e.clientWidth)`
		if err := p.until("!" + wider); err != nil {
			t.Errorf("charts are wider than their place: %v", err)
		}
		p.look("light", 1280, 900)
	})
	t.Run("and the drawings come back", func(t *testing.T) {
		p.on(t).do(chromedp.Click(".live button"))
		if got := ask[live](p, liveScript); got.Button != askText || got.Hidden != 0 || len(got.Lines) != 0 || got.Boxes != 0 {
			t.Errorf("back at %+v", got)
		}
		p.do(chromedp.Click(".live button"))
		p.checkLive(p.untilLive(), figures)
	})
	if _, messages := p.on(t).did(); len(messages) > 0 {
		t.Errorf("the browser says %q", messages)
	}
}

func TestTheKeyboardReachesInteractiveCharts(t *testing.T) {
	browser := startBrowser(t)
	dir, file := buildLiveSite(t)
	url := serve(t, dir) + file
	for _, live := range []bool{false, true} {
		p := newTab(t, browser)
		p.look("light", 390, 844)
		p.open(url)
		if live {
			ask[bool](p, `document.querySelector(".live button").click() ?? true`) // without focus
			p.untilLive()
		}
		p.keyboard()
	}
}

// Without scripts there is nothing to press, and where ECharts can't be had
// the drawings stay.
func TestWithoutScripts(t *testing.T) {
	browser := startBrowser(t)
	dir, file := buildLiveSite(t)
	p := newTab(t, browser)
	p.scripts(false)
	p.open(serve(t, dir) + file)
	if got := ask[live](p, liveScript); got.Button != "" || got.Hidden != 0 {
		t.Errorf("without scripts %+v, want the drawings and no button", got)
	}
	p.isWhole(dir, page{"runs page", file})

	if err := os.RemoveAll(filepath.Join(dir, "echarts")); err != nil {
		t.Fatal(err)
	}
	p = newTab(t, browser)
	p.open(serve(t, dir) + file)
	p.do(chromedp.Click(".live button"))
	if err := p.until(`document.querySelector(".live span").textContent.includes("could not")`); err != nil {
		t.Errorf("nothing is said: %v", err)
	}
	if got := ask[live](p, liveScript); got.Button != askText || got.Hidden != 0 {
		t.Errorf("without ECharts %+v, want the drawings", got)
	}
}

func TestAxeOfInteractiveCharts(t *testing.T) {
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		missing(t, "no axe-core: make browser-tools fetches it")
	}
	browser := startBrowser(t)
	dir, file := buildLiveSite(t)
	url := serve(t, dir) + file
	t.Run("before", func(t *testing.T) { axeOf(t, browser, string(axe), url, func(*tab) {}) })
	t.Run("after", func(t *testing.T) {
		axeOf(t, browser, string(axe), url, func(p *tab) {
			p.do(chromedp.Click(".live button"))
			p.untilLive()
		})
	})
}
