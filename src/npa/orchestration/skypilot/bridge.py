"""The bridge: one file, run by SkyPilot's own interpreter, one JSON document a line each way.

    request   {"id": 7, "op": "queue", ...}
    replies   {"id": 7, "event": "accepted", ...}          none or more
              {"id": 7, "ok": true, "value": {...}}        or
              {"id": 7, "ok": false, "error": {"code", "type", "status", "message"}}

Standard library, `sky` and two files beside it only; nothing of npa is imported. `sky` takes
seconds to import, so what can do without it does. Standard output carries the protocol alone:
whatever SkyPilot prints goes to standard error. When standard input ends, launches under way are
finished first (their answer is in the observation file), and then the process exits.

A launch writes three kinds of rows, each fsynced before the next act: `posting` before the POST,
`request` with the ID that the server answered, `result` or `error`. So whoever comes after a crash
knows how far it got. No text of SkyPilot's is in them.
"""

# SkyPilot has no types of its own to check against, and this file is read by its interpreter.
from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

EXIT_SECONDS_MAX = 90.0  # for launches under way when the client is gone
GET_SECONDS_MAX = 600.0
CALL_SECONDS_MAX = 60.0


def _beside(name: str) -> Any:
    """A file of this folder as a module: under `-I` the folder is in no path."""
    place = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


plain = _beside("plain_api")
log_follower = _beside("log_follower")

# Class name of SkyPilot's exception -> code of ours. Its base classes are tried in their order.
CODES = {
    "ClusterNotUpError": "controller_not_up",
    "ApiServerConnectionError": "unreachable",
    "ConnectionError": "unreachable",
    "Timeout": "unreachable",
    "ServerTemporarilyUnavailableError": "busy",
    "ConcurrentWorkerExhaustedError": "busy",
    "ExecutionPoolFullError": "busy",
    "RequestInterruptedError": "interrupted",
    "RequestCancelled": "interrupted",
    "KubeAPIUnreachableError": "kubernetes_unreachable",
    "ResourcesUnavailableError": "no_resources",
    "ResourcesMismatchError": "invalid",
    "InvalidSkyPilotConfigError": "invalid",
    "InvalidClusterNameError": "invalid",
    "KubernetesValidationError": "invalid",
    "InvalidCloudConfigs": "invalid",
    "StorageSpecError": "invalid",
    "NotSupportedError": "unsupported",
    "APINotSupportedError": "unsupported",
    "APIVersionMismatchError": "version",
    "InvalidCloudCredentials": "authentication",
    "CloudUserIdentityError": "authentication",
    "NoCloudAccessError": "authentication",
    "ApiServerAuthenticationError": "authentication",
    "ClusterOwnerIdentityMismatchError": "authorization",
    "PermissionDeniedError": "authorization",
    "UserRequestRejectedByPolicy": "authorization",
    "UsageError": "invalid",
    "ValueError": "invalid",
}


class Refused(Exception):
    """An error of ours with a code: raised where the code is known better than by its class."""

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def describe(error: BaseException) -> dict[str, Any]:
    """A typed error: the code decides, the message is for people."""
    ours = isinstance(error, (Refused, plain.Odd))
    code = getattr(error, "code", "") if ours else ""
    status = getattr(error, "status", 0) if ours else 0
    if not code:
        names = [kind.__name__ for kind in type(error).__mro__]
        code = next((CODES[name] for name in names if name in CODES), "unknown")
    response = getattr(error, "response", None)
    if response is not None:
        status = int(getattr(response, "status_code", 0) or 0)
    cluster_status = getattr(error, "cluster_status", None)
    return {
        "code": code,
        "type": type(error).__name__,
        "status": status,
        "controller": getattr(cluster_status, "value", "") if cluster_status else "",
        "message": str(error)[:2000],
    }


class Rows:
    """The observation file of one launch: appended, fsynced, private."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def add(self, row: str, **fields: Any) -> None:
        document = {"row": row, "at": round(time.time(), 3), **fields}
        os.write(self._handle, (json.dumps(document, sort_keys=True) + "\n").encode())
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)


class Bridge:
    """Answers requests, each in a thread of its own."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=16)
        self._launches: set[Any] = set()
        self._followed: dict[str, Any] = {}

    def run(self, lines: Any) -> None:
        for line in lines:
            try:
                request = json.loads(line)
                number, op = request["id"], request["op"]
            except (ValueError, KeyError, TypeError):
                self._say({"id": None, "ok": False, "error": {"code": "protocol"}})
                continue
            future = self._pool.submit(self._answer, number, op, request)
            if op == "launch":
                self._launches.add(future)
                future.add_done_callback(self._launches.discard)

    def drain(self) -> None:
        """Let launches under way write their rows; at most EXIT_SECONDS_MAX."""
        deadline = time.monotonic() + EXIT_SECONDS_MAX
        while self._launches and time.monotonic() < deadline:
            time.sleep(0.05)

    def _say(self, document: dict[str, Any]) -> None:
        data = json.dumps(document, sort_keys=True, default=str) + "\n"
        with self._lock:
            try:
                self._out.write(data)
                self._out.flush()
            except (OSError, ValueError):
                pass  # the client is gone; what matters is in the observation file

    def _answer(self, number: int, op: str, request: dict[str, Any]) -> None:
        try:
            handler = getattr(self, f"op_{op}", None)
            if handler is None:
                raise Refused("protocol", f"unknown op {op!r}")
            value = handler(request, lambda e: self._say({"id": number, **e}))
            self._say({"id": number, "ok": True, "value": value})
        except BaseException as error:
            self._say({"id": number, "ok": False, "error": describe(error)})

    # -- ops -----------------------------------------------------------------------------------

    def op_hello(self, _request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        import sky
        from sky.server import constants

        return {"version": sky.__version__, "api_version": constants.API_VERSION}

    def op_launch(self, request: dict[str, Any], emit: Any) -> dict[str, Any]:
        """POST once. `documents` is the YAML text, `secrets` the values that it leaves out."""
        import sky
        from sky.client import common as client_common
        from sky.client import sdk
        from sky.server import common as server_common
        from sky.server import rest
        from sky.server.requests import payloads
        from sky.utils import dag_utils

        name = request["name"]
        rows = Rows(request["observation"])
        posted = False
        try:
            server_common.check_server_healthy_or_start_fn()
            secrets = list((request.get("secrets") or {}).items())
            dag = dag_utils.load_dag_from_yaml_str(
                request["documents"], secrets_overrides=secrets or None
            )
            if dag.name != name:
                raise Refused("invalid", f"the documents name {dag.name!r}, not {name!r}")
            sdk.validate(dag)
            dag, blob = client_common.upload_mounts_to_api_server(dag)
            body = payloads.JobsLaunchBody(
                task=dag_utils.dump_dag_to_yaml_str(dag), name=name, file_mounts_blob_id=blob
            )
            if time.time() > float(request["not_after"]):
                raise Refused("expired", "it is too late to make this POST")
            url, more = server_common._prepare_authenticated_request_params("/jobs/launch")
            rows.add("posting", name=name)
            emit({"event": "posting"})
            posted = True
            # Not through the SDK's own POST: that one is sent again for ten minutes after a 503.
            reply = rest.request_without_retry(
                "POST", url, json=json.loads(body.model_dump_json()), timeout=(5, 60), **more
            )
            if reply.status_code != 200:
                raise Refused("http", f"HTTP {reply.status_code}", reply.status_code)
            request_id = server_common.get_request_id(reply)
            rows.add("request", name=name, request_id=str(request_id))
            emit({"event": "accepted", "request_id": str(request_id)})
            job_ids, _ = self._get(request_id, float(request.get("seconds_max", GET_SECONDS_MAX)))
            ids = [int(job) for job in (job_ids or [])]
            rows.add("result", name=name, job_ids=ids)
            return {"request_id": str(request_id), "job_ids": ids, "version": sky.__version__}
        except BaseException as error:
            told = describe(error)
            digest = hashlib.sha256(told["message"].encode()).hexdigest()
            rows.add("error", name=name, code=told["code"], type=told["type"], text_sha256=digest)
            emit({"event": "failed", "posted": posted})
            raise
        finally:
            rows.close()

    def op_queue(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """All jobs of this session in one call, without SkyPilot's code; complete, or an error."""
        try:
            return dict(_plain_api().queue(float(request.get("seconds_max", CALL_SECONDS_MAX))))
        except plain.Failed as failed:
            _decoded(failed.payload)  # raises the server's own, typed exception
            raise Refused("schema", "a request failed without an error") from failed

    def op_wake(self, _request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """Have a stopped jobs controller started again; answered before it is."""
        return {"request_id": _plain_api().wake(30.0)}

    def op_cancel(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """Ask for the end of exact jobs; answered when that is written down, not when they end."""
        from sky import jobs

        ids = request["job_ids"]
        if not ids or not all(isinstance(job, int) for job in ids):
            raise Refused("protocol", "a cancel names exact job IDs")
        self._get(jobs.cancel(job_ids=ids), float(request.get("seconds_max", 60.0)))
        return {"job_ids": ids}

    def op_request(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """How a request of the server stands; `request_unknown` after a restart of the server."""
        return {"status": _plain_api().request(str(request["request_id"]), 30.0)}

    def op_logs(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """What a task has written so far, as text."""
        from sky import jobs

        sink = io.StringIO()
        jobs.tail_logs(
            job_id=int(request["job_id"]),
            follow=False,
            task=request.get("task"),
            controller=bool(request.get("controller", False)),
            output_stream=sink,
        )
        return {"text": sink.getvalue()}

    def op_follow(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """Copy a task's log into a file for as long as it is written. Says whether it has ended."""
        path = str(request["path"])
        with self._lock:
            known = self._followed.get(path)
            new = known is None or (known.failed and not known.thread.is_alive())
            if known is None or new:
                known = log_follower.Follower(path, int(request["job_id"]), request.get("task"))
                self._followed[path] = known
        if new:
            known.settle()
        return {"ended": not known.thread.is_alive(), "failed": known.failed}

    def op_check(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """Which infrastructures are usable: workspace -> cloud -> capabilities."""
        from sky.client import sdk

        rid = sdk.check(tuple(request["infra"]) or None, verbose=False)
        found = self._get(rid, float(request.get("seconds_max", 180.0)))
        return {"enabled": found}

    def op_gpus(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """GPUs by product: how many a node may give, how many there are, how many are free."""
        from sky.client import sdk

        cloud, _, place = str(request["infra"]).partition("/")
        if cloud in ("k8s", "kubernetes"):
            rid = sdk.realtime_kubernetes_gpu_availability(context=place or None)
        elif cloud == "slurm":
            rid = sdk.realtime_slurm_gpu_availability(slurm_cluster_name=place or None)
        else:
            raise Refused("unsupported", f"no GPU listing for {cloud!r}")
        listing = []
        # Slurm's answer has a third part: why that cluster could not be asked.
        for where, entries, *trouble in self._get(rid, float(request.get("seconds_max", 120.0))):
            if trouble and trouble[0]:
                raise Refused("unreachable", str(trouble[0]))
            for gpu, counts, capacity, available in entries:
                listing.append(
                    {
                        "where": str(where),
                        "gpu": str(gpu),
                        "per_node": [int(n) for n in counts],
                        "total": int(capacity),
                        "free": int(available),
                    }
                )
        return {"gpus": listing}

    def op_controller(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """The jobs controller: `consolidated`, `absent`, or SkyPilot's word for its cluster."""
        import sky
        from sky.utils import common

        if request.get("consolidated"):
            return {"state": "consolidated"}
        rid = sky.status(cluster_names=[common.JOB_CONTROLLER_NAME], all_users=True)
        found = self._get(rid, float(request.get("seconds_max", 60.0)))
        if not found:
            return {"state": "absent"}
        status = found[0]["status"]
        return {"state": str(getattr(status, "value", status)).lower()}

    def op_ready(self, request: dict[str, Any], _emit: Any) -> dict[str, Any]:
        """One look at a Kubernetes API's `/readyz`: its HTTP status, 0 if it was not reached."""
        import kubernetes  # type: ignore[import-not-found]  # SkyPilot brings it
        import urllib3

        try:
            configuration = kubernetes.client.Configuration()
            kubernetes.config.load_kube_config(
                context=str(request["context"]), client_configuration=configuration
            )
            configuration.retries = False
            with kubernetes.client.ApiClient(configuration) as api:
                api.call_api(
                    "/readyz",
                    "GET",
                    auth_settings=["BearerToken"],
                    response_type="str",
                    _request_timeout=(5, 10),
                )
        except kubernetes.client.exceptions.ApiException as error:
            return {"status": int(error.status or 0)}
        except kubernetes.config.ConfigException as error:
            raise Refused("authentication", f"the kubeconfig gives no access: {error}") from error
        except (urllib3.exceptions.HTTPError, OSError):
            return {"status": 0}
        return {"status": 200}

    # -- getting an answer -----------------------------------------------------------------------

    @staticmethod
    def _get(request_id: Any, seconds_max: float) -> Any:
        """`sky.get` with a deadline, and with 404 (a server that was restarted) told apart."""
        from sky.server import common as server_common

        reply = server_common.make_authenticated_request(
            "GET",
            f"/api/get?request_id={request_id}",
            retry=False,
            timeout=(5, seconds_max),
        )
        if reply.status_code == 404:
            raise Refused("request_unknown", "the server does not know the request", 404)
        if reply.status_code == 503:
            raise Refused("busy", "the server is busy", 503)
        if reply.status_code not in (200, 500):
            raise Refused("http", f"HTTP {reply.status_code}", reply.status_code)
        document = reply.json()
        payload = document if reply.status_code == 200 else document.get("detail")
        if not isinstance(payload, dict):
            raise Refused("http", f"HTTP {reply.status_code}", reply.status_code)
        return _decoded(payload)


def _decoded(payload: dict[str, Any]) -> Any:
    """What a request returned. Raises what it raised, and Refused if it was cancelled."""
    from sky.client import sdk
    from sky.server.requests import payloads
    from sky.server.requests import requests as requests_lib

    task = requests_lib.Request.decode(payloads.RequestPayload(**payload))
    error = task.get_error()
    if error is not None:
        sdk._raise_exception_object_on_client(error["object"])
    if task.status == requests_lib.RequestStatus.CANCELLED:
        raise Refused("interrupted", "the request was cancelled")
    return task.get_return_value()


def _plain_api() -> Any:
    endpoint, user = (
        os.environ.get(f"SKYPILOT_{n}", "") for n in ("API_SERVER_ENDPOINT", "USER_ID")
    )
    if not endpoint or not user:
        raise Refused("protocol", "the session's endpoint and user are not set")
    return plain.PlainApi(endpoint, user)


def main() -> None:
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    bridge = Bridge(protocol)
    bridge.run(sys.stdin)
    bridge.drain()
    os._exit(0)  # log streams may still hang in a thread


if __name__ == "__main__":
    main()
