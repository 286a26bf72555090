"""The commands and options of `nat` are a public interface: users have them in scripts."""

import click
import pytest

from nat.cli.main import cli

COMMON = "--config_file -o/--override --import --json"

EXPORT = (
    "run --checkpoint --format --output --trajectories --as --epoch --validation --margin --pairs --max_pairs "
    "--min_reward --tokens --force --output_dir --json"
)
COMMANDS = {
    "nat": "--version --log-level",
    "nat init": "name --framework --model --no_model",
    "nat fits": "model --revision --gpu --max_seq_length --time --json",
    "nat finetune": f"{COMMON} --dataset --validation_dataset --validation_interval --validation_config_file "
    "--result_json_path --dry_run --endpoint --endpoint_timeout --resume --accept_changes --trust --grace",
    "nat probe": f"{COMMON} --dataset --result_json_path --endpoint --endpoint_timeout --minutes --examples "
    "--generations --rescores --reward --output",
    "nat diagnose": "run --output_dir --json",
    "nat replay": "run --epoch --role --rollout --algorithm --seed -o/--override --output_dir --trust --json",
    "nat runs": "",
    "nat runs list": "--output_dir --json",
    "nat runs show": "run --epoch --validation --worst --best --failed --example --tokens --output_dir --json",
    "nat ui": "folder --port",
    "nat runs report": "run --output --output_dir",
    "nat runs compare": "a b --output_dir --json",
    "nat runs export": EXPORT,
    "nat runs send": "run --to -o/--override --import --output_dir",
    "nat export": EXPORT,
    "nat docs": "page",
    "nat eval": f"{COMMON} --dataset --result_json_path --reps --endpoint --endpoint_timeout",
    "nat serve": "--config_file -o/--override --import --host --port --api_key --allowed_hosts",
    "nat run": f"{COMMON} --input --input_file",
    "nat validate": f"{COMMON} --show",
    "nat info": "",
    "nat info components": "-t/--types -q/--query -f/--fields -n/--num_results -o/--output_path --json",
    "nat info imports": "--json",
    "nat gateway": "",
    "nat gateway serve": "--config_file -o/--override --import --host --port --llm --api_key --allowed_hosts",
    "nat backend": "",
    "nat backend serve": "--model --revision --host --port --inference_port --api_key --output_dir --served_model_name "
    "--load_in_4bit --lora_rank --lora_alpha --device --devices --dtype --max_seq_length --max_num_seqs --kv_cache_mb "
    "--prefix_cache_mb --threads --seed --save_every --keep_last --resume --exit_with_parent --allowed_hosts "
    "--all_weights --shard --max_models --s3_buckets --protocol --engine --vllm_command --vllm_url --vllm_api_key "
    "--vllm_args --vllm_startup_timeout --replicas --tensor_parallel "
    "--vllm_sleep --chat_template_kwargs --response_template --deterministic",
}


def commands(group: click.Group, context: click.Context, name: str) -> dict[str, click.Command]:
    """The group and all its subcommands, by the words that call them."""
    found: dict[str, click.Command] = {name: group}
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        below = click.Context(command, context, word)
        if isinstance(command, click.Group):
            found |= commands(command, below, f"{name} {word}")
        else:
            found[f"{name} {word}"] = command
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, click.Command]:
    return commands(cli, click.Context(cli), "nat")


def test_commands(found):
    """These commands exist, and no others."""
    assert sorted(found) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_options(found, name):
    """Each command has exactly these options."""
    options = {"/".join(sorted(p.opts, key=len)) for p in found[name].params}
    assert options == set(COMMANDS[name].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_is_explained(found, name):
    """Each command and each option has a help text."""
    command = found[name]
    assert command.help
    assert [p.name for p in command.params if isinstance(p, click.Option) and not p.help] == []
