"""report.html: a run's files as one page that needs no network, the same bytes each time."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness import (
    pair_table,
    report_base,
    report_by_hand,
    report_machine,
    report_ops,
    report_verdicts,
)
from harness.explain.timed import Facts, facts_of
from harness.registry import Registry
from harness.report_effort import method as effort_method
from harness.report_effort import written
from harness.report_figures import Pictures, pictures
from harness.report_ladders import ladders
from harness.report_map import MAX_LINES, WINNERS, SideMap, side_map, summary
from harness.report_ops import Op
from harness.report_sources import sources
from harness.results import ResultsError, Run, gpu_names
from harness.run_repair import write_atomically

REPORT_NAME = "report.html"


def write_report(
    run: Run, out: Path, base: Run | None = None, figures: Sequence[Path] | None = None
) -> Path:
    """Write the report of `run` to `out`, whole or not at all, and return its path.

    base: an earlier run to compare with; ComparisonRefused where that cannot be. figures: the
    files of the run's figures, drawn now where they are not given.
    """
    text = render(run, base, figures)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode())
    except OSError as error:
        raise ResultsError(
            f"cannot write {out}: {error.strerror or error}; choose another --out"
        ) from error
    return out


def render(run: Run, base: Run | None = None, figures: Sequence[Path] | None = None) -> str:
    """Return the page."""
    compared = report_base.against(base, run) if base is not None else None
    sides, facts = side_map(run), facts_of(run)
    drawn = pictures(run, sides, figures)
    roof_lines, roof_method = report_machine.roofs(run)
    environment = _environment()
    style, script = (_asset(environment, name) for name in ("report.css", "report.js"))
    return environment.get_template("report.html").render(
        title=_title(run),
        style=style,
        script=script,
        # Only this script may run, and nothing may be fetched, whatever a file of the run says.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        run=run,
        name=report_base.name_of(run),
        summary=summary(run, sides),
        sides=sides,
        winners=WINNERS,
        max_lines=MAX_LINES,
        ops=_ops(run, sides, drawn, facts),
        columns=report_ops.COLUMNS,
        verdicts=report_verdicts.verdicts(run, sides, facts=facts),
        verdict_columns=pair_table.COLUMNS,
        overall=drawn.by_op.get("", []),
        undrawn=drawn.missing,
        base=compared,
        base_columns=report_base.COLUMNS,
        machine=report_machine.machine(run),
        settings=report_machine.settings(run),
        clock=report_machine.clock(run),
        roofs=roof_lines,
        roof_method=roof_method,
        drift=report_machine.drift(run),
        failures=report_machine.failures(run),
        files=report_machine.files(run),
        effort_method=effort_method(),
    )


def _title(run: Run) -> str:
    return f"CUDA and Triton on {' and '.join(gpu_names(run)) or 'a GPU that is not recorded'}"


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("harness", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(environment: Environment, name: str) -> Markup:
    """Return a file of ours as it is: style and script are not data."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def _ops(run: Run, sides: SideMap, drawn: Pictures, facts: Facts) -> list[Op]:
    registry = Registry()
    room = report_ops.MAX_ROWS
    found = []
    for place, op in enumerate(run.rows["op"].drop_duplicates()):
        rows = run.rows[run.rows["op"] == op]
        lines, hidden = report_ops.table(run, op, sides, room)
        room -= len(lines)
        anchor = f"op-{place + 1}"
        table = report_by_hand.of_op(run, facts, str(op), registry)
        linked = report_by_hand.wanted(table)
        shown = sources(rows, op, registry, anchor, facts, linked)
        found.append(
            Op(
                str(op),
                anchor,
                report_ops.sentence(run, op, sides),
                drawn.by_op.get(op, []),
                lines,
                hidden,
                report_ops.warnings_in_words(rows),
                ladders(run, op),
                report_ops.compiled(rows),
                shown,
                None if table is None else report_by_hand.made(table, run, anchor, shown.anchors()),
                written(rows, str(op), registry),
            )
        )
    return found
