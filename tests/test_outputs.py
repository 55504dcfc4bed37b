"""Ops of several outputs, of outputs in another dtype, and implementations from other packages."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from harness import availability, backends
from harness.availability import unavailable
from harness.backends import bind, implementations
from harness.check import Problem
from harness.mutants import MUTANTS, right_output, survives
from harness.plan import Filters, PlanError, plan
from harness.registry import REPOSITORY, Registry
from harness.spec import Case, OpSpec, Output, Rung, Tolerance, empty_outputs

ADD = Registry().spec("vector_add")
CASE = Case({"N": 1000})
REASON = "0.5: rounded once, to nearest. 0.02: that has no bias"


def tolerance(ulps: float = 0.5) -> dict[str, Tolerance]:
    return dict.fromkeys(ADD.dtypes, Tolerance(ulps, 0.02, REASON))


def two_outputs(dtype: str = "", ulps: float = 0.5, **facts) -> OpSpec:
    """x + y and, in another dtype, their difference."""
    difference = Output(
        "difference",
        ADD.output_shape,
        lambda t: t["x"].double() - t["y"].double(),
        lambda t, reference: reference.abs(),
        tolerance(ulps),
        dtype=dtype,
    )
    return replace(ADD, further_outputs=(difference,), **facts)


def right(problem: Problem) -> tuple[torch.Tensor, ...]:
    return tuple(right_output(problem, which) for which in range(len(problem.outs)))


def test_each_output_is_judged_and_the_wrong_one_named():
    problem = Problem(two_outputs(), CASE, "bf16", "cpu", 1)
    out, difference = right(problem)
    assert problem.judge((out, difference)).ok
    assert problem.judge([out, difference]).ok
    for wrong, name in (((out * 2, difference), "out"), ((out, difference * 2), "difference")):
        verdict = problem.judge(wrong)
        assert verdict.reason.startswith(f"{name}: error above the allowance")
    assert problem.judge((out, difference.float())).reason == (
        "difference: dtype torch.float32, wanted torch.bfloat16"
    )
    assert problem.explain((out, difference * 2))["output"] == "difference"


def test_the_number_of_outputs_must_be_right():
    problem = Problem(two_outputs(), CASE, "f32", "cpu", 1)
    reason = "returned 1 tensors, wanted 2 (out, difference)"
    assert problem.judge(problem.out).reason == reason
    assert problem.explain(problem.out) == {}
    single = Problem(ADD, CASE, "f32", "cpu", 1)
    assert single.judge((single.out, single.out)).reason == "returned 2 tensors, wanted 1 (out)"


def test_every_output_is_poisoned_and_guarded():
    problem = Problem(two_outputs(), Case({"N": 33}, layout="offset1"), "f32", "cpu", 1)
    assert all(bool(out.isnan().all()) for out in problem.outs)
    assert all(out.data_ptr() % 256 == 4 for out in problem.outs)
    for out, answer in zip(problem.outs, right(problem), strict=True):
        out.copy_(answer)
    assert problem.judge(problem.produced).ok
    torch.as_strided(problem.outs[1], (34,), (1,))[33] = 0.0
    assert problem.judge(problem.produced).reason == (
        "difference: wrote into the guard bytes behind the output"
    )
    problem.poison()
    assert all(bool(out.isnan().all()) for out in problem.outs)


def test_launchers_and_libraries_get_all_outputs():
    def library(x, y, *, out, difference):
        torch.sub(x, y, out=difference)
        return torch.add(x, y, out=out), difference

    spec = two_outputs(eager=lambda x, y: (x + y, x - y), library=library, absent={})
    problem = Problem(spec, CASE, "f32", "cpu", 1)
    for backend in ("torch", "library"):
        bound = bind(Registry(), problem, backend, "", None, "")
        bound.call()
        assert problem.judge(bound.produced()).ok
    assert [t.shape for t in empty_outputs(spec, CASE, "bf16")] == [(1000,), (1000,)]


MEANINGLESS_HERE = {"swapped_rows", "repeated_row", "low_precision", "truncated"}


@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - MEANINGLESS_HERE))
@pytest.mark.parametrize("which", [0, 1])
def test_mutants_of_either_output_fail(mutant: str, which: int):
    assert survives(two_outputs(), "bf16", Case({"N": 4096}), mutant, which) == ""


def test_an_fp8_output_is_judged_in_its_own_spacing():
    problem = Problem(two_outputs("f8e4m3"), CASE, "f32", "cpu", 1)
    out, difference = right(problem)
    assert difference.dtype == torch.float8_e4m3fn
    assert problem.judge((out, difference)).ok
    bits = difference.view(torch.int8)
    one_step = (bits + (difference.double().abs() < 100).to(torch.int8)).view(difference.dtype)
    assert "difference: error above" in problem.judge((out, one_step)).reason
    truncated = MUTANTS["truncated"](difference.clone(), problem, 1)
    assert not problem.judge((out, truncated)).ok
    assert bool(problem.outs[1].double().isnan().all())  # poisoned
    nan = difference.clone()
    nan[3] = float("nan")
    assert "difference: NaN where" in problem.judge((out, nan)).reason


def test_an_integer_output_is_exact():
    numbers = {"x": torch.arange(-60, 60).float(), "y": torch.ones(120)}
    spec = two_outputs(
        "i8",
        0.0,
        make_inputs=lambda *_: {k: v.clone() for k, v in numbers.items()},
        special_values=replace(ADD.special_values, subnormals="kept"),
    )
    spec = replace(
        spec,
        further_outputs=(replace(spec.further_outputs[0], accumulation=lambda t, r: r.abs() * 0),),
    )
    problem = Problem(spec, Case({"N": 120}), "f32", "cpu", 1)
    out, difference = right(problem)
    assert difference.dtype == torch.int8
    assert problem.judge((out, difference)).ok
    difference[5] += 1
    assert "difference: error above the allowance at 1 of 120" in (
        problem.judge((out, difference)).reason
    )


def test_a_peer_runs_where_it_is_installed_and_says_why_not_elsewhere(monkeypatch):
    spec = replace(ADD, peers={"liger": lambda x, y: x + y})
    monkeypatch.setattr(backends, "peer_is_installed", lambda peer: False)
    marked = Case({"N": 1 << 20}, baselines=True)
    assert "liger" not in implementations(spec, marked, everywhere=True)
    monkeypatch.setattr(backends, "peer_is_installed", lambda peer: True)
    assert implementations(spec, marked, everywhere=False)[-1] == "liger"
    assert "liger" not in implementations(spec, CASE, everywhere=False)
    availability._peer_problem.cache_clear()
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    assert unavailable("liger").startswith("liger_kernel cannot be imported (ModuleNotFoundError")
    availability._peer_problem.cache_clear()
    monkeypatch.setitem(sys.modules, "liger_kernel", types.ModuleType("liger_kernel"))
    assert "liger" not in unavailable("liger")
    availability._peer_problem.cache_clear()
    problem = Problem(spec, CASE, "f32", "cpu", 1)
    bound = bind(Registry(), problem, "liger", "", None, "")
    bound.call()
    assert problem.judge(bound.produced()).ok
    assert not bound.unfused


def test_a_peer_can_be_asked_for_by_name(monkeypatch):
    class OneOp(Registry):
        def spec(self, stem: str) -> OpSpec:
            return replace(super().spec(stem), peers={"quack": lambda x, y: x + y})

    units = plan(OneOp(), Filters(ops=["vector_add"], backends=["quack"]), "quick")
    assert {c.backend for unit in units for c in unit.contenders} == {"quack"}
    with pytest.raises(PlanError, match=r"unknown, wanted one of cuda, .*liger"):
        plan(Registry(), Filters(backends=["duck"]), "quick")


def test_rungs_run_on_the_headline_case_by_default_and_have_sources_of_their_own():
    class Laddered(Registry):
        def spec(self, stem: str) -> OpSpec:
            rungs = (Rung("naive", "one element a thread", dtypes=("f32",)),)
            return replace(super().spec(stem), ladders={"cuda": rungs})

    def rungs(level, **filters):
        units = plan(Laddered(), Filters(ops=["vector_add"], **filters), level)
        return {
            (unit.case.name, unit.dtype)
            for unit in units
            for contender in unit.contenders
            if contender.label == "cuda:naive"
        }

    assert rungs("quick") == set()
    assert rungs("default") == {("2^24", "f32"), ("2^28", "f32")}
    assert rungs("default", backends=["triton"]) == set()
    own, *_ = Laddered().kernel_files("vector_add", "cuda", "naive")
    assert own == REPOSITORY / "csrc" / "vector_add" / "naive.cu"


@pytest.mark.parametrize(("most_flops", "cases"), [(2**24, {"2^24"}), (2**24 - 1, set())])
def test_a_rung_too_slow_for_large_cases_runs_on_the_others_alone(most_flops, cases):
    class Laddered(Registry):
        def spec(self, stem: str) -> OpSpec:
            rungs = (Rung("naive", "one element a thread", ("f32",), most_flops),)
            return replace(super().spec(stem), ladders={"cuda": rungs})

    units = plan(Laddered(), Filters(ops=["vector_add"]), "default")
    labels = {(unit.case.name, c.label) for unit in units for c in unit.contenders}
    assert {case for case, label in labels if label == "cuda:naive"} == cases
    assert ("2^28", "cuda") in labels


def test_shared_triton_code_counts_as_source_of_those_who_import_it(tmp_path):
    specs, kernels = tmp_path / "harness" / "specs", tmp_path / "triton_kernels"
    specs.mkdir(parents=True)
    kernels.mkdir()
    (specs / "mine.py").write_text("")
    (kernels / "mine.py").write_text("from ._checks import a\nfrom ._rows import b\n")
    (kernels / "_rows.py").write_text("from ._pairs import c\n")
    (kernels / "_pairs.py").write_text("")
    files = Registry((tmp_path,)).kernel_files("mine", "triton")
    assert [file.name for file in files] == ["mine.py", "_pairs.py", "_rows.py"]


def test_shared_cuda_code_counts_as_source_of_those_who_include_it(tmp_path):
    """A change in a header that a kernel does not include leaves its hash, and so its evidence."""
    (tmp_path / "harness" / "specs").mkdir(parents=True)
    (tmp_path / "harness" / "specs" / "mine.py").write_text("")
    common = tmp_path / "csrc" / "common"
    common.mkdir(parents=True)
    own = tmp_path / "csrc" / "mine.cu"
    includes = (
        '#include "kernels.h"',
        ' # include "common/rows.cuh"',
        '#include "common/pack.cuh"',
    )
    own.write_text("\n".join(includes))
    (tmp_path / "csrc" / "kernels.h").write_text("")
    (common / "rows.cuh").write_text('#include "common/pairs.cuh"\n')
    (common / "pairs.cuh").write_text('#include "common/rows.cuh"\n')
    (common / "other.cuh").write_text("")
    files = Registry((tmp_path,)).kernel_files("mine", "cuda")
    assert files[0] == own
    assert set(files[1:]) == {
        common / "pairs.cuh",
        common / "rows.cuh",
        REPOSITORY / "csrc" / "common" / "pack.cuh",
    }
