import pytest
from pydantic import Field

from fakes.guide_components import GUIDE_YAML, register_guide_components
from nat.builder.builder import Builder
from nat.builder.llm import LLMProviderInfo
from nat.builder.workflow_builder import WorkflowBuilder
from nat.config import parse_config
from nat.config.sources import parse_yaml
from nat.data_models.component_ref import FunctionRef, LLMRef, UntrainedLLMRef
from nat.data_models.finetuning import TrainerAdapterConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.errors import RegistryError, WorkflowError
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import (
    register_function,
    register_llm_client,
    register_llm_provider,
    register_tool_wrapper,
)


class NodeConfig(FunctionBaseConfig, name="node"):
    calls: list[FunctionRef] = Field(default_factory=list)
    llm: LLMRef | None = None


class ServedConfig(LLMBaseConfig, name="served"):
    size: int = 1


class ReachedConfig(LLMBaseConfig, name="reached"):
    port: int


@pytest.fixture(autouse=True)
def log():
    """Components that log when they are opened and closed."""
    events: list[str] = []
    with pushed_catalog():
        register_guide_components(events)

        @register_function(config_type=NodeConfig)
        async def node(config: NodeConfig, builder: Builder):
            callees = [await builder.get_function(name) for name in config.calls]
            client = await builder.get_llm(config.llm, wrapper_type="openai") if config.llm else None
            events.append(f"open {sorted(config.calls)} {client}")

            async def run(value: int) -> int:
                return value + sum([await callee.ainvoke(value) for callee in callees])

            yield run
            events.append(f"close {sorted(config.calls)}")

        @register_llm_provider(config_type=ServedConfig)
        async def served(config: ServedConfig, builder: Builder):
            events.append(f"start {builder.llm_name}")
            yield LLMProviderInfo(config=ReachedConfig(port=8000 + config.size), description="a child process")
            events.append("stop")

        @register_llm_client(config_type=ReachedConfig, wrapper_type="openai")
        async def client(config: ReachedConfig, builder: Builder):
            yield f"{builder.llm_name}@{config.port}"
            events.append("client closed")

        @register_tool_wrapper(wrapper_type="mine")
        def tool(name, fn, builder):
            return (name, fn.instance_name)

        yield events


def config(**sections):
    return parse_config(sections)


async def test_components_open_in_order_of_need_and_close_in_reverse(log):
    """A component's dependencies open before it and close after it; an LLM's server outlives its clients."""
    tree = config(
        functions={"a": {"_type": "node", "calls": ["b"]}, "b": {"_type": "node", "llm": "m"}},
        llms={"m": {"_type": "served"}},
        workflow={"_type": "node", "calls": ["a"]},
    )
    async with WorkflowBuilder.from_config(tree):
        log.append("running")
    assert log == [
        "start m",
        "open [] m@8001",
        "open ['b'] None",
        "open ['a'] None",
        "running",
        "close ['a']",
        "close ['b']",
        "close []",
        "client closed",
        "stop",
    ]


async def test_the_guides_components_are_built(log):
    """Builder, adapter and trainer are built once on request, and the trainer is bound to the other two."""
    tree = parse_config(parse_yaml(GUIDE_YAML), environ={"TRAINING_API_KEY": "k"})
    async with WorkflowBuilder.from_config(tree) as builder:
        parts = [await builder.get_trajectory_builder("my_builder"), await builder.get_trainer_adapter("my_adapter")]
        trainer = await builder.get_trainer("my_trainer", *parts)
        assert list(trainer.bound) == parts
        assert await builder.get_trainer_adapter("my_adapter") is parts[1]
        assert (await builder.get_trainer_config("my_trainer")).static_type() == "my_trainer"
        assert builder.get_evaluator("my_reward").description == "Always 1"
        assert builder.get_max_concurrency() == 8
        assert str(builder.get_output_dir()) == ".tmp/finetuning/eval"
    assert log == ["trainer", "trainer_adapter", "trajectory_builder", "workflow", "evaluator"]


async def test_a_failure_closes_open_components(log):
    """An error in a build function names the component; everything opened before it is closed."""

    class BrokenConfig(FunctionBaseConfig, name="broken"):
        pass

    @register_function(config_type=BrokenConfig)
    async def broken(config, builder):
        await builder.get_llm_provider("m")
        raise OSError("no such thing")
        yield

    tree = config(llms={"m": {"_type": "served"}}, functions={"f": {"_type": "broken"}})
    with pytest.raises(
        WorkflowError, match=r"functions.f \(_type: broken\) could not be built: OSError: no such thing"
    ):
        async with WorkflowBuilder.from_config(tree):
            pytest.fail("it must not open")
    assert log == ["start m", "stop"]


async def test_an_error_while_closing_hides_no_other():
    """The first error is raised; the teardown's error becomes a note on it."""

    class LeakyConfig(FunctionBaseConfig, name="leaky"):
        pass

    @register_function(config_type=LeakyConfig)
    async def leaky(config, builder):
        async def run(value: int) -> int:
            return value

        yield run
        raise OSError("cannot close")

    with pytest.raises(KeyError) as caught:
        async with WorkflowBuilder.from_config(config(workflow={"_type": "leaky"})):
            raise KeyError("first")
    assert caught.value.__notes__ == ["and closing the components failed after that: OSError: cannot close"]
    with pytest.raises(OSError, match="cannot close"):
        async with WorkflowBuilder.from_config(config(workflow={"_type": "leaky"})):
            pass


async def test_a_wrong_yield_is_an_error():
    """The error names the build function and what it yielded."""

    class WrongConfig(FunctionBaseConfig, name="wrong"):
        pass

    @register_function(config_type=WrongConfig)
    async def wrong(config, builder):
        yield 3

    with pytest.raises(WorkflowError, match="workflow: its build function yielded int; wanted: FunctionInfo"):
        async with WorkflowBuilder.from_config(config(workflow={"_type": "wrong"})):
            pytest.fail("it must not open")


async def test_components_that_need_each_other():
    """A circle without visible references is an error instead of a deadlock."""
    async with WorkflowBuilder() as builder:
        builder._add("functions", "b", NodeConfig(calls=["a"]))
        with pytest.raises(WorkflowError, match=r"circle: functions.a → functions.b → functions.a"):
            await builder.add_function("a", NodeConfig(calls=["b"]))


async def test_unknown_names_list_the_known_ones():
    """The error for a wrong name lists the right ones."""
    async with WorkflowBuilder.from_config(config(llms={"judge": {"_type": "served"}})) as builder:
        with pytest.raises(WorkflowError, match=r"'jugde' not found under llms. Did you mean 'judge'"):
            await builder.get_llm("jugde", wrapper_type="openai")
        with pytest.raises(RegistryError, match=r"no client of wrapper_type 'crewai'.*Wrapper types for it: openai"):
            await builder.get_llm("judge", wrapper_type="crewai")
        with pytest.raises(WorkflowError, match="there is no workflow"):
            builder.get_workflow()


async def test_llm_clients_are_new_and_know_their_name():
    """Each call gives a new client; outside of a build function, the LLM's name is unknown."""
    async with WorkflowBuilder.from_config(config(llms={"m": {"_type": "served", "size": 5}})) as builder:
        assert await builder.get_llms(["m", "m"], wrapper_type="openai") == ["m@8005", "m@8005"]
        assert builder.llm_name is None
        assert (await builder.get_llm_provider("m")).description == "a child process"
        assert builder.get_llm_config("m") == ServedConfig(size=5)


async def test_tools():
    """Functions become a framework's tools; the workflow itself does not."""
    async with WorkflowBuilder.from_config(
        config(functions={"a": {"_type": "node"}, "b": {"_type": "node"}}, workflow={"_type": "node"})
    ) as builder:
        assert await builder.get_tool("a", "mine") == ("a", "a")
        assert await builder.get_all_tools("mine") == [("a", "a"), ("b", "b")]
        with pytest.raises(RegistryError, match="'theirs' is not registered as tool wrapper"):
            await builder.get_tool("a", "theirs")


async def test_the_current_builder_can_be_found(tmp_path):
    """Code inside a workflow can get the builder and the run's folder."""
    with pytest.raises(WorkflowError, match="Builder not set in context"):
        Builder.current()
    async with WorkflowBuilder.from_config(config(), run_dir=tmp_path) as builder:
        assert Builder.current() is builder
        assert builder.run_dir == tmp_path
    with pytest.raises(WorkflowError):
        Builder.current()


class TrainingConfig(TrainerAdapterConfig, name="training"):
    llm: LLMRef | None = None
    teacher: UntrainedLLMRef | None = None


@pytest.mark.parametrize(
    ("adapters", "trained"),
    [
        ([], set()),
        ([TrainingConfig()], set()),
        ([TrainingConfig(llm="student")], {"student"}),
        ([TrainingConfig(llm="student", teacher="teacher")], {"student"}),
        ([TrainingConfig(llm="student", teacher="teacher"), TrainingConfig(llm="judge")], {"student", "judge"}),
    ],
)
async def test_only_named_llms_are_trained(adapters, trained):
    """Trainer adapters name the LLMs that they train, beside those that they ask."""
    async with WorkflowBuilder() as builder:
        for number, adapter in enumerate(adapters):
            await builder.add_trainer_adapter(str(number), adapter)
        assert builder.trained_llms == trained


async def test_without_its_workflow_only_requested_functions_are_built(log):
    """Functions of a remote workflow may need its machine, so only those that an evaluator requests are built."""
    text = "functions: {a: {_type: node}, b: {_type: node, calls: [a]}}\nworkflow: {_type: node, calls: [b]}"
    config = parse_config(parse_yaml(text))
    async with WorkflowBuilder.from_config(config, workflow=False) as builder:
        assert log == []
        await builder.get_function("a")
        assert log == ["open [] None"]
        with pytest.raises(WorkflowError, match="there is no workflow"):
            builder.get_workflow()
