"""Check a served model for a pipeline: enough evidence, and little else changed by marking.

A check is a list of findings that pass or fail. What cannot be checked (a mark of another model,
another library, no such file) is an error and not a failure.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from timbermark.ownership.columns import Column, plain_rows
from timbermark.ownership.mark import Mark
from timbermark.trees.ensemble import Ensemble
from timbermark.verification.refusals import check_number, refusal
from timbermark.verification.suspects import NamedModel, is_url, open_named, read_model
from timbermark.verification.table import is_answer_file
from timbermark.verification.verdict import Verdict, printable
from timbermark.verification.verifying import verify

_SHAPE = ("tree_start", "tree_output", "feature", "left", "right", "category_set")
"""What marking leaves as it is in every node of every tree."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: ``name`` is "evidence", "trees" or "answers"."""

    name: str
    passed: bool
    said: str  # in one sentence
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """What was found about a served model; it passed if every finding did."""

    findings: tuple[Finding, ...]
    verdict: Verdict
    changed: float | None = None  # of answers, if rows were given

    @property
    def passed(self) -> bool:
        """Return whether every finding passed."""
        return all(finding.passed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; nothing in it is secret."""
        return {
            "passed": self.passed,
            "findings": [
                {"name": f.name, "passed": f.passed, "said": f.said} for f in self.findings
            ],
            "changed": self.changed,
            "verdict": self.verdict.to_dict(),
        }

    def to_junit(self) -> bytes:
        """Return the findings as a JUnit XML file, one test case each."""
        failures = sum(not finding.passed for finding in self.findings)
        seconds = sum(finding.seconds for finding in self.findings)
        counts = {"tests": str(len(self.findings)), "failures": str(failures), "errors": "0"}
        suites = ElementTree.Element("testsuites", counts)
        about = {"name": "timbermark check", **counts, "skipped": "0", "time": f"{seconds:.3f}"}
        suite = ElementTree.SubElement(suites, "testsuite", about)
        properties = ElementTree.SubElement(suite, "properties")
        verdict = self.verdict
        for name, value in (
            ("suspect", verdict.suspect),
            ("bits", f"{verdict.bits:.3f}"),
            ("level", verdict.level),
            ("owner", verdict.owner),
            ("mark_id", verdict.mark_id),
            ("mark_digest", verdict.mark_digest),
        ):
            shown = {"name": name, "value": printable(value)}
            ElementTree.SubElement(properties, "property", shown)
        for finding in self.findings:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname="timbermark.check",
                name=finding.name,
                time=f"{finding.seconds:.3f}",
            )
            said = printable(finding.said)
            if finding.passed:
                ElementTree.SubElement(case, "system-out").text = said
            else:
                failed = {"message": said, "type": finding.name}
                ElementTree.SubElement(case, "failure", failed).text = said
        ElementTree.indent(suites)
        text: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
        return text + b"\n"


def check(
    served: Any,
    mark: Mark,
    *,
    at_least: float = 64.0,
    unmarked: str | os.PathLike[str] | None = None,
    rows: Any = None,
    max_changed: float = 0.01,
    **asking: Any,
) -> Check:
    """Check that a served model carries a mark, and that marking changed little else.

    ``served`` and ``asking`` are those of `timbermark.verify`. ``at_least``: the bits of evidence
    that are wanted. ``unmarked``: the file of the model before marking; the served one must be a
    file with the same trees but for thresholds and leaf values. ``rows`` [n, d], in the mark's
    columns: at most ``max_changed`` of the answers to them may differ from the unmarked model's;
    of numbers, that is the mean change relative to their standard deviation.

    Raises InputError where there is nothing to check: a mark that is worth less than ``at_least``,
    a model of another library, an unmarked model that is not the mark's.

    >>> import numpy as np
    >>> from timbermark import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0)[:, None], alphabets=[[0, 1]] * 100,
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> memory = dict(zip(mark.rows()[:, 0], mark.expected, strict=True))
    >>> check(lambda X: [memory[x] for x in X[:, 0]], mark, at_least=80).passed
    True
    >>> check(lambda X: ["no"] * len(X), mark).passed
    False
    """
    _check_limits(mark, at_least, unmarked, rows, max_changed)
    started = time.perf_counter()
    model = None
    if _is_model_file(served):
        model = read_model(served)
        _check_library(model, mark, served)
    elif unmarked is not None:
        raise refusal("check.no-file", served=printable(str(served))[:80])
    asked = served if model is None else open_named(model, f"file {os.fspath(served)}")
    verdict = verify(asked, mark, **asking)
    said = f"{verdict.bits:.1f} bits of evidence ({verdict.level}), at least {at_least:g} wanted."
    seconds = time.perf_counter() - started
    findings = [Finding("evidence", verdict.bits >= at_least, said, seconds)]
    changed = None
    if unmarked is not None:
        assert model is not None
        started = time.perf_counter()
        before = _read_unmarked(unmarked, mark)
        same = _same_shape(before.trees, model.trees)
        said = "The served model has the unmarked model's trees but for thresholds and leaf values."
        if not same:
            said = "The served model has other trees than the unmarked model."
        findings.append(Finding("trees", same, said, time.perf_counter() - started))
        if rows is not None:
            started = time.perf_counter()
            changed = _share_changed(before, model, rows)
            what = "of the answers changed"
            if before.trees.gives_numbers:
                what = "of their standard deviation is the mean change of answers"
            said = f"{changed:.3%} {what}, at most {max_changed:.3%} allowed."
            passed = changed <= max_changed
            findings.append(Finding("answers", passed, said, time.perf_counter() - started))
    return Check(tuple(findings), verdict, changed)


def _check_limits(mark: Mark, at_least: float, unmarked: Any, rows: Any, changed: float) -> None:
    if not (math.isfinite(at_least) and at_least > 0.0):
        raise refusal("check.at-least", at_least=at_least)
    if mark.full_bits < at_least:
        raise refusal("check.beyond-mark", at_least=at_least, worth=mark.full_bits)
    check_number("max_changed", changed, 0.0, 1.0)
    if rows is not None and unmarked is None:
        raise refusal("option.unfit", name="rows", what="a check against an unmarked model")


def _is_model_file(served: Any) -> bool:
    is_path = isinstance(served, str | os.PathLike) and not is_url(served)
    return is_path and not is_answer_file(served)


def _read_unmarked(path: Any, mark: Mark) -> NamedModel:
    """Return the unmarked model; its library is imported only where bare trees do not suffice."""
    for whole in (False, True):
        found = read_model(path, whole=whole)
        if found.digest == mark.model_digest:
            return found
    raise refusal("check.other-unmarked", unmarked=os.fspath(path))


def _check_library(model: NamedModel, mark: Mark, served: Any) -> None:
    found = "timbermark" if model.foreign is None else model.foreign.library
    wanted = mark.about.get("library")
    if wanted is not None and found != wanted:
        raise refusal("check.other-library", served=os.fspath(served), found=found, wanted=wanted)


def _same_shape(before: Ensemble, after: Ensemble) -> bool:
    return before.n_features == after.n_features and all(
        np.array_equal(getattr(before, name), getattr(after, name)) for name in _SHAPE
    )


def _share_changed(before: NamedModel, after: NamedModel, rows: Any) -> float:
    answers = [_answer(model, rows) for model in (before, after)]
    if before.trees.gives_numbers:
        old, new = (np.asarray(part, np.float64) for part in answers)
        spread = float(old.std())
        moved = float(np.abs(new - old).mean())
        return moved / spread if spread > 0.0 else float(moved > 0.0)
    return float((np.asarray(answers[0]) != np.asarray(answers[1])).mean())


def _answer(model: NamedModel, rows: Any) -> Any:
    suspect = open_named(model, "file")
    function: Mapping[str, Any] = suspect.functions
    names = suspect.facts.names if suspect.facts.takes_frames else None
    asked = rows if names is None else plain_rows([_column(cells) for cells in rows.T], names)
    return function["numbers" if "numbers" in function else "labels"](asked)


def _column(cells: Any) -> Column:
    """Return a column as numbers, or as texts where a cell is no number."""
    try:
        return np.asarray(cells, np.float64)
    except ValueError:
        return tuple(None if cell is None or cell != cell else str(cell) for cell in cells)
