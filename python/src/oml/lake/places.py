"""Where the stores are: none of them may be another, or lie inside it.

Whoever may read the lake could otherwise read what is held, and what cleans one store up could
remove another.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote
from urllib.request import url2pathname

from oml.errors import UsageError
from oml.lake.bodies import Stores
from oml.settings import Settings
from oml.store import require_url

_ENDPOINTS = ("endpoint_url_s3", "endpoint_url", "endpoint")


@dataclass(frozen=True)
class Place:
    """A store: its name among the settings, its URL, and what it comes to.

    ``host`` is the bucket's name, None for a directory. ``endpoint`` is the S3 server, empty for
    the vendor's own, None where it is not known.
    """

    name: str
    url: str
    host: str | None
    endpoint: str | None
    path: tuple[str, ...]

    def holds(self, other: "Place") -> bool:
        """Tell whether the other store is this one, or lies in it."""
        endpoints = {self.endpoint, other.endpoint}
        same = len(endpoints) == 1 or None in endpoints
        return self.host == other.host and same and other.path[: len(self.path)] == self.path


def require_apart(configured: Stores, settings: Settings) -> None:
    """Insist that no store is another or lies inside it, as far as their URLs can tell.

    Paths are compared with their symbolic links followed. Raises UsageError.
    """
    places = list(_places(configured, settings))
    for n, one in enumerate(places):
        for other in places[:n]:
            for outer, inner in ((one, other), (other, one)):
                if outer.holds(inner):
                    raise UsageError(
                        f"{inner.name} {inner.url} lies inside {outer.name} {outer.url}, or is it",
                        f"Give {inner.name} and {outer.name} places beside each other: who reads "
                        "one store must not thereby read another.",
                    )


def _places(configured: Stores, settings: Settings) -> Iterator[Place]:
    options: dict[str, Mapping[str, str] | None] = {
        "lake_url": settings.lake_storage_options,
        "bodies_url": settings.bodies_storage_options,
        "quarantine_url": None,  # nothing connects to it yet, so its server is not known
        "tlog_url": settings.tlog_storage_options,
    }
    for name, given in options.items():
        url = getattr(settings, name) or getattr(configured, name)
        if url is not None:
            yield _place(name, url, given)


def _place(name: str, url: str, options: Mapping[str, str] | None) -> Place:
    require_url(url, "store")
    if "?" in url or "#" in url:
        raise UsageError(f"{url!r} is no place for a store", f"{name} may have no ? and no #.")
    if url.startswith("file:"):
        path = Path(url2pathname(url.removeprefix("file://"))).resolve()
        return Place(name, url, None, None, path.parts)
    bucket, *parts = url.removeprefix("s3://").split("/")
    path = Path(os.path.normpath("/" + "/".join(map(unquote, parts))))
    endpoint = None if options is None else _endpoint(options)
    return Place(name, url, bucket.lower(), endpoint, path.parts[1:])


def _endpoint(options: Mapping[str, str]) -> str:
    """Return the S3 server's URL, from the options or else from the environment."""
    inherited = {k: v for k, v in os.environ.items() if k.upper().startswith("AWS_")}
    for source in (options, inherited):
        named = {k.lower().removeprefix("aws_"): v for k, v in source.items()}
        for name in _ENDPOINTS:
            if named.get(name):
                return named[name].rstrip("/").lower()
    return ""
