// Small SVG charts. Every value reaches the page as text or number, never as markup.

const NS = "http://www.w3.org/2000/svg";
const PAD = { left: 40, right: 12, top: 10, bottom: 22 };

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function html(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const percent = (value, digits = 1) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)}\u00a0%`;

// A change in percentage points, as `points_text` writes it: the minus is a hyphen.
export const pointsText = (change) => {
  if (change === null || change === undefined) return "–";
  const rounded = (100 * change).toFixed(1);
  return rounded === "-0.0" ? "+0.0" : change < 0 ? rounded : `+${rounded}`;
};

// series: [{name, color, points: [{x, y, low?, high?}], thin?, dots?}], shares in [0, 1]
export function lineChart(host, { series, xMax, hint }) {
  const drawn = series.filter((one) => one.points.length);
  if (!drawn.length) {
    host.replaceChildren(html("div", { class: "hint" }, hint));
    return;
  }
  const width = host.clientWidth;
  const height = host.clientHeight;
  const x = (value) => PAD.left + ((width - PAD.left - PAD.right) * value) / Math.max(1, xMax);
  const y = (value) => height - PAD.bottom - (height - PAD.top - PAD.bottom) * value;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(drawn) });
  root.append(...axes(x, y, xMax, width), ...drawn.map((one) => curve(one, x, y)));
  const hair = svg("line", { class: "hair", y1: PAD.top, y2: height - PAD.bottom, visibility: "hidden" });
  const tip = html("div", { class: "tip", hidden: "" });
  root.append(hair);
  host.replaceChildren(root, tip);
  follow(host, { root, hair, tip, series: drawn.filter((one) => !one.thin), x, width });
}

// What a screen reader says of a chart: each line's first and last value.
function spoken(series) {
  return series.filter((one) => !one.thin).map(({ name, points }) =>
    `${name}: ${percent(points[0].y)} at step ${points[0].x}, ${percent(points.at(-1).y)} at step ${points.at(-1).x}`).join("; ");
}

function axes(x, y, xMax, width) {
  const lines = [0, 0.25, 0.5, 0.75, 1].flatMap((value) => [
    svg("line", { class: "axis", x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }),
    svg("text", { class: "tick", x: PAD.left - 6, y: y(value) + 4, "text-anchor": "end" }, `${100 * value}%`),
  ]);
  const ticks = ticksTo(xMax).map((value) =>
    svg("text", { class: "tick", x: x(value), y: y(0) + 16, "text-anchor": "middle" }, String(value)));
  return [...lines, ...ticks];
}

function ticksTo(max) {
  const raw = Math.max(1, max) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= raw) * power);
  return Array.from({ length: Math.floor(max / step) + 1 }, (_, i) => i * step);
}

function curve({ points, color, thin, dots }, x, y) {
  const group = svg("g", { class: color });
  const path = points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");
  if (points[0].low !== undefined) {
    const upper = points.map((p) => `${x(p.x).toFixed(1)} ${y(p.high).toFixed(1)}`);
    const lower = points.map((p) => `${x(p.x).toFixed(1)} ${y(p.low).toFixed(1)}`).reverse();
    group.append(svg("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` }));
  }
  group.append(svg("path", { class: thin ? "line thin" : "line", d: path }));
  if (dots) group.append(...points.map((p) => svg("circle", { class: "dot", cx: x(p.x), cy: y(p.y), r: 3 })));
  return group;
}

// Position of the pointer on each chart: a redrawn chart shows the figures under it again.
const pointers = new WeakMap();

function follow(host, { root, hair, tip, series, x, width }) {
  const xs = [...new Set(series.flatMap((one) => one.points.map((p) => p.x)))];
  const show = (clientX) => {
    const at = clientX - host.getBoundingClientRect().left;
    const nearest = xs.reduce((best, value) => (Math.abs(x(value) - at) < Math.abs(x(best) - at) ? value : best));
    hair.setAttribute("x1", x(nearest));
    hair.setAttribute("x2", x(nearest));
    hair.setAttribute("visibility", "visible");
    tip.replaceChildren(html("b", {}, `step ${nearest}`), ...series.flatMap((one) => figures(one, nearest)));
    tip.hidden = false;
    const left = x(nearest) + 12;
    tip.style.left = `${left + tip.offsetWidth > width ? x(nearest) - tip.offsetWidth - 12 : left}px`;
  };
  root.addEventListener("pointermove", (event) => {
    pointers.set(host, event.clientX);
    show(event.clientX);
  });
  root.addEventListener("pointerleave", () => {
    pointers.delete(host);
    hair.setAttribute("visibility", "hidden");
    tip.hidden = true;
  });
  if (pointers.has(host) && host.matches(":hover")) show(pointers.get(host));
}

function figures({ name, color, points }, at) {
  const point = points.find((p) => p.x === at);
  if (!point) return [];
  const range = point.low === undefined ? "" : `  [${percent(point.low, 0)}, ${percent(point.high, 0)}]`;
  return [html("div", { class: color }, html("i"), html("span", {}, `${name} ${percent(point.y)}${range}`))];
}

export function sparkline(values, { width = 96, height = 22 } = {}) {
  const root = svg("svg", { width, height, class: "c0", "aria-hidden": "true" });
  if (!values.length) return root;
  const x = (i) => (values.length === 1 ? width - 4 : 3 + ((width - 7) * i) / (values.length - 1));
  const y = (value) => height - 3 - (height - 6) * value;
  const path = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  root.append(svg("path", { class: "line", d: path, "stroke-width": 1.5 }));
  root.append(svg("circle", { class: "dot", cx: x(values.length - 1), cy: y(values.at(-1)), r: 2.4 }));
  return root;
}

// The interval of `now` as a bar, its value as a mark, the value before as a tick.
export function intervalBar({ low, high, now, before }, { width = 118, height = 22 } = {}) {
  const x = (value) => 5 + (width - 10) * value;
  const root = svg("svg", { width, height, role: "img" });
  root.append(svg("rect", { class: "track", x: 0, y: 8, width, height: 6, rx: 3 }));
  root.append(svg("rect", { class: "whisker", x: x(low), y: 8, width: Math.max(1, x(high) - x(low)), height: 6, rx: 3 }));
  if (before !== null && before !== undefined) {
    root.append(svg("rect", { class: "was", x: x(before) - 1, y: 4, width: 2, height: 14 }));
  }
  root.append(svg("circle", { class: "mark", cx: x(now), cy: 11, r: 4 }));
  root.append(svg("title", {}, `${percent(now)} [${percent(low)}, ${percent(high)}]`));
  return root;
}
