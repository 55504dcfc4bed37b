"""The layouts of the matrix products, and which of them a tensor map can describe.

A layout has a letter for x and one for w, as in BLAS: n is row-major, t a transposed view of the
row-major matrix of the other order. "contiguous" is nn.
"""

from __future__ import annotations

from harness.spec import Case

_OFF_16_BYTES = "offset1"


def letters_and_lead(layout: str) -> tuple[str, str]:
    """Of "nt_offset1", ("nt", "offset1"): the operands' letters and where their storage begins."""
    letters, _, lead = layout.partition("_")
    return (letters, lead) if letters in ("nt", "tn", "tt") else ("nn", layout)


def tma_takes(case: Case) -> bool:
    """Whether rows in memory, of both operands and of out, are multiples of 16 bytes, as are their
    addresses: the rule of the CUDA binding and of the Triton launcher."""
    m, n, k = case.dims["M"], case.dims["N"], case.dims["K"]
    letters, lead = letters_and_lead(case.layout)
    rows = _row(letters[0], m, k), _row(letters[1], k, n), n
    return k > 0 and lead != _OFF_16_BYTES and not any(row % 8 for row in rows)


def _row(letter: str, n_rows: int, n_cols: int) -> int:
    """Elements of an operand's row in memory. A view of one row or one column is contiguous to
    torch whatever its strides, so that both sides take it for row-major."""
    return n_rows if letter == "t" and min(n_rows, n_cols) > 1 else n_cols
