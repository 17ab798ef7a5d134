"""Prefect: a task a step, two threads, its own temporary server in PREFECT_HOME."""

import os
import subprocess

from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

SHAPE, STEPS = os.environ["SHAPE"], int(os.environ["STEPS"])


@task
def step(number, before=None):  # noqa: ARG001 - orders the chain
    subprocess.run(["true"], check=True)
    return number


@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def everything():
    if SHAPE == "chain":
        last = None
        for number in range(STEPS):
            last = step(number, last)
    else:
        for future in [step.submit(number) for number in range(STEPS)]:
            future.result()


if __name__ == "__main__":
    everything()
