"""Batches of a Parquet file, read within limits.

A kilobyte of Parquet can hold a billion equal rows, or a megabyte of text that every row refers to. What is
read may be :data:`MOST_EXPANSION` times as large as the file. A page that is larger than the metadata state
is not noticed before it is unpacked, to 2 GiB at most.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparseshot.cells.formats.archives import FREE_BYTES, MOST_EXPANSION
from sparseshot.errors import FormatError

ROWS = 1 << 18
"""Rows of a batch."""
MOST_ROWS = 1 << 29


def unpacked_batches(
    file: BinaryIO | Path, parquet: pq.ParquetFile, columns: Sequence[str], name: str, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a file of ``size`` bytes; texts that repeat stay dictionaries."""
    most = max(FREE_BYTES, MOST_EXPANSION * size)
    repeated = _checked(parquet, set(columns), name, most)
    if repeated:
        parquet = pq.ParquetFile(file, metadata=parquet.metadata, read_dictionary=sorted(repeated))
    for batch in parquet.iter_batches(ROWS, columns=list(columns), use_threads=False):
        most -= sum(_unpacked_bytes(column) for column in batch.columns)
        if most < 0:
            raise _too_large(name)
        yield batch


def _checked(parquet: pq.ParquetFile, columns: set[str], name: str, most: int) -> set[str]:
    """Check what the metadata state; return the columns of texts that have a dictionary."""
    metadata, schema = parquet.metadata, parquet.schema_arrow
    if metadata.num_rows > MOST_ROWS:
        raise FormatError(name, f"has {metadata.num_rows:,} rows; at most {MOST_ROWS:,} are read")
    stated, repeated = 0, set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema.partition(".")[0] not in columns:
                continue
            stated += chunk.total_uncompressed_size
            if chunk.physical_type == "BYTE_ARRAY":
                if "DELTA_BYTE_ARRAY" in chunk.encodings:
                    raise FormatError(
                        name,
                        f"its column {chunk.path_in_schema!r} is encoded as DELTA_BYTE_ARRAY, which hides "
                        "its size; write it with the encoding PLAIN or a dictionary",
                    )
                if chunk.has_dictionary_page:
                    repeated.add(chunk.path_in_schema)
    width = sum(_bytes_of(schema.field(column).type) for column in columns)
    if max(stated, metadata.num_rows * width) > most:
        raise _too_large(name)
    return repeated


def _bytes_of(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 8  # at least an offset


def _unpacked_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type) or pa.types.is_primitive(column.type.value_type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary.cast(pa.binary()))
    return int(pc.sum(pc.take(lengths, column.indices).cast(pa.int64())).as_py() or 0)


def _too_large(name: str) -> FormatError:
    return FormatError(
        name,
        f"unpacks to more than {MOST_EXPANSION} times its size; divide it, or write it without compression",
    )
