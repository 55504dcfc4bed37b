"""Any shape, stride, alignment and contents: agreement with float64 or nothing.

CI draws the same few shapes in the interpreter each time. On a GPU each run draws new ones: it
goes on from the last seed that passed on the machine, or from CVT_SEED_START, and prints it.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytest.importorskip("hypothesis")

import property_cases as cases
from edge_cases import launcher_of
from property_cases import CONTENTS, REGISTRY, any_shape, explore, families, wrong_contents

INTERPRETED = triton.knobs.runtime.interpret
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")

# Of all ops and dtypes together. CVT_CUDA_SHAPES asks for that many of each op and dtype instead,
# CVT_TRITON_SHAPES for that many of each op.
CUDA_SHAPES = 2002
TRITON_SHAPES = 300
FAMILIES = [family for op in REGISTRY.stems for family in families(op)]


@pytest.fixture(scope="module")
def seed():
    """Of this run; remembered once every test that used it has passed."""
    return cases.next_seed()


@pytest.fixture(scope="module", autouse=True)
def remembered(request):
    failed = request.session.testsfailed
    yield
    if torch.cuda.is_available() and request.session.testsfailed == failed:
        cases.remember_seed(cases.next_seed())


def say(capsys, text: str) -> None:
    with capsys.disabled():
        print(f"\n  {text}")


def distinct_shapes(shapes, wanted: int, check, seed: int) -> set:
    """Hypothesis repeats itself: draw again until `wanted` different shapes were checked, each
    once."""
    seen: set = set()

    def check_once(shape) -> None:
        if shape not in seen:
            check(shape)
            seen.add(shape)

    for attempt in range(8):
        missing = wanted - len(seen)
        if missing > 0:
            explore(shapes, missing + missing // 4 + 1, check_once, seed * 8 + attempt)
    return seen


def checker(op: str, side: str, device: str):
    launch = launcher_of(op, side)

    def check(shape) -> None:
        wrong = wrong_contents(shape, launch, device, first=len(CONTENTS) * 7)
        assert not wrong, f"{shape}: " + "; ".join(wrong)

    return check


# ---- without a GPU -------------------------------------------------------------------------------


@pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.op}-{f.dtype}-{f.name}")
def test_triton_agrees_in_the_interpreter(family):
    if family.dtype == "bf16":
        pytest.skip("the interpreter rounds bf16 wrongly in some versions")
    try:
        explore(family.shapes, 3, checker(family.op, "triton", "cpu"), None)
    except Exception as error:
        if "0-dimensional arrays" in f"{error} {error.__cause__}":
            pytest.skip("this Triton's interpreter cannot loop with this numpy")
        raise


def right_answers(spec, arguments) -> tuple[tuple, list]:
    """(the outputs among a launcher's arguments, the float64 answers for its inputs)."""
    n_inputs = len(spec.arguments)
    inputs = dict(zip(spec.arguments, arguments[:n_inputs], strict=True))
    return arguments[n_inputs:], [output.reference(inputs) for output in spec.outputs]


@pytest.mark.parametrize("op", REGISTRY.stems)
def test_no_false_alarm_where_the_answer_is_right(op):
    """float64, rounded once, is right: refused here, it would be the contents' or check's fault."""
    spec = REGISTRY.spec(op)

    def launch(*arguments, **_config) -> None:
        for out, right in zip(*right_answers(spec, arguments), strict=True):
            out.copy_(right)

    def check(shape) -> None:
        assert not wrong_contents(shape, launch, "cpu", first=0)

    for dtype in spec.dtypes:
        explore(any_shape(op, dtype, 1 << 14), 12, check, None)


@pytest.mark.parametrize("op", REGISTRY.stems)
def test_a_wrong_kernel_is_found(op):
    """One element that is off by 4: every contents shows it, in each dtype."""
    spec = REGISTRY.spec(op)

    def launch(*arguments, **_config) -> None:
        outs, answers = right_answers(spec, arguments)
        last = answers[0].view(-1)
        # Towards zero and past it: a larger one may saturate to the same.
        finite = last[-1:].nan_to_num(0, 0, 0)
        last[-1:] = -0.5 * finite - torch.where(finite < 0, -4.0, 4.0)
        for out, answer in zip(outs, answers, strict=True):
            out.copy_(answer)

    for dtype in spec.dtypes:
        shape = next(iter(explore(any_shape(op, dtype, 1 << 14), 1, lambda _: None, None)))
        assert len(wrong_contents(shape, launch, "cpu", first=0)) == len(CONTENTS)


def test_distinct_shapes_are_checked_once_each():
    checked = []
    seen = distinct_shapes(any_shape("matmul", "bf16", 1 << 8), 100, checked.append, 3)
    assert len(seen) >= 100
    assert sorted(map(str, checked)) == sorted(map(str, seen))


def test_the_families_are_at_least_twenty_specialisations_of_all_ops():
    assert len(FAMILIES) >= 20
    assert {(f.op, f.dtype) for f in FAMILIES} == {
        (op, dtype) for op in REGISTRY.stems for dtype in REGISTRY.spec(op).dtypes
    }
    assert TRITON_SHAPES % len(FAMILIES) < len(FAMILIES)


def test_seeds_add_up(tmp_path, monkeypatch):
    file = tmp_path / "folder" / "passed_seeds"
    monkeypatch.delenv("CVT_SEED_START", raising=False)
    assert cases.next_seed(file) == 0
    cases.remember_seed(0, file)
    cases.remember_seed(7, file)
    assert cases.next_seed(file) == 8
    monkeypatch.setenv("CVT_SEED_START", "3")
    assert cases.next_seed(file) == 3


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("op", REGISTRY.stems)
def test_cuda_agrees_on_random_shapes(op, seed, capsys):
    dtypes = REGISTRY.spec(op).dtypes
    n_pairs = sum(len(REGISTRY.spec(other).dtypes) for other in REGISTRY.stems)
    wanted = int(os.environ.get("CVT_CUDA_SHAPES", 0)) or -(-CUDA_SHAPES // n_pairs)
    for dtype in dtypes:
        seen = distinct_shapes(any_shape(op, dtype), wanted, checker(op, "cuda", "cuda"), seed)
        assert len(seen) >= wanted
        say(capsys, f"seed {seed}: {op} {dtype} cuda: {len(seen)} shapes x {len(CONTENTS)}")


@pytest.mark.gpu
@pytest.mark.parametrize("op", REGISTRY.stems)
def test_triton_agrees_on_random_shapes(op, seed, capsys):
    of_op = int(os.environ.get("CVT_TRITON_SHAPES", 0))
    wanted = -(-of_op // len(families(op))) or -(-TRITON_SHAPES // len(FAMILIES))
    total = 0
    for family in families(op):
        seen = distinct_shapes(family.shapes, wanted, checker(op, "triton", "cuda"), seed)
        assert len(seen) >= wanted
        total += len(seen)
    n = len(families(op))
    say(capsys, f"seed {seed}: {op} triton: {total} shapes x {len(CONTENTS)} in {n} families")
