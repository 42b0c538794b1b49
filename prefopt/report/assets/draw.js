"use strict";
// Drawing with SVG: elements, scales, axes. Texts are set as texts only.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function shown(value) {
  if (value === null || value === undefined) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(size >= 1000 ? 5 : 3)));
  return text.replace(/-/g, "−");
}

function counted(value) {
  return value.toLocaleString("en-US");
}

// Round places between two ends, about `wanted` of them.
function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const found = [];
  for (let value = Math.ceil(low / step); value * step <= high + step * 1e-9; value += 1) {
    found.push(Number((value * step).toPrecision(12)));
  }
  return found;
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  if (low === high) return [low - 0.5, high + 0.5];
  return [low, high];
}

function padded([low, high], part = 0.05) {
  const room = (high - low) * part;
  return [low - room, high + room];
}

// A frame with axes: `x` and `y` are extents; gives back the drawing, its scales and the inner box.
function frame(width, height, x, y, { labelX = "", labelY = "" } = {}) {
  const marksY = ticks(...y, Math.max(2, Math.round(height / 60)));
  const left = 14 + 7 * Math.max(...marksY.map((value) => shown(value).length), 1);
  const box = { left, right: width - 12, top: labelY ? 24 : 10, bottom: height - (labelX ? 42 : 24) };
  const scaleX = (value) => box.left + ((value - x[0]) / (x[1] - x[0])) * (box.right - box.left);
  const scaleY = (value) => box.bottom - ((value - y[0]) / (y[1] - y[0])) * (box.bottom - box.top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (const value of marksY) {
    const place = scaleY(value);
    drawing.append(
      svg("line", { class: value === 0 ? "zero" : "grid", x1: box.left, x2: box.right, y1: place, y2: place }),
      svg("text", { class: "axis", x: box.left - 6, y: place + 4, "text-anchor": "end" }, shown(value)),
    );
  }
  for (const value of ticks(...x, Math.max(2, Math.round((box.right - box.left) / 90)))) {
    drawing.append(
      svg("text", { class: "axis", x: scaleX(value), y: box.bottom + 17, "text-anchor": "middle" }, shown(value)),
    );
  }
  if (labelX) drawing.append(svg("text", { class: "axis", x: box.right, y: height - 5, "text-anchor": "end" }, labelX));
  if (labelY) drawing.append(svg("text", { class: "axis", x: 2, y: 12 }, labelY));
  return { drawing, scaleX, scaleY, box };
}

// Where on a drawing a pointer is, in the drawing's own units.
function pointerOn(drawing, event) {
  const box = drawing.getBoundingClientRect();
  const scale = drawing.viewBox.baseVal.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

// A panel for one column of the report, headed by its name where there are several.
function panel(column, several) {
  const element = html("div", { class: "panel" });
  if (several) element.append(html("p", { class: "name" }, html("bdi", {}, column.name)));
  return element;
}
