// Folds a run's events into the model of its page. All rates come with the events: the service
// computes them from stored outcomes.

const TERMINAL = new Set(["succeeded", "failed", "cancelled"]);

export function newModel(state) {
  const model = {
    status: state.run.status, attempt: state.run.attempt, step: state.run.step, total: state.run.total,
    eta: state.run.eta_s, etaAt: Date.now(), phase: state.run.phase, phaseDecoding: null,
    startedAt: state.run.started_at, endedAt: state.run.ended_at, banner: null,
    steps: new Map(), evals: new Map(), lines: [], lastSeq: 0, numEvents: 0,
    startup: new Map(), claimedAt: null,
  };
  for (const name of state.decodings) model.evals.set(name, new Map());
  return model;
}

export const hasEnded = (model) => TERMINAL.has(model.status);

export function apply(model, event) {
  if (event.seq <= model.lastSeq) return;
  model.lastSeq = event.seq;
  model.numEvents = event.seq;
  if (event.attempt) model.attempt = Math.max(model.attempt, event.attempt);
  HANDLERS[event.type]?.(model, event, event.data);
  const line = describe(event);
  if (line) model.lines.push({ seq: event.seq, at: event.created_at, ...line });
}

// The highest attempt per step counts.
function put(map, step, attempt, value) {
  const known = map.get(step);
  if (!known || known.attempt <= attempt) map.set(step, { attempt, ...value });
}

const HANDLERS = {
  "run.status_changed": (model, event, data) => {
    model.status = data.to;
    if (TERMINAL.has(data.to)) model.endedAt = event.created_at;
    if (data.to !== "running") model.eta = model.phase = null;
    model.banner = null;
  },
  "attempt.scheduled": (model) => model.startup.clear(),
  "attempt.claimed": (model, event) => { model.claimedAt ??= event.created_at; },
  // Phases of the start: seconds of the parts that ended, and whether one goes on. Some overlap.
  "trainer.starting": (model, event, data) => {
    const before = model.startup.get(data.phase)?.seconds ?? 0;
    model.startup.set(data.phase, { seconds: before + (data.seconds ?? 0), goesOn: data.seconds === null });
  },
  "trainer.started": (model, event, data) => {
    model.total = data.total_steps;
    model.startedAt ??= event.created_at;
  },
  "phase.started": (model, event, data) => {
    model.phase = data.phase;
    model.phaseDecoding = data.decoding;
  },
  "step.completed": (model, event, data) => {
    model.step = data.step;
    model.eta = data.eta_s;
    model.etaAt = Date.now();
    const reward = data.metrics?.["reward/avg_raw_reward"] ?? data.all?.pass_at_1;
    put(model.steps, data.step, event.attempt, { reward, all: data.all, envs: data.envs });
  },
  "eval.completed": (model, event, data) => {
    if (!model.evals.has(data.decoding)) model.evals.set(data.decoding, new Map());
    const { all, envs, difficulties, modalities } = data;
    put(model.evals.get(data.decoding), data.step, event.attempt, { all, envs, difficulties, modalities });
  },
};

const share = (rate) =>
  !rate || rate.pass_at_1 === null ? "no grades" : `${(100 * rate.pass_at_1).toFixed(1)} % of n = ${rate.n}${atN(rate.pass_at_n)}`;
const atN = (rate) =>
  !rate || rate.value === null ? "" : `, pass@${rate.k} ${(100 * rate.value).toFixed(1)} %`;
export const early = (stop) =>
  !stop ? "" : `, stopped early: ${stop.verdict} after ${stop.decided_at} of ${stop.planned} tasks`;
export const startLine = (phases) => phases.map(([name, seconds]) => `${name} ${seconds.toFixed(1)} s`).join(", ");
const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const TONES = { succeeded: "good", failed: "bad", cancelled: "warn", recovering: "warn", paused: "warn" };

const TRACKERS = { wandb: "W&B", mlflow: "MLflow", tensorboard: "TensorBoard" };

const WORDS = {
  "run.created": () => ({ text: "Run created" }),
  "run.status_changed": (data) => ({
    text: `Now ${data.to}${data.reason ? `: ${data.reason.message || data.reason.code}` : ""}`, tone: TONES[data.to] }),
  "run.cancel_requested": () => ({ text: "Cancellation requested", tone: "warn" }),
  "run.pause_requested": () => ({ text: "Pause requested", tone: "warn" }),
  "attempt.scheduled": (data) => ({
    text: `Attempt ${data.attempt} scheduled` + (data.from_step ? `, from step ${data.from_step}` : "") }),
  "attempt.claimed": (data) => ({ text: `Attempt ${data.attempt} claimed by ${data.runner || data.cluster}` }),
  "attempt.ended": (data) => ({
    text: `Attempt ${data.attempt} ended: ${data.reason}`, tone: data.reason === "completed" ? "" : "warn" }),
  "cluster.changed": (data) => ({
    text: `Cluster ${data.cluster} is ${data.state}` + (data.infra ? ` on ${data.infra}${data.region ? ` ${data.region}` : ""}` : "")
      + (data.state === "running" && data.hourly_usd ? `, $${data.hourly_usd.toFixed(2)} per hour` : "") + (data.message ? `: ${data.message}` : ""),
    tone: data.cause ? "warn" : data.state === "running" ? "good" : "" }),
  "cluster.offer_tried": (data) => ({
    text: `Tried ${data.infra}${data.region ? ` ${data.region}` : ""}${data.sku ? ` ${data.sku}` : ""}: ${data.outcome}` + (data.message ? `, ${data.message}` : ""),
    tone: data.outcome === "up" ? "good" : data.outcome === "failed" ? "bad" : "warn" }),
  "budget.warned": (data) => ({ text: data.message, tone: "warn" }),
  "budget.extended": (data) => ({
    text: "Budget extended by " + [data.usd ? `$${data.usd.toFixed(2)}` : "", data.hours ? `${data.hours} h` : ""].filter(Boolean).join(" and ") }),
  "run.warning": (data) => ({ text: data.message, tone: "warn" }),
  "event.refused": (data) => ({
    text: `An event was not stored (${data.refused_type}, step ${data.step}): ${data.message}`, tone: "bad" }),
  "guard.tripped": (data) => ({
    text: `Guard ${data.message}` + ({ pause: "; the run pauses", stop: "; the run ends" }[data.action] ?? ""),
    tone: data.action === "alert" ? "warn" : "bad" }),
  "guard.acknowledged": (data) => ({ text: `Guard ${data.guard} of step ${data.step} acknowledged` }),
  "guard.cleared": (data) => ({ text: `Guard armed again: ${data.message}` }),
  "attempt.rewound": (data) => ({ text: `Continues from step ${data.from_step}`, tone: "warn" }),
  "trainer.started": (data) => ({
    text: (data.num_parameters ? `Trainer started: ${data.engine}, ${(data.num_parameters / 1e6).toFixed(1)} M parameters` : "Trainer started, without a model")
      + (data.resumed_from_step ? `, resumed from step ${data.resumed_from_step}` : "")
      + (data.startup?.length ? `; start: ${startLine(data.startup.map((each) => [each.phase, each.seconds]))}` : "") }),
  "tracking.started": (data) => ({
    text: `Figures go to ${TRACKERS[data.tracker] ?? data.tracker}: ${data.url ? data.name : `files of ${data.name}`}` }),
  "eval.completed": (data) => ({ text: `Eval at step ${data.step}, ${data.decoding}: ${share(data.all)}${early(data.stopped_early)}`, tone: data.all.pass_at_1 > 0 ? "good" : "" }),
  "prompts.rendered": (data) => ({
    text: `Prompts of wording ${data.version} rendered, longest in tokens: `
      + Object.entries(data.environments).map(([key, env]) => `${key} ${env.total_tokens.max}`).join(", ") }),
  "probe.completed": (data) => ({
    text: `Probe${data.complete ? "" : " (stopped early)"}: `
      + Object.entries(data.environments).map(([key, env]) => `${key} ${env.verdict}`).join(", ")
      + `; ${data.advice}`, tone: "good" }),
  "validation.completed": (data) => ({
    text: `Validation${data.complete ? "" : " (stopped early)"} of ${data.summary.num_tasks} tasks: `
      + Object.entries(data.summary.verdicts).map(([verdict, n]) => `${n} ${verdict}`).join(", "), tone: "good" }),
  "validation.excluded": (data) => ({
    text: data.problem ?? (data.num_failed ? `${data.num_excluded} of ${data.num_failed} tasks that failed are excluded from ${data.dataset}`
      + (data.num_excluded < data.num_failed ? "; the others already were" : "") : `No task failed: nothing is excluded from ${data.dataset}`),
    tone: data.problem ? "bad" : "" }),
  "step.abandoned": (data) => ({
    text: `${data.during === "eval" ? "The evaluation at step" : "Step"} ${data.step} was under way when the attempt ended` }),
  "checkpoint.refused": (data) => ({ text: `Checkpoint at step ${data.step} is refused: ${data.reason}`, tone: "warn" }),
  "checkpoint.saved": (data) => ({ text: `Checkpoint at step ${data.step}, ${mib(data.size_bytes)}` }),
  "env.degraded": (data) => ({
    text: `${data.env_key}: ${(100 * data.infra_error_rate).toFixed(0)} % of rollouts had infra errors or no grade at step ${data.step}${data.detail ? `: ${data.detail}` : ""}`, tone: "bad" }),
  "curriculum.reweighted": (data) => ({ text: `Curriculum: ${data.reason}` }),
  "trainer.ended": (data) => ({ text: `Trainer ended: ${data.message || data.reason}` }),
};
const QUIET = new Set(["phase.started", "trainer.starting", "step.completed", "checkpoint.deleted", "checkpoint.qualified"]);

function describe(event) {
  if (QUIET.has(event.type)) return null;
  return WORDS[event.type]?.(event.data) ?? { text: event.type };
}

export const EVENT_TYPES = [
  ...Object.keys(WORDS), ...QUIET,
];
