"""All sections of a run spec, by name; lengths are in tokens, times in seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.spec.backend.backend import BackendSpec
from hillclimb.spec.backend.skypilot import BudgetSpec
from hillclimb.spec.data import DataSpec
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.environment.prompt import PromptSpec
from hillclimb.spec.hosts import SecretName, TrainerVariable
from hillclimb.spec.monitoring.guards import GuardsSpec
from hillclimb.spec.monitoring.reporting import NotifySpec, TrackingSpec
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.preflight.preflight import ProbeSpec, ValidationSpec
from hillclimb.spec.preflight.preview import PreviewSpec
from hillclimb.spec.preflight.warm_start import SftSpec
from hillclimb.spec.section import MAX_TAGS, Section, Tag
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.checkpoints import CheckpointSpec
from hillclimb.spec.training.engine import EngineSpec
from hillclimb.spec.training.evaluation import EvalSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.lineage import LineageSpec
from hillclimb.spec.training.model import ModelSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from hillclimb.spec.training.placement import PlacementSpec
from hillclimb.spec.training.rollout import RolloutSpec
from hillclimb.spec.training.schedule import ScheduleSpec

RunKind = Literal["train", "eval", "probe", "validate", "preview", "sft"]
LEARNING_KINDS = frozenset({"train", "sft"})
"""Kinds of runs that take steps and save checkpoints."""
RUNNER_ONLY_KINDS = frozenset({"preview"})
"""Kinds of runs that load no model: a runner executes them, even if the spec rents a cluster."""


class RunSections(Section):
    """The sections of one run, each valid by itself; the rules between them are in `RunSpec`."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:-]{0,119}$")]
    """A name for people; need not be unique."""
    tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)] = ()
    """Words by which the run is found again (`GET /v1/runs?tag=`); they can be changed later
    (`hillclimb annotate`), here they stay as submitted."""
    kind: RunKind = "train"
    """`train`; `sft`: imitate demonstrations, as a warm start for a run of kind `train`, which then
    has `model.source: run:RUN` (docs/own-environment.md); or a kind that takes no step, saves no
    checkpoint and ignores the sections about training. `eval`: evaluate, under every decoding, the
    checkpoint that `lineage.resumed_from` names, or the starting policy. `probe`: roll out training
    tasks on that policy and report per environment whether it is healthy and whether groups will
    carry signal. `validate`: check every task without a policy, and exclude those that fail
    (docs/preflight.md). `preview`: render and count the prompts of all tasks, without a model
    (docs/prompts.md)."""
    backend: BackendSpec = BackendSpec()
    """Machine of the trainer: a runner, a rented cluster, or a runner with a Tinker server."""
    budget: BudgetSpec | None = None
    """Limits of the cost of the run's clusters; null: no limit of the run's own."""
    model: ModelSpec = ModelSpec()
    """The policy to start from."""
    data: DataSpec
    """Tasks to train and evaluate on."""
    environment: EnvironmentSpec = EnvironmentSpec()
    """Provider and limits of the environments."""
    prompt: PromptSpec = PromptSpec()
    """The words of the prompt, and the rules for turns."""
    rollout: RolloutSpec = RolloutSpec()
    """Sampling of training rollouts."""
    algorithm: AlgorithmSpec = AlgorithmSpec()
    """The policy-gradient step."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """The optimizer."""
    learner: LearnerSpec = LearnerSpec()
    """Computation of the gradient: precision, memory and adapters."""
    engine: EngineSpec = EngineSpec()
    """The inference engine that samples rollouts."""
    placement: PlacementSpec = PlacementSpec()
    """Processes of the trainer: learner ranks, engines and rollout workers."""
    schedule: ScheduleSpec = ScheduleSpec()
    """Steps, batch sizes and deadlines."""
    eval: EvalSpec = EvalSpec()
    """Held-out evaluation."""
    probe: ProbeSpec = ProbeSpec()
    """Size of a run of kind `probe`."""
    preview: PreviewSpec = PreviewSpec()
    """Prompts stored by a run of kind `preview`."""
    validation: ValidationSpec = ValidationSpec()
    """Checks of a run of kind `validate`."""
    sft: SftSpec = SftSpec()
    """What a run of kind `sft` imitates."""
    checkpoints: CheckpointSpec = CheckpointSpec()
    """Interval and retention of checkpoints."""
    guards: GuardsSpec = GuardsSpec()
    """Conditions under which the service warns of the run, pauses it or stops it."""
    notify: NotifySpec = NotifySpec()
    """Notifications about the run."""
    tracking: TrackingSpec = TrackingSpec()
    """Experiment trackers that also receive the metrics."""
    secrets: dict[TrainerVariable, SecretName | None] = Field(default_factory=dict, max_length=32)
    """Secrets of the project for the trainer: a variable of its environment, and the name under
    which `hillclimb secrets set` stored the value; null: none, even if the project's defaults name
    one (docs/secrets.md)."""
    lineage: LineageSpec = LineageSpec()
    """The checkpoint that the run starts from."""
    deterministic: bool = False
    """Make an interrupted and resumed run equal an uninterrupted one, bit for bit, on one kind of
    machine: one process and one thread, the torch engine, no rollouts ahead of the learner, no
    deadline within a step and no injected faults."""
    experimental: bool = False
    """Allow features that were never run (listed in docs/verified.md)."""
    accepted: Annotated[tuple[AcceptedPath, ...], Field(max_length=64)] = ()
    """Written by the service at submission, in place of what was there: the paths that need no
    `experimental` because this installation has evidence of them (docs/accept.md)."""
