"""PyTorch: functions that one setting of a port changes all at once."""

# Those that a precision of matrix products is set for: the module's own, or everywhere.
PRODUCTS: tuple[tuple[str, ...], ...] = (
    (
        *("linear", "q_projection", "k_projection", "v_projection", "out_projection"),
        *("input_projection", "hidden_projection", "addmm"),
        *("matmul", "bmm", "mm", "scores", "attended"),
    ),
    ("q_projection", "k_projection", "v_projection"),
    (
        *("linear", "q_projection", "k_projection", "v_projection", "out_projection"),
        *("input_projection", "hidden_projection", "addmm"),
    ),
)
# By code of a mistake, functions at which it is made together.
TOGETHER: dict[str, tuple[tuple[str, ...], ...]] = {
    "matmul-precision": PRODUCTS,
    "reversed-time": (("in_time", "sequence"),),
}
