"""Tests of the variables that make programs report to a tracker."""

from __future__ import annotations

import unittest

from gpu_track._environment import Environment


def layer(name: str) -> dict[str, str]:
    return {"LD_PRELOAD": f"/{name}.so", "GPU_TRACK_SESSION": name}


class Layers(unittest.TestCase):
    # Requirement: PY-4
    def test_shim_is_in_front_and_all_is_undone(self) -> None:
        for own in ({}, {"LD_PRELOAD": "/jemalloc.so"}, {"LD_PRELOAD": "", "GPU_TRACK_SESSION": "outer"}):
            variables = {"HOME": "/", **own}
            environment = Environment(variables)
            a = layer("a")
            environment.add(a)
            preload = ":".join(filter(None, ["/a.so", own.get("LD_PRELOAD")]))
            self.assertEqual(variables, {"HOME": "/", "LD_PRELOAD": preload, "GPU_TRACK_SESSION": "a"})
            self.assertEqual(environment.without(), {"HOME": "/", **own})
            environment.remove(a)
            self.assertEqual(variables, {"HOME": "/", **own})

    # Requirement: PY-4
    def test_trackers_that_overlap_are_undone_in_any_order(self) -> None:
        for first, second in (("a", "b"), ("b", "a")):
            variables = {"LD_PRELOAD": "/own.so"}
            environment = Environment(variables)
            layers = {name: layer(name) for name in ("a", "b")}
            for name in ("a", "b"):
                environment.add(layers[name])
            self.assertEqual(variables, {"LD_PRELOAD": "/b.so:/own.so", "GPU_TRACK_SESSION": "b"})
            environment.remove(layers[first])
            self.assertEqual(variables, {"LD_PRELOAD": f"/{second}.so:/own.so", "GPU_TRACK_SESSION": second})
            environment.remove(layers[second])
            environment.remove(layers[second])
            self.assertEqual(variables, {"LD_PRELOAD": "/own.so"})

    # Requirement: PY-4
    def test_what_the_program_changes_meanwhile_stays(self) -> None:
        variables = {"LD_PRELOAD": "/own.so"}
        environment = Environment(variables)
        a = layer("a")
        environment.add(a)
        variables["LD_PRELOAD"] = "/new.so:" + variables["LD_PRELOAD"]
        variables["GPU_TRACK_SESSION"] = "mine"
        self.assertEqual(environment.without(), {"LD_PRELOAD": "/new.so:/own.so", "GPU_TRACK_SESSION": "mine"})
        environment.remove(a)
        self.assertEqual(variables, {"LD_PRELOAD": "/new.so:/own.so", "GPU_TRACK_SESSION": "mine"})
        environment.add(a)
        variables["LD_PRELOAD"] = "/spaced.so " + variables["LD_PRELOAD"]
        environment.remove(a)
        self.assertEqual(variables["LD_PRELOAD"], "/spaced.so:/new.so:/own.so")
        environment.add(a)
        del variables["LD_PRELOAD"]
        environment.remove(a)
        self.assertEqual(variables, {"GPU_TRACK_SESSION": "mine"})

    # Requirement: SEE-37
    def test_program_of_gpu_track_reports_to_all_trackers(self) -> None:
        variables = {"GPU_TRACK_SESSION": "outer"}
        environment = Environment(variables)
        self.assertEqual(environment.of_helper(), {"GPU_TRACK_SESSION": "outer"})
        for name in ("outer:a", "outer:b"):
            environment.add(layer(name))
        self.assertEqual(environment.of_helper()["GPU_TRACK_SESSION"], "outer:a:b")
        variables.clear()
        self.assertEqual(Environment(variables).of_helper(), {})


if __name__ == "__main__":
    unittest.main()
