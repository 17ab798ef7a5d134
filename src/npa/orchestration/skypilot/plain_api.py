"""Plain questions to an API server of SkyPilot 0.12.2, by the standard library alone.

Importing `sky` takes longer than the server takes to answer, and a look needs nothing of it. This
file is read by SkyPilot's interpreter beside bridge.py, so it imports nothing of npa either.

An answer is taken only if it is the whole answer of the right server to this very question. All
else is `Odd`, with a code; a request that failed in the server is `Failed`, with its payload, which
only `sky` can decode. Neither says anything of the jobs.
"""

from __future__ import annotations

import getpass
import http.client
import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

VERSION = "0.12.2"
API_VERSION = "49"  # sky/server/constants.py of that release
CONNECT_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
REQUEST_ID = re.compile(r"[0-9a-f-]{8,64}", re.IGNORECASE)
QUEUE_FIELDS = (
    "job_id",
    "task_id",
    "job_name",
    "task_name",
    "status",
    "schedule_state",
    "recovery_count",
    "failure_reason",
    "details",
    "submitted_at",
    "start_at",
    "end_at",
    "last_recovered_at",
    "is_job_group",
    "is_primary_in_job_group",
    "user_hash",
    "cluster_name_on_cloud",
    "infra",
)


class Odd(Exception):
    """No answer, or none that can be believed. `code` is one of the bridge's."""

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class Failed(Exception):
    """The request was worked off and failed. `payload` holds its pickled exception."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(str(payload.get("name", "")))
        self.payload = payload


class PlainApi:
    """`endpoint` is `http://127.0.0.1:PORT`. Each call ends within its `seconds`."""

    def __init__(self, endpoint: str, user_id: str) -> None:
        self._host = endpoint.removeprefix("http://").rstrip("/")
        self._user_id = user_id

    def queue(self, seconds: float) -> dict[str, Any]:
        """Every job of this user: `rows` of QUEUE_FIELDS, one a task, and how many jobs."""
        deadline = time.monotonic() + seconds
        request_id = self._post_queue(deadline, refresh=False)
        return _queue(self._value(request_id, "sky.jobs.queue_v2", deadline))

    def wake(self, seconds: float) -> str:
        """Have a stopped jobs controller started again; returns the request, without its end."""
        return self._post_queue(time.monotonic() + seconds, refresh=True)

    def request(self, request_id: str, seconds: float) -> str:
        """How a request of the server stands, in the server's word."""
        query = f"/api/status?request_ids={quote(request_id)}&all_status=true"
        status, body, _ = self._exchange("GET", query, None, time.monotonic() + seconds)
        if status != 200:
            raise Odd("http", f"HTTP {status}", status)
        found = _json(body)
        if not isinstance(found, list):
            raise Odd("schema", f"/api/status answered a {type(found).__name__}")
        if not found:
            raise Odd("request_unknown", "the server does not know that request", 404)
        one = found[0]
        if len(found) > 1 or not isinstance(one, dict) or one.get("request_id") != request_id:
            raise Odd("schema", "/api/status answered for another request")
        if not isinstance(one.get("status"), str):
            raise Odd("schema", "/api/status answered without a status")
        return str(one["status"])

    # -- inside --------------------------------------------------------------------------------

    def _post_queue(self, deadline: float, *, refresh: bool) -> str:
        body = {
            "refresh": refresh,
            "skip_finished": False,
            "all_users": False,
            "fields": list(QUEUE_FIELDS),
            "env_vars": {"SKYPILOT_USER_ID": self._user_id, "SKYPILOT_USER": getpass.getuser()},
        }
        status, _, headers = self._exchange("POST", "/jobs/queue/v2", body, deadline)
        if status == 503:
            raise Odd("busy", "the server is busy", 503)
        if status != 200:
            raise Odd("http", f"HTTP {status}", status)
        request_id = headers.get("x-skypilot-request-id", "")
        if not REQUEST_ID.fullmatch(request_id):
            raise Odd("schema", "the server named no request")
        return request_id

    def _value(self, request_id: str, name: str, deadline: float) -> Any:
        """What the request returned, once it has ended. Raises Odd and Failed."""
        status, body, _ = self._exchange("GET", f"/api/get?request_id={request_id}", None, deadline)
        if status == 404:
            raise Odd("request_unknown", "the server does not know the request", 404)
        if status == 503:
            raise Odd("busy", "the server is busy", 503)
        if status not in (200, 500):
            raise Odd("http", f"HTTP {status}", status)
        document = _json(body)
        payload = document
        if status == 500:
            payload = document.get("detail") if isinstance(document, dict) else None
            if not isinstance(payload, dict):
                raise Odd("http", "HTTP 500", 500)
        if not isinstance(payload, dict):
            raise Odd("schema", f"/api/get answered a {type(payload).__name__}")
        if (payload.get("request_id"), payload.get("name")) != (request_id, name):
            raise Odd("schema", "/api/get answered for another request")
        if status == 500:
            raise Failed(payload)
        if payload.get("status") == "CANCELLED":
            raise Odd("interrupted", "the request was cancelled")
        if payload.get("status") != "SUCCEEDED" or payload.get("error") not in ("null", None):
            raise Odd("schema", f"a request that is {payload.get('status')!r} gave an answer")
        if not isinstance(payload.get("return_value"), str):
            raise Odd("schema", "/api/get answered without a value")
        return _json(payload["return_value"])

    def _exchange(
        self, method: str, path: str, body: object, deadline: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """One request on a connection of its own: never sent twice, never followed elsewhere."""
        connection = http.client.HTTPConnection(self._host, timeout=CONNECT_SECONDS_MAX)
        try:
            connection.connect()
            connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
            headers = {"X-SkyPilot-API-Version": API_VERSION, "X-SkyPilot-Version": VERSION}
            data = None
            if body is not None:
                data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
            connection.request(method, path, data, headers)
            with connection.getresponse() as reply:
                answer = reply.read(ANSWER_BYTES_MAX)
                if reply.length:  # of what was announced, still to come
                    raise Odd("schema", "the answer was cut short")
                named = {name.lower(): value for name, value in reply.getheaders()}
        except OSError as error:  # refused, reset, closed without a word, too slow
            raise Odd("unreachable", f"{type(error).__name__} at {method} {path[:40]}") from error
        except (http.client.HTTPException, ValueError) as error:
            raise Odd("schema", f"no HTTP answer: {type(error).__name__}") from error
        finally:
            connection.close()
        _same_version(named, reply.status)
        return reply.status, answer, named


def _same_version(headers: Mapping[str, str], status: int) -> None:
    said = (headers.get("x-skypilot-version"), headers.get("x-skypilot-api-version"))
    if said == (None, None):
        if status >= 500:  # a server that fails leaves them out
            raise Odd("http", f"HTTP {status}", status)
        raise Odd("schema", "what answered is no API server of SkyPilot")
    if said != (VERSION, API_VERSION):
        raise Odd("version", f"the server is SkyPilot {said[0]}, API {said[1]}, not {VERSION}")


def _json(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Odd("schema", "the answer is not JSON") from error


def _queue(value: Any) -> dict[str, Any]:
    """The rows, if all of them are there in a known shape."""
    jobs = value.get("jobs") if isinstance(value, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise Odd("schema", "the queue has no list of jobs")
    total = value.get("total")
    rows = [_row(job) for job in jobs]
    if type(total) is not int or len({row["job_id"] for row in rows}) != total:
        raise Odd("schema", f"{len(rows)} rows where the queue counts {total!r} jobs")
    counts = value.get("status_counts")  # of tasks by status
    numbers: list[Any] = list(counts.values()) if isinstance(counts, dict) else [None]
    if any(type(number) is not int for number in numbers) or sum(numbers) != len(rows):
        raise Odd("schema", f"{len(rows)} rows where the queue counts {counts!r}"[:200])
    return {"rows": rows, "total": total}


def _row(job: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in QUEUE_FIELDS if name not in job]
    if missing:
        raise Odd("schema", f"a row without {missing[0]}")
    if type(job["job_id"]) is not int or type(job["task_id"]) is not int:
        raise Odd("schema", "a row without integer IDs")
    return {name: job[name] for name in QUEUE_FIELDS}
