"""Side by side with peers, in one run: a speed is a ratio."""
