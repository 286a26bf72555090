"""The stub server with the embedded backend's routes for training: each job is completed at once."""

import asyncio
import json
import sys

from bench.stub import DETAILED, Stub

from nat.wire.serving import received
from nat.wire.training import ResolvedTraining

RESOLVED = ResolvedTraining(algorithm="lite_ppo", paper="", settings={})
METRICS = {f"metric_{number}": 0.125 * number for number in range(25)}


class StubBackend(Stub):
    """Answers chats as the stub does, and reports every job as completed; its models are empty folders."""

    def data_received(self, data: bytes) -> None:
        if self.buffered or not data.startswith(b"GET "):
            super().data_received(data)
            return
        path = data.split(b" ")[1].decode()
        self.write({"status": "ok"} if path == "/health" else _job(path.partition("?")[0].rpartition("/")[2]))

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"POST /v1/training/jobs"):
            self.write(_job(json.loads(body)["id"]))
        elif head.startswith(b"POST /v1/training/resolve"):
            self.write(RESOLVED.model_dump())
        elif head.startswith(b"POST /v1/training/best"):
            self.write({"path": str(folder / "checkpoints" / "step_000001"), "policy_version": "stub@0"})
        elif head.startswith(b"POST /v1/training/export"):
            model = folder / "exports" / "model"
            model.mkdir(parents=True)
            self.write({"path": str(model), "policy_version": "stub@0"})
        else:
            self.transport.write(DETAILED)

    def write(self, answer: object) -> None:
        """Write the value as a JSON response."""
        content = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        self.transport.write(head.encode() + content)


def _job(job_id: str) -> dict[str, object]:
    return {"id": job_id, "status": "completed", "progress": 100.0, "policy_version": "stub@0", "metrics": METRICS}


async def main() -> None:
    """Serve until the parent closes stdin."""
    server = await asyncio.get_running_loop().create_server(StubBackend, "127.0.0.1", 0)
    print(json.dumps({"event": "ready", "port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    options = received(sys.stdin.buffer.readline())
    assert options.output_dir is not None, "its parent names one"
    folder = options.output_dir.resolve()
    asyncio.run(main())
