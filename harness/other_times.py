"""The two times beside the cold one: a CUDA graph's, a best case, and the host's.

Neither is ever mixed with the cold device time: each has a column of its own.
"""

from __future__ import annotations

import statistics
import time
import warnings

from .clock import CudaEventClock, Launch, no_garbage_collection
from .stream_order import keeping_the_stream

_MOST_GRAPH_LAUNCHES = 20
_LEAST_GRAPH_LAUNCHES = 4
_GRAPH_REPLAYS = 5
_GRAPH_SPIN_US = 300.0
_HOST_BURST = 20
_MOST_HOST_BURSTS = 9
_LEAST_HOST_BURSTS = 3
# Of device time: a launch of milliseconds hides what one launch more or less would show.
_GRAPH_US = 2_000.0
_BURSTS_US = 60_000.0


def graph_us(clock: CudaEventClock, launch: Launch) -> float:
    """Microseconds a launch, back to back in a CUDA graph, warm L2: a best case.

    Raises RuntimeError when the launch cannot be captured or the graph holds no work.
    """
    import torch

    n_launches = _between(
        _LEAST_GRAPH_LAUNCHES, _GRAPH_US / _rough_us(launch), _MOST_GRAPH_LAUNCHES
    )
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with keeping_the_stream(), torch.cuda.graph(graph):
            for _ in range(n_launches):
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
        times.append(1e3 * start.elapsed_time(stop) / n_launches)
    return statistics.median(times)


def host_us(launch: Launch) -> float:
    """Host microseconds of one call, median of bursts; the empty loop is subtracted."""
    import torch

    per_burst = []
    in_budget = _BURSTS_US / (_HOST_BURST * _rough_us(launch))
    with no_garbage_collection():
        for _ in range(_between(_LEAST_HOST_BURSTS, in_budget, _MOST_HOST_BURSTS)):
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


def _rough_us(launch: Launch) -> float:
    """Of one launch and the wait for its end."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    launch()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def _between(least: int, wanted: float, most: int) -> int:
    return max(least, min(most, int(wanted)))
