"""The suite's own recordings: what the reference computed, a file a concept, and its replay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from parity import recording
from parity.case import Arrays, Case
from parity.formats import bits
from parity.recording import Recording, RecordingError
from parity.untrusted import shown

SHIPPED = Path(__file__).with_name("recordings")
KIND = "suite"


@dataclass
class Recorder:
    """Takes what the reference computes, and writes it where a run has ended.

    Attributes:
      folder: made if it is not there; it gets ``<concept>.safetensors`` for each concept.
      made_by: framework and version of the reference.
      environment: what its numbers may depend on.
      failed: cases in which the reference raised. A recording without them would look whole.
    """

    folder: Path
    made_by: Mapping[str, str]
    environment: Mapping[str, str]
    failed: list[str] = field(default_factory=list)
    _tensors: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    _cases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, case: Case, reference: Arrays, floors: Mapping[str, float]) -> None:
        """Take one case.

        Args:
          case: it was run on its own inputs.
          reference: what the reference has computed.
          floors: how far two runs of the reference are apart.
        """
        inputs = case.inputs()
        kept = self._tensors.setdefault(case.concept, {})
        kept |= {_name(case.id, "inputs", name): array for name, array in inputs.items()}
        kept |= {_name(case.id, "reference", name): array for name, array in reference.items()}
        self._cases.setdefault(case.concept, {})[case.id] = {
            "inputs": sorted(inputs),
            "reference": sorted(reference),
            "floors": dict(floors),
        }

    def write(self) -> str:
        """Write what was taken, and say what that is.

        Raises:
          RecordingError: if the reference raised in a case; nothing is written then.
        """
        if self.failed:
            raise RecordingError(f"nothing was written: the reference raised in {self.failed[0]}")
        if self._tensors:
            self.folder.mkdir(parents=True, exist_ok=True)
        for concept, tensors in self._tensors.items():
            manifest = {
                "kind": KIND,
                "made_by": dict(self.made_by),
                "environment": dict(self.environment),
                "cases": self._cases[concept],
            }
            recording.write(self.folder / f"{concept}.safetensors", tensors, manifest)
        files = (f"{concept} ({len(cases)} cases)" for concept, cases in self._cases.items())
        return f"recorded in {self.folder}: {', '.join(files) or 'nothing'}"


@dataclass(frozen=True, eq=False)
class Replay:
    """Recordings that stand for the reference.

    Attributes:
      place: file or folder that they are from.
      cases: which recording has a case, by id.
      versions: of PyTorch.
      hashes: SHA-256 of each file, by its name.
    """

    place: Path
    cases: Mapping[str, Recording]
    versions: tuple[str, ...]
    hashes: Mapping[str, str]

    def __str__(self) -> str:
        """Return what stands for the reference: its version, and a hash of all files' hashes."""
        together = hashlib.sha256("".join(self.hashes.values()).encode()).hexdigest()
        versions = shown(" and ".join(self.versions))
        return f"torch {versions}, recorded in {self.place}, sha256 {together[:16]}"

    def reference(self, case: Case) -> tuple[Arrays, dict[str, float]]:
        """Return what the reference has computed, and how far two runs of it were apart.

        Raises:
          RecordingError: if it was given other inputs than the case has now.
        """
        found = self.cases[case.id]
        entry = found.manifest["cases"][case.id]
        inputs = case.inputs()
        if sorted(inputs) != entry["inputs"]:
            raise RecordingError(
                f"{self.place}: {case.id} was recorded with the inputs {entry['inputs']}, and has "
                f"{sorted(inputs)}. Record it again: parity run --record DIR"
            )
        for name, array in inputs.items():
            recorded = found.tensors[_name(case.id, "inputs", name)]
            if not _same(array, recorded):
                raise RecordingError(
                    f"{self.place}: {case.id} was recorded with another `{name}` than it has now. "
                    "Record it again: parity run --record DIR"
                )
        named = {
            name: found.tensors[_name(case.id, "reference", name)] for name in entry["reference"]
        }
        return named, entry["floors"]


def replay(place: Path) -> Replay:
    """Read the suite's recordings.

    Args:
      place: a file, or a folder of them.

    Raises:
      RecordingError: if there is none, or one can't be trusted, is of another suite, or was not
        made by PyTorch.
    """
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    if not files:
        raise RecordingError(f"{place}: has no *.safetensors")
    cases: dict[str, Recording] = {}
    hashes = {}
    for file in files:
        found = recording.read(file)
        entries = _entries(file, found)
        if twice := sorted(entries & cases.keys()):
            raise RecordingError(f"{file}: {shown(twice[0])} is in another file of {place} too")
        cases |= dict.fromkeys(entries, found)
        hashes[file.name] = found.sha256
    versions = sorted({found.manifest["made_by"]["torch"] for found in cases.values()})
    return Replay(place, cases, tuple(versions), hashes)


def _entries(file: Path, found: Recording) -> set[str]:
    """Return the ids of a recording's cases, once it is what a run can be held against."""
    manifest = found.manifest
    if manifest.get("kind") != KIND:
        raise RecordingError(
            f"{file}: is a recording of {shown(str(manifest.get('kind')))}, not of this suite's "
            "cases; parity run --record DIR makes one"
        )
    made_by = manifest.get("made_by")
    if not isinstance(made_by, dict) or not isinstance(made_by.get("torch"), str):
        raise RecordingError(
            f"{file}: was made by {shown(str(made_by))}. The reference is PyTorch: what a port has "
            "recorded of itself proves nothing"
        )
    entries = manifest.get("cases")
    if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
        raise RecordingError(f"{file}: its list of cases is damaged")
    for case_id, entry in entries.items():
        for kind in ("inputs", "reference"):
            for name in entry[kind]:
                if _name(case_id, kind, name) not in found.tensors:
                    raise RecordingError(
                        f"{file}: lacks {kind} `{shown(name)}` of {shown(case_id)}"
                    )
    return set(entries)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"inputs", "reference", "floors"}:
        return False
    lists = all(_are_names(entry[kind]) for kind in ("inputs", "reference"))
    floors = entry["floors"]
    return (
        lists
        and bool(entry["reference"])
        and isinstance(floors, dict)
        and all(isinstance(floor, float) and floor >= 0 for floor in floors.values())
    )


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _name(case_id: str, kind: str, tensor: str) -> str:
    return f"{case_id}/{kind}/{tensor}"


def _same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
    return same and bool(np.array_equal(bits(ours), bits(theirs)))
