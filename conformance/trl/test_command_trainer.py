"""TRL's SFTTrainer makes the updates of a run, as a trainer program."""

from pathlib import Path

from conformance.environments import python_of

from fakes.command_trainer import assert_verdict

PROGRAM = Path(__file__).with_name("sft_trainer.py")


def test_a_run_with_trl_reaches_its_verdict(tmp_path: Path) -> None:
    """Two epochs: the second begins with the weights of the first."""
    assert_verdict(tmp_path, [str(python_of("trl")), str(PROGRAM)], epochs=2)
