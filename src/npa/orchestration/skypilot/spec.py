"""What a session needs to be started, and the environment that its children get, by allow-list."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from npa.orchestration.skypilot.record import Kind, Record, write_private
from npa.orchestration.skypilot.refusals import Refusal, refuse
from npa.target.secret import Secret

MARKER = "NPA_SKYPILOT_SESSION"  # in the environment of the server and of all that it starts
# Of the caller's environment; the rest does not reach SkyPilot.
ALLOWED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "USER",
    "LOGNAME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
)
# What the server may think that the machine has: eight GB give two jobs controllers, not one for
# each two GB of a large host.
SERVER_MEMORY_GB = 8
SERVER_CPUS = 2
PLUGIN_MODULE = "npa_skypilot_plugin"


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a session is started with.

    `root` is the session's folder. `env` is the caller's environment, of which only `ALLOWED` is
    used. `public` and `secrets` are the target's variables. `links` puts files or folders of the
    caller into the session's home (`.kube/config`, `.slurm/config`, `.aws`). `sky_config` is
    SkyPilot's configuration. `kubeconfig` is the one kubeconfig file, or None.
    """

    root: Path
    kind: Kind
    interpreter: Path
    env: Mapping[str, str] = field(repr=False)  # may hold anything of the caller's
    sky_config: Mapping[str, object] = field(default_factory=dict)
    public: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    links: Mapping[str, Path] = field(default_factory=dict)
    kubeconfig: Path | None = None
    context: str = ""

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def server_folder(self) -> Path:
        return self.root / "server"

    @property
    def user_id(self) -> str:
        """SkyPilot's user hash: of the session's folder, so that two sessions never share names."""
        return "npa-" + hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:12]


def refuse_unowned_state(spec: SessionSpec) -> None:
    """No configuration may move the session's state or endpoint elsewhere. Raises EngineError."""
    for key in ("db", "api_server"):
        if key in spec.sky_config:
            raise refuse(Refusal.CONFIG, f"SkyPilot's configuration has a `{key}` section")
    for name in ("SKYPILOT_DB_CONNECTION_URI", "SKYPILOT_API_SERVER_ENDPOINT"):
        if spec.env.get(name) or spec.public.get(name):
            raise refuse(Refusal.CONFIG, f"{name} is set")
    for name in (*spec.public, *spec.secrets):
        if name.startswith(("SKYPILOT_", "SKY_")) or name in ("HOME", "PYTHONPATH", MARKER):
            raise refuse(Refusal.CONFIG, f"the target sets {name}")


def make_folder(root: Path) -> None:
    """The session's folder, private to this user. Raises EngineError (SESSION_FOLDER)."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = root.lstat()
    if root.is_symlink() or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise refuse(Refusal.FOLDER, f"{root} is not a private folder of this user")


def write_home(spec: SessionSpec, record: Record) -> None:
    """All that the server reads: configuration, plug-in, user hash, links."""
    for folder in (spec.home, spec.home / ".sky", spec.server_folder):
        folder.mkdir(mode=0o700, exist_ok=True)
    config = yaml.safe_dump(dict(spec.sky_config), sort_keys=True) if spec.sky_config else "{}\n"
    write_private(spec.home / ".sky" / "config.yaml", config.encode())
    write_private(spec.home / ".sky" / "user_hash", record.user_id.encode())
    source = Path(__file__).with_name("server_plugin.py")
    shutil.copyfile(source, spec.server_folder / f"{PLUGIN_MODULE}.py")
    plugins = {"plugins": [{"class": f"{PLUGIN_MODULE}.OwnedServer"}]}
    write_private(spec.server_folder / "plugins.yaml", json.dumps(plugins).encode())
    links = dict(spec.links)
    if spec.kubeconfig is not None:
        # 0.12.2's region check reads only the default path, whatever KUBECONFIG says.
        links[".kube/config"] = spec.kubeconfig
    for name, target in links.items():
        place = spec.home / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = place.with_name(place.name + ".new")
        staged.unlink(missing_ok=True)
        staged.symlink_to(target)
        staged.replace(place)


def client_environment(spec: SessionSpec, record: Record) -> dict[str, str]:
    """What a client of the session gets: no credentials, the server has them."""
    env = {name: spec.env[name] for name in ALLOWED if name in spec.env}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    return env | {
        "HOME": str(spec.home),
        "PYTHONUNBUFFERED": "1",
        "SKYPILOT_API_SERVER_ENDPOINT": record.endpoint,
        "SKYPILOT_USER_ID": record.user_id,
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    }


def server_environment(spec: SessionSpec, record: Record) -> dict[str, str]:
    """What the server gets: the target's variables, its secrets, its plug-in, its marker."""
    env = client_environment(spec, record) | dict(spec.public)
    env |= {name: secret.reveal() for name, secret in spec.secrets.items()}
    if spec.kubeconfig is not None:
        env["KUBECONFIG"] = str(spec.kubeconfig)
    return env | {
        "PATH": f"{spec.interpreter.parent}:{env['PATH']}",
        "PYTHONPATH": str(spec.server_folder),
        "IS_SKYPILOT_SERVER": "true",
        "SKYPILOT_SERVER_PLUGINS_CONFIG": str(spec.server_folder / "plugins.yaml"),
        "SKYPILOT_POD_MEMORY_GB_LIMIT": str(SERVER_MEMORY_GB),
        "SKYPILOT_POD_CPU_CORE_LIMIT": str(SERVER_CPUS),
        MARKER: record.marker,
    }


def server_argv(spec: SessionSpec, record: Record) -> list[str]:
    ports = record.ports
    argv = [str(spec.interpreter), "-u", "-m", "sky.server.server", "--host", "127.0.0.1"]
    return [*argv, "--port", str(ports.api), "--metrics-port", str(ports.metrics)]
