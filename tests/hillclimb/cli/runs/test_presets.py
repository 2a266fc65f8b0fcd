"""`presets`, `submit --preset`, and what `plan` prints of machines."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from api.clusters import quotes
from api.runs.journal import utc_now
from hillclimb.cli.terminal.exits import Exit
from hillclimb.hardware.offers import Offer
from hillclimb.stack.system.poll import wait_until
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json

OWN = (
    *("--set", "data={env_keys: [booking]}"),
    *("--set", "environment.provider=minifleet"),
)
AT_ONCE = ("--wait-prices", "0")
RENTED = """
name: rented
experimental: true
backend: {type: skypilot, skypilot: {candidates: [
  {infra: runpod, accelerators: "H100:8"}, {infra: lambda, accelerators: "H100:8"}], num_nodes: 2}}
data: {env_keys: [booking]}
model: {source: s3://models/model}
schedule: {total_steps: 4, train_batch_size: 4, mini_batch_size: 2}
"""


def test_presets_are_listed_and_printed_as_yaml(hc: Invoke) -> None:
    assert "qwen3-8b-8xh100" in hc("presets").stdout
    printed = hc("presets", "qwen3-8b-8xh100").stdout
    assert printed.startswith("# Qwen3-8B at 65k context")
    assert yaml.safe_load(printed)["name"] == "qwen3-8b-8xh100"
    assert from_json(hc("presets", "qwen3-8b", "--json"))["spec"]["placement"]["learner_ranks"] == 2
    assert hc("presets", "nothing").exit_code == Exit.NOT_FOUND


def test_a_preset_is_submitted_with_keys_set(hc: Invoke) -> None:
    run = from_json(
        hc("submit", "--preset", "qwen3-8b-8xh100", *OWN, "--set", "optimizer.lr=5e-6", "--json")
    )
    assert run["name"] == "qwen3-8b-8xh100"
    assert run["spec"]["optimizer"]["lr"] == 5e-6
    assert run["spec"]["data"]["env_keys"] == ["booking"]


@pytest.mark.parametrize("arguments", [(), ("spec.yaml", "--preset", "qwen3-8b")])
def test_a_spec_or_a_preset_is_given(hc: Invoke, arguments: tuple[str, ...]) -> None:
    for verb in ("submit", "plan"):
        result = hc(verb, *arguments)
        assert result.exit_code == Exit.USAGE
        assert "give a SPEC, or --preset NAME" in result.stderr


def test_a_plan_prints_machines_arithmetic_and_costs(hc: Invoke) -> None:
    result = hc("plan", "--preset", "qwen3-8b-8xh100", *OWN, *AT_ONCE)
    assert result.exit_code == Exit.OK, result.stderr
    assert json.loads(result.stdout)["name"] == "qwen3-8b-8xh100"
    assert "H100:8 on lambda" in result.stderr
    assert "each layer's input, kept for recomputation" in result.stderr
    assert "what a cluster costs is unknown; it ends after" in result.stderr
    assert "Prices are being fetched: plan again in a few seconds." in result.stderr


def test_a_plan_waits_for_prices_that_the_worker_asks_for(hc: Invoke, story: Story) -> None:
    """The worker's part is done in a thread, as soon as the plan has asked."""

    def worker() -> None:
        def answered() -> bool:
            with story.database.transaction() as session:
                due = quotes.claim(session, now=utc_now(), limit=10)
                for key in due:
                    offer = Offer(candidate=0, infra="lambda/x", sku="gpu_8x", hourly_usd=23.92)
                    quotes.record(session, key, [offer], now=utc_now())
            return bool(due)

        assert wait_until(answered, deadline_s=20)

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(worker)
        result = hc("plan", "--preset", "qwen3-8b-8xh100", *OWN)
        work.result()
    assert "a cluster costs 23.92 USD an hour" in result.stderr
    assert "Prices by the clouds' catalogs, just now" in result.stderr


def test_a_run_that_cannot_fit_is_refused_with_the_arithmetic(hc: Invoke) -> None:
    result = hc(
        *("submit", "--preset", "qwen3-8b-8xh100", *OWN),
        *("--set", "engine.weight_transport=ipc", "--set", "engine.data_parallel_size=8"),
        *("--set", "placement.learner_ranks=8"),
    )
    assert result.exit_code == Exit.REFUSED
    assert "a rank of the learner needs" in result.stderr
    assert "It would fit with" in result.stderr


def test_a_model_of_ones_own_is_estimated_by_its_config(hc: Invoke, tmp_path: Path) -> None:
    spec, config = tmp_path / "spec.yaml", tmp_path / "config.json"
    spec.write_text(RENTED)
    unknown = hc("plan", str(spec), *AT_ONCE)
    assert "the shape of s3://models/model is only in its config" in unknown.stderr
    assert "runpod supports no clusters of several nodes" in unknown.stderr
    config.write_text(
        json.dumps(
            {
                "model_type": "qwen3",
                "num_hidden_layers": 4,
                "hidden_size": 256,
                "intermediate_size": 768,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 64,
                "vocab_size": 512,
                "tie_word_embeddings": True,
            }
        )
    )
    known = hc("plan", str(spec), "--model-config", str(config), *AT_ONCE)
    assert known.exit_code == Exit.OK, known.stderr
    assert "H100:8 on lambda: eligible" in known.stderr
    # The trainer's reference counts 3.28 million parameters of this shape.
    assert "model: 3.28e6 parameters" in known.stderr
    config.write_text('{"model_type": "gemma3"}')
    refused = hc("plan", str(spec), "--model-config", str(config), *AT_ONCE)
    assert refused.exit_code == Exit.USAGE
    assert (
        "only qwen3, qwen3_moe, qwen2, llama, qwen3_5_text, qwen3_5_moe_text are estimated"
        in refused.stderr
    )


def test_a_preset_is_found_by_its_old_name_and_moved_to_a_cloud(hc: Invoke) -> None:
    old = ("plan", "--preset", "openenv-fleet-grpo", "--cloud", "lambda", *OWN, *AT_ONCE)
    spec = json.loads(hc(*old).stdout)
    assert [each["infra"] for each in spec["backend"]["skypilot"]["candidates"]] == ["lambda"]
    assert spec["schedule"]["total_steps"] == 20 * 2000 // 4
    renamed = from_json(hc("presets", "openenv-fleet-grpo-qwen3-8b-8gpu", "--json"))
    assert renamed["name"] == "qwen3-8b-8xh100"
    refused = hc("plan", "--preset", "fleet-tinker-grpo", "--cloud", "lambda")
    assert (refused.exit_code, "rents machines" in refused.stderr) == (Exit.REFUSED, True)


def test_a_spec_of_ones_own_is_moved_to_a_cloud(hc: Invoke, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(RENTED)
    moved = hc("plan", str(spec), "--cloud", "lambda", *AT_ONCE)
    candidates = json.loads(moved.stdout)["backend"]["skypilot"]["candidates"]
    assert [each["infra"] for each in candidates] == ["lambda"]
    spec.write_text("name: here\ndata: {env_keys: [booking]}")
    refused = hc("plan", str(spec), "--cloud", "lambda")
    assert (refused.exit_code, "this spec has none" in refused.stderr) == (Exit.USAGE, True)
