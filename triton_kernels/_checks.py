"""Argument checks that the launchers share: the CUDA bindings' rules, in their order and wording.

TypeError for dtypes and non-tensors, ValueError for the rest; the first failure is raised. Every
text reads "op: what was wrong, value got, wanted value; what to do".
"""

import contextlib

import torch
import triton


def cpu_tensors_allowed() -> bool:
    """Whether nothing is launched on a GPU: in the interpreter or in an offline compile."""
    driver = getattr(triton.runtime.driver, "_active", None)
    return triton.knobs.runtime.interpret or getattr(driver, "compiles_only", False)


def require_tensors(
    op: str,
    dtypes: tuple[torch.dtype, ...],
    layouts: dict[str, str],
    tensors: tuple[torch.Tensor, ...],
) -> None:
    """Check device, dtype and number of dimensions of every tensor against the first one.

    `layouts` maps argument names to shape words such as "[rows, cols]", in argument order.
    One cheap pass over the tensors comes first: this runs before every launch.
    """
    x = tensors[0]
    if isinstance(x, torch.Tensor) and x.is_cuda and x.dtype in dtypes:
        device, dtype = x.device, x.dtype
        for layout, tensor in zip(layouts.values(), tensors, strict=True):
            if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype:
                break
            if tensor.device != device or tensor.dim() != layout.count(",") + 1:
                break
        else:
            return
    explain_tensors(op, dtypes, layouts, tensors)


def explain_tensors(
    op: str,
    dtypes: tuple[torch.dtype, ...],
    layouts: dict[str, str],
    tensors: tuple[torch.Tensor, ...],
) -> None:
    """Raise for the first rule that `require_tensors` found broken, if any is."""
    for name, tensor in zip(layouts, tensors, strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{op}: {name} is a {type(tensor).__name__}, wanted a torch.Tensor; pass a tensor"
            )
    x = tensors[0]
    for name, tensor in zip(layouts, tensors, strict=True):
        if not tensor.is_cuda and not (tensor.device.type == "cpu" and cpu_tensors_allowed()):
            raise ValueError(
                f"{op}: {name} is on {tensor.device}, wanted a CUDA device; pass {name}.cuda()"
            )
    for name, tensor in zip(layouts, tensors, strict=True):
        if tensor.device != x.device:
            raise ValueError(
                f"{op}: {name} is on {tensor.device}, wanted {x.device} like x; "
                f"pass {name}.to(x.device)"
            )
    if x.dtype not in dtypes:
        wanted = ", ".join(map(str, dtypes))
        raise TypeError(
            f"{op}: x has dtype {x.dtype}, wanted one of {wanted}; pass x.to({dtypes[0]})"
        )
    for name, tensor in zip(layouts, tensors, strict=True):
        if tensor.dtype != x.dtype:
            raise TypeError(
                f"{op}: {name} has dtype {tensor.dtype}, wanted {x.dtype} like x; "
                f"pass {name}.to({x.dtype})"
            )
    for (name, layout), tensor in zip(layouts.items(), tensors, strict=True):
        if tensor.dim() != (n_dims := layout.count(",") + 1):
            raise ValueError(
                f"{op}: {name} has {tensor.dim()} dimensions, wanted {n_dims}; "
                f"pass {name} as {layout}"
            )


def require_shape_of_x(op: str, x: torch.Tensor, **others: torch.Tensor) -> None:
    """Check that every named tensor has x's shape."""
    for name, tensor in others.items():
        if tensor.shape != x.shape:
            raise ValueError(
                f"{op}: {name} has shape {tuple(tensor.shape)}, wanted {tuple(x.shape)} like x; "
                "pass tensors of one shape"
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


def device_guard(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Make x's device current for a launch: Triton launches on the current one."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)
