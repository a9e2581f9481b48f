"""PositionIds in, ids out: one engine for every decoder."""
