import pytest
from fake_model import USED, make_engine, make_task

from moetuned.parse.llama_http import parse_llama_http


class HangError(Exception):
    pass


def raise_hang():
    raise HangError


def step(engine):
    engine._decode(engine._next_batch())


def run(engine, *tasks):
    for task in tasks:
        engine.submit(task)
    decodes = 0
    while not all(task.finished.is_set() for task in tasks):
        step(engine)
        decodes += 1
    return decodes


def test_a_request_takes_a_decode_for_the_prompt_and_one_for_each_further_token():
    engine, _, _ = make_engine()
    task = make_task(prompt_tokens=5, limit=4)
    assert run(engine, task) == 4
    assert (task.processed, task.decoded, task.stop_type, task.truncated) == (5, 4, "limit", False)
    assert len("".join(task.text)) == 4
    counters, busy, waiting = engine.counters()
    assert (counters.decodes, counters.prompt_tokens, counters.predicted_tokens, counters.longest) == (4, 5, 4, 9)
    assert (busy, waiting) == (0, 0)


def test_each_token_touches_the_other_bytes_and_its_experts_of_every_layer():
    engine, model, _ = make_engine()
    run(engine, make_task(prompt_tokens=1, limit=3))
    assert model.other == 3
    assert [layer for layer, _ in model.experts] == [0, 1, 2] * 3
    assert all(len(experts) == USED for _, experts in model.experts)


def test_a_prompt_goes_by_batches_and_micro_batches_and_touches_more_experts():
    engine, model, _ = make_engine(batch=64, ubatch=16)
    task = make_task(prompt_tokens=100, limit=1)
    engine.submit(task)
    step(engine)
    assert (task.processed, task.decoded) == (64, 0)
    assert model.other == 4
    assert len(model.experts[0][1]) > USED
    step(engine)
    assert (task.processed, task.decoded, task.finished.is_set()) == (100, 1, True)
    assert model.other == 4 + 3


def test_slots_share_a_decode_and_the_rest_waits():
    engine, _, _ = make_engine(slots=2)
    tasks = [make_task(limit=3, seed=seed) for seed in range(3)]
    for task in tasks:
        engine.submit(task)
    step(engine)
    assert engine.counters()[1:] == (2, 1)
    assert [task.decoded for task in tasks] == [1, 1, 0]
    step(engine)
    step(engine)
    assert [task.finished.is_set() for task in tasks] == [True, True, False]
    step(engine)
    assert tasks[2].decoded == 1


def test_the_context_ends_a_request_without_a_limit():
    engine, _, _ = make_engine(slot_context=32)
    task = make_task(prompt_tokens=10, limit=1 << 30)
    run(engine, task)
    assert (task.position, task.stop_type, task.truncated) == (32, "limit", True)


def test_an_end_of_text_comes_unless_it_is_ignored():
    engine, _, _ = make_engine(slot_context=1 << 14)
    free, ignoring = make_task(limit=8000, ignore_eos=False), make_task(limit=8000)
    run(engine, free)
    assert free.stop_type == "eos"
    assert free.decoded < 8000
    run(engine, ignoring)
    assert ignoring.decoded == 8000


def test_finished_requests_grow_the_prompt_cache():
    engine, _, cache = make_engine()
    run(engine, make_task(prompt_tokens=6, limit=4))
    assert cache.used_bytes == 10 * 64
    run(engine, make_task(prompt_tokens=6, limit=4))
    assert cache.used_bytes == 20 * 64


def test_a_cancelled_task_frees_its_slot_and_a_waiting_one_leaves_the_queue():
    engine, _, _ = make_engine()
    running, waiting = make_task(limit=1000), make_task()
    engine.submit(running)
    engine.submit(waiting)
    step(engine)
    engine.cancel(waiting)
    assert waiting.finished.is_set()
    engine.cancel(running)
    step(engine)
    assert running.finished.is_set()
    assert engine.counters()[1:] == (0, 0)


def test_a_simulated_hang_stops_after_the_tokens_and_stays_busy():
    engine, _, _ = make_engine(hang_after_tokens=3)
    task = make_task(limit=10)
    engine.submit(task)
    with pytest.raises(HangError):
        engine.run(raise_hang)
    assert task.decoded == 3
    assert engine.counters()[1] == 1
    assert not task.finished.is_set()


def test_slots_before_during_and_after_a_request():
    engine, _, _ = make_engine()
    assert engine.slots() == [{"id": 0, "n_ctx": 256, "speculative": False, "is_processing": False}]
    task = make_task(prompt_tokens=5, limit=4)
    engine.submit(task)
    step(engine)
    during = engine.slots()[0]
    assert during["is_processing"] is True
    assert during["n_prompt_tokens_processed"] == 5
    assert during["next_token"] == [{"has_next_token": True, "has_new_line": False, "n_remain": 3, "n_decoded": 1}]
    run(engine)
    while not task.finished.is_set():
        step(engine)
    after = engine.slots()[0]
    assert (after["is_processing"], after["n_prompt_tokens"], after["next_token"][0]["n_decoded"]) == (False, 9, 4)


def test_the_daemons_own_parser_understands_the_slots():
    import json

    engine, _, _ = make_engine()
    engine.submit(make_task(limit=9))
    step(engine)
    step(engine)
    parsed = parse_llama_http({"/health": '{"status":"ok"}', "/slots": json.dumps(engine.slots())})
    assert parsed.health == "ok"
    slot = parsed.slots[0]
    assert (slot.processing, slot.context_length, slot.decoded_tokens, slot.prompt_tokens_processed) == (
        True,
        256,
        2,
        5,
    )
