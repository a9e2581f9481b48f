"""Benchmarks against other libraries on the same data in one run; results are ratios of times."""
