"""Split policies: settings that divide a version's tasks into train and eval, with presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from hillclimb.datasets.format.rows import Modality
from hillclimb.datasets.split.strata import StratumField
from hillclimb.spec.section import EnvKey, Section, Share
from hillclimb.stats.power import MIN_CHANGED

HeldOut = dict[Modality, tuple[EnvKey, ...]]


class RankPolicy(Section):
    """Exact sizes: in each environment the tasks of lowest salted rank are the eval tasks."""

    policy: Literal["rank"] = "rank"
    eval_ratio: Share = 0.1
    """Share of an environment's tasks that are eval tasks (rounded down)."""
    min_eval_per_env: Annotated[int, Field(ge=0, le=10_000)] = 5
    """An environment whose share is smaller than this has no eval tasks: all are training tasks,
    except those taken by `min_eval_total`."""
    min_eval_total: Annotated[int, Field(ge=0, le=10_000)] = MIN_CHANGED
    """Minimum number of eval tasks of all environments together: if the shares give fewer,
    environments take turns until it is reached, each giving at most half of its tasks. If that does
    not suffice, or `eval_ratio` is 0, the shares stay as they are. With fewer than the default no
    change can be significant."""
    max_eval_per_env: Annotated[int, Field(ge=0, le=10_000)] | None = 60
    """Limit of eval tasks per environment; held-out environments are exempt."""
    max_eval_total: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Limit of eval tasks of all environments, which take turns until it is reached. The remaining
    ones become training tasks, except tasks of held-out environments and eval tasks of earlier
    versions, which are excluded. Lint reports environments left with fewer than
    `min_eval_per_env`."""
    max_train_per_env: Annotated[int, Field(ge=1)] | None = None
    """Limit of training tasks per environment; the others are excluded."""
    max_train_total: Annotated[int, Field(ge=1)] | None = None
    """Limit of training tasks of all environments, which take turns; the others are excluded."""
    max_env_train_share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Limit of an environment's share of the training tasks; tasks above it are excluded. It has no
    effect if only one environment has training tasks."""
    held_out_envs: HeldOut = Field(default_factory=dict)
    """Environments used for evaluation only, by modality."""
    stratify_by: tuple[StratumField, ...] = ()
    """Give each kind of task its share of an environment's eval tasks: by `difficulty`, by
    `task_modality`, or by both together. Sizes stay as they are."""
    salt: Annotated[int, Field(ge=0)] = 0
    """Salt of the ranks: another number selects other eval tasks."""
    trained_may_become_eval: bool = False
    """Select eval tasks also from those that an earlier version trained on."""


PRESETS: Mapping[str, Mapping[str, object]] = {
    "first": {
        "eval_ratio": 0.02,
        "max_eval_per_env": None,
        "max_eval_total": None,
        "max_env_train_share": None,
        "held_out_envs": {"tool_use": ("outlook",), "computer_use": ("instacart",)},
        "historic_exclusions": False,
    },
    "v0.3": {
        "eval_ratio": 0.1,
        "max_eval_per_env": 30,
        "max_eval_total": 50,
        "keep_eval_per_env": 0,
        "max_env_train_share": None,
        "historic_exclusions": False,
    },
    "v1": {"max_eval_total": 60, "keep_eval_per_env": 4},
    "v2": {},
}
"""The constants of the historic script at four times, where they are not the defaults."""


class Md5ThresholdPolicy(Section):
    """The historic script's rule: eval where the MD5 of the key lies below a threshold.

    Sizes come out at random around the target, and growing data moves tasks; versions with a
    parent therefore keep the parent's eval tasks, whatever the rule says. `rank` is the better one.
    """

    policy: Literal["md5_threshold"] = "md5_threshold"
    preset: Literal["first", "v0.3", "v1", "v2"] | None = None
    """The script's constants at one time, for the settings left out; null is the newest, v2."""
    eval_ratio: Share = 0.2
    """Share of an environment's tasks that the threshold aims at."""
    min_eval_per_env: Annotated[int, Field(ge=0, le=10_000)] = 5
    """MIN_EVAL_SAMPLES: with a smaller target all tasks are for training."""
    max_eval_per_env: Annotated[int, Field(ge=0, le=10_000)] | None = 20
    """MAX_EVAL_SAMPLES: largest target of one environment."""
    max_eval_total: Annotated[int, Field(ge=1, le=100_000)] | None = 96
    """MAX_EVAL_PROMPTS: above it eval tasks are excluded, highest hash first, the environments
    taking turns; `keep_eval_per_env` of each stay even so."""
    keep_eval_per_env: Annotated[int, Field(ge=0, le=10_000)] = 8
    """Eval tasks of lowest hash that every environment keeps under `max_eval_total`."""
    max_env_train_share: Annotated[float, Field(gt=0.0, le=1.0)] | None = 0.2
    """MAX_ENV_TRAIN_RATIO: share of the training tasks, counted before it is applied, above which
    an environment's tasks are excluded, highest hash first. Historic, also where one environment
    is alone: it keeps a fifth of its tasks then; null leaves all in."""
    held_out_envs: HeldOut = Field(default_factory=dict)
    """Environments used for evaluation only, by modality."""
    historic_exclusions: bool = True
    """Leave out what the script leaves out by name: the environment dropbox (EXCLUDED_ENVS) and 21
    tasks of zillow (TASKS_MISSING_CURRENT_DATE)."""
    trained_may_become_eval: bool = False
    """Select eval tasks also from those that an earlier version trained on."""

    @model_validator(mode="before")
    @classmethod
    def _preset_fills_in(cls, values: object) -> object:
        if not isinstance(values, dict) or not isinstance(values.get("preset"), str):
            return values
        return {**PRESETS.get(values["preset"], {}), **values}


class PublishedPolicy(Section):
    """A split that was published: each task goes where the table says."""

    policy: Literal["published"] = "published"
    splits: dict[str, Literal["train", "eval"]]
    """Where each task belongs, by key. Tasks it does not name are excluded."""
    trained_may_become_eval: bool = False
    """Select eval tasks also from those that an earlier version trained on."""


SplitPolicy = Annotated[
    RankPolicy | Md5ThresholdPolicy | PublishedPolicy, Field(discriminator="policy")
]
