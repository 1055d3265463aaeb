"""The noisy neighbour as whoever is on call meets it: a webhook's link, the queue, a yes, and what came of it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from alerts.store import connect
from lake.reader import Reader
from sojourn.demo import measure
from sojourn.demo.scenario import NOISY, STREAM
from tests.support.browser import opened, shoot
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.e2e.test_demo import Demo

_SECONDS = 1000 * PATIENCE


def told_on_the_pages(demo: Demo, browser: Any, tmp_path: Path) -> None:
    """Click through the story of ``demo``, whose policy waits for a yes, until its alert is over and its receipt there.

    It comes 75 s after the limit's release, and takes the lab a minute of a processor that nobody else wants: the demo,
    which was asked to wait for a yes, waits for it, too.
    """
    link = _led_to(demo, "NoisyTenant", "firing", 120)
    page = opened(browser, link, height=1200)
    page.set_default_timeout(60 * _SECONDS)
    page.wait_for_selector("h2:text-is('NoisyTenant')")
    page.wait_for_selector(f"text=Tenant {NOISY} holds")
    shoot(page, "story-alert", tmp_path)

    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_role("button", name="Yes, acknowledge").click()
    page.wait_for_selector("text=Done: Acknowledge")
    with closing(connect(demo.layout.lake / "state" / "alerts.sqlite")) as db:
        ((who,),) = db.execute('SELECT "by" FROM acknowledgements WHERE fingerprint = ?', [link[-16:]]).fetchall()
    assert who == "somebody at this machine"

    page.locator(".sj p").get_by_role("link", name=STREAM, exact=True).click()
    page.wait_for_url(f"**/queue?queue={STREAM}*")
    page.wait_for_selector(f"h1:text-is('{STREAM}')")
    page.wait_for_selector(f"tbody th:has-text('{NOISY}'):has-text('noisy')")

    page.get_by_role("link", name="Actions").first.click()
    page.wait_for_url("**/actions*")
    page.get_by_role("button", name="Approve").first.click()
    yes = page.get_by_role("button", name="Yes, approve")
    yes.wait_for()
    shoot(page, "story-approve", tmp_path)
    yes.click()
    page.wait_for_selector("text=Done: Approve")
    yes.wait_for(state="hidden")  # what asked is closed
    page.wait_for_selector(f".sj-list >> text=◆ {NOISY} on {STREAM}")
    page.wait_for_selector(".sj-list >> text=approved by somebody at this machine")
    shoot(page, "story-approved", tmp_path)
    reader = Reader(demo.layout.lake)
    approvals = reader.query(
        "SELECT reason, action_id FROM actions"
        f" WHERE decision = 'approve' AND outcome = 'applied' AND tenant = '{NOISY}' ORDER BY at"
    ).to_pylist()
    assert {approval["reason"] for approval in approvals} == {"approved by somebody at this machine"}

    page.get_by_role("link", name="Overview").first.click()
    page.wait_for_selector(f".sj-list >> text=◆ {NOISY} on {STREAM}")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector("h1")  # the navigation moves, and everything with it
    shoot(page, "story-phone", tmp_path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 1200})
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("h1")
    page.locator(".sj").get_by_role("link", name=STREAM, exact=True).first.click()
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
    shoot(page, "story-queue", tmp_path)

    assert _led_to(demo, "NoisyTenant", "resolved", 200) == link
    page.goto(link)
    page.wait_for_selector("h2:text-is('NoisyTenant') + p:has-text('resolved')")
    shoot(page, "story-resolved", tmp_path)
    # Not that of the limit before it in the same lake, which is due when this demo begins.
    own = _led_to(demo, "ActionReceipt", "resolved", 300, action_id=approvals[-1]["action_id"])
    assert urlsplit(own).path == "/actions"
    page.goto(urljoin(link, "/actions"))
    page.wait_for_selector(f".sj-list li:has-text('receipt {NOISY} on {STREAM}') ~ li:has-text('approve {NOISY}')")
    shoot(page, "story-receipt", tmp_path)
    assert page.wrong == [] and page.outside == []
    page.close()


def _led_to(demo: Demo, name: str, status: str, within: float, **labels: str) -> str:
    """Where the first webhook of this run leads that told of ``name`` about the noisy tenant, with these ``labels``."""
    found: list[str] = []

    def told() -> bool:
        for entry in measure.webhooks(demo.layout.webhooks, demo.began):
            assert entry["verified"], json.dumps(entry)
            found.extend(
                alert["generatorURL"]
                for alert in entry["payload"]["alerts"]
                if alert["labels"].items() >= {"tenant": NOISY, **labels}.items()
                and (alert["labels"]["alertname"], alert["status"]) == (name, status)
            )
        return bool(found)

    demo.until(f"a webhook of {name}, {status}", told, within)
    return found[0]
