"""The report in a browser: nothing leaves the page, keys sort, nothing overflows."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from fixtures import synthetic_run as synthetic

from harness.registry import REPOSITORY
from harness.report import write_report
from harness.results import read_run

pytestmark = pytest.mark.browser
REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Every text's contrast with what is painted behind it, by WCAG's formula; the least of all.
_CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const channel = (v) => v <= 10 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const d of document.querySelectorAll("details")) d.open = true;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(element)) continue;
    if (element.closest("script, style, .skip, .hidden")) continue;
    seen.add(element);
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = element.tagName + "." + element.className;
    found.push([ratio, name, element.textContent.slice(0, 40)]);
  }
  found.sort((a, b) => a[0] - b[0]);
  return found[0];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch()
        except sync_api.Error as error:
            path = next(filter(None, map(shutil.which, _NAMES)), None)
            if path is None:
                pytest.skip(f"no Chromium is installed ({str(error).splitlines()[0]})")
            found = playwright.chromium.launch(executable_path=path)
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section: the reference, compared with itself, and a row that failed."""
    run = read_run(REFERENCE)
    return write_report(run, tmp_path_factory.mktemp("report") / "report.html", run)


def opened(browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> Any:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.problems.append(request.url))
    page.goto(file.as_uri())
    return page


def test_nothing_leaves_the_page_and_nothing_goes_wrong(browser: Any, page_file: Path) -> None:
    page = opened(browser, page_file)
    outside = [p for p in page.problems if p != page_file.as_uri() and not p.startswith("data:")]
    assert outside == []
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 100)")


@pytest.mark.parametrize("width", [390, 1280])
def test_only_tables_scroll_sideways(browser: Any, page_file: Path, width: int) -> None:
    page = opened(browser, page_file, width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('.wide').scrollWidth") > 0


def test_a_long_name_does_not_widen_the_page(browser: Any, tmp_path: Path) -> None:
    name = "x" * 180
    table = [
        synthetic.row(name, 1024, side, 9.0, case=name, form=name, reason=name, config=name)
        for side in ("cuda", "triton")
    ]
    run = synthetic.write(tmp_path / "run", table, synthetic.meta(command="y" * 500))
    page = opened(browser, write_report(run, tmp_path / "report.html"), 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_keyboard_sorts_a_table(browser: Any, page_file: Path) -> None:
    page = opened(browser, page_file)
    table = page.locator("section[id^=op-] table.sortable").first
    header = table.locator("th", has_text="Time µs")
    values = """e => [...e.tBodies[0].rows].map(r => r.cells[5].dataset.key)"""
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    known = [float(v) for v in table.evaluate(values) if v]
    assert known == sorted(known) and len(known) > 5
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "descending"
    assert [float(v) for v in table.evaluate(values) if v] == sorted(known, reverse=True)
    assert table.locator("th[aria-sort]").count() == 1


def test_the_first_tab_stop_skips_to_the_results(browser: Any, page_file: Path) -> None:
    page = opened(browser, page_file)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_structure(browser: Any, page_file: Path) -> None:
    page = opened(browser, page_file)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for landmark in ("main", "header", "nav", "footer"):
        assert page.locator(landmark).count() == 1
    assert page.evaluate("[...document.images].every(i => i.alt.length > 40)")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    links = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert set(links) <= set(ids)
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption)")
    named = "[...document.querySelectorAll('[role=region]')].every(e => e.ariaLabel)"
    assert page.evaluate(named)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(browser: Any, page_file: Path, scheme: str) -> None:
    ratio, element, text = opened(browser, page_file, 1280, scheme).evaluate(_CONTRAST)
    assert ratio >= 4.5, (ratio, element, text)


def test_print_shows_words_beside_colours(browser: Any, page_file: Path) -> None:
    page = opened(browser, page_file)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.locator(".map td").first.inner_text().split()[1] in ("CUDA", "Triton", "same")
