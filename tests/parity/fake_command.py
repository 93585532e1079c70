"""The command on cases made for these tests: ``python fake_command.py SET ARGUMENT...``."""

import functools
import sys
import time

import numpy as np

from parity.case import Case, Tensor

EXACT = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
ROUNDED = EXACT.astype(np.float32)


def case(
    case_id,
    ours=ROUNDED,
    theirs=ROUNDED,
    exact=EXACT,
    *,
    ceiling=1e-6,
    same_bits=True,
    dtype="float32",
    needs=(),
    default=True,
    inputs=None,
    uniform="",
    **more,
):
    """Compare two given arrays, or what two functions make of the inputs."""
    tensor = Tensor(exact, ceiling, "made for a test", same_bits, uniform=uniform)
    return Case(
        case_id,
        dtype,
        lambda: inputs or {},
        functools.partial(give, ours),
        functools.partial(give, theirs),
        lambda: {"rows": tensor},
        default=default,
        needs=needs,
        **more,
    )


def give(values, inputs):
    """Return an array under the name of a tensor, or raise what was given instead."""
    if isinstance(values, BaseException):
        raise values
    return {"rows": values(**inputs) if callable(values) else values}


def slow():
    """Take long enough to be interrupted."""
    time.sleep(4)
    return ROUNDED


GOOD = case("fine/case[a]")
SETS = {
    "good": [GOOD, case("fine/case[b]", dtype="int32"), case("slow/case", default=False)],
    "off": [GOOD, case("wrong/scale[jit]", ROUNDED * np.float32(2))],
    "torch off": [GOOD, case("wrong/torch", theirs=ROUNDED[::-1].copy())],
    "raises": [
        case("bad/case", *(ValueError("first\nsecond") for _ in range(2))),
        case("wrong/x", -ROUNDED),
        GOOD,
    ],
    "port raises": [case("bad/case", ValueError("first\nsecond")), GOOD],
    "skipped": [case("lacking/case", needs=("models",))],
    "empty": [case("empty/case", *[np.zeros((0, 4), np.float32)] * 2, np.zeros((0, 4)))],
    "none": [],
    "many": [case(f"many/case[{number}]") for number in range(3_000)],
    "slow": [GOOD, case("slow/case", slow)],
}


if __name__ == "__main__":
    from parity.__main__ import command

    command(sys.argv[2:], source=lambda: SETS[sys.argv[1]])
