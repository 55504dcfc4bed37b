"""What the compiler makes of the Triton matmul family, without a GPU: copies, room, no spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from harness.spec import Case
from harness.specs._matmul_triton import triton_configs

ROOT = Path(__file__).resolve().parent.parent
OPS = ("matmul", "matmul_bias_relu", "matmul_bias_gelu")
SHAPES = ((1024, 1024), (2048, 2048), (4096, 512), (4096, 4096))  # M = N, and K
CASES = [Case({"M": n, "N": n, "K": k}) for n, k in SHAPES]
# A process of its own: kernels of one that interprets cannot compile. [op, n, arch, config] each.
PROBE = """
import json, sys
import torch
from harness.offline import compile_launch, facts_of
from harness.registry import load_triton

found = []
for op, n, arch, config in json.loads(sys.argv[1]):
    shapes = [(n, n), (n, n), (n,), (n, n)]
    tensors = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
    if op == "matmul":
        del tensors[2]
    (kernel,) = compile_launch(getattr(load_triton(op), op), tensors, config, arch)
    facts, ptx = facts_of(kernel), kernel.asm["ptx"]
    words = ("m64n256k16", "cp.async.bulk.tensor.2d.shared")
    found.append(vars(facts) | {"words": [word for word in words if word in ptx]})
print(json.dumps(found))
"""


def compiled(cache: Path, launches: list[tuple[str, int, int, Any]]) -> list[dict[str, Any]]:
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(launches)],
        cwd=ROOT,
        env={**kept, "TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_large_products_are_fed_by_the_copy_engine(tmp_path: Path) -> None:
    for op, found in zip(OPS, compiled(tmp_path, [(op, 4096, 90, {}) for op in OPS]), strict=True):
        assert found["name"] == f"{op}_descriptor_kernel"
        assert found["words"] == ["m64n256k16", "cp.async.bulk.tensor.2d.shared"], found
        assert found["stack_bytes"] == 0


def test_no_descriptor_before_hopper_or_off_16_bytes(tmp_path: Path) -> None:
    for found in compiled(tmp_path, [("matmul", 1024, 80, {}), ("matmul", 1025, 90, {})]):
        assert found["name"] == "matmul_kernel" and found["tma_copies"] == 0


def test_all_candidates_fit(tmp_path: Path) -> None:
    grids = [triton_configs(case, "bf16") for case in CASES]
    assert all(4 < len(grid) <= 8 for grid in grids)
    same = {"PROGRAMS": 132, "GROUP_M": 8}  # neither changes what is asked here
    configs = {json.dumps(config | same, sort_keys=True) for grid in grids for config in grid}
    asked = [json.loads(config) for config in sorted(configs)]
    kernels = compiled(tmp_path, [("matmul", 4096, 90, config) for config in asked])
    for config, found in zip(asked, kernels, strict=True):
        assert found["shared_bytes"] <= 227 * 1024 and found["stack_bytes"] == 0, config
