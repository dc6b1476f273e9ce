import pytest

from timbermark import Endpoint
from timbermark.errors import InputError

URL = "http://host:8080/invocations"


def test_nothing_secret_is_shown():
    endpoint = Endpoint(URL + "?key=a1", token="b2", headers={"X-Api-Key": "c3"}, protocol="mlflow")
    assert repr(endpoint) == f"Endpoint({URL}, protocol='mlflow')"
    assert str(endpoint) == repr(endpoint)
    assert endpoint.sent_headers == {"X-Api-Key": "c3", "Authorization": "Bearer b2"}


def test_open_lines_are_noticed():
    assert Endpoint(URL, token="a").exposes_credentials
    assert not Endpoint(URL).exposes_credentials
    assert not Endpoint(URL.replace("http:", "https:"), token="a").exposes_credentials
    assert not Endpoint("http://localhost:1/invocations", token="a").exposes_credentials


@pytest.mark.parametrize(
    "url",
    ["", "host/invocations", "ftp://host/x", "http://", "http://:80/invocations", "http://h h/x",
     "http://host:99999/invocations", "http://user:pw@host/invocations", "http://host/\n",
     "http://me@host/invocations", 7, None],
)  # fmt: skip
def test_addresses_that_are_none(url):
    with pytest.raises(InputError) as caught:
        Endpoint(url, protocol="mlflow")
    assert caught.value.hint
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"batch": 0}, {"batch": 1.5}, {"batch": True}, {"rate": 0}, {"rate": -1}, {"timeout": 0},
     {"timeout": float("nan")}, {"retries": -1}, {"scale": "odds"}, {"columns": "abc"},
     {"columns": ["a", "a"]}, {"classes": []}, {"headers": [("a", "b")]},
     {"headers": {"a": "b\r\nc: d"}}, {"headers": {"": "b"}}, {"token": "a\nb"},
     {"token": "tökén"}, {"protocol": "xmlrpc"}, {"body": {"rows": "$rows"}},
     {"protocol": "json", "body": "$row", "batch": 2},
     {"headers": {"Ä": "b"}}, {"headers": {"Content-Length": "7"}}, {"headers": {"a b": "c"}},
     {"headers": {"a(b": "c"}}, {"headers": {"a": "c "}}, {"headers": {"Expect": "100-continue"}},
     {"idempotency_header": "Host"}, {"idempotency_header": 7}, {"classes": 7}, {"classes": {}},
     {"classes": [["a"], ["b"]]}, {"classes": {"a": 1}}, {"columns": 3.5}, {"headers": "X: y"},
     {"protocol": "json", "body": {"rows": "$rows", "x": {1, 2}}},
     {"protocol": "json", "body": {"rows": "$rows", "x": float("nan")}}],
)  # fmt: skip
def test_options_that_cannot_be_meant(options):
    with pytest.raises(InputError) as caught:
        Endpoint(URL, **options)
    assert caught.value.hint
    assert "tök" not in str(caught.value)


def test_lists_may_be_arrays():
    import numpy as np

    assert Endpoint(URL, classes=np.array(["a", "b"])).classes == ("a", "b")
