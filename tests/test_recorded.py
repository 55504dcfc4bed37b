"""Comparisons of real runs on H200 cards: one build on two cards, a kernel slowed, and edits."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from fixtures import recorded_runs as recorded
from fixtures.recorded_runs import QUICK, RECORDED

from harness import cli
from harness.compare import Comparison, ComparisonRefused, compare_runs, exit_code
from harness.compare_rerun import rerun_commands
from harness.options import units_of
from harness.results import read_run

BASE, NEW = QUICK


def compared(base: Path, new: Path, **options: object) -> Comparison:
    return compare_runs(read_run(base), read_run(new), **options)  # type: ignore[arg-type]


def test_the_same_build_on_two_cards_calls_nothing_but_torch_compile() -> None:
    for comparison in (compared(BASE, NEW), compared(NEW, BASE)):
        called = comparison.rows[comparison.rows["verdict"].isin(["FASTER", "SLOWER"])]
        assert set(called["backend"]) <= {"compile"}
        assert called["reason"].str.contains("torch.compile may choose another config").all()
        assert comparison.count("UNCLEAR") == comparison.count("MISSING") == 0
        assert any(label.startswith("two cards of one model") for label in comparison.labels)
        changed = comparison.rows[comparison.rows["changed"] != ""]
        assert set(changed["changed"]) == {"source"}
        assert set(changed["backend"]) == {"cuda", "triton"}


def test_lower_clocks_make_no_kernel_slower() -> None:
    """The second card held its clock 2 to 4 % lower under the products, which took that longer."""
    rows = compared(BASE, NEW).rows
    slow_card = rows[(rows["clock_ratio"] < 0.985) & (rows["backend"] != "compile")]
    assert len(slow_card) == 8
    assert (slow_card["new_us"] / slow_card["base_us"]).gt(1.01).all()
    assert set(slow_card["verdict"]) == {"SAME"}
    assert slow_card["reason"].str.contains("clock held down: compared at equal clock").all()


def test_a_run_is_itself() -> None:
    for run in QUICK:
        comparison = compared(run, run)
        assert set(comparison.rows["verdict"]) == {"SAME", ""}
        assert comparison.rows["ratio"].dropna().eq(1.0).all()
        assert exit_code(comparison) == 0


def test_another_driver_is_a_label_and_no_verdict(tmp_path: Path) -> None:
    new = recorded.copy_of(BASE, tmp_path / "new")
    recorded.edit_meta(new, driver="999.1", triton_ptxas="13.9", git_dirty=False)
    comparison = compared(BASE, new)
    assert "driver: base 580.159.04, new 999.1" in comparison.labels
    assert "triton's ptxas: base 12.8.93, new 13.9" in comparison.labels
    tools = comparison.rows[comparison.rows["changed"] == "tools"]
    assert set(tools["backend"]) == {"triton", "compile"}
    assert set(comparison.rows["verdict"]) == {"SAME", ""}


@pytest.mark.parametrize("facts", [{"gpu": {"name": "NVIDIA B200"}}])
def test_another_model_is_refused_also_where_only_the_meta_says_so(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    new = recorded.copy_of(BASE, tmp_path / "new")
    recorded.edit_meta(new, **facts)
    with pytest.raises(ComparisonRefused, match="GPU models"):
        compared(BASE, new, force=True)
    recorded.edit_rows(new, lambda line: line | {"gpu": "NVIDIA B200"})
    with pytest.raises(ComparisonRefused, match="GPU: base NVIDIA H200, new NVIDIA B200"):
        compared(BASE, new)
    forced = compared(BASE, new, force=True)
    assert forced.labels[0].startswith("CROSS-DEVICE (forced)")
    assert forced.rows["changed"].str.contains("gpu").all()


def test_rows_of_one_run_alone_are_missing_and_counted(tmp_path: Path) -> None:
    part = recorded.copy_of(NEW, tmp_path / "part")
    recorded.keep_rows(part, lambda line: line["op"] != "softmax")
    comparison = compared(BASE, part)
    assert (comparison.count("MISSING"), comparison.lost, exit_code(comparison)) == (24, 24, 1)
    missing = comparison.rows[comparison.rows["verdict"] == "MISSING"]
    assert set(missing["reason"]) == {"ok -> no row"}
    back = compared(part, BASE)
    assert (back.count("MISSING"), back.lost) == (24, 0)


def test_a_kernel_that_became_wrong_fails_and_says_why(tmp_path: Path) -> None:
    new = recorded.copy_of(BASE, tmp_path / "new")

    def broken(line: dict[str, str]) -> dict[str, str]:
        if (line["op"], line["backend"], line["dtype"]) != ("softmax", "cuda", "bf16"):
            return line
        timed = [c for c in line if c.startswith(("time_us", "ci_")) or c == "n_rounds"]
        return line | dict.fromkeys(timed, "") | {"status": "mismatch", "reason": "max error 3"}

    recorded.edit_rows(new, broken)
    comparison = compared(BASE, new)
    assert (comparison.newly_incorrect, comparison.lost, exit_code(comparison)) == (2, 0, 1)
    reasons = set(comparison.rows.loc[comparison.rows["failed"], "reason"])
    assert reasons == {"newly incorrect: ok -> mismatch: max error 3"}


@pytest.mark.parametrize("run", QUICK, ids=lambda run: run.name)
@pytest.mark.parametrize("percent", [2, 5, 20])
def test_a_slowdown_is_found_once_it_exceeds_what_processes_differ_by(
    tmp_path: Path, run: Path, percent: int
) -> None:
    slow = recorded.copy_of(run, tmp_path / "slow")
    recorded.slow_down(slow, 1 + percent / 100)
    rows = compared(run, slow).rows
    timed = rows[rows["ratio"].notna()]
    assert len(timed) == 60
    assert "FASTER" not in set(timed["verdict"])
    if percent > 2:
        # 5 % is what a row's time is known to when its clock is held down and tells nothing more.
        within = timed["band"] >= percent / 100
        assert set(timed.loc[~within, "verdict"]) == {"SLOWER"}
        assert set(timed.loc[within, "verdict"]) <= {"UNCLEAR"}
        assert timed.loc[within, "limited"].all()
    back = compared(slow, run).rows
    assert "SLOWER" not in set(back["verdict"])


def test_a_slowdown_of_twenty_percent_shows_on_another_card(tmp_path: Path) -> None:
    slow = recorded.copy_of(NEW, tmp_path / "slow")
    recorded.slow_down(slow, 1.2)
    rows = compared(BASE, slow).rows
    timed = rows[rows["ratio"].notna() & (rows["backend"] != "compile")]
    assert set(timed["verdict"]) == {"SLOWER"}


@pytest.mark.parametrize("percent", [2, 5, 20])
def test_a_kernel_that_was_slowed_down_on_the_card_is_found(percent: int) -> None:
    """vector_add's CUDA kernel was built to move every 50th, 20th or 5th tile twice, from and to
    another place in memory; `slower-0` is the one that does not."""
    comparison = compared(RECORDED / "slower-0", RECORDED / f"slower-{percent}")
    assert exit_code(comparison) == 1
    rows = comparison.rows
    slowed = rows["changed"].str.contains("source|config")
    judged = rows[slowed & (rows["base_us"] >= 20) & rows["ratio"].notna()]
    assert len(judged) == 10
    assert "FASTER" not in set(judged["verdict"])
    if percent > 2:
        assert set(judged["verdict"]) == {"SLOWER"}
    others = rows[~slowed & (rows["backend"] != "compile")]
    assert not others["verdict"].isin(["FASTER", "SLOWER"]).any()


def test_two_cards_a_side_are_pooled_and_said(tmp_path: Path, capsys) -> None:
    base = [str(run) for run in QUICK]
    new = []
    for run in QUICK:
        slow = recorded.copy_of(run, tmp_path / run.name)
        recorded.slow_down(slow, 1.2)
        new.append(str(slow))
    arguments = ["compare", "--base", *base, "--new", *new, "--csv", "-"]
    assert cli.main(arguments) == 2
    assert "runs of base hold other kernels: 14 rows" in capsys.readouterr().err
    report = tmp_path / "report.json"
    assert cli.main([*arguments, "--force", "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    assert any(x.startswith("OTHER KERNELS POOLED (forced): runs of base") for x in found["labels"])
    assert any(x.startswith("runs of new differ in gpu id: ") for x in found["labels"])
    assert found["counts"]["SLOWER"] >= 58
    assert {row["base_runs"] for row in found["rows"] if row["verdict"]} == {2}
    assert not any(row["by_runs"] for row in found["rows"])


def test_the_commands_for_unclear_rows_select_those_rows(tmp_path: Path) -> None:
    slow = recorded.copy_of(NEW, tmp_path / "slow")
    recorded.slow_down(slow, 1.02)
    comparison = compared(NEW, slow)
    unclear = comparison.rows[comparison.rows["verdict"] == "UNCLEAR"]
    assert len(unclear) > 10
    assert unclear["reason"].str.contains("interval reaches into the band").any()
    selected = set()
    for command in rerun_commands(comparison):
        asked = cli._parser().parse_args(shlex.split(command)[3:])
        for unit in units_of(asked)[1]:
            selected |= {
                (unit.spec.stem, unit.case.name, unit.dtype, c.backend) for c in unit.contenders
            }
    wanted = set(unclear[["op", "case", "dtype", "backend"]].itertuples(index=False, name=None))
    assert wanted <= selected


def test_other_inputs_are_refused_by_name_and_compared_when_forced(tmp_path: Path) -> None:
    zeros = recorded.copy_of(BASE, tmp_path / "zeros")
    recorded.edit_rows(zeros, lambda line: line | {"distribution": "zeros"})
    with pytest.raises(ComparisonRefused, match=r"distribution of the inputs: base .*, new zeros"):
        compared(BASE, zeros)
    forced = compared(BASE, zeros, force=True)
    assert forced.labels[0].startswith("OTHER INPUTS (forced): distribution")
    assert forced.count("SAME") == 60
    assert set(forced.rows["distribution"]) == {"zeros"}
