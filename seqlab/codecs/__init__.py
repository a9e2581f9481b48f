"""Sources and targets: what a model reads and what it writes, with all that was learnt about them from data."""
