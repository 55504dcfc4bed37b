"""`explain`: parsing is in cli.py; here is what it does with its options."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ..registry import Registry
from . import diff, ncu, run_view, view
from .collect import SIDES, collect, matching
from .facts import ExplainError

DEFAULT_ARCH = "90a"


def explain(options: argparse.Namespace) -> int:
    """Print what was asked for; 0, or 1 when --diff found a difference."""
    if options.by_hand:
        return _by_hand(options)
    if options.diff:
        return _diff(options.diff, options.json)
    if options.run is not None:
        print("\n".join(run_view.lines(options.run, options.ops, options.side)))
        return 0
    if options.ncu is not None:
        print("\n".join(ncu.lines(options.ncu)))
        return 0
    registry = Registry()
    for stem in options.ops:
        registry.spec(stem)
    sides = (options.side,) if options.side else SIDES
    gpu, n_sms = gpu_here()
    arch = options.arch or gpu or DEFAULT_ARCH
    ops = list(dict.fromkeys(options.ops)) or registry.stems
    found = collect(registry, ops, arch, sides)
    found.n_sms = n_sms if found.arch == gpu else 0
    everything = found.variants
    found.variants = matching(everything, options.variant)
    if everything and not found.variants:
        raise ExplainError(f"--variant {options.variant}: fits none of {len(everything)} variants")
    if options.json:
        print(json.dumps(found.as_json(), indent=1))
        return 0
    print("\n".join(view.lines(found, each=options.all or bool(options.variant))))
    return 0


def _by_hand(options: argparse.Namespace) -> int:
    if options.diff or options.ncu is not None or options.json:
        raise ExplainError("--by-hand reads a run: take --run with it, not --diff, --ncu or --json")
    from . import by_hand_view  # needs pandas, as no other table here does

    sides = (options.side,) if options.side else SIDES
    print("\n".join(by_hand_view.lines(options.run, options.ops, sides)))
    return 0


def gpu_here() -> tuple[str, int]:
    """(arch, number of SMs) of the visible GPU; ("", 0) where none is."""
    try:
        import torch
    except ImportError:
        return "", 0
    if not torch.cuda.is_available():
        return "", 0
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.major}{properties.minor}", int(properties.multi_processor_count)


def _diff(files: Sequence[Path], as_json: bool) -> int:
    old, new = files
    found = diff.differences(diff.entries(old), diff.entries(new))
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        print("\n".join(diff.lines(found)))
    return 1 if found.changed or found.lost or found.added else 0
