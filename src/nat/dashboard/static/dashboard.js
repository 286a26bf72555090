// Draws the charts that a page describes in `data-chart`, again when its width or its colours change.
"use strict";
(() => {
  const drawn = new Map();
  const COLOURS = ["--train", "--held-out", "--third", "--fourth"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const axis = (more) => ({
    stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, ...more,
  });

  // Lanes share the beginnings of all spans as their x.
  const lanesOf = (spec) => {
    const begins = [...new Set(spec.series.flatMap((lane) => lane.low))].sort((a, b) => a - b);
    return [begins, ...spec.series.map((lane) => begins.map((begin) => (lane.low.includes(begin) ? lane.values[0] : null)))];
  };

  // uPlot's own bars are all as wide as the first one; a span is as wide as it is long, and a pixel at least.
  const lanePaths = (lane) => (plot) => {
    const fill = new Path2D();
    const top = plot.valToPos(lane.values[0] + 0.35, "y", true);
    const bottom = plot.valToPos(lane.values[0] - 0.35, "y", true);
    lane.low.forEach((begin, place) => {
      const [left, right] = [begin, lane.high[place]].map((at) => plot.valToPos(at, "x", true));
      fill.rect(left, top, Math.max(devicePixelRatio, right - left), bottom - top);
    });
    return { fill, stroke: null, clip: null };
  };

  // The weights of a span stand on it if it is wide enough.
  const writeNotes = (spec) => (plot) => {
    const { ctx } = plot;
    Object.assign(ctx, { fillStyle: colour("--card"), textAlign: "center", textBaseline: "middle", font: `${11 * devicePixelRatio}px sans-serif` });
    for (const lane of spec.series) lane.notes.forEach((note, place) => {
      const [left, right] = [lane.low[place], lane.high[place]].map((at) => plot.valToPos(at, "x", true));
      if (ctx.measureText(note).width < right - left) ctx.fillText(note, (left + right) / 2, plot.valToPos(lane.values[0], "y", true));
    });
  };

  const dataOf = (spec) => {
    if (spec.lanes.length) return lanesOf(spec);
    const columns = spec.series.flatMap((each) => (each.low.length ? [each.values, each.high, each.low] : [each.values]));
    return [spec.x, ...columns];
  };

  const seriesOf = (spec) => {
    const found = [{ label: spec.xLabel, value: (_, v) => (v === null ? "–" : String(Math.round(v * 1000) / 1000)) }];
    spec.series.forEach((each, place) => {
      const stroke = colour(COLOURS[place % COLOURS.length]);
      const value = (_, v) => (v === null || v === undefined ? "–" : String(Number(v.toPrecision(4))));
      const base = { label: each.label, stroke, value, spanGaps: each.mark !== "lane", width: 2 };
      if (each.mark === "bars") Object.assign(base, { fill: stroke, paths: uPlot.paths.bars({ size: [0.8, 60] }), points: { show: false } });
      if (each.mark === "points") base.points = { show: true, size: 7, fill: stroke };
      if (each.mark === "lane") Object.assign(base, { width: 0, fill: stroke, paths: lanePaths(each), points: { show: false } });
      found.push(base);
      if (each.low.length && each.mark !== "lane") {
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
      if (each.low.length && each.mark !== "lane") bands.push({ series: [column + 1, column + 2], fill: `${fill}33` });
      column += each.low.length && each.mark !== "lane" ? 3 : 1;
    }
    return bands;
  };

  const optionsOf = (box, spec) => {
    const bars = spec.series.some((each) => each.mark === "bars");
    const lanes = spec.lanes.length > 0;
    const step = spec.x.length > 1 ? Math.min(...spec.x.slice(1).map((x, place) => x - spec.x[place])) : 1;
    const reach = [Math.min(...spec.series.flatMap((lane) => lane.low)), Math.max(...spec.series.flatMap((lane) => lane.high))];
    const pad = bars ? step / 2 : 0;
    const small = box.closest(".small-charts") !== null;
    // A flat curve lies in the middle, and small changes do not look large.
    const around = (_, low, high) => {
      const room = (high - low) * 0.1 || Math.abs(high) * 0.5 || 1;
      return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
    };
    const y = lanes
      ? axis({ splits: () => spec.lanes.map((_, place) => place), values: (_, at) => at.map((v) => spec.lanes[v] ?? ""), size: box.clientWidth < 480 ? 90 : 150, grid: { show: false } })
      : axis({ size: 60 });
    const range = spec.range ? () => spec.range : bars ? (_, __, high) => [0, high * 1.05 || 1] : around;
    return {
      width: Math.max(200, box.clientWidth),
      height: small || lanes ? 160 : 230,
      cursor: { y: false, drag: { x: !bars, y: false } },
      legend: { show: !small && (!lanes || spec.series.length > spec.lanes.length), live: !lanes },
      hooks: lanes ? { draw: [writeNotes(spec)] } : {},
      scales: {
        x: { time: false, range: (_, low, high) => lanes ? reach : (low === high ? [low - 1, high + 1] : [low - pad, high + pad]) },
        y: { range },
      },
      axes: [axis({ label: spec.xLabel, labelSize: 22, size: 34, splits: bars && spec.x.length <= 12 ? () => spec.x : undefined, incrs: spec.xLabel === "epoch" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] : undefined }), y],
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
