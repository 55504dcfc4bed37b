"""What others reported of timing, checking and running kernels, each with the tests that hold it.

The table names them; the tests that stood nowhere else are below it, and those that need a GPU in
test_field_reports_gpu.py.
"""

from __future__ import annotations

import ast
import math
import os
import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest
from fixtures.recorded_runs import QUICK

from harness import cli, commands, machine, sweep
from harness.plan import Unit
from harness.protocol import Contender
from harness.registry import REPOSITORY, Registry
from harness.results import read_run
from harness.roofs import Roofs
from harness.rows import RowMaker
from harness.schema import META_FACTS, meta_fact
from harness.spec import Case
from harness.supervisor import Supervisor

TESTS = Path(__file__).resolve().parent
REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"

# Report -> (what was seen, tests without a GPU, tests that need one).
REPORTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "T01": (
        "the flush was counted inside the timed window",
        ("test_case_run::test_every_row_names_its_flush",),
        ("test_gpu_timing::test_the_flush_is_outside_the_interval",),
    ),
    "T02": (
        "repeats ran out of L2 and passed the card's peak",
        (
            "test_plausible::test_peaks",
            "test_field_reports::test_a_row_above_the_peak_is_listed_and_in_no_ratio",
            "test_plots::test_failed_rows_are_counted_not_drawn",
            "test_compare::test_cold_against_warm_is_refused",
        ),
        (
            "test_field_reports_gpu::test_copies_of_all_sizes_stay_below_the_peak",
            "test_gpu_timing::test_a_dirty_flush_slows_a_read_and_a_warm_cache_speeds_it",
        ),
    ),
    "T03": (
        "a synchronise before each launch was measured as the kernel's time",
        ("test_compare::test_launch_bound_rows_have_their_own_mean",),
        ("test_field_reports_gpu::test_a_tiny_add_is_launch_bound_and_its_graph_is_shorter",),
    ),
    "T04": (
        "whoever ran first was measured on a card that was still waking up",
        ("test_case_run::test_a_good_row_has_all_three_times",),
        ("test_field_reports_gpu::test_the_order_of_cases_does_not_matter",),
    ),
    "T06": (
        "a time of zero gave infinite throughput",
        (
            "test_field_reports::test_a_time_that_cannot_be_is_invalid_and_the_exit_code_says_so",
            "test_measure::test_a_lying_timer_gives_no_usable_sample_and_harms_no_other_row",
            "test_results::test_times_that_cannot_be_are_refused_in_ok_rows_and_kept_in_invalid_ones",
        ),
        (),
    ),
    "T08": (
        "whoever ran second found the clock lowered",
        ("test_measure::test_order_is_reshuffled_by_the_seed_and_does_not_pick_the_winner",),
        (
            "test_gpu_timing::test_who_comes_first_does_not_matter",
            "test_gpu_timing::test_the_stamps_read_a_plausible_clock_and_the_batch_its_time",
        ),
    ),
    "T09": (
        "constant inputs ran faster than random ones",
        ("test_field_reports::test_a_run_on_constants_is_not_compared_with_one_on_random_numbers",),
        ("test_field_reports_gpu::test_zeros_are_no_slower_than_the_inputs_that_are_timed",),
    ),
    "T11": (
        "a new size compiled in the middle of the timing",
        (),
        ("test_gpu_timing::test_no_compilation_inside_timed_sections",),
    ),
    "C01": (
        "an output that was never written held the reference's memory",
        ("test_check::test_an_unwritten_output_fails_after_poison",),
        ("test_bad_kernels_gpu::test_a_bad_kernel_costs_only_its_own_row",),
    ),
    "C02": (
        "a kernel zeroed its input, and the reference agreed with it",
        ("test_check::test_a_changed_input_fails_and_is_restored",),
        ("test_bad_kernels_gpu::test_a_bad_kernel_costs_only_its_own_row",),
    ),
    "C04": (
        "NaN in the expected tensor matched anything",
        ("test_check::test_nan_and_infinity_count_only_where_the_reference_has_them",),
        (),
    ),
    "C05": (
        "tolerances so wide that they caught nothing",
        ("test_mutants::test_no_mutant_survives",),
        ("test_determinism::test_fifty_seeds_pass_without_a_false_alarm",),
    ),
    "C07": (
        "32-bit offsets wrapped past 2^31 elements",
        (),
        (
            "test_gpu::test_more_than_two_to_the_31_elements",
            "test_edge_cases::test_softmax_of_more_than_two_to_the_31_elements",
            "test_edge_cases::test_matmul_of_more_than_two_to_the_31_elements",
        ),
    ),
    "C09": (
        "views that are transposed, strided or start one element in",
        ("test_edge_cases::test_triton_answers_in_the_interpreter",),
        (
            "test_edge_cases::test_every_edge_is_answered",
            "test_edge_cases::test_both_sides_refuse_in_the_same_words",
        ),
    ),
    "C10": (
        "empty inputs and sizes that no tile divides",
        ("test_edge_cases::test_every_size_meets_every_op_and_names_are_distinct",),
        (
            "test_gpu::test_the_call_after_an_empty_one_succeeds",
            "test_edge_cases::test_every_edge_is_answered",
        ),
    ),
    "C11": (
        "maxima dropped NaN on one side only",
        ("test_special_values::test_triton_keeps_the_policy",),
        (
            "test_gpu::test_softmax_keeps_nan_and_infinity_like_torch",
            "test_gpu::test_relu_keeps_nan",
        ),
    ),
    "C13": (
        "single precision ran as TF32, and contraction changed last bits",
        ("test_compare::test_changes_are_marks_beside_the_verdict",),
        ("test_field_reports_gpu::test_f32_is_not_tf32",),
    ),
    "C14": (
        "sums kept in f16 overflowed to a plausible answer",
        (),
        ("test_field_reports_gpu::test_large_f16_values_and_the_kernel_that_ran",),
    ),
    "C16": (
        "autotuning ran an accumulating kernel on the user's tensor",
        ("test_tune::test_the_fastest_candidate_wins_and_all_are_kept",),
        (
            "test_gpu::test_every_tuning_candidate_is_right",
            "test_bad_kernels_gpu::test_a_bad_kernel_costs_only_its_own_row",
        ),
    ),
    "R01": (
        "without a GPU even --help failed",
        (
            "test_cli::test_help_is_quick_and_imports_neither_torch_nor_triton",
            "test_cli::test_list_works_without_torch",
            "test_field_reports::test_results_are_read_and_drawn_whatever_gpu_is_asked_for",
            "test_field_reports::test_a_gpu_that_is_not_there_leaves_earlier_results_alone",
        ),
        (),
    ),
    "R02": (
        "one illegal access failed every later call of the process",
        ("test_sweep::test_a_bad_kernel_costs_only_its_own_rows",),
        ("test_bad_kernels_gpu::test_a_bad_kernel_costs_only_its_own_row",),
    ),
    "R03": (
        "inputs on another than the current device or stream",
        (),
        (
            "test_gpu::test_a_launch_follows_the_current_stream",
            "test_field_reports_gpu::test_inputs_on_the_second_gpu",
        ),
    ),
    "R04": (
        "the cache folder could not be written, and that failed in the middle of a run",
        (
            "test_field_reports::test_a_cache_that_can_be_written_is_found_and_named",
            "test_field_reports::test_without_any_cache_the_variable_to_set_is_named",
            "test_doctor::test_unwritable_home_is_named",
        ),
        (),
    ),
    "R06": (
        "one size that did not fit ended the sweep",
        ("test_case_run::test_a_bad_row_has_a_reason_and_no_time_and_harms_nobody",),
        ("test_field_reports_gpu::test_a_size_that_does_not_fit_costs_its_own_rows",),
    ),
    "R07": (
        "without a C compiler, or with libcuda.so.1 alone, Triton cannot launch",
        ("test_doctor::test_missing_c_compiler_and_libcuda_are_named",),
        ("test_field_reports_gpu::test_without_a_c_compiler_the_cuda_half_runs",),
    ),
    "D01": (
        "files of two GPU models were compared in silence, and one card under two indices refused",
        (
            "test_compare::test_another_gpu_is_refused_and_labelled_when_forced",
            "test_compare::test_another_index_of_the_same_gpu_is_fine",
            "test_recorded::test_another_model_is_refused_also_where_only_the_meta_says_so",
        ),
        (),
    ),
    "D02": (
        "a full run against a partial one gave 0 matches and success",
        (
            "test_compare::test_rows_on_one_side_are_missing_and_counted",
            "test_compare::test_nothing_in_common_is_refused",
            "test_recorded::test_rows_of_one_run_alone_are_missing_and_counted",
            "test_messages::test_an_empty_table_is_said_to_be_empty",
        ),
        (),
    ),
    "D03": (
        "several GPUs or configurations in one file were drawn as one zigzag line",
        (
            "test_results::test_duplicates_name_the_column_to_filter",
            "test_plots::test_several_gpus_are_refused",
            "test_plots::test_modes_and_distributions_never_share_a_line",
        ),
        (),
    ),
    "D05": (
        "GB/s by 2^30, milliseconds as seconds, a label that does not fit the formula",
        (
            "test_field_reports::test_a_billion_bytes_a_millisecond_are_a_thousand_gbps",
            "test_plots::test_rates_are_decimal_and_axes_start_at_zero",
            "test_export::test_units_are_those_of_the_documentation",
        ),
        (),
    ),
    "D06": (
        "a misplaced bracket in a byte formula, flops of masked work, results above the peak",
        (
            "test_specs::test_bytes_and_flops_by_hand",
            "test_specs::test_inputs_are_what_the_byte_formula_counts",
            "test_plausible::test_peaks",
            "test_field_reports::test_a_row_above_the_peak_is_listed_and_in_no_ratio",
        ),
        (),
    ),
    "D08": (
        "no threshold, or a fixed one, called the machine's noise a regression",
        (
            "test_compare::test_one_slower_kernel_is_the_only_verdict",
            "test_compare::test_dirty_trees_and_drivers_are_labels",
            "test_compare::test_names_are_never_cut_and_hidden_rows_are_counted",
            "test_recorded::test_the_same_build_on_two_cards_calls_nothing_but_torch_compile",
            "test_recorded::test_another_driver_is_a_label_and_no_verdict",
            "test_recorded::test_a_slowdown_is_found_once_it_exceeds_what_processes_differ_by",
        ),
        (),
    ),
    "D10": (
        "fixed decimals made small differences zero, and columns changed their meaning",
        (
            "test_compare::test_tiny_times_differ_exactly",
            "test_results::test_round_trip_keeps_every_digit",
            "test_results::test_a_schema_is_known_or_refused_by_name",
            "test_results::test_a_run_of_schema_1_0_reads_with_later_columns_unknown",
        ),
        (),
    ),
    "D12": (
        "results without driver, clocks or versions, so that nobody could say why they differ",
        (
            "test_compare::test_a_missing_fact_is_named_not_guessed",
            "test_field_reports::test_recorded_runs_have_every_fact",
        ),
        (),
    ),
}


@cache
def gpu_marks(module: str) -> dict[str, bool]:
    """Does it need a GPU, by name of each test in the module?"""
    tree = ast.parse((TESTS / f"{module}.py").read_text())

    def says_gpu(node: ast.AST) -> bool:
        return "pytest.mark.gpu" in ast.unparse(node)

    whole = any(
        isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node) and says_gpu(node.value)
        for node in tree.body
    )
    return {
        node.name: whole or any(map(says_gpu, node.decorator_list))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("report", REPORTS)
def test_every_report_has_its_tests(report: str) -> None:
    _, without_gpu, with_gpu = REPORTS[report]
    assert without_gpu or with_gpu
    for names, wanted in ((without_gpu, False), (with_gpu, True)):
        for name in names:
            module, _, function = name.partition("::")
            assert gpu_marks(module).get(function) is wanted, name


# Timings


CARD = {
    "name": "card",
    "l2_bytes": 50_000_000,
    "memory_khz_max": 3_200_000,
    "memory_bus_bits": 5000,  # 4000 GB/s
}


@pytest.mark.parametrize("liar", ["triton", "torch"])
def test_a_row_above_the_peak_is_listed_and_in_no_ratio(liar: str) -> None:
    registry = Registry()
    contenders = tuple(map(Contender, ("cuda", "triton", "torch")))
    unit = Unit(registry.spec("vector_add"), Case({"N": 1 << 28}), "f32", contenders)
    answered = [
        {
            "row": {
                "backend": contender.backend,
                "variant": "",
                "status": "ok",
                "time_us_p50": 10.0 if contender.backend == liar else 1000.0,
            },
            "rounds": [[10.0]],
            "samples": [[10.0]],
        }
        for contender in contenders
    ]
    rows = [event["row"] for event in RowMaker(registry, CARD, 0, None).complete(unit, answered)]
    by_backend = {row["backend"]: row for row in rows}
    assert by_backend[liar]["status"] == "invalid"
    assert "DRAM peak of 4000 GB/s" in by_backend[liar]["reason"]
    assert "speedup_vs_torch" not in by_backend[liar]
    assert ("speedup_vs_torch" in by_backend["cuda"]) == (liar != "torch")
    outcome = sweep.Outcome()
    outcome.add(unit, rows)
    (line,) = outcome.failures
    assert line.startswith(f"invalid: vector_add 2^28 f32 {liar}: ")


def test_a_billion_bytes_a_millisecond_are_a_thousand_gbps() -> None:
    registry = Registry()
    case = Case({"N": 10**8})
    unit = Unit(registry.spec("vector_add"), case, "f32", (Contender("cuda"),))
    row = {"backend": "cuda", "variant": "", "status": "ok", "time_us_p50": 1200.0}
    answered = [{"row": row, "rounds": [[1200.0]], "samples": [[1200.0]]}]
    curves = {kind: ((1e3, 5.0), (1e10, 5000.0)) for kind in ("copy", "read", "write")}
    roofs = Roofs(curves, {}, 2.0, 0.0, 0.0, 0, "invented")
    (event,) = RowMaker(registry, CARD, 0, roofs).complete(unit, answered)
    made = event["row"]
    assert (made["bytes_read"], made["bytes_written"]) == (8 * 10**8, 4 * 10**8)
    assert made["gbps"] == pytest.approx(1000.0, rel=1e-12)
    assert made["tflops"] == pytest.approx(1e8 / 1.2e-3 / 1e12, rel=1e-12)


@pytest.mark.parametrize("run", [REFERENCE, *QUICK], ids=lambda run: run.name)
def test_recorded_runs_have_every_fact(run: Path) -> None:
    meta = read_run(run).meta
    assert [fact for fact in META_FACTS if meta_fact(meta, fact) is None] == []


@pytest.mark.parametrize(
    ("lie", "raw"), [("zero", "0 us"), ("negative", "-5 us"), ("nan", "nan us"), ("inf", "inf us")]
)
def test_a_time_that_cannot_be_is_invalid_and_the_exit_code_says_so(
    tmp_path, monkeypatch, capsys, lie, raw
):
    fake = partial(Supervisor, module="tests.fake_worker")
    monkeypatch.setattr(sweep, "Supervisor", fake)
    monkeypatch.setattr(sweep, "software_facts", lambda: {"extension": None})
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: True)
    monkeypatch.setenv("FAKE_triton", lie)
    out = tmp_path / "run"
    arguments = ["bench", "--op", "vector_add", "--dtype", "f32", "--no-plots", "--out", str(out)]
    assert cli.main(arguments) == 1
    rows = read_run(out).rows
    bad = rows[rows.backend == "triton"]
    assert set(bad.status) == {"invalid"}
    assert bad.reason.str.contains(raw, regex=False).all()
    assert (
        bad[["time_us_p50", "gbps", "tflops", "pct_roof", "speedup_vs_torch"]].isna().all(axis=None)
    )
    ok = rows[rows.status == "ok"]
    assert ok[["gbps", "tflops"]].map(math.isfinite).all(axis=None)
    assert set(ok.backend) >= {"cuda", "torch"}
    assert f"the timer gave {raw}" in capsys.readouterr().out


def test_a_run_on_constants_is_not_compared_with_one_on_random_numbers(tmp_path, capsys):
    zeros = tmp_path / "zeros"
    shutil.copytree(REFERENCE, zeros)
    text = (zeros / "bench.csv").read_text()
    column = text.partition("\n")[0].split(",").index("distribution")
    lines = [line.split(",") for line in text.splitlines()]
    for line in lines[1:]:
        line[column] = "zeros"
    (zeros / "bench.csv").write_text("\n".join(map(",".join, lines)) + "\n")
    assert cli.main(["compare", str(REFERENCE), str(zeros)]) == 2
    assert "error: " in capsys.readouterr().err


# Running


def harness(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("visible", ["", "7"])
def test_results_are_read_and_drawn_whatever_gpu_is_asked_for(tmp_path, visible):
    for arguments in (
        ["--help"],
        ["list"],
        ["compare", str(REFERENCE), str(REFERENCE)],
        ["plot", str(REFERENCE), "--out", str(tmp_path / "plots")],
    ):
        done = harness(*arguments, cwd=tmp_path, CUDA_VISIBLE_DEVICES=visible)
        assert done.returncode == 0, (arguments, done.stderr)
    assert (tmp_path / "plots" / "overview.png").exists()


def test_a_gpu_that_is_not_there_leaves_earlier_results_alone(tmp_path):
    pytest.importorskip("torch")
    run = tmp_path / "run"
    shutil.copytree(REFERENCE, run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    arguments = ("bench", "--resume", "--out", str(run))
    done = harness(*arguments, cwd=tmp_path, CUDA_VISIBLE_DEVICES="7")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "CUDA_VISIBLE_DEVICES='7' names no GPU" in done.stderr
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize("where", ["HOME", "TRITON_HOME", "TRITON_CACHE_DIR", "nowhere"])
def test_a_cache_that_can_be_written_is_found_and_named(tmp_path, monkeypatch, capsys, where):
    for name in ("HOME", "TRITON_HOME", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    blocked = tmp_path / "file"  # a folder in it can be made by nobody, not even root
    blocked.write_text("")
    if where == "nowhere":  # a user whom the machine does not know
        monkeypatch.setattr(os.path, "expanduser", lambda path: str(blocked / "home"))
    else:
        monkeypatch.setenv(where, str(blocked / "home"))
    monkeypatch.setattr(machine, "REPOSITORY", tmp_path)
    found = machine.writable_triton_cache()
    assert Path(found) == tmp_path / "build" / "triton-cache"
    assert os.environ["TRITON_CACHE_DIR"] == found
    monkeypatch.delenv("TRITON_CACHE_DIR")
    said = capsys.readouterr().err
    assert str(blocked / "home") in said
    assert found in said


def test_without_any_cache_the_variable_to_set_is_named(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setattr(machine, "REPOSITORY", blocked)
    monkeypatch.setattr(os, "getuid", lambda: "1/../../" + str(blocked))
    with pytest.raises(OSError, match=r"no writable folder for Triton's cache: .*TRITON_CACHE_DIR"):
        machine.writable_triton_cache()
