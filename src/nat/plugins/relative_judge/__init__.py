"""`relative_judge`: a model scores the generations of an example against each other, by a rubric."""
