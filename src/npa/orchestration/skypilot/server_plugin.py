"""Run inside SkyPilot's own processes, by its plug-in seam: a session has a port of its own, and
programs travel as files.

0.12.2 knows one local server, on port 46580. Two things follow, and both are undone here:

- It always starts a queue manager on 127.0.0.1:50011, so that a second server on a host dies; and
  that manager takes pickles from whoever knows a constant password. A local server is one process,
  for which SkyPilot has a queue without a port.
- A jobs controller beside the server calls `api_start` before each launch, which refuses every
  endpoint but 46580 and would start a server there. Our endpoint is declared a local one, and no
  process of the session may start a server: that is for the session's owner to do.

It also puts a task's program, with its variables and secrets, into the command line of an ssh, and
counts two quotings of it where Slurm needs three. A program between the two limits is refused by
the kernel ("Argument list too long"), and the launch is tried again for ever. A program that is
counted as too long travels as a file: here every one is.

Only the standard library and `sky` are used: the file is copied beside the session and imported by
the isolated interpreter.
"""

import os
from typing import Any

from sky import exceptions
from sky.server import common, plugins
from sky.server.requests.queues import base

ENDPOINT = "SKYPILOT_API_SERVER_ENDPOINT"


class OwnedServer(plugins.BasePlugin):  # type: ignore[misc]
    """Loaded by the server, its executors and its jobs controllers."""

    @property
    def name(self) -> str:
        return "npa-owned-server"

    def install(self, extension_context: Any) -> None:
        endpoint = os.environ[ENDPOINT]
        if endpoint not in common.AVAILABLE_LOCAL_API_SERVER_URLS:
            common.AVAILABLE_LOCAL_API_SERVER_URLS.append(endpoint)
        common.is_api_server_local.cache_clear()  # it may have been asked before
        common._start_api_server = refuse_to_start
        serving = (plugins.PluginContext.MAIN, plugins.PluginContext.UVICORN)
        if extension_context.context in serving:
            extension_context.register_queue_backend_factory(base.LocalQueueFactory())
        if extension_context.context is plugins.PluginContext.EXECUTOR:  # launches run there
            from sky.backends import backend_utils

            backend_utils._MAX_INLINE_SCRIPT_LENGTH = 0


def refuse_to_start(*_args: Any, **_more: Any) -> None:
    """In place of SkyPilot's start: a controller then waits and tries again."""
    raise exceptions.ApiServerConnectionError(os.environ[ENDPOINT])
