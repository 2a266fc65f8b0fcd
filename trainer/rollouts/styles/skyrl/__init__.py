"""The prompt and the turn rules of SkyRL's Fleet environment, where they differ from our own.

Source: fleet-ai/SkyRL-Fleet `90062747`, `skyrl-gym/skyrl_gym/envs/fleet_task/env.py` and
`tool_call_parser.py`, and fleet-ai/OpenEnv `009c1ed`, `src/envs/fleet_env` (Apache-2.0 and BSD).
`tests/trainer/rollouts/styles/skyrl/record.py` runs them and records what they do.

Differences that remain: the date is the task's own where it has one (SkyRL: the machine's); an
environment that fails is an infra error and not a text for the policy; an episode ends with
`submit_final_answer`; numbers that JSON does not have, or of more than 18 digits, and values nested
deeper than 32 make a call unreadable.
"""
