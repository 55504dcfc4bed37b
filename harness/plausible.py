"""Times that the hardware could not have reached: such a row is invalid, whatever caused it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Dense 16-bit tensor-core operations per clock and SM, from NVIDIA's architecture whitepapers:
# A100 312 TFLOP/s at 1.41 GHz on 108 SMs; H100 SXM 989 TFLOP/s at 1.83 GHz on 132.
_MATRIX_FLOPS_PER_CLOCK_SM = {"8.0": 2048, "9.0": 4096}


def impossible(time_us: float, distinct_bytes: int, flops: int, gpu: Mapping[str, Any]) -> str:
    """Why `time_us` cannot be true on `gpu` (facts of machine.gpu_facts), or anywhere; empty when
    it can.

    What L2 may still hold is granted. A fact that the driver does not tell, or an unknown
    architecture, skips its check.
    """
    if not 0 < time_us < math.inf:
        return f"the timer gave {time_us:g} us"
    bytes_per_s = 2e3 * gpu.get("memory_khz_max", 0) * gpu.get("memory_bus_bits", 0) / 8
    from_dram = distinct_bytes - gpu.get("l2_bytes", 0)
    if bytes_per_s and from_dram / (time_us * 1e-6) > bytes_per_s:
        return (
            f"{from_dram} bytes beyond L2 in {time_us:g} us exceed the DRAM peak of "
            f"{bytes_per_s / 1e9:.0f} GB/s"
        )
    per_clock = _MATRIX_FLOPS_PER_CLOCK_SM.get(gpu.get("compute_capability", ""), 0)
    flops_per_s = 1e3 * gpu.get("sm_khz_max", 0) * per_clock * gpu.get("sm_count", 0)
    if flops_per_s and flops / (time_us * 1e-6) > flops_per_s:
        return (
            f"{flops} operations in {time_us:g} us exceed the tensor cores' peak of "
            f"{flops_per_s / 1e12:.0f} TFLOP/s"
        )
    return ""
