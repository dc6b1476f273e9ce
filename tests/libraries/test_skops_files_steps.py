"""Crafted .skops suspects: refused by a code, or answered within limits; none runs its own code."""

import functools
import json
import operator
import os
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn import (
    cluster,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    kernel_approximation,
    manifold,
    neighbors,
    neural_network,
    preprocessing,
    random_projection,
    svm,
)
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction import text
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_array

import timbermark as tm
from tests.libraries.deployed_models import fitted, table
from timbermark import libraries
from timbermark.errors import FileFormatError
from timbermark.libraries import apart
from timbermark.libraries.skops_files import check_parts
from timbermark.trees import reference

skops = pytest.importorskip("skops.io")

X = np.arange(40.0).reshape(20, 2) % 7
Y = np.arange(20) % 2


def _broken_svc():
    found = svm.SVC().fit(X, Y)
    found.support_ = found.support_ + 10**6
    found._n_support = found._n_support * 10**6
    return found


def _endless():
    found = decomposition.LatentDirichletAllocation(2).fit(X)
    found.max_doc_update_iter, found.mean_change_tol = 10**12, -1.0
    return found


def _selected():
    return feature_selection.SelectFromModel(ensemble.RandomForestClassifier(2)).fit(X, Y)


# Steps that are not on the list.
OTHER_STEPS = {
    "reads paths": lambda: text.CountVectorizer(input="filename", vocabulary={"a": 0}),
    "reads files": lambda: text.TfidfVectorizer(input="file", vocabulary={"a": 0}),
    "a pattern without end": lambda: text.HashingVectorizer(token_pattern="(a+)+$"),
    "broken support": _broken_svc,
    "broken regression": lambda: svm.NuSVR().fit(X, Y),
    "one class": lambda: svm.OneClassSVM().fit(X),
    "never ends": _endless,
    "discriminants": lambda: discriminant_analysis.LinearDiscriminantAnalysis().fit(X, Y),
    "other trees": _selected,
    "forest": lambda: ensemble.RandomForestClassifier(2).fit(X, Y),
    "trees that transform": lambda: ensemble.RandomTreesEmbedding(2).fit(X),
    "neighbours that impute": lambda: impute.KNNImputer().fit(X),
    "neighbours": lambda: neighbors.KNeighborsTransformer(n_neighbors=2).fit(X),
    "components of neighbours": lambda: neighbors.NeighborhoodComponentsAnalysis().fit(X, Y),
    "network": lambda: neural_network.MLPClassifier(max_iter=1),
    "restricted machine": lambda: neural_network.BernoulliRBM(n_iter=1).fit(X > 3),
    "factors": lambda: decomposition.NMF(1),
    "dictionary": lambda: decomposition.DictionaryLearning(1, max_iter=1),
    "independent": lambda: decomposition.FastICA(1).fit(X),
    "kernel components": lambda: decomposition.KernelPCA(1).fit(X),
    "kernel": lambda: kernel_approximation.Nystroem(n_components=2).fit(X),
    "random kernel": lambda: kernel_approximation.RBFSampler(n_components=10**9),
    "random projection": lambda: random_projection.SparseRandomProjection(2).fit(X),
    "clusters": lambda: cluster.KMeans(2, n_init=1).fit(X),
    "isometric": lambda: manifold.Isomap(n_neighbors=3),
    "hashes": lambda: feature_extraction.FeatureHasher(n_features=2**30),
    "dictionaries": lambda: feature_extraction.DictVectorizer().fit([{"a": 1.0}]),
    "votes": lambda: ensemble.VotingClassifier([("a", GradientBoostingClassifier())]),
    "shell": lambda: preprocessing.FunctionTransformer(os.system),
    "files of numbers": lambda: preprocessing.FunctionTransformer(np.fromfile),
    "evaluates": lambda: preprocessing.FunctionTransformer(eval),
    "calls methods": lambda: preprocessing.FunctionTransformer(operator.methodcaller("tofile")),
    "a method": lambda: preprocessing.FunctionTransformer(preprocessing.StandardScaler().fit),
    "sparse numbers": lambda: _with(preprocessing.StandardScaler().fit(X), mean_=csr_matrix(X)),
}


def _with(step, **values):
    vars(step).update(values)
    return step


def _without(step, name):
    del vars(step)[name]
    return step


def _one_hot(**more):
    return preprocessing.OneHotEncoder(sparse_output=False, **more).fit(X)


def _calibrated():
    found = CalibratedClassifierCV(GradientBoostingClassifier(n_estimators=2), cv=2)
    found = found.set_params(method="isotonic").fit(X, Y)
    found.calibrated_classifiers_[0].calibrators[0].y_thresholds_ = np.zeros(99)
    return found


# Steps on the list with parameters that are not taken.
OTHER_PARAMETERS = {
    "one-hot, too few columns": lambda: _with(_one_hot(), _n_features_outs=[1, 1]),
    "one-hot, rare ones beyond": lambda: _with(
        _one_hot(min_frequency=4),
        _default_to_infrequent_mappings=[np.full(7, 10**6), None],
    ),
    "one-hot, drops what is not there": lambda: _with(
        _one_hot(drop="first"), _drop_idx_after_grouping=np.array([10**6, 0], dtype=object)
    ),
    "one-hot, huge": lambda: _with(_one_hot(), categories_=[np.arange(200_000.0)] * 2),
    "polynomials, many": lambda: preprocessing.PolynomialFeatures(10**6),
    "polynomials, wide": lambda: _with(
        preprocessing.PolynomialFeatures(9).fit(X), n_features_in_=10**5
    ),
    "polynomials, of any columns": lambda: _without(
        preprocessing.PolynomialFeatures(9).fit(X), "n_features_in_"
    ),
    "bins, many": lambda: _with(
        preprocessing.KBinsDiscretizer(3, quantile_method="linear").fit(X),
        n_bins_=np.array([10**9, 3]),
    ),
    "function with arguments": lambda: preprocessing.FunctionTransformer(
        np.log1p, kw_args={"out": np.zeros(1)}
    ),
    "function of the list, elsewhere": lambda: preprocessing.FunctionTransformer(
        functools.partial(check_array, estimator="a")
    ),
    "a method of its own": lambda: _with(
        preprocessing.StandardScaler().fit(X), transform=functools.partial(check_array)
    ),
    "keeps results": lambda: Pipeline(
        [("a", preprocessing.StandardScaler())], memory="/tmp/somewhere"
    ),
    "steps of unequal length": _calibrated,
}


@cache
def model():
    return GradientBoostingClassifier(n_estimators=2).fit(X, Y)


def suspect(path, step):
    """Write a pipeline of a crafted step and an ordinary model."""
    whole = step if hasattr(step, "calibrated_classifiers_") else make_pipeline(step, model())
    skops.dump(whole, path)
    return path


@pytest.mark.parametrize("kind", OTHER_STEPS)
def test_other_steps_are_refused_before_anything_is_built(kind, tmp_path, monkeypatch):
    path = suspect(tmp_path / "model.skops", OTHER_STEPS[kind]())
    real = skops.loads
    built = []
    monkeypatch.setattr(skops, "loads", lambda *a, **k: built.append(1) or real(*a, **k))
    with pytest.raises(FileFormatError) as caught:
        libraries.open(path)
    assert caught.value.code == "file.step"
    # What is not of scikit-learn, skops refuses by itself before it builds anything.
    assert not built or isinstance(
        caught.value.__cause__, skops.exceptions.UntrustedTypesFoundException
    )


@pytest.mark.parametrize("kind", OTHER_PARAMETERS)
def test_other_parameters_are_refused(kind, tmp_path):
    path = suspect(tmp_path / "model.skops", OTHER_PARAMETERS[kind]())
    with pytest.raises(FileFormatError) as caught:
        libraries.open(path)
    assert caught.value.code in ("file.step", "file.unsound")


def node(module, kind, loader, **more):
    return {"__class__": kind, "__module__": module, "__loader__": loader, "__id__": 1, **more}


TUPLE = node("builtins", "tuple", "TupleNode", content=[])
# What no model holds, and somebody could write into a file.
NODES = {
    "shell": node("os", "system", "FunctionNode"),
    "process": node("subprocess", "Popen", "ObjectNode", content=None),
    "evaluates": node("builtins", "eval", "TypeNode"),
    "getter": node("operator", "attrgetter", "OperatorFuncNode", attrs=TUPLE),
    "ufunc of a list": node("numpy", "frompyfunc", "FunctionNode"),
    "file of numbers": node("numpy", "memmap", "ObjectNode", content=None),
    "loads": node("joblib.numpy_pickle", "load", "FunctionNode"),
    "datasets": node("sklearn.datasets._openml", "fetch_openml", "FunctionNode"),
    "estimator as a function": node("sklearn.svm._classes", "SVC", "TypeNode"),
    "unknown loader": node("builtins", "str", "NewNode", content="a"),
}


@pytest.mark.parametrize("kind", NODES)
def test_nodes_that_no_model_holds_are_refused(kind, tmp_path):
    path = suspect(tmp_path / "model.skops", preprocessing.StandardScaler().fit(X))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    schema["content"]["content"]["verbose"] = NODES[kind]
    members["schema.json"] = json.dumps(schema)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(FileFormatError) as caught:
        libraries.open(path)
    assert caught.value.code == "file.step"


def test_suspects_are_refused_by_the_list_without_a_process(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "open_apart", None)
    path = suspect(tmp_path / "model.skops", OTHER_STEPS["broken support"]())
    with pytest.raises(FileFormatError) as caught:
        libraries.open_suspect_file(path)
    assert caught.value.code == "file.step"


def test_an_ordinary_suspect_answers_from_its_process(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    found, path = fitted("calibrated inside"), tmp_path / "model.skops"
    frame, _ = table()
    libraries.save(found, path)
    read = libraries.open_suspect_file(path)
    assert read.native is None
    assert read.ensemble == libraries.open(found).ensemble
    margins = reference.margins(read.ensemble, read.rows(frame))
    np.testing.assert_array_equal(read.confidence(margins), found.predict_proba(frame))
    with pytest.raises(tm.errors.InputError):
        read.adapter.close(read, read.ensemble)
    environment = Path(f"/proc/{read.adapter._process.pid}/environ")
    if environment.exists():
        assert b"SECRET_TOKEN" not in environment.read_bytes()
    # A crash, of which nobody knows one, ends the child and not the judge.
    read.adapter._process.kill()
    with pytest.raises(FileFormatError) as caught:
        read.rows(frame)
    assert caught.value.code == "file.limits"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux limits memory")
def test_a_suspect_that_takes_too_much_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "MEMORY", 1 << 26)
    found = libraries.open_suspect_file(
        suspect(tmp_path / "model.skops", preprocessing.StandardScaler().fit(X))
    )
    assert found.rows(X).shape == X.shape
    with pytest.raises(FileFormatError) as caught:
        found.rows(np.zeros((1 << 21, 2)))
    assert caught.value.code == "file.limits"


def test_a_suspect_that_takes_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "SECONDS", 0.05)
    path = suspect(tmp_path / "model.skops", preprocessing.StandardScaler().fit(X))
    with pytest.raises(FileFormatError) as caught:
        libraries.open_suspect_file(path)
    assert caught.value.code == "file.limits"


def test_the_process_neither_opens_nor_starts_nor_writes(tmp_path):
    """Run the limits of the child in a process of our own, and try."""
    import subprocess
    import sys

    code = """
import os, socket, subprocess, sys
sys.path[:] = sys.argv[2].split(os.pathsep)
import numpy as np
from timbermark.libraries.apart import _limit
_limit(60.0, 1 << 28, sys.argv[1])
tried = {
    "open": lambda: open("/etc/hostname").read(),
    "write": lambda: open(sys.argv[1] + ".out", "w"),
    "run": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
    "memory": lambda: np.ones(1 << 27),
}
for name, action in tried.items():
    try:
        action()
    except (PermissionError, MemoryError):
        continue
    if name != "memory" or sys.platform == "linux":
        sys.exit(name)
"""
    arguments = [str(tmp_path / "x.skops"), os.pathsep.join(sys.path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("count", [0, 14, 1_000_000])
def test_a_tree_anywhere_that_lies_about_its_size_is_refused(count):
    kind = type("Tree", (), {"__module__": "sklearn.tree._tree", "capacity": 13})
    tree = kind()
    tree.node_count = 13
    check_parts({"extra_": [tree]})
    tree.node_count = count
    with pytest.raises(FileFormatError, match="another size than it says") as caught:
        check_parts({"extra_": [tree]})
    assert caught.value.code == "file.step"
