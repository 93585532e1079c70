"""Which single switch explains a difference (parity.frameworks.jax_knobs)."""

import math

import numpy as np

from parity.frameworks.jax_knobs import tried
from parity.frameworks.jax_ports import port_of
from parity.frameworks.jax_run import inputs_of

X, Y = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)
ALONE = "one example at a time"


def found(*inputs, port):
    made = port_of(port, None, inputs, {}, training=False)
    given = inputs_of({str(k): x for k, x in enumerate(inputs)})
    return tried(made, {}, given, lambda outputs: float(outputs["output"].size))


def test_without_an_axis_of_examples_none_is_alone():
    errors = found(X, Y, port=lambda x, y: x @ y)
    assert math.isnan(errors.pop(ALONE))
    assert set(errors.values()) == {6.0}


def test_examples_that_are_run_alone_are_put_together():
    assert found(X, port=lambda x: x * 2)[ALONE] == 12.0


def test_what_can_not_be_run_without_jit_is_no_number():
    def port(x):
        if not hasattr(x, "aval") or "Tracer" not in type(x).__name__:
            raise TypeError("only under jit")
        return x * 2

    errors = found(X, port=port)
    assert math.isnan(errors["no jit"])
    assert errors["x64"] == 12.0
