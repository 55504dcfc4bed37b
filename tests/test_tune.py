"""Tuning stores the fastest candidate with all that were tried, case by case."""

from __future__ import annotations

import json

import pytest

from harness import backends, tune
from harness.console import Progress
from harness.plan import Filters, plan
from harness.registry import Registry
from harness.spec import Case
from harness.sweep import SweepOptions


class FakeSupervisor:
    """Every candidate takes as many microseconds as its largest number."""

    def __init__(self, *_: object) -> None:
        self.gpu = {"name": "Fake GPU"}

    def __enter__(self) -> FakeSupervisor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, request):
        return [
            {
                "row": {
                    "backend": c.backend,
                    "variant": c.variant,
                    "status": "ok",
                    "time_us_p50": float(max(c.config.values())),
                }
            }
            for c in request.contenders
        ]


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(tune, "TUNED", tmp_path)
    monkeypatch.setattr(backends, "TUNED", tmp_path)
    units = plan(Registry(), Filters(ops=["vector_add"], dtypes=["f32"]), "quick")
    return tune.tune(units, SweepOptions(), Progress())


def test_the_fastest_candidate_wins_and_all_are_kept(tuned):
    (file,) = tuned
    assert file.parent.name == "fake-gpu"
    entries = json.loads(file.read_text())["entries"]
    assert len(entries) == 2 * 2  # two quick cases, two sides
    for entry in entries:
        times = [candidate["time_us"] for candidate in entry["candidates"]]
        assert entry["time_us"] == min(times)
        grid = Registry().spec("vector_add").tuning[entry["backend"]](Case(entry["dims"]), "f32")
        assert len(times) == len(grid)


def test_tuning_again_replaces_entries_and_keeps_others(tuned):
    (file,) = tuned
    before = json.loads(file.read_text())["entries"]
    units = plan(Registry(), Filters(ops=["vector_add"], dtypes=["f32"], cases=["N=4096"]), "full")
    tune.tune(units, SweepOptions(), Progress())
    after = json.loads(file.read_text())["entries"]
    assert len(after) == len(before) + 2


@pytest.mark.parametrize(
    ("slug", "dtype", "n", "source"),
    [
        ("fake-gpu", "f32", 1 << 24, "tuned:fake-gpu"),
        ("fake-gpu", "f32", 1 << 23, "nearest:fake-gpu"),
        ("other-gpu", "f32", 1 << 24, "nearest:fake-gpu"),
        ("fake-gpu", "bf16", 1 << 24, "default"),
    ],
)
def test_configurations_say_where_they_come_from(tuned, slug, dtype, n, source):
    config, found = backends.tuned_config(slug, "vector_add", "triton", dtype, Case({"N": n}))
    assert found == source
    assert bool(config) == (source != "default")


def test_a_dtype_of_the_same_size_is_borrowed(tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "TUNED", tmp_path)
    (tmp_path / "gpu").mkdir()
    entry = {"backend": "cuda", "dtype": "bf16", "dims": {"N": 64}, "config": {"a": 1}}
    (tmp_path / "gpu" / "op.json").write_text(json.dumps({"entries": [entry]}))
    found = backends.tuned_config("gpu", "op", "cuda", "f16", Case({"N": 64}))
    assert found == ({"a": 1}, "nearest:gpu")
