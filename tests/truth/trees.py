"""Random trees of processes for scripts/truth: programs for tests/programs/twig.c, whose head explains the words."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterable

from gpu_track_scripts.commands import compile_c
from workloads import FILES, Workload

PROGRAMS = FILES.parent.parent / "programs"
# The words that make a child: fork (twice as likely), posix_spawn, double fork.
MAKERS = "ffpd"
# The words of MAKERS, and children that a preloaded library can't see: raw clones and static programs.
ALL_MAKERS = MAKERS + "FPP"


def script(seed: int, makers: str) -> str:
    """A tree of up to about 40 processes, the same one for the same seed."""
    return grow(random.Random(seed), 0, makers)


def grow(dice: random.Random, depth: int, makers: str) -> str:
    """The program of one process, with those of its children in braces."""
    words: list[str] = []
    for _ in range(dice.randint(1, 5 if depth < 2 else 3)):
        kind = dice.random()
        if kind < 0.45 and depth < 4:
            words.append(dice.choice(makers) + "{" + grow(dice, depth + 1, makers) + "}")
        elif kind < 0.65:
            words.append(f"c{dice.choice([0, 1, 3, 8])}")
        elif kind < 0.72:
            words.append(f"m{dice.choice([1, 4, 9])}")
        elif kind < 0.84:
            words.append(dice.choice("wWaa"))
        elif kind < 0.88:
            words.append("t")
        elif kind < 0.91:
            words.append("k")
        elif kind < 0.94 and depth < 4:
            maker = dice.choice("eeE" if "P" in makers else "e")
            return " ".join([*words, maker + "{" + grow(dice, depth + 1, makers) + "}"])
    end = dice.random()
    if depth == 0:
        # The root waits for all of its children in six trees of ten.
        words += ["a"] * (end < 0.6)
    elif end < 0.45:
        words.append("s9" if end < 0.15 else "X3" if end < 0.25 else "Y4" if end < 0.32 else "x5")
    return " ".join(words)


def workloads(seeds: Iterable[int], makers: str, directory: pathlib.Path, through: str = "") -> list[Workload]:
    """Compiles the programs, dynamic and static, and gives a workload for each seed.

    `through` is the command that starts the tree, with {} for the directory of the programs.
    """
    for name in ("twig", "init"):
        for program, flags in ((name, []), (f"{name}-static", ["-static"])):
            compile_c(directory / program, PROGRAMS / f"{name}.c", *flags)
    through = through and through.format(directory) + " "
    twig = f"TWIG_DYNAMIC={directory}/twig TWIG_STATIC={directory}/twig-static {through}{directory}/twig"
    scripts = {seed: script(seed, makers) for seed in seeds}
    return [
        Workload(f"tree {seed}: {text}", f"{twig} '{text}'", may_grow_before_exec=True, any_end=True)
        for seed, text in scripts.items()
    ]
