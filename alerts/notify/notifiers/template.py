"""A body of one's own: a template in the language of annotations, bounded like them, where nothing is undefined."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError

from alerts.notify.notifiers.base import JSON, Notification, Request, Unsayable, needed_key
from alerts.notify.target import Target
from alerts.rules.sandbox import LONGEST_TEMPLATE, Sandbox, rendered
from lake.errors import first_line
from lake.visible import visible

if TYPE_CHECKING:
    from alerts.notify.settings import ReceiverSettings

#: What a template may name, and where it stands in the webhook's body.
NAMES = {
    "receiver": "receiver",
    "status": "status",
    "group_key": "groupKey",
    "group_labels": "groupLabels",
    "common_labels": "commonLabels",
    "common_annotations": "commonAnnotations",
    "external_url": "externalURL",
    "alerts": "alerts",
    "truncated": "truncatedAlerts",
}
#: Alerts, and characters of a text, that a template is given: first the most, then fewer.
_LENGTHS = ((20, 500), (5, 200), (1, 100))


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


class _Strict(Sandbox):
    """The sandbox, where a name or a label that is not there is an error and not an empty text."""

    def __init__(self) -> None:
        super().__init__(NAMES, {"json": _as_json})
        self.undefined = StrictUndefined


_SANDBOX = _Strict()


def compiled(text: str) -> Template:
    """The template in ``text``. ValueError, with its line, if it is none, or may do more than fill a text in."""
    if len(text) > LONGEST_TEMPLATE:
        raise ValueError(f"a template has at most {LONGEST_TEMPLATE} characters")
    try:
        return _SANDBOX.from_string(text)
    except TemplateSyntaxError as error:
        raise ValueError(f"template, line {error.lineno}: {error.message}") from error
    except Exception as error:  # the parser and Python's compiler say in several ways that it is nested too deeply
        raise ValueError(f"template: {first_line(error)}") from error


class TemplateNotifier:
    """Sends what the template makes of the group."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._target = Target.of(settings.url)
        self._template = compiled(settings.template or "")
        self._is_json = settings.content_type.partition(";")[0].strip().lower() == JSON
        self._headers = {"content-type": settings.content_type}
        key = settings.secret()
        if key is not None:
            self._headers["authorization"] = f"Bearer {needed_key(key, settings.name, 'its bearer token')}"

    def write(self, notification: Notification) -> Request:
        """The text. What is too long is tried with fewer alerts and shorter labels: nobody's name holds back a page.

        Unsayable where something in it is undefined, or it should be JSON and is not.
        """
        for most, longest in _LENGTHS[:-1]:
            try:
                return self._write(_values(notification, most, longest))
            except Unsayable:
                continue
        return self._write(_values(notification, *_LENGTHS[-1]))

    def _write(self, values: dict[str, Any]) -> Request:
        try:
            text = rendered(self._template, values)
            if self._is_json:
                json.loads(text)
        except RecursionError as error:
            raise Unsayable("template: what it makes is nested too deeply") from error
        except json.JSONDecodeError as error:
            raise Unsayable(f"template: what it makes is not JSON: {error}; write {{{{ … | json }}}}") from error
        except Exception as error:  # a template may raise whatever it likes
            raise Unsayable(f"template: {first_line(error)}") from error
        return Request(self._target, text.encode(), self._headers)


def _values(notification: Notification, most: int, longest: int) -> dict[str, Any]:
    """What the template may name, with at most so many alerts, and texts of so many characters."""
    payload = notification.payload
    values = {name: _shortened(payload[key], longest) for name, key in NAMES.items() if name != "alerts"}
    alerts = payload["alerts"]
    left = max(len(alerts) - most, 0)
    return values | {"alerts": _shortened(alerts[:most], longest), "truncated": payload["truncatedAlerts"] + left}


def _shortened(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return visible(value, longest)
    if isinstance(value, dict):
        return {name: _shortened(one, longest) for name, one in value.items()}
    return [_shortened(one, longest) for one in value] if isinstance(value, list) else value
