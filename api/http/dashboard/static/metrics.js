// The metrics page: choose series by search; names that differ in the environment share a chart.

import { html } from "/static/chart.js";

const state = JSON.parse(document.getElementById("state").textContent);
const at = (id) => document.getElementById(id);
const MAX_CHARTS = 24;
const MAX_LISTED = 200;
const MAX_POINTS = 1000; // more than a chart is wide
const groups = groupNames();
const address = new URL(location.href);
const chosen = new Set((address.searchParams.get("names")?.split(",") ?? state.first.map(groupOf)).filter((name) => groups.has(name)));
// The page's own run first; lines of the others are dashed.
const runs = state.runs.map((run) => ({ ...run, clock: new Map(run.clock), tokens: new Map(run.tokens) }));
const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4], [1, 5]];
const series = new Map();
const charts = [];

// `reward/booking/pass_at_1` belongs to `reward/*/pass_at_1` if booking is an environment.
function groupOf(name) {
  const envs = new Set([...state.env_keys, "all"]);
  return name.split("/").map((part) => (envs.has(part) ? "*" : part)).join("/");
}

function groupNames() {
  const found = new Map();
  for (const name of state.names) {
    const group = groupOf(name);
    found.set(group, [...(found.get(group) ?? []), name]);
  }
  return found;
}

function drawNames() {
  const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [...groups.keys()].filter((name) => words.every((word) => name.toLowerCase().includes(word)));
  const listed = [...found.filter((name) => chosen.has(name)), ...found.filter((name) => !chosen.has(name))].slice(0, MAX_LISTED);
  at("found").textContent = `${found.length} of ${groups.size} series`;
  at("names").replaceChildren(...listed.map(choice));
}

function choice(name) {
  const box = html("input", { type: "checkbox", ...(chosen.has(name) ? { checked: "" } : {}) });
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(name); else chosen.delete(name);
    draw();
  });
  const num = groups.get(name).length;
  return html("li", {}, html("label", {}, box, html("code", {}, name), num > 1 ? html("span", { class: "muted" }, ` ${num} lines`) : ""));
}

async function fetchSeries(group) {
  if (series.has(group)) return series.get(group);
  const query = new URLSearchParams({ names: groups.get(group).slice(0, 12).join(",").replaceAll("[", "[[]"), max_points: MAX_POINTS });
  const lines = await Promise.all(runs.map(async (run, i) => {
    const answer = await fetch(`/v1/runs/${run.id}/metrics?${query}`, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
    return (await answer.json()).data.map((line) => ({ ...line, run: i }));
  }));
  series.set(group, lines.flat());
  return series.get(group);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const COLORS = ["--accent", "--second", "--warn", "--bad", "--muted", "--ink"];

function label(group, line) {
  const parts = line.name.split("/").filter((part, i) => group.split("/")[i] !== part);
  const words = [parts.join("/"), line.decoding === "train" ? "" : line.decoding].filter(Boolean).join(" ");
  return runs.length > 1 ? [runs[line.run].name, words].filter(Boolean).join(": ") : words || "value";
}

function table(lines) {
  const places = { time: "clock", tokens: "tokens" }[at("axis").value];
  const x = (line, step) => (places ? runs[line.run][places].get(step) : step);
  const xs = [...new Set(lines.flatMap((line) => line.points.map((point) => x(line, point.step))))].filter((value) => value !== undefined).sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const values = new Map(line.points.map((point) => [x(line, point.step), point.value]));
    return xs.map((value) => values.get(value) ?? null);
  });
  return [xs, ...columns];
}

const short = (value) => (value === null || value === undefined ? "–" : Number.isInteger(value) ? String(value) : Number(value.toPrecision(4)).toString());

function clockText(seconds) {
  const s = Math.round(seconds);
  const two = (value) => String(value).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
}

const amount = (value) => {
  const [size, unit] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([each]) => value >= each) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))}${unit}`;
};
const AXES = { step: ["step", String], time: ["time", clockText], tokens: ["tokens", amount] };

function plot(group, lines, host) {
  const [unit, place] = AXES[at("axis").value];
  const data = table(lines);
  if (!data[0].length) return host.append(html("p", { class: "muted" }, "No step of these runs has a place on this axis."));
  const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "11px system-ui" };
  const options = {
    width: host.clientWidth, height: 220, cursor: { sync: { key: "x" } }, scales: { x: { time: false } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map(place) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
    series: [{ label: unit, value: (_, value) => (value === null ? "–" : place(value)) },
      ...lines.map((line, i) => ({ label: label(group, line), stroke: color(COLORS[i % COLORS.length]), width: 1.5, dash: DASHES[line.run], spanGaps: true,
        points: { show: data[0].length < 40, size: 5, fill: color("--surface") }, value: (chart, value, column, index) => short(index === null ? line.points.at(-1)?.value : value) }))],
  };
  charts.push({ chart: new uPlot(options, data, host), host });
}

async function drawChart(group) {
  const host = html("div", { class: "plot", role: "group", "aria-label": group });
  const card = html("section", { class: "card" }, html("div", { class: "card-head" }, html("h2", {}, html("code", {}, group))), host);
  at("charts").append(card);
  try {
    plot(group, await fetchSeries(group), host);
  } catch (error) {
    host.append(html("p", { class: "muted" }, `Not drawn: ${error.message}.`));
  }
}

async function draw() {
  address.searchParams.set("names", [...chosen].join(","));
  address.searchParams.set("x", at("axis").value);
  for (const name of ["names", "x"]) if (at("beside")) at("beside").elements[name].value = address.searchParams.get(name);
  history.replaceState(null, "", address);
  for (const { chart } of charts.splice(0)) chart.destroy();
  at("charts").replaceChildren();
  if (!chosen.size) at("charts").append(html("section", { class: "card" }, html("p", { class: "empty muted" }, "Choose a series.")));
  for (const group of [...chosen].slice(0, MAX_CHARTS)) await drawChart(group);
}

if (address.searchParams.get("x") in AXES) at("axis").value = address.searchParams.get("x");
at("search").addEventListener("input", drawNames);
at("axis").addEventListener("change", draw);
addEventListener("resize", () => { for (const { chart, host } of charts) chart.setSize({ width: host.clientWidth, height: 220 }); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
drawNames();
draw();
