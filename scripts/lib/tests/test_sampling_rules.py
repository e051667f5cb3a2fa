import unittest

from gpu_track_scripts.sampling_rules.jobs import JOBS, MB, RULES, is_right, share_right


class PeaksTest(unittest.TestCase):
    def test_right_is_within_two_percent_and_the_programs_own_memory(self) -> None:
        self.assertTrue(is_right(1632 * MB, 1600 * MB))
        self.assertFalse(is_right(1700 * MB, 1600 * MB))
        self.assertFalse(is_right(1500 * MB, 1600 * MB))
        self.assertFalse(is_right(None, 1600 * MB))

    def test_worst_error_counts_in_both_directions(self) -> None:
        self.assertEqual(share_right([100.0 * MB, 50.0 * MB, 130.0 * MB], 100 * MB), "1 of 3, -50%")
        self.assertEqual(share_right([None, 100.0 * MB], 100 * MB), "1 of 2, -100%")

    def test_each_rule_but_the_first_switches_something_off(self) -> None:
        self.assertEqual([not rule.off for rule in RULES], [True] + [False] * (len(RULES) - 1))
        self.assertEqual(len({job.name for job in JOBS}), len(JOBS))
