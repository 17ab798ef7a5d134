"""SkyPilot's configuration: one context, storage without compute, a controller where it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from npa.orchestration.skypilot.configs import (
    Controller,
    check_config,
    kubernetes_config,
    slurm_config,
)


def controller_of(config: dict[str, Any]) -> dict[str, Any]:
    return config["jobs"]["controller"]


@pytest.mark.req("A-12")
def test_the_controller_is_a_pod_of_the_context_unless_a_machine_is_asked_for() -> None:
    assert controller_of(kubernetes_config("ctx"))["resources"]["infra"] == "k8s/ctx"
    asked = kubernetes_config("ctx", Controller.VM)
    assert controller_of(asked)["resources"]["infra"] == "nebius"


@pytest.mark.parametrize("controller", list(Controller))
def test_only_the_wanted_context_is_used(controller: Controller) -> None:
    config = kubernetes_config("ctx", controller)
    assert config["kubernetes"] == {"allowed_contexts": ["ctx"]}


def test_nebius_is_there_for_storage_alone_unless_it_hosts_the_controller() -> None:
    """Without it a declared durable mount is refused; with compute a task could go astray."""
    assert kubernetes_config("ctx")["nebius"] == {"capabilities": ["storage"]}
    assert "nebius" not in kubernetes_config("ctx", Controller.VM)


def test_slurm_and_a_check_have_no_controller_elsewhere() -> None:
    assert controller_of(slurm_config()) == {"consolidation_mode": True}
    assert "jobs" not in check_config("ctx")
