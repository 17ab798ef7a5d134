"""The options of `submit` that only SkyPilot knows, and what they say as the run's own settings."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from npa.cli.options import pairs

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--infra",
        metavar="INFRA",
        default="",
        help="Where SkyPilot runs tasks: k8s/CONTEXT, slurm/CLUSTER or nebius.",
    ),
    click.option(
        "--image",
        metavar="[TOOL=]IMAGE",
        multiple=True,
        help="The image of every task, or of one tool or family of tools.",
    ),
    click.option(
        "--image-override",
        metavar="TOOL=IMAGE",
        multiple=True,
        help="The image of one tool; nothing after `=` means no image.",
    ),
    click.option(
        "--registry", metavar="HOST/PATH", default="", help="Where the catalogue's images are."
    ),
    click.option("--sky-bin", metavar="PATH", default="", help="The SkyPilot to use."),
    click.option("--kubeconfig", metavar="PATH", default="", help="The one kubeconfig to use."),
    click.option(
        "--slurm-config",
        metavar="PATH",
        default="",
        help="The ssh configuration of Slurm clusters.  [default: ~/.slurm/config]",
    ),
    click.option(
        "--controller",
        type=click.Choice(["kubernetes", "vm", "consolidated"]),
        default="kubernetes",
        show_default=True,
        help="Where the jobs controller of a Kubernetes run lives.",
    ),
    click.option(
        "--accept-eula/--no-accept-eula",
        default=True,
        show_default=True,
        help="Accept the licence of Isaac for the tasks that run it.",
    ),
    click.option(
        "--documents",
        metavar="FOLDER",
        default="",
        help="With `--plan-only`: write each job's document to a new folder; `-` prints them.",
    ),
)
_PATHS = ("sky_bin", "kubeconfig", "slurm_config")
_PLAIN = ("infra", "registry", "controller", "accept_eula")


def skypilot_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def take_settings(options: MutableMapping[str, Any]) -> dict[str, object]:
    """Take what a run keeps out of `options`: what it says beyond the defaults, for the request.

    Raises UsageError for a place that cannot be one.
    """
    from npa.orchestration.skypilot.settings import Settings, parse_infra

    if options["infra"]:
        parse_infra(options["infra"])

    paths = {name: options.pop(name) for name in _PATHS}
    images = {**_images(options.pop("image")), **pairs(options.pop("image_override"), "--image")}
    values = {
        **{name: options.pop(name) for name in _PLAIN},
        **{name: str(Path(path).absolute()) if path else "" for name, path in paths.items()},
    }
    return Settings.from_json({**values, "images": images}).to_json()


def _images(words: Sequence[str]) -> dict[str, str]:
    """`IMAGE` is that of every task, `TOOL=IMAGE` that of one."""
    return pairs([word if "=" in word else f"*={word}" for word in words], "--image")
