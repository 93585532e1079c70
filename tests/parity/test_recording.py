"""Recordings: what goes in comes out bit for bit, and nothing else is read."""

import json
import os
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from parity import recording
from parity.formats import bits
from parity.recording import RecordingError

DTYPES = [
    *("float64", "float32", "float16", "bool", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8"),
]
TENSORS = {"a/b": np.arange(3.0), "c [d]": np.ones((2, 2), ml_dtypes.bfloat16)}


def same(ours, theirs):
    return (
        ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
        and np.array_equal(bits(ours), bits(theirs))
    )


def rewritten(path, change, *, hashed=True):
    """Change the header of a recording, and put its hash right again unless told otherwise."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8:start]), data[start:]
    manifest = json.loads(header["__metadata__"]["parity"])
    payload = change(header, manifest, payload) or payload
    header["__metadata__"]["parity"] = json.dumps(manifest)
    if hashed:
        header["__metadata__"]["sha256"] = recording._digest(header, payload)
    packed = json.dumps(header).encode()
    path.write_bytes(len(packed).to_bytes(8, "little") + packed + payload)
    return path


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "r.safetensors"
    recording.write(path, TENSORS, {"kind": "test"})
    return path


def refused(path, reason, **options):
    with pytest.raises(RecordingError, match=reason) as caught:
        recording.read(path, **options)
    assert str(caught.value).startswith(str(path))


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name.isprintable() and name != "__metadata__"),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
        ),
    )
)
def test_arrays_come_back_bit_for_bit(tmp_path_factory, tensors):
    path = tmp_path_factory.mktemp("r") / "r.safetensors"
    digest = recording.write(path, tensors, {"kind": "x"})
    found = recording.read(path)
    assert (found.manifest, found.sha256) == ({"kind": "x"}, digest)
    assert found.tensors.keys() == tensors.keys()
    assert all(same(found.tensors[name], array) for name, array in tensors.items())


@pytest.mark.parametrize(
    "array",
    [
        np.array([0x7FC1, 0xFFFF, 0x8000], np.uint16).view(ml_dtypes.bfloat16),
        np.array([0x7F800001, 0xFFC00001], np.uint32).view(np.float32),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0)[::-2],
        np.broadcast_to(np.float32(3), (4, 5)),
    ],
    ids=["bfloat16 NaN", "NaN payloads", "transposed", "strided", "broadcast"],
)
def test_bits_and_layouts_survive(path, array):
    recording.write(path, {"x": array}, {})
    assert same(recording.read(path).tensors["x"], array)


def test_another_byte_order_is_stored_in_ours(path):
    recording.write(path, {"x": np.arange(3, dtype=">i4")}, {})
    assert same(recording.read(path).tensors["x"], np.arange(3, dtype=np.int32))


def test_the_same_content_makes_the_same_bytes(path):
    before = path.read_bytes()
    recording.write(path, dict(reversed(TENSORS.items())), {"kind": "test"})
    assert path.read_bytes() == before


def test_what_is_the_same_is_stored_once(path):
    zeros = np.zeros(500)
    # -0 is another number, whatever `==` says; and so is an integer of the same bits.
    others = {"minus": -zeros, "whole": np.zeros(500, np.int64), "shape": zeros.reshape(20, 25)}
    recording.write(path, {"one": zeros, **others}, {})
    size = path.stat().st_size
    assert size > 16_000
    recording.write(path, {"one": zeros, **others, "again": zeros.copy()}, {})
    assert path.stat().st_size < size + 100
    found = recording.read(path)
    assert same(found.tensors["again"], zeros)
    assert all(same(found.tensors[name], array) for name, array in others.items())


def test_a_group_is_what_is_below_a_name(path):
    assert recording.read(path).group("a").keys() == {"b"}
    assert recording.read(path).group("c") == {}


@pytest.mark.parametrize(
    ("tensors", "error", "said"),
    [
        ({"x": np.array(["a"])}, TypeError, "`x` is str32. Record floats, integers or bools"),
        ({"x": np.ones(2, complex)}, TypeError, "`x` is complex128"),
        ({"": np.ones(2)}, ValueError, "must have a printable name, got ''"),
        ({"a\nok   fake": np.ones(2)}, ValueError, "must have a printable name"),
        ({"__metadata__": np.ones(2)}, ValueError, "got '__metadata__'"),
    ],
)
def test_what_can_not_be_recorded_is_named_and_the_file_stays(path, tensors, error, said):
    before = path.read_bytes()
    with pytest.raises(error, match=re.escape(said)):
        recording.write(path, tensors, {})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_can_not_be_written_whole_stays(path, monkeypatch):
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        recording.write(path, {"x": np.ones(2)}, {})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_manifest_with_nan_is_refused(path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        recording.write(path, {}, {"floor": float("nan")})


def test_what_is_no_file_is_refused(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(pipe, "is not a regular file")
    refused(tmp_path, "directory|not a regular file")
    refused(tmp_path / "absent", "No such file")


def test_sizes_are_checked_first(path):
    refused(path, r"has [\d,]+ bytes, and 10 are allowed", max_bytes=10)
    data = path.read_bytes()
    path.write_bytes(data[:7])
    refused(path, "is truncated")
    path.write_bytes((2**63).to_bytes(8, "little") + data[8:])
    refused(path, "is truncated")
    large = (17 << 20).to_bytes(8, "little") + b" " * (17 << 20)
    path.write_bytes(large)
    refused(path, "has a header of 17,825,792 bytes")


def entry(**change):
    return lambda header, manifest, payload: header["a/b"].update(change)


def manifest(**change):
    return lambda header, manifest, payload: manifest.update(change)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (entry(shape=[4]), "describes `a/b`"),
        (entry(shape=[-3]), "describes `a/b`"),
        (entry(shape=[True, 3]), "describes `a/b`"),
        (entry(shape=[2**62, 2**62]), "describes `a/b`"),
        (entry(shape=[0, 2**62]), "describes `a/b`"),
        (entry(shape=[0, 2**70], data_offsets=[0, 0]), "describes `a/b`"),
        (entry(shape=3), "describes `a/b`"),
        (entry(dtype="F128"), "describes `a/b`"),
        (entry(dtype=["F64"]), "describes `a/b`"),
        (entry(data_offsets=[8, 32]), "hole or an overlap|describes"),
        (entry(data_offsets=[0, 24, 48]), "describes `a/b`"),
        (entry(extra=1), "describes `a/b`"),
        (lambda header, *_: header.update({"a/b": []}), "describes `a/b`"),
        (lambda header, *_: header.update({"\x1b[31m": {}}), r"has an array named `\\x1b\[31m`"),
        (lambda header, *_: header.update({"\ud800": {}}), r"has an array named `\\ud800`"),
        (manifest(aliases={"\n": "a/b"}), r"its alias `\\n`"),
        (lambda header, *_: header.pop("c [d]") and None, "its header tells of|hole"),
        (lambda header, m, payload: payload + b"x", "bytes of arrays, and its header tells of"),
        (manifest(schema=2), r"newer parity \(schema 2, this one reads 1\): update parity"),
        (manifest(schema="1"), "its schema is '1'"),
        (manifest(schema=True), "its schema is True"),
        (manifest(schema=0), "its schema is 0"),
        (manifest(aliases={"x": "y"}), "its alias `x` stands for 'y'"),
        (manifest(aliases={"a/b": "c [d]"}), "its alias `a/b`"),
        (manifest(aliases={"x": 1}), "its alias `x` stands for 1"),
        (manifest(aliases=[]), "no aliases"),
        (manifest(floor=float("inf")), "its manifest holds Infinity"),
    ],
)
def test_what_does_not_add_up_is_refused_even_with_the_right_hash(path, change, reason):
    refused(rewritten(path, change), reason)


def test_a_bool_that_is_neither_is_refused(path):
    recording.write(path, {"x": np.array([True, False])}, {})
    refused(rewritten(path, lambda header, manifest, payload: b"\1\2"), "neither 0 nor 1")


@pytest.mark.parametrize("change", [manifest(kind="other"), entry(dtype="I64")])
def test_what_was_altered_is_refused(path, change):
    refused(rewritten(path, change, hashed=False), "is altered or damaged")


def test_a_key_twice_is_refused(path):
    data = path.read_bytes()
    text = b'{"__metadata__":{},"__metadata__":{}}'
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    refused(path, "names something twice")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "its header is not JSON"),
        (b"[]", "its header is no JSON object"),
        (b"\xff\xfe{}", "its header is not JSON"),
        (b"{}", "no manifest"),
        (b'{"__metadata__":{"format":"pt"}}', "is not a recording of parity"),
        (b'{"__metadata__":{"parity":"{}"}}', "its schema is None"),
        (b"[" * 100_000, "its header is not JSON"),
        (b'{"a":' * 100_000, "its header is not JSON"),
    ],
)
def test_other_files_are_refused(path, text, reason):
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    refused(path, reason)
