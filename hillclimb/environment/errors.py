"""Errors of one rollout, named by the boundary crossed.

RolloutError                 one rollout failed for reasons that are not the policy's
├── EnvUnavailable           the environment did not start or does not answer
├── NoPrompt                 neither the task nor its environment has a prompt
├── PromptTooLong            with the tools of this instance, longer than the input limit
├── PromptDiffers            another prompt than most rollouts of the group got
├── EnvAtCapacity            no environment is to be had for now: no fault, the rollout waits
├── EngineRestarted          the engine died and restarts: the rollout waits and starts over
├── ToolTransport            a tool call got no response (an error text is a response)
├── VerifierUnavailable      the grade could not be computed
├── SampleUnusable           a server sampled tokens without log-probs
└── RolloutDeadline          the environment, not the policy, used up the trajectory's time

`trainer/rollouts/worker.py` catches a RolloutError and records it as data. Where most ungraded
rollouts failed for a reason that the spec can fix (NoPrompt, PromptTooLong, PromptDiffers), the run
ends with a SpecError instead of an EnvironmentOutage (`trainer/rollouts/groups/outage.py`).
"""

from __future__ import annotations

from hillclimb.environment.sanitize import sanitize_unicode


class RolloutError(Exception):
    """One rollout failed for a reason that is not the policy's; `code` is stored with it.

    `is_permanent`: the same request would be refused again, as with an unknown key (401), so the
    rollout is not tried again.
    """

    code = "rollout_failed"

    def __init__(self, message: str = "", *, is_permanent: bool = False) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent

    def __str__(self) -> str:
        """Return the message; it may quote a server and must be valid Unicode to be stored."""
        return sanitize_unicode(super().__str__())


class EnvUnavailable(RolloutError):
    """The environment did not start, or stopped responding."""

    code = "env_unavailable"


class NoPrompt(RolloutError):
    """The task has no prompt, and the reset of its environment returned none."""

    code = "no_prompt"


class PromptTooLong(RolloutError):
    """The prompt, with the tools and words of the environment, is longer than the input limit."""

    code = "prompt_too_long"


class PromptDiffers(RolloutError):
    """The environment's tools or prompt differ from those of most rollouts of the group.

    Never raised: it is detected once all of them have ended
    (`trainer/rollouts/groups/prompt_consistency.py`).
    """

    code = "prompt_differs"


class EnvAtCapacity(RolloutError):
    """The limit of environments is reached, or the platform asks to wait: the rollout waits."""

    code = "env_at_capacity"


class EngineRestarted(RolloutError):
    """The inference engine died and restarts: no fault of policy or environment."""

    code = "engine_restarted"


class ToolTransport(RolloutError):
    """A tool call got no response; an error text is a response."""

    code = "tool_transport"


class VerifierUnavailable(RolloutError):
    """The grade could not be computed: the rollout is ungraded, which is not a zero."""

    code = "verifier_unavailable"


class SampleUnusable(RolloutError):
    """A remote engine returned a sample without data that training needs, such as log-probs."""

    code = "sample_unusable"


class RolloutDeadline(RolloutError):
    """The environment used up the trajectory's time."""

    code = "env_deadline"
