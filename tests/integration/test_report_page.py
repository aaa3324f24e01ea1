"""The report in a browser: it opens without a word on the console and without asking the network for anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from pipelines.ask.incident_list import incidents
from pipelines.ask.lake_status import directories
from pipelines.ask.moves import moves
from pipelines.ask.offline_replicas import offline
from pipelines.ask.risk import risk
from pipelines.check.catalogue import run_checks
from pipelines.lake.reader import Lake
from pipelines.report.content import gather
from pipelines.report.page import page as page_of
from pipelines.report.page import write_page
from pipelines.settings import Settings
from tests.support.hostile import with_hostile_names
from tests.support.lakes import write_lake
from tests.support.logs import read_log
from tests.support.paths import metadata_dir
from tests.support.request_lakes import JoinedLake, request_lines
from tests.support.volume import sampled

Scheme = Literal["dark", "light"]
DESK, PHONE = (1280, 900), (360, 740)
OFFSETS = {"end": 629, "disk": 200, "calm": 100, "hostile": 629}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if binary is None:
        pytest.fail("no Chromium on the path to open the report in: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    root, log = tmp_path_factory.mktemp("lakes"), read_log(metadata_dir("kafka-4.1.2"))
    write_lake(root / "plain", log)
    write_lake(root / "hostile", with_hostile_names(log))
    return {
        name: Lake.open(root / ("hostile" if name == "hostile" else "plain"), offset)
        for name, offset in OFFSETS.items()
    }


@pytest.fixture(scope="module")
def files(lakes: dict[str, Lake], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    for name, lake in lakes.items():
        write_page(str(root / f"{name}.html"), page_of(gather(lake, Settings())))
    return {name: root / f"{name}.html" for name in lakes}


@contextmanager
def opened(browser: Browser, file: Path, size: tuple[int, int] = DESK, scheme: Scheme = "light") -> Iterator[Page]:
    """The page once its pictures are drawn; at the end nothing may have been complained about or asked for."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(120_000)
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on("request", lambda request: trouble.append(request.url) if request.url.startswith(("http", "ws")) else None)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-drawn]")
    yield page
    assert trouble == []
    context.close()


@pytest.fixture(scope="module")
def shown(browser: Browser, files: dict[str, Path]) -> Iterator[Callable[[str], Page]]:
    """The page of a lake on a desk, for tests that set nothing there: to draw one takes two seconds."""
    with ExitStack() as pages:
        yield cache(lambda name: pages.enter_context(opened(browser, files[name])))


def rows(page: Page, table: str) -> list[list[str]]:
    """The cells of the rows that are not filtered out."""
    script = "rows => rows.filter(row => !row.hidden).map(row => [...row.cells].map(cell => cell.textContent))"
    cells: list[list[str]] = page.locator(f'[data-table="{table}"] tbody tr').evaluate_all(script)
    return cells


def assert_fits(page: Page, width: int) -> None:
    """With every table open, the page is no wider than the screen."""
    for table in page.locator("details > summary").all():
        table.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".js-plotly-plot .main-svg").count() > 0


@pytest.mark.parametrize("name", sampled(OFFSETS, 2))
def test_page_opens_quietly_and_is_no_wider_than_a_desk(shown: Callable[[str], Page], name: str) -> None:
    assert_fits(shown(name), DESK[0])


@pytest.mark.parametrize("name", sampled(OFFSETS, 2))
def test_page_opens_quietly_and_is_no_wider_than_a_phone(browser: Browser, files: dict[str, Path], name: str) -> None:
    with opened(browser, files[name], PHONE) as page:
        assert_fits(page, PHONE[0])


@pytest.mark.parametrize("name", sampled(OFFSETS, 2))
def test_numbers_of_the_page_equal_the_answers(shown: Callable[[str], Page], lakes: dict[str, Lake], name: str) -> None:
    lake, page = lakes[name], shown(name)
    answer = offline(lake)
    first = page.locator("dl.tiles dd").first.inner_text()
    assert first == f"{len(answer.replicas)} of {answer.replicas_in_all}"
    listed = [] if not answer.replicas else rows(page, "offline")
    assert [(row[1], row[2], row[3]) for row in listed] == [
        (str(replica.broker_id), replica.directory_id, replica.reason) for replica in answer.replicas
    ]
    held = {(row[0], row[2]): (row[3], row[4], row[5]) for row in rows(page, "directories")}
    assert held == {
        (str(directory.broker_id), directory.directory_id): (
            directory.state,
            str(directory.replicas),
            str(directory.leaders),
        )
        for directory in directories(lake)
    }
    drawn = page.evaluate("document.getElementById('picture-map').data[0].z.flat().filter(z => z !== null).length")
    assert drawn == len(directories(lake))
    last = page.evaluate(
        "document.getElementById('picture-over-time').data"
        ".filter(trace => trace.stackgroup).reduce((sum, trace) => sum + trace.y.at(-1), 0)"
    )
    assert last == len(answer.replicas)
    past = incidents(lake)
    numbers = [row[0] for row in (rows(page, "incidents") if past else [])]
    assert numbers == [str(incident.number) for incident in reversed(past)]
    if past:
        assert page.evaluate("document.getElementById('picture-incidents').data[0].y.length") == len(past)
    moved = moves(lake)
    assert [row[6] for row in (rows(page, "moves") if moved else [])] == [
        str(move.accepted_offset) for move in reversed(moved)
    ]
    exposed = risk(lake)
    cost = sum(int(row[4]) for row in (rows(page, "risk") if exposed.directories else []))
    assert cost == sum(exposure.without_leader for exposure in [*exposed.directories, *exposed.brokers])
    findings = run_checks(lake)
    assert [row[1] for row in (rows(page, "findings") if findings else [])] == [
        finding.check.id for finding in findings
    ]


def test_scale_of_few_partitions_has_each_number_once(shown: Callable[[str], Page]) -> None:
    """Cause: ticks at halves were rounded: 0, 1, 1, 2, 2."""
    assert shown("calm").locator("#picture-risk .xtick text").all_text_contents() == ["0", "1", "2"]


@pytest.mark.parametrize(("size", "letters"), [(DESK, 22), (PHONE, 5)], ids=["desk", "phone"])
def test_cell_of_the_map_names_its_directory(
    browser: Browser, files: dict[str, Path], lakes: dict[str, Lake], size: tuple[int, int], letters: int
) -> None:
    with opened(browser, files["disk"], size) as page:
        cells = page.evaluate("document.getElementById('picture-map').data[0].text.flat()")
        shown = {cell.split("…")[0] for cell in cells}
        known = directories(lakes["disk"])
        names = [directory.state if directory.state == "unassigned" else directory.directory_id for directory in known]
        for directory, name in zip(known, names, strict=True):
            assert any(cell.startswith(name[:letters]) for cell in shown), (directory, shown)


def test_filters_narrow_the_map_and_its_table(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["disk"]) as page:
        cells = "document.getElementById('picture-map').data[0].z.flat().filter(z => z !== null).length"
        assert (page.evaluate(cells), len(rows(page, "directories"))) == (10, 10)
        page.get_by_role("checkbox", name="online").uncheck()
        assert (page.evaluate(cells), len(rows(page, "directories"))) == (3, 3)
        page.get_by_label("Broker or directory").fill("2")
        assert page.evaluate(cells) == 2
        page.get_by_label("Colour").select_option("replicas")
        assert page.evaluate("document.getElementById('picture-map').data[0].z.flat().filter(z => z)") == [6, 1]


def test_filters_narrow_time_tables_and_findings(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["disk"]) as page:
        page.get_by_role("checkbox", name="partitions without a leader").uncheck()
        names = page.evaluate("document.getElementById('picture-over-time').data.map(trace => trace.name)")
        assert "partitions without a leader" not in names
        page.locator("#over-time").get_by_label("Across").select_option("offset")
        assert page.evaluate("document.getElementById('picture-over-time').layout.xaxis.type") == "linear"
        page.locator("#table-offline summary").click()
        page.locator('[data-search="offline"]').fill("solo-")
        assert [row[0] for row in rows(page, "offline")] == ["solo-0", "solo-6"]
        assert page.locator('[data-shown="offline"]').inner_text() == "2 of 13 shown"
        page.locator('[data-search="offline"]').fill("")
        page.get_by_role("button", name="Since offset").first.click()
        assert [row[4] for row in rows(page, "offline")] == ["162"] * 7 + ["174"] * 6
        page.get_by_role("checkbox", name="critical").uncheck()
        assert not [row for row in rows(page, "findings") if row[0] == "critical"]


def test_queue_is_drawn_as_it_was_asked_for(browser: Browser, tmp_path: Path) -> None:
    joined = JoinedLake(tmp_path / "lake", "kafka-3.7.2")
    joined.replay()
    joined.add(request_lines("kafka-3.7.2"))
    content = gather(Lake.open(tmp_path / "lake"), Settings())
    write_page(str(tmp_path / "page.html"), page_of(content))
    with opened(browser, tmp_path / "page.html", PHONE) as page:
        drawn = "document.getElementById('picture-queue').data[0].z.flat().reduce((sum, z) => sum + z, 0)"
        assert content.asking is not None
        assert page.evaluate(drawn) == content.asking.entries == len(joined.rows)
        assert sum(int(row[3]) for row in rows(page, "queue")) == len(joined.rows)
        choice = page.get_by_label("Queue of each broker")
        assert choice.locator("option").all_inner_texts() == [
            "assignments asked for",
            "replicas that waited at the end",
            "refused",
        ]
        choice.select_option("refused")
        assert page.evaluate(drawn) == content.asking.refused == 2
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]


def test_hovering_an_incident_tells_its_story(shown: Callable[[str], Page], lakes: dict[str, Lake]) -> None:
    newest, page = incidents(lakes["disk"])[-1], shown("disk")
    bar = page.locator("#picture-incidents .bars path").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    text = page.locator("#picture-incidents .hoverlayer .hovertext").text_content() or ""
    assert f"#{newest.number} {newest.what}" in text
    assert newest.directory_id is not None
    assert newest.directory_id in text
    assert f"{newest.replicas_taken} replicas offline" in text


def test_hovering_time_tells_what_was_offline_then(shown: Callable[[str], Page]) -> None:
    page = shown("disk")
    picture = page.locator("#picture-over-time")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    assert box is not None
    for part, line in ((0.3, "directory offline : 7"), (0.8, "directory offline : 13")):
        page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] / 2)
        page.wait_for_selector(f"#picture-over-time .hoverlayer :text('{line}')")


@pytest.mark.parametrize(("system", "other"), [("light", "dark"), ("dark", "light")])
def test_theme_follows_the_system_until_the_button_is_pressed(
    browser: Browser, files: dict[str, Path], system: Scheme, other: str
) -> None:
    with opened(browser, files["disk"], scheme=system) as page:
        paper = "getComputedStyle(document.body).backgroundColor"
        font = "document.getElementById('picture-map').layout.font.color"
        before = page.evaluate(paper), page.evaluate(font)
        button = page.locator("#theme")
        assert button.inner_text().lower() == other
        assert button.get_attribute("aria-pressed") == ("true" if system == "dark" else "false")
        button.click()
        after = page.evaluate(paper), page.evaluate(font)
        assert before[0] != after[0]
        assert before[1] != after[1]
        assert button.inner_text().lower() == system


def test_keyboard_reaches_every_control_in_order_and_shows_where_it_is(
    browser: Browser, files: dict[str, Path]
) -> None:
    with opened(browser, files["disk"]) as page:
        passed: list[str] = []
        for _ in range(60):
            page.keyboard.press("Tab")
            focus = page.evaluate(
                "() => { const it = document.activeElement, style = getComputedStyle(it);"
                " return [it.id || it.value || it.textContent.trim().slice(0, 20), style.outlineStyle] }"
            )
            if focus[0] in passed or page.evaluate("document.activeElement === document.body"):
                break
            passed.append(focus[0])
            assert focus[1] == "solid", f"nobody sees that {focus[0]} has the focus"
        wanted = [
            "theme",
            "online",
            "failed",
            "map-search",
            "map-colour",
            "clock",
            "incident-clock",
            "risk-of",
            "critical",
        ]
        assert [name for name in passed if name in wanted] == wanted
        page.locator("#map-search").focus()
        page.keyboard.type("1")
        assert page.evaluate("document.getElementById('picture-map').data[0].z.flat().filter(z => z !== null)") != []
        page.get_by_role("checkbox", name="online").focus()
        page.keyboard.press("Space")
        assert not page.get_by_role("checkbox", name="online").is_checked()


def test_every_input_has_a_label(shown: Callable[[str], Page]) -> None:
    page = shown("disk")
    bare = "inputs => inputs.filter(input => !input.labels.length).map(input => input.outerHTML)"
    assert page.locator("input, select").evaluate_all(bare) == []


def test_page_without_javascript_still_has_every_number(browser: Browser, files: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.goto(files["disk"].as_uri())
    assert "13 of 89 replicas are offline" in page.locator("h1").inner_text()
    assert page.locator('[data-table="offline"] tbody tr').count() == 13
    assert page.locator(".noscript").is_visible()
    context.close()
