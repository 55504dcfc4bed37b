"""What swiglu and swiglu_backward share: the sigmoid, and refusals."""

import torch
import triton
import triton.language as tl

from ._checks import (
    ranges_overlap,
    require_rows,
    require_same_shape,
    require_tensors,
    rows_overlap_in_part,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MINUS_LOG2E = tl.constexpr(-1.4426950408889634)  # exp(-v) = exp2(v * MINUS_LOG2E)


@triton.jit
def sigmoid(v):
    """1 / (1 + exp(-v)): exp overflows to Inf, whose reciprocal is 0; NaN stays NaN."""
    return 1.0 / (1.0 + tl.exp2(v * MINUS_LOG2E))


def check(op: str, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]) -> None:
    """Refuse what the kernels would get wrong. All have rows of one shape."""
    tensors = inputs | outputs
    require_tensors(op, DTYPES, dict.fromkeys(tensors, "[rows, cols]"), tuple(tensors.values()))
    require_same_shape(op, **tensors)
    require_rows(op, **tensors)
    for out, written in outputs.items():
        for name, tensor in inputs.items():
            if rows_overlap_in_part(tensor, written):
                raise ValueError(
                    f"{op}: {out} overlaps {name} in part, wanted the same memory or none "
                    f"shared; pass a fresh {out}"
                )
    first, *further = outputs.items()
    for name, tensor in further:
        same = first[1].data_ptr() == tensor.data_ptr() and ranges_overlap(first[1], tensor)
        if same or rows_overlap_in_part(first[1], tensor):
            raise ValueError(
                f"{op}: {name} overlaps {first[0]}, wanted no shared memory; pass a fresh {name}"
            )
