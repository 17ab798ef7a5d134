"""The LanceDB table of a run: where it lies, how a row becomes a scene, how a column is filled in.

`file://` and `s3://` both work; for the latter the task's own AWS variables are used.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

import lancedb
import numpy as np
import pyarrow as pa
from PIL import Image
from scenes import Box

# A materialized view needs row IDs that survive an update.
_OPTIONS = {"new_table_enable_stable_row_ids": "true"}
LABELS = pa.list_(pa.struct([("category", pa.string()), *((n, pa.float32()) for n in "xywh")]))
SCHEMA = pa.schema(
    [
        ("scene", pa.string()),
        ("split", pa.string()),
        ("timeofday", pa.string()),
        ("weather", pa.string()),
        ("image", pa.binary()),
        ("labels", LABELS),
    ]
)

Row = dict[str, Any]


def connect(uri: str, environ: Mapping[str, str] = os.environ) -> lancedb.DBConnection:
    """The database below `uri`."""
    if uri.startswith("file://"):
        return lancedb.connect(unquote(uri.removeprefix("file://")), storage_options=_OPTIONS)
    plain = environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    options = {**_OPTIONS, **({"allow_http": "true"} if plain else {})}
    return lancedb.connect(uri, storage_options=options)


def rows_of(
    table: lancedb.table.Table, columns: Sequence[str], where: str | None = None
) -> list[Row]:
    """Rows with these columns, by name of the scene; all of them, or those that `where` chooses."""
    query = table.search().select(list(columns)).limit(table.count_rows() + 1)
    found = (query.where(where) if where else query).to_list()
    return sorted(found, key=lambda row: row["scene"])


def fill_in(table: lancedb.table.Table, columns: Mapping[str, pa.DataType], rows: list[Row]) -> int:
    """Fill columns of rows that are known by `scene`, adding those that the table has not.

    Given again it writes the same values again. Returns the table's new version.
    """
    new = [pa.field(name, kind) for name, kind in columns.items() if name not in table.schema.names]
    if new:
        table.add_columns(new)
    fields = [pa.field("scene", pa.string()), *(pa.field(n, k) for n, k in columns.items())]
    values = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    done = table.merge_insert("scene").when_matched_update_all().execute(values)
    if done.num_updated_rows != len(rows):
        raise SystemExit(f"{len(rows)} rows were computed and {done.num_updated_rows} updated")
    return int(table.version)


def image_of(row: Row) -> np.ndarray:
    """The scene's image, height x width x 3."""
    return np.asarray(Image.open(io.BytesIO(row["image"])).convert("RGB"))


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def boxes_of(row: Row) -> list[Box]:
    return [Box(**label) for label in row["labels"]]


def label_of(box: Box) -> Row:
    return asdict(box)
