"""The kernels inside a captured CUDA graph, as the driver knows them: name, shape, registers.

A capture records launches without running them, needs no profiler whose hooks could stay in the
process that times, and sees both sides and the baselines alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from .facts import ExplainError, Launch

_KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_SHARED_BYTES, _LOCAL_BYTES, _REGISTERS, _BINARY_VERSION = 1, 3, 4, 6  # CUfunction_attribute


class _KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("kernel_params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class Driver:
    """The few calls needed. Raises ExplainError where libcuda is missing or refuses one."""

    def __init__(self, library: Any = None) -> None:
        try:
            self._cuda = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise ExplainError(f"no driver: {error}") from None

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._cuda, name, None)
        if function is None:
            raise ExplainError(f"the driver has no {name}; update it")
        code = function(*arguments)
        if code != 0:
            raise ExplainError(f"{name} failed with CUDA driver error {code}")

    def launches(self, graph: int) -> Iterator[Launch]:
        """Every kernel node of a CUgraph, in the order of capture."""
        for node in self._nodes(graph):
            kind = ctypes.c_int(-1)
            self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
            if kind.value == _KERNEL_NODE:
                yield self._launch(node)

    def _nodes(self, graph: int) -> list[int]:
        count = ctypes.c_size_t(0)
        handle = ctypes.c_void_p(graph)
        self._call("cuGraphGetNodes", handle, None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        if count.value:
            self._call("cuGraphGetNodes", handle, nodes, ctypes.byref(count))
        return [int(node) for node in nodes[: count.value] if node]

    def _launch(self, node: int) -> Launch:
        params = _KernelNodeParams()
        self._call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(params))
        function = ctypes.c_void_p(params.func)
        if not params.func:  # launched through the library interface
            self._call("cuKernelGetFunction", ctypes.byref(function), ctypes.c_void_p(params.kern))
        name = ctypes.c_char_p()
        self._call("cuFuncGetName", ctypes.byref(name), function)
        block = tuple(int(n) for n in params.block)
        threads = block[0] * block[1] * block[2]
        shared = int(params.shared_bytes)
        return Launch(
            symbol=(name.value or b"").decode(),
            grid=tuple(int(n) for n in params.grid),  # type: ignore[arg-type]
            block=block,  # type: ignore[arg-type]
            dynamic_shared_bytes=shared,
            registers=self._attribute(function, _REGISTERS),
            local_bytes=self._attribute(function, _LOCAL_BYTES),
            static_shared_bytes=self._attribute(function, _SHARED_BYTES),
            binary_arch=str(self._attribute(function, _BINARY_VERSION)),
            blocks_per_sm=self._resident_blocks(function, threads, shared),
        )

    def _attribute(self, function: ctypes.c_void_p, which: int) -> int:
        value = ctypes.c_int(0)
        self._call("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(which), function)
        return value.value

    def _resident_blocks(self, function: ctypes.c_void_p, threads: int, shared: int) -> int:
        value = ctypes.c_int(0)
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(value),
            function,
            ctypes.c_int(threads),
            ctypes.c_size_t(shared),
        )
        return value.value
