"""Which cases a command line means."""

import pytest

from parity.selection import Stream, choose, is_prefix, require_unique
from parity.usage import UsageError


@pytest.fixture
def cases(fakes):
    ids = ["a/b[1]", "a/b[2]", "a/bc[1]", "b/slow[1]", "b/slow[2]"]
    return [fakes.case(name, default="slow" not in name) for name in ids]


def ids(cases):
    return [case.id for case in cases]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ([], "a/b[1] a/b[2] a/bc[1]"),
        (["a/b[2]"], "a/b[2]"),
        (["a/b"], "a/b[1] a/b[2]"),
        (["a"], "a/b[1] a/b[2] a/bc[1]"),
        (["a/"], "a/b[1] a/b[2] a/bc[1]"),
        (["a/bc[1]", "a/b[1]"], "a/b[1] a/bc[1]"),
        (["b"], "b/slow[1] b/slow[2]"),  # none of them runs by default, and b was asked for
        (["b/slow[2]"], "b/slow[2]"),
    ],
)
def test_ids_and_prefixes_mean_cases_in_their_own_order(cases, wanted, chosen):
    assert ids(choose(cases, wanted)) == chosen.split()


def test_a_prefix_means_what_runs_by_default_unless_all_is_asked_for(cases, fakes):
    mixed = [*cases, fakes.case("b/quick")]
    assert ids(choose(mixed, ["b"])) == ["b/quick"]
    assert len(ids(choose(mixed, ["b"], everything=True))) == 3
    assert len(ids(choose(mixed, everything=True))) == 6


@pytest.mark.parametrize("name", ["a/b[", "a/b[1", "x", "", "A", "a/b[3]", "slow"])
def test_what_is_no_id_and_no_prefix_is_refused_in_one_line(cases, name):
    with pytest.raises(UsageError) as caught:
        choose(cases, [name])
    assert f"{name!r} is none" in str(caught.value)
    assert ("? Concepts:" in str(caught.value)) != (
        f"{name!r} is none. Concepts:" in str(caught.value)
    )
    assert "Concepts: a, b; all ids: parity run --list --all" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cases_are_loaded_as_they_are_needed(cases, fakes):
    loaded = []

    def source():
        for number in range(20):
            loaded.append(number)
            yield fakes.case(f"x/{number}")

    stream = Stream(choose(require_unique(source)))
    assert len(loaded) == 0
    assert stream.total is None
    running = iter(stream)
    next(running)
    assert len(loaded) < 10
    assert len(list(running)) == 19
    assert stream.total == 20


def test_a_near_miss_is_offered(cases):
    with pytest.raises(UsageError, match=r"did you mean 'b/slow'\?"):
        choose(cases, ["b/slwo"])


def test_a_pattern_is_found_anywhere_in_the_id(cases):
    assert ids(choose(cases, pattern=r"b\[\d")) == ["a/b[1]", "a/b[2]"]
    assert ids(choose(cases, pattern="nothing")) == []


def test_a_pattern_that_is_none_is_refused(cases):
    with pytest.raises(UsageError, match=r"--filter must be a regular expression .*'\(': missing"):
        choose(cases, pattern="(")


def test_a_dtype_is_that_of_the_case(cases, fakes):
    whole = fakes.case("c/whole", dtype="int32")
    assert ids(choose([*cases, whole], dtype="int32")) == ["c/whole"]
    with pytest.raises(UsageError, match="--dtype must be one of float32, int32; got 'int8'"):
        choose([*cases, whole], dtype="int8")


@pytest.mark.parametrize(
    ("name", "yes"),
    [("a", True), ("a/", True), ("a/b", True), ("a/b[", False), ("a/b[1]", False), ("", False)],
)
def test_a_prefix_ends_where_a_part_of_the_id_does(name, yes):
    assert is_prefix(name, "a/b[1]") is yes


def test_two_cases_of_one_id_are_refused(cases):
    with pytest.raises(ValueError, match=r"two cases have the id 'a/b\[1\]'"):
        list(require_unique(lambda: [*cases, cases[0]]))
