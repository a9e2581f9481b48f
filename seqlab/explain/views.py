"""The views, each one function from a model and an input to a `View`: what there is to see, in numbers and pictures."""
