"""The files of a job's folder, read and written by the driver's side.

Reading raises OSError when it could not look and ValueError when the bytes are not what they
should be; only a missing file is None. So "could not see" never turns into "is not there".
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from npa.orchestration.local import layout
from npa.orchestration.local.procfs import Identity


class JobTask(Struct, frozen=True):
    """What a task asked for and got. `gpus` holds the indices of each rank."""

    path: str
    ranks: int
    setup: bool
    cpus: float
    memory_gib: float
    gpus: tuple[tuple[int, ...], ...] = ()


class JobFile(Struct, frozen=True):
    """`job.json`: enough to observe and account for a job that another driver launched."""

    name: str
    key: str
    host: str
    boot: str
    created: float
    grace: float
    tasks: tuple[JobTask, ...]

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "v": layout.VERSION,
                "name": self.name,
                "key": self.key,
                "host": self.host,
                "boot": self.boot,
                "created": self.created,
                "grace": self.grace,
                "tasks": [
                    {
                        "path": task.path,
                        "ranks": task.ranks,
                        "setup": task.setup,
                        "cpus": task.cpus,
                        "memory_gib": task.memory_gib,
                        "gpus": task.gpus,
                    }
                    for task in self.tasks
                ],
            }
        ).encode()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JobFile:
        try:
            tasks = tuple(
                JobTask(
                    str(one["path"]),
                    int(one["ranks"]),
                    bool(one["setup"]),
                    float(one["cpus"]),
                    float(one["memory_gib"]),
                    tuple(tuple(map(int, rank)) for rank in one["gpus"]),
                )
                for one in body["tasks"]
            )
            return cls(
                str(body["name"]),
                str(body["key"]),
                str(body["host"]),
                str(body["boot"]),
                float(body["created"]),
                float(body["grace"]),
                tasks,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{layout.JOB} is not a job: {error!r}") from error


class Claim(Struct, frozen=True):
    """Who took the job: a shim that runs it, or a driver that sealed it. `at` is epoch seconds."""

    kind: str
    who: Identity
    at: float


def read_json(path: str) -> dict[str, Any] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    chunks = []
    try:
        while chunk := os.read(fd, 1 << 16):
            chunks.append(chunk)
    finally:
        os.close(fd)
    body = json.loads(b"".join(chunks))
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")
    return body


def read_job(folder: str) -> JobFile | None:
    body = read_json(f"{folder}/{layout.JOB}")
    return None if body is None else JobFile.from_json(body)


def read_claim(folder: str) -> Claim | None:
    path = f"{folder}/{layout.CLAIM}"
    try:
        kind, who = layout.split_claim(os.readlink(path))
        return Claim(kind, Identity.parse(who), os.lstat(path).st_mtime)
    except FileNotFoundError:
        return None


def seal(folder: str, me: Identity) -> bool:
    """Take the claim so that no shim ever can; False if somebody has it already."""
    try:
        os.symlink(layout.claim_text(layout.SEAL, str(me)), f"{folder}/{layout.CLAIM}")
    except FileExistsError:
        return False
    return True


def write_job(folder: str, job: JobFile) -> None:
    write_new(f"{folder}/{layout.JOB}", job.to_json())


def write_new(path: str, data: bytes) -> None:
    """Create a file of our own (0600). FileExistsError if it is there already."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:])
    finally:
        os.close(fd)


def write_record(folder: str, body: Mapping[str, object]) -> None:
    """Make a record in the place of a shim that was lost. Whoever is first stays."""
    spare = f"{folder}/{layout.RECORD}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(spare)
    write_new(spare, json.dumps(body).encode())
    with contextlib.suppress(FileExistsError):
        os.link(spare, f"{folder}/{layout.RECORD}")
    os.unlink(spare)
