from nat.data_models.finetuning import EarlyStoppingConfig
from nat.finetuning.early_stopping import plateaued


def test_stops_after_patience_scores_without_a_rise():
    """The best of the last `patience` scores must beat the best before them."""
    config = EarlyStoppingConfig(patience=2)
    assert not plateaued([0.5, 0.4], config)
    assert plateaued([0.5, 0.4, 0.5], config)
    assert not plateaued([0.5, 0.4, 0.6], config)


def test_a_rise_within_min_delta_is_none():
    """Small rises do not keep a run alive."""
    assert plateaued([0.5, 0.55], EarlyStoppingConfig(patience=1, min_delta=0.1))
    assert not plateaued([0.5, 0.65], EarlyStoppingConfig(patience=1, min_delta=0.1))
