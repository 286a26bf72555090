"""Play rollouts on a Ray cluster of two nodes on loopback, and print what became of them, case by case."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_raylet_start_wait_time_s": "180"}

import ray
from ray.cluster_utils import Cluster

from nat.config.load import load_config
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.rollout import ray_workers
from nat.rollout.session import WorkflowSession, opened_session

HERE = Path(__file__).parent
CONFIG = f"""
imports: [{HERE / "agent.py"}]
workflow: {{_type: acts_on_its_process}}
eval:
  general:
    max_concurrency: 8
    item_timeout: 2
    rollouts: {{ray: "{{address}}", workers: 2}}
"""
MEMORY = 100 * 2**20


class Nodes:
    """A head without processors, and nodes with one each, so that each plays one process."""

    def __init__(self) -> None:
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False},
        )
        self.nodes = [self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(2)]


@contextmanager
def two_nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    try:
        ray.init(address=nodes.cluster.address, log_to_driver=False)
        yield nodes
    finally:
        ray.shutdown()
        nodes.cluster.shutdown()


async def played(session: WorkflowSession, *inputs: str) -> list[Rollout]:
    items = [
        EvalInputItem(id=str(number), input_obj=value, expected_output_obj=None) for number, value in enumerate(inputs)
    ]
    return await asyncio.gather(*(session.run(item, seed=number) for number, item in enumerate(items)))


def told(rollouts: list[Rollout]) -> list[dict[str, Any]]:
    return [
        {"id": each.item_id, "seed": each.seed, "output": each.output, "error": each.error and str(each.error)}
        for each in rollouts
    ]


async def spread(session: WorkflowSession, _: Nodes) -> Any:
    return told(await played(session, *["wait 0.05"] * 12))


async def process_killed(session: WorkflowSession, _: Nodes) -> Any:
    [first] = await played(session, "wait 0")
    playing = asyncio.create_task(played(session, *["wait 0.2"] * 40))
    await asyncio.sleep(0.5)
    os.kill(first.output["process"], signal.SIGKILL)
    rollouts, replaced = await playing, set[int]()
    while len(replaced) < 2:
        replaced |= {each.output["process"] for each in await played(session, "wait 0.1", "wait 0.1")}
    return {"killed": first.output["process"], "replaced": sorted(replaced), "rollouts": told(rollouts)}


async def node_killed(session: WorkflowSession, nodes: Nodes) -> Any:
    playing = asyncio.create_task(played(session, *["wait 0.2"] * 40))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(nodes.cluster.remove_node, nodes.nodes[1], allow_graceful=False)
    return told(await playing)


async def agent_ends_its_process(session: WorkflowSession, _: Nodes) -> Any:
    return told(await played(session, "exit", "wait 0.1"))


async def agent_blocks(session: WorkflowSession, _: Nodes) -> Any:
    ray_workers.GRACE_SECONDS = 1.0
    [blocked] = await played(session, "block 3600")
    return told([blocked, *await played(session, "wait 0", "wait 0")])


async def output_cannot_be_sent(session: WorkflowSession, _: Nodes) -> Any:
    return told(await played(session, "lock", "wait 0"))


CASES: tuple[Callable[[WorkflowSession, Nodes], Awaitable[Any]], ...] = (
    spread,
    process_killed,
    agent_ends_its_process,
    agent_blocks,
    output_cannot_be_sent,
    node_killed,
)
"""The last one leaves a node less."""


async def main(nodes: Nodes) -> dict[str, Any]:
    path = Path("config.yml")
    path.write_text(CONFIG.replace("{address}", nodes.cluster.address))  # noqa: ASYNC240 - before anything runs
    found = {}
    for case in CASES:
        async with opened_session(load_config(path)) as session:
            found[case.__name__] = await case(session, nodes)
    return found


if __name__ == "__main__":
    with two_nodes() as made:
        found = asyncio.run(main(made))
    print(json.dumps(found))
