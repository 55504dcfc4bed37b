"""`sanitize` with a stand-in for the tool: clean, findings, crash, hang, missing; no GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness import cli, sanitize_view
from harness.registry import REPOSITORY, Registry
from harness.sanitize import Cell, Setup, exit_code, run_tool
from harness.sanitize_cover import (
    by_function,
    in_ptx,
    in_sass,
    of_op,
    of_sources,
)
from harness.sanitize_tools import (
    MODELLED_SINCE,
    TOOLS,
    command,
    find_tool,
    not_modelled,
    parse,
    version_of,
)

FAKE = Path(__file__).with_name("fake_sanitizer.py")
STEMS = Registry().stems
PAIRS = [(op, side) for op in STEMS for side in ("cuda", "triton")]
RELEASE = (2025, 3)


@pytest.fixture
def setup(tmp_path) -> Setup:
    return Setup(FAKE, RELEASE, tmp_path, timeout_s=20.0)


def cells_of(setup: Setup, monkeypatch, tool: str, behaviour: str):
    monkeypatch.setenv("FAKE_SANITIZER", f"{tool}={behaviour}")
    return run_tool(setup, tool, PAIRS)


def statuses(cells) -> set[str]:
    return {cell.status for cell in cells.values()}


# ---- one tool ------------------------------------------------------------------------------------


def test_nothing_found_is_clean(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "memcheck", "clean")
    assert list(cells) == PAIRS
    assert statuses(cells) == {"clean"}
    assert exit_code(list(cells.values())) == 0


def test_what_the_tool_does_not_model_is_not_covered(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "racecheck", "clean")
    assert str(cells["matmul_bias_relu", "triton"]) == "not covered: wgmma"
    assert statuses(cells) == {"clean", "not covered"}
    assert exit_code(list(cells.values())) == 0


def test_the_cuda_sides_instructions_come_from_its_machine_code(tmp_path, monkeypatch):
    setup = Setup(FAKE, RELEASE, tmp_path, cuda_instructions=lambda op, capability: {"tcgen05"})
    cells = cells_of(setup, monkeypatch, "racecheck", "clean")
    assert str(cells["softmax", "cuda"]) == "not covered: tcgen05"


def test_a_finding_belongs_to_its_kernel_and_the_rest_runs_again(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "memcheck", "invalid")
    assert str(cells["softmax", "cuda"]) == "1 finding"
    assert "Invalid __global__ read" in cells["softmax", "cuda"].findings[0].text
    assert cells["softmax", "triton"].status == "clean"
    assert cells["vector_add", "triton"].status == "clean"
    assert exit_code(list(cells.values())) == 1


def test_a_race_is_a_finding_though_not_everything_is_covered(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "racecheck", "race")
    assert str(cells["matmul_bias_relu", "triton"]) == "1 finding"
    assert cells["matmul_bias_relu", "cuda"].status == "clean"


def test_findings_that_name_no_kernel_of_ours_are_kept_apart(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "initcheck", "stranger")
    assert str(cells["elsewhere", ""]) == "3 findings"
    assert exit_code(list(cells.values())) == 1


def test_a_crash_costs_its_own_cell(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "synccheck", "crash")
    assert str(cells.pop(("softmax", "triton"))) == "not run: ended with exit code 139"
    assert statuses(cells) == {"clean"}


def test_a_hang_costs_its_own_cell(tmp_path, monkeypatch):
    setup = Setup(FAKE, RELEASE, tmp_path, timeout_s=2.0)
    cells = cells_of(setup, monkeypatch, "synccheck", "hang")
    assert exit_code(list(cells.values())) == 2
    assert str(cells.pop(("softmax", "triton"))) == "not run: not done after 2 s"
    assert statuses(cells) == {"clean"}


def test_a_tool_that_cannot_run_here_says_why_once(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "memcheck", "unsupported")
    assert statuses(cells) == {"not run"}
    assert "Device not supported" in str(cells["softmax", "cuda"])
    assert len(list(setup.folder.glob("*.log"))) == 1


def test_without_its_summary_nothing_is_clean(setup, monkeypatch):
    assert statuses(cells_of(setup, monkeypatch, "memcheck", "silent")) == {"not run"}


def test_a_kernel_that_the_filter_misses_is_not_clean(setup, monkeypatch):
    cells = cells_of(setup, monkeypatch, "memcheck", "renamed")
    assert "my_kernel is not named after its op" in str(cells["softmax", "triton"])
    assert cells["softmax", "cuda"].status == "clean"


def test_findings_come_before_what_was_not_run():
    assert exit_code([Cell("clean"), Cell("not covered"), Cell("absent")]) == 0
    assert exit_code([Cell("clean"), Cell("not run")]) == 2
    assert exit_code([Cell("not run"), Cell("findings")]) == 1


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def on_path(tmp_path, monkeypatch) -> Path:
    """The stand-in as the only compute-sanitizer, on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(FAKE, folder / "compute-sanitizer")
    (folder / "python3").symlink_to(sys.executable)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(sanitize_view, "refuse_missing_device", lambda device: True)
    return folder


def run_command(capsys, *words: str) -> tuple[int, str]:
    code = cli.main(["sanitize", *words])
    return code, capsys.readouterr().out


def test_the_table_has_a_row_for_each_side_and_a_column_for_each_tool(on_path, capsys, monkeypatch):
    monkeypatch.setattr(sanitize_view, "cuda_instructions", lambda _: lambda op, capability: set())
    monkeypatch.setenv("FAKE_SANITIZER", "memcheck=invalid")
    console = Console(width=200)
    monkeypatch.setattr("harness.console.stdout", console)
    code, text = run_command(capsys)
    assert code == 1
    for word in (*TOOLS, *STEMS, "1 finding", "not covered: wgmma", "softmax.cu:160"):
        assert word in text
    assert "1 findings" in text.splitlines()[-1]


def test_clean_says_that_what_is_not_covered_is_not_cleared(on_path, capsys, monkeypatch):
    monkeypatch.setattr(sanitize_view, "cuda_instructions", lambda _: lambda op, capability: set())
    code, text = run_command(capsys, "--tool", "racecheck", "--op", "matmul_bias_relu")
    assert code == 0
    assert "has not been cleared" in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "wanted"), [(["--op", "nope"], "nope"), (["--dtype", "f8"], "'f8'")]
)
def test_what_does_not_exist_is_refused(on_path, capsys, words, wanted):
    assert cli.main(["sanitize", *words]) == 2
    assert wanted in capsys.readouterr().err


def test_a_missing_tool_is_one_line_with_the_remedy(capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(sanitize_view, "find_tool", lambda *_: None)
    assert cli.main(["sanitize"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'cuda-toolkit[sanitizer]" in error


def test_the_tool_is_found_where_cuda_home_says_and_on_path(tmp_path, on_path):
    assert find_tool(os.environ) == on_path / "compute-sanitizer"
    # A toolkit may keep it beside bin, in a folder of the same name.
    home = tmp_path / "toolkit"
    (home / "compute-sanitizer").mkdir(parents=True)
    (home / "bin").mkdir()
    shutil.copy(FAKE, home / "compute-sanitizer" / "compute-sanitizer")
    found = find_tool({"CUDA_HOME": str(home), "PATH": os.environ["PATH"]})
    assert found == home / "compute-sanitizer" / "compute-sanitizer"
    assert version_of(found) == RELEASE


def test_a_tool_that_tells_no_version_models_nothing(tmp_path):
    assert version_of(tmp_path / "none") == (0, 0)
    assert not_modelled("memcheck", (0, 0), ["cp.async"]) == ("cp.async",)


def test_only_our_kernels_are_watched(tmp_path):
    words = command(FAKE, "memcheck", STEMS, tmp_path / "log")
    filters = [words[i + 1] for i, word in enumerate(words) if word == "--kernel-name"]
    assert filters == [f"kernel_substring={stem}_" for stem in STEMS]
    assert "--report-api-errors" in words
    assert "--report-api-errors" not in command(FAKE, "racecheck", STEMS, tmp_path / "log")


# ---- coverage ------------------------------------------------------------------------------------

SASS = """
arch = sm_80
\t\tFunction : _ZN14cuda_vs_triton14softmax_kernelIfEEv4Args
        /*0000*/                   LDGSTS.E.BYPASS.128 [R5], [R2.64] ;
arch = sm_90a
\t\tFunction : _ZN14cuda_vs_triton14softmax_kernelIfEEv4Args
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/              @!P0 UTMALDG.2D [UR8], [UR4] ;
\t\tFunction : _ZN14cuda_vs_triton19matmul_wgmma_kernelIfNS_8BiasReluEEEvv
        /*0000*/                   HGMMA.64x256x16.F32 R24, gdesc[UR4] ;
        /*0010*/               @P1 SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2] ;
\t\tFunction : _ZN14cuda_vs_triton17matmul_mma_kernelIfNS_10NoEpilogueEEEvv
        /*0000*/                   LDGSTS.E.BYPASS.128 [R5], [R2.64] ;
"""


def test_machine_code_is_read_by_function_and_architecture():
    functions = by_function(SASS, "90")
    assert of_op(functions, "softmax", STEMS) == {"cp.async.bulk.tensor"}
    assert of_op(functions, "matmul_bias_relu", STEMS) == {"wgmma", "mbarrier"}
    assert of_op(functions, "matmul", STEMS) == {"cp.async"}
    assert of_op(functions, "vector_add", STEMS) is None
    everything = by_function(SASS, "100")
    assert of_op(everything, "softmax", STEMS) == {"cp.async", "cp.async.bulk.tensor"}
    assert in_sass("        /*0040*/   FADD R1, R2, R3 ;") == set()


def test_instructions_are_found_in_ptx():
    ptx = "cp.async.bulk.tensor.2d.shared::cluster.global; wgmma.mma_async.sync; mbarrier.init.b64"
    assert in_ptx(ptx) == {"cp.async.bulk.tensor", "wgmma", "mbarrier"}
    assert in_ptx("cp.async.cg.shared.global [%0], [%1], 16;") == {"cp.async"}
    assert in_ptx("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes") == {
        "cp.async.bulk"
    }
    assert in_ptx("cp.async.bulk.commit_group; cp.async.commit_group;") == set()


@pytest.mark.parametrize("op", STEMS)
def test_the_sources_hold_nothing_that_only_the_machine_code_would_show(op):
    """Where no cuobjdump is found, the sources are read instead: those that an op includes."""
    files = Registry().kernel_files(op, "cuda")
    hopper = {"wgmma", "mbarrier", "cp.async.bulk.tensor"}
    allowed = hopper if Registry().spec(op).family == "matmul" else set()
    assert of_sources(files) <= {"cp.async"} | allowed


def test_every_instruction_has_a_release_for_each_tool_or_does_not_matter_to_it():
    instructions = {instruction for _, instruction in MODELLED_SINCE}
    for tool in ("memcheck", "racecheck"):
        unknown = {i for i in instructions if (tool, i) not in MODELLED_SINCE}
        assert unknown <= {"mbarrier"}
    assert not_modelled("racecheck", RELEASE, ["wgmma", "cp.async"]) == ("wgmma",)
    assert not_modelled("initcheck", (2025, 3), ["cp.async.bulk"]) == ("cp.async.bulk",)
    assert not_modelled("initcheck", (2025, 4), ["cp.async.bulk"]) == ()


# ---- the tool's text -----------------------------------------------------------------------------


def test_more_in_the_summary_than_printed_is_not_lost():
    report = parse("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 7 errors\n", STEMS)
    assert len(report.findings) == 7


def test_an_internal_error_is_no_finding_and_no_clean_answer():
    text = "========= Internal Sanitizer Error\n========= ERROR SUMMARY: 0 errors\n"
    report = parse(text, STEMS)
    assert report.findings == ()
    assert report.problem == "Internal Sanitizer Error"


def test_what_the_tool_says_of_itself_is_kept_and_no_finding():
    warning = "Warning: Detected overflow of tracked barriers. Results might be incorrect."
    report = parse(f"========= {warning}\n========= ERROR SUMMARY: 0 errors\n", STEMS)
    assert (report.findings, report.problem, report.warnings) == ((), "", (warning,))


def test_a_program_that_never_came_to_the_gpu_is_no_finding():
    """As 2025.3 prints it."""
    text = """\
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
========= Error: couldn't find exit code.
"""
    report = parse(text, STEMS)
    assert report.findings == ()
    assert "terminated before first" in report.problem


def test_one_ops_name_in_anothers_is_not_confused():
    stems = ("add", "vector_add")
    text = "========= Invalid read\n=========     at vector_add_kernel+0x10 in vector_add.py:3\n"
    (finding,) = parse(text + "========= ERROR SUMMARY: 1 error\n", stems).findings
    assert (finding.op, finding.side) == ("vector_add", "triton")


# ---- the driver ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "side"), PAIRS)
def test_the_driver_launches_every_dtype_and_every_cuda_configuration(op, side):
    from harness.sanitize_driver import launches

    spec = Registry().spec(op)
    found = list(launches(spec, side, []))
    assert {dtype for _, dtype, _ in found} == set(spec.dtypes)
    assert any(config for _, _, config in found)
    assert len(found) < 150
    assert {dtype for _, dtype, _ in launches(spec, side, [spec.dtypes[0]])} == {spec.dtypes[0]}


# ---- on a GPU, with the tool ---------------------------------------------------------------------

BAD_SPEC = """
from dataclasses import replace
from harness.specs.vector_add import SPEC as ADD
SPEC = replace(ADD, stem="bad_add", absent={"cuda": "made to fail", "library": "made to fail"})
"""
BAD_KERNEL = """
import triton
import triton.language as tl

@triton.jit
def bad_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets)  # past the end: no mask
    y = tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + y, mask=offsets < n)

def bad_add(x, y, out, *, BLOCK_SIZE=1024, num_warps=4):
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK_SIZE),)
        bad_add_kernel[grid](x, y, out, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
"""


def sanitize_here(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", "sanitize", *words]
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env=environment, timeout=400
    )


def skip_without_the_tool() -> None:
    torch = pytest.importorskip("torch")
    if find_tool(os.environ, torch.version.cuda or "") is None:
        pytest.skip("no compute-sanitizer")


@pytest.mark.gpu
def test_a_kernel_that_reads_past_its_end_is_found(tmp_path):
    skip_without_the_tool()
    for folder, text in (("harness/specs", BAD_SPEC), ("triton_kernels", BAD_KERNEL)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "bad_add.py").write_text(text)
    done = sanitize_here(
        "--kernels", str(tmp_path), "--op", "bad_add", "--tool", "memcheck", "--dtype", "f32"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"memcheck bad_add triton: Invalid __global__ read", done.stdout), done.stdout


@pytest.mark.gpu
def test_a_right_kernel_is_clean():
    skip_without_the_tool()
    done = sanitize_here("--op", "vector_add", "--tool", "memcheck", "--dtype", "f32")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 clean" in done.stdout
