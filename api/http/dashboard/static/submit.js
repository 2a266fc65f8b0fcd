// The submit page: plans again while the spec is written, and shows each mistake beside its field.

const WAIT_MS = 700;
const PRICES_MS = 4000;
const MAX_PRICES = 8;
const form = document.getElementById("submit");
const status = document.getElementById("plan-status");
let timer = null;
let number = 0;
let numPrices = 0;

const at = (id) => document.getElementById(id);

async function plan() {
  clearTimeout(timer);
  const mine = ++number;
  const body = new URLSearchParams(new FormData(form));
  body.set("part", "1");
  form.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch("/submit/plan", { method: "POST", body });
    if (mine !== number) return;
    if (answer.redirected) throw new Error("The session has ended: sign in again in another tab.");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("outcome");
    if (!fresh) throw new Error(page.querySelector("main p")?.textContent ?? "The service did not answer.");
    show(fresh);
  } catch (error) {
    if (mine === number) say(error.message || "The service does not answer; what you typed is still here.", "warn");
  } finally {
    if (mine === number) form.removeAttribute("aria-busy");
  }
}

function show(fresh) {
  const outcome = at("outcome");
  const opened = new Set([...outcome.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
  outcome.replaceChildren(...fresh.childNodes);
  for (const each of outcome.querySelectorAll("details > summary")) {
    if (opened.has(each.textContent)) each.parentElement.open = true;
  }
  say(fresh.dataset.status, fresh.dataset.tone);
  markFields();
  offerCopies();
  if (!("awaits" in fresh.dataset)) numPrices = 0;
  else if (numPrices++ < MAX_PRICES) schedule(PRICES_MS);
}

function say(text, tone) {
  if (status.textContent !== text) status.textContent = text;
  status.dataset.tone = tone;
}

// The service's sentences, next to what they are about.
function markFields() {
  for (const each of form.querySelectorAll(".wrong")) each.textContent = "";
  for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  for (const item of at("outcome").querySelectorAll("li[data-place]")) {
    const place = item.dataset.place;
    const line = place && at(`e-${place}`);
    if (!line) continue;
    line.textContent = `${line.textContent} ${item.querySelector("[data-message]").textContent}`.trim();
    at(`f-${place}`)?.setAttribute("aria-invalid", "true");
  }
}

function schedule(after) {
  clearTimeout(timer);
  timer = setTimeout(plan, after);
}

function unfold(element) {
  for (let each = element.closest("details"); each; each = each.parentElement.closest("details")) each.open = true;
}

function count(group) {
  const texts = [...group.querySelectorAll("[name^='spec.']")].filter((each) => each.value.trim() && each.value !== "{}");
  const pill = group.querySelector("[data-count]");
  pill.textContent = texts.length ? `${texts.length} set` : "";
}

function find() {
  const wanted = at("find").value.trim().toLowerCase();
  let numFound = 0;
  for (const each of form.querySelectorAll(".field")) {
    const isFound = !wanted || `${each.dataset.field} ${each.textContent}`.toLowerCase().includes(wanted);
    each.hidden = !isFound;
    if (wanted && isFound) { numFound += 1; unfold(each); }
  }
  for (const each of form.querySelectorAll("[data-group]")) each.hidden = !each.querySelector(".field:not([hidden])");
  at("found").textContent = wanted ? `${numFound} found` : "";
}

function offerCopies() {
  if (!navigator.clipboard) return;
  for (const each of form.querySelectorAll("[data-copy]")) each.hidden = false;
}

form.addEventListener("input", (event) => {
  if (event.target.id === "find") return find();
  if (!event.target.name) return;
  for (let each = event.target.closest("[data-group]"); each; each = each.parentElement.closest("[data-group]")) count(each);
  schedule(WAIT_MS);
});
form.addEventListener("keydown", (event) => {
  if (event.target.id === "find" && event.key === "Enter") event.preventDefault();
});
form.addEventListener("submit", (event) => {
  if (event.submitter?.id !== "check") return;
  event.preventDefault();
  plan();
});
form.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-to]");
  if (link) {
    const target = at(`f-${link.dataset.to}`) ?? form.querySelector(`[data-group="${link.dataset.to}"] summary`);
    if (!target) return;
    event.preventDefault();
    unfold(target);
    target.focus();
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(at(`copy-${copy.dataset.copy}`).textContent);
    copy.textContent = "Copied";
  }
});

if (at("find")) at("find").parentElement.hidden = false;
offerCopies();
if ("awaits" in at("outcome").dataset) schedule(PRICES_MS);
