"""The Model Context Protocol over standard input and output: JSON-RPC 2.0, one message a line.

Source: modelcontextprotocol.io, specification 2025-06-18: lifecycle, tools, the stdio transport. What is spoken is that
part alone; a method beyond it is answered as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from lake.errors import SojournError
from lake.plain import plain
from lake.visible import visible, visible_json

#: What is spoken, the newest first: a client that asks for another is offered the newest.
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
#: The longest message (characters); a longer one is refused unread.
LONGEST = 1_000_000
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing that can be asked: ``call`` gives its answer by name of argument; UserError says what is wrong."""

    name: str
    description: str
    arguments: Mapping[str, Mapping[str, Any]]
    required: Sequence[str]
    call: Callable[..., Mapping[str, Any]]

    @property
    def told(self) -> dict[str, Any]:
        """The tool as a client is told of it."""
        schema = {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.required),
            "additionalProperties": False,
        }
        hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        return {"name": self.name, "description": self.description, "inputSchema": schema, "annotations": hints}


class Refused(Exception):
    """A request that cannot be met, with its JSON-RPC code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class Server:
    """Answers requests about ``tools``; ``instructions`` are for whoever reads the answers."""

    def __init__(self, name: str, version: str, instructions: str, tools: Sequence[Tool]) -> None:
        self._about = {"name": name, "version": version}
        self._instructions = instructions
        self._tools = {tool.name: tool for tool in tools}

    def serve(self, source: IO[str], sink: IO[str]) -> None:
        """Answer each line of ``source`` until it ends."""
        while line := source.readline(LONGEST + 1):
            if len(line) > LONGEST:
                while line and not line.endswith("\n"):  # the rest of what is too long
                    line = source.readline(LONGEST)
                answer: dict[str, Any] | None = _failed(None, INVALID_REQUEST, "the message is too long")
            elif not line.strip():
                continue
            else:
                answer = self.answer(line)
            if answer is not None:
                sink.write(visible_json(json.dumps(answer, ensure_ascii=False, default=plain)) + "\n")
                sink.flush()

    def answer(self, line: str) -> dict[str, Any] | None:
        """The answer to one message; None where it is a notification, which has none."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return _failed(None, PARSE_ERROR, "not JSON")
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _failed(None, INVALID_REQUEST, "not a JSON-RPC request")
        number = request.get("id")
        if "id" not in request:
            return None
        if isinstance(number, bool) or not isinstance(number, str | int):
            return _failed(None, INVALID_REQUEST, "an id is a text or a whole number")
        try:
            result = self._result(request["method"], request.get("params") or {})
        except Refused as refused:
            return _failed(number, refused.code, str(refused))
        except Exception as error:
            return _failed(number, INTERNAL_ERROR, type(error).__name__)
        return {"jsonrpc": "2.0", "id": number, "result": result}

    def _result(self, method: str, params: Any) -> dict[str, Any]:
        if not isinstance(params, dict):
            raise Refused(INVALID_PARAMS, "params are an object")
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                return {
                    "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": self._about,
                    "instructions": self._instructions,
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.told for tool in self._tools.values()]}
            case "tools/call":
                return self._call(params)
            case _:
                raise Refused(METHOD_NOT_FOUND, f"there is no method {visible(method, 80)}")

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            raise Refused(INVALID_PARAMS, f"there is no tool {visible(str(params.get('name')), 80)}")
        given = params.get("arguments") or {}
        if not isinstance(given, dict):
            raise Refused(INVALID_PARAMS, "arguments are an object")
        if wrong := _wrong(tool, given):
            return _told({"error": wrong}, failed=True)
        try:
            return _told(tool.call(**given), failed=False)
        except SojournError as error:
            return _told({"error": visible(str(error), 1000)}, failed=True)


_TYPES: Mapping[str, type] = {"string": str, "integer": int}


def _wrong(tool: Tool, given: Mapping[str, Any]) -> str:
    """What is wrong with the arguments, in words; empty where nothing is."""
    if missing := [name for name in tool.required if name not in given]:
        return f"{tool.name} needs {', '.join(missing)}"
    for name, value in given.items():
        schema = tool.arguments.get(name)
        if schema is None:
            return f"{tool.name} has no argument {visible(name, 80)}"
        if isinstance(value, bool) or not isinstance(value, _TYPES[schema["type"]]):
            return f"{name} is of type {schema['type']}"
        if "enum" in schema and value not in schema["enum"]:
            return f"{name} is one of {', '.join(schema['enum'])}"
        if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
            return f"{name} is from {schema['minimum']} to {schema['maximum']}"
    return ""


def _told(answer: Mapping[str, Any], *, failed: bool) -> dict[str, Any]:
    structured = _shown(json.loads(json.dumps(answer, default=plain)))
    text = json.dumps(structured, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": failed}


def _shown(value: Any) -> Any:
    """``value`` with what texts in it would hide, turn round or break into lines made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(name): _shown(one) for name, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list) else value


def _failed(number: str | int | None, code: int, what: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": what}}
