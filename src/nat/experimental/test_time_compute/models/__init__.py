"""Items, stages and the base class of strategies."""
