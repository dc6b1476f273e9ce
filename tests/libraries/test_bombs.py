"""Small files that claim to be large: refused before the memory is asked for."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tests.conftest import ROOT
from timbermark.libraries.catboost import cbm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
MOST = 10**9


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return file.getvalue()


def signed(first, payload):
    return first + hashlib.sha256(first + payload).hexdigest().encode() + b"\n" + payload


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, 4)), rng.integers(0, 3, 200)


def make_xgboost(data, folder):
    xgboost = pytest.importorskip("xgboost")
    xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(*data).save_model(
        folder / "x.json"
    )
    text = (folder / "x.json").read_text()

    def put(name, key, value):
        document = json.loads(text)
        places = [document["learner"]["learner_model_param"]]
        model = document["learner"]["gradient_booster"]["model"]
        places += [model["gbtree_model_param"], model["trees"][0]["tree_param"]]
        (place,) = [p for p in places if key in p and (name == "any" or p is places[int(name)])]
        place[key] = value
        (folder / f"{key}.json").write_text(json.dumps(document))

    put("0", "num_class", str(MOST))
    put("0", "num_feature", str(MOST))
    put("1", "num_trees", str(MOST))
    put("2", "num_nodes", str(MOST))
    (folder / "deep.json").write_text('{"learner":' * 100_000)
    head = b"{L\0\0\0\0\0\0\0\x07learner"
    (folder / "array.ubj").write_bytes(head + b"[$d#L\0\0\0\x7f\xff\xff\xff\xff")
    (folder / "empty.ubj").write_bytes(head + b"[$Z#L\0\0\0\0\x7f\xff\xff\xff")
    (folder / "text.ubj").write_bytes(head + b"SL\0\0\0\x7f\xff\xff\xff\xff")
    (folder / "deep.ubj").write_bytes(head + b"[" * 300_000)


def make_lightgbm(data, folder):
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=2, num_leaves=4, n_jobs=1, verbose=-1).fit(*data)
    text = model.booster_.model_to_string()
    for name in ("num_class=3", "num_tree_per_iteration=3", "max_feature_idx=3", "num_leaves=4"):
        assert name in text
        changed = text.replace(name, f"{name.partition('=')[0]}={MOST}", 1)
        (folder / f"{name}.txt").write_text(changed)


def make_catboost(data, folder):
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(
        iterations=2, depth=2, thread_count=1, verbose=0, allow_writing_files=False
    ).fit(*data)
    model.save_model(str(folder / "c.cbm"))
    whole = (folder / "c.cbm").read_bytes()
    (folder / "c.cbm").write_bytes(whole[:4] + b"\xff\xff\xff\x7f" + whole[8:])
    contents = cbm.unpack(whole)
    trees = contents.trees
    first, *others = trees["FloatFeatures"]
    changes = {
        key: {"FloatFeatures": [{**first, key: MOST}, *others]} for key in ("FlatIndex", "Index")
    }
    splits = np.resize(trees["TreeSplits"], 30)
    changes["depth"] = {"TreeSplits": splits, "TreeSizes": [30], "TreeStartOffsets": [0]}
    for name, change in changes.items():
        damaged = cbm.Contents({**trees, **change}, contents.info, contents.tables)
        (folder / f"catboost {name}.cbm").write_bytes(cbm.pack(damaged))


def make_archives(data, folder):
    blanks = b'{"a":"' + b" " * (150 << 20) + b'"}'
    (folder / "schema.skops").write_bytes(zipped(schema_json=blanks))
    (folder / "meta.mark").write_bytes(signed(b"timbermark mark 2\n", zipped(meta_json=blanks)))
    (folder / "array.mark").write_bytes(
        signed(b"timbermark mark 2\n", zipped(meta_json=b"{}", numbers_npy=blanks))
    )


MAKERS = [make_xgboost, make_lightgbm, make_catboost, make_archives]


def test_small_files_that_claim_much_are_refused(data, tmp_path):
    for make in MAKERS:
        make(data, tmp_path)
    (tmp_path / "x.json").unlink()
    files = sorted(str(path) for path in tmp_path.iterdir())
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.libraries.reading_bombs", *files], cwd=ROOT,
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == [os.path.basename(path) for path in files], done.stderr
    assert {said for _, said, _ in lines} == {"refused"}, lines
    assert max(int(grown) for *_, grown in lines) < 100
