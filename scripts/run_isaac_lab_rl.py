"""Run an Isaac Lab reinforcement-learning pipeline from the worktree that NPA_LIVE_WT names.

NPA_LIVE_WT=$PWD .venv/bin/python scripts/run_isaac_lab_rl.py --spec my/rl.yaml --task NAME
"""

from __future__ import annotations

import sys

from live_runner import Flag, Runner, main

RUNNER = Runner(
    name="run_isaac_lab_rl",
    summary="Run an Isaac Lab RL pipeline and print one JSON summary.",
    flags=(
        Flag("--bucket", "bucket", "the bucket of the run"),
        Flag("--task", "task_name", "the Isaac Lab task"),
        Flag("--num-envs", "num_envs", "environments that are simulated at once"),
        Flag("--iterations", "iterations", "training iterations"),
    ),
    secrets=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
)

if __name__ == "__main__":
    sys.exit(main(RUNNER))
