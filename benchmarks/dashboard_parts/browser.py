"""A real Chromium that notes what a person would notice: when the heading stood, how long renewals took, what moved."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Of one page: when its heading came; each renewal from its request to the end of drawing, in milliseconds; layout
#: shifts that nobody caused by a key or a click (web.dev/cls), with when and what moved; when it first asked.
WATCH = """
(() => {
  const seen = window.__seen = {heading: null, whole: null, renewals: [], shifts: [], sent: null};
  const box = one => [one.x, one.y, one.width, one.height].map(Math.round).join(' ');
  const place = node => (node.parentElement?.closest('[class]') ?? node).className;
  const moved = one => `${box(one.previousRect)} → ${box(one.currentRect)} ` +
    (one.node ? `${place(one.node)}: ${one.node.textContent.slice(0, 120)}` : 'gone');
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) {
      seen.shifts.push([one.startTime, one.value, one.sources.map(moved)]);
    }
  }).observe({type: 'layout-shift', buffered: true});
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    if (seen.sent === null) seen.sent = performance.now();
    return send.call(this, data);
  };
  let running = false;
  const look = () => {
    const app = document.querySelector('[data-testid=stApp]');
    if (!app) return;
    if (seen.heading === null && document.querySelector('h1')) seen.heading = performance.now();
    const now = app.getAttribute('data-test-script-state') !== 'notRunning';
    if (running && !now) {
      const begun = seen.sent;
      requestAnimationFrame(() => {
        const end = performance.now();
        if (seen.whole === null) seen.whole = end; else if (begun !== null) seen.renewals.push([begun, end - begun]);
      });
      seen.sent = null;
    }
    running = now;
  };
  new MutationObserver(look).observe(document, {subtree: true, childList: true, attributes: true});
})();
"""
PATIENCE_MS = 120_000


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium of this machine; each page that is opened has a cache of its own."""
    from playwright.sync_api import sync_playwright

    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
    )
    if not path:
        raise SystemExit("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Any, url: str) -> Iterator[Any]:
    """``url`` in a browser that has never been there, once its heading stands and nothing more is drawn."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(WATCH)
        page.goto(url, wait_until="commit")
        page.wait_for_function("window.__seen && window.__seen.heading !== null && window.__seen.whole !== null")
        yield page
    finally:
        context.close()


def seen(page: Any) -> dict[str, Any]:
    """What the page has noticed so far."""
    found: dict[str, Any] = page.evaluate("window.__seen")
    return found
