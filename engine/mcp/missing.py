"""The SDK, which only those need who use MCP servers."""

import importlib

from laneway.errors import UsageError


class MissingMCPError(UsageError):
    """The extra `mcp` is missing."""

    def __init__(self, package: str) -> None:
        """Name the package, and what installs it."""
        super().__init__(
            f"MCP servers need the package {package}; install it with: pip install 'laneway[mcp]'"
        )


def see_that_installed() -> None:
    """See that the SDK can be imported.

    Raises:
        MissingMCPError: it is not installed.
    """
    try:
        importlib.import_module("mcp")
    except ModuleNotFoundError as error:
        raise MissingMCPError(error.name or "mcp") from error
