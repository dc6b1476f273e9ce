import json
import ssl
from dataclasses import replace

import numpy as np
import pytest

import timbermark as tm
from tests.verification.making import (
    draw,
    innocent,
    learnt,
    make_mark,
    make_mixed_mark,
    numbered,
    scored,
)
from tests.verification.servers import ModelServer
from timbermark.errors import InputError
from timbermark.verification import http
from timbermark.verification.endpoint import Endpoint
from timbermark.verification.journal import Journal, read_journal
from timbermark.verification.questions import DECOY, make_questions

MARK = make_mark(k=128, d=5)


BOTH = make_mark(k=64, d=5, n_splits=80)
NUMBERS = make_mark(d=5, n_splits=120, classes=())


def asked_rows(mark, decoys=1, seal="leaves"):
    """The rows of a seal's questions in the order of asking."""
    return [tuple(q.values) for block in make_questions(mark, decoys)[seal].blocks for q in block]


def codes(notes):
    return [note.code for note in notes]


def fails_at(trouble, *numbers):
    return lambda number: trouble if number in numbers else None


def refusal(server, mark=MARK, verify=None, **options):
    options = {"retries": 2, **options}
    with pytest.raises(InputError) as caught:
        tm.verify(tm.Endpoint(server.url(), **options), mark, **(verify or {}))
    assert caught.value.hint
    return caught.value


def test_it_stops_as_soon_as_the_evidence_is_enough(tmp_path):
    with ModelServer(learnt(MARK)) as server:
        verdict = tm.verify(server.url(), MARK, journal=tmp_path / "journal")
    assert verdict.level == "conclusive"
    assert verdict.kind == "labels"
    assert verdict.answered == verdict.matched == 34
    assert (verdict.context.through, verdict.context.columns) == ("http", "by-place")
    assert verdict.warnings == ()
    # Decoys are asked with them, and nothing twice.
    assert list(server.asked) == asked_rows(MARK)[: len(server.asked)]
    assert set(server.asked.values()) == {1}
    assert len(server.asked) > 50


def test_an_innocent_suspect_is_given_up_early():
    with ModelServer(innocent(MARK)) as server:
        verdict = tm.verify(server.url(), MARK, decoys=0)
        assert verdict.level == "none"
        assert codes(verdict.warnings) == ["hopeless"]
        assert 10 < verdict.answered < 100
        assert tm.verify(server.url(), MARK, decoys=0, stop_at="off").answered == 128


@pytest.mark.parametrize("kind", ["labels", "scores"])
def test_a_misread_model_is_not_given_up_before_the_warning(kind):
    """Labels one too high, or scores in reverse, ended as hopeless after 24 triggers, silently."""
    right = {"labels": learnt, "scores": scored}[kind](MARK)

    def misread(rows):
        if kind == "scores":
            return right(rows)[:, ::-1]
        return [MARK.classes[(MARK.classes.index(label) + 1) % 6] for label in right(rows)]

    with ModelServer(misread) as server:
        verdict = tm.verify(server.url(), MARK, decoys=0)
    assert verdict.level == "none"
    assert verdict.answered < 128
    assert codes(verdict.warnings) == ["hopeless", "few-matches"]


def test_labels_outside_their_alphabets_neither_count_nor_make_it_give_up():
    """Half the answers say nothing about symbols: the others are enough, as for the judge."""
    said = [
        label if trigger % 2 else next(c for i, c in enumerate(MARK.classes) if i not in alphabet)
        for trigger, (label, alphabet) in enumerate(
            zip(MARK.expected, MARK.leaves.alphabets.tolist(), strict=True)
        )
    ]
    memory = {tuple(row): label for row, label in zip(MARK.rows().tolist(), said, strict=True)}
    with ModelServer(lambda X: [memory[tuple(row)] for row in X.tolist()]) as server:
        verdict = tm.verify(server.url(), MARK, decoys=0)
    assert verdict.level == "conclusive"
    assert verdict.matched == verdict.seal("leaves").counted < verdict.answered
    assert not verdict.warnings
    assert verdict.answered < 100  # it stopped where the evidence was enough


def test_scores_in_batches_over_version_2_and_stop_at_20():
    with ModelServer(scored(MARK)) as server:
        endpoint = tm.Endpoint(server.url("/v2/models/m"), batch=10)
        verdict = tm.verify(endpoint, MARK, stop_at=20)
    assert verdict.kind == "scores"
    assert verdict.level == "indicative"
    assert 20 <= verdict.bits < 45
    assert verdict.context.reading == {
        "kind": "scores", "scale": "probabilities", "classes": "by-place",
    }  # fmt: skip
    assert server.requests == -(-len(server.asked) // 10)


def test_the_evidence_of_all_scores_is_that_of_the_model_itself():
    model = scored(MARK)
    with ModelServer(model) as server:
        verdict = tm.verify(tm.Endpoint(server.url(), batch=200), MARK, stop_at="off")
    same = tm.verify(lambda X: model(np.asarray(X, dtype=object)), MARK)
    assert verdict.bits == same.bits - 5.0  # many rows in a request have a price


def test_raw_scores_and_single_scores_are_read():
    two = make_mark(k=100, q=2, n_classes=2, feature_names=None)
    model = scored(two)

    def margins(rows):
        return np.log(model(rows)) + 3.0

    def second(rows):
        return model(rows)[:, 1]

    with ModelServer(margins) as server:
        verdict = tm.verify(tm.Endpoint(server.url(), batch=20), two, stop_at="off")
        assert verdict.context.reading["scale"] == "margins"
        assert verdict.context.columns == "by-place"
        assert "columns" not in json.loads(server.bodies[0])["dataframe_split"]
        assert verdict.level == "conclusive"
        chosen = tm.Endpoint(server.url(), batch=20, scale="margins")
        assert tm.verify(chosen, two, stop_at="off").bits == verdict.bits - 1
        server.answer = second
        single = tm.Endpoint(server.url(), batch=20)
        again = tm.verify(single, two, stop_at="off")
        assert again.bits == verdict.bits
        assert again.context.reading["classes"] == "second-class"


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/one", {"protocol": "json", "body": {"input": "$record"}, "answer": "result.label"}),
        (
            "/many",
            {
                "protocol": "json",
                "body": {"records": "$records", "c": "$columns"},
                "answer": "results.*.label",
                "batch": 7,
            },
        ),
        ("/v1/models/m:predict", {}),
    ],
)
def test_templates_and_protocols(path, options):
    with ModelServer(learnt(MARK)) as server:
        verdict = tm.verify(tm.Endpoint(server.url(path), **options), MARK, decoys=0)
    assert verdict.level == "conclusive"


def test_troubles_that_pass_are_waited_for_and_change_nothing(tmp_path):
    troubles = {1: "429", 3: "500", 4: "half", 6: "slow", 9: "half", 10: "500", 11: "429"}
    with ModelServer(learnt(MARK), troubles.get) as server:
        endpoint = tm.Endpoint(server.url(), timeout=2)
        verdict = tm.verify(endpoint, MARK, decoys=0, journal=tmp_path / "journal")
    assert (verdict.level, verdict.answered) == ("conclusive", 34)
    # Only the one that was given up while the server still worked on it was asked twice.
    assert sorted(server.asked.values())[-2:] == [1, 2]
    assert server.requests == 34 + len(troubles)
    assert list(read_journal(tmp_path / "journal").answers.values()) == learnt(MARK)(
        np.array(asked_rows(MARK, 0)[:34], dtype=object)
    )


@pytest.mark.parametrize(
    ("trouble", "code", "shown"),
    [
        ("500", "again", "500"),
        ("404", "final", "404"),
        ("422", "refused", "age must be below 120"),
        ("html", "final", "<html> [31mPlease log in</html>"),
        ("torn json", "final", ""),
        ("deep json", "final", ""),
        ("other json", "unread", "'error'"),
        ("one too few", "unread", "2 answers to 1"),
        ("nan", "none", ""),
        ("redirect", "final", "https://elsewhere.example/invocations"),
        ("half", "again", ""),
        ("endless", "final", "16 MiB"),
        ("429 tomorrow", "final", "86400"),
    ],
)
def test_a_server_that_answers_something_else_is_one_sentence(trouble, code, shown):
    with ModelServer(learnt(MARK), lambda number: trouble) as server:
        error = refusal(server, verify={"decoys": 0})
        assert error.code == ("answers.none" if code == "none" else f"server.{code}")
        assert shown in error.message
        assert "hidden" not in str(error)
        assert server.requests <= (128 if trouble == "nan" else 3)


@pytest.mark.parametrize("trouble", ["slow", "drip"])
def test_neither_silence_nor_a_slow_drip_holds_it_up(trouble):
    """Whoever waited to the end would have an answer of the first, and half of one of the other."""
    with ModelServer(learnt(MARK), lambda number: trouble) as server:
        error = refusal(server, timeout=0.3, retries=0)
    assert (error.code, error.parameter) == ("server.again", "timeout")


def test_nobody_there():
    with ModelServer(learnt(MARK)) as server:
        url = server.url()
    with pytest.raises(InputError) as caught:
        tm.verify(tm.Endpoint(url, retries=1), MARK)
    assert caught.value.code == "server.again"


def test_rows_that_a_server_refuses_count_as_not_answered():
    refused = fails_at("422", 5, 9)
    with ModelServer(learnt(MARK), refused) as server:
        verdict = tm.verify(server.url(), MARK, decoys=0)
    assert verdict.level == "conclusive"
    assert verdict.answered > 34  # answers that are left out have a price
    (warning,) = verdict.warnings
    assert warning.to_dict() == {"code": "unanswered", "count": 2, "of": verdict.answered + 2}
    assert [price.code for price in verdict.prices] == ["holes"]
    with ModelServer(learnt(MARK), lambda number: "422" if number > 3 else None) as server:
        assert refusal(server).code == "server.refused"
        assert server.requests < 30


def test_a_batch_with_a_refused_row_is_asked_row_by_row():
    with ModelServer(learnt(MARK), fails_at("422", 1, 3)) as server:
        verdict = tm.verify(tm.Endpoint(server.url(), batch=4), MARK, decoys=0)
    assert verdict.level == "conclusive"
    assert set(server.asked.values()) == {1}


def test_answers_that_fit_no_class_are_bad_input_after_a_few_questions():
    with ModelServer(lambda rows: ["cat"] * len(rows)) as server:
        error = refusal(server, verify={"decoys": 0})
    assert (error.code, error.parameter) == ("answers.no-class", "label_map")
    assert server.requests == 8


def test_answers_that_change_their_form_are_bad_input():
    first = learnt(MARK)
    model = scored(MARK)
    with ModelServer(first) as server:
        server.answer = lambda rows: first(rows) if server.requests < 5 else model(rows)
        assert refusal(server).code == "answers.unreadable"
        server.requests = 0
        server.answer = lambda rows: model(rows) if server.requests < 5 else first(rows)
        assert refusal(server).code == "answers.unlike-first"
        server.requests = 0
        # What is no probability is settled again as raw scores, for a bit.
        server.answer = lambda rows: model(rows) * (1 if server.requests < 5 else 7)
        verdict = tm.verify(server.url(), MARK, stop_at="off", decoys=0)
        assert verdict.context.reading["scale"] == "margins"
        assert [(price.code, price.bits) for price in verdict.prices] == [("settled-again", 1.0)]


def test_labels_and_scores_are_asked_for_by_name():
    with ModelServer(scored(MARK)) as server:
        assert refusal(server, verify={"answers": "labels"}).code == "answers.scores"
        server.answer = learnt(MARK)
        assert refusal(server, verify={"answers": "scores"}).code == "answers.no-scores"
        server.answer = lambda rows: [[0.5, 0.5]] * len(rows)
        assert refusal(server).code == "answers.width"
        assert refusal(server, verify={"answers": "numbers"}).code == "answers.other-task"


def test_class_numbers_and_maps_have_their_price():
    named = replace(MARK, classes=("a", "b", "c", "d", "e", "f"))
    model = learnt(named)

    def numbers(rows):
        return [named.classes.index(label) for label in model(rows)]

    with ModelServer(numbers) as server:
        endpoint = tm.Endpoint(server.url(), class_numbers=True)
        verdict = tm.verify(endpoint, named, decoys=0)
        assert (verdict.level, verdict.prices[0].bits) == ("conclusive", 1.0)
        label_map = dict(enumerate(named.classes))
        verdict = tm.verify(server.url(), named, decoys=0, label_map=label_map)
        assert verdict.level == "conclusive"
        assert verdict.prices[0].bits == pytest.approx(np.log2(720))


def test_an_order_of_classes_by_hand_has_its_price_and_names_have_none():
    model = scored(MARK)
    backwards = [str(c) for c in MARK.classes][::-1]
    with ModelServer(model) as server:
        free = tm.verify(tm.Endpoint(server.url(), batch=64), MARK, stop_at="off")
        own = tm.Endpoint(server.url(), batch=64, classes=MARK.classes)
        assert tm.verify(own, MARK, stop_at="off").bits == free.bits
        server.answer = lambda rows: model(rows)[:, ::-1]
        turned = tm.Endpoint(server.url(), batch=64, classes=backwards)
        verdict = tm.verify(turned, MARK, stop_at="off")
        assert verdict.bits == pytest.approx(free.bits - np.log2(720), abs=0.002)
        server.answer = lambda rows: [
            dict(zip(backwards, row[::-1], strict=True)) for row in model(rows).tolist()
        ]
        named = tm.verify(tm.Endpoint(server.url(), batch=64), MARK, stop_at="off")
        assert (named.bits, named.prices) == (free.bits, free.prices)
        assert [price.code for price in free.prices] == ["batch"]


def test_the_order_of_columns_is_the_servers_and_has_its_price(tmp_path):
    small = make_mark(k=128, d=3)
    model = learnt(small)
    with ModelServer(lambda rows: model(rows[:, [2, 0, 1]])) as server:
        endpoint = tm.Endpoint(server.url(), columns=["f1", "f2", "f0"])
        verdict = tm.verify(endpoint, small, decoys=0, journal=tmp_path / "journal")
        assert json.loads(server.bodies[0])["dataframe_split"]["columns"] == ["f1", "f2", "f0"]
        assert (verdict.level, verdict.context.columns) == ("conclusive", "by-hand")
        assert verdict.prices[0].bits == pytest.approx(np.log2(6))
        by_names = tm.verify(server.url(), small, decoys=0, feature_names=["f1", "f2", "f0"])
        assert by_names.bits == verdict.bits
        error = refusal(server, small, verify={"decoys": 0, "journal": tmp_path / "journal"})
        assert (error.code, error.parameter) == ("journal.other-run", "journal")


def test_texts_and_missing_values_reach_the_server():
    mixed = make_mixed_mark(k=64)
    with ModelServer(learnt(mixed)) as server:
        verdict = tm.verify(server.url(), mixed, decoys=0)
        assert verdict.level == "conclusive"
        assert any(None in row for row in server.asked)


def test_credentials_are_sent_and_kept_nowhere(tmp_path, capfd):
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK), token="open-sesame") as server:
        error = refusal(server, token="wrong-token", verify={"journal": journal})
        assert error.code == "server.final"
        endpoint = tm.Endpoint(
            server.url() + "?key=query-secret",
            protocol="mlflow",
            token="open-sesame",
            headers={"X-Api-Key": "header-secret"},
        )
        verdict = tm.verify(endpoint, MARK, journal=journal, decoys=1)
    assert server.headers[-1]["X-Api-Key"] == "header-secret"
    said = "".join([
        journal.read_text(), str(verdict), json.dumps(verdict.to_dict()), repr(endpoint),
        str(error), *capfd.readouterr(),
    ])  # fmt: skip
    for secret in ("open-sesame", "wrong-token", "header-secret", "query-secret"):
        assert secret not in said
    # Nor is there anything of the mark that is secret: questions, symbols, which is a trigger.
    assert MARK.secret.hex() not in said
    assert repr(asked_rows(MARK)[0][0]) not in said
    history = read_journal(journal)
    assert set(history.start) == {
        "owner", "mark_id", "mark_digest", "model_digest", "suspect", "protocol", "questions",
        "n_questions", "n_triggers", "created", "run", "timbermark",
    }  # fmt: skip


def test_nothing_on_the_wire_tells_what_it_is_for():
    with ModelServer(learnt(MARK)) as server:
        tm.verify(server.url(), MARK)
    sent = json.dumps(server.headers) + "".join(body.decode() for body in server.bodies)
    assert "timbermark" not in sent.lower()
    assert "mark" not in sent.lower()


def test_a_repeated_request_has_the_same_key():
    name = "Idempotency-Key"
    with ModelServer(learnt(MARK), fails_at("500", 1)) as server:
        tm.verify(tm.Endpoint(server.url(), idempotency_header=name), MARK)
    keys = [headers[name] for headers in server.headers]
    assert keys[1] == keys[2]
    assert len(set(keys)) == len(keys) - 1


class Clock:
    """A clock that only sleeping moves on."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_the_rate_is_kept(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(http, "time", clock)
    with ModelServer(learnt(MARK)) as server:
        tm.verify(tm.Endpoint(server.url(), rate=30, batch=2), MARK, stop_at=20)
    # Two questions at once, then four seconds for every further two.
    assert len(server.asked) > 10
    assert clock.now - 1000.0 == pytest.approx((len(server.asked) - 2) * 60 / 30)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that nobody but itself vouches for."""
    folder = tmp_path_factory.mktemp("tls")
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "elsewhere")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


def test_a_self_signed_certificate_is_refused_unless_it_is_named(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with ModelServer(learnt(MARK), context=context) as server:
        error = refusal(server)
        assert (error.code, error.parameter) == ("server.final", "cafile")
        assert server.requests == 0
        trusting = tm.Endpoint(server.url(), cafile=certificate / "cert.pem")
        assert tm.verify(trusting, MARK, decoys=0).level == "conclusive"
        # It is good for this name only.
        other = tm.Endpoint(server.url(host="localhost"), cafile=certificate / "cert.pem")
        with pytest.raises(InputError, match="certificate"):
            tm.verify(other, MARK)
        wrong = tm.Endpoint(server.url(), cafile=certificate / "nowhere.pem")
        with pytest.raises(InputError, match=r"nowhere\.pem"):
            tm.verify(wrong, MARK)


def test_an_end_that_is_out_of_reach_is_refused_and_by_default_all_is_asked():
    weak = make_mark(k=20)
    with ModelServer(learnt(weak)) as server:
        error = refusal(server, weak, verify={"stop_at": 64})
        assert (error.code, error.parameter) == ("stop-at.out-of-reach", "stop_at")
        assert server.requests == 0
        verdict = tm.verify(server.url(), weak, decoys=0)
        assert (verdict.level, verdict.answered) == ("indicative", 20)


def test_a_limit_that_prices_put_out_of_reach_while_asking_still_ends_in_a_verdict():
    enough = next(m for m in map(make_mark, range(20, 60)) if m.full_bits >= 67)
    with ModelServer(learnt(enough), fails_at("422", 3)) as server:
        verdict = tm.verify(server.url(), enough, decoys=0, stop_at=64)
    assert (verdict.level, verdict.answered) == ("indicative", enough.n_triggers - 1)
    assert [price.code for price in verdict.prices] == ["holes"]


def test_what_a_journal_holds_is_not_asked_again_and_a_lower_limit_goes_on(tmp_path):
    journal = tmp_path / "journal"
    with ModelServer(innocent(MARK)) as server:
        first = tm.verify(server.url(), MARK, journal=journal)
        before = server.requests
        again = tm.verify(server.url(), MARK, journal=journal)
        assert (again.bits, again.answered, server.requests) == (first.bits, first.answered, before)
        rest = tm.verify(server.url(), MARK, journal=journal, stop_at="off")
    assert rest.answered == 128
    assert set(server.asked.values()) == {1}
    assert server.requests == 256


def test_a_journal_of_another_mark_is_refused_before_anything_is_asked(tmp_path):
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK)) as server:
        tm.verify(server.url(), MARK, journal=journal, decoys=0)
        before = server.requests
        whole = journal.read_bytes()
        other = make_mark(k=128, d=5, seed=1)
        for mark in (other, MARK):  # with other decoys these are other questions
            assert refusal(server, mark, verify={"journal": journal}).code == "journal.other-run"
        journal.write_bytes(whole.replace(b'"answers":[["', b'"answers":[["b', 1))
        with pytest.raises(tm.errors.FileFormatError) as caught:
            tm.verify(server.url(), MARK, journal=journal, decoys=0)
        assert caught.value.code == "journal.damaged"
    assert server.requests == before


def test_without_httpx_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(tm.errors, "find_spec", lambda name: None)
    with pytest.raises(tm.errors.MissingLibraryError, match=r"timbermark\[endpoints\]"):
        tm.verify("http://localhost:1/invocations", MARK)


class KilledError(BaseException):
    """Stands for the end of the process, which nothing in it can catch."""


def killed_after(monkeypatch, n, journal, url, **options):
    """Leave the journal of a run that was killed while its n-th request was under way."""
    real = http.Line.ask

    def ask(self, body, count, headers):
        answers = real(self, body, count, headers)
        asked.append(headers)
        if len(asked) == n:
            raise KilledError
        return answers

    asked = []
    with monkeypatch.context() as patch:
        patch.setattr(http.Line, "ask", ask)
        with pytest.raises(KilledError):
            tm.verify(url, MARK, journal=journal, decoys=0, **options)
    return asked


def test_what_was_under_way_in_a_crash_is_asked_again_or_left_out(tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK)) as server:
        killed_after(monkeypatch, 5, journal, server.url())
        history = read_journal(journal)
        assert (len(history.answers), len(history.under_way)) == (4, 1)
        copy = tmp_path / "copy"
        copy.write_bytes(journal.read_bytes())
        skipped = tm.verify(server.url(), MARK, journal=copy, decoys=0, in_doubt="skip")
        assert set(server.asked.values()) == {1}
        assert [note.to_dict()["count"] for note in skipped.warnings] == [1]
        server.asked.clear()
        asked = tm.verify(server.url(), MARK, journal=journal, decoys=0)
        assert (asked.answered, asked.level, skipped.level) == (34, "conclusive", "conclusive")
        assert asked_rows(MARK, 0)[4] in server.asked
        # Whoever resumes the copy gets the same verdict: what was left out stays left out.
        again = tm.verify(server.url(), MARK, journal=copy, decoys=0)
        assert (again.bits, again.answered) == (skipped.bits, skipped.answered)


def test_a_request_that_is_repeated_after_a_crash_has_the_same_key(tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK)) as server:
        endpoint = Endpoint(server.url(), idempotency_header="Idempotency-Key", batch=3)
        killed_after(monkeypatch, 2, journal, endpoint)
        before = [headers["Idempotency-Key"] for headers in server.headers]
        tm.verify(endpoint, MARK, journal=journal, decoys=0)
        after = [headers["Idempotency-Key"] for headers in server.headers[2:]]
    assert after[0] == before[1]
    assert len({*before, *after}) == len(before) + len(after) - 1


@pytest.mark.parametrize("batch", [1, 3, 10, 64])
def test_requests_hold_whole_blocks_and_the_verdict_does_not_depend_on_them(batch):
    """Both seals; what is asked in one request is judged together."""
    with ModelServer(learnt(BOTH)) as server:
        endpoint = tm.Endpoint(server.url(), batch=batch)
        verdict = tm.verify(endpoint, BOTH, decoys=1, stop_at="off")
        assert server.requests >= -(-len(server.asked) // batch)
    same = tm.verify(learnt(BOTH), BOTH)
    assert (verdict.raw_bits, verdict.seals) == (same.raw_bits, same.seals)
    assert set(server.asked.values()) == {1}


@pytest.mark.parametrize("suspect", [learnt, scored])
def test_leaves_are_asked_first_as_long_as_they_yield(suspect):
    with ModelServer(suspect(BOTH)) as server:
        verdict = tm.verify(server.url(), BOTH, decoys=0)
    assert verdict.level == "conclusive"
    assert verdict.seal("leaves").answered == len(server.asked) < 40
    assert verdict.seal("splits").answered == 0


def washed(mark, share):
    """A copy that keeps the mark in the first leaf triggers of the order only, a share of them."""
    kept = {tuple(mark.rows()[place].tolist())
            for place in mark.order("leaves")[: int(share * mark.n_leaves)]}  # fmt: skip
    leaves = {tuple(row) for row in mark.rows()[: mark.n_leaves].tolist()} - kept
    right, flat = scored(mark), [1 / len(mark.classes)] * len(mark.classes)

    def answer(rows):
        pairs = zip(rows.tolist(), right(rows).tolist(), strict=True)
        return np.array([flat if tuple(row) in leaves else said for row, said in pairs])

    return answer


def test_a_copy_without_its_leaf_seal_costs_few_rows_more():
    """No answer in leaves tells anything: a few of them show that, and splits convict."""
    with ModelServer(washed(BOTH, 0.0)) as server:
        verdict = tm.verify(server.url(), BOTH, decoys=0)
    assert verdict.level == "conclusive"
    assert verdict.seal("leaves").answered < 24
    assert verdict.seal("splits").answered <= 70
    assert len(server.asked) < 200


def rows_at(mark, part):
    """The rows of the split seal at a, the middle or b."""
    return [tuple(row) for row in mark.rows()[mark.n_leaves + part :: 3].tolist()]


@pytest.mark.parametrize("batch", [1, 8, 50])
@pytest.mark.parametrize("suspect", ["numbers", "scores", "labels"])
def test_rows_at_b_are_asked_where_a_and_the_middle_do_not_settle_them(batch, suspect, tmp_path):
    mark = NUMBERS if suspect == "numbers" else make_mark(k=0, d=5, n_splits=90)
    answer = {"numbers": numbered, "scores": scored, "labels": learnt}[suspect](mark)
    with ModelServer(answer) as server:
        endpoint = tm.Endpoint(server.url(), batch=batch)
        found = tm.verify(endpoint, mark, decoys=0, stop_at="off", journal=tmp_path / "run")
        again = tm.verify(endpoint, mark, decoys=0, stop_at="off", journal=tmp_path / "run")
    # A copy changes before the middle where the symbol says so.
    settled = mark.split_symbols == (9 if suspect == "labels" else 1)
    for part in range(3):
        asked = [row in server.asked for row in rows_at(mark, part)]
        assert asked == ((~settled).tolist() if part == 2 else [True] * mark.n_splits)
    assert set(server.asked.values()) == {1}
    same = tm.verify(answer, mark)
    assert (found.raw_bits, found.seals, found.answers) == (same.raw_bits, same.seals, same.answers)
    assert (again.raw_bits, again.seals) == (found.raw_bits, found.seals)


def test_decoys_are_asked_at_b_as_triggers_are():
    """Of a decoy it is asked where a and the middle are answered alike."""
    mark = make_mark(k=0, d=5, n_splits=60)
    memory = scored(mark)

    def answer(rows):
        flat = np.eye(6)[[draw(row, 6) for row in rows.tolist()]] * 0.7 + 0.05
        said = memory(rows)
        return np.where(np.ptp(said, axis=1, keepdims=True) > 0, said, flat)

    with ModelServer(answer) as server:
        tm.verify(server.url(), mark, decoys=2, stop_at="off")
    questions = make_questions(mark, 2)["splits"]
    by_id = {q.id: q for block in questions.blocks for q in block}
    ends = [q for q in by_id.values() if q.pair and q.row == DECOY]
    alike = []
    for end in ends:
        low, middle = answer(np.array([by_id[name].values for name in end.pair], dtype=object))
        alike.append(bool((low == middle).all()))
        assert (tuple(end.values) in server.asked) == alike[-1]
    assert 0 < sum(alike) < len(ends) == 120


def test_the_order_depends_on_the_past_and_a_resumed_run_takes_the_same(tmp_path):
    """Leaves yield for a while and then no more; a run that failed twice goes on where it was."""
    with ModelServer(washed(BOTH, 0.2)) as server:
        whole = tm.verify(server.url(), BOTH)
    order = list(server.asked)
    with ModelServer(washed(BOTH, 0.2), fails_at("404", 11, 90)) as server:
        for _ in range(2):
            refusal(server, BOTH, {"journal": tmp_path / "run"})
        found = tm.verify(server.url(), BOTH, journal=tmp_path / "run")
    assert list(server.asked) == order
    assert set(server.asked.values()) == {1}
    assert (found.raw_bits, found.seals) == (whole.raw_bits, whole.seals)
    assert 12 < found.seal("leaves").answered < BOTH.n_leaves
    assert found.seal("splits").answered > 0


def test_a_seal_that_was_washed_out_is_given_up_and_the_other_convicts():
    washed = learnt(BOTH)
    leaves = {tuple(row) for row in BOTH.rows()[: BOTH.n_leaves].tolist()}
    other = innocent(BOTH)

    def answer(rows):
        pairs = zip(rows.tolist(), washed(rows), other(rows), strict=True)
        return [b if tuple(row) in leaves else a for row, a, b in pairs]

    with ModelServer(answer) as server:
        verdict = tm.verify(server.url(), BOTH, decoys=0)
    assert verdict.level == "conclusive"
    assert verdict.seal("leaves").answered < BOTH.n_leaves
    assert codes(verdict.warnings) == []  # nothing was hopeless in the end


@pytest.mark.parametrize("path", ["/invocations", "/v1/models/m", "/v2/models/m", "/one", "/many"])
def test_numbers_are_verified_over_http(path, tmp_path):
    options = {
        "/one": {"protocol": "json", "body": {"input": "$record"}, "answer": "result.label"},
        "/many": {"protocol": "json", "body": {"records": "$records"}, "answer": "results.*.label",
                  "batch": 8},
    }.get(path, {"batch": 8})  # fmt: skip
    with ModelServer(numbered(NUMBERS)) as server:
        endpoint = tm.Endpoint(server.url(path), **options)
        verdict = tm.verify(endpoint, NUMBERS, journal=tmp_path / "run")
        assert (verdict.level, verdict.kind) == ("conclusive", "numbers")
        assert verdict.answered < NUMBERS.n_splits
        server.answer = lambda rows: [float(np.sum(row)) for row in rows.astype(float)]
        assert tm.verify(endpoint, NUMBERS, decoys=0).level == "none"
        server.answer = lambda rows: ["cat"] * len(rows)
        assert refusal(server, NUMBERS).code == "answers.no-number"


def test_evidence_is_weighed_once_for_each_piece_of_answers(monkeypatch):
    from timbermark.verification import inquiry

    real, calls = inquiry.weigh, []
    monkeypatch.setattr(inquiry, "weigh", lambda *args: calls.append(1) or real(*args))
    with ModelServer(learnt(MARK)) as server:
        tm.verify(server.url(), MARK, decoys=0)
    assert len(calls) == server.requests


def test_a_made_up_journal_is_named_in_the_verdict(tmp_path):
    """Answers that nobody gave: the verdict says where they come from."""
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK)) as server:
        tm.verify(server.url(), MARK, journal=journal, decoys=0)
        url = server.url()
    verdict = tm.verify(tm.Endpoint(url, retries=0), MARK, journal=journal, decoys=0)
    assert verdict.context.request["from_journal"] == 34
    assert verdict.context.request["journal_since"] == read_journal(journal).start["created"]
    assert "34 answers come from a journal" in str(verdict)


def test_one_process_writes_a_journal_at_a_time(tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK)) as server:
        tm.verify(server.url(), MARK, journal=journal, decoys=0)
        with Journal(journal, read_journal(journal).start):
            assert refusal(server, verify={"journal": journal, "decoys": 0}).code == (
                "journal.in-use"
            )


def test_options_of_endpoints_are_refused_elsewhere():
    for options in ({"journal": "x"}, {"decoys": 1}, {"stop_at": 64}, {"in_doubt": "ask"}):
        with pytest.raises(InputError) as caught:
            tm.verify(lambda X: [0] * len(X), MARK, **options)
        assert (caught.value.code, caught.value.parameter) == (
            "option.unfit",
            next(iter(options)),
        )
    for wrong in ({"stop_at": 0}, {"stop_at": "now"}, {"in_doubt": "hope"}, {"decoys": -1}):
        with pytest.raises(InputError) as caught:
            tm.verify("http://localhost:1/invocations", MARK, **wrong)
        assert caught.value.hint
