"""The drawing of a pair: this kernel's numbers, nothing invented, no text outside of its box."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from fixtures.timed_pairs import launch, pair, side

from harness import report_svg
from harness.explain.facts import Instructions
from harness.explain.timed import TimedPair, TimedSide, facts_of, timed_pair
from harness.plot_text import width_of
from harness.registry import REPOSITORY
from harness.report_drawing import Drawing, drawing, elements
from harness.report_svg import svg
from harness.results import read_run

RUN = read_run(REPOSITORY / "results" / "nvidia-h200" / "reference")
FACTS = facts_of(RUN)
OPS = [str(op) for op in RUN.rows["op"].drop_duplicates()]
EVIL = "<script>alert(1)</script>\"'&"
WIDE = Instructions(loads={4: 2, 16: 1}, mix={"LDG": 3})


def lines(backend: str, *launches: Any, gpu: object = None, **row: Any) -> list[str]:
    """All lines of one side's panel."""
    one = side(backend, *launches, **row)
    drawn = drawing(pair(one, one), {"sm_count": 4} if gpu is None else gpu)
    return [line for level in drawn.panels[0].levels for line in level.lines]


def reference(op: str) -> Drawing:
    found = timed_pair(RUN, FACTS, op)
    assert found is not None
    return drawing(found, RUN.meta["gpu"])


def test_a_cuda_launch_in_cudas_words() -> None:
    assert lines("cuda", launch("k", WIDE)) == [
        "Grid: 40 × 1 × 1 = 40 blocks",
        "2.5 waves over 4 SMs: 2 full, the last 50 % full",
        "One SM of 4: 4 blocks at a time",
        "Limited by registers and shared, occupancy 12.5 %",
        "One block: 64 threads = 2 warps of 32 lanes",
        "40 registers a thread, 2 KiB shared memory",
        "One warp: 32 lanes",
        "The widest load moves 16 B a lane, 512 B a warp",
        "A thread works out from threadIdx which elements are its own",
    ]


def test_a_triton_launch_in_tritons_words() -> None:
    config = '{"BLOCK_M": 32, "BLOCK_SIZE": 64, "num_warps": 2, "blocks_per_sm": 3}'
    found = lines(
        "triton",
        launch("k", WIDE, grid=(32, 2, 1), options={"num_warps": 2}),
        config=config,
    )
    assert found == [
        "Grid: 32 × 2 × 1 = 64 program instances",
        "2.5 waves over 4 SMs: 2 full, the last 50 % full",
        "One SM of 4: 4 programs at a time",
        "Limited by registers and shared, occupancy 12.5 %",
        "One program: 2 warps of 32 lanes, by num_warps=2",
        "40 registers a thread, 2 KiB shared memory",
        "A program owns 1024 elements of 65536",
        "Tile: BLOCK_M=32, BLOCK_SIZE=64",
        "One warp: 32 lanes",
        "The widest load moves 16 B a lane, 512 B a warp",
        "The compiler deals the tile out to the lanes",
    ]


@pytest.mark.parametrize(
    ("waves", "words", "cells"),
    [
        (0.97, "0.97 waves over 4 SMs: the only one 97 % full", [0.97]),
        (1.0, "1 wave over 4 SMs: full", [1.0]),
        (3.0, "3 waves over 4 SMs: all 3 full", [1.0, 1.0, 1.0]),
        (1.002, "about 1 wave over 4 SMs: 1 full, the last less than 1 % full", [1.0, 0.002]),
        (1.999, "about 2 waves over 4 SMs: 1 full, the last more than 99 % full", [1.0, 0.999]),
        (0.001, "less than 0.01 waves over 4 SMs: the only one less than 1 % full", [0.001]),
    ],
)
def test_the_last_wave_is_shown_as_far_as_it_is_filled(
    waves: float, words: str, cells: list[float]
) -> None:
    one = side("cuda", launch("k", waves=waves))
    level = drawing(pair(one, one), {"sm_count": 4}).panels[0].levels[0]
    assert level.lines[1] == words
    assert [cell.filled for cell in level.cells] == pytest.approx(cells)


def test_many_waves_keep_both_ends() -> None:
    one = side("cuda", launch("k", waves=31.25))
    cells = drawing(pair(one, one), None).panels[0].levels[0].cells
    assert [c.label for c in cells] == [*map(str, range(1, 10)), "…", "31", "32"]
    assert cells[-1].filled == pytest.approx(0.25) and {c.filled for c in cells[:-1]} == {1.0}


def test_unknown_numbers_are_left_out() -> None:
    nothing = dict.fromkeys(("registers", "static_shared_bytes", "blocks_per_sm", "waves"))
    bare = launch("k", occupancy=None, limiter="", block=None, **nothing)
    assert lines("cuda", bare, gpu={}) == ["Grid: 40 × 1 × 1 = 40 blocks"]
    no_card = lines("cuda", launch("k", grid=(3, 1, 1)), gpu={"sm_count": "many"})
    assert no_card[:3] == [
        "Grid: 3 × 1 × 1 = 3 blocks",
        "2.5 waves: 2 full, the last 50 % full",
        "One SM: 4 blocks at a time",
    ]
    assert not any("owns" in line or "widest" in line for line in no_card)
    assert not re.search(r"(?<![\d.])0(?![\d.])", " ".join(no_card))


def test_no_shared_memory_is_known_and_said() -> None:
    assert "40 registers a thread, no shared memory" in lines(
        "cuda", launch("k", dynamic_shared_bytes=0)
    )


def test_the_first_of_the_largest_launches_is_drawn() -> None:
    small, first, second = launch("a", grid=(2, 1, 1)), launch("b"), launch("c")
    drawn = drawing(pair(side("cuda", small, first, second), side("triton", small)), None)
    assert drawn.panels[0].title == "CUDA: b"
    assert drawn.panels[0].note == "2 of 3 launches of a call"
    assert drawn.panels[1].note == ""


def test_a_side_without_launches_says_why() -> None:
    missing = TimedSide("triton", unknown="the run has no Triton row of this case")
    drawn = drawing(pair(side("cuda", launch("k")), missing), None)
    assert drawn.panels[1].note == "Not known: the run has no Triton row of this case"
    assert drawn.panels[1].levels == ()
    check_geometry(drawn)


@pytest.mark.parametrize(
    ("dims", "wanted"),
    [
        ("N=1024", 1024),
        ("M=3;N=5", 15),
        ("M=3;N=5;K=7", 15),
        ("T=2;H=3;D=5", 30),
        ("K=7", 7),
        ("", None),
        ("N=0", None),
        ("N=many", None),
    ],
)
def test_elements_of_a_case(dims: str, wanted: int | None) -> None:
    assert elements({"dims": dims}) == wanted


@pytest.mark.parametrize("op", OPS)
def test_every_pair_of_the_reference_is_drawn_with_its_own_numbers(op: str) -> None:
    drawn = reference(op)
    found = timed_pair(RUN, FACTS, op)
    assert found is not None
    for panel, one in zip(drawn.panels, found.sides, strict=True):
        shown = one.shown
        assert shown is not None and shown.launch.threads is not None
        assert [level.scale for level in panel.levels] == ["grid", "SM", "block", "warp"]
        words = " ".join(line for level in panel.levels for line in level.lines)
        assert f"{shown.launch.registers} registers a thread" in words
        assert f"= {shown.n_blocks} " in words and "over 132 SMs" in words
        assert len(panel.levels[1].cells) == shown.launch.blocks_per_sm
        assert len(panel.levels[2].cells) == -(-shown.launch.threads // 32)
        assert len(panel.levels[3].cells) == 32
    check_geometry(drawn)


def test_the_same_pair_gives_the_same_bytes() -> None:
    assert svg(reference("softmax"), "op-1") == svg(reference("softmax"), "op-1")


def test_a_kernels_name_is_never_markup() -> None:
    evil = launch(EVIL, limiter=EVIL)
    text = svg(drawing(TimedPair(EVIL, EVIL, "f32", (side("cuda", evil),) * 2), None), "op-1")
    assert "<script>" not in text
    tree = ElementTree.fromstring(text)
    assert EVIL in (tree.findtext("desc") or "") and EVIL in tree.attrib["aria-label"]


def test_a_long_name_is_cut_and_told_whole() -> None:
    name = "kernel_" * 40
    drawn = drawing(pair(side("cuda", launch(name)), side("triton", launch(name))), None)
    check_geometry(drawn)
    tree = ElementTree.fromstring(svg(drawn, "op-1"))
    assert name in (tree.findtext("desc") or "")
    assert not any(name in (text.text or "") for text in tree.iter("text"))


@pytest.mark.parametrize("n", [1, 2, 32])
def test_as_many_cells_as_an_sm_can_have_fit(n: int) -> None:
    full = launch("k", blocks_per_sm=n, block=(32 * n, 1, 1), waves=123456.5)
    check_geometry(drawing(pair(side("cuda", full), side("triton", full)), {"sm_count": 132}))


Box = tuple[float, float, float, float]


def boxes(tree: ElementTree.Element, kind: str) -> list[Box]:
    """(left, top, right, bottom) of the rectangles of a class."""
    return [
        (x, y, x + width, y + height)
        for each in tree.iter("rect")
        if each.attrib["class"] == kind
        for x, y, width, height in [[float(each.attrib[k]) for k in ("x", "y", "width", "height")]]
    ]


def texts(tree: ElementTree.Element) -> Iterator[Box]:
    """Estimated boxes of all words, in a font that is wider than a page's usual one."""
    sizes = {"head": report_svg.TITLE, "small": report_svg.SMALL}
    for each in tree.iter("text"):
        kind = each.attrib.get("class", "")
        size = sizes.get(kind, report_svg.TEXT)
        width = 72 * width_of(each.text or "", size, kind == "head")
        x, y = float(each.attrib["x"]), float(each.attrib["y"])
        left = x - width / 2 if kind == "small" else x
        yield left, y - 0.76 * size, left + width, y + 0.24 * size


def inside(inner: Box, outer: Box) -> bool:
    a, b = inner, outer
    near = 0.02  # coordinates have two digits
    return (
        a[0] >= b[0] - near and a[1] >= b[1] - near and a[2] <= b[2] + near and a[3] <= b[3] + near
    )


def meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def check_geometry(drawn: Drawing) -> None:
    """Nothing leaves the drawing or its frame, and nothing lies on anything that it is not in."""
    tree = ElementTree.fromstring(svg(drawn, "op-1"))
    assert tree.attrib["role"] == "img" and tree.attrib["aria-label"] == drawn.title
    x, y, width, height = map(float, tree.attrib["viewBox"].split())
    frames, cells, words = boxes(tree, "frame"), boxes(tree, "edge"), list(texts(tree))
    for each in [*frames, *cells, *words]:
        assert inside(each, (x, y, x + width, y + height)), each
    for a, b in itertools.combinations(frames, 2):
        assert not meet(a, b), (a, b)
    for a, b in itertools.combinations(cells, 2):
        assert not meet(a, b), (a, b)
    for a, b in itertools.combinations(words, 2):
        assert not meet(a, b), (a, b)
    for cell in cells:
        assert any(inside(cell, frame) for frame in frames)
    for word in words:
        for box in [*frames, *cells]:
            assert inside(word, box) or not meet(word, box), (word, box)
