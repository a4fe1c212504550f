"""Payload schemas: what is refused at registration, and that numbers are exact."""

import json
import socket
import urllib.request
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oml.core.schema import DIALECT, Schema, SchemaError, check

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal, as JSON Schema says: 1 is 1.0 and no true."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(v, other[k]) for k, v in one.items())
    return isinstance(one, bool) == isinstance(other, bool) and one == other


@given(st.lists(JSON, max_size=6))
def test_items_are_unique_when_no_two_are_the_same(items: list[object]) -> None:
    repeated = any(same(a, b) for i, a in enumerate(items) for b in items[:i])
    found = Schema('{"uniqueItems": true}').violations(json.dumps(items))
    assert found == (["the payload violates uniqueItems true"] if repeated else [])


def test_many_items_that_do_not_sort_are_compared_in_no_time() -> None:
    items = [*range(100_000), "a", None]
    assert Schema('{"uniqueItems": true}').violations(json.dumps(items)) == []


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=Decimal("1e-30"), max_value=100),
)
def test_multiple_of_is_exact(value: Decimal, step: Decimal) -> None:
    if step == 0:
        return
    found = Schema(f'{{"multipleOf": {step:f}}}').violations(f"{value:f}")
    assert (found == []) == ((Fraction(value) / Fraction(step)).denominator == 1)


@given(st.integers(0, 6000), st.integers(0, 6000), st.booleans())
def test_a_number_without_a_fraction_is_an_integer_however_long(
    digits: int, zeros: int, fraction: bool
) -> None:
    text = "1" + "2" * digits + "." + "0" * zeros + ("1" if fraction else "0")
    found = Schema('{"type": "integer"}').violations(text)
    assert found == (['the payload violates type "integer"'] if fraction else [])


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://acme.example/s"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other.json#/a"},
        {"$dynamicRef": "//acme.example/s#a"},
        {"properties": {"a": {"anyOf": [{}, {"$ref": DIALECT}]}}},
        {"$id": "https://acme.example/s", "$ref": "https://acme.example/s"},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"properties": {"a": {"$schema": DIALECT}}},
        {"$defs": {"a": {"$id": "https://acme.example/"}}},
        {"$ref": "#/$defs/none"},
        {"$ref": "#none"},
        {"$defs": {"a": 1, "b": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"pattern": "("},
        {"patternProperties": {"(": {}}},
        {"type": "money"},
        {"required": "a"},
        {"maxLength": -1},
        {"multipleOf": 0},
        {"items": [{}]},
    ],
    ids=json.dumps,
)
def test_a_schema_that_leads_out_or_is_none_is_refused(
    schema: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_arguments: object, **_more: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", fetch)
    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    monkeypatch.setattr("jsonschema.validators.urlopen", fetch)
    with pytest.raises(SchemaError):
        check(json.dumps(schema))


@pytest.mark.parametrize("text", ["[]", "null", "1", '"a"'])
def test_a_schema_is_an_object_or_a_boolean(text: str) -> None:
    with pytest.raises(SchemaError, match="neither an object nor a boolean"):
        check(text)


def test_a_reference_to_the_web_that_was_never_checked_is_not_fetched_either() -> None:
    found = Schema('{"$ref": "https://127.0.0.1:1/s"}').violations("{}")
    assert found == ["its schema cannot be applied to it (RefResolutionError)"]


def test_a_schema_that_names_its_dialect_counts_integers_alike() -> None:
    parts = {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": {"type": "integer"}}}}}
    for schema in (parts, {"$schema": DIALECT, "$id": "https://acme.example/"} | parts):
        check(json.dumps(schema))
        assert Schema(json.dumps(schema)).violations('{"a": 2.0}') == []
        assert Schema(json.dumps(schema)).violations('{"a": 2.5}') != []


@given(JSON, st.sampled_from(["type", "enum", "const", "not", "anyOf", "oneOf", "properties"]))
def test_no_violation_repeats_a_value_or_an_unknown_key(value: object, keyword: str) -> None:
    wanted: dict[str, object] = {
        "type": "null",
        "enum": [17],
        "const": 17,
        "not": {"not": {"const": 17}},
        "anyOf": [{"const": 17}],
        "oneOf": [{"const": 17}],
        "properties": {"known": False},
    }
    schema = Schema(json.dumps({"additionalProperties": {keyword: wanted[keyword]}}))
    payload = json.dumps({"s3cret@acme.example": {"known": ["s3cret", value]}})
    found = schema.violations(payload)
    assert found
    assert "s3cret" not in "".join(found)


@pytest.mark.parametrize("depth", [300, 2_000, 100_000])
def test_what_is_nested_too_deeply_is_refused(depth: int) -> None:
    tree = Schema('{"items": {"$ref": "#"}}')
    assert tree.violations("[" * depth + "]" * depth) == ["it is nested too deeply for its schema"]
    with pytest.raises(SchemaError, match="nested too deeply"):
        check('{"items":' * depth + "{}" + "}" * depth)
