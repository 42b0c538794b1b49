// Reads the data, draws every figure, and draws it again when its width or a choice has changed.

const REPORT = JSON.parse(document.getElementById("data").textContent);

const DRAWERS = {
  histogram: (element) => drawHistogram(element, REPORT, document.getElementById("histogram-measure").value),
  scatter: (element) =>
    drawScatter(element, REPORT, document.getElementById("scatter-x").value, document.getElementById("scatter-y").value, readPair),
  mass: (element) => drawMass(element, REPORT),
  curves: (element) => drawCurves(element, REPORT, Number(element.dataset.number)),
};

function drawAgainWhenItChanges(element) {
  const draw = DRAWERS[element.dataset.figure];
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(element.clientWidth - width) < 1) return;
    width = element.clientWidth;
    draw(element);
  }).observe(element);
  for (const choice of element.closest("figure").querySelectorAll("select")) choice.addEventListener("change", () => draw(element));
}

document.querySelectorAll("[data-figure]").forEach(drawAgainWhenItChanges);

const theme = document.getElementById("theme");
const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const nameTheme = () => {
  theme.textContent = dark() ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
};
theme.hidden = false;
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  nameTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();

// On paper everything is open.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((element) => (element.open = true));
});
addEventListener("afterprint", () => closed.forEach((element) => (element.open = false)));
