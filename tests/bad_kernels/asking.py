"""Asking a worker for a case in which one implementation is bad and its neighbours are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from harness.protocol import Contender, Request
from harness.spec import Case
from harness.supervisor import Supervisor

from .catalogue import ROOT, BadKernel, catalogue

CATALOGUE = catalogue()


def params(wanted: Callable[[BadKernel], bool]) -> list[Any]:
    """The bad kernels that are `wanted`; one that nothing catches yet is expected to fail."""
    return [
        pytest.param(
            bad,
            id=f"{bad.backend}-{bad.name}",
            marks=pytest.mark.xfail(reason=bad.caught.missing) if bad.caught.missing else (),
        )
        for bad in CATALOGUE
        if wanted(bad)
    ]


def request_for(bad: BadKernel, case: Case, timed: bool = False) -> Request:
    return Request(
        op=bad.caught.op,
        dims=dict(case.dims),
        layout=case.layout,
        dtype=bad.caught.dtype,
        contenders=(bad.contender, *bad.neighbours()),
        seed=7,
        timed=timed,
        settings="tune",
        kernels=(str(ROOT),),
    )


def assert_caught(bad: BadKernel, row: dict[str, Any]) -> None:
    assert row["status"] in bad.caught.status.split("|"), row
    assert re.search(bad.caught.reason, row["reason"]), row["reason"]
    assert "time_us_p50" not in row


def rows_of(supervisor: Supervisor, request: Request) -> dict[str, dict]:
    events = supervisor.run(request)
    rows = {Contender(e["row"]["backend"], e["row"]["variant"]).label: e["row"] for e in events}
    assert list(rows) == [contender.label for contender in request.contenders]
    return rows
