"""The web page as a person meets it: a real browser in front of a real server."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pixnar.corpus import Document
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, Fusion
from pixnar.index import Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.page_server import CONTRAST, WIDE, Server
from tests.helpers.tiny_model import save_encoder

playwright = pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, Locator, Page, Route, expect, sync_playwright  # noqa: E402

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium")

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run"]
SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
WEIGHTS = {DOCIDS: 1.0, LEXICAL: 0.5, EXPANSION: 0.25, DENSE: 2.0}
MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"
QUERY = "balin demor"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that fuses all sources, with one document that tries to be markup and is long."""
    home = tmp_path_factory.mktemp("page")
    write_small(home / "corpus", 20, 3)
    encoder = save_encoder(home / "encoder", texts=WORDS)
    wish = settings(encoder, model__slots=5, train__steps=2, scoring__tune=False, serve__encoder="fp32")
    fit(home / "corpus", home / "index", override(Recipe(), wish), cache=home / "cache", threads=1)
    path = home / "index" / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"fusion": Fusion(WEIGHTS).to_dict()}))
    opened = Index.load(home / "index")
    strange = Document("x" * 80, MARKUP + " long" * 40 + "w" * 90, "", {"country": "de", "price": 99, "note": MARKUP})
    opened.table.add(strange.doc_id, ["markup " + "unbroken" * 20, "markup"], strange)
    return home / "index"


@pytest.fixture(scope="module")
def server(index: Path) -> Iterator[Server]:
    made = Server(index)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@contextmanager
def watched(browser: Browser, server: Server, refused: int = 0, **how: Any) -> Iterator[Page]:
    """A page; in the end nothing was asked of others, nothing was complained about but `refused` requests or more."""
    context = browser.new_context(base_url=server.url, **({"viewport": {"width": 1200, "height": 800}} | how))
    page = context.new_page()
    page.set_default_timeout(15_000)
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(f"uncaught: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    yield page
    context.close()
    assert asked
    assert [url for url in asked if not url.startswith((f"{server.url}/", "data:"))] == []
    failed = [text for text in complaints if text.startswith("Failed to load resource")]
    assert [text for text in complaints if text not in failed] == []
    assert bool(failed) == bool(refused), failed


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    with watched(browser, server) as opened:
        yield opened


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def answer(server: Server, query: str, more: str = "") -> Any:
    with urllib.request.urlopen(f"{server.url}/search?q={query.replace(' ', '+')}{more}", timeout=30) as response:
        return json.load(response)["results"][0]


def titles(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(".hit h2").all_text_contents()]


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_results_while_typing(page: Page, server: Server) -> None:
    page.goto("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page.locator("#about")).to_contain_text("21 documents")
    example = page.locator("#try button").first
    expect(example).to_be_visible()
    assert re.fullmatch(r"Title \d+", example.inner_text())
    shot(page, "start")
    page.keyboard.type(QUERY, delay=30)
    expect(page.get_by_role("status")).to_have_text(re.compile(r"^10 documents in [\d.]+ (ms|µs|s)$"))
    expect(page).to_have_url(f"{server.url}/?q=balin+demor")
    hits = answer(server, QUERY)["hits"]
    assert titles(page) == [hit["title"] for hit in hits]
    for i, hit in enumerate(hits):
        shown = page.locator(".hit").nth(i)
        assert shown.locator(".id").inner_text() == hit["doc_id"]
        assert number(shown.locator(".score").inner_text().split()[-1]) == pytest.approx(hit["score"], abs=0.006)
        assert [token(one) for one in shown.locator(".by .token").all()] == hit["tokens"]
        assert f"country: {hit['metadata']['country']}" in shown.inner_text()
    shot(page, "results")


def test_an_example_is_a_start(page: Page) -> None:
    page.goto("/")
    example = page.locator("#try button").first
    title = example.inner_text()
    example.click()
    expect(page.locator("#query")).to_have_value(title)
    expect(page.locator(".hit")).to_have_count(10)
    page.go_back()
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator(".hit")).to_have_count(0)


def token(chip: Locator) -> str:
    """The token that a chip shows: one that goes on with a word stands close to what it goes on with."""
    return "##" * ("piece" in (chip.get_attribute("class") or "")) + chip.inner_text()


def test_the_same_token_has_the_same_colour(page: Page) -> None:
    page.goto(f"/?q={QUERY}")
    expect(page.locator(".hit")).to_have_count(10)
    colours: dict[str, set[str]] = {}
    for one in page.locator(".hit .by .token").all():
        style = one.evaluate("node => { const s = getComputedStyle(node); return [s.backgroundColor, s.borderStyle]; }")
        colours.setdefault(token(one), set()).add(style[0])
        assert "none" not in style[1]
    assert len(colours) > 5
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)


def test_only_the_last_answer_counts(page: Page, server: Server) -> None:
    """A slow answer to what was typed first does not replace the answer to what was typed last."""
    page.goto("/")
    held: list[Route] = []
    dropped: list[str] = []
    page.on("requestfailed", lambda request: dropped.append(request.url))
    page.route("**/search?q=rovek", lambda route: held.append(route))
    page.fill("#query", "rovek")
    expect(page.get_by_role("status")).to_have_text("Still searching …")
    expect(page.locator("#wait")).to_be_visible()
    page.fill("#query", QUERY)
    expect(page.locator(".hit")).to_have_count(10)
    expect(page.locator("#wait")).to_be_hidden()
    assert len(held) == 1
    assert [url.rpartition("=")[2] for url in dropped] == ["rovek"]
    assert titles(page) == [hit["title"] for hit in answer(server, QUERY)["hits"]]


def test_links_and_back(page: Page, server: Server) -> None:
    page.goto(f"/?q={QUERY}&k=3&where=country+%3D+%22de%22")
    expect(page.locator(".hit")).to_have_count(3)
    assert page.input_value("#query") == QUERY
    assert page.input_value("#where") == 'country = "de"'
    assert page.input_value("#k") == "3"
    first = titles(page)
    page.fill("#query", "rovek")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=rovek&k=3"))
    wanted = answer(server, "rovek", "&k=3&where=country+%3D+%22de%22")["hits"]
    expect(page.locator(".hit h2")).to_have_text([hit["title"] for hit in wanted])
    page.go_back()
    expect(page.locator("#query")).to_have_value(QUERY)
    expect(page.locator(".hit h2")).to_have_text(first)


def test_explain_shows_every_step(page: Page, server: Server) -> None:
    page.goto(f"/?q={QUERY}")
    expect(page.locator(".hit")).to_have_count(10)
    expect(page.locator("#why")).to_be_hidden()
    page.get_by_role("button", name="Explain").click()
    steps = page.locator(".step")
    expect(steps).to_have_count(6)
    told = answer(server, QUERY, "&explain=true")["explanation"]
    assert [token(one) for one in steps.nth(0).locator(".tokens").first.locator(".token").all()] == told["tokens"]
    groups = steps.nth(1).locator(".groups li")
    assert groups.count() == len(told["clusters"]) > 0
    spelled = [one.replace("##", "…") for one in told["clusters"][0]["tokens"]]
    assert [one.inner_text() for one in groups.first.locator(".token").all()] == spelled
    share = f"{told['shortlist']:,} of {told['vocabulary']:,} phrases"
    expect(steps.nth(1)).to_contain_text(share)
    page.get_by_role("button", name="more slots").click()
    assert steps.nth(2).locator(".slot").count() == len(told["slots"]) == 6
    for i, slot in enumerate(told["slots"]):
        widths = (
            steps.nth(2)
            .locator(".slot")
            .nth(i)
            .locator(".meter i")
            .evaluate_all("bars => bars.map((bar) => bar.getBoundingClientRect().width)")
        )
        assert len(widths) == len(slot)
        assert widths == sorted(widths, reverse=True)
    tree = steps.nth(3)
    assert tree.locator(".end").count() == len(told["paths"]) == 20
    paths = {tuple(one["token"] for one in path["parts"]["tokens"]) for path in told["paths"]}
    prefixes = {path[:n] for path in paths for n in range(1, len(path) + 1)}
    assert tree.locator(".token").count() == len(prefixes)  # common beginnings are drawn once
    rows = steps.nth(4).locator(".bars li")
    assert rows.count() == len(told["hits"])
    for i, hit in enumerate(told["hits"]):
        parts = [number(text.split()[-1]) for text in rows.nth(i).locator(".adds span").all_inner_texts()]
        assert len(parts) == len(WEIGHTS)
        assert sum(parts) == pytest.approx(hit["score"], abs=0.03)
        assert rows.nth(i).locator(".stack i").count() == sum(part["score"] != 0 for part in hit["parts"])
    stages = steps.nth(5).locator("li[data-stage]").evaluate_all("rows => rows.map((row) => row.dataset.stage)")
    assert stages == list(told["microseconds"])
    shot(page, "explain")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#why")).to_be_hidden()
    expect(page.get_by_role("button", name="Explain")).to_be_focused()


def test_why_a_result(page: Page, server: Server) -> None:
    page.goto(f"/?q={QUERY}")
    page.get_by_role("button", name="Why?").nth(1).click()
    more = page.locator(".hit").nth(1).locator(".more")
    told = answer(server, QUERY, "&explain=true")["explanation"]["hits"][1]
    expect(more.locator(".sum")).to_have_count(len(told["docids"]))
    for i, docid in enumerate(told["docids"]):
        text = more.locator(".sum").nth(i).inner_text()
        assert text.endswith(f" {docid['score']:.2f}".replace("-", "−"))
    rows = more.locator(".parts tr")
    assert rows.count() == len(WEIGHTS) + 1
    shown = [number(text) for text in rows.locator("td:last-child").all_inner_texts()]
    assert sum(shown[:-1]) == pytest.approx(shown[-1], abs=0.03)
    assert shown[-1] == pytest.approx(told["score"], abs=0.006)
    shot(page, "why")
    docid = told["docids"][0]["docid"]
    page.fill("#query", docid)
    expect(page.locator(".more")).to_have_count(0)
    expect(page.locator(".hit .id").first).to_have_text(told["doc_id"])
    page.get_by_role("button", name="Why?").first.click()
    expect(page.locator(".more")).to_contain_text("Your query is one of its docids")


def test_keyboard_alone(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    page.keyboard.press("/")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type(QUERY)
    expect(page.locator(".hit")).to_have_count(10)
    opens = page.locator(".hit .open")
    page.keyboard.press("ArrowDown")
    expect(opens.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(opens.nth(2)).to_be_focused()
    outline = page.locator(".hit").nth(2).evaluate("node => getComputedStyle(node).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(opens.nth(1)).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".hit").nth(1).locator(".parts")).to_be_visible()
    expect(opens.nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".more")).to_have_count(0)
    expect(opens.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(opens.nth(9)).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#query")).to_have_value(QUERY)


def test_a_filter(browser: Browser, server: Server) -> None:
    with watched(browser, server, refused=1) as page:
        page.goto(f"/?q={QUERY}")
        page.get_by_role("button", name="country: de").first.click()
        expect(page.locator("#where")).to_have_value('country = "de"')
        wanted = answer(server, QUERY, "&where=country+%3D+%22de%22")["hits"]
        expect(page.get_by_role("status")).to_contain_text(f"{len(wanted)} documents")
        assert titles(page) == [hit["title"] for hit in wanted]
        page.fill("#where", "price <")
        with pytest.raises(urllib.error.HTTPError) as caught:
            answer(server, QUERY, "&where=price+%3C")
        assert 400 <= caught.value.code < 500
        expect(page.get_by_role("alert")).to_contain_text(json.load(caught.value)["error"])
        expect(page.locator("#where")).to_have_attribute("aria-invalid", "true")
        expect(page.locator(".hit")).to_have_count(0)
        shot(page, "bad-filter")
        page.fill("#where", "price > 1000")
        expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
        expect(page.get_by_role("alert")).to_be_empty()
        page.get_by_role("button", name="Search without the filter").click()
        expect(page.locator(".hit")).to_have_count(10)


def test_options(page: Page, server: Server) -> None:
    page.goto(f"/?q={QUERY}")
    page.locator("#summary").click()
    page.fill("#k", "4")
    expect(page.locator(".hit")).to_have_count(4)
    with page.expect_response("**/search?*decode=beam*") as answered:
        page.get_by_label("beam").check()
    assert answered.value.ok
    expect(page.locator("#wide")).to_be_visible()
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".step").nth(3)).to_contain_text("that a beam of 50 came across")
    expect(page.locator(".step").nth(4)).to_contain_text("that of its best docid")
    page.keyboard.press("Escape")
    expect(page.locator("#why")).to_be_hidden()
    expect(page).to_have_url(f"{server.url}/?q=balin+demor&k=4&decode=beam&width=50")
    page.get_by_role("button", name="price", exact=True).click()
    expect(page.locator("#where")).to_have_value('price = ""')


def test_a_server_that_stops(browser: Browser, index: Path) -> None:
    server = Server(index)
    server.start()
    try:
        with watched(browser, server, refused=1) as page:
            page.goto("/")
            page.fill("#query", QUERY)
            expect(page.locator(".hit")).to_have_count(10)
            server.stop()
            page.fill("#query", "rovek")
            expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
            expect(page.locator(".hit")).to_have_count(0)
            shot(page, "server-stopped")
            server.start()
            page.get_by_role("button", name="Try again").click()
            expect(page.locator(".hit")).to_have_count(10)
            expect(page.get_by_role("alert")).to_be_empty()
    finally:
        server.stop()


@pytest.mark.parametrize(("status", "line"), [(429, "too many searches"), (503, "the index is being loaded")])
def test_it_asks_again(browser: Browser, server: Server, status: int, line: str) -> None:
    """What a busy server or one that starts answers twice comes before the real answer."""
    with watched(browser, server, refused=1) as page:
        page.goto("/")
        body, headers = json.dumps({"error": line}), {"Retry-After": "1", "Content-Type": "application/json"}
        page.route(
            "**/search?q=balin*", lambda route: route.fulfill(status=status, body=body, headers=headers), times=2
        )
        began = time.monotonic()
        page.fill("#query", QUERY)
        if status == 429:  # once is no reason for alarm
            expect(page.get_by_role("status")).to_have_text("The server is busy, one moment …")
            expect(page.get_by_role("alert")).to_be_empty()
        expect(page.get_by_role("alert")).to_contain_text(line)
        expect(page.get_by_role("alert")).to_contain_text("Trying again in 1 s")
        expect(page.locator(".hit")).to_have_count(10)
        assert time.monotonic() - began > 2
        expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(browser: Browser, server: Server, scheme: str) -> None:
    """No horizontal scrolling at 360 pixels, whatever is open and however long the words are."""
    with watched(browser, server, viewport={"width": 360, "height": 740}, color_scheme=scheme) as page:
        for address in ("/", f"/?q={QUERY}&k=21&explain=true&where=price+%3C+9999", "/?q=markup&explain=true"):
            page.goto(address)
            if "q=" in address:
                expect(page.locator(".step")).to_have_count(6)
                page.get_by_role("button", name="Why?").first.click()
                expect(page.locator(".more .sum").first).to_be_visible()
            wide = page.evaluate(WIDE)
            assert wide == []
            assert page.evaluate("document.documentElement.scrollWidth") == 360
        shot(page, f"phone-{scheme}")


def test_light_and_dark(browser: Browser, server: Server) -> None:
    for scheme in ("light", "dark"):
        with watched(browser, server, color_scheme=scheme) as page:
            page.goto("/")
            assert page.evaluate("document.documentElement.dataset.look") == scheme
            least = page.evaluate(CONTRAST)
            page.goto(f"/?q={QUERY}&explain=true&where=price+%3C+50")
            expect(page.locator(".step")).to_have_count(6)
            page.get_by_role("button", name="Why?").first.click()
            expect(page.locator(".more .parts")).to_be_visible()
            least += page.evaluate(CONTRAST)
            assert len(least) > 300
            assert [found for found in least if found[0] < 4.5] == []
            shot(page, f"explain-{scheme}")
    with watched(browser, server, color_scheme="light") as page:
        page.goto("/")
        page.get_by_role("button", name="Colours").click()
        assert page.evaluate("document.documentElement.dataset.look") == "dark"
        page.reload()
        assert page.evaluate("document.documentElement.dataset.look") == "dark"


def test_data_is_text(page: Page) -> None:
    page.goto("/?q=markup&explain=true")
    first = page.locator(".hit").first
    expect(first.locator("h2")).to_contain_text(MARKUP)
    expect(first).to_contain_text(f"note: {MARKUP}")
    assert page.locator("main img").count() == 0
    page.fill("#query", MARKUP)
    expect(page).to_have_title(f"{MARKUP} – PIXNAR")
    expect(page.locator(".step")).to_have_count(6)
    assert page.locator("main img").count() == 0


def test_every_control_has_a_name(page: Page) -> None:
    page.goto(f"/?q={QUERY}&explain=true")
    expect(page.locator(".step")).to_have_count(6)
    page.locator("#summary").click()
    named = page.locator("button, input, summary, a").evaluate_all(
        """nodes => nodes.filter((node) => node.checkVisibility()).map((node) =>
        (node.getAttribute("aria-label") || (node.labels && node.labels[0] && node.labels[0].textContent)
        || node.textContent).trim())"""
    )
    assert len(named) > 20
    assert all(named)
    ids = page.locator("[id]").evaluate_all("nodes => nodes.map((node) => node.id)")
    assert len(ids) == len(set(ids))
