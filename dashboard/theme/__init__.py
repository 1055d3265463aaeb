"""The dashboard's looks: a palette safe for colour-blind eyes, Streamlit's theme options and a little CSS.

Colour never stands alone: each state also has its word and its sign. Series colours are middling in lightness, so
that they read on the light and on the dark ground alike.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

#: Series of tenants and rates, in order of use: blue first, no red, no green next to it (after Okabe and Ito).
CALM = ("#4c8fbd", "#8a79b8", "#3f9f94", "#b08a4f", "#7f93a8", "#b0719b", "#6f9a55", "#5f7fc4")
#: What is wrong: noisy tenants, firing alerts.
LOUD = "#d9603b"
#: What acts: limits, throttles.
ACTING = "#8a63c9"
#: The rest of many, and reference lines.
MUTED = "#8b95a1"

#: The ground of pages, light and dark.
GROUNDS = ("#fcfcfb", "#12161b")

#: The sign of Sojourn: messages wait, one moves on. As text, so that no browser fetches it from elsewhere.
MARK = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="24" height="24">'
    f'<g fill="{CALM[0]}"><rect x="2" y="4" width="4" height="16" rx="1.4" opacity=".45"/>'
    '<rect x="8" y="4" width="4" height="16" rx="1.4" opacity=".7"/><rect x="14" y="4" width="4" height="16" rx="1.4"/>'
    f'</g><path d="M19.4 8.6 23 12l-3.6 3.4z" fill="{LOUD}"/></svg>'
)


def options() -> dict[str, object]:
    """Streamlit's theme options; both grounds are defined, the viewer's system chooses between them."""
    return {
        "theme.baseFontSize": 15,
        "theme.baseRadius": "6px",
        "theme.paddingTop": "2.4rem",
        "theme.headingFontSizes": ["1.9rem", "1.2rem", "1.05rem"],
        "theme.headingFontWeights": [650, 600, 600],
        "theme.light.backgroundColor": GROUNDS[0],
        "theme.light.secondaryBackgroundColor": "#f2f3f1",
        "theme.light.textColor": "#1d252c",
        "theme.light.primaryColor": "#2b6f95",
        "theme.light.borderColor": "#dfe2df",
        "theme.dark.backgroundColor": GROUNDS[1],
        "theme.dark.secondaryBackgroundColor": "#1b2129",
        "theme.dark.textColor": "#e3e7ea",
        "theme.dark.primaryColor": "#79b6d9",
        "theme.dark.borderColor": "#2c343d",
    }


@cache
def style() -> str:
    """The style sheet for :mod:`dashboard.pages.markup`."""
    ground = f".sj {{ --ground: light-dark({', '.join(GROUNDS)}); }}\n"
    return ground + Path(__file__).with_name("style.css").read_text(encoding="utf-8")
