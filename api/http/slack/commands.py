"""The commands of `/hillclimb`: their names, usages and functions.

All functions but those of `link` and `help` ask their `PersonRequest` (`api.http.slack.call`) for
the reader or the writer, which checks the link and the rights of the person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from api.http.slack import acting, reading
from api.http.slack.arguments import closest, excerpt, split_words
from api.http.slack.call import InputRejected, PersonRequest
from api.http.slack.reply import SlackReply, of_blocks
from api.notices.slack.blocks import context, section

SLASH = "/hillclimb"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackCommand:
    """One command: its arguments, what it is for, and the function that carries it out."""

    usage: str
    about: str
    run: Callable[[PersonRequest, Sequence[str]], SlackReply]


def show_help(_: PersonRequest, words: Sequence[str]) -> SlackReply:
    """List the commands, or those that are named."""
    names = [_known(word) for word in words] or list(COMMANDS)
    lines = [
        f"`{f'{name} {COMMANDS[name].usage}'.strip()}` {COMMANDS[name].about}" for name in names
    ]
    small_print = (
        "RUN is an id, its beginning, a name, or `@last`. Changes are dotted keys of the spec:"
        " `optimizer.lr=1e-5`."
    )
    return of_blocks("Commands of /hillclimb", (section("\n".join(lines)), context(small_print)))


COMMANDS: Mapping[str, SlackCommand] = {
    "run": SlackCommand(
        usage="PRESET|RUN [KEY=VALUE…]",
        about="shows the plan and submits it on a click",
        run=acting.run,
    ),
    "plan": SlackCommand(
        usage="PRESET|RUN [KEY=VALUE…]", about="shows what a run would be and cost", run=acting.plan
    ),
    "status": SlackCommand(
        usage="[RUN]", about="shows progress, pass@1 and cost", run=reading.status
    ),
    "runs": SlackCommand(usage="[STATUS…]", about="lists the newest runs", run=reading.runs),
    "envs": SlackCommand(
        usage="[RUN]", about="shows pass@1 of every environment", run=reading.envs
    ),
    "signal": SlackCommand(
        usage="[RUN]", about="shows what training can learn where", run=reading.signal
    ),
    "compare": SlackCommand(
        usage="A[@STEP] [B[@STEP]]",
        about="compares two runs, or start and end",
        run=reading.compare,
    ),
    "fork": SlackCommand(
        usage="RUN[@STEP] [KEY=VALUE…]", about="starts a changed copy", run=acting.fork
    ),
    "pause": SlackCommand(usage="RUN", about="saves a checkpoint and waits", run=acting.pause),
    "resume": SlackCommand(usage="RUN", about="continues from the checkpoint", run=acting.resume),
    "cancel": SlackCommand(usage="RUN", about="saves a checkpoint and ends", run=acting.cancel),
    "cost": SlackCommand(usage="[RUN]", about="shows cost, budget, forecast", run=reading.cost),
    "watch": SlackCommand(
        usage="[RUN]", about="keeps a live message in this channel", run=acting.watch
    ),
    "changelog": SlackCommand(
        usage="[EXPERIMENT]", about="shows experiments with verdicts", run=reading.changelog
    ),
    "link": SlackCommand(
        usage="CODE", about="links you to an API key (`hillclimb slack link`)", run=acting.link
    ),
    "help": SlackCommand(usage="[COMMAND]", about="shows this", run=show_help),
}


def carry_out(request: PersonRequest, text: str) -> SlackReply:
    """Carry out `/hillclimb TEXT`; raises InputRejected and the errors of the domains."""
    words = split_words(text)
    if words and words[0] == SLASH:  # typed once more, or after a mention
        words = words[1:]
    return COMMANDS[_known(words[0]) if words else "help"].run(request, words[1:])


def _known(word: str) -> str:
    """Return the name of a command; raises InputRejected with the most similar one."""
    name = word.lower()
    if name not in COMMANDS:
        similar = closest(name, COMMANDS)
        raise InputRejected(
            f"There is no command {excerpt(word)}.{similar} `{SLASH} help` lists all."
        )
    return name
