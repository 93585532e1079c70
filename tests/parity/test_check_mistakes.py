"""Typical mistakes in the models of `tests/parity/ports` are named, each with its fix."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.parity.ports.checked import checked
from tests.parity.ports.library import PAIRS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ports_may_broadcast", "programs_run_once")]

SECTIONS = (Path(__file__).parents[2] / "docs" / "causes.md").read_text().split("### ")
SECTIONS = {section.partition("\n")[0] for section in SECTIONS}
ALL = [(pair, name) for pair in PAIRS for name in pair.mistakes]
# Of each cause two; `benchmarks/check_ports.py` goes through all of them.
SEEN = Counter()
SOME = []
for pair, name in ALL:
    code = pair.mistakes[name].code
    SEEN[code] += 1
    SOME += [(pair, name)] if SEEN[code] <= 2 else []


@pytest.mark.parametrize(("pair", "name"), SOME, ids=[f"{p.id}-{name}" for p, name in SOME])
def test_a_mistake_is_named(pair, name):
    mistake = pair.mistakes[name]
    report = checked(pair, name)
    assert not report.passed
    first = report.causes[0]
    assert first.code in (mistake.code, *mistake.also)
    assert first.fix
    assert first.code in SECTIONS


def test_there_are_sixty_mistakes_and_twenty_four_causes():
    assert len(SOME) >= 60
    assert len({pair.mistakes[name].code for pair, name in SOME}) >= 24
