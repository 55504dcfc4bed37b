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


def moves_16(c: Instructions) -> bool:
    return (16 in c.loads or 16 in c.async_bytes) and 16 in c.stores


def two_approximations(c: Instructions) -> bool:
    return c.mix.get("MUFU", 0) >= 2


def copies_16(c: Instructions) -> bool:
    return "cp.async" in c.async_copy and list(c.async_bytes) == [16]


def matrix(unit: str) -> Test:
    return lambda c: c.matrix == (unit,)


def copies_by_tma(c: Instructions) -> bool:
    return "tma" in c.async_copy


ADD, SOFTMAX = "vector_add", "softmax"
FUSED_PRODUCTS = ("matmul_bias_relu", "matmul_bias_gelu")
PRODUCTS = ("matmul", *FUSED_PRODUCTS)
FULL_SUMS = ("reduce_sum", "squared_norm")
CLAIMS = (
    Claim(f"csrc/{ADD}.cu", "keeps 16-byte accesses on all three streams", "*", streams_16),
    Claim(f"csrc/{ADD}.cu", "Levers left unused: bulk copies", "*", lambda c: not c.async_copy),
    Claim("csrc/axpby.cu", "A scalar head and tail surround 16-byte packs", "*", streams_16),
    Claim("csrc/axpby.cu", "one fused multiply-add", "*", lambda c: c.mix.get("FFMA", 0) > 0),
    *(
        Claim(f"csrc/{stem}.cu", "exp2 and a reciprocal", "*", two_approximations)
        for stem in ("swiglu", "swiglu_backward")
    ),
    *(
        Claim(f"csrc/{stem}.cu", "keep 16-byte accesses", "*", streams_16)
        for stem in ("swiglu", "swiglu_backward")
    ),
    *(
        Claim(f"triton_kernels/{stem}.py", "the full tile has its own branch", case, streams_16)
        for stem, case in (("axpby", "2^28 *"), ("axpby", "2^28:offset1 *"))
    ),
    *(
        Claim(f"triton_kernels/{stem}.py", "any row stride of at least n_cols", "* f32", streams_16)
        for stem in ("swiglu", "swiglu_backward")
    ),
    Claim(
        f"csrc/{SOFTMAX}.cu",
        "shared (row staged by cp.async",
        "softmax_shared_kernel*",
        lambda c: copies_16(c) and 16 in c.stores,
    ),
    Claim(f"csrc/{SOFTMAX}.cu", "registers (rows to 32 K)", "softmax_kernel*, true*>", streams_16),
    Claim(
        f"csrc/{SOFTMAX}.cu",
        "A view with an unaligned row takes element accesses",
        "*, false*>",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    Claim(f"csrc/{SOFTMAX}.cu", "1 to 2 exp2", "*", lambda c: c.mix.get("MUFU", 0) > 0),
    Claim(
        "csrc/matmul.cu",
        "wgmma fed by TMA (sm_90a)",
        "matmul_wgmma_kernel*",
        lambda c: matrix("wgmma")(c) and copies_by_tma(c),
        ("90a",),
    ),
    Claim(
        "csrc/matmul.cu",
        "else mma.sync fed by cp.async",
        "matmul_mma_kernel*, true>",
        lambda c: matrix("mma")(c) and copies_16(c),
    ),
    Claim(
        "csrc/matmul.cu",
        "nothing is copied or transposed beforehand",
        "matmul_mma_kernel*",
        lambda c: c.mix.get("LDSM", 0) > 0,
    ),
    Claim(
        "csrc/matmul.cu",
        "take an element-load form",
        "matmul_mma_kernel*, false>",
        lambda c: not c.async_copy and 16 not in c.loads,
    ),
    *(
        Claim(
            f"csrc/{stem}.cu",
            "matmul's two forms with another epilogue",
            "matmul_mma_kernel*",
            matrix("mma"),
        )
        for stem in FUSED_PRODUCTS
    ),
    *(Claim(f"csrc/{stem}.cu", "bound by DRAM", f"{stem}_kernel*", loads_16) for stem in FULL_SUMS),
    Claim("csrc/reduce_sum.cu", "Levers left unused: for", "*", lambda c: not c.async_copy),
    Claim("csrc/column_sum.cu", "a thread owns one pack of columns", "*, true>", loads_16),
    Claim(
        "csrc/column_sum.cu",
        "Levers left unused: a tile under 32 packs",
        "*",
        lambda c: not c.async_copy,
    ),
    *(Claim(f"triton_kernels/{stem}.py", "Bytes: one read", "*", loads_16) for stem in FULL_SUMS),
    Claim("triton_kernels/column_sum.py", "keeps 16-byte loads", "*", loads_16),
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
    Claim(f"triton_kernels/{SOFTMAX}.py", "VEC states the multiple that holds", "*", moves_16),
    *(
        Claim(f"triton_kernels/{stem}.py", words, "*", test, archs)
        for stem in PRODUCTS
        for words, test, archs in (
            ("descriptors (TMA) and persistent programs", copies_by_tma, ("90a",)),
            ("tl.dot becomes wgmma on sm_90", matrix("wgmma"), ("90a",)),
            ("and on sm_80", matrix("mma"), ("80",)),
        )
    ),
    Claim("csrc/rms_norm.cu", "a thread holds 16-byte packs", "*, true>", streams_16),
    *(
        Claim(f"csrc/{stem}.cu", words, f"{stem}_staged_kernel*", copies_16)
        for stem, words in (
            ("rms_norm", "staged (in shared memory by cp.async"),
            ("add_rms_norm", "The staged form keeps x and r in shared memory"),
        )
    ),
    Claim("csrc/add_rms_norm.cu", "16-byte packs; all loads", "*, true>", streams_16),
    Claim(
        "csrc/rms_norm.cu",
        "A tensor with an unaligned row takes element accesses",
        "*, false>",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    *(
        Claim(f"triton_kernels/{stem}.py", "VEC says which power of two", "*", moves_16)
        for stem in ("rms_norm", "add_rms_norm")
    ),
    Claim("csrc/cross_entropy.cu", "Any alignment keeps 16-byte loads", "*", loads_16),
    Claim(
        "csrc/cross_entropy.cu", "Levers left unused: bulk copies", "*", lambda c: not c.async_copy
    ),
    Claim(
        "csrc/cross_entropy_dlogits.cu",
        "Rows at any address keep 16-byte accesses",
        "cross_entropy_dlogits_kernel*",
        streams_16,
    ),
    Claim(
        "csrc/cross_entropy_dlogits.cu",
        "shared (row staged by cp.async",
        "*_shared_kernel*",
        lambda c: copies_16(c) and 16 in c.stores,
    ),
    Claim(
        "csrc/cross_entropy_dlogits.cu",
        "the looped form takes element accesses",
        "*_element_kernel*",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    Claim(
        "triton_kernels/cross_entropy.py", "reads rows at any address by 16 bytes", "*", loads_16
    ),
    Claim(
        "triton_kernels/cross_entropy_dlogits.py",
        "read and write rows at any address by 16 bytes",
        "*x50257 *",
        moves_16,
    ),
    Claim("csrc/dropout.cu", "packs of 16 bytes", "dropout_kernel*", streams_16),
    Claim(
        "csrc/dropout.cu",
        "views off 16-byte boundaries take element accesses",
        "dropout_element_kernel*",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    Claim("csrc/adamw.cu", "packs of 16 bytes", "adamw_kernel*", streams_16),
    Claim(
        "csrc/quant_fp8_group.cu",
        "16 adjacent bytes to store",
        "quant_fp8_group_kernel*",
        streams_16,
    ),
    Claim("csrc/quant_fp8_token.cu", "every lane stores 16", "quant_fp8_token_kernel*", streams_16),
    Claim(
        "triton_kernels/dropout.py",
        "The full tile has its own branch without a mask",
        "2^28 *",
        streams_16,
    ),
    Claim("triton_kernels/adamw.py", "the full tile has a branch of its own", "2^27 *", streams_16),
    Claim("triton_kernels/quant_fp8_group.py", "one layout serves load and store", "*", streams_16),
    Claim(
        "triton_kernels/quant_fp8_token.py",
        "VEC states the multiple that holds",
        "*",
        streams_16,
    ),
    Claim(
        "csrc/transpose.cu",
        "every access, global and shared, is 16 bytes wide",
        "transpose_kernel*",
        lambda c: list(c.loads) == [16] and list(c.stores) == [16],
    ),
    Claim(
        "csrc/transpose.cu",
        "all others move single elements",
        "transpose_elements_kernel*",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    Claim(
        "triton_kernels/transpose.py",
        "layouts for load and store are both 16 bytes wide",
        "16384x16384 *",
        streams_16,
    ),
    Claim("csrc/layer_norm.cu", "registers (one row a group", "layer_norm_kernel*", streams_16),
    Claim(
        "csrc/layer_norm.cu",
        "keep w and b in shared memory and load the next row",
        "layer_norm_resident_kernel*",
        lambda c: copies_16(c) and streams_16(c),
    ),
    Claim(
        "csrc/layer_norm.cu",
        "Rows that are not 16-byte aligned take element accesses",
        "layer_norm_looped_kernel*, false>",
        lambda c: 16 not in c.loads and 16 not in c.stores,
    ),
    Claim(
        "csrc/layer_norm_backward.cu",
        "x and dy of the next rows travel by cp.async",
        "layer_norm_backward_kernel*",
        lambda c: copies_16(c) and 16 in c.stores,
    ),
    Claim(
        "triton_kernels/layer_norm.py",
        "VEC says which power of two divides the strides",
        "*",
        moves_16,
    ),
    Claim(
        "triton_kernels/layer_norm_backward.py",
        "VEC says which power of two divides n_cols",
        "*",
        lambda c: 16 in c.loads or 16 in c.async_bytes,  # beside 4 of mean and rstd
    ),
    Claim("csrc/rope.cu", "owns one pack of 16 bytes of cos and of sin", "*, true>", streams_16),
    Claim("triton_kernels/rope.py", "accesses stay 16 bytes wide", "*", streams_16),
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
    spilled = {(k.op, case): k.spill_bytes for case, k in kernels if k.spill_bytes != 0}
    # Configurations chosen on an H200, borrowed here: ptxas needs a few registers more for sm_100.
    ops = ("cross_entropy_dlogits", "layer_norm", "matmul_bias_gelu", "reduce_sum")
    borrowed = ops if arch == "100" else ()
    assert not {name: n for name, n in spilled.items() if name[0] not in borrowed or (n or 64) > 64}


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
