"""What Triton refuses and CUDA answers, as DIFFERENCES of edge_cases.py says."""

from __future__ import annotations

from edge_tensors import normal

from .calls import Refusal


def _huge(*shapes: tuple[int, ...]):
    """Tensors of one stored element each: refused before their strides are looked at."""
    return lambda dtype, device: tuple(
        normal((1,) * len(shape), dtype, device).expand(shape) for shape in shapes
    )


_NK, _ROWS = 1 << 24, 1 << 30
# Nothing is stored but one element a tensor.
TRITON_REFUSALS = (
    Refusal("softmax", "2^30 rows", _huge((_ROWS, 1), (_ROWS, 1)), "softmax: rows is 1073741824"),
    Refusal(
        "softmax", "2^30 columns", _huge((1, _ROWS), (1, _ROWS)), "softmax: cols is 1073741824"
    ),
    *(
        Refusal(
            op, f"2^30 {extent}", _huge(*shapes), f"{op}: {extent.replace('columns', 'cols')} is"
        )
        for extent, rows, cols in (("rows", _ROWS, 1), ("columns", 1, _ROWS))
        for op, n in (("rms_norm", 1), ("add_rms_norm", 2))
        for shapes in [(*[(rows, cols)] * n, (cols,), *[(rows, cols)] * n)]
    ),
    *(
        Refusal(op, call, _huge((m, k), (k, n), *[(n,)] * n_biases, (m, n)), f"{op}: {words}")
        for op, n_biases in (("matmul", 0), ("matmul_bias_relu", 1), ("matmul_bias_gelu", 1))
        for call, m, n, k, words in (
            ("2^24 columns", 1, _NK, 1, "N is 16777216"),
            ("2^24 terms", 1, 1, _NK, "K is 16777216"),
            ("2^30 rows", _ROWS, 1, 1, "M is 1073741824"),
        )
    ),
)
