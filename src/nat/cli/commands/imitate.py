"""`nat runs imitate`: write the answers of a dataset as demonstrations, and the YAML that trains on them first."""

import json
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.finetune import as_begun
from nat.cli.commands.options import UserPathOption, runs_root_option, trust_option
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.config.load import load_config
from nat.config.sources import format_yaml, read_tree
from nat.errors import NoTrajectories, StorageError
from nat.files import write_text
from nat.finetuning.plan import check_certain, configured, examples_of
from nat.reports.text import one_line, printable
from nat.runs.find import find_run
from nat.runs.journal import reading
from nat.secrets import known_secrets
from nat.trajectory_files.imitation import NAME, demonstrations, imitating_first


@click.command("imitate")
@click.argument("run")
@click.option(
    "--output",
    type=UserPathOption(file_okay=False, path_type=Path),
    default=Path(),
    help=f"Folder for {NAME}.jsonl and {NAME}.yml.  [default: the current one]",
)
@click.option("--force", is_flag=True, help="Replace these files.")
@trust_option
@runs_root_option
def imitate_command(run: str, output: Path, output_dir: Path | None, *, force: bool, trust: bool) -> None:
    """Write the answers of RUN's training rows as demonstrations, and a YAML that imitates them before it plays.

    RUN is a run's id or the beginning of one, `latest`, or a run's folder. Only agents with one call and no tools.
    """
    folder, rows_file, yaml_file = find_run(run, output_dir), output / f"{NAME}.jsonl", output / f"{NAME}.yml"
    if not force and (there := [str(path) for path in (rows_file, yaml_file) if path.exists()]):
        raise StorageError(f"{' and '.join(there)} exist already", hint="give another --output, or --force")
    with shown_steps() as steps:
        steps.begin("reading the dataset and the rollouts", after=SLOW_SECONDS)
        config, given = configured(as_begun(folder, {}, trust=trust))
        items = event_loop.run(examples_of(config, given.dataset)).items
        expected = {item.example: item.expected_output_obj for item in items}
        with reading(folder) as journal:
            known = {name: str(answer) for name, answer in expected.items() if answer not in (None, "")}
            rows, left_out = demonstrations(journal, known)
    if not rows:
        why = "; ".join(f"{count} x {why}" for (_, why), count in left_out.items()) or "no played row has an answer"
        raise NoTrajectories(f"no demonstrations: {why}", hint="write some: docs/recipes/demonstrations.md")
    lines = (json.dumps(known_secrets.redact_tree(row), ensure_ascii=False) for row in rows)
    write_text(rows_file, "".join(f"{line}\n" for line in lines))
    first = one_line(rows[0]["completion"][0]["content"], 60)
    click.echo(printable(f"{len(rows)} of {len(known)} rows → {rows_file}; the first answer: {first}"))
    own = config.finetuning.each_phase[-1]
    adapter = config.trainer_adapters[str(own.trainer_adapter)].model_dump(mode="json", by_alias=True)
    sizes = {"num_rows": len(rows), "num_epochs": own.num_epochs}
    tree = imitating_first(read_tree(Path(str(given.config_file))), adapter, file=str(rows_file), **sizes)
    write_text(yaml_file, format_yaml(tree))
    check_certain(load_config(yaml_file), source=str(yaml_file))
    click.echo(f"Imitate them, then play: nat finetune --config_file={yaml_file}")
