"""Files of scikit-learn's models: ``.skops`` archives, which run no code when they are read.

`is_file` knows any such archive by its beginning, `kind_of` looks inside for the type of its model.
scikit-learn follows a tree's child numbers without looking; so `open_file` has trees checked node
by node before they predict.

A file may hold steps that are known, with parameters that are checked. skops checks types only, and
it trusts every estimator of scikit-learn. Many of these run code that a file chooses: they open
paths, iterate until a number of the file is reached, or hand indices of the file to compiled code
that does not look at them. So a file is held to a list: `check_schema` compares the types that it
names with the list before anything is built, and `check_parts` the parameters of what was built
before anything is asked.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import os
import re
import types
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.files.reading import most_unpacked
from timbermark.libraries.contract import ForeignModel, PathLike, import_library

_LOADERS = frozenset(
    (
        *("BytesNode", "BytearrayNode", "CachedNode", "ConstructorFromReduceNode", "DTypeNode"),
        *("DefaultDictNode", "DictNode", "FunctionNode", "JsonNode", "ListNode", "LossNode"),
        *("MaskedArrayNode", "NdArrayNode", "ObjectNode", "PartialNode", "RandomGeneratorNode"),
        *("RandomStateNode", "SetNode", "SliceNode", "TreeNode", "TupleNode", "TypeNode"),
    )
)
# Functions of one number, which cannot do anything but compute.
_UFUNCS = frozenset(
    (
        *("abs", "absolute", "cbrt", "cos", "exp", "exp2", "expm1", "expit", "fabs", "log"),
        *("log10", "log1p", "log2", "logit", "negative", "reciprocal", "rint", "sign", "sin"),
        *("sqrt", "square", "tanh"),
    )
)
_LISTED = {
    "_loss._loss": ("CyAbsoluteError", "CyExponentialLoss", "CyHalfBinomialLoss",
                    "CyHalfGammaLoss", "CyHalfMultinomialLoss", "CyHalfPoissonLoss",
                    "CyHalfSquaredError", "CyHuberLoss", "CyPinballLoss"),
    "_loss.link": ("HalfLogitLink", "IdentityLink", "Interval", "LogLink", "LogitLink",
                   "MultinomialLogit"),
    "_loss.loss": ("AbsoluteError", "ExponentialLoss", "HalfBinomialLoss", "HalfGammaLoss",
                   "HalfMultinomialLoss", "HalfPoissonLoss", "HalfSquaredError", "HuberLoss",
                   "PinballLoss"),
    "calibration": ("CalibratedClassifierCV", "_CalibratedClassifier", "_SigmoidCalibration",
                    "_TemperatureScaling"),
    "compose._column_transformer": ("ColumnTransformer", "_RemainderColsList",
                                    "make_column_selector"),
    "compose._target": ("TransformedTargetRegressor",),
    "decomposition._pca": ("PCA",),
    "decomposition._truncated_svd": ("TruncatedSVD",),
    "dummy": ("DummyClassifier", "DummyRegressor"),
    "ensemble._gb": ("GradientBoostingClassifier", "GradientBoostingRegressor"),
    "ensemble._hist_gradient_boosting.binning": ("_BinMapper",),
    "ensemble._hist_gradient_boosting.gradient_boosting": ("HistGradientBoostingClassifier",
                                                           "HistGradientBoostingRegressor"),
    "ensemble._hist_gradient_boosting.predictor": ("TreePredictor",),
    "feature_selection._univariate_selection": ("SelectKBest", "SelectPercentile", "chi2",
                                                "f_classif", "f_regression"),
    "feature_selection._variance_threshold": ("VarianceThreshold",),
    "frozen._frozen": ("FrozenEstimator",),
    "impute._base": ("MissingIndicator", "SimpleImputer"),
    "isotonic": ("IsotonicRegression",),
    # Functions that compare answers and rules that split rows: searches hold them, and nothing in
    # them runs when a model is asked.
    "metrics._classification": ("accuracy_score", "balanced_accuracy_score", "brier_score_loss",
                                "cohen_kappa_score", "d2_brier_score", "d2_log_loss_score",
                                "f1_score", "fbeta_score", "jaccard_score", "log_loss",
                                "matthews_corrcoef", "precision_score", "recall_score"),
    "metrics._ranking": ("average_precision_score", "dcg_score", "ndcg_score", "roc_auc_score",
                         "top_k_accuracy_score"),
    "metrics._regression": ("d2_absolute_error_score", "d2_pinball_score", "d2_tweedie_score",
                            "explained_variance_score", "max_error", "mean_absolute_error",
                            "mean_absolute_percentage_error", "mean_gamma_deviance",
                            "mean_pinball_loss", "mean_poisson_deviance", "mean_squared_error",
                            "mean_squared_log_error", "mean_tweedie_deviance",
                            "median_absolute_error", "r2_score", "root_mean_squared_error",
                            "root_mean_squared_log_error"),
    "metrics._scorer": ("_MultimetricScorer", "_PassthroughScorer", "_PredictScorer",
                        "_ProbaScorer", "_Scorer", "_ThresholdScorer"),
    "model_selection._split": ("GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut",
                               "LeaveOneOut", "LeavePGroupsOut", "LeavePOut", "PredefinedSplit",
                               "RepeatedKFold", "RepeatedStratifiedKFold", "ShuffleSplit",
                               "StratifiedGroupKFold", "StratifiedKFold",
                               "StratifiedShuffleSplit", "TimeSeriesSplit"),
    "model_selection._search": ("GridSearchCV", "RandomizedSearchCV"),
    "model_selection._search_successive_halving": ("HalvingGridSearchCV",
                                                   "HalvingRandomSearchCV"),
    "pipeline": ("FeatureUnion", "Pipeline"),
    "preprocessing._data": ("Binarizer", "MaxAbsScaler", "MinMaxScaler", "Normalizer",
                            "PowerTransformer", "QuantileTransformer", "RobustScaler",
                            "StandardScaler"),
    "preprocessing._discretization": ("KBinsDiscretizer",),
    "preprocessing._encoders": ("OneHotEncoder", "OrdinalEncoder"),
    "preprocessing._function_transformer": ("FunctionTransformer",),
    "preprocessing._label": ("LabelEncoder",),
    "preprocessing._polynomial": ("PolynomialFeatures", "SplineTransformer"),
    "preprocessing._target_encoder": ("TargetEncoder",),
    "tree._classes": ("DecisionTreeRegressor",),
    "tree._tree": ("Tree",),
    "utils.validation": ("check_array",),
}  # fmt: skip
_TYPES = frozenset(
    f"sklearn.{module}.{name}" for module, names in _LISTED.items() for name in names
)
_OTHER_TYPES = (
    "functools.partial",
    "numpy.dtype",
    # By which columns are selected.
    *("builtins.object", "numpy.number", "numpy.integer", "numpy.floating"),
    # Of SplineTransformer; they are checked before they are asked, because what they say about
    # their size is believed by compiled code.
    "scipy.interpolate._bsplines.BSpline",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "scipy._external.array_api_compat.numpy._aliases.asarray",
    "scipy.interpolate._interpolate.interp1d",
)
"""Types of other packages that may be built, beyond those that skops trusts by itself."""
_MOST_COLUMNS = 100_000
_CHECKED_KEYWORDS = {"dtype", "ensure_all_finite", "force_all_finite"}
HINT = (
    "ask the suspect otherwise: by a table of its answers (timbermark questions), at its address, "
    "or, if you trust it, load it with skops and give the model from Python."
)


def check_schema(schema: Any, name: str) -> None:
    """Raise FileFormatError unless every type in a skops schema is on the list.

    ``name`` is that of the file. Nothing of the file has been built so far.

    >>> check_schema({"__class__": "SVC", "__module__": "sklearn.svm._classes",
    ...               "__loader__": "ObjectNode"}, "x.skops")
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: x.skops holds sklearn.svm._classes.SVC, which is not run \
from a file. Hint: ask the suspect otherwise: by a table of its answers (timbermark questions), at \
its address, or, if you trust it, load it with skops and give the model from Python.
    """
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            if "__loader__" in node or "__class__" in node:
                _check_node(node, name)


def check_parts(model: Any) -> None:
    """Raise FileFormatError unless the parameters of every part of a model can be run safely.

    Nodes of trees, and the boosted models that they belong to, are checked by their own modules.
    """
    for part in list_parts(model):
        kind = type(part)
        if not kind.__module__.startswith("sklearn."):
            if isinstance(part, types.MethodType):
                refuse_part("a method", "methods are not run from a file")
            if kind.__name__ == "BSpline" and not _is_sound_spline(part):
                refuse_part("BSpline", "it holds a spline of another size than it says")
            continue
        # A value that stands in the way of a method would be called in its place.
        for key in getattr(part, "__dict__", ()):
            if callable(getattr(kind, str(key), None)):
                refuse_part(kind.__name__, f"it has a {key} of its own")
        check = _CHECKS.get(kind.__name__)
        if check is not None:
            problem = check(part)
            if problem:
                refuse_part(kind.__name__, problem)


def refuse_part(step: str, reason: str) -> NoReturn:
    """Raise FileFormatError for a step whose parameters are not taken from a file."""
    raise FileFormatError(
        f"a step is not run from a file, {step}: {reason}", hint=HINT, code="file.step"
    )


def list_parts(model: Any) -> Iterator[Any]:
    """Yield every object that is anywhere in an object, once.

    >>> [part for part in list_parts({"a": (1, [])})]
    [{'a': (1, [])}, (1, []), []]
    """
    waiting: list[Any] = [model]
    seen: dict[int, Any] = {}
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | None | type):
            continue
        seen[id(one)] = one
        yield one
        waiting += vars(one).values() if hasattr(one, "__dict__") else ()
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
        elif isinstance(one, np.ndarray) and one.dtype == object:
            waiting += one.ravel().tolist()
        elif isinstance(one, functools.partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, types.MethodType):
            waiting.append(one.__self__)


def _check_node(node: dict[str, Any], name: str) -> None:
    loader, kind, module = (str(node.get(f"__{k}__")) for k in ("loader", "class", "module"))
    full = f"{module}.{kind}"
    known = loader in _LOADERS or loader == "None"
    package = module.partition(".")[0]
    if package == "sklearn":
        known = known and full in _TYPES
    elif loader == "FunctionNode" and package in ("numpy", "scipy"):
        # Of scipy the file of a spline names how it makes arrays.
        known = kind in _UFUNCS or kind == "asarray"
    if not known:
        raise FileFormatError(
            f"{name} holds {full[:100]}, which is not run from a file.",
            hint=HINT,
            code="file.step",
        )


def _check_one_hot(step: Any) -> str:
    """Return what is wrong with an encoder: compiled code writes where its numbers say."""
    if not hasattr(step, "categories_"):
        return ""
    sizes = [len(categories) for categories in step.categories_]
    if sum(sizes) > _MOST_COLUMNS:
        return f"it makes {sum(sizes)} columns, at most {_MOST_COLUMNS} are allowed"
    mappings = getattr(step, "_default_to_infrequent_mappings", None)
    if mappings is not None and len(mappings) != len(sizes):
        return "its groups of rare categories are not those of its columns"
    for size, mapping in zip(sizes, mappings or [], strict=False):
        if mapping is None:
            continue
        if not (isinstance(mapping, np.ndarray) and mapping.dtype.kind in "iu"):
            return "its groups of rare categories are no numbers"
        if mapping.shape != (size,) or not size or mapping.min() < 0 or mapping.max() >= size:
            return "its groups of rare categories are not its categories"
        if set(mapping.tolist()) != set(range(int(mapping.max()) + 1)):
            return "its groups of rare categories leave out a number"
    drops = getattr(step, "_drop_idx_after_grouping", getattr(step, "drop_idx_", None))
    if drops is not None and np.shape(drops) != (len(sizes),):
        return "what it drops is not one category of each column"
    for size, drop in zip(sizes, [] if drops is None else drops, strict=False):
        if drop is not None and not (isinstance(drop, int | np.integer) and 0 <= drop < size):
            return "it drops a category that it does not have"
    outs = getattr(step, "_n_features_outs", None)
    if outs is not None and list(outs) != list(step._compute_n_features_outs()):
        return "it makes another number of columns than it has categories"
    return ""


def _check_polynomial(step: Any) -> str:
    degree = step.degree if isinstance(step.degree, tuple) else (0, step.degree)
    # Without the number of its columns it would take any.
    fitted = any(name.endswith("_") or name.startswith("_n") for name in vars(step))
    count = getattr(step, "n_features_in_", None if fitted else 1)
    if not all(type(one) is int and 0 <= one <= 20 for one in degree) or type(count) is not int:
        return f"degree={step.degree!r:.40} of {count!r:.40} columns are no small numbers"
    made = math.comb(min(count, _MOST_COLUMNS) + max(degree), max(degree))
    return "" if made <= _MOST_COLUMNS else f"it makes {made} columns"


def _check_function(step: Any) -> str:
    partial = isinstance(step.func, functools.partial)
    if partial and getattr(step.func.func, "__name__", "") == "check_array":
        # How HistGradientBoosting lets numbers pass beside categories.
        given = set(step.func.keywords)
        plain = not step.func.args and given <= _CHECKED_KEYWORDS
        return "" if plain and step.inverse_func is None else "it checks rows in a way of its own"
    for func in (step.func, step.inverse_func):
        if func is not None and getattr(func, "__name__", "") not in _UFUNCS:
            return f"the function {getattr(func, '__name__', func)!r:.60} is not on the list"
    if step.kw_args or step.inv_kw_args or callable(step.feature_names_out):
        return "its function takes further arguments"
    return ""


def _check_isotonic(step: Any) -> str:
    bounds = [getattr(step, name, ()) for name in ("X_thresholds_", "y_thresholds_")]
    fits = all(isinstance(b, np.ndarray) and b.ndim == 1 and b.dtype.kind == "f" for b in bounds)
    return "" if fits and len(bounds[0]) == len(bounds[1]) else "its steps are no two columns"


def _check_pipeline(step: Any) -> str:
    return "" if getattr(step, "memory", None) is None else "it keeps results in a folder"


def _check_tree(tree: Any) -> str:
    """Return what is wrong with a tree: copying one that lies about its size reads other memory."""
    sound = 1 <= tree.node_count <= tree.capacity
    return "" if sound else "a tree has another size than it says"


def _check_spread(name: str) -> Callable[[Any], str]:
    def check(step: Any) -> str:
        count = np.sum(np.asarray(getattr(step, name, 0), dtype=float))
        return "" if count <= _MOST_COLUMNS else f"{name}={count:.0f} makes too many columns"

    return check


_CHECKS: dict[str, Callable[[Any], str]] = {
    "FunctionTransformer": _check_function,
    "IsotonicRegression": _check_isotonic,
    "KBinsDiscretizer": _check_spread("n_bins_"),
    "OneHotEncoder": _check_one_hot,
    "Pipeline": _check_pipeline,
    "PolynomialFeatures": _check_polynomial,
    "SplineTransformer": _check_spread("n_features_out_"),
    "Tree": _check_tree,
}


def _is_sound_spline(spline: Any) -> bool:
    """Return whether the knots and coefficients of a spline are as many as its degree needs."""
    known = vars(spline)
    knots, values = (known.get(name, known.get(f"_{name}")) for name in ("t", "c"))
    degree = known.get("k")
    if not (isinstance(knots, np.ndarray) and isinstance(values, np.ndarray)):
        return False
    if {"t", "_t"} <= set(known) or {"c", "_c"} <= set(known):
        return False
    if type(degree) is not int or not 0 <= degree < knots.size:
        return False
    n = len(knots) - degree - 1
    numbers = knots.ndim == 1 and {knots.dtype, values.dtype} == {np.dtype(np.float64)}
    rises = numbers and bool(np.isfinite(knots).all() and (np.diff(knots) >= 0).all())
    return rises and values.ndim >= 1 and len(values) >= n >= degree + 1


_HEAD = re.compile(rb"PK\x03\x04.{26}(?:schema\.json|[0-9a-f-]+\.(?:npy|npz|bin))", re.DOTALL)
_OTHER_VERSION = "it may be of another version of scikit-learn; if not, do not trust it."
_SHORT_SCHEMA = 4 << 20
_MOST_SCHEMA = 32 << 20  # of 10,000 trees: 15 MB; JSON takes some 20 times as much once it is read
_OLDEST = (0, 15)  # earlier ones call functions of numpy.random that a file names


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a skops archive; `kind_of` says of what.

    >>> is_file(b"CBM1")
    False
    """
    return _HEAD.match(head) is not None


def kind_of(path: PathLike) -> str:
    """Return the type of the object in a skops archive, without building it.

    A type of scikit-learn is named as it is, any other one after its module.

    Raises FileFormatError if it is no skops archive, OSError if it cannot be opened.
    """
    return _kind_in(_schema_in(Path(path).read_bytes(), os.fspath(path)))


def check_file(path: PathLike) -> None:
    """Raise FileFormatError if a skops archive names a step that is not run from a file.

    Nothing is built. A long schema is left to the process that opens the file.
    """
    with contextlib.suppress(zipfile.BadZipFile, KeyError), zipfile.ZipFile(path) as archive:
        if archive.getinfo("schema.json").file_size > _SHORT_SCHEMA:
            return
    check_schema(_schema_in(Path(path).read_bytes(), os.fspath(path)), os.fspath(path))


def open_file(
    path: PathLike,
    kinds: Collection[str],
    open_model: Callable[[Any], ForeignModel],
) -> ForeignModel:
    """Return the model of a type in ``kinds`` in a ``.skops`` file, opened by ``open_model``.

    ``open_model`` raises if the model is not sound.

    Raises FileFormatError if it is another file, damaged, or holds anything but a plain model,
    MissingLibraryError without skops, OSError if the file cannot be opened.
    """
    name, data = os.fspath(path), Path(path).read_bytes()
    schema = _schema_in(data, name)
    found = _kind_in(schema)
    if found not in kinds:
        wanted = " or ".join(kinds)
        raise FileFormatError(f"{name} holds a {found}, not a {wanted}.", hint="give another file.")
    skops_io = _skops("to read a .skops file")
    check_schema(schema, name)
    try:
        model = skops_io.loads(data, trusted=sorted(_TYPES.union(_OTHER_TYPES)))
        check_parts(model)
        return open_model(model)
    except skops_io.exceptions.UntrustedTypesFoundException as error:
        strange = str(error).strip().splitlines()[0].partition(": ")[2].strip("[].")
        raise FileFormatError(
            f"{name} holds types that are not known to be safe: {strange[:300]}.",
            hint="if you trust it, load the model yourself with skops, and give that from Python.",
            code="file.step",
        ) from error
    except Exception as error:  # a hostile file can make any constructor raise anything
        code = getattr(error, "code", "")
        raise FileFormatError(
            f"{name} does not hold a sound {found} ({getattr(error, 'message', error)}).",
            hint=getattr(error, "hint", "") if code else _OTHER_VERSION,
            code=code or "file.unsound",
        ) from error


def save(model: Any, path: PathLike, kind: str) -> None:
    """Write a model of type ``kind`` to a ``.skops`` file.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    target = Path(path)
    if target.suffix != ".skops":
        raise InputError(
            f"{target.name} does not end in .skops, the one file of a {kind} that is safe to read.",
            hint="name it so, or pickle the model yourself.",
        )
    skops_io = _skops("to write a .skops file")
    try:
        data = skops_io.dumps(model)
    except RecursionError:
        raise InputError(
            f"skops cannot write this {kind}: objects in it hold each other, as distributions of "
            "SciPy do.",
            hint="of a search give the best_estimator_, or pickle the model yourself.",
        ) from None
    except Exception as error:
        raise InputError(
            f"skops cannot write this {kind} ({error}).",
            hint="look for parameters that are objects or functions of your own.",
        ) from error
    target.write_bytes(data)


def _skops(purpose: str) -> Any:
    skops_io = import_library("skops.io", purpose)
    version = import_library("skops", purpose).__version__
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _OLDEST:
        raise MissingLibraryError(
            f"skops {version} is too old {purpose}: what it lets pass is not always safe.",
            hint='pip install --upgrade "timbermark[skops]"',
        )
    return skops_io


def _kind_in(schema: dict[str, Any]) -> str:
    kind, module = schema.get("__class__"), schema.get("__module__")
    return str(kind) if str(module).startswith("sklearn.") else f"{module}.{kind}"


def _schema_in(data: bytes, name: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
            if unpacked > most_unpacked(len(data)):
                raise ValueError(f"it would unpack to {unpacked} bytes")
            size = archive.getinfo("schema.json").file_size
            if size > _MOST_SCHEMA:
                raise ValueError(f"its schema has {size} bytes, at most {_MOST_SCHEMA} are read")
            schema: dict[str, Any] = json.loads(archive.read("schema.json"))
        if not {"__class__", "__module__"} <= set(schema):
            raise ValueError("its schema names no type")
        return schema
    except Exception as error:
        raise FileFormatError(
            f"{name} is not a skops archive ({error}).",
            hint="pickle and joblib files are not read, since reading them can run any code; load "
            "the model yourself if you trust it, and give that.",
        ) from error
