"""Gaps between the sides: counted, explained only by experiments on these very kernels."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures import synthetic_run as synthetic

from harness import experiments, report_ops, report_verdicts
from harness.experiments import EvidenceError, Experiment, Measured
from harness.explain.fact_file import row_key
from harness.explain.timed import facts_of
from harness.machine import gpu_slug
from harness.next_experiments import next_experiment
from harness.pair_words import Piece
from harness.pairs import Code, Pair, Side, confounds, pairs
from harness.reasons import Counts, judge, kind_of
from harness.registry import REPOSITORY
from harness.report import render
from harness.report_map import side_map
from harness.results import Run, read_run

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
HASHES = {"cuda": "scale-cuda", "triton": "scale-triton"}
NONE = Path("/nonexistent")


def words(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def row(n: int, side: str, us: float, **changes: Any) -> dict[str, Any]:
    cells = synthetic.row("scale", n, side, us, roof_us=8.0, config_source="tuned:x")
    return cells | {"pct_roof": 800.0 / us} | changes


def kernel(side: str, **changes: Any) -> dict[str, Any]:
    code = {"loads": {"16": 2, "4": 1}, "stores": {"16": 1}, "source": "sass"}
    facts = {"name": "scale_kernel", "symbol": "s", "side": side, "op": "scale", "arch": "90a"}
    facts |= {"hash": side, "registers": 32, "spill_store_bytes": 0, "spill_load_bytes": 0}
    return facts | {"instructions": code} | changes


def write(
    folder: Path,
    table: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    kernels: dict[str, dict[str, Any]] | None = None,
    tools: dict[str, Any] | None = None,
) -> Run:
    """A run whose rounds are exactly its times, with facts.json where `kernels` are given."""
    monkeypatch.setattr(synthetic, "noisy_rounds", lambda us, rng: [us * (1 + i % 2 * 1e-4)
                        for i in range(12)])  # fmt: skip
    run = synthetic.write(folder, table)
    if kernels is not None:
        launch = {"symbol": "s", "grid": [264, 1, 1], "block": [256, 1, 1], "blocks_per_sm": 4}
        launch |= {"occupancy": 0.5, "limiter": "registers", "waves": 0.5, "registers": 32}
        launch |= {"static_shared_bytes": 0, "dynamic_shared_bytes": 1024}
        rows = {
            row_key(cells): {
                "launches": [launch | {"hash": cells["backend"]}],
                "kernel_hash": cells["kernel_hash"],
                "config": cells["config"],
            }
            for cells in table
        }
        data = {"schema": "1.0", "tools": tools or {}, "problems": [], "kernels": kernels}
        (folder / "facts.json").write_text(json.dumps(data | {"rows": rows}))
    return run


def page(run: Run, folder: Path = NONE) -> report_verdicts.Page:
    return report_verdicts.verdicts(run, side_map(run), folder)


TABLE = [
    (1024, 10.0, 12.5, {}),  # 20 % less time in CUDA
    (4096, 10.0, 10.1, {}),
    (16384, 10.4, 10.0, {}),
    (65536, 10.0, 20.0, {"bound": "launch"}),
]


def table() -> list[dict[str, Any]]:
    return [
        row(n, side, us, **changes)
        for n, cuda, triton, changes in TABLE
        for side, us in (("cuda", cuda), ("triton", triton))
    ]


def test_each_pair_is_in_one_sentence_of_its_own_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {"cuda": kernel("cuda"), "triton": kernel("triton", spill_store_bytes=48)}
    run = write(tmp_path, table(), monkeypatch, kernels)
    found = page(run)
    told = found.by_op["scale"]
    facts = (
        "widest loads 16 B on both sides; registers 32 on both sides; spilled bytes a thread 0/48; "
        "occupancy 50 % on both sides; waves 0.50 on both sides."
    )
    assert [words(group.sentence) for group in told.groups] == [
        "Triton behind at 1024 f32: CUDA takes 20 % less time (CUDA / Triton 0.800, 99 %: 0.800 to "
        f"0.800); 80/64 % of the roof; {facts}",
        f"Level at 4096, 16384 f32: CUDA / Triton 0.990 to 1.040; 77 to 80/79 to 80 % of the roof; "
        f"{facts}",
        "Only launches are compared at 65536 f32: CUDA / Triton 0.500, 99 %: 0.500 to 0.500; 80/40 "
        "% of the roof.",
    ]
    assert found.counts == Counts(1, 0, 1, 2, 0, 1, 0, 6, 6)
    assert found.counted == [
        "Of 1 gap above 5 % between the sides, 0 are confirmed by an ablation or a counter and 1 "
        "is not explained.",
        "No gap: 2 level, 1 that only compare launches, 0 that the intervals cannot tell, 0 "
        "without a time on both sides.",
        "Another question: 6 of 6 headline rows that are not launch-bound stay below 90 % of their "
        "roof.",
    ]
    assert found.groups[0].brief == "scale 1024 f32, Triton behind (CUDA / Triton 0.800)"
    assert words(found.groups[0].next) == (
        "Triton spills 48 bytes a thread: give it fewer elements a thread or more warps until it "
        "spills nothing, then python -m harness bench --op scale --dtype f32 --case 1024 --backend "
        "cuda --backend triton."
    )
    cells = [[value.text for value in line] for line in told.rows]
    assert cells[0][:9] == [
        "1024", "f32", "gap", "0.800", "80 / 64", "1 / 1", "32 / 32", "0 / 48", "1024 / 1024",
    ]  # fmt: skip
    assert told.rows[0][2].note == "not explained"


def test_every_figure_points_to_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {side: kernel(side) for side in ("cuda", "triton")}
    run = write(tmp_path, table(), monkeypatch, kernels)
    gap = page(run).by_op["scale"].groups[0].sentence
    href = {piece.text: piece.href for piece in gap}
    assert href["1024 f32"] == href["80"] == "#row-0" and href["64"] == "#row-1"
    assert href["registers 32 on both sides"] == "#code-0"
    monkeypatch.setattr(report_ops, "MAX_ROWS", 0)
    cut = page(run).by_op["scale"]
    assert not any(piece.href for piece in cut.groups[0].sentence)
    assert cut.rows == [] and cut.hidden == 4


def test_what_the_interval_cannot_tell_and_a_missing_side_are_no_gaps(tmp_path: Path) -> None:
    def noisy(us: float, rng: Any) -> list[float]:
        return [us * rng.gauss(1.0, 0.2) for _ in range(12)]

    lost = {"status": "oom", **{f"time_us_p{q}": None for q in (20, 50, 80)}, "pct_roof": None}
    rows = [row(1024, "cuda", 10.0), row(1024, "triton", 12.0), row(4096, "cuda", 10.0)]
    rows.append(row(4096, "triton", 10.0, **lost))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "noisy_rounds", noisy)
        run = synthetic.write(tmp_path, rows)
    found = page(run)
    assert [kind_of(pair) for pair in pairs(run, side_map(run))] == ["unclear", "untimed"]
    assert found.counts.gaps == 0 and found.counts.unclear == found.counts.untimed == 1
    assert found.groups == []
    unclear, untimed = (words(group.sentence) for group in found.by_op["scale"].groups)
    assert "interval" in unclear
    assert untimed == "Not timed on both sides at 4096 f32: 80/– % of the roof; oom -> ok."


def entry(**changes: Any) -> dict[str, Any]:
    """An ablation that accounts for the whole gap of 1024."""
    return {
        "id": "e1",
        "op": "scale",
        "cases": ["10*"],
        "dtype": "f32",
        "kernel_hash": HASHES,
        "kind": "ablation",
        "claim": "Triton without its masks",
        "side": "triton",
        "measured": [{"case": "1024", "as_is_us": 12.5, "changed_us": 10.0}],
        "command": "python -m harness tune",
        "date": "2000-01-01",
        "card": synthetic.GPU,
        "source": "invented",
    } | changes


def evidence(folder: Path, *entries: Any, name: str = synthetic.GPU) -> Path:
    folder.mkdir(exist_ok=True)
    data = {"schema": "1.0", "experiments": list(entries)}
    (folder / f"{gpu_slug(name)}.json").write_text(json.dumps(data))
    return folder


def test_an_ablation_on_these_kernels_confirms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "run", table(), monkeypatch)
    found = page(run, evidence(tmp_path / "e", entry()))
    assert (found.counts.confirmed, found.counts.unexplained) == (1, 0)
    assert found.counted[0].startswith("Of 1 gap above 5 % between the sides, 1 is confirmed by")
    (group,) = found.groups
    assert group.status == "confirmed" and group.next == []
    assert words(group.evidence[0]) == (
        "Ablation of Triton, e1: Triton without its masks. Measured, µs: 1024 12.5 as it is, 10 "
        "changed. It accounts for 100 % of the gap. python -m harness tune, 2000-01-01, SYNTHETIC "
        "GPU; invented."
    )


@pytest.mark.parametrize("side", ["cuda", "triton"])
def test_a_stale_hash_confirms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    run = write(tmp_path / "run", table(), monkeypatch)
    stale = entry(kernel_hash=HASHES | {side: "another"})
    found = page(run, evidence(tmp_path / "e", stale))
    assert (found.counts.confirmed, found.counts.unexplained) == (0, 1)
    (group,) = found.groups
    assert group.status == "not explained"
    text = words(group.evidence[0])
    assert text.startswith("Was confirmed for an earlier version of the kernel. Ablation of Triton")
    assert words(group.next) == "repeat e1 on these kernels: python -m harness tune."


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"op": "copy"}, ""),
        ({"cases": ["2048"]}, ""),
        ({"dtype": "bf16"}, ""),
        ({"side": "cuda"}, "It does not account for the gap: the change goes the other way."),
        ({"measured": [{"case": "1024", "as_is_us": 12.5, "changed_us": 12.0}]}, "18 % of the gap"),
        ({"measured": [{"case": "1024", "as_is_us": 12.5, "changed_us": 5.0}]}, "411 % of the gap"),
    ],
)
def test_figures_that_do_not_account_for_the_gap_confirm_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], says: str
) -> None:
    run = write(tmp_path / "run", table(), monkeypatch)
    found = page(run, evidence(tmp_path / "e", entry(**changes)))
    assert (found.counts.confirmed, found.counts.unexplained) == (0, 1)
    (group,) = found.groups
    assert [says in words(line) for line in group.evidence] == ([True] if says else [])
    assert group.next


def test_evidence_of_another_card_is_not_this_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "run", table(), monkeypatch)
    other = evidence(tmp_path / "e", entry(card="OTHER GPU"), name="OTHER GPU")
    assert page(run, other).counts.confirmed == 0


def test_an_open_entry_suspects_and_names_the_next_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "run", table(), monkeypatch)
    kept = ("id", "op", "cases", "dtype", "kernel_hash", "claim", "source")
    suspicion = {key: entry()[key] for key in kept} | {"kind": "open", "next": "count `x`"}
    found = page(run, evidence(tmp_path / "e", suspicion))
    (group,) = found.groups
    assert found.counts.unexplained == 1
    assert words(group.evidence[0]) == (
        "Suspected, not measured: Triton without its masks (invented)."
    )
    assert [p for p in group.next if p.code] == [Piece("x", code=True)]
    stale = suspicion | {"kernel_hash": HASHES | {"cuda": "another"}}
    (group,) = page(run, evidence(tmp_path / "e", stale)).groups
    assert group.evidence == [] and "count x" not in words(group.next)


@pytest.mark.parametrize(
    ("worse", "cuda", "triton", "confirms"),
    [
        ("more", 100.0, 125.0, True),
        ("more", 0.0, 7.0, True),
        ("less", 100.0, 80.0, True),
        ("more", 100.0, 102.0, False),
        ("more", 125.0, 100.0, False),
        ("less", 100.0, 125.0, False),
        ("more", 0.0, 0.0, False),
    ],
)
def test_a_counter_confirms_where_the_slower_side_has_the_worse_value(
    worse: str, cuda: float, triton: float, confirms: bool
) -> None:
    counter = Experiment(
        "c", "scale", ("*",), "f32", HASHES, "counter", "more bytes", counter="dram", worse=worse,
        measured=(Measured("1024", cuda, triton),),
    )  # fmt: skip
    assert counter.confirms("1024", 0.8) is confirms
    if cuda != triton:
        assert counter.confirms("1024", 1.25) is (not confirms and abs(cuda - triton) > 2)


def test_a_case_that_was_not_measured_takes_the_least_of_those_that_were() -> None:
    ablation = Experiment(
        "a", "scale", ("*",), "f32", HASHES, "ablation", "x", side="triton",
        measured=(Measured("1", 12.5, 10.0), Measured("2", 10.5, 10.0)),
    )  # fmt: skip
    assert ablation.share("1", 0.8) == pytest.approx(1.0)
    assert ablation.share("3", 0.8) == pytest.approx(math.log(1.05) / math.log(1.25))
    assert not ablation.confirms("3", 0.8)
    assert ablation.share("1", 1.0) is None


WRONG: list[tuple[Any, str]] = [
    ([], "wanted an object, got \\[\\]"),
    ({"kind": "guess"}, "kind: got 'guess', wanted one of ablation, counter, open"),
    ({"dtype": "f99"}, "dtype: got 'f99'"),
    ({"side": "torch"}, "side: got 'torch', wanted one of cuda, triton"),
    ({"kernel_hash": {"cuda": "1"}}, "kernel_hash: wanted cuda and triton"),
    ({"kernel_hash": {"cuda": "1", "triton": ""}}, "kernel_hash.triton: got ''"),
    ({"cases": "1024"}, "cases: wanted a list"),
    ({"claim": "two\nlines"}, "claim: got 'two"),
    ({"date": "yesterday"}, "date: got 'yesterday', wanted YYYY-MM-DD"),
    ({"card": "OTHER GPU"}, "card 'OTHER GPU' belongs in other-gpu.json"),
    ({"colour": "blue"}, "has unknown colour"),
    ({"measured": []}, "wanted a list of case, as_is_us and changed_us"),
    ({"measured": [{"case": "1", "cuda": 1, "triton": 2}]}, "wanted a list of case, as_is_us"),
    ({"measured": [{"case": "1", "as_is_us": 0, "changed_us": 2}]}, "are no figures"),
    ({"measured": [{"case": "1", "as_is_us": True, "changed_us": 2}]}, "are no figures"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_evidence_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, message: str
) -> None:
    wrong = changes if isinstance(changes, list) else entry(**changes)
    folder = evidence(tmp_path / "e", wrong)
    path = folder / f"{gpu_slug(synthetic.GPU)}.json"
    with pytest.raises(EvidenceError, match=message) as caught:
        experiments.read(path)
    assert "\n" not in str(caught.value) and "experiments[0]" in str(caught.value)
    found = page(write(tmp_path / "run", table(), monkeypatch), folder)
    assert found.counts.confirmed == 0 and len(found.notes) == 2
    assert found.notes[0].startswith("Evidence is not read: ") and str(tmp_path) not in str(
        found.notes
    )


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": "2.0", "experiments": []}', '{"schema": "1.0"}', "\xff"]
)
def test_a_file_that_is_no_evidence_gets_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(EvidenceError, match=r"x\.json: ") as caught:
        experiments.read(path)
    assert "\n" not in str(caught.value)


def test_entries_lacking_a_field_or_with_an_id_twice_are_refused(tmp_path: Path) -> None:
    lacking = entry()
    del lacking["command"]
    for entries, message in (
        ((lacking,), "lacks command"),
        ((entry(), entry()), "id 'e1' is taken"),
    ):
        folder = evidence(tmp_path / "e", *entries)
        with pytest.raises(EvidenceError, match=message):
            experiments.of_gpu(synthetic.GPU, folder)


def pair(ratio: float, cuda: Code | None, triton: Code | None, source: str = "tuned:x") -> Pair:
    sides = {
        side: Side(i, side, source, 10.0, 90.0, code)
        for i, (side, code) in enumerate((("cuda", cuda), ("triton", triton)))
    }
    return Pair(
        "scale", "1024", "1024", "f32", "memory", "FASTER", ratio, ratio, ratio, (1.0, 1.0), sides
    )


PLAIN = Code(
    "k", 1, "90a", 32, 0, 0, 16, (), (), 65536.0, 0.5, "registers", 20.0, None
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "rule", "says"),
    [
        ({"spill_bytes": 8}, "spills", "spills 8 bytes a thread"),
        ({"matrix": ("mma",)}, "matrix", "hold CUDA to mma"),
        ({"widest_load": 4}, "loads", "widest load is 4 bytes a thread, CUDA's 16"),
        ({"occupancy": 0.25}, "occupancy", "fills 25 % of an SM's warps (limit: registers)"),
        ({"waves": 1.1}, "waves", "1.10 waves leave 45 % of the card's turns empty"),
        ({"in_flight": 1024.0}, "in_flight", "has 1 KiB of loads under way on an SM, CUDA 64 KiB"),
        ({}, "counter", "count the bytes that each side moves: `ncu --csv"),
    ],
)
def test_the_next_experiment_follows_from_the_facts(
    changes: dict[str, Any], rule: str, says: str
) -> None:
    fast = replace(PLAIN, matrix=("wgmma",)) if rule == "matrix" else PLAIN
    found = next_experiment(pair(0.8, fast, replace(PLAIN, **changes)))
    assert found.rule == rule and says in found.text
    turned = next_experiment(pair(1.25, replace(PLAIN, **changes), fast))
    assert turned.rule == rule and turned.text != found.text
    # What the slower side has more of costs it nothing.
    if rule not in ("matrix", "counter"):
        assert next_experiment(pair(1.25, fast, replace(PLAIN, **changes))).rule == "counter"


def test_staging_and_tuning_come_first_where_they_differ() -> None:
    staged = replace(PLAIN, staging=("cp.async",), in_flight=None)
    assert next_experiment(pair(0.8, staged, PLAIN)).rule == "staging"
    assert next_experiment(pair(1.25, staged, PLAIN)).rule == "counter"
    borrowed = next_experiment(pair(0.8, staged, PLAIN, "nearest:x"))
    assert borrowed.rule == "tune" and "--backend triton`, then" in borrowed.text
    assert "default configuration" in next_experiment(pair(0.8, None, None, "default")).text
    unknown = next_experiment(pair(0.8, PLAIN, None))
    assert unknown.rule == "counter" and "not known on both sides" in unknown.text


def test_facts_of_other_kernels_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = {side: kernel(side) for side in ("cuda", "triton")}
    run = write(tmp_path, table(), monkeypatch, kernels)
    path = tmp_path / "facts.json"
    path.write_text(path.read_text().replace("scale-triton", "another"))
    found = pairs(run, side_map(run))
    assert all(p.sides["cuda"].code and p.sides["triton"].code is None for p in found)
    assert "registers 32/–" in words(page(run).groups[0].sentence)
    path.write_text("{")
    assert "No facts of the compilers: facts.json: cannot be read" in page(run).notes[0]
    assert "no facts of the compilers are recorded" in words(page(run).groups[0].sentence)
    path.unlink()
    assert page(run).notes == ["No facts of the compilers: the run has no facts.json."]


def test_confounds_are_named_only_where_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {
        "cuda": {"ptxas": "13.0", "flags": "-O3"},
        "triton": {"triton_ptxas": "12.8"},
    }
    kernels = {"cuda": kernel("cuda"), "triton": kernel("triton", arch="90")}
    run = write(tmp_path, table(), monkeypatch, kernels, tools)
    found = pairs(run, side_map(run))
    assert confounds(facts_of(run), found) == [
        "ptxas 13.0 made the CUDA side's machine code, 12.8 Triton's",
        "compiled for sm_90a (CUDA) against sm_90 (Triton)",
    ]
    path = tmp_path / "facts.json"
    data = json.loads(path.read_text().replace("12.8", "13.0").replace('"90"', '"90a"'))
    assert confounds(facts_of(run), found)
    for entry_ in data["rows"].values():
        entry_["launches"][0]["options"] = {"enable_fp_fusion": True}
    path.write_text(json.dumps(data))
    assert confounds(facts_of(run), pairs(run, side_map(run))) == []
    path.write_text(path.read_text().replace("-O3", "-O3 --fmad=false"))
    assert confounds(facts_of(run), pairs(run, side_map(run))) == [
        "multiplications and additions are kept apart on the CUDA side, fused on Triton's"
    ]


# --- the reference run ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference() -> Run:
    return read_run(REFERENCE)


def test_every_gap_of_the_reference_is_confirmed_or_has_a_next_experiment(reference: Run) -> None:
    sides = side_map(reference)
    found = report_verdicts.verdicts(reference, sides)
    rows = sides.rows
    judged = (rows["bound"] != "launch") & rows["verdict"].isin(["FASTER", "SLOWER", "SAME"])
    gaps = rows[judged & ((rows["ratio"] - 1).abs() > 0.05)]
    n = found.counts
    assert n.gaps == len(gaps) > 0
    assert sum(g.n for g in found.groups) == n.gaps == n.confirmed + n.unexplained
    by_status = {
        status: sum(g.n for g in found.groups if g.status == status)
        for status in ("confirmed", "not explained")
    }
    assert by_status == {"confirmed": n.confirmed, "not explained": n.unexplained}
    assert f"{n.confirmed} {'is' if n.confirmed == 1 else 'are'} confirmed" in found.counted[0]
    for group in found.groups:
        assert group.evidence if group.status == "confirmed" else words(group.next)
    total = n.gaps + n.level + n.unclear + n.launch + n.untimed
    assert total == len(rows) == sum(g.n for op in found.by_op.values() for g in op.groups)
    assert set(found.by_op) == set(reference.rows["op"]) and found.notes == []


def test_the_page_counts_as_its_list_does_and_every_link_arrives(reference: Run) -> None:
    text = render(reference)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert targets <= set(ids)
    assert {t.split("-")[0] for t in targets} >= {"row", "code", "verdict", "gaps"}
    counted = re.search(r"Of (\d+) gaps? above 5 % between the sides, (\d+) (?:is|are) conf", text)
    assert counted is not None
    listed = {s: int(k) for s, k in re.findall(r"<h3>(Confirmed|Not explained): (\d+)</h3>", text)}
    assert int(counted[2]) == listed.get("Confirmed", 0)
    assert int(counted[1]) == sum(listed.values())
    assert text.index('id="gaps"') < text.index('id="map"')


@pytest.mark.parametrize("room", [0, 5])
def test_no_link_of_a_page_that_is_cut_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    many = [row(n, s, us) for n in range(1, 9) for s, us in (("cuda", 10.0), ("triton", 12.5))]
    run = write(tmp_path, many, monkeypatch)
    monkeypatch.setattr(report_ops, "MAX_ROWS", room)
    text = render(run)
    ids = set(re.findall(r' id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= ids
    assert ">4 more</a>" in text and "further cases are not shown" in text


def test_the_evidence_is_what_docs_and_reference_record(reference: Run) -> None:
    """No figure of the evidence is typed from nowhere, and none is of other kernels."""
    facts = (REPOSITORY / "docs" / "facts.md").read_text()
    headings = re.findall(r"^### (.*)$", facts, re.MULTILINE)
    times = reference.rows[reference.rows["status"] == "ok"]
    files = sorted(experiments.FOLDER.glob("*.json"))
    assert files
    for file in files:
        for one in experiments.read(file):
            place, _, heading = one.source.partition(", ")
            assert place == "docs/facts.md"
            assert any(h.startswith(heading) for h in headings), one.id
            part = times[(times["op"] == one.op) & (times["dtype"] == one.dtype)]
            hashes = {s: set(part.loc[part["backend"] == s, "kernel_hash"]) for s in HASHES}
            assert all(one.kernel_hash[s] in hashes[s] for s in HASHES), one.id
            recorded = {float(f"{t:.1f}") for t in part["time_us_p50"]}
            recorded |= set(map(float, re.findall(r"\d+\.\d+", facts)))
            for m in one.measured:
                assert {m.first, m.second} <= recorded, one.id
            cases = [c for c in set(part["case"]) if one.covers(one.op, c, one.dtype)]
            assert cases, one.id


def test_every_field_of_the_evidence_is_documented() -> None:
    text = (REPOSITORY / "docs" / "results-schema.md").read_text()
    section = text.partition("\n## Evidence of gaps\n")[2].partition("\n## ")[0]
    named = {
        kind: {
            name
            for line in section.splitlines()
            if line.startswith("| `") and re.search(rf"\| (all|[^|]*\b{kind}\b[^|]*) \|", line)
            for name in re.findall(r"`(\w+)`", line.split("|")[1])
        }
        for kind in experiments.KINDS
    }
    assert {k: v - {"next"} for k, v in named.items()} == {
        kind: wanted - {"next"} for kind, wanted in experiments._WANTED.items()
    }
    assert f"this section, {experiments.SCHEMA}" in section


def test_judging_needs_neither_torch_nor_triton() -> None:
    code = (
        "import sys, harness.report_verdicts; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=120)
    assert done.returncode == 0


def test_a_verdict_is_the_same_whichever_case_it_is_told_with() -> None:
    found = judge(pair(0.8, PLAIN, PLAIN))
    assert found.kind == "gap" and not found.confirmed and found.next is not None
    assert judge(replace(pair(0.96, PLAIN, PLAIN))).kind == "level"
    assert judge(replace(pair(0.8, PLAIN, PLAIN), bound="launch")).kind == "launch"
