"""A workflow as the toolkit's example of DPO has it: both players search, score and select among candidate moves."""
