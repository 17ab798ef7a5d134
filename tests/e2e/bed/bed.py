"""A real SkyPilot against a real Slurm of four fake GPU nodes, on one Debian machine.

    python tests/e2e/bed/bed.py up        install, start, check; 77 and a reason where it cannot be
    python tests/e2e/bed/bed.py health    exit 0 if it is up and answers
    python tests/e2e/bed/bed.py down      stop all that `up` started
    python tests/e2e/bed/bed.py purge     and remove its files, its user and its lines elsewhere

Needs root, Debian and apt. The API server is not part of it: the tests start their own, which is
what they are about. What is not stock is listed in README.md beside this file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import slurm  # noqa: E402
from places import (  # noqa: E402
    BED_JSON,
    BIN,
    ENVIRONMENT,
    ETC,
    LOG,
    NODE,
    OPT,
    RUN,
    STATE,
    USER,
    USER_HOME,
)

CANNOT = 77
PACKAGES = [
    "slurm-wlm",
    "slurm-wlm-basic-plugins",
    "munge",
    "python3",
    "sudo",
    "openssh-server",
    "openssh-client",
    "rsync",
    "socat",
    "netcat-openbsd",
    "curl",
    "procps",
    "iproute2",
]
SSH_PORT = 22722
PYTHONS = ("3.11", "3.12")


def why_not() -> str:
    """Why there can be no bed on this machine; "" if there can."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root (Slurm's daemons, namespaces, apt)"
    if not Path("/etc/debian_version").exists() or not shutil.which("apt-get"):
        return "needs Debian and apt"
    ready = any(Path(f"/usr/bin/python{version}").exists() for version in PYTHONS)
    if not ready and not Path("/etc/debian_version").read_text().startswith("12"):
        return f"needs Debian's Python {' or '.join(PYTHONS)}, for which SkyPilot is locked"
    foreign = slurm.foreign_configuration()
    if foreign:
        return f"{foreign} belongs to another Slurm"
    if missing() and not apt_reaches():
        return f"needs a network: {', '.join(missing())} not installed"
    return ""


def missing() -> list[str]:
    def installed(package: str) -> bool:
        done = subprocess.run(["dpkg", "-s", package], capture_output=True, text=True)
        return "\nStatus: install ok installed\n" in done.stdout

    return [package for package in PACKAGES if not installed(package)]


def apt_reaches() -> bool:
    done = subprocess.run(["apt-get", "update", "-qq"], capture_output=True, timeout=300)
    return done.returncode == 0


def say(text: str) -> None:
    print(f"bed {time.strftime('%T')}  {text}", file=sys.stderr, flush=True)


def run(*argv: str, **more: object) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(
            f"bed: `{' '.join(argv)}` failed\n{done.stdout[-800:]}{done.stderr[-2000:]}"
        )
    return str(done.stdout)


def wait_for(what: str, test: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() > deadline:
            raise SystemExit(f"bed: {what} did not come within {seconds:.0f} s; logs are in {LOG}")
        time.sleep(0.2)


# -- up ----------------------------------------------------------------------------------------


def install_packages() -> None:
    needed = missing()
    if needed:
        say(f"apt-get install {' '.join(needed)}")
        # Debian would start its own munge and sshd: none of ours, and not wanted.
        policy = Path("/usr/sbin/policy-rc.d")
        ours = not policy.exists()
        if ours:
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        try:
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *needed, env=env)
        finally:
            if ours:
                policy.unlink(missing_ok=True)


def install_skypilot() -> Path:
    """The product's own bootstrap, then the patch that only tests want."""
    from npa.orchestration.skypilot import environment
    from npa.orchestration.skypilot.installer import RealInstaller, find_python

    env = dict(os.environ)
    say("SkyPilot's environment (the product's own bootstrap)")
    made = environment.bootstrap(
        ENVIRONMENT,
        python=find_python("/usr/bin/python3", env),
        installer=RealInstaller(env),
        protected=(Path.home(),),
    )
    # The nodes' user links to it (shims/uv), so that no node installs anything.
    for folder in (OPT, ENVIRONMENT, ENVIRONMENT / "envs"):
        folder.chmod(0o755)
    packages = next(made.installed.folder.glob("lib/python3*/site-packages"))
    shutil.copy(HERE / "patch" / "npa_bed_patch.py", packages / "npa_bed_patch.py")
    (packages / "npa_bed_patch.pth").write_text("import npa_bed_patch\n")
    return made.sky_bin


def install_node_python() -> Path:
    """What an image for nodes would carry: a Python with what the examples import, without npa."""
    lock = HERE.parents[2] / "requirements-demo.lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    made, python = NODE / "made-from", NODE / "bin" / "python"
    if made.exists() and made.read_text() == digest:
        return python
    say("the nodes' Python")
    uv = str(Path(sys.executable).parent / "uv")
    run(uv, "venv", "--quiet", "--clear", "--python", "/usr/bin/python3", str(NODE))
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--require-hashes"]
    run(*install, "--python", str(python), "-r", str(lock))
    NODE.chmod(0o755)
    made.write_text(digest)
    return python


def make_user() -> None:
    if subprocess.run(["id", USER], capture_output=True).returncode:
        run("useradd", "--system", "--create-home", "-d", str(USER_HOME), "-s", "/bin/bash", USER)
    # No password, yet not locked: sshd without PAM refuses a locked account.
    run("usermod", "-p", "*", USER)
    for folder in (ETC, BIN, RUN, LOG, STATE, USER_HOME / ".ssh"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("id_ed25519", "ssh_host_ed25519"):
        if not (ETC / name).exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ETC / name))
    shutil.copy(ETC / "id_ed25519.pub", USER_HOME / ".ssh" / "authorized_keys")
    # SkyPilot runs `bash --login`, whose /etc/profile resets PATH: it has to come from here.
    (USER_HOME / ".bash_profile").write_text(f"export PATH={BIN}:$PATH\n")
    (USER_HOME / ".ssh").chmod(0o700)
    (USER_HOME / ".ssh" / "authorized_keys").chmod(0o600)
    run("chown", "-R", f"{USER}:", str(USER_HOME / ".ssh"), str(USER_HOME / ".bash_profile"))
    # A JobGroup writes names into a node's /etc/hosts by sudo; without it each task of a group
    # waits ten minutes before it begins.
    sudoers = Path("/etc/sudoers.d/npa-bed")
    sudoers.write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    for shim in (HERE / "shims").iterdir():
        shutil.copy(shim, BIN / shim.name)
        (BIN / shim.name).chmod(0o755)


SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {etc}/ssh_host_ed25519
PidFile {run}/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin no
AllowUsers {user}
PrintMotd no
MaxSessions 500
MaxStartups 200:30:500
LogLevel ERROR
Subsystem sftp internal-sftp
"""


def start_sshd() -> None:
    if slurm.alive(RUN / "sshd.pid"):
        return
    Path("/run/sshd").mkdir(exist_ok=True)
    (ETC / "sshd_config").write_text(SSHD.format(port=SSH_PORT, etc=ETC, run=RUN, user=USER))
    run("/usr/sbin/sshd", "-f", str(ETC / "sshd_config"), "-E", str(LOG / "sshd.log"))


def write_ssh_config() -> Path:
    path = ETC / "slurm-ssh-config"
    path.write_text(
        f"Host bed\n  HostName 127.0.0.1\n  Port {SSH_PORT}\n  User {USER}\n"
        f"  IdentityFile {ETC}/id_ed25519\n  IdentitiesOnly yes\n"
    )
    return path


def up() -> int:
    reason = why_not()
    if reason:
        say(f"skipped: {reason}")
        return CANNOT
    began = time.monotonic()
    try:
        install_packages()
    except SystemExit as failed:
        say(f"skipped: Debian's packages cannot be installed: {failed}")
        return CANNOT
    OPT.mkdir(parents=True, exist_ok=True)
    sky_bin = install_skypilot()
    node_python = install_node_python()
    make_user()
    start_sshd()
    slurm.start(run, say, wait_for)
    BED_JSON.write_text(
        json.dumps(
            {
                "sky_bin": str(sky_bin),
                "node_python": str(node_python),
                "slurm_ssh_config": str(write_ssh_config()),
                "catalog": str(HERE / "catalog"),
                "infra": "slurm/bed",
                "nodes": slurm.NODES,
                "gpus_per_node": slurm.GPUS,
            },
            indent=2,
        )
    )
    problem = health()
    if problem:
        say(problem)
        return 1
    say(f"up after {time.monotonic() - began:.0f} s: {slurm.NODES} nodes, {slurm.GPUS} x H100 each")
    return 0


def health() -> str:
    """What is wrong; "" if the bed is up and answers."""
    if not BED_JSON.exists():
        return "the bed is not up"
    idle = slurm.nodes_ready()
    if idle != slurm.NODES:
        return f"{idle} of {slurm.NODES} nodes are ready"
    ssh = ["ssh", "-F", str(ETC / "slurm-ssh-config"), "-o", "BatchMode=yes"]
    ssh += ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={ETC}/known_hosts"]
    command = "srun -N2 -n2 --gres=gpu:H100:1 --immediate=20 bash -c 'hostname; sudo -n true'"
    done = subprocess.run([*ssh, "bed", command], capture_output=True, text=True, timeout=60)
    if done.returncode or len(set(done.stdout.split())) != 2:
        return f"a job on two nodes failed: {done.stdout[-300:]}{done.stderr[-300:]}"
    return ""


# -- down --------------------------------------------------------------------------------------


def end_servers() -> None:
    """What a test run that was killed left: all that runs from the bed's own SkyPilot."""
    for signal, seconds in (("TERM", 20), ("KILL", 5)):
        sessions = {sid for sid, program in processes() if program.startswith(str(ENVIRONMENT))}
        deadline = time.monotonic() + seconds
        for sid in sessions:
            subprocess.run(["pkill", f"-{signal}", "-u", "0", "-s", str(sid)], capture_output=True)
        while time.monotonic() < deadline and sessions & {sid for sid, _ in processes()}:
            time.sleep(0.2)


def processes() -> list[tuple[int, str]]:
    """Session and program of each process of root; a worker may have another title."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            program = (entry / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
            stat = (entry / "stat").read_text()
            root = entry.stat().st_uid == 0
        except OSError:
            continue
        if root:
            found.append((int(stat[stat.rindex(")") + 2 :].split()[3]), program))
    return found


def down() -> int:
    BED_JSON.unlink(missing_ok=True)
    end_servers()
    slurm.stop()
    slurm.stop_by_pid(RUN / "sshd.pid")
    for name in ("TERM", "KILL"):  # sessions that SkyPilot keeps open, and skylets
        found = subprocess.run(["ps", "-o", "pid=", "-u", USER], capture_output=True, text=True)
        for pid in found.stdout.split():
            subprocess.run(["kill", f"-{name}", pid], capture_output=True)
        if not found.stdout.split():
            break
        time.sleep(1)
    slurm.stop_munge()
    return 0


def purge() -> int:
    down()
    slurm.remove_configuration()
    for folder in (OPT, STATE, ETC, RUN, LOG):
        shutil.rmtree(folder, ignore_errors=True)
    Path("/etc/sudoers.d/npa-bed").unlink(missing_ok=True)
    subprocess.run(["userdel", "-r", USER], capture_output=True)
    return 0


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    if verb == "health":
        problem = health()
        say(problem or "the bed is up")
        return 1 if problem else 0
    verbs = {"up": up, "down": down, "purge": purge}
    if verb not in verbs:
        print(__doc__, file=sys.stderr)
        return 64
    if verb == "up" and why_not():
        return up()
    with open("/run/npa-bed.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return verbs[verb]()


if __name__ == "__main__":
    sys.exit(main())
