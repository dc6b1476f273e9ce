from tests.verification.endpoints.killing import run_with_kills

KILLS = 3  # `./dev bench endpoint` has 50


def test_a_killed_run_asks_nothing_twice_and_loses_nothing(tmp_path, real_scrypt):
    found = run_with_kills(tmp_path, KILLS, decoys=0)
    assert found["kills"] == KILLS
    assert found["same_verdict"]
    assert found["level"] == "conclusive"
    assert (found["asked_twice"], found["lost"], found["strange"]) == (0, 0, 0)
    assert found["questions"] == 128
