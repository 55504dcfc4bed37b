"""The repository's own kernels: no spills anywhere, and what their headers claim is in the code.

A row of CLAIMS quotes a file's header or docstring and says which class of instruction proves it.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import compilers
from harness.explain import nvcc
from harness.explain.facts import Instructions, KernelFacts, kernel_from_json
from harness.registry import Registry
from tests.test_facts_of_compilers import counts, environment, python

ROOT = Path(__file__).resolve().parent.parent
ARCHS = ("80", "90a", "100")
Test = Callable[[Instructions], bool]


@dataclass(frozen=True)
class Claim:
    """words: of the file's header, in which line breaks and comment marks count as blanks.
    kernels: glob of kernel names, or of cases for Triton. archs: those that it is about."""

    file: str
    words: str
    kernels: str
    test: Test
    archs: tuple[str, ...] = ARCHS


def loads_16(c: Instructions) -> bool:
    return 16 in c.loads


def streams_16(c: Instructions) -> bool:
    return 16 in c.loads and 16 in c.stores


def copies_16(c: Instructions) -> bool:
    return "cp.async" in c.async_copy and list(c.async_bytes) == [16]


def matrix(unit: str) -> Test:
    return lambda c: c.matrix == (unit,)


def no_tma(c: Instructions) -> bool:
    return "tma" not in c.async_copy


ADD, SOFTMAX, PRODUCT = "vector_add", "softmax", "matmul_bias_relu"
CLAIMS = (
    Claim(f"csrc/{ADD}.cu", "keeps 16-byte accesses on all three streams", "*", streams_16),
    Claim(f"csrc/{ADD}.cu", "Levers left unused: bulk copies", "*", lambda c: not c.async_copy),
    Claim(
        f"csrc/{SOFTMAX}.cu",
        "shared (row staged by cp.async",
        "softmax_shared_kernel*",
        lambda c: copies_16(c) and 16 in c.stores,
    ),
    Claim(f"csrc/{SOFTMAX}.cu", "registers (rows to 32 K)", "softmax_kernel*, true>", streams_16),
    Claim(
        f"csrc/{SOFTMAX}.cu",
        "A view with an unaligned row takes element accesses",
        "*, false>",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    Claim(f"csrc/{SOFTMAX}.cu", "1 to 2 exp2", "*", lambda c: c.mix.get("MUFU", 0) > 0),
    Claim(
        f"csrc/{PRODUCT}.cu",
        "Choice: mma.sync + cp.async",
        "*, true>",
        lambda c: matrix("mma")(c) and copies_16(c),
    ),
    Claim(
        f"csrc/{PRODUCT}.cu",
        "w is read as [K, N] through transposing ldmatrix",
        "*",
        lambda c: c.mix.get("LDSM", 0) > 0,
    ),
    Claim(
        f"csrc/{PRODUCT}.cu",
        "takes an element-load form of one tile",
        "*, false>",
        lambda c: not c.async_copy and 16 not in c.loads,
    ),
    Claim(f"csrc/{PRODUCT}.cu", "Levers left unused there: TMA, wgmma", "*", no_tma),
    Claim(
        f"triton_kernels/{ADD}.py",
        "the full tile has its own branch without a mask",
        "2^28-1 *",
        streams_16,
    ),
    Claim(
        f"triton_kernels/{ADD}.py",
        "are stepped back to it by SHIFT and keep 16-byte accesses",
        "2^28:offset1 *",
        streams_16,
    ),
    Claim(f"triton_kernels/{SOFTMAX}.py", "VEC states the multiple that holds", "*", streams_16),
    Claim(
        f"triton_kernels/{PRODUCT}.py",
        "travel ahead through cp.async into shared memory",
        "*",
        copies_16,
    ),
    Claim(
        f"triton_kernels/{PRODUCT}.py",
        "tl.dot becomes wgmma on sm_90",
        "*",
        matrix("wgmma"),
        ("90a",),
    ),
    Claim(f"triton_kernels/{PRODUCT}.py", "and on sm_80", "*", matrix("mma"), ("80",)),
    Claim(f"triton_kernels/{PRODUCT}.py", "tensor descriptors (TMA)", "*", no_tma),
)


@functools.cache
def cuda_kernels(arch: str) -> list[KernelFacts]:
    if compilers.find_nvcc(os.environ) is None:
        pytest.skip("no nvcc on this machine")
    return nvcc.kernels(arch, Registry().stems)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@functools.cache
def triton_kernels(arch: str, cache: Path) -> list[tuple[str, KernelFacts]]:
    """(case, facts) of every kernel that the default bench cases launch."""
    pytest.importorskip("triton")
    command = ("-m", "harness", "explain", "--side", "triton", "--json", "--arch", arch)
    data = json.loads(python(*command, env=environment(cache)))
    kernels = {name: kernel_from_json(entry) for name, entry in data["kernels"].items()}
    return [(case, kernels[v["hash"]]) for v in data["variants"] for case in v["cases"]]


@pytest.mark.parametrize("arch", ARCHS)
def test_no_cuda_kernel_spills_and_no_wgmma_is_serialised(arch):
    kernels = cuda_kernels(arch)
    assert {kernel.op for kernel in kernels} >= set(Registry().stems)
    assert not {k.name: k.spill_bytes for k in kernels if k.spill_bytes != 0}
    assert not {k.name: k.stack_bytes for k in kernels if k.stack_bytes}
    for source in nvcc.sources():
        assert not nvcc.serialised(nvcc.compile_source(source, arch)[1]), source.name


@pytest.mark.parametrize("arch", ARCHS)
def test_no_triton_kernel_of_a_bench_case_spills(arch, cache):
    kernels = triton_kernels(arch, cache)
    assert {kernel.op for _, kernel in kernels} == set(Registry().stems)
    assert not {case: k.spill_bytes for case, k in kernels if k.spill_bytes != 0}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: f"{Path(c.file).name}: {c.words[:40]}")
def test_what_a_header_claims_is_in_the_machine_code(claim, cache):
    text = re.sub(r"[\s/]+", " ", (ROOT / claim.file).read_text())
    wanted = re.sub(r"[\s/]+", " ", claim.words)
    assert wanted.lower() in text.lower(), "the claim is gone from the file: drop its row here"
    stem = Path(claim.file).stem
    for arch in claim.archs:
        if claim.file.startswith("csrc"):
            named = [(kernel.name, kernel) for kernel in cuda_kernels(arch)]
        else:
            named = triton_kernels(arch, cache)
        fitting = [
            (name, kernel)
            for name, kernel in named
            if kernel.op == stem and fnmatch.fnmatchcase(name, claim.kernels)
        ]
        assert fitting, f"no kernel fits {claim.kernels}"
        failing = [name for name, kernel in fitting if not claim.test(counts(kernel))]
        assert not failing, (arch, failing)


def test_every_kernel_file_has_a_claim():
    files = {claim.file for claim in CLAIMS}
    for stem in Registry().stems:
        assert {f"csrc/{stem}.cu", f"triton_kernels/{stem}.py"} <= files
