"""Play some examples with the untrained model, and judge whether training has a signal.

`run` plays them as training would; `statistics` and `verdict` are pure; `records` has what they exchange.
"""
