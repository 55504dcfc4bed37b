"""cublasLt through ctypes: one product described, the heuristic's suggestions for it, a launch.

Called in the libcublasLt that torch has loaded, so that nothing is linked and both are the same
version. Source: cuBLAS documentation, chapter "Using the cublasLt API"; the numbers are those of
cublasLt.h, where they have been the same since CUDA 11.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

N_SUGGESTIONS = 16
WORKSPACE_BYTES = 64 << 20  # twice what torch gives it on Hopper: split sums of large outputs fit
WIDEST_ALIGNMENT = 256  # bytes: no algorithm asks for more

SUCCESS = 0
_COMPUTE_32F = 68
_R_32F, _R_16F, _R_16BF = 0, 2, 14
_OP_N, _OP_T = 0, 1
_DESC_TRANSA, _DESC_TRANSB = 3, 4
_PREF_WORKSPACE_BYTES, _PREF_REDUCTION_SCHEMES = 1, 3
_PREF_ALIGNMENTS = (5, 6, 7, 8)  # of A, B, C, D
_PARTIAL_SUMS_IN_FP32 = 2  # split sums are not rounded to 16 bits in between


class CublasLtError(RuntimeError):
    """What cublasLt refused, in one line."""


@dataclass(frozen=True)
class Layout:
    """A column-major matrix of `rows` x `cols` whose columns are `ld` elements apart; `transposed`
    says that the product takes it so."""

    rows: int
    cols: int
    ld: int
    transposed: bool


class Algorithm(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class Suggestion(ctypes.Structure):
    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def layout_of_transpose(name: str, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """How cublasLt, whose matrices are column-major, takes the transpose of a [rows, cols] tensor.

    The memory of a row-major matrix, read by columns, is its transpose already; that of a
    transposed view is not. Strides in elements; raises CublasLtError where neither is adjacent.
    """
    (rows, cols), (row_stride, col_stride) = shape, strides
    if (col_stride == 1 or cols == 1) and (row_stride >= cols or rows == 1):
        return Layout(cols, rows, row_stride if rows > 1 else cols, False)
    if (row_stride == 1 or rows == 1) and (col_stride >= rows or cols == 1):
        return Layout(rows, cols, col_stride if cols > 1 else rows, True)
    raise CublasLtError(
        f"cublasLt: {name} has strides {tuple(strides)}, wanted row-major or a transposed view; "
        f"pass {name}.contiguous()"
    )


class Product:
    """Descriptors of one product, kept as long as the process: out^T = w^T @ x^T by columns."""

    def __init__(self, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, alignment: int) -> None:
        import torch

        types = {torch.bfloat16: _R_16BF, torch.float16: _R_16F}
        if x.dtype not in types or not x.dtype == w.dtype == out.dtype:
            raise CublasLtError(
                f"cublasLt: dtypes {x.dtype}, {w.dtype}, {out.dtype}, wanted bf16 or f16 for all"
            )
        self._type, self._alignment = types[x.dtype], alignment
        first, second, target = (
            layout_of_transpose(name, tensor.shape, tensor.stride())
            for name, tensor in (("w", w), ("x", x), ("out", out))
        )
        if target.transposed:
            raise CublasLtError("cublasLt: out is a transposed view, wanted row-major")
        self._device = x.device
        self._handle = _handle(x.device)
        self._product = ctypes.c_void_p()
        _call("MatmulDescCreate", ctypes.byref(self._product), _COMPUTE_32F, _R_32F)
        for attribute, layout in ((_DESC_TRANSA, first), (_DESC_TRANSB, second)):
            operation = ctypes.c_int(_OP_T if layout.transposed else _OP_N)
            _set("MatmulDesc", self._product, attribute, operation)
        self._layouts = [self._described(layout) for layout in (first, second, target)]
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._scales = ctypes.addressof(self._one), ctypes.addressof(self._zero)

    def _described(self, layout: Layout) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        extents = (ctypes.c_uint64(layout.rows), ctypes.c_uint64(layout.cols))
        ld = ctypes.c_int64(layout.ld)
        _call("MatrixLayoutCreate", ctypes.byref(handle), self._type, *extents, ld)
        return handle

    def suggestions(self) -> list[Suggestion]:
        """What the heuristic advises, its favourite first; none where it knows nothing."""
        wanted = ctypes.c_void_p()
        _call("MatmulPreferenceCreate", ctypes.byref(wanted))
        workspace, schemes = ctypes.c_uint64(WORKSPACE_BYTES), ctypes.c_uint32
        _set("MatmulPreference", wanted, _PREF_WORKSPACE_BYTES, workspace)
        _set("MatmulPreference", wanted, _PREF_REDUCTION_SCHEMES, schemes(_PARTIAL_SUMS_IN_FP32))
        for attribute in _PREF_ALIGNMENTS:
            _set("MatmulPreference", wanted, attribute, ctypes.c_uint32(self._alignment))
        found = (Suggestion * N_SUGGESTIONS)()
        n_found = ctypes.c_int(0)
        first, second, target = self._layouts
        described = (self._handle, self._product, first, second, target, target, wanted)
        answer = (N_SUGGESTIONS, ctypes.byref(found), ctypes.byref(n_found))
        status = _library().cublasLtMatmulAlgoGetHeuristic(*described, *answer)
        _library().cublasLtMatmulPreferenceDestroy(wanted)
        usable = found[: n_found.value] if status == SUCCESS else []
        return [suggestion for suggestion in usable if suggestion.state == SUCCESS]

    def launch(
        self, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, algorithm: Algorithm
    ) -> int:
        """Queue the product on the device's current stream and return cublasLt's status; the
        caller has made the device current."""
        import torch

        stream = torch.cuda.current_stream(self._device).cuda_stream
        first, second, target = self._layouts
        one, zero = self._scales
        to = out.data_ptr()
        scratch = _workspace(self._device, stream)
        return int(
            _library().cublasLtMatmul(
                *(self._handle, self._product, one, w.data_ptr(), first, x.data_ptr(), second),
                *(zero, to, target, to, target, ctypes.byref(algorithm)),
                *(scratch.data_ptr(), WORKSPACE_BYTES, stream),
            )
        )


def device_guard(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make a CUDA device current where it is not: its streams, events and cublasLt's handle are
    of use there alone. Nothing else is done, as this runs before every launch."""
    import torch

    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


@functools.cache
def _workspace(device: torch.device, stream: int) -> torch.Tensor:
    """Of one stream: launches of two streams would overwrite each other's partial sums."""
    import torch

    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


@functools.cache
def _handle(device: torch.device) -> ctypes.c_void_p:
    import torch

    handle = ctypes.c_void_p()
    with torch.cuda.device(device):
        _call("Create", ctypes.byref(handle))
    return handle


@functools.cache
def _library() -> ctypes.CDLL:
    """The libcublasLt that importing torch has mapped into this process."""
    import torch

    with open("/proc/self/maps", encoding="utf-8") as maps:
        files = {line.split()[-1] for line in maps if "/libcublasLt.so" in line}
    if not files:
        raise CublasLtError(
            f"cublasLt: torch {torch.__version__} has not loaded libcublasLt; install a CUDA build"
        )
    library = ctypes.CDLL(min(files))
    library.cublasLtGetStatusString.restype = ctypes.c_char_p
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    pointer = ctypes.c_void_p
    library.cublasLtMatmul.argtypes = [*[pointer] * 14, ctypes.c_size_t, pointer]
    return library


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), f"cublasLt{name}")(*arguments)
    if status != SUCCESS:
        raise CublasLtError(f"cublasLt: cublasLt{name} failed: {status_text(status)}")


def _set(kind: str, handle: ctypes.c_void_p, attribute: int, value: Any) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(value))
    _call(f"{kind}SetAttribute", handle, attribute, ctypes.byref(value), size)


def status_text(status: int) -> str:
    text: bytes = _library().cublasLtGetStatusString(status)
    return text.decode()
