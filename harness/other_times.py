"""The two times beside the cold one: a CUDA graph's, a best case, and the host's.

Neither is ever mixed with the cold device time: each has a column of its own.
"""

from __future__ import annotations

import statistics
import time
import warnings

from .clock import CudaEventClock, Launch, no_garbage_collection
from .stream_order import keeping_the_stream

_GRAPH_LAUNCHES = 20
_GRAPH_REPLAYS = 5
_GRAPH_SPIN_US = 300.0
_HOST_BURST = 20
_HOST_BURSTS = 9


def graph_us(clock: CudaEventClock, launch: Launch) -> float:
    """Microseconds a launch, back to back in a CUDA graph, warm L2: a best case.

    Raises RuntimeError when the launch cannot be captured or the graph holds no work.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with keeping_the_stream(), torch.cuda.graph(graph):
            for _ in range(_GRAPH_LAUNCHES):
                launch()
    if any("graph is empty" in str(warning.message).lower() for warning in caught):
        raise RuntimeError("the captured graph holds no work")
    graph.replay()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(_GRAPH_REPLAYS):
        # Without the spin the interval would hold the host's cost of the replay.
        clock.spin(_GRAPH_SPIN_US)
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(stop) / _GRAPH_LAUNCHES)
    return statistics.median(times)


def host_us(launch: Launch) -> float:
    """Host microseconds of one call, median of bursts; the empty loop is subtracted."""
    import torch

    per_burst = []
    with no_garbage_collection():
        for _ in range(_HOST_BURSTS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(_HOST_BURST):
                launch()
            middle = time.perf_counter()
            for _ in range(_HOST_BURST):
                pass
            end = time.perf_counter()
            per_burst.append(((middle - start) - (end - middle)) / _HOST_BURST * 1e6)
    torch.cuda.synchronize()
    return statistics.median(per_burst)
