"""Tuning stores the fastest candidate with all that were tried, case by case."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness import tune, tuned_configs
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
    monkeypatch.setattr(tuned_configs, "TUNED", tmp_path)
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


VECTOR_ADD = Registry().spec("vector_add")
SOFTMAX = Registry().spec("softmax")


@pytest.mark.parametrize(
    ("slug", "dtype", "case", "source"),
    [
        ("fake-gpu", "f32", Case({"N": 1 << 24}), "tuned:fake-gpu"),
        ("fake-gpu", "f32", Case({"N": 1 << 24}, layout="offset1"), "nearest:fake-gpu"),
        ("fake-gpu", "f32", Case({"N": 1 << 23}), "nearest:fake-gpu"),
        ("other-gpu", "f32", Case({"N": 1 << 24}), "nearest:fake-gpu"),
        ("fake-gpu", "bf16", Case({"N": 1 << 24}), "default"),
    ],
)
def test_configurations_say_where_they_come_from(tuned, slug, dtype, case, source):
    config, found = tuned_configs.tuned_config(slug, VECTOR_ADD, "triton", dtype, case)
    assert found == source
    assert bool(config) == (source != "default")


def store(folder, monkeypatch, *entries):
    monkeypatch.setattr(tuned_configs, "TUNED", folder)
    (folder / "gpu").mkdir()
    whole = [{"backend": "cuda", "dtype": "bf16", "layout": "contiguous"} | e for e in entries]
    (folder / "gpu" / "softmax.json").write_text(json.dumps({"entries": whole}))


def entry(m, n, threads, form=1):
    return {"dims": {"M": m, "N": n}, "config": {"threads_per_row": threads, "form": form}}


def test_a_dtype_of_the_same_size_is_borrowed(tmp_path, monkeypatch):
    store(tmp_path, monkeypatch, entry(64, 4096, 256))
    case = Case({"M": 64, "N": 4096})
    config, source = tuned_configs.tuned_config("gpu", SOFTMAX, "cuda", "f16", case)
    assert (config["threads_per_row"], source) == (256, "nearest:gpu")
    assert tuned_configs.tuned_config("gpu", SOFTMAX, "cuda", "f32", case) == ({}, "default")


def test_the_swept_extent_decides_what_is_near(tmp_path, monkeypatch):
    store(tmp_path, monkeypatch, entry(32768, 4096, 256), entry(1024, 8192, 512))
    case = Case({"M": 32, "N": 4096})
    config, _ = tuned_configs.tuned_config("gpu", SOFTMAX, "cuda", "bf16", case)
    assert config["threads_per_row"] == 256


@pytest.mark.parametrize(
    "case",
    [Case({"M": 3, "N": 31}), Case({"M": 3, "N": 65536}), Case({"M": 3, "N": 4096}, "padded")],
)
def test_what_the_case_cannot_use_is_not_borrowed(tmp_path, monkeypatch, case):
    store(tmp_path, monkeypatch, entry(32768, 4096, 256))
    assert tuned_configs.tuned_config("gpu", SOFTMAX, "cuda", "bf16", case) == ({}, "default")


def test_entries_of_other_dimensions_are_left_alone(tmp_path, monkeypatch):
    other = entry(64, 4096, 256)
    other["dims"] = {"rows": 64, "cols": 4096}
    store(tmp_path, monkeypatch, other)
    case = Case({"M": 64, "N": 4096})
    assert tuned_configs.tuned_config("gpu", SOFTMAX, "cuda", "bf16", case) == ({}, "default")


def test_an_op_that_sweeps_no_extent_borrows_by_all_of_them(tmp_path, monkeypatch):
    store(tmp_path, monkeypatch, entry(32768, 4096, 256))
    case = Case({"M": 32, "N": 4096})
    found = tuned_configs.tuned_config("gpu", replace(SOFTMAX, sweep_dim=""), "cuda", "bf16", case)
    assert found == ({"threads_per_row": 256, "form": 1}, "nearest:gpu")
