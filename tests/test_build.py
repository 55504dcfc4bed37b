"""The CUDA side compiles for both architectures without spills, is bound whole, and imports."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import binding_text
import pytest

from harness import preflight
from harness.explain import nvcc, tools
from harness.explain.facts import ExplainError

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
SOURCES = sorted([*CSRC.glob("*.cu"), *CSRC.glob("*/*.cu")])
ARCHS = ("80", "90a")

# What the compiled form of each op must contain, as opcodes of nvdisasm.
EXPECTED_SASS = {
    "vector_add": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128"),
    "axpby": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"FFMA"),
    **dict.fromkeys(
        ("swiglu", "swiglu_backward"),
        (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"MUFU\.EX2", r"MUFU\.RCP"),
    ),
    "softmax": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"MUFU\.EX2"),
    "dropout": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"IMAD\.WIDE\.U32"),
    "adamw": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"MUFU\.RSQ"),
    "quant_fp8_group": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"HMNMX2[.\w]*\.NAN"),
    "quant_fp8_token": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"HMNMX2[.\w]*\.NAN"),
    "cross_entropy": (r"LDG\.E[.\w]*\.128", r"MUFU\.EX2", r"VHMNMX|HMNMX2"),
    "cross_entropy_dlogits": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"LDGSTS\.E[.\w]*\.128"),
    **dict.fromkeys(
        ("rms_norm", "add_rms_norm"),
        (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"MUFU\.RSQ"),
    ),
    **dict.fromkeys(
        ("reduce_sum", "squared_norm", "column_sum"),
        (r"LDG\.E[.\w]*\.128", r"ATOMG\.E\.INC[.\w]*\.GPU"),
    ),
    **dict.fromkeys(
        ("matmul", "matmul_bias_relu", "matmul_bias_gelu"),
        (r"HMMA\.16816", r"LDSM\.", r"LDGSTS\.E[.\w]*\.128", r"STG\.E[.\w]*\.128"),
    ),
    "transpose": (r"LDG\.E\.128", r"STG\.E\.128", r"STS\.128", r"LDS\.128", r"PRMT"),
    "rope": (r"LDG\.E\.128", r"STG\.E\.128"),
    "layer_norm": (r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128", r"MUFU\.RSQ"),
    "layer_norm_backward": (r"LDGSTS\.E[.\w]*\.128", r"LDS\.128", r"STG\.E[.\w]*\.128"),
}


@dataclass(frozen=True)
class Compiled:
    """error: nvcc's, "" when it compiled. log: of ptxas -v."""

    cubin: bytes
    log: str
    error: str = ""


@pytest.fixture(scope="session")
def facts() -> preflight.Preflight:
    found = preflight.inspect()
    if found.nvcc is None:
        pytest.skip("no nvcc on this machine")
    return found


@pytest.fixture(scope="session")
def compiled(facts: preflight.Preflight) -> dict[tuple[Path, str], Compiled]:
    """Every .cu for every architecture. No torch headers are on the include path.

    Kept under build/explain like those of `explain`, whose tests need the same ones.
    """

    def compile_one(job: tuple[Path, str]) -> Compiled:
        try:
            return Compiled(*nvcc.compile_source(*job))
        except ExplainError as error:
            return Compiled(b"", "", str(error))

    jobs = [(source, arch) for source in SOURCES for arch in ARCHS]
    with ThreadPoolExecutor(max_workers=facts.jobs) as pool:
        return dict(zip(jobs, pool.map(compile_one, jobs), strict=True))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_compiles_without_spills(
    compiled: dict[tuple[Path, str], Compiled], source: Path, arch: str
) -> None:
    result = compiled[source, arch]
    assert not result.error
    assert "Compiling entry function" in result.log
    assert not re.findall(r"\b[1-9]\d* bytes spill \w+", result.log), result.log
    assert "warning" not in result.log.lower(), result.log


@pytest.mark.parametrize("stem", EXPECTED_SASS)
def test_the_machine_code_is_the_intended_one(
    compiled: dict[tuple[Path, str], Compiled], stem: str, tmp_path: Path
) -> None:
    tool = tools.find("cuobjdump")
    if not tool:
        pytest.skip("no cuobjdump on this machine")
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled[CSRC / f"{stem}.cu", "90a"].cubin)
    text = tools.run([tool, "-sass", str(cubin)])
    assert text
    for opcode in EXPECTED_SASS[stem]:
        assert re.search(opcode, text), f"{stem} has no {opcode}"
    # A generic access: the compiler lost track of which memory a pointer is in. In a kernel with a
    # cluster's barrier a generic store is how another block's shared memory is written.
    for function in text.split("Function : "):
        generic = r"\bLD\.E" if "UCGABAR" in function else r"\b(LD|ST)\.E"
        assert not re.search(generic, function), function.splitlines()[0]


def test_only_bindings_knows_torch() -> None:
    pattern = re.compile(r'#include\s*[<"](torch|ATen|c10|pybind11|Python)')
    for path in CSRC.rglob("*"):
        if path.is_file() and path not in binding_text.FILES:
            assert not pattern.search(path.read_text()), path
    for slow in ("torch/extension.h", "ATen/cuda/CUDAContext.h"):
        assert slow not in binding_text.TEXT


def test_the_folder_of_the_bindings_holds_no_kernel() -> None:
    """The other folders of csrc/ do; builds tell them apart by the endings of their files."""
    assert {path.suffix for path in binding_text.FILES} == {".cpp", ".h"}


def declared() -> Iterator[str]:
    for match in re.finditer(
        r"^(?:cudaError_t|int) (\w+)\(", (CSRC / "kernels.h").read_text(), re.M
    ):
        yield match[1]


def test_every_declaration_is_bound_and_has_a_comment() -> None:
    names = list(declared())
    assert {"vector_add", "softmax", "matmul_bias_relu", "flush_l2"} <= set(names)
    for name in names:
        assert re.search(rf'm\.def\("{name}",', binding_text.TEXT), f"{name} is not bound"
        assert f"cvt::{name}" in binding_text.TEXT, f"the binding of {name} does not call it"
    lines = (CSRC / "kernels.h").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"(?:cudaError_t|int) \w+\(", line):
            assert before.startswith("//"), f"no comment above: {line}"


@pytest.fixture(scope="session")
def extension(facts: preflight.Preflight) -> None:
    """An extension that is up to date; builds it when a source is newer."""
    if facts.fatal:
        pytest.skip(facts.fatal[0].text)
    inputs = [*CSRC.rglob("*"), ROOT / "setup.py"]
    newest = max(path.stat().st_mtime for path in inputs if path.is_file())
    built = [path.stat().st_mtime for path in (ROOT / "harness").glob("_cuda*.so")]
    if not built or max(built) < newest:
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def python(code: str) -> str:
    """Runs code in a fresh process that sees no GPU; its output."""
    command = [sys.executable, "-c", code]
    env = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("extension")
def test_imports_and_refuses_cpu_tensors_without_a_gpu() -> None:
    names = [name for name in declared() if name != "reset_persisting_l2"]
    output = python(
        f"""
import torch
from harness import _cuda

missing = [name for name in {names!r} if not hasattr(_cuda, name)]
assert not missing, missing
info = _cuda.build_info()
assert info["torch"] == torch.__version__ and info["arch_list"], info
assert _cuda.roof_shapes() > 1
v = torch.zeros(4)
m = torch.zeros(4, 4, dtype=torch.bfloat16)
for call in (
    lambda: _cuda.vector_add(x=v, y=v, out=v, threads=0, vectors=0),
    lambda: _cuda.softmax(x=m, out=m, threads_per_row=0, form=0),
    lambda: _cuda.matmul(x=m, w=m, out=m, block_m=0, block_n=0, stages=0, cluster=0, blocks=0),
    lambda: _cuda.matmul_bias_relu(x=m, w=m, b=m[0], out=m, block_m=0, block_n=0, stages=0),
    lambda: _cuda.matmul_bias_gelu(x=m, w=m, b=m[0], out=m, cluster=0, blocks=0),
    lambda: _cuda.cross_entropy(x=m, target=v, out=v, threads_per_row=0, blocks_per_sm=0),
    lambda: _cuda.cross_entropy_dlogits(
        x=m, target=v, out=m, loss=v, threads_per_row=0, form=0, blocks_per_row=0
    ),
    lambda: _cuda.reduce_sum(x=v, out=v, threads=0, vectors=0, blocks_per_sm=0),
    lambda: _cuda.squared_norm(x=v, out=v, threads=0, vectors=0, blocks_per_sm=0),
    lambda: _cuda.column_sum(x=m, out=v, vectors=0, blocks_per_sm=0),
    lambda: _cuda.cub_reduce_sum(x=v, out=v),
    lambda: _cuda.cub_squared_norm(x=v, out=v),
    lambda: _cuda.flush_l2(buffer=v),
    lambda: _cuda.BatchTimer(flush_buffer=v, stamps=v),
    lambda: _cuda.roof_copy(dst=v, src=v, shape=0),
    lambda: _cuda.roof_read(src=v, sink=v, shape=0),
    lambda: _cuda.roof_write(dst=v, shape=0),
    lambda: _cuda.roof_add(dst=v, a=v, b=v, shape=0),
):
    try:
        call()
    except ValueError as error:
        assert "is on cpu, wanted a CUDA device; pass" in str(error), error
    else:
        raise SystemExit("a CPU tensor was accepted")
print("refused")
"""
    )
    assert output.split() == ["refused"]
