"""The bridge decodes what a request of the server failed with, by SkyPilot's own classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.skypilot.looks import sky_interpreter
from npa.orchestration.skypilot.client import BridgeClient, Refused
from npa.orchestration.skypilot.connect import bridge_argv
from orchestration.skypilot.api_speaker import recorded, speaking

pytestmark = pytest.mark.e2e

TOLD = {
    "failed": ("invalid", "ValueError", ""),
    "controller_stopped": ("controller_not_up", "ClusterNotUpError", "STOPPED"),
    "controller_init": ("controller_not_up", "ClusterNotUpError", "INIT"),
    "controller_none": ("controller_not_up", "ClusterNotUpError", ""),
}


@pytest.mark.req("D-03")
def test_an_error_of_the_queue_is_typed_and_says_how_the_controller_stands(
    bed: Mapping[str, Any], tmp_path: Path
) -> None:
    with speaking(recorded("accepted")) as speaker:
        environment = {
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "SKYPILOT_API_SERVER_ENDPOINT": speaker.endpoint,
            "SKYPILOT_USER_ID": "npa-user",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        }
        argv = bridge_argv(sky_interpreter(bed))
        bridge = BridgeClient(argv, lambda: environment, tmp_path, tmp_path / "bridge.log")
        try:
            for name, (code, kind, controller) in TOLD.items():
                speaker.get = recorded(name)
                reply = bridge.call("queue", 60.0)
                assert isinstance(reply, Refused), reply
                assert (reply.code, reply.kind, reply.controller) == (code, kind, controller)
        finally:
            bridge.close()
