"""Each wrong meter, rater and bill is noticed by each of the cases that are named for it."""

import sys
from collections import Counter

import pytest

from tests.unit.pricing import mutants_of_terms  # registers its mutants
from tests.unit.pricing.mutants import MUTANTS, WrongMeter, lines, notices, right_answer


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_noticed(mutant: WrongMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mutant.caught_by
    for case_id in mutant.caught_by:
        right_answer(case_id)
    mutant.apply(monkeypatch)
    assert [case_id for case_id in mutant.caught_by if not notices(case_id)] == []


def test_each_rule_has_mutants_and_each_name_is_one() -> None:
    rules = Counter(mutant.rule for mutant in MUTANTS)
    assert set(rules) == {f"R{number}" for number in range(1, 14)} - {"R14"}
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 60
    assert {case_id for mutant in MUTANTS for case_id in mutant.caught_by} <= set(lines())


def main() -> None:
    """Lists which cases notice which mutant."""
    for case_id in lines():
        right_answer(case_id)
    for mutant in MUTANTS:
        if len(sys.argv) > 1 and mutant.name not in sys.argv[1:]:
            continue
        with pytest.MonkeyPatch.context() as patch:
            mutant.apply(patch)
            found = [case_id for case_id in lines() if notices(case_id)]
        missing = [case_id for case_id in mutant.caught_by if case_id not in found]
        print(f"{mutant.rule:<4}{mutant.name}: {len(found)}; not by {missing}; first: {found[:8]}")


if __name__ == "__main__":
    assert mutants_of_terms
    main()
