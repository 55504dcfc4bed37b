"""Which kernels a contender launched, in the worker, untimed: for the row's columns and facts.json.

A failure here costs the row these columns and nothing else.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..backends import matrix_form
from ..stream_order import keeping_the_stream
from . import elf, triton_api
from .driver import Driver
from .facts import Launch, to_json


def launches_of(call: Callable[[], Any]) -> list[Launch]:
    """Capture one call, which has run before, and name its kernels; the graph never runs.

    Raises what the capture, Triton's interfaces or the driver raise.
    """
    import torch

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(keeping_the_stream())
        # Not for the other sides: Triton need not be installed there.
        triton_kernels: list[Any] = []
        if "triton" in sys.modules:
            triton_kernels = stack.enter_context(triton_api.recorded_launches())
        with torch.cuda.graph(graph):
            call()
    return joined(list(Driver().launches(graph.raw_cuda_graph())), triton_kernels)


def without_fills(launches: Sequence[Launch]) -> list[Launch]:
    """What a launch of ours runs outside a capture, where scratch is kept from launch to launch: a
    captured one has scratch of its own, and torch's kernel that fills it with zeros."""
    return [launch for launch in launches if "FillFunctor" not in launch.symbol]


def joined(launches: Sequence[Launch], triton_kernels: Sequence[Any]) -> list[Launch]:
    """The launches, those of Triton's kernels with the hash and file of the very cubin.

    Both lists are in the order of launching; either may hold kernels that the other lacks (a
    launcher that is not captured, a hook that returns nothing).
    """
    left = [triton_api.facts_of(kernel) for kernel in triton_kernels if kernel is not None]
    found = []
    for launch in launches:
        compiled = next((c for c in left if c.name == launch.symbol), None)
        if compiled is not None:
            left.remove(compiled)
            code = elf.sections(compiled.cubin)[f".text.{compiled.name}"].data
            launch = replace(
                launch,
                hash=elf.code_hash(compiled.name, code),
                cubin=compiled.cubin_path,
                options=compiled.options
                | {"arch": compiled.arch, "form": matrix_form(compiled.ptx)},
            )
        found.append(launch)
    return found


def columns(launches: Sequence[Launch]) -> dict[str, Any]:
    """bench.csv's columns: of several kernels the largest figures and all names, in order.

    Local memory is a spill or an indexed array: only none at all is known to be no spill.
    """
    if not launches:
        return {}
    shared = [
        (launch.static_shared_bytes or 0) + (launch.dynamic_shared_bytes or 0)
        for launch in launches
    ]
    registers = [launch.registers for launch in launches if launch.registers is not None]
    no_local = all(launch.local_bytes == 0 for launch in launches)
    forms = dict.fromkeys(form for launch in launches if (form := _form(launch)))
    return ({"form": "+".join(forms)} if forms else {}) | {
        "kernel_symbol": ",".join(dict.fromkeys(launch.symbol for launch in launches)),
        "registers": max(registers, default=None),
        "spill_bytes": 0 if no_local else None,
        "shared_bytes": max(shared),
    }


def _form(launch: Launch) -> str:
    """The matrix unit's code path: what Triton's PTX says, or the name of a kernel of ours."""
    named = re.search(r"_(wgmma|mma)_kernel", launch.symbol)
    in_name = {"wgmma": "wgmma", "mma": "mma.sync"}[named[1]] if named else ""
    return str(launch.options.get("form", in_name))


def as_events(launches: Sequence[Launch]) -> list[dict[str, Any]]:
    return [to_json(launch) for launch in launches]
