"""`npa skypilot`: SkyPilot's own environment, made, looked at, checked and removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import click

from npa.cli.exit_codes import ExitCode
from npa.cli.options import json_option
from npa.cli.output import Output
from npa.cli.skypilot_checks import CheckSettings, check_options, find_target, look
from npa.cli.skypilot_session import stop
from npa.errors import EngineError
from npa.target.home import Home

path_option = click.option(
    "--path",
    type=click.Path(path_type=Path),
    help="Where the environment lies.  [default: skypilot-venv in npa's home]",
)
AMBIENT_CHECK_SECONDS_MAX = 300.0


@click.group(help="SkyPilot: its own environment, and the API servers of runs.")
def skypilot() -> None:
    """The group; its commands are below."""


@skypilot.command()
@path_option
@click.option("--python", default="", metavar="PYTHON", help="The Python 3.11 or 3.12 to use.")
@click.option("--save/--no-save", default=True, help="Write it into npa's configuration.")
@click.option("--fresh", is_flag=True, help="Make a new one even if the present one fits.")
@json_option
def bootstrap(path: Path | None, python: str, save: bool, fresh: bool, as_json: bool) -> None:
    """Create or reuse an environment with SkyPilot 0.12.2.

    It is built aside and proven to start before it replaces the present one; if anything
    fails, the present one stays as it is.
    """
    from npa.orchestration.skypilot import environment
    from npa.orchestration.skypilot.installer import RealInstaller, find_python
    from npa.orchestration.skypilot.resolve import write_config

    output = Output(as_json=as_json)
    place = _place(path)
    found = find_python(python, os.environ)
    output.note(f"preparing {place} (a first installation takes a minute or more)")
    made = environment.bootstrap(
        place,
        python=found,
        installer=RealInstaller(dict(os.environ)),
        protected=(Path.home(), Path.cwd()),
        fresh=fresh,
    )
    saved = write_config(_home(), sky_bin=str(made.sky_bin)) if save else None
    output.line("already installed" if made.reused else "installed")
    output.line(f"sky_bin: {made.sky_bin}")
    if saved is None:
        output.line(f"export NPA_SKYPILOT_BIN={made.sky_bin}")
    else:
        output.line(f"saved in: {saved}")
    output.document(
        {
            "status": "ok",
            "reused": made.reused,
            "sky_bin": str(made.sky_bin),
            "version": made.installed.version,
            "saved_in": str(saved) if saved else "",
        }
    )


@skypilot.command()
@click.option("--sky-bin", default="", metavar="PATH", help="Look at this one.")
@click.option("--bin-path", is_flag=True, help="Print the path of `sky` and nothing else.")
@json_option
def status(sky_bin: str, bin_path: bool, as_json: bool) -> int:
    """Say which SkyPilot is used, and who named it. Starts nothing."""
    from npa.orchestration.skypilot import environment
    from npa.orchestration.skypilot.resolve import resolve

    output = Output(as_json=as_json)
    found = resolve(sky_bin, os.environ, _home())
    if bin_path:
        output.text(str(found.path))
        return ExitCode.OK
    made = environment.status(found.path.parent.parent.parent.parent)
    current = made is not None and made.folder == found.path.parent.parent
    up_to_date = made.up_to_date if made is not None and current else None
    output.line(f"sky_bin:      {found.path}")
    output.line(f"named by:     {found.source}")
    output.line(f"version:      {found.version}")
    output.line(f"interpreter:  {found.interpreter}")
    output.line(f"environment:  {_described(up_to_date)}")
    output.document(
        {
            "status": "ok",
            "sky_bin": str(found.path),
            "source": found.source,
            "version": found.version,
            "interpreter": str(found.interpreter),
            "made_by_npa": up_to_date is not None,
            "up_to_date": up_to_date,
        }
    )
    return ExitCode.OK


def _described(up_to_date: bool | None) -> str:
    if up_to_date is None:
        return "not made by `npa skypilot bootstrap`"
    return "as locked" if up_to_date else "older than npa's lock: run `npa skypilot bootstrap`"


@skypilot.command()
@check_options
@json_option
def verify(settings: CheckSettings, as_json: bool) -> int:
    """See that SkyPilot starts, and that it can use a cluster.

    With a target (`--cluster`, `--kubeconfig`, `--project` or `--infra`) an API server of npa's
    own is started, used and stopped; success is reported only after it has stopped. Without one
    SkyPilot's own `sky check kubernetes` runs, with the server that it finds or starts.
    """
    from npa.orchestration.skypilot.resolve import resolve

    output = Output(as_json=as_json)
    found = resolve(settings.sky_bin, os.environ, _home())
    target = find_target(settings, os.environ)
    if target is None:
        return _tell(output, "ambient", "k8s", _ambient(found.path))
    enabled = look(target, found.interpreter, settings.isolated_config_dir).has(target.infra)
    return _tell(output, "owned", target.infra, enabled)


def _tell(output: Output, server: str, infra: str, enabled: bool) -> int:
    output.line(f"{infra}: {'enabled' if enabled else 'not enabled'}")
    document = {
        "status": "ok" if enabled else "failed",
        "infra": infra,
        "enabled": enabled,
        "server": server,
    }
    if infra.partition("/")[0] == "k8s":
        document["kubernetes_enabled"] = enabled
    output.document(document)
    return ExitCode.OK if enabled else ExitCode.FAILED


def _ambient(sky: Path) -> bool:
    """`sky check kubernetes` with the ambient server: its exit code is the answer."""
    try:
        done = subprocess.run(
            [str(sky), "check", "kubernetes"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=AMBIENT_CHECK_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            "`sky check kubernetes` did not end in time",
            not_done="nothing is concluded from it",
            hint="name the cluster with `--cluster` and `--kubeconfig`",
            code="UNVERIFIED",
        ) from None
    return done.returncode == 0


@skypilot.command()
@path_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def uninstall(path: Path | None, yes: bool, as_json: bool) -> int:
    """Remove the environment that `bootstrap` made. Runs and their state stay."""
    from npa.orchestration.skypilot import environment
    from npa.orchestration.skypilot.resolve import read_config, write_config

    output = Output(as_json=as_json)
    place = _place(path)
    if not yes:
        if as_json:
            raise click.UsageError("`--json` needs `--yes`: nobody can be asked")
        click.confirm(f"remove {place}?", abort=True, err=True)
    removed = environment.uninstall(place)
    if read_config(_home()).get("sky_bin") == str(environment.stable_bin(place)):
        write_config(_home(), sky_bin="")
    output.line(f"removed {place}" if removed else f"nothing to remove at {place}")
    output.document({"status": "ok", "removed": removed, "path": str(place)})
    return ExitCode.OK


skypilot.add_command(stop)


def _home() -> Path:
    return Path(Home.find().path)


def _place(path: Path | None) -> Path:
    named = os.environ.get("NPA_SKYPILOT_VENV_PATH", "")
    return (path or Path(named or _home() / "skypilot-venv")).absolute()
