"""Names of two frameworks side by side: their words, how near they are, and their order."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

# Words of more than one word, before a name is cut into words.
PHRASES = (
    # Of a layer that norms before it computes: the second norm is that of the MLP.
    (re.compile(r"(?i)post_?attention_?(layer_?)?norm"), "_mlp_norm_"),
    (re.compile(r"(?i)input_?(layer_?)?norm"), "_attention_norm_"),
    (re.compile(r"(?i)layer_?norm|batch_?norm|group_?norm|rms_?norm"), "_norm_"),
    (re.compile(r"(?i)(multi_?head_?)(dot_?product_?)?attention"), "_attention_"),
    (re.compile(r"(?i)self_?(attention|attn)"), "_attention_"),
    (re.compile(r"(?i)feed_?forward"), "_mlp_"),
    (re.compile(r"\bwpe\b"), "position_embed"),
)
SYNONYMS = {
    **dict.fromkeys(("attn", "mha"), "attention"),
    **dict.fromkeys(("q", "wq"), "query"),
    **dict.fromkeys(("k", "wk"), "key"),
    **dict.fromkeys(("v", "wv"), "value"),
    **dict.fromkeys(("o", "wo", "output", "outputs"), "out"),
    **dict.fromkeys(("fc", "dense", "lin"), "linear"),
    **dict.fromkeys(("ln", "bn", "gn", "norms", "layernorm"), "norm"),
    **dict.fromkeys(("emb", "embedding", "embeddings", "embedder", "wte", "table"), "embed"),
    **dict.fromkeys(("h", "layers", "block", "blocks"), "layer"),
    **dict.fromkeys(("ff", "ffn"), "mlp"),
    **dict.fromkeys(("pos", "positions", "positional"), "position"),
    **dict.fromkeys(("tok", "tokens", "word", "words"), "token"),
    **dict.fromkeys(("backward", "bwd"), "reverse"),
    "enc": "encoder",
    "dec": "decoder",
    "convs": "conv",
}
# They say nothing about which layer it is.
SILENT = {"proj", "module", "model", "params", "self", "cell", "optimized", "general"}
# Of recurrent layers: which of them it is, the kind says.
SILENT |= {"l", "forward", "lstm", "gru", "rnn"}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words_of(name: str) -> list[str]:
    """Cut a name into lower-case words and numbers: ``fc1_w`` is fc, 1, w."""
    return [word.lower() for word in _WORD.findall(name)]


@cache
def words(path: str) -> Counter[str]:
    """Return the telling words of a path, one for all that mean the same; no numbers."""
    for phrase, word in PHRASES:
        path = phrase.sub(word, path)
    found = (SYNONYMS.get(word, word) for word in words_of(path))
    return Counter(word for word in found if not word.isdigit() and word not in SILENT)


def distance(ours: str, theirs: str) -> float:
    """Return how far two paths are apart: 0 with the same words, 1 without a common one."""
    one, other = words(ours), words(theirs)
    total = one.total() + other.total()
    return 1 - 2 * (one & other).total() / total if total else 0.0


def without_numbers(path: str) -> str:
    """Return a path that all the numbered siblings of a module share."""
    return re.sub(r"\d+", "#", path)


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names most like one, those with the same words first."""
    known = list(dict.fromkeys(names))
    alike = difflib.get_close_matches(name, known, n=count, cutoff=0.6)
    same = sorted((n for n in known if distance(name, n) < 0.7), key=lambda n: distance(name, n))
    return list(dict.fromkeys([*alike, *same]))[:count]


def ordered(paths: Sequence[str], separator: str) -> list[str]:
    """Put numbered siblings in the order of their numbers, and leave all else where it is.

    JAX sorts the keys of a dict by their letters, ``Dense_10`` before ``Dense_2``.
    """
    tree: dict[str, list[str]] = {}
    for path in paths:
        head, _, rest = path.partition(separator)
        tree.setdefault(head, []).append(rest)
    heads = list(tree)
    stems: dict[str, list[str]] = {}
    for head in heads:
        stems.setdefault(without_numbers(head), []).append(head)
    rows = {stem: iter(sorted(alike, key=_numbers)) for stem, alike in stems.items()}
    found = []
    for head in (next(rows[without_numbers(head)]) for head in heads):
        below = [rest for rest in tree[head] if rest]
        found += [head] if "" in tree[head] else []
        found += [f"{head}{separator}{rest}" for rest in ordered(below, separator)] if below else []
    return found


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]
