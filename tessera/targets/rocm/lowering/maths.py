"""Exponentials, logarithms and reciprocal square roots."""
