"""Settings of the command line and the daemon: ``OML_*`` variables over an ``oml.toml`` file."""

import os
import tomllib
from pathlib import Path
from typing import Annotated
from uuid import UUID

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from oml.errors import UsageError

DEFAULT_FILE = "oml.toml"
_PLAINER = {"extra_forbidden": "unknown setting"}


class Settings(BaseSettings):
    """What can be set. A variable ``OML_X`` wins over the key ``x`` of the file."""

    model_config = SettingsConfigDict(env_prefix="OML_", extra="forbid", frozen=True)

    dsn: Annotated[str | None, Field(repr=False)] = None
    """libpq connection string; None leaves it to the PG* variables."""
    lake_url: str | None = None
    """Where the lake is, instead of where the database says."""
    lake_storage_options: Annotated[dict[str, str], Field(repr=False)] = {}
    """Options of the lake's object store, such as AWS_ENDPOINT_URL."""
    bodies_url: str | None = None
    """Where released ciphertext is kept as objects, instead of where the database says."""
    bodies_storage_options: Annotated[dict[str, str], Field(repr=False)] = {}
    """Options of the bodies' object store, such as AWS_ENDPOINT_URL."""
    quarantine_url: str | None = None
    """A place kept for held bodies, which no other store may share, instead of the database's."""
    tlog_url: str | None = None
    """Where the transparency logs are, instead of where the database says."""
    tlog_storage_options: Annotated[dict[str, str], Field(repr=False)] = {}
    """Options of the tlog's object store, such as AWS_ENDPOINT_URL."""
    tlog_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 1.0
    """Seconds between two publications of tlog checkpoints."""
    tlog_policy: str | None = None
    """A tlog policy file (c2sp.org/tlog-policy): its witnesses are asked to cosign checkpoints."""
    batch_rows: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    """Most outbox rows in one batch of the lake writer."""
    batch_bytes: Annotated[int, Field(ge=1, le=2**40)] = 64 * 1024 * 1024
    """Most bytes of envelopes held: half in the batch that is written, half read ahead.

    A single larger row still goes, alone.
    """
    lease_s: Annotated[float, Field(ge=1, le=86_400)] = 30.0
    """Seconds a lake writer that hangs keeps others waiting."""
    lake_file_bytes: Annotated[int, Field(ge=2**20, le=2**40)] = 100 * 1024 * 1024
    """About the most bytes in one file of a lake table."""
    lake_roll_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """Seconds after which small files of a lake table are put together, though they are few."""
    lake_retention_hours: Annotated[int, Field(ge=1, le=8_760)] = 24
    """How long a reader may go on reading a version of a lake table that is not the newest one."""
    lake_log_minutes: Annotated[int, Field(ge=1, le=525_600)] = 1
    """How long a lake table that is made keeps log entries which no reader of it as it is needs."""
    lake_attempts: Annotated[int, Field(ge=1, le=100)] = 4
    """How often a commit to the lake, or a row that looks damaged, is tried before it is given up.

    In between it waits, longer each time, with jitter.
    """
    poll_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 0.25
    """Seconds between two looks of the lake writer at the outbox."""
    cut_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds a cut waits for open transactions before it reports who holds it back."""
    deployment_id: UUID | None = None
    """The deployment whose events the signer signs."""
    signer_keys: tuple[str, ...] = ()
    """Signing keys, file: or vault: URLs; several while one takes another's place."""
    signer_socket: str = "/run/oml/omld.sock"
    """Where the signer listens."""
    signer_users: tuple[str | int, ...] | None = None
    """OS users, by name or uid, who may ask; None means our own and postgres."""
    signer_connections: Annotated[int, Field(ge=1, le=100_000)] = 500
    """Most connections the signer serves at a time; a database backend keeps one."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, _file()))


def load() -> Settings:
    """Read the settings from the environment and from ``OML_CONFIG``, else ``./oml.toml``.

    Raises UsageError naming the key for one that is unknown or has a bad value, and for a file
    that is named but missing or is not TOML. No value is repeated in a message: it may be secret.
    """
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {_PLAINER.get(e['type'], e['msg'])}"
            for e in error.errors(include_input=False, include_url=False)
        )
        known = ", ".join(Settings.model_fields)
        raise UsageError(f"bad setting: {problems}", f"Known settings: {known}.") from None
    except SettingsError as error:
        hint = "A setting that is a table or list is given as JSON in its OML_ variable."
        raise UsageError(str(error), hint) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {_file()}: {error}", "It must be a TOML file.") from None


def _file() -> Path:
    named = os.environ.get("OML_CONFIG")
    if named is None:
        return Path(DEFAULT_FILE)
    path = Path(named)
    if not path.is_file():
        raise UsageError(f"OML_CONFIG names {named}, which is not a file")
    return path
