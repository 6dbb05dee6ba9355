"""The oracle: the reference's answers, the tolerance that its own rounding allows, and the comparison."""
