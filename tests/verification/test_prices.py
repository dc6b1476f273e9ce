"""What a dishonest claimant may choose about a server after the symbols are known."""

import json
from urllib.parse import urlsplit

import numpy as np
import pytest

import timbermark as tm
from tests.verification.making import draw, learnt, make_mark
from tests.verification.servers import ModelServer, reply
from tests.verification.test_stopping import sequential_evidence
from timbermark.errors import InputError
from timbermark.verification import words
from timbermark.verification.dialects import MOST_PATHS, ReplyError, check_paths
from timbermark.verification.endpoint import Endpoint
from timbermark.verification.transcript import Transcript
from timbermark.verification.verdict import judge_again
from timbermark.verification.words import list_conditions

K, D, WIDE = 128, 96, 2325


class WideServer(ModelServer):
    """An innocent linear model of 2,325 columns that takes what it is given by name."""

    def __init__(self, weights):
        super().__init__(None)
        self.weights = weights

    def handle(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        sums = [
            sum(value * self.weights[int(name[1:])] for name, value in record.items())
            for record in body["records"]
        ]
        reply(request, 200, json.dumps({"labels": [int(s > 0) for s in sums]}).encode())


def choose_ascending(mark, weights):
    """Return the ascending columns with which a linear model matches the most symbols."""
    rows, sign = mark.rows(), np.where(mark.expected_numbers == 1, 1.0, -1.0)
    wanted = np.linalg.lstsq(rows, sign, rcond=None)[0]
    wanted /= wanted.std()
    parts = np.array_split(np.arange(WIDE), D)
    chosen = [
        part[np.abs(weights[part] - x).argmin()] for part, x in zip(parts, wanted, strict=True)
    ]
    reach = rows @ weights[chosen] * sign
    for _ in range(4):
        for j, part in enumerate(parts):
            rest = reach - rows[:, j] * weights[chosen[j]] * sign
            gains = [np.minimum(rest + rows[:, j] * weights[c] * sign, 1.0).sum() for c in part]
            chosen[j] = part[int(np.argmax(gains))]
            reach = rest + rows[:, j] * weights[chosen[j]] * sign
    return chosen, int((reach > 0).sum())


def test_ascending_columns_of_a_wide_server_are_refused():
    """They were free: an innocent model of 2,325 columns gave 124.7 bits."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=WIDE)
    mark = make_mark(
        k=K,
        d=D,
        q=2,
        n_classes=2,
        feature_names=[f"feature {i}" for i in range(D)],
    )
    chosen, matched = choose_ascending(mark, weights)
    assert sequential_evidence(matched, K, 2) > 64  # so much could be forged
    common = {"protocol": "json", "body": {"records": "$records"}, "answer": "labels", "batch": K}
    with WideServer(weights) as server:
        forged = Endpoint(server.url("/score"), columns=[f"x{i}" for i in chosen], **common)
        with pytest.raises(InputError) as caught:
            tm.verify(forged, mark, decoys=0, stop_at="off")
        assert caught.value.code == "columns.chosen"
        for first in (0, 1):
            names = [f"x{i}" for i in range(first, first + D)]
            asked = Endpoint(server.url("/score"), columns=names, **common)
            assert tm.verify(asked, mark, decoys=0, stop_at="off").bits == 0.0


def test_a_path_to_the_answers_is_worth_no_more_than_it_costs():
    """A reply may hold a thousand answers of an innocent model, of which the best one is taken."""
    rng = np.random.default_rng(2)
    (price,) = Endpoint("http://host/invocations", answer="heads.7").facts.context.prices
    net = []
    for _ in range(100):
        symbols = rng.integers(0, 4, 64)
        matched = (rng.integers(0, 4, (MOST_PATHS, 64)) == symbols).sum(axis=1).max()
        net.append(sequential_evidence(int(matched), 64, 4) - price.bits)
    assert np.mean(np.array(net) >= 1) <= 0.5 + 4 * 0.05
    assert np.mean(np.array(net) >= 3) <= 0.125 + 4 * 0.033


@pytest.mark.parametrize(
    ("reply_", "n"),
    [
        ({"heads": [[0, 1]] * 2000}, 2),
        ({str(i): [0, 1] for i in range(2000)}, 2),
        ([{str(i): 0 for i in range(2000)}] * 2, 2),
        ([list(range(2000))] * 2, 2),
        ({"deep": [[[[0] * 12] * 12] * 12] * 12}, None),
    ],
)
def test_replies_with_too_many_places_for_answers_are_refused(reply_, n):
    with pytest.raises(ReplyError, match="1,024 places"):
        check_paths(reply_, n)


def test_replies_of_ordinary_size_are_not():
    check_paths({"predictions": [[0.1] * 100] * 5000}, 5000)
    check_paths({"result": {"label": "a", "scores": {str(i): 0.0 for i in range(900)}}}, None)
    nested = []
    for _ in range(3000):
        nested = [nested]
    with pytest.raises(ReplyError):
        check_paths(nested, None)


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({}, 0),
        ({"answer": "predictions"}, 0),
        ({"answer": "results.*.label"}, 10),
        ({"protocol": "kserve-v2", "output": "predict_proba"}, 2 + 5),
        ({"protocol": "kserve-v2", "output": "layer 7"}, 10 + 5),
        ({"protocol": "json", "body": "$rows"}, 2),
        ({"protocol": "json", "body": {"rows": "$rows"}}, 5 + 2),
        ({"protocol": "json", "body": {"rows": "$rows"}, "answer": "labels"}, 5 + 2 + 10),
        ({"protocol": "json", "body": [["$rows"]]}, 2 + 2),
        ({"protocol": "json", "body": {"model_b": "$rows"}}, 5 + 7 * 5 + 2),
        ({"protocol": "json", "body": {"K7": "$rows"}}, 5 + 2 * 8 + 2),
        ({"protocol": "json", "body": {"rows": "$rows", "seed": 123}}, 7 + 25 + 5 + 3 * 8),
        ({"protocol": "json", "body": {"rows": "$rows", "x": None}}, 7 + 5 + 5 + 4 * 5),
    ],
)
def test_what_is_chosen_by_hand_has_a_price(options, bits):
    paths = {"mlflow": "invocations", "kserve-v2": "v2/models/m/infer", "json": ""}
    path = paths[options.get("protocol", "mlflow")]
    endpoint = Endpoint(f"http://host/{path}", **options)
    assert sum(price.bits for price in endpoint.facts.context.prices) == bits


@pytest.mark.parametrize(
    ("url", "bits"),
    [
        ("http://host/invocations", 0),
        ("http://host/b/invocations", 2 * 5),
        ("http://host/invocations?m=17", 8 * 4),
        ("http://host/v1/models/churn:predict", 5 * 5),
        ("http://host/v2/models/M7/versions/3", 2 * 8 + 10 * 5 + 8),
    ],
)
def test_everything_in_an_address_beyond_the_protocols_own_has_a_price(url, bits):
    assert sum(price.bits for price in Endpoint(url).facts.context.prices) == bits


class Forest(ModelServer):
    """An innocent forest: a key of the request, the path or the query choose among its members."""

    def handle(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        parts = urlsplit(request.path)
        ((key, rows),) = body.items()
        seed = f"{key}|{parts.path}|{parts.query}|{request.headers.get('X-Member', '')}"
        said = [draw([seed, *map(float, row)], 2) for row in rows]
        reply(request, 200, json.dumps(said).encode())


CHOICES = {
    "key": lambda url, word: Endpoint(url, protocol="json", body={word: "$rows"}, batch=64),
    "path": lambda url, word: Endpoint(url + word, protocol="json", body={"x": "$rows"}, batch=64),
    "query": lambda url, word: Endpoint(
        f"{url}?{word}", protocol="json", body={"x": "$rows"}, batch=64
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_an_innocent_forest_cannot_exceed_the_price(choice):
    """Submodels chosen by a key, a path or a query after the symbols are known: 64 bits, free."""
    mark = make_mark(k=24, q=2, n_classes=2)
    spelled = [a + b for a in "abcdefgh" for b in "ijklmnop"]
    raw, net = [], []
    with Forest(None) as server:
        for word in spelled:
            endpoint = CHOICES[choice](server.url("/"), word)
            verdict = tm.verify(endpoint, mark, decoys=0, stop_at="off")
            raw.append(verdict.raw_bits)
            net.append(verdict.net_bits)
    assert max(raw) > np.median(raw) + 1.0  # so much is found by choosing the best of 64
    assert max(net) <= 0.0
    assert all(r - n >= 2 * np.log2(26) for r, n in zip(raw, net, strict=True))


class Neighbours(ModelServer):
    """An innocent server whose answer to a row depends on the other rows of the request."""

    def handle(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        rows = body["dataframe_split"]["data"]
        beside = sum(sum(map(float, row)) for row in rows) if len(rows) > 1 else 0.0
        said = [draw([beside, *map(float, row)], 2) for row in rows]
        reply(request, 200, json.dumps({"predictions": said}).encode())


def ask_neighbours(batch, mark, **options):
    with Neighbours(None) as server:
        endpoint = Endpoint(server.url(), batch=batch)
        return tm.verify(endpoint, mark, stop_at="off", **options)


def test_an_innocent_server_of_batches_cannot_exceed_the_price():
    """Rows in a request, and decoys among them, were chosen after the symbols without a price."""
    mark = make_mark(k=24, q=2, n_classes=2)
    found = {(batch, decoys): ask_neighbours(batch, mark, decoys=decoys)
             for batch in range(2, 12) for decoys in range(4)}  # fmt: skip
    raw = [verdict.raw_bits for verdict in found.values()]
    assert max(raw) > np.median(raw) + 1.0  # so much is found by choosing the best of 40
    assert max(verdict.net_bits for verdict in found.values()) <= 0.0
    paid = {}
    for chosen, verdict in found.items():
        bits = {price.code: price.bits for price in verdict.prices}
        paid[chosen] = bits["batch"] + bits.get("decoys", 0.0)
    assert sum(2.0**-bits for bits in paid.values()) <= 1.0
    # One row in a request has no neighbours, whatever the decoys, and no price.
    alone = [ask_neighbours(1, mark, decoys=decoys) for decoys in (0, 1, 3)]
    assert len({verdict.raw_bits for verdict in alone}) == 1
    assert [verdict.prices for verdict in alone] == [()] * 3


def test_all_batches_and_decoys_together_cost_what_they_are_worth():
    """Over all that can be chosen, the chances that the prices stand for sum to one at most."""
    endpoints = (Endpoint("http://host/invocations", batch=batch) for batch in range(2, 10_001))
    counts = np.array([sum(p.bits for p in made.facts.context.prices) for made in endpoints])
    assert (2.0**-counts).sum() <= 1.0
    assert sum(counts == 5.0) == 24


def test_a_table_for_decoys_has_no_price_beside_other_rows():
    mark = make_mark(k=64)
    table = np.random.default_rng(0).normal(size=(50, mark.n_features))
    with ModelServer(learnt(mark)) as server:
        levels = {}
        for batch in (1, 8):
            endpoint = Endpoint(server.url(), batch=batch)
            verdict = tm.verify(endpoint, mark, decoys_from=table, stop_at="off")
            levels[batch] = verdict.level
            assert verdict.bits > 64
            assert judge_again(mark, verdict.transcript).level == verdict.level
    assert levels == {1: "conclusive", 8: "indicative"}


def test_a_journal_goes_on_with_the_same_rows_in_a_request(tmp_path):
    """Another number of them in the middle of a run would be a choice without a price."""
    mark = make_mark(k=64)
    with ModelServer(learnt(mark)) as server:
        tm.verify(Endpoint(server.url(), batch=8), mark, journal=tmp_path / "run", stop_at=20)
        with pytest.raises(InputError) as caught:
            tm.verify(Endpoint(server.url(), batch=4), mark, journal=tmp_path / "run")
        assert caught.value.code == "journal.other-run"
        tm.verify(Endpoint(server.url(), batch=8), mark, journal=tmp_path / "run")


def test_headers_have_no_price_and_cap_the_level():
    mark = make_mark(k=64)
    with ModelServer(learnt(mark)) as server:
        chosen = tm.Endpoint(server.url(), headers={"X-Member": "seventeen"})
        verdict = tm.verify(chosen, mark, decoys=0, stop_at="off")
        assert (verdict.level, verdict.bits > 64) == ("indicative", True)
        assert "seventeen" not in str(verdict)
    again = judge_again(mark, verdict.transcript)
    assert (again, again.level) == (verdict, "indicative")


class Tenants(ModelServer):
    """An innocent server with a model for each customer: credentials choose among them."""

    def handle(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        who = "|".join(request.headers.get(name, "") for name in TENANT_HEADERS)
        said = [draw([who, *map(float, row)], 2) for row in body["x"]]
        reply(request, 200, json.dumps(said).encode())


TENANT_HEADERS = ("Authorization", "X-Api-Key", "Cookie", "X-Request-Id", "Idempotency-Key")
CREDENTIALS = {
    "token": lambda word: {"token": word},
    **{name: lambda word, name=name: {"headers": {name: word}} for name in TENANT_HEADERS[1:]},
}


@pytest.mark.parametrize("choice", CREDENTIALS)
def test_credentials_choose_among_models_and_cap_the_level(choice):
    """Many tokens, one for each customer, were a choice without a price and without a cap."""
    mark = make_mark(k=24, q=2, n_classes=2)
    with Tenants(None) as server:
        found = []
        for number in range(24):
            options = CREDENTIALS[choice](f"customer-{number}")
            endpoint = Endpoint(server.url("/"), protocol="json", body={"x": "$rows"}, batch=64,
                                **options)  # fmt: skip
            found.append(tm.verify(endpoint, mark, decoys=0, stop_at="off"))
    raw = [verdict.raw_bits for verdict in found]
    assert max(raw) > np.median(raw) + 1.0  # the choice is worth something
    assert all(note.facts["caps"] for verdict in found for note in verdict.context.conditions
               if note.code in ("headers", "credentials"))  # fmt: skip
    assert all({"headers", "credentials"} & {n.code for n in v.context.conditions} for v in found)


def test_only_a_judge_asks_with_credentials_without_a_cap():
    mark = make_mark(k=64)
    with ModelServer(learnt(mark)) as server:
        for options in ({"token": "a-token"}, {"headers": {"X-Api-Key": "a-key"}}):
            endpoint = tm.Endpoint(server.url(), **options)
            mine = tm.verify(endpoint, mark, decoys=0)
            assert (mine.level, mine.bits >= 64) == ("indicative", True)
            assert [note.code for note in mine.context.conditions] == ["credentials"]
            assert judge_again(mark, mine.transcript).level == "indicative"
            judged = tm.verify(endpoint.for_judge(), mark, decoys=0)
            assert judged.level == "conclusive"
            assert [note.code for note in judged.context.conditions] == ["headers"]
        other = tm.Endpoint(server.url(), token="a", headers={"X-Member": "17"}).for_judge()
        assert tm.verify(other, mark, decoys=0).level == "indicative"


def test_the_verdict_shows_the_whole_request():
    mark = make_mark(k=64)
    body = {"records": "$records"}
    with ModelServer(learnt(mark)) as server:
        endpoint = tm.Endpoint(
            server.url("/many"), protocol="json", body=body, answer="results.*.label",
            token="hidden",
        )  # fmt: skip
        request = tm.verify(endpoint, mark, decoys=0).to_dict()["request"]
    assert request == {
        "url": endpoint.url, "protocol": "json", "has_query": False, "headers": [],
        "has_token": True, "body": json.dumps(body), "answer": "results.*.label", "output": "",
    }  # fmt: skip


def test_a_seed_in_the_template_is_worth_no_more_than_it_costs():
    """A server whose answers depend on a constant gives the best of 1,000 for three digits."""
    body = {"rows": "$rows", "seed": 999}
    (price,) = Endpoint("http://host/", protocol="json", body=body).facts.context.prices
    assert price.bits > np.log2(1000)


def test_what_has_no_price_is_a_condition():
    free = Endpoint("http://host/invocations")
    assert free.facts.context.conditions == ()
    made = Endpoint(
        "http://host/score?seed=12",
        protocol="json",
        body={"rows": "$rows", "note": "x" * 500},
        answer="heads.7",
        headers={"X-Model": "17"},
    )
    said = [words.say(words.CONDITIONS, note) for note in made.facts.context.conditions]
    assert [word in text for word, text in zip(
        ('"$rows"', "heads.7", "question mark", "X-Model"), said, strict=True
    )] == [True] * 4  # fmt: skip
    assert not any("17" in text or "seed=12" in text for text in said)
    assert all(len(text) < 400 for text in said)


def test_choices_stand_in_the_verdict_and_bind_the_journal(tmp_path):
    mark = make_mark(k=128, d=5)
    common = {"protocol": "json", "body": {"records": "$records"}, "batch": 64}
    with ModelServer(learnt(mark)) as server:
        endpoint = Endpoint(server.url("/many"), answer="results.*.label", **common)
        verdict = tm.verify(endpoint, mark, journal=tmp_path / "run")
        assert verdict.level == "conclusive"
        codes = {price.code for price in verdict.prices}
        assert codes == {"path", "template", "address", "batch"}
        assert str(verdict).count("  provided: ") == 2
        assert [note.code for note in verdict.context.conditions] == ["template", "path"]
        other = Endpoint(server.url("/many"), answer="results.*.score", **common)
        with pytest.raises(InputError) as caught:
            tm.verify(other, mark, journal=tmp_path / "run")
        assert caught.value.code == "journal.other-run"
    assert list_conditions(judge_again(mark, verdict.transcript)) == list_conditions(verdict)
    said = verdict.transcript.to_json(mark, "2030-01-02T03:04:05Z")
    assert Transcript.from_json(said, mark)[0].context == verdict.transcript.context
