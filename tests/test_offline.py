"""What the compiler makes of each kernel, without a GPU: wide accesses, matrix units, no spills."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from harness.registry import REPOSITORY
from harness.results import read_run

ROOT = Path(__file__).resolve().parent.parent

# Compiles every kernel for one target in one process: the import costs more than a compile.
PROBE = """
import dataclasses, json, sys
import torch, triton
from harness.offline import compile_launch, facts_of
from harness.registry import load_triton

arch = int(sys.argv[1])

def tensor(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype)

def added(n, start=0, dtype=torch.bfloat16):
    return [tensor(n + start, dtype=dtype)[start:] for _ in range(3)]

def multiplied(m, n, k, dtype=torch.bfloat16):
    shapes = ((m, k), (k, n), (n,), (m, n))
    return [tensor(*shape, dtype=dtype) for shape in shapes]

def rows(n, dtype=torch.bfloat16):
    return [tensor(64, n, dtype=dtype) for _ in range(2)]

def classified(n, dtype=torch.bfloat16):
    return [tensor(64, n, dtype=dtype), tensor(64, dtype=torch.int64)]

def packed(m, i, n_more, dtype=torch.bfloat16):
    # two column halves of one tensor, and n_more tensors of their shape
    both = tensor(m, 2 * i, dtype=dtype)
    return [both[:, :i], both[:, i:], *(tensor(m, i, dtype=dtype) for _ in range(n_more))]

single = tensor(1, dtype=torch.float32)
losses = tensor(64, dtype=torch.float32)
launches = {
    "vector_add": {
        "odd f32": (added(100003, dtype=torch.float32), {}),
        "odd bf16": (added(100003), {}),
        "one in": (added(100003, start=1), {}),
        "one element": (added(1), {}),
    },
    "axpby": {"large f32": (added((1 << 22) - 1, dtype=torch.float32), {})},
    "swiglu": {
        "one row": ([tensor(1, 14336) for _ in range(3)], {}),
        "packed": (packed(512, 14336, 1), {}),
        "packed 1000 f32": (packed(512, 1000, 1, torch.float32), {}),
    },
    "swiglu_backward": {
        "11008": ([tensor(512, 11008) for _ in range(5)], {}),
        "packed": (packed(512, 14336, 3), {}),
    },
    "softmax": {
        "4096": (rows(4096), {}),
        "1000": (rows(1000), {}),
        "8192 f32": (rows(8192, torch.float32), {}),
        "16384 f16": (rows(16384, torch.float16), {}),
        "32768 one read": (rows(32768), {"BLOCK_N": 32768}),
        "70000": (rows(70000), {}),
        "131072": (rows(131072), {}),
        "131072 f32": (rows(131072, torch.float32), {}),
        "70000 looped": (rows(70000), {"BLOCK_N": 16384}),
        "odd": (rows(1025), {}),
    },
    **{
        stem: {
            f"{dtype} {n}": ([tensor(n, dtype=getattr(torch, dtype)), single], {})
            for dtype in ("bfloat16", "float32")
            for n in (1 << 16, (1 << 24) + 3)
        }
        for stem in ("reduce_sum", "squared_norm")
    },
    **{
        stem: {
            case: (
                [
                    *[tensor(64, n, dtype=dtype) for _ in range(n_inputs)],
                    tensor(n, dtype=dtype),
                    *[tensor(64, n, dtype=dtype) for _ in range(n_inputs)],
                ],
                config,
            )
            for case, n, dtype, config in (
                ("128", 128, torch.bfloat16, {}),
                ("5120", 5120, torch.bfloat16, {}),
                ("32768", 32768, torch.bfloat16, {}),
                ("16384 f32", 16384, torch.float32, {}),
                ("131072", 131072, torch.bfloat16, {}),
                ("131072 f32", 131072, torch.float32, {}),
                ("70000 looped", 70000, torch.bfloat16, {"BLOCK_N": 8192}),
                ("odd", 1025, torch.bfloat16, {}),
            )
        }
        for stem, n_inputs in (("rms_norm", 1), ("add_rms_norm", 2))
    },
    "cross_entropy": {
        name: ([*classified(n, dtype), losses], {})
        for name, n, dtype in (
            ("4096", 4096, torch.bfloat16),
            ("50257", 50257, torch.bfloat16),
            ("128256 f32", 128256, torch.float32),
        )
    },
    "cross_entropy_dlogits": {
        name: ([*classified(n, dtype), rows(n, dtype)[0], losses], c)
        for name, n, dtype, c in (
            ("4096", 4096, torch.bfloat16, {}),
            ("50257", 50257, torch.bfloat16, {}),
            ("50257 looped", 50257, torch.bfloat16, {"BLOCK_N": 16384}),
            ("128256 f32", 128256, torch.float32, {}),
        )
    },
    "column_sum": {
        "4096": ([tensor(65536, 4096), tensor(4096, dtype=torch.float32)], {}),
        "1000": ([tensor(8192, 1000), tensor(1000, dtype=torch.float32)], {}),
        "odd": ([tensor(8192, 1001), tensor(1001, dtype=torch.float32)], {}),
    },
    "matmul_bias_relu": {
        "4096": (multiplied(4096, 4096, 4096), {}),
        "512 f16": (multiplied(512, 512, 512, torch.float16), {}),
        "odd": (multiplied(4097, 4095, 1023), {}),
        "no k": (multiplied(33, 35, 0), {}),
    },
}
facts = {}
for stem, cases in launches.items():
    launcher = getattr(load_triton(stem), stem)
    for case, (arguments, config) in cases.items():
        kernels = compile_launch(launcher, arguments, config, arch)
        assert len(kernels) == 1, (stem, case, kernels)
        facts[f"{stem} {case}"] = dataclasses.asdict(facts_of(kernels[0]))

assert triton.runtime.driver._active is None, "the fake driver stayed"
try:
    load_triton("vector_add").vector_add(*added(4))
except ValueError as error:
    refusal = str(error)
print(json.dumps({"facts": facts, "refusal": refusal}))
"""


def without_interpreter(cache: Path) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return {**environment, "TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": ""}


def run(
    *arguments: str, environment: dict[str, str], expect: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == expect, done.stderr
    return done


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("triton_cache")


@functools.cache
def probe(arch: int, cache: Path) -> dict[str, Any]:
    text = run("-c", PROBE, str(arch), environment=without_interpreter(cache)).stdout
    return json.loads(text)


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_every_kernel_compiles_without_spilling(arch: int, cache: Path) -> None:
    spilled = {
        name: facts["stack_bytes"]
        for name, facts in probe(arch, cache)["facts"].items()
        if facts["stack_bytes"] and "odd" not in name
    }
    assert not spilled


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_memory_bound_kernels_move_16_bytes_at_once(arch: int, cache: Path) -> None:
    facts = probe(arch, cache)["facts"]
    streams = ("vector_add", "axpby", "swiglu", "swiglu_backward")
    for name in facts:
        if name.split()[0] in streams and name != "vector_add one element":
            assert facts[name]["loads_16_bytes"] >= 2, name
            assert facts[name]["stores_16_bytes"] >= 1, name
    for name in (
        "softmax 4096",
        "softmax 1000",
        "softmax 8192 f32",
        "softmax 16384 f16",
        "softmax 32768 one read",
    ):
        assert facts[name]["loads_16_bytes"] >= 2, name
        assert facts[name]["stores_16_bytes"] >= 2, name
    for stem in ("rms_norm", "add_rms_norm"):
        for case in ("128", "5120", "32768", "16384 f32"):
            assert facts[f"{stem} {case}"]["loads_16_bytes"] >= 2, (stem, case)
            assert facts[f"{stem} {case}"]["stores_16_bytes"] >= 1, (stem, case)
        assert facts[f"{stem} 131072"]["name"] == f"{stem}_shared_row_kernel"
        assert facts[f"{stem} 70000 looped"]["name"] == f"{stem}_looped_kernel"
    for name in facts:
        if name.split()[0] in ("reduce_sum", "squared_norm", "column_sum") and "odd" not in name:
            assert facts[name]["loads_16_bytes"] >= 2, name
        if name.startswith("cross_entropy"):  # rows of 50257 begin at any element
            copies = facts[name]["loads_16_bytes"] + facts[name]["cp_async_16_bytes"]
            assert copies >= 2, name
            assert facts[name]["stores_16_bytes"] >= 2 * ("dlogits" in name), name
        if facts[name]["name"].endswith("_shared_row_kernel"):
            assert facts[name]["cp_async_16_bytes"] >= 2, name  # of the first row and of the next
            assert facts[name]["stores_16_bytes"] >= 2, name
    assert facts["softmax 70000"]["name"] == "softmax_shared_row_kernel"
    looped = facts["softmax 70000 looped"]
    assert looped["name"] == "softmax_looped_kernel"
    assert looped["cp_async_16_bytes"] >= 4
    assert looped["stores_16_bytes"] >= 2


@pytest.mark.parametrize(
    ("arch", "instruction"), [(80, "mma.sync"), (90, "wgmma"), (100, "tcgen05")]
)
def test_matmul_uses_the_matrix_unit_and_prefetches(
    arch: int, instruction: str, cache: Path
) -> None:
    facts = probe(arch, cache)["facts"]
    for case in ("4096", "512 f16", "odd"):
        assert facts[f"matmul_bias_relu {case}"]["matrix_instruction"] == instruction, case
    for case in ("4096", "512 f16"):
        found = facts[f"matmul_bias_relu {case}"]
        if arch >= 90:
            assert found["tma_copies"] >= 3, case  # x, w and out
        else:
            assert found["cp_async_16_bytes"] >= 4 and found["stores_16_bytes"] >= 1, case


def test_cpu_tensors_are_refused_again_afterwards(cache: Path) -> None:
    assert probe(90, cache)["refusal"] == (
        "vector_add: x is on cpu, wanted a CUDA device; pass x.cuda()"
    )


def test_command_line_prints_one_line_a_kernel(cache: Path) -> None:
    command = ("-m", "harness.offline", "softmax", "--case", "32x4096", "--dtype", "bf16")
    lines = run(*command, environment=without_interpreter(cache)).stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("softmax 32x4096 bf16 sm_90: softmax_kernel: ")
    assert "registers" in lines[0]


def test_interpreter_is_refused(cache: Path) -> None:
    environment = {**without_interpreter(cache), "TRITON_INTERPRET": "1"}
    command = ("-m", "harness.offline", "softmax", "--case", "32x4096")
    done = run(*command, environment=environment, expect=2)
    assert "TRITON_INTERPRET is set" in done.stderr


def test_an_op_of_another_folder_is_checked_and_compiled_without_a_gpu(
    tmp_path: Path, cache: Path
) -> None:
    """It has no CUDA side, and takes the shared checks from this repository."""
    root = tmp_path / "mine"
    for part in ("harness/specs", "triton_kernels"):
        (root / part).mkdir(parents=True)
    spec = (REPOSITORY / "harness" / "specs" / "vector_add.py").read_text()
    spec = spec.replace('stem="vector_add"', 'stem="twin"').replace(
        "absent={", 'absent={"cuda": "written in Triton alone", ', 1
    )
    (root / "harness" / "specs" / "twin.py").write_text(spec)
    kernel = (REPOSITORY / "triton_kernels" / "vector_add.py").read_text()
    (root / "triton_kernels" / "twin.py").write_text(kernel.replace("def vector_add(", "def twin("))
    out = tmp_path / "out"
    words = ["check", "--kernels", str(root), "--op", "twin", "--dtype", "f32", "--case", "N<=33"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words, "--out", str(out)],
        cwd=REPOSITORY,
        env={**without_interpreter(cache), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sm_90 twin f32: compiled" in done.stdout
    rows = read_run(out).rows
    assert set(rows[rows["backend"] == "cuda"]["status"]) == {"absent"}
    assert set(rows[rows["backend"] == "triton"]["status"]) == {"untimed"}
