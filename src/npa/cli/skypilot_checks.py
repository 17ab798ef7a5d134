"""What a check-only command looks at, and how: one target, one kubeconfig, one session root."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from npa.errors import UsageError
from npa.target.home import Home
from npa.target.projects import find_project

if TYPE_CHECKING:
    from npa.orchestration.skypilot.checks import Checked
    from npa.orchestration.skypilot.spec import SessionSpec

_OPTIONS = (
    click.option("--sky-bin", default="", metavar="PATH", help="Use this SkyPilot."),
    click.option(
        "--infra", default="", metavar="INFRA", help="Look at k8s/CONTEXT or slurm/CLUSTER."
    ),
    click.option(
        "--cluster",
        "--context",
        "context",
        default="",
        metavar="CONTEXT",
        help="Look at this Kubernetes context.",
    ),
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="The one kubeconfig to use."
    ),
    click.option(
        "--project",
        "-p",
        default="",
        metavar="NAME",
        help="The project of config.yaml whose context is meant; it must agree with the others.",
    ),
    click.option(
        "--slurm-config",
        default="",
        metavar="PATH",
        help="The ssh configuration of Slurm clusters.  [default: ~/.slurm/config]",
    ),
    click.option(
        "--isolated-config-dir",
        type=click.Path(path_type=Path),
        help="Where the check's session is kept.  [default: npa's home]",
    ),
)


class CheckSettings(Struct, frozen=True):
    """What the options of a check-only command say; "" and None for what they leave open."""

    sky_bin: str = ""
    infra: str = ""
    context: str = ""
    kubeconfig: Path | None = None
    project: str = ""
    slurm_config: str = ""
    isolated_config_dir: Path | None = None


def check_options(function: Callable[..., int]) -> Callable[..., int]:
    """Declare the options; the command gets them as one `settings`."""

    @wraps(function)
    def command(**options: Any) -> int:
        given = {name: options.pop(name) for name in CheckSettings.__struct_fields__}
        return function(settings=CheckSettings(**given), **options)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Target(Struct, frozen=True):
    """`infra` is `k8s/<context>` or `slurm/<cluster>`; `path` is its kubeconfig or ssh file."""

    infra: str
    path: Path

    @property
    def cloud(self) -> str:
        return self.infra.partition("/")[0]

    @property
    def name(self) -> str:
        return self.infra.partition("/")[2]


def find_target(settings: CheckSettings, env: Mapping[str, str]) -> Target | None:
    """What the options name; None if they name nothing. Raises UsageError before any effect."""
    from npa.orchestration.skypilot.run_engine import slurm_config_of
    from npa.orchestration.skypilot.settings import Cloud, Settings, parse_infra

    infra, context, project = settings.infra, settings.context, settings.project
    kubeconfig = settings.kubeconfig
    aim = parse_infra(infra) if infra else None
    if aim is not None and aim.cloud is not Cloud.KUBERNETES:
        if aim.cloud is not Cloud.SLURM:
            raise UsageError(
                f"`{infra}` cannot be looked at through a session of its own",
                not_done="nothing was started",
                hint="name k8s/CONTEXT or slurm/CLUSTER",
            )
        if context or kubeconfig or project:
            raise UsageError(
                f"`--infra {infra}` has no Kubernetes context",
                not_done="nothing was started",
                hint="leave out `--context`, `--kubeconfig` and `--project`",
            )
        place = Settings(infra=aim.infra, slurm_config=settings.slurm_config)
        return Target(aim.infra, slurm_config_of(place, env))
    names = {"--infra": aim.name if aim else "", "--context": context}
    if project:
        found = find_project(Home.find(env), project)
        names[f"project `{project}`"] = found.context
        kubeconfig = _agreed_file(kubeconfig, found.kubeconfig, project)
    named = _agreed(names)
    if not named and kubeconfig is None:
        return None
    path = one_kubeconfig(kubeconfig, env)
    return Target(f"k8s/{_context(path, named)}", path)


def _agreed(names: Mapping[str, str]) -> str:
    """The one context that all of them name. Raises UsageError (PROJECT_CONTEXT)."""
    said = {where: name for where, name in names.items() if name}
    if len(set(said.values())) > 1:
        raise UsageError(
            " and ".join(f"{where} says `{name}`" for where, name in said.items()),
            not_done="nothing was started",
            hint="they must name the same Kubernetes context",
            code="PROJECT_CONTEXT",
        )
    return next(iter(said.values()), "")


def _agreed_file(option: Path | None, configured: str, project: str) -> Path | None:
    if not configured:
        return option
    own = Path(configured).expanduser()
    if option is not None and option.resolve() != own.resolve():
        raise UsageError(
            f"project `{project}` has the kubeconfig {own}, and `--kubeconfig` says {option}",
            not_done="nothing was started",
            hint="leave out `--kubeconfig`, or correct the project",
            code="PROJECT_CONTEXT",
        )
    return own


def look(
    target: Target, interpreter: Path, isolated: Path | None, *, gpus: bool = False
) -> Checked:
    """Look at the target through a session that has stopped when this returns."""
    from npa.orchestration.skypilot.checks import check
    from npa.orchestration.skypilot.configs import check_config, slurm_config
    from npa.orchestration.skypilot.record import Kind
    from npa.orchestration.skypilot.spec import SessionSpec
    from npa.orchestration.skypilot.validation import scope_folder

    pods = target.cloud == "k8s"

    def make_spec(root: Path) -> SessionSpec:
        return SessionSpec(
            root=root,
            kind=Kind.CHECK,
            interpreter=interpreter,
            env=os.environ,
            sky_config=check_config(target.name) if pods else slurm_config(),
            links={} if pods else {".slurm/config": target.path},
            kubeconfig=target.path if pods else None,
            context=target.name if pods else "",
        )

    scope = scope_folder(isolated_root(isolated), target.path, target.name)
    return check(scope, make_spec, target.infra, gpus=gpus)


def isolated_root(option: Path | None) -> Path:
    """Option, then NPA_SKYPILOT_ISOLATED_CONFIG_DIR, then our configuration, then npa's home."""
    from npa.orchestration.skypilot.resolve import read_config

    home = Home.find().path
    named = os.environ.get("NPA_SKYPILOT_ISOLATED_CONFIG_DIR", "")
    configured = read_config(home).get("isolated_config_dir", "")
    return option or Path(named or configured or home)


def one_kubeconfig(option: Path | None, env: Mapping[str, str]) -> Path:
    """Exactly one kubeconfig file: `--kubeconfig`, else KUBECONFIG. Raises UsageError."""
    named = str(option) if option is not None else env.get("KUBECONFIG", "")
    if not named:
        named = str(Path.home() / ".kube" / "config")
    if os.pathsep in named:
        raise UsageError(
            "more than one kubeconfig is named",
            not_done="nothing was started",
            hint="name the one to use with `--kubeconfig`",
        )
    path = Path(named).absolute()
    if not path.is_file():
        raise UsageError(
            f"there is no kubeconfig at {path}",
            not_done="nothing was started",
            hint="name one with `--kubeconfig`",
        )
    return path


def _context(kubeconfig: Path, name: str) -> str:
    """The context of that name, or ("") the current one; it is in the file. Raises UsageError."""
    from npa.orchestration.skypilot.binding import Fingerprint, kubeconfig_meaning

    text = kubeconfig.read_text(encoding="utf-8")
    return kubeconfig_meaning(text, name, Fingerprint(b""))["kube.context"]
