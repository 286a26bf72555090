"""Models by name: find a model's folder on this machine, convert a GGUF file, or download from the Hugging Face Hub."""

import fcntl
import hashlib
import logging
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from nat.errors import ModelUnavailable, describe_error
from nat.files import remove_unfinished, user_cache
from nat.wire.extras import install_hint, missing_packages
from nat.wire.model_folder import is_model, no_causal_model

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
"""`OWNER/NAME`; a few old models have only a name."""
_ADDRESS = re.compile(r"https?:/+(www\.)?(huggingface\.co|hf\.co)/(?P<name>[\w.-]+/[\w.-]+)")
"""A path has lost one of the two slashes."""
_WORDS = ("*.json", "*.jinja", "*.model", "*.txt")
"""Configuration, chat template and vocabularies."""
_FILES = (*_WORDS, "*.safetensors")
"""With the weights; repositories may also have them in other formats."""
_CLOSE = 0.75
"""Names of the Hub and paths of folders are long, so two of them are seldom alike by chance."""
_MODELS = (
    "give the directory of a Hugging Face model that writes text, with its config.json; or its name on the Hub, "
    "OWNER/NAME; or a .gguf file; paths start at the current folder"
)


@dataclass(frozen=True)
class LocalModel:
    """A model's folder on this machine."""

    folder: Path
    revision: str | None = None
    """The commit of the Hub that it is; None for a folder or file that the user named."""


def local_model(model: Path | str, revision: str | None = None, *, weights: bool = True) -> LocalModel:
    """The folder of a model; a GGUF file is converted, a name of the Hub downloaded, unless the cache has it.

    Without `weights`, the files beside them are downloaded alone.
    `huggingface_hub` reads its own settings: HF_HOME, HF_ENDPOINT (a mirror), HF_TOKEN, HF_HUB_OFFLINE.

    Raises:
        ModelUnavailable: there is no such folder, file or name, access is refused, or the download or conversion fails.

    """
    folder = Path(model)
    named = _NAME.fullmatch(str(model)) and not folder.exists() and folder.suffix != ".gguf"
    if not named and revision is not None:
        raise ModelUnavailable(
            f"{model} is a {'file' if folder.is_file() else 'folder'}, which has no revision '{revision}'",
            hint="remove `revision`, or give the name of a model on the Hub",
        )
    if folder.is_file():  # Ollama's have no ending
        with folder.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelUnavailable(f"{model} is no GGUF file", hint=_MODELS)
        return LocalModel(converted(folder))
    if address := _ADDRESS.match(str(model)):
        raise ModelUnavailable(f"{model} is an address", hint=f"give the model's name alone: {address['name']}")
    found = _downloaded(str(model), revision, _FILES if weights else _WORDS) if named else LocalModel(folder)
    if not is_model(found.folder):
        what = "a model of transformers" if named else "a checkpoint directory"
        why = f"is not {what} (it has no config.json)"
        if not named and not folder.is_dir():
            why = "is neither a file nor a directory" if folder.exists() else f"does not exist{_meant(folder)}"
        raise ModelUnavailable(f"{model} {why}", hint=_MODELS)
    if other := no_causal_model(found.folder):
        raise ModelUnavailable(f"{model} is a {other}, not a causal language model", hint=_MODELS)
    return found


def converted(file: Path) -> Path:
    """The folder of safetensors with the model of a GGUF file; converted unless the cache has the file's SHA-256.

    Raises:
        ModelUnavailable: a package is missing, or transformers cannot read the file.

    """
    if missing := missing_packages(["gguf", "torch", "transformers"]):
        problem = f"reading the file {file} needs packages that are not installed: {', '.join(missing)}"
        raise ModelUnavailable(problem, hint=install_hint("local"))
    with file.open("rb") as content:
        place = user_cache() / "gguf" / hashlib.file_digest(content, "sha256").hexdigest()
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := next(filter(is_model, place.glob("[!.]*")), None)) is not None:
            return found
        remove_unfinished(place)
        logger.info("converting %s (%.0f MiB) to safetensors, once", file, file.stat().st_size / 2**20)
        folder = place / file.stem
        command = [sys.executable, "-P", "-m", "nat.backend.gguf_reading", str(file.resolve()), str(folder)]
        # The child holds the lock, too: a killed parent leaves no second conversion.
        done = subprocess.run(command, capture_output=True, pass_fds=[lock.fileno()], text=True, check=False)
        if done.returncode:
            _, refused, problem = f"\n{done.stderr.strip()}".rpartition("\nError: ")
            failed = f"the conversion of {file} ended with exit code {done.returncode}: {problem.splitlines()[-1]}"
            raise ModelUnavailable(problem if refused else failed)
        num_bytes = sum(path.stat().st_size for path in folder.iterdir())
        logger.info("%s: %s, %.0f MiB in %s", file.name, done.stdout, num_bytes / 2**20, folder)
        return folder


def _meant(folder: Path) -> str:
    """`. Did you mean 'models/student'?`, if a model of about this path is here; else empty."""
    here = {*Path().glob("*"), *Path().glob("*/*"), *folder.parent.glob("*")}
    models = {str(each) for each in here if each.suffix == ".gguf" or is_model(each)}
    close = get_close_matches(str(folder), sorted(models), n=1, cutoff=_CLOSE)
    same = [model for model in sorted(models) if Path(model).name == folder.name]
    return f". Did you mean '{(close or same)[0]}'?" if close or same else ""


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """The folder of a model of the Hub in the cache; None if it is not complete there. Nothing is downloaded."""
    if _NAME.fullmatch(name) is None or missing_packages(["huggingface_hub"]):
        return None
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except errors.LocalEntryNotFoundError:
        return None


def _downloaded(name: str, revision: str | None, files: Sequence[str]) -> LocalModel:
    if missing_packages(["huggingface_hub"]):
        raise ModelUnavailable(
            f"{name} is no folder here ({Path.cwd()}); names of the Hub need huggingface_hub, which is not installed",
            hint=install_hint("local"),
        )
    from huggingface_hub import snapshot_download

    others = ["*/*"]  # folders of a repository hold other versions of the model
    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=[*files], ignore_patterns=others)
    except Exception as error:
        raise _explained(name, revision, error) from error
    return LocalModel(Path(folder), revision=Path(folder).name)


def _explained(name: str, revision: str | None, error: Exception) -> ModelUnavailable:
    from huggingface_hub import constants, errors

    hub, get = constants.ENDPOINT, f"hf download {name}" + (f" --revision {revision}" if revision else "")
    log_in, meant = "run `hf auth login` or set HF_TOKEN", _meant(Path(name))
    if meant:
        return ModelUnavailable(f"there is no folder {name} here ({Path.cwd()}){meant}", hint=f"or run `{get}`")
    here, folder = (
        f"neither a folder here ({Path.cwd()})",
        "" if "/" in name else "; if you mean a folder, correct its path",
    )
    if isinstance(error, errors.GatedRepoError):
        seen, hint = "is gated: its owner has to grant you access", f"ask for it on {hub}/{name}, then {log_in}"
    elif isinstance(error, errors.RepositoryNotFoundError):
        seen, hint = f"is {here} nor a model that {hub} shows", f"check the name; for a private model, {log_in}"
    elif isinstance(error, errors.RevisionNotFoundError):
        seen, hint = f"has no revision '{revision}' on {hub}", "give a branch, a tag or a commit of the model"
    elif isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        cause = f": {describe_error(error.__cause__)}" if error.__cause__ else ""
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{hub} does not answer{cause}"
        seen = f"is {here} nor complete in the cache {constants.HF_HUB_CACHE}; {why}"
        hint = f"run `{get}` where there is a network, and copy the cache; HF_ENDPOINT names a mirror"
    else:
        seen, hint = f"cannot be downloaded from {hub}: {describe_error(error)}", f"try `{get}`"
    return ModelUnavailable(f"{name} {seen}", hint=f"{hint}{folder}")
