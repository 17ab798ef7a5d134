"""Which storage identity is used: resolved once, from one source, and passed down.

Sources of the key pair, first hit wins, each taken whole with its session token:
the environment (AWS_*), `storage:` in npa's config.yaml, the shared AWS credentials file.
Endpoint and region: environment, then config.yaml. Nothing here changes the environment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from npa.errors import UsageError
from npa.storage.seam import StoreOptions
from npa.target.home import Home
from npa.target.secret import Secret

ENDPOINT_NAMES = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "NEBIUS_S3_ENDPOINT",
    "NPA_STORAGE_ENDPOINT",
    "S3_ENDPOINT_URL",
)
REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION", "NEBIUS_REGION")
_CONFIG_KEYS = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
CONFIG_BYTES_MAX = 1 << 20


class StorageAccess(Struct, frozen=True, eq=False):
    """A resolved storage identity.

    `principal` is the access key ID: a name, fit for the seal. `source` says where the pair came
    from. Endpoint and region are public; the values of `secrets` go to a child and nobody else.
    """

    options: StoreOptions
    principal: str
    source: str

    @property
    def endpoint_host(self) -> str:
        """Host and port of the endpoint, for the seal; empty for the provider's own."""
        return urlsplit(self.options.endpoint).netloc

    @property
    def env(self) -> dict[str, str]:
        """The public variables that a task needs to reach the store."""
        found = {"AWS_ENDPOINT_URL": self.options.endpoint, "AWS_REGION": self.options.region}
        return {name: value for name, value in found.items() if value}

    @property
    def secrets(self) -> dict[str, Secret]:
        """The variables that let a task use the store."""
        found = {
            "AWS_ACCESS_KEY_ID": self.options.access_key,
            "AWS_SECRET_ACCESS_KEY": self.options.secret_key,
            "AWS_SESSION_TOKEN": self.options.session_token,
        }
        return {name: secret for name, secret in found.items() if secret is not None}


class _Pair(Struct, frozen=True, eq=False):
    principal: str
    secret_key: Secret
    session_token: Secret | None
    source: str


def storage_access(
    environ: Mapping[str, str] | None = None, home: Home | None = None
) -> StorageAccess:
    """Resolve the storage identity. Raises UsageError; its text never holds a value."""
    variables = os.environ if environ is None else environ
    config = _config((home or Home.find(variables)).config_file)
    pair = (
        _pair_of_environment(variables)
        or _pair_of_mapping(config, "config.yaml")
        or _pair_of_shared_file(variables)
    )
    options = StoreOptions(
        endpoint=_first(variables, ENDPOINT_NAMES) or config.get("endpoint", ""),
        region=_first(variables, REGION_NAMES) or config.get("region", ""),
        access_key=Secret(pair.principal) if pair else None,
        secret_key=pair.secret_key if pair else None,
        session_token=pair.session_token if pair else None,
    )
    return StorageAccess(options, pair.principal if pair else "", pair.source if pair else "none")


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((variables[name] for name in names if variables.get(name)), "")


def _pair_of_environment(variables: Mapping[str, str]) -> _Pair | None:
    return _pair_of_mapping(
        {
            "access_key_id": variables.get("AWS_ACCESS_KEY_ID", ""),
            "secret_access_key": variables.get("AWS_SECRET_ACCESS_KEY", ""),
            "session_token": variables.get("AWS_SESSION_TOKEN", ""),
        },
        "environment",
    )


def _pair_of_mapping(values: Mapping[str, str], source: str) -> _Pair | None:
    key, secret = values.get("access_key_id", ""), values.get("secret_access_key", "")
    token = values.get("session_token", "")
    if not key and not secret:
        return None
    if not key or not secret:
        raise UsageError(
            f"the storage credentials of the {source} are incomplete",
            not_done="no other source was tried: a pair is taken whole from one place",
            hint="set the access key ID and the secret access key together",
        )
    return _Pair(key, Secret(secret), Secret(token) if token else None, source)


def _pair_of_shared_file(variables: Mapping[str, str]) -> _Pair | None:
    named = variables.get("AWS_SHARED_CREDENTIALS_FILE", "")
    user = variables.get("HOME", "")
    if not named and not user:
        return None
    path = Path(named) if named else Path(user) / ".aws" / "credentials"
    text = _read(path)
    if text is None:
        return None
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        # The parser's own message quotes the line, which may hold a secret.
        raise UsageError(f"the credentials file '{path}' cannot be read") from None
    profile = variables.get("AWS_PROFILE") or "default"
    if not parser.has_section(profile):
        return None
    section = parser[profile]
    values = {
        "access_key_id": section.get("aws_access_key_id", ""),
        "secret_access_key": section.get("aws_secret_access_key", ""),
        "session_token": section.get("aws_session_token", ""),
    }
    return _pair_of_mapping(values, f"credentials file, profile '{profile}'")


def _config(path: Path) -> dict[str, str]:
    """The `storage` section of npa's config.yaml as text values; empty if there is none."""
    text = _read(path)
    if text is None:
        return {}
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UsageError(f"'{path}' is not valid YAML") from None
    section = (document or {}).get("storage", {}) if isinstance(document or {}, dict) else None
    if not isinstance(section, dict):
        raise UsageError(f"'{path}' must be a mapping with a mapping `storage`")
    unknown = sorted(str(key) for key in section if key not in _CONFIG_KEYS)
    if unknown:
        raise UsageError(
            f"'{path}' has unknown keys in `storage`: {', '.join(unknown)}",
            hint=f"known are {', '.join(_CONFIG_KEYS)}",
        )
    if section.get("secret_access_key"):
        _check_private(path)
    return {key: str(value) for key, value in section.items() if value is not None}


def _check_private(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"'{path}' holds a secret and others may read it",
            next_command=f"chmod 600 {path}",
        )


def _read(path: Path) -> str | None:
    """The text of a configuration file; None only if there is no such file."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read '{path}': {type(error).__name__}") from None
    if len(text) > CONFIG_BYTES_MAX:
        raise UsageError(f"'{path}' is larger than {CONFIG_BYTES_MAX} bytes")
    return text
