"""Rows shared by co-resident programs: each keeps its part on chip and publishes two numbers.

A group of PARTS neighbouring programs walks the rows group, group + n_groups, ... in steps that
count from 0. In every step each program calls `publish` with its two f32 partials and `gather`,
which waits for the others and returns two [PARTS] vectors; what it does in between (loading its
part of the next row) hides the wait. After the last step it calls `leave`.

All programs must be resident together: launch with launch_cooperative_grid=True, which makes the
driver refuse a grid that is not, and `resident` programs a multiprocessor with maxnreg=
`registers(...)`, so that they are. Programs cannot wait in the interpreter, which runs them one
after the other: `can_wait` says so.

One counter a group only grows during a launch: step s is complete at (s + 1) * PARTS. Partials
alternate between two slots: whoever writes step s has seen step s - 1 complete, so all have read
step s - 2. The last program to leave sets the counter to 0 for the next launch.
"""

import math

import torch
import triton
import triton.language as tl

from ._scratch import multiprocessors, scratch_for

COUNTER_STRIDE = tl.constexpr(32)  # int32 a counter: a 128-byte line each
MAX_RESIDENT = 32  # programs a multiprocessor, the hardware's limit
REGISTERS = 65536  # 32-bit registers of a multiprocessor, sm_80 to sm_100


@triton.jit
def publish(counters_ptr, partials_ptr, group, part, step, a, b, PARTS: tl.constexpr):
    """Make this program's scalars a and b of `step` visible to its group."""
    slot_ptr = partials_ptr + (group * 2 + step % 2) * (2 * PARTS)
    tl.store(slot_ptr + part, a)
    tl.store(slot_ptr + PARTS + part, b)
    tl.debug_barrier()  # every thread's stores come before the one thread's release
    tl.atomic_add(counters_ptr + group * COUNTER_STRIDE, 1, sem="release", scope="gpu")


@triton.jit
def gather(counters_ptr, partials_ptr, group, step, PARTS: tl.constexpr):
    """Wait until all parts of `step` are published; returns the [PARTS] vectors of a and of b."""
    counter_ptr = counters_ptr + group * COUNTER_STRIDE
    target = (step + 1) * PARTS
    while tl.atomic_add(counter_ptr, 0, sem="acquire", scope="gpu") < target:
        pass
    tl.debug_barrier()  # one thread acquired; the others load after it
    slot_ptrs = partials_ptr + (group * 2 + step % 2) * (2 * PARTS) + tl.arange(0, PARTS)
    a = tl.load(slot_ptrs, cache_modifier=".cg")  # L2, where the others wrote
    b = tl.load(slot_ptrs + PARTS, cache_modifier=".cg")
    return a, b


@triton.jit
def leave(counters_ptr, group, steps, PARTS: tl.constexpr):
    """After the last of `steps` steps: the last program of the group resets its counter."""
    counter_ptr = counters_ptr + group * COUNTER_STRIDE
    before = tl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
    if before == (steps + 1) * PARTS - 1:
        tl.atomic_xchg(counter_ptr, 0, sem="relaxed", scope="gpu")


def can_wait(x: torch.Tensor) -> bool:
    """Whether programs on x's device run side by side: False in the interpreter."""
    return x.is_cuda or not triton.knobs.runtime.interpret


def group_count(x: torch.Tensor, n_rows: int, parts: int, resident: int) -> int:
    """Groups for n_rows rows, `resident` programs a multiprocessor, each with as many rows.

    1 for CPU tensors, whose kernels are compiled and never launched. Raises ValueError where no
    group of `parts` programs is resident together.
    """
    if not x.is_cuda:
        return 1
    most = multiprocessors(x.device) * resident // parts
    if most == 0:
        raise ValueError(
            f"row exchange: {parts} parts a row, wanted at most "
            f"{multiprocessors(x.device) * resident} programs resident together; ask for fewer"
        )
    steps = math.ceil(n_rows / most)
    return math.ceil(n_rows / steps)


def registers(num_warps: int, resident: int) -> int:
    """maxnreg with which `resident` programs of num_warps warps fit on a multiprocessor."""
    return min(255, REGISTERS // (resident * num_warps * 32) // 8 * 8)


def scratch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(counters, partials) for a launch on x's device and its current stream; counters are 0."""
    programs = multiprocessors(x.device) * MAX_RESIDENT
    return scratch_for(x, programs * COUNTER_STRIDE.value, programs * 4)
