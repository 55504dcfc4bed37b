"""matmul_bias_gelu: out = gelu(x @ w + b), gelu by tanh, for bf16 and f16, accumulated in fp32.

x [M, K], w [K, N] and b [N], row-major contiguous; out [M, N] row-major contiguous.
The bias is added and gelu taken on the fp32 accumulator, which is rounded once. 2 * M * N * K
operations on 2 * (M * K + K * N + N + M * N) bytes: compute bound unless one of M, N, K is small.

A program owns [BLOCK_M, BLOCK_N] tiles of out and walks K in steps of BLOCK_K. The kernels are in
_matmul.py. On sm_90 and newer, where pitches and bases are multiples of 16 bytes: tensor
descriptors (TMA) and persistent programs. Else pointers, whose tiles travel ahead through cp.async.
tl.dot becomes wgmma on sm_90 (BLOCK_M >= 64), mma.sync below that and on sm_80.

Limits: N and K below 2^24, M below 2^30; K = 0 gives gelu(b). Extents that are not
multiples of 8 lose 16-byte accesses and cp.async: right, but several times slower.
gelu(-Inf) is NaN, as in torch, and a very negative sum gives -0.

What the language cannot do: TMA multicast across a cluster, and tiles that are not powers of two.
Left unused: split-K, for products of few tiles and a long K, and warps with roles
(tl.range's warp_specialize), which gave wrong elements on an H200 with Triton 3.6: docs/matmul.md.
"""

import torch

from ._matmul_launch import checked_problem, launch


def matmul_bias_gelu(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    GROUP_M: int | None = None,
    USE_DESCRIPTORS: int | None = None,
    EPILOGUE_SUBTILE: int | None = None,
    PROGRAMS: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write gelu(x @ w + b) into out, on x's device and its current stream.

    x: [M, K], w: [K, N], b: [N], out: [M, N]; contiguous, one dtype (bf16 or f16), out apart from
    the others. Blocks are powers of two, at least 16; the keywords are those of MatmulConfig in
    _matmul_config.py. Raises TypeError or ValueError for anything else.
    """
    problem = checked_problem("matmul_bias_gelu", x, w, b, out)
    given = {
        "BLOCK_M": BLOCK_M,
        "BLOCK_N": BLOCK_N,
        "BLOCK_K": BLOCK_K,
        "GROUP_M": GROUP_M,
        "USE_DESCRIPTORS": USE_DESCRIPTORS,
        "EPILOGUE_SUBTILE": EPILOGUE_SUBTILE,
        "PROGRAMS": PROGRAMS,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }
    launch(problem, "bias_gelu", given)
