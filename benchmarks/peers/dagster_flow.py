"""Dagster: an op a step, in one process, events in the SQLite store of DAGSTER_HOME."""

import os
import subprocess
import sys

from dagster import DagsterInstance, In, Nothing, job, op

SHAPE, STEPS = os.environ["SHAPE"], int(os.environ["STEPS"])


def make(number, after):
    @op(name=f"s{number}", ins={"before": In(Nothing)} if after else {})
    def step():
        subprocess.run(["true"], check=True)

    return step


@job
def flow():
    last = None
    for number in range(STEPS):
        if SHAPE == "chain" and last is not None:
            last = make(number, True)(last)
        else:
            last = make(number, False)()


if __name__ == "__main__":
    sys.exit(0 if flow.execute_in_process(instance=DagsterInstance.get()).success else 1)
