"""Memory between guard bytes: a read past an input meets NaN, a write past anything shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# All bits set is a quiet NaN in every float dtype and -1, an index out of range, in every signed
# integer one.
_NAN_BYTE = 0xFF
_OUTPUT_BYTE = 0xA5
# A tile of 16 Ki float32 values; where rows are strided, what lies between them is guard too.
_INPUT_GUARD_BYTES = 64 << 10
_OUTPUT_GUARD_BYTES = 4 << 10
_ALIGNMENT = 256


class _Memory:
    """`bytes`: a guard, the payload from `first` to `end`, a guard; all filled with `fill`.

    The byte after the first guard is 256-byte aligned, the payload begins `lead` bytes later.
    """

    def __init__(
        self, n_bytes: int, lead: int, guard: int, fill: int, device: torch.device | str
    ) -> None:
        import torch

        self.first = guard + lead
        self.end = self.first + n_bytes
        total = -(-(self.end + guard) // 8) * 8  # whole 8-byte words: compared as such
        storage = torch.empty(total + _ALIGNMENT, dtype=torch.uint8, device=device)
        skipped = -storage.data_ptr() % _ALIGNMENT
        self.bytes = storage[skipped : skipped + total]
        self.fill = fill
        self.bytes.fill_(fill)

    def view(
        self, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> torch.Tensor:
        """The payload as a tensor; strides in elements."""
        elements = self.bytes.view(dtype)
        start = elements.storage_offset() + self.first // dtype.itemsize
        return elements.as_strided(shape, stride, start)


class GuardedInput:
    """One input moved between NaN guards.

    `tensor` has the values, shape and strides of the one given, and its distance from a 256-byte
    boundary: a view that started one element in still does.
    """

    def __init__(self, given: torch.Tensor) -> None:
        size = given.element_size()
        lead = int(given.storage_offset()) * size % _ALIGNMENT
        self._memory = _Memory(
            _span(given) * size, lead, _INPUT_GUARD_BYTES, _NAN_BYTE, given.device
        )
        self.tensor = self._memory.view(given.dtype, tuple(given.shape), given.stride())
        self.tensor.copy_(given)
        self._pristine: torch.Tensor | None = None

    def remember(self) -> None:
        """Take the bits of now, guards included, as the right ones."""
        self._pristine = self._memory.bytes.clone()

    def forget(self) -> None:
        """Give the copy's memory back."""
        self._pristine = None

    def damage(self) -> str:
        """`values` or `guards` when a bit has changed since `remember`, else nothing."""
        import torch

        assert self._pristine is not None
        now, before = self._memory.bytes, self._pristine
        if torch.equal(now.view(torch.int64), before.view(torch.int64)):
            return ""
        first, end = self._memory.first, self._memory.end
        inside = torch.equal(now[first:end], before[first:end])
        return "guards" if inside else "values"

    def restore(self) -> None:
        assert self._pristine is not None
        self._memory.bytes.copy_(self._pristine)


class GuardedOutput:
    """`tensor`, contiguous, 256-byte aligned or `lead` bytes past it, between guard bytes."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, lead: int, device: torch.device | str
    ) -> None:
        import torch

        like = torch.empty(shape, dtype=dtype, device="meta")
        n_bytes = like.numel() * dtype.itemsize
        self._memory = _Memory(n_bytes, lead, _OUTPUT_GUARD_BYTES, _OUTPUT_BYTE, device)
        self.tensor = self._memory.view(dtype, shape, like.stride())

    def poison(self) -> None:
        """NaN into a float output, a sentinel into an integer one, the guards renewed."""
        self._memory.bytes.fill_(self._memory.fill)
        if self.tensor.is_floating_point():
            self.tensor.fill_(float("nan"))

    def damage(self) -> str:
        """`before` or `behind` where a guard byte was overwritten, else nothing."""
        memory = self._memory
        guards = {"before": memory.bytes[: memory.first], "behind": memory.bytes[memory.end :]}
        for side, guard in guards.items():
            if bool((guard != memory.fill).any()):
                return side
        return ""


def _span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last of a strided tensor."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do the byte ranges of two tensors meet? An empty one meets nothing."""
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device:
        return False
    a_end = a.data_ptr() + _span(a) * a.element_size()
    b_end = b.data_ptr() + _span(b) * b.element_size()
    return a.data_ptr() < b_end and b.data_ptr() < a_end
