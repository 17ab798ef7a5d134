"""How catalogues get into the program: compiled, fresh, from plug-ins, without heavy imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from npa.catalog.loader import Catalog, built_in_sources, compile_sources, fingerprint
from npa.errors import UsageError

EXAMPLE = "catalogue: npa.catalog/v1\ntools: {plug.in: {command: [x]}}\n"


def run(program: str, path: Path | None = None) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path or "")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def install(folder: Path, body: str) -> None:
    """A package with an entry point, as an installer would lay it down."""
    (folder / "plug.py").write_text(body)
    (folder / "plug.yaml").write_text(EXAMPLE)
    info = folder / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[npa.catalog]\nplug = plug:catalogue\n")


def test_the_compiled_form_is_fresh() -> None:
    sources = built_in_sources()
    text = resources.files("npa.catalog").joinpath("data/compiled.json").read_text()
    compiled = json.loads(text)
    assert compiled["sources"] == fingerprint(sources), "run `python -m npa.catalog.compile`"
    assert compiled == json.loads(json.dumps(compile_sources(sources)))


def test_a_changed_source_changes_the_fingerprint() -> None:
    sources = built_in_sources()
    name = next(iter(sources))
    assert fingerprint({**sources, name: sources[name] + b"\n"}) != fingerprint(sources)
    assert fingerprint({"a": b"bc"}) != fingerprint({"ab": b"c"})


def test_looking_up_a_built_in_tool_parses_no_yaml() -> None:
    program = (
        "import sys\nfrom npa.catalog.loader import Catalog\n"
        "assert Catalog.load().get('core.gate.threshold') is not None\n"
        "heavy = ('pydantic', 'yaml', 'importlib.metadata')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run(program) == "[]"


@pytest.mark.req("B-05")
@pytest.mark.parametrize(
    "body",
    [
        "from pathlib import Path\ncatalogue = Path(__file__).with_name('plug.yaml')\n",
        "from pathlib import Path\ndef catalogue():\n    return str(Path(__file__).parent)\n",
    ],
)
def test_an_installed_package_brings_tools(tmp_path: Path, body: str) -> None:
    install(tmp_path, body)
    program = (
        "from npa.catalog.loader import Catalog\n"
        "catalog = Catalog.load()\n"
        "print(catalog.get('plug.in').argv, 'plug.in' in catalog.names())"
    )
    assert run(program, tmp_path) == "('x',) True"


def test_a_broken_plug_in_is_named(tmp_path: Path) -> None:
    install(tmp_path, "raise RuntimeError('boom')\n")
    program = (
        "from npa.catalog.loader import Catalog\nfrom npa.errors import UsageError\n"
        "try:\n    Catalog.load().names()\nexcept UsageError as error:\n    print(error.message)"
    )
    assert "`plug` (plug:catalogue) cannot be loaded: RuntimeError" in run(program, tmp_path)


def test_a_plug_in_that_takes_a_name_is_reported() -> None:
    from npa.catalog.reading import read_catalog

    taken = read_catalog(EXAMPLE.replace("plug.in", "core.http.fetch").encode(), "plug.yaml")
    catalog = Catalog(
        {"core.http.fetch": {"ref": "core.http.fetch", "command": ["x"]}}, {}, lambda: [taken]
    )
    with pytest.raises(UsageError, match="is also in"):
        catalog.names()


def test_every_built_in_tool_can_be_built() -> None:
    catalog = Catalog.built_in()
    for name in catalog.names():
        tool, entry = catalog.get(name), catalog.entry(name)
        assert tool is not None
        assert entry is not None
        assert tool.ref == name
        assert tool.summary, f"{name} has no summary"
        assert not entry.image or entry.image in catalog.images or "/" in entry.image


def test_schemas_of_payloads_are_known_by_their_label(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "catalogue: npa.catalog/v1\nschemas: {s.v1: {type: object}, t.v1: {type: array}}\n"
    )
    catalog = Catalog.load(tmp_path)
    assert catalog.schemas == {"s.v1": {"type": "object"}, "t.v1": {"type": "array"}}
    assert Catalog.built_in().schemas == {}


def test_one_label_has_one_schema(tmp_path: Path) -> None:
    text = "catalogue: npa.catalog/v1\nschemas: {s.v1: {type: object}}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text)
    assert set(Catalog.load(tmp_path).schemas) == {"s.v1"}
    (tmp_path / "b.yaml").write_text(text.replace("object", "array"))
    with pytest.raises(UsageError, match=r"the schema `s\.v1` is another one elsewhere"):
        Catalog.load(tmp_path)
