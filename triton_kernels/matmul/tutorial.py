"""matmul as a first lesson has it: a program owns one tile, named by pointers, and walks K.

Tiles are taken row by row, loads are masked at every edge, and the tile is one that runs anywhere.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard
from ._matmul_launch import checked_problem


@triton.jit
def matmul_tutorial_kernel(
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
):
    pid = tl.program_id(axis=0)
    pid_m = pid // tl.cdiv(N, BLOCK_N)
    pid_n = pid % tl.cdiv(N, BLOCK_N)
    # 64-bit: a stride times a row can pass 2^31 elements
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    mask_m, mask_n = offs_m < M, offs_n < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
        w_ptrs = w_ptr + offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn
        x = tl.load(x_ptrs, mask=mask_m[:, None] & (offs_k[None, :] < K), other=0.0)
        w = tl.load(w_ptrs, mask=(offs_k[:, None] < K) & mask_n[None, :], other=0.0)
        acc = tl.dot(x, w, acc)

    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    out = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptrs, out, mask=mask_m[:, None] & mask_n[None, :])


def matmul(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """Write x @ w into out; arguments as in matmul.py."""
    p = checked_problem("matmul", x, w, None, out, transposed=True)
    if out.numel() == 0:
        return
    grid = (triton.cdiv(p.M, 128) * triton.cdiv(p.N, 128),)
    with device_guard(x):
        matmul_tutorial_kernel[grid](
            x, w, out, p.M, p.N, p.K, *p.strides, BLOCK_M=128, BLOCK_N=128, BLOCK_K=32
        )
