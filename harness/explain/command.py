"""`explain`: parsing is in options.py; here is what it does with its options."""

from __future__ import annotations

import argparse
import json

from ..registry import Registry
from ..sides import SIDES
from ..spelling import did_you_mean
from . import diff, ncu, run_view, view
from .collect import Explained, collect, matching
from .facts import ExplainError
from .options import refuse_ignored
from .variants import Variant

DEFAULT_ARCH = "90"


def explain(options: argparse.Namespace) -> int:
    """Print what was asked for; 0, or 1 for a difference or a mismatch."""
    refuse_ignored(options)
    if options.by_hand:
        return _by_hand(options)
    if options.diff:
        return _diff(options)
    if options.run is not None:
        text, n_mismatches = run_view.lines(options.run, options.ops, options.side or "")
        print("\n".join(text))
        return 1 if n_mismatches else 0
    if options.ncu is not None:
        print("\n".join(ncu.lines(options.ncu)))
        return 0
    found = _chosen(options)
    if options.json:
        print(json.dumps(found.as_json(), indent=1))
        return 0
    print("\n".join(view.lines(found, each=options.all or bool(options.variant))))
    return 0


def _chosen(options: argparse.Namespace) -> Explained:
    """The variants that were asked for; ExplainError where there is none."""
    registry = Registry()
    for stem in options.ops:
        registry.spec(stem)
    gpu, n_sms = gpu_here()
    ops = list(dict.fromkeys(options.ops)) or registry.stems
    sides = (options.side,) if options.side else SIDES
    found = collect(registry, ops, options.arch or gpu or DEFAULT_ARCH, sides)
    found.n_sms = n_sms if found.arch == gpu else 0
    everything = found.variants
    if not everything:
        why = "; ".join(found.notes) or f"{', '.join(ops)} has no {' or '.join(sides)} side"
        raise ExplainError(f"no kernel to show: {why}")
    found.variants = matching(everything, options.variant)
    if not found.variants:
        raise ExplainError(_none_fits(options.variant, everything))
    return found


def _none_fits(pattern: str, variants: list[Variant]) -> str:
    names = {name for v in variants for name in (*v.names, v.kernel.name.partition("<")[0])}
    return (
        f"--variant {pattern}: fits none of {len(variants)} variants, such as "
        f"{variants[0].label!r}{did_you_mean(pattern, sorted(names))}"
    )


def _by_hand(options: argparse.Namespace) -> int:
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


def _diff(options: argparse.Namespace) -> int:
    found = diff.compare(*options.diff)
    if options.json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        print("\n".join(diff.lines(found)))
    return 1 if found.changed or found.lost or found.added else 0
