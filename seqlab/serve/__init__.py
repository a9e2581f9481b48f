"""Models over HTTP: the interface, the line before the one thread that computes, and the page."""
