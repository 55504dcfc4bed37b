"""matmul_bias_relu: out = relu(x @ w + b), for bf16 and f16, accumulated in fp32.

Pointers, all row-major contiguous: x_ptr [M, K] (row stride K), w_ptr [K, N] (row stride N), b_ptr
[N], out_ptr [M, N] (row stride N). A program owns one [BLOCK_M, BLOCK_N] tile of out and walks K in
steps of BLOCK_K; bias and relu act on the fp32 accumulator, which is rounded once. 2 * M * N * K
operations on 2 * (M * K + K * N + N + M * N) bytes: compute bound unless one of M, N, K is small.

tl.dot becomes wgmma on sm_90 (BLOCK_M >= 64; mma.sync below that and on sm_80); num_stages pieces
of x and w travel ahead through cp.async into shared memory. Any M, N, K works; K = 0 gives relu(b).
Limits: N and K below 2^24, M below 2^30. N or K that are not multiples of 16 lose 16-byte loads and
with 2-byte loads also cp.async: right, but several times slower. relu keeps NaN, as torch does.

The choice that is not obvious: rows and columns wrap around (% M, % N) instead of being masked. The
wrapped lanes read valid data whose results are never stored, so the loop carries no mask at all
when K is a multiple of BLOCK_K (EVEN_K). GROUP_M orders programs so that those that run at the
same time share rows of x and columns of w in L2.

Left unused: tensor descriptors (TMA), a persistent grid and warp specialisation. What the
language cannot do: TMA multicast across a cluster, and tiles that are not powers of two.
"""

import functools

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_extents_below, require_tensors

DTYPES = (torch.bfloat16, torch.float16)
LAYOUTS = {"x": "[M, K]", "w": "[K, N]", "b": "[N]", "out": "[M, N]"}
MAX_NK = 1 << 24  # a step of BLOCK_K * N elements is computed in 32 bits
MAX_M = 1 << 30  # row numbers are 32 bits and run up to a tile past the end
MAX_SHARED_BYTES_SM80 = 163 * 1024  # what a block may use on an A100; assumed without a device


@triton.jit
def matmul_bias_relu_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,  # rows of tiles that consecutive programs go through together
    EVEN_K: tl.constexpr,  # K is a multiple of BLOCK_K
):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)  # the last group may be short
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m

    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    # 64-bit where an offset can pass 2^31 elements
    x_ptrs = x_ptr + offs_m[:, None].to(tl.int64) * K + offs_k[None, :]
    w_ptrs = w_ptr + offs_k[:, None].to(tl.int64) * N + offs_n[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_ptrs)
            w = tl.load(w_ptrs)
        else:
            x = tl.load(x_ptrs, mask=offs_k[None, :] < K - k, other=0.0)
            w = tl.load(w_ptrs, mask=offs_k[:, None] < K - k, other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * N

    b = tl.load(b_ptr + offs_n).to(tl.float32)
    acc = tl.maximum(acc + b[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)

    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)  # unwrapped: each element is stored once
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    out_ptrs = out_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


def check(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernel would get wrong."""
    op = "matmul_bias_relu"
    require_tensors(op, DTYPES, LAYOUTS, (x, w, b, out))
    (M, K), N = x.shape, w.shape[1]
    if w.shape[0] != K:
        raise ValueError(
            f"{op}: w has shape {tuple(w.shape)}, wanted {K} rows like x's columns; "
            "pass w as [K, N]"
        )
    if b.shape[0] != N:
        raise ValueError(
            f"{op}: b has shape {tuple(b.shape)}, wanted ({N},) like w's columns; pass b as [N]"
        )
    if tuple(out.shape) != (M, N):
        raise ValueError(
            f"{op}: out has shape {tuple(out.shape)}, wanted ({M}, {N}); pass out as [M, N]"
        )
    require_extents_below(op, MAX_M, M=M)
    require_extents_below(op, MAX_NK, N=N, K=K)
    for name, tensor in (("x", x), ("w", w), ("b", b), ("out", out)):
        if not tensor.is_contiguous():
            raise ValueError(
                f"{op}: {name} is not contiguous (strides {tensor.stride()}), "
                f"wanted row-major contiguous; pass {name}.contiguous()"
            )
    for name, tensor in (("x", x), ("w", w), ("b", b)):
        if ranges_overlap(tensor, out):
            raise ValueError(
                f"{op}: out overlaps {name}, wanted no shared memory; pass a fresh out"
            )


@functools.lru_cache(maxsize=16)
def max_shared_bytes(device: torch.device) -> int:
    """Shared memory that one block may use."""
    if device.type != "cuda":
        return MAX_SHARED_BYTES_SM80
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


@functools.lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, shared_bytes: int) -> tuple[int, int, int, int, int]:
    """(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages): the largest tile that fills a GPU."""
    aligned = N % 16 == 0 and K % 16 == 0  # else the addresses of 128 x 256 spill registers
    # 128 tiles are about one for each multiprocessor of an A100 (108), H100 or H200 (132).
    for config in ((128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 4)):
        BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages = config
        n_stages_that_fit = shared_bytes // ((BLOCK_M + BLOCK_N) * BLOCK_K * 2)
        n_tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
        if n_tiles >= 128 and n_stages_that_fit >= 2 and (aligned or BLOCK_N < 256):
            return BLOCK_M, BLOCK_N, BLOCK_K, num_warps, min(num_stages, n_stages_that_fit)
    return 64, 64, 64, 4, 5  # 80 KiB: fits every GPU since sm_80


def matmul_bias_relu(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    GROUP_M: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write relu(x @ w + b) into out, on x's device and its current stream.

    x: [M, K], w: [K, N], b: [N], out: [M, N]; contiguous, one dtype (bf16 or f16), out apart from
    the others. Blocks are powers of two, at least 16. Raises TypeError or ValueError for anything
    else.
    """
    check(x, w, b, out)
    if out.numel() == 0:
        return
    (M, K), N = x.shape, w.shape[1]
    default = default_config(M, N, K, max_shared_bytes(x.device))
    BLOCK_M = BLOCK_M or default[0]
    BLOCK_N = BLOCK_N or default[1]
    BLOCK_K = BLOCK_K or default[2]
    # triton.cdiv would take 1.6 us of host time a call
    grid = ((M + BLOCK_M - 1) // BLOCK_M * ((N + BLOCK_N - 1) // BLOCK_N),)
    with device_guard(x):
        matmul_bias_relu_kernel[grid](
            x,
            w,
            b,
            out,
            M,
            N,
            K,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            BLOCK_K=BLOCK_K,
            GROUP_M=GROUP_M or 8,
            EVEN_K=K % BLOCK_K == 0,
            num_warps=num_warps or default[3],
            num_stages=num_stages or default[4],
        )
