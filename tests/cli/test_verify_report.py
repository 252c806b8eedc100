from __future__ import annotations

from moetuned.cli.verify_report import GivenSums, Report, build_report
from moetuned.host.checksum_sources import Expected
from moetuned.host.model_check import ModelCheck, PartCheck, Problem
from moetuned.host.model_hash import HashOutcome
from moetuned.parse.checksum_list import Checksum

A, B, C = "a" * 64, "b" * 64, "c" * 64
ONE, TWO = PartCheck("/m/1.gguf", 10, None), PartCheck("/m/2.gguf", 20, None)


def report(
    *parts: PartCheck,
    expected: dict[str, str] | None = None,
    hashed: dict[str, HashOutcome] | None = None,
    given: GivenSums | None = None,
    problems: tuple[Problem, ...] = (),
) -> tuple[Report, list[str]]:
    notes: list[str] = []
    wanted = {path: Expected(one, None, "/m/SHA256SUMS") for path, one in (expected or {}).items()}
    return build_report("/m/1.gguf", ModelCheck(parts, problems), wanted, given, hashed or {}, notes), notes


def test_all_equal():
    found, _ = report(
        ONE, TWO, expected={ONE.path: A, TWO.path: B}, hashed={ONE.path: HashOutcome(A), TWO.path: HashOutcome(B)}
    )
    assert (found.ok, found.content_compared, found.size_bytes) == (True, True, 30)
    assert [part.content for part in found.parts] == ["equal", "equal"]
    assert {part.expected_from for part in found.parts} == {"/m/SHA256SUMS"}


def test_different_content_names_both_sums():
    found, _ = report(ONE, expected={ONE.path: A}, hashed={ONE.path: HashOutcome(B)})
    assert (found.ok, found.content_compared, found.parts[0].content) == (False, True, "different")
    (problem,) = found.parts[0].problems
    assert problem.kind == "content"
    assert A in problem.sentence
    assert B in problem.sentence


def test_swapped_contents_are_recognised():
    hashed = {ONE.path: HashOutcome(B), TWO.path: HashOutcome(A)}
    found, _ = report(ONE, TWO, expected={ONE.path: A, TWO.path: B}, hashed=hashed)
    assert "1.gguf has the content of 2.gguf" in found.parts[0].problems[0].sentence
    assert "2.gguf has the content of 1.gguf" in found.parts[1].problems[0].sentence


def test_nothing_to_compare_with_is_no_fault():
    found, _ = report(ONE, TWO, expected={ONE.path: A}, hashed={ONE.path: HashOutcome(A)})
    assert (found.ok, found.content_compared) == (True, False)
    assert [part.content for part in found.parts] == ["equal", "not_compared"]


def test_a_file_that_could_not_be_read():
    found, _ = report(ONE, expected={ONE.path: A}, hashed={ONE.path: HashOutcome(problem="cannot be read")})
    assert not found.ok
    assert found.parts[0].content == "not_read"
    assert found.parts[0].problems == (Problem("unreadable", "1.gguf cannot be read"),)


def test_a_name_that_the_given_list_does_not_have():
    given = GivenSums((Checksum("x.gguf", A),), "/list")
    found, notes = report(ONE, hashed={ONE.path: HashOutcome(A)}, given=given)
    assert (found.ok, found.parts[0].content, found.parts[0].expected_from) == (True, "equal", "/list")
    assert notes == ["1.gguf is not named in /list, but it has the content of x.gguf"]
    found, _ = report(ONE, hashed={ONE.path: HashOutcome(B)}, given=given)
    assert not found.ok
    assert found.parts[0].problems[0].kind == "unlisted"


def test_problems_of_the_whole_count():
    found, _ = report(ONE, problems=(Problem("mixed", "they do not fit"),))
    assert not found.ok
    bad = PartCheck("/m/1.gguf", None, None, (Problem("missing", "it is missing"),))
    found, _ = report(bad, expected={bad.path: A})
    assert (found.ok, found.parts[0].content) == (False, "not_read")
