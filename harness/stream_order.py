"""Does a launch keep its work in the order of the current stream?

Events on the current stream time nothing that runs on another: a launch that moves its work
there would look instantly fast, and its answer would still be right once everything has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .clock import CudaEventClock

EARLY = "its output was written before earlier work of the current stream had ended"
MOVED = "it leaves another device or stream current than it found"
LATE = "it leaves work on a stream that the current one does not wait for"

_SPINS_US = (1_000.0, 4_000.0, 16_000.0)
_WATCHED_ELEMENTS = 4096


def leaves_the_stream(
    clock: CudaEventClock,
    out: torch.Tensor,
    poison: Callable[[], None],
    launch: Callable[[], Any],
) -> str:
    """EARLY or LATE when some of the launch's work is not ordered with the current stream, ""
    when none is seen.

    `launch` has run before and writes `out`, which `poison` spoils. Work that the launcher waited
    for on the host cannot be told apart, and needs not: it is timed.
    """
    if out.numel() == 0:
        return ""
    for spin_us in _SPINS_US:
        poison()
        looked, reason = _watch(clock, _watched_bits(out), launch, spin_us)
        if looked:
            return reason or (LATE if captures_unjoined(launch) else "")
    return ""


def _watch(
    clock: CudaEventClock, bits: torch.Tensor, launch: Callable[[], Any], spin_us: float
) -> tuple[bool, str]:
    """(was the output looked at while a spin held the stream, what was wrong)."""
    import torch

    poisoned = bits.clone()
    torch.cuda.synchronize()
    clock.spin(spin_us)
    spin_ended, returned = torch.cuda.Event(), torch.cuda.Event()
    spin_ended.record()
    launch()
    returned.record()
    # High priority: its one small kernel must not queue behind all blocks of a stray large one.
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        returned.wait()
        at_return = bits.clone()
    looked = early = False
    with torch.cuda.stream(torch.cuda.Stream()):
        while not early and not spin_ended.query():
            changed = bool((bits != poisoned).any())
            # Only what was seen while the stream was still held counts.
            held = not spin_ended.query()
            looked, early = looked or held, changed and held
    torch.cuda.synchronize()
    late = bool((bits != at_return).any())
    return looked, EARLY if early else LATE if late else ""


def captures_unjoined(launch: Callable[[], Any]) -> bool:
    """Does a stream capture of the launch end with work that was forked and never joined?

    Watching the output can miss a short kernel; a capture cannot. One that fails for another
    reason, or finds nothing, says nothing.
    """
    import torch

    try:
        with keeping_the_stream(), torch.cuda.graph(torch.cuda.CUDAGraph()):
            launch()
    except RuntimeError as error:
        torch.cuda.synchronize()
        return is_unjoined(error)
    return False


@contextmanager
def keeping_the_stream() -> Iterator[None]:
    """Within, a stream capture may fail: torch then leaves its own capture stream current."""
    import torch

    stream = torch.cuda.current_stream()
    try:
        yield
    finally:
        torch.cuda.set_stream(stream)


def is_unjoined(error: BaseException) -> bool:
    """Is this how a stream capture says that work was left on a side stream?"""
    return "unjoined" in str(error)


def _watched_bits(out: torch.Tensor) -> torch.Tensor:
    """Elements spread over the whole output, as integers: NaN differs from itself, its bits do
    not."""
    import torch

    step = max(1, (out.numel() - 1) // (_WATCHED_ELEMENTS - 1))
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return out.view(-1).view(integers[out.element_size()])[::step]
