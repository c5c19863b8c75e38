"""Webhook filters: what an expression means, how a malformed one is refused, and both ways."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.filters import (
    Comparison,
    Filter,
    parse_filter,
    read_payload,
)
from drumbeat.errors import InvalidValue

PAYLOAD: dict[str, Any] = {
    "action": "opened",
    "number": 42,
    "price": 1.50,
    "empty": "",
    "nothing": None,
    "draft": False,
    "merged": True,
    "comment": {"body": "ask @acme-agent, a == b", "user": {"login": "Åsa"}},
    "labels": [{"name": "bug"}, {"name": "ui"}],
    "tags": ["a", "b"],
    "none": [],
    "0": "zero",
    "odd-key:x/@$": "yes",
}
RAW = b"""{
  "price": 1.50, "big": 123456789012345678901234567890, "exp": 1E3, "zero": -0,
  "list": [1.0, "1.0", {"k": null}], "long": %s
}""" % (b"9" * 5000)


@pytest.mark.parametrize(
    "expression, matches",
    [
        ("action==opened", True),
        ("action==Opened", False),
        ("action==open", False),
        ("action != closed", True),
        ("action!=opened", False),
        ("action~=pen", True),
        ("action~=opened", True),
        ("action~=closed", False),
        ("  action  ==  opened  ", True),
        ("number==42", True),
        ("number==42.0", False),
        ("number~=4", True),
        ("price==1.5", True),
        ("draft==false", True),
        ("draft==False", False),
        ("merged==true", True),
        ("merged!=true", False),
        ("nothing==null", True),
        ("nothing!=null", False),
        ("empty!=x", True),
        ("empty~=x", False),
        ("missing==null", False),
        ("missing!=anything", True),
        ("missing~=a", False),
        ("missing.deeper!=x", True),
        ("action.deeper==opened", False),
        ("number.0==4", False),
        ("action.0==o", False),
        ("comment.user.login==Åsa", True),
        ("comment.body~=@acme-agent", True),
        ("comment.body~=a == b", True),
        ("comment~=Åsa", True),
        ("labels.0.name==bug", True),
        ("labels.1.name==bug", False),
        ("labels.2.name==bug", False),
        ("labels.2.name!=bug", True),
        ("labels.00.name==bug", False),
        ("labels.-1.name==ui", False),
        ("labels.name==bug", False),
        ('tags==["a","b"]', True),
        ('tags~=["a"', True),
        ("none==[]", True),
        ("0==zero", True),
        ("odd-key:x/@$==yes", True),
        ("action==opened && draft==false", True),
        ("action==opened && draft==true", False),
        ("action==closed || draft==false", True),
        ("action==closed || draft==true", False),
        ("action==opened || action==x && draft==true", True),
        ("action==x && draft==true || action==opened", True),
        ("action==x || action==opened && draft==true", False),
        ("action==opened   &&   number==42 && merged==true", True),
    ],
)
def test_an_expression_matches_or_not(expression: str, matches: bool) -> None:
    parsed = parse_filter(expression)
    assert parsed.matches(PAYLOAD) is matches
    assert parsed.matches(read_payload(json.dumps(PAYLOAD).encode())) is matches


@pytest.mark.parametrize(
    "expression, matches",
    [
        ("price==1.50", True),
        ("price==1.5", False),
        ("big==123456789012345678901234567890", True),
        ("exp==1E3", True),
        ("exp==1000.0", False),
        ("zero==-0", True),
        ('list==[1.0,"1.0",{"k":null}]', True),
        ("list.0==1.0", True),
        ("list.2.k==null", True),
        ("long~=99", True),
    ],
)
def test_a_number_is_compared_as_the_sender_wrote_it(expression: str, matches: bool) -> None:
    assert parse_filter(expression).matches(read_payload(RAW)) is matches


@pytest.mark.parametrize("payload", [None, "opened", 5, [], [1], b"x"])
def test_a_payload_of_another_shape_has_no_such_path(payload: Any) -> None:
    assert not parse_filter("action==opened").matches(payload)
    assert parse_filter("action!=opened").matches(payload)


def test_objects_and_lists_are_compared_as_compact_json() -> None:
    payload = {"a": {"b": [1, {"c": 'x"y', "d": []}, True], "é": {}}}
    text = '{"b":[1,{"c":"x\\"y","d":[]},true],"é":{}}'
    assert Comparison(path=("a",), operator="==", value=text).holds(payload)


def test_deep_nesting_is_written_without_deep_calls() -> None:
    payload: Any = 1
    for _ in range(100_000):
        payload = [payload]
    assert parse_filter("a~=[[1]]").matches({"a": payload})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"a=1&b=2",
        b"\xff\xfe{}",
        b"NaN",
        b'{"a": Infinity}',
        b"[" * 200_000,
    ],
)
def test_a_body_that_is_no_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_payload(body)


def test_a_byte_order_mark_is_no_part_of_the_payload() -> None:
    assert read_payload(b"\xef\xbb\xbf{}") == {}


@pytest.mark.parametrize(
    "expression, column, says",
    [
        ("", 1, "missing"),
        ("   ", 1, "missing"),
        ("action", 1, "compares nothing"),
        ("action=opened", 7, "`=` is no operator"),
        ("action===opened", 7, "`===` is no operator"),
        ("action~==x", 7, "`~==` is no operator"),
        ("action=~opened", 7, "`=~` is no operator"),
        ("action~opened", 7, "`~` is no operator"),
        ("number>=5", 7, "`>=` is no operator"),
        ("number<5", 7, "`<` is no operator"),
        ("!action==x", 1, "`!` is no operator"),
        ("==opened", 1, "no path"),
        ("  ==opened", 3, "no path"),
        ("action==", 7, "no value"),
        ("action== ", 7, "no value"),
        ("action!=  && a==b", 7, "no value"),
        ("a==b&&c==d", 5, "`&&` needs a space"),
        ("a==b &&c==d", 6, "`&&` needs a space"),
        ("a==b|| c==d", 5, "`||` needs a space"),
        ("a==b\n&& c==d", 6, "`&&` needs a space"),
        ("a==b && ", 9, "missing"),
        ("a==b &&", 6, "`&&` needs a space"),
        ("&& a==b", 1, "`&&` needs a space"),
        (" && a==b", 1, "missing"),
        ("a==b && && c==d", 9, "`&&` needs a space"),
        ("a==b && c", 9, "compares nothing"),
        ("x==1 || a.b.[0]==1", 13, "no path"),
        ("commits[0].id==1", 1, "no path"),
        ("a..b==1", 3, "no path"),
        (".a==1", 1, "no path"),
        ("a.==1", 3, "no path"),
        ("$.action==opened", 1, "no path"),
        ("(a==b || c==d) && e==f", 1, "no path"),
        ("pull request==x", 1, "no path"),
        ('"action"==x', 1, "no path"),
        ("action=='opened'", 9, "quotes"),
        ('x==1 && action == "opened"', 19, "quotes"),
    ],
)
def test_a_malformed_expression_is_refused_at_its_column(
    expression: str, column: int, says: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_filter(expression)
    problem = caught.value.problem
    assert (problem.code, problem.column) == ("filter-syntax", column)
    assert says in problem.message
    assert problem.remedy


@pytest.mark.parametrize(
    "expression, remedy",
    [
        ("$.action==opened", "leave out `$.`"),
        ("commits[0].id==1", "`commits.0.id`"),
        ("(a==b)", "parentheses"),
        ("a..b==1", "joined by dots"),
        ("a=~b", "`~=` for contains"),
        ("a=b", "write `==`"),
        ("a>b", "`path==value`"),
        ("a=='b'", "write b without quotes"),
    ],
)
def test_a_refusal_says_how_to_mend_it(expression: str, remedy: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_filter(expression)
    assert remedy in caught.value.problem.remedy


def test_one_quote_is_text() -> None:
    assert parse_filter("size==5'").matches({"size": "5'"})
    assert parse_filter("mark=='").matches({"mark": "'"})


def test_long_expressions_are_read_in_one_pass() -> None:
    assert len(parse_filter(" || ".join(["a==b"] * 20_000)).alternatives) == 20_000
    for text in (" " * 200_000, "=" * 200_000, " &&" * 100_000, "a." * 100_000):
        with pytest.raises(InvalidValue):
            parse_filter(text)


# ---- properties

keys = st.text("abcXYZ019-_@/:$é", min_size=1, max_size=5).filter(lambda key: key != "$")
values = st.text("abc é01=!~<>()[]'\".&|", min_size=1, max_size=8).filter(
    lambda text: (
        text == text.strip()
        and "&&" not in text
        and "||" not in text
        and not text.startswith(("=", "~"))
        and not (len(text) > 1 and text[0] == text[-1] and text[0] in "'\"")
    )
)
comparisons = st.builds(
    Comparison,
    path=st.lists(keys, min_size=1, max_size=3).map(tuple),
    operator=st.sampled_from(["==", "!=", "~="]),
    value=values,
)
filters = st.builds(
    Filter,
    alternatives=st.lists(
        st.lists(comparisons, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3
    ).map(tuple),
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)


@given(filters)
def test_what_is_written_reads_back_equal(expression: Filter) -> None:
    written = " || ".join(
        " && ".join(f"{'.'.join(each.path)}{each.operator}{each.value}" for each in every)
        for every in expression.alternatives
    )
    assert parse_filter(written) == expression


@given(st.text() | st.text("ab.=!~&| ()\"'$0", max_size=20), jsons)
def test_any_text_is_a_filter_that_decides_or_a_filter_error_within_it(
    text: str, payload: Any
) -> None:
    try:
        parsed = parse_filter(text)
    except InvalidValue as error:
        column = error.problem.column
        assert column is not None
        assert 1 <= column <= len(text) + 1
    else:
        assert parsed.matches(payload) in (True, False)


@given(st.lists(keys, min_size=1, max_size=3), values, jsons)
def test_unequal_is_the_opposite_of_equal(path: list[str], value: str, payload: Any) -> None:
    equal = Comparison(path=tuple(path), operator="==", value=value)
    unequal = Comparison(path=tuple(path), operator="!=", value=value)
    assert equal.holds(payload) is not unequal.holds(payload)


def test_a_body_of_one_number_takes_no_room_for_each() -> None:
    """A body may be made of nothing else; numbers that differ keep their spelling."""
    many = read_payload(b"[" + b"1," * 1000 + b"1.0]")
    assert len({id(number) for number in many}) == 2
    apart = read_payload(b"[%s]" % b",".join(b"%d" % number for number in range(10_500)))
    assert apart == [str(number) for number in range(10_500)]
