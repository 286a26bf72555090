"""Draw what a program shows in a terminal as a page, as the environment `playwright` has it.

It reads one JSON object from stdin: the program with its arguments, the columns and rows, the keys that are typed once
it has drawn, and the file of HTML.
"""

import fcntl
import html
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

DRAWN_S = 6.0
"""After its start, the keys and a resize; it says nothing when it has drawn."""
ANSWERS = {b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x07", b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62c"}
"""What a terminal says of its colours, its cursor and itself."""
INK, PAPER = "d0d0d0", "101010"
STYLE = f"body{{margin:8px;background:#{PAPER}}}pre{{font:14px/16px monospace;margin:0}}"
STYLE += "span{display:inline-block;width:8px;height:16px;overflow:hidden;vertical-align:top}"


def main() -> None:
    """Answer the request."""
    request = json.load(sys.stdin)
    columns, rows = request["size"]
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execv(request["command"][0], request["command"])
    try:
        _resize(terminal, columns, rows - 1)
        _draw(terminal, stream)
        os.write(terminal, request["keys"].encode())
        _draw(terminal, stream)
        screen.reset()
        _resize(terminal, columns, rows)  # all is drawn again, and not only what has changed
        _draw(terminal, stream)
    finally:
        os.kill(process, signal.SIGKILL)
    lines = ("".join(_cell(screen.buffer[y][x]) for x in range(columns)) for y in range(rows))
    Path(request["file"]).write_text(f"<meta charset=utf-8><style>{STYLE}</style><pre>{chr(10).join(lines)}</pre>")


def _resize(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _draw(terminal: int, stream: pyte.ByteStream) -> None:
    end = time.monotonic() + DRAWN_S
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            shown = os.read(terminal, 65536)
            for asked, answer in ANSWERS.items():
                if asked in shown:
                    os.write(terminal, answer)
            stream.feed(shown)


def _cell(cell: pyte.screens.Char) -> str:
    ink, paper = (own if len(own) == len(INK) else usual for own, usual in ((cell.fg, INK), (cell.bg, PAPER)))
    return f'<span style="color:#{ink};background:#{paper}">{html.escape(cell.data)}</span>'


if __name__ == "__main__":
    main()
