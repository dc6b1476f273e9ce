import numpy as np

from tests.experiments.making import made_pool
from timbermark.experiments.selections import select_triggers
from timbermark.experiments.strategies import find_candidates


def test_confidence_selects_the_least_sure():
    found = find_candidates("random", made_pool(), 50)
    places = select_triggers("confidence", found, 20)
    assert len(set(places.tolist())) == 20
    sureness = found.pool.sureness[found.order]
    assert sureness[places].max() <= np.delete(sureness, places).min()


def test_distance_selects_the_farthest_on_raw_values():
    found = find_candidates("random", made_pool(), 50)
    places = select_triggers("distance", found, 20, seed=2)
    assert len(set(places.tolist())) == 20
    X = found.pool.X[found.order]
    far = np.linalg.norm(X - X[places[0]], axis=1)
    assert places[1] == far.argmax()
    assert np.array_equal(places, select_triggers("distance", found, 20, seed=2))
    firsts = {int(select_triggers("distance", found, 1, seed)[0]) for seed in range(8)}
    assert len(firsts) > 1
