"""Run the program on one example: folder, environment, key, process, answer."""

import os
from pathlib import Path
from typing import Any

from nat.builder.context import Context
from nat.capture.deadline import deadline
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData
from nat.errors import CommandFailed
from nat.gateway.access import Keyring, RolloutAccess
from nat.gateway.upstream import Upstream
from nat.plugins.command.config import CommandConfig, environment
from nat.plugins.command.evaluator import COMMAND_STEP, CommandRecord
from nat.plugins.command.folder import MissingOutput, RolloutFolder, as_text, opened_folder
from nat.plugins.command.process import Program, run_program
from nat.wire.json import without_surrogates


class CommandWorkflow:
    """A program with a gateway as its model server."""

    def __init__(
        self, config: CommandConfig, upstream: Upstream, keyring: Keyring, *, url: str, kept_in: Path | None
    ) -> None:
        """`kept_in` is where folders are kept, if `keep_folder` is set."""
        self._config = config
        self._upstreams = {str(config.llm): upstream}
        self._keyring = keyring
        self._url = url
        self._kept_in = kept_in if config.keep_folder else None

    async def run(self, value: Any) -> str:
        """The program's answer to an input; call it inside the rollout."""
        name = Context.get().workflow_run_id or COMMAND_STEP
        async with opened_folder(self._config.folder, kept_in=self._kept_in, name=name) as folder:
            exit_code = reward = None
            try:
                exit_code = await self._play(without_surrogates(as_text(value)), folder)
                answer = self._answer(exit_code, folder)
                if self._config.reward_file is not None:
                    reward = folder.read_number(self._config.reward_file)
            except MissingOutput as error:
                raise CommandFailed(f"{error}; {_stderr_text(folder)}") from error
            finally:
                kept = None if self._kept_in is None else str(folder.root)
                _push(CommandRecord(exit_code=exit_code, reward=reward, folder=kept))
        return answer

    async def _play(self, text: str, folder: RolloutFolder) -> int:
        config = self._config
        arguments = self._arguments(text)
        folder.stdin.write_text(text if config.input == "stdin" else "", encoding="utf-8")
        if config.input == "file":
            file = folder.work / config.input_file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        try:
            # The key opens inside the deadline, which the calls with it move.
            async with deadline(config.timeout), self._keyring.opened(RolloutAccess(self._upstreams)) as key:
                env = environment(
                    config.env, os.environ, url=self._url, key=key, home=folder.home, scratch=folder.scratch
                )
                program = Program(arguments, env, folder.work, folder.stdin, folder.stdout, folder.stderr)
                return await run_program(program, mark=key)
        except TimeoutError as error:
            raise CommandFailed(
                f"the program did not end within {config.timeout:g} s; {_stderr_text(folder)}",
                hint="give it longer with workflow.timeout",
            ) from error
        except OSError as error:
            raise CommandFailed(f"{arguments[0]!r} cannot be run: {error.strerror or error}") from error

    def _arguments(self, text: str) -> list[str]:
        command = self._config.command
        whole = ["/bin/sh", "-c", command, "sh"] if isinstance(command, str) else list(command)
        return [*whole, text] if self._config.input == "argument" else whole

    def _answer(self, exit_code: int, folder: RolloutFolder) -> str:
        if exit_code != 0:
            how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
            raise CommandFailed(f"the program ended with {how}; {_stderr_text(folder)}")
        answer = folder.stdout_text() if self._config.output == "stdout" else folder.read(self._config.output_file)
        return answer.rstrip("\r\n")


def _stderr_text(folder: RolloutFolder) -> str:
    text = folder.stderr_tail()
    return f"the end of its stderr: {text}" if text else "its stderr is empty"


def _push(record: CommandRecord) -> None:
    payload = IntermediateStepPayload(
        event_type=IntermediateStepType.CUSTOM_END,
        name=COMMAND_STEP,
        data=StreamEventData(output=record.model_dump(mode="json")),
    )
    Context.get().intermediate_step_manager.push_intermediate_step(payload)
