from dataclasses import replace

import pytest

from timbermark.attacks.registry import ATTACKS, CHAINS, find_attacks, make_chain
from timbermark.attacks.stolen import Stolen
from timbermark.errors import InputError


def test_names_are_unique_and_every_attack_says_what_it_needs():
    names = [attack.name for attack in (*ATTACKS, *CHAINS)]
    assert len(set(names)) == len(names)
    for attack in ATTACKS:
        assert set(attack.needs) <= {"file", "answers", "rows", "labels"}
        assert attack.needs
        assert set(attack.fast) <= set(attack.strengths)
        assert "Needs:" in attack.run.__doc__


def test_all_holds_every_strength_and_every_chain():
    found = find_attacks("all")
    assert len(found) == sum(len(a.strengths) for a in (*ATTACKS, *CHAINS))
    assert set(find_attacks("fast")) < set(found)


def test_a_name_stands_for_all_its_strengths_and_is_taken_once():
    found = find_attacks(["refit", "refit:0.5"])
    assert [strength for _, strength in found] == [0.9, 0.5, 0.2, 0.0]


def test_a_chain_runs_its_links_in_order(monkeypatch):
    done = []

    def watched(attack):
        def run(stolen, thief, strength):
            done.append((attack.name, strength))
            return stolen

        return replace(attack, run=run)

    monkeypatch.setattr("timbermark.attacks.registry.ATTACKS", tuple(map(watched, ATTACKS)))
    chain = make_chain("keep-first:0.75 + refit")
    assert chain.name == "keep-first:0.75+refit:0.5"
    assert chain.needs == ("file", "rows", "labels")
    chain.run(Stolen(None, None), None, 1.0)
    assert done == [("keep-first", 0.75), ("refit", 0.5)]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("refti", "did you mean 'refit'"),
        ("fsat", "did you mean 'fast'"),
        ("zzz", "use all, fast, chains, or some of"),
        ("refit:much", "'much' is no strength"),
        ("refit:-1", "'-1' is no strength"),
        ("refit:nan", "'nan' is no strength"),
        ("keep-first:0.5+nonsense", "no attack called 'nonsense'"),
    ],
)
def test_a_word_that_is_not_known_is_refused(word, said):
    with pytest.raises(InputError) as error:
        find_attacks([word])
    assert said in str(error.value)
