"""Steps one task of a Fleet platform by hand: actions come in as JSON lines, results go out.

    hillclimb fleet serve --port 8720 &
    hillclimb fleet tasks --env booking --split train -n 1 --out tasks.json
    export FLEET_BASE_URL=http://127.0.0.1:8720 FLEET_API_KEY=minifleet
    .venv-trainer/bin/python examples/fleet_task_env.py tasks.json

An action is {"tool": "search_hotels", "params": {...}}; {"done": true} or the end of the input
ends the episode. docs/environments.md explains the class.
"""

import json
import sys
from pathlib import Path

from trainer.envs.fleet.task_env import make_fleet_task_env


def main():
    task = json.loads(Path(sys.argv[1]).read_text())["tasks"][0]
    env = make_fleet_task_env(task, max_steps=20)
    try:
        observation = env.reset()
        print(observation["prompt"])
        print("tools:", ", ".join(tool["function"]["name"] for tool in observation["tools"]))
        for line in sys.stdin:
            observation, _, done, info = env.step(json.loads(line))
            print(info.get("tool_error") or json.dumps(observation["observation"]))
            if done:
                break
    finally:
        env.close()  # scores an episode that is not done, and deletes the instance
    print("reward:", env.final_reward)


if __name__ == "__main__":
    main()
