"""On a GPU: what the driver says of a launch equals what the cubins and the estimate say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from harness.availability import unavailable
from harness.backends import bind
from harness.check import Problem
from harness.explain import extension, launched, ncu, triton_api, triton_side
from harness.explain.book import FactsBook
from harness.explain.fact_file import FACTS_NAME, read
from harness.explain.facts import Launch
from harness.explain.occupancy import occupancy
from harness.registry import Registry
from harness.spec import Case, OpSpec

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = Registry()
PAIRS = [(stem, side) for stem in REGISTRY.stems for side in ("cuda", "triton")]


def problem_of(spec: OpSpec, dtype: str) -> Problem:
    case = next(c for c in reversed(spec.bench_cases) if c.layout == "contiguous")
    small = {name: min(extent, 1024) for name, extent in case.dims.items()}
    return Problem(spec, Case(small), dtype, "cuda", 1)


def launches(stem: str, side: str, dtype: str) -> list[Launch]:
    if reason := unavailable(side):
        pytest.skip(reason)
    bound = bind(REGISTRY, problem_of(REGISTRY.spec(stem), dtype), side, "", {}, "")
    bound.call()
    torch.cuda.synchronize()
    return launched.without_fills(launched.launches_of(bound.call))


N_KERNELS = {"layer_norm_backward": 2}  # and the sum of the column sums that programs leave


@pytest.mark.parametrize(("stem", "side"), PAIRS)
def test_registers_and_occupancy_are_the_drivers(stem, side, tmp_path):
    for dtype in REGISTRY.spec(stem).dtypes:
        found = launches(stem, side, dtype)
        assert len(found) == N_KERNELS.get(stem, 1)
        for number, launch in enumerate(found):
            folder = tmp_path / f"{dtype}-{number}"
            folder.mkdir()
            check_against_the_driver(launch, stem, side, folder)


def check_against_the_driver(launch: Launch, stem: str, side: str, folder: Path) -> None:
    event = {"row": {"op": stem, "backend": side, "spill_bytes": None}}
    book = FactsBook(folder, REGISTRY.stems, {"sm_count": 132})
    book.take([event | {"launches": launched.as_events([launch])}])
    found = read(folder / FACTS_NAME)
    assert found.problems == ()
    ((kernel,), (row,)) = found.kernels.values(), found.rows.values()
    assert kernel.op == stem
    assert kernel.registers == launch.registers
    assert kernel.static_shared_bytes == launch.static_shared_bytes
    assert row["launches"][0]["hash"] == kernel.hash
    shared = (launch.static_shared_bytes or 0) + (launch.dynamic_shared_bytes or 0)
    estimate = occupancy(launch.binary_arch, launch.registers or 0, shared, launch.threads or 0)
    assert estimate.blocks == launch.blocks_per_sm


def test_the_kernel_that_was_launched_is_the_one_of_the_jit_cache():
    spec = REGISTRY.spec("vector_add")
    problem = problem_of(spec, "f32")
    bound = bind(REGISTRY, problem, "triton", "", {"BLOCK_SIZE": 2048, "num_warps": 8}, "")
    bound.call()
    with triton_api.recorded_launches() as kernels:
        bound.call()
    (launch,) = launched.launches_of(bound.call)
    compiled = triton_api.facts_of(kernels[0])
    assert launch.hash == triton_side.kernel_facts(compiled, REGISTRY.stems).hash
    assert launch.block == (256, 1, 1)
    assert Path(launch.cubin).read_bytes() == compiled.cubin


def test_a_capture_leaves_the_stream_the_answer_and_the_memory_as_they_were():
    problem = problem_of(REGISTRY.spec("vector_add"), "f32")
    bound = bind(REGISTRY, problem, "torch", "", None, "")
    bound.call()
    torch.cuda.synchronize()
    stream, allocated = torch.cuda.current_stream(), torch.cuda.memory_allocated()
    assert launched.columns(launched.launches_of(bound.call))["kernel_symbol"]
    bound.call()
    torch.cuda.synchronize()
    assert torch.cuda.current_stream() == stream
    assert torch.cuda.memory_allocated() <= allocated + (1 << 20)
    assert problem.judge(bound.produced(), bound.unfused).ok


def test_the_extension_has_code_for_this_gpu():
    major, minor = torch.cuda.get_device_capability()
    chosen, text = extension.code_for(f"{major}{minor}", extension.contents(extension.binary()))
    assert chosen, text


BYTES = """
import torch
from harness import _cuda
n = 1 << 28
a, b, c = (torch.ones(n, device="cuda") for _ in range(3))
sink = torch.zeros(4, dtype=torch.int32, device="cuda")
torch.cuda.synchronize()
_cuda.roof_copy(dst=a, src=b, shape=0)
_cuda.vector_add(x=a, y=b, out=c, threads=0, vectors=0)
_cuda.roof_read(src=a, sink=sink, shape=0)
torch.cuda.synchronize()
"""


def test_measured_bytes_are_those_of_the_formula():
    if reason := ncu.unavailable():
        pytest.skip(reason)
    n_bytes = 4 * (1 << 28)  # 1 GiB: more than eight times any L2
    wanted = (2 * n_bytes, 3 * n_bytes, n_bytes)  # copy, add, read: in the order of BYTES
    names = "roof_kernel|vector_add_kernel"
    command = ncu.command([sys.executable, "-c", BYTES], names, launches=3)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    try:
        profiles = ncu.parse(done.stdout + done.stderr)
    except Exception as error:
        pytest.skip(str(error))
    for profile, expected in zip(profiles, wanted, strict=True):
        assert profile.dram_bytes == pytest.approx(expected, rel=0.05), profile.kernel
