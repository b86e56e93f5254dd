// Turns the drawings of a page into charts that can be pointed at, when the
// reader asks for it. ECharts is loaded then, and not before. Text is never
// read as HTML. Comments and indents stay out of the site.
(() => {
  "use strict";
  const bar = document.querySelector(".live");
  if (!bar) return;
  const [button, note] = bar.children, ask = button.textContent, hint = note.textContent;
  const source = document.currentScript.dataset.echarts, style = getComputedStyle(document.body);
  const figures = Object.entries(JSON.parse(document.getElementById("chart-options").textContent)).map(([id, option]) => {
    const figure = document.getElementById(id + "-t").closest("figure"), svg = figure.querySelector("svg");
    svg.onclick = () => show(true);
    return {option, figure, svg};
  });
  let loaded, pick, on;
  const make = (tag, name, ...inside) => {
    const e = document.createElement(tag);
    e.className = name;
    e.append(...inside);
    return e;
  };
  const dot = s => make("i", "k" + s.itemStyle.color.slice(2));

  const tip = o => found => {
    const [where, value, status] = [found].flat()[0].value.slice(-3);
    const rows = found.map ? found.map(({seriesIndex: i, value: v}) => [dot(o.series[i]), o.series[i].name || "", v.at(-2) || "—", v.at(-1)])
      : value.split(", ").concat(status).map(v => [v]);
    return make("div", "tip", make("b", "", where), ...rows.map(r => make("p", "", ...r.map(c => make("span", "", c)))));
  };

  // Whiskers p5 … p95, a box p25 … p75 with the median, a cross at p99.
  const box = n => (p, api) => {
    const at = i => api.coord([api.value(0), api.value(i)]), step = Math.min(api.size([1, 0])[0] * .86 / n, 22);
    const x = at(1)[0] + step * (p.seriesIndex - (n - 1) / 2), l = x - step * .36, r = x + step * .36;
    const [a, b, m, c, d, e] = [1, 2, 3, 4, 5, 6].map(i => at(i)[1]), stroke = api.visual("color");
    const path = (pathData, lineWidth, fill) => ({type: "path", shape: {pathData}, style: {stroke, lineWidth, fill, fillOpacity: .2}});
    return {type: "group", children: [path(`M${l} ${b}V${c}H${r}V${b}z`, 1, stroke),
      path(`M${x} ${a}V${b}M${x} ${c}V${d}M${x - 2} ${e - 2}l4 4m0-4l-4 4`, 1), path(`M${l} ${m}H${r}`, 2)]};
  };

  // "@name" is a colour of the page.
  const filled = o => JSON.parse(JSON.stringify(o), (k, v) => /color$/i.test(k) ? style.getPropertyValue("--" + v.slice(1)) : v);
  const draw = f => {
    const o = filled(f.option), {right, top, bottom} = o.grid[0], x = f.chart.getWidth() - right + 8, h = f.chart.getHeight() - top - bottom;
    for (const a of [...o.xAxis, ...o.yAxis]) a.axisLabel.formatter = (v, i) => a.labels[i];
    for (const s of o.series) {
      s.renderItem = box(o.series.length);
      const y = +top + h * s.nameAt;
      s.labelLayout = p => p.dataIndex == null ? {x, y} : {hideOverlap: true};
      if (y) s.markLine.data[0][1] = {x: x - 4, y};
    }
    Object.assign(o.tooltip, {formatter: tip(f.option), confine: true, transitionDuration: 0});
    o.textStyle = {fontFamily: style.fontFamily};
    f.chart.setOption(o);
  };
  const each = f => figures.forEach(f);
  const start = () => {
    each(f => {
      const e = make("div", "canvas"), {width, height} = f.svg.viewBox.baseVal;
      e.style.aspectRatio = width / height;
      f.figure.append(e);
      f.chart = echarts.init(e, null, {renderer: "svg"});
      draw(f);
    });
    pick = make("fieldset", "pick", make("legend", "", "Contexts"), ...figures[0].option.series.map(s => {
      const input = make("input", "");
      input.type = "checkbox";
      input.checked = true;
      input.onchange = () => each(f => f.chart.dispatchAction({type: input.checked ? "legendSelect" : "legendUnSelect", name: s.name}));
      return make("label", "", input, dot(s), s.name || "");
    }));
    if (pick.children[2]) bar.after(pick);
    matchMedia("(prefers-color-scheme: dark)").onchange = () => each(draw);
    onresize = fit;
  };
  const fit = () => on && each(f => {
    f.chart.resize();
    draw(f);
  });
  const show = async want => {
    note.textContent = "Loading …";
    try {
      await (loaded ??= new Promise((onload, onerror) => document.head.append(Object.assign(make("script", ""), {src: source, onload, onerror}))));
      on = want;
      each(f => f.figure.classList.toggle("is-live", on));
      pick ? fit() : start();
      pick.hidden = !on;
      button.textContent = on ? "Back to the drawings" : ask;
      note.textContent = on ? "Point at a chart, or touch it, for its values." : hint;
    } catch {
      loaded = null;
      note.textContent = "The script could not be loaded.";
    }
  };
  button.onclick = () => show(!on);
  bar.hidden = false;
})();
