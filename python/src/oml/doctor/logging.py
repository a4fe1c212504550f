"""Settings of the server by which a body would reach its log. See docs/guides/submissions.md.

They are judged as each session has them: what everybody has, and what a role has of its own, which
no other role's session shows. A body is taken to be sent as a bound parameter. One that is part of
the statement's text is logged by more than these, and shown in pg_stat_activity.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from oml.doctor.check import Check, Status

Values = Mapping[str, str]

_PRELOADING = ("session_preload_libraries", "local_preload_libraries")
_LIBRARIES = {"auto_explain": "auto_explain.log_min_duration", "pgaudit": "pgaudit.log"}
_DEFAULTS: Values = {
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_statement_sample_rate": "1",
    "log_transaction_sample_rate": "0",
    "log_parameter_max_length": "-1",
    "log_parameter_max_length_on_error": "0",
    "debug_print_parse": "off",
    "debug_print_rewritten": "off",
    "debug_print_plan": "off",
    "auto_explain.log_min_duration": "-1",
    "auto_explain.log_verbose": "off",
    "auto_explain.sample_rate": "1",
    "pgaudit.log": "none",
    "pgaudit.role": "",
    "pgaudit.log_parameter": "off",
}
# What decides beside the setting that mends it.
_BESIDE = {
    "log_parameter_max_length": (
        "log_statement", "log_min_duration_statement", "log_min_duration_sample",
        "log_statement_sample_rate", "log_transaction_sample_rate",
    ),
    "auto_explain.log_verbose": ("auto_explain.log_min_duration", "auto_explain.sample_rate"),
    "pgaudit.log_parameter": ("pgaudit.log", "pgaudit.role"),
}  # fmt: skip
_AUDITED = {"all", "read", "write", "ddl"}
"""The classes of pgaudit.log whose statements may have a body among their parameters."""
_SYSTEM, _ALL = "alter system", "alter role all"
_OWN_SOURCES = ("user", "database user", "client")


class Settings(NamedTuple):
    """What sessions have: the values of everybody, and of the roles that have some of their own.

    ``hidden`` are the settings whose value for everybody this login's own hides. A library that
    a session loads is a value of its own name, ``on``. ``set_by`` has the beginning of the command
    that sets a setting again where it was set: for everybody (None), unless it is the server's own,
    or a role. A role's "" is for what it has not set.
    """

    everybody: Values
    roles: Mapping[str, Values]
    hidden: list[str]
    set_by: Mapping[tuple[str | None, str], str]


def gather(rows: Callable[[str], list[tuple[Any, ...]]]) -> Settings:
    """Read the settings; ``rows`` runs a query. Raises psycopg.Error."""
    everybody = dict(_DEFAULTS)
    names = ", ".join(f"'{name}'" for name in (*_DEFAULTS, *_PRELOADING))
    hidden = []
    set_by: dict[tuple[str | None, str], str] = {}
    for name, value, source, database in rows(
        "select n, current_setting(n, true), s.source, quote_ident(current_database())"
        f" from unnest(array[{names}]) n"
        " left join pg_settings s on s.name = n where n not like '%preload%'"
    ):
        if value is not None:
            everybody[name] = value
        if source in _OWN_SOURCES:
            hidden.append(name)
        if source in ("database", "global"):
            set_by[None, name] = f"alter database {database}" if source == "database" else _ALL
        for library, setting in _LIBRARIES.items():
            if name == setting and source is not None:  # it has a definition: it is loaded
                everybody[library] = "on"
    roles: dict[str, dict[str, str]] = {}
    for role, quoted, place, name, value in rows(
        # What holds for a role in this database comes after what it has everywhere.
        "select r.rolname, quote_ident(r.rolname), case when s.setdatabase <> 0"
        " then ' in database ' || quote_ident(current_database()) else '' end,"
        " split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)"
        " from pg_db_role_setting s join pg_roles r on r.oid = s.setrole, unnest(s.setconfig) c"
        " where s.setdatabase in (0, (select oid from pg_database where datname ="
        f" current_database())) and split_part(c, '=', 1) in ({names})"
        " order by r.rolname, s.setdatabase"
    ):
        values = roles.setdefault(role, dict(everybody))
        values[name] = value
        set_by[role, name] = f"alter role {quoted}{place}"
        set_by[role, ""] = f"alter role {quoted}"
        if name in _PRELOADING:
            values.update({library: "on" for library in _LIBRARIES if library in value})
    return Settings(everybody, roles, hidden, set_by)


def checks(settings: Settings, production: bool) -> Iterator[Check]:
    """Judge the settings. What fails the production profile is a warning in the local one."""
    yield _check(
        settings,
        production,
        "bound values in the log",
        _logs_values,
        "log_parameter_max_length",
        "0",
    )
    yield _check(
        settings, production, "bound values in errors", _logs_values_of_errors,
        "log_parameter_max_length_on_error", "0",
    )  # fmt: skip
    for name in ("debug_print_parse", "debug_print_rewritten", "debug_print_plan"):
        yield _check(settings, production, name, _printing(name), name, "off")
    yield _check(
        settings, production, "auto_explain", _explains_values, "auto_explain.log_verbose", "off"
    )
    yield _check(settings, production, "pgaudit", _audits_values, "pgaudit.log_parameter", "off")


def _check(
    settings: Settings,
    production: bool,
    name: str,
    fault: Callable[[Values], str],
    setting: str,
    safe: str,
) -> Check:
    """Judge everybody and each role by one fault; the setting's safe value mends it."""
    general = fault(settings.everybody)
    faults = {role: fault(values) for role, values in settings.roles.items()}
    found = [f"everybody: {general}"] if general else []
    found += [f"{role}: {what}" for role, what in faults.items() if what and what != general]
    set_by = settings.set_by
    mending = [set_by.get((None, setting), _SYSTEM)] if general else []
    # A role that has the setting of its own is not mended by everybody's.
    mending += [
        set_by.get((role, setting), set_by[role, ""])
        for role, what in faults.items()
        if what and (not general or (role, setting) in set_by)
    ]
    hints = [f"{command} set {setting} = {safe};" for command in mending]
    if _SYSTEM in mending:
        hints.append("select pg_reload_conf();")
    hidden = [name for name in (setting, *_BESIDE.get(setting, ())) if name in settings.hidden]
    if hidden:
        found.append(f"others' {', '.join(hidden)} cannot be seen: this login has its own")
        hints.append("Run oml doctor as a login without settings of its own.")
    return Check(
        name,
        (Status.FAIL if production else Status.WARN) if found else Status.OK,
        "; ".join(found) or "none",
        f"none: {setting} = {safe}, or nothing that logs them",
        " ".join(hints),
    )


def _logs_values(values: Values) -> str:
    if _zero(values["log_parameter_max_length"]):
        return ""
    logging = [
        f"{name} = {values[name]}"
        for name, logs in (
            ("log_statement", values["log_statement"].lower() != "none"),
            ("log_min_duration_statement", _reached(values["log_min_duration_statement"])),
            (
                "log_min_duration_sample",
                _reached(values["log_min_duration_sample"])
                and not _zero(values["log_statement_sample_rate"]),
            ),
            ("log_transaction_sample_rate", not _zero(values["log_transaction_sample_rate"])),
        )
        if logs
    ]
    if not logging:
        return ""
    return (
        f"{', '.join(logging)} with log_parameter_max_length = {values['log_parameter_max_length']}"
    )


def _logs_values_of_errors(values: Values) -> str:
    length = values["log_parameter_max_length_on_error"]
    return "" if _zero(length) else f"log_parameter_max_length_on_error = {length}"


def _printing(name: str) -> Callable[[Values], str]:
    return lambda values: f"{name} = on" if _on(values[name]) else ""


def _explains_values(values: Values) -> str:
    explains = (
        "auto_explain" in values
        and _reached(values["auto_explain.log_min_duration"])
        and not _zero(values["auto_explain.sample_rate"])
        and _on(values["auto_explain.log_verbose"])
    )
    duration = values["auto_explain.log_min_duration"]
    return f"auto_explain.log_min_duration = {duration} with log_verbose" if explains else ""


def _audits_values(values: Values) -> str:
    if "pgaudit" not in values or not _on(values["pgaudit.log_parameter"]):
        return ""
    classes = {name.strip().lower() for name in values["pgaudit.log"].split(",")}
    auditing = [f"pgaudit.log = {values['pgaudit.log']}"] if classes & _AUDITED else []
    auditing += [f"pgaudit.role = {values['pgaudit.role']}"] if values["pgaudit.role"] else []
    return f"{', '.join(auditing)} with pgaudit.log_parameter" if auditing else ""


def _on(value: str) -> bool:
    """Tell whether a Boolean setting is on, as PostgreSQL reads it: prefixes do."""
    value = value.strip().lower()
    return value in ("on", "1") or (
        value != "" and ("true".startswith(value) or "yes".startswith(value))
    )


def _zero(value: str) -> bool:
    """Tell whether a number, perhaps with a unit, is zero."""
    return not value.strip(" .0abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _reached(value: str) -> bool:
    """Tell whether a duration is one that statements reach: -1 is none."""
    return not value.strip().startswith("-")
