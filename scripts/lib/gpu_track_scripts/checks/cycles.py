"""Rings in a directed graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Graph = dict[Node, set[Node]]


def rings(graph: Graph[Node]) -> list[list[Node]]:
    """Shortest rings, until none is left: each is reported once, and its edges are then taken away."""
    left = {node: set(graph[node]) for node in sorted(graph, key=str)}
    found: list[list[Node]] = []
    while True:
        shortest = min((ring for ring in (_ring_through(left, node) for node in left) if ring), key=len, default=None)
        if shortest is None:
            return found
        found.append(shortest)
        for source, target in steps(shortest):
            left[source].discard(target)


def steps(ring: list[Node]) -> list[tuple[Node, Node]]:
    """The edges of a ring."""
    return [(node, ring[(index + 1) % len(ring)]) for index, node in enumerate(ring)]


def _ring_through(graph: Graph[Node], start: Node) -> list[Node]:
    """The shortest way from a node back to itself, or nothing."""
    came_from: dict[Node, Node] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for target in sorted(graph.get(node, ()), key=str):
            if target == start:
                ring = [node]
                while ring[-1] != start:
                    ring.append(came_from[ring[-1]])
                return ring[::-1]
            if target not in came_from:
                came_from[target] = node
                waiting.append(target)
    return []
