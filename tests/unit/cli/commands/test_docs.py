import pytest
from click.testing import CliRunner

from nat.cli.commands.docs import docs_command, pages
from nat.errors import NatError


def run(*arguments):
    return CliRunner().invoke(docs_command, arguments)


def test_pages_are_listed_and_printed():
    """Messages name a page by its name in this list; the page is printed as it is."""
    names = run().output.split()
    assert "agents/served" in names
    assert run("agents/served").output.rstrip() == pages()["agents/served"].read_text().rstrip()


def test_an_unknown_page_suggests_the_nearest():
    """The error names the page that was meant."""
    result = run("agents/servde.md")
    with pytest.raises(NatError, match=r"there is no page 'agents/servde\.md'\. Did you mean 'agents/served'\?"):
        raise result.exception
