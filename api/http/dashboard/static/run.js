// The run page: starts from the server's state, then applies every event of the stream.

import { html, intervalBar, lineChart, percent, pointsText, sparkline } from "/static/chart.js";
import { EVENT_TYPES, apply, early, hasEnded, newModel, startLine } from "/static/fold.js";

const state = JSON.parse(document.getElementById("state").textContent);
const at = (id) => document.getElementById(id);
const model = newModel(state);
let decoding = state.decodings[0];
let by = "environment";
const BREAKDOWNS = { environment: "envs", difficulty: "difficulties", modality: "modalities" };
let report = null;
let isScheduled = false;
let numLinesDrawn = 0;

for (const event of state.events) apply(model, event);
model.lastSeq = state.run.last_seq;
model.numEvents = state.run.last_seq;
Object.assign(model, { status: state.run.status, phase: state.run.phase, eta: state.run.eta_s });
model.banner = null;

function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => { isScheduled = false; draw(); });
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  const h = Math.floor(s / 3600);
  const two = (value) => String(value).padStart(2, "0");
  return h ? `${h}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
}

// Runs that train nothing have no steps and no curves: the server renders their results.
const takesSteps = at("progress") !== null;

function drawHead() {
  at("status").textContent = model.status;
  at("status").dataset.status = model.status;
  at("attempt").textContent = model.attempt || "–";
  if (takesSteps) {
    at("step").textContent = `${model.step} / ${model.total}`;
    at("progress").setAttribute("aria-valuenow", model.step);
    at("bar").style.width = `${(100 * model.step) / Math.max(1, model.total)}%`;
  }
  drawClock();
  if (model.status !== state.run.status) {
    state.run.status = model.status;
    fetchRun();
    fetchActions();
  }
  if (isStarting()) setBanner({ tone: "", text: startText() });
  if (model.status === "running") {
    const doing = { eval: "evaluating", rollout: "sampling rollouts", train: "taking the gradient step",
      sync: "syncing weights to the engines", checkpoint: "saving a checkpoint" }[model.phase] ?? "working";
    setBanner({ tone: "", text: `Now ${doing}${model.phase === "eval" && model.phaseDecoding ? ` (${model.phaseDecoding})` : ""}.` });
  }
}

const isStarting = () => model.status === "starting" && model.startup.size > 0;

// What the trainer does before its first step, and how long what it has done took.
function startText() {
  const phases = [...model.startup];
  const ended = phases.filter(([, phase]) => !phase.goesOn).map(([name, phase]) => [name, phase.seconds]);
  const now = phases.filter(([, phase]) => phase.goesOn).map(([name]) => state.start_phases[name] ?? name);
  return [now.length ? `The trainer ${now.join(", ")}.` : "The trainer starts.", ended.length ? `Done: ${startLine(ended)}.` : ""].join(" ").trim();
}

function setBanner({ tone, text }) {
  at("banner").dataset.tone = tone;
  // A run that learned nothing succeeded, but is not green.
  at("status").dataset.tone = model.status === "succeeded" ? tone : "";
  at("banner").textContent = text;
}

function drawClock() {
  const end = model.endedAt ? Date.parse(model.endedAt) : Date.now();
  // The start counts: it is what one waits for.
  const start = model.claimedAt ?? model.startedAt;
  at("duration").textContent = start ? duration((end - Date.parse(start)) / 1000) : "–";
  if (!takesSteps) return;
  const isCounting = model.eta !== null && model.eta !== undefined && !hasEnded(model);
  at("eta").textContent = isCounting ? duration(model.eta - (Date.now() - model.etaAt) / 1000) : "–";
}

function drawTable() {
  const evals = [...(model.evals.get(decoding) ?? new Map())].sort((a, b) => a[0] - b[0]).map(([, value]) => value);
  const steps = [...model.steps].sort((a, b) => a[0] - b[0]).map(([, value]) => value);
  const group = BREAKDOWNS[by];
  const n = Math.max(1, ...evals.map((value) => value.all?.pass_at_n?.k ?? 1));
  at("by-name").textContent = `${by[0].toUpperCase()}${by.slice(1)}`;
  at("at-n").textContent = `pass@${n}`;
  at("envs").parentElement.classList.toggle("with-n", n > 1);
  for (const row of rowsFor(evals, group)) {
    const key = row.dataset.env;
    const pick = (value) => (key === "all" ? value?.all : value?.[group]?.[key]);
    const series = evals.map(pick).filter(Boolean);
    drawRow(row, key, series, failuresOf(key, group), steps.map(pick).filter((rate) => rate && rate.pass_at_1 !== null));
  }
  const latest = evals.at(-1)?.all;
  at("coverage").textContent = latest
    ? `Coverage ${percent(latest.coverage)}; bounds if all ungraded rollouts failed or passed: ${percent(latest.bound_if_failed)} to ${percent(latest.bound_if_passed)}. Change in percentage points.` : "";
}

// Environments come with the page; the groups of another breakdown with the evaluations.
const ENV_ROWS = takesSteps ? [...at("envs").rows] : [];

function rowsFor(evals, group) {
  const total = ENV_ROWS.at(-1);
  const names = [...new Set(evals.flatMap((value) => Object.keys(value[group] ?? {})))].sort();
  const known = names.filter((name) => name !== "unknown");
  const ordered = names.includes("unknown") ? [...known, "unknown"] : known;
  const rows = group === "envs" ? ENV_ROWS : [...ordered.map((name) => namedRow(name, total)), total];
  if (group !== "envs" || at("envs").rows.length !== rows.length || at("envs").rows[0] !== rows[0]) at("envs").replaceChildren(...rows);
  return rows;
}

function namedRow(name, pattern) {
  const row = pattern.cloneNode(true);
  row.className = "";
  row.dataset.env = name;
  row.querySelector("th").textContent = name;
  return row;
}

// The page of the rollouts behind a cell: those that failed in the newest evaluation.
function failuresOf(key, group) {
  const step = Math.max(-1, ...(model.evals.get(decoding) ?? new Map()).keys());
  if (step < 0 || (group !== "envs" && key !== "all")) return null;
  const query = new URLSearchParams({ outcome: "failed", split: "eval", decoding, step });
  if (key !== "all") query.set("env", key);
  return `/runs/${state.run.id}/rollouts?${query}`;
}

function drawRow(row, key, series, failures, training) {
  const cell = (name) => row.querySelector(`[data-cell=${name}]`);
  const before = series.length > 1 ? series[0].pass_at_1 : null;
  const now = series.at(-1)?.pass_at_1 ?? null;
  const change = series.length > 1 && before !== null && now !== null ? now - before : null;
  cell("before").textContent = percent(before);
  cell("now").replaceChildren(failures && now !== null && now < 1
    ? html("a", { href: failures, title: "show the rollouts that failed" }, percent(now)) : percent(now));
  const atN = series.at(-1)?.pass_at_n;
  cell("at-n").textContent = percent(atN?.value ?? null);
  cell("at-n").title = atN ? `95 % interval ${percent(atN.low)} to ${percent(atN.high)}${series.length > 1 ? `, before ${percent(series[0].pass_at_n?.value ?? null)}` : ""}` : "";
  cell("change").textContent = pointsText(change);
  cell("change").className = `num ${change > 0 ? "up" : change < 0 ? "down" : ""}`;
  cell("n").textContent = series.at(-1)?.n ?? "–";
  const rate = series.at(-1);
  cell("interval").replaceChildren(...(rate && now !== null
    ? [intervalBar({ low: rate.low, high: rate.high, now, before })] : []));
  cell("spark").replaceChildren(sparkline(training.map((one) => one.pass_at_1)));
  drawVerdict(cell("verdict"), key);
}

const VERDICT_TONES = { improved: "good", regressed: "bad", failing: "bad", inconclusive: "warn" };

function drawVerdict(cell, key) {
  const ofGroup = by === "environment" ? report?.environments?.[key]?.[decoding] : null;
  const comparison = key === "all" ? report?.[decoding] : ofGroup;
  if (!comparison) return cell.replaceChildren(html("span", { class: "muted" }, "–"));
  const p = comparison.p_value === null ? "" : comparison.p_value < 0.001 ? "p < 0.001" : `p = ${comparison.p_value.toFixed(3)}`;
  const pill = html("span", { class: "pill", "data-tone": VERDICT_TONES[comparison.verdict] ?? "", title: `${p}, n = ${comparison.n}, rule ${report.rule}${early(report[decoding].after_stopped_early)}` },
    comparison.verdict);
  return cell.replaceChildren(pill);
}

function legend(host, series) {
  host.replaceChildren(...series.map((one) => html("span", {}, html("span", { class: one.color }, html("i")), one.name)));
}

function drawCharts() {
  const evals = [...model.evals].map(([name, points], i) => ({
    name, color: `c${i % 5}`, dots: true,
    points: [...points].sort((a, b) => a[0] - b[0]).filter(([, value]) => value.all.pass_at_1 !== null)
      .map(([x, value]) => ({ x, y: value.all.pass_at_1, low: value.all.low, high: value.all.high })),
  }));
  legend(at("eval-legend"), evals);
  lineChart(at("eval-chart"), { series: evals, xMax: model.total, hint: evalHint() });
  const raw = [...model.steps].sort((a, b) => a[0] - b[0]).filter(([, value]) => Number.isFinite(value.reward))
    .map(([x, value]) => ({ x, y: value.reward }));
  const smooth = smoothed(raw);
  const reward = [{ name: "each step", color: "c0", points: raw, thin: true }, { name: "smoothed (last 5 steps)", color: "c0", points: smooth }];
  legend(at("reward-legend"), reward.slice(1));
  lineChart(at("reward-chart"), { series: reward, xMax: model.total, hint: stepHint() });
}

const evalHint = () => hasEnded(model) ? "No evaluation was completed." : "The first evaluation will appear here.";

function stepHint() {
  if (state.kind === "sft") return "A warm start has losses, no rewards: see Metrics.";
  if (state.kind === "eval") return "An evaluation takes no training steps.";
  return hasEnded(model) ? "No training step was completed." : "The first training step will appear here.";
}

function smoothed(points) {
  return points.map(({ x }, i) => {
    const window = points.slice(Math.max(0, i - 4), i + 1);
    return { x, y: window.reduce((sum, point) => sum + point.y, 0) / window.length };
  });
}

function drawEvents() {
  const list = at("events");
  for (const line of model.lines.slice(numLinesDrawn)) {
    const time = new Date(line.at);
    list.prepend(html("li", { "data-tone": line.tone ?? "" },
      html("time", { datetime: line.at, title: time.toString() }, time.toLocaleTimeString([], { hour12: false })),
      html("span", {}, line.text)));
  }
  numLinesDrawn = model.lines.length;
  while (list.childElementCount > 300) list.lastElementChild.remove();
  at("num-events").textContent = `${model.numEvents} in total`;
}

function drawTabs() {
  const names = [...model.evals.keys()];
  if (at("tabs").childElementCount !== names.length) at("tabs").replaceChildren(...names.map(tab));
  for (const button of at("tabs").children) {
    const isChosen = button.textContent === decoding;
    button.setAttribute("aria-selected", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  }
}

function tab(name) {
  const button = html("button", { type: "button", role: "tab" }, name);
  button.addEventListener("click", () => { decoding = name; schedule(); });
  button.addEventListener("keydown", (press) => {
    const next = { ArrowLeft: button.previousElementSibling, ArrowRight: button.nextElementSibling }[press.key];
    next?.click();
    next?.focus();
  });
  return button;
}

function draw() {
  drawHead();
  if (takesSteps) {
    drawTabs();
    drawTable();
    drawCharts();
  }
  drawEvents();
}

if (takesSteps) at("by").addEventListener("change", (change) => { by = change.target.value; schedule(); });

async function fetchRun() {
  const answer = await fetch(`/dashboard/runs/${state.run.id}/banner`, { headers: { accept: "application/json" } });
  if (answer.ok && model.status !== "running" && !isStarting()) setBanner(await answer.json());
}

// What can be done depends on the status. An open form stays until it is closed or sent.
async function fetchActions() {
  if (at("actions").querySelector("details[open]")) return;
  const answer = await fetch(`/dashboard/runs/${state.run.id}/actions`);
  if (answer.ok) at("actions").replaceWith(new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("actions"));
}

// The cost of machines changes by the minute, and with every event about them.
const MACHINES_EVERY_MS = 20000;
const MACHINE_EVENTS = ["cluster.changed", "cluster.offer_tried", "budget.warned", "budget.extended", "run.status_changed", "step.completed"];
let isFetchingMachines = false;

async function fetchMachines() {
  const section = document.getElementById("machines");
  if (!section || isFetchingMachines || document.hidden) return;
  isFetchingMachines = true;
  try {
    const answer = await fetch(`/dashboard/runs/${state.run.id}/machines`);
    if (answer.status !== 200) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("machines");
    const open = [...section.querySelectorAll("details")].map((one) => one.open);
    [...fresh.querySelectorAll("details")].forEach((one, i) => { if (i < open.length) one.open = open[i]; });
    section.replaceWith(fresh);
  } catch {
    // The next request may succeed.
  } finally {
    isFetchingMachines = false;
  }
}

async function fetchReport() {
  if (!takesSteps || ![...model.evals.values()].some((points) => points.size > 1)) return;
  const answer = await fetch(`/v1/runs/${state.run.id}/evals/report`, { headers: { accept: "application/json" } });
  if (answer.ok) {
    const fresh = await answer.json();
    if (fresh.before_step !== fresh.after_step) { report = fresh; schedule(); }
  }
}

function setLive(state_, text) {
  at("live").dataset.live = state_;
  at("live").textContent = text;
}

function follow() {
  const stream = new EventSource(`/v1/runs/${state.run.id}/events/stream?after=${state.run.last_seq}`);
  stream.addEventListener("open", () => setLive("on", "live"));
  stream.addEventListener("error", () => setLive("lost", "reconnecting"));
  for (const type of EVENT_TYPES) {
    stream.addEventListener(type, (message) => { apply(model, JSON.parse(message.data)); schedule(); });
  }
  if (state.report) stream.addEventListener(state.report, () => location.reload());
  stream.addEventListener("checkpoint.saved", fetchActions);
  stream.addEventListener("eval.completed", () => { if (!hasEnded(model)) fetchReport(); });
  for (const type of MACHINE_EVENTS) stream.addEventListener(type, fetchMachines);
  stream.addEventListener("end", () => {
    fetchMachines();
    stream.close();
    setLive("off", "ended");
    fetchReport();
  });
}

draw();
fetchReport();
if (hasEnded(model)) setLive("off", "ended"); else follow();
setInterval(drawClock, 1000);
if (!hasEnded(model)) setInterval(fetchMachines, MACHINES_EVERY_MS);
addEventListener("resize", schedule);
