"""A pair, checked with one of its mistakes."""

from typing import Any

from parity import CheckReport, Pair, check


def checked(pair: Any, name: str | None, seed: int = 0, dtype: str = "float32") -> CheckReport:
    """Check the port of a pair with one mistake in it, in its code or in its weights."""
    mistake = pair.mistakes.get(name)
    in_weights = mistake is not None and mistake.in_weights
    reference, given = pair.reference(seed, dtype), pair.inputs(seed, dtype)
    ours = pair.port_inputs(given)
    inputs = {k: x if ours[k] is x else Pair(ours[k], x) for k, x in given.items()}
    # A module makes its own parameters in float32: in another format it has to be given them.
    needs_params = in_weights or pair.id.endswith("function") or dtype != "float32"
    return check(
        pair.port(None if in_weights else name),
        reference,
        inputs,
        params=pair.params(name, reference) if needs_params else None,
        training=mistake is not None and mistake.shows_in in ("state", "training"),
        grad=mistake is None or mistake.shows_in == "gradient",
        raises=False,
    )
