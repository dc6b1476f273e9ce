"""What a dishonest claimant may choose about a server after the symbols are known."""

import json

import numpy as np
import pytest

import timbermark as tm
from tests.ownership.making import make_mark
from tests.verification.endpoints.models import learnt
from tests.verification.servers import ModelServer, reply
from timbermark.errors import InputError
from timbermark.ownership.columns import split_columns
from timbermark.ownership.evidence import sequential_evidence
from timbermark.ownership.judging_answers import judge_again
from timbermark.ownership.transcript import Transcript
from timbermark.verification.endpoints.endpoint import Endpoint
from timbermark.verification.endpoints.protocols.contract import (
    MOST_PATHS,
    ReplyError,
    check_paths,
)
from timbermark.verification.endpoints.request_prices import list_conditions, price_request

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
    rows, sign = mark.triggers, np.where(mark.expected_numbers == 1, 1.0, -1.0)
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
        q=2,
        n_classes=2,
        columns=split_columns(rng.normal(size=(K, D))),
        feature_names=[f"feature {i}" for i in range(D)],
    )
    chosen, matched = choose_ascending(mark, weights)
    assert sequential_evidence(matched, K, 2) > 64  # so much could be forged
    common = {"protocol": "json", "body": {"records": "$records"}, "answer": "labels", "batch": K}
    with WideServer(weights) as server:
        forged = Endpoint(server.url("/score"), columns=[f"x{i}" for i in chosen], **common)
        with pytest.raises(InputError, match="choose among a server's columns"):
            tm.verify(forged, mark, decoys=0, stop_at="off")
        for first in (0, 1):
            names = [f"x{i}" for i in range(first, first + D)]
            asked = Endpoint(server.url("/score"), columns=names, **common)
            assert tm.verify(asked, mark, decoys=0, stop_at="off").bits == 0.0


def test_a_path_to_the_answers_is_worth_no_more_than_it_costs():
    """A reply may hold a thousand answers of an innocent model, of which the best one is taken."""
    rng = np.random.default_rng(2)
    (price,) = price_request(Endpoint("http://host/invocations", answer="heads.7"))
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
        ({"protocol": "kserve-v2", "output": "predict_proba"}, 2),
        ({"protocol": "kserve-v2", "output": "layer 7"}, 10),
        ({"protocol": "json", "body": {"rows": "$rows"}}, 0),
        ({"protocol": "json", "body": {"rows": "$rows"}, "answer": "labels"}, 10),
        ({"protocol": "json", "body": {"rows": "$rows", "all": [True, None]}}, 4),
        ({"protocol": "json", "body": {"rows": "$rows", "seed": 123}}, 2 + 8 * 4),
        ({"protocol": "json", "body": {"rows": "$rows", "version": "v2"}}, 2 + 8 * 3),
    ],
)
def test_what_is_chosen_by_hand_has_a_price(options, bits):
    endpoint = Endpoint("http://host/invocations", **options)
    assert sum(price.bits for price in price_request(endpoint)) == bits


def test_a_seed_in_the_template_is_worth_no_more_than_it_costs():
    """A server whose answers depend on a constant gives the best of 1,000 for three digits."""
    body = {"rows": "$rows", "seed": 999}
    (price,) = price_request(Endpoint("http://host/", protocol="json", body=body))
    assert price.bits > np.log2(1000)


def test_what_has_no_price_is_a_condition():
    free = Endpoint("http://host/invocations")
    assert list_conditions(free) == ()
    made = Endpoint(
        "http://host/score?seed=12",
        protocol="json",
        body={"rows": "$rows", "note": "x" * 500},
        answer="heads.7",
        headers={"X-Model": "17"},
    )
    said = list_conditions(made)
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
        assert [price.bits for price in verdict.prices] == [10.0]
        assert str(verdict).count("  provided: ") == 2
        assert "results.*.label" in verdict.to_dict()["condition"]
        other = Endpoint(server.url("/many"), answer="results.*.score", **common)
        with pytest.raises(InputError, match="another request"):
            tm.verify(other, mark, journal=tmp_path / "run")
    assert judge_again(mark, verdict.transcript).condition == verdict.condition
    said = verdict.transcript.to_json(mark, "2030-01-02T03:04:05Z")
    assert Transcript.from_json(said, mark)[0].inquiry == verdict.transcript.inquiry
    older = json.loads(said)
    del older["inquiry"]["conditions"]
    assert Transcript.from_json(json.dumps(older), mark)[0].inquiry.conditions == ()
