"""What the site has beside docs/: the runbooks, and the project's own pages; and where links to files of the code lead.

mkdocs calls these functions: https://www.mkdocs.org/user-guide/plugins/#events
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
RUNBOOKS = "alerts/rules/builtin"
#: Pages of the project by where the site has them.
BESIDE = {
    f"project/{name.lower()}": name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
}
_LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Complete the menu by what there are many of."""
    runbooks = [path for path in _pages() if path.startswith("runbooks/")]
    decisions = [f"adr/{path.name}" for path in sorted((ROOT / "docs" / "adr").glob("*.md"))]
    config.nav += [{"Runbooks": runbooks}, {"Project": [*BESIDE, {"Decisions": decisions}]}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie elsewhere."""
    for path, source in _pages().items():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to pages of the site there, and leave of links to code the name."""
    sources = _pages()
    here = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    places = {source: path for path, source in sources.items()}

    def led(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if not target or ":" in target:
            return link[0]
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        place = places.get(meant, meant.removeprefix("docs/") if meant.startswith("docs/") else None)
        if place is not None and (ROOT / "docs" / place).is_dir():
            place = f"{place}/README.md"
        if place is None or files.get_file_from_path(place) is None:
            return text if "`" in text else f"`{text}`"
        return f"[{text}]({posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return _LINK.sub(led, markdown)


def _pages() -> dict[str, str]:
    runbooks = sorted(path.name for path in (ROOT / RUNBOOKS).glob("*.md"))
    return BESIDE | {f"runbooks/{name}": f"{RUNBOOKS}/{name}" for name in runbooks}
