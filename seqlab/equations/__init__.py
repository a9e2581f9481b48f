"""The lectures as pure functions: formula above, code below, same letters, each marked with its id."""
