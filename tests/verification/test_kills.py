from tests.verification.killing import run_with_kills

KILLS = 3  # `./dev bench endpoint` has 50


def test_a_killed_run_loses_nothing_and_asks_again_only_what_was_under_way(tmp_path, real_scrypt):
    found = run_with_kills(tmp_path, KILLS, decoys=0)
    assert found["kills"] == KILLS
    assert found["same_verdict"]
    assert found["level"] == "conclusive"
    assert (found["lost"], found["strange"]) == (0, 0)
    # Only what was under way when the process was killed: nobody knows whether it was answered.
    assert found["asked_twice"] <= KILLS
    assert found["questions"] == 128
