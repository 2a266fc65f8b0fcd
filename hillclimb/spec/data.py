"""The section `data`: the tasks of a run, and how a training step samples them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hillclimb.spec.section import EnvKey, Section, Share

BLOCKING_LINT = (
    "leak",
    "eval_not_unique",
    "duplicate_key_differs",
    "current_date_missing",
    "published_overruled",
    "tools_over_budget",
    "eval_too_small",
)
"""Lint codes that block a run, and that `data.allow_lint` may name. `findings.RULES` defines them;
a test compares the two."""

DatasetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class DatasetRef(Section):
    """A version of a registered dataset."""

    name: DatasetName
    """Its name in the project."""
    version: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Number of the version; null is the newest when the run is submitted."""
    id: str | None = None
    """Id of the version; the service fills it in, and the trainer finds the tasks by it."""
    digest: str | None = None
    """SHA-256 of its rows and its split; the service fills it in, and the trainer compares it."""

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def _read_reference(value: object) -> object:
    """Turn `NAME@3` or `NAME` into the fields of a reference."""
    if not isinstance(value, str):
        return value
    name, at, version = value.partition("@")
    if at and not (version.isascii() and version.isdecimal()):
        raise ValueError(
            f"{value!r} names no version: write NAME@3 with the version's number, or NAME alone for"
            " the newest"
        )
    return {"name": name, "version": int(version) if at else None}


GENERATOR_KEYS = (
    "train_tasks_per_env",
    "train_tasks_by_env",
    "eval_tasks_per_env",
    "held_out_template_share",
)
"""Settings that apply to generated tasks only."""


class CurriculumSpec(Section):
    """Shift prompts to the environments whose groups carry signal, that is, whose scores differ."""

    interval: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    """Steps between two updates of the shares; each change is an event."""
    floor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Share of the prompts that `sampling` distributes, whatever was measured: no environment
    falls below this share of its prompts without a curriculum."""
    half_life: Annotated[float, Field(gt=0.0, le=1e6)] = 10.0
    """Steps after which a measurement counts half; environments with few prompts regain some."""
    min_change: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.02
    """Smallest change of a share: the shares stay as they are while none changes by this much."""


class DataSpec(Section):
    """Tasks to train and evaluate on; training and eval tasks never share an entity."""

    env_keys: Annotated[tuple[EnvKey, ...], Field(max_length=64)] = ()
    """Environments to take tasks from, each at most once. Optional with a `dataset`: the default is
    all of its environments that are not in quarantine."""
    dataset: Annotated[
        DatasetRef | None,
        BeforeValidator(_read_reference, json_schema_input_type=DatasetRef | str | None),
    ] = None
    """Use the tasks and the split of a registered dataset: `NAME@3`, or `NAME` for the newest
    version. null generates tasks according to the keys below. The run is stored with the version's
    id and digest, so its tasks never change."""
    allow_lint: tuple[str, ...] = ()
    """Lint codes that do not block the run: it trains or evaluates on the `dataset` despite errors
    of these codes, such as `leak` (docs/datasets.md). `eval_too_small` allows fewer than six
    different eval tasks."""
    modality: Literal["tool_use", "computer_use"] | None = None
    """Use only tasks of this modality, for training and evaluation; null: all of them, which must
    be `tool_use`. `computer_use` is refused: this version gives models no images."""
    max_tasks: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Train on at most this many tasks (count), for a short test or to compare sizes: the
    environments keep their proportions, with at least one task each, `seed` draws the tasks, and
    those of a smaller limit are among those of a larger one. Where a step would need more, it gets
    smaller batches; eval tasks stay. A dataset without any is then no error, only a warning. null:
    all tasks."""
    train_tasks_per_env: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Training tasks per environment (count)."""
    train_tasks_by_env: dict[EnvKey, Annotated[int, Field(ge=1, le=100_000)]] = Field(
        default_factory=dict
    )
    """Training tasks of single environments, instead of `train_tasks_per_env` (count)."""
    eval_tasks_per_env: Annotated[int, Field(ge=1, le=10_000)] = 60
    """Held-out evaluation tasks per environment (count)."""
    held_out_template_share: Share = 0.25
    """Share of the eval tasks made from templates that training never sees."""
    sampling: Literal["balanced", "proportional", "hybrid"] = "balanced"
    """Distribution of a step's prompts: `balanced` evenly over the environments, `proportional` to
    their numbers of training tasks, `hybrid` first `min_samples_per_env` to each environment, then
    the remaining ones by numbers of tasks. Each environment has its own epochs."""
    min_samples_per_env: Annotated[int, Field(ge=1, le=1024)] = 1
    """Minimum number of prompts of every environment in every step of `hybrid` sampling, or all its
    tasks where it has fewer. If a step has too few prompts for that, the environments take
    turns."""
    curriculum: CurriculumSpec | None = None
    """Shift prompts to environments whose groups carry signal; null keeps the distribution."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the task generator and of the order of the training tasks."""

    @model_validator(mode="after")
    def _env_keys_are_unique(self) -> Self:
        if len(set(self.env_keys)) != len(self.env_keys):
            raise ValueError("env_keys names an environment twice: list each one once")
        if not self.env_keys and self.dataset is None:
            raise ValueError(
                "env_keys is missing: list the environments to draw tasks from, or set dataset to a"
                " registered one"
            )
        return self

    @model_validator(mode="after")
    def _generated_tasks_reach_every_environment(self) -> Self:
        if self.dataset is None:
            self.num_train_tasks()
        return self

    @model_validator(mode="after")
    def _only_errors_are_allowed(self) -> Self:
        unknown = [code for code in self.allow_lint if code not in BLOCKING_LINT]
        if unknown:
            raise ValueError(
                f"allow_lint names {unknown[0]!r}, which blocks no run: the codes that do are "
                + ", ".join(BLOCKING_LINT)
            )
        if self.allow_lint and self.dataset is None:
            raise ValueError(
                "allow_lint does nothing without a dataset: name one in dataset, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _generator_settings_are_read(self) -> Self:
        for key in GENERATOR_KEYS if self.dataset is not None else ():
            field = type(self).model_fields[key]
            if getattr(self, key) != field.get_default(call_default_factory=True):
                raise ValueError(
                    f"{key} is set, but the tasks come from dataset {self.dataset}, which has its"
                    f" own: leave {key} out, or set dataset to null"
                )
        return self

    @model_validator(mode="after")
    def _sampling_settings_are_read(self) -> Self:
        unknown = sorted(set(self.train_tasks_by_env) - set(self.env_keys))
        if unknown:
            raise ValueError(
                f"train_tasks_by_env names {unknown[0]!r}, which env_keys does not list: add it"
                " there or remove the entry"
            )
        if self.min_samples_per_env != 1 and self.sampling != "hybrid":
            raise ValueError(
                f"min_samples_per_env does nothing in {self.sampling} sampling: set sampling to"
                " hybrid or leave it out"
            )
        if self.curriculum is not None and len(self.env_keys) == 1:
            raise ValueError(
                "a curriculum shifts prompts between environments, and env_keys lists one: add"
                " another or set curriculum to null"
            )
        return self

    def num_train_tasks(self) -> dict[str, int]:
        """Return the number of training tasks that are generated for each environment."""
        counts = {
            key: self.train_tasks_by_env.get(key, self.train_tasks_per_env) for key in self.env_keys
        }
        return limited_counts(counts, self.max_tasks)

    def largest_step(self, tasks: Mapping[str, int]) -> int:
        """Return the largest number of prompts per step that these tasks can fill."""
        sizes = [number for number in tasks.values() if number]
        if self.sampling == "balanced" and self.curriculum is None:
            return min(sizes) * len(sizes)
        return sum(sizes)

    def check_step(self, prompts: int, tasks: Mapping[str, int]) -> None:
        """Refuse a number of prompts per step that the section's sampling cannot supply.

        `tasks` are the numbers of training tasks of the environments that have any.

        Raises:
            ValueError: a sentence that names what to change.
        """
        num_tasks = sum(tasks.values())
        if self.max_tasks is not None:
            prompts = min(prompts, self.largest_step(tasks))  # as `fit_schedule` will store it
        share = -(-prompts // len(tasks))
        generated = self.dataset is None
        smallest = min(tasks, key=lambda key: tasks[key])
        is_balanced = self.sampling == "balanced"
        if prompts < len(tasks) and is_balanced:
            raise ValueError(
                f"schedule.train_batch_size ({prompts}) is smaller than the number of environments"
                f" ({len(tasks)}): raise it, or set data.sampling to hybrid, in which they take"
                " turns"
            )
        if prompts > num_tasks:
            raise ValueError(
                f"schedule.train_batch_size ({prompts}) is larger than the number of training"
                f" tasks ({num_tasks}): lower it or "
                + ("raise data.train_tasks_per_env" if generated else "take a larger dataset")
            )
        if share > tasks[smallest] and is_balanced and self.curriculum is None:
            raise ValueError(
                f"{smallest} has fewer training tasks ({tasks[smallest]}) than its share of a step"
                f" ({share}): lower schedule.train_batch_size or set data.sampling to hybrid"
            )
        minimum = self.min_samples_per_env * len(tasks) if self.sampling == "hybrid" else 0
        if self.curriculum is not None and minimum >= prompts:
            raise ValueError(
                f"data.min_samples_per_env takes all prompts of a step ({minimum} of {prompts}),"
                " which leaves the curriculum nothing: lower it or raise schedule.train_batch_size"
            )


def limited_counts(counts: Mapping[str, int], max_tasks: int | None) -> dict[str, int]:
    """Return each environment's training tasks under a limit of their sum; null limits nothing.

    Every environment that has tasks keeps at least one; the others follow by largest remainder.

    Raises:
        ValueError: the limit is smaller than the number of environments that have tasks.
    """
    total = sum(counts.values())
    if max_tasks is None or total <= max_tasks:
        return dict(counts)
    with_tasks = [key for key, number in counts.items() if number]
    if max_tasks < len(with_tasks):
        raise ValueError(
            f"data.max_tasks ({max_tasks}) is smaller than the number of environments with training"
            f" tasks ({len(with_tasks)}): raise it, or name fewer environments in data.env_keys"
        )
    free = max_tasks - len(with_tasks)  # one task each is spoken for
    weights = {key: counts[key] - 1 for key in with_tasks}
    whole = sum(weights.values())
    parts = {key: free * weight // whole for key, weight in weights.items()}
    rest = sorted(weights, key=lambda key: (-(free * weights[key] % whole), key))
    for key in rest[: free - sum(parts.values())]:
        parts[key] += 1
    return {key: 1 + parts[key] if number else 0 for key, number in counts.items()}
