"""Run in the environment of the trackers: read back what a tracker has of the run of `play.py`.

`python read.py RUN_DIR TYPE PLACE`; prints JSON: `runs` (ids in the tracker), `config` (text), `metrics` (name → pairs
of number and value), `tables` (name → epoch → rows), `facts` (the verdict) and `artifacts` (names).
"""

import csv
import io
import json
import re
import sqlite3
import struct
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

Found = dict[str, Any]
BLOCK, HEAD = 32768, 7


def empty() -> Found:
    return {
        "runs": [],
        "config": "",
        "metrics": defaultdict(list),
        "tables": defaultdict(dict),
        "facts": {},
        "artifacts": [],
    }


def take_facts(pairs: Iterable[tuple[str, Any]], found: Found) -> None:
    """The verdict, and the names of paths."""
    for name, value in pairs:
        kind, _, rest = name.partition("/")
        if kind == "verdict":
            found["facts"][rest] = value
        elif kind == "artifact":
            found["artifacts"].append(rest)


def tensorboard(run_dir: Path, _place: str) -> Found:
    """Its own reader, over all event files of the run."""
    folder = run_dir / "trackers" / "tensorboard"
    events, found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0}).Reload(), empty()
    found["runs"] = [file.parents[2].name for file in folder.glob("events*")][:1]
    for name in events.Tags()["scalars"]:
        found["metrics"][name] = [[each.step, each.value] for each in events.Scalars(name)]
    for tag in events.Tags()["tensors"]:
        name = tag.removesuffix("/text_summary")
        texts = {each.step: each.tensor_proto.string_val[0].decode() for each in events.Tensors(tag)}
        if name in {"rollouts", "held_out_rollouts"}:
            found["tables"][name] = {step: text.splitlines()[2:] for step, text in texts.items()}
        elif name.startswith("verdict/"):
            found["facts"][name.partition("/")[2]] = texts[0]
        elif name == "config":
            found["config"] = texts[0]
        elif name.startswith("artifact/"):
            found["artifacts"].append(name.partition("/")[2])
    return found


def wandb_records(file: Path) -> Iterator[bytes]:
    """The payloads of a LevelDB log whose first block begins with seven bytes of W&B's own."""
    data, whole, place = file.read_bytes(), b"", HEAD
    while place + HEAD <= len(data):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEAD])
        if kind == 0:
            break
        whole = (b"" if kind in {1, 2} else whole) + data[place + HEAD : place + HEAD + length]
        place += HEAD + length
        if kind in {1, 4}:
            yield whole


def wandb(run_dir: Path, _place: str) -> Found:
    """The newest files for `wandb sync`: after a kill, the process that goes on writes all of the run again."""
    found, settings = empty(), {}
    (*_, file) = sorted((run_dir / "trackers" / "wandb").glob("offline-run-*/*.wandb"))
    for payload in wandb_records(file):
        record = Record.FromString(payload)
        match record.WhichOneof("record_type"):
            case "run":
                found["runs"] = [record.run.run_id]
                settings |= wandb_values(record.run.config.update)
            case "history":
                wandb_history(wandb_values(record.history.item), file.parent / "files", found)
            case "summary":
                values = wandb_values(record.summary.update)
                take_facts(values.items(), found)
    found["config"] = json.dumps(settings)
    return found


def wandb_values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def wandb_history(row: dict[str, Any], files: Path, found: Found) -> None:
    at = row.get("optimizer_step", row.get("epoch"))
    for name in ("rollouts", "held_out_rollouts"):
        if (path := row.get(f"{name}/path")) is not None:
            found["tables"][name][at] = json.loads((files / path).read_text())["data"]
            return
    for name, value in row.items():
        if not name.startswith("_") and name not in {"epoch", "optimizer_step"}:
            found["metrics"][name].append([at, value])


def mlflow(_run_dir: Path, place: str) -> Found:
    """Its client."""
    client, found = MlflowClient(place), empty()
    experiment = client.get_experiment_by_name("nat").experiment_id
    (run,) = client.search_runs([experiment])
    found["runs"], ended = [run.info.run_id], run.info.status
    assert ended == "FINISHED"
    found["config"] = json.dumps(run.data.params)
    for name in run.data.metrics:
        found["metrics"][name] = [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, name)]
    for folder in client.list_artifacts(run.info.run_id):
        for file in client.list_artifacts(run.info.run_id, folder.path) if folder.is_dir else ():
            table = client.load_table(experiment, file.path, run_ids=[run.info.run_id])
            found["tables"][folder.path][int(re.findall(r"\d+", file.path)[0])] = table.values.tolist()
    take_facts(run.data.tags.items(), found)
    return found


def trackio(_run_dir: Path, place: str) -> Found:
    """The tables of its database."""
    found = empty()
    with sqlite3.connect(Path(place) / "nat.db") as base:
        found["config"] = str(base.execute("SELECT config FROM configs").fetchall())
        for name, step, text in base.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id"):
            found["runs"] = sorted({*found["runs"], name})
            for key, value in json.loads(text).items():
                if isinstance(value, dict):
                    found["tables"][key][step] = value.get("_value", value.get("data", []))
                elif key != "state":
                    found["metrics"][key].append([step, value])
    for rows in found["tables"].pop("facts").values():
        take_facts(((row["name"], row["value"]) for row in rows), found)
    return found


def comet(run_dir: Path, _place: str) -> Found:
    """The messages of the archives for `comet upload`."""
    found, settings = empty(), {}
    for file in sorted((run_dir / "trackers" / "comet").glob("*.zip"), key=lambda file: file.stat().st_mtime):
        with zipfile.ZipFile(file) as archive:
            if not archive.namelist():
                continue
            found["runs"] = sorted({*found["runs"], json.loads(archive.read("experiment.json"))["offline_id"]})
            for line in archive.read("messages.json").splitlines():
                message = json.loads(line)
                comet_message(message["type"], message["payload"], archive, found, settings)
    found["config"] = json.dumps(settings)
    return found


def comet_message(kind: str, payload: Any, archive: zipfile.ZipFile, found: Found, settings: dict[str, Any]) -> None:
    match kind:
        case "metric_msg":
            metric = payload["metric"]
            found["metrics"][metric["metricName"]].append([metric["step"], metric["metricValue"]])
        case "parameter_msg":
            settings[payload["param"]["paramName"]] = payload["param"]["paramValue"]
        case "log_other":
            take_facts([(payload["key"], payload["value"])], found)
        case "file_upload":
            name = payload["additional_params"]["fileName"]
            rows = list(csv.reader(io.StringIO(archive.read(payload["file_path"]).decode())))[1:]
            found["tables"][name.partition("/")[0]][int(re.findall(r"\d+", name)[0])] = rows


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]](Path(sys.argv[1]), sys.argv[3]), default=str))
