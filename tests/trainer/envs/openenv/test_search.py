"""The example of the how-to, by a real OpenEnv server: scripted agents, and a run of training."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import yaml

from hillclimb.blobs.disk import DiskStore
from hillclimb.environment.base import EnvProvider
from hillclimb.environment.task import Task
from hillclimb.protocol.events import EvalCompleted, StepCompleted, TrainerStarted
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.spec.run import RunSpec
from tests.trainer.envs.openenv.servers import ROOT, Served
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.inputs.tasks.test_dataset import register
from tests.trainer.jobs.preview.test_preview import Previewed
from trainer.envs.choose import choose_provider
from trainer.envs.openenv.env import OpenEnvEpisode
from trainer.inputs.tasks.dataset import dataset_tasks
from trainer.inputs.tasks.seeded import seeded_eval_tasks, seeded_train_tasks

EXAMPLE = ROOT / "examples" / "search.yaml"
FILE = ROOT / "examples" / "openenv_search" / "environment.py"


def example(url: str) -> RunSpec:
    body = yaml.safe_load(EXAMPLE.read_text())
    body["environment"]["openenv"]["search"]["url"] = url
    return RunSpec.model_validate(body)


async def says(episode: OpenEnvEpisode, name: str, **arguments: str) -> str:
    return (await episode.call(name, arguments)).text


async def find(episode: OpenEnvEpisode, title: str) -> str:
    """Open the page of a title, as an agent does: search, then the page's id."""
    hits = await says(episode, "search", query=title)
    (page_id,) = re.findall(rf"^(p\d+): {title}$", hits, re.M)
    return await says(episode, "open", page_id=page_id)


def one(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text)
    return str(found)


async def solve(episode: OpenEnvEpisode) -> tuple[str, int]:
    """The answer to the episode's question and the number of pages it took."""
    question = episode.prompt
    firm = one(r"(\w+ Works)", question)
    page = await find(episode, firm)
    place, pages = one(r"founded in (\w+)", page), 1
    if "born" in question:
        founder = one(r"by (Ada \w+)", page)
        place, pages = one(r"born in (\w+)", await find(episode, founder)), 2
    if "river" in question:
        return one(r"the river (\w+)", await find(episode, place)), pages + 1
    return place, pages


async def answered(provider: EnvProvider, task: Task, text: str) -> float | None:
    """Grade of an agent that answers at once."""
    episode = provider.make(task)
    tools = await episode.reset()
    assert [tool.name for tool in tools] == ["search", "open", "answer"]
    ended = await episode.call("answer", {"text": text})
    assert (ended.text, ended.ends_episode) == ("noted", True)
    grade = await episode.score()
    await episode.close()
    return grade.score


async def test_a_perfect_agent_gets_1_and_a_wrong_one_0(search: Served) -> None:
    spec = example(search.url)
    provider = choose_provider(spec)
    for task in (*seeded_train_tasks(spec)[:5], *seeded_eval_tasks(spec)[:5]):
        episode = provider.make(task)
        assert isinstance(episode, OpenEnvEpisode)
        await episode.reset()
        answer, num_pages = await solve(episode)
        assert num_pages >= 2
        await episode.call("answer", {"text": answer})
        assert (await episode.score()).score == 1.0
        await episode.close()
        assert await answered(provider, task, f"  {answer.upper()}. ") == 1.0
        assert await answered(provider, task, "Atlantis") == 0.0


async def test_an_agent_that_stops_without_an_answer_gets_0(search: Served) -> None:
    spec = example(search.url)
    episode = choose_provider(spec).make(seeded_train_tasks(spec)[0])
    await episode.reset()
    assert (await episode.score()).score == 0.0
    await episode.close()


async def test_what_a_tool_refuses_is_told_to_the_model(search: Served) -> None:
    spec = example(search.url)
    episode = choose_provider(spec).make(seeded_train_tasks(spec)[0])
    await episode.reset()
    assert (await episode.call("open", {"page_id": "p-1"})).text == "no page p-1"
    assert (await episode.call("delete", {})).is_error
    wrong = await episode.call("open", {"page": "p1"})
    assert wrong.is_error
    assert "page_id" in wrong.text
    assert (await episode.call("open", {"page_id": "p1"})).is_error is False
    await episode.close()


def library(split: str) -> Any:
    found = spec_from_file_location("corpus", FILE.with_name("corpus.py"))
    assert found is not None
    assert found.loader is not None
    corpus = module_from_spec(found)
    sys.modules["corpus"] = corpus
    found.loader.exec_module(corpus)
    return corpus.Library.of(split)


def names(texts: list[str]) -> set[str]:
    words = set(re.findall(r"\b[A-Z][a-z]+\b", " ".join(texts)))
    return words - {"Ada", "Works", "Where", "On"}


def test_train_and_eval_share_no_name_and_every_seed_has_its_own_question() -> None:
    seen: dict[str, set[str]] = {}
    for split in ("train", "eval"):
        made = library(split)
        texts = [f"{each.text} {each.answer}" for each in made.questions]
        pages = [f"{page.title} {page.text}" for page in made.pages.values()]
        seen[split] = names([*texts, *pages])
        assert len(texts) == len({made.question(seed).text for seed in range(900)}) == 900
    assert min(map(len, seen.values())) > 600
    assert seen["train"].isdisjoint(seen["eval"])


def test_train_and_eval_share_no_seed() -> None:
    spec = example("http://127.0.0.1:1")
    keys = [task.key for task in (*seeded_train_tasks(spec), *seeded_eval_tasks(spec))]
    assert len(set(keys)) == 960
    first = seeded_eval_tasks(spec)[0]
    assert first.payload == {"metadata": {"reset": {"split": "eval", "seed": 1_000_000}}}


async def test_the_rows_of_a_dataset_say_which_episode_is_theirs(
    search: Served, tmp_path: Path
) -> None:
    row = {
        "key": "firm-7",
        "env_key": "search",
        "prompt": "Find out what the library knows.",
        "metadata": {"reset": {"split": "eval", "seed": 7}},
    }
    store = DiskStore(tmp_path)
    reference = register(store, [row], {"firm-7": "train"})
    (task,) = dataset_tasks(store, reference, ("search",), "openenv").train
    assert (task.key, task.prompt) == ("firm-7", row["prompt"])
    right = library("eval").question(7).answer
    assert await answered(choose_provider(example(search.url)), task, right) == 1.0


async def test_a_preview_asks_the_server_for_the_words_of_some_tasks(
    search: Served, tmp_path: Path
) -> None:
    run = Previewed(
        tmp_path,
        data={"env_keys": ["search"], "train_tasks_per_env": 62, "eval_tasks_per_env": 2},
        environment={
            "provider": "openenv",
            "openenv": {"search": {"url": search.url, "eval_reset": {"split": "eval"}}},
        },
        preview={"tasks_per_env": 0, "task_keys": ["search/eval/1000001"]},
    )
    await run.preview(choose_provider(run.spec))
    assert run.told().environments["search"].num_tasks == 17
    (text,) = run.texts()
    assert text.task == library("eval").question(1_000_001).text
    assert text.task in text.text


async def test_a_short_training_run_is_made_of_it(search: Served, tmp_path: Path) -> None:
    run = ShortRun(
        tmp_path,
        data={"env_keys": ["search"], "train_tasks_per_env": 8, "eval_tasks_per_env": 2},
        environment={
            "provider": "openenv",
            "openenv": {"search": {"url": search.url, "eval_reset": {"split": "eval"}}},
        },
        schedule={"total_steps": 2, "train_batch_size": 2, "mini_batch_size": 2},
        eval={"interval": 0},
    )
    await run.train(provider=choose_provider(run.spec))
    (started,) = run.events(TrainerStarted)
    assert (started.num_train_tasks, started.num_eval_tasks) == (8, 2)
    steps, evals = run.events(StepCompleted), run.events(EvalCompleted)
    assert [step.step for step in steps] == [1, 2]
    rows = [row for each in (*steps, *evals) for row in each.outcomes]
    assert {row.status for row in rows} == {OutcomeStatus.GRADED}
    assert {row.task_key.split("/")[1] for row in rows} == {"train", "eval"}
