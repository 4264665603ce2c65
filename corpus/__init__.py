"""Kernels that tests and benchmarks share."""
