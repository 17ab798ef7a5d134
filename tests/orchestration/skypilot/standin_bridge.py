"""A stand-in for the bridge: the same protocol over a small world kept in a file.

    python standin_bridge.py WORLD

WORLD is JSON: {"jobs": [row, ...], "faults": {...}, "requests": {id: status}, "posts": n}, and
{"ends": word} if each job that is looked at twice ends with that word; "documents" are kept there.
Faults, each used up once: refuse, die_before_post, die_after_post, lost_reply, no_row,
error_after_row of a launch; hang_queue, garbage, queue_error, empty_queue of a look. With
{"controller": [word, ...]} each look takes one word, and the queue answers only to the last one if
that is "up"; "wakes" counts the starts, and only after one is a word taken.
It behaves like bridge.py towards its observation file.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

world_path = Path(sys.argv[-1])
out_lock = threading.Lock()


class World:
    """The file, locked for as long as it is being changed."""

    def __enter__(self) -> dict[str, Any]:
        self.lock = open(world_path.with_suffix(".lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.value: dict[str, Any] = json.loads(world_path.read_text())
        return self.value

    def __exit__(self, *_: object) -> None:
        staged = world_path.with_suffix(".new")
        staged.write_text(json.dumps(self.value))
        staged.replace(world_path)
        self.lock.close()


def fault(name: str) -> Any:
    with World() as world:
        return world["faults"].pop(name, None)


def say(document: dict[str, Any]) -> None:
    with out_lock:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def row_of(job_id: int, name: str, task_id: int, task: str, **more: Any) -> dict[str, Any]:
    row = {
        "job_id": job_id,
        "task_id": task_id,
        "job_name": name,
        "task_name": task,
        "status": "PENDING",
        "schedule_state": "WAITING",
        "recovery_count": 0,
        "failure_reason": None,
        "details": None,
        "submitted_at": None,
        "start_at": None,
        "end_at": None,
        "cluster_name_on_cloud": None,
    }
    return row | more


class Rows:
    def __init__(self, path: str) -> None:
        self.file = open(path, "a")  # noqa: SIM115

    def add(self, row: str, **more: Any) -> None:
        self.file.write(json.dumps({"row": row, "at": time.time(), **more}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def launch(number: int, request: dict[str, Any]) -> None:
    name = request["name"]
    rows = Rows(request["observation"])
    refused = fault("refuse")
    if refused:
        rows.add("error", name=name, code=refused, type="ValueError", text_sha256="")
        raise Refused(refused)
    if fault("die_before_post"):
        os._exit(9)
    rows.add("posting", name=name)
    say({"id": number, "event": "posting"})
    with World() as world:
        world["posts"] += 1
        world.setdefault("documents", {})[name] = request["documents"]
        job_id = 1 + max((row["job_id"] for row in world["jobs"]), default=0)
        request_id = f"request-{job_id}"
        world["requests"][request_id] = "SUCCEEDED"
        tasks = [line[6:] for line in request["documents"].splitlines() if line[:6] == "name: "]
        if not world["faults"].get("no_row"):
            for i, task in enumerate(tasks[1:] or tasks):
                world["jobs"].append(row_of(job_id, name, i, task))
    if fault("die_after_post"):
        os._exit(9)
    if fault("lost_reply"):
        rows.add("error", name=name, code="unreachable", type="ConnectionError", text_sha256="")
        raise Refused("unreachable")
    rows.add("request", name=name, request_id=request_id)
    say({"id": number, "event": "accepted", "request_id": request_id})
    failed = fault("error_after_row") or fault("no_row")
    if failed:
        rows.add("error", name=name, code=failed, type="X", text_sha256="")
        raise Refused(failed)
    rows.add("result", name=name, job_ids=[job_id])
    say({"id": number, "ok": True, "value": {"request_id": request_id, "job_ids": [job_id]}})


class Refused(Exception):
    def __init__(self, code: str, controller: str = "") -> None:
        super().__init__(code)
        self.controller = controller


def answer(request: dict[str, Any]) -> None:
    number, op = request["id"], request["op"]
    try:
        if op == "launch":
            launch(number, request)
            return
        value = OPS[op](request)
        if value is not None:
            say({"id": number, "ok": True, "value": value})
    except Refused as error:
        told = {"code": str(error), "type": "Refused", "message": "as told", "status": 0}
        told["controller"] = error.controller
        say({"id": number, "ok": False, "error": told})


def queue(_request: dict[str, Any]) -> dict[str, Any] | None:
    if fault("hang_queue"):
        return None
    if fault("garbage"):
        with out_lock:
            sys.stdout.write("Traceback (most recent call last):\n")
            sys.stdout.flush()
        return None
    code = fault("queue_error")
    if code:
        raise Refused(code)
    with World() as world:
        words = world.get("controller", ["up"])
        if words[0] != "up":
            word = words[0]
            if world.get("wakes"):
                words.pop(0)
            raise Refused("controller_not_up", word.upper())
        jobs = world["jobs"]
        for row in jobs if world.get("ends") else ():
            row["looks"] = row.get("looks", 0) + 1
            if row["looks"] > 1 and row["schedule_state"] != "DONE":
                row["status"], row["schedule_state"] = world["ends"], "DONE"
        if world["faults"].pop("empty_queue", None):
            return {"rows": [], "total": 0}
        return {"rows": jobs, "total": len({row.get("job_id") for row in jobs})}


def wake(_request: dict[str, Any]) -> dict[str, Any]:
    with World() as world:
        world["wakes"] = world.get("wakes", 0) + 1
        request_id = f"wake-{world['wakes']}"
        world["requests"][request_id] = world.get("waking", "RUNNING")
    return {"request_id": request_id}


def cancel(request: dict[str, Any]) -> dict[str, Any]:
    with World() as world:
        world.setdefault("cancelled", []).extend(request["job_ids"])
        for row in world["jobs"]:
            if row["job_id"] in request["job_ids"]:
                row["status"], row["schedule_state"] = "CANCELLED", "DONE"
    return {"job_ids": request["job_ids"]}


def request_status(request: dict[str, Any]) -> dict[str, Any]:
    with World() as world:
        status = world["requests"].get(request["request_id"])
    if status is None:
        raise Refused("request_unknown")
    return {"status": status}


def follow(request: dict[str, Any]) -> dict[str, Any]:
    Path(request["path"]).write_text(f"log of job {request['job_id']}\n")
    return {"ended": True, "failed": False}


def check(_request: dict[str, Any]) -> dict[str, Any]:
    code = fault("check_error")
    if code:
        raise Refused(code)
    with World() as world:
        clouds = world.get("enabled", ["Slurm"])
    return {"enabled": {"default": {cloud: ["compute"] for cloud in clouds}}}


def gpus(request: dict[str, Any]) -> dict[str, Any]:
    code = fault("gpus_error")
    if code:
        raise Refused(code)
    with World() as world:
        world.setdefault("asked_gpus", []).append(request["infra"])
        return {"gpus": world.get("gpus", [])}


OPS = {
    "follow": follow,
    "hello": lambda _: {"version": fault("version") or "0.12.2"},
    "queue": queue,
    "wake": wake,
    "cancel": cancel,
    "request": request_status,
    "check": check,
    "gpus": gpus,
    "controller": lambda _: {"state": "absent"},
}

if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),)).start()
