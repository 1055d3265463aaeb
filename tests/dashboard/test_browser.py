"""The dashboard as a person meets it: a real server, a real browser, and what it shows."""

from __future__ import annotations

import re
import subprocess
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from dashboard import serve
from dashboard.figures import LEGEND
from dashboard.labs import LONGEST_SECONDS
from dashboard.run import HEALTH_PATH, address, claim_port, command, environment
from dashboard.settings import CALLBACK, DashboardSettings
from lake.store import Lake
from lake.visible import visible
from tests.dashboard.scene import TENANTS, write_story
from tests.dashboard.troubles import write_troubles
from tests.support.browser import DOCUMENTED, LEAST_DRAWN, READY, chromium, drawn, opened, settled, shoot
from tests.support.deep import examples
from tests.support.programs import node_folder

pytestmark = pytest.mark.browser

LINK = '<a href="http://evil.example">free money</a>'
NAMES = (
    LINK,
    "http://evil.example/x",
    "www.evil.example",
    "<b>bold</b>",
    "&lt;i&gt;",
    ":smile:",
    "pay\u202efdp",
    "<img src=x onerror=alert(1)>",
)
QUEUE = "www.evil.example <img src=http://evil.example/x> a@evil.example :smile: [x](http://evil.example)"
PAGES = Path(serve.__file__).parent / "pages"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running dashboard over a lake whose story has just ended."""
    root = tmp_path_factory.mktemp("lake")
    end = datetime.now(UTC)
    write_story(root, end=end, lease=timedelta(hours=1))  # the wall clock goes on meanwhile
    write_troubles(root, end=end)
    yield from _served(root)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same over a lake in which nobody has a name that is meant well."""
    root = tmp_path_factory.mktemp("hostile")
    write_story(
        root,
        end=datetime.now(UTC),
        seconds=90,
        noisy_from=20,
        queue=QUEUE,
        names=dict(zip(TENANTS, NAMES, strict=True)),
    )
    yield from _served(root)


def _served(root: Path) -> Iterator[str]:
    yield from _running(claim_port(DashboardSettings(port=0, stale_after_seconds=600)), root)


def _running(settings: DashboardSettings, root: Path) -> Iterator[str]:
    process = subprocess.Popen(command(settings), env=environment(settings, root), cwd=root)
    try:
        _wait_until_healthy(address(settings), process)
        yield address(settings)
    finally:
        process.terminate()
        assert process.wait(timeout=10) is not None


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended by itself"
        try:
            if httpx.get(url + HEALTH_PATH, timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not become healthy")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all of them."""
    with chromium() as started:
        yield started


@pytest.fixture(autouse=True)
def _closed_afterwards(browser: Any) -> Iterator[None]:
    """A page that stays open asks every two seconds; a dozen of them keep a slow machine from all else."""
    yield
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """The script that reads a page as somebody does who cannot see it, or not well."""
    source = node_folder(Path(__file__).with_name("axe")) / "node_modules" / "axe-core" / "axe.min.js"
    return source.read_text(encoding="utf-8")


def assert_nothing_grave(page: Any, axe: str) -> None:
    """No serious finding by WCAG 2.1 A and AA on a page that is open already: opening one for this would cost more."""
    page.wait_for_selector(READY)
    page.evaluate(axe)
    told = page.evaluate("rules => axe.run({runOnly: rules})", ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"])
    assert len(told["passes"]) > 10
    grave = [one for one in told["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in grave] == []


#: Page → how it is opened, and what it then says first. The overview, the lab and SQL have tests of their own.
LINKS = {
    "queue": ("?queue=orders", "orders"),
    "tenants": ("?queue=orders", "acme-7 is noisy on orders"),
    "consumers": ("", "Look at the consumers of invoices"),
    "dead-letters": ("", "invoices dead-letters messages now"),
    "slo": ("", "All keep what is promised"),
    "alerts": ("", "2 alerts fire"),
    "actions": ("", "1 limit is in force"),
    "pipeline": ("", "What the pages say can be trusted"),
}


#: Pages with a chart, which comes after all else.
CHARTS = ("queue", "tenants", "dead-letters", "slo")
#: How the file begins that a page offers of its table.
FILES = {
    "queue": "Tenant,Noisy,Backlog",
    "tenants": "Tenant,Queue,Part",
    "consumers": "Queue,Faults,Consumers",
    "dead-letters": "Queue,",
    "slo": "Whose,Burns,Budget left",
    "alerts": "Alert,State,Severity",
    "actions": "When,What,Outcome",
}


def assert_file(page: Any, head: str) -> None:
    """The table can be taken along: a file of more than its headings."""
    text = ""
    for _ in range(6):  # a page that renews itself between the click and the answer makes a new file: click again
        try:
            with page.expect_download(timeout=10_000) as download:
                page.get_by_role("button", name="CSV").first.click()
        except PlaywrightTimeout:
            continue
        text = Path(download.value.path()).read_text("utf-8")
        break
    assert text.startswith(head) and len(text.splitlines()) > 1


#: What the page as a whole, and what its main part, is wider than the window.
TOO_WIDE = """() => Math.max(...[document.documentElement, document.querySelector('[data-testid=stMain]')]
  .map(one => one.scrollWidth - window.innerWidth))"""


#: What of the page's own can have the focus, and does not show it by an outline or a ring.
UNSEEN = """() => [...document.querySelectorAll('header a, [data-testid=stMain] a, .sj [tabindex], .sj button')]
  .filter(one => one.checkVisibility()).filter(one => {
    one.focus({focusVisible: true, preventScroll: true});
    const {outlineStyle, boxShadow} = getComputedStyle(one);
    return document.activeElement === one && outlineStyle === 'none' && boxShadow === 'none';
  }).map(one => one.outerHTML.slice(0, 200))"""


def assert_on_a_phone(page: Any) -> None:
    """Nothing is wider than a phone – what is, as a table, is moved within its own place –, and nothing lies upon
    anything else."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector(READY)
    page.wait_for_function(f"({TOO_WIDE})() <= 0")
    settled(page)
    assert drawn(page.screenshot()) >= LEAST_DRAWN


def test_every_page_is_among_those_that_are_looked_at() -> None:
    pages = {path.stem.replace("_", "-") for path in PAGES.glob("*.py") if "def page()" in path.read_text("utf-8")}
    assert pages == {*LINKS, "lab", "sql"}


@pytest.mark.parametrize("place", range(examples(3, len(LINKS))))
def test_a_link_to_a_page_opens_that_page(server: str, browser: Any, axe: str, tmp_path: Path, place: int) -> None:
    address, (asked, heading) = list(LINKS.items())[place]
    zone = None if address in DOCUMENTED else "Asia/Kolkata"
    page = opened(browser, f"{server}/{address}{asked}", scheme=("light", "dark")[place % 2], zone=zone)
    page.wait_for_function("text => document.querySelector('h1')?.innerText === text", arg=heading)
    if address in CHARTS:
        page.wait_for_selector(".js-plotly-plot .main-svg")
    assert page.locator("[data-testid=stException]").count() == 0
    shoot(page, address, tmp_path)
    assert page.outside == [] and page.wrong == []
    assert_nothing_grave(page, axe)
    assert page.evaluate(UNSEEN) == []
    if address in FILES:
        assert_file(page, FILES[address])
    if zone:  # whoever looks reads their own time
        said = page.inner_text("[data-testid=stMain]")
        assert " UTC" not in said and " IST" in said
    assert_on_a_phone(page)
    assert_nothing_grave(page, axe)  # what is narrow is moved sideways, by keys too


def test_a_statement_is_run_by_its_button_and_downloaded(server: str, browser: Any, axe: str, tmp_path: Path) -> None:
    page = opened(browser, f"{server}/sql?sql=SELECT+tenant,backlog+FROM+tenant_backlog_now+WHERE+noisy")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("td:text('acme-7')")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert Path(download.value.path()).read_text().startswith("tenant,backlog\nacme-7,")
    shoot(page, "sql", tmp_path)
    assert page.outside == [] and page.wrong == []
    assert_nothing_grave(page, axe)
    assert_on_a_phone(page)
    page.close()


@pytest.mark.timeout(480)
@pytest.mark.deep
def test_the_lab_runs_a_scenario_from_a_link_and_draws_every_way(
    server: str, browser: Any, axe: str, tmp_path: Path
) -> None:
    page = opened(browser, f"{server}/lab?runs=1&scenario=noisy-neighbour", height=1400)
    page.wait_for_url("**runs=1*quick*")  # the address stays one that shows the same to others
    page.get_by_role("button", name="Run").click()
    # A simulation gives way to all else on the machine, and the page says by itself when it took too long.
    patience = 1000 * (LONGEST_SECONDS + 60)
    page.wait_for_selector("h1:has-text('quiet tenants wait'), .sj-banner", timeout=patience)
    assert page.locator(".sj-banner").all_inner_texts() == []
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length >= 14")
    assert page.locator("table tbody tr").count() == 6
    assert page.locator("[data-testid=stException]").count() == 0
    shoot(page, "lab", tmp_path)
    assert_nothing_grave(page, axe)
    assert_on_a_phone(page)
    assert page.outside == [] and page.wrong == []


def test_on_a_phone_the_title_is_near_the_top_and_nothing_is_wider_than_the_screen(
    server: str, browser: Any, tmp_path: Path
) -> None:
    page = opened(browser, server, width=390, height=844)
    page.wait_for_selector("table img.hour[alt*=p99]")
    assert page.locator("h1").first.bounding_box()["y"] < 844 / 6
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator("[data-testid=stStatusWidget]").is_visible()
    shoot(page, "overview-phone", tmp_path)


def test_the_overview_answers_the_page_at_0300(server: str, browser: Any, axe: str, tmp_path: Path) -> None:
    page = opened(browser, server)
    assert page.inner_text("h1") == "orders needs you"
    ground = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    assert page.evaluate(ground) == "rgb(252, 252, 251)"  # the theme's own, not Streamlit's
    # Since when is history: where it is not read yet, the page says it with its next renewal.
    page.wait_for_selector(r"text=/Tenant acme-7 holds \d\d % of in flight since \d\d:\d\d; backlog 1,\d\d\d, growing/")
    assert page.locator("[data-testid=stException]").count() == 0
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_selector("table img.hour[alt*=p99]")
    drawn = page.locator(".js-plotly-plot").bounding_box()
    assert drawn["width"] > 600 and drawn["height"] > 300
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length >= 8")
    heights = page.locator(".sj-strip i[title*=p99]").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert len(set(heights)) > 1  # told by height, not by colour alone
    page.wait_for_function("[...document.querySelectorAll('img.sj-spark')].every(one => one.naturalWidth > 0)")
    assert page.locator("img.sj-spark").count() == 12
    shoot(page, "overview", tmp_path)
    assert page.outside == []
    assert page.wrong == []
    assert_nothing_grave(page, axe)
    assert_file(page, "Queue,State,Mode")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{ground} !== 'rgb(252, 252, 251)'")
    page.locator("h1").first.scroll_into_view_if_needed()
    shoot(page, "overview-dark", tmp_path)
    page.close()


def test_a_queues_card_leads_to_its_page_with_four_charts(server: str, browser: Any, tmp_path: Path) -> None:
    page = opened(browser, server, scheme="dark", height=1750)
    page.locator("[data-testid=stPageLink]").get_by_role("link", name="orders").first.click()
    page.wait_for_url("**/queue?queue=orders")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
    assert page.inner_text("h1") == "orders"
    assert page.locator("table:has(caption) tbody th").first.inner_text().startswith("acme-7")
    assert page.locator("[data-testid=stException]").count() == 0
    drawn = "document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4"
    since = "document.querySelector('.js-plotly-plot').layout.xaxis.range[0]"
    before = page.evaluate(since)
    page.get_by_text("5 min", exact=True).click()
    page.wait_for_url("**range=5+min*")
    page.wait_for_function(f"before => {drawn} && {since} !== before", arg=before)
    page.wait_for_selector(READY)
    shoot(page, "queue", tmp_path)
    assert page.outside == []
    page.close()


def test_a_heading_says_what_it_means_and_stays_open_while_the_page_is_renewed(
    server: str, browser: Any, axe: str, tmp_path: Path
) -> None:
    page = opened(browser, server, width=390, height=844)
    heading = page.locator("th button", has_text="Oldest, quiet").first
    heading.focus()
    page.keyboard.press("Enter")  # a pointer is not needed
    said = page.locator(".sj-said:popover-open")
    assert "what everybody else feels" in said.inner_text() and "quiet_oldest_age_seconds" in said.inner_text()
    box = said.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844
    assert_nothing_grave(page, axe)
    page.screenshot(path=tmp_path / "explained.png")  # it lies upon the rest, on purpose
    before = page.locator("text=/As of/").first.inner_text()
    page.wait_for_function("before => !document.body.innerText.includes(before)", arg=before)  # renewed
    assert said.is_visible()
    said.get_by_text("Ask it").click()
    page.wait_for_function("() => document.querySelector('textarea')?.value.includes('FROM queue_health_now')")


def test_a_page_tells_the_time_of_whoever_looks(server: str, browser: Any) -> None:
    page = opened(browser, f"{server}/queue?queue=orders", zone="Asia/Kolkata", height=1750)
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
    said = page.inner_text("[data-testid=stMain]")
    local = datetime.now(UTC) + timedelta(hours=5, minutes=30)
    (shown,) = set(re.findall(r"As of (?:\d+ \w+ )?(\d\d):\d\d:\d\d IST", said))
    assert " UTC" not in said and int(shown) in {local.hour, (local - timedelta(minutes=20)).hour}
    drawn = page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range[1]")
    assert abs(datetime.fromisoformat(drawn).replace(tzinfo=UTC) - local) < timedelta(minutes=20)
    assert page.wrong == []
    lab = opened(browser, f"{server}/lab?what=lake&queue=orders", zone="Asia/Kolkata")
    lab.wait_for_selector("text=/messages came from .* to .* IST/")
    assert " UTC" not in lab.inner_text("[data-testid=stMain]")


def test_a_host_name_that_is_not_ours_gets_no_page(server: str) -> None:
    port = server.rsplit(":", 1)[1]
    headers = {
        "Host": f"evil.example:{port}",
        "Origin": f"http://evil.example:{port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
    }
    assert httpx.get(f"{server}/_stcore/stream", headers=headers).status_code == 403


def test_nobodys_name_becomes_a_link_a_picture_or_markup(hostile: str, browser: Any, tmp_path: Path) -> None:
    page = opened(browser, hostile, height=1750)
    page.on("dialog", lambda dialog: page.outside.append(dialog.message))
    assert QUEUE in page.inner_text("h1")
    links = page.get_by_role("link")
    led = links.filter(has_text="evil.example").evaluate_all("all => all.map(one => one.href)")
    [alert, *queues] = led  # the alert about it by a name of our own; then its card, the table, its dead letters
    assert re.fullmatch(re.escape(hostile) + r"/alerts\?alert=[0-9a-f]+", alert)
    assert len(queues) == 3 and all(one.startswith(f"{hostile}/queue?queue=") for one in queues)
    links.filter(has_text="evil.example").nth(1).click()
    page.wait_for_url("**/queue?queue=*")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
    page.wait_for_selector("table:has(caption) tbody th")
    shown = [name.replace("\u202e", "\\u202e") for name in NAMES]
    assert page.inner_text("h1") == QUEUE
    tenants = page.locator("table:has(caption) tbody th").all_inner_texts()
    assert sorted(one.removesuffix(" ▲ noisy") for one in tenants) == sorted(shown)
    page.wait_for_selector(".legendtext")
    legend = " ".join(page.locator(".legendtext").all_text_contents())
    assert f"{visible(LINK, LEGEND)} (noisy)" in legend
    heights = "[...document.querySelectorAll('.js-plotly-plot')].map(one => one._fullLayout.yaxis._length)"
    assert min(page.evaluate(heights)) > 120  # a legend of long names leaves the picture its place
    assert page.locator(".legendtext a").count() == 0
    ours = ":not([href*='queue?']):not([href^='sql?sql=SELECT'])"
    for wrong in (f"a[href*=evil]{ours}", f"a[*|href*=evil]{ours}", "img[src*=evil]"):
        assert page.locator(wrong).count() == 0, wrong
    assert page.locator("[data-testid=stException]").count() == 0
    shoot(page, "hostile", tmp_path)
    assert_on_a_phone(page)
    assert page.outside == []
    page.close()


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard over an empty lake, with whose pages people sign in at a real provider of OpenID Connect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the provider about its own libraries
        from oidc_provider_mock import User, run_server_in_thread
    root = tmp_path_factory.mktemp("signed")
    Lake(root).create()
    (root / "secret").write_text("hush")
    users = [
        User(sub=name, claims={"email": f"{name}@example.org", "email_verified": name != "mallory"})
        for name in ("ada", "bob", "mallory")
    ]
    settings = claim_port(DashboardSettings(port=0))
    with run_server_in_thread(user_claims=users) as provider:
        oidc = {
            "metadata_url": f"http://localhost:{provider.server_port}/.well-known/openid-configuration",
            "client_id": "sojourn",
            "client_secret": {"file": str(root / "secret")},
            "redirect_uri": f"{address(settings)}{CALLBACK}",
        }
        told = settings.model_dump() | {"oidc": oidc, "operators": ["ada@example.org"]}
        yield from _running(DashboardSettings.model_validate(told), root)


@pytest.mark.parametrize(("name", "role"), [("ada", "operator"), ("bob", "viewer"), ("mallory", None)])
def test_people_sign_in_at_a_provider_and_are_what_they_may_be(
    signed: str, browser: Any, name: str, role: str | None
) -> None:
    page = opened(browser, f"{signed}/alerts?alert=75f0a1")
    assert page.inner_text("h1") == "Who is there?" and page.get_by_text("No queue has been seen").count() == 0
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/oauth2/authorize*")
    page.get_by_role("button", name=name, exact=True).click()
    page.wait_for_url(f"{signed}/alerts?alert=75f0a1")  # where they were led to
    if role is None:  # an address that nobody has verified is nobody's
        page.wait_for_selector("text=not as somebody who may look")
        return
    page.wait_for_selector(f"text={name}@example.org, {role}")
    page.wait_for_selector("text=No queue has been seen yet")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/oauth2/end_session*")  # the provider asks whether it shall forget them, too
    page.goto(signed)
    page.wait_for_selector("text=Who is there?")
