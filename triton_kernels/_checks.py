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
    """
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
                f"pass {name}.to({x.device})"
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


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses from the first element to one past the last; empty tensors give an empty range."""
    first = tensor.data_ptr()
    if tensor.numel() == 0:
        return first, first
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.element_size()


def ranges_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the byte ranges of two non-empty tensors intersect."""
    a_first, a_end = byte_range(a)
    b_first, b_end = byte_range(b)
    return a_first < a_end and b_first < b_end and a_first < b_end and b_first < a_end


def device_guard(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Make x's device current for a launch: Triton launches on the current one."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)
