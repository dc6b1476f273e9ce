"""XGBoost: ``Booster``, its classifier, regressor and ranker, and their files in JSON and UBJ.

Models made of trees are supported, with two classes, many or numbers, missing values, categories,
dart and parallel trees; linear models, leaf vectors and survival are refused.

Three things to know:

- ``XGBClassifier`` predicts with the trees up to ``best_iteration`` only. They are the ensemble,
  and the others stay as they are. A ``Booster`` predicts with all its trees.
- `open_file` gives an ``XGBClassifier`` also for most files that a ``Booster`` wrote: it predicts
  labels. It gives a ``Booster`` where the other would predict no labels or something else.
- Up to XGBoost 3.3, ``XGBClassifier.predict`` adds up dart trees with other roundings than
  ``Booster.predict`` does. `margins` are those of the latter.
"""
