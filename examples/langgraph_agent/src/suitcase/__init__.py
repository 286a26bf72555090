"""A LangGraph agent that packs a suitcase, and the two tools that know where to and for which weather."""
