"""Kernels that are wrong on purpose: each is caught by its layer and costs only its own row.

Here: that the catalogue is whole, and those that need no GPU. On a GPU, all of them:
test_bad_kernels_gpu.py.
"""

from __future__ import annotations

import re
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from harness import case_run, later_runs
from harness.check import Problem
from harness.protocol import Contender, Request
from harness.registry import REPOSITORY, RegistryError
from harness.spec import Case
from harness.supervisor import Supervisor

# tests/ is no package that an installation would bring.
sys.path.insert(0, str(REPOSITORY))
from tests.bad_kernels import cuda_library
from tests.bad_kernels.asking import CATALOGUE, assert_caught, params, request_for, rows_of
from tests.bad_kernels.catalogue import KINDS, registry
from tests.test_case_run import FakeWorker, graph_us

LAYERS = ("check", "repeat", "guard", "parent", "sanitizer")


def test_every_kind_is_in_the_catalogue():
    assert {bad.caught.kind for bad in CATALOGUE} == set(KINDS)
    assert len(KINDS) >= 23


@pytest.mark.parametrize("bad", [pytest.param(b, id=f"{b.backend}-{b.name}") for b in CATALOGUE])
def test_every_bad_kernel_says_how_it_is_caught(bad):
    caught = bad.caught
    assert caught.by in LAYERS
    assert caught.reason
    assert len(bad.doc) > 20
    assert bool(caught.tool) == (caught.by == "sanitizer")
    assert caught.case != caught.passes
    # Where nothing but the harness's own cases is run, this one is among them.
    assert caught.case in registry().spec(caught.op).test_cases
    if bad.backend == "cuda":
        assert re.search(rf"\b{bad.name}\b", cuda_library.SOURCE.read_text())


def test_the_cuda_kernels_compile():
    if cuda_library.compiler() is None:
        pytest.skip("no nvcc")
    assert cuda_library.build().is_file()
    assert cuda_library.build("alone.cu", shared=False).is_file()


@pytest.fixture(scope="module")
def interpreted():
    with Supervisor(silence_s=120.0, module="harness.cpu_worker") as supervisor:
        yield supervisor


CHECKED = params(lambda bad: not bad.caught.needs_gpu and bad.caught.by in ("check", "guard"))


@pytest.mark.parametrize("bad", CHECKED)
def test_without_a_gpu_a_bad_kernel_costs_only_its_own_row(interpreted, bad):
    rows = rows_of(interpreted, request_for(bad, bad.caught.case))
    assert_caught(bad, rows.pop(bad.contender.label))
    for label, row in rows.items():
        assert row["status"] in ("untimed", *(["unsupported"] if label == "cuda" else [])), row


@pytest.mark.parametrize("bad", [p for p in CHECKED if p.values[0].caught.passes])
def test_it_is_the_awkward_case_that_catches_it(interpreted, bad):
    rows = rows_of(interpreted, request_for(bad, bad.caught.passes))
    assert rows[bad.contender.label]["status"] == "untimed"


@pytest.fixture
def timed_on_cpu(monkeypatch):
    """Rows of a whole case, as the GPU's worker runs it, with a clock that only counts."""
    monkeypatch.setattr(later_runs, "graph_us", graph_us)
    monkeypatch.setattr(later_runs, "host_us", lambda launch: 5.0)
    monkeypatch.setattr(case_run, "leaves_the_stream", lambda *_: "")
    monkeypatch.setattr(case_run, "unavailable", lambda backend: "")
    monkeypatch.setattr(case_run, "Problem", _problem_on_cpu)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)

    def run(request: Request) -> dict[str, dict]:
        worker = FakeWorker()
        worker.say_row = lambda contender, **row: worker.rows.update({contender.label: row})
        case = Case(request.dims, request.layout)
        whole = case_run.CaseRun(worker, request, registry(), case)
        whole.execute()
        whole.release()
        return worker.rows

    # What a kernel remembers must not come from another test.
    for name in [name for name in sys.modules if name.startswith("harness._variants.")]:
        monkeypatch.delitem(sys.modules, name)
    return run


def _problem_on_cpu(spec, case, dtype, _device, seed):
    return Problem(spec, case, dtype, "cpu", seed)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("bad", params(lambda bad: bad.caught.by == "repeat"))
def test_what_is_right_at_first_is_caught_in_the_end(timed_on_cpu, bad, timed):
    request = request_for(bad, bad.caught.case, timed)
    contenders = (bad.contender, Contender("torch"))
    rows = timed_on_cpu(Request(**(vars(request) | {"contenders": contenders})))
    assert_caught(bad, rows[bad.contender.label])
    assert rows["torch"]["status"] == ("ok" if timed else "untimed")
    assert rows["torch"].get("warnings") is None


def test_a_variant_that_no_root_has_is_refused():
    problem = _problem_on_cpu(registry().spec("vector_add"), Case({"N": 33}), "f32", "cpu", 1)
    with pytest.raises(RegistryError, match=r"no variants/torch/misspelt\.py"):
        case_run.bind(registry(), problem, "torch", "misspelt", None, "")
