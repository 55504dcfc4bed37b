"""Known kernels compiled for three archs: their facts must be those that their source implies.

Classes of instructions are asserted, never counts: those change with every release.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import compilers
from harness.explain import cubin, elf, extension, nvcc
from harness.explain.facts import ExplainError, Instructions, KernelFacts, kernel_from_json

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "explain_kernels" / "cuda_samples.cu"


def environment(cache: Path, **further: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    own = {"TRITON_CACHE_DIR": str(cache / "triton"), "CUDA_VISIBLE_DEVICES": ""}
    return kept | own | {"CVT_EXPLAIN_CACHE": str(cache / "explain")} | further


def python(*arguments: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explain")


@functools.cache
def triton_facts(arch: int, cache: Path, *names: str) -> dict[str, tuple[KernelFacts, int]]:
    pytest.importorskip("triton")
    probe = ("-m", "tests.explain_kernels.probe", str(arch), *names)
    data = json.loads(python(*probe, env=environment(cache)))
    return {
        name: (kernel_from_json(entry), entry["dynamic_shared_bytes"])
        for name, entry in data["kernels"].items()
    }


def counts(kernel: KernelFacts) -> Instructions:
    assert kernel.instructions is not None
    return kernel.instructions


@functools.cache
def cuda_facts(arch: str) -> dict[str, KernelFacts]:
    if compilers.find_nvcc(os.environ) is None:
        pytest.skip("no nvcc on this machine")
    binary, log = nvcc.compile_source(SAMPLES, arch)
    facts = nvcc.with_spills(cubin.read(binary, arch, "cuda", ()), log, same_build=True)
    return {kernel.name: kernel for kernel in facts}


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_alignment_of_the_mask_decides_the_width_of_tritons_loads(arch, cache):
    facts = triton_facts(arch, cache)
    aligned, odd = counts(facts["add"][0]), counts(facts["add odd"][0])
    assert 16 in aligned.loads
    assert 4 not in aligned.loads
    assert 4 in odd.loads
    assert 16 not in odd.loads


@pytest.mark.parametrize("arch", ["80", "90a", "100"])
def test_cuda_loads_are_as_wide_as_the_type_in_the_source(arch):
    facts = cuda_facts(arch)
    assert list(counts(facts["wide_kernel"]).loads) == [16]
    assert list(counts(facts["scalar_kernel"]).loads) == [4]


@pytest.mark.parametrize(("arch", "unit"), [(80, "mma"), (90, "wgmma"), (100, "tcgen05")])
def test_triton_takes_the_matrix_unit_of_the_arch(arch, unit, cache):
    kernel, shared = triton_facts(arch, cache)["product"]
    assert counts(kernel).matrix == (unit,)
    assert counts(kernel).async_copy == ("cp.async",)  # no TMA without descriptors
    assert shared > 0
    assert kernel.arch == {80: "80", 90: "90a", 100: "100a"}[arch]


def test_before_sm_80_there_is_no_matrix_unit_and_a_warning(cache):
    kernel, _ = triton_facts(75, cache, "product")["product"]
    assert counts(kernel).matrix == ()
    assert kernel.stack_bytes
    assert any("no matrix unit" in warning for warning in kernel.warnings)


def test_a_small_tile_on_sm_90_is_mma_and_not_wgmma(cache):
    assert counts(triton_facts(90, cache)["small product"][0]).matrix == ("mma",)


def test_a_spill_is_told_from_a_local_array(cache):
    big, _ = triton_facts(80, cache)["big product"]
    assert big.spill_bytes
    assert any("spills" in warning for warning in big.warnings)
    assert big.sources["spills"] == "ptxas log"
    for arch in ("80", "90a", "100"):
        facts = cuda_facts(arch)
        spilling, array = facts["spilling_kernel"], facts["local_array_kernel"]
        assert spilling.spill_store_bytes
        assert spilling.spill_load_bytes
        assert (array.spill_bytes, array.stack_bytes) == (0, 1024)
        assert counts(array).local_accesses


@pytest.mark.parametrize("arch", ["80", "90a", "100"])
def test_shared_memory_is_what_somebody_declared(arch, cache):
    facts = cuda_facts(arch)
    assert facts["wide_kernel"].static_shared_bytes == 0
    assert facts["shared_kernel"].static_shared_bytes == 256
    for name, uses_shared in (("add", False), ("row max", True)):
        kernel, dynamic = triton_facts(cubin.arch_number(arch), cache)[name]
        assert kernel.static_shared_bytes == 0
        assert bool(dynamic) is uses_shared
        assert dynamic < 1024


def test_listings_with_and_without_the_systems_part_give_the_same():
    assert [cubin.user_shared(listed, "90a") for listed in (0, 1024, 1040, 1280)] == [0, 0, 16, 256]
    assert [cubin.user_shared(listed, "80") for listed in (0, 256, 1280)] == [0, 256, 1280]


def test_every_template_instance_is_a_kernel_and_none_takes_anothers_counts():
    facts = cuda_facts("90a")
    loads = {name: sum(counts(kernel).loads.values()) for name, kernel in facts.items()}
    assert loads["repeat_kernel<4>"] == 4 * loads["repeat_kernel<1>"]
    assert loads["repeat_kernel_twice"] == 1
    assert len({kernel.hash for kernel in facts.values()}) == len(facts)


def test_sources_of_one_name_in_two_folders_both_have_facts(tmp_path, monkeypatch):
    """The rungs softmax/naive.cu and transpose/naive.cu, of which one was lost."""
    monkeypatch.setenv("CVT_EXPLAIN_CACHE", str(tmp_path / "explain"))
    found = compilers.find_nvcc(os.environ)
    if found is None:
        pytest.skip("no nvcc on this machine")
    sources = [tmp_path / folder / "same.cu" for folder in ("first", "second")]
    for source in sources:
        source.parent.mkdir()
        name = f"{source.parent.name}_kernel"
        source.write_text(f'extern "C" __global__ void {name}(int* p) {{ *p = 1; }}\n')
    library = tmp_path / "library.so"
    command = [found.path, "-shared", "-Xcompiler", "-fPIC", "-cudart=none"]
    command += ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"]
    done = subprocess.run(
        [*command, "-o", str(library), *map(str, sources)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    kernels = extension.kernels(library, "90a", ["first", "second"])
    assert [(k.name, k.op, k.arch) for k in kernels] == [
        ("first_kernel", "first", "90a"),
        ("second_kernel", "second", "90a"),
    ]


@pytest.mark.parametrize("content", [b"", b"\x01" * 64])
def test_a_fat_binary_of_another_layout_is_refused(content, monkeypatch):
    section = elf.Section(".nv_fatbin", len(content), content)
    monkeypatch.setattr(elf, "sections", lambda binary: {".nv_fatbin": section})
    if not content:
        assert list(elf.fat_binaries(b"")) == []
        return
    with pytest.raises(ExplainError, match=r"no fat binary at byte 0 of \.nv_fatbin: 0x1010101"):
        list(elf.fat_binaries(b""))


def test_another_ptxas_changes_the_recorded_version_and_the_cubin(cache):
    pytest.importorskip("triton")
    found = compilers.find_nvcc(os.environ)
    other = Path(found.home, "bin", "ptxas") if found else None
    if other is None or not other.exists():
        pytest.skip("no second ptxas on this machine")
    probe = ("-m", "tests.explain_kernels.probe", "90", "add")
    own = json.loads(python(*probe, env=environment(cache)))
    switched = json.loads(python(*probe, env=environment(cache, TRITON_PTXAS_PATH=str(other))))
    if own["flags"]["triton_ptxas"] == compilers.ptxas_version(found.home):
        pytest.skip("both ptxas are of one version")
    assert switched["flags"]["triton_ptxas"] == compilers.ptxas_version(found.home)
    assert switched["flags"]["TRITON_PTXAS_PATH"] == str(other)
    assert own["flags"]["triton_ptxas"] != switched["flags"]["triton_ptxas"]
    # In one cache folder: it was built anew beside the first and not taken from there.
    assert own["kernels"]["add"]["cubin"] != switched["kernels"]["add"]["cubin"]


WITHOUT_TOOLS = """
import sys
from harness.explain import tools
tools.find = lambda name: ""
sys.argv = ["probe", "90", "add"]
from tests.explain_kernels import probe
probe.main()
"""


def test_without_a_disassembler_ptx_speaks_and_says_so(tmp_path):
    pytest.importorskip("triton")
    data = json.loads(python("-c", WITHOUT_TOOLS, env=environment(tmp_path)))
    facts = kernel_from_json(data["kernels"]["add"])
    assert counts(facts).source == "ptx"
    assert facts.sources["instructions"] == "ptx"
    assert 16 in counts(facts).loads
    assert facts.registers is None
    assert facts.spill_bytes is None


def test_without_a_disassembler_and_ptx_facts_are_unknown_and_nothing_fails(monkeypatch):
    binary, _ = nvcc.compile_source(SAMPLES, "80") if cuda_facts("80") else (b"", "")
    monkeypatch.setattr(cubin.tools, "find", lambda name: "")
    for kernel in cubin.read(binary, "80", "cuda", ()):
        assert kernel.instructions is None
        assert kernel.registers is None
        assert kernel.hash
