"""Rollouts and updates on 1 to 1024 GPUs, simulated event by event from the costs in `bench/costs.toml`.

    python -m bench.simulate                              # the tables
    python -m bench.simulate --gpus 64 --price 4 --batch 4096 --costs my.toml

An engine computes prompts first, then steps that give each running chat a token, as slow as was measured with so many
chats; further calls wait. A rollout stays at one engine. Rollouts start in order while their age allows, and updates
take whole batches in order. After an update the engines take no new calls until begun answers have ended, and load the
weights. One process per GPU plays rollouts, and one process records them all.

simpy 4.1 was tried: an engine whose speed follows its chats interrupts a wait at each call, which took 15 times as long
as this heap.
"""

import argparse
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from math import ceil, inf
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

COSTS = Path(__file__).with_name("costs.toml")
SIZES = tuple(2**n for n in range(11))
SHOWN = (1, 8, 64, 256, 1024)
MODELS, STALENESS, LARGE_BATCH = ("8B", "70B"), (0, 1, 2), 8192
UPDATES = 5
"""Of a simulation; what comes before the end of the first is not counted."""
GROWS = 1.5
"""A doubling of the GPUs that gives fewer times as many rollouts ends the scaling."""
MATTERS = 1.05
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "the learner": {"learner_tokens_per_second": inf, "update_seconds": 0.0, "optimizer_steps": 0},
    "the engines": {"steps": ((1, 0.0),), "prompt_tokens_per_second": inf},
    "tools and slow rollouts": {"tool_seconds": 0.0},
    "handing weights over": {"hands_over": False},
    "recording in one process": {"rollout_seconds": 0.0, "record_seconds_per_token": 0.0},
}
"""What the largest gain would come from if it cost nothing is the limit."""
HEAD = (
    "| model, staleness, GPUs | learner + engines | rollouts/s | tokens/s | idle learner | engines | age | $ | limit |",
    "|---|---:|---:|---:|---:|---:|---:|---:|---|",
)
STOPS = ("| model, staleness, rollouts of an update | scales to, GPUs | limit of twice as many |", "|---|---:|---|")
TABLES = ("simulate", "simulate stops", "simulate checks")
CHECKS = ("| what | simulated | in the measurement | difference |", "|---|---:|---:|---:|")


@dataclass(frozen=True)
class Costs:
    """A model on a kind of GPU, and the rollouts of an agent, by the names of `costs.toml`."""

    turns: int
    prompt_tokens: int
    added_tokens: int
    answer_tokens: float
    answer_spread: float
    tool_seconds: float
    tool_spread: float
    batch: int
    call_seconds: float
    rollout_seconds: float
    record_seconds_per_token: float
    price: float
    node_gpus: int
    node_bytes_per_second: float
    network_bytes_per_second: float
    workers: float
    hand_over_seconds: float
    hand_over_bytes_per_second: float
    update_seconds: float
    optimizer_steps: int
    weights: float
    adapter_weights: float
    chats_at_a_time: int
    prompt_tokens_per_second: float
    learner_tokens_per_second: float
    engine_gpus: int
    learner_gpus: int
    steps: tuple[tuple[int, float], ...]
    """Seconds of a step by the chats of an engine."""
    hands_over: bool = True

    def step(self, chats: int) -> float:
        """Seconds of a step, on a line between the measured numbers of chats."""
        for (few, short), (many, long) in pairwise(self.steps):
            if chats <= many:
                return short + (long - short) * (chats - few) / (many - few)
        most, seconds = self.steps[-1]
        return seconds * max(1.0, chats / most)

    def update(self, tokens: float, gpus: int) -> float:
        """Seconds of an update on so many GPUs, whose copies of the model sum their gradients after each step."""
        copies = max(1, gpus // self.learner_gpus)
        bandwidth = self.node_bytes_per_second if gpus <= self.node_gpus else self.network_bytes_per_second
        summing = 2 * (copies - 1) / copies * 4 * self.adapter_weights / bandwidth
        return tokens / (self.learner_tokens_per_second * gpus) + self.update_seconds + self.optimizer_steps * summing

    def split(self, gpus: int, staleness: int) -> tuple[int, int] | None:
        """GPUs of the learner, and engines, of which a rough sum promises most; None if the model does not fit."""
        if gpus == self.engine_gpus == self.learner_gpus:
            return gpus, 1
        ways = range(self.learner_gpus, gpus - self.engine_gpus + 1, self.learner_gpus)
        found = [(learner, (gpus - learner) // self.engine_gpus) for learner in ways]
        return min(found, key=lambda way: self._epoch(way[0], way[1], staleness), default=None)

    def _epoch(self, learner: int, engines: int, staleness: int) -> float:
        """About the seconds of an epoch, tools left out."""
        chats = min(self.chats_at_a_time, ceil(self.batch * (staleness + 1) / engines))
        read, sampled = self.prompt_tokens + (self.turns - 1) * self.added_tokens, self.turns * self.answer_tokens
        seconds = sampled * self.step(chats) / chats + read / self.prompt_tokens_per_second
        play, train = self.batch / engines * seconds, self.update(self.batch * (read + sampled), learner)
        return play + train if staleness == 0 else max(play, train)


def costs_of(name: str, path: Path = COSTS, **own: Any) -> Costs:
    """The costs of a model; what it lacks is that of the one it is `like`, whose speeds go by the number of weights."""
    figures = tomllib.loads(path.read_text())
    model = figures["model"][name]
    like = figures["model"][model["like"]] if "like" in model else model
    found = {key: each["value"] for key, each in {**figures["all"], **like, **model}.items() if key != "like"}
    scale = like["weights"]["value"] / found["weights"]
    for key, gpus in {
        "tokens_per_second": found["engine_gpus"],
        "prompt_tokens_per_second": found["engine_gpus"],
        "learner_tokens_per_second": 1,
    }.items():
        if key not in model:
            rates = found[key]
            found[key] = (
                {n: r * scale * gpus for n, r in rates.items()} if isinstance(rates, dict) else rates * scale * gpus
            )
    rates = sorted((int(chats), rate) for chats, rate in found.pop("tokens_per_second").items())
    return replace(Costs(**found, steps=tuple((chats, chats / rate) for chats, rate in rates)), **own)


class Clock:
    """The time, and what happens when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Events of one time keep their order."""
        heappush(self._events, (time, next(self._order), event))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._events:
            self.now, _, event = heappop(self._events)
            event()


class Queue:
    """A process that does one thing after another."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._free, self.busy = clock, 0.0, 0.0

    def add(self, seconds: float, done: Callable[[], None]) -> None:
        """Work so long, after what was added before."""
        self._free = max(self._free, self._clock.now) + seconds
        self.busy += seconds
        self._clock.at(self._free, done)


class Engine:
    """Computes prompts first, then a token for each running chat, step by step."""

    def __init__(self, clock: Clock, costs: Costs) -> None:
        self._clock, self._costs, self._order = clock, costs, count()
        self._running: list[tuple[float, int, Callable[[], None]]] = []
        self._waiting = deque[tuple[float, float, Callable[[], None]]]()
        self._steps, self._at, self._prompts_until, self._version = 0.0, 0.0, 0.0, 0
        self._loaded: Callable[[], None] | None = None
        self._open = True
        self.busy, self.tokens, self.most = 0.0, 0.0, 0
        """Seconds with a chat, sampled tokens, and the most chats at the same time."""

    def call(self, prompt: float, answer: float, done: Callable[[], None]) -> None:
        """Answer when there is room."""
        self.advance()
        self._waiting.append((prompt, answer, done))
        self._go_on()

    def load(self, loaded: Callable[[], None]) -> None:
        """Take over weights after the answers that have begun."""
        if not self._costs.hands_over:
            return loaded()
        self.advance()
        self._open, self._loaded = False, loaded
        return self._go_on()

    def advance(self) -> None:
        """Count what was done until now."""
        now = self._clock.now
        if self._running:
            seconds, step = max(0.0, now - max(self._at, self._prompts_until)), self._costs.step(len(self._running))
            steps = seconds / step if step else self._running[0][0] - self._steps
            self._steps += steps
            self.tokens += steps * len(self._running)
            self.busy += now - self._at
        self._at = now

    def _go_on(self) -> None:
        now, costs = self._clock.now, self._costs
        if self._loaded is not None and not self._running:
            loaded, self._loaded = self._loaded, None
            seconds = costs.hand_over_seconds + 4 * costs.adapter_weights / costs.hand_over_bytes_per_second
            self._clock.at(now + seconds, partial(self._reopen, loaded))
        while self._waiting and self._open and len(self._running) < costs.chats_at_a_time:
            prompt, answer, done = self._waiting.popleft()
            self._prompts_until = max(self._prompts_until, now) + prompt / costs.prompt_tokens_per_second
            heappush(self._running, (self._steps + answer, next(self._order), done))
        self._version, self.most = self._version + 1, max(self.most, len(self._running))
        if self._running:
            left = max(0.0, self._running[0][0] - self._steps) * costs.step(len(self._running))
            self._clock.at(max(now, self._prompts_until) + left, partial(self._end, self._version))

    def _end(self, version: int) -> None:
        if version != self._version:  # another chat began or ended meanwhile
            return
        self.advance()
        _, _, done = heappop(self._running)
        self._go_on()
        done()

    def _reopen(self, loaded: Callable[[], None]) -> None:
        self.advance()
        self._open = True
        self._go_on()
        loaded()


@dataclass
class Result:
    """What a simulation did; seconds, and shares of the time after the first update."""

    gpus: int
    learner: int
    engines: int
    started: int = 0
    ended: int = 0
    trained: int = 0
    tokens: float = 0.0
    """Of all trained rollouts."""
    ages: list[int] = field(default_factory=list)
    """Of each trained rollout, in updates since its first call."""
    seconds: float = 0.0
    """After the first update; likewise the next ones."""
    rollouts_per_second: float = 0.0
    tokens_per_second: float = 0.0
    learner_idle: float = 0.0
    engines_idle: float = 0.0

    def price(self, per_hour: float) -> float:
        """Of 1,000 rollouts."""
        return 1000 * self.gpus * per_hour / 3600 / self.rollouts_per_second


class Simulation:
    """Rollouts, updates and hand-overs until so many updates are done."""

    def __init__(
        self,
        costs: Costs,
        learner: int,
        engines: int,
        *,
        gpus: int,
        staleness: int,
        updates: int = UPDATES,
        seed: int = 0,
    ) -> None:
        self._costs, self._random = costs, Random(seed)
        self._staleness, self._updates = staleness, updates
        self.clock = Clock()
        self.engines = [Engine(self.clock, costs) for _ in range(engines)]
        self.learner, self.recorder = Queue(self.clock), Queue(self.clock)
        self.workers = [Queue(self.clock) for _ in range(max(1, round(costs.workers * gpus)))]
        self.result = Result(gpus, learner, engines)
        self._version, self._training, self._loading = 0, False, 0
        self._began: list[int] = []
        """The version at the first call of each rollout."""
        self._ended = [0] * (updates + staleness + 1)
        self._tokens = [0.0] * len(self._ended)
        """By batch."""
        self._mark = 0.0, 0.0, 0.0

    def run(self) -> Result:
        """Play and train."""
        self._start()
        self.clock.run()
        return self.result

    def _start(self) -> None:
        most = self._costs.batch * min(self._version + self._staleness + 1, self._updates)
        while self.result.started < most:
            number, self.result.started = self.result.started, self.result.started + 1
            self._began.append(self._version)
            engine = self._random.choice(self.engines) if self.engines else None
            self._turn(number, engine, 0, 0.0)

    def _turn(self, number: int, engine: Engine | None, turn: int, tokens: float) -> None:
        costs = self._costs
        if turn == costs.turns:
            seconds = costs.rollout_seconds + costs.record_seconds_per_token * tokens
            return self.recorder.add(seconds, partial(self._end, number, tokens))
        prompt, answer = (
            costs.added_tokens if turn else costs.prompt_tokens,
            self._drawn(costs.answer_tokens, costs.answer_spread),
        )
        after = partial(self._turn, number, engine, turn + 1, tokens + prompt + answer)
        tool = self._drawn(costs.tool_seconds, costs.tool_spread) if turn + 1 < costs.turns else 0.0
        answered = partial(self._later, tool, after)
        call = answered if engine is None else partial(engine.call, prompt, answer, answered)
        return self.workers[number % len(self.workers)].add(costs.call_seconds, call)

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        self.clock.at(self.clock.now + seconds, event)

    def _drawn(self, mean: float, spread: float) -> float:
        return mean * self._random.lognormvariate(-(spread**2) / 2, spread)

    def _end(self, number: int, tokens: float) -> None:
        batch = number // self._costs.batch
        self.result.ended += 1
        self._ended[batch] += 1
        self._tokens[batch] += tokens
        self._train()

    def _train(self) -> None:
        batch, size = self._version, self._costs.batch
        if self._training or self._ended[batch] < size:
            return
        self._training = True
        self.result.ages += [batch - began for began in self._began[batch * size : (batch + 1) * size]]
        seconds = self._costs.update(self._tokens[batch], self.result.learner)
        self.learner.add(seconds, self._hand_over)

    def _hand_over(self) -> None:
        self._loading = len(self.engines) or 1
        for engine in self.engines:
            engine.load(self._loaded)
        if not self.engines:
            self._loaded()

    def _loaded(self) -> None:
        self._loading -= 1
        if self._loading:
            return
        result, now = self.result, self.clock.now
        result.tokens += self._tokens[self._version]
        result.trained += self._costs.batch
        self._version, self._training = self._version + 1, False
        if self._version == 1:
            self._mark = now, self.learner.busy, self._engines_busy()
        if self._version == self._updates and self._updates > 1:
            began, learner, engines = self._mark
            result.seconds = now - began
            result.rollouts_per_second = (self._updates - 1) * self._costs.batch / result.seconds
            result.tokens_per_second = sum(self._tokens[1 : self._updates]) / result.seconds
            result.learner_idle = 1 - (self.learner.busy - learner) / result.seconds
            spent = result.seconds * (len(self.engines) or 1)
            result.engines_idle = 1 - (self._engines_busy() - engines) / spent
            return
        self._start()
        self._train()

    def _engines_busy(self) -> float:
        for engine in self.engines:
            engine.advance()
        return sum(engine.busy for engine in self.engines)


def simulate(costs: Costs, gpus: int, staleness: int, way: tuple[int, int] | None = None) -> Result | None:
    """Train on so many GPUs; None if the model does not fit on them."""
    if (way := way or costs.split(gpus, staleness)) is None:
        return None
    return Simulation(costs, *way, gpus=gpus, staleness=staleness).run()


def limit(costs: Costs, found: Result, staleness: int) -> str:
    """What the rollouts per second would gain most from, in words."""
    way = found.learner, found.engines
    rates = {name: simulate(replace(costs, **free), found.gpus, staleness, way) for name, free in LIMITS.items()}
    gains = {name: each.rollouts_per_second / found.rollouts_per_second for name, each in rates.items() if each}
    name, gain = max(gains.items(), key=lambda item: item[1])
    return f"{name} ({gain:.1f} times)" if gain > MATTERS else "nothing alone"


def row(name: str, costs: Costs, gpus: int, staleness: int) -> str | None:
    """The line of the table; None if the model does not fit, or one GPU would have to do both at the same time."""
    found = simulate(costs, gpus, staleness)
    if found is None or (staleness and found.learner + found.engines * costs.engine_gpus > gpus):
        return None
    parts = f"{found.learner} + {found.engines * costs.engine_gpus}" if gpus > 1 else "1 for both"
    rates = f"{found.rollouts_per_second:.1f} | {found.tokens_per_second:,.0f}"
    shares = f"{found.learner_idle:.0%} | {found.engines_idle:.0%} | {fmean(found.ages[costs.batch :]):.1f}"
    price = f"{found.price(costs.price):.2f}"
    return (
        f"| {name}, {staleness}, {gpus:,} | {parts} | {rates} | {shares} | {price} | {limit(costs, found, staleness)} |"
    )


def stop(name: str, costs: Costs, staleness: int) -> str:
    """Up to where doublings help, and what limits the next one."""
    last = found = None
    for gpus in SIZES:
        found = simulate(costs, gpus, staleness)
        if found is None or gpus == 1:  # which samples and trains by turns
            continue
        if last is not None and found.rollouts_per_second < GROWS * last.rollouts_per_second:
            break
        last = found
    assert last is not None, "each model fits on some"
    assert found is not None, "and on all larger numbers"
    cell = f"{name}, {staleness}, {costs.batch:,}"
    return f"| {cell} | {last.gpus:,} | {limit(costs, found, staleness)} |"


def checks() -> Iterator[tuple[str, float, float]]:
    """What was simulated and measured: rollouts on one and two processes of Ray, and epochs on one GPU."""
    for workers, measured in ((1, 9.8), (2, 18.7)):
        costs = costs_of("8B", turns=1, call_seconds=0.1, batch=60, record_seconds_per_token=0.0, update_seconds=0.0)
        only = replace(costs, workers=workers, learner_tokens_per_second=inf, tool_seconds=0.0)
        found = Simulation(only, 1, 0, gpus=1, staleness=0).run()
        yield f"rollouts per second that compute 0.1 s, {workers} on Ray", found.rollouts_per_second, measured
    for name, batch, rollouts, update in (("0.5B", 256, 6.0, 5.6), ("1.5B", 256, 5.7, 6.3), ("8B", 64, 2.8, 3.0)):
        costs = costs_of(name, turns=1, prompt_tokens=128, answer_tokens=64, answer_spread=0.0, batch=batch)
        alone = replace(costs, call_seconds=0.0, rollout_seconds=0.0, record_seconds_per_token=0.0)
        run = Simulation(alone, 1, 1, gpus=1, staleness=0, updates=1)
        run.run()
        yield f"{name}, LoRA: seconds of {batch} rollouts on a GPU", run.engines[0].busy, rollouts
        yield f"{name}, LoRA: seconds of their update", run.learner.busy, update


def check_row(what: str, own: float, seen: float) -> str:
    """A line of the comparison."""
    return f"| {what} | {own:.1f} | {seen:.1f} | {own / seen - 1:+.0%} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=main.__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--gpus", type=int, nargs="+", default=SHOWN)
    parser.add_argument("--costs", type=Path, default=COSTS)
    parser.add_argument("--price", type=float, help="of a GPU per hour")
    parser.add_argument("--batch", type=int, help="rollouts of an update")
    parser.add_argument("--tables", choices=TABLES, nargs="+", default=TABLES)
    options = parser.parse_args()
    own = {name: value for name in ("price", "batch") if (value := getattr(options, name)) is not None}
    costs = {name: costs_of(name, options.costs, **own) for name in options.models}
    cases = [(name, each, gpus, k) for name, each in costs.items() for k in STALENESS for gpus in options.gpus]
    stops = [(name, each, k) for name, each in costs.items() for k in STALENESS]
    stops += [(name, replace(each, batch=LARGE_BATCH), 1) for name, each in costs.items()]
    tables = {
        "simulate": (HEAD, (line for case in cases if (line := row(*case)))),
        "simulate stops": (STOPS, (stop(*case) for case in stops)),
        "simulate checks": (CHECKS, (check_row(*each) for each in checks())),
    }
    for name in options.tables:
        _show(*tables[name])


def _show(head: Sequence[str], rows: Iterator[str]) -> None:
    print("\n".join(head), flush=True)
    for line in rows:
        print(line, flush=True)
    print()


if __name__ == "__main__":
    main()
