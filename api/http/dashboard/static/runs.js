// The list of runs: verdicts after the first paint, and fresh rows while a run moves.

import { html } from "/static/chart.js";

const EVERY_MS = 3000;
const verdicts = new Map();
const rows = () => document.getElementById("rows");

function drawVerdicts() {
  for (const row of rows().rows) {
    const verdict = verdicts.get(row.dataset.run);
    if (verdict) row.querySelector("[data-cell=verdict]").replaceChildren(
      html("span", { class: "pill", "data-tone": verdict.tone }, verdict.word));
  }
}

// A verdict is computed from outcomes: only of rows that changed since.
async function fetchVerdicts(changed) {
  const wanted = changed.filter((row) => row.querySelector("[data-has]"));
  if (!wanted.length) return;
  const query = new URLSearchParams(wanted.map((row) => ["run", row.dataset.run]));
  const answer = await fetch(`/dashboard/verdicts?${query}`);
  if (!answer.ok) return;
  for (const [run, verdict] of Object.entries(await answer.json())) verdicts.set(run, verdict);
  drawVerdicts();
}

const figures = (row) => row.cells[3].textContent;

async function refresh() {
  const answer = await fetch(`/dashboard/runs${location.search}`);
  if (!answer.ok) throw new Error(answer.status);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("rows");
  const before = new Map([...rows().rows].map((row) => [row.dataset.run, figures(row)]));
  const focused = document.activeElement?.closest("[data-run]")?.dataset.run;
  rows().replaceChildren(...fresh.rows);
  if (focused) [...rows().rows].find((row) => row.dataset.run === focused)?.querySelector("a").focus();
  drawVerdicts();
  fetchVerdicts([...rows().rows].filter((row) => before.get(row.dataset.run) !== figures(row)));
}

function show(state, text) {
  const live = document.getElementById("live");
  live.hidden = false;
  live.dataset.live = state;
  live.textContent = text;
}

async function follow() {
  if (!rows().querySelector("[data-moving]")) return show("off", "no run is active");
  if (!document.hidden) {
    try {
      await refresh();
      show("on", "live");
    } catch {
      show("lost", "reconnecting");
    }
  }
  setTimeout(follow, EVERY_MS);
}

if (rows()) {
  fetchVerdicts([...rows().rows]);
  follow();
}
