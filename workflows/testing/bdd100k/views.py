"""Views: one materialized view of the table for each failure mode, the rows that it trains on."""

from __future__ import annotations

import argparse

import table as lance
from modes import MODES

from npa.stage import StageArtifact

COLUMNS = ["scene", "timeofday", "weather", "image", "labels"]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--table", required=True)
    for name in MODES:
        parser.add_argument(f"--{name.replace('_', '-')}-view", required=True)
    parser.add_argument("--report-uri", required=True)
    options = parser.parse_args()
    database = lance.connect(options.lance_uri)
    known = set(database.list_materialized_views())
    report = {}
    for name, mode in MODES.items():
        view = getattr(options, f"{name}_view")
        if view in known:  # an earlier attempt made it, perhaps of other rows
            database.drop_materialized_view(view)
        made = database.create_materialized_view(
            view, options.table, select=COLUMNS, where=mode.train
        )
        count = made.table.count_rows()
        if not count:
            raise SystemExit(f"no scene is in the view {view}: {mode.train}")
        report[name] = {"view": view, "where": mode.train, "rows": count}
        print(f"{view}: {count} scenes")
    StageArtifact(options.report_uri).write_json({"table": options.table, "views": report})


if __name__ == "__main__":
    main()
