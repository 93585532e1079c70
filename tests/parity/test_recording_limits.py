"""What a hostile recording may cost or say, and where one is never written."""

import json
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from parity import recording

TENSORS = {"mask": np.array([True, False, True])}


def forged(text, more=b""):
    """Return a file with this manifest; its hash does not fit, if it ever comes to that."""
    about = {"parity": text, "sha256": "0"}
    header = json.dumps({"__metadata__": about}).encode()
    return len(header).to_bytes(8, "little") + header + more


def reason(path):
    with pytest.raises(recording.RecordingError) as caught:
        recording.read(path)
    return str(caught.value)


def test_a_folder_is_refused_and_not_left_open(tmp_path):
    before = len(list(Path("/dev/fd").iterdir()))
    assert "not a regular file" in reason(tmp_path)
    assert len(list(Path("/dev/fd").iterdir())) == before


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory from /proc")
def test_no_memory_is_taken_for_a_payload_without_a_header(tmp_path, python):
    with (tmp_path / "a").open("wb") as stream:
        stream.truncate(1 << 30)
    code = (
        "import resource, sys; from pathlib import Path; from parity import recording\n"
        "import numpy\n"
        "limit = int(Path('/proc/self/statm').read_text().split()[0]) * 4096 + (1 << 28)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try: recording.read(Path(sys.argv[1]))\n"
        "except recording.RecordingError as error: print(error)"
    )
    done = python(code, str(tmp_path / "a"))
    assert "header is not JSON" in done.stdout, done.stderr


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_beyond_float64_is_refused(tmp_path, number):
    (tmp_path / "a").write_bytes(forged(f'{{"schema": 1, "aliases": {{}}, "x": {number}}}'))
    assert f"holds {number}" in reason(tmp_path / "a")


@pytest.mark.parametrize("name", ["n" * 100_000, "\x1b[2J", "\ud800", "\r\n"])
def test_a_message_is_short_and_safe_to_print(tmp_path, monkeypatch, name):
    recording.write(tmp_path / "a", TENSORS, {})
    monkeypatch.setattr(recording, "_deduplicated", lambda _: (TENSORS, {name: "gone"}))
    recording.write(tmp_path / "a", TENSORS, {})
    said = reason(tmp_path / "a").removeprefix(str(tmp_path))
    assert said.isprintable()
    assert len(said) < 400


@pytest.mark.parametrize("key", ["schema", "aliases"])
def test_a_manifest_can_t_have_what_a_recording_sets(tmp_path, key):
    with pytest.raises(ValueError, match=f"`manifest` has '{key}'"):
        recording.write(tmp_path / "a", TENSORS, {key: 1})


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="must be a file or new"):
        recording.write(tmp_path / "pipe", TENSORS, {})
    assert (tmp_path / "pipe").is_fifo()


def test_threads_write_in_one_folder(tmp_path):
    errors = []

    def work(number):
        try:
            for _ in range(20):
                recording.write(tmp_path / str(number), {"x": np.full(10_000, number)}, {})
                assert (recording.read(tmp_path / str(number)).tensors["x"] == number).all()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
