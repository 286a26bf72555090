"""Open the workflows of a run, each once: the training's and, if it differs, the validation's."""

from contextlib import AsyncExitStack
from pathlib import Path

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import ReplacedSampling
from nat.data_models.config import Config
from nat.data_models.llm import LLMBaseConfig
from nat.errors import ConfigError
from nat.finetuning.plan import Plan
from nat.finetuning.run_log import Event, Observer, RolloutDone, RolloutsPlayed, RunBegun, RunLog
from nat.rollout.ray_workers import Workers, ray_workers
from nat.rollout.remote import RemoteWorkflow, open_remote
from nat.rollout.session import WorkflowSession, using_session
from nat.rollout.traces import Traces


async def open_sessions(stack: AsyncExitStack, plan: Plan, builder: EvalBuilder, run: RunLog, traces: Traces) -> None:
    """Open the sessions that all evaluations of this run use; the stack closes them."""
    remote = await opened_remote(stack, plan, builder)
    sessions = [training_session(plan, builder, remote, traces)]
    if plan.validation is not None:
        there = remote if isinstance(remote, RemoteWorkflow) else None
        sessions.append(await _validation_session(stack, plan, plan.validation, builder, there, traces))
    for session in sessions:
        stack.enter_context(using_session(session))
        observe_rollouts(session, run.append)


def training_session(
    plan: Plan, builder: EvalBuilder, remote: RemoteWorkflow | Workers | None, traces: Traces | None = None
) -> WorkflowSession:
    """The session of training rollouts, and of held-out ones unless they have a YAML of their own."""
    finetuning, given = plan.finetuning, plan.given
    sampling, examples = finetuning.sampling_in_training, {given.dataset: plan.training}
    if plan.held_out is not None and plan.validation is None:
        examples[given.validation_dataset] = plan.held_out
    return WorkflowSession(
        plan.config,
        builder,
        config_file=given.config_file,
        override=given.override,
        training=True,
        remote=remote,
        replaced=None if sampling is None else ReplacedSampling(sampling.temperature, finetuning.target_model),
        traces=traces,
        examples=examples,
    )


async def opened_remote(stack: AsyncExitStack, plan: Plan, builder: Builder) -> RemoteWorkflow | Workers | None:
    """The workflow at the run's endpoint, or in processes of its own; None for a workflow in this process.

    Raises:
        ConfigError: the trained model is served by this process, where the remote workflow cannot reach it.
        BackendUnreachable: nothing answers there.
        WorkflowError: the server there cannot play training rollouts.

    """
    url = plan.given.endpoint
    if plan.finetuning.rollouts is not None:
        return await stack.enter_async_context(ray_workers(plan.finetuning.rollouts, plan.config, builder))
    if url is None:
        return None
    for name in plan.students:
        if type((await builder.get_llm_provider(name)).config) is not type(plan.config.llms[name]):
            raise ConfigError(
                [f"llms.{name}: its model is served inside this process only, so {url} would sample another model"],
                hint="train on a server that both sides reach (`nat backend serve`), and ask it through an LLM of "
                "_type openai in both YAMLs; docs/agents/served.md shows how",
            )
    return await stack.enter_async_context(open_remote(url, trains=True, rollout_timeout=plan.given.endpoint_timeout))


async def _validation_session(
    stack: AsyncExitStack, plan: Plan, config: Config, builder: Builder, remote: RemoteWorkflow | None, traces: Traces
) -> WorkflowSession:
    """The validation's workflow, with the trained model; a remote workflow stays remote."""
    llms = {name: await _served(name, llm, plan.config, builder) for name, llm in config.llms.items()}
    seeded = config.finetuning.model_copy(update={"seed": plan.finetuning.seed})
    config = config.model_copy(update={"llms": llms, "finetuning": seeded})
    building = WorkflowBuilder.from_config(config, builder.run_dir, workflow=remote is None)
    return WorkflowSession(
        config,
        await stack.enter_async_context(building),
        config_file=Path(str(plan.given.validation_config_file)),
        training=True,
        remote=remote,
        traces=traces,
        examples={plan.given.validation_dataset: plan.held_out} if plan.held_out else {},
    )


async def _served(name: str, llm: LLMBaseConfig, training: Config, builder: Builder) -> LLMBaseConfig:
    """The address of the training's LLM of that name, with the sampling of the validation's YAML.

    A server that the harness started for the training serves the validation too: a second one would serve an untrained
    model.
    """
    known = training.llms.get(name)
    if known is None or type(known) is not type(llm):
        return llm
    served = (await builder.get_llm_provider(name)).config
    if type(served) is type(llm):
        return llm
    shared = llm.model_fields_set & type(served).model_fields.keys() - {"type", "model", "model_name"}
    return served.model_copy(update={field: getattr(llm, field) for field in shared})


def observe_rollouts(session: WorkflowSession, observe: Observer) -> None:
    """Tell the observer of each rollout that ends."""
    session.on_rollout.append(
        lambda rollout: observe(RolloutDone(None if rollout.error is None else str(rollout.error)))
    )


class RolloutTraces:
    """An observer of the run's log."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._run_id = ""

    def __call__(self, event: Event) -> None:
        match event:
            case RunBegun():
                self._run_id = event.run_id
            case RolloutsPlayed():
                of_run = {"run_id": self._run_id, "purpose": str(event.phase), "epoch": event.epoch}
                for record in event.records:
                    own = {
                        "generation": record.generation,
                        "weight_version": ", ".join(sorted(record.policy_versions)) or None,
                        "left_out": record.left_out and str(record.left_out),
                        "reward": record.reward,
                    }
                    facts = {f"nat.finetune.{name}": value for name, value in (of_run | own).items()}
                    scores = [("reward", record.reward, record.reasoning)] if record.reward is not None else []
                    scores += [(name, score, None) for name, score in record.scores_beside.items() if scores]
                    self._traces.judged(record.example_id, record.seed, facts, scores)
