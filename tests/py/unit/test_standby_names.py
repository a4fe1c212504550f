"""How synchronous_standby_names is read; that the server reads it so is tested on a server."""

import pytest

from oml.doctor.standby_names import StandbyNames, parse


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", None),
        ("  ", None),
        ("s1", StandbyNames(1, ("s1",), False)),
        ("s1, s2", StandbyNames(1, ("s1", "s2"), False)),
        ("*", StandbyNames(1, ("*",), False)),
        ("2 (s1,s2 , s3)", StandbyNames(2, ("s1", "s2", "s3"), False)),
        ("FIRST 2 (s1, s2)", StandbyNames(2, ("s1", "s2"), False)),
        ("first 2(s1,s2)", StandbyNames(2, ("s1", "s2"), False)),
        ("ANY 1 (s1, s2)", StandbyNames(1, ("s1", "s2"), True)),
        ("any 3 (*)", StandbyNames(3, ("*",), True)),
        ('ANY 1 ("s 1", "a""b", "any")', StandbyNames(1, ("s 1", 'a"b', "any"), True)),
        ("1, 2", StandbyNames(1, ("1", "2"), False)),
        ("7", StandbyNames(1, ("7",), False)),
        ('"any", s1', StandbyNames(1, ("any", "s1"), False)),
    ],
)
def test_what_a_list_means(text: str, meant: StandbyNames | None) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text",
    ["ANY", "ANY 1", "ANY (s1)", "ANY 1 ()", "ANY 1 (s1", "s1 s2", "s1,", ",", "()", "s-1", '"s1',
     "0 (s1)", "any 1 (s1,,s2)", "1 (s1) s2", "FIRST, s1"],
)  # fmt: skip
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert caught.value.args == (text,)


def test_it_is_said_in_words() -> None:
    assert str(parse("ANY 1 (s1, s2)")) == "any 1 of s1, s2"
    assert str(parse("2 (s1, s2, s3)")) == "the first 2 of s1, s2, s3"
    assert str(parse("*")) == "the first 1 of whatever standbys there are"
