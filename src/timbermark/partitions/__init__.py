"""Tables in parts, which need not fit in memory: where rows come from, and passes over them.

A pass is a function of a block of rows and a way to merge two results; nothing else is ever
collected. Tables of Dask and Parquet files are passed over by Dask, on threads of this machine or
on a cluster; rows in memory by threads. Nothing here knows what rows are used for.
"""

from timbermark.partitions.parts import Block, Part, Parts, memory_parts
from timbermark.partitions.passes import (
    Pass,
    connect,
    hash_limit,
    is_in_parts,
    open_parts,
    pick_rows,
    place_keys,
    run_pass,
)

__all__ = [
    "Block",
    "Part",
    "Parts",
    "Pass",
    "connect",
    "hash_limit",
    "is_in_parts",
    "memory_parts",
    "open_parts",
    "pick_rows",
    "place_keys",
    "run_pass",
]
