"""Random trees of processes for scripts/truth: scripts for tests/programs/twig.c."""

import random
import subprocess

from workloads import FILES, Workload

PROGRAMS = FILES.parent.parent / "programs"
# What makes a child: fork, fork again (twice: the others want company), posix_spawn, double fork.
MAKERS = "ffpd"
# The same, with what a preload can't see: raw clones, and the static variant.
ALL_MAKERS = MAKERS + "FPP"


def script(seed, makers):
    """A tree of up to some 40 processes; the same for the same seed."""
    return grow(random.Random(seed), 0, makers)


def grow(dice, depth, makers):
    words = []
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
            return " ".join([*words, dice.choice("eeE" if "P" in makers else "e") + "{" + grow(dice, depth + 1, makers) + "}"])
    end = dice.random()
    if depth == 0:
        # Not always after its children.
        words += ["a"] * (end < 0.6)
    elif end < 0.45:
        words.append("s9" if end < 0.15 else "X3" if end < 0.25 else "Y4" if end < 0.32 else "x5")
    return " ".join(words)


def workloads(seeds, makers, directory, through=""):
    """Compiles twig, both ways, and gives a workload of each seed. `through`: a command that runs init, which runs it, in {}."""
    for name in ("twig", "init"):
        for program, flags in ((name, []), (f"{name}-static", ["-static"])):
            source = PROGRAMS / f"{name}.c"
            subprocess.run(["cc", "-O1", "-pthread", *flags, "-o", directory / program, source], check=True)
    through = through and through.format(directory) + " "
    twig = f"TWIG_DYNAMIC={directory}/twig TWIG_STATIC={directory}/twig-static {through}{directory}/twig"
    scripts = {seed: script(seed, makers) for seed in seeds}
    return [
        Workload(f"tree {seed}: {text}", f"{twig} '{text}'", may_grow_before_exec=True, any_end=True)
        for seed, text in scripts.items()
    ]
