"""Alias for plug-ins: the code is in `nat.data_models.evaluator`."""

from nat.data_models.evaluator import EvaluatorBaseConfig as EvaluatorBaseConfig
