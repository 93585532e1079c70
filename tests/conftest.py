"""Settings that careful users have, for every test: what passes here does not rely on luck."""

import os
import tempfile
from importlib.util import find_spec

os.environ["HF_HUB_OFFLINE"] = "1"

# Most of the time goes into compiling. A program is compiled once for all workers, and for the
# commands that they start; the folder lasts as long as the process that made it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="jax-input-", ignore_cleanup_errors=True)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": COMPILED.name,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

import hypothesis
import jax
import pytest

# Every file that imports PyTorch where it is collected; see tests/house/test_torch_free.py.
NEED_TORCH = (
    "parity/test_check.py",
    "parity/test_check_faults.py",
    "parity/test_check_modes.py",
    "parity/test_comparison.py",
    "parity/test_frameworks.py",
    "parity/test_limits.py",
    "parity/test_mistakes_[!w]*.py",
    "parity/test_model_recording.py",
    "parity/test_optimizers.py",
    "parity/test_torch_*.py",
    "parity/test_trees.py",
    "parity/test_weights*.py",
    "torch_ref/*",
)
collect_ignore_glob = [] if find_spec("torch") else list(NEED_TORCH)

# Shapes must match as written: `(d,) + (batch, d)` raises.
jax.config.update("jax_numpy_rank_promotion", "raise")
# A second device on the host, so that sharded arrays can be tried anywhere.
jax.config.update("jax_num_cpu_devices", 2)

# The same examples everywhere, and no verdict by the clock: the first call of each shape compiles.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("house")


@pytest.fixture(scope="module")
def programs_run_once():
    """What runs once need not be fast: to compile it takes half the time."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """End a run with seeded faults on how many were caught, after what pytest itself says last.

    It stands here since the process that tells of the workers loads no other file of this kind.
    """
    result = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return result
    test = "tests/mutants/test_mutants.py::test_a_fault_is_caught["
    passed, *others = (
        {found.nodeid for found in reporter.stats.get(word, ()) if found.nodeid.startswith(test)}
        for word in ("passed", "failed", "error")
    )
    missed = set().union(*others)
    if every := passed | missed:
        reporter.write_line(f"mutants: {len(every - missed)} caught of {len(every)}")
    return result
