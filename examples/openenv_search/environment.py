"""A search environment for any trainer that speaks OpenEnv; docs/environments.md explains it."""

from corpus import Library, matches
from fastmcp import FastMCP
from openenv.core import env_server


class Question(env_server.Observation):
    prompt: str


class SearchEnvironment(env_server.MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = env_server.State()
    _step_impl = None  # there are no actions beside the tools

    def __init__(self):
        super().__init__(FastMCP("search", tools=[self.search, self.open, self.answer]))

    def reset(self, seed=0, split="train", **_):
        self.library, self.reward, self.done = Library.of(split), 0.0, False
        self.question = self.library.question(seed)
        return Question(prompt=self.question.text, reward=0.0)

    def search(self, query: str) -> str:
        """Find pages by words: their ids and titles."""
        return self.library.search(query)

    def open(self, page_id: str) -> str:
        """Read a page."""
        return self.library.read(page_id)

    def answer(self, text: str) -> str:
        """Give the final answer."""
        self.reward, self.done = float(matches(text, self.question.answer)), True
        return "noted"

    async def step_async(self, action, timeout_s=None, **_):
        seen = await super().step_async(action, timeout_s)
        seen.reward, seen.done = self.reward, self.done
        return seen


app = env_server.create_app(
    SearchEnvironment, env_server.CallToolAction, env_server.CallToolObservation, "search", 64
)
