"""Projects of this machine: names for a cluster, in `projects:` of npa's config.yaml.

projects:
  robots: {context: prod-cluster, kubeconfig: /home/u/.kube/prod}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from npa.errors import UsageError
from npa.target.home import Home

KEYS = ("context", "kubeconfig")


class Project(Struct, frozen=True):
    """`context` is its Kubernetes context; `kubeconfig` the file that has it, "" for the usual."""

    name: str
    context: str
    kubeconfig: str = ""


def find_project(home: Home, name: str) -> Project:
    """The project of that name. Raises UsageError (PROJECT)."""
    path = home.config_file
    known = _projects(path)
    section = known.get(name)
    if section is None:
        raise UsageError(
            f"there is no project `{name}`",
            not_done="nothing was started",
            hint=f"`projects:` in {path} has: {', '.join(sorted(known)) or 'none'}",
            code="PROJECT",
        )
    if (
        not isinstance(section, Mapping)
        or not section.get("context")
        or not all(key in KEYS and isinstance(value, str) for key, value in section.items())
    ):
        raise UsageError(
            f"project `{name}` in {path} must be a mapping with a `context`",
            not_done="nothing was started",
            hint=f"its keys are {', '.join(KEYS)}",
            code="PROJECT",
        )
    return Project(name, section["context"], section.get("kubeconfig", ""))


def _projects(path: Path) -> Mapping[str, object]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read ({type(error).__name__})") from None
    projects = document.get("projects") or {} if isinstance(document, Mapping) else None
    if not isinstance(projects, Mapping):
        raise UsageError(f"{path} must be a mapping with a mapping `projects`", code="PROJECT")
    return {str(name): section for name, section in projects.items()}
