"""`nat docs`: print a page of the documentation, which the package brings along."""

from pathlib import Path

import click

import nat.errors
from nat.errors import NatError, did_you_mean, one_of

_PACKAGE = Path(nat.errors.__file__).parent
FOLDERS = (_PACKAGE / "pages", _PACKAGE.parents[1] / "docs")
"""In an installed package, and in the repository."""


@click.command("docs")
@click.argument("page", required=False)
def docs_command(*, page: str | None) -> None:
    """Print a PAGE of the documentation, such as agents/served; without one, list all pages."""
    known = pages()
    if page is None:
        click.echo("\n".join(known))
        return
    name = page.removesuffix(".md")
    if name not in known:
        groups = one_of({each.partition("/")[0] for each in known})
        text = f"there is no page '{page}'.{did_you_mean(name, known)}"
        raise NatError(text, hint=f"`nat docs` lists all pages; they are about {groups}")
    click.echo(known[name].read_text("utf-8"))


def pages() -> dict[str, Path]:
    """The file of each page by its name, in order."""
    folder = next(each for each in FOLDERS if each.is_dir())
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.md"))}
