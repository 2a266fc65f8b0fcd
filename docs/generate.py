"""Writes the reference pages from the code: spec, command line, routes, miniature apps.

    .venv/bin/python docs/generate.py

A test compares the pages with what this makes, so they cannot disagree with the code.
"""

from __future__ import annotations

import importlib
import json
import runpy
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from api.app import create_app
from api.http.document.pages import sections
from api.settings import Settings
from hillclimb.cli.commands import complete
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.imports.migration.skyrl_reasons import REASONS
from hillclimb.hardware.features import FEATURES
from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.presets import preset, presets
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.framework.app import App
from hillclimb.process.acceptance.targets import FACTS, TARGETS, versions_that_matter
from hillclimb.protocol.payloads.projects.acceptance import AcceptancePayload
from hillclimb.spec.documented import field_docstrings
from hillclimb.spec.monitoring.old_metrics import EVAL, OLD_METRICS
from hillclimb.spec.rules.old_names import HYDRA_KEYS, WORKFLOW_INPUTS, NewPlace
from hillclimb.spec.run import RunSpec

DOCS = Path(__file__).resolve().parent
_LAYOUTS = runpy.run_path(str(Path(__file__).parent / "layouts.py"))
long_contexts, rank_gib = _LAYOUTS["long_contexts"], _LAYOUTS["rank_gib"]
machine_and_share = _LAYOUTS["machine_and_share"]
ROOT = DOCS.parent
MADE = "<!-- made by docs/generate.py -->"
API_RULES = (
    "Every route of the service, with the rules that hold for all of them. The [Python"
    " client](client.md) has methods for what users call; [access.md](access.md) says who may do"
    " what.\n\n"
    "Send `Authorization: Bearer KEY`. Every error is `application/problem+json` (RFC 9457) "
    "with `code`, `request_id`, `retryable` and, for a bad spec, `errors` with JSON pointers. A "
    "POST with `Idempotency-Key` may be repeated. Lists page by `cursor`. The stream sends "
    "`id:` = the run's `seq`; reconnect with `Last-Event-ID` and nothing is lost. The OpenAPI "
    "document is at `/openapi.json`, and as a page at `/docs`."
)
INDEX_RULES = (
    "New here? [First run](first-run.md) takes you to a trained model on your own machine, the"
    " [tutorial](tutorial.md) from there to an improvement that an experiment confirms. Something"
    " is wrong? [Runbook](runbook.md). A word that you do not know? [Glossary](glossary.md)."
    " `make docs` builds these pages as a site with a search that needs no network"
    " (`build/docs/index.html`), and every service has them as Markdown, listed at `/llms.txt`."
    " For those who change the code: [ARCHITECTURE.md](../ARCHITECTURE.md),"
    " [CONTRIBUTING.md](../CONTRIBUTING.md)."
)


CLI_RULES = (
    "Every command of `hillclimb` with its options, as `--help` prints them. The order in which"
    " one needs them is in [first-run.md](first-run.md) and in the [tutorial](tutorial.md). Every"
    " command takes `--json`. Exit codes:"
)


def index_page() -> str:
    """Return the list of all pages, which GitHub shows below the folder."""
    lines = [MADE, "# Documentation", "", INDEX_RULES, ""]
    for section in sections():
        lines += [f"## {section.title}", "", section.about, ""]
        lines += [f"* [{each.title}]({each.name}.md): {each.about}" for each in section.pages]
        lines.append("")
    return "\n".join(lines)


def spec_page() -> str:
    """Return the reference of every key of a run spec."""
    lines = [
        MADE,
        "# Run spec",
        "",
        "Every key of a run spec, the body of `POST /v1/runs`, with its default and its meaning."
        " `hillclimb plan SPEC` prints a spec with all defaults filled in, and `hillclimb init`"
        " writes one to start from ([first-run.md](first-run.md)). Unknown keys are refused."
        " Lengths are in tokens, times in seconds (`_s`), shares in [0, 1]. The JSON Schema is"
        " served at"
        " `GET /v1/schemas/run-spec`.",
        "",
    ]
    lines += _section("", RunSpec)
    return "\n".join(lines)


def _section(path: str, model: type[BaseModel]) -> Iterator[str]:
    yield from (f"## `{path or 'top level'}`", "", _sentence(model.__doc__ or ""), "")
    yield from ("| key | default | meaning |", "|---|---|---|")
    nested: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        if inner is not None:
            nested.append((f"{path}.{name}" if path else name, inner))
        default = _default(field.get_default(call_default_factory=True))
        if inner is None and default == "see below":
            default = "`{}`"
        yield f"| `{name}` | {default} | {_cell(field_docstrings(model).get(name))} |"
    yield ""
    for inner_path, inner in nested:
        yield from _section(inner_path, inner)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section inside `X`, `X | None`, `tuple[X, ...]` or `dict[str, X]`, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, dict, Union, types.UnionType):
        found = (_model_in(part) for part in get_args(annotation))
        return next((model for model in found if model is not None), None)
    return None


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel) or value == {}:
        return "see below"
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        value = [item.model_dump(mode="json") for item in value]
    return f"`{json.dumps(value)}`"


def cli_page() -> str:
    """Return the reference of the command line."""
    lines = [MADE, "# Command line", "", CLI_RULES, ""]
    lines += ["| code | name | meaning |", "|---|---|---|"]
    meanings = {
        Exit.OK: "done; of a run that was waited for: it succeeded",
        Exit.ERROR: "an error that none of the others names",
        Exit.USAGE: "wrong arguments, or a spec file that cannot be read",
        Exit.RUN_FAILED: "the run that was waited for failed",
        Exit.RUN_CANCELLED: "the run that was waited for was cancelled",
        Exit.UNREACHABLE: "the service does not respond, or none is configured",
        Exit.REFUSED: "the service refused: bad spec, wrong state, missing right",
        Exit.NOT_FOUND: "the run, checkpoint, rollout or environment does not exist",
        Exit.RUN_PAUSED: "the run that was waited for is paused, until somebody resumes it",
        Exit.NOTHING_LEARNED: "the training run that was waited for succeeded, but no step could"
        " change its policy; its last line says why",
        Exit.INTERRUPTED: "Ctrl-C; the watched run continues",
    }
    lines += [f"| {code.value} | {code.name.lower()} | {meanings[code]} |" for code in Exit]
    for name, command in _commands("hillclimb", complete()):
        # As under the group: click remembers the help option that it made first.
        context = click.Context(
            command, info_name=name, terminal_width=88, **complete().context_settings
        )
        lines += ["", f"## `{name}`", "", "```", command.get_help(context), "```"]
    return "\n".join(lines) + "\n"


def _commands(prefix: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with its words."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(f"{prefix} {name}", command)
        else:
            yield f"{prefix} {name}", command


def api_page() -> str:
    """Return the list of routes and error codes."""
    document = create_app(_settings()).openapi()
    lines = [MADE, "# API", "", API_RULES, ""]
    lines += ["| method | path | what |", "|---|---|---|"]
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            lines.append(f"| {method.upper()} | `{path}` | {_cell(operation.get('summary'))} |")
    return "\n".join(lines) + "\n"


def settings_table() -> Iterator[str]:
    """Return the environment variables of api and worker."""
    yield from ("| variable | default | meaning |", "|---|---|---|")
    for field in Settings.model_fields.values():
        default = field.get_default(call_default_factory=True)
        shown = "required" if default is PydanticUndefined else f"`{default}`"
        yield f"| `{field.alias}` | {shown} | {_cell(field.description)} |"


def deploy_page() -> str:
    """Return the deployment page: what a person wrote, then the table of variables."""
    path = DOCS / "deploy.md"
    written, _, _ = path.read_text().partition(MADE)
    return "\n".join([written.rstrip("\n"), "", MADE, "", *settings_table()]) + "\n"


def readme() -> str:
    """Return the README with its tables made anew: planted habits, figures of `make bench`."""
    text = (ROOT / "README.md").read_text()
    text = _between(text, "habits", list(_habits()))
    return _between(text, "bench", list(_bench()))


def apps_page() -> str:
    """Return the page of the miniature apps: what a person wrote, then every app."""
    path = DOCS / "minifleet.md"
    written, _, _ = path.read_text().partition(MADE)
    lines = [written.rstrip("\n"), "", MADE, ""]
    lines += ["| app | tools | templates | of them held out | difficulty 1, 2, 3 |"]
    lines += ["|---|---|---|---|---|"]
    for app in APPS.values():
        counts = Counter(each.difficulty for each in app.templates)
        held_out = sum(each.held_out for each in app.templates)
        shares = ", ".join(str(counts[level]) for level in (1, 2, 3))
        cells = (f"[{app.key}](#{app.key})", len(app.tools), len(app.templates), held_out, shares)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for app in APPS.values():
        lines += ["", *_app(app)]
    return "\n".join(lines) + "\n"


def _app(app: App) -> Iterator[str]:
    """Yield what an app's own code says of its entities, rules, tools and requests."""
    tools = importlib.import_module(f"hillclimb.minifleet.apps.{app.key}.tools")
    about = [_sentence(part) for part in (tools.__doc__ or "").split("\n\n")]
    yield from (f"## {app.key}", "", about[0], "", *about[1:], "")
    yield from ("| tool | arguments | what it does |", "|---|---|---|")
    for each in app.tools:
        properties, required = each.spec.parameters["properties"], each.spec.parameters["required"]
        names = [name if name in required else f"[{name}]" for name in properties]
        does = (each.run.__doc__ or "").split("\n\n")[0]
        yield f"| `{each.spec.name}` | {', '.join(names)} | {_cell(does)} |"
    yield from ("", "| template | difficulty | for example |", "|---|---|---|")
    for template in app.templates:
        name = f"`{template.name}`, held out" if template.held_out else f"`{template.name}`"
        yield f"| {name} | {template.difficulty} | {_cell(template.wordings[0])} |"


def _between(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([before + begin, *lines, end + after])


def _habits() -> Iterator[str]:
    card = json.loads((ROOT / "assets" / "tiny-qwen3-a" / "CARD.json").read_text())
    yield from ("| app | what the warm start was taught |", "|---|---|")
    for env, habit in card["habits_in_words"].items():
        yield f"| {env} | {habit.replace('<done>', '`<done>`')} |"


def _bench() -> Iterator[str]:
    path = ROOT / "benchmarks" / "results" / "learning.json"
    if not path.exists():
        yield "(`make bench` was not run on this version yet.)"
        return
    results = json.loads(path.read_text())
    yield from (
        "| run | decoding | n | before | after | p (paired) | training |",
        "|---|---|---|---|---|---|---|",
    )
    for result in results["results"]:
        for decoding in ("sampled", "greedy"):
            row = result[decoding]
            p_value = "< 0.001" if row["p_value"] < 0.001 else f"{row['p_value']:.3f}"
            yield (
                f"| {result['name']} | {decoding} | {row['n']} | {100 * row['before']:.1f} %"
                f" | {100 * row['after']:.1f} % | {p_value}"
                f" | {result['training_seconds']:.0f} s |"
            )


def clusters_page() -> str:
    """Return the page of clusters with its tables and its refusal made anew."""
    text = (DOCS / "clusters.md").read_text()
    text = _between(text, "features", list(_features()))
    text = _between(text, "refused", list(_refused()))
    text = _between(text, "long", list(long_contexts()))
    return _between(text, "presets", list(_presets()))


def _features() -> Iterator[str]:
    said = {True: "yes", False: "no", None: "the cluster decides"}
    yield (
        "| `infra` begins with | several nodes | ends itself when idle | spot | Docker image"
        " | disk of any size |"
    )
    yield "|---|---|---|---|---|---|"
    for cloud, has in FEATURES.items():
        name = f"`{cloud}`, `k8s`" if cloud == "kubernetes" else f"`{cloud}`"
        values = (has.multi_node, has.autodown, has.spot, has.image, has.custom_disk)
        yield f"| {name} | {' | '.join(said[value] for value in values)} |"


def _refused() -> Iterator[str]:
    """Yield the refusal of the preset at 65k on four H100 that engines and learner share."""
    yield "```text"
    spec = preset("qwen3-8b-8xh100").spec
    spec["backend"]["skypilot"]["candidates"] = [{"infra": "lambda", "accelerators": "H100:4"}]
    spec["engine"] |= {
        "weight_transport": "ipc",
        "data_parallel_size": 4,
        "gpu_memory_utilization": 0.7,
    }
    spec["placement"]["learner_ranks"] = 4
    plan = hardware_plan(RunSpec.model_validate(spec))
    assert plan is not None
    assert plan.refusal is not None
    yield from plan.refusal.splitlines()
    yield "```"


def migrating_page() -> str:
    """Return the page of migration with its tables made from the code."""
    text = (DOCS / "migrating.md").read_text()
    text = _between(text, "inputs", list(_old_names("input", WORKFLOW_INPUTS)))
    text = _between(text, "overrides", list(_old_names("override", HYDRA_KEYS)))
    reasons = ("| setting | why it has no place |", "|---|---|")
    rows = [f"| `{key}` | {_cell(reason)} |" for key, reason in REASONS.items()]
    return _between(text, "reasons", [*reasons, *rows])


def sinks_page() -> str:
    """Return the page of sinks with its table of old names made from the code."""
    return _between((DOCS / "sinks.md").read_text(), "old names", list(_old_metrics()))


def verified_page() -> str:
    """Return the page of verified paths with the evidence that is part of the repository."""
    return _between((DOCS / "verified.md").read_text(), "evidence", list(_evidence()))


def _evidence() -> Iterator[str]:
    """Yield a table of the files in `docs/verified/`: lists of evidence as the command prints."""
    rows = [
        AcceptancePayload.model_validate(each)
        for path in sorted((DOCS / "verified").glob("*.json"))
        for each in json.loads(path.read_text())["data"]
    ]
    if not rows:
        yield "There is none yet."
        return
    yield from ("| target | of | lifts there | seen | versions |", "|---|---|---|---|---|")
    for row in rows:
        seen = "; ".join(f"{each.name}: {each.seen}" for each in row.observations)
        versions = ", ".join(f"{name} {number}" for name, number in sorted(row.versions.items()))
        cells = (row.target, row.subject, ", ".join(row.paths) or "–", seen, versions)
        yield "| " + " | ".join(_cell(each) for each in cells) + " |"


def accept_page() -> str:
    """Return the page of acceptance with its table of targets made from the code."""
    return _between((DOCS / "accept.md").read_text(), "targets", list(_targets()))


def _targets() -> Iterator[str]:
    yield from (
        "| target | checks | needs | costs | lifts | void when one changes |",
        "|---|---|---|---|---|---|",
    )
    for name in TARGETS:
        facts = FACTS[name]
        cells = (
            f"`{name}`",
            f"{facts.about} ({', '.join(facts.checks)})",
            facts.needs,
            "; ".join([facts.cost, *(f"{check}: {text}" for check, text in facts.bounds.items())]),
            ", ".join(facts.lifts) or "nothing: recorded",
            ", ".join(versions_that_matter(name)),
        )
        yield "| " + " | ".join(_cell(each) for each in cells) + " |"


def _old_metrics() -> Iterator[str]:
    yield from ("| old name | name of today | |", "|---|---|---|")
    same = [each for each in OLD_METRICS if each.ours == each.old]
    for each in OLD_METRICS:
        if each.ours is None:
            yield f"| `{each.old}` | none | {_cell(each.note)} |"
        elif each.ours != each.old:
            yield f"| `{each.old}` | `{_in_wandb(each.ours)}` | {_cell(each.note)} |"
        elif each.old.startswith(EVAL):
            yield f"| `{each.old}` | `{_in_wandb(each.old)}` | {_cell(each.note)} |"
    kept = [each for each in same if not each.old.startswith(EVAL)]
    names = [f"`{each.old}`" + (f" ({each.note})" if each.note else "") for each in kept]
    yield from ("", f"Runs have these under the name they had: {', '.join(names)}.")


def _in_wandb(name: str) -> str:
    return f"eval_{{decoding}}/{name.removeprefix(EVAL)}" if name.startswith(EVAL) else name


def _old_names(kind: str, places: Mapping[str, NewPlace]) -> Iterator[str]:
    yield from (f"| old {kind} | key of a spec |", "|---|---|")
    for name, place in places.items():
        yield f"| `{name}` | {', '.join(f'`{key}`' for key in place.keys)} |"


def _presets() -> Iterator[str]:
    yield "| preset | what for | machines, and how busy on paper | a rank needs |"
    yield "|---|---|---|---|"
    for each in presets().values():
        about = _cell(each.about) + "".join(f"; also `{name}`" for name in each.aliases)
        plan = hardware_plan(RunSpec.model_validate(each.spec))
        if plan is None:
            yield f"| `{each.name}` | {about} | none: a Tinker server | – |"
            continue
        machines = ", ".join(dict.fromkeys(map(machine_and_share, plan.candidates)))
        first = plan.candidates[0].estimate
        assert first is not None
        yield f"| `{each.name}` | {about} | {machines} | {rank_gib(first)} |"


def _settings() -> Settings:
    """Values that let the application describe itself; nothing connects to them."""
    return Settings.model_validate(
        {
            "DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1/none",
            "REDIS_URL": "redis://127.0.0.1/0",
            "HILLCLIMB_BLOBS_URL": "blobs",
            "HILLCLIMB_SECRET_KEY": "docs",
        }
    )


def trainer_benchmarks() -> str:
    """Return the page of the trainer's benchmarks with its figures made anew."""
    folder = ROOT / "benchmarks" / "trainer"
    text, figures = (folder / "README.md").read_text(), runpy.run_path(str(folder / "figures.py"))
    return _between(text, "figures", list(figures["trainer_figures"]()))


def environment_benchmarks() -> str:
    """Return the page of the environments' benchmarks with its figures made anew."""
    folder = ROOT / "benchmarks" / "envs"
    text, figures = (folder / "README.md").read_text(), runpy.run_path(str(folder / "figures.py"))
    return _between(text, "figures", list(figures["environment_figures"]()))


def cluster_benchmarks() -> str:
    """Return the page of the clusters' benchmarks with its figures made anew."""
    folder = ROOT / "benchmarks" / "clusters"
    text, figures = (folder / "README.md").read_text(), runpy.run_path(str(folder / "figures.py"))
    return _between(text, "figures", list(figures["cluster_figures"]()))


def pages() -> dict[Path, str]:
    """Return every page by its path."""
    return {
        DOCS / "README.md": index_page(),
        DOCS / "spec.md": spec_page(),
        DOCS / "cli.md": cli_page(),
        DOCS / "api.md": api_page(),
        DOCS / "deploy.md": deploy_page(),
        DOCS / "minifleet.md": apps_page(),
        DOCS / "clusters.md": clusters_page(),
        DOCS / "migrating.md": migrating_page(),
        DOCS / "sinks.md": sinks_page(),
        DOCS / "accept.md": accept_page(),
        DOCS / "verified.md": verified_page(),
        ROOT / "README.md": readme(),
        ROOT / "benchmarks" / "trainer" / "README.md": trainer_benchmarks(),
        ROOT / "benchmarks" / "envs" / "README.md": environment_benchmarks(),
        ROOT / "benchmarks" / "clusters" / "README.md": cluster_benchmarks(),
    }


def _cell(text: str | None) -> str:
    return _sentence(text or "").replace("|", "\\|")


def _sentence(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(content)
    sections.cache_clear()  # the index has the first sentences of what was just written
    (DOCS / "README.md").write_text(index_page())
