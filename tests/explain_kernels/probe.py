"""Compile the sample kernels in a process without Triton's interpreter and print their facts.

python -m tests.explain_kernels.probe ARCH [NAME ...]
"""

from __future__ import annotations

import json
import sys

from harness.explain import triton_api, triton_side
from harness.explain.facts import to_json
from tests.explain_kernels import triton_samples as samples

ARCH = int(sys.argv[1])
_ADD = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
_PRODUCT = {
    "a_ptr": "*fp16",
    "b_ptr": "*fp16",
    "c_ptr": "*fp16",
    "M": "i32",
    "N": "i32",
    "K": "i32",
}
_ROW = {"x_ptr": "*fp16", "out_ptr": "*fp16", "n": "i32"}


def product(block_m: int, block_n: int, block_k: int, **options: int):
    blocks = {"BM": block_m, "BN": block_n, "BK": block_k}
    return samples.product, _PRODUCT, blocks, tuple(_PRODUCT), options


WANTED = {
    "add": (samples.add, _ADD, {"BLOCK": 1024}, tuple(_ADD), {}),
    "add odd": (samples.add, _ADD, {"BLOCK": 1024}, ("x_ptr", "y_ptr", "out_ptr"), {}),
    "row max": (samples.row_max, _ROW, {"BLOCK": 1024}, ("x_ptr", "n"), {}),
    "product": product(128, 128, 64, num_warps=8),
    "small product": product(16, 16, 16),
    "big product": product(128, 256, 64, num_warps=4),
}


def main() -> None:
    found = {}
    for name in sys.argv[2:] or WANTED:
        function, signature, constants, divisible, options = WANTED[name]
        kernel = triton_api.compile_kernel(
            function, signature, constants, divisible, ARCH, **options
        )
        compiled = triton_api.facts_of(kernel)
        facts = to_json(triton_side.kernel_facts(compiled, ()))
        found[name] = facts | {
            "dynamic_shared_bytes": compiled.shared_bytes,
            "cubin": compiled.cubin_path,
        }
    print(json.dumps({"flags": triton_api.flags(), "kernels": found}))


if __name__ == "__main__":
    main()
