"""Argument checks that the launchers share: the CUDA bindings' rules, in their order and wording.

TypeError for dtypes and non-tensors, ValueError for the rest; the first failure is raised. Every
text reads "op: what was wrong, value got, wanted value; what to do".
"""

import contextlib

import torch
import triton

NO_DTYPES: dict[str, torch.dtype] = {}  # every argument has the first one's dtype


def cpu_tensors_allowed() -> bool:
    """Whether nothing is launched on a GPU: in the interpreter or in an offline compile."""
    driver = getattr(triton.runtime.driver, "_active", None)
    return triton.knobs.runtime.interpret or getattr(driver, "compiles_only", False)


def require_tensors(
    op: str,
    dtypes: tuple[torch.dtype, ...],
    layouts: dict[str, str],
    tensors: tuple[torch.Tensor, ...],
    own_dtypes: dict[str, torch.dtype] = NO_DTYPES,
) -> None:
    """Check device, dtype and number of dimensions of every tensor against the first one.

    `layouts` maps argument names to shape words such as "[rows, cols]", in argument order;
    `own_dtypes` those whose dtype is not the first one's to the dtype that they must have.
    One cheap pass over the tensors comes first: this runs before every launch.
    """
    x = tensors[0]
    if isinstance(x, torch.Tensor) and x.is_cuda and x.dtype in dtypes:
        device, dtype = x.device, x.dtype
        for (name, layout), tensor in zip(layouts.items(), tensors, strict=True):
            if not isinstance(tensor, torch.Tensor):
                break
            if tensor.dtype != own_dtypes.get(name, dtype):
                break
            if tensor.device != device or tensor.dim() != layout.count(",") + 1:
                break
        else:
            return
    explain_tensors(op, dtypes, layouts, tensors, own_dtypes)


def explain_tensors(
    op: str,
    dtypes: tuple[torch.dtype, ...],
    layouts: dict[str, str],
    tensors: tuple[torch.Tensor, ...],
    own_dtypes: dict[str, torch.dtype],
) -> None:
    """Raise for the first rule that `require_tensors` found broken, if any is."""
    for name, tensor in zip(layouts, tensors, strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{op}: {name} is a {type(tensor).__name__}, wanted a torch.Tensor; pass a tensor"
            )
    x, first = tensors[0], next(iter(layouts))
    for name, tensor in zip(layouts, tensors, strict=True):
        if not tensor.is_cuda and not (tensor.device.type == "cpu" and cpu_tensors_allowed()):
            raise ValueError(
                f"{op}: {name} is on {tensor.device}, wanted a CUDA device; pass {name}.cuda()"
            )
    for name, tensor in zip(layouts, tensors, strict=True):
        if tensor.device != x.device:
            raise ValueError(
                f"{op}: {name} is on {tensor.device}, wanted {x.device} like {first}; "
                f"pass {name}.to({first}.device)"
            )
    if x.dtype not in dtypes:
        wanted = ", ".join(map(str, dtypes))
        raise TypeError(
            f"{op}: {first} has dtype {x.dtype}, wanted one of {wanted}; "
            f"pass {first}.to({dtypes[0]})"
        )
    for name, tensor in zip(layouts, tensors, strict=True):
        dtype = own_dtypes.get(name, x.dtype)
        if tensor.dtype != dtype:
            like = "" if name in own_dtypes else f" like {first}"
            raise TypeError(
                f"{op}: {name} has dtype {tensor.dtype}, wanted {dtype}{like}; "
                f"pass {name}.to({dtype})"
            )
    for (name, layout), tensor in zip(layouts.items(), tensors, strict=True):
        if tensor.dim() != (n_dims := layout.count(",") + 1):
            raise ValueError(
                f"{op}: {name} has {tensor.dim()} dimensions, wanted {n_dims}; "
                f"pass {name} as {layout}"
            )


def require_same_shape(op: str, **tensors: torch.Tensor) -> None:
    """Check that every named tensor has the first one's shape."""
    first = next(iter(tensors))
    shape = tensors[first].shape
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            raise ValueError(
                f"{op}: {name} has shape {tuple(tensor.shape)}, wanted {tuple(shape)} like "
                f"{first}; pass tensors of one shape"
            )


def require_shape_of_x(op: str, x: torch.Tensor, **others: torch.Tensor) -> None:
    """Check that every named tensor has x's shape."""
    require_same_shape(op, x=x, **others)


def require_contiguous(op: str, **tensors: torch.Tensor) -> None:
    """Check that every named tensor is row-major without gaps."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"{op}: {name} is not contiguous (strides {tensor.stride()}), "
                f"wanted row-major contiguous; pass {name}.contiguous()"
            )


def require_rows(op: str, **tensors: torch.Tensor) -> None:
    """Check that the rows of every named matrix have adjacent elements and do not overlap."""
    for name, tensor in tensors.items():
        n_rows, n_cols = tensor.shape
        if n_cols > 1 and tensor.stride(1) != 1:
            raise ValueError(
                f"{op}: {name} has last-dimension stride {tensor.stride(1)}, wanted 1; "
                f"pass {name}.contiguous()"
            )
        if n_rows > 1 and tensor.stride(0) < n_cols:
            raise ValueError(
                f"{op}: {name} has row stride {tensor.stride(0)}, wanted at least {n_cols}; "
                f"pass {name}.contiguous()"
            )


def require_extents_below(op: str, limit: int, **extents: int) -> None:
    """Check extents that the kernel's 32-bit offsets could not hold; the CUDA side has no limit."""
    for name, extent in extents.items():
        if extent >= limit:
            raise ValueError(
                f"{op}: {name} is {extent}, wanted less than {limit} on the Triton side; "
                f"pass parts, or use the CUDA side"
            )


def end_of(tensor: torch.Tensor) -> int:
    """Address one past the last element of a non-empty tensor."""
    if tensor.is_contiguous():
        n_elements = tensor.numel()
    else:
        n_elements = 1 + sum(
            (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
        )
    return tensor.data_ptr() + n_elements * tensor.element_size()


def ranges_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the byte ranges of two tensors intersect; an empty one meets nothing."""
    if a.numel() == 0 or b.numel() == 0:
        return False
    return a.data_ptr() < end_of(b) and b.data_ptr() < end_of(a)


def rows_overlap_in_part(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether rows of out share memory with x without being x's own rows; column views side by
    side in one buffer do not."""
    one_row = x.shape[0] <= 1
    same_stride = one_row or x.stride(0) == out.stride(0)
    if not ranges_overlap(x, out) or (x.data_ptr() == out.data_ptr() and same_stride):
        return False
    if one_row or not same_stride:
        return True
    stride, width = (n * x.element_size() for n in (x.stride(0), x.shape[1]))
    return not width <= (out.data_ptr() - x.data_ptr()) % stride <= stride - width


def device_guard(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Make x's device current for a launch: Triton launches on the current one."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)
