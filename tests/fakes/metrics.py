"""Reads a page of metrics as Prometheus does."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, ...], float]


async def scrape(client: httpx.AsyncClient, **options) -> Samples:
    """The samples of `/metrics` by their name and the values of their labels."""
    answer = await client.get("/metrics", **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
