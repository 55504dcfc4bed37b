"""`bench --dry-run`: what would run here and for how long, after the refusals of a real run."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import nogpu
from .console import stdout
from .options import print_units, sweep_options, units_of
from .plan import PlanError, estimate_s
from .run_folder import refuse_unusable
from .sweep import run_meta


def dry_run(options: argparse.Namespace, has_gpu: bool) -> int:
    """Print the cases that a real run would take here; writes nothing.

    Raises what the real run would raise for its selection and its folder.
    """
    registry, units = units_of(options) if has_gpu else nogpu.selected(options)
    out = options.out or Path("results")
    # Which GPU it is only its worker tells; everything else of an earlier run is compared.
    gpu = {} if has_gpu else {"name": "none"}
    effort = "quick" if has_gpu and options.level == "quick" else "default"
    meta = run_meta(registry, units, sweep_options(options, effort), gpu)
    refuse_unusable(out, meta, options.resume)
    text = _on_a_gpu(options)
    if not has_gpu:
        units = nogpu.small_units(units)
        text = f"{nogpu.outlook(units, nogpu.selected(options)[1])} {text}"
    print_units(units)
    stdout.print(f"{text}; nothing was run", markup=False)
    return 0


def _on_a_gpu(options: argparse.Namespace) -> str:
    try:
        _, units = units_of(options)
    except PlanError:  # filters that select test cases alone
        return "On a GPU no bench case matches"
    n_rows = sum(len(unit.contenders) for unit in units)
    seconds = estimate_s(units, options.level)
    cases = "1 case" if len(units) == 1 else f"{len(units)} cases"
    return f"On a GPU: {cases}, {n_rows} rows, about {seconds:.0f} s"
