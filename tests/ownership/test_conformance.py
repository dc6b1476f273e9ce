"""The conformance kit: both verifiers say what every case expects, and the kit is whole."""

import json
import re
import sys

import pytest
from tools import conformance
from tools.conformance import KIT

from tests.ownership import independent_kit

CASES = conformance.list_cases()
SCHEMAS = {p.name: json.loads(p.read_text(encoding="utf-8")) for p in KIT.glob("*.schema.json")}


def expected(folder):
    return json.loads((folder / "case.json").read_text(encoding="utf-8"))["expected"]


@pytest.mark.parametrize("ask", [conformance.run, independent_kit.run], ids=["ours", "independent"])
def test_all_cases_are_answered_as_expected(ask, real_scrypt):
    # The formulae of scores take a second for a case where they are written out; ./dev conformance
    # runs all of them.
    slow = () if ask is conformance.run else ("scores-copy", "scores-innocent", "scores-silent")
    wrong = [
        f"{folder.name}: {said}"
        for folder in CASES
        if not (slow and folder.name.endswith(slow))
        and not conformance.is_same(said := ask(folder), expected(folder))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_kit_is_large_and_small_enough():
    refusals = [folder for folder in CASES if folder.name.endswith("_fail")]
    assert len(CASES) >= 120
    assert len(refusals) >= 80
    assert all(expected(folder)["result"] == "refused" for folder in refusals)
    assert {expected(folder)["class"] for folder in refusals} == {
        *("container", "content", "passphrase", "signature", "binding", "answers")
    }
    assert {expected(f).get("level", "none") for f in CASES} == {"none", "indicative", "conclusive"}
    done = {json.loads((f / "case.json").read_text(encoding="utf-8"))["do"] for f in CASES}
    assert done == set(conformance._DO) == set(independent_kit.DO)
    assert sum(path.stat().st_size for path in KIT.rglob("*") if path.is_file()) < 3 << 20


def fits(value, schema):
    """Return whether a value fits a schema; of JSON Schema only what the kit's own use."""
    if "$ref" in schema:
        return fits(value, SCHEMAS[schema["$ref"]])
    kinds = {"object": dict, "array": list, "string": str, "number": int | float, "integer": int,
             "null": type(None)}  # fmt: skip
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return False
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        together = schema.get("dependentRequired", {}).items()
        if not (
            set(schema.get("required", ())) <= set(value)
            and (rest or set(value) <= set(known))
            and all(fits(value[key], known[key]) for key in set(value) & set(known))
            and all(set(others) <= set(value) for key, others in together if key in value)
        ):
            return False
    branches = [one for one in schema.get("allOf", ()) if fits(value, one["if"])]
    return (
        value in schema.get("enum", [value])
        and schema.get("const", value) == value
        and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
        and ("minimum" not in schema or value >= schema["minimum"])
        and ("items" not in schema or all(fits(item, schema["items"]) for item in value))
        and ("anyOf" not in schema or any(fits(value, one) for one in schema["anyOf"]))
        and ("oneOf" not in schema or sum(fits(value, one) for one in schema["oneOf"]) == 1)
        and all(fits(value, one["then"]) for one in branches)
    )


def test_the_kit_fits_its_schemas():
    for folder in CASES:
        case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        assert fits(case, SCHEMAS["case.schema.json"]), folder.name
        assert not fits({**case, "more": 1}, SCHEMAS["case.schema.json"])
        assert not fits({**case, "expected": {}}, SCHEMAS["case.schema.json"])


def test_the_accumulated_vector_is_that_of_both():
    known = json.loads((KIT / "accumulated.json").read_text(encoding="utf-8"))["sha256"]
    assert set(known) == {"1000", "100000"}
    assert conformance.accumulate(1000) == known["1000"]
    assert conformance.accumulate(1000, independent_kit.accumulated) == known["1000"]


def test_a_program_that_accepts_everything_is_found_out(capsys):
    code = f"{sys.executable} -c \"print('{{}}')\""
    assert conformance.main(["--case", "claim-signature_fail", "--program", code]) == 1
    assert "1 answers are wrong" in capsys.readouterr().out


def test_the_program_of_the_independent_verifier(capsys, real_scrypt):
    code = f"{sys.executable} -m tests.ownership.independent_kit"
    assert conformance.main(["--case", "claim-signature_fail", "--program", code]) == 0
