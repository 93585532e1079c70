"""What `parity.check` says of right ports, and of ports with a typical mistake.

    python -m benchmarks.check_ports right [part of a pair's name]
    python -m benchmarks.check_ports mistakes [part of a pair's name]

The first checks each right port of `tests/parity/ports` under five seeds in three formats: none may
fail. The second checks each with each of its mistakes, and prints which cause was named, and the
seconds. The tests hold one seed, and two mistakes for each cause.
"""

import sys
import time
import warnings
from typing import Any

from tests.parity.ports.checked import checked
from tests.parity.ports.library import PAIRS


def right(pair: Any) -> tuple[int, int]:
    """Check a right port, and return how often it passed, of how many times."""
    passed = total = 0
    for dtype in ("float32", "bfloat16", "float16"):
        for seed in range(5):
            report = checked(pair, None, seed, dtype)
            used = max(row.used for row in report.compared)
            mark = "ok  " if report.passed else "FAIL"
            print(
                f"{mark} {pair.id:<26} {dtype:<9} seed {seed}  {used:.2f} of the limit", flush=True
            )
            passed, total = passed + report.passed, total + 1
    return passed, total


def mistakes(pair: Any) -> tuple[int, int]:
    """Check a port with each mistake, and return how many were named, of how many."""
    named = total = 0
    for name, mistake in pair.mistakes.items():
        start = time.perf_counter()
        report = checked(pair, name)
        seconds = time.perf_counter() - start
        found = report.causes[0].code if report.causes else "nothing"
        is_named = not report.passed and found in (mistake.code, *mistake.also)
        mark = "ok  " if is_named else "MISS"
        print(f"{mark} {pair.id:<26} {name:<24} {found:<24} {seconds:5.1f} s", flush=True)
        named, total = named + is_named, total + 1
    return named, total


def main(what: str, wanted: str = "") -> None:
    """Go through the pairs whose name has a part."""
    warnings.simplefilter("ignore")
    count = {"right": right, "mistakes": mistakes}[what]
    counts = [count(pair) for pair in PAIRS if wanted in pair.id]
    good, total = (sum(column) for column in zip(*counts, strict=True))
    print(f"{good} of {total}")


if __name__ == "__main__":
    main(*sys.argv[1:])
