"""The review page: what it says, and how it behaves in a real browser."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span
from actor_wg_codemod.report import ReportedFile, render, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# What keeps a browser from looking for its maker's hosts, and lets it run as root.
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-pipe", "--window-size=1280,900"),
]


def finding(code: str, line: int, column: int, safety: Safety, cell: int | None = None) -> Finding:
    span = Span(line, column, line, column + 7)
    fix = None if safety is Safety.MANUAL else Fix("Rename", (Edit(span, "actor_wg"),))
    return Finding(code, span, f"{code} <says> why & how", safety, fix, cell)


BODY = "".join(f"line {number}\n" for number in range(4, 30))
BEFORE = f"import a\n\nm = f(cfg, trainer=trainer_pool)  # <b>\n{BODY}g(trainer=1, actor_wg=2)\n"
FILES = [
    ReportedFile(
        "pkg/sync.py",
        BEFORE,
        BEFORE.replace("f(cfg, trainer=", "f(cfg, actor_wg="),
        (finding("AWG001", 3, 11, Safety.SAFE),),
        (finding("AWG902", 30, 2, Safety.MANUAL),),
    ),
    ReportedFile(
        "nb/explore.ipynb",
        '"source": ["m.trainer"]',
        '"source": ["m.actor_wg"]',
        (finding("AWG003", 1, 2, Safety.SAFE, cell=2),),
        (finding("AWG902", 4, 2, Safety.MANUAL, cell=3),),
    ),
    ReportedFile("docs/<odd> & name.md", "x", "x", (), (finding("AWG102", 1, 0, Safety.NAMING),)),
    ReportedFile("broken.py", "", "", problem="line 3: invalid syntax"),
    ReportedFile("clean.py", "x", "x"),
]


class Page(HTMLParser):
    """Every tag of the page with its attributes, and whether the tags close in order."""

    void = ("meta", "input", "col", "br", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_is_well_formed():
    text = render(FILES)
    page = Page(text)
    assert page.open == []
    fetching = {"src", "srcset", "data", "poster", "action"}
    assert not any(fetching & set(attrs) for _, attrs in page.tags)
    hrefs = [attrs["href"] for _, attrs in page.tags if "href" in attrs]
    assert all(href and href.startswith("#") for href in hrefs)
    assert not re.search(r"@import|url\(|https?:", text)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_text_from_files_is_escaped_and_changed_words_are_marked():
    text = render(FILES)
    assert "m = f(cfg, <del>trainer</del>=trainer_pool)  # &lt;b&gt;" in text
    assert "m = f(cfg, <ins>actor_wg</ins>=trainer_pool)  # &lt;b&gt;" in text
    assert "docs/&lt;odd&gt; &amp; name.md" in text
    assert "<odd>" not in text
    assert "AWG001 &lt;says&gt; why &amp; how" in text
    assert "clean.py" not in text


def test_totals_places_and_problems():
    text = render(FILES)
    assert "<title>actor-wg: 2 fixed, 3 left for you, in 4 files, 1 of which failed</title>" in text
    row = r"<code>AWG902</code></th><td class='number'>0</td><td class='number'>2</td>"
    assert re.search(row, text)
    assert "cell 2, 1:3" in text
    assert "line 3: invalid syntax" in text
    assert "2 to fix, 3 left" in render(FILES, wrote=False)


def test_a_huge_line_is_cut_short_around_the_marks():
    file = ReportedFile("a.ipynb", "x" * 9000 + " trainer", "x" * 9000 + " actor_wg")
    text = render([ReportedFile(file.path, file.before, file.after, FILES[1].applied)])
    assert "x" * 300 not in text
    assert "<del>trainer</del>" in text


def test_a_name_written_with_escapes_is_marked_as_a_whole():
    shown = (finding("AWG003", 1, 0, Safety.SAFE, 1),)
    assert "<ins>m.actor_wg</ins>" in render(
        [ReportedFile("a.ipynb", "m.tr\\u0061iner", "m.actor_wg", shown)]
    )


def test_nothing_found_is_a_page_too():
    assert Page(render([])).open == []


class Browser:
    """A page in headless Chromium, driven over the pipes of its debugging protocol."""

    def __init__(self, process: subprocess.Popen[bytes], read: int, write: int) -> None:
        self._process = process
        self._reader = os.fdopen(read, "rb")
        self._writer = os.fdopen(write, "wb", buffering=0)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: dict[str, str] = {}

    def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        call = {"id": number, "method": method, "params": params, **self._session}
        self._writer.write(json.dumps(call).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                chunk = self._reader.read1(65536)
                assert chunk, "the browser has gone"
                self._rest += chunk
            message, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def load(self, path: Path) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        self.send("Page.enable")
        self.send("Page.navigate", url=path.as_uri())
        ready = "new Promise(done => document.readyState == 'complete' ? done(1) : onload = done)"
        assert self.value(f"{ready}.then(() => location.protocol)") == "file:"

    def value(self, expression: str) -> Any:
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        code = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    # The protocol's pipes are file descriptors 3 and 4.
    script = f'exec "$@" 3<&{theirs_read} 4>&{theirs_write}'
    process = subprocess.Popen(
        ["bash", "-c", script, "-", CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"],
        pass_fds=(theirs_read, theirs_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_read)
    os.close(theirs_write)
    driven = Browser(process, ours_read, ours_write)
    try:
        page = tmp_path / "report.html"
        write(page, FILES)
        driven.load(page)
        yield driven
    finally:
        driven.close()


ROWS = "[...document.querySelectorAll('.findings tbody tr')].filter(r => r.offsetParent).length"
FOCUSED = "document.activeElement.textContent"


def test_in_a_browser_filters_hide_and_show(browser):
    status = "document.getElementById('shown').textContent"
    assert browser.value(ROWS) == 5
    assert browser.value(status) == "5 findings in 4 files shown"
    click = "document.querySelector('input[value={}]').click()"
    browser.value(click.format("AWG902"))
    assert browser.value(ROWS) == 3
    browser.value(click.format("naming"))
    assert browser.value(status) == "2 findings in 3 files shown"
    names = "[...document.querySelectorAll('section')].filter(s => s.offsetParent)"
    paths = browser.value(f"{names}.map(s => s.dataset.path)")
    assert paths == ["pkg/sync.py", "nb/explore.ipynb", "broken.py"]
    browser.value(click.format("AWG902"))
    browser.value(click.format("naming"))
    assert browser.value(ROWS) == 5


def test_in_a_browser_keys_and_links_jump_to_files(browser):
    browser.press("j")
    assert browser.value(FOCUSED) == "pkg/sync.py"
    browser.press("j")
    assert browser.value(FOCUSED) == "nb/explore.ipynb"
    browser.press("k")
    assert browser.value(FOCUSED) == "pkg/sync.py"
    browser.press("/")
    for key in "BROKE":
        browser.press(key)
    assert browser.value("document.querySelectorAll('section:not([hidden])').length") == 1
    browser.press("Escape")
    assert browser.value("document.querySelectorAll('section:not([hidden])').length") == 4
    browser.value("document.querySelector('nav a[href=\"#f4\"]').click()")
    assert browser.value(FOCUSED) == "broken.py"
    assert browser.value("document.querySelector('#f4').getBoundingClientRect().top < 900")


def test_in_a_browser_light_and_dark_differ_and_can_be_read(browser, tmp_path):
    colors = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    seen = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.send("Emulation.setEmulatedMedia", features=[feature])
        pair = browser.value(colors)
        levels = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in pair]
        assert abs(levels[0] - levels[1]) > 400
        seen.append(levels[0] > levels[1])
        shot = Path(os.environ.get("REPORT_SCREENSHOTS", tmp_path)) / f"report-{scheme}.png"
        browser.screenshot(shot)
        assert shot.read_bytes().startswith(b"\x89PNG")
    assert seen == [True, False]
