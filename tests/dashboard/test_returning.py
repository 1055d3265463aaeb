"""A sign-in ends where it began, and never on somebody else's page."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dashboard.returning import COOKIE, LOGIN, Returning
from dashboard.settings import CALLBACK

HOME = "https://sojourn.example"


async def _login(request: Request) -> Response:
    return RedirectResponse("https://id.example/authorize", 302)


async def _callback(request: Request) -> Response:
    return RedirectResponse("/", 302)


def client() -> httpx.AsyncClient:
    app = Returning(Starlette(routes=[Route(LOGIN, _login), Route(CALLBACK, _callback)]))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOME)


async def test_a_sign_in_leads_back_to_the_page_it_began_on_once() -> None:
    page = "/queue?queue=or%22ders%3B+a&range=1+h"
    async with client() as http:
        begun = await http.get(LOGIN, headers={"referer": HOME + page})
        assert begun.headers["location"] == "https://id.example/authorize", "the provider's own address stays"
        assert "HttpOnly" in begun.headers["set-cookie"] and "SameSite=Lax" in begun.headers["set-cookie"]
        assert (await http.get(CALLBACK)).headers["location"] == page
        assert (await http.get(CALLBACK)).headers["location"] == "/"


@pytest.mark.parametrize(
    "referer",
    [
        "https://evil.example/alerts",
        f"{HOME}.evil.example/alerts",
        f"{HOME}//evil.example/",
        f"{HOME}/\\evil.example/",
        f"{HOME}{CALLBACK}?code=1",
        f"{HOME}/auth/logout",
        f"{HOME}/{'x' * 3000}",
        "javascript:alert(1)",
        "",
    ],
)
async def test_nothing_but_a_page_of_this_server_is_led_to(referer: str) -> None:
    async with client() as http:
        await http.get(LOGIN, headers={"referer": referer})
        assert (await http.get(CALLBACK)).headers["location"] == "/"


@pytest.mark.parametrize(
    "kept", ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2F%5Cevil.example", "a%0d%0ab", '"']
)
async def test_a_cookie_that_somebody_else_wrote_leads_nowhere_else(kept: str) -> None:
    async with client() as http:
        answer = await http.get(CALLBACK, headers={"cookie": f"{COOKIE}={kept}"})
        assert answer.headers["location"] == "/"
