"""Right ports pass (`parity.checking`), and stay well inside of their limits."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.parity.ports.checked import checked
from tests.parity.ports.library import PAIRS

NAMES = (
    "mlp/linen",
    "mlp/nnx",
    "cnn/linen",
    "cnn/nnx",
    "attention/linen",
    "attention/nnx",
    "lstm/linen",
    "encoder/linen",
    "encoder/nnx",
    "bert/linen",
)
pytestmark = pytest.mark.usefixtures("ports_may_broadcast")
DTYPES = ("float32", "bfloat16", "float16")
# Of the limit: another machine adds up in another order, and must not tip a right port over.
MOST = 0.7
QUICK = (("mlp/nnx", "bfloat16"), ("cnn/linen", "float32"), ("lstm/linen", "float16"))
# One seed; `benchmarks/check_ports.py` goes through five.
REST = [(n, d) for n in NAMES for d in DTYPES if (n, d) not in QUICK]


def require_right(name, dtype):
    pair = next(pair for pair in PAIRS if pair.id == name)
    report = checked(pair, None, dtype=dtype)
    assert report.passed, report
    rows = {row.name: row.used for row in (*report.outputs, *report.gradients)}
    assert len(rows) > 2
    assert max(rows.values()) < MOST, rows


@pytest.mark.parametrize(("name", "dtype"), QUICK)
def test_a_right_port_passes(name, dtype):
    require_right(name, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), REST)
def test_every_right_port_passes(name, dtype):
    require_right(name, dtype)
