"""Options that several commands share, so that they are spelt and checked in one way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

spec_argument = click.argument(
    "spec", metavar="FILE", type=click.Path(path_type=Path, dir_okay=True, exists=False)
)
run_argument = click.argument("run_id", metavar="RUN")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
var_option = click.option(
    "--var",
    "var",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a config key of the file; may be repeated.",
)
decision_option = click.option(
    "--assume-decision",
    type=click.Choice(["promote_checkpoint", "loop_back"]),
    help="Plan as if every decision came out so.",
)
store_option = click.option(
    "--store",
    metavar="URI",
    help="Where runs are kept: `s3://bucket/prefix/` or `file:///folder/`.  [default: npa's home]",
)
catalog_option = click.option(
    "--catalog",
    "catalogs",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A catalogue of your own tools; may be repeated.",
)


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; the last one of a key wins."""
    result: dict[str, str] = {}
    for word in values:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"`{option} {word}` is not KEY=VALUE")
        result[key] = value
    return result
