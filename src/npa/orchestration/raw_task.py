"""A customer's own SkyPilot file: one task, read with all its problems, as a run of one step.

The file itself stays what is run. What stands in for it in the journal is a workflow of one state,
which carries the digest of the file, the names of its secrets and the outputs it declares.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from npa.errors import UsageError

STATE = "task"
OUTPUTS = "NPA_EXECUTION_OUTPUTS"  # JSON list of {"uri", "kind": "file" or "directory"}
KEPT = ("file_mounts", "volumes", "config")
KNOWN = ("name", "workdir", "num_nodes", "resources", "setup", "run", "envs", "secrets", *KEPT)
REFUSED: Mapping[str, str] = {
    "service": "a service has no end that a run could wait for",
    "pool": "a pool's worker outlives the run, so nothing proves that its job has ended",
    "api_server_access": "a task must not reach the API server that supervises it",
    "event_callback": "what runs beside the task is not supervised",
    "managed_secrets": "secrets are handed over by name: list them in `secrets`",
    "inputs": "SkyPilot does not check it; declare outputs in `envs.NPA_EXECUTION_OUTPUTS`",
    "outputs": "SkyPilot does not check it; declare outputs in `envs.NPA_EXECUTION_OUTPUTS`",
    "volume_mounts": "name the volumes in `volumes`",
}
_HEADER = {"name", "execution"}
_SIGNS = {"run", "setup", "resources", "num_nodes", "execution"}
_OURS = {"apiVersion", "kind", "states", "metadata"}
_OURS_AT_START = re.compile(r"^(apiVersion|kind|states|metadata)\s*:", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLOUD_KEYS = ("infra", "cloud", "region", "zone", "any_of", "ordered")


class RawTask(Struct, frozen=True):
    """One task. `digest` is of what the file means; `staged`: its folder is the working folder."""

    name: str
    digest: str
    run: str
    setup: str = ""
    num_nodes: int = 1
    resources: Mapping[str, Any] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    staged: bool = False
    kept: Mapping[str, Any] = field(default_factory=dict)


class Problems(list[tuple[int, int, str]]):
    """What is wrong with a file: (line, column, sentence), both from 1."""

    def add(self, node: yaml.Node, message: str) -> None:
        self.append((node.start_mark.line + 1, node.start_mark.column + 1, message))


def is_raw(text: str) -> bool:
    """Is this SkyPilot's own YAML? A file with one sign of ours is taken for ours."""
    if _OURS_AT_START.search(text):
        return False  # without reading a large pipeline a second time
    try:
        documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    except yaml.YAMLError:
        return False
    keys = {key for document in documents for key in document}
    return bool(keys & _SIGNS) and not keys & _OURS


def read_raw(text: str, filename: str) -> RawTask:
    """The one task of a file. Raises UsageError (RAW_TASK), with every problem and its place."""
    problems = Problems()
    try:
        nodes = [n for n in yaml.compose_all(text, Loader=yaml.SafeLoader) if n is not None]
    except yaml.YAMLError as error:  # `is_raw` has read the same text
        raise _refuse(filename, [(1, 1, f"it is not valid YAML ({error})")]) from error
    tasks = nodes[1:] if len(nodes) > 1 and _keys(nodes[0]) <= _HEADER else nodes
    if len(tasks) != 1:
        raise UsageError(
            f"{filename} has {len(tasks)} tasks, and a SkyPilot file is accepted with one",
            not_done="nothing was started",
            hint=(
                "write a chain or a job group as a pipeline (`next:`, `parallel:`), so that each "
                "step has an identity, outputs and retries of its own; then `npa workflow submit`"
            ),
            code="RAW_TASKS",
        )
    task = _read(tasks[0], nodes[0], Path(filename).stem, problems)
    if problems:
        raise _refuse(filename, sorted(problems))
    return task


def workflow_text(text: str, filename: str) -> str:
    """The workflow that stands for the file in a run; any other text as it is.

    Raises UsageError (RAW_TASK, RAW_TASKS).
    """
    if not is_raw(text):
        return text
    task = read_raw(text, filename)
    state: dict[str, object] = {
        "run": {"argv": ["skypilot-task"]},
        "resources": STATE,
        "terminal": True,
        "secrets": list(task.secrets),
        "outputs": [{"uri": uri} for uri in task.outputs],
    }
    if task.num_nodes > 1:
        state["multiNodeMode"] = "sharded"
    document = {
        "apiVersion": "npa.workflow/v0.0.1",
        "kind": "Workflow",
        "metadata": {"name": task.name},
        "config": {"skypilot_task_sha256": task.digest},
        "resources": {STATE: {"num_nodes": task.num_nodes}},
        "initial": STATE,
        "states": {STATE: state},
    }
    return json.dumps(document, indent=1)


def _read(node: yaml.Node, first: yaml.Node, stem: str, problems: Problems) -> RawTask:
    if not isinstance(node, yaml.MappingNode):
        problems.add(node, "a task is a mapping")
        return RawTask("", "", "")
    at = {key.value: value for key, value in node.value}
    value = _value(node)
    header = _value(first) if first is not node else {}
    problems.extend(_bad_keys(node))
    run = _text(value, "run", at, problems)
    if not run.strip():
        problems.add(node, "there is nothing to run: `run` is empty")
    envs = _envs(value.get("envs") or {}, at.get("envs", node), problems)
    return RawTask(
        name=_plain_name(str(header.get("name") or value.get("name") or stem)),
        digest=hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest(),
        run=run,
        setup=_text(value, "setup", at, problems),
        num_nodes=_nodes(value.get("num_nodes", 1), at.get("num_nodes", node), problems),
        resources=_resources(value.get("resources") or {}, at.get("resources", node), problems),
        envs=envs,
        secrets=_secrets(value.get("secrets") or (), at.get("secrets", node), problems),
        outputs=_outputs(envs.get(OUTPUTS, ""), at.get("envs", node), problems),
        staged=_workdir(value.get("workdir"), at.get("workdir", node), problems),
        kept=_kept(value, at, problems),
    )


def _bad_keys(node: yaml.MappingNode) -> Iterator[tuple[int, int, str]]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key, mark = str(key_node.value), key_node.start_mark
        said = ""
        if key in REFUSED:
            said = f"`{key}` cannot be supervised: {REFUSED[key]}"
        elif key not in KNOWN:
            import difflib

            near = difflib.get_close_matches(key, KNOWN, 1)
            said = f"a task has no `{key}`" + (f"; did you mean `{near[0]}`?" if near else "")
        elif key in seen:
            said = f"`{key}` is there twice"
        seen.add(key)
        if said:
            yield mark.line + 1, mark.column + 1, said


def _text(
    value: Mapping[str, Any], key: str, at: Mapping[str, yaml.Node], problems: Problems
) -> str:
    text = value.get(key) or ""
    if isinstance(text, str):
        return text
    problems.add(at[key], f"`{key}` is a text")
    return ""


def _nodes(count: object, node: yaml.Node, problems: Problems) -> int:
    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
        return count
    problems.add(node, "`num_nodes` is a whole number from 1")
    return 1


def _resources(value: object, node: yaml.Node, problems: Problems) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        problems.add(node, "`resources` is a mapping")
        return {}
    for key in _CLOUD_KEYS:
        if key in value:
            problems.add(node, f"`resources.{key}` is chosen by `--infra`: leave it out")
    if "job_recovery" in value:
        problems.add(
            node,
            "`resources.job_recovery` restarts the task behind the run's back: leave it out; "
            "`--retries` and `--max-infrastructure-recoveries` are the run's own budgets",
        )
    return value


def _envs(value: object, node: yaml.Node, problems: Problems) -> Mapping[str, str]:
    if not isinstance(value, dict):
        problems.add(node, "`envs` is a mapping of names to texts")
        return {}
    for name, given in value.items():
        if not _NAME.fullmatch(str(name)):
            problems.add(node, f"`{name}` is no name of a variable")
        elif str(name).startswith(("SKYPILOT_", "NPA_")) and name != OUTPUTS:
            problems.add(node, f"`envs.{name}` belongs to the run and cannot be set")
        if given is None:
            problems.add(node, f"`envs.{name}` has no value: leave it out, and give `--env {name}`")
        elif isinstance(given, dict | list):
            problems.add(node, f"`envs.{name}` is a text")
    return {str(name): _scalar(given) for name, given in value.items()}


def _scalar(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _secrets(value: object, node: yaml.Node, problems: Problems) -> tuple[str, ...]:
    names = list(value) if isinstance(value, dict | list | tuple) else []
    if isinstance(value, dict):
        for name in (name for name, given in value.items() if given is not None):
            problems.add(
                node,
                f"`secrets.{name}` holds a value: write `{name}: null`; the value is taken from "
                "the environment of the submit, and never written down",
            )
    if not isinstance(value, dict | list | tuple) or not all(
        isinstance(name, str) and _NAME.fullmatch(name) for name in names
    ):
        problems.add(node, "`secrets` is a list of names, or a mapping of names to null")
        return ()
    return tuple(names)


def _outputs(text: str, node: yaml.Node, problems: Problems) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        found = []
        for item in json.loads(text):
            uri, folder = str(item["uri"]), {"file": False, "directory": True}[item["kind"]]
            found.append(uri if not folder or uri.endswith("/") else f"{uri}/")
    except (ValueError, KeyError, TypeError):
        kinds = '{"uri": …, "kind": "file" or "directory"}'
        problems.add(node, f"`envs.{OUTPUTS}` is a JSON list of {kinds}")
        return ()
    return tuple(found)


def _workdir(value: object, node: yaml.Node, problems: Problems) -> bool:
    if value in (None, "."):
        return value is not None
    problems.add(
        node,
        "`workdir` is `.`, the file's own folder, which is pinned for the run; for anything else "
        "put the SkyPilot file there",
    )
    return False


def _kept(
    value: Mapping[str, Any], at: Mapping[str, yaml.Node], problems: Problems
) -> Mapping[str, Any]:
    mounts = value.get("file_mounts") or {}
    if not isinstance(mounts, dict):
        problems.add(at["file_mounts"], "`file_mounts` is a mapping")
        mounts = {}
    for place, source in mounts.items():
        uri = source.get("source") if isinstance(source, dict) else source
        if not isinstance(uri, str) or "://" not in uri:
            problems.add(
                at["file_mounts"],
                f"`file_mounts.{place}` comes from this machine, where it can change: use a "
                "bucket's URI, or `workdir: .`",
            )
    return {key: value[key] for key in KEPT if value.get(key)}


def _keys(node: yaml.Node) -> set[str]:
    return {str(key.value) for key, _ in node.value} if isinstance(node, yaml.MappingNode) else {""}


def _value(node: yaml.Node) -> dict[str, Any]:
    loader = yaml.SafeLoader("")
    try:
        made = loader.construct_document(node)
        return made if isinstance(made, dict) else {}
    finally:
        loader.dispose()


def _plain_name(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:63].rstrip("-_")
    return plain if plain[:1].isalpha() else f"task-{plain}".rstrip("-")


def _refuse(filename: str, problems: list[tuple[int, int, str]]) -> UsageError:
    lines = "\n".join(f"  {filename}:{line}:{column}: {said}" for line, column, said in problems)
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
    return UsageError(
        f"{filename} is a SkyPilot file with {count}\n{lines}",
        not_done="nothing was started",
        code="RAW_TASK",
    )
