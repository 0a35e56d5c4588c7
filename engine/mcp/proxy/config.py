"""What stands in the file of a proxy: the map of servers that clients know, and Laneway's own keys.

    {"mcpServers": {"files": {"command": "mcp-server-filesystem", "args": ["/w"], "trusted": true,
                              "tools": {"write_file": {"claims": ["write file:{path}"]}}},
                    "search": {"url": "http://127.0.0.1:3001/mcp", "effect": "read"}},
     "laneway": {"journal": "runs.db", "policy": "policy.toml"}}

Relative paths start from the folder of the file. `${NAME}` in a server's command, arguments,
variables, address and headers is taken from the environment.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from laneway.engine.mcp.server import MCPServer, settings_of
from laneway.engine.mcp.settings import MCPLimits, MCPOptions
from laneway.engine.services import Limits
from laneway.errors import UsageError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ToolWords(_Strict):
    """What the host says of one tool, by the words of `@tool`."""

    name: str | None = None
    description: str | None = None
    effect: str | None = None
    idempotent: bool | None = None
    claims: list[str] | None = None
    timeout: float | None = None
    retries: int | None = None
    priority: int | None = None
    risk: str | None = None
    approval: bool | None = None
    approvers: int | None = None
    secret: list[str] | None = None
    literal: list[str] | None = None
    command_lines: list[str] | None = None
    poll_seconds: float | None = None
    poll_count: int | None = None


class ServerWords(_Strict):
    """One entry of `mcpServers`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)  # Other clients' keys.

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    disabled: bool = False
    trusted: bool = False
    effect: str | None = None
    tools: dict[str, ToolWords] = {}
    only: list[str] | None = None
    prefix: str | None = None
    required: bool = True
    protocol: str = "auto"
    limits: dict[str, float] = {}


class OwnWords(_Strict):
    """The key `laneway`."""

    journal: str = "laneway.db"
    policy: str | None = None
    mode: str = "build"
    workspace: str = "."
    lanes: dict[str, int] = {}
    limits: dict[str, float] = {}
    unattended: bool = False


class ProxyConfig(_Strict):
    """The whole file."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)  # Other clients' keys.

    servers: dict[str, ServerWords] = Field(alias="mcpServers")
    own: OwnWords = Field(default_factory=OwnWords, alias="laneway")


def read_config(path: Path) -> ProxyConfig:
    """Read a file.

    Raises:
        UsageError: it cannot be read, or says what cannot be meant; names file and place.
    """
    try:
        config = ProxyConfig.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        faults = "".join(
            f"\n  - {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()
        )
        raise UsageError(f"{path} is no configuration of a proxy:{faults}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not any(not one.disabled for one in config.servers.values()):
        raise UsageError(f"{path} names no server; put one into mcpServers")
    return config


def servers_of(config: ProxyConfig, folder: Path) -> list[MCPServer]:
    """Make the servers of a configuration.

    Args:
        config: the configuration.
        folder: from which relative paths start.

    Raises:
        UsageError: one of them cannot be meant; names it.
    """
    return [
        _server(name, words, folder) for name, words in config.servers.items() if not words.disabled
    ]


def limits_of(config: ProxyConfig) -> Limits:
    """The limits of the engine: a session's turn lasts as long as the session.

    Raises:
        UsageError: a limit that is not known, or makes no sense.
    """
    given: dict[str, Any] = {"turn_seconds": float("inf"), **config.own.limits}
    if unknown := sorted(given.keys() - set(Limits.__slots__)):
        known = ", ".join(Limits.__slots__)
        raise UsageError(f"laneway.limits: {unknown[0]!r} is no limit (known: {known})")
    return Limits(**given)


def _server(name: str, words: ServerWords, folder: Path) -> MCPServer:
    place = f"mcpServers.{name}"
    if (words.command is None) is (words.url is None):
        raise UsageError(f"{place}: give a command to start, or a url, and not both")
    options: MCPOptions = {
        "trusted": words.trusted,
        "effect": words.effect,  # type: ignore[typeddict-item]
        "tools": {
            tool: one.model_dump(exclude_none=True)  # type: ignore[misc]
            for tool, one in words.tools.items()
        },
        "only": words.only,
        "prefix": words.prefix,
        "required": words.required,
        "protocol": words.protocol,
        "limits": _limits(place, words.limits),
    }
    settings_of(name, options)  # Its faults come first.
    if words.command is not None:
        made = MCPServer.stdio(
            name,
            _filled(words.command, place),
            [_filled(one, place) for one in words.args],
            env=_all_filled(words.env, place),
            cwd=folder / words.cwd if words.cwd else folder,
            **options,
        )
    else:
        assert words.url is not None
        made = MCPServer.http(
            name,
            _filled(words.url, place),
            headers=_all_filled(words.headers, place),
            **options,
        )
    return made.passing_on()


def _limits(place: str, given: Mapping[str, float]) -> MCPLimits:
    if unknown := sorted(given.keys() - set(MCPLimits.__struct_fields__)):
        known = ", ".join(MCPLimits.__struct_fields__)
        raise UsageError(f"{place}.limits: {unknown[0]!r} is no limit (known: {known})")
    return MCPLimits(**given)


def _all_filled(texts: Mapping[str, str], place: str) -> dict[str, str]:
    return {name: _filled(text, place) for name, text in texts.items()}


def _filled(text: str, place: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise UsageError(f"{place}: the environment has no variable {name!r}, which it names")
        return os.environ[name]

    return _VARIABLE.sub(value, text)
