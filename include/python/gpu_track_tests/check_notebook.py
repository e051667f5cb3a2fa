"""The magics of notebooks in a real kernel. They need ipykernel, nbclient and GPU_TRACK_RUN; scripts/test has them."""

from __future__ import annotations

import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from gpu_track._attached import has_ended
from gpu_track_tests.places import MODULE, PATIENCE_S, wait_until

NOTEBOOK = MODULE.parent.parent / "docs" / "examples" / "notebook.ipynb"
# What the interpreter itself can take or give back meanwhile.
SLACK_BYTES = 20_000_000
_PLACE = tempfile.TemporaryDirectory()


def setUpModule() -> None:
    assert os.environ["GPU_TRACK_RUN"]
    # The user's own configuration and history are not to be used.
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        os.environ[name] = os.path.join(_PLACE.name, name)
    os.environ["PYTHONPATH"] = os.fspath(MODULE)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def tearDownModule() -> None:
    _PLACE.cleanup()


@dataclass
class Done:
    """What a cell has shown, and how it ended."""

    reply: dict[str, Any]
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of a kind. What a cell writes to a stream can come in several: they are one here."""
        contents = [content for found, content in self.messages if found == kind]
        if kind != "stream":
            return contents
        texts: dict[str, str] = {}
        for content in contents:
            texts[content["name"]] = texts.get(content["name"], "") + content["text"]
        return [{"name": name, "text": text} for name, text in texts.items()]

    def figures(self) -> dict[str, Any]:
        """Those of the only line of the cell."""
        (shown,) = self.of("display_data")
        found: dict[str, Any] = shown["metadata"]["gpu_track"]
        return found


class InKernel(unittest.TestCase):
    """Tests in one kernel."""

    manager: ClassVar[Any]
    client: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.manager = KernelManager(kernel_name="python3")
        cls.manager.start_kernel()
        cls.client = cls.manager.client()
        cls.client.start_channels()
        cls.client.wait_for_ready(timeout=PATIENCE_S)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.client.stop_channels()
        cls.manager.shutdown_kernel(now=True)

    def setUp(self) -> None:
        self.run_cell("%load_ext gpu_track")

    def run_cell(self, code: str, meanwhile: Callable[[str, dict[str, Any]], object] | None = None) -> Done:
        """Runs a cell, and tells `meanwhile` of each message of it."""
        request = self.client.execute(code)
        messages: list[tuple[str, dict[str, Any]]] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if (kind, content.get("execution_state")) == ("status", "idle"):
                return Done(self.reply(request), messages)
            messages.append((kind, content))
            if meanwhile is not None:
                meanwhile(kind, content)
        raise queue.Empty

    def reply(self, request: str) -> dict[str, Any]:
        """How a cell ended."""
        while True:
            message = self.client.get_shell_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") == request:
                found: dict[str, Any] = message["content"]
                return found

    def rss_bytes(self) -> int:
        """The memory of the kernel."""
        pages = pathlib.Path(f"/proc/{self.manager.provisioner.pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Cells(InKernel):
    # Requirement: PY-16
    def test_cell_has_its_own_output_and_true_figures(self) -> None:
        before = self.rss_bytes()
        done = self.run_cell(
            "%%gpu_track --to tracked\n"
            "held = bytearray(b'1') * 200_000_000\n"
            "brief = bytearray(b'1') * 300_000_000\n"
            "del brief\n"
            "print('said')\n"
            "6 * 7"
        )
        after = self.rss_bytes()
        kinds = [kind for kind, _ in done.messages if kind not in {"status", "execute_input"}]
        self.assertEqual(kinds, ["stream", "execute_result", "display_data"])
        self.assertEqual(done.of("execute_result")[0]["data"]["text/plain"], "42")
        (shown,) = done.of("display_data")
        self.assertEqual(set(shown["data"]), {"text/plain", "text/html"})
        self.assertNotIn("\n", shown["data"]["text/plain"])
        figures = done.figures()
        ram = figures["ram"]
        self.assertAlmostEqual(ram["before_bytes"], before, delta=SLACK_BYTES)
        self.assertAlmostEqual(ram["after_bytes"], after, delta=SLACK_BYTES)
        self.assertAlmostEqual(ram["peak_bytes"], before + 500_000_000, delta=SLACK_BYTES)
        # What the cell kept, and as %memit has it.
        self.assertAlmostEqual(ram["kept_bytes"], 200_000_000, delta=SLACK_BYTES)
        self.assertAlmostEqual(ram["increment_bytes"], 500_000_000, delta=SLACK_BYTES)
        self.assertRegex(shown["data"]["text/plain"], r"after \(\+\d+ MB\), peak .*, increment \d+ MB")
        self.assertIn("<svg", shown["data"]["text/html"])
        self.assertIsNone(figures["reason"])
        report = self.run_cell("print(len(tracked.reports), tracked.reports[0]['stage'])").of("stream")
        self.assertEqual(report[0]["text"], "1 final\n")

    # Requirement: PY-91, PY-92
    def test_metrics_are_shown_below_the_cell_and_in_a_plain_cell_it_is_said_once_that_none_are_kept(self) -> None:
        self.run_cell("from gpu_track import metric")
        done = self.run_cell("metric('loss', 1)")
        (stream,) = done.of("stream")
        self.assertEqual((done.reply["status"], stream["name"]), ("ok", "stderr"))
        self.assertIn("The metric 'loss' is not kept: nothing tracks this cell.", stream["text"])
        self.assertIn('begin the cell with "%%gpu_track"', stream["text"])
        self.assertEqual(self.run_cell("metric('loss', 2)\nmetric('step', 3)").of("stream"), [])
        self.run_cell("%%gpu_track --to tracked\nmetric('step', 7)")
        kept = self.run_cell("print([row['last'] for row in tracked.metrics()]); tracked._forget_metrics()")
        self.assertEqual(kept.of("stream")[0]["text"], "[7.0]\n")
        done = self.run_cell("%%gpu_track\nfor loss in (0.5, 0.25):\n    metric('<b>loss</b>', loss)")
        self.assertEqual(done.of("stream"), [])
        (told,) = done.figures()["metrics"]
        self.assertEqual((told["name"], told["count"], told["last"], told["max"]), ("<b>loss</b>", 2, 0.25, 0.5))
        (shown,) = done.of("display_data")
        self.assertTrue(shown["data"]["text/plain"].endswith(" | <b>loss</b> 0.25"), shown["data"])
        self.assertIn("&lt;b&gt;loss&lt;/b&gt;", shown["data"]["text/html"])
        self.assertNotIn("<b>", shown["data"]["text/html"])

    # Requirement: PY-17
    def test_error_is_that_of_the_cell_and_the_line_comes_all_the_same(self) -> None:
        code = "def fails():\n    1 / 0\nfails()"
        plain, done = self.run_cell(f"\n{code}"), self.run_cell(f"%%gpu_track\n{code}")
        for field_name in ("status", "ename", "evalue"):
            self.assertEqual(done.reply[field_name], plain.reply[field_name])
        self.assertEqual(len(done.of("error")), 1)
        # Its frames are the cell's alone.
        self.assertEqual(len(done.of("error")[0]["traceback"]), len(plain.of("error")[0]["traceback"]))
        self.assertIn("line 3", "".join(done.of("error")[0]["traceback"]).replace("\x1b[32m", ""))
        self.assertIsNone(done.figures()["reason"])

    # Requirement: PY-17
    def test_interrupted_cell_ends_and_has_its_line(self) -> None:
        # A line can come in two messages. A second interrupt would end what shows the cell's line.
        interrupts = iter([self.manager.interrupt_kernel])

        def interrupt(kind: str, _content: object) -> None:
            if kind == "stream":
                next(interrupts, lambda: None)()

        # ipykernel 7.1 itself loses about half of the interrupts of a cell that awaits.
        done = self.run_cell("%%gpu_track\nprint('begun', flush=True)\nimport time\ntime.sleep(1000)", interrupt)
        self.assertEqual((done.reply["status"], done.reply["ename"]), ("error", "KeyboardInterrupt"))
        self.assertIsNone(done.figures()["reason"])

    # Requirement: PY-17
    def test_cell_can_await_run_cells_and_have_another_magic(self) -> None:
        done = self.run_cell("%%gpu_track\nimport asyncio\nawait asyncio.sleep(0.01)\n7")
        self.assertEqual(done.of("execute_result")[0]["data"]["text/plain"], "7")
        self.assertGreaterEqual(done.figures()["wall_s"], 0.01)
        # The inner cell is over before the outer one.
        inner = "get_ipython().run_cell('8')\nimport time\ntime.sleep(0.3)"
        self.assertGreaterEqual(self.run_cell(f"%%gpu_track\n{inner}").figures()["wall_s"], 0.3)
        done = self.run_cell("%%gpu_track\n%%bash\nsleep 0.1; echo done")
        self.assertEqual(done.of("stream")[0]["text"], "done\n")
        self.assertGreaterEqual(done.figures()["other_processes"], 2)
        self.assertIsNone(self.run_cell("%%time\n%%gpu_track\n9").figures()["reason"])

    # Requirement: PY-17
    def test_wrong_option_is_an_error_before_the_cell_runs(self) -> None:
        for option, text in (
            ("--st 0.001", "Sleep time of 0.001 is invalid"),
            ("--tf x.txt", "Invalid file name"),
            ("--to 1x", "no name of a variable"),
            ("--none", "unrecognized arguments: --none"),
        ):
            done = self.run_cell(f"%%gpu_track {option}\nprint('it runs')")
            (stream,) = done.of("stream")
            self.assertIn(text, stream["text"])
            self.assertEqual((done.reply["status"], done.of("display_data")), ("error", []))

    # Requirement: PY-64
    def test_traceback_shows_a_call_in_place_of_the_first_line(self) -> None:
        done = self.run_cell("%%gpu_track\nfrom __future__ import annotations\n1 / 0")
        self.assertEqual(done.reply["ename"], "ZeroDivisionError")
        self.assertIn("run_line_magic", "".join(done.of("error")[0]["traceback"]))

    # Requirement: PY-18
    def test_killed_tracker_costs_figures_and_not_the_cell(self) -> None:
        done = self.run_cell("%%gpu_track --to t\nt._stretches[0]._attached.kill()\nprint('it runs')")
        self.assertEqual(done.reply["status"], "ok")
        self.assertIn("ended before it wrote a report", done.figures()["reason"])
        self.assertIsNone(done.figures()["cpu_s"])

    # Requirement: PY-17
    def test_extension_that_is_loaded_again_shows_one_line_and_none_after_unload(self) -> None:
        self.run_cell("%reload_ext gpu_track")
        self.assertIsNone(self.run_cell("%%gpu_track\n1").figures()["reason"])
        self.run_cell("%unload_ext gpu_track")
        self.assertEqual(self.run_cell("%%gpu_track\n1").of("display_data"), [])


class Watched(InKernel):
    # Requirement: PY-19
    def test_watch_shows_what_later_cells_hold_and_in_the_end_the_figures(self) -> None:
        self.run_cell("%gpu_track stop")
        (begun,) = self.run_cell("%gpu_track watch").of("display_data")
        shown = begun["transient"]["display_id"]
        twice = self.run_cell("%gpu_track watch").of("stream")
        self.assertIn("it watches already", twice[0]["text"])
        with tempfile.TemporaryDirectory() as place:
            go_on = pathlib.Path(place, "go_on")
            seen: list[float] = []
            gpus: list[object] = []

            def look(kind: str, content: dict[str, Any]) -> None:
                if kind == "update_display_data":
                    self.assertEqual(content["transient"]["display_id"], shown)
                    seen.append(content["metadata"]["gpu_track"]["ram"]["bytes"])
                    gpus.append(content["metadata"]["gpu_track"]["gpu"])
                    # Twice: it goes on.
                    if len([ram for ram in seen if ram >= held]) == 2:
                        go_on.touch()

            held = self.rss_bytes() + 200_000_000 - SLACK_BYTES
            wait = f"import os, time\nwhile not os.path.exists({os.fspath(go_on)!r}):\n    time.sleep(0.01)"
            self.run_cell(f"%%capture\nx = bytearray(b'1') * 200_000_000\n{wait}", look)
        running = "import gpu_track; print(gpu_track.tracker._running[0]._stretches[0]._attached._pid)"
        pid = int(self.run_cell(running).of("stream")[0]["text"])
        (last,) = self.run_cell("%gpu_track stop").of("update_display_data")
        self.assertEqual(last["transient"]["display_id"], shown)
        figures = last["metadata"]["gpu_track"]
        self.assertIsNone(figures["reason"])
        self.assertGreaterEqual(figures["ram"]["peak_bytes"], held)
        # A machine without GPUs has no part for them, in both.
        self.assertEqual({gpu is None for gpu in gpus}, {figures["gpu"] is None})
        wait_until(lambda: has_ended(pid))


class Terminal(unittest.TestCase):
    # Requirement: PY-65
    def test_watch_is_refused_where_nothing_can_be_shown_anew(self) -> None:
        code = "%load_ext gpu_track\n%gpu_track watch\n"
        done = subprocess.run(
            [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "--simple-prompt"],
            input=code,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        self.assertIn("%gpu_track watch needs a notebook", done.stdout + done.stderr)


class Example(unittest.TestCase):
    def shape(self, outputs: list[Any]) -> list[Any]:
        """What kind of outputs they are, with the keys of the figures."""
        found = []
        for output in outputs:
            figures = output.get("metadata", {}).get("gpu_track", {})
            ram = sorted(figures.get("ram", {}))
            found.append((output["output_type"], sorted(output.get("data", {})), sorted(figures), ram))
        return found

    # Requirement: PY-24
    def test_notebook_of_the_documents_has_the_outputs_that_it_shows(self) -> None:
        kept = nbformat.read(NOTEBOOK, as_version=4)
        fresh = nbformat.read(NOTEBOOK, as_version=4)
        for cell in fresh.cells:
            cell.outputs = []
        NotebookClient(fresh, timeout=PATIENCE_S, kernel_name="python3").execute()
        for before, now in zip(kept.cells, fresh.cells):
            if now.cell_type == "code":
                self.assertEqual(self.shape(now.outputs), self.shape(before.outputs), now.source)
        tracked = [cell for cell in fresh.cells if cell.source.startswith(("%%gpu_track", "%gpu_track watch"))]
        self.assertGreaterEqual(len(tracked), 3)
        for cell in tracked:
            self.assertIsNone(cell.outputs[-1].metadata["gpu_track"]["reason"], cell.source)


if __name__ == "__main__":
    unittest.main()
