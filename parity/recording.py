"""A recording: one safetensors file of arrays, with a manifest and a hash over all of it.

The manifest is the JSON text "parity" of the file's ``__metadata__``; "sha256" is over the header
without itself, in canonical JSON, and over the payload. Nothing of a file is believed before its
sizes add up and its hash fits, and no memory is taken for what is not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.untrusted import (
    DTYPES,
    Refused,
    file_arrays,
    file_parts,
    is_name,
    json_object,
    refuse,
    shown,
)
from parity.whole_file import whole_file

SCHEMA = 1


class RecordingError(ValueError):
    """A file is no recording that can be trusted; the message begins with its path."""


@dataclass(frozen=True, eq=False)
class Recording:
    """What a recording holds.

    Attributes:
      manifest: what it is about.
      tensors: read-only arrays, by name.
      sha256: of header and payload.
    """

    manifest: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]
    sha256: str

    def group(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the arrays below a prefix: of "outputs", those named ``outputs/...``."""
        start = f"{prefix.rstrip('/')}/"
        return {
            name.removeprefix(start): array
            for name, array in self.tensors.items()
            if name.startswith(start)
        }


def require_path(path: Path) -> None:
    """Refuse a path at which no recording can be written.

    Raises:
      ValueError: if it is a folder, a device or a pipe, or its folder is not there.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"`path` must be a file or new, and {path} is neither. Give another.")
    if not path.resolve().parent.is_dir():
        raise ValueError(f"`path` must be in a folder that exists, and that of {path} does not.")


def write(path: Path, tensors: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> str:
    """Write a recording, which has its name only once it is whole.

    Arrays of the same bits are stored once. What is the same makes the same bytes.

    Args:
      path: in a folder that exists.
      tensors: arrays of floats (bfloat16 too), integers or bools, by name.
      manifest: what JSON can hold.

    Returns:
      Its SHA-256.

    Raises:
      TypeError: if an array is of another dtype.
      ValueError: if a name is empty or reserved, the manifest holds NaN or a reserved key, or
        the path is a folder, a device or a pipe.
    """
    from safetensors.numpy import save

    if taken := sorted({"schema", "aliases"} & set(manifest)):
        raise ValueError(f"`manifest` has {taken[0]!r}, which a recording sets. Use another key.")
    require_path(path)
    stored, aliases = _deduplicated(tensors)
    text = json.dumps(
        {**manifest, "schema": SCHEMA, "aliases": aliases}, sort_keys=True, allow_nan=False
    )
    payload = save(stored, metadata={"parity": text})
    header, start = _split(payload)
    digest = _digest(header, payload[start:])
    header["__metadata__"] = {"parity": text, "sha256": digest}
    # Two keys of metadata come in no order from the library; so this puts the header together.
    packed = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    packed += b" " * (-len(packed) % 8)
    with whole_file(path) as stream:
        stream.writelines([len(packed).to_bytes(8, "little"), packed, payload[start:]])
    return digest


def _deduplicated(
    tensors: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays to store, and which other names stand for which of them."""
    stored: dict[str, np.ndarray] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    for name, array in sorted(tensors.items()):
        if not is_name(name):
            raise ValueError(f"an array of a recording must have a printable name, got {name!r}")
        if array.dtype.name not in DTYPES.values():
            raise TypeError(
                f"`{name}` is {array.dtype.name}. Record floats, integers or bools: "
                f"{', '.join(DTYPES.values())}."
            )
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
        known = first.setdefault((plain.dtype.name, plain.shape, plain.tobytes()), name)
        if known == name:
            stored[name] = plain
        else:
            aliases[name] = known
    return stored, aliases


def _split(data: bytes) -> tuple[dict[str, Any], int]:
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), start


def _digest(header: Mapping[str, Any], payload: bytes) -> str:
    """Return the hash of a header, but for the hash in it, and of the payload."""
    metadata = {key: text for key, text in header["__metadata__"].items() if key != "sha256"}
    canonical = json.dumps({**header, "__metadata__": metadata}, sort_keys=True)
    digest = hashlib.sha256(canonical.encode())
    digest.update(payload)  # added to the text, it would be copied
    return digest.hexdigest()


def read(path: Path, *, max_bytes: int = 2 << 30) -> Recording:
    """Read a recording, and refuse anything else.

    Args:
      path: a regular file.
      max_bytes: that it may have at most.

    Raises:
      RecordingError: if it can't be read, is too large, truncated, altered, newer than this
        package, or no recording at all; the message says which.
    """
    try:
        header, payload = file_parts(path, max_bytes)
        manifest = _manifest(header, payload)
        stored = file_arrays(header, payload)
        aliases = _aliases(manifest, stored)
    except OSError as error:  # whose text has the path too
        raise RecordingError(f"{path}: {error.strerror}") from error
    except (Refused, ValueError, RecursionError) as error:
        raise RecordingError(f"{path}: {error}") from error
    tensors = stored | {name: stored[first] for name, first in aliases.items()}
    about = {key: value for key, value in manifest.items() if key not in ("schema", "aliases")}
    return Recording(about, tensors, header["__metadata__"]["sha256"])


def _manifest(header: dict[str, Any], payload: bytes) -> dict[str, Any]:
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("parity"), str):
        refuse("is not a recording of parity: it has no manifest")
    manifest = json_object(metadata["parity"], "manifest")
    schema = manifest.get("schema")
    if type(schema) is not int or schema < 1:
        refuse(f"is not a recording of parity: its schema is {repr(schema)[:40]}")
    if schema > SCHEMA:
        refuse(
            f"was written by a newer parity (schema {str(schema)[:40]}, this one reads {SCHEMA}): "
            "update parity"
        )
    if set(metadata) != {"parity", "sha256"} or metadata["sha256"] != _digest(header, payload):
        refuse("is altered or damaged: its SHA-256 is not that of its content")
    return manifest


def _aliases(manifest: dict[str, Any], stored: Mapping[str, np.ndarray]) -> dict[str, str]:
    aliases = manifest.get("aliases")
    if not isinstance(aliases, dict):
        refuse("its manifest has no aliases")
    for name, first in aliases.items():
        is_sound = is_name(name) and isinstance(first, str) and first in stored
        if name in stored or not is_sound:
            stands = f"its alias `{shown(name)}` stands for {repr(first)[:80]}"
            refuse(f"{stands}, which is no other array of it")
    return aliases
