"""The command: options, exit codes, messages, streams."""

import json
import re

import pytest

from parity import environment
from parity.cli import main
from parity.needs import missing


def records(text):
    """The JSON lines of a stream; anything else on it is an error."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("cases", "code"),
    [("good", 0), ("off", 1), ("torch off", 1), ("raises", 2), ("empty", 3), ("none", 3)],
)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_the_exit_code_says_how_the_run_ended(command, cases, code, form):
    assert command(cases, "--format", form)[0] == code


def test_a_difference_is_told_by_term_place_side_cause_and_command(command):
    code, out, err = command("off")
    assert code == 1
    assert re.search(r"FAIL wrong/scale\[jit\] +rows", out)
    assert "wrong/scale[jit], rows: the port is off" in out
    assert "worst at [2, 2]" in out
    assert "cause: every value is 2 times the exact one" in out
    assert "again: python -m parity run 'wrong/scale[jit]'" in out
    assert "2 tensors compared: 1 passed, 1 failed" in out
    assert err == ""


def test_the_command_to_run_a_case_again_runs_just_that_case(command):
    _, out, _ = command("off", "--device", "cpu", "--matmul-precision", "highest")
    (again,) = re.findall(r"again: python -m parity run (.*)", out)
    assert again == "'wrong/scale[jit]' --device cpu --matmul-precision highest"
    code, out, _ = command("off", "wrong/scale[jit]", "--device", "cpu")
    assert (code, out.count("fine/case")) == (1, 0)


def test_the_guilty_side_is_named_when_it_is_torch(command):
    code, out, _ = command("torch off")
    assert code == 1
    assert "wrong/torch, rows: torch is the side that is off" in out


def test_an_exception_in_a_case_does_not_stop_the_others(command):
    code, out, err = command("raises")
    assert code == 2
    assert "bad/case: raised" in out
    assert "cause: second (" in out
    assert "FAIL wrong/x" in out
    assert "ok   fine/case[a]" in out
    assert "Traceback" not in out + err
    assert "Traceback" in command("raises", "-v")[1]


def test_a_port_that_alone_raises_is_a_difference(command):
    code, out, _ = command("port raises")
    assert code == 1
    assert "bad/case, rows: the port raised\n  cause: second (" in out


def test_json_lines_are_alone_on_stdout(command):
    code, out, err = command("off", "--format", "json")
    found = records(out)
    assert [record["type"] for record in found] == ["row", "row", "summary", "environment"]
    assert {record["schema"] for record in found} == {1}
    assert found[1]["verdict"] == "the port is off"
    assert found[2]["exit_code"] == code == 1
    assert "wrong/scale[jit], rows: the port is off" in err
    assert {"python", "jax", "jax devices", "jax x64", "jax matmul precision"} <= set(
        found[3]["facts"]
    )


def test_a_skip_is_named_with_its_reason_and_compares_nothing(command, fakes, monkeypatch):
    monkeypatch.setattr("parity.runner.missing", lambda name: f"no {name}")
    code, out, _ = command("skipped")
    assert code == 3
    assert re.search(r"lacking/case +NOT RUN: models: no models", out)
    assert "nothing was compared" in out


def test_a_device_that_is_not_there_is_not_run(command):
    if not missing("tpu"):
        pytest.skip("there is a TPU")
    code, out, _ = command("good", "--device", "tpu")
    assert code == 3
    assert "NOT RUN: tpu: no tpu here" in out
    assert "ok " not in out


def test_what_is_required_turns_a_skip_into_a_failure(command, monkeypatch):
    absent = {"models": "no models here", "tpu": "no tpu here"}
    monkeypatch.setattr("parity.session.missing", lambda name: absent.get(name, ""))
    code, out, _ = command("good", "--require", "models,tpu")
    assert code == 2
    assert "required, and not there: models (no models here)" in out
    assert "required, and not there: tpu (no tpu here)" in out


def test_what_is_required_and_there_changes_nothing(command):
    assert command("good", "--require", "torch, models")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fine/cas"], "'fine/cas' is none; did you mean 'fine/case'?"),
        (["--filter", "["], "--filter must be a regular expression"),
        (["--dtype", "float33"], "--dtype must be one of float32, int32; got 'float33'"),
        (["--format", "xml"], "--format must be one of text, json, markdown; got 'xml'"),
        (["--device", "gpu0"], "--device must be one of cpu, cuda, gpu, rocm, tpu; got 'gpu0'"),
        (["--matmul-precision", "best"], "--matmul-precision must be one of default, high,"),
        (["--require", "touch"], "--require must be one of torch, flax, models, cpu,"),
        (["--report", "/nowhere/at/all"], "--report must be in a folder that exists;"),
        (["--report", "/"], "--report must be a file; '/' is a folder"),
    ],
)
def test_bad_usage_is_2_and_one_line_with_what_is_allowed(command, arguments, message):
    code, out, err = command("good", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("parity: ")
    assert err.count("\n") == 1
    assert message in err


def test_an_unknown_option_is_2(command):
    code, _, err = command("good", "--bogus")
    assert code == 2
    assert "No such option" in err
    assert "Traceback" not in err


def test_cases_are_chosen_by_name_pattern_and_dtype(command):
    def ran(*arguments):
        out = command("good", *arguments, "--format", "json")[1]
        return [record["case"] for record in records(out) if record["type"] == "row"]

    assert ran() == ["fine/case[a]", "fine/case[b]"]
    assert ran("fine/case[b]") == ["fine/case[b]"]
    assert ran("--filter", "a]$") == ["fine/case[a]"]
    assert ran("--dtype", "int32") == ["fine/case[b]"]
    assert ran("--all") == ["fine/case[a]", "fine/case[b]", "slow/case"]
    assert ran("slow") == ["slow/case"]


def test_a_selection_that_is_empty_compares_nothing(command):
    code, out, _ = command("good", "--filter", "nothing like it")
    assert code == 3
    assert "nothing was compared" in out


def test_list_prints_the_ids_alone(command):
    assert command("good", "--list")[:2] == (0, "fine/case[a]\nfine/case[b]\n")
    assert command("good", "--list", "--all", "slow")[:2] == (0, "slow/case\n")
    assert command("none", "--list")[:2] == (3, "")


def test_a_report_is_the_json_lines_whatever_is_shown(command, tmp_path):
    path = tmp_path / "r.jsonl"
    code, out, _ = command("off", "--report", str(path))
    assert code == 1
    assert "FAIL" in out
    found = records(path.read_text())
    assert [record["type"] for record in found] == ["row", "row", "summary", "environment"]


def test_an_exception_outside_any_case_is_2(fakes, capfd):
    def source():
        raise RuntimeError("broken suite")

    assert main(["run"], source=source) == 2
    assert "RuntimeError: broken suite" in capfd.readouterr().err


def test_a_filter_is_refused_before_any_case_is_loaded(capfd):
    def source():
        raise AssertionError("loaded")

    assert main(["run", "--filter", "("], source=source) == 2
    assert "--filter must be" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["env", "--help"]])
def test_help_is_0(arguments, capfd):
    assert main(arguments) == 0
    assert "Usage: parity" in capfd.readouterr().out


def test_help_says_the_exit_codes(capfd):
    main(["--help"])
    out = " ".join(capfd.readouterr().out.split())
    assert "0 within limits, 1 a difference, 2 usage" in out
    assert "3 nothing compared, 130 interrupted" in out


def test_no_command_is_usage(capfd):
    assert main([]) == 2


def test_env_lists_versions_machine_and_variables(capfd, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=")
    monkeypatch.setenv("HOME_SECRET", "hidden")
    assert main(["env"]) == 0
    out = capfd.readouterr().out
    names = [line.split()[0] for line in out.splitlines()]
    wanted = "python platform cpu jax jaxlib flax optax numpy torch safetensors tokenizers"
    assert set(wanted.split()) <= set(names)
    assert "XLA_FLAGS" in names
    assert "hidden" not in out
    assert "jax devices" not in out


def test_env_asks_the_frameworks_where_more_is_asked_for(capfd):
    pytest.importorskip("torch")
    assert main(["env", "-v"]) == 0
    out = capfd.readouterr().out
    assert "jax devices" in out
    assert "torch float32 matmul precision" in out


def test_a_package_that_is_not_there_is_said_to_be_missing(monkeypatch):
    monkeypatch.setattr(environment, "_PACKAGES", ("no-such-package",))
    assert environment.installed()["no-such-package"] == "not installed"


def test_a_framework_that_cannot_be_loaded_is_part_of_the_environment(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "parity.frameworks.torch_side", None)
    assert environment.running(load=True)["torch"].startswith("can't be loaded:")
