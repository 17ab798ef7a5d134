"""Find and load catalogues: the built-in ones, files and folders of the user, installed plug-ins.

The built-in catalogues are YAML; next to them lies a compiled form, which is used only if it was
made from exactly these files. So start-up reads one JSON file and builds an entry when it is asked
for. `python -m npa.catalog.compile` writes it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npa.catalog.entry import Entry, from_json
from npa.errors import UsageError
from npa.workflow.tools import Tool

if TYPE_CHECKING:
    from npa.catalog.reading import CatalogFile

ENTRY_POINTS = "npa.catalog"
COMPILED = "compiled.json"
COMPILED_FORMAT = 1
FILE_BYTES_MAX = 4 << 20

Plugins = Callable[[], Sequence["CatalogFile"]]


class Catalog:
    """Tools by name: an implementation of `npa.workflow.tools.Tools`.

    Lookup order: built-in and the user's files, then plug-ins, which are searched only when a name
    is not known (or all names are asked for). A name that two sources give is an error, unless the
    later one says `replaces: true`.
    """

    def __init__(
        self,
        plain: Mapping[str, Mapping[str, Any]],
        images: Mapping[str, str],
        plugins: Plugins = lambda: (),
    ) -> None:
        self._plain = plain
        self._entries: dict[str, Entry] = {}
        self._images = dict(images)
        self._tools: dict[str, Tool] = {}
        self._plugins: Plugins | None = plugins
        self._schemas: dict[str, Mapping[str, Any]] = {}

    @classmethod
    def load(cls, *paths: Path | str) -> Catalog:
        """The built-in catalogue with the user's files (or folders of `*.yaml`) added.

        Raises CatalogError (a UsageError) for a bad file or a name clash.
        """
        compiled = _built_in()
        catalog = cls(compiled["tools"], compiled["images"], _installed)
        for path in paths:
            for file in _files(Path(path)):
                catalog._add(_read_file(file))
        return catalog

    @classmethod
    def built_in(cls) -> Catalog:
        """Only what ships with npa."""
        compiled = _built_in()
        return cls(compiled["tools"], compiled["images"])

    def get(self, ref: str) -> Tool | None:
        tool = self._tools.get(ref)
        if tool is None:
            entry = self.entry(ref)
            if entry is None:
                return None
            tool = self._tools[ref] = entry.tool()
        return tool

    def entry(self, ref: str) -> Entry | None:
        """All facts about a tool, for the renderer and for people."""
        found = self._entries.get(ref)
        if found is not None:
            return found
        if ref in self._plain:
            found = self._entries[ref] = from_json(self._plain[ref])
            return found
        if self._plugins is not None:
            self._load_plugins()
            return self.entry(ref)
        return None

    def names(self) -> Sequence[str]:
        """All names, sorted; aliases included."""
        self._load_plugins()
        return sorted({*self._plain, *self._entries})

    @property
    def images(self) -> Mapping[str, str]:
        """Image references by key."""
        return self._images

    @property
    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """JSON Schemas of payloads, by the label that outputs carry."""
        self._load_plugins()
        return self._schemas

    def _load_plugins(self) -> None:
        plugins, self._plugins = self._plugins, None
        for file in plugins() if plugins is not None else ():
            self._add(file)

    def _add(self, file: CatalogFile) -> None:
        from npa.catalog.reading import CatalogError, Problem

        clashes = [
            Problem(file.name, 0, 0, f"the tool `{ref}` is also in {self._source(ref)}")
            for ref in file.entries
            if self._known(ref) and ref not in file.replacing
        ]
        clashes += [
            Problem(file.name, 0, 0, f"the image key `{key}` means something else elsewhere")
            for key, image in file.images.items()
            if self._images.get(key, image) != image
        ]
        clashes += [
            Problem(file.name, 0, 0, f"the schema `{name}` is another one elsewhere")
            for name, schema in file.schemas.items()
            if self._schemas.get(name, schema) != schema
        ]
        if clashes:
            raise CatalogError(tuple(clashes))
        self._schemas.update(file.schemas)
        self._images.update(file.images)
        for ref, entry in file.entries.items():
            self._entries[ref] = entry
            self._tools.pop(ref, None)

    def _known(self, ref: str) -> bool:
        return ref in self._entries or ref in self._plain

    def _source(self, ref: str) -> str:
        entry = self._entries.get(ref)
        return f"'{entry.source}'" if entry else f"'{self._plain[ref].get('source', '')}'"


def built_in_sources() -> dict[str, bytes]:
    """The built-in YAML files by name."""
    folder = resources.files("npa.catalog").joinpath("data")
    found = [item for item in folder.iterdir() if item.name.endswith(".yaml")]
    return {item.name: item.read_bytes() for item in sorted(found, key=lambda item: item.name)}


def fingerprint(sources: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents."""
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(f"{name}\0{len(sources[name])}\0".encode())
        digest.update(sources[name])
    return digest.hexdigest()


def compile_sources(sources: Mapping[str, bytes]) -> dict[str, Any]:
    """The compiled form of catalogue files. Raises CatalogError."""
    from npa.catalog.reading import read_catalog

    catalog = Catalog({}, {})
    for name, data in sources.items():
        catalog._add(read_catalog(data, name))
    return {
        "format": COMPILED_FORMAT,
        "sources": fingerprint(sources),
        "images": dict(sorted(catalog.images.items())),
        "tools": {ref: catalog._entries[ref].to_json() for ref in catalog.names()},
    }


@lru_cache(maxsize=1)
def _built_in() -> dict[str, Any]:
    sources = built_in_sources()
    path = resources.files("npa.catalog").joinpath("data", COMPILED)
    compiled = _compiled(path)
    if compiled is not None and compiled.get("sources") == fingerprint(sources):
        return compiled
    return compile_sources(sources)


def _compiled(path: Traversable) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    usable = isinstance(document, dict) and document.get("format") == COMPILED_FORMAT
    return document if usable else None


def _files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return sorted(item for item in path.iterdir() if item.suffix in (".yaml", ".yml"))
    return [path]


def _read_file(path: Path) -> CatalogFile:
    from npa.catalog.reading import read_catalog

    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read the catalogue '{path}': {error.strerror}") from error
    return read_catalog(data, str(path))


def _installed() -> Sequence[CatalogFile]:
    """Catalogues of installed packages: entry points that name a folder, a file, or a function
    that returns one.
    """
    from importlib.metadata import entry_points

    found: list[CatalogFile] = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            value = point.load()
            place = Path(str(value() if callable(value) else value))
        except Exception as error:
            raise UsageError(
                f"the catalogue plug-in `{point.name}` ({point.value}) cannot be loaded: "
                f"{type(error).__name__}",
                hint="uninstall the package that brings it, or repair it",
            ) from error
        found += [_read_file(file) for file in _files(place)]
    return found
