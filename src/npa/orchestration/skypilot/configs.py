"""SkyPilot's configuration for a session: generated, and the same for every use of that session.

A running server ignores what clients override, and reads the list of clouds for storage too: what
it must hold is decided once, when the session is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

CONTROLLER_CPUS = 4
CONTROLLER_MEMORY_GB = 16


class Controller(Enum):
    """Where managed-jobs controllers run."""

    KUBERNETES = "kubernetes"  # a pod in the target's context: the default
    VM = "vm"  # only when asked for
    CONSOLIDATED = "consolidated"  # beside the API server; the only way for Slurm


def kubernetes_config(
    context: str, controller: Controller = Controller.KUBERNETES, vm_infra: str = "nebius"
) -> dict[str, object]:
    """One context and nothing else for compute; Nebius for storage alone."""
    config: dict[str, object] = {
        "allowed_clouds": ["kubernetes", "nebius"],
        "kubernetes": {"allowed_contexts": [context]},
    }
    # Without the storage capability a declared durable mount is refused; with compute, a task that
    # does not fit into the cluster would be sent to a virtual machine.
    if controller is not Controller.VM:
        config["nebius"] = {"capabilities": ["storage"]}
    if controller is Controller.CONSOLIDATED:
        config["jobs"] = {"controller": {"consolidation_mode": True}}
        return config
    infra = f"k8s/{context}" if controller is Controller.KUBERNETES else vm_infra
    config["jobs"] = {
        "controller": {
            "consolidation_mode": False,
            "resources": {
                "infra": infra,
                "cpus": f"{CONTROLLER_CPUS}+",
                "memory": f"{CONTROLLER_MEMORY_GB}+",
            },
            "autostop": False,  # a pod cannot be stopped, only lost
        }
    }
    return config


def slurm_config(provision_seconds: int = 24 * 3600) -> dict[str, object]:
    """Slurm cannot host a controller, so they run beside the API server."""
    return {
        "allowed_clouds": ["slurm"],
        "jobs": {"controller": {"consolidation_mode": True}},
        "slurm": {"provision_timeout": provision_seconds},
    }


def nebius_config() -> dict[str, object]:
    """Virtual machines of Nebius; the controllers run beside the API server and cost none."""
    return {
        "allowed_clouds": ["nebius"],
        "jobs": {"controller": {"consolidation_mode": True}},
    }


def check_config(context: str) -> dict[str, object]:
    """For a session that only looks: one context, no controller."""
    return {"allowed_clouds": ["kubernetes"], "kubernetes": {"allowed_contexts": [context]}}


def controller_context(config: Mapping[str, object]) -> str:
    """The Kubernetes context that a configuration creates its jobs controller in; "" if none."""
    found: object = config
    for key in ("jobs", "controller", "resources", "infra"):
        found = found.get(key) if isinstance(found, Mapping) else None
    cloud, _, context = str(found or "").partition("/")
    return context if cloud == "k8s" else ""


def controller_stops(config: Mapping[str, object]) -> bool:
    """Is the jobs controller a virtual machine? A pod cannot be stopped, and one beside the API
    server is no machine of its own."""
    found: object = config
    for key in ("jobs", "controller", "resources", "infra"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return bool(found) and controller_context(config) == ""
