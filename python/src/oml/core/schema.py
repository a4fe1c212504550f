"""JSON Schema (draft 2020-12) of event payloads: checked once at registration, then applied.

The one part of the core that needs jsonschema, and loaded only where a type has a schema. Nothing
is ever fetched: a schema refers to places inside itself alone. Numbers are exact: what JSON writes
with a point is a Decimal, and so ``multipleOf: 0.01`` means what it says.
"""

import decimal
import itertools
import json
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, RefResolver
from jsonschema.exceptions import RefResolutionError, ValidationError, best_match
from jsonschema.validators import extend

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SHOWN = 3
_SHOWN_CHARACTERS = 100
_SMALL_DIGITS = 18
_CONTEXT = decimal.Context(prec=200_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
"""Exact for any two numbers of jsonb, which have up to 131,072 digits before and 16,383 after the
point; the quotient that ``multipleOf`` needs has no more than both together."""


class SchemaError(Exception):
    """A schema cannot be registered; the text says why."""


class _Inside(RefResolver):
    """Resolves references into the schema itself and no other."""

    def resolve(self, ref: str) -> tuple[str, Any]:
        if not ref.startswith("#"):
            raise RefResolutionError(f"{ref} lies outside the schema")
        return ref, self.resolve_fragment(self.referrer, ref[1:])

    def resolve_remote(self, uri: str) -> Any:
        raise RefResolutionError(f"{uri} is never fetched")


def _is_integer(_checker: object, value: object) -> bool:
    if isinstance(value, decimal.Decimal):
        return value == value.to_integral_value(context=_CONTEXT)
    return isinstance(value, int) and not isinstance(value, bool)


def _unique_items(
    validator: Any, wanted: bool, items: Any, _schema: object
) -> Iterator[ValidationError]:
    # The library compares each with each where they do not sort: minutes that no cancel ends.
    if wanted and validator.is_type(items, "array") and len(set(map(_key, items))) < len(items):
        yield ValidationError("two items are the same")


def _key(value: Any) -> Hashable:
    if isinstance(value, dict):
        return "object", frozenset((key, _key(member)) for key, member in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_key, value))
    return ("boolean", value) if isinstance(value, bool) else value


_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"uniqueItems": _unique_items},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


class Schema:
    """A compiled schema."""

    def __init__(self, text: str) -> None:
        """Compile a schema that ``check`` has accepted. ``text`` is its JSON."""
        self._schema = _parse(text)
        if isinstance(self._schema, dict):
            # The library would take another validator for them, or another base for references.
            self._schema = {k: v for k, v in self._schema.items() if k not in ("$schema", "$id")}
        self._names = {key for key, _ in _members(self._schema)}
        self._validator = _Validator(self._schema, resolver=_Inside("", self._schema))

    def violations(self, text: str) -> list[str]:
        """Return what is wrong with a payload, empty when nothing is.

        ``text`` is the payload's JSON. At most three violations are named, each with a JSON
        Pointer (RFC 6901) and the keyword that was violated. No value of the payload is, nor a key
        that the schema does not know: they may be personal data.
        """
        try:
            with decimal.localcontext(_CONTEXT):
                errors = self._validator.iter_errors(_parse(text))
                # One more than is shown; a few may say the same.
                found = list(itertools.islice(dict.fromkeys(map(self._say, errors)), _SHOWN + 1))
        except RecursionError:
            return ["it is nested too deeply for its schema"]
        except Exception as error:
            # The library stumbles over some payloads, and its message may quote them.
            return [f"its schema cannot be applied to it ({type(error).__name__})"]
        return [*found[:_SHOWN], "and more"] if len(found) > _SHOWN else found

    def resolve_all(self) -> None:
        """Raise SchemaError for a reference that leads nowhere or in a circle."""
        resolver = self._validator.resolver
        for key, value in _members(self._schema):
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                try:
                    target = resolver.resolve(value)[1]
                except Exception:
                    raise SchemaError(f"{key} {value} leads nowhere") from None
                if not isinstance(target, dict | bool):
                    raise SchemaError(f"{key} {value} does not lead to a schema")
        try:
            for probe in ("{}", "[]", '""', "0", "null"):
                next(self._validator.iter_errors(_parse(probe)), None)
        except RecursionError:
            raise SchemaError("it refers to itself without end") from None
        except Exception as error:
            raise SchemaError(f"it cannot be applied ({type(error).__name__})") from None

    def _say(self, error: ValidationError) -> str:
        parts = ["" if isinstance(p, str) and p not in self._names else str(p) for p in error.path]
        shown = (p.replace("~", "~0").replace("/", "~1") or "*" for p in parts)
        where = "".join(f"/{part}" for part in shown) or "the payload"
        if not error.validator:
            return f"{_short(where)} is not allowed"
        asked: Any = error.validator_value
        if error.validator == "required" and isinstance(error.instance, dict):
            asked = [key for key in asked if key not in error.instance]
        value = json.dumps(asked, ensure_ascii=False, default=_number)
        return f"{_short(where)} violates {error.validator} {_short(value)}"


def check(text: str) -> None:
    """Accept a schema for registration. ``text`` is its JSON. Raises SchemaError."""
    try:
        schema = _parse(text)
        if not isinstance(schema, dict | bool):
            raise SchemaError("it is neither an object nor a boolean")
        if isinstance(schema, dict):
            _check_references(schema)
            _check_form(text)
        Schema(text).resolve_all()
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None


def _check_references(schema: dict[str, Any]) -> None:
    """Refuse what leads out of the schema, wherever it is written, and other dialects."""
    for key, value in _members(schema):
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and value[:1] != "#":
            raise SchemaError(f"{key} {value} leads out of it: a reference begins with #")
        if key == "$schema" and isinstance(value, str) and value.removesuffix("#") != DIALECT:
            raise SchemaError(f"$schema {value} is not {DIALECT}")
    for member in schema.values():
        for key, value in _members(member):
            if key in ("$id", "$schema") and isinstance(value, str):
                raise SchemaError(f"{key} stands below its top")


def _check_form(text: str) -> None:
    """Refuse what the dialect's own schema refuses, and patterns that do not compile."""
    form = Draft202012Validator(
        Draft202012Validator.META_SCHEMA, format_checker=FormatChecker(["regex"])
    )
    # To the library a Decimal is no integer, and a keyword may well say 3.0.
    error = best_match(form.iter_errors(_parse(text, _whole)))
    if error is not None:
        where = "".join(f"/{part}" for part in error.absolute_path) or "its top"
        raise SchemaError(f"{_short(where)}: {_short(error.message, 300)}")


def _members(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key and value of every object in it, at any depth."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from _members(value)
    elif isinstance(node, list):
        for value in node:
            yield from _members(value)


def _parse(text: str, parse_float: Callable[[str], Any] = decimal.Decimal) -> Any:
    return json.loads(text, parse_float=parse_float, parse_int=_integer)


def _whole(number: str) -> int | decimal.Decimal:
    value = decimal.Decimal(number)
    whole = value == value.to_integral_value(context=_CONTEXT) and value.adjusted() < _SMALL_DIGITS
    return int(value) if whole else value


def _integer(digits: str) -> int | decimal.Decimal:
    # Python refuses to make an int of more than 4,300 digits, and is slow with long ones.
    return int(digits) if len(digits) <= _SMALL_DIGITS else decimal.Decimal(digits)


def _number(value: object) -> float:
    return float(str(value))  # a Decimal, shown to its reader


def _short(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
