"""Tests of SubTracker and sub_track: the marks that they write."""

from __future__ import annotations

import asyncio
import copy
import csv
import errno
import functools
import os
import pathlib
import pickle
import signal
import sqlite3
import threading
import unittest
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import ClassVar
from unittest import mock

from gpu_track import SubTracker, sub_track, sub_tracker
from gpu_track._marks import COLUMNS, CsvFile
from gpu_track_tests.places import InDirectory, wait_until


def marks(path: str | pathlib.Path) -> list[tuple[int, str, int, float]]:
    """The rows of a file, which must have gpu_tracker's form."""
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == COLUMNS.split(","), head
    return [(int(pid), name, int(position), float(time)) for pid, name, position, time in rows]


def calls(path: str | pathlib.Path) -> list[str]:
    """The names of the calls, which must have two marks each."""
    rows = marks(path)
    for start, stop in zip(rows[::2], rows[1::2]):
        assert (start[:2], start[2], stop[2]) == (stop[:2], 0, 1), (start, stop)
        assert start[3] <= stop[3], (start, stop)
    return [name for _, name, _, _ in rows[::2]]


class Marks(InDirectory):
    # Requirement: PY-10
    def test_file_has_the_form_of_gpu_tracker(self) -> None:
        with SubTracker('load, "all" of 5%', sub_tracking_file="marks.csv") as block:
            self.assertEqual((block.code_block_name, block.process_id), ('load, "all" of 5%', os.getpid()))
        text = pathlib.Path("marks.csv").read_text(encoding="utf-8")
        form = rf'{COLUMNS}\n({os.getpid()},"load, ""all"" of 5%",[01],\d{{10}}\.\d{{9}}\n){{2}}'
        self.assertRegex(text, rf"\A{form}\Z")
        self.assertEqual(calls("marks.csv"), ['load, "all" of 5%'])

    # Requirement: PY-10
    def test_database_has_the_form_of_gpu_tracker(self) -> None:
        for name in ("a", "it's"):
            with SubTracker(name, sub_tracking_file="marks.sqlite"):
                pass
        with closing(sqlite3.connect("marks.sqlite")) as connection:
            ((schema,),) = connection.execute("SELECT sql FROM sqlite_master")
            rows = connection.execute("SELECT process_id, code_block_name, position FROM data").fetchall()
        self.assertIn("process_id INTEGER, code_block_name VARCHAR, position INTEGER, timestamp FLOAT", schema)
        pid = os.getpid()
        self.assertEqual(rows, [(pid, "a", 0), (pid, "a", 1), (pid, "it's", 0), (pid, "it's", 1)])

    def test_times_are_read_back_as_they_were(self) -> None:
        from gpu_track._marks import mark_file  # noqa: PLC0415

        file = mark_file("marks.csv")
        file.open(overwrite=False)
        begin = 1_700_000_000_000_000_000
        times_ns = [begin + step * number for step in (7, 9_876_543, 123_456_789) for number in range(1000)]
        # Of a clock that was set back, and of whole seconds.
        times_ns += [begin + 5, begin, begin, begin + 1_000_000_000]
        for start, stop in zip(times_ns[::2], times_ns[1::2]):
            file.add(file.form("block"), start, stop)
        self.assertEqual([time for _, _, _, time in marks("marks.csv")], [ns / 1_000_000_000 for ns in times_ns])

    # Requirement: PY-10
    def test_names_are_those_of_gpu_tracker_if_none_is_given(self) -> None:
        block = SubTracker()
        here = f"{os.path.relpath(__file__)}:"
        self.assertRegex(block.code_block_name, rf"\A{here}\d+\Z")
        self.assertEqual(SubTracker(code_block_attribute="load").code_block_name, f"{here}load")
        self.assertEqual(block.sub_tracking_file, f"{os.getpid()}.csv")

        @sub_track(sub_tracking_file="marks.csv")
        def load() -> None:
            """Loads."""

        load()
        self.assertEqual((load.__name__, load.__doc__), ("load", "Loads."))
        self.assertEqual(calls("marks.csv"), [f"{os.path.abspath(__file__)}:load"])

    def test_name_that_is_no_text_is_shown_as_one(self) -> None:
        with SubTracker(5, sub_tracking_file="marks.csv"):  # type: ignore[arg-type]
            pass
        self.assertEqual(calls("marks.csv"), ["5"])

    # Requirement: PY-10
    def test_copy_has_the_name_and_the_file_and_is_not_entered(self) -> None:
        block = SubTracker("block", sub_tracking_file="marks.csv")
        with block:
            for other in (copy.copy(block), copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
                other.__exit__(None, None, None)
                with other:
                    pass
        self.assertEqual(calls("marks.csv"), ["block"] * 4)
        starts = [time for _, _, position, time in marks("marks.csv") if position == 0]
        self.assertLess(starts[-1], min(starts[:-1]))

    def test_one_decorator_of_two_functions_names_both(self) -> None:
        mark = sub_track(sub_tracking_file="marks.csv")
        mark(len)([])
        mark(max)([1])
        self.assertEqual([name.rpartition(":")[2] for name in calls("marks.csv")], ["len", "max"])

    def test_block_that_fails_is_marked_and_its_error_passes(self) -> None:
        @sub_track("fails", sub_tracking_file="marks.csv")
        def fail() -> None:
            raise KeyError("x")

        with self.assertRaises(KeyError):
            fail()
        self.assertEqual(calls("marks.csv"), ["fails"])

    # Requirement: PY-10
    def test_existing_file_is_refused_or_overwritten(self) -> None:
        for end in ("csv", "sqlite"):
            name = f"old.{end}"
            pathlib.Path(name).write_text("old", encoding="utf-8")
            refused = f"File {name} already exists. Set overwrite to True to overwrite the existing file."
            with self.assertRaisesRegex(FileExistsError, refused), SubTracker("b", sub_tracking_file=name):
                self.fail("the block is entered")
            self.assertEqual(pathlib.Path(name).read_text(encoding="utf-8"), "old")
            with SubTracker("b", sub_tracking_file=name, overwrite=True):
                pass
            self.assertGreater(len(pathlib.Path(name).read_bytes()), 50)
        with self.assertRaisesRegex(ValueError, 'Invalid file name: "a.txt". Valid file extensions are ".csv" and'):
            SubTracker("b", sub_tracking_file="a.txt")


class Nesting(InDirectory):
    # Requirement: PY-11
    def test_nested_and_recursive_blocks_have_their_own_calls(self) -> None:
        @sub_track("again", sub_tracking_file="marks.csv")
        def again(depth: int) -> int:
            return again(depth - 1) + 1 if depth else 1

        block = SubTracker("same", sub_tracking_file="marks.csv")
        with SubTracker("outer", sub_tracking_file="marks.csv"):
            self.assertEqual(again(4), 5)
            with block, block:
                pass
        self.assertEqual(calls("marks.csv"), ["again"] * 5 + ["same"] * 2 + ["outer"])
        spans = [(row[3], stop[3]) for row, stop in zip(marks("marks.csv")[::2], marks("marks.csv")[1::2])]
        for inner, outer in zip(spans[:4], spans[1:5]):
            self.assertTrue(outer[0] <= inner[0] <= inner[1] <= outer[1], spans)

    # Requirement: PY-11
    def test_threads_write_whole_lines(self) -> None:
        block = SubTracker("shared", sub_tracking_file="marks.csv")

        def work(number: int) -> None:
            for _ in range(500):
                with SubTracker(f"thread {number}", sub_tracking_file="marks.csv"), block:
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = marks("marks.csv")
        for name, count in (*((f"thread {number}", 500) for number in range(8)), ("shared", 4000)):
            positions = [position for _, found, position, _ in rows if found == name]
            self.assertEqual((positions.count(0), positions.count(1)), (count, count), name)

    # Requirement: PY-11
    def test_threads_that_write_at_the_turn_of_a_second_have_their_own_times(self) -> None:
        second_ns = 1_700_000_000_000_000_000

        class Interrupted(CsvFile):
            """A file whose other thread writes as soon as one has read what they share."""

            others: ClassVar[list[int]] = []

            @property
            def _second(self) -> tuple[int, int, bytes]:
                shared = self.shared
                while self.others:
                    ns = self.others.pop()
                    self.add(self.form("other"), ns, ns)
                return shared

            @_second.setter
            def _second(self, value: tuple[int, int, bytes]) -> None:
                self.shared = value

        file = Interrupted("marks.csv")
        file.open(overwrite=False)
        file.add(file.form("block"), second_ns, second_ns)
        # The other thread is in the next second by then.
        file.others.append(second_ns + 1_000_000_100)
        file.add(file.form("block"), second_ns + 1, second_ns + 1_000_000_200)
        times = [time for _, name, _, time in marks("marks.csv") if name == "block"]
        self.assertEqual(times[2:], [(second_ns + 1) / 1e9, (second_ns + 1_000_000_200) / 1e9])

    # Requirement: PY-11
    def test_coroutines_are_marked_until_they_are_over(self) -> None:
        order: list[str] = []

        @sub_track("wait", sub_tracking_file="marks.csv")
        async def wait(name: str, own: asyncio.Event, other: asyncio.Event) -> str:
            order.append(name)
            own.set()
            await other.wait()
            order.append(name)
            return name

        async def main() -> list[str]:
            first, second = asyncio.Event(), asyncio.Event()
            return list(await asyncio.gather(wait("a", first, second), wait("b", second, first)))

        self.assertEqual(asyncio.run(main()), ["a", "b"])
        self.assertEqual(sorted(order[:2]), ["a", "b"], "both run at the same time")
        rows = marks("marks.csv")
        self.assertEqual([position for _, _, position, _ in sorted(rows, key=lambda row: row[3])], [0, 0, 1, 1])

    # Requirement: PY-11
    def test_object_that_tasks_and_threads_share_has_the_start_of_each(self) -> None:
        block = SubTracker("shared", sub_tracking_file="marks.csv")

        async def main() -> None:
            first, second = asyncio.Event(), asyncio.Event()

            async def early() -> None:
                with block:
                    first.set()
                    await second.wait()

            async def late() -> None:
                await first.wait()
                with block:
                    second.set()
                    await tasks[0]

            with block:
                tasks = [asyncio.get_running_loop().create_task(work()) for work in (early, late)]
                await tasks[1]

        asyncio.run(main())
        early, late, outer = zip(marks("marks.csv")[::2], marks("marks.csv")[1::2])
        self.assertTrue(outer[0][3] <= early[0][3] < late[0][3] < early[1][3] <= late[1][3] <= outer[1][3])

        entered, left = threading.Event(), threading.Event()

        def work() -> None:
            with block:
                entered.set()
                left.wait()

        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
        with block:
            left.set()
            thread.join()
        threads, own = list(zip(marks("marks.csv")[::2], marks("marks.csv")[1::2]))[3:]
        self.assertTrue(threads[0][3] <= own[0][3] <= threads[1][3] <= own[1][3], (threads, own))

    # Requirement: PY-11
    def test_block_can_be_left_out_of_order_and_by_another_thread(self) -> None:
        a, b = (SubTracker(name, sub_tracking_file="marks.csv") for name in "ab")
        a.__enter__()
        for _ in range(3):
            for entered, left in ((b, a), (a, b)):
                entered.__enter__()
                left.__exit__(None, None, None)
        depth, entry = 0, sub_tracker._innermost.get()
        while entry is not None:
            depth, entry = depth + 1, entry.around
        self.assertEqual(depth, 1, "what was left is forgotten")
        thread = threading.Thread(target=a.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        a.__exit__(None, None, None)
        self.assertEqual(calls("marks.csv"), ["a", "b"] * 3 + ["a"])
        with b:
            self.assertIs(sub_tracker._innermost.get().around, None)  # type: ignore[union-attr]

    # Requirement: PY-61
    def test_generator_is_marked_where_it_is_made(self) -> None:
        @sub_track("numbers", sub_tracking_file="marks.csv")
        def numbers() -> Iterator[int]:
            yield 1

        made = numbers()
        self.assertEqual(calls("marks.csv"), ["numbers"])
        self.assertEqual(list(made), [1])
        self.assertEqual(calls("marks.csv"), ["numbers"])


class Forks(InDirectory):
    def fork(self, work: object) -> int:
        """Does work in a child, and gives the child's pid. An exception of the child fails the test."""
        pid = os.fork()
        if not pid:
            status = 1
            try:
                assert callable(work)
                work()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        return pid

    # Requirement: PY-11
    def test_forked_workers_append_whole_lines_to_the_file_of_their_parent(self) -> None:
        with SubTracker("parent", sub_tracking_file="marks.csv"):
            pass
        children = []
        for _ in range(4):
            pid = os.fork()
            if not pid:
                for _ in range(300):
                    with SubTracker("child", sub_tracking_file="marks.csv"):
                        pass
                os._exit(0)
            children.append(pid)
        for pid in children:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        rows = marks("marks.csv")
        self.assertEqual(len(rows), 2 * (1 + 4 * 300))
        for pid in children:
            self.assertEqual([row[2] for row in rows if row[0] == pid], [0, 1] * 300)

    # Requirement: PY-11
    def test_child_marks_what_it_enters_itself(self) -> None:
        block = SubTracker("block")
        with block:

            def leave_and_enter() -> None:
                block.__exit__(None, None, None)
                with block:
                    pass

            child = self.fork(leave_and_enter)
        self.assertEqual([row[:3] for row in marks(f"{child}.csv")], [(child, "block", 0), (child, "block", 1)])
        own = os.getpid()
        self.assertEqual([row[:3] for row in marks(f"{own}.csv")], [(own, "block", 0), (own, "block", 1)])

    # Requirement: PY-11, PY-62
    def test_forked_workers_that_overwrite_a_file_go_on_in_the_newest_one(self) -> None:
        for name in ("marks.csv", "marks.sqlite"):
            block = SubTracker("block", sub_tracking_file=name, overwrite=True)
            reader, writer = os.pipe()
            older = os.fork()
            if not older:
                status = 1
                try:
                    os.close(writer)
                    enter(block)
                    os.read(reader, 1)
                    wait_until(lambda: functools.partial(enter, block)() or os.getpid() in pids(name))  # noqa: B023
                    status = 0
                finally:
                    os._exit(status)
            wait_until(lambda: os.path.exists(name) and older in pids(name))  # noqa: B023
            self.fork(lambda: enter(block))  # noqa: B023
            self.assertNotIn(older, pids(name))
            os.write(writer, b"1")
            self.assertEqual(os.waitpid(older, 0)[1], 0)
            self.assertIn(older, pids(name))
            os.close(reader)
            os.close(writer)

    # Requirement: PY-59
    def test_process_that_is_killed_in_a_block_leaves_no_half_call(self) -> None:
        with SubTracker("whole", sub_tracking_file="marks.csv"):
            pass
        pid = os.fork()
        if not pid:
            with SubTracker("half", sub_tracking_file="marks.csv"):
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        self.assertEqual(calls("marks.csv"), ["whole"])

    # Requirement: PY-62
    def test_exact_name_of_spawned_processes_is_refused_by_all_but_the_first(self) -> None:
        code = "from gpu_track import SubTracker\nwith SubTracker('b', sub_tracking_file='marks.csv'): pass"
        self.python(code)
        refused = self.run_python(["-c", code])
        self.assertIn("FileExistsError: File marks.csv already exists.", refused.stderr)
        self.assertEqual(calls("marks.csv"), ["b"])


class Trouble(InDirectory):
    # Requirement: PY-12, PY-60
    def test_removed_file_is_an_error_as_with_gpu_tracker(self) -> None:
        for name in ("marks.csv", "marks.sqlite"):
            block = SubTracker("block", sub_tracking_file=name)
            with block:
                pass
            os.remove(name)
            gone = f"The file {name} was removed in the middle of writing data to it."
            with self.assertRaisesRegex(FileNotFoundError, gone):
                # A file is looked at now and then only.
                wait_until(functools.partial(enter, block))

    # Requirement: PY-12, PY-60
    def test_file_goes_on_when_the_program_closes_all_descriptors(self) -> None:
        code = """
import os
from gpu_track import SubTracker
block = SubTracker("block", sub_tracking_file="marks.csv")
with block: pass
os.closerange(3, 5000)
os.chdir("/")
with block: pass
own = os.open("/", os.O_RDONLY)
with block: pass
assert own < 64 and os.path.isdir(f"/proc/self/fd/{own}"), own
"""
        self.python(code)
        self.assertEqual(calls("marks.csv"), ["block"] * 3)

    # Requirement: PY-12
    def test_full_disk_costs_marks_and_a_warning_and_no_more(self) -> None:
        code = f"""
import resource
from gpu_track import SubTracker
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
for _ in range(10):
    with SubTracker("block", sub_tracking_file="marks.csv"): pass
print("went on", {COLUMNS!r} in open("marks.csv").read())
"""
        done = self.python(code)
        self.assertEqual(done.stdout, "went on True\n")
        warned = '"marks.csv" cannot be written: '
        self.assertEqual((done.stderr.count(warned), done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertTrue(done.stderr.endswith("Code blocks are no longer marked in it.\n"), done.stderr)

    # Requirement: PY-12
    def test_disk_without_a_place_for_a_file_costs_marks_and_a_warning(self) -> None:
        for number, name in ((errno.ENOSPC, "marks.csv"), (errno.EDQUOT, "marks.sqlite")):
            with mock.patch("os.open", side_effect=OSError(number, os.strerror(number))):
                block = SubTracker("block", sub_tracking_file=name)
                with self.assertLogs("gpu_track", "WARNING") as logs:
                    enter(block)
                    enter(block)
            (message,) = (record.getMessage() for record in logs.records)
            self.assertTrue(message.startswith(f'"{name}" cannot be written: {os.strerror(number)}.'), message)

    # Requirement: SQL-53
    def test_database_where_other_users_can_put_files_beside_it_is_an_error_before_the_block(self) -> None:
        os.mkdir("shared")
        for mode, is_safe in ((0o1777, False), (0o757, False), (0o755, True)):
            os.chmod("shared", mode)
            name = f"shared/{mode}.sqlite"
            if is_safe:
                enter(SubTracker("b", sub_tracking_file=name))
            else:
                with self.assertRaises(PermissionError) as raised, SubTracker("b", sub_tracking_file=name):
                    self.fail("the block is entered")
                self.assertIn("shared: name a file that ends in .csv", str(raised.exception))
            self.assertEqual(os.path.exists(name), is_safe)
            enter(SubTracker("b", sub_tracking_file=f"shared/{mode}.csv"))

    def test_file_in_no_directory_is_an_error_before_the_block(self) -> None:
        with self.assertRaises(FileNotFoundError), SubTracker("b", sub_tracking_file="none/marks.csv"):
            self.fail("the block is entered")


def pids(path: str) -> list[int]:
    """The processes whose marks are in a file. None, while it has no head or table."""
    if path.endswith(".csv"):
        return [pid for pid, *_ in marks(path)] if os.path.getsize(path) else []
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.OperationalError):
        return [pid for (pid,) in connection.execute("SELECT process_id FROM data")]
    return []


def enter(block: SubTracker) -> None:
    """Enters a block and leaves it."""
    with block:
        pass


if __name__ == "__main__":
    unittest.main()
