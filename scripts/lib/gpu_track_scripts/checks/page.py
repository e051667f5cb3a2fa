"""Opens pages of reports in Chromium, and checks what only a browser can tell.

Each page must load without a message in the console and without a request, be drawn the same without scripts, fit into
400 and 1,200 pixels, and have something in each of its charts. Its script must show values under the pointer and sort.
With axe, https://github.com/dequelabs/axe-core, no rule about accessibility may be broken in the light or in the dark.
"""

from __future__ import annotations

import argparse
import base64
import pathlib
import sys
from collections.abc import Iterator

from gpu_track_scripts.browser import Browser, Message
from gpu_track_scripts.tools import Unavailable

# What the page is asked, in JavaScript.
PLOTS = """[...document.querySelectorAll('svg.chart')].map(chart => {
    const box = chart.getBoundingClientRect(), name = chart.getAttribute('aria-label');
    return {x: box.x + scrollX, y: box.y + scrollY + 16, width: box.width, height: box.height - 38, name};
})"""
# How many pixels of a picture, PNG in base64, have clearly another colour than white: one that differs by more than 60.
DRAWN = """(async data => {
    const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
    const picture = await createImageBitmap(new Blob([bytes]));
    const context = new OffscreenCanvas(picture.width, picture.height).getContext('2d');
    context.drawImage(picture, 0, 0);
    const parts = context.getImageData(0, 0, picture.width, picture.height).data;
    return parts.filter((_, at) => at % 4 === 0 && Math.min(...parts.subarray(at, at + 3)) < 255 - 60).length;
})"""
FIRST_CHART = "document.querySelector('svg.chart')"
LEGENDS = "[...document.querySelectorAll('figure b')].map(value => value.textContent).join()"
# Clicks on each head twice. Gives the columns that are then not in order: numbers by size, other cells as words, n/a
# last.
UNSORTED = """[...document.querySelectorAll('table.sorts')].flatMap(table => [...table.tHead.rows[0].cells].flatMap(
    (head, column) => [1, 2].flatMap(() => {
        head.firstChild.click();
        const direction = head.getAttribute('aria-sort') === 'descending' ? -1 : 1;
        const cells = [...table.tBodies[0].rows].map(row => row.cells[column].textContent);
        const known = cells.filter(cell => cell !== 'n/a');
        const number = cell => head.className === 'words' ? NaN : Number(cell.replaceAll(',', ''));
        const difference = (s, t) => number(s) - number(t);
        const order = (s, t) => isNaN(difference(s, t)) ? s.localeCompare(t) : difference(s, t);
        const isSorted = known.every((cell, at) => at === 0 || direction * order(known[at - 1], cell) <= 0);
        const isUnknownLast = cells.slice(known.length).every(cell => cell === 'n/a');
        return isSorted && isUnknownLast ? [] : [head.textContent + ': ' + cells.join(' ')];
    })
))"""
OPEN_TABLES = "document.querySelectorAll('details').forEach(table => { table.open = true; })"
BROKEN_RULES = """axe.run().then(
    result => result.violations.map(rule => rule.id + ': ' + rule.nodes.map(node => node.html).slice(0, 3).join(' '))
)"""

# Least pixels of a chart, without the thin lines at its numbers.
LEAST_PIXELS = 100
WIDTHS = (1200, 400)
HEIGHT = 900


def messages(events: list[Message], page: pathlib.Path) -> Iterator[str]:
    """What the browser reported that a page must not cause."""
    for event in events:
        told = event.get("params", {})
        if event["method"] == "Runtime.consoleAPICalled":
            yield f"the console says {told['args']}"
        elif event["method"] == "Runtime.exceptionThrown":
            yield f"the script failed: {told['exceptionDetails']}"
        elif event["method"] == "Log.entryAdded":
            yield f"a message: {told['entry']['text']}"
        elif event["method"] == "Network.requestWillBeSent" and told["request"]["url"] != page.resolve().as_uri():
            yield f"it asks for {told['request']['url']}"


def charts(browser: Browser) -> Iterator[str]:
    """Charts that are empty."""
    for box in browser.value(PLOTS):
        name = box.pop("name")
        picture = base64.b64encode(browser.picture(box)).decode()
        pixels = browser.value(f"{DRAWN}('{picture}')")
        if pixels < LEAST_PIXELS:
            yield f'the chart "{name}" has {pixels} pixels'


def pointer(browser: Browser) -> Iterator[str]:
    """What a pointer over the first chart does not do."""
    before = browser.value(LEGENDS)
    if not before:
        return
    browser.value(f"{FIRST_CHART}.scrollIntoView()")
    box = browser.value(f"(box => [box.x + box.width / 2, box.y + 40])({FIRST_CHART}.getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    if browser.value(LEGENDS) == before:
        yield "a pointer over a chart shows no values"
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    if browser.value(LEGENDS) != before:
        yield "values under the pointer stay when it leaves"


def sorting(browser: Browser) -> Iterator[str]:
    """Tables that a click on a head does not sort."""
    for column in browser.value(UNSORTED):
        yield f"a column is not sorted: {column}"


def broken_rules(browser: Browser, page: pathlib.Path, axe: str) -> Iterator[str]:
    """What axe says of a page, with its tables open, in the light and in the dark."""
    for dark in (False, True):
        browser.set_media(dark=dark)
        browser.open(page)
        browser.value(OPEN_TABLES)
        browser.value(axe)
        for rule in browser.value(BROKEN_RULES):
            yield f"{'dark' if dark else 'light'}: {rule}"
    browser.set_media()


def faults(browser: Browser, page: pathlib.Path, pictures: pathlib.Path | None, axe: str) -> Iterator[str]:
    """What is wrong with a page. `axe` is its script, or empty."""

    def keep(name: str, picture: bytes) -> bytes:
        if pictures:
            (pictures / f"{page.stem}-{name}.png").write_bytes(picture)
        return picture

    for width in WIDTHS:
        browser.set_size(width, HEIGHT)
        browser.set_scripts(allowed=False)
        browser.open(page)
        plain = keep(f"{width}-without-scripts", browser.whole())
        browser.set_scripts(allowed=True)
        yield from messages(browser.open(page), page)
        if keep(f"{width}", browser.whole()) != plain:
            yield f"it looks otherwise without scripts at {width} pixels"
        needed = browser.value("document.documentElement.scrollWidth")
        if needed > width:
            yield f"it is {needed} pixels wide where there are {width}"
        yield from charts(browser)
        browser.set_media(dark=True)
        keep(f"{width}-dark", browser.whole())
        browser.set_media(media="print")
        keep(f"{width}-print", browser.whole())
        browser.set_media()
        if axe:
            yield from broken_rules(browser, page, axe)
    load_ms = browser.value("performance.timing.loadEventEnd - performance.timing.navigationStart")
    yield from pointer(browser)
    yield from sorting(browser)
    print(f"{page}: loaded in {load_ms} ms")


def main() -> int:
    """Checks the pages of the command line."""
    parser = argparse.ArgumentParser(prog="check-page", description=__doc__)
    parser.add_argument(
        "pages", metavar="FILE.html", nargs="+", type=pathlib.Path, help="a page: gpu-track-run -o FILE.html"
    )
    parser.add_argument("--pictures", metavar="DIR", type=pathlib.Path, help="write what was seen there, as PNG")
    parser.add_argument("--axe", metavar="axe.min.js", type=pathlib.Path, help="npm install axe-core brings it")
    options = parser.parse_args()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    axe = options.axe.read_text() if options.axe else ""
    failed = False
    try:
        with Browser() as browser:
            for page in options.pages:
                for fault in faults(browser, page, options.pictures, axe):
                    failed = True
                    print(f"{page}: {fault}", file=sys.stderr)
    except Unavailable as unavailable:
        print(f"SKIPPED scripts/check-page: {unavailable}")
        return 77
    return int(failed)
