"""A run's log is kept in its folder."""

import logging

from nat.runs.log_file import LOG_NAME, log_kept

logger = logging.getLogger("nat.module")


def test_a_run_keeps_what_its_modules_say(tmp_path):
    """Lines before and after the block are not the run's; the file is its owner's."""
    logging.getLogger().setLevel(logging.INFO)
    logger.info("before")
    with log_kept(tmp_path):
        logger.info("epoch %d \udc80", 3)
    logger.info("after")
    [line] = (tmp_path / LOG_NAME).read_text().splitlines()
    assert line.endswith("INFO     - nat.module:15 - epoch 3 \\udc80")
    assert (tmp_path / LOG_NAME).stat().st_mode & 0o777 == 0o600
