// The scatter of pairs, and the text of the one that is pointed at.

function drawScatter(element, report, measureX, measureY, reader) {
  const several = report.columns.length > 1;
  const there = report.columns.filter((column) => column.points && column.points.values[measureX] && column.points.values[measureY]);
  const x = padded(extent(there.flatMap((column) => column.points.values[measureX])));
  const y = padded(extent(there.flatMap((column) => column.points.values[measureY])));
  element.closest(".explorer").classList.toggle("single", there.length === 1 && !several);
  element.replaceChildren(...there.map((column) => panel(column, several)));
  const others = report.columns.filter((column) => column.points && !there.includes(column));
  for (const column of others) {
    element.append(panel(column, several));
    element.lastChild.append(html("p", { class: "hint" }, "Its diagnosis was made before training, so there is no movement to show."));
  }
  there.forEach((column, number) => {
    const inside = element.children[number];
    const labels = { labelX: report.measures[measureX], labelY: report.measures[measureY] };
    inside.append(scatter(column, measureX, measureY, x, y, inside.clientWidth, labels, report, reader));
  });
}

function scatter(column, measureX, measureY, x, y, width, labels, report, reader) {
  const height = Math.min(460, Math.max(280, width * 0.68));
  const { drawing, scaleX, scaleY, box } = frame(width, height, x, y, labels);
  const { values, ids } = column.points;
  if (x[0] < 0 && x[1] > 0) drawing.append(svg("line", { class: "zero", x1: scaleX(0), x2: scaleX(0), y1: box.top, y2: box.bottom }));
  const fell = values.chosen_delta;
  const points = [];
  ids.forEach((id, place) => {
    const [across, up] = [values[measureX][place], values[measureY][place]];
    if (across === null || up === null) return;
    const colour = !fell ? "accent" : fell[place] < 0 ? "rejected" : "chosen";
    points.push({ place, x: scaleX(across), y: scaleY(up), colour });
  });
  for (const point of points) {
    drawing.append(svg("circle", { class: `point fill-${point.colour}`, cx: point.x.toFixed(1), cy: point.y.toFixed(1), r: ids.length > 1000 ? 2.5 : 3.5 }));
  }
  const ring = svg("circle", { class: "ring", r: 7, visibility: "hidden" });
  drawing.append(ring);
  drawing.setAttribute("aria-hidden", "true");
  const holder = html("div", {
    role: "application",
    tabindex: "0",
    "aria-label": `${labels.labelY} against ${labels.labelX}, ${column.name}: ${counted(points.length)} points. Arrow keys move from pair to pair.`,
  }, drawing);
  const place = new Map(points.map((point) => [ids[point.place], point]));
  holder.addEventListener("pair", (event) => {
    const point = place.get(event.detail);
    ring.setAttribute("visibility", point ? "visible" : "hidden");
    if (point) fill(ring, { cx: point.x, cy: point.y }, []);
  });
  choosing(holder, drawing, points, (point) => {
    // the same pair is marked in every column
    for (const other of document.querySelectorAll("[role=application]")) other.dispatchEvent(new CustomEvent("pair", { detail: ids[point.place] }));
    reader(report, column, point.place);
  });
  const fragment = document.createDocumentFragment();
  fragment.append(holder);
  if (fell) fragment.append(fallLegend());
  return fragment;
}

function fallLegend() {
  const items = [["chosen", "chosen response rose"], ["rejected", "chosen response fell"]].map(([colour, words]) => {
    const swatch = svg("svg", { viewBox: "0 0 14 8", "aria-hidden": "true" }, svg("circle", { class: `fill-${colour}`, cx: 7, cy: 4, r: 3.5 }));
    return html("li", {}, swatch, words);
  });
  return html("ul", { class: "legend" }, ...items);
}

// By pointer: the nearest point; a click keeps it until the next click or Escape. By keys: along the axes.
function choosing(holder, drawing, points, choose) {
  let kept = false;
  let current = null;
  const order = [...points].sort((a, b) => a.x - b.x || b.y - a.y);
  const rank = new Map(order.map((point, number) => [point, number]));
  const take = (point) => {
    if (point && point !== current) choose((current = point));
  };
  const near = (event, reach) => {
    const [x, y] = pointerOn(drawing, event);
    let [best, least] = [null, reach * reach];
    for (const point of points) {
      const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (distance <= least) [best, least] = [point, distance];
    }
    return best;
  };
  drawing.addEventListener("pointermove", (event) => {
    if (!kept && event.pointerType === "mouse") take(near(event, 24));
  });
  drawing.addEventListener("click", (event) => {
    const point = near(event, 36);
    kept = point !== null && !(kept && point === current);
    take(point);
  });
  holder.addEventListener("focus", () => {
    if (current === null && holder.matches(":focus-visible")) take(order[0]);
  });
  holder.addEventListener("keydown", (event) => {
    if (event.key === "Escape") kept = false;
    const place = current === null ? -1 : rank.get(current);
    const moves = {
      ArrowRight: () => order[Math.min(order.length - 1, place + 1)],
      ArrowLeft: () => order[Math.max(0, place - 1)],
      ArrowUp: () => beside(points, current || order[0], -1),
      ArrowDown: () => beside(points, current || order[0], 1),
      Home: () => order[0],
      End: () => order[order.length - 1],
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    kept = true;
    take(moves[event.key]());
  });
}

// The next point above or below, those straight on first.
function beside(points, from, direction) {
  let [best, least] = [from, Infinity];
  for (const point of points) {
    const ahead = (point.y - from.y) * direction;
    if (ahead <= 0) continue;
    const cost = ahead + 3 * Math.abs(point.x - from.x);
    if (cost < least) [best, least] = [point, cost];
  }
  return best;
}

const FACTS = ["ln_ches", "chosen_delta", "rejected_delta", "edit_distance", "length_gap"];

// "length gap, chosen − rejected, tokens" and 3 become "length gap 3 tokens".
function fact(label, value) {
  const parts = label.split(", ");
  return `${parts[0]} ${shown(value)}${parts.length > 1 ? ` ${parts.at(-1)}` : ""}`;
}

// Shows a pair beside the scatter.
function readPair(report, column, place) {
  const { ids, values, texts } = column.points;
  const [prompt, chosen, rejected] = texts[place].map((number) => report.texts[number]);
  const shared = sharedStart(chosen, rejected);
  const facts = FACTS.filter((name) => values[name]).map((name) => fact(report.measures[name], values[name][place]));
  const where = report.columns.length > 1 ? ` · ${column.name}` : "";
  document.getElementById("pair").replaceChildren(
    html("p", {}, html("bdi", { class: "id" }, ids[place]), html("span", { class: "facts" }, where)),
    html("p", { class: "facts" }, facts.join(" · ")),
    html("h3", {}, "Prompt"),
    scrolling(html("p", { class: "text", dir: "auto" }, prompt), "Prompt"),
    html("div", { class: "sides" }, side("Chosen", "chosen", chosen, shared), side("Rejected", "rejected", rejected, shared)),
  );
}

function side(title, kind, text, shared) {
  const body = html("p", { class: "text", dir: "auto" });
  body.append(html("span", { class: "same" }, text.slice(0, shared)), text.slice(shared));
  return html("div", {}, html("h4", { class: kind }, title), scrolling(body, title));
}

// A text that may have to be scrolled can be reached by keys.
function scrolling(element, name) {
  return fill(element, { tabindex: "0", role: "group", "aria-label": name }, []);
}

// Characters that both texts begin with, up to the end of a word.
function sharedStart(first, second) {
  let end = 0;
  while (end < first.length && end < second.length && first[end] === second[end]) end += 1;
  while (end > 0 && end < first.length && /[\p{L}\p{N}]/u.test(first[end - 1])) end -= 1;
  return end;
}
