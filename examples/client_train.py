"""Submits a spec, follows its events to the end, and prints the verdict of each environment.

    hillclimb up &
    .venv/bin/python examples/client_train.py examples/booking.yaml schedule.total_steps=5

The client finds an embedded stack by itself; elsewhere set HILLCLIMB_API_URL and HILLCLIMB_API_KEY.
docs/client.md explains it. The exit code is 0 where the run succeeded.
"""

import sys
from pathlib import Path

from hillclimb.client.client import Client
from hillclimb.client.connection import find_connection
from hillclimb.client.errors import ApiProblem, HillclimbError
from hillclimb.client.spec_file import read_spec


def main(path, *assignments):
    spec = read_spec(Path(path), assignments)
    with Client(find_connection()) as client:
        try:
            run = client.submit(spec)
        except ApiProblem as problem:  # a refusal: each sentence names the key to change
            sys.exit("\n".join(problem.sentences()))
        print(f"{client.url}/runs/{run.id}")
        for event in client.follow(run.id):  # reconnects; no event is lost or repeated
            print(event.seq, event.type)
        run = client.run(run.id)
        print(run.name, run.status)
        if len(client.evals(run.id).data) > 1:
            print_verdicts(client.report(run.id))
    return 0 if run.status == "succeeded" else 1


def print_verdicts(report):
    print(f"step {report.before_step} -> {report.after_step}")
    for environment, decodings in report.environments.items():
        for decoding, row in decodings.items():
            print(
                f"{environment} ({decoding}): {percent(row.before)} -> {percent(row.after)},"
                f" n={row.n}, {row.verdict.upper()}"
            )


def percent(rate):
    return "no grades" if rate is None else f"{rate:.1%}"


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except HillclimbError as error:
        sys.exit(str(error))
