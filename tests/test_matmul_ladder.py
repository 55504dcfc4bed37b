"""The rungs of matmul in CUDA: in each one's machine code is what its step says."""

from __future__ import annotations

import os

import pytest

from harness import compilers
from harness.explain import cubin, nvcc
from harness.registry import REPOSITORY
from harness.specs._matmul_ladder import CUDA_RUNGS
from tests.test_facts_of_compilers import counts

HOPPER = ("tma_wgmma", "ring", "wide", "persistent", "multicast")
NAMES = tuple(rung.name for rung in CUDA_RUNGS)


def kernels(name: str, arch: str):
    """(facts of each kernel, ptxas' log) of one rung."""
    if compilers.find_nvcc(os.environ) is None:
        pytest.skip("no nvcc on this machine")
    binary, log = nvcc.compile_source(REPOSITORY / "csrc" / "matmul" / f"{name}.cu", arch)
    return nvcc.with_spills(cubin.read(binary, arch, "cuda", ("matmul",)), log, True), log


@pytest.mark.parametrize("rung", NAMES)
def test_a_rung_multiplies_and_copies_as_its_step_says(rung):
    facts, log = kernels(rung, "90a")
    assert facts and not nvcc.serialised(log)
    for kernel in facts:
        found = counts(kernel)
        assert kernel.spill_bytes == 0, kernel.name
        if rung in HOPPER:
            assert (found.matrix, found.async_copy) == (("wgmma",), ("tma",))
        elif rung == "mma":
            assert found.matrix == ("mma",)
        else:
            assert (found.matrix, found.async_copy) == ((), ())
            assert found.mix.get("FFMA", 0) > 0
    if rung == "register_tile":
        assert all(16 in counts(kernel).loads for kernel in facts)
    if rung in ("naive", "coalesced"):
        assert all(set(counts(kernel).loads) == {2} for kernel in facts)


@pytest.mark.parametrize("rung", HOPPER)
def test_a_hopper_rung_is_empty_on_other_archs_and_hands_over(rung):
    for arch in ("80", "100"):
        (kernel,) = kernels(rung, arch)[0]
        assert (counts(kernel).matrix, counts(kernel).stores) == ((), {})
    text = (REPOSITORY / "csrc" / "common" / "matmul_hopper_rungs.cuh").read_text()
    assert "return matmul_mma(" in text


# n row-major, t the view of a transposed matrix; around the tiles, off the 16-byte pack, empty.
SHAPES = (
    *((m, n, k, "nn") for m, n, k in ((0, 16, 16), (5, 8, 0), (1, 1, 1), (33, 31, 127))),
    *((m, n, k, "nn") for m, n, k in ((127, 136, 64), (257, 264, 72), (300, 1000, 520))),
    *((m, n, k, "nn") for m, n, k in ((129, 8, 8), (64, 64, 4096), (2049, 2056, 328))),
    (136, 128, 72, "nt"),
    (128, 129, 72, "tn"),
    (264, 272, 200, "tt"),
)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("m", "n", "k", "letters"), SHAPES)
def test_a_rung_is_right_in_every_layout_launch_after_launch(name, m, n, k, letters):
    import torch

    from harness import _cuda

    def matrix(rows, cols, letter, seed):
        torch.manual_seed(seed)
        if letter == "t":
            return torch.randn(cols, rows, device="cuda").bfloat16().t()
        return torch.randn(rows, cols, device="cuda").bfloat16()

    x, w = matrix(m, k, letters[0], 0), matrix(k, n, letters[1], 1)
    wanted = x.double() @ w.double()
    allowed = 2.0**-8 * wanted.abs() + 1e-6 * (x.double().abs() @ w.double().abs()) + 1e-6
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        out.fill_(float("nan"))
        getattr(_cuda, f"matmul_{name}")(x, w, out)
        assert bool(((out.double() - wanted).abs() <= allowed).all())
