"""What the launchers of the matmul family share: refusals, the choice of a form, the launch."""

from dataclasses import dataclass, replace

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from ._checks import device_guard, ranges_overlap, require_extents_below, require_tensors
from ._matmul import matmul_descriptor_kernel, matmul_kernel
from ._matmul_config import HOPPER, MatmulConfig, default_config, target_of

DTYPES = (torch.bfloat16, torch.float16)
LAYOUTS = {"x": "[M, K]", "w": "[K, N]", "b": "[N]", "out": "[M, N]"}
MAX_NK = 1 << 24  # columns of a row-major matrix, alike for both extents of w
MAX_M = 1 << 30  # row numbers are 32 bits and run up to a tile past the end


@dataclass(frozen=True)
class Problem:
    """x @ w for extents M, N, K; *_transposed: memory holds the row-major matrix of the other
    order."""

    x: torch.Tensor
    w: torch.Tensor
    b: torch.Tensor | None
    out: torch.Tensor
    M: int
    N: int
    K: int
    x_transposed: bool
    w_transposed: bool

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Of x along m and k, of w along k and n, in elements: right for extents of 1 too."""
        x = (1, self.M) if self.x_transposed else (self.K, 1)
        w = (1, self.K) if self.w_transposed else (self.N, 1)
        return *x, *w

    def fits_descriptors(self) -> bool:
        """Whether pitches and bases are multiples of 16 bytes, and nothing is empty."""
        pitches = (
            self.M if self.x_transposed else self.K,
            self.K if self.w_transposed else self.N,
            self.N,
        )
        bases = (self.x, self.w, self.out)
        return (
            self.K > 0
            and all(pitch % 8 == 0 for pitch in pitches)
            and all(tensor.data_ptr() % 16 == 0 for tensor in bases)
        )


def checked_problem(
    op: str,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    out: torch.Tensor,
    *,
    transposed: bool = False,
) -> Problem:
    """Refuse what the kernels would get wrong; x and w may be transposed views if `transposed`."""
    named = {"x": x, "w": w, "out": out} if b is None else {"x": x, "w": w, "b": b, "out": out}
    layouts = {name: LAYOUTS[name] for name in named}
    require_tensors(op, DTYPES, layouts, tuple(named.values()))
    (M, K), N = x.shape, w.shape[1]
    if w.shape[0] != K:
        raise ValueError(
            f"{op}: w has shape {tuple(w.shape)}, wanted {K} rows like x's columns; "
            "pass w as [K, N]"
        )
    if b is not None and b.shape[0] != N:
        raise ValueError(
            f"{op}: b has shape {tuple(b.shape)}, wanted ({N},) like w's columns; pass b as [N]"
        )
    if tuple(out.shape) != (M, N):
        raise ValueError(
            f"{op}: out has shape {tuple(out.shape)}, wanted ({M}, {N}); pass out as [M, N]"
        )
    require_extents_below(op, MAX_M, M=M)
    require_extents_below(op, MAX_NK, N=N, K=K)
    is_transposed = {name: _is_transposed(op, name, t, transposed) for name, t in named.items()}
    for name, tensor in named.items():
        if name != "out" and ranges_overlap(tensor, out):
            raise ValueError(
                f"{op}: out overlaps {name}, wanted no shared memory; pass a fresh out"
            )
    return Problem(x, w, b, out, M, N, K, is_transposed["x"], is_transposed["w"])


def _is_transposed(op: str, name: str, tensor: torch.Tensor, allowed: bool) -> bool:
    """Whether an operand is the transpose of a row-major matrix; refuses what is neither."""
    if tensor.is_contiguous():
        return False
    if not allowed or name not in ("x", "w"):
        raise ValueError(
            f"{op}: {name} is not contiguous (strides {tensor.stride()}), "
            f"wanted row-major contiguous; pass {name}.contiguous()"
        )
    if not tensor.t().is_contiguous():
        raise ValueError(
            f"{op}: {name} is neither row-major nor the transpose of a row-major matrix "
            f"(strides {tensor.stride()}), wanted one of these; pass {name}.contiguous()"
        )
    return True


def launch(problem: Problem, epilogue: str, given: dict[str, int | None]) -> None:
    """Queue one kernel on the current stream; `given` are the launcher's keywords, None chooses.

    A configuration that asks for descriptors where they cannot be gives way to the default: its
    tile would suit no other form. Raises ValueError for PROGRAMS below 1: CUDA's 0 is None here.
    """
    programs = given.get("PROGRAMS")
    if programs is not None and programs < 1:  # an empty grid would leave out as it was
        op = f"matmul_{epilogue}" if epilogue else "matmul"
        raise ValueError(
            f"{op}: PROGRAMS is {programs}, wanted 1 or more; leave it out for the default"
        )
    if problem.out.numel() == 0:
        return
    target = target_of(problem.x.device)
    descriptors = (
        given.get("USE_DESCRIPTORS") != 0 and target.arch >= HOPPER and problem.fits_descriptors()
    )
    if given.get("USE_DESCRIPTORS") and not descriptors:
        given = {}  # a tile for other hardware or pitches, as a borrowed one can be
    config = default_config(problem.M, problem.N, problem.K, descriptors, target)
    chosen = {name: value for name, value in given.items() if value is not None}
    config = replace(config, **chosen | {"USE_DESCRIPTORS": int(descriptors)})
    with device_guard(problem.x):
        if descriptors:
            launch_descriptors(problem, epilogue, config)
        else:
            launch_pointers(problem, epilogue, config)


def n_tiles(problem: Problem, config: MatmulConfig) -> int:
    # triton.cdiv would take 1.6 us of host time a call
    n_tiles_m = (problem.M + config.BLOCK_M - 1) // config.BLOCK_M
    return n_tiles_m * ((problem.N + config.BLOCK_N - 1) // config.BLOCK_N)


def _options(config: MatmulConfig, epilogue: str) -> dict[str, object]:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")
    return {name: getattr(config, name) for name in names} | {"EPILOGUE": epilogue}


def launch_pointers(p: Problem, epilogue: str, config: MatmulConfig) -> None:
    """Any problem."""
    matmul_kernel[(n_tiles(p, config),)](
        p.x,
        p.w,
        p.b,
        p.out,
        p.M,
        p.N,
        p.K,
        *p.strides,
        EVEN_K=p.K % config.BLOCK_K == 0,
        **_options(config, epilogue),
    )


def launch_descriptors(p: Problem, epilogue: str, config: MatmulConfig) -> None:
    """A problem that fits descriptors, on sm_90 and newer."""
    m, n, k = config.BLOCK_M, config.BLOCK_N, config.BLOCK_K
    x, w = (p.x.t() if p.x_transposed else p.x), (p.w.t() if p.w_transposed else p.w)
    matmul_descriptor_kernel[(min(n_tiles(p, config), config.PROGRAMS),)](
        TensorDescriptor(x, x.shape, [x.shape[1], 1], [k, m] if p.x_transposed else [m, k]),
        TensorDescriptor(w, w.shape, [w.shape[1], 1], [n, k] if p.w_transposed else [k, n]),
        p.b,
        TensorDescriptor(p.out, p.out.shape, [p.N, 1], [m, n // config.EPILOGUE_SUBTILE]),
        p.M,
        p.N,
        p.K,
        X_TRANSPOSED=p.x_transposed,
        W_TRANSPOSED=p.w_transposed,
        EPILOGUE_SUBTILE=config.EPILOGUE_SUBTILE,
        **_options(config, epilogue),
    )
