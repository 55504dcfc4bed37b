"""matmul by tensor descriptors: the copy engine (TMA) fetches whole tiles, no lane computes an
address. Programs stay, and all their warps do everything (matmul_descriptor_kernel of _matmul.py).
What descriptors cannot name, and GPUs before sm_90, take the pointer form.
"""

import torch

from ._matmul_launch import checked_problem, launch


def matmul(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """Write x @ w into out; arguments as in matmul.py."""
    problem = checked_problem("matmul", x, w, None, out, transposed=True)
    launch(problem, "", {"WARP_SPECIALIZE": 0})
