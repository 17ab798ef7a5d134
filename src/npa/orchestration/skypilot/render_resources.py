"""A resource profile as SkyPilot's `resources` and `config`, with units settled."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from npa.orchestration.skypilot.options import MODEL_CACHE_PATH, ModelCache, RenderOptions
from npa.orchestration.skypilot.render_errors import RenderError
from npa.workflow.profile import parse_accelerators, parse_size
from npa.workflow.step import Profile

CONTAINER = "ray-node"
"""SkyPilot's name of a pod's container."""
_POD_KEYS = ("pod_config", "provision_timeout")
_PASSED_ON = ("use_spot", "region")


def is_kubernetes(profile: Profile, options: RenderOptions) -> bool:
    """Does the task become pods?"""
    where = options.infra.partition("/")[0] or profile.cloud
    return where.strip().lower() in ("kubernetes", "k8s")


def render_resources(
    profile: Profile, image: str, options: RenderOptions, path: str
) -> dict[str, Any]:
    """The `resources` of a task. `num_nodes` stands beside it, never in it."""
    pods = is_kubernetes(profile, options)
    result: dict[str, Any] = {}
    if options.infra:
        result["infra"] = options.infra
    elif profile.cloud:
        result["cloud"] = profile.cloud
    if profile.accelerator:
        result["accelerators"] = _accelerators(profile, options, path)
    if profile.cpus:
        result["cpus"] = _amount(profile.cpus, profile.cpus_at_least or pods)
    memory, at_least = profile.memory_gib, profile.memory_at_least
    if options.memory and profile.accelerator:
        memory, at_least = parse_size("memory", options.memory)
    if memory:
        result["memory"] = _amount(memory, at_least or pods)
    if profile.disk_gib and pods:
        # SkyPilot ignores `disk_size` on pods; elsewhere it is the size of a boot disk.
        result["ephemeral_storage"] = math.ceil(profile.disk_gib)
    for key in _PASSED_ON:
        value = profile.raw.get(key)
        if value not in (None, "") and not (key == "region" and options.infra):
            result[key] = value
    if image:
        result["image_id"] = f"docker:{image}"
    return result


def render_config(profile: Profile, options: RenderOptions) -> dict[str, Any]:
    """The task's `config`: the pod settings of the profile, with the model cache mounted."""
    block = profile.raw.get("kubernetes")
    settings: dict[str, Any] = {}
    if isinstance(block, Mapping):
        settings = {key: copy.deepcopy(block[key]) for key in _POD_KEYS if key in block}
    if options.model_cache is not None and is_kubernetes(profile, options):
        settings["pod_config"] = _with_cache(settings.get("pod_config"), options.model_cache)
    return {"kubernetes": settings} if settings else {}


def mounts_cache(profile: Profile, options: RenderOptions) -> bool:
    """Is there a model cache for the task, ours or one that its profile mounts?"""
    if not is_kubernetes(profile, options):
        return False
    block = profile.raw.get("kubernetes")
    own = block.get("pod_config") if isinstance(block, Mapping) else None
    return options.model_cache is not None or _mounts(own)


def _accelerators(profile: Profile, options: RenderOptions, path: str) -> str:
    declared = f"{profile.accelerator}:{profile.accelerator_count}"
    named = profile.raw.get("accelerators")
    spellings = (named if isinstance(named, str) else "", declared, profile.accelerator)
    wanted = next((options.accelerators[s] for s in spellings if s in options.accelerators), "")
    if not wanted:
        return declared
    name, count = parse_accelerators(wanted)
    if ":" not in wanted:
        count = profile.accelerator_count
    if not name:
        raise RenderError(f"'{wanted}' names no accelerator", path=path)
    return f"{name}:{count}"


def _amount(value: float, at_least: bool) -> str | int | float:
    number = int(value) if value == int(value) else value
    return f"{number}+" if at_least else number


def _with_cache(pod_config: object, cache: ModelCache) -> dict[str, Any]:
    pod: dict[str, Any] = dict(pod_config) if isinstance(pod_config, Mapping) else {}
    if _mounts(pod):
        return pod
    spec = pod.setdefault("spec", {})
    volume: dict[str, Any] = {"name": "npa-model-cache"}
    if cache.claim:
        volume["persistentVolumeClaim"] = {"claimName": cache.claim}
    else:
        volume["hostPath"] = {"path": cache.host_path, "type": "DirectoryOrCreate"}
    spec.setdefault("volumes", []).append(volume)
    containers = spec.setdefault("containers", [])
    main = next((one for one in containers if one.get("name") == CONTAINER), None)
    if main is None:
        main = {"name": CONTAINER}
        containers.append(main)
    mount = {"name": "npa-model-cache", "mountPath": MODEL_CACHE_PATH}
    main.setdefault("volumeMounts", []).append(mount)
    return pod


def _mounts(pod_config: object) -> bool:
    """Does a pod already mount something at the cache's path?"""
    spec = pod_config.get("spec") if isinstance(pod_config, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    return any(
        mount.get("mountPath") == MODEL_CACHE_PATH
        for container in containers or ()
        if isinstance(container, Mapping)
        for mount in container.get("volumeMounts") or ()
        if isinstance(mount, Mapping)
    )
