"""Settings that careful users have, for every test: what passes here does not rely on luck."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import hypothesis
import jax

# Shapes must match as written: `(d,) + (batch, d)` raises.
jax.config.update("jax_numpy_rank_promotion", "raise")
# A second device on the host, so that sharded arrays can be tried anywhere.
jax.config.update("jax_num_cpu_devices", 2)

# The same examples everywhere, and no verdict by the clock: the first call of each shape compiles.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("house")
