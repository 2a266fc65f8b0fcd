"""Takes the pictures of the dashboard in docs/images, from the product as it runs.

    make screenshots
    PYTHONPATH=.:.playwright .venv/bin/python -m docs.screenshots [--keep FOLDER] [NAME ...]

Starts a stack of its own, trains `examples/demo.yaml` and a fork of it, and opens the pages in
Chromium (`tests/e2e/browser/install.sh`). `--keep` leaves the stack's state in a folder: the next
call with it goes on from what is there, and makes no run twice. The picture of the run under way
is taken only while the demo trains.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from tests.e2e.browser.chromium import DESKTOP, PHONE, launched, new_context, sign_in
from tests.e2e.browser.stack import OwnStack, started

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
DEMO_S = 3600.0
FORK = "demo at four times the rate"
HALF_WAY = 11
COLOURS = 256
"""More than a page has, its smoothed letters aside; a third of the bytes."""
UNDER_WAY = "run-page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A page, as wide and as high as it is shown."""

    path: str
    window: tuple[int, int] = DESKTOP
    theme: str = "light"
    scale: float = 1.0
    press: str = ""
    """A summary to unfold before the picture is taken."""


PICTURES: Mapping[str, Picture] = {
    UNDER_WAY: Picture(path="/runs/{demo}", window=(1280, 860)),
    "runs-page": Picture(path="/", window=(1280, 620)),
    "run-page-actions": Picture(path="/runs/{demo}", press="Fork"),
    "run-page-dark": Picture(path="/runs/{demo}", theme="dark"),
    "run-page-phone": Picture(path="/runs/{demo}", window=PHONE, scale=1.5),
    "rollout-page": Picture(path="/runs/{demo}/rollouts/{rollout}"),
    "tokens-page": Picture(path="/runs/{demo}/tokens/{trained}"),
    "submit-page": Picture(path="/submit", window=(1280, 860)),
    "compare-page": Picture(path="/compare?a={demo}@10&b={fork}@10"),
    "experiment-page": Picture(path="/experiments/v0.2.4"),
    "keys-page": Picture(path="/admin/keys", window=(1280, 700)),
    "keys-page-dark": Picture(path="/admin/keys", window=(1280, 700), theme="dark"),
}


def demo_spec() -> dict[str, Any]:
    """Return the spec of the demo, in one process: two of them share this machine."""
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    return spec | {"engine": {"type": "torch"}, "placement": {"type": "inline"}}


def existing(stack: OwnStack, name: str) -> str | None:
    """Return the id of the run with this name; None where there is none."""
    found = [run for run in stack.get("/runs?limit=100")["data"] if run["name"] == name]
    return str(found[0]["id"]) if found else None


def submit(stack: OwnStack, spec: Mapping[str, Any]) -> str:
    """Return the id of the run with the spec's name, submitted unless it is there."""
    return existing(stack, str(spec["name"])) or str(stack.post("/runs", spec)["id"])


def begin(stack: OwnStack) -> dict[str, str]:
    """Submit all runs of the pictures; return their ids."""
    demo = submit(stack, demo_spec())
    fork = existing(stack, FORK)
    if fork is None:
        changes = {"optimizer.lr": 1e-3, "schedule.total_steps": 10}
        answer = stack.post(f"/runs/{demo}/fork", {"name": FORK, "changes": changes})
        fork = str(answer["id"])
    stuck = submit(stack, small_spec("too hard", ["ticketmaster"]))
    apps = ["booking", "github"]
    preview = submit(stack, small_spec("prompts of two apps", apps, kind="preview"))
    return {"demo": demo, "fork": fork, "stuck": stuck, "preview": preview}


def finish(stack: OwnStack, runs: Mapping[str, str]) -> dict[str, str]:
    """Wait for the runs and write about them; return the values of all paths."""
    stack.until_ended(*runs.values(), deadline_s=DEMO_S)
    if not stack.get("/experiments")["data"]:
        stack.experiment("v0.2.4", runs["demo"], runs["fork"])
        people(stack)
    failed = f"/runs/{runs['demo']}/trajectories?split=eval&env=booking&failed=true"
    longest = max(stack.get(failed)["data"], key=lambda each: each["num_tool_calls"])
    # The learner scores the tokens of training rollouts alone.
    learned = f"/runs/{runs['demo']}/trajectories?split=train&env=booking&failed=false"
    trained = stack.get(learned)["data"][0]
    return {**runs, "rollout": longest["rollout_id"], "trained": trained["rollout_id"]}


def small_spec(name: str, env_keys: list[str], **sections: Any) -> dict[str, Any]:
    """Return the spec of a run that takes a minute."""
    data = {"env_keys": env_keys, "eval_tasks_per_env": 20}
    schedule = {"total_steps": 3, "train_batch_size": 8, "mini_batch_size": 8}
    process = {"engine": {"type": "torch"}, "placement": {"type": "inline"}}
    return {"name": name, "data": data, "schedule": schedule, **process, **sections}


def people(stack: OwnStack) -> None:
    """Add a member, and keys of a service and of that member."""
    stack.put("/members/ada@example.org", {"role": "member"})
    stack.post("/keys", {"name": "ci", "scopes": ["runs:read", "runs:write"]})
    mine = {"name": "ada-laptop", "scopes": ["runs:read"], "owner": "ada@example.org"}
    stack.post("/keys", mine)


def take(stack: OwnStack, browser: Any, name: str, values: Mapping[str, str]) -> None:
    """Write a picture to `docs/images`."""
    picture = PICTURES[name]
    context = new_context(
        browser,
        url=stack.url,
        window=picture.window,
        theme=picture.theme,
        scale=picture.scale,
    )
    page = context.new_page()
    sign_in(page, stack.key)
    page.goto(picture.path.format(**values))
    if name == UNDER_WAY:
        page.wait_for_timeout(2000)  # its stream never leaves the network idle
    else:
        page.wait_for_load_state("networkidle")
    if picture.press:
        page.locator("summary").filter(has_text=picture.press).first.click()
    page.mouse.move(0, 0)
    file = IMAGES / f"{name}.png"
    page.screenshot(path=file, animations="disabled")
    context.close()
    with Image.open(file) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{name}: {file.stat().st_size / 1000:.0f} kB", flush=True)


def main() -> int:
    """Train, fill, and take the pictures that are named, all by default."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], metavar="NAME")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    names = options.names or list(PICTURES)
    with tempfile.TemporaryDirectory(prefix="hillclimb-screens-") as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(exist_ok=True)
        with started(folder) as stack, launched() as browser:
            is_new = existing(stack, "demo") is None
            runs = begin(stack)
            if is_new and UNDER_WAY in names:
                stack.until_step(runs["demo"], HALF_WAY, deadline_s=DEMO_S)
                take(stack, browser, UNDER_WAY, runs)
            values = finish(stack, runs)
            for name in names:
                if name != UNDER_WAY:
                    take(stack, browser, name, values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
