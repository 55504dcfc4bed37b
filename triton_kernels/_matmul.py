"""Device code that matmul, matmul_bias_relu and matmul_bias_gelu share: two kernels.

out[m, n] = epilogue(sum_k x[m, k] * w[k, n], b[n]): 16-bit operands, fp32 sums, one rounding.
x_ptr holds [M, K], or [K, M] where X_TRANSPOSED; w_ptr [K, N] or [N, K]; b_ptr [N] or nothing;
out_ptr [M, N]; all row-major without gaps.

matmul_kernel: pointers. A program owns one [BLOCK_M, BLOCK_N] tile. Any M, N, K, any alignment.
matmul_descriptor_kernel: tensor descriptors made by the host. Programs stay and walk tiles; the
    loops over tiles and over K are one (flatten), so copies for the next tile start in time.

The symbol of each is that of the op it works for, such as matmul_bias_relu_descriptor_kernel.
"""

import triton
import triton.language as tl

# gelu by tanh, 0.5 v (1 + tanh(u)) with u = sqrt(2/pi) (v + 0.044715 v^3), as v / (1 + exp(-2u)):
# one exp2 and one reciprocal, as the square of rsqrt. Triton's division guards against huge
# divisors with four instructions more; tanh.approx errs by 2^-11. -2 sqrt(2/pi) log2(e):
GELU_SCALE = tl.constexpr(-2.302208198)
GELU_SCALE_CUBIC = tl.constexpr(-2.302208198 * 0.044715)


def _named(form):
    """Give a kernel its op's name: what a profile and the facts of a build show."""

    def name(specialization) -> str:
        epilogue = specialization.constants["EPILOGUE"]
        return "_".join(part for part in ("matmul", epilogue, form, "kernel") if part)

    return name


@triton.jit
def tile_of(tile, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile; GROUP_M rows of tiles are gone through together, column by
    column, so that tiles at work at one time share rows of x and columns of w in L2."""
    n_tiles_in_group = GROUP_M * n_tiles_n
    first_m = (tile // n_tiles_in_group) * GROUP_M
    group_size_m = min(n_tiles_m - first_m, GROUP_M)  # the last group may be short
    tile_m = first_m + (tile % n_tiles_in_group) % group_size_m
    tile_n = (tile % n_tiles_in_group) // group_size_m
    return tile_m, tile_n


@triton.jit
def finish(acc, b_ptr, offs_n, N, EPILOGUE: tl.constexpr):
    """The epilogue on fp32 sums of the columns offs_n."""
    if EPILOGUE != "":
        b = tl.load(b_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
        acc += b[None, :]
    if EPILOGUE == "bias_relu":  # NaN passes
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if EPILOGUE == "bias_gelu":  # exp2 is Inf for very negative sums: -0
        exponent = acc * (GELU_SCALE + acc * acc * GELU_SCALE_CUBIC)
        root = tl.rsqrt(1.0 + tl.exp2(exponent))
        acc = acc * root * root
    return acc


@triton.jit
def store_by_pointer(out_ptr, acc, offs_m, offs_n, M, N):
    """Round a tile and store what of it lies within out; offsets are 64-bit."""
    out_ptrs = out_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(repr=_named(""))
def matmul_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
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
    EPILOGUE: tl.constexpr,
):
    n_tiles_m, n_tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = tile_of(tl.program_id(axis=0), n_tiles_m, n_tiles_n, GROUP_M)
    # Rows and columns past the end wrap around instead of being masked: their lanes read valid
    # data whose results are never stored.
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    # 64-bit where an offset can pass 2^31 elements
    x_ptrs = x_ptr + (
        offs_m[:, None].to(tl.int64) * stride_xm + offs_k[None, :].to(tl.int64) * stride_xk
    )
    w_ptrs = w_ptr + (
        offs_k[:, None].to(tl.int64) * stride_wk + offs_n[None, :].to(tl.int64) * stride_wn
    )
    step_x = BLOCK_K * tl.cast(stride_xk, tl.int64)
    step_w = BLOCK_K * tl.cast(stride_wk, tl.int64)

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

    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)  # unwrapped: each element is stored once
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = finish(acc, b_ptr, offs_n, N, EPILOGUE)
    store_by_pointer(out_ptr, acc, offs_m, offs_n, M, N)


@triton.jit
def sum_of_products(
    x_desc,
    w_desc,
    offs_m,
    offs_n,
    K,
    X_TRANSPOSED: tl.constexpr,
    W_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The fp32 tile at (offs_m, offs_n); what lies past the ends of x and w arrives as zeros.

    The matrix unit reads a 16-bit tile along either dimension: .T moves nothing.
    """
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = x_desc.load([k, offs_m]).T if X_TRANSPOSED else x_desc.load([offs_m, k])
        w = w_desc.load([offs_n, k]).T if W_TRANSPOSED else w_desc.load([k, offs_n])
        acc = tl.dot(x, w, acc)
    return acc


@triton.jit(repr=_named("descriptor"))
def matmul_descriptor_kernel(
    x_desc,
    w_desc,
    b_ptr,
    out_desc,
    M,
    N,
    K,
    X_TRANSPOSED: tl.constexpr,
    W_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,  # 2: out leaves in two halves, through half the shared memory
    EPILOGUE: tl.constexpr,
):
    n_tiles_m, n_tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    n_programs = tl.num_programs(axis=0)
    for tile in tl.range(tl.program_id(axis=0), n_tiles_m * n_tiles_n, n_programs, flatten=True):
        pid_m, pid_n = tile_of(tile, n_tiles_m, n_tiles_n, GROUP_M)
        offs_m, offs_n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = sum_of_products(
            x_desc, w_desc, offs_m, offs_n, K, X_TRANSPOSED, W_TRANSPOSED, BLOCK_M, BLOCK_N, BLOCK_K
        )
        if EPILOGUE_SUBTILE == 1:
            acc = finish(acc, b_ptr, offs_n + tl.arange(0, BLOCK_N), N, EPILOGUE)
            out_desc.store([offs_m, offs_n], acc.to(out_desc.dtype))
        else:
            HALF: tl.constexpr = BLOCK_N // 2
            left, right = acc.reshape(BLOCK_M, 2, HALF).permute(0, 2, 1).split()
            left = finish(left, b_ptr, offs_n + tl.arange(0, HALF), N, EPILOGUE)
            out_desc.store([offs_m, offs_n], left.to(out_desc.dtype))
            right = finish(right, b_ptr, offs_n + HALF + tl.arange(0, HALF), N, EPILOGUE)
            out_desc.store([offs_m, offs_n + HALF], right.to(out_desc.dtype))
