"""The committed reference runs are whole, from the kernels of this tree, and in the README."""

from __future__ import annotations

import pytest

from harness.machine import source_hash
from harness.readme import check_readme
from harness.registry import REPOSITORY, Registry
from harness.results import read_run

REFERENCES = sorted((REPOSITORY / "results").glob("*/reference"))


@pytest.fixture(params=REFERENCES, ids=[path.parent.name for path in REFERENCES])
def reference(request):
    return read_run(request.param)


def test_there_is_one():
    assert REFERENCES


def test_it_is_complete_and_every_row_is_ok_or_absent_by_design(reference):
    assert reference.complete
    assert set(reference.rows.status) <= {"ok", "absent"}
    registry = Registry()
    for stem in registry.stems:
        for backend in ("cuda", "triton", "torch"):
            rows = reference.rows[(reference.rows.op == stem) & (reference.rows.backend == backend)]
            cases = registry.spec(stem).bench_cases_at("default")
            assert set(rows.case) == {case.name for case in cases}


def test_it_was_measured_with_the_kernels_of_this_tree(reference):
    registry = Registry()
    headline_or_rung = ["op", "backend", "variant"]
    for (stem, backend, rung), rows in reference.rows.groupby(headline_or_rung):
        files = registry.kernel_files(stem, backend, rung)
        if files:
            assert set(rows.kernel_hash) == {source_hash(files)}, (
                f"{stem} {backend} {rung} changed since the reference run; make it again on its GPU"
            )


def test_the_readme_shows_the_first_of_them():
    assert check_readme(REPOSITORY / "README.md", read_run(REFERENCES[0]))


def test_the_picture_is_there(reference):
    assert (reference.path / "overview.png").read_bytes().startswith(b"\x89PNG")
