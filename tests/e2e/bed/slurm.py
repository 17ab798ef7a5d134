"""A Slurm of several fake GPU nodes on one machine: configuration, daemons, health.

A node is a slurmd in UTS and mount namespaces of its own: its own hostname (SkyPilot tells nodes
apart by `gethostbyname(gethostname())`), its own /tmp (SkyPilot keeps a node's runtime there) and
its own /etc/hosts (JobGroups write to it). The network is shared: all traffic is loopback.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from places import BIN, LOG, RUN, STATE, USER

NODES = 4
CPUS = 32
MEMORY_MB = 65536
GPUS = 8
HEADER = "# npa's test bed\n"
SLURM_CONF = Path("/etc/slurm/slurm.conf")
GRES_CONF = Path("/etc/slurm/gres.conf")
PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# NoInAddrAny must not be set: srun would listen on the node's address while its step connects back
# to 127.0.0.1, and hang. config_overrides lets two real cores pose as four nodes of 32.
CONF = """\
ClusterName=npabed
SlurmctldHost=npactl(127.0.0.1)
SlurmctldPort=6817
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
CommunicationParameters=NoCtldInAddrAny
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/%n/spool
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd-%n.pid
SlurmctldLogFile={log}/slurmctld.log
SlurmdLogFile={log}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=300
InactiveLimit=0
KillWait=5
MinJobAge=300
Waittime=0
MessageTimeout=60
TreeWidth=65533
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=5
"""


def names() -> list[str]:
    return [f"npan{i}" for i in range(1, NODES + 1)]


def configuration() -> str:
    lines = [HEADER + CONF.format(state=STATE, run=RUN, log=LOG)]
    for i, name in enumerate(names(), start=1):
        lines.append(
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.1.{10 + i} Port={6820 + i} "
            f"CPUs={CPUS} RealMemory={MEMORY_MB} State=UNKNOWN Gres=gpu:H100:{GPUS}\n"
        )
    lines.append(f"PartitionName=main Nodes={','.join(names())} Default=YES MaxTime=UNLIMITED\n")
    return "".join(lines)


def gres() -> str:
    return f"{HEADER}AutoDetect=off\nName=gpu Type=H100 File={STATE}/dev/gpu[0-{GPUS - 1}]\n"


def foreign_configuration() -> str:
    """A Slurm configuration on this machine that is not ours; "" if there is none."""
    for path in (SLURM_CONF, GRES_CONF):
        if path.exists() and not path.read_text().startswith(HEADER):
            return str(path)
    return ""


def start(
    run: Callable[..., str],
    say: Callable[[str], None],
    wait_for: Callable[[str, Callable[[], bool], float], None],
) -> None:
    prepare(run)
    if not subprocess_ok("munge", "-n"):
        Path("/run/munge").mkdir(exist_ok=True)
        run("chown", "munge:", "/run/munge")
        Path("/run/munge").chmod(0o755)
        run("runuser", "-u", "munge", "--", "/usr/sbin/munged")
    if not alive(RUN / "slurmctld.pid"):
        say("slurmctld")
        # Cold (-c): no drained node is left from the last time.
        run("unshare", "--uts", "bash", "-c", "hostname npactl; exec /usr/sbin/slurmctld -c")
    for name in names():
        if not alive(RUN / f"slurmd-{name}.pid"):
            say(f"slurmd {name}")
            start_node(run, name)
    wait_for("Slurm's nodes", lambda: nodes_ready() == NODES, 40)


def prepare(run: Callable[..., str]) -> None:
    for folder in (RUN, LOG, STATE / "ctld", STATE / "dev", Path("/etc/slurm")):
        folder.mkdir(parents=True, exist_ok=True)
    run("chown", "slurm:", str(RUN), str(LOG), str(STATE / "ctld"))
    for i in range(GPUS):  # Slurm wants a device file a GPU; copies of /dev/null do
        device = STATE / "dev" / f"gpu{i}"
        if not device.exists():
            os.mknod(device, 0o020666, os.makedev(1, 3))
            device.chmod(0o666)
    SLURM_CONF.write_text(configuration())
    GRES_CONF.write_text(gres())
    Path("/etc/slurm/cgroup.conf").unlink(missing_ok=True)
    others = [line for line in Path("/etc/hosts").read_text().splitlines() if not our_host(line)]
    own = ["127.0.0.1 npactl"] + [f"127.0.1.{10 + i} npan{i}" for i in range(1, NODES + 1)]
    with open("/etc/hosts", "w") as hosts:  # in place: it may be a mount
        hosts.write("\n".join([*others, *own]) + "\n")


def our_host(line: str) -> bool:
    return line.split()[-1:] in [[name] for name in ("npactl", *names())]


def start_node(run: Callable[..., str], name: str) -> None:
    (STATE / name / "spool").mkdir(parents=True, exist_ok=True)
    script = (
        f"hostname {name} && mount -t tmpfs -o size=2g,mode=1777 npa-bed-tmp /tmp"
        f" && cp /etc/hosts {STATE}/{name}/hosts && mount --bind {STATE}/{name}/hosts /etc/hosts"
        f" && cd / && exec /usr/sbin/slurmd -N {name}"
    )
    unshare = ("unshare", "--uts", "--mount", "--propagation", "private")
    run(*unshare, "bash", "-c", script, env={"PATH": PATH})


def nodes_ready() -> int:
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(word in ("idle", "mixed", "allocated") for word in done.stdout.split())


def stop() -> None:
    if alive(RUN / "slurmctld.pid"):
        quietly("scancel", "-u", USER)
        deadline = time.monotonic() + 20
        while quietly("squeue", "-h") and time.monotonic() < deadline:
            time.sleep(0.3)
    for name in names():
        stop_by_pid(RUN / f"slurmd-{name}.pid")
    stop_by_pid(RUN / "slurmctld.pid")


def stop_munge() -> None:
    stop_by_pid(Path("/run/munge/munged.pid"))


def remove_configuration() -> None:
    for path in (SLURM_CONF, GRES_CONF):
        if path.exists() and path.read_text().startswith(HEADER):
            path.unlink()
    others = [line for line in Path("/etc/hosts").read_text().splitlines() if not our_host(line)]
    with open("/etc/hosts", "w") as hosts:
        hosts.write("\n".join(others) + "\n")


def alive(pidfile: Path) -> bool:
    try:
        os.kill(int(pidfile.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def stop_by_pid(pidfile: Path) -> None:
    if not alive(pidfile):
        pidfile.unlink(missing_ok=True)
        return
    pid = int(pidfile.read_text())
    os.kill(pid, 15)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, 9)
    pidfile.unlink(missing_ok=True)


def subprocess_ok(*argv: str) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def quietly(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
