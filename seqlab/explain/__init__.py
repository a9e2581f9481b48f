"""Looking into a model: what its taps recorded, and pictures of it."""
