"""Loaded by a .pth file in the bed's SkyPilot environment, never in a product's.

SkyPilot's files stay as released. After one of these modules is imported, constants that suit only
a machine on the internet, or a cluster where minutes do not matter, are set:

- `_TEST_IP_LIST` (https://8.8.8.8 …): a jobs controller asks these before each status check and
  does nothing while none answers, so offline a finished job stays RUNNING for ever. Here it is the
  session's own API server.
- the gaps between status checks (15 s and 5 s) and between launch attempts (60 s).

Two more settings make the imports of SkyPilot, of which a managed job needs some twenty, a quarter
cheaper: fewer collections of garbage, and models of pydantic that are built when they are used.
"""

import gc
import importlib.abc
import importlib.util
import os
import sys

ENDPOINT = os.environ.get("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:46580")


def _backend_utils(module):
    module._TEST_IP_LIST = [ENDPOINT + "/api/health"]


def _jobs_utils(module):
    module.JOB_STATUS_CHECK_GAP_SECONDS = 5.0  # each look starts a Python on the node
    module.JOB_STARTED_STATUS_CHECK_GAP_SECONDS = 2.0


def _pydantic(module):
    module.config_defaults["defer_build"] = True


def _recovery(module):
    module.StrategyExecutor.RETRY_INIT_GAP_SECONDS = 5.0


HOOKS = {
    "pydantic._internal._config": _pydantic,
    "sky.backends.backend_utils": _backend_utils,
    "sky.jobs.utils": _jobs_utils,
    "sky.jobs.recovery_strategy": _recovery,
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        hook = HOOKS.pop(name, None)
        if hook is None:
            return None
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            hook(module)

        spec.loader.exec_module = exec_module
        return spec


gc.set_threshold(50_000, 20, 20)
sys.meta_path.insert(0, _Finder())
