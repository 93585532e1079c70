"""Settings that careful users have, for every test: what passes here does not rely on luck."""

import os
import tempfile

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

# Shapes must match as written: `(d,) + (batch, d)` raises.
jax.config.update("jax_numpy_rank_promotion", "raise")
# A second device on the host, so that sharded arrays can be tried anywhere.
jax.config.update("jax_num_cpu_devices", 2)

# The same examples everywhere, and no verdict by the clock: the first call of each shape compiles.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("house")
