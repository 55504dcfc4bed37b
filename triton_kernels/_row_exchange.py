"""Rows shared by co-resident programs: each keeps its part on chip and publishes what it found.

A group of PARTS neighbouring programs walks the rows group, group + n_groups, ... in steps that
count from 0. In every step each program calls `publish` with its two f32 partials and `gather`,
which waits for the others and returns two [PARTS] vectors, or `publish_one` and `gather_one`; what
it does in between (loading its part of the next row) hides the wait. After the last step it calls
`leave`.

A number travels with the count of its step in one 64-bit word, so that it has arrived when the
count has: one store and one load from L2, no fence and no counter between them (the idea of NCCL's
LL protocol). Words alternate between two slots: whoever writes step s has read all of step s - 1,
so all have read step s - 2. The last program to leave clears the words for the next launch.

All programs must be resident together: launch with launch_cooperative_grid=True, which makes the
driver refuse a grid that is not, and `resident` programs a multiprocessor with maxnreg=
`registers(...)`, so that they are. Programs cannot wait in the interpreter, which runs them one
after the other: `can_wait` says so.
"""

import math

import torch
import triton
import triton.language as tl

from ._scratch import exchange_for, multiprocessors, shared_bytes

MAX_RESIDENT = 32  # programs a multiprocessor, the hardware's limit
REGISTERS = 65536  # 32-bit registers of a multiprocessor, sm_80 to sm_100
BLOCK_SHARED_BYTES = 2048  # of a program: the hardware's 1024, sums of warps
WORDS = tl.constexpr(4)  # a program: two numbers in two slots

# Each lane waits for its own word. In tl this would be a loop over a load and a reduction of the
# counts, whose copies of one element, in several warps, may see different moments.
_RECEIVE = tl.constexpr("""
{
    .reg .pred early;
    .reg .b64 word;
    .reg .b32 count;
again:
    ld.relaxed.gpu.global.b64 word, [$1];
    mov.b64 {$0, count}, word;
    setp.ne.s32 early, count, $2;
    vote.sync.any.pred early, early, 0xffffffff;
    @early bra.uni again;
}
""")


@triton.jit
def publish(words_ptr, group, part, step, a, b, PARTS: tl.constexpr):
    """Send this program's scalars a and b of `step` to its group."""
    _send(_slot(words_ptr, group, step, PARTS) + part, a, step)
    _send(_slot(words_ptr, group, step, PARTS) + PARTS + part, b, step)


@triton.jit
def publish_one(words_ptr, group, part, step, a, PARTS: tl.constexpr):
    """Send this program's scalar a of `step` to its group."""
    _send(_slot(words_ptr, group, step, PARTS) + part, a, step)


@triton.jit
def gather(words_ptr, group, step, PARTS: tl.constexpr):
    """Wait until all parts of `step` have arrived; returns the [PARTS] vectors of a and of b."""
    ptrs = _slot(words_ptr, group, step, PARTS) + tl.arange(0, PARTS)
    return _receive(ptrs, step), _receive(ptrs + PARTS, step)


@triton.jit
def gather_one(words_ptr, group, step, PARTS: tl.constexpr):
    """Wait until all parts of `step` have arrived; returns the [PARTS] vector of a."""
    return _receive(_slot(words_ptr, group, step, PARTS) + tl.arange(0, PARTS), step)


@triton.jit
def leave(words_ptr, counters_ptr, group, PARTS: tl.constexpr):
    """After the last step: the last program of the group clears its words and its counter."""
    tl.debug_barrier()  # every thread has received before the one thread's release
    before = tl.atomic_add(counters_ptr + group, 1, sem="acq_rel", scope="gpu")
    if before == PARTS - 1:
        words = tl.arange(0, WORDS * PARTS)
        tl.store(words_ptr + group * (WORDS * PARTS) + words, tl.zeros_like(words).to(tl.int64))
        tl.store(counters_ptr + group, 0)


@triton.jit
def _slot(words_ptr, group, step, PARTS: tl.constexpr):
    return words_ptr + (group * 2 + step % 2) * (2 * PARTS)


@triton.jit
def _send(ptr, number, step):
    bits = number.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    count = (step + 1).to(tl.int64)  # 0 is an empty word
    tl.atomic_xchg(ptr, (count << 32) | bits, sem="relaxed", scope="gpu")


@triton.jit
def _receive(ptrs, step):
    count = tl.zeros_like(ptrs.to(tl.int64)).to(tl.int32) + (step + 1)
    return tl.inline_asm_elementwise(
        _RECEIVE, "=f,l,r", [ptrs, count], dtype=tl.float32, is_pure=False, pack=1
    )


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


def stages(x: torch.Tensor, part_bytes: int, resident: int) -> int:
    """Of the loop over rows: parts of `part_bytes` in use or on their way, as many as shared memory
    has room for; two parts on their way hide more than one does."""
    room = shared_bytes(x.device) // resident - BLOCK_SHARED_BYTES
    return 3 if 2 * part_bytes <= room else 2


def scratch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(words, counters) for a launch on x's device and its current stream; all are 0."""
    programs = multiprocessors(x.device) * MAX_RESIDENT
    return exchange_for(x, programs * WORDS.value, programs)
