"""OML: an append-only, signed, hash-chained journal per tenant inside PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oml.driver.artifacts import Attachment as Attachment
    from oml.driver.client import Client as Client
    from oml.driver.client import connect as connect
    from oml.driver.client_async import AsyncClient as AsyncClient
    from oml.driver.client_async import connect_async as connect_async
    from oml.driver.events import Event as Event
    from oml.driver.retrying import Retry as Retry

__version__ = "0.1"

# Loaded when they are asked for: the command line begins without them.
_DRIVER = {
    "AsyncClient": "oml.driver.client_async",
    "Attachment": "oml.driver.artifacts",
    "Client": "oml.driver.client",
    "Event": "oml.driver.events",
    "Retry": "oml.driver.retrying",
    "connect": "oml.driver.client",
    "connect_async": "oml.driver.client_async",
}


def __getattr__(name: str) -> Any:
    if name in _DRIVER:
        return getattr(import_module(_DRIVER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
