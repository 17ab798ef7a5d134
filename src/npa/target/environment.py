"""The environment of child processes, built by allow-list. Secrets only by name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from npa.errors import UsageError
from npa.target.secret import Secret

_NAMES = frozenset(
    """
    HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TERM COLUMNS
    VIRTUAL_ENV LD_LIBRARY_PATH LIBRARY_PATH XDG_RUNTIME_DIR XDG_CACHE_HOME
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY FTP_PROXY
    http_proxy https_proxy all_proxy no_proxy ftp_proxy
    PYTHONHASHSEED HF_HOME TORCH_HOME DISPLAY NPA_CONFIG_DIR
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_PREFIXES = (
    "LC_",
    "CONDA_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "NUMEXPR_",
    "SSL_CERT_",
)
# Whatever the list above says, a name that sounds like a secret is not inherited.
_SECRET_SOUNDING = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def present_environment() -> Mapping[str, str]:
    """The variables of this process, to read and to hand down; it follows their changes."""
    return MappingProxyType(os.environ)


def child_environment(
    environ: Mapping[str, str] | None = None,
    *,
    extra: Mapping[str, str] | None = None,
    secrets: Mapping[str, Secret] | None = None,
    python: str = sys.executable,
) -> dict[str, str]:
    """What a child gets: the allowed part of `environ`, then `extra`, then `secrets`.

    The folder of `python` comes first in PATH, so that `python` means our interpreter. The result
    holds secrets in clear: hand it to the child and nobody else.
    """
    variables = os.environ if environ is None else environ
    result = {name: value for name, value in variables.items() if is_inherited(name)}
    result["PATH"] = path_with(python, variables.get("PATH", os.defpath))
    result.update(extra or {})
    result.update({name: secret.reveal() for name, secret in (secrets or {}).items()})
    return result


def is_inherited(name: str) -> bool:
    """May a child inherit the variable `name` without being given it by name?"""
    if _SECRET_SOUNDING.search(name.upper()):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def path_with(python: str, path: str) -> str:
    """`path` with the folder of the interpreter first, once."""
    first = str(Path(python).parent) if python else ""
    rest = [folder for folder in path.split(os.pathsep) if folder and folder != first]
    return os.pathsep.join([first, *rest] if first else rest)


def named_secrets(
    names: Sequence[str], environ: Mapping[str, str] | None = None
) -> dict[str, Secret]:
    """The values of `names`, which must all be set. Raises UsageError with names only."""
    variables = os.environ if environ is None else environ
    bad = [name for name in names if not _NAME.fullmatch(name)]
    if bad:
        raise UsageError("a secret is asked for by the name of an environment variable")
    missing = [name for name in names if not variables.get(name)]
    if missing:
        raise UsageError(
            f"these secrets are not set: {', '.join(missing)}",
            not_done="nothing was started",
            hint="export them in the shell that submits; only the names are recorded",
        )
    return {name: Secret(variables[name]) for name in names}


def named_variables(
    names: Sequence[str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The values of public variables, which must all be set. Raises UsageError."""
    variables = os.environ if environ is None else environ
    missing = [name for name in names if name not in variables]
    if missing:
        raise UsageError(
            f"these variables are not set: {', '.join(missing)}",
            not_done="nothing was started",
            hint="`--env NAME` hands a variable of this shell to every task",
        )
    return {name: variables[name] for name in names}
