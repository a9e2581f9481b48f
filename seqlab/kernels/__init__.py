"""Fast twins of equations, each tested against its equation, and only where it measurably gains."""
