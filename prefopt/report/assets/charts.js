// Histograms, stacked bars and curves. Each drawer empties its element and fills it for the width that it has.

function drawHistogram(element, report, measure) {
  const found = report.histograms[measure] || [];
  const several = report.columns.length > 1;
  const there = report.columns.map((column, place) => [column, found[place]]).filter(([, bins]) => bins);
  element.replaceChildren(...there.map(([column]) => panel(column, several)));
  // shares, so that data sets of different size compare
  const top = Math.max(...there.map(([, bins]) => Math.max(...bins.counts) / sum(bins.counts)));
  there.forEach(([column, bins], number) => {
    const inside = element.children[number];
    inside.append(histogram(bins, top, inside.clientWidth, report.measures[measure], column.name));
  });
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function histogram(bins, top, width, label, name) {
  const height = Math.min(280, Math.max(210, width * 0.4));
  const total = sum(bins.counts);
  const { drawing, scaleX, scaleY, box } = frame(width, height, [bins.low, bins.high], [0, 100 * top * 1.05], {
    labelX: label,
    labelY: "% of pairs",
  });
  drawing.setAttribute("aria-label", `Histogram of ${label}, ${name}: ${counted(total)} pairs. The table of quantiles below holds it in numbers.`);
  const step = (bins.high - bins.low) / bins.counts.length;
  const shapes = bins.counts.map((count, place) => {
    const [start, end] = [scaleX(bins.low + place * step), scaleX(bins.low + (place + 1) * step)];
    const y = scaleY((100 * count) / total);
    return svg("rect", { class: "bar-shape", x: start + 0.5, y, width: Math.max(1, end - start - 1), height: box.bottom - y, rx: 1.5 });
  });
  if (bins.low < 0 && bins.high > 0) {
    drawing.append(svg("line", { class: "zero", x1: scaleX(0), x2: scaleX(0), y1: box.top, y2: box.bottom }));
  }
  drawing.append(...shapes);
  const readout = html("p", { class: "readout" });
  const rest = bins.outside ? `${counted(bins.outside)} pairs lie outside and are in the outermost bars.` : "";
  readout.textContent = rest;
  const show = (event) => {
    const [x] = pointerOn(drawing, event);
    const place = Math.floor(((x - box.left) / (box.right - box.left)) * bins.counts.length);
    shapes.forEach((shape, number) => shape.classList.toggle("on", number === place));
    const count = bins.counts[place];
    readout.textContent =
      count === undefined
        ? rest
        : `${shown(bins.low + place * step)} to ${shown(bins.low + (place + 1) * step)}: ${counted(count)} pairs, ${((100 * count) / total).toFixed(1)} %`;
  };
  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", () => {
    shapes.forEach((shape) => shape.classList.remove("on"));
    readout.textContent = rest;
  });
  const holder = document.createDocumentFragment();
  holder.append(drawing, readout);
  return holder;
}

const SIDES = ["chosen", "rejected", "other"];
const SIDE_NAMES = { chosen: "chosen token", rejected: "rejected token", other: "any other token" };

function drawMass(element, report) {
  const several = report.columns.length > 1;
  const found = report.columns
    .map((column) => [column, Object.fromEntries(column.claims.map((claim) => [claim.key, claim.value]))])
    .filter(([, values]) => values.branch_chosen_now !== undefined);
  element.replaceChildren(...found.map(([column]) => panel(column, several)));
  found.forEach(([column, values], number) => {
    const inside = element.children[number];
    inside.append(massBars(values, inside.clientWidth, column.name), massLegend());
  });
}

function massBars(values, width, name) {
  const [rowHeight, left] = [46, 58];
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${2 * rowHeight}`, width, height: 2 * rowHeight, role: "img" });
  const words = [];
  ["start", "now"].forEach((when, row) => {
    drawing.append(svg("text", { class: "axis", x: 0, y: row * rowHeight + 26 }, when === "start" ? "before" : "after"));
    let start = left;
    for (const side of SIDES) {
      const part = values[`branch_${side}_${when}`];
      const size = part * (width - left);
      const text = `${(100 * part).toFixed(1)} %`;
      words.push(`${when === "start" ? "before" : "after"} training, ${SIDE_NAMES[side]} ${text}`);
      drawing.append(svg("rect", { class: `fill-${side}`, x: start, y: row * rowHeight + 6, width: Math.max(0, size - 2), height: 32, rx: 3 }));
      if (size > 52) drawing.append(svg("text", { class: "segment-text", x: start + 9, y: row * rowHeight + 26 }, text));
      start += size;
    }
  });
  drawing.setAttribute("aria-label", `Probability where the responses part, ${name}: ${words.join("; ")}.`);
  return drawing;
}

function massLegend() {
  const items = SIDES.map((side) => {
    const swatch = svg("svg", { viewBox: "0 0 14 8", "aria-hidden": "true" }, svg("rect", { class: `fill-${side}`, width: 14, height: 8, rx: 2 }));
    return html("li", {}, swatch, SIDE_NAMES[side]);
  });
  return html("ul", { class: "legend" }, ...items);
}

const STYLES = [["chosen", ""], ["rejected", "dash"], ["accent", "dot"]];

function styleOf(metric, place) {
  if (metric === "rewards/margins") return ["accent", ""];
  if (metric.endsWith("branch_other")) return ["other", "dot"];
  if (metric.endsWith("chosen_dropped")) return ["rejected", ""];
  if (metric.endsWith("both_dropped")) return ["accent", "dash"];
  if (metric.includes("chosen")) return ["chosen", ""];
  if (metric.includes("rejected")) return ["rejected", "dash"];
  return place === 0 ? ["accent", ""] : STYLES[place % STYLES.length];
}

function drawCurves(element, report, number) {
  const picture = report.curves[number];
  const several = report.columns.length > 1;
  const there = report.columns.map((column, place) => [column, picture.lines[place]]).filter(([, lines]) => lines);
  const points = there.flatMap(([, lines]) => Object.values(lines).flat());
  const x = extent(points.map(([step]) => step));
  const y = padded(extent(points.map(([, value]) => value)), 0.08);
  element.replaceChildren(...there.map(([column]) => panel(column, several)));
  there.forEach(([column, lines], place) => {
    const inside = element.children[place];
    inside.append(curves(lines, x, y, inside.clientWidth, `${picture.title}, ${column.name}`));
  });
}

function curves(lines, x, y, width, title) {
  const height = Math.min(260, Math.max(190, width * 0.5));
  const { drawing, scaleX, scaleY, box } = frame(width, height, x, y, { labelX: "step" });
  const metrics = Object.keys(lines);
  const ends = metrics.map((metric) => `${metric} from ${shown(lines[metric][0][1])} to ${shown(lines[metric].at(-1)[1])}`);
  drawing.setAttribute("aria-label", `Curves: ${title}. ${ends.join("; ")}.`);
  const cursor = svg("line", { class: "grid", visibility: "hidden", y1: box.top, y2: box.bottom });
  drawing.append(cursor);
  metrics.forEach((metric, place) => {
    const [colour, dash] = styleOf(metric, place);
    const path = lines[metric].map(([step, value]) => `${scaleX(step).toFixed(1)},${scaleY(value).toFixed(1)}`).join(" ");
    drawing.append(svg("polyline", { class: `line stroke-${colour} ${dash}`, points: path }));
  });
  const values = metrics.map(() => html("span", {}));
  const step = html("li", {});
  const items = metrics.map((metric, place) => {
    const [colour, dash] = styleOf(metric, place);
    const swatch = svg("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("line", { class: `line stroke-${colour} ${dash}`, x1: 1, x2: 27, y1: 4, y2: 4 }));
    return html("li", {}, swatch, metric, " ", values[place]);
  });
  const last = () => {
    cursor.setAttribute("visibility", "hidden");
    step.textContent = "";
    metrics.forEach((metric, place) => (values[place].textContent = shown(lines[metric].at(-1)[1])));
  };
  const show = (event) => {
    const [at] = pointerOn(drawing, event);
    const wanted = x[0] + ((at - box.left) / (box.right - box.left)) * (x[1] - x[0]);
    metrics.forEach((metric, place) => {
      const near = lines[metric].reduce((best, point) => (Math.abs(point[0] - wanted) < Math.abs(best[0] - wanted) ? point : best));
      values[place].textContent = shown(near[1]);
      step.textContent = `step ${shown(near[0])}`;
      fill(cursor, { visibility: "visible", x1: scaleX(near[0]), x2: scaleX(near[0]) }, []);
    });
  };
  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", last);
  last();
  const holder = document.createDocumentFragment();
  holder.append(drawing, html("ul", { class: "legend" }, ...items, step));
  return holder;
}
