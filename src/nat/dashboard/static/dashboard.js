// Draws the charts that a page describes in `data-chart`, again when its width or its colours change.
"use strict";
(() => {
  const drawn = new Map();
  const COLOURS = ["--train", "--held-out", "--third", "--fourth"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // uPlot's own numbers have three decimals, so that an axis of small ones would be 0, 0, 0.
  const written = (v) => (v === null || v === undefined ? "–" : String(Number(v.toPrecision(5))));

  const axis = (more) => ({
    stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    values: (_, ticks) => ticks.map(written), ...more,
  });

  const dataOf = (spec) => {
    const columns = spec.series.flatMap((each) => (each.low.length ? [each.values, each.high, each.low] : [each.values]));
    return [spec.x, ...columns];
  };

  const seriesOf = (spec) => {
    const value = (_, v) => written(v);
    const found = [{ label: spec.xLabel, value }];
    spec.series.forEach((each, place) => {
      const stroke = colour(COLOURS[place % COLOURS.length]);
      const base = { label: each.label, stroke, value, spanGaps: true, width: 2 };
      if (each.mark === "bars") Object.assign(base, { fill: stroke, paths: uPlot.paths.bars({ size: [0.8, 60] }), points: { show: false } });
      if (each.mark === "points") base.points = { show: true, size: 7, fill: stroke };
      found.push(base);
      if (each.low.length) {
        const edge = { class: "edge", stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, value };
        found.push({ ...edge, label: "upper end" }, { ...edge, label: "lower end" });
      }
    });
    return found;
  };

  const bandsOf = (spec) => {
    const bands = [];
    let column = 1;
    for (const [place, each] of spec.series.entries()) {
      const fill = colour(COLOURS[place % COLOURS.length]);
      if (each.low.length) bands.push({ series: [column + 1, column + 2], fill: `${fill}33` });
      column += each.low.length ? 3 : 1;
    }
    return bands;
  };

  const optionsOf = (box, spec) => {
    const bars = spec.series.some((each) => each.mark === "bars");
    const step = spec.x.length > 1 ? Math.min(...spec.x.slice(1).map((x, place) => x - spec.x[place])) : 1;
    const pad = bars ? step / 2 : 0;
    const small = box.closest(".small-charts") !== null;
    // A flat curve lies in the middle, and small changes do not look large.
    const around = (_, low, high) => {
      const room = (high - low) * 0.1 || Math.abs(high) * 0.5 || 1;
      return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
    };
    const range = spec.range ? () => spec.range : bars ? (_, __, high) => [0, high * 1.05 || 1] : around;
    return {
      width: Math.max(200, box.clientWidth),
      height: small ? 160 : 230,
      cursor: { y: false, drag: { x: !bars, y: false } },
      legend: { show: !small },
      scales: {
        x: { time: false, range: (_, low, high) => low === high ? [low - 1, high + 1] : [low - pad, high + pad] },
        y: { range },
      },
      axes: [axis({ label: spec.xLabel, labelSize: 22, size: 34, splits: bars && spec.x.length <= 12 ? () => spec.x : undefined, incrs: spec.xLabel === "epoch" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] : undefined }), axis({ size: 60 })],
      series: seriesOf(spec),
      bands: bandsOf(spec),
    };
  };

  const draw = (box) => {
    drawn.get(box)?.plot.destroy();
    const spec = JSON.parse(box.dataset.chart);
    const plot = new uPlot(optionsOf(box, spec), dataOf(spec), box);
    const open = () => { if (spec.links[plot.cursor.idx]) location.assign(spec.links[plot.cursor.idx]); };
    if (spec.links.length) plot.over.addEventListener("click", open);
    drawn.set(box, { plot, width: box.clientWidth });
  };

  const watched = new ResizeObserver((entries) => {
    for (const { target } of entries) if (drawn.get(target)?.width !== target.clientWidth) draw(target);
  });

  const drawAll = (root) => {
    for (const box of drawn.keys()) if (!box.isConnected) { watched.unobserve(box); drawn.get(box).plot.destroy(); drawn.delete(box); }
    for (const box of root.querySelectorAll(".plot[data-chart]")) if (!drawn.has(box)) { draw(box); watched.observe(box); }
  };

  const start = () => {
    drawAll(document);
    document.body.addEventListener("htmx:load", () => drawAll(document));
    document.body.addEventListener("htmx:afterSettle", (event) => event.target.setAttribute("aria-busy", "false"));
    // A table that the reader has opened stays open when the run has news.
    let opened = [];
    const tables = () => [...document.querySelectorAll("details")];
    document.body.addEventListener("htmx:beforeSwap", () => {
      opened = tables().filter((each) => each.open).map((each) => each.firstElementChild.textContent);
    });
    document.body.addEventListener("htmx:afterSwap", () => {
      for (const each of tables()) if (opened.includes(each.firstElementChild.textContent)) each.open = true;
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...drawn.keys()].forEach(draw));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
