"""matmul by tensor descriptors and warps with roles: a warp group issues the copies, two multiply
half a tile each, by one argument of tl.range (matmul_specialized_kernel of _matmul.py).
What descriptors cannot name, and GPUs other than sm_90, take the form of descriptors or pointers.
"""

import torch

from ._matmul_launch import checked_problem, launch


def matmul(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """Write x @ w into out; arguments as in matmul.py."""
    problem = checked_problem("matmul", x, w, None, out, transposed=True)
    launch(problem, "", {"WARP_SPECIALIZE": 1})
