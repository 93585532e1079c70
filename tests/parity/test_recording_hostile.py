"""A thousand damaged or hostile variants of a suite's recording: each is refused, none passes.

They are read by the command's own reader in one process with a memory limit, so that a file that
takes memory for what is not there is found too.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity import recording
from parity.recording import RecordingError
from parity.suite_recording import replay

VARIANTS = 1_000
CASE = "fine/case[a]"
NAMES = ("../../etc/passwd", "/etc/passwd", "a\0b", "x" * 5_000, "C:\\x", "~", "a/../b", "")


def recorded(path):
    """Write what ``parity run --record`` would, of one case."""
    tensors = {
        f"{CASE}/inputs/ids": np.arange(6, dtype=np.int32).reshape(2, 3),
        f"{CASE}/inputs/mask": np.array([True, False]),
        f"{CASE}/reference/rows": np.linspace(-1, 2, 12).reshape(3, 4).astype(np.float32),
    }
    entry = {"inputs": ["ids", "mask"], "reference": ["rows"], "floors": {}}
    manifest = {"kind": "suite", "made_by": {"torch": "2.13.0"}, "cases": {CASE: entry}}
    recording.write(path, tensors, manifest)


def parts(data):
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[start:]


def joined(header, payload, *, hashed):
    if hashed:
        header["__metadata__"]["sha256"] = recording._digest(header, payload)
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + payload


def flipped(data, random):
    """Flip a bit of anything but padding."""
    place = int(random.integers(len(data)))
    return data[:place] + bytes([data[place] ^ 1 << int(random.integers(8))]) + data[place + 1 :]


def cut(data, random):
    return data[: int(random.integers(len(data)))]


def grown(data, random):
    return data + random.bytes(int(random.integers(1, 50)))


def swapped(data, random):
    header, payload = parts(data)
    i, j = random.choice(len(payload), 2, replace=False)
    changed = bytearray(payload)
    changed[i], changed[j] = changed[j], changed[i] ^ 1
    return joined(header, bytes(changed), hashed=False)


def reshaped(data, random):
    header, payload = parts(data)
    name = sorted(set(header) - {"__metadata__"})[int(random.integers(3))]
    sizes = [0, 1, 7, -1, 2**31, 2**62, 2**64, True, 1.5, "3", None, []]
    field = ("shape", "dtype", "data_offsets")[int(random.integers(3))]
    if field == "dtype":
        value = ["F8", "I64", "U128", "", None, 3, "F64", "BF16"][int(random.integers(8))]
    else:
        value = [sizes[int(k)] for k in random.integers(len(sizes), size=random.integers(0, 4))]
    header[name][field] = value
    return joined(header, payload, hashed=bool(random.integers(2)))


def oversize(data, random):
    size = int(2 ** random.uniform(12, 63.9))
    return size.to_bytes(8, "little") + data[8:]


def renamed(data, random):
    """Name arrays, cases or files by what might be taken for a path."""
    header, payload = parts(data)
    name = NAMES[int(random.integers(len(NAMES)))]
    if random.integers(2):
        header[name] = header.pop(sorted(set(header) - {"__metadata__"})[0])
    else:
        manifest = json.loads(header["__metadata__"]["parity"])
        manifest["cases"][CASE]["inputs"] = [name]
        header["__metadata__"]["parity"] = json.dumps(manifest)
    return joined(header, payload, hashed=True)


def misled(data, random):
    """Say something else in the manifest, under a hash that fits."""
    header, payload = parts(data)
    manifest = json.loads(header["__metadata__"]["parity"])
    junk = [None, 2, "x", [], {}, [[]], {"a": -1.0}, True, -1.5, "../x"][int(random.integers(10))]
    key = ["kind", "made_by", "cases", "schema", "aliases", "entry"][int(random.integers(6))]
    if key == "entry":
        field = ["inputs", "reference", "floors"][int(random.integers(3))]
        junk = [junk] if field != "floors" else junk or 1
        manifest["cases"][CASE][field] = junk
    else:
        manifest[key] = junk if not (key == "aliases" and junk == {}) else None
        if key == "cases" and junk == {}:
            manifest[key] = [CASE]
    header["__metadata__"]["parity"] = json.dumps(manifest)
    return joined(header, payload, hashed=True)


def nested(data, random):
    depth = int(random.integers(2_000, 200_000))
    text = (b'{"a":' if random.integers(2) else b"[") * depth
    return len(text).to_bytes(8, "little") + text


KINDS = (flipped, cut, grown, swapped, reshaped, oversize, renamed, misled, nested)


def variant(data, number):
    random = np.random.default_rng(number)
    return KINDS[number % len(KINDS)](data, random)


def check(folder):
    """Read every variant, and print how each kind that was not refused has ended."""
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    good, bad = folder / "good.safetensors", folder / "bad.safetensors"
    recorded(good)
    data = good.read_bytes()
    assert CASE in replay(good).cases
    refused = 0
    for number in range(VARIANTS):
        changed = variant(data, number)
        bad.write_bytes(changed)
        try:
            replay(bad)
        except RecordingError as error:
            refused += str(bad) in str(error) and len(str(error)) > len(str(bad)) + 20
        except Exception as error:
            sys.stdout.write(f"{number} {KINDS[number % len(KINDS)].__name__}: {error!r}\n")
        else:
            if changed != data:
                sys.stdout.write(f"{number} {KINDS[number % len(KINDS)].__name__}: passed\n")
    sys.stdout.write(f"{refused} refused\n")


def test_each_of_a_thousand_variants_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{VARIANTS} refused\n"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_changes_something(tmp_path, kind):
    recorded(tmp_path / "good.safetensors")
    data = (tmp_path / "good.safetensors").read_bytes()
    assert kind(data, np.random.default_rng(0)) != data


if __name__ == "__main__":
    check(Path(sys.argv[1]))
