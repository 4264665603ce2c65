"""Tile IR: a small SSA intermediate representation over immutable tiles, with a NumPy meaning for every op."""

from . import ops as ops
