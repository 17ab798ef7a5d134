"""`gpus`: which accelerators a cluster has, how many a task may ask for, and how many are free."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option
from npa.cli.output import Output
from npa.cli.skypilot_checks import CheckSettings, check_options, find_target, look
from npa.target.home import Home

if TYPE_CHECKING:
    from npa.orchestration.skypilot.checks import Gpus


@click.command()
@check_options
@json_option
def gpus(settings: CheckSettings, as_json: bool) -> int:
    """List the accelerators of a cluster.

    With a target an API server of npa's own is started, used and stopped; the list is printed only
    after it has stopped. Without one, SkyPilot's own server is asked about every Kubernetes
    context that it may use. Exits with 2 when SkyPilot could not tell.
    """
    from npa.orchestration.skypilot.checks import ambient_gpus
    from npa.orchestration.skypilot.resolve import resolve

    output = Output(as_json=as_json)
    home = Home.find()
    found = resolve(settings.sky_bin, os.environ, home.path)
    target = find_target(settings, os.environ)
    if target is None:
        listed = ambient_gpus(found.interpreter, os.environ, home.make().path)
        return _show(output, "k8s", "ambient", listed)
    checked = look(target, found.interpreter, settings.isolated_config_dir, gpus=True)
    if not checked.has(target.infra):
        output.document(_document(target.infra, "owned", (), enabled=False))
        output.line(f"SkyPilot cannot use {target.infra}")
        output.hint(f"`npa skypilot verify --infra {target.infra}` looks at nothing else")
        return ExitCode.FAILED
    return _show(output, target.infra, "owned", checked.gpus)


def _show(output: Output, infra: str, server: str, found: tuple[Gpus, ...]) -> int:
    output.document(_document(infra, server, found, enabled=True))
    if not found:
        output.line(f"{infra} has no accelerators that SkyPilot knows")
        return ExitCode.OK
    output.table(
        ("WHERE", "ACCELERATOR", "A NODE GIVES", "FREE", "TOTAL"),
        [
            (g.where, g.product, ", ".join(map(str, g.per_node)), str(g.free), str(g.total))
            for g in found
        ],
    )
    most = found[0]
    count = max(most.per_node, default=1)
    output.hint(f"`accelerators: {most.product}:{count}` asks for all that a node of it has")
    return ExitCode.OK


def _document(
    infra: str, server: str, found: tuple[Gpus, ...], *, enabled: bool
) -> dict[str, object]:
    return {
        "status": "ok" if enabled else "failed",
        "infra": infra,
        "server": server,
        "enabled": enabled,
        "accelerators": [
            {
                "where": g.where,
                "accelerator": g.product,
                "per_node": list(g.per_node),
                "free": g.free,
                "total": g.total,
            }
            for g in found
        ],
    }
