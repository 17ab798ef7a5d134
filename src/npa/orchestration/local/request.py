"""What is handed to the shim, and what is written down about a job. Pure.

The request holds the environment with its secrets and travels through memory only; `job.json` holds
neither commands' environments nor any value of a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npa.orchestration.engine import Job, Task
from npa.orchestration.local import inventory, layout
from npa.orchestration.local.inventory import Inventory
from npa.orchestration.local.records import JobFile, JobTask

NAME_MAX = 200

Gpus = Sequence[Sequence[Sequence[int]]]
"""GPU indices by task and rank."""


def name_problem(name: str) -> str:
    """Why a name cannot be a job's folder; "" if it can."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        return f"{name!r} cannot be the name of a job's folder"
    if len(name.encode()) > NAME_MAX:
        return f"a job's name has at most {NAME_MAX} bytes"
    return ""


def problem(job: Job) -> str:
    """Why a job can be launched nowhere; "" if it can."""
    if text := name_problem(job.name):
        return text
    if not job.key or not job.tasks:
        return f"job `{job.name}` has no key or no task"
    for task in job.tasks:
        command = task.step.command
        if bool(command.argv) == bool(command.shell):
            return f"`{task.step.path}` needs exactly one of an argument list and shell text"
        names = [*task.env, *task.secrets, *(name for name, _ in task.step.env)]
        if bad := [name for name in names if not name or "=" in name or "\0" in name]:
            return f"`{task.step.path}` has an environment variable called {bad[0]!r}"
    return ""


def launcher_env(base: Mapping[str, str]) -> dict[str, str]:
    """All that an interpreter may need to start: where its shared library lies."""
    return {name: base[name] for name in ("LD_LIBRARY_PATH",) if name in base}


def job_file(job: Job, gpus: Gpus, host: str, boot: str, now: float, machine: Inventory) -> JobFile:
    tasks = []
    for task, indices in zip(job.tasks, gpus, strict=True):
        cpus, memory = inventory.demand(task.step.profile, machine)
        tasks.append(
            JobTask(
                task.step.path,
                len(indices),
                bool(task.step.command.setup),
                cpus,
                memory,
                tuple(tuple(rank) for rank in indices),
            )
        )
    return JobFile(job.name, job.key, host, boot, now, job.grace_seconds, tuple(tasks))


def body(
    job: Job, gpus: Gpus, folder: str, gpu_locks: str, base: Mapping[str, str]
) -> dict[str, object]:
    return {
        "gpu_locks": gpu_locks,
        "gpus": [index for task in gpus for rank in task for index in rank],
        "folder": folder,
        "workdir": job.workdir,
        "key": job.key,
        "grace": job.grace_seconds,
        "tasks": [_task(job, number, indices, base) for number, indices in enumerate(gpus)],
    }


def _task(
    job: Job, number: int, gpus: Sequence[Sequence[int]], base: Mapping[str, str]
) -> dict[str, object]:
    task = job.tasks[number]
    command = task.step.command
    return {
        "path": task.step.path,
        "argv": list(command.argv),
        "shell": command.shell,
        "setup": command.setup,
        "env": _environment(job, task, base),
        "ranks": [
            {"setup": _devices(rank), "run": _devices(rank) | _gang(job, number, place, len(gpus))}
            for place, rank in enumerate(gpus)
        ],
    }


def _environment(job: Job, task: Task, base: Mapping[str, str]) -> dict[str, str]:
    env = dict(base) | dict(task.step.env) | dict(task.env)
    env |= {name: secret.reveal() for name, secret in task.secrets.items()}
    env[layout.MARKER] = job.key  # how processes of this job are known again
    return env


def _devices(gpus: Sequence[int]) -> dict[str, str]:
    """CUDA is told to count as `nvidia-smi` does. No GPU asked: nothing is said."""
    if not gpus:
        return {}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
    }


def _gang(job: Job, number: int, rank: int, ranks: int) -> dict[str, str]:
    """What SkyPilot tells a task in `run`, and not in `setup`."""
    task_id = job.name if len(job.tasks) == 1 else f"{job.name}-{number}"
    return {
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * ranks),
        "SKYPILOT_NUM_NODES": str(ranks),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(job.tasks[number].step.profile.accelerator_count),
        "SKYPILOT_TASK_ID": task_id,
    }
