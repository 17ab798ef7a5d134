"""The helper for stages written in Python: what am I, what do I read, what do I write.

    from npa.stage import Stage

    stage = Stage.from_env()
    rows = stage.input("rows.v1").read_json()
    stage.output("metrics.v1").write_json({"accuracy": 0.97})

It needs only the environment variables that every task gets. Artifacts in `file://` are plain
files; for other stores `npa.storage` is imported when one is first touched. A write appears whole
under its name or not at all.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

from npa.errors import NpaError

if TYPE_CHECKING:
    from npa.storage import Storage, Stores

DECISIONS = {
    "promote": "promote_checkpoint",
    "promote_checkpoint": "promote_checkpoint",
    "loop_back": "loop_back_to_inner_loop",
    "loop_back_to_inner_loop": "loop_back_to_inner_loop",
}

# Names of files that are being written: they are in no listing.
_HALF_WRITTEN = re.compile(r"#\d+\Z")


class StageError(NpaError):
    """A stage asked for something that its declaration or its store does not give."""

    code = "STAGE"


@dataclass(frozen=True)
class StageArtifact:
    """One declared input or output, or an object below one. A `uri` ending in `/` is a prefix."""

    uri: str
    schema: str = ""

    @property
    def is_prefix(self) -> bool:
        return self.uri.endswith("/")

    def join(self, *names: str) -> StageArtifact:
        """The object (or, with a trailing `/`, the prefix) of that name below this prefix."""
        name = "/".join(names)
        if not self.is_prefix:
            raise StageError(f"'{self.uri}' is an object, so nothing lies below it")
        if {"", ".", ".."} & set(name.removesuffix("/").split("/")):
            raise StageError(f"{name!r} is not a name below '{self.uri}'")
        return StageArtifact(self.uri + name, self.schema)

    child = join

    def exists(self) -> bool:
        """Is the object there, or anything below the prefix? Raises if that cannot be seen."""
        if self.is_prefix:
            return bool(self.list())
        path = self._path
        return path.is_file() if path else _seen(self._remote.head, self.uri) is not None

    def list(self) -> list[str]:
        """Names of all objects below this prefix, relative to it, sorted."""
        self._need(prefix=True)
        path = self._path
        if path is None:
            root = self._remote
            found = _seen(root.list, self.uri) or ()
            start = len(_key(self.uri))
            return sorted(info.key[start:] for info in found)
        found = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        return sorted(name for name in found if not _HALF_WRITTEN.search(name))

    def read_bytes(self) -> bytes:
        self._need(prefix=False)
        path = self._path
        if path is None:
            blob = _seen(self._remote.get, self.uri)
            if blob is None:
                self._missing()
            data: bytes = blob.data
            return data
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._missing()

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def read_json(self) -> Any:
        try:
            return json.loads(self.read_bytes())
        except ValueError as error:
            raise StageError(f"'{self.uri}' is not valid JSON: {error}") from error

    def write_bytes(self, data: bytes) -> None:
        self._need(prefix=False)
        path = self._path
        if path is None:
            store, key = self._store
            store.put(key, data)
            return
        with _into_place(path) as sink:
            sink.write(data)

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode())

    def write_json(self, value: object) -> None:
        """Write `value` as JSON; NaN and infinity are refused, because JSON has no such numbers."""
        try:
            text = json.dumps(value, indent=2, allow_nan=False, default=_plain, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise StageError(f"cannot write '{self.uri}' as JSON: {error}") from error
        self.write_text(text + "\n")

    def local_path(self) -> Path:
        """The path of a `file://` artifact; the folder above it is there. Others: StageError."""
        path = self._path
        if path is None:
            raise StageError(
                f"'{self.uri}' is not on this machine",
                hint="use `download()` to read it and `upload(path)` to write it",
            )
        (path if self.is_prefix else path.parent).mkdir(0o700, parents=True, exist_ok=True)
        return path

    def download(self, to: Path | None = None) -> Path:
        """Bring the object, or all objects below the prefix, to `to` (default: a new temp folder).

        A `file://` artifact is not copied unless `to` is given.
        """
        path = self._path
        if path is not None and to is None:
            if not path.exists():
                self._missing()
            return path
        target = to or Path(tempfile.mkdtemp(prefix="npa-stage-")) / _name(self.uri)
        if self.is_prefix:
            target.mkdir(0o700, parents=True, exist_ok=True)
            for name in self.list():
                self.join(name)._download_one(target / name)
        else:
            self._download_one(target)
        return target

    def upload(self, path: Path) -> None:
        """Write a file to this object, or all files of a folder below this prefix."""
        if path.is_dir():
            self._need(prefix=True)
            for file in sorted(found for found in path.rglob("*") if found.is_file()):
                self.join(file.relative_to(path).as_posix())._upload_one(file)
            return
        self._need(prefix=False)
        self._upload_one(path)

    def _download_one(self, target: Path) -> None:
        path = self._path
        if path is None:
            store, key = self._store
            if _seen(lambda _uri: store.get_file(key, target), self.uri) is None:
                self._missing()
            return
        if not path.is_file():
            self._missing()
        with path.open("rb") as source, _into_place(target) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

    def _upload_one(self, source_path: Path) -> None:
        path = self._path
        if path is None:
            store, key = self._store
            store.put_file(key, source_path)
            return
        with source_path.open("rb") as source, _into_place(path) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

    @property
    def _path(self) -> Path | None:
        if not self.uri.startswith("file://"):
            return None
        rest = self.uri.removeprefix("file://").removeprefix("localhost")
        if not rest.startswith("/"):
            raise StageError(f"'{self.uri}' is not an absolute file URI")
        return Path(unquote(rest, errors="surrogateescape"))

    @property
    def _remote(self) -> Stores:
        return _stores()

    @property
    def _store(self) -> tuple[Storage, str]:
        return _stores().resolve(self.uri)

    def _need(self, *, prefix: bool) -> None:
        if self.is_prefix is not prefix:
            kind, other = ("a prefix", "join(name)") if self.is_prefix else ("an object", "read_*")
            raise StageError(f"'{self.uri}' is {kind}", hint=f"use `{other}` on it")

    def _missing(self) -> NoReturn:
        raise StageError(f"'{self.uri}' does not exist")


@dataclass(frozen=True)
class Stage:
    """One attempt of one state, as its own program sees it. Get it from `Stage.from_env()`."""

    name: str
    path: str
    workflow: str
    run_id: str
    run_uri: str
    attempt: int
    attempt_id: str
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[StageArtifact, ...] = ()
    outputs: tuple[StageArtifact, ...] = ()
    decision_uri: str = ""
    rank: int = 0
    num_nodes: int = 1
    node_ips: tuple[str, ...] = ()
    gpus_per_node: int = 0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Stage:
        """Read the task's environment. Raises StageError outside a task or if it is malformed."""
        values = os.environ if environ is None else environ
        if not values.get("NPA_WORKFLOW_STATE"):
            raise StageError(
                "NPA_WORKFLOW_STATE is not set, so this program does not run as a stage",
                hint="run the pipeline that names it with `npa run FILE`",
            )
        return cls(
            name=values["NPA_WORKFLOW_STATE"],
            path=values.get("NPA_WORKFLOW_PATH", values["NPA_WORKFLOW_STATE"]),
            workflow=values.get("NPA_WORKFLOW_NAME", ""),
            run_id=values.get("NPA_WORKFLOW_RUN_ID", ""),
            run_uri=values.get("NPA_RUN_URI", ""),
            attempt=_number(values, "NPA_WORKFLOW_ATTEMPT", 1),
            attempt_id=values.get("NPA_WORKFLOW_ATTEMPT_ID", ""),
            params=_params(values),
            inputs=_artifacts(values, "NPA_INPUTS"),
            outputs=_artifacts(values, "NPA_OUTPUTS"),
            decision_uri=values.get("NPA_DECISION_URI", ""),
            rank=_number(values, "SKYPILOT_NODE_RANK", 0),
            num_nodes=_number(values, "SKYPILOT_NUM_NODES", 1),
            node_ips=tuple(values.get("SKYPILOT_NODE_IPS", "").split()),
            gpus_per_node=_number(values, "SKYPILOT_NUM_GPUS_PER_NODE", 0),
        )

    def input(self, which: str | int = 0) -> StageArtifact:
        """The input with that schema, or at that place in the file."""
        return self._one(self.inputs, which, "input")

    def output(self, which: str | int = 0) -> StageArtifact:
        """The output with that schema, or at that place in the file."""
        return self._one(self.outputs, which, "output")

    @cached_property
    def scratch(self) -> Path:
        """A private folder of this process, removed when it ends; TMPDIR says where."""
        path = Path(tempfile.mkdtemp(prefix="npa-scratch-"))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        return path

    def decide(self, decision: str, **measured: object) -> None:
        """Write this state's decision (`promote_checkpoint` or `loop_back`) and what it saw."""
        word = DECISIONS.get(decision)
        if word is None:
            raise StageError(
                f"{decision!r} is no decision", hint="use 'promote_checkpoint' or 'loop_back'"
            )
        if not self.decision_uri:
            raise StageError(
                f"the state '{self.name}' decides nothing",
                hint="declare `writesDecision: true` and an output for the decision",
            )
        StageArtifact(self.decision_uri).write_json(
            {
                "decision": word,
                "measured": measured,
                "path": self.path,
                "attempt": self.attempt,
                "attempt_id": self.attempt_id,
            }
        )

    def _one(
        self, artifacts: tuple[StageArtifact, ...], which: str | int, kind: str
    ) -> StageArtifact:
        if isinstance(which, int):
            if not 0 <= which < len(artifacts):
                raise StageError(
                    f"the state '{self.name}' has {len(artifacts)} {kind}s, so there is no "
                    f"{kind} number {which}"
                )
            return artifacts[which]
        found = [artifact for artifact in artifacts if artifact.schema == which]
        if len(found) == 1:
            return found[0]
        declared = ", ".join(artifact.schema or artifact.uri for artifact in artifacts) or "none"
        count = "several" if found else "no"
        raise StageError(
            f"the state '{self.name}' has {count} {kind}s with the schema {which!r}",
            hint=f"its {kind}s: {declared}",
        )


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise StageError(f"{name} is {text!r}, which is not a number") from None


def _params(values: Mapping[str, str]) -> dict[str, Any]:
    params = _document(values, "NPA_PARAMS", "{}")
    if not isinstance(params, dict):
        raise StageError("NPA_PARAMS is not a JSON object")
    return params


def _artifacts(values: Mapping[str, str], name: str) -> tuple[StageArtifact, ...]:
    rows = _document(values, name, "[]")
    try:
        return tuple(StageArtifact(row["uri"], row.get("schema") or "") for row in rows)
    except (TypeError, KeyError, AttributeError):
        raise StageError(f"{name} is not a list of artifacts") from None


def _document(values: Mapping[str, str], name: str, default: str) -> Any:
    try:
        return json.loads(values.get(name) or default)
    except ValueError:
        raise StageError(f"{name} is not valid JSON") from None


def _plain(value: object) -> object:
    """Numbers of array libraries as plain numbers."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2] or "artifact"


def _key(uri: str) -> str:
    """The part of an object-store URI after its bucket."""
    return uri.partition("://")[2].partition("/")[2]


@contextmanager
def _into_place(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the name `path` when the block ends well, and vanishes if not."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}#{os.getpid()}{int.from_bytes(os.urandom(4)):010d}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as sink:
            yield sink
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_opened: list[Stores] = []


def _stores() -> Stores:
    """Stores of this process, reached with the task's own environment."""
    if not _opened:
        from npa.storage import Stores
        from npa.target.credentials import storage_access

        _opened.append(Stores(storage_access().options))
    return _opened[0]


def _seen(look: Any, uri: str) -> Any:
    """The value, None if it is proven absent; StageError if that could not be seen."""
    from npa.observation import Absent, Found

    answer = look(uri)
    if isinstance(answer, Found):
        return answer.value
    if isinstance(answer, Absent):
        return None
    raise StageError(f"cannot look at '{uri}': {answer.cause} ({answer.detail})")
