"""What this machine has, what live jobs hold of it, and whether more fits.

CPUs come from the scheduler's affinity and the control group's quota, memory from MemTotal and the
control group's limit, GPUs from `nvidia-smi` or the driver's `/proc` files. A step that asks for no
CPU counts as one, and that alone never makes it impossible.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from npa.orchestration.engine import Room, RoomKind
from npa.workflow.step import Profile, Step

NVIDIA_SMI_SECONDS_MAX = 10.0
_GIB = float(1 << 30)
_UNLIMITED = 1 << 60  # control groups of version 1 write a number near 2^63 for "no limit"


class Gpu(Struct, frozen=True):
    """`index` as CUDA counts it, `product` as the driver names it (`NVIDIA H100 80GB HBM3`)."""

    index: int
    product: str


class Inventory(Struct, frozen=True):
    """Cores, GiB and GPUs that jobs of this machine share."""

    cpus: float
    memory_gib: float
    gpus: tuple[Gpu, ...] = ()


class Usage(Struct, frozen=True):
    """What one job holds, all its ranks together."""

    cpus: float = 0.0
    memory_gib: float = 0.0
    gpus: frozenset[int] = frozenset()

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cpus + other.cpus, self.memory_gib + other.memory_gib, self.gpus | other.gpus
        )


def demand(profile: Profile, inventory: Inventory) -> tuple[float, float]:
    """Cores and GiB of all ranks. A profile without CPUs takes one a rank, as far as they go."""
    ranks = max(1, profile.num_nodes)
    cpus = profile.cpus * ranks if profile.cpus else min(float(ranks), inventory.cpus)
    return cpus, profile.memory_gib * ranks


def impossible(profile: Profile, inventory: Inventory) -> str:
    """Why this can never run here, in words; "" if it can."""
    ranks = max(1, profile.num_nodes)
    many = f"{ranks} ranks on this one machine, together " if ranks > 1 else ""
    if profile.cpus * ranks > inventory.cpus:
        asked = f"{many}{_number(profile.cpus * ranks)}" if many else _number(profile.cpus)
        return f"asks for {asked} cpus, this machine has {_number(inventory.cpus)}"
    if profile.memory_gib * ranks > inventory.memory_gib:
        asked = f"{many}{_number(profile.memory_gib * ranks)}"
        return f"asks for {asked} GiB of memory, this machine has {_number(inventory.memory_gib)}"
    wanted = profile.accelerator_count * ranks if profile.accelerator else 0
    have = len(matching(profile.accelerator, inventory.gpus))
    if wanted > have:
        name = f"{profile.accelerator}:{profile.accelerator_count}"
        what = f"{ranks} ranks with {name}" if ranks > 1 else name
        if not inventory.gpus:
            return f"asks for {what}, this machine has no GPU"
        products = ", ".join(sorted({gpu.product for gpu in inventory.gpus}))
        return f"asks for {what}, this machine has {len(inventory.gpus)} GPU ({products})"
    return ""


def room(steps: Sequence[Step], inventory: Inventory, used: Usage) -> Room:
    """May `steps` start now, together, beside what is used already?"""
    for step in steps:
        if reason := impossible(step.profile, inventory):
            return Room(RoomKind.NEVER, f"`{step.path}` {reason}")
    for step in steps:
        cpus, memory = demand(step.profile, inventory)
        # An idle machine takes any step that fits it, so that rounding never starves one.
        if used.cpus and used.cpus + cpus > inventory.cpus:
            return Room(
                RoomKind.BUSY,
                f"`{step.path}` needs {_number(cpus)} cpus, "
                f"{_number(max(0.0, inventory.cpus - used.cpus))} of "
                f"{_number(inventory.cpus)} are free",
            )
        if used.memory_gib and used.memory_gib + memory > inventory.memory_gib:
            return Room(
                RoomKind.BUSY,
                f"`{step.path}` needs {_number(memory)} GiB, "
                f"{_number(inventory.memory_gib - used.memory_gib)} GiB are free",
            )
        picked = assign(step.profile, inventory, used.gpus)
        if picked is None:
            return Room(
                RoomKind.BUSY,
                f"`{step.path}` needs {step.profile.accelerator}:"
                f"{step.profile.accelerator_count} for each rank, other jobs hold them",
            )
        used += Usage(cpus, memory, frozenset(index for rank in picked for index in rank))
    return Room(RoomKind.FITS)


def assign(
    profile: Profile, inventory: Inventory, taken: Iterable[int]
) -> tuple[tuple[int, ...], ...] | None:
    """GPU indices of each rank, lowest first; None if there are not enough free ones."""
    ranks = max(1, profile.num_nodes)
    if not profile.accelerator or not profile.accelerator_count:
        return ((),) * ranks
    held = set(taken)
    free = [gpu.index for gpu in matching(profile.accelerator, inventory.gpus)]
    free = [index for index in sorted(free) if index not in held]
    count = profile.accelerator_count
    if len(free) < count * ranks:
        return None
    return tuple(tuple(free[rank * count : (rank + 1) * count]) for rank in range(ranks))


def matching(name: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """GPUs whose product holds each part of `name` as whole words, in order.

    So `A100-80GB` is an `NVIDIA A100-SXM4-80GB`, and `L40` is not an `NVIDIA L40S`.
    """
    return [gpu for gpu in gpus if name and _named(name, gpu.product)]


def _named(name: str, product: str) -> bool:
    words = [word for word in re.split(r"[^a-z0-9]+", product.lower()) if word]
    start = 0
    for part in (part for part in re.split(r"[^a-z0-9]+", name.lower()) if part):
        ends = [
            end
            for begin in range(start, len(words))
            for end in range(begin + 1, len(words) + 1)
            if "".join(words[begin:end]) == part
        ]
        if not ends:
            return False
        start = min(ends)
    return True


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# -- reading the machine ----------------------------------------------------------------------


def read_inventory(env: Mapping[str, str], root: Path = Path("/")) -> Inventory:
    """Look at this machine. `env` is the environment in which `nvidia-smi` is searched and run.

    Raises OSError if `/proc/meminfo` cannot be read.
    """
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota(root)
    memory = _mem_total(root)
    limit = _memory_limit(root)
    return Inventory(
        cpus=min(cpus, quota) if quota else cpus,
        memory_gib=min(memory, limit) / _GIB if limit else memory / _GIB,
        gpus=_gpus(env, root),
    )


def _mem_total(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024
    raise OSError("/proc/meminfo has no MemTotal")


def _group_folders(root: Path, controller: str) -> list[Path]:
    """Folders of our control group and of all above it, for version 1 and 2."""
    found: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _id, names, path = line.split(":", 2)
        if names == "":
            base = root / "sys/fs/cgroup"
        elif controller in names.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        group = base / path.lstrip("/")
        found += [group, *(above for above in group.parents if above.is_relative_to(base))]
    return found


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _cpu_quota(root: Path) -> float:
    """The tightest quota in cores; 0 if there is none."""
    quotas: list[float] = []
    for folder in _group_folders(root, "cpu"):
        words = _read_words(folder / "cpu.max")
        if not words:
            words = _read_words(folder / "cpu.cfs_quota_us") + _read_words(
                folder / "cpu.cfs_period_us"
            )
        if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min((quota for quota in quotas if quota > 0), default=0.0)


def _memory_limit(root: Path) -> int:
    """The tightest limit in bytes; 0 if there is none."""
    limits: list[int] = []
    for folder in _group_folders(root, "memory"):
        words = _read_words(folder / "memory.max") or _read_words(folder / "memory.limit_in_bytes")
        if words and words[0].isdigit() and 0 < int(words[0]) < _UNLIMITED:
            limits.append(int(words[0]))
    return min(limits, default=0)


def _gpus(env: Mapping[str, str], root: Path) -> tuple[Gpu, ...]:
    program = shutil.which("nvidia-smi", path=env.get("PATH", os.defpath))
    found = _gpus_of_nvidia_smi(program, env) if program else ()
    return _visible(found or _gpus_of_proc(root), env)


def _gpus_of_nvidia_smi(program: str, env: Mapping[str, str]) -> tuple[Gpu, ...]:
    try:
        done = subprocess.run(
            [program, "--query-gpu=index,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_SECONDS_MAX,
            env=dict(env),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if done.returncode != 0:
        return ()
    rows = (line.partition(",") for line in done.stdout.splitlines())
    return tuple(
        Gpu(int(index), product.strip()) for index, _, product in rows if index.strip().isdigit()
    )


def _gpus_of_proc(root: Path) -> tuple[Gpu, ...]:
    folders = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    products = []
    for file in folders:
        found = re.search(r"^Model:\s*(.+)$", file.read_text(), flags=re.MULTILINE)
        products.append(found[1].strip() if found else "")
    return tuple(Gpu(index, product) for index, product in enumerate(products))


def _visible(gpus: tuple[Gpu, ...], env: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Only the GPUs that the caller's own CUDA_VISIBLE_DEVICES leaves, if it lists indices."""
    text = env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return gpus
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdigit() for word in wanted):
        return gpus
    return tuple(gpu for gpu in gpus if str(gpu.index) in wanted)
