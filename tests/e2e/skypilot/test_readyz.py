"""The bridge's look at a Kubernetes API, made by SkyPilot's own Kubernetes client."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from npa.orchestration.skypilot.client import SCRIPT, Answer, BridgeClient
from npa.orchestration.skypilot.connect import bridge_argv

pytestmark = pytest.mark.e2e


class Api(http.server.BaseHTTPRequestHandler):
    """Answers `/readyz` for whoever shows the token, with the status that is set."""

    status = 200

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Bearer t0ken"
        self.send_response((self.status if self.path == "/readyz" else 404) if known else 401)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Nothing is written."""


@pytest.fixture
def bridge(bed: Mapping[str, Any], tmp_path: Path) -> Iterator[BridgeClient]:
    interpreter = Path(bed["sky_bin"]).parent.resolve() / "python"
    client = BridgeClient(
        argv=bridge_argv(interpreter),
        environment=lambda: {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        log=tmp_path / "bridge.log",
    )
    assert str(SCRIPT) in client.argv
    yield client
    client.close()


def test_each_status_of_readyz_is_told(bridge: BridgeClient, tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    users = {"known": {"token": "t0ken"}, "stranger": {"token": "other"}}
    contexts = [{"name": n, "context": {"cluster": "c", "user": n}} for n in users]
    contexts.append({"name": "away", "context": {"cluster": "nowhere", "user": "known"}})
    config = {
        "contexts": contexts,
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}},
            {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}},
        ],
        "users": [{"name": name, "user": user} for name, user in users.items()],
    }
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text(json.dumps(config))
    try:
        for status in (200, 403, 429, 503):
            Api.status = status
            assert bridge.call("ready", 60.0, context="known") == Answer({"status": status})
        assert bridge.call("ready", 60.0, context="stranger") == Answer({"status": 401})
        assert bridge.call("ready", 60.0, context="away") == Answer({"status": 0})
        unknown = bridge.call("ready", 60.0, context="no such context")
        assert getattr(unknown, "code", "") == "authentication"
    finally:
        server.shutdown()
        server.server_close()
