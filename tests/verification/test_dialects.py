import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.errors import InputError
from timbermark.verification.dialects import (
    PROTOCOLS,
    Batch,
    ReplyError,
    complete_url,
    open_dialect,
)

BATCH = Batch([[1, 0.5], [None, 2.5]], ["age", "income"])
BARE = Batch([[1, 0.5]], None)
TEXTS = Batch([["red", 1.0], [None, None]], ["colour", "size"])


def dialect(name, **options):
    return open_dialect(name, options)


@pytest.mark.parametrize(
    ("url", "protocol", "expected"),
    [
        ("http://h", "mlflow", ("http://h/invocations", "mlflow")),
        ("http://h/a/invocations", "auto", ("http://h/a/invocations", "mlflow")),
        ("http://h/v1/models/m", "auto", ("http://h/v1/models/m:predict", "kserve-v1")),
        ("http://h/v1/models/m:predict", "auto", ("http://h/v1/models/m:predict", "kserve-v1")),
        ("http://h/v2/models/m/", "auto", ("http://h/v2/models/m/infer", "kserve-v2")),
        (
            "http://h/v2/models/m/versions/3",
            "auto",
            ("http://h/v2/models/m/versions/3/infer", "kserve-v2"),
        ),
        ("http://h/v2/models/m/infer?a#c", "auto", ("http://h/v2/models/m/infer?a", "kserve-v2")),
        ("http://h/score", "json", ("http://h/score", "json")),
    ],
)  # fmt: skip
def test_addresses_are_completed(url, protocol, expected):
    assert complete_url(url, protocol) == expected


def test_an_address_that_tells_nothing_needs_a_protocol():
    for url, protocol, code in (
        ("http://h/score?key=hidden", "auto", "protocol"),
        ("http://h/score", "grpc", "option.unknown"),
    ):
        with pytest.raises(InputError) as caught:
            complete_url(url, protocol)
        assert (caught.value.code, caught.value.parameter) == (code, "protocol")
        assert "hidden" not in str(caught.value)


def test_requests():
    assert dialect("mlflow").make_body(BATCH) == {
        "dataframe_split": {"columns": ["age", "income"], "data": [[1, 0.5], [None, 2.5]]}
    }
    assert dialect("mlflow").make_body(BARE) == {"dataframe_split": {"data": [[1, 0.5]]}}
    assert dialect("kserve-v1").make_body(BATCH) == {"instances": [[1, 0.5], [None, 2.5]]}
    assert dialect("kserve-v2", output="predict_proba").make_body(BATCH) == {
        "inputs": [
            {
                "name": "input-0",
                "shape": [2, 2],
                "datatype": "FP64",
                "data": [1.0, 0.5, None, 2.5],
            }
        ],
        "outputs": [{"name": "predict_proba"}],
    }
    assert dialect("kserve-v2").make_body(TEXTS) == {
        "parameters": {"content_type": "pd"},
        "inputs": [
            {"name": "colour", "shape": [2, 1], "datatype": "BYTES", "data": ["red", None]},
            {"name": "size", "shape": [2, 1], "datatype": "FP64", "data": [1.0, None]},
        ],
    }
    template = {"a": ["$records"], "names": "$columns", "fixed": {"x": 1, "y": "$other"}}
    assert dialect("json", body=template).make_body(BATCH) == {
        "a": [[{"age": 1, "income": 0.5}, {"age": None, "income": 2.5}]],
        "names": ["age", "income"],
        "fixed": {"x": 1, "y": "$other"},
    }
    assert dialect("json", body="$row").make_body(BARE) == [1, 0.5]
    assert dialect("json", body="$record").make_body(BARE) == {"0": 1, "1": 0.5}
    assert dialect("json", body="$rows").make_body(BARE) == [[1, 0.5]]


@pytest.mark.parametrize(
    ("name", "options", "reply", "n", "answers"),
    [
        ("mlflow", {}, {"predictions": [1, 2]}, 2, [1, 2]),
        ("mlflow", {}, ["a"], 1, ["a"]),
        ("mlflow", {}, {"predictions": [[0.25, 0.75]]}, 1, [[0.25, 0.75]]),
        ("mlflow", {}, {"predictions": [{"no": 0.2, "yes": 0.8}]}, 1, [{"no": 0.2, "yes": 0.8}]),
        ("mlflow", {}, {"predictions": [{"label": "a"}]}, 1, ["a"]),
        ("mlflow", {"answer": "out.0"}, {"out": [[7]]}, 1, [7]),
        ("kserve-v1", {}, {"predictions": [[3], [4]]}, 2, [3, 4]),
        ("kserve-v1", {"answer": "predictions.*.scores"},
         {"predictions": [{"scores": [0.5, 0.5]}]}, 1, [[0.5, 0.5]]),
        ("kserve-v2", {}, {"outputs": [{"name": "p", "shape": [2], "data": [3, 4]}]}, 2, [3, 4]),
        ("kserve-v2", {}, {"outputs": [{"name": "p", "shape": [2, 1], "data": [3, 4]}]}, 2, [3, 4]),
        ("kserve-v2", {}, {"outputs": [{"name": "p", "shape": [1, 2], "data": [0.5, 0.5]}]}, 1,
         [[0.5, 0.5]]),
        ("kserve-v2", {}, {"outputs": [{"name": "p", "shape": [1, 2], "data": [[0.5, 0.5]]}]}, 1,
         [[0.5, 0.5]]),
        ("kserve-v2", {"output": "q"}, {"outputs": [{"name": "p"}, {"name": "q", "shape": [1],
         "data": ["a"]}]}, 1, ["a"]),
        ("json", {"body": "$rows", "answer": "r.*.c"}, {"r": [{"c": 1}, {"c": None}]}, 2,
         [1, None]),
        ("json", {"body": "$row"}, [0.5, 0.5], 1, [[0.5, 0.5]]),
        ("json", {"body": "$row", "answer": "a"}, {"a": "x"}, 1, ["x"]),
        ("json", {"body": "$rows"}, [float("nan"), float("-inf"), float("inf")], 3,
         [None, "-inf", None]),
    ],
)  # fmt: skip
def test_replies(name, options, reply, n, answers):
    assert dialect(name, **options).read_reply(reply, n) == answers


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("mlflow", {"predictions": [1]}),
        ("mlflow", {"predictions": "no"}),
        ("mlflow", {"predictions": [1, [[2], [3]]]}),
        ("mlflow", {"predictions": [1, "x" * 10_001]}),
        ("mlflow", {"predictions": [1, 10**400]}),
        ("mlflow", None),
        ("mlflow", 3),
        ("kserve-v1", [1, 2]),
        ("kserve-v2", {"outputs": []}),
        ("kserve-v2", {"outputs": [1]}),
        ("kserve-v2", {"outputs": [{"name": "p", "shape": [2], "data": [1, 2, 3]}]}),
        ("kserve-v2", {"outputs": [{"name": "p", "shape": [-1], "data": [1, 2]}]}),
        ("kserve-v2", {"outputs": [{"name": "p", "shape": [0, 2], "data": []}]}),
        ("kserve-v2", {"outputs": [{"name": "p", "shape": [2, 0], "data": []}]}),
        ("kserve-v2", {"outputs": [{"name": "p", "shape": [2]}]}),
        # The product of so many sizes would take hours.
        ("kserve-v2", {"outputs": [{"name": "p", "shape": [10**4000] * 3000, "data": []}]}),
        ("kserve-v2", {"outputs": [{"name": "p"}, {"name": "q"}]}),
    ],
)
def test_replies_without_the_answers(name, reply):
    with pytest.raises(ReplyError):
        dialect(name).read_reply(reply, 2)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["outputs", "name", "shape", "data", "predictions"]),
                          inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_values, st.integers(1, 3), st.sampled_from(sorted(PROTOCOLS)))
def test_any_reply_gives_n_answers_or_an_error(reply, n, name):
    options = {"body": "$rows"} if name == "json" else {}
    try:
        answers = dialect(name, **options).read_reply(reply, n)
    except ReplyError:
        return
    assert len(answers) == n
    json.dumps(answers, allow_nan=False)
    assert all(not isinstance(part, list | dict) for answer in answers
               if isinstance(answer, list) for part in answer)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("json", {}),
        ("json", {"body": {"rows": "rows"}}),
        ("json", {"body": ["$rows", "$records"]}),
        ("mlflow", {"body": {}}),
        ("mlflow", {"output": "x"}),
        ("kserve-v2", {"answer": "x"}),
    ],
)
def test_options_that_do_not_fit(name, options):
    with pytest.raises(InputError) as caught:
        dialect(name, **options)
    assert caught.value.hint
