"""The application behind `nat ui`: its pages, each read from a journal when it is asked for. It changes no run."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nat.dashboard.rendering import STATIC, render
from nat.dashboard.runs import Runs, slug_of
from nat.dashboard.views import (
    EPOCHS_ON_PAGE,
    Links,
    count_in,
    epoch_title,
    epoch_view,
    held_out_rows,
    outcomes_of,
    paged,
    progress_of,
    rewards_view,
    rollout_view,
    tokens_view,
    with_answers,
)
from nat.data_models.score import mean
from nat.errors import JournalError
from nat.reports.charts import two_curves
from nat.reports.comparison import compare_runs
from nat.reports.overview import overviews
from nat.reports.rollouts import whole
from nat.reports.run_page import epochs_of
from nat.runs.journal import reading
from nat.runs.records import EpochRecord, Phase, after_epoch, same_examples

_ON_PAGE = 200
"""Rollouts in a list."""
_SIDE_BY_SIDE = 8
"""Generations of an example on a page."""


def create_app(root: Path | None) -> Starlette:
    """The pages about the runs below a folder; without one, about those that the user knows."""
    pages = Pages(Runs(root))
    run = "/runs/{slug}"
    played = run + "/{phase}/{epoch}"
    routes: list[tuple[str, Callable[[Request], Response]]] = [
        ("/", pages.runs),
        ("/compare", pages.compare),
        (run, pages.run),
        (f"{run}/news", pages.news),
        (f"{run}/results", pages.results),
        (f"{run}/findings", pages.findings),
        (f"{run}/held-out", pages.held_out),
        (played, pages.epoch),
        (f"{played}/example", pages.example),
        (f"{played}/rollout", pages.rollout),
    ]
    return Starlette(
        routes=[
            *(Route(path, handler, methods=["GET"]) for path, handler in routes),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={JournalError: _problem, HTTPException: _refused},
    )


def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, JournalError), "registered for it"
    return _html("problem.html", status=HTTPStatus.NOT_FOUND, message=error.message, hint=error.hint)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for it"
    return _html("problem.html", status=error.status_code, message=error.detail, hint="")


def _html(template: str, *, status: int = HTTPStatus.OK, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, **values), status)


class Pages:
    """One method for each page; Starlette calls them in threads of its own."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def runs(self, _: Request) -> Response:
        folders = self._runs.folders()
        rows = list(zip(overviews(folders), map(slug_of, folders), strict=True))
        return _html("runs.html", rows=rows, root=self._runs.root)

    def run(self, request: Request) -> Response:
        folder, links = self._run(request)
        view = self._runs.view(folder)
        return _html("run.html", view=view, progress=view.progress, links=links, **_epoch_table(view, request))

    def results(self, request: Request) -> Response:
        folder, links = self._run(request)
        view = self._runs.view(folder)
        return _html("_results.html", view=view, links=links, **_epoch_table(view, request))

    def news(self, request: Request) -> Response:
        """The run's state, if it is another than the browser has seen; then the page reads its results again."""
        folder, links = self._run(request)
        with reading(folder) as journal:
            progress = progress_of(journal)
        if request.query_params.get("seen") == progress.seen:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        response = _html("_state.html", progress=progress, links=links)
        response.headers["HX-Trigger-After-Swap"] = "news"
        return response

    def findings(self, request: Request) -> Response:
        folder, links = self._run(request)
        return _html("_findings.html", findings=self._runs.findings(folder), links=links)

    def held_out(self, request: Request) -> Response:
        folder, links = self._run(request)
        with reading(folder) as journal:
            records = {record.epoch: record for record in journal.validations()}
            if not records:
                raise JournalError("this run played no held-out examples", hint="go back to the run's page")
            before, after = (
                records.get(_number(request, name, default), records[default])
                for name, default in (("before", min(records)), ("after", max(records)))
            )
            rows = held_out_rows(before, after)
            page = paged(_number(request, "page", 1), _ON_PAGE, len(rows))
            shown = with_answers(journal, rows[page.begin : page.begin + page.size], before, after)
        return _html(
            "held_out.html",
            links=links,
            epochs=sorted(records),
            before=before,
            after=after,
            means=[mean([*own.values()]) if own else None for own in same_examples([before, after])],
            rows=shown,
            page=page,
            changed=[sum(row.difference is not None and sign * row.difference > 0 for row in rows) for sign in (1, -1)],
            failing=sum((row.before is None) != (row.after is None) for row in rows),
        )

    def epoch(self, request: Request) -> Response:
        folder, links = self._run(request)
        phase, epoch = _played(request)
        with reading(folder) as journal:
            view = epoch_view(journal, links, phase, epoch, _number(request, "page", 1))
            beside = _beside(journal.played(phase), epoch)
        rewards = rewards_view(self._runs.outcomes(folder, phase, epoch))
        return _html("epoch.html", view=view, rewards=rewards, links=links, phase=phase, epoch=epoch, beside=beside)

    def example(self, request: Request) -> Response:
        folder, links = self._run(request)
        phase, epoch = _played(request)
        name = request.query_params.get("id", "")
        with reading(folder) as journal:
            outcomes = outcomes_of(journal, phase, epoch, name)
            page = paged(_number(request, "page", 1), _SIDE_BY_SIDE, len(outcomes))
            shown = outcomes[page.begin : page.begin + page.size]
            views = [rollout_view(record, phase) for record in whole(journal, phase, epoch, shown)]
        here: dict[str, Any] = {"links": links, "phase": phase, "epoch": epoch, "example": name}
        return _html("example.html", where=epoch_title(phase, epoch), views=views, page=page, **here)

    def rollout(self, request: Request) -> Response:
        folder, links = self._run(request)
        phase, epoch = _played(request)
        name, generation = request.query_params.get("id", ""), _number(request, "generation", 0)
        with reading(folder) as journal:
            outcomes = outcomes_of(journal, phase, epoch, name)
            chosen = next((each for each in outcomes if each.generation == generation), outcomes[0])
            trained = journal.find(EpochRecord, epoch) if phase is Phase.TRAIN else None
            (record,) = whole(journal, phase, epoch, [chosen])
            tokens = tokens_view(journal, record)
        return _html(
            "rollout.html",
            view=rollout_view(record, phase),
            tokens=tokens,
            mismatch=None if trained is None else trained.metrics.get("train/logprob_diff_mean"),
            where=epoch_title(phase, epoch),
            links=links,
            phase=phase,
            epoch=epoch,
            beside=_beside([each.generation for each in outcomes], record.generation),
        )

    def compare(self, request: Request) -> Response:
        slugs = [request.query_params.get(name, "") for name in "ab"]
        first, second = (self._runs.folder(slug) for slug in slugs)
        with reading(first) as a, reading(second) as b:
            compared = compare_runs(a, b)
        pair = compared.held_out
        return _html(
            "compare.html",
            compared=compared,
            chart=two_curves({"A": compared.rewards_a, "B": compared.rewards_b}),
            when=(after_epoch(pair.epoch_a), after_epoch(pair.epoch_b)) if pair else None,
            links=[Links(f"/runs/{slug}") for slug in slugs],
        )

    def _run(self, request: Request) -> tuple[Path, Links]:
        slug = request.path_params["slug"]
        return self._runs.folder(slug), Links(f"/runs/{slug}")


def _epoch_table(view: Any, request: Request) -> dict[str, Any]:
    """A page of the epochs, the newest first, and whether the run goes on."""
    table = epochs_of(view.report, len(view.report.epochs))
    page = paged(_number(request, "page", 1), EPOCHS_ON_PAGE, len(table.rows))
    rows = table.rows[::-1][page.begin : page.begin + page.size]
    return {"epochs": replace(table, rows=rows), "page": page}


def _played(request: Request) -> tuple[Phase, int]:
    """The phase and the epoch of a page's address, where training epochs are counted from 1."""
    phase, number = request.path_params["phase"], count_in(request.path_params["epoch"])
    if phase not in set(Phase) or number is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Phase(phase), number - 1 if phase == Phase.TRAIN else number


def _number(request: Request, name: str, otherwise: int) -> int:
    number = count_in(request.query_params.get(name, ""))
    return otherwise if number is None else number


def _beside(numbers: list[int], chosen: int) -> tuple[int | None, int | None]:
    """The numbers before and after the chosen one; None at the ends."""
    place = numbers.index(chosen) if chosen in numbers else 0
    around = [None, *numbers, None]
    return around[place], around[place + 2]
