"""Parameters around equations."""
