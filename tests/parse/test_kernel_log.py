"""What the OOM killer writes into the kernel log, of several kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.kernel_log import oom_kills
from moetuned.schema.oom_kill import OomKill

ROUND = (
    "6,21194,32073615875,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/glm,task_memcg=/glm/a,task=llama-server,pid=10404,uid=0\n"
)
KILLED = (
    "3,21195,32073615896,-;Memory cgroup out of memory: Killed process 10404 (llama-server) total-vm:79540kB, "
    "anon-rss:24320kB, file-rss:6180kB, shmem-rss:0kB, UID:0 pgtables:116kB oom_score_adj:0\n"
)


def test_a_kill_and_whose_limit_it_was() -> None:
    assert oom_kills([ROUND, KILLED]) == (OomKill(10404, 32073.615896, "/glm"),)
    assert oom_kills([KILLED]) == (OomKill(10404, 32073.615896, None),)


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        ("Out of memory: Killed process 812 (x) total-vm:1kB", 812),
        ("Out of memory (oom_kill_allocating_task): Killed process 812 (x) total-vm:1kB", 812),
        ("Killed process 812 (x) total-vm:1kB, anon-rss:1kB", 812),
        ("Memory cgroup out of memory: Kill process 812 (x) score 900 or sacrifice child", None),
        ("Tasks in /x are going to be killed due to memory.oom.group set", None),
        ("oom_reaper: reaped process 812 (x), now anon-rss:0kB", None),
        ("x[3]: Killed process 812 (x) total-vm:1kB", None),
        ("Killed process 812", None),
        ("Killed process 99999999999 (x)", None),
    ],
)
def test_other_kernels_and_other_lines(text: str, pid: int | None) -> None:
    assert [kill.pid for kill in oom_kills([f"3,1,2000000,-;{text}\n"])] == ([] if pid is None else [pid])


def test_the_machine_s_own_memory_and_a_group() -> None:
    machine = ROUND.replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE")
    assert oom_kills([machine, KILLED])[0].limit_of == ""
    group = [ROUND, KILLED, KILLED.replace("10404", "10405")]
    assert [(kill.pid, kill.limit_of) for kill in oom_kills(group)] == [(10404, "/glm"), (10405, "/glm")]


def test_what_a_program_writes_into_the_log_is_not_the_kernel_s() -> None:
    assert oom_kills([KILLED.replace("3,", "11,", 1)]) == ()


@given(
    st.lists(
        st.text() | st.sampled_from([ROUND, KILLED]).flatmap(lambda one: st.integers(0, 300).map(lambda n: one[:n]))
    )
)
def test_no_text_breaks_it(records: list[str]) -> None:
    for kill in oom_kills(records):
        assert kill.pid >= 0
        assert kill.limit_of is None or kill.limit_of.isprintable()
