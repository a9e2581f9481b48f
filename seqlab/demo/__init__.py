"""The lectures' points, shown on data that is made on the spot."""
