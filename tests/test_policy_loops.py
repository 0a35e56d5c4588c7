"""The loop detectors by themselves: what counts as the same, and when it is too often."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import Code, Failure, Happened, Loops, Outcome, Success
from laneway.benchmarks.transcripts import flagged, main, read, report
from laneway.errors import UsageError
from laneway.ids import CallId
from laneway.policies.findings import Finding, Stage, stopping
from laneway.policies.lately import Lately
from laneway.policies.loops import at_once, examine, same_in_a_row
from laneway.policies.polling import Poll, too_often
from laneway.policies.sameness import digest_of_results, key_of

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
ONE = CallId("t1.1")


class Came(msgspec.Struct):
    outcome: Outcome | None


def data(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the recorded material ../shared/data/{name} is not here")
    return path


class Play:
    """Asks for calls, one answer after the other; what would be refused is taken to run."""

    def __init__(self, loops: Loops | None = None) -> None:
        self.loops = loops or Loops()
        self.lately = Lately(self.loops.window)

    def answer(self, *calls: tuple[str, Any], effects: str = "") -> list[Finding | None]:
        """Each call is a letter and its result; None if it is never known."""
        self.lately.begin(object())
        return [self._one(name, result, effect=name in effects) for name, result in calls]

    def _one(self, name: str, result: Any, *, effect: bool) -> Finding | None:
        key = key_of("tool", name)
        seen = tuple(self.lately.entries)
        repeats = self.loops.repeats
        found = examine("tool", key, self.lately.turn, seen, self.loops, repeats=repeats)
        outcome = result if isinstance(result, Failure) else Success(value=result)
        came = {ONE: Came(None if result is None else outcome)}
        self.lately.add(key, "tool", self.lately.latest.get(key), (came, ONE), effect=effect)
        return found

    def each(self, calls: str, *, effects: str = "") -> list[str]:
        """One letter an answer, always with the same result; gives what was found, in letters."""
        found = [self.answer((name, name), effects=effects)[0] for name in calls]
        return ["-" if one is None else f"{one.stage}:{one.detector}" for one in found]


BLOCKED = "block:repeat"


# Exact repeats


def test_two_same_calls_run_and_the_third_is_blocked() -> None:
    assert Play().each("aaaa") == ["-", "-", BLOCKED, BLOCKED]


def test_what_else_was_read_in_between_makes_no_difference() -> None:
    assert Play().each("axayaza") == ["-", "-", "-", "-", BLOCKED, "-", BLOCKED]


def test_a_repeat_further_back_than_the_window_is_none() -> None:
    others = [f"{n}" for n in range(50)]
    play = Play()

    found = [play.answer((name, name))[0] for name in ["a", "a", *others[:48], "a"]]
    later = [play.answer((name, name))[0] for name in others]

    assert found[:-1] == [None] * 50
    assert found[-1] is not None
    assert later[-1] is None
    assert play.answer(("a", "a"))[0] is None


def test_a_repeat_whose_result_changes_is_no_loop() -> None:
    play = Play()

    assert [play.answer(("a", n))[0] for n in range(20)] == [None] * 20


def test_two_results_that_take_turns_are_no_repeat_but_a_sequence() -> None:
    play = Play()

    found = [play.answer(("toggle", on))[0] for on in [True, False] * 4]

    assert found[:4] == [None] * 4
    assert found[4] is not None
    assert found[4].stage is Stage.WARN
    last = found[6]
    assert last is not None
    assert (last.stage, last.detector) == (Stage.BLOCK, "rounds")


def test_a_new_effect_in_between_is_progress_and_a_repeated_one_is_not() -> None:
    play = Play()

    found = play.each("t1t2t3t4t", effects="1234")
    assert found == ["-"] * 9
    assert play.each("4t4t", effects="4") == ["-", "warn:rounds", BLOCKED, BLOCKED]


def test_an_effect_that_did_nothing_is_no_progress() -> None:
    refused = Failure(code=Code.TOOL_ERROR, message="No.", happened=Happened.NOTHING)
    partly = Failure(code=Code.TOOL_ERROR, message="No.", happened=Happened.PARTLY)
    one, other = Play(), Play()

    for play, came in ((one, refused), (other, partly)):
        play.answer(("t", "t"))
        play.answer(("t", "t"))
        play.answer(("edit", came), effects="edit")

    assert one.answer(("t", "t"))[0] is not None
    assert other.answer(("t", "t"))[0] is None


def test_within_one_answer_the_order_says_nothing_of_what_was_first() -> None:
    play = Play()
    play.answer(("t", "t"))
    play.answer(("edit", 1), ("t", "t"), effects="edit")
    other = Play()
    other.answer(("t", "t"))
    other.answer(("t", "t"), ("edit", 1), effects="edit")

    key = key_of("tool", "t")
    assert same_in_a_row(key, tuple(play.lately.entries)) == 1
    assert same_in_a_row(key, tuple(other.lately.entries)) == 1


def test_a_result_that_nobody_knows_is_not_the_same() -> None:
    play = Play()

    assert [play.answer(("a", None))[0] for _ in range(10)] == [None] * 10


def test_one_answer_counts_once_however_often_it_asks_the_same() -> None:
    play = Play()

    assert play.answer(*[("a", 1)] * 30) == [None] * 30
    assert play.answer(("a", 1)) == [None]
    assert play.answer(*[("a", 1)] * 2) == [None, None], "three results, and then one"
    assert len(play.lately.entries) == 3


def test_the_last_repeat_that_runs_comes_with_a_warning_where_there_was_one_before() -> None:
    play = Play(Loops(repeats=4))

    found = play.each("aaaaa")

    assert found == ["-", "-", "-", "warn:repeat", BLOCKED]


# Sequences


def rounds_only(**limits: Any) -> Play:
    return Play(Loops(repeats=None, **limits))


def test_a_sequence_is_blocked_after_three_rounds_with_a_warning_before() -> None:
    found = rounds_only().each("abababab")

    assert found == ["-"] * 4 + ["warn:rounds"] * 2 + ["block:rounds"] * 2


def test_sequences_of_every_length_that_fits_three_times_are_found() -> None:
    for period in range(2, 17):
        letters = "abcdefghijklmnop"[:period]
        found = rounds_only().each(letters * 3 + letters[0])

        assert found[-1] == "block:rounds", period
        assert "block:rounds" not in found[:-1]


def test_a_call_that_is_not_of_the_sequence_is_let_through_and_ends_it() -> None:
    play = rounds_only()
    play.each("ababab")

    assert play.each("xa") == ["-", "-"]


def test_the_same_call_over_and_over_is_no_sequence() -> None:
    assert rounds_only().each("a" * 40) == ["-"] * 40


def test_a_sequence_with_other_results_each_time_is_none() -> None:
    play = rounds_only()

    found = [play.answer((name, n // 2))[0] for n, name in enumerate("ab" * 8)]

    assert found == [None] * 16


# Little that is new


def few(different: int, *, of: int = 51) -> list[Finding | None]:
    play = Play(Loops(repeats=None, rounds=None))
    return [play.answer((f"{n % different}", "r"))[0] for n in range(of)]


def test_under_thirty_per_cent_of_a_full_window_warns_and_under_ten_blocks() -> None:
    assert few(15)[-1] is None
    warned, blocked = few(14), few(4)
    assert few(5)[-1] is not None
    assert [one.stage for one in few(5) if one] == [Stage.WARN]

    assert warned[:-1] == [None] * 50, "the window was not full"
    last = warned[-1]
    assert last is not None
    assert last.stage is Stage.WARN
    assert "of your last 50 calls only 14 were different ones" in last.message
    assert blocked[-1] is not None
    assert blocked[-1].stage is Stage.BLOCK


def test_what_is_new_is_let_through_even_then() -> None:
    play = Play(Loops(repeats=None, rounds=None))
    for n in range(50):
        play.answer((f"{n % 2}", "r"))

    (found,) = play.answer(("new", 1))

    assert found is not None
    assert found.stage is Stage.WARN


def test_calls_that_bring_other_results_count_as_different_ones() -> None:
    play = Play(Loops(repeats=None, rounds=None))

    assert not any(play.answer(("a", n))[0] for n in range(80))


# The same effect in one answer


def test_the_same_effect_is_not_done_for_ever_in_one_answer() -> None:
    assert at_once("pay", 49, Loops()) is None
    found = at_once("pay", 50, Loops())
    assert found is not None
    assert "pay with the same arguments more than 50 times in one answer" in found.message
    assert at_once("pay", 9999, Loops.OFF) is None


def test_a_stop_says_how_often_it_was_told() -> None:
    found = Finding(stage=Stage.BLOCK, detector="repeat", message="Again.", hint="")

    stop = stopping(found, 3)

    assert stop.stage is Stage.STOP
    assert stop.message == "Again. 3 answers in a row were so: the run stops here."
    assert stopping(found, 1).message == "Again. It is so: the run stops here."


# The same, or not


def test_key_order_spacing_and_ids_make_no_difference_and_everything_else_does() -> None:
    one = json.loads('{"cmd": "true",   "timeout": 5}')
    other = json.loads('{"timeout":5,"cmd":"true"}')

    assert key_of("bash", one) == key_of("bash", other)
    assert key_of("bash", one) != key_of("sh", one)
    assert key_of("bash", one) != key_of("bash", {**one, "timeout": "5"})


def same(one: Any, other: Any) -> bool:
    return digest_of_results([Success(value=one)]) == digest_of_results([Success(value=other)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 hits at 10:01", "3 hits at 10:02"),
        ({"at": "2024-05-06T07:08:09.123Z", "n": 3}, {"at": "2024-05-06T07:09:10+02:00", "n": 3}),
        ("2024-05-06 07:08 ok", "2024-05-07 23:59:59 ok"),
        ("log\n10:01:02,345 failed", "log\n11:01:02,345 failed"),
        ("3 failed in 0.12s", "3 failed in 1.05s"),
        ("Ran 5 tests in 0.001 seconds", "Ran 5 tests in 0.2 seconds"),
    ],
)
def test_a_clock_in_a_result_makes_no_difference(one: Any, other: Any) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10:01", "10:02"),
        (["10:01"], ["10:02"]),
        ("4 hits at 10:01", "3 hits at 10:01"),
        ("a.py:10:12: error", "a.py:11:12: error"),
        ("ratio 10:99", "ratio 10:98"),
        (1, 2),
        (1, 1.0),
        ("pid 1234", "pid 1235"),
        ("released 2024-05-06", "released 2024-05-07"),
        ("", "x"),
        (None, False),
    ],
)
def test_everything_else_does(one: Any, other: Any) -> None:
    assert not same(one, other)


def test_a_failure_is_told_by_its_code_and_message_and_a_cancellation_says_nothing() -> None:
    gone = Failure(code=Code.TOOL_ERROR, message="gone", retry=True)
    late = Failure(code=Code.TIMEOUT, message="gone")
    cancelled = Failure(code=Code.CANCELLED, message="gone")

    assert digest_of_results([gone]) == digest_of_results(
        [Failure(code=Code.TOOL_ERROR, message="gone")]
    )
    assert digest_of_results([gone]) != digest_of_results([late])
    assert digest_of_results([cancelled]) is None
    assert digest_of_results([gone, None]) is None
    assert digest_of_results([]) is None


# Polling


def polled(*results: Any) -> int:
    poll = Poll()
    for turn, result in enumerate(results, 1):
        came = {ONE: Came(None if result is None else Success(value=result))}
        poll.add(turn, (came, ONE))
    return poll.settle()


def test_a_polled_tool_counts_how_often_in_a_row_it_brought_the_same() -> None:
    assert polled() == 0
    assert polled(1) == 1
    assert polled(1, 1, 1) == 3
    assert polled(1, 1, 2) == 1
    assert polled(1, None, 1) == 1


def test_it_is_refused_too_soon_and_too_often() -> None:
    limits = {"every_seconds": 5.0, "most": 3}

    assert too_often("job", 2, 5.0, **limits) is None  # type: ignore[arg-type]
    soon = too_often("job", 2, 1.25, **limits)  # type: ignore[arg-type]
    often = too_often("job", 3, 9.0, **limits)  # type: ignore[arg-type]

    assert soon is not None
    assert soon.retry
    assert soon.message == "job was asked the same 1.2 s ago; it may be asked every 5 s."
    assert soon.hint.startswith("Ask again in 3.8 s")
    assert often is not None
    assert "the same result 3 times in a row" in often.message


# Limits


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"repeats": 0}, "Loops.repeats is 0; give a whole number of 1 or more, or None"),
        ({"rounds": 1}, "Loops.rounds is 1; give a whole number of 2 or more, or None"),
        ({"window": 3}, "Loops.window is 3; give a whole number of 4 or more, or None"),
        ({"window": None}, "Loops.window is None; give a whole number of 4 or more"),
        ({"stop_after": True}, "Loops.stop_after is True; give a whole number of 1 or more"),
        ({"warn_below": 30}, "Loops.warn_below is 30; give a share from 0 to 1, or None"),
        ({"block_below": True}, "Loops.block_below is True; give a share from 0 to 1, or None"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(limits: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        Loops(**limits)

    assert str(refused.value).startswith(told)


def test_with_all_limits_lifted_nothing_is_found() -> None:
    assert Play(Loops.OFF).each("a" * 60 + "ab" * 30) == ["-"] * 120


# Against a naive reading of the rules

Asked = tuple[str, int, bool]
"""A call's letter, its result, and whether it has an effect."""


def naive(answers: Sequence[Sequence[Asked]], coming: str, loops: Loops) -> str:
    """Read the rules off the whole history, without windows that move or counts that are kept."""
    entries: list[tuple[int, str, tuple[int, ...], bool, bool]] = []
    for number, answer in enumerate(answers):
        for name in dict.fromkeys(name for name, _, _ in answer):
            results = tuple(result for one, result, _ in answer if one == name)
            effect = next(has for one, _, has in answer if one == name)
            fresh = name not in {entry[1] for entry in entries[-loops.window :]}
            entries.append((number, name, results, effect, fresh))
    window = entries[-loops.window :]
    assert loops.repeats is not None
    assert loops.rounds is not None
    assert loops.block_below is not None
    news = [one[0] for one in window if one[3] and one[4] and one[1] != coming]
    mine = [one for one in window if one[1] == coming and one[0] >= max(news, default=0)]
    last = mine[-loops.repeats :]
    if len(last) == loops.repeats and len({one[2] for one in last}) == 1:
        return "repeat"
    pairs = [one[1:3] for one in sorted(window, key=lambda one: (one[0], key_of("tool", one[1])))]
    for period in range(2, len(pairs) // loops.rounds + 1):
        block = pairs[-period:]
        repeated = pairs[-period * loops.rounds :] == block * loops.rounds
        if repeated and len(set(block)) > 1 and coming in {name for name, _ in block}:
            return "rounds"
    full = len(window) == loops.window
    share = len({one[1:3] for one in window}) / len(window) if window else 1.0
    if full and share < loops.block_below and coming in {one[1] for one in window}:
        return "diversity"
    return ""


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), min_size=1, max_size=3),
        max_size=24,
    ),
    st.sampled_from("abc"),
    st.sampled_from(["", "a", "ab"]),
    st.builds(
        Loops,
        repeats=st.integers(1, 4),
        rounds=st.integers(2, 3),
        window=st.integers(4, 12),
        block_below=st.sampled_from([0.1, 0.3, 0.6]),
    ),
)
def test_the_detectors_find_what_a_naive_reading_finds(
    answers: list[list[tuple[str, int]]], coming: str, effects: str, loops: Loops
) -> None:
    play = Play(loops)
    for answer in answers:
        play.answer(*answer, effects=effects)
    told = [[(name, result, name in effects) for name, result in answer] for answer in answers]

    (found,) = play.answer((coming, 0))

    blocked = found.detector if found is not None and found.stage is Stage.BLOCK else ""
    assert blocked == naive(told, coming, loops)


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4), max_size=60))
def test_what_is_remembered_is_bounded_and_counts_the_different_ones(
    answers: list[list[str]],
) -> None:
    lately = Lately(5, least=3.0)

    for answer in answers:
        lately.begin(object())
        for name in answer:
            key = name.encode()
            lately.add(key, "t", lately.latest.get(key), ({}, ONE), effect=False)

    keys = [entry.key for entry in lately.entries]
    assert len(keys) <= 5
    assert set(lately.latest) == set(keys)
    assert all(
        lately.latest[entry.key] is [one for one in lately.entries if one.key == entry.key][-1]
        for entry in lately.entries
    )
    assert lately.few == (len(keys) == 5 and len(set(keys)) < 3)


# Recorded loops, and what only looks like one


def parsed(text: str) -> tuple[str, str]:
    return text, "same"


def reports(kind: str) -> list[Mapping[str, Any]]:
    lines = data("field_reports.jsonl").read_text(encoding="utf-8").splitlines()
    return [one for one in map(json.loads, lines) if one["class"] == kind]


def test_field_reports_of_sequences_are_loops() -> None:
    found = reports("loop_period_2")
    assert found

    for one in found:
        sequence = one["sample"]["sequence"]
        play, rounds = Play(), rounds_only()
        told = [play.answer(parsed(call))[0] for call in sequence]
        for call in sequence:
            rounds.answer(parsed(call))
        (next_one,) = rounds.answer(parsed(sequence[0]))

        assert any(told), one["id"]
        assert next_one is not None
        assert next_one.detector == "rounds"
        assert f"the same {one['expect']['period']} calls" in next_one.message


def test_field_reports_of_results_that_carry_a_clock_are_loops() -> None:
    found = reports("loop_varying_result")
    assert found

    for one in found:
        play = Play()
        pairs = zip(one["sample"]["sequence"], one["sample"]["results"], strict=True)
        told = [play.answer(pair)[0] for pair in pairs]

        assert told[:2] == [None, None]
        assert told[2] is not None, one["id"]


def test_field_reports_of_parallel_batches_are_loops_whatever_their_order() -> None:
    found = reports("loop_parallel_batch")
    assert found

    for one in found:
        turns = one["sample"]["turns"]
        play, rounds = Play(), rounds_only()
        told = [play.answer(*map(parsed, turn)) for turn in turns]
        for turn in turns:
            rounds.answer(*map(parsed, turn))

        assert all(call is not None for call in told[2]), one["id"]
        assert all(call is not None for call in rounds.answer(*map(parsed, turns[0])))


LOOPS = {"swe-agent/crypto/eps", "tau-airline/9.2.109"}
"""The two that repeat a block three times over with the same results, of both halves."""
RETRIED = {"tau-airline/11.2.111"}
"""Not a block, but the same refused booking a third time, with only reading in between."""


def test_of_the_recorded_transcripts_the_loops_are_stopped_and_nothing_human() -> None:
    transcripts = list(read(data("transcripts.jsonl")))

    stopped = {
        found.transcript
        for one in transcripts
        for found in flagged(one)
        if found.found.stage is not Stage.WARN
    }
    warned = {found.transcript for one in transcripts for found in flagged(one)} - stopped
    print(*report(transcripts), sep="\n")

    here = {one["id"] for one in transcripts}
    assert stopped == (LOOPS | RETRIED) & here
    assert warned == set()
    assert not [one for one in stopped if "gold" in one or one.startswith(("tau2", "bfcl"))]


def test_by_sequences_alone_it_is_exactly_the_two_that_were_found_by_hand() -> None:
    transcripts = list(read(data("transcripts.jsonl")))
    limits = Loops(repeats=None, rounds=2)  # what is flagged is asked for a third time

    stopped = {
        found.transcript
        for one in transcripts
        for found in flagged(one, limits)
        if found.found.stage is Stage.BLOCK
    }

    assert "tau-airline/9.2.109" in stopped
    assert stopped <= LOOPS


def test_by_the_calls_alone_gold_sequences_would_be_stopped() -> None:
    transcripts = list(read(data("transcripts.jsonl")))

    stopped = {found.transcript for one in transcripts for found in flagged(one, by_calls=True)}

    gold = {one for one in stopped if one.startswith(("tau2", "bfcl"))}
    assert gold <= {f"tau2-banking_knowledge/task_0{number}" for number in (32, 34)}
    assert gold


def test_the_replay_of_transcripts_is_a_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    call, result = {"id": "1", "name": "look", "arguments": {}}, {"call_id": "1", "sha": "x"}
    turns: list[dict[str, Any]] = [{"calls": [call], "results": [result]}] * 3
    path = tmp_path / "some.jsonl"
    path.write_text(
        json.dumps({"id": "stuck", "turns": turns})
        + "\n"
        + json.dumps({"id": "told", "turns": [{**one, "user": "again"} for one in turns]})
        + "\n"
    )

    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stuck  turn 2  look  block (repeat): You keep asking for look")
    assert lines[1:] == ["1 of 2 transcripts have a call that would be refused"]
    assert main([]) == 2
    assert "FILE" in capsys.readouterr().err
