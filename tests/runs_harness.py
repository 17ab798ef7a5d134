"""Real runs on the local engine for tests: a home, a workflow text, a drive in a temp folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from changed import replace
from npa.catalog.loader import Catalog
from npa.orchestration import prepare as prep
from npa.orchestration import registry, runs
from npa.orchestration.driver import Outcome, Snapshot
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.inventory import Inventory
from npa.orchestration.state import RunState
from npa.target.credentials import StorageAccess, storage_access
from npa.target.environment import child_environment
from npa.target.home import Home

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: t}\n"


@dataclass
class Bench:
    """One machine with a home. `work` is where stages may leave traces (also in $WORK)."""

    root: Path
    home: Home
    work: Path
    storage: StorageAccess
    inventory: Inventory | None = None
    engines: list[LocalEngine] = field(default_factory=list)
    wrap: Callable[[LocalEngine], LocalEngine] = lambda engine: engine

    @property
    def host(self) -> runs.Host:
        env = child_environment({**os.environ, "PATH": os.environ["PATH"]})

        def engine(request: prep.Request, home: Home) -> LocalEngine:
            made = LocalEngine(home.jobs / request.run_id, base_env=env, inventory=self.inventory)
            self.engines.append(made)
            return self.wrap(made)

        return runs.Host(
            self.home,
            self.storage,
            Catalog.built_in(),
            engine,
            env,
            env={"WORK": str(self.work)},
        )

    def write(self, text: str, name: str = "pipeline.yaml") -> Path:
        folder = self.root / "project"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(text if text.startswith("apiVersion") else HEAD + text)
        return path

    def submit(
        self,
        text: str,
        *,
        run_id: str = "r1",
        policy: Mapping[str, object] | None = None,
        store: str = "",
        overrides: Mapping[str, str] | None = None,
        source: bool = False,
    ) -> runs.OpenRun:
        path = self.write(text)
        uri = f"{store}{run_id}/" if store else registry.default_run_uri(self.home, run_id)
        request = prep.Request(
            spec_path=str(path),
            spec_text=path.read_text(),
            run_id=run_id,
            run_uri=uri,
            overrides=overrides or {},
            policy={"backoff_seconds": 0.01, "grace_seconds": 0.5, **(policy or {})},
            source=str(path.parent) if source else "",
        )
        return runs.create(self.host, prep.prepare(request, self.host.tools))

    def drive(
        self,
        run_id: str = "r1",
        *,
        observer: Callable[[Snapshot], None] = lambda _s: None,
        **options: object,
    ) -> tuple[Outcome, RunState]:
        run = runs.open_run(self.host, run_id)
        drive = runs.make_drive(self.host, run, observer=observer, **options)  # type: ignore[arg-type]
        outcome = drive.run()
        return outcome, self.state(run_id)

    def run(self, text: str, **options: object) -> tuple[Outcome, RunState]:
        self.submit(text, **options)  # type: ignore[arg-type]
        return self.drive()

    def state(self, run_id: str = "r1") -> RunState:
        return runs.open_run(self.host, run_id).state

    def traces(self, name: str = "trace") -> list[str]:
        """Lines that stages appended to $WORK/<name>: their own count of what ran."""
        path = self.work / name
        return path.read_text().split() if path.exists() else []

    def with_storage(self, environment: Mapping[str, str]) -> Bench:
        return replace(self, storage=storage_access(environment, self.home))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    work = tmp_path / "work"
    work.mkdir()
    home = Home(tmp_path / "npa-home").make()
    made = Bench(tmp_path, home, work, storage_access({}, home))
    yield made
    for engine in made.engines:
        engine.close()
