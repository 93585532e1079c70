"""Recordings of the suite: the same verdicts row by row, without PyTorch, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity import recording
from parity.cases import all_cases
from parity.distance import measure
from parity.formats import widen
from parity.known import load
from parity.recording import RecordingError
from parity.suite_recording import KIND, SHIPPED, Recorder, replay

ROOT = Path(__file__).parents[2]
CASES = (
    "embedding/hits",
    "inputs/dropout_key[rate 0.25, float32, jit]",
    "linen/dropout",
    "sinusoidal/published[60x512, float32]",
    "optimizers/adam",
)
# Neither PyTorch nor its twin may even be looked for.
WITHOUT_TORCH = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torch_ref"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
from parity.cli import main
code = main(sys.argv[1:])
assert not {"torch", "torch_ref"} & set(sys.modules)
sys.exit(code)
"""


def run(*arguments, blocked=False):
    start = ["-c", WITHOUT_TORCH] if blocked else ["-m", "parity"]
    return subprocess.run(
        [sys.executable, *start, "run", *arguments, "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def records(done, kind="row"):
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [record for record in found if record["type"] == kind]


@pytest.mark.slow
def test_a_recording_made_here_gives_the_same_rows_without_torch(tmp_path):
    live = records(run(*CASES, "--record", str(tmp_path / "new" / "folder")))
    replayed = run(*CASES, "--against", str(tmp_path / "new" / "folder"), blocked=True)
    assert len(live) > 10
    assert records(replayed) == live


@pytest.mark.slow
def test_where_torch_is_absent_the_shipped_recordings_stand_for_it():
    done = run(*CASES, blocked=True)
    (facts,) = records(done, "environment")
    assert records(done) == records(run(*CASES))
    assert facts["facts"]["reference"].startswith(
        f"torch 2.13.0+cpu, recorded in {SHIPPED}, sha256"
    )
    assert "torch: torch is blocked" in done.stderr
    assert facts["facts"]["reference"] in done.stderr


def test_the_blocker_blocks():
    code = WITHOUT_TORCH.partition("from parity")[0] + "import torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=ROOT)
    assert b"torch is blocked" in done.stderr


def test_every_case_that_needs_torch_is_shipped():
    shipped = replay(SHIPPED)
    assert {case.id for case in all_cases()} == set(shipped.cases)
    assert shipped.versions == ("2.13.0+cpu",)


@pytest.mark.slow
@pytest.mark.timeout(900)  # it runs every case: 110 s, three times that where others run beside it
def test_what_is_shipped_is_what_the_reference_computes_now(tmp_path):
    """Bit for bit where that is promised; elsewhere both are within what is accepted of one."""
    records(run("--all", "--record", str(tmp_path)))
    now, shipped = replay(tmp_path), replay(SHIPPED)
    bounds = {(entry.case, entry.tensor): entry.bound for entry in load()}
    compared = 0
    for case in all_cases():
        ours, theirs = now.reference(case)[0], shipped.reference(case)[0]
        assert ours.keys() == theirs.keys()
        for name, tensor in case.expected().items():
            compared += 1
            if tensor.same_bits:
                np.testing.assert_array_equal(ours[name], theirs[name], strict=True)
            else:
                bound = bounds.get((case.id, name), tensor.ceiling)
                assert np.all(measure(ours[name], widen(theirs[name])).errors <= 2 * bound)
    assert compared > 350


@pytest.fixture
def recorded(fakes, tmp_path):
    """Record the cases of a set, and return the file."""

    def write(cases, made_by=None):
        recorder = Recorder(tmp_path, made_by or {"torch": "2.13.0"}, {})
        for case in cases:
            recorder.add(case, case.reference(case.inputs()), {})
        recorder.write()
        return tmp_path / f"{cases[0].concept}.safetensors"

    return write


def doubled(x):
    return (x * 2).astype(np.float32)


def given(fakes, start=0.0):
    x = np.arange(start, start + 12).reshape(3, 4)
    return fakes.case("fine/case[x]", doubled, doubled, 2 * x, inputs={"x": x})


def test_a_recording_stands_for_the_reference(fakes, command, recorded):
    path = recorded([given(fakes)])
    x = given(fakes).inputs()["x"]
    absent = fakes.case("fine/case[x]", doubled, ValueError("asked"), 2 * x, inputs={"x": x})
    code, out, _ = command([absent], "--against", str(path), "--format", "json")
    assert code == 0
    assert json.loads(out.splitlines()[0])["verdict"] == "same bits"


def test_other_inputs_than_were_recorded_are_trouble(fakes, command, recorded):
    path = recorded([given(fakes)])
    code, out, _ = command([given(fakes, start=1.0)], "--against", str(path))
    assert code == 2
    assert "fine/case[x] was recorded with another `x` than it has now" in out
    assert "every case raised" in out
    more = fakes.case("fine/case[x]", inputs={"x": np.arange(12.0).reshape(3, 4), "y": np.ones(1)})
    code, out, _ = command([more], "--against", str(path))
    assert code == 2
    assert "was recorded with the inputs ['x'], and has ['x', 'y']" in out


def test_a_case_that_was_not_recorded_is_not_run(fakes, command, recorded):
    path = recorded([given(fakes)])
    lacking = fakes.case(fakes.GOOD.id, needs=("torch",))
    code, out, _ = command([lacking], "--against", str(path))
    assert code == 3
    assert "fine/case[a]" in out
    assert "NOT RUN: recording: not in" in out


def test_the_port_is_to_blame_for_what_is_off_against_a_recording(fakes, command, recorded):
    path = recorded([fakes.GOOD])
    bad = fakes.case(fakes.GOOD.id, fakes.ROUNDED * np.float32(2), ValueError("not called"))
    code, out, _ = command([bad], "--against", str(path))
    assert code == 1
    assert "the port is off" in out
    assert f"--against {path}" in out


@pytest.mark.parametrize(
    ("made_by", "said"),
    [
        ({"jax": "0.10.2"}, "was made by {'jax': '0.10.2'}. The reference is PyTorch"),
        ({"torch": 2}, "was made by {'torch': 2}"),
    ],
)
def test_a_recording_of_another_side_is_refused(fakes, command, recorded, made_by, said):
    path = recorded([fakes.GOOD], made_by)
    code, out, err = command("good", "--against", str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f"parity: --against: {path}: ")
    assert said in err


def test_a_recording_whose_hash_does_not_match_is_refused(fakes, command, recorded):
    path = recorded([fakes.GOOD])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    code, out, err = command("good", "--against", str(path))
    assert (code, out) == (2, "")
    why = "is altered or damaged: its SHA-256 is not that of its content"
    assert err == f"parity: --against: {path}: {why}\n"


def test_a_recording_of_a_model_is_refused(tmp_path, command):
    path = tmp_path / "model.safetensors"
    recording.write(path, {}, {"kind": "model", "made_by": {"torch": "2.13.0"}})
    code, _, err = command("good", "--against", str(path))
    assert code == 2
    assert "is a recording of model, not of this suite's cases" in err


def test_a_recording_that_lacks_an_array_is_refused(tmp_path):
    entry = {"inputs": [], "reference": ["rows"], "floors": {}}
    manifest = {"kind": KIND, "made_by": {"torch": "2"}, "cases": {"a/b": entry}}
    recording.write(tmp_path / "a.safetensors", {}, manifest)
    with pytest.raises(RecordingError, match="lacks reference `rows` of a/b"):
        replay(tmp_path)


def test_one_case_in_two_files_is_refused(fakes, recorded):
    path = recorded([fakes.GOOD])
    (path.parent / "copy.safetensors").write_bytes(path.read_bytes())
    with pytest.raises(RecordingError, match=r"fine/case\[a\] is in another file"):
        replay(path.parent)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--against", "{absent}"],
            "--against must be a file or a folder; '{absent}' is not there",
        ),
        (["--against", "{folder}"], "--against: {folder}: has no *.safetensors"),
        (["--against", "{folder}", "--record", "{folder}"], "--record needs the reference itself"),
        (["--record", "{file}"], "--record must be a folder; '{file}' is a file"),
    ],
)
def test_what_can_not_be_replayed_or_recorded_is_refused(command, tmp_path, arguments, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    places = {name: str(tmp_path / name) for name in ("absent", "folder", "file")}
    code, out, err = command("good", *(argument.format(**places) for argument in arguments))
    assert (code, out) == (2, "")
    assert said.format(**places) in err


@pytest.mark.parametrize(
    ("sides", "written"),
    [(("port",), True), (("reference",), False), (("port", "reference"), False)],
)
def test_nothing_is_recorded_where_the_reference_raised(fakes, command, tmp_path, sides, written):
    """A recording without that case would look whole."""
    values = {"port": fakes.ROUNDED, "reference": fakes.ROUNDED}
    values |= dict.fromkeys(sides, ValueError("no"))
    folder = tmp_path / "new"
    bad = fakes.case("x/bad", *values.values())
    code, _, err = command([fakes.GOOD, bad], "--record", str(folder))
    assert folder.exists() is written
    if not written:
        assert code == 2
        assert "--record: nothing was written: the reference raised in x/bad" in err


def test_a_folder_below_a_file_is_refused_first(command, tmp_path):
    (tmp_path / "file").write_text("x")
    code, out, err = command("good", "--record", str(tmp_path / "file" / "below"))
    assert (code, out) == (2, "")
    assert "--record must be a folder" in err or "must be paths" in err
    code, out, err = command("good", "--record", "x" * 300)
    assert (code, out) == (2, "")
    assert "--record and --against must be paths" in err


def test_what_can_not_be_written_is_said_before_a_summary_says_that_all_is_well(
    command, tmp_path, monkeypatch
):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("parity.recording.write", full)
    report = tmp_path / "report.jsonl"
    arguments = ("--record", str(tmp_path / "new"), "--report", str(report), "--format", "json")
    code, out, err = command("good", *arguments)
    assert code == 2
    assert "--record can't be written: no space left" in err
    assert "summary" not in out
    assert not report.exists()


def test_nothing_is_made_where_nothing_was_run(command, tmp_path):
    assert command("none", "--record", str(tmp_path / "new"))[0] == 3
    assert not (tmp_path / "new").exists()


def test_a_version_is_shown_without_what_moves_a_cursor(fakes, command, recorded):
    path = recorded([fakes.GOOD], {"torch": "2\x1b[2J"})
    _, out, _ = command([fakes.GOOD], "--against", str(path))
    assert "\x1b" not in out
    assert "torch 2\\x1b[2J, recorded in" in out


def test_a_folder_that_can_not_be_written_is_refused_first(command, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    code, out, err = command("good", "--record", str(tmp_path / "a" / "b"))
    assert (code, out) == (2, "")
    assert f"--record must be in a folder you may write to; got '{tmp_path}'" in err


def test_a_reference_that_differs_from_run_to_run_says_so_in_its_recording(fakes, tmp_path):
    recorder = Recorder(tmp_path, {"torch": "2"}, {})
    recorder.add(fakes.GOOD, fakes.GOOD.reference({}), {"rows": 0.5})
    recorder.write()
    assert replay(tmp_path).reference(fakes.GOOD)[1] == {"rows": 0.5}


def test_what_was_recorded_is_said(command, tmp_path):
    _, _, err = command("good", "--record", str(tmp_path))
    assert err == f"parity: recorded in {tmp_path}: fine (2 cases)\n"


def test_without_torch_nothing_can_be_recorded(command, tmp_path, monkeypatch):
    monkeypatch.setattr("parity.session.missing", lambda name: f"no {name} here")
    code, out, err = command("good", "--record", str(tmp_path / "new"))
    assert (code, out) == (2, "")
    assert err == "parity: --record needs the reference: torch: no torch here\n"


def test_where_the_shipped_recordings_stand_in_that_is_said(fakes, command, monkeypatch):
    """A case that is not among them is run if it needs no PyTorch."""
    monkeypatch.setattr("parity.session.missing", lambda name: f"no {name} here")
    code, out, err = command([fakes.GOOD, fakes.case("x/y", needs=("torch",))])
    assert code == 0
    assert "NOT RUN: recording: not in" in out
    assert "parity: torch: no torch here" in err
    assert "parity: in its place: torch 2.13.0+cpu, recorded in" in err


def test_a_floor_below_zero_is_refused(fakes, tmp_path):
    recorder = Recorder(tmp_path, {"torch": "2"}, {})
    recorder.add(fakes.GOOD, fakes.GOOD.reference({}), {"rows": -0.5})
    recorder.write()
    with pytest.raises(RecordingError, match="its list of cases is damaged"):
        replay(tmp_path)
