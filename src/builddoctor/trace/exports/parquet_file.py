"""One table of a trace as Parquet; needs pyarrow, which comes with ``builddoctor[parquet]``."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

from builddoctor.errors import UsageError
from builddoctor.trace.exports.tables import Table

ROWS_AT_ONCE = 50_000


def write_parquet(path: Path, table: Table, target: Path) -> int:
    """Write the table of the trace at ``path``; gives the number of rows. Raises UsageError without pyarrow."""
    arrow, parquet = _pyarrow()
    kinds = {"text": arrow.string(), "real": arrow.float64(), "integer": arrow.int64()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns])
    rows = table.rows(path)
    count = 0
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
            columns = [
                arrow.array(values, type=field.type)
                for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_batch(arrow.record_batch(columns, schema=schema))
            count += len(batch)
    return count


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            f"Parquet needs pyarrow, which cannot be loaded: {error}",
            hint="pip install 'builddoctor[parquet]', or `--to csv`, `--to sqlite`, which need nothing",
        ) from error
