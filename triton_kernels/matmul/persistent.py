"""matmul by pointers with programs that stay: each walks tiles, at most one program a
multiprocessor, so that copies for its next tile can travel while this one is stored.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard
from ._matmul import store_by_pointer, tile_of
from ._matmul_config import default_config, target_of
from ._matmul_launch import checked_problem


@triton.jit
def matmul_persistent_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_wk,
    stride_wn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,  # K is a multiple of BLOCK_K: the loop needs no mask
):
    n_tiles_m, n_tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    step_x = BLOCK_K * tl.cast(stride_xk, tl.int64)
    step_w = BLOCK_K * tl.cast(stride_wk, tl.int64)
    for tile in range(tl.program_id(axis=0), n_tiles_m * n_tiles_n, tl.num_programs(axis=0)):
        pid_m, pid_n = tile_of(tile, n_tiles_m, n_tiles_n, GROUP_M)
        # Past the end they wrap around: valid data whose results are never stored.
        offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
        offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
        x_ptrs = x_ptr + (
            offs_m[:, None].to(tl.int64) * stride_xm + offs_k[None, :].to(tl.int64) * stride_xk
        )
        w_ptrs = w_ptr + (
            offs_k[:, None].to(tl.int64) * stride_wk + offs_n[None, :].to(tl.int64) * stride_wn
        )
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            if EVEN_K:
                x = tl.load(x_ptrs)
                w = tl.load(w_ptrs)
            else:
                x = tl.load(x_ptrs, mask=offs_k[None, :] < K - k, other=0.0)
                w = tl.load(w_ptrs, mask=offs_k[:, None] < K - k, other=0.0)
            acc = tl.dot(x, w, acc)
            x_ptrs += step_x
            w_ptrs += step_w
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        store_by_pointer(out_ptr, acc, offs_m, offs_n, M, N)


def matmul(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """Write x @ w into out; arguments as in matmul.py."""
    p = checked_problem("matmul", x, w, None, out, transposed=True)
    if out.numel() == 0:
        return
    target = target_of(x.device)
    tile = default_config(p.M, p.N, p.K, False, target)
    n_tiles = triton.cdiv(p.M, tile.BLOCK_M) * triton.cdiv(p.N, tile.BLOCK_N)
    with device_guard(x):
        matmul_persistent_kernel[(min(n_tiles, target.multiprocessors),)](
            x,
            w,
            out,
            p.M,
            p.N,
            p.K,
            *p.strides,
            BLOCK_M=tile.BLOCK_M,
            BLOCK_N=tile.BLOCK_N,
            BLOCK_K=tile.BLOCK_K,
            GROUP_M=tile.GROUP_M,
            EVEN_K=p.K % tile.BLOCK_K == 0,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )
