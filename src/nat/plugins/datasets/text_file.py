"""Read a dataset file as text, with errors that say where it is broken."""

from pathlib import Path

from nat.errors import DatasetError

MAX_FINDINGS = 5
"""How many broken rows an error lists; the rest is counted."""


def read_text(path: Path) -> str:
    """The file's text as it is, without a byte order mark and without translating line ends."""
    if not path.is_file():
        seen = "is a directory" if path.is_dir() else "does not exist"
        raise DatasetError(
            f"dataset file '{path}' {seen}",
            hint=f"Relative paths start at the working directory, {Path.cwd()}.",
        )
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DatasetError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8",
            hint="Save the file as UTF-8.",
        ) from error


def raise_findings(path: Path, findings: list[str], *, hint: str | None = None) -> None:
    """Raise one error for all broken places of a file; do nothing if there are none."""
    if not findings:
        return
    shown = [f"  - {finding}" for finding in findings[:MAX_FINDINGS]]
    if len(findings) > MAX_FINDINGS:
        shown.append(f"  - … and {len(findings) - MAX_FINDINGS} more")
    raise DatasetError(f"{path} cannot be read:\n" + "\n".join(shown), hint=hint)
