"""matmul by tensor descriptors: the copy engine (TMA) fetches whole tiles, no lane computes an
address. Programs stay, and the loops over tiles and over K are one, so that copies run ahead into
the next tile. Three stages leave room for the tile of out (matmul_descriptor_kernel of _matmul.py).
What descriptors cannot name, and GPUs before sm_90, take the pointer form.
"""

import torch

from ._matmul_launch import checked_problem, launch


def matmul(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """Write x @ w into out; arguments as in matmul.py."""
    problem = checked_problem("matmul", x, w, None, out, transposed=True)
    launch(problem, "", {"num_stages": 3, "EPILOGUE_SUBTILE": 1})
