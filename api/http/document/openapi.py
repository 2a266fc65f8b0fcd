"""The OpenAPI document: FastAPI's, plus the bodies that routes parse themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.admission.annotations import RunAnnotation, VersionAnnotation
from api.admission.campaigns.request import CampaignSpec
from api.admission.experiments.request import (
    AddedRun,
    ExperimentEdit,
    ExperimentSpec,
    SweepSpec,
)
from api.admission.lineage.fork import ForkRequest
from api.admission.refusals.acceptance.request import ServiceChecksSpec
from api.datasets.request import VersionRequest
from api.http.document.edges import document_edges
from api.http.payloads.problem_headers import HEADERS
from api.http.problems import ProblemBody
from api.notices.webhooks.request import SecretRotation, WebhookChanges, WebhookSpec
from api.results.issues.request import IssueChanges, IssueResolution, IssueSpec
from api.tables.access.secrets.request import SecretValue
from hillclimb.process.acceptance.evidence import AcceptanceEvidence
from hillclimb.process.acceptance.targets import FACTS
from hillclimb.protocol.events import IngestBatch
from hillclimb.spec.rules.project_defaults import ProjectDefaults
from hillclimb.spec.run import RunSpec

REF_TEMPLATE = "#/components/schemas/{model}"
EXAMPLES: dict[str, dict[str, Any]] = {
    "RunSpec": {
        "summary": "Train the built-in model on two environments",
        "value": {
            "name": "first climb",
            "data": {"env_keys": ["booking", "github"]},
            "schedule": {"total_steps": 20, "train_batch_size": 20, "mini_batch_size": 10},
            "eval": {"interval": 10},
        },
    },
    "CampaignSpec": {
        "summary": "Two models, three times each",
        "value": {
            "name": "tiny models",
            "base": {
                "name": "base",
                "data": {"env_keys": ["booking", "github"], "eval_tasks_per_env": 30},
            },
            "models": [
                {"name": "a", "source": "builtin:tiny-qwen3-a"},
                {"name": "b", "source": "builtin:tiny-qwen3-b"},
            ],
            "decodings": [{"name": "sampled", "temperature": 1.0}],
            "repeats": 3,
        },
    },
    "IssueSpec": {
        "summary": "A failure pattern, before and after",
        "value": {
            "title": "Cannot signal done",
            "severity": "critical",
            "impact": "infinite loops",
            "symptom": "cannot_signal_done",
            "env_key": "booking",
            "baseline": "run_06dzk3m8v5q2w9x4t7r1c0n6ab@0",
            "after": "run_06dzk3m8v5q2w9x4t7r1c0n6ab@80",
        },
    },
    "IssueChanges": {
        "summary": "Name the evaluation after",
        "value": {"after": "run_06dzk3m8v5q2w9x4t7r1c0n6ab@80"},
    },
    "IssueResolution": {"summary": "Close it", "value": {"resolution": "prompt v0.2"}},
    "RunAnnotation": {
        "summary": "Tag a run, and link its pull request",
        "value": {
            "add_tags": ["v0.2.4"],
            "links": {"pr": "https://github.com/thefleet/skyrl/pull/12"},
            "note": "First run with the larger learning rate.",
        },
    },
    "VersionAnnotation": {"summary": "Note", "value": {"note": "Without the flaky tasks."}},
    "ForkRequest": {
        "summary": "Train on from step 20 with a larger learning rate",
        "value": {
            "step": 20,
            "changes": {"optimizer.lr": 5e-4, "schedule.total_steps": 60},
        },
    },
    "ExperimentSpec": {
        "summary": "A larger learning rate",
        "value": {
            "key": "v0.2.4",
            "title": "larger learning rate",
            "hypothesis": "The learning rate is too conservative.",
            "changes": [{"key": "optimizer.lr", "rationale": "no PPO clipping was seen"}],
            "watch": ["eval/all/pass_at_1 >= +0.05", "signal_ratio > 0.25"],
        },
    },
    "ExperimentEdit": {
        "summary": "What comes next",
        "value": {"next_steps": ["Increase the learning rate again"]},
    },
    "AddedRun": {
        "summary": "A baseline",
        "value": {"run_id": "run_06dzk3m8v5q2w9x4t7r1c0n6ab", "role": "baseline"},
    },
    "SweepSpec": {
        "summary": "Two learning rates with three seeds each",
        "value": {
            "base": {"name": "base", "data": {"env_keys": ["booking", "github"]}},
            "over": [{"key": "optimizer.lr", "values": [1e-4, 5e-4]}],
            "seeds": [0, 1, 2],
        },
    },
    "AcceptanceEvidence": {
        "summary": "An instance of Fleet was created, called, verified and deleted",
        "value": {
            "target": "fleet",
            "subject": "https://orchestrator.fleetai.com",
            "paths": ["fleet"],
            "versions": {"hillclimb": "0.1.0"},
            "observations": [
                {"name": name, "seen": "as it should be", "seconds": 0.5}
                for name in FACTS["fleet"].checks
            ],
        },
    },
    "ServiceChecksSpec": {"summary": "A channel to post to", "value": {"channel": "#training"}},
    "SecretValue": {"summary": "A platform's key", "value": {"value": "the-key-of-the-platform"}},
    "WebhookSpec": {
        "summary": "Ends and evaluations",
        "value": {
            "url": "https://example.com/hook",
            "events": ["run.status_changed", "eval.completed"],
        },
    },
    "WebhookChanges": {"summary": "Enable it again", "value": {"enabled": True}},
    "SecretRotation": {"summary": "Both secrets for a day", "value": {"grace_hours": 24}},
    "ProjectDefaults": {
        "summary": "A channel, W&B by backend, and keys",
        "value": {
            "slack_channel": "#training",
            "wandb": {"mode": "offline", "entity": "team"},
            "secrets": {"FLEET_API_KEY": "fleet-prod", "WANDB_API_KEY": "wandb-tool-use"},
            "cases": [{"backend": "tinker", "wandb": {"project": "tinker-runs"}}],
        },
    },
    "IngestBatch": {
        "summary": "A phase starts",
        "value": {
            "events": [
                {
                    "type": "phase.started",
                    "schema_version": 1,
                    "trainer_seq": 2,
                    "at": "2026-01-02T03:04:05Z",
                    "step": 0,
                    "phase": "eval",
                    "decoding": "sampled",
                    "num_rollouts": 300,
                }
            ]
        },
    },
}


def json_body(model: str, *, required: bool = True) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that reads this model from the raw body."""
    media = {
        "schema": {"$ref": REF_TEMPLATE.format(model=model)},
        "examples": {"example": EXAMPLES[model]},
    }
    return {"requestBody": {"required": required, "content": {"application/json": media}}}


TASK_LINES = "".join(
    f'{{"task_key": "book-{number}", "prompt": "Book a room.", "env_key": "booking"}}\n'
    for number in range(20)
)
"""A file of tasks, as JSON lines."""


def upload_body() -> dict[str, Any]:
    """Return the `openapi_extra` of the route that takes a file of tasks."""
    schema = {"type": "string", "format": "binary"}
    options = {"$ref": REF_TEMPLATE.format(model="VersionRequest")}
    parts = {"tasks": schema, "options": options}
    form = {"type": "object", "properties": parts, "additionalProperties": False}
    content = {
        "application/json": {"schema": schema},
        "application/x-ndjson": {"schema": schema, "example": TASK_LINES},
        "application/gzip": {"schema": schema},
        "multipart/form-data": {"schema": form, "example": {"tasks": TASK_LINES}},
    }
    return {"requestBody": {"required": False, "content": content}}


def file_body(media_type: str, *, example: str | None = None) -> dict[str, Any]:
    """Return the `openapi_extra` of a route whose body is one file."""
    media: dict[str, Any] = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
    media |= {} if example is None else {"example": example}
    return {"requestBody": {"required": True, "content": {media_type: media}}}


def install(app: FastAPI) -> None:
    """Make `app.openapi()` build the full document, once."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    _, extra = models_json_schema(
        [
            (RunSpec, "validation"),
            (IngestBatch, "validation"),
            (CampaignSpec, "validation"),
            (ForkRequest, "validation"),
            (RunAnnotation, "validation"),
            (VersionAnnotation, "validation"),
            (ExperimentSpec, "validation"),
            (ExperimentEdit, "validation"),
            (AddedRun, "validation"),
            (SweepSpec, "validation"),
            (VersionRequest, "validation"),
            (IssueSpec, "validation"),
            (IssueChanges, "validation"),
            (IssueResolution, "validation"),
            (AcceptanceEvidence, "validation"),
            (ServiceChecksSpec, "validation"),
            (SecretValue, "validation"),
            (ProjectDefaults, "validation"),
            (WebhookSpec, "validation"),
            (WebhookChanges, "validation"),
            (SecretRotation, "validation"),
            (ProblemBody, "serialization"),
        ],
        ref_template=REF_TEMPLATE,
    )
    document_edges(document)
    components = document.setdefault("components", {})
    components["headers"] = dict(HEADERS)
    schemas = components.setdefault("schemas", {})
    for name, schema in extra["$defs"].items():
        schemas.setdefault(name, schema)
    return document
