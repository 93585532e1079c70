"""Safetensors files of anyone: sizes are checked before memory is taken, and nothing is guessed."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from parity.formats import dtype_of

DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_ENTRY = {"dtype", "shape", "data_offsets"}
_MAX_HEADER = 16 << 20


class Refused(Exception):
    """Why a file can't be trusted."""


def refuse(reason: str) -> NoReturn:
    """Say why a file can't be trusted."""
    raise Refused(reason)


def file_parts(path: Path, max_bytes: int) -> tuple[dict[str, Any], bytes]:
    """Return header and payload of a safetensors file; the payload is read if there is a header."""
    # Opening a pipe would wait for who writes it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # Of a folder, `fdopen` would raise and leave the descriptor open.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            refuse("is not a regular file")
        if status.st_size > max_bytes:
            refuse(f"has {status.st_size:,} bytes, and {max_bytes:,} are allowed")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            size = int.from_bytes(stream.read(8), "little")
            rest = status.st_size - 8 - size
            if rest < 0:
                refuse("is truncated: it ends within its header")
            if size > _MAX_HEADER:
                refuse(f"has a header of {size:,} bytes, and {_MAX_HEADER:,} are allowed")
            return json_object(stream.read(size), "header"), stream.read(rest)
    finally:
        os.close(descriptor)


def json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Return a JSON object in which no key comes twice and no number is NaN."""
    try:
        found = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            object_pairs_hook=_unique,
            parse_constant=lambda name: refuse(f"its {what} holds {name}"),
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        refuse(f"its {what} is not JSON: {error}")
    return found if isinstance(found, dict) else refuse(f"its {what} is no JSON object")


def _finite(text: str) -> float:
    """Return a number; of 1e999, Python's own reading is infinity."""
    number = float(text)
    return number if math.isfinite(number) else refuse(f"holds {text[:20]}, which is no float64")


def shown(name: str) -> str:
    """Return a name as a terminal may see it: short, and without control characters."""
    plain = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in name[:80]
    )
    return plain if len(name) <= 80 else f"{plain}..."


def is_name(name: str) -> bool:
    """Say whether an array may be called so, and a terminal be shown that."""
    return name.isprintable() and name not in ("", "__metadata__")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else refuse("names something twice")


def file_arrays(header: dict[str, Any], payload: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that a header describes, once they are all of the payload."""
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name, entry in entries.items():
        if not is_name(name):
            refuse(f"has an array named `{shown(name)}`")
        if not isinstance(entry, dict) or set(entry) != _ENTRY or not _is_sound(entry):
            refuse(f"describes `{shown(name)}` by {str(entry)[:200]}, which is no array")
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["data_offsets"][0] != end:
            refuse(f"has a hole or an overlap before `{shown(name)}`")
        end = entry["data_offsets"][1]
    if end != len(payload):
        refuse(f"has {len(payload):,} bytes of arrays, and its header tells of {end:,}")
    return {name: _array(entry, payload) for name, entry in entries.items()}


def _is_sound(entry: dict[str, Any]) -> bool:
    """Say whether dtype, shape and place of an array go together; a bool is no size."""
    dtype, shape, offsets = (entry[key] for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        return False
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        return False
    if len(shape) > 64 or not all(type(size) is int and size >= 0 for size in [*shape, *offsets]):
        return False
    wanted = math.prod(shape) * dtype_of(DTYPES[dtype]).itemsize
    # An empty array may have sizes that NumPy can't multiply.
    return offsets[1] - offsets[0] == wanted and math.prod(max(size, 1) for size in shape) < 2**48


def _array(entry: dict[str, Any], payload: bytes) -> np.ndarray:
    dtype = dtype_of(DTYPES[entry["dtype"]])
    first, last = entry["data_offsets"]
    array = np.frombuffer(memoryview(payload)[first:last], dtype)
    if entry["dtype"] == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        refuse("has a bool that is neither 0 nor 1")
    return array.reshape(entry["shape"])
