"""An output folder belongs to one process, and must be writable."""

from nat.backend.output_folder import TEMPLATE_TIME, template_time

HOLD = "import sys; from pathlib import Path; from nat.backend.output_folder import claimed\n"
HOLD += "with claimed(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"


def test_a_resumed_server_writes_the_date_of_its_first_start(tmp_path):
    """Else the prompts of a resumed run would differ from those before; a new start has a new date."""
    (tmp_path / TEMPLATE_TIME).write_text("2020-02-29T23:59:00\n")
    assert template_time(tmp_path, resume=True) == "2020-02-29T23:59:00"
    first = template_time(tmp_path, resume=False)
    assert first == template_time(tmp_path, resume=True) > "2026"
    assert template_time(None, resume=False) >= first
