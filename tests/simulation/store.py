"""The object store: the journal's side (`Storage`) and the artifacts' side (`Artifacts`).

Strongly consistent, as S3 is; stale listings are left out by design. Conditional creates hold,
unless `ignores_conditions` is set, which the probe at a run's beginning must find out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from npa.errors import StoreFull
from npa.observation import Absent, Found, Observation, Unavailable
from npa.orchestration.journal.chain import FOLDER
from npa.storage import Blob, CreateOutcome, ObjectInfo
from simulation.faults import Op
from simulation.world import World

SOURCE = "sim-store"
ROOT = "s3://bucket/r/"


def etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class SimStorage:
    """`npa.storage.Storage` over the world's objects. `faulty` false: a person's own, calm view."""

    uri = ROOT

    def __init__(
        self, world: World, *, faulty: bool = True, ignores_conditions: bool = False
    ) -> None:
        self._world = world
        self._faulty = faulty
        self._ignores = ignores_conditions
        self._soft = False

    def _enter(self, op: Op) -> str:
        return self._world.enter(op) if self._faulty else ""

    def _unavailable(self, cause: str) -> Unavailable:
        return Unavailable(cause, "", SOURCE, self._world.wall)

    def get(self, key: str) -> Observation[Blob]:
        fault = self._enter(Op.READ)
        if self._faulty and self._world.is_down("reads", fault):
            return self._unavailable("timeout")
        data = self._world.store.get(key)
        if data is None:
            return Absent("404 NoSuchKey", SOURCE, self._world.wall)
        return Found(Blob(data, etag(data)), SOURCE, self._world.wall)

    def head(self, key: str) -> Observation[ObjectInfo]:
        match self.get(key):
            case Found(value=blob, source=source, as_of=as_of):
                return Found(ObjectInfo(key, len(blob.data), blob.etag), source, as_of)
            case other:
                return other

    def list(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> Observation[tuple[ObjectInfo, ...]]:
        fault = self._enter(Op.LIST)
        if self._faulty and self._world.is_down("reads", fault):
            return self._unavailable("timeout")
        keys = sorted(k for k in self._world.store if k.startswith(prefix) and k > after)
        infos = tuple(ObjectInfo(k, len(self._world.store[k]), "") for k in keys[:limit])
        return Found(infos, SOURCE, self._world.wall)

    def create(
        self, key: str, data: bytes, *, durable: bool = False, later: bool = False
    ) -> CreateOutcome | Unavailable:
        if not self._faulty:
            return self._create(key, data)
        self._soft = self._soft or later
        outcome = self._try_to_create(key, data)
        if outcome in (CreateOutcome.CREATED, CreateOutcome.MINE) and key.startswith(FOLDER):
            self._world.process.acked = int(key[-15:-5])
        return outcome

    def harden(self, *keys: str) -> Unavailable | None:
        if not self._soft:
            return None
        fault = self._enter(Op.HARDEN)
        if self._world.is_down("creates", fault):
            return self._unavailable("EIO")
        self._soft = False
        return None

    def _try_to_create(self, key: str, data: bytes) -> CreateOutcome | Unavailable:
        world = self._world
        fault = self._enter(Op.CREATE)
        if world.is_down("creates", fault):
            return self._unavailable("503")
        match fault:
            case "lost-request":
                return self._unavailable("timeout")
            case "conflict":
                return self._unavailable("409")
            case "lost-reply":
                self._create(key, data)
                return self._unavailable("timeout")
            case "burst-after":
                self._create(key, data)
                world.is_down("creates", "burst")
                return self._unavailable("timeout")
            case "mine":
                outcome = self._create(key, data)
                return CreateOutcome.MINE if outcome is CreateOutcome.CREATED else outcome
            case "full":
                world.space = False
        if not world.space:
            raise StoreFull("no space left")
        return world.act(fault, lambda: self._create(key, data))

    def _create(self, key: str, data: bytes) -> CreateOutcome:
        known = self._world.store.get(key)
        if known is not None and not self._ignores:
            return CreateOutcome.MINE if known == data else CreateOutcome.OTHER
        self._world.store[key] = data
        self._world.watch.wrote(key, data)
        return CreateOutcome.CREATED

    def put(self, key: str, data: bytes) -> None:
        raise AssertionError("nothing in a run is overwritten")

    def put_file(self, key: str, path: Path) -> None:
        raise AssertionError("drivers upload nothing")

    def get_file(self, key: str, path: Path) -> Observation[ObjectInfo]:
        raise AssertionError("drivers download nothing")

    def delete(self, key: str) -> None:
        assert not self._faulty, "drivers delete nothing"
        self._world.store.pop(key, None)


@dataclass(frozen=True, slots=True)
class Written:
    """An artifact: its bytes, and the attempt whose payload wrote it."""

    data: bytes
    writer: str


class SimArtifacts:
    """`npa.orchestration.outputs.Artifacts` over what the payloads wrote."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _down(self) -> Unavailable | None:
        world = self._world
        if world.is_down("artifacts", world.enter(Op.LOOK)):
            world.watch.log.append("blind look")
            return Unavailable("timeout", "", SOURCE, world.wall)
        return None

    def get(self, uri: str) -> Observation[Blob]:
        down = self._down()
        if down is not None:
            return down
        known = self._world.provider.artifacts.get(uri)
        self._world.watch.log.append("absent" if known is None else "there")
        if known is None:
            return Absent("404 NoSuchKey", SOURCE, self._world.wall)
        return Found(Blob(known.data, etag(known.data)), SOURCE, self._world.wall)

    def head(self, uri: str) -> Observation[ObjectInfo]:
        match self.get(uri):
            case Found(value=blob, source=source, as_of=as_of):
                return Found(ObjectInfo(uri, len(blob.data), blob.etag), source, as_of)
            case other:
                return other

    def list(self, uri: str, *, limit: int | None = None) -> Observation[tuple[ObjectInfo, ...]]:
        down = self._down()
        if down is not None:
            return down
        artifacts = self._world.provider.artifacts
        infos = tuple(
            ObjectInfo(u, len(artifacts[u].data), etag(artifacts[u].data))
            for u in sorted(artifacts)
            if u.startswith(uri)
        )
        return Found(infos[:limit], SOURCE, self._world.wall)
